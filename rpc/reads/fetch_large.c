/* Large reads: what would keep the thread from the other fetches for long is read on libuv's pool, one at a time,
 * with a reader of its own. Whoever asks for just the same meanwhile gets the same, if the thing has not changed.
 * The job has all that it needs: the fetch may end before it. */
#include <malloc.h>
#include <stdlib.h>

#include "rpc/reads/fetch_internal.h"

struct fetch_job {
    uv_work_t work;
    struct fetches *fetches;
    struct fetch *fetch; /* NULL: it has ended */
    const struct query_type *type;
    struct rpc *rpc;
    struct fetch_answer *answer;
    int error;
    uint32_t request_size;
    uint8_t request[];
};

/* Pool thread. */
static void job_run(uv_work_t *work) {
    struct fetch_job *job = CONTAINER_OF(work, struct fetch_job, work);
    struct rpc_reader *reader = rpc_reader_new(job->rpc);
    struct arena arena = {0};
    struct watch_thing thing;
    job->error = fetch_read(job->rpc, reader, &arena, job->type, slice_make(job->request, job->request_size), 0, &thing,
                            &job->answer);
    if (job->answer) (void)fetch_digest(job->answer);
    arena_free(&arena);
    rpc_reader_free(reader);
}

static void build_end(struct fetch *fetch) {
    list_remove(&fetch->queue);
    fetch->building = false;
}

/* The others who asked for just this. */
static void share(struct fetches *fetches, struct fetch_answer *answer, struct watch_thing thing) {
    LIST_FOREACH_SAFE(item, next, &fetches->large) {
        struct fetch *fetch = LIST_ENTRY(item, struct fetch, queue);
        if (!fetch_asks(fetch, answer)) continue;
        if (rpc_generation(fetches->rpc, thing) != answer->generation) return;
        build_end(fetch);
        fetch_deliver(fetch, answer, thing);
    }
}

static void job_done(uv_work_t *work, int status) {
    struct fetch_job *job = CONTAINER_OF(work, struct fetch_job, work);
    struct fetches *fetches = job->fetches;
    fetches->job = NULL;
    if (status == UV_ECANCELED) job->error = CO_CLOSED;
    if (job->fetch) build_end(job->fetch);
    if (!job->error) {
        struct watch_thing thing = fetch_thing(job->type, slice_make(job->request, job->request_size), &fetches->arena);
        if (job->fetch) fetch_deliver(job->fetch, job->answer, thing);
        share(fetches, job->answer, thing);
        arena_reset(&fetches->arena);
    } else if (job->fetch) {
        fetch_finish(job->fetch, job->error, NULL);
    }
    fetch_answer_drop(job->answer);
    free(job);
    if (list_empty(&fetches->large)) malloc_trim(0); /* what it took is not to be kept */
    fetch_turn_end(fetches);
}

void fetch_large_next(struct fetches *fetches) {
    if (fetches->job || list_empty(&fetches->large)) return;
    struct fetch *fetch = LIST_ENTRY(fetches->large.next, struct fetch, queue);
    list_remove(&fetch->queue);
    struct fetch_job *job = mem_zalloc(sizeof *job + fetch->request_size);
    job->fetches = fetches;
    job->fetch = fetch;
    job->rpc = fetches->rpc;
    job->type = fetch_outer(fetch)->type;
    job->request_size = fetch->request_size;
    if (job->request_size) memcpy(job->request, fetch->request, job->request_size);
    fetches->job = job;
    CHECK(uv_queue_work(&fetches->loop, &job->work, job_run, job_done) == 0);
}

void fetch_large_add(struct fetch *fetch) {
    fetch->building = true;
    fetch->again = false;
    list_append(&fetch->fetches->large, &fetch->queue);
}

void fetch_large_forget(struct fetch *fetch) {
    struct fetch_job *job = fetch->fetches->job;
    if (job && job->fetch == fetch) job->fetch = NULL;
}

void fetch_large_stop(struct fetches *fetches) {
    if (fetches->job) (void)uv_cancel((uv_req_t *)&fetches->job->work); /* one that runs comes to its end */
}
