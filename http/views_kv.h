/* JSON of single records of keys and sessions, as in every list that holds them. */
#ifndef COORD_HTTP_VIEWS_KV_H
#define COORD_HTTP_VIEWS_KV_H

#include "base/json_out.h"
#include "kv/keys/kv.pb-c.h"
#include "kv/session/session.pb-c.h"

struct http_request;
void http_kv_entry(struct json_out *json, const Pb__KvEntry *entry);
/* The value itself is a view's answer. */
void http_kv_raw(struct http_request *request, const Pb__KvEntry *entry);
/* As GET /v1/lock/NAME shows it. */
void http_lock_view(struct json_out *json, const ProtobufCMessage *view);
/* /v1/kv/KEY with ?at= or ?history (http/api_kv_past.c). False: it is neither. */
bool http_kv_past(struct http_request *request);
void http_session(struct json_out *json, const Pb__Session *session);

#endif
