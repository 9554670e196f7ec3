/* The answers of rollouts as JSON, for /v1/rollout and for OpenFeature's protocol. */
#ifndef COORD_HTTP_API_ROLLOUT_VIEWS_H
#define COORD_HTTP_API_ROLLOUT_VIEWS_H

#include "http/message_json.h"
#include "kv/rollout/rollout.h"

/* A document: JSON as it is, else text as a string, else as base64. */
enum document_form { DOCUMENT_JSON, DOCUMENT_TEXT, DOCUMENT_BASE64 };
enum document_form document_form(struct slice document);
void document_write(struct json_out *json, struct slice document);

/* Members of a RolloutResolution. */
extern const struct message_member rollout_resolution_members[];
/* Members of a RolloutState, without and with the counts; of the rows of a RolloutHistory. */
extern const struct message_member rollout_set_members[], rollout_state_members[], rollout_change_members[];

/* OFREP 0.3: one evaluation, as an object. */
void ofrep_evaluation_write(struct json_out *json, const Pb__RolloutResolution *resolution);

#endif
