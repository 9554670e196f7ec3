/* Shared by the files of OpenFeature's remote evaluation protocol only. */
#ifndef COORD_HTTP_API_OFREP_H
#define COORD_HTTP_API_OFREP_H

#include "http/http.h"
#include "kv/rollout/rollout.h"

#define OFREP_KEY_MOST 1024 /* bytes of a targeting key */
#define OFREP_TAG_SIZE 19   /* "\"0123456789abcdef\"", and a NUL */

/* Browsers may ask from pages of other origins. */
void ofrep_cors(struct http_request *request);
/* A sum of values and variants, as an ETag. */
void ofrep_tag(const Pb__RolloutResolutions *all, char tag[OFREP_TAG_SIZE]);
/* Where the stream for a caller is: its path and query. */
void ofrep_events_path(struct buffer *out, const Pb__RolloutCaller *caller);
/* GET: tells a caller to ask again, when it gets something else than before. */
void ofrep_get_events(struct http_request *request);

#endif
