/* Decides whether other regions or services could answer for a service. Entries that may end an absence ask this, so
 * the search ends at the first healthy instance. The answer itself, with all instances, is multi-dc/answer.c. */
#include <string.h>

#include "multi-dc/failover.h"

/* The regions that are passed over: those at rest, for the service itself only. */
static size_t passed_over(const Pb__Failover *record, const struct copy_wish *wish, struct arena *arena,
                          char ***names) {
    size_t count = slice_equal_nocase(wish->service, slice_text(record->service)) ? record->n_rests : 0;
    *names = arena_alloc(arena, (count + 1) * sizeof **names);
    for (size_t i = 0; i < count; i++) (*names)[i] = record->rests[i]->region;
    return count;
}

static bool is_among(const char *region, char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], region) == 0) return true;
    return false;
}

int failover_others(struct store_txn *txn, const Pb__Failover *record, struct arena *arena) {
    struct copy_wish wish = {.service = slice_text(record->service)};
    char **without;
    int rv = CO_NOTFOUND;
    if (!record->n_targets) {
        size_t count = passed_over(record, &wish, arena, &without);
        return copy_service_healthy_anywhere(txn, &wish, without, count, arena);
    }
    for (size_t i = 0; i < record->n_targets && rv == CO_NOTFOUND; i++) {
        const Pb__FailoverTarget *target = record->targets[i];
        wish.service = slice_text(target->service[0] ? target->service : record->service);
        wish.tags = target->tags, wish.n_tags = target->n_tags;
        size_t count = passed_over(record, &wish, arena, &without);
        if (!target->n_regions) rv = copy_service_healthy_anywhere(txn, &wish, without, count, arena);
        for (size_t k = 0; k < target->n_regions && rv == CO_NOTFOUND; k++)
            if (!is_among(target->regions[k], without, count))
                rv = copy_service_healthy(txn, target->regions[k], &wish, arena, NULL);
    }
    return rv;
}

bool failover_names_home(struct store_txn *txn, const Pb__Failover *record, struct arena *arena) {
    Pb__CopyRequest ask = PB__COPY_REQUEST__INIT;
    for (size_t i = 0; i < record->n_targets; i++) {
        const Pb__FailoverTarget *target = record->targets[i];
        bool same = !target->service[0] || slice_equal_nocase(slice_text(target->service), slice_text(record->service));
        for (size_t k = 0; same && k < target->n_regions; k++) {
            struct query_result found = {0};
            ask.region = target->regions[k];
            if (query_copy.run(txn, &ask.base, arena, &found) != CO_OK) continue;
            if (!((const Pb__CopyResult *)found.message)->region) return true;
        }
    }
    return false;
}
