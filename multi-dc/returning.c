#include "multi-dc/returning.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Sorted by service and region. */
struct seen {
    char *service, *region;        /* region "": the service comes home */
    uint64_t away, back, since_ms; /* since when this leader has seen `back` */
    bool wanted;
};

struct returning {
    uint64_t return_ms;
    struct seen *items;
    size_t count, next; /* next: the next one that returning_next looks at */
};

struct returning *returning_new(uint64_t return_ms) {
    struct returning *returning = mem_zalloc(sizeof *returning);
    returning->return_ms = return_ms;
    return returning;
}

void returning_forget(struct returning *returning) {
    for (size_t i = 0; i < returning->count; i++) free(returning->items[i].service), free(returning->items[i].region);
    free(returning->items);
    returning->items = NULL, returning->count = returning->next = 0;
}

void returning_free(struct returning *returning) {
    if (!returning) return;
    returning_forget(returning);
    free(returning);
}

static int by_names(const void *left, const void *right) {
    const struct seen *a = left, *b = right;
    int order = strcmp(a->service, b->service);
    return order ? order : strcmp(a->region, b->region);
}

/* Adds a service or region that is healthy now. The look before knows since when its note stands. */
static void add(struct returning *returning, const struct returning *before, struct seen now, uint64_t now_ms) {
    const struct seen *known = before->count ? bsearch(&now, before->items, before->count, sizeof now, by_names) : NULL;
    now.since_ms = known && known->back == now.back ? known->since_ms : now_ms;
    now.service = mem_strdup(now.service), now.region = mem_strdup(now.region);
    returning->items[returning->count++] = now;
}

void returning_look(struct returning *returning, const Pb__FailoversResult *now, uint64_t now_ms) {
    struct returning before = *returning;
    size_t room = 1;
    for (size_t i = 0; i < now->n_failovers; i++) room += 1 + now->failovers[i]->record->n_rests;
    returning->items = mem_alloc(room * sizeof *returning->items);
    returning->count = returning->next = 0;
    for (size_t i = 0; i < now->n_failovers; i++) {
        const Pb__FailoverState *state = now->failovers[i];
        const Pb__Failover *record = state->record;
        if (!record->away_index) continue;
        struct seen seen = {.service = record->service, .region = "", .wanted = state->wanted};
        seen.away = record->away_index, seen.back = record->back_index;
        if (!state->wanted || state->healthy) add(returning, &before, seen, now_ms);
        for (size_t k = 0; k < record->n_rests && k < state->n_rests_over; k++) {
            const Pb__FailoverRest *rest = record->rests[k];
            seen = (struct seen){.service = record->service, .region = rest->region, .wanted = true};
            seen.away = rest->away_index, seen.back = rest->back_index;
            if (state->rests_over[k]) add(returning, &before, seen, now_ms);
        }
    }
    CHECK(returning->count < room);
    if (returning->count) qsort(returning->items, returning->count, sizeof *returning->items, by_names);
    returning_forget(&before);
}

bool returning_next(struct returning *returning, uint64_t now_ms, Pb__FailoverHomeCommand *command) {
    while (returning->next < returning->count) {
        const struct seen *seen = &returning->items[returning->next++];
        if (seen->wanted && seen->back && now_ms - seen->since_ms < returning->return_ms) continue;
        pb__failover_home_command__init(command);
        command->service = seen->service, command->region = seen->region;
        command->away_index = seen->away, command->back_index = seen->back;
        return true;
    }
    return false;
}
