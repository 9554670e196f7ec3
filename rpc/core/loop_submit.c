#include "rpc/api/loop_submit.h"

#include <stdio.h>
#include <stdlib.h>

#include "rpc/core/rpc_internal.h"

struct loop_write {
    struct rpc_write write;
    struct loop_task task;
    struct rpc *rpc;
    loop_submit_done done;
    void *data;
    struct loop_submitted submitted;
    char text[256];
};

static void over(struct loop_task *task) {
    struct loop_write *write = CONTAINER_OF(task, struct loop_write, task);
    write->done(write->data, &write->submitted);
    free(write);
}

/* Any thread. */
static void written(struct rpc_write *rpc_write, int error, const struct machine_result *result) {
    struct loop_write *write = CONTAINER_OF(rpc_write, struct loop_write, write);
    struct loop_submitted *submitted = &write->submitted;
    submitted->error = error;
    if (!error) submitted->refused = result->error, submitted->yes = result->yes, submitted->index = result->index;
    const char *text = !error && result->text ? result->text : co_strerror(error ? error : submitted->refused);
    snprintf(write->text, sizeof write->text, "%s", text);
    submitted->text = write->text;
    rpc_on_loop(write->rpc, &write->task, over);
}

void loop_submit(struct rpc *rpc, uint8_t command, const ProtobufCMessage *message, loop_submit_done done, void *data) {
    struct loop_write *write = mem_zalloc(sizeof *write);
    write->write.done = written;
    write->rpc = rpc, write->done = done, write->data = data;
    rpc_submit(rpc, &write->write, command, message);
}
