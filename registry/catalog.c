/* The catalog as a module, and its small look-ups. */
#include "registry/catalog.h"

#include "base/check.h"
#include "registry/catalog_apply.h"
#include "registry/catalog_changes.h"
#include "registry/catalog_leases.h"
#include "registry/catalog_write.h"
#include "registry/operator_queries.h"

static const struct store_table tables[] = {
    {TABLE_NODES, "nodes"},
    {TABLE_SERVICES, "services"},
    {TABLE_CHECKS, "checks"},
    {TABLE_CHECK_IDS, "check-ids"},
    {TABLE_INSTANCES, "instances"},
    {TABLE_TAGS, "tags"},
    {TABLE_SPELLINGS, "spellings"},
    {TABLE_NODE_IDS, "node-ids"},
    {TABLE_STRAYS, "strays"},
    {TABLE_PRESERVATION, "preservation"},
    {0},
};

static const struct query_type *const queries[] = {
    &query_nodes,       &query_services,     &query_node_services,     &query_service_entries,  &query_service_checks,
    &query_node_checks, &query_state_checks, &query_service_addresses, &query_node_nocase,      &query_service_nocase,
    &query_members,     &query_all_members,  &query_catalog_changes,   &query_catalog_position, NULL,
};

static const uint8_t topic_tables[] = {TABLE_NODES,     TABLE_SERVICES, TABLE_CHECKS,       TABLE_INSTANCES,
                                       TABLE_SPELLINGS, TABLE_STRAYS,   TABLE_PRESERVATION, 0};
static const uint8_t topic_spaces[] = {SPACE_NODE, SPACE_SERVICE, 0};
static const struct module_space spaces[] = {
    {SPACE_TABLE, "table"},
    {SPACE_NODE, "node"},
    {SPACE_SERVICE, "service"},
    {0},
};

const struct module catalog_module = {
    .name = "catalog",
    .commands = catalog_commands,
    .tables = tables,
    .spaces = spaces,
    .queries = queries,
    .lease_bindings = catalog_lease_bindings,
    .topic = HISTORY_CATALOG,
    .topic_tables = topic_tables,
    .topic_spaces = topic_spaces,
};

/* -- statuses ----------------------------------------------------------------------------------------------------- */

static const char *const status_texts[] = {
    [PB__STATUS__PASSING] = "passing",
    [PB__STATUS__WARNING] = "warning",
    [PB__STATUS__CRITICAL] = "critical",
    [PB__STATUS__MAINTENANCE] = "maintenance",
};

_Static_assert(PB__STATUS__PASSING < PB__STATUS__WARNING && PB__STATUS__WARNING < PB__STATUS__CRITICAL,
               "the worst is the highest (catalog_entry_status)");
_Static_assert(ARRAY_COUNT(status_texts) == PB__STATUS__MAINTENANCE + 1, "each has its text");

const char *catalog_status_text(Pb__Status status) {
    CHECK((size_t)status < ARRAY_COUNT(status_texts));
    return status_texts[status];
}

int catalog_status_parse(struct slice text, Pb__Status *status) {
    for (size_t i = 0; i < ARRAY_COUNT(status_texts); i++) {
        if (!slice_is(text, status_texts[i])) continue;
        *status = (Pb__Status)i;
        return CO_OK;
    }
    return CO_INVALID;
}

Pb__Status catalog_entry_status(const Pb__ServiceEntry *entry) {
    Pb__Status worst = PB__STATUS__PASSING;
    for (size_t i = 0; i < entry->n_checks; i++) {
        if (entry->checks[i]->status > worst) worst = entry->checks[i]->status;
    }
    return worst;
}

/* -- look-ups ----------------------------------------------------------------------------------------------------- */

static int find_spelling(struct store_txn *txn, enum spelling_kind kind, struct slice name, struct slice *stored) {
    char room[STORE_KEY_MAX];
    if (store_get(txn, TABLE_SPELLINGS, key_spelling(room, kind, name), stored) == CO_OK) return CO_OK;
    struct slice prefix = key_spellings(room, kind, name);
    struct store_cursor cursor;
    store_cursor_open(&cursor, txn, TABLE_SPELLINGS, prefix);
    bool found = cursor.valid && slice_starts(cursor.key, prefix);
    if (found) *stored = cursor.value;
    store_cursor_close(&cursor);
    return found ? CO_OK : CO_NOTFOUND;
}

int catalog_service_nocase(struct store_txn *txn, struct slice name, struct slice *stored) {
    return find_spelling(txn, SPELLING_SERVICE, name, stored);
}

int catalog_node_nocase(struct store_txn *txn, struct slice name, struct slice *stored) {
    return find_spelling(txn, SPELLING_NODE, name, stored);
}

bool catalog_node_exists(struct store_txn *txn, struct slice node) {
    struct slice bytes;
    return catalog_node_bytes(txn, node, &bytes) == CO_OK;
}

int catalog_check_status(struct store_txn *txn, struct slice node, struct slice check_id, Pb__Status *status) {
    struct slice bytes;
    int error = catalog_check_bytes(txn, node, check_id, &bytes);
    if (!error) *status = (Pb__Status)record_number(bytes, CHECK_STATUS_FIELD);
    return error;
}
