#include "multi-dc/returning.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Sorted by service, as the records are. */
struct seen {
    char *service;
    uint64_t away, back, since_ms; /* since when this leader has seen `back` */
    bool wanted;
};

struct returning {
    uint64_t return_ms;
    struct seen *items;
    size_t count, next; /* next: of those that are told */
};

struct returning *returning_new(uint64_t return_ms) {
    struct returning *returning = mem_zalloc(sizeof *returning);
    returning->return_ms = return_ms;
    return returning;
}

void returning_forget(struct returning *returning) {
    for (size_t i = 0; i < returning->count; i++) free(returning->items[i].service);
    free(returning->items);
    returning->items = NULL, returning->count = returning->next = 0;
}

void returning_free(struct returning *returning) {
    if (!returning) return;
    returning_forget(returning);
    free(returning);
}

static int by_service(const void *a, const void *b) {
    return strcmp(((const struct seen *)a)->service, ((const struct seen *)b)->service);
}

static const struct seen *find(const struct returning *returning, const char *service) {
    struct seen key = {.service = (char *)(uintptr_t)service};
    return returning->count ? bsearch(&key, returning->items, returning->count, sizeof key, by_service) : NULL;
}

void returning_look(struct returning *returning, const Pb__FailoversResult *now, uint64_t now_ms) {
    struct returning before = *returning;
    returning->items = mem_alloc((now->n_failovers + 1) * sizeof *returning->items);
    returning->count = returning->next = 0;
    for (size_t i = 0; i < now->n_failovers; i++) {
        const Pb__FailoverState *state = now->failovers[i];
        const Pb__Failover *record = state->record;
        if (!record->away_index || (state->wanted && !state->healthy)) continue;
        const struct seen *known = find(&before, record->service);
        bool same = known && known->back == record->back_index;
        returning->items[returning->count++] = (struct seen){.service = mem_strdup(record->service),
                                                             .away = record->away_index,
                                                             .back = record->back_index,
                                                             .since_ms = same ? known->since_ms : now_ms,
                                                             .wanted = state->wanted};
    }
    if (returning->count) qsort(returning->items, returning->count, sizeof *returning->items, by_service);
    returning_forget(&before);
}

bool returning_next(struct returning *returning, uint64_t now_ms, Pb__FailoverHomeCommand *command) {
    while (returning->next < returning->count) {
        const struct seen *seen = &returning->items[returning->next++];
        if (seen->wanted && seen->back && now_ms - seen->since_ms < returning->return_ms) continue;
        pb__failover_home_command__init(command);
        command->service = seen->service;
        command->away_index = seen->away, command->back_index = seen->back;
        return true;
    }
    return false;
}
