/* Commands on budgets: define, delete, settle, refill, and the ends of leases. */
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/quota/quota_internal.h"

/* -- define ------------------------------------------------------------------------------------------------------- */

static bool same_definition(const Pb__QuotaDefinition *a, const Pb__QuotaDefinition *b, struct arena *arena) {
    return slice_equal(message_pack(arena, &a->base), message_pack(arena, &b->base));
}

static bool same_refill(const Pb__QuotaDefinition *a, const Pb__QuotaDefinition *b) {
    return a->tokens == b->tokens && a->every_ms == b->every_ms && a->window == b->window &&
           a->offset_minutes == b->offset_minutes;
}

/* Refuses everything that can be refused, before the first write. *change has the record, if it exists. */
static int put_refused(struct machine_tx *tx, const Pb__QuotaPutCommand *command, struct machine_result *result,
                       struct quota_change *change, bool *exists) {
    struct fault fault = {0};
    if (!command->definition) return machine_refuse(result, CO_INVALID, "a budget without a definition");
    if (quota_definition_check(command->definition, &fault) != CO_OK)
        return machine_refuse(result, CO_INVALID, arena_strndup(tx->arena, fault.text, strlen(fault.text)));
    struct machine_thing thing = {SPACE_QUOTA, "budget", slice_text(command->definition->name)};
    if (machine_refuses(tx, thing, result)) return CO_OK;
    int rv = quota_begin(tx, command->definition->name, change);
    *exists = rv == CO_OK;
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    uint64_t defined = *exists ? change->record->defined_index : 0;
    if (command->cas_given && command->cas != defined)
        return machine_refuse(
            result, CO_CONFLICT,
            arena_printf(tx->arena, "budget \"%s\" was defined at %llu, not at %llu (0: never)",
                         command->definition->name, (unsigned long long)defined, (unsigned long long)command->cas));
    if (!*exists && quota_count(tx->store) >= QUOTA_BUDGETS_MOST)
        return machine_refuse(result, CO_BUSY, "there are 100000 budgets: delete some");
    return CO_OK;
}

/* The ids of a budget's leases; no cursor outlives a write. */
static int leases_of(struct machine_tx *tx, struct slice name, uint64_t **ids, size_t *count) {
    char room[STORE_KEY_MAX];
    struct slice rows = quota_rows('l', name, room);
    struct store_cursor cursor;
    size_t capacity = 0;
    bool good = true;
    *ids = NULL, *count = 0;
    QUOTA_EACH_LEASE(&cursor, tx->store, rows) {
        good = cursor.key.size == rows.size + 8;
        if (!good) break;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            uint64_t *wider = arena_alloc(tx->arena, capacity * sizeof *wider);
            if (*count) memcpy(wider, *ids, *count * sizeof *wider);
            *ids = wider;
        }
        (*ids)[(*count)++] = get_be64(cursor.key.data + rows.size);
    }
    store_cursor_close(&cursor);
    return good ? CO_OK : CO_CORRUPT;
}

/* Calls `each` for all leases of the budget. A session that was made for a lease ends with its last one. */
static int each_lease(struct quota_change *change, int (*each)(struct quota_change *change, Pb__QuotaLease *lease)) {
    struct machine_tx *tx = change->tx;
    uint64_t *ids;
    size_t count;
    int rv = leases_of(tx, change->name, &ids, &count);
    for (size_t i = 0; i < count && rv == CO_OK; i++) {
        Pb__QuotaLease *lease;
        rv = quota_lease_get(tx->store, change->name, ids[i], tx->arena, &lease);
        struct slice session = rv == CO_OK ? slice_text(lease->session) : slice_make("", 0);
        if (rv == CO_OK) rv = each(change, lease);
        if (rv == CO_OK && session.size) rv = session_end_idle(tx, session);
    }
    return rv;
}

/* The mode changes: owners may still spend the granted tokens until their time is over, so they are reclaimed. Members
 * are just removed. */
static int reclaim_early(struct quota_change *change, Pb__QuotaLease *lease) {
    if (lease->reclaimed) return CO_OK; /* held back already */
    if (!quota_owned(change->record)) return quota_lease_reclaim(change, lease, false);
    quota_lease_remove(change, lease);
    quota_audit(change, PB__QUOTA_KIND__QUOTA_RECLAIMED, lease, 0, 0);
    return CO_OK;
}

static void forget_members(Pb__QuotaRecord *record) {
    record->epoch = record->active = record->unsettled_ends = record->losses_before = 0;
    record->n_active_members = record->n_active_leases = record->n_splits = record->n_losses = 0;
}

static int define_anew(struct quota_change *change, Pb__QuotaDefinition *definition) {
    Pb__QuotaRecord *record = change->record;
    Pb__QuotaDefinition *before = record->definition;
    int rv = CO_OK;
    if (before->mode != definition->mode) {
        rv = each_lease(change, reclaim_early);
        forget_members(record);
    }
    if (!same_refill(before, definition)) {
        if (before->window != definition->window) record->window_start = 0;
        record->refill_step = 0, record->window_noted = false, record->waited_ms = 0;
        change->rearm = true;
    }
    record->definition = definition;
    record->n_classes = 0, record->starving = false;
    record->turn += 2; /* leases that wait begin to wait anew */
    record->kept = record->kept_next = record->turn_refills = 0;
    quota_splits_anew(change);
    return rv;
}

/* Wakes the followers of the list of budgets in owner mode, if a definition changes it. NULL: there is no
 * definition. */
static void owned_changed(struct machine_tx *tx, const Pb__QuotaDefinition *before, const Pb__QuotaDefinition *after) {
    const char *from = before ? before->service : "", *to = after ? after->service : ""; /* other modes have none */
    if (strcmp(from, to) != 0) machine_changed(tx, SPACE_QUOTA_OWNED, slice_make("", 0), false);
}

int quota_put_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__QuotaPutCommand *command = request;
    struct quota_change change;
    bool exists = false;
    int rv = put_refused(tx, command, result, &change, &exists);
    if (rv != CO_OK || result->error) return rv;
    result->yes = true;
    if (exists) {
        if (same_definition(change.record->definition, command->definition, tx->arena)) return CO_OK;
        owned_changed(tx, change.record->definition, command->definition);
        rv = define_anew(&change, command->definition);
        if (rv != CO_OK) return rv;
    } else {
        change.record = arena_alloc(tx->arena, sizeof *change.record);
        pb__quota_record__init(change.record);
        change.record->definition = command->definition;
        change.record->create_index = change.record->came = tx->index; /* later than that of a former budget of the
                                                                        * name */
        change.record->audit_first = change.record->audit_next = 1;
        quota_count_put(tx, quota_count(tx->store) + 1);
        owned_changed(tx, NULL, command->definition);
    }
    change.record->defined_index = tx->index;
    change.notice = true;
    quota_audit(&change, PB__QUOTA_KIND__QUOTA_DEFINED, NULL, 0, 0);
    quota_commit(&change);
    return CO_OK;
}

/* -- delete ------------------------------------------------------------------------------------------------------- */

static int lease_goes(struct quota_change *change, Pb__QuotaLease *lease) {
    quota_lease_remove(change, lease);
    return CO_OK;
}

static void trail_del(struct quota_change *change) {
    const Pb__QuotaRecord *record = change->record;
    char room[STORE_KEY_MAX];
    for (uint64_t i = record->audit_first; i < record->audit_next; i++)
        (void)store_del(change->tx->store, QUOTA_TABLE, quota_row('a', change->name, i, room));
}

int quota_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__QuotaDeleteCommand *command = request;
    struct quota_change change;
    int rv = quota_begin(tx, command->name, &change);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_NOTFOUND, quota_unknown(tx->arena, command->name));
    if (rv == CO_OK) rv = each_lease(&change, lease_goes);
    if (rv != CO_OK) return rv;
    owned_changed(tx, change.record->definition, NULL);
    trail_del(&change);
    if (change.record->refill_index) expiry_ended_in(tx, &quota_refill_expiry, change.name, tx->index);
    quota_record_del(tx, change.name);
    quota_count_put(tx, quota_minus(quota_count(tx->store), 1));
    machine_changed(tx, SPACE_QUOTA, change.name, true);
    machine_changed(tx, SPACE_QUOTA_NOTICE, change.name, true);
    result->yes = true;
    return CO_OK;
}

/* -- settle ------------------------------------------------------------------------------------------------------- */

int quota_settle_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__QuotaSettleCommand *command = request;
    struct quota_change change;
    Pb__QuotaLease *lease;
    int rv = quota_begin(tx, command->name, &change);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_NOTFOUND, quota_unknown(tx->arena, command->name));
    if (rv == CO_OK) rv = quota_lease_get(tx->store, change.name, command->lease, tx->arena, &lease);
    if (rv == CO_NOTFOUND || (rv == CO_OK && lease->reclaimed))
        return machine_refuse(result, CO_NOTFOUND, quota_lease_unknown(tx->arena, command->name, command->lease));
    if (rv != CO_OK) return rv;
    if (command->token != lease->token)
        return machine_refuse(result, CO_DENIED, quota_lease_denied(tx->arena, command->name, command->lease));
    if (command->spent > lease->balance)
        return machine_refuse(result, CO_INVALID,
                              arena_printf(tx->arena, "spent: %llu is more than the %llu that lease %llu holds",
                                           (unsigned long long)command->spent, (unsigned long long)lease->balance,
                                           (unsigned long long)lease->id));
    rv = quota_lease_settle(&change, lease, command->spent);
    if (rv != CO_OK) return rv;
    quota_commit(&change);
    result->yes = true;
    return lease->session[0] ? session_end_idle(tx, slice_text(lease->session)) : CO_OK;
}

/* -- refill ------------------------------------------------------------------------------------------------------- */

int64_t quota_refill_ns(const Pb__QuotaRecord *record, int64_t unix_ms) {
    enum { AT_ONCE_NS = 1 };
    const Pb__QuotaDefinition *definition = record->definition;
    if (!definition->window) return (int64_t)quota_refill_wait_ms(definition, record->waited_ms) * 1000000;
    if (!record->window_noted) return AT_ONCE_NS;
    int64_t now_s = unix_ms / 1000, from_s = record->window_start < now_s ? record->window_start : now_s;
    int64_t left_ms = quota_window_end(definition, from_s) * 1000 - unix_ms;
    return left_ms > 0 ? left_ms * 1000000 : AT_ONCE_NS;
}

/* A refill: lowers `spent` by the tokens. Stranded tokens count as spent first, except those that are held back. */
static void bring_back(struct quota_change *change, uint64_t tokens) {
    Pb__QuotaRecord *record = change->record;
    record->unsettled_ends = 0;
    record->spent += quota_minus(record->stranded, record->held);
    if (record->stranded > record->held) record->stranded = record->held;
    uint64_t amount = tokens < record->spent ? tokens : record->spent;
    CHECK(amount <= record->spent && record->stranded <= record->held);
    record->spent -= amount;
    if (!amount) return;
    record->starving = false;
    record->asks = record->leases; /* the levels are too low now, so the next ask that gets too little counts them */
    quota_audit(change, PB__QUOTA_KIND__QUOTA_REFILLED, NULL, amount, 0);
}

/* The leader's first entry notes the present window; then each window begins once. A leader whose clock is behind the
 * former leader's begins none until its clock has caught up, because spent tokens would come back twice otherwise. */
static void begin_window(struct quota_change *change, int64_t unix_ms) {
    Pb__QuotaRecord *record = change->record;
    int64_t start = quota_window_start(record->definition, unix_ms / 1000);
    bool first = !record->window_noted;
    record->window_noted = true;
    if (start <= record->window_start) return;
    record->window_start = start;
    CHECK(record->window_noted && record->window_start == start);
    if (!first) bring_back(change, UINT64_MAX);
}

/* The leader has waited for another piece of the time. A next leader continues from there. */
static void go_on(struct quota_change *change) {
    Pb__QuotaRecord *record = change->record;
    record->waited_ms += quota_refill_wait_ms(record->definition, record->waited_ms);
    if (record->waited_ms < quota_refill_period_ms(record->definition)) return;
    CHECK(!record->definition->window);
    record->waited_ms = 0;
    bring_back(change, quota_refill_part(record->definition, record->refill_step, &record->refill_step));
    quota_turn_refilled(record);
}

int quota_refill_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__QuotaRefillCommand *command = request;
    struct quota_change change;
    bool twice = tx->mutations & MUTATE_QUOTA_REFILL_TWICE;
    if (command->term != tx->term && !twice) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    int rv = quota_begin(tx, command->name, &change);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_NOTFOUND, quota_unknown(tx->arena, command->name));
    if (rv != CO_OK) return rv;
    Pb__QuotaRecord *record = change.record;
    if ((command->index != record->refill_index || !command->index) && !twice)
        return machine_refuse(result, CO_CONFLICT, "another refill is due");
    if (record->definition->window) begin_window(&change, command->now_unix_ms);
    else go_on(&change);
    change.rearm = true;
    quota_commit(&change);
    result->yes = true;
    return CO_OK;
}

/* -- the end of a lease ------------------------------------------------------------------------------------------- */

int quota_lease_end_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__QuotaLeaseEndCommand *command = request;
    struct quota_change change;
    Pb__QuotaLease *lease;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    int rv = quota_begin(tx, command->name, &change);
    if (rv == CO_OK) rv = quota_lease_get(tx->store, change.name, command->lease, tx->arena, &lease);
    result->yes = true; /* also when the lease is gone already */
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    if (command->index != lease->renew_index) return machine_refuse(result, CO_CONFLICT, "it was renewed");
    struct slice session = slice_text(lease->session);
    rv = quota_lease_reclaim(&change, lease, true);
    if (rv != CO_OK) return rv;
    quota_commit(&change);
    return session.size ? session_end_idle(tx, session) : CO_OK;
}

int quota_session_ended(struct machine_tx *tx, const struct binding_end *end) {
    enum { TAIL = 1 + 8 };
    struct quota_change change;
    Pb__QuotaLease *lease;
    if (end->value.size != 8 || end->name.size <= TAIL) return CO_CORRUPT;
    char *name = arena_strndup(tx->arena, end->name.data, end->name.size - TAIL);
    int rv = quota_begin(tx, name, &change);
    if (rv == CO_OK) rv = quota_lease_get(tx->store, change.name, get_be64(end->value.data), tx->arena, &lease);
    if (rv == CO_OK) rv = quota_lease_reclaim(&change, lease, false);
    if (rv == CO_OK) quota_commit(&change);
    return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
}
