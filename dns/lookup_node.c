#include "base/check.h"
#include "dns/lookup_internal.h"
#include "multi-dc/copy.h"

/* -- addresses and names ------------------------------------------------------------------------------------------ */

bool node_target(const struct dns_lookup *lookup, const char *region, const char *node, struct wire_name *out) {
    *out = lookup->setup->node_base;
    if (region) {
        *out = lookup->setup->zone.domains[0];
        if (!wire_name_prepend(out, slice_text(region)) || !wire_name_prepend(out, SLICE_LITERAL("node"))) return false;
    }
    return host_labels_valid(slice_text(node)) && wire_name_prepend(out, slice_text(node));
}

bool service_target(const struct dns_lookup *lookup, struct slice service, struct wire_name *out) {
    *out = lookup->setup->service_base;
    bool one_label = host_labels_valid(service) && !memchr(service.data, '.', service.size);
    return one_label && wire_name_prepend(out, service);
}

void address_target(const struct dns_lookup *lookup, const struct host *host, struct wire_name *out) {
    static const char digits[] = "0123456789abcdef";
    char hex[32];
    for (size_t i = 0; i < host->size; i++) {
        hex[2 * i] = digits[host->address[i] >> 4];
        hex[2 * i + 1] = digits[host->address[i] & 15];
    }
    *out = lookup->setup->addr_base;
    CHECK(wire_name_prepend(out, slice_make(hex, 2u * host->size)));
}

/* -- metadata as text --------------------------------------------------------------------------------------------- */

/* RFC 1464: in the name a backquote is put before '=', before a backquote, and before blanks at the start; in the value
 * before a backquote. */
struct slice meta_text(struct arena *arena, const Pb__Pair *pair) {
    struct slice key = slice_text(pair->key), value = slice_text(pair->value);
    static const char plain[] = "rfc1035-";
    if (key.size >= sizeof(plain) - 1 &&
        slice_equal_nocase(slice_make(key.data, sizeof(plain) - 1), slice_text(plain))) {
        return slice_copy(arena, value);
    }
    char *text = arena_alloc(arena, 2 * (key.size + value.size) + 1);
    size_t size = 0;
    bool leading = true;
    for (size_t i = 0; i < key.size; i++) {
        char c = key.data[i];
        leading = leading && (c == ' ' || c == '\t');
        if (c == '=' || c == '`' || leading) text[size++] = '`';
        text[size++] = c;
    }
    text[size++] = '=';
    for (size_t i = 0; i < value.size; i++) {
        if (value.data[i] == '`') text[size++] = '`';
        text[size++] = value.data[i];
    }
    return slice_make(text, size);
}

/* -- nodes -------------------------------------------------------------------------------------------------------- */

static bool is_own_name(const struct dns_lookup *lookup, const Pb__Node *node, struct slice host) {
    struct name name;
    return lookup_ours(lookup, host, &name) && name.kind == NAME_NODE &&
           slice_equal_nocase(name.node, slice_text(node->name));
}

static void node_copy(struct dns_lookup *lookup, const Pb__Node *node, struct addresses *out) {
    struct host host = host_parse(node->address);
    out->items = arena_alloc(&lookup->arena, sizeof(*out->items));
    if (host.size) out->items[out->count++] = host;
    else if (!is_own_name(lookup, node, host.name)) out->alias = slice_copy(&lookup->arena, host.name);
    struct slice *texts = arena_alloc(&lookup->arena, (node->n_meta + 1) * sizeof(*texts));
    for (size_t i = 0; i < node->n_meta; i++) texts[i] = meta_text(&lookup->arena, node->meta[i]);
    out->texts = texts;
    out->text_count = node->n_meta;
}

/* Read from the copy of its region. No watch tells of changes of a single node there, so the answer is not kept. */
static void addresses_of_node_there(struct dns_lookup *lookup, const struct name *name, struct addresses *out) {
    Pb__GlobalNodeRequest request = PB__GLOBAL_NODE_REQUEST__INIT;
    struct query_result result = {0};
    request.region = arena_strndup(&lookup->arena, name->datacenter.data, name->datacenter.size);
    request.node = arena_strndup(&lookup->arena, name->node.data, name->node.size);
    lookup->depends->overflow = true;
    int rv = lookup_query(lookup, &query_global_node, &request.base, &result);
    lookup_note(lookup, rv);
    if (rv == CO_OK && result.found && result.message) {
        out->state = LOOKUP_SOME;
        node_copy(lookup, ((const Pb__GlobalNodeResult *)result.message)->node, out);
    }
    rpc_read_end(lookup->reader);
}

void addresses_of_node(struct dns_lookup *lookup, const struct name *name, struct addresses *out) {
    *out = (struct addresses){.ttl = lookup->setup->node_ttl};
    struct slice stored;
    if (lookup_is_foreign(lookup, name)) {
        addresses_of_node_there(lookup, name, out);
        return;
    }
    if (!lookup_stored(lookup, &query_node_nocase, name->node, &stored)) {
        /* Only servers look for names below, because a client agent would have to follow the whole table of nodes. */
        bool below = rpc_has_copy(lookup->rpc) && reverse_node_below(lookup, name->node);
        if (below) out->state = LOOKUP_PARENT;
        return;
    }
    dns_depends_add(lookup->depends, lookup->rpc, (struct watch_key){SPACE_NODE, stored});
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = (char *)stored.data;
    struct query_result result = {0};
    int rv = lookup_query(lookup, &query_node_services, &request.base, &result);
    lookup_note(lookup, rv);
    if (rv == CO_OK && result.found && result.message) {
        const Pb__NodeServicesResult *found = (const Pb__NodeServicesResult *)(const void *)result.message;
        out->state = LOOKUP_SOME;
        node_copy(lookup, found->node, out);
    }
    rpc_read_end(lookup->reader);
}
