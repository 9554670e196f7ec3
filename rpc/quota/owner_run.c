/* Owner mode: the keys that this agent counts, and its messages for that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "base/random.h"
#include "rpc/quota/spender_run_internal.h"

#define LIST_AGAIN_MS 1000 /* after an error, and up to a quarter more, so that agents do not come all at once */
#define TURNS_MOST    32   /* in one look; the rest waits for the next one */

/* -- services with an instance on this node ------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct owner_run_service *)a)->name, ((const struct owner_run_service *)b)->name);
}

static struct owner_run_service *service_of(const struct spender_run *run, const char *name) {
    struct owner_run_service wanted = {.name = (char *)(uintptr_t)name};
    return bsearch(&wanted, run->services, run->service_count, sizeof wanted, by_name);
}

/* Called without the lock, because `passes` takes locks of its own. True: something changed. */
static bool health_look(struct spender_run *run) {
    bool changed = false;
    for (size_t i = 0; run->passes && i < run->service_count; i++) {
        struct owner_run_service *service = &run->services[i];
        bool passing = run->passes(run->passes_data, service->name);
        changed |= passing != service->passing;
        service->passing = passing;
    }
    return changed;
}

/* With the lock held. */
static void health_tell(struct spender_run *run, struct owner_now now) {
    for (size_t i = 0; run->service_count && i < run->owned->n_budgets; i++) {
        const Pb__QuotaOwned *budget = run->owned->budgets[i];
        owner_serves(run->owner, budget->name, service_of(run, budget->service)->passing, now);
    }
}

void spender_run_health_changed(struct spender_run *run) {
    if (!run || run->closing || run->leaving || !health_look(run)) return;
    spender_run_lock(run);
    health_tell(run, spender_run_now(clock_boot_ns()));
    spender_run_unlock(run);
    uv_async_send(&run->wake);
}

/* -- budgets in owner mode ----------------------------------------------------------------------------------------- */

static void services_set(struct spender_run *run) {
    const Pb__QuotaOwnedResult *list = run->owned;
    size_t count = 0;
    free(run->services);
    run->services = mem_zalloc((list->n_budgets + 1) * sizeof *run->services);
    for (size_t i = 0; i < list->n_budgets; i++) run->services[i].name = list->budgets[i]->service;
    if (list->n_budgets) qsort(run->services, list->n_budgets, sizeof *run->services, by_name);
    for (size_t i = 0; i < list->n_budgets; i++)
        if (!count || by_name(&run->services[count - 1], &run->services[i]) != 0)
            run->services[count++] = run->services[i];
    run->service_count = count;
}

static void list_feed(struct spender_run *run, struct errand *errand, struct owner_now now) {
    struct arena arena = {0};
    Pb__QuotaOwnedResult *list = NULL;
    run->listing = false;
    if (!errand->error && errand->found)
        list = message_unpack(&arena, &pb__quota_owned_result__descriptor, buffer_slice(&errand->record));
    if (!list) {
        run->list_index = 0;
        run->list_due_ns = now.ns + (LIST_AGAIN_MS + random_u64() % (LIST_AGAIN_MS / 4)) * SPENDER_RUN_MS;
        arena_free(&arena);
        return;
    }
    run->list_index = errand->index;
    run->list_due_ns = now.ns;
    bool same = run->owned && run->owned->modify_index == list->modify_index;
    if (same) {
        arena_free(&arena);
        return;
    }
    arena_free(&run->owned_arena);
    run->owned_arena = arena, run->owned = list;
    owner_listed(run->owner, list, now);
    services_set(run);
    run->relist = true; /* their health is checked when the lock is free */
}

void owner_run_look(struct spender_run *run) {
    if (!run->relist) return;
    run->relist = false;
    (void)health_look(run);
    spender_run_lock(run);
    health_tell(run, spender_run_now(clock_boot_ns()));
    spender_run_unlock(run);
    uv_async_send(&run->wake);
}

static void list_follow(struct spender_run *run, struct owner_now now) {
    if (run->listing || run->leaving || now.ns < run->list_due_ns) return;
    run->listing = true;
    errand_add(run, ERRAND_OWNER_LIST)->index = run->list_index;
}

/* -- incoming ------------------------------------------------------------------------------------------------------ */

static void notice_feed(struct spender_run *run, struct errand *errand, struct owner_now now) {
    struct arena arena = {0};
    const Pb__QuotaNotice *notice = NULL;
    int error = errand->error;
    if (!error && errand->found) {
        notice = message_unpack(&arena, &pb__quota_notice__descriptor, buffer_slice(&errand->record));
        if (!notice) error = CO_CORRUPT;
    }
    owner_followed(run->owner, errand->name, error, notice, errand->index, now);
    arena_free(&arena);
}

static void grants_feed(struct spender_run *run, struct errand *errand, struct owner_now now) {
    struct arena arena = {0};
    const Pb__QuotaGrants *grants = NULL;
    int error = errand->error;
    run->owner_asks = false;
    if (!error) grants = machine_decode(&pb__quota_grants__descriptor, buffer_slice(&errand->record), &arena);
    if (!error && !grants) error = CO_UNKNOWN_OUTCOME;
    owner_asked(run->owner, error, grants, now);
    arena_free(&arena);
}

void owner_run_feed(struct spender_run *run, struct errand *errand, struct owner_now now) {
    switch (errand->kind) {
        case ERRAND_OWNER_ASK: grants_feed(run, errand, now); break;
        case ERRAND_OWNER_FOLLOW: notice_feed(run, errand, now); break;
        case ERRAND_OWNER_LIST: list_feed(run, errand, now); break;
        case ERRAND_MESSAGE:
            if (errand->message)
                owner_sent(run->owner, errand->message, errand->reach, buffer_slice(&errand->record), now);
            break;
        default: UNREACHABLE();
    }
}

/* Another agent's question. On the rpc's loop. */
static void asked(void *data, const char *from, struct slice payload, struct rpc_question *question) {
    struct spender_run *run = data;
    struct buffer reply = {0};
    (void)from; /* its rights depend on its lease */
    spender_run_lock(run);
    int rv = owner_serve(run->owner, payload, spender_run_now(clock_boot_ns()), &reply);
    bool due = owner_deadline_ns(run->owner) < run->due_ns;
    spender_run_unlock(run);
    rpc_ask_answer(question, rv, buffer_slice(&reply));
    buffer_free(&reply);
    if (due) uv_async_send(&run->wake);
}

/* -- outgoing ------------------------------------------------------------------------------------------------------ */

static void follow(struct spender_run *run) {
    const char *name;
    for (uint64_t index; owner_follow(run->owner, &name, &index);) {
        struct errand *errand = errand_add(run, ERRAND_OWNER_FOLLOW);
        errand->name = mem_strdup(name), errand->index = index;
    }
}

static void ask(struct spender_run *run, struct owner_now now) {
    const Pb__QuotaAskCommand *command;
    if (run->owner_asks || !owner_ask(run->owner, now, &command)) return;
    run->owner_asks = true;
    run->asked++;
    errand_add(run, ERRAND_OWNER_ASK)->command = command;
}

static void send_messages(struct spender_run *run, struct owner_now now) {
    struct owner_message message;
    while (owner_send(run->owner, now, &message)) {
        struct errand *errand = errand_add(run, ERRAND_MESSAGE);
        errand->message = message.id;
        errand->name = mem_strdup(message.node);
        buffer_append(&errand->payload, message.payload.data, message.payload.size);
    }
}

uint64_t owner_run_turn(struct spender_run *run, struct owner_now now, struct list *answered) {
    uint64_t due_ns = UINT64_MAX;
    if (run->hurry || run->leaving) owned_try_waiting(run, true, now, answered);
    for (unsigned i = 0; i < TURNS_MOST; i++) {
        if (owner_woken(run->owner)) owned_try_waiting(run, false, now, answered);
        due_ns = owner_deadline_ns(run->owner);
        if (due_ns > now.ns) break;
        owner_tick(run->owner, now);
        follow(run);
        ask(run, now);
        send_messages(run, now);
    }
    list_follow(run, now);
    if (!run->listing && !run->leaving && run->list_due_ns < due_ns) due_ns = run->list_due_ns;
    return due_ns;
}

bool owner_run_leave(struct spender_run *run, struct owner_now now) {
    return owner_leave(run->owner, now) || run->owner_asks;
}

/* -- looks --------------------------------------------------------------------------------------------------------- */

bool spender_run_look(struct spender_run *run, struct slice name, struct slice key, struct spender_run_view *out) {
    struct owner_view view;
    spender_run_lock(run);
    bool known = owner_look(run->owner, name, key, UINT32_MAX, spender_run_now(clock_boot_ns()), &view);
    if (known) {
        *out = (struct spender_run_view){.view = view, .owned = view.owner != NULL};
        (void)snprintf(out->owner, sizeof out->owner, "%s", view.owner ? view.owner : "");
        out->view.owner = out->owned ? out->owner : NULL;
    }
    spender_run_unlock(run);
    return known;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

void owner_run_start(struct spender_run *run) {
    if (run->passes) rpc_answer_asks(run->rpc, RPC_TOPIC_QUOTA, asked, run);
    uv_async_send(&run->wake);
}

void owner_run_end(struct spender_run *run) {
    if (run->passes) rpc_answer_asks(run->rpc, RPC_TOPIC_QUOTA, NULL, NULL);
}
