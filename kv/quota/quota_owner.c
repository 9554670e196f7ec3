/* Owner mode: who owns keys, since when, and which keys are split. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/quota/quota_internal.h"

/* -- members and epochs ------------------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static size_t without_doubles(char **nodes, size_t count) {
    size_t kept = 0;
    if (count) qsort(nodes, count, sizeof *nodes, compare_names);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || strcmp(nodes[kept - 1], nodes[i]) != 0) nodes[kept++] = nodes[i];
    return kept;
}

/* All leases that are members; `mine` as it stands in memory, also when it is not in the store yet. */
static int members_read(struct store_txn *txn, struct slice name, struct arena *arena, const Pb__QuotaLease *mine,
                        const Pb__QuotaLease ***members, size_t *count) {
    char room[STORE_KEY_MAX];
    struct slice rows = quota_rows('l', name, room);
    struct store_cursor cursor;
    size_t capacity = 0;
    int rv = CO_OK;
    *members = NULL, *count = 0;
    store_cursor_open(&cursor, txn, QUOTA_TABLE, rows);
    for (bool rest = mine != NULL; rv == CO_OK; store_cursor_next(&cursor)) {
        bool row = cursor.valid && slice_starts(cursor.key, rows);
        Pb__QuotaLease *lease = NULL;
        if (row) rv = quota_lease_decode(cursor.value, arena, &lease);
        if (rv != CO_OK || (!row && !rest)) break;
        if (lease && (lease->reclaimed || (mine && lease->id == mine->id))) continue;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            const Pb__QuotaLease **wider = arena_alloc(arena, capacity * sizeof *wider);
            if (*count) memcpy(wider, *members, *count * sizeof *wider);
            *members = wider;
        }
        (*members)[(*count)++] = lease ? lease : mine;
        if (!row) break;
    }
    store_cursor_close(&cursor);
    return rv;
}

static size_t nodes_of(const Pb__QuotaLease *const *members, size_t count, struct arena *arena, char ***nodes) {
    *nodes = arena_alloc(arena, (count + 1) * sizeof **nodes);
    for (size_t i = 0; i < count; i++) (*nodes)[i] = members[i]->node;
    return without_doubles(*nodes, count);
}

int quota_members(struct store_txn *txn, struct slice name, struct arena *arena, const Pb__QuotaLease *mine,
                  char ***nodes, size_t *count) {
    const Pb__QuotaLease **members;
    int rv = members_read(txn, name, arena, mine, &members, count);
    if (rv == CO_OK) *count = nodes_of(members, *count, arena, nodes);
    return rv;
}

/* Those who were there when the active epoch began have all acknowledged the newest one, or nobody has come since:
 * who goes takes nothing from the others. */
static bool may_be_active(const Pb__QuotaRecord *record, const Pb__QuotaLease *const *members, size_t count) {
    bool came = false, acknowledged = true;
    for (size_t i = 0; i < count; i++) {
        if (members[i]->id > record->active) came = true;
        else acknowledged &= members[i]->acked >= record->epoch;
    }
    return acknowledged || !came;
}

int quota_members_acked(struct quota_change *change, const Pb__QuotaLease *mine) {
    struct machine_tx *tx = change->tx;
    Pb__QuotaRecord *record = change->record;
    const Pb__QuotaLease **members;
    size_t count;
    if (record->active == record->epoch) return CO_OK;
    int rv = members_read(tx->store, change->name, tx->arena, mine, &members, &count);
    if (rv != CO_OK || !may_be_active(record, members, count)) return rv;
    record->active = record->epoch;
    record->n_active_members = nodes_of(members, count, tx->arena, &record->active_members);
    change->notice = true;
    return CO_OK;
}

int quota_members_changed(struct quota_change *change, const Pb__QuotaLease *mine) {
    change->record->epoch = change->tx->index;
    change->notice = true;
    return quota_members_acked(change, mine);
}

/* -- what a member says ------------------------------------------------------------------------------------------- */

static size_t split_find(const Pb__QuotaRecord *record, struct slice key) {
    size_t i = 0;
    while (i < record->n_splits && !slice_equal(message_slice(record->splits[i]->key), key)) i++;
    return i;
}

static const char *splits_fault(const struct quota_change *change, const Pb__QuotaAsk *ask) {
    const Pb__QuotaRecord *record = change->record;
    size_t count = record->n_splits, bytes = 0;
    for (size_t i = 0; i < record->n_splits; i++) bytes += record->splits[i]->key.len;
    for (size_t i = 0; i < ask->n_split; i++) {
        const Pb__QuotaSplit *split = ask->split[i];
        if (split->key.len == 0 || split->key.len > QUOTA_KEY_MOST) return "split: a key has 1 to 8192 bytes";
        if (split->parts > 1 && split->parts > record->definition->split)
            return arena_printf(change->tx->arena, "split: into %u parts, the budget allows %u", split->parts,
                                record->definition->split);
        if (split->parts > 1 && split_find(record, message_slice(split->key)) == record->n_splits)
            count++, bytes += split->key.len;
    }
    if (count > QUOTA_SPLITS_MOST || bytes > QUOTA_SPLIT_BYTES)
        return "split: at most 64 keys of a budget are split, of 16384 bytes together";
    return NULL;
}

const char *quota_member_fault(const struct quota_change *change, const Pb__QuotaAsk *ask) {
    if (ask->acked > change->record->epoch && !quota_owned(change->record)) return "acked: it is not in owner mode";
    if (ask->acked > change->record->epoch)
        return arena_printf(change->tx->arena, "acked: epoch %llu has not come, the newest is %llu",
                            (unsigned long long)ask->acked, (unsigned long long)change->record->epoch);
    if (ask->n_split && !quota_owned(change->record)) return "split: it is not in owner mode";
    if (ask->n_hot > QUOTA_HOT_MOST) return "hot: at most 16 keys";
    for (size_t i = 0; i < ask->n_hot; i++) {
        if (ask->hot[i]->key.len == 0 || ask->hot[i]->key.len > QUOTA_KEY_MOST) return "hot: a key has 1 to 8192 bytes";
        if (!(ask->hot[i]->rate >= 0 && ask->hot[i]->rate <= (double)QUOTA_AMOUNT_MOST))
            return "hot: a rate is from 0 to 10^15";
    }
    return splits_fault(change, ask);
}

static void parts_set(struct quota_change *change, Pb__QuotaSplit *split) {
    uint64_t capacity = quota_capacity(change->record->definition);
    split->amounts = arena_alloc(change->tx->arena, split->parts * sizeof *split->amounts);
    split->n_amounts = split->parts;
    for (uint32_t i = 0; i < split->parts; i++) {
        split->amounts[i] = quota_split_part(capacity, split->parts, i);
        if (change->tx->mutations & MUTATE_QUOTA_SPLIT_EXCEEDS)
            split->amounts[i] = (capacity + split->parts - 1) / split->parts;
    }
}

static void split_set(struct quota_change *change, const Pb__QuotaSplit *wanted) {
    Pb__QuotaRecord *record = change->record;
    size_t at = split_find(record, message_slice(wanted->key));
    if (wanted->parts < 2) {
        if (at == record->n_splits) return;
        record->splits[at] = record->splits[--record->n_splits];
        change->notice = true;
        return;
    }
    if (at < record->n_splits && record->splits[at]->parts == wanted->parts) return;
    if (at == record->n_splits) {
        Pb__QuotaSplit **wider = arena_alloc(change->tx->arena, (at + 1) * sizeof *wider);
        if (at) memcpy(wider, record->splits, at * sizeof *wider);
        record->splits = wider;
        record->splits[record->n_splits++] = arena_alloc(change->tx->arena, sizeof **wider);
    }
    Pb__QuotaSplit *split = record->splits[at];
    pb__quota_split__init(split);
    split->key = wanted->key, split->parts = wanted->parts, split->index = change->tx->index;
    parts_set(change, split);
    change->notice = true;
}

void quota_member_says(struct quota_change *change, Pb__QuotaLease *lease, const Pb__QuotaAsk *ask) {
    if (ask->acked > lease->acked) lease->acked = ask->acked;
    lease->hot = ask->hot, lease->n_hot = ask->n_hot;
    lease->reported = ask->reported;
    for (size_t i = 0; i < ask->n_split; i++) split_set(change, ask->split[i]);
}

void quota_splits_anew(struct quota_change *change) {
    Pb__QuotaRecord *record = change->record;
    uint32_t most = record->definition->split;
    size_t kept = 0;
    for (size_t i = 0; i < record->n_splits && most > 1; i++) {
        Pb__QuotaSplit *split = record->splits[i];
        if (split->parts > most) split->parts = most;
        split->index = change->tx->index;
        parts_set(change, split);
        record->splits[kept++] = split;
    }
    record->n_splits = kept;
}
