/* Records of budgets, leases and the audit trail, and the change of a budget by an entry. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/quota/quota_internal.h"

enum { NUMBER_BYTES = 8 };

/* -- keys --------------------------------------------------------------------------------------------------------- */

static struct slice head_key(char kind, struct slice name, char room[STORE_KEY_MAX]) {
    CHECK(name.size <= QUOTA_NAME_MOST);
    room[0] = kind;
    memcpy(room + 1, name.data, name.size);
    return slice_make(room, 1 + name.size);
}

struct slice quota_rows(char kind, struct slice name, char room[STORE_KEY_MAX]) {
    size_t size = head_key(kind, name, room).size;
    room[size] = '\0';
    return slice_make(room, size + 1);
}

struct slice quota_row(char kind, struct slice name, uint64_t number, char room[STORE_KEY_MAX]) {
    _Static_assert(2 + QUOTA_NAME_MOST + NUMBER_BYTES <= STORE_KEY_MAX, "it fits");
    size_t size = quota_rows(kind, name, room).size;
    put_be64(room + size, number);
    return slice_make(room, size + NUMBER_BYTES);
}

/* -- records ------------------------------------------------------------------------------------------------------ */

int quota_record_decode(struct slice bytes, struct arena *arena, Pb__QuotaRecord **record) {
    *record = message_unpack(arena, &pb__quota_record__descriptor, bytes);
    return *record && (*record)->definition && quota_name_fits((*record)->definition->name) ? CO_OK : CO_CORRUPT;
}

int quota_record_get(struct store_txn *txn, struct slice name, struct arena *arena, Pb__QuotaRecord **record) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    if (name.size == 0 || name.size > QUOTA_NAME_MOST) return CO_NOTFOUND;
    int rv = store_get(txn, QUOTA_TABLE, head_key('q', name, room), &bytes);
    return rv == CO_OK ? quota_record_decode(bytes, arena, record) : rv;
}

void quota_record_put(struct machine_tx *tx, const Pb__QuotaRecord *record) {
    char room[STORE_KEY_MAX];
    struct slice key = head_key('q', slice_text(record->definition->name), room);
    store_put(tx->store, QUOTA_TABLE, key, message_pack(tx->arena, &record->base));
}

void quota_record_del(struct machine_tx *tx, struct slice name) {
    char room[STORE_KEY_MAX];
    (void)store_del(tx->store, QUOTA_TABLE, head_key('q', name, room));
}

/* A row that is one number; 0: there is no row. */
static int number_get(struct store_txn *txn, struct slice key, uint64_t *number) {
    struct slice bytes;
    *number = 0;
    int rv = store_get(txn, QUOTA_TABLE, key, &bytes);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    if (bytes.size != NUMBER_BYTES) return CO_CORRUPT;
    *number = get_be64(bytes.data);
    return CO_OK;
}

static void number_put(struct machine_tx *tx, struct slice key, uint64_t number) {
    char bytes[NUMBER_BYTES];
    put_be64(bytes, number);
    if (number) store_put(tx->store, QUOTA_TABLE, key, slice_make(bytes, sizeof bytes));
    else (void)store_del(tx->store, QUOTA_TABLE, key);
}

uint64_t quota_count(struct store_txn *txn) {
    uint64_t count;
    int rv = number_get(txn, slice_make("n", 1), &count);
    if (rv != CO_OK) store_fail(txn, rv);
    return count;
}

void quota_count_put(struct machine_tx *tx, uint64_t count) { number_put(tx, slice_make("n", 1), count); }

int quota_session_leases(struct store_txn *txn, struct slice session, uint64_t *count) {
    char room[STORE_KEY_MAX];
    return number_get(txn, head_key('s', session, room), count);
}

/* -- leases ------------------------------------------------------------------------------------------------------- */

struct slice quota_lease_name(struct slice name, uint64_t lease, char room[QUOTA_LEASE_NAME_MOST]) {
    int size = snprintf(room, QUOTA_LEASE_NAME_MOST, "%.*s/%llu", (int)name.size, name.data, (unsigned long long)lease);
    CHECK(size > 0 && size < QUOTA_LEASE_NAME_MOST);
    return slice_make(room, (size_t)size);
}

int quota_lease_decode(struct slice bytes, struct arena *arena, Pb__QuotaLease **lease) {
    *lease = message_unpack(arena, &pb__quota_lease__descriptor, bytes);
    return *lease && (*lease)->id && (*lease)->priority < QUOTA_PRIORITIES ? CO_OK : CO_CORRUPT;
}

int quota_lease_get(struct store_txn *txn, struct slice name, uint64_t id, struct arena *arena,
                    Pb__QuotaLease **lease) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    int rv = store_get(txn, QUOTA_TABLE, quota_row('l', name, id, room), &bytes);
    return rv == CO_OK ? quota_lease_decode(bytes, arena, lease) : rv;
}

/* The key of a lease's binding to its session. */
static struct slice bound_key(struct slice name, uint64_t id, char room[STORE_KEY_MAX]) {
    struct slice row = quota_row('l', name, id, room);
    return slice_make(row.data + 1, row.size - 1);
}

int quota_lease_numbered(struct store_txn *txn, struct slice session, struct slice name, struct arena *arena,
                         Pb__QuotaLease **lease) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    int rv = session_bound(txn, &quota_binding, session, bound_key(name, 0, room), &bytes);
    if (rv != CO_OK) return rv;
    if (bytes.size != NUMBER_BYTES) return CO_CORRUPT;
    rv = quota_lease_get(txn, name, get_be64(bytes.data), arena, lease);
    return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
}

void quota_lease_put(struct machine_tx *tx, struct slice name, const Pb__QuotaLease *lease) {
    char room[STORE_KEY_MAX];
    struct slice bytes = message_pack(tx->arena, &lease->base);
    store_put(tx->store, QUOTA_TABLE, quota_row('l', name, lease->id, room), bytes);
}

static void session_counts(struct machine_tx *tx, struct slice session, int more) {
    char room[STORE_KEY_MAX];
    uint64_t count;
    int rv = quota_session_leases(tx->store, session, &count);
    if (rv == CO_OK && more < 0 && count == 0) rv = CO_CORRUPT;
    CHECK(more == 1 || more == -1);
    if (rv != CO_OK) store_fail(tx->store, rv);
    else number_put(tx, head_key('s', session, room), more > 0 ? count + 1 : count - 1);
}

void quota_lease_bind(struct quota_change *change, const Pb__QuotaLease *lease) {
    CHECK(lease->id && lease->session[0]);
    char room[STORE_KEY_MAX], id[NUMBER_BYTES];
    struct slice session = slice_text(lease->session);
    put_be64(id, lease->id);
    session_bind(change->tx, &quota_binding, session, bound_key(change->name, lease->numbered ? 0 : lease->id, room),
                 slice_make(id, sizeof id));
    session_counts(change->tx, session, 1);
    change->record->leases++;
}

static void lease_unbind(struct quota_change *change, const Pb__QuotaLease *lease) {
    char room[STORE_KEY_MAX];
    struct slice session = slice_text(lease->session);
    if (!session.size) return;
    session_unbind(change->tx, &quota_binding, session, bound_key(change->name, lease->numbered ? 0 : lease->id, room));
    session_counts(change->tx, session, -1);
}

void quota_lease_renew(struct quota_change *change, Pb__QuotaLease *lease) {
    struct machine_tx *tx = change->tx;
    char room[QUOTA_LEASE_NAME_MOST];
    lease->renew_index = tx->index;
    lease->ttl_ms = change->record->definition->lease_ttl_ms;
    expiry_began_in(tx, &quota_lease_expiry, quota_lease_name(change->name, lease->id, room), tx->index,
                    (int64_t)lease->ttl_ms * 1000000);
}

static void row_del(struct quota_change *change, const Pb__QuotaLease *lease) {
    struct machine_tx *tx = change->tx;
    char room[STORE_KEY_MAX];
    (void)store_del(tx->store, QUOTA_TABLE, quota_row('l', change->name, lease->id, room));
    expiry_ended_in(tx, &quota_lease_expiry, quota_lease_name(change->name, lease->id, room), tx->index);
}

void quota_lease_remove(struct quota_change *change, Pb__QuotaLease *lease) {
    quota_waits_not(change->record, lease);
    lease_unbind(change, lease);
    row_del(change, lease);
    if (!lease->reclaimed) change->record->leases = quota_minus(change->record->leases, 1);
}

static void hold_back(struct quota_change *change, Pb__QuotaLease *lease) {
    quota_waits_not(change->record, lease);
    lease_unbind(change, lease);
    lease->session = (char *)(uintptr_t) "";
    lease->reclaimed = true;
    change->record->leases = quota_minus(change->record->leases, 1);
    CHECK(lease->balance > 0);
    change->record->held += lease->balance;
    quota_lease_put(change->tx, change->name, lease);
}

int quota_lease_settle(struct quota_change *change, Pb__QuotaLease *lease, uint64_t spent) {
    Pb__QuotaRecord *record = change->record;
    uint64_t *sum = quota_balances(record), back = quota_minus(lease->balance, spent);
    CHECK(spent <= lease->balance && *sum >= lease->balance);
    *sum = quota_minus(*sum, lease->balance);
    record->spent += spent;
    if (back) record->starving = false;
    quota_lease_remove(change, lease);
    quota_audit(change, PB__QUOTA_KIND__QUOTA_SETTLED, lease, spent, back);
    return quota_owned(record) ? quota_members_changed(change, NULL) : CO_OK;
}

int quota_lease_reclaim(struct quota_change *change, Pb__QuotaLease *lease, bool over) {
    Pb__QuotaRecord *record = change->record;
    uint64_t amount = lease->balance, *sum = quota_balances(record);
    bool early = !over && change->tx->mutations & MUTATE_QUOTA_RECLAIMS_EARLY;
    if (lease->reclaimed) { /* its time is over, so the next refill may bring the tokens back */
        record->held = quota_minus(record->held, amount);
        quota_lease_remove(change, lease);
        return CO_OK;
    }
    if (quota_owned(record) && !over) { /* the member counts its keys until the end of its TTL */
        lease_unbind(change, lease);
        lease->session = (char *)(uintptr_t) "";
        quota_lease_put(change->tx, change->name, lease);
        return CO_OK;
    }
    CHECK(*sum >= amount);
    *sum = quota_minus(*sum, amount);
    if (!early) record->stranded += amount;
    if (!over && amount) hold_back(change, lease);
    else quota_lease_remove(change, lease);
    quota_audit(change, PB__QUOTA_KIND__QUOTA_RECLAIMED, lease, amount, 0);
    if (!quota_owned(record)) return CO_OK;
    quota_member_lost(change, lease);
    return quota_members_changed(change, NULL);
}

/* -- the audit trail ---------------------------------------------------------------------------------------------- */

int quota_audit_decode(struct slice bytes, struct arena *arena, Pb__QuotaAudit **row) {
    *row = message_unpack(arena, &pb__quota_audit__descriptor, bytes);
    return *row && (*row)->number ? CO_OK : CO_CORRUPT;
}

void quota_audit(struct quota_change *change, Pb__QuotaKind kind, const Pb__QuotaLease *lease, uint64_t amount,
                 uint64_t back) {
    struct machine_tx *tx = change->tx;
    Pb__QuotaRecord *record = change->record;
    if (change->row_count == change->row_room) {
        change->row_room = change->row_room ? 2 * change->row_room : 4;
        Pb__QuotaAudit *wider = arena_alloc(tx->arena, change->row_room * sizeof *wider);
        if (change->row_count) memcpy(wider, change->rows, change->row_count * sizeof *wider);
        change->rows = wider;
    }
    Pb__QuotaAudit *row = &change->rows[change->row_count++];
    pb__quota_audit__init(row);
    row->number = record->audit_next++, row->index = tx->index, row->kind = kind;
    if (lease) row->lease = lease->id, row->node = lease->node;
    row->amount = amount, row->back = back;
    row->spent = record->spent, row->stranded = record->stranded;
    row->leased = record->leased, row->slack = record->slack;
    row->capacity = quota_capacity(record->definition);
}

static void audit_write(struct quota_change *change) {
    struct machine_tx *tx = change->tx;
    Pb__QuotaRecord *record = change->record;
    char room[STORE_KEY_MAX];
    for (size_t i = 0; i < change->row_count; i++) {
        const Pb__QuotaAudit *row = &change->rows[i];
        struct slice bytes = message_pack(tx->arena, &row->base);
        store_put(tx->store, QUOTA_TABLE, quota_row('a', change->name, row->number, room), bytes);
    }
    for (; record->audit_next - record->audit_first > QUOTA_AUDIT_MOST; record->audit_first++)
        (void)store_del(tx->store, QUOTA_TABLE, quota_row('a', change->name, record->audit_first, room));
    change->row_count = 0;
}

/* -- sums --------------------------------------------------------------------------------------------------------- */

static uint64_t gone(const Pb__QuotaRecord *record) { return record->spent + record->stranded; }

static uint64_t drift_of(const Pb__QuotaRecord *record) {
    return quota_part(quota_capacity(record->definition), record->definition->drift);
}

int64_t quota_available(const Pb__QuotaRecord *record) {
    uint64_t capacity = quota_capacity(record->definition);
    if (quota_owned(record)) return (int64_t)capacity;
    if (quota_bounded(record)) return (int64_t)capacity - (int64_t)gone(record);
    return (int64_t)quota_minus(capacity, gone(record) + record->leased);
}

uint64_t quota_takeable(const Pb__QuotaRecord *record) {
    int64_t available = quota_owned(record) ? 0 : quota_available(record);
    return available > 0 ? (uint64_t)available : 0;
}

uint64_t quota_shareable(const Pb__QuotaRecord *record) {
    uint64_t capacity = quota_capacity(record->definition), drift = drift_of(record);
    if (quota_owned(record)) return 0;
    if (!quota_bounded(record)) return quota_minus(capacity, gone(record));
    uint64_t left = quota_minus(capacity + drift, gone(record));
    return left < drift ? left : drift;
}

uint64_t quota_grantable(const Pb__QuotaRecord *record) {
    return quota_minus(quota_shareable(record), quota_bounded(record) ? record->slack : record->leased);
}

bool quota_is_low(const Pb__QuotaRecord *record) {
    uint64_t mark = quota_part(quota_capacity(record->definition), record->definition->low_watermark);
    return quota_bounded(record) && quota_available(record) <= (int64_t)mark;
}

uint64_t *quota_balances(Pb__QuotaRecord *record) { return quota_bounded(record) ? &record->slack : &record->leased; }

/* -- a change ----------------------------------------------------------------------------------------------------- */

char *quota_unknown(struct arena *arena, const char *name) {
    return arena_printf(arena, "there is no budget \"%.256s\"", name);
}

char *quota_lease_unknown(struct arena *arena, const char *name, uint64_t lease) {
    return arena_printf(arena, "lease %llu of budget \"%.256s\" is not known: it has ended", (unsigned long long)lease,
                        name);
}

char *quota_lease_denied(struct arena *arena, const char *name, uint64_t lease) {
    return arena_printf(arena, "lease %llu of budget \"%.256s\" has another token: it is its holder's",
                        (unsigned long long)lease, name);
}

int quota_begin(struct machine_tx *tx, const char *name, struct quota_change *change) {
    *change = (struct quota_change){.tx = tx, .name = slice_text(name)};
    int rv = quota_record_get(tx->store, change->name, tx->arena, &change->record);
    if (rv != CO_OK) return rv;
    change->low = quota_is_low(change->record);
    change->room = quota_takeable(change->record);
    return CO_OK;
}

/* An entry may give tokens back and also deny an ask, which leaves the tokens to others: so both are noted, in this
 * order. */
void quota_news(struct quota_change *change) {
    Pb__QuotaRecord *record = change->record;
    uint64_t room = quota_takeable(record);
    bool more = room > change->room;
    change->room = room;
    if (more && record->denied) {
        record->denied = false;
        record->came = change->tx->index;
        change->notice = true;
    }
    if (change->denied && !record->denied) record->denied = change->notice = true;
    change->denied = false;
}

/* Would a refill change something? */
static bool is_owed(const Pb__QuotaRecord *record) { return gone(record) || record->unsettled_ends; }

static void arm(struct quota_change *change) {
    struct machine_tx *tx = change->tx;
    Pb__QuotaRecord *record = change->record;
    bool owed = is_owed(record), armed = record->refill_index != 0;
    if (owed == armed && !(armed && change->rearm)) return;
    CHECK(record->refill_index <= tx->index);
    record->refill_index = owed ? tx->index : 0;
    if (!owed || !record->waited_ms) record->period_index = record->refill_index;
    if (owed) expiry_began_in(tx, &quota_refill_expiry, change->name, tx->index, quota_refill_ns(record, 0));
    else {
        record->window_noted = false, record->waited_ms = 0;
        expiry_ended_in(tx, &quota_refill_expiry, change->name, tx->index);
    }
}

void quota_commit(struct quota_change *change) {
    struct machine_tx *tx = change->tx;
    Pb__QuotaRecord *record = change->record;
    quota_news(change);
    arm(change);
    audit_write(change);
    CHECK(!change->denied && record->epoch <= tx->index && record->active <= record->epoch);
    CHECK(record->held <= record->stranded || tx->mutations & MUTATE_QUOTA_RECLAIMS_EARLY);
    CHECK(record->audit_next - record->audit_first <= QUOTA_AUDIT_MOST);
    record->modify_index = tx->index;
    if (change->notice || (!change->low && quota_is_low(record))) {
        record->notice_index = tx->index;
        machine_touch(tx, SPACE_QUOTA_NOTICE, change->name);
    }
    quota_record_put(tx, record);
    machine_touch(tx, SPACE_QUOTA, change->name);
}
