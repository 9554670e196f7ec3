#include "registry/undiscoverable.h"

#include <stdatomic.h>

#include "base/hash.h"
#include "base/host.h"
#include "base/log.h"

enum { QUOTED_MOST = 60, TEXT_MOST = 512, SAID_COUNT = 512 };

/* Bytes that would not be plain in a header or a line of the log stand as \xNN. */
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

static void judge_address(struct buffer *out, const char *what, const char *address, const char *left_out) {
    if (!is_wrong(address)) return;
    begin(out, what, address);
    buffer_append_text(out, " is neither an IP address nor a host name");
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
        judge_address(out, what.data, addresses[i]->address, "");
    }
    buffer_free(&what);
}

void undiscoverable_text(struct buffer *out, const Pb__Node *node, const Pb__Service *service) {
    if (node) {
        judge_name(out, "node name", node->name, true);
        judge_address(out, "node address", node->address, ": DNS leaves it out");
        judge_tagged(out, "node's tagged address ", node->tagged_addresses, node->n_tagged_addresses);
    }
    if (service) {
        judge_name(out, "service name", service->name, false);
        judge_address(out, "service address", service->address, ": DNS leaves this instance out");
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
