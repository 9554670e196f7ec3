/* Owner mode: the keys that this agent counts, and its messages for that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "base/random.h"
#include "rpc/quota/spending_internal.h"

#define LIST_AGAIN_MS 1000 /* after an error, and up to a quarter more, so that agents do not come all at once */
#define TURNS_MOST    32   /* in one look; the rest waits for the next one */

/* -- services with an instance on this node ------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct owners_service *)a)->name, ((const struct owners_service *)b)->name);
}

static struct owners_service *service_of(const struct spending *spending, const char *name) {
    struct owners_service wanted = {.name = (char *)(uintptr_t)name};
    return bsearch(&wanted, spending->services, spending->service_count, sizeof wanted, by_name);
}

/* Called without the lock, because `passes` takes locks of its own. True: something changed. */
static bool health_look(struct spending *spending) {
    bool changed = false;
    for (size_t i = 0; spending->passes && i < spending->service_count; i++) {
        struct owners_service *service = &spending->services[i];
        bool passing = spending->passes(spending->passes_data, service->name);
        changed |= passing != service->passing;
        service->passing = passing;
    }
    return changed;
}

/* With the lock held. */
static void health_tell(struct spending *spending, struct owning_now now) {
    for (size_t i = 0; spending->service_count && i < spending->owned->n_budgets; i++) {
        const Pb__QuotaOwned *budget = spending->owned->budgets[i];
        owning_serves(spending->owning, budget->name, service_of(spending, budget->service)->passing, now);
    }
}

void spending_health_changed(struct spending *spending) {
    if (!spending || spending->closing || spending->leaving || !health_look(spending)) return;
    spending_lock(spending);
    health_tell(spending, spending_now(clock_boot_ns()));
    spending_unlock(spending);
    uv_async_send(&spending->wake);
}

/* -- budgets in owner mode ----------------------------------------------------------------------------------------- */

static void services_set(struct spending *spending) {
    const Pb__QuotaOwnedResult *list = spending->owned;
    size_t count = 0;
    free(spending->services);
    spending->services = mem_zalloc((list->n_budgets + 1) * sizeof *spending->services);
    for (size_t i = 0; i < list->n_budgets; i++) spending->services[i].name = list->budgets[i]->service;
    if (list->n_budgets) qsort(spending->services, list->n_budgets, sizeof *spending->services, by_name);
    for (size_t i = 0; i < list->n_budgets; i++)
        if (!count || by_name(&spending->services[count - 1], &spending->services[i]) != 0)
            spending->services[count++] = spending->services[i];
    spending->service_count = count;
}

static void list_feed(struct spending *spending, struct errand *errand, struct owning_now now) {
    struct arena arena = {0};
    Pb__QuotaOwnedResult *list = NULL;
    spending->listing = false;
    if (!errand->error && errand->found)
        list = message_unpack(&arena, &pb__quota_owned_result__descriptor, buffer_slice(&errand->record));
    if (!list) {
        spending->list_index = 0;
        spending->list_due_ns = now.ns + (LIST_AGAIN_MS + random_u64() % (LIST_AGAIN_MS / 4)) * SPENDING_MS;
        arena_free(&arena);
        return;
    }
    spending->list_index = errand->index;
    spending->list_due_ns = now.ns;
    bool same = spending->owned && spending->owned->modify_index == list->modify_index;
    if (same) {
        arena_free(&arena);
        return;
    }
    arena_free(&spending->owned_arena);
    spending->owned_arena = arena, spending->owned = list;
    owning_owned(spending->owning, list, now);
    services_set(spending);
    spending->relist = true; /* their health is checked when the lock is free */
}

void owners_look(struct spending *spending) {
    if (!spending->relist) return;
    spending->relist = false;
    (void)health_look(spending);
    spending_lock(spending);
    health_tell(spending, spending_now(clock_boot_ns()));
    spending_unlock(spending);
    uv_async_send(&spending->wake);
}

static void list_follow(struct spending *spending, struct owning_now now) {
    if (spending->listing || spending->leaving || now.ns < spending->list_due_ns) return;
    spending->listing = true;
    errand_add(spending, ERRAND_OWNER_LIST)->index = spending->list_index;
}

/* -- incoming ------------------------------------------------------------------------------------------------------ */

static void notice_feed(struct spending *spending, struct errand *errand, struct owning_now now) {
    struct arena arena = {0};
    const Pb__QuotaNotice *notice = NULL;
    int error = errand->error;
    if (!error && errand->found) {
        notice = message_unpack(&arena, &pb__quota_notice__descriptor, buffer_slice(&errand->record));
        if (!notice) error = CO_CORRUPT;
    }
    owning_followed(spending->owning, errand->name, error, notice, errand->index, now);
    arena_free(&arena);
}

static void grants_feed(struct spending *spending, struct errand *errand, struct owning_now now) {
    struct arena arena = {0};
    const Pb__QuotaGrants *grants = NULL;
    int error = errand->error;
    spending->owning_asks = false;
    if (!error) grants = machine_decode(&pb__quota_grants__descriptor, buffer_slice(&errand->record), &arena);
    if (!error && !grants) error = CO_UNKNOWN_OUTCOME;
    owning_asked(spending->owning, error, grants, now);
    arena_free(&arena);
}

void owners_feed(struct spending *spending, struct errand *errand, struct owning_now now) {
    switch (errand->kind) {
        case ERRAND_OWNER_ASK: grants_feed(spending, errand, now); break;
        case ERRAND_OWNER_FOLLOW: notice_feed(spending, errand, now); break;
        case ERRAND_OWNER_LIST: list_feed(spending, errand, now); break;
        case ERRAND_MESSAGE:
            if (errand->message)
                owning_sent(spending->owning, errand->message, errand->reach, buffer_slice(&errand->record), now);
            break;
        default: UNREACHABLE();
    }
}

/* Another agent's question. On the rpc's loop. */
static void asked(void *data, const char *from, struct slice payload, struct rpc_question *question) {
    struct spending *spending = data;
    struct buffer reply = {0};
    (void)from; /* its rights depend on its lease */
    spending_lock(spending);
    int rv = owning_serve(spending->owning, payload, spending_now(clock_boot_ns()), &reply);
    bool due = owning_deadline_ns(spending->owning) < spending->due_ns;
    spending_unlock(spending);
    rpc_ask_answer(question, rv, buffer_slice(&reply));
    buffer_free(&reply);
    if (due) uv_async_send(&spending->wake);
}

/* -- outgoing ------------------------------------------------------------------------------------------------------ */

static void follow(struct spending *spending) {
    const char *name;
    for (uint64_t index; owning_follow(spending->owning, &name, &index);) {
        struct errand *errand = errand_add(spending, ERRAND_OWNER_FOLLOW);
        errand->name = mem_strdup(name), errand->index = index;
    }
}

static void ask(struct spending *spending, struct owning_now now) {
    const Pb__QuotaAskCommand *command;
    if (spending->owning_asks || !owning_ask(spending->owning, now, &command)) return;
    spending->owning_asks = true;
    spending->asked++;
    errand_add(spending, ERRAND_OWNER_ASK)->command = command;
}

static void send_messages(struct spending *spending, struct owning_now now) {
    struct owning_message message;
    while (owning_send(spending->owning, now, &message)) {
        struct errand *errand = errand_add(spending, ERRAND_MESSAGE);
        errand->message = message.id;
        errand->name = mem_strdup(message.node);
        buffer_append(&errand->payload, message.payload.data, message.payload.size);
    }
}

uint64_t owners_turn(struct spending *spending, struct owning_now now, struct list *answered) {
    uint64_t due_ns = UINT64_MAX;
    if (spending->hurry || spending->leaving) owned_try_waiting(spending, true, now, answered);
    for (unsigned i = 0; i < TURNS_MOST; i++) {
        if (owning_woken(spending->owning)) owned_try_waiting(spending, false, now, answered);
        due_ns = owning_deadline_ns(spending->owning);
        if (due_ns > now.ns) break;
        owning_tick(spending->owning, now);
        follow(spending);
        ask(spending, now);
        send_messages(spending, now);
    }
    list_follow(spending, now);
    if (!spending->listing && !spending->leaving && spending->list_due_ns < due_ns) due_ns = spending->list_due_ns;
    return due_ns;
}

bool owners_leave(struct spending *spending, struct owning_now now) {
    return owning_leave(spending->owning, now) || spending->owning_asks;
}

/* -- looks --------------------------------------------------------------------------------------------------------- */

bool spending_look(struct spending *spending, struct slice name, struct slice key, struct spending_view *out) {
    struct owning_view view;
    spending_lock(spending);
    bool known = owning_look(spending->owning, name, key, UINT32_MAX, spending_now(clock_boot_ns()), &view);
    if (known) {
        *out = (struct spending_view){.view = view, .owned = view.owner != NULL};
        (void)snprintf(out->owner, sizeof out->owner, "%s", view.owner ? view.owner : "");
        out->view.owner = out->owned ? out->owner : NULL;
    }
    spending_unlock(spending);
    return known;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

void owners_start(struct spending *spending) {
    if (spending->passes) rpc_answer_asks(spending->rpc, RPC_TOPIC_QUOTA, asked, spending);
    uv_async_send(&spending->wake);
}

void owners_end(struct spending *spending) {
    if (spending->passes) rpc_answer_asks(spending->rpc, RPC_TOPIC_QUOTA, NULL, NULL);
}
