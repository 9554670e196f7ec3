#include "tests/lib/with_access.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "lb/coordinate.h"
#include "multi-dc/failover.h"
#include "registry/catalog.h"
#include "registry/lease.h"

/* -- as a token --------------------------------------------------------------------------------------------------- */

struct access *access_of(const char *rules) {
    struct access *access = NULL;
    for (unsigned turn = 0; turn < 2; turn++) { /* the default first */
        for (const char *at = rules; *at;) {
            size_t size = strcspn(at, " "), kind = strcspn(at, ":_"), name = strcspn(at, "=");
            bool prefix = at[kind] == '_';
            const char *level = memchr(at, ':', size);
            CHECK(level);
            level++;
            size_t level_size = (size_t)(at + (name < size ? name : size) - level);
            enum access_resource resource;
            enum access_level given;
            CHECK(access_level_parse(slice_make(level, level_size), &given));
            bool otherwise = strncmp(at, "otherwise", kind) == 0;
            if (turn == 0 && otherwise) access = access_new(given);
            if (turn == 1 && !otherwise) {
                CHECK(access_resource_parse(slice_make(at, kind), &resource));
                struct slice of = name < size ? slice_make(at + name + 1, size - name - 1) : slice_make("", 0);
                access_add(access, resource, prefix, of, given);
            }
            at += size;
            at += strspn(at, " ");
        }
        if (!access) access = access_new(ACCESS_DENY);
    }
    access_seal(access);
    return access;
}

int fixture_ask_as(struct fixture *f, const struct access *access, const struct query_type *type,
                   const ProtobufCMessage *request, struct query_result *result, struct access_check *check) {
    *check = (struct access_check){.access = access, .arena = &f->arena};
    fixture_forget(f);
    CHECK(modules_query(machine_modules(f->machine), type->number) == type);
    struct store_txn *txn = store_read(f->reader);
    *result = (struct query_result){0};
    CHECK(type->run(txn, request, &f->arena, result) == CO_OK);
    return type->show(check, txn, request, result);
}

int fixture_may(struct fixture *f, const struct access *access, uint8_t type, const ProtobufCMessage *message,
                char missing[256]) {
    struct access_check check = {.access = access, .arena = &f->arena};
    struct buffer text = {0};
    fixture_forget(f);
    int error = modules_command(machine_modules(f->machine), type)->may(&check, store_read(f->reader), message);
    CHECK(error == CO_OK || error == CO_DENIED);
    if (error) access_missing_print(&check.missing, &text);
    if (missing) snprintf(missing, 256, "%.*s", (int)text.size, text.size ? text.data : "");
    buffer_free(&text);
    fixture_forget(f);
    return error;
}

/* -- rows --------------------------------------------------------------------------------------------------------- */

struct row {
    const char *service, *node; /* whose reading it needs; NULL: none */
    const char *session, *also; /* the same, of a lease; of another service */
    ProtobufCMessage *message;  /* the row itself; NULL: nothing else than the names */
};
struct rows {
    struct row items[512];
    size_t count;
};

static void add(struct rows *rows, const char *service, const char *node, void *message) {
    CHECK(rows->count < ARRAY_COUNT(rows->items));
    rows->items[rows->count++] = (struct row){service, node, NULL, NULL, message};
}

static void add_entries(struct rows *rows, Pb__ServiceEntry **entries, size_t count) {
    for (size_t i = 0; i < count; i++) add(rows, entries[i]->service->name, entries[i]->node->name, entries[i]);
}

static void add_failover(struct rows *rows, Pb__FailoverState *state) {
    add(rows, state->record->service, NULL, NULL);
    for (size_t i = 0; i < state->record->n_targets; i++) {
        const char *other = state->record->targets[i]->service;
        add(rows, state->record->service, NULL, state->record->targets[i]);
        if (other[0]) rows->items[rows->count - 1].also = other;
    }
}

#define IS(of) (message->descriptor == &pb__##of##__descriptor)
#define EACH(list, service_, node_, row_) \
    for (size_t i = 0; i < answer->n_##list; i++) add(rows, service_, node_, row_)
static void catalog_rows(const ProtobufCMessage *message, struct rows *rows) {
    if (IS(nodes_result)) {
        const Pb__NodesResult *answer = (const void *)message;
        EACH(nodes, NULL, answer->nodes[i]->name, answer->nodes[i]);
    } else if (IS(services_result)) {
        const Pb__ServicesResult *answer = (const void *)message;
        EACH(services, answer->services[i]->name, NULL, answer->services[i]);
    } else if (IS(node_services_result)) {
        const Pb__NodeServicesResult *answer = (const void *)message;
        if (answer->node) add(rows, NULL, answer->node->name, answer->node);
        EACH(services, answer->services[i]->name, answer->services[i]->node, answer->services[i]);
    } else if (IS(service_entries_result)) {
        const Pb__ServiceEntriesResult *answer = (const void *)message;
        add_entries(rows, answer->entries, answer->n_entries);
    } else if (IS(checks_result)) {
        const Pb__ChecksResult *answer = (const void *)message;
        EACH(checks, answer->checks[i]->service_id[0] ? answer->checks[i]->service_name : NULL, answer->checks[i]->node,
             answer->checks[i]);
    } else if (IS(service_addresses_result)) {
        const Pb__ServiceAddressesResult *answer = (const void *)message;
        EACH(addresses, answer->addresses[i]->service, answer->addresses[i]->node, answer->addresses[i]);
    } else if (IS(members_result)) {
        const Pb__MembersResult *answer = (const void *)message;
        EACH(members, NULL, answer->members[i]->name, answer->members[i]);
    } else if (IS(dead_nodes_result)) {
        const Pb__DeadNodesResult *answer = (const void *)message;
        EACH(nodes, NULL, answer->nodes[i]->node, answer->nodes[i]);
    } else if (IS(lease_entries_result)) {
        const Pb__LeaseEntriesResult *answer = (const void *)message;
        EACH(leases, NULL, NULL, answer->leases[i]->lease);
        for (size_t i = 0; i < answer->n_leases; i++) rows->items[i].session = answer->leases[i]->lease->node;
    } else if (IS(coordinates_result)) {
        const Pb__CoordinatesResult *answer = (const void *)message;
        EACH(coordinates, NULL, answer->coordinates[i]->node, answer->coordinates[i]);
    } else {
        CHECK(!"an answer of the catalog");
    }
}

static void gate(struct rows *rows, const char *service) {
    for (size_t i = 0; i < rows->count; i++) rows->items[i].also = service;
}

static void region_rows(const ProtobufCMessage *message, struct rows *rows) {
    if (IS(global_service_result)) {
        const Pb__GlobalServiceResult *answer = (const void *)message;
        for (size_t i = 0; i < answer->n_regions; i++)
            add_entries(rows, answer->regions[i]->entries, answer->regions[i]->n_entries);
    } else if (IS(global_services_result)) {
        const Pb__GlobalServicesResult *answer = (const void *)message;
        EACH(services, answer->services[i]->name, NULL, NULL);
    } else if (IS(global_node_result)) {
        const Pb__GlobalNodeResult *answer = (const void *)message;
        if (answer->node) add(rows, NULL, answer->node->name, answer->node);
    } else if (IS(failovers_result)) {
        const Pb__FailoversResult *answer = (const void *)message;
        for (size_t i = 0; i < answer->n_failovers; i++) add_failover(rows, answer->failovers[i]);
    } else if (IS(failover_result)) {
        const Pb__FailoverResult *answer = (const void *)message;
        if (answer->state) add_failover(rows, answer->state);
    } else if (IS(answer_result)) {
        const Pb__AnswerResult *answer = (const void *)message;
        add_entries(rows, answer->from->entries, answer->from->n_entries);
    } else if (!IS(explain_result)) { /* which has counts */
        catalog_rows(message, rows);
    }
}

/* Services that are bound to a lease have no names, so they are not rows here; names of nodes are. */
static struct rows *rows_of(const ProtobufCMessage *message, const ProtobufCMessage *request, struct arena *arena) {
    struct rows *rows = arena_zalloc(arena, sizeof *rows);
    region_rows(message, rows);
    if (IS(answer_result) && request) gate(rows, ((const Pb__AnswerRequest *)request)->service);
    if (IS(coordinates_result) && request && request->descriptor == &pb__service_request__descriptor)
        gate(rows, ((const Pb__ServiceRequest *)request)->service);
    return rows;
}

const char *rows_text(struct arena *arena, const ProtobufCMessage *message) {
    const struct rows *rows = rows_of(message, NULL, arena);
    const char *text = "";
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->items[i];
        const char *name = row->session ? row->session : row->service ? row->service : "";
        text = arena_printf(arena, "%s%s%s%s%s", text, i ? " " : "", name, row->node ? "@" : "",
                            row->node ? row->node : "");
    }
    return text;
}

/* -- the judge ---------------------------------------------------------------------------------------------------- */

const char *known_name(struct known_names *known, bool service, struct rng *rng, struct arena *arena) {
    size_t i = known->count[service]++;
    CHECK(i < ARRAY_COUNT(known->names[0]));
    char *name = arena_printf(arena, "%c%c%08x", 'g' + (int)rng_below(rng, 3), service ? 's' : 'n',
                              (unsigned)rng_below(rng, UINT32_MAX));
    return known->names[service][i] = name;
}

struct access *random_access(const struct known_names *known, struct rng *rng) {
    struct access *access = access_new(rng_below(rng, 3) ? ACCESS_DENY : ACCESS_READ);
    static const enum access_resource of[2] = {ACCESS_NODE, ACCESS_SERVICE};
    static const char *const prefixes[] = {"", "g", "h", "i", "gn", "hs"};
    for (unsigned service = 0; service < 2; service++) {
        for (size_t i = 0; i < ARRAY_COUNT(prefixes); i++)
            if (rng_below(rng, 3) == 0)
                access_add(access, of[service], true, slice_text(prefixes[i]),
                           rng_below(rng, 2) ? ACCESS_READ : ACCESS_DENY);
        for (size_t i = 0; i < known->count[service]; i++)
            if (rng_below(rng, 2) == 0)
                access_add(access, of[service], false, slice_text(known->names[service][i]),
                           rng_below(rng, 3) ? ACCESS_READ : ACCESS_DENY);
    }
    if (rng_below(rng, 2)) access_add(access, ACCESS_SESSION, true, slice_make("", 0), ACCESS_READ);
    access_seal(access);
    return access;
}

static bool reads(const struct access *access, enum access_resource resource, const char *name) {
    return !name || access_allows(access, resource, slice_text(name), ACCESS_READ);
}

/* The row as a token gets it: a check of an instance does not tell a former name of the service that is hidden. */
static struct slice row_bytes(const struct access *access, const struct row *row, struct arena *arena) {
    if (!row->message) return slice_text(row->service);
    ProtobufCMessage *copy = message_copy(arena, row->message);
    if (copy->descriptor == &pb__service_entry__descriptor) {
        Pb__ServiceEntry *entry = (Pb__ServiceEntry *)copy;
        for (size_t i = 0; i < entry->n_checks; i++) {
            Pb__Check *check = entry->checks[i];
            if (!check->service_id[0] || reads(access, ACCESS_SERVICE, check->service_name)) continue;
            check->service_name = entry->service->name;
            check->service_tags = entry->service->tags, check->n_service_tags = entry->service->n_tags;
        }
    }
    return message_pack(arena, copy);
}

static const char *rows_differ(const struct access *access, const struct rows *all, const struct rows *shown,
                               struct arena *arena) {
    size_t at = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct row *row = &all->items[i];
        bool may = reads(access, ACCESS_SERVICE, row->service) && reads(access, ACCESS_NODE, row->node) &&
                   reads(access, ACCESS_SESSION, row->session) && reads(access, ACCESS_SERVICE, row->also);
        if (!may) continue;
        struct slice wanted = row_bytes(access, row, arena);
        if (at == shown->count) return arena_printf(arena, "row %zu is missing", i);
        const struct row *other = &shown->items[at++];
        struct slice found = other->message ? message_pack(arena, other->message) : slice_text(other->service);
        if (!slice_equal(wanted, found)) return arena_printf(arena, "row %zu is another one", i);
    }
    return at == shown->count ? NULL : arena_printf(arena, "%zu rows are too many", shown->count - at);
}

static struct slice in_small(struct arena *arena, const ProtobufCMessage *message) {
    struct slice bytes = message_pack(arena, message);
    char *small = arena_alloc(arena, bytes.size + 1);
    for (size_t i = 0; i < bytes.size; i++) small[i] = (char)tolower((unsigned char)bytes.data[i]);
    return slice_make(small, bytes.size);
}

static bool holds(struct slice bytes, const char *name) {
    return bytes.size && memmem(bytes.data, bytes.size, name, strlen(name));
}

/* A lease tells its node's name to those who may read the sessions there. */
static bool may_tell(const struct access *access, bool service, const char *name, const ProtobufCMessage *message) {
    bool of_session = !service && IS(lease_entries_result) && reads(access, ACCESS_SESSION, name);
    return of_session || reads(access, service ? ACCESS_SERVICE : ACCESS_NODE, name);
}

/* A name that the answer must not tell, and that the request does not have. */
static const char *told_name(const struct known_names *known, const struct access *access,
                             const ProtobufCMessage *request, const ProtobufCMessage *answer, struct arena *arena) {
    struct slice asked = in_small(arena, request), told = in_small(arena, answer);
    for (unsigned service = 0; service < 2; service++)
        for (size_t i = 0; i < known->count[service]; i++) {
            const char *name = known->names[service][i];
            if (!may_tell(access, service, name, answer) && holds(told, name) && !holds(asked, name)) return name;
        }
    return NULL;
}

const char *answer_fault(struct fixture *f, const struct known_names *known, const struct access *access,
                         const struct query_type *type, const ProtobufCMessage *request, bool open,
                         struct arena *arena) {
    struct query_result result;
    struct access_check check;
    const ProtobufCMessage *everything = message_copy(arena, fixture_ask(f, type, request).message);
    const ProtobufCMessage *shown = everything;
    if (!open) {
        int error = fixture_ask_as(f, access, type, request, &result, &check);
        if (error) return arena_printf(arena, "%s: error %d", type->name, error);
        shown = message_copy(arena, result.message);
        fixture_forget(f);
    }
    const struct rows *all = rows_of(everything, request, arena), *rows = rows_of(shown, request, arena);
    if (!open && rows->count < all->count && !check.hidden)
        return arena_printf(arena, "%s: it counts nothing as hidden", type->name);
    const char *name = told_name(known, access, request, shown, arena);
    if (name) return arena_printf(arena, "%s: it tells of %s", type->name, name);
    const char *fault = rows_differ(access, all, rows, arena);
    return fault ? arena_printf(arena, "%s: %s", type->name, fault) : NULL;
}
