/* A fetch that a test waits for: its answer is kept, and that there is one and only one answer is checked. */
#ifndef COORD_TESTS_RPC_ASKED_H
#define COORD_TESTS_RPC_ASKED_H

#include <stdatomic.h>
#include <uv.h>

#include "base/buffer.h"
#include "rpc/reads/fetch_service.h"

struct asked {
    struct rpc_fetch fetch;
    uv_sem_t done;
    _Atomic unsigned count; /* how often `done` was called */
    int error;
    struct rpc_fetched fetched; /* its records: `records` */
    struct buffer records;
};

struct how {
    bool stale, here;
    uint64_t index, wait_ms, view;
    const struct requester *requester;
};

/* Not waited for. `asked` stays where it is until asked_end. */
void asked_begin(struct asked *asked, struct rpc *rpc, const struct query_type *type, const ProtobufCMessage *request,
                 struct how how);
void asked_begin_key(struct asked *asked, struct rpc *rpc, const struct query_type *type, const char *key,
                     struct how how);
bool asked_over(struct asked *asked);
void asked_await(struct asked *asked);
void asked_end(struct asked *asked); /* of one that is over */

/* Of a key that was asked for; NULL: it is not there. */
bool asked_value_is(const struct asked *asked, const char *value);

#endif
