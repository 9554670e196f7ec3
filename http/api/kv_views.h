/* JSON of single records of keys and sessions, as in every list that holds them. */
#ifndef COORD_HTTP_API_KV_VIEWS_H
#define COORD_HTTP_API_KV_VIEWS_H

#include "base/json_out.h"
#include "kv/keys/kv.pb-c.h"
#include "kv/session/session.pb-c.h"

struct http_request;
void http_kv_entry(struct json_out *json, const Pb__KvEntry *entry);
/* Makes the value itself the answer of a view. */
void http_kv_raw(struct http_request *request, const Pb__KvEntry *entry);
/* As GET /v1/lock/NAME shows it. */
void http_lock_view(struct json_out *json, const ProtobufCMessage *view);
/* ?at= of the request: an index, a time, or how long ago. NULL: it has replied. */
Pb__KvMoment *http_kv_moment(struct http_request *request);
/* The span of the history that can be read, and the result for a moment. */
struct http_kv_window {
    bool off;
    Pb__KvMomentVerdict verdict;
    uint64_t floor, floor_unix_ms, index, unix_ms;
};
/* The status with which the moment is refused, and a line with the reason; 0: it is not refused. `at`: as it was
 * given. */
int http_kv_moment_refused(const struct http_kv_window *window, struct slice at, char *text, size_t room);
void http_kv_time(struct json_out *json, uint64_t unix_ms); /* the member Time; 0: none */
/* PUT /v1/kv/KEY?restore&at= (http/api/kv_restore.c). */
void http_kv_restore(struct http_request *request);
/* /v1/kv/KEY with ?at= or ?history (http/api/kv_history.c). False: it is neither. */
bool http_kv_past(struct http_request *request);
void http_session(struct json_out *json, const Pb__Session *session);

#endif
