#include "rpc/api/loop_fetch.h"

#include <stdlib.h>

#include "rpc/core/rpc_internal.h"

struct loop_fetch {
    struct rpc_fetch fetch;
    struct loop_task task;
    struct rpc *home, *rpc;
    loop_fetched done; /* NULL: cancelled */
    void *data;
    int error;
    struct rpc_fetched fetched;
    char *records, *cause; /* copies */
};

static void over(struct loop_task *task) {
    struct loop_fetch *fetch = CONTAINER_OF(task, struct loop_fetch, task);
    if (fetch->done) fetch->done(fetch->data, fetch->error, fetch->error ? NULL : &fetch->fetched);
    free(fetch->records), free(fetch->cause);
    free(fetch);
}

/* Any thread. */
static void answered(struct rpc_fetch *read, int error, const struct rpc_fetched *fetched) {
    struct loop_fetch *fetch = CONTAINER_OF(read, struct loop_fetch, fetch);
    fetch->error = error;
    if (!error) {
        fetch->fetched = *fetched;
        fetch->records = mem_strndup(fetched->records.data, fetched->records.size);
        fetch->fetched.records = slice_make(fetch->records, fetched->records.size);
        fetch->cause = fetched->cause ? mem_strdup(fetched->cause) : NULL;
        fetch->fetched.cause = fetch->cause;
    }
    rpc_on_loop(fetch->home, &fetch->task, over);
}

struct loop_fetch *loop_fetch_begin(struct rpc *home, struct rpc *rpc, const struct rpc_fetch *how,
                                    const ProtobufCMessage *request, loop_fetched done, void *data) {
    struct loop_fetch *fetch = mem_zalloc(sizeof *fetch);
    fetch->fetch = *how;
    fetch->fetch.done = answered;
    fetch->home = home, fetch->rpc = rpc, fetch->done = done, fetch->data = data;
    rpc_fetch(rpc, &fetch->fetch, request);
    return fetch;
}

void loop_fetch_cancel(struct loop_fetch *fetch) {
    fetch->done = NULL;
    rpc_fetch_cancel(fetch->rpc, &fetch->fetch);
}
