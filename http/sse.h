/* Streams of Server-Sent Events, whatever they tell: an answer that goes on until the client goes or the server stops.
 *
 *     first question --refused: an answer with a status--> over
 *          '--> sending --all taken--> waiting --something to send--> sending
 *                                         '--no server answers: asks again a second later
 *
 * A stream asks (by rpc_fetch, on servers and client agents alike), sends what it gets, and when libmicrohttpd has taken
 * all of it asks again. So a client that reads slowly holds nothing but the text of one answer. The worker owns all. */
#ifndef COORD_HTTP_SSE_H
#define COORD_HTTP_SSE_H

#include "http/impl.h"

struct sse;
struct sse_kind {
    /* Worker thread: fill in the rest of `sse->fetch` and call sse_ask. */
    void (*ask)(struct sse *sse, enum rpc_freshness freshness);
    /* The answer is in sse->fetched. A stream that has not begun (sse->response): sse_start, or sse_forget and a reply.
     * One that has: sse_go_on, or sse_finish. */
    void (*answered)(struct sse *sse);
    /* No answer to the first question; sse_forget, and a reply. */
    void (*failed)(struct sse *sse, int error);
};

/* In a struct of its owner's, allocated with mem_zalloc, of which it is the first member; freed with free(). */
struct sse {
    const struct sse_kind *kind;
    struct worker *worker;
    struct http_request *request; /* NULL: it has ended */
    bool response;                /* it has begun, and libmicrohttpd still has it */
    uint64_t asked_ms, sent_ms;   /* when it asked last; when it sent something last */
    struct buffer text;           /* what is to be sent */
    struct rpc_fetch fetch;
    struct rpc_fetched fetched; /* a copy of the answer, until `answered` returns */
    /* The stream's own. */
    struct operation operation;
    struct post post;
    struct timer timer; /* it asks again */
    bool asking, finish;
    size_t taken; /* of `text`, by libmicrohttpd */
    int error;
};

/* Begins it with the first question, confirmed by the leader. False: too many wait; it has replied, and `sse` is free. */
bool sse_begin(struct http_request *request, struct sse *sse, const struct sse_kind *kind);
/* For `ask`. `message` lives in the request's arena. */
void sse_ask(struct sse *sse, const struct query_type *type, const ProtobufCMessage *message);
/* 200, and what is in sse->text. */
void sse_start(struct sse *sse, uint64_t index);
/* Sends what is in sse->text; nothing there: asks on. */
void sse_go_on(struct sse *sse);
void sse_finish(struct sse *sse); /* the client comes back, with the position that it has */
/* The request is the caller's again, which replies; `sse` may be gone. */
struct http_request *sse_forget(struct sse *sse);

#endif
