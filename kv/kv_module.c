/* Keys and sessions as one module of the state machine. */
#include "kv/kv_internal.h"

static int apply(struct machine_tx *tx, uint8_t type, struct slice payload, struct machine_result *result) {
    switch (type) {
        case KV_APPLY: return kv_apply(tx, payload, result);
        case SESSION_CREATE: return session_create_apply(tx, payload, result);
        case SESSION_DESTROY: return session_destroy_apply(tx, payload, result);
        case LOCK_DELAY_END: return lock_delay_end_apply(tx, payload, result);
        default: return CO_UNSUPPORTED;
    }
}

static void on_event(struct machine_tx *tx, const struct machine_event *event) {
    if (event->type == MACHINE_LEASE_ENDED) kv_lease_ended(tx, event->id);
    else session_on_event(tx, event);
}

static const struct store_table tables[] = {
    {KV_TABLE_KEYS, "kv"},
    {KV_TABLE_LOCKS, "kv-locks"},
    {KV_TABLE_DELAYS, "kv-delays"},
    {KV_TABLE_SESSIONS, "sessions"},
    {KV_TABLE_SESSION_INDEX, "session-index"},
};

static const struct query_type *const queries[] = {
    &query_kv_get, &query_kv_list, &query_kv_keys, &query_session, &query_sessions, NULL,
};

static const struct machine_since since[] = {{KV_APPLY, LOCK_DELAY_END, 1}};

const struct machine_module kv_module = {
    .name = "kv",
    .command_first = KV_APPLY,
    .command_last = LOCK_DELAY_END,
    .since = since,
    .since_count = ARRAY_COUNT(since),
    .apply = apply,
    .on_event = on_event,
    .batch_end = lease_box_batch_end,
    .tables = tables,
    .table_count = ARRAY_COUNT(tables),
    .queries = queries,
};
