/* The common part of the HTTP API of locks and elections (kv/lock/lock_queue.h): acquiring with a wait, and renewing by
 * session or token. */
#ifndef COORD_HTTP_API_QUEUE_REQUESTS_H
#define COORD_HTTP_API_QUEUE_REQUESTS_H

#include "http/http.h"
#include "kv/lock/lock_queue.h"

/* The struct http_wait of a command that acquires and answers pb.QueueAnswer, which the row's `answer` shows. query_: a
 * query with QueueEntryRequest. */
#define QUEUE_WAIT(query_) \
    { .query = (query_), .ask = queue_ask, .holds = queue_wait_over, .reply = queue_reply, .after_write = true }
const ProtobufCMessage *queue_ask(struct http_request *request, const struct machine_result *written);
bool queue_wait_over(struct http_request *request, const struct query_result *result);
void queue_reply(struct http_request *request, const struct query_result *result, bool holds);

/* Call it before the command: sets the configured limits, and a place in the queue for requests that wait. False: it
 * has replied. */
bool queue_prepare(struct http_request *request, Pb__QueueAcquireCommand *command);
bool queue_note_fits(struct http_request *request, size_t size); /* checks the size of a body; false: it has replied */
/* Checks that either ?session= or ?token= is given; false: it has replied. */
bool queue_session_or_token(struct http_request *request);

/* For GET with ?session=: reads only the entry of that session, so that with ?index= changes of other sessions do not
 * wake the request. `own` writes it by queue_own_view, as a pb.QueueAnswer with the members of an acquire's answer. A
 * session without an entry is answered with an empty one. */
void queue_own_read(struct http_request *request, const struct query_type *entry, http_view own);
int queue_own_view(struct http_request *request, const struct query_result *result,
                   const struct message_member *members);

/* Renews the session that holds ":name", named by ?session= or ?token=; with ?ttl= it gets another TTL. `token_name`:
 * the token's name in the answer. */
void queue_renew(struct http_request *request, const struct query_type *entry, const struct query_type *holder,
                 const char *token_name);

/* -- members of answers: struct message_member.write -------------------------------------------------------------- */

/* Of pb.QueueAnswer: writes NotBefore and NotAfter of the session that the request made, while the session lives. */
void queue_bounds_write(struct json_out *json, const ProtobufCMessage *message, void *request);
/* Of pb.QueueView: writes the waiters with positions; with ?transitions the newest transitions. */
void queue_waiters_write(struct json_out *json, const Pb__QueueView *view, const char *key, bool mode);
void queue_transitions_write(struct json_out *json, const ProtobufCMessage *message, void *request);

#endif
