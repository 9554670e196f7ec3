/* JSON of single records of keys and sessions, as in every list that holds them. */
#ifndef COORD_HTTP_VIEWS_KV_H
#define COORD_HTTP_VIEWS_KV_H

#include "base/json_out.h"
#include "kv/keys/kv.pb-c.h"
#include "kv/session/session.pb-c.h"

void http_kv_entry(struct json_out *json, const Pb__KvEntry *entry);
void http_session(struct json_out *json, const Pb__Session *session);

#endif
