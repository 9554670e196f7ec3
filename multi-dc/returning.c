#include "multi-dc/returning.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct seen {
    char *service;
    uint64_t away, since_ms;
    bool told, kept;
};

struct returning {
    uint64_t return_ms;
    struct seen *items;
    size_t count, room;
};

struct returning *returning_new(uint64_t return_ms) {
    struct returning *returning = mem_zalloc(sizeof *returning);
    returning->return_ms = return_ms;
    return returning;
}

void returning_forget(struct returning *returning) {
    for (size_t i = 0; i < returning->count; i++) free(returning->items[i].service);
    returning->count = 0;
}

void returning_free(struct returning *returning) {
    if (!returning) return;
    returning_forget(returning);
    free(returning->items);
    free(returning);
}

static struct seen *find(struct returning *returning, const char *service) {
    for (size_t i = 0; i < returning->count; i++)
        if (strcmp(returning->items[i].service, service) == 0) return &returning->items[i];
    return NULL;
}

static struct seen *add(struct returning *returning, const char *service) {
    if (returning->count == returning->room) {
        returning->room = returning->room ? 2 * returning->room : 16;
        returning->items = mem_realloc(returning->items, returning->room * sizeof *returning->items);
    }
    struct seen *seen = &returning->items[returning->count++];
    *seen = (struct seen){.service = mem_strdup(service)};
    return seen;
}

void returning_look(struct returning *returning, const Pb__FailoversResult *now, uint64_t now_ms) {
    for (size_t i = 0; i < returning->count; i++) returning->items[i].kept = false;
    for (size_t i = 0; i < now->n_failovers; i++) {
        const Pb__Failover *record = now->failovers[i]->record;
        if (!record->away || !now->failovers[i]->healthy) continue;
        struct seen *seen = find(returning, record->service);
        if (!seen) seen = add(returning, record->service);
        if (seen->away != record->away) seen->away = record->away, seen->since_ms = now_ms;
        seen->told = false, seen->kept = true;
    }
    size_t kept = 0;
    for (size_t i = 0; i < returning->count; i++) {
        if (returning->items[i].kept) returning->items[kept++] = returning->items[i];
        else free(returning->items[i].service);
    }
    returning->count = kept;
}

bool returning_next(struct returning *returning, uint64_t now_ms, Pb__FailoverHomeCommand *command) {
    for (size_t i = 0; i < returning->count; i++) {
        struct seen *seen = &returning->items[i];
        if (seen->told || now_ms - seen->since_ms < returning->return_ms) continue;
        seen->told = true;
        pb__failover_home_command__init(command);
        command->service = seen->service, command->away = seen->away;
        return true;
    }
    return false;
}
