/* Requests to the servers and to other agents, whose answers come back on any thread. */
#include <stdlib.h>

#include "base/check.h"
#include "rpc/quota/spender_run_internal.h"

#define FOLLOW_WAIT_MS 300000

struct errand *errand_add(struct spender_run *run, enum errand_kind kind) {
    struct errand *errand = mem_zalloc(sizeof *errand);
    errand->run = run;
    errand->kind = kind;
    list_init(&errand->link);
    atomic_fetch_add_explicit(&run->references, 1, memory_order_relaxed);
    *run->outgoing_last = errand;
    run->outgoing_last = &errand->next;
    return errand;
}

void errand_free(struct errand *errand) {
    struct spender_run *run = errand->run;
    buffer_free(&errand->record);
    buffer_free(&errand->payload);
    free(errand->name);
    free(errand);
    spender_run_release(run);
}

/* Any thread. */
static void arrive(struct errand *errand) {
    struct spender_run *run = errand->run;
    spender_run_lock(run);
    bool closed = run->closed;
    if (!closed) {
        *run->arrived_last = errand;
        run->arrived_last = &errand->next;
        uv_async_send(&run->wake);
    }
    spender_run_unlock(run);
    if (closed) errand_free(errand);
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

static void submitted(struct rpc_write *write, int error, const struct machine_result *result) {
    struct errand *errand = CONTAINER_OF(write, struct errand, write);
    errand->error = error ? error : result->error;
    if (!errand->error && result->record.size) buffer_append(&errand->record, result->record.data, result->record.size);
    arrive(errand);
}

static void submit(struct errand *errand) {
    errand->write.done = submitted;
    rpc_submit(errand->run->rpc, &errand->write, QUOTA_ASK, &errand->command->base);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static void fetched(struct rpc_fetch *fetch, int error, const struct rpc_fetched *got) {
    struct errand *errand = CONTAINER_OF(fetch, struct errand, fetch);
    errand->error = error;
    if (!error) {
        errand->found = got->found && !got->none;
        errand->index = got->index;
        if (errand->found && got->records.size) buffer_append(&errand->record, got->records.data, got->records.size);
    }
    arrive(errand);
}

static void fetch(struct errand *errand) {
    struct spender_run *run = errand->run;
    Pb__QuotaNoticeRequest of_name = PB__QUOTA_NOTICE_REQUEST__INIT;
    Pb__QuotaOwnedRequest of_all = PB__QUOTA_OWNED_REQUEST__INIT;
    bool all = errand->kind == ERRAND_OWNER_LIST;
    of_name.name = errand->name;
    /* An older list of owners does no harm: an agent that uses it is refused because of its epoch, and asks again. */
    errand->fetch = (struct rpc_fetch){.type = all ? &query_quota_owned : &query_quota_notice,
                                       .freshness = all ? RPC_STALE : RPC_DEFAULT,
                                       .no_cache = true,
                                       .background = errand->index > 0 || all,
                                       .index = errand->index,
                                       .wait_ms = FOLLOW_WAIT_MS,
                                       .done = fetched};
    list_append(&run->fetching, &errand->link);
    rpc_fetch(run->rpc, &errand->fetch, all ? &of_all.base : &of_name.base);
}

void errands_cancel(struct spender_run *run, bool all) {
    LIST_FOREACH(link, &run->fetching) {
        struct errand *errand = LIST_ENTRY(link, struct errand, link);
        if (all || errand->kind == ERRAND_FOLLOW) rpc_fetch_cancel(run->rpc, &errand->fetch);
    }
}

/* -- other agents ------------------------------------------------------------------------------------------------- */

/* An agent that answers with an error has done nothing. */
static enum owner_reach reach_of(enum rpc_ask_reach reach, int error) {
    switch (reach) {
        case RPC_ASK_ANSWERED: return error == CO_OK ? OWNER_ANSWERED : OWNER_NOT_DELIVERED;
        case RPC_ASK_MAYBE_DELIVERED: return OWNER_MAYBE_DELIVERED;
        case RPC_ASK_NOT_DELIVERED: break;
    }
    return OWNER_NOT_DELIVERED;
}

static void answered(struct rpc_ask *ask, int error, struct slice answer) {
    struct errand *errand = CONTAINER_OF(ask, struct errand, ask);
    errand->error = error;
    errand->reach = reach_of(ask->reach, error);
    if (errand->reach == OWNER_ANSWERED && answer.size) buffer_append(&errand->record, answer.data, answer.size);
    arrive(errand);
}

static void ask_agent(struct errand *errand) {
    errand->ask = (struct rpc_ask){.node = errand->name,
                                   .topic = RPC_TOPIC_QUOTA,
                                   .payload = buffer_slice(&errand->payload),
                                   .timeout_ms = OWNER_MESSAGE_MS,
                                   .done = answered};
    rpc_ask(errand->run->rpc, &errand->ask);
}

void errands_send(struct errand *outgoing) {
    for (struct errand *next; outgoing; outgoing = next) {
        next = outgoing->next, outgoing->next = NULL;
        switch (outgoing->kind) {
            case ERRAND_ASK:
            case ERRAND_OWNER_ASK: submit(outgoing); break;
            case ERRAND_FOLLOW:
            case ERRAND_OWNER_FOLLOW:
            case ERRAND_OWNER_LIST: fetch(outgoing); break;
            case ERRAND_MESSAGE:
            case ERRAND_TAKE: ask_agent(outgoing); break;
        }
    }
}
