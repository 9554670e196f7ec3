/* Shared by the files of OpenFeature's remote evaluation protocol only. */
#ifndef COORD_HTTP_API_OFREP_H
#define COORD_HTTP_API_OFREP_H

#include "http/http.h"
#include "kv/rollout/rollout.h"

#define OFREP_KEY_MOST 1024 /* bytes of a targeting key */
#define OFREP_TAG_SIZE 19   /* "\"0123456789abcdef\"", and a NUL */

/* Lets browsers send requests from pages of other origins. */
void ofrep_cors(struct http_request *request);
/* A checksum of values and variants, as an ETag. */
void ofrep_tag(const Pb__RolloutResolutions *all, char tag[OFREP_TAG_SIZE]);
/* Appends path and query of the stream for a caller. */
void ofrep_events_path(struct buffer *out, const Pb__RolloutCaller *caller);
/* Handler of the stream that tells a caller to evaluate its flags again when they have changed. */
void ofrep_get_events(struct http_request *request);

#endif
