/* Owner mode: members, epochs, losses and splits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/quota/quota_internal.h"

/* -- members and epochs ------------------------------------------------------------------------------------------- */

struct members {
    const Pb__QuotaLease **items;
    size_t count, room;
};

static void member_add(struct members *members, const Pb__QuotaLease *lease, struct arena *arena) {
    if (members->count == members->room) {
        members->room = members->room ? 2 * members->room : 16;
        const Pb__QuotaLease **wider = arena_alloc(arena, members->room * sizeof *wider);
        if (members->count) memcpy(wider, members->items, members->count * sizeof *wider);
        members->items = wider;
    }
    CHECK(members->count < members->room && lease->id);
    members->items[members->count++] = lease;
}

/* Reads all leases that are members, or wait to be; takes `mine` from memory, also when it is not in the store yet. */
static int members_read(struct store_txn *txn, struct slice name, struct arena *arena, const Pb__QuotaLease *mine,
                        struct members *members) {
    char room[STORE_KEY_MAX];
    struct slice rows = quota_rows('l', name, room);
    struct store_cursor cursor;
    int rv = CO_OK;
    *members = (struct members){0};
    QUOTA_EACH_LEASE(&cursor, txn, rows) {
        Pb__QuotaLease *lease;
        rv = quota_lease_decode(cursor.value, arena, &lease);
        if (rv != CO_OK) break;
        if (!lease->reclaimed && !(mine && lease->id == mine->id)) member_add(members, lease, arena);
    }
    store_cursor_close(&cursor);
    if (mine) member_add(members, mine, arena);
    return rv;
}

static int by_node(const void *a, const void *b) {
    const Pb__QuotaLease *one = *(const Pb__QuotaLease *const *)a, *other = *(const Pb__QuotaLease *const *)b;
    int order = strcmp(one->node, other->node);
    return order ? order : one->id < other->id ? -1 : one->id > other->id;
}

struct ring {
    char **nodes; /* sorted, once each */
    uint64_t *leases;
    size_t count;
};

/* The ring of an epoch: its members, with the newest lease of each node. Sorts the members. */
static struct ring ring_of(const struct members *members, uint64_t epoch, struct arena *arena) {
    struct ring ring = {.nodes = arena_alloc(arena, (members->count + 1) * sizeof *ring.nodes),
                        .leases = arena_alloc(arena, (members->count + 1) * sizeof *ring.leases)};
    if (members->count) qsort(members->items, members->count, sizeof(const Pb__QuotaLease *), by_node);
    for (size_t i = 0; i < members->count; i++) {
        const Pb__QuotaLease *lease = members->items[i];
        if (lease->id > epoch) continue;
        if (ring.count && strcmp(ring.nodes[ring.count - 1], lease->node) == 0) ring.count--;
        ring.nodes[ring.count] = lease->node;
        ring.leases[ring.count++] = lease->id;
    }
    CHECK(ring.count <= members->count);
    return ring;
}

int quota_members_show(struct store_txn *txn, const Pb__QuotaRecord *record, struct arena *arena,
                       Pb__QuotaNotice *notice) {
    struct members members;
    int rv = members_read(txn, slice_text(record->definition->name), arena, NULL, &members);
    if (rv != CO_OK) return rv;
    struct ring ring = ring_of(&members, record->epoch, arena);
    notice->members = ring.nodes, notice->n_members = ring.count;
    notice->member_leases = ring.leases, notice->n_member_leases = ring.count;
    notice->active_members = record->active_members, notice->n_active_members = record->n_active_members;
    notice->active_leases = arena_zalloc(arena, (record->n_active_leases + 1) * sizeof *notice->active_leases);
    notice->n_active_leases = record->n_active_leases;
    for (size_t i = 0; i < record->n_active_leases; i++)
        for (size_t j = 0; j < members.count; j++)
            if (members.items[j]->id == record->active_leases[i]) notice->active_leases[i] = record->active_leases[i];
    return CO_OK;
}

/* May the newest epoch be active? All members of the active one have acknowledged it; or no member has come since,
 * because members that go take no keys from the others. */
static bool may_be_active(const Pb__QuotaRecord *record, const struct members *members) {
    bool came = false, acknowledged = true;
    for (size_t i = 0; i < members->count; i++) {
        const Pb__QuotaLease *lease = members->items[i];
        if (lease->id <= record->active) acknowledged &= lease->acked >= record->epoch;
        else came |= lease->id <= record->epoch;
    }
    return acknowledged || !came;
}

static bool somebody_waits(const Pb__QuotaRecord *record, const struct members *members) {
    for (size_t i = 0; i < members->count; i++)
        if (members->items[i]->id > record->epoch) return true;
    return false;
}

int quota_members_acked(struct quota_change *change, const Pb__QuotaLease *mine) {
    struct machine_tx *tx = change->tx;
    Pb__QuotaRecord *record = change->record;
    struct members members;
    if (record->active == record->epoch) return CO_OK;
    int rv = members_read(tx->store, change->name, tx->arena, mine, &members);
    while (rv == CO_OK && record->active != record->epoch && may_be_active(record, &members)) {
        struct ring ring = ring_of(&members, record->epoch, tx->arena);
        CHECK(record->active < record->epoch && record->epoch <= tx->index);
        record->active = record->epoch;
        record->active_members = ring.nodes, record->n_active_members = ring.count;
        record->active_leases = ring.leases, record->n_active_leases = ring.count;
        change->notice = true;
        if (somebody_waits(record, &members)) record->epoch = tx->index;
    }
    return rv;
}

int quota_members_changed(struct quota_change *change, const Pb__QuotaLease *mine) {
    change->record->epoch = change->tx->index;
    change->notice = true;
    return quota_members_acked(change, mine);
}

int quota_member_came(struct quota_change *change, const Pb__QuotaLease *mine) {
    return change->record->active == change->record->epoch ? quota_members_changed(change, mine) : CO_OK;
}

void quota_member_lost(struct quota_change *change, const Pb__QuotaLease *lease) {
    Pb__QuotaRecord *record = change->record;
    size_t i = 0;
    if (record->definition->window) record->unsettled_ends++;
    while (i < record->n_active_leases && record->active_leases[i] != lease->id) i++;
    if (i == record->n_active_leases) return; /* the member counted no keys */
    Pb__QuotaLostOwner *loss = arena_alloc(change->tx->arena, sizeof *loss);
    Pb__QuotaLostOwner **wider = arena_alloc(change->tx->arena, (record->n_losses + 1) * sizeof *wider);
    size_t from = record->n_losses >= QUOTA_LOSSES_MOST ? record->n_losses - QUOTA_LOSSES_MOST + 1 : 0;
    if (from) record->losses_before = record->losses[from - 1]->index;
    if (record->n_losses) memcpy(wider, record->losses + from, (record->n_losses - from) * sizeof *wider);
    pb__quota_lost_owner__init(loss);
    loss->node = lease->node, loss->index = change->tx->index, loss->active = record->active;
    CHECK(from <= record->n_losses);
    record->n_losses -= from;
    wider[record->n_losses++] = loss;
    record->losses = wider;
    CHECK(record->n_losses <= QUOTA_LOSSES_MOST);
}

static void losses_drop(Pb__QuotaRecord *record, uint64_t over) {
    size_t from = 0;
    while (from < record->n_losses && record->losses[from]->index <= over) from++;
    CHECK(from <= record->n_losses);
    record->losses += from, record->n_losses -= from;
    if (record->losses_before <= over) record->losses_before = 0;
}

/* -- fields of a member ------------------------------------------------------------------------------------------- */

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
    CHECK(split->parts >= 2 && split->parts <= QUOTA_PARTS_MOST);
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

bool quota_member_says(struct quota_change *change, Pb__QuotaLease *lease, const Pb__QuotaAsk *ask) {
    if (ask->acked > lease->acked) lease->acked = ask->acked;
    lease->hot = ask->hot, lease->n_hot = ask->n_hot;
    lease->reported = ask->reported;
    losses_drop(change->record, ask->losses_over);
    if (!ask->acked || ask->acked != change->record->epoch || ask->acked != change->record->active) return false;
    for (size_t i = 0; i < ask->n_split; i++) split_set(change, ask->split[i]);
    return ask->n_split > 0;
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
