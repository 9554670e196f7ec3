/* Takes out of the catalog's answers what a token may not read. */
#include "registry/catalog_access.h"

#include "registry/catalog_query.h"

static bool reads(const struct access_check *check, enum access_resource resource, const char *name) {
    return access_allows(check->access, resource, slice_text(name), ACCESS_READ);
}

static bool shows_node(struct access_check *check, const char *node) {
    return access_shows(check, ACCESS_NODE, slice_text(node));
}

bool catalog_shows_instance(struct access_check *check, const char *service, const char *node) {
    if (reads(check, ACCESS_SERVICE, service) && reads(check, ACCESS_NODE, node)) return true;
    check->hidden++;
    return false;
}

static bool shows_check(struct access_check *check, const Pb__Check *row) {
    return row->service_id[0] ? catalog_shows_instance(check, row->service_name, row->node)
                              : shows_node(check, row->node);
}

/* The thing that was asked for by its name. */
static bool shows_thing(struct access_check *check, enum access_resource resource, const char *name,
                        struct query_result *result) {
    if (access_shows(check, resource, slice_text(name))) return true;
    result->index = 0;
    return false;
}

bool catalog_shows_service(struct access_check *check, const char *service, struct query_result *result) {
    return shows_thing(check, ACCESS_SERVICE, service, result);
}

static void hide_former_names(struct access_check *check, Pb__ServiceEntry *entry) {
    const Pb__Service *service = entry->service;
    for (size_t i = 0; i < entry->n_checks; i++) {
        Pb__Check *row = entry->checks[i];
        if (!row->service_id[0] || reads(check, ACCESS_SERVICE, row->service_name)) continue;
        row->service_name = service->name;
        row->service_tags = service->tags, row->n_service_tags = service->n_tags;
    }
}

void catalog_show_entries(struct access_check *check, Pb__ServiceEntry **entries, size_t *count) {
    ACCESS_KEEP_ROWS(*count, entries, catalog_shows_instance(check, row->service->name, row->node->name));
    for (size_t i = 0; i < *count; i++) hide_former_names(check, entries[i]);
}

/* -- lists -------------------------------------------------------------------------------------------------------- */

#define UNUSED (void)txn, (void)request, (void)result

CATALOG_SHOW(nodes) {
    UNUSED;
    Pb__NodesResult *records = (Pb__NodesResult *)(uintptr_t)result->message;
    ACCESS_KEEP_ROWS(records->n_nodes, records->nodes, shows_node(check, row->name));
    return CO_OK;
}

CATALOG_SHOW(services) {
    UNUSED;
    Pb__ServicesResult *records = (Pb__ServicesResult *)(uintptr_t)result->message;
    ACCESS_KEEP_ROWS(records->n_services, records->services,
                     access_shows(check, ACCESS_SERVICE, slice_text(row->name)));
    return CO_OK;
}

CATALOG_SHOW(service_entries) {
    UNUSED;
    Pb__ServiceEntriesResult *records = (Pb__ServiceEntriesResult *)(uintptr_t)result->message;
    if (catalog_shows_service(check, ((const Pb__ServiceRequest *)request)->service, result))
        catalog_show_entries(check, records->entries, &records->n_entries);
    else records->n_entries = 0;
    return CO_OK;
}

static int show_checks(struct access_check *check, struct query_result *result, bool any) {
    Pb__ChecksResult *records = (Pb__ChecksResult *)(uintptr_t)result->message;
    if (any) ACCESS_KEEP_ROWS(records->n_checks, records->checks, shows_check(check, row));
    else records->n_checks = 0;
    return CO_OK;
}

CATALOG_SHOW(service_checks) {
    (void)txn;
    return show_checks(check, result,
                       catalog_shows_service(check, ((const Pb__ServiceRequest *)request)->service, result));
}

CATALOG_SHOW(node_checks) {
    (void)txn;
    return show_checks(check, result,
                       shows_thing(check, ACCESS_NODE, ((const Pb__NodeRequest *)request)->node, result));
}

CATALOG_SHOW(state_checks) {
    UNUSED;
    return show_checks(check, result, true);
}

CATALOG_SHOW(service_addresses) {
    UNUSED;
    Pb__ServiceAddressesResult *records = (Pb__ServiceAddressesResult *)(uintptr_t)result->message;
    ACCESS_KEEP_ROWS(records->n_addresses, records->addresses, catalog_shows_instance(check, row->service, row->node));
    return CO_OK;
}

CATALOG_SHOW(members) {
    UNUSED;
    Pb__MembersResult *records = (Pb__MembersResult *)(uintptr_t)result->message;
    ACCESS_KEEP_ROWS(records->n_members, records->members, shows_node(check, row->name));
    return CO_OK;
}

/* -- single things ------------------------------------------------------------------------------------------------ */

CATALOG_SHOW(node_services) {
    (void)txn;
    Pb__NodeServicesResult *records = (Pb__NodeServicesResult *)(uintptr_t)result->message;
    if (!shows_thing(check, ACCESS_NODE, ((const Pb__NodeRequest *)request)->node, result)) {
        records->node = NULL, records->n_services = 0;
        result->found = false;
    }
    ACCESS_KEEP_ROWS(records->n_services, records->services,
                     access_shows(check, ACCESS_SERVICE, slice_text(row->name)));
    return CO_OK;
}

static int show_name(struct access_check *check, enum access_resource resource, const ProtobufCMessage *request,
                     struct query_result *result) {
    Pb__NameResult *record = (Pb__NameResult *)(uintptr_t)result->message;
    if (shows_thing(check, resource, ((const Pb__NameRequest *)request)->name, result)) return CO_OK;
    record->name = (char *)protobuf_c_empty_string;
    result->found = false;
    return CO_OK;
}

CATALOG_SHOW(node_name) {
    (void)txn;
    return show_name(check, ACCESS_NODE, request, result);
}

CATALOG_SHOW(service_name) {
    (void)txn;
    return show_name(check, ACCESS_SERVICE, request, result);
}
