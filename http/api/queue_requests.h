/* What locks and elections (kv/lock/queue.h) have in common over HTTP: whoever acquires waits for its turn, and renews by
 * its session or its token. */
#ifndef COORD_HTTP_API_QUEUE_REQUESTS_H
#define COORD_HTTP_API_QUEUE_REQUESTS_H

#include "http/http.h"
#include "kv/lock/queue.h"

/* The struct http_wait of a command that acquires and answers pb.QueueAnswer, which is shown by the row's `answer`.
 * query_: of QueueEntryRequest. */
#define QUEUE_WAIT(query_) \
    { .query = (query_), .ask = queue_ask, .holds = queue_wait_over, .reply = queue_reply, .after_write = true }
const ProtobufCMessage *queue_ask(struct http_request *request, const struct machine_result *written);
bool queue_wait_over(struct http_request *request, const struct query_result *result);
void queue_reply(struct http_request *request, const struct query_result *result, bool holds);

/* Before the command: the configured limits; whoever waits takes a place. False: it has replied. */
bool queue_prepare(struct http_request *request, Pb__QueueAcquireCommand *command);
bool queue_note_fits(struct http_request *request, size_t size); /* the size of a body; false: it has replied */
/* One of ?session= and ?token=, and not both; false: it has replied. */
bool queue_session_or_token(struct http_request *request);

/* Of GET with ?session=: reads what that one has there, and nothing else: with ?index= nobody else's coming and going
 * wakes it. `own` writes it by queue_own_view, as pb.QueueAnswer by the members of an acquire's answer; a session that
 * is not there has nothing, and is answered all the same. */
void queue_own_read(struct http_request *request, const struct query_type *entry, http_view own);
int queue_own_view(struct http_request *request, const struct query_result *result,
                   const struct message_member *members);

/* Renews the session of who holds ":name" by ?session= or ?token=; with ?ttl= it gets another TTL. `token_name`: of
 * the token in the answer. */
void queue_renew(struct http_request *request, const struct query_type *entry, const struct query_type *holder,
                 const char *token_name);

/* -- members of what is shown: struct message_member.write ---------------------------------------------------------- */

/* Of pb.QueueAnswer: NotBefore and NotAfter of the session that the request made, while it is there. */
void queue_bounds_write(struct json_out *json, const ProtobufCMessage *message, void *request);
/* Of pb.QueueView: who waits, with positions; with ?transitions the newest ones. */
void queue_waiters_write(struct json_out *json, const Pb__QueueView *view, const char *key, bool mode);
void queue_transitions_write(struct json_out *json, const ProtobufCMessage *message, void *request);

#endif
