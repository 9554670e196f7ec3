/* Queries: a budget with its leases, all budgets, notices for agents, and the audit trail. */
#include <string.h>

#include "base/check.h"
#include "kv/quota/quota_internal.h"
#include "registry/catalog.h"
#include "registry/module_access.h"

static uint64_t index_when_gone(struct store_txn *txn, uint8_t space, struct slice name) {
    return name.size <= QUOTA_NAME_MOST ? machine_change_index(txn, space, name) : 0;
}

/* -- states ------------------------------------------------------------------------------------------------------- */

static Pb__QuotaState *state_of(Pb__QuotaRecord *record, uint64_t agents, struct arena *arena) {
    Pb__QuotaState *state = arena_alloc(arena, sizeof *state);
    Pb__QuotaBound *bound = arena_alloc(arena, sizeof *bound);
    struct quota_bound parts = quota_bound_of(record->definition, agents);
    pb__quota_state__init(state);
    pb__quota_bound__init(bound);
    bound->leases = parts.leases, bound->drift = parts.drift, bound->local_caps = parts.local_caps;
    bound->last = parts.last, bound->hand_over = parts.hand_over;
    state->record = record, state->bound = bound;
    state->worst_case = parts.sum;
    state->agents = agents;
    state->available = quota_available(record);
    state->capacity = quota_capacity(record->definition);
    state->modify_index = record->modify_index;
    return state;
}

static int leases_read(struct store_txn *txn, struct slice name, struct arena *arena, Pb__QuotaState *state) {
    char room[STORE_KEY_MAX];
    struct slice rows = quota_rows('l', name, room);
    struct store_cursor cursor;
    uint64_t most = state->record->leases <= QUOTA_LEASES_MOST ? state->record->leases : 0;
    int rv = CO_OK;
    state->leases = arena_alloc(arena, (most + 1) * sizeof *state->leases);
    QUOTA_EACH_LEASE(&cursor, txn, rows) {
        Pb__QuotaLease *lease;
        rv = quota_lease_decode(cursor.value, arena, &lease);
        if (rv == CO_OK && !lease->reclaimed && state->n_leases == most) rv = CO_CORRUPT;
        if (rv != CO_OK) break;
        lease->token = 0; /* only the holder knows the token */
        if (!lease->reclaimed) state->leases[state->n_leases++] = lease;
    }
    store_cursor_close(&cursor);
    if (rv != CO_OK || store_read_limit_hit(txn)) return rv;
    return state->n_leases == state->record->leases ? CO_OK : CO_CORRUPT;
}

static struct slice request_name(const ProtobufCMessage *request) {
    return slice_text(((const Pb__QuotaRequest *)request)->name);
}
static struct watch_key quota_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_QUOTA, request_name(request)};
}
/* The bound depends on the number of nodes, whose change wakes nobody. */
static struct watch_key nodes_also(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_TABLE, slice_make("nodes", 5)};
}

static int quota_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    struct slice name = request_name(request);
    Pb__QuotaRecord *record;
    *result = (struct query_result){0};
    int rv = quota_record_get(txn, name, arena, &record);
    if (rv == CO_NOTFOUND) result->index = index_when_gone(txn, SPACE_QUOTA, name);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    Pb__QuotaState *state = state_of(record, catalog_node_count(txn), arena);
    *result = (struct query_result){.index = record->modify_index, .found = true, .message = &state->base};
    return leases_read(txn, name, arena, state);
}

/* -- all ---------------------------------------------------------------------------------------------------------- */

static struct slice list_prefix(const ProtobufCMessage *request) {
    return slice_text(((const Pb__QuotaListRequest *)request)->prefix);
}
static struct watch_key list_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_QUOTA | WATCH_PREFIX_BIT, list_prefix(request)};
}

static void list_add(Pb__QuotaListResult *all, size_t *capacity, Pb__QuotaState *state, struct arena *arena) {
    if (all->n_quotas == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 16;
        Pb__QuotaState **wider = arena_alloc(arena, *capacity * sizeof *wider);
        if (all->n_quotas) memcpy(wider, all->quotas, all->n_quotas * sizeof *wider);
        all->quotas = wider;
    }
    all->quotas[all->n_quotas++] = state;
}

static int list_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    struct slice prefix = list_prefix(request);
    char room[STORE_KEY_MAX];
    Pb__QuotaListResult *all = arena_alloc(arena, sizeof *all);
    uint64_t agents = catalog_node_count(txn);
    size_t capacity = 0;
    struct store_cursor cursor;
    int rv = CO_OK;
    pb__quota_list_result__init(all);
    *result = (struct query_result){.found = true, .message = &all->base};
    if (prefix.size > QUOTA_NAME_MOST) return CO_OK;
    room[0] = 'q';
    memcpy(room + 1, prefix.data, prefix.size);
    struct slice head = slice_make(room, 1 + prefix.size);
    STORE_PREFIX(&cursor, txn, QUOTA_TABLE, head) {
        Pb__QuotaRecord *record;
        rv = quota_record_decode(cursor.value, arena, &record);
        if (rv != CO_OK) break;
        list_add(all, &capacity, state_of(record, agents, arena), arena);
        if (record->modify_index > result->index) result->index = record->modify_index;
    }
    store_cursor_close(&cursor);
    uint64_t removed = machine_removed_below(txn, SPACE_QUOTA, prefix);
    if (removed > result->index) result->index = removed;
    return rv;
}

/* -- notices ------------------------------------------------------------------------------------------------------ */

static struct slice notice_name(const ProtobufCMessage *request) {
    return slice_text(((const Pb__QuotaNoticeRequest *)request)->name);
}
static struct watch_key notice_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_QUOTA_NOTICE, notice_name(request)};
}
/* The end of starving wakes nobody. */
static struct watch_key notice_also(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_QUOTA, notice_name(request)};
}

static int notice_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    struct slice name = notice_name(request);
    Pb__QuotaRecord *record;
    *result = (struct query_result){0};
    int rv = quota_record_get(txn, name, arena, &record);
    if (rv == CO_NOTFOUND) result->index = index_when_gone(txn, SPACE_QUOTA_NOTICE, name);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    Pb__QuotaNotice *notice = arena_alloc(arena, sizeof *notice);
    pb__quota_notice__init(notice);
    notice->definition = record->definition, notice->defined_index = record->defined_index;
    notice->starving = record->starving, notice->low = quota_is_low(record);
    notice->came = record->came, notice->denied = record->denied;
    notice->left = quota_takeable(record), notice->leases = record->leases;
    notice->owed = record->spent + record->stranded, notice->period_index = record->period_index;
    notice->window = record->window_start, notice->window_noted = record->window_noted;
    notice->epoch = record->epoch, notice->active = record->active;
    notice->losses = record->losses, notice->n_losses = record->n_losses;
    notice->losses_before = record->losses_before;
    notice->splits = record->splits, notice->n_splits = record->n_splits;
    notice->modify_index = record->notice_index;
    *result = (struct query_result){.index = record->notice_index, .found = true, .message = &notice->base};
    return quota_owned(record) ? quota_members_show(txn, record, arena, notice) : CO_OK;
}

/* -- budgets in owner mode ---------------------------------------------------------------------------------------- */

static struct watch_key owned_watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_QUOTA_OWNED, slice_make("", 0)};
}

static void owned_add(Pb__QuotaOwnedResult *all, size_t *capacity, const Pb__QuotaDefinition *definition,
                      struct arena *arena) {
    if (all->n_budgets == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 16;
        Pb__QuotaOwned **wider = arena_alloc(arena, *capacity * sizeof *wider);
        if (all->n_budgets) memcpy(wider, all->budgets, all->n_budgets * sizeof *wider);
        all->budgets = wider;
    }
    Pb__QuotaOwned *owned = all->budgets[all->n_budgets++] = arena_alloc(arena, sizeof *owned);
    pb__quota_owned__init(owned);
    owned->name = arena_strndup(arena, definition->name, strlen(definition->name));
    owned->service = arena_strndup(arena, definition->service, strlen(definition->service));
}

static int owned_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    (void)request;
    Pb__QuotaOwnedResult *all = arena_alloc(arena, sizeof *all);
    struct arena each = {0}; /* most budgets are of other modes */
    struct store_cursor cursor;
    size_t capacity = 0;
    int rv = CO_OK;
    pb__quota_owned_result__init(all);
    STORE_PREFIX(&cursor, txn, QUOTA_TABLE, slice_make("q", 1)) {
        Pb__QuotaRecord *record;
        rv = quota_record_decode(cursor.value, &each, &record);
        if (rv != CO_OK) break;
        if (quota_owned(record)) owned_add(all, &capacity, record->definition, arena);
        arena_reset(&each);
    }
    store_cursor_close(&cursor);
    arena_free(&each);
    all->modify_index = machine_change_index(txn, SPACE_QUOTA_OWNED, slice_make("", 0));
    *result = (struct query_result){.index = all->modify_index, .found = true, .message = &all->base};
    return rv;
}

/* -- the audit trail ---------------------------------------------------------------------------------------------- */

static struct slice audit_name(const ProtobufCMessage *request) {
    return slice_text(((const Pb__QuotaAuditRequest *)request)->name);
}
static struct watch_key audit_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_QUOTA, audit_name(request)};
}

static int audit_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    struct slice name = audit_name(request);
    char room[STORE_KEY_MAX], rows_room[STORE_KEY_MAX];
    Pb__QuotaRecord *record;
    struct store_cursor cursor;
    *result = (struct query_result){0};
    int rv = quota_record_get(txn, name, arena, &record);
    if (rv == CO_NOTFOUND) result->index = index_when_gone(txn, SPACE_QUOTA, name);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    Pb__QuotaAuditResult *page = arena_alloc(arena, sizeof *page);
    pb__quota_audit_result__init(page);
    uint64_t from = ((const Pb__QuotaAuditRequest *)request)->from;
    page->first = record->audit_first;
    page->next = from > page->first ? from : page->first;
    page->modify_index = record->modify_index;
    *result = (struct query_result){.index = record->modify_index, .found = true, .message = &page->base};
    page->entries = arena_alloc(arena, QUOTA_AUDIT_PAGE * sizeof *page->entries);
    struct slice rows = quota_rows('a', name, rows_room), at = quota_row('a', name, page->next, room);
    for (store_cursor_open(&cursor, txn, QUOTA_TABLE, at);
         cursor.valid && slice_starts(cursor.key, rows) && page->n_entries < QUOTA_AUDIT_PAGE;
         store_cursor_next(&cursor)) {
        Pb__QuotaAudit *row;
        rv = quota_audit_decode(cursor.value, arena, &row);
        if (rv == CO_OK && row->number != page->next) rv = CO_CORRUPT;
        if (rv != CO_OK) break;
        page->entries[page->n_entries++] = row;
        page->next++;
    }
    store_cursor_close(&cursor);
    return rv;
}

/* -- access ------------------------------------------------------------------------------------------------------- */

/* Members stay in notices, because all agents have to know the same ones. */
ACCESS_SHOW_ONE(notice_show, QUOTA, Pb__QuotaNoticeRequest, name)
ACCESS_SHOW_LIST(list_show, QUOTA, Pb__QuotaListResult, quotas, record->definition->name)
ACCESS_SHOW_LIST(owned_show, QUOTA, Pb__QuotaOwnedResult, budgets, name)

static int quota_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                      struct query_result *result) {
    Pb__QuotaState *state = (Pb__QuotaState *)result->message;
    (void)txn;
    int rv = access_require(check, ACCESS_QUOTA, request_name(request), ACCESS_READ);
    for (size_t i = 0; rv == CO_OK && state && i < state->n_leases; i++)
        session_node_show(check, &state->leases[i]->node);
    return rv;
}

static int audit_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                      struct query_result *result) {
    Pb__QuotaAuditResult *page = (Pb__QuotaAuditResult *)result->message;
    (void)txn;
    int rv = access_require(check, ACCESS_QUOTA, audit_name(request), ACCESS_READ);
    for (size_t i = 0; rv == CO_OK && page && i < page->n_entries; i++)
        session_node_show(check, &page->entries[i]->node);
    return rv;
}

const struct query_type query_quota = {.number = 131,
                                       .name = "quota",
                                       .request = &pb__quota_request__descriptor,
                                       .result = &pb__quota_state__descriptor,
                                       .watched = quota_watched,
                                       .also = nodes_also,
                                       .run = quota_run,
                                       .show = quota_show};
const struct query_type query_quotas = {.number = 132,
                                        .name = "quotas",
                                        .request = &pb__quota_list_request__descriptor,
                                        .result = &pb__quota_list_result__descriptor,
                                        .watched = list_watched,
                                        .also = nodes_also,
                                        .run = list_run,
                                        .show = list_show};
const struct query_type query_quota_notice = {.number = 133,
                                              .name = "quota-notice",
                                              .request = &pb__quota_notice_request__descriptor,
                                              .result = &pb__quota_notice__descriptor,
                                              .watched = notice_watched,
                                              .also = notice_also,
                                              .run = notice_run,
                                              .show = notice_show};
const struct query_type query_quota_audit = {.number = 134,
                                             .name = "quota-audit",
                                             .request = &pb__quota_audit_request__descriptor,
                                             .result = &pb__quota_audit_result__descriptor,
                                             .watched = audit_watched,
                                             .run = audit_run,
                                             .show = audit_show};
const struct query_type query_quota_owned = {.number = 135,
                                             .name = "quota-owned",
                                             .request = &pb__quota_owned_request__descriptor,
                                             .result = &pb__quota_owned_result__descriptor,
                                             .watched = owned_watched,
                                             .run = owned_run,
                                             .show = owned_show};
