/* Fair shares: how much each lease may hold while there is not enough for all. */
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/quota/quota_internal.h"

/* Orders by priority, the highest first; within one the smallest wish first. */
static int compare(const void *a, const void *b) {
    const struct quota_wish *one = a, *other = b;
    if (one->priority != other->priority) return one->priority > other->priority ? -1 : 1;
    return one->want < other->want ? -1 : one->want > other->want;
}

/* The level of wishes that are served in their order, and the rest afterwards. A wish below an equal part of the rest
 * is met; from the first larger one on all get the same. */
static struct quota_level level_of(const struct quota_wish *wishes, size_t count, uint64_t most, uint64_t *total) {
    for (size_t i = 0; i < count; i++) {
        uint64_t left = count - i, part = *total / left;
        if (wishes[i].want > part) {
            bool uneven = *total % left != 0;
            *total = 0;
            return (struct quota_level){part + uneven, uneven};
        }
        *total -= wishes[i].want;
    }
    return (struct quota_level){.most = most};
}

/* When there was not enough for higher priorities, nothing is left for lower ones. */
void quota_share(uint64_t total, uint64_t most, struct quota_wish *wishes, size_t count,
                 struct quota_level levels[QUOTA_PRIORITIES]) {
    if (count) qsort(wishes, count, sizeof *wishes, compare);
    size_t at = 0;
    for (uint32_t priority = QUOTA_PRIORITIES; priority-- > 0;) {
        size_t end = at;
        while (end < count && wishes[end].priority == priority) end++;
        levels[priority] = level_of(wishes + at, end - at, most, &total);
        at = end;
    }
    CHECK(at == count);
}

/* -- of a budget -------------------------------------------------------------------------------------------------- */

struct wishes {
    struct quota_wish *items;
    size_t count, room;
};

static void wish_add(struct wishes *wishes, const Pb__QuotaLease *lease, uint64_t most) {
    if (wishes->count == wishes->room) {
        wishes->room = wishes->room ? 2 * wishes->room : 64;
        wishes->items = mem_realloc(wishes->items, wishes->room * sizeof *wishes->items);
    }
    wishes->items[wishes->count++] =
        (struct quota_wish){lease->priority, lease->wants < most ? lease->wants : most, lease->balance};
}

static int wishes_read(const struct quota_change *change, const Pb__QuotaLease *mine, uint64_t most,
                       struct wishes *wishes) {
    char room[STORE_KEY_MAX];
    struct slice rows = quota_rows('l', change->name, room);
    struct store_cursor cursor;
    struct arena arena = {0};
    int rv = CO_OK;
    QUOTA_EACH_LEASE(&cursor, change->tx->store, rows) {
        Pb__QuotaLease *lease;
        rv = quota_lease_decode(cursor.value, &arena, &lease);
        if (rv != CO_OK) break;
        if (lease->id != mine->id && !lease->reclaimed) wish_add(wishes, lease, most);
        arena_reset(&arena);
    }
    store_cursor_close(&cursor);
    arena_free(&arena);
    wish_add(wishes, mine, most);
    return rv;
}

/* Wishes of one priority lie side by side. */
static void classes_set(struct quota_change *change, const struct wishes *wishes, const struct quota_level *levels) {
    struct arena *arena = change->tx->arena;
    Pb__QuotaRecord *record = change->record;
    record->classes = arena_alloc(arena, QUOTA_PRIORITIES * sizeof *record->classes);
    record->n_classes = 0;
    Pb__QuotaClass *class = NULL;
    for (size_t i = 0; i < wishes->count; i++) {
        if (!class || class->priority != wishes->items[i].priority) {
            CHECK(record->n_classes < QUOTA_PRIORITIES && wishes->items[i].priority < QUOTA_PRIORITIES);
            class = record->classes[record->n_classes++] = arena_alloc(arena, sizeof *class);
            pb__quota_class__init(class);
            class->priority = wishes->items[i].priority;
            class->level = levels[class->priority].most, class->uneven = levels[class->priority].uneven;
        }
        class->leases++;
        class->wants += wishes->items[i].want;
        if (class->wants > INT64_MAX) class->wants = INT64_MAX;
    }
}

/* The sum that all lack of their sure amounts. */
static uint64_t lacking(const struct wishes *wishes, const struct quota_level *levels) {
    uint64_t sum = 0;
    for (size_t i = 0; i < wishes->count; i++) {
        const struct quota_wish *wish = &wishes->items[i];
        uint64_t sure = quota_level_sure(levels[wish->priority]);
        sum += quota_minus(wish->want < sure ? wish->want : sure, wish->balance);
    }
    return sum;
}

int quota_levels_count(struct quota_change *change, const Pb__QuotaLease *mine, bool *spare) {
    Pb__QuotaRecord *record = change->record;
    struct quota_level levels[QUOTA_PRIORITIES];
    uint64_t most = quota_lease_most(record->definition);
    struct wishes wishes = {0};
    int rv = wishes_read(change, mine, most, &wishes);
    if (rv == CO_OK) {
        quota_share(quota_shareable(record), most, wishes.items, wishes.count, levels);
        classes_set(change, &wishes, levels);
        *spare = levels[mine->priority].uneven && quota_grantable(record) > lacking(&wishes, levels);
        record->asks = 0;
    }
    free(wishes.items);
    return rv;
}

/* The level of a priority that was not counted is the most that a lease may hold. */
struct quota_level quota_level_of(const Pb__QuotaRecord *record, uint32_t priority) {
    uint64_t most = quota_lease_most(record->definition);
    for (size_t i = 0; i < record->n_classes; i++) {
        const Pb__QuotaClass *class = record->classes[i];
        if (class->priority == priority && (class->level < most || class->uneven))
            return (struct quota_level){class->level, class->uneven && class->level};
    }
    return (struct quota_level){.most = most};
}

/* -- turns -------------------------------------------------------------------------------------------------------- */

/* Turns need refills that come often, because refills measure for how long a lease has not come for its kept tokens. */
static bool has_turns(const Pb__QuotaRecord *record) {
    const Pb__QuotaDefinition *definition = record->definition;
    return definition->mode == PB__QUOTA_MODE__QUOTA_LEASE && !definition->window &&
           quota_refill_period_ms(definition) <= QUOTA_TURN_MS;
}

static bool comes_first(const Pb__QuotaRecord *record, const Pb__QuotaLease *lease) {
    return lease->turn && lease->turn <= record->turn;
}

uint64_t quota_kept(const Pb__QuotaRecord *record, const Pb__QuotaLease *lease) {
    return lease && comes_first(record, lease) ? 0 : record->kept;
}

static void turn_next(Pb__QuotaRecord *record) {
    record->turn++;
    record->kept = record->kept_next;
    record->kept_next = record->turn_refills = 0;
}

/* Ends the keeping for a lease. Tokens of a turn that is over are kept no longer. */
static void keep_no_more(Pb__QuotaRecord *record, Pb__QuotaLease *lease) {
    CHECK(lease->turn != record->turn || record->kept >= lease->kept);
    CHECK(lease->turn <= record->turn || record->kept_next >= lease->kept);
    if (lease->turn == record->turn) record->kept -= lease->kept;
    if (lease->turn > record->turn) record->kept_next -= lease->kept;
    lease->kept = 0;
}

/* Keeps its share for the lease, and at least one; lower priorities have no turns. */
void quota_waits(Pb__QuotaRecord *record, Pb__QuotaLease *lease, uint64_t want) {
    uint64_t share = quota_level_of(record, lease->priority).most;
    bool lower = record->n_classes && lease->priority < record->classes[0]->priority;
    if (!has_turns(record) || lower) {
        quota_waits_not(record, lease);
        return;
    }
    if (!share) share = 1;
    keep_no_more(record, lease);
    lease->kept = want < share ? want : share;
    if (!lease->turn) lease->turn = record->turn + 1;
    if (lease->turn < record->turn) lease->turn = record->turn;
    if (lease->turn == record->turn) record->kept += lease->kept;
    else record->kept_next += lease->kept;
    if (!record->kept) turn_next(record);
}

void quota_waits_not(Pb__QuotaRecord *record, Pb__QuotaLease *lease) {
    keep_no_more(record, lease);
    lease->turn = 0;
    if (!record->kept && record->kept_next) turn_next(record);
}

void quota_turn_refilled(Pb__QuotaRecord *record) {
    if (record->kept && ++record->turn_refills * quota_refill_period_ms(record->definition) >= QUOTA_TURN_MS)
        turn_next(record);
}
