#include "registry/undiscoverable.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/host.h"
#include "base/log.h"

enum { QUOTED_MOST = 60, TEXT_MOST = 512, SAID_COUNT = 512 };

/* Quotes a text; bytes that would not be plain in a header or a line of the log are written as \xNN. */
static void quote(struct buffer *out, const char *text) {
    buffer_append_byte(out, '"');
    for (size_t i = 0; text[i] && i < QUOTED_MOST; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < ' ' || c > '~' || c == '"' || c == '\\') buffer_printf(out, "\\x%02x", c);
        else buffer_append_byte(out, (char)c);
    }
    buffer_append_text(out, strlen(text) > QUOTED_MOST ? "...\"" : "\"");
}

static void begin(struct buffer *out, const char *what, const char *text) {
    if (out->size) buffer_append_text(out, "; ");
    buffer_append_text(out, what);
    buffer_append_byte(out, ' ');
    quote(out, text);
}

static void judge_name(struct buffer *out, const char *what, const char *name, bool dots) {
    struct slice text = slice_text(name);
    if (host_labels_valid(text) && (dots || !memchr(name, '.', text.size))) return;
    begin(out, what, name);
    buffer_append_text(out, dots ? " is no host name: DNS clients may not find it"
                                 : " is no single label of a host name: DNS clients may not find it");
}

static bool is_wrong(const char *address) {
    if (!address[0]) return false;
    struct host host = host_parse(address);
    return host.size == 0 && host.name.size == 0;
}

/* -- addresses that are the name of the thing itself -------------------------------------------------------------- */

enum { NAME_ROOM = 256 };
static char domains[2][NAME_ROOM], our_datacenter[NAME_ROOM];

void undiscoverable_domains(const char *domain, const char *alt_domain, const char *datacenter) {
    snprintf(domains[0], NAME_ROOM, "%s", domain);
    snprintf(domains[1], NAME_ROOM, "%s", alt_domain ? alt_domain : "");
    snprintf(our_datacenter, NAME_ROOM, "%s", datacenter);
}

/* Takes ".END" off. */
static bool take_end(struct slice *name, const char *end) {
    size_t size = strlen(end) + 1;
    if (name->size <= size || name->data[name->size - size] != '.') return false;
    if (!slice_equal_nocase(slice_make(name->data + name->size - size + 1, size - 1), slice_text(end))) return false;
    name->size -= size;
    return true;
}

/* The part before [.DC][.dc].DOMAIN; false: it is not a name in our domain. */
static bool before_domain(const char *address, struct slice *out) {
    for (size_t i = 0; i < ARRAY_COUNT(domains); i++) {
        struct slice name = slice_text(address);
        if (name.size && name.data[name.size - 1] == '.') name.size--;
        if (!domains[i][0] || !take_end(&name, domains[i])) continue;
        struct slice in_datacenter = name;
        (void)take_end(&in_datacenter, "dc");
        *out = take_end(&in_datacenter, our_datacenter) ? in_datacenter : name;
        return true;
    }
    return false;
}

__attribute__((format(printf, 2, 3))) static bool is_text(struct slice name, const char *format, ...) {
    char text[NAME_ROOM];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return size < (int)sizeof text && slice_equal_nocase(name, slice_make(text, (size_t)size));
}

static bool is_own_node(const char *address, const Pb__Node *node) {
    struct slice name;
    return before_domain(address, &name) && is_text(name, "%s.node", node->name);
}

static bool is_own_service(const char *address, const Pb__Service *service) {
    struct slice name;
    if (!before_domain(address, &name)) return false;
    bool plain = take_end(&name, "service"); /* names of RFC 2782 need not have it */
    bool own = (plain && is_text(name, "%s", service->name)) || is_text(name, "_%s._tcp", service->name);
    for (size_t i = 0; i < service->n_tags && !own; i++)
        own = (plain && is_text(name, "%s.%s", service->tags[i], service->name)) ||
              is_text(name, "_%s._%s", service->name, service->tags[i]);
    return own;
}

/* -- all of a registration ---------------------------------------------------------------------------------------- */

/* `own`: the address is the very name that DNS would answer with it. */
static void judge_address(struct buffer *out, const char *what, const char *address, bool own, const char *left_out) {
    if (!own && !is_wrong(address)) return;
    begin(out, what, address);
    buffer_append_text(out, own ? " is its own name in DNS" : " is neither an IP address nor a host name");
    buffer_append_text(out, left_out);
}

static void judge_tagged(struct buffer *out, const char *of, Pb__TaggedAddress *const *addresses, size_t count) {
    struct buffer what = {0};
    for (size_t i = 0; i < count && out->size < TEXT_MOST; i++) {
        if (!is_wrong(addresses[i]->address)) continue;
        buffer_reset(&what);
        buffer_append_text(&what, of);
        quote(&what, addresses[i]->name);
        buffer_append_byte(&what, '\0');
        judge_address(out, what.data, addresses[i]->address, false, "");
    }
    buffer_free(&what);
}

void undiscoverable_text(struct buffer *out, const Pb__Node *node, const Pb__Service *service) {
    if (node) {
        judge_name(out, "node name", node->name, true);
        judge_address(out, "node address", node->address, is_own_node(node->address, node), ": DNS leaves it out");
        judge_tagged(out, "node's tagged address ", node->tagged_addresses, node->n_tagged_addresses);
    }
    if (service) {
        bool has_own = service->address[0] || !node; /* otherwise it has that of its node */
        const char *address = has_own ? service->address : node->address;
        bool leads_back = is_own_service(address, service);
        judge_name(out, "service name", service->name, false);
        if (has_own || leads_back)
            judge_address(out, "service address", address, leads_back, ": DNS leaves this instance out");
        judge_tagged(out, "service's tagged address ", service->tagged_addresses, service->n_tagged_addresses);
    }
}

static bool said_before(uint64_t hash) {
    static _Atomic uint64_t said[SAID_COUNT];
    return atomic_exchange(&said[hash % SAID_COUNT], hash) == hash;
}

void undiscoverable_log(const char *name, const Pb__Node *node, const Pb__Service *service) {
    struct buffer text = {0};
    undiscoverable_text(&text, node, service);
    if (text.size) {
        buffer_append_text(&text, " node=");
        quote(&text, name);
        if (service) buffer_append_text(&text, " service="), quote(&text, service->id);
        if (!said_before(hash64(text.data, text.size)))
            log_warn("catalog", "DNS cannot say all of a registration: %.*s", (int)text.size, text.data);
    }
    buffer_free(&text);
}
