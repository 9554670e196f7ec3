/* spiffe://DOMAIN/server/NODE and spiffe://DOMAIN/agent/NODE */
#include "base/check.h"
#include "base/text.h"
#include "tls/certificate_inner.h"

static const char *const role_names[] = {
    [TLS_ROLE_NONE] = "none", [TLS_ROLE_SERVER] = "server", [TLS_ROLE_AGENT] = "agent"};

const char *tls_role_name(enum tls_role role) {
    CHECK((size_t)role < ARRAY_COUNT(role_names));
    return role_names[role];
}

bool tls_domain_valid(struct slice domain) {
    if (domain.size != TLS_DOMAIN_SIZE) return false;
    for (size_t i = 0; i < domain.size; i++) {
        char c = domain.data[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) return false;
    }
    return true;
}

static bool is_unreserved(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

static void node_write(struct buffer *out, const char *node) {
    for (const char *at = node; *at; at++)
        if (is_unreserved(*at)) buffer_append_byte(out, *at);
        else buffer_printf(out, "%%%02X", (unsigned)(unsigned char)*at);
}

void tls_uri_write(struct buffer *out, const char *domain, enum tls_role role, const char *node) {
    buffer_printf(out, "spiffe://%s/%s/", domain, tls_role_name(role));
    node_write(out, node);
}

/* Takes `prefix` from the front. */
static bool take(struct slice *text, const char *prefix) {
    struct slice wanted = slice_text(prefix);
    if (!slice_starts(*text, wanted)) return false;
    *text = slice_make(text->data + wanted.size, text->size - wanted.size);
    return true;
}

bool tls_uri_read(struct slice uri, char domain[TLS_DOMAIN_SIZE + 1], enum tls_role *role,
                  char node[TLS_NODE_MAX + 1]) {
    struct slice rest = uri;
    if (!take(&rest, "spiffe://") || rest.size < TLS_DOMAIN_SIZE) return false;
    struct slice name = slice_make(rest.data, TLS_DOMAIN_SIZE);
    rest = slice_make(rest.data + TLS_DOMAIN_SIZE, rest.size - TLS_DOMAIN_SIZE);
    if (!tls_domain_valid(name)) return false;
    enum tls_role found = take(&rest, "/server/")  ? TLS_ROLE_SERVER
                          : take(&rest, "/agent/") ? TLS_ROLE_AGENT
                                                   : TLS_ROLE_NONE;
    char decoded[TLS_NODE_MAX * 3 + 1];
    size_t size;
    if (found == TLS_ROLE_NONE || rest.size > TLS_NODE_MAX * 3) return false;
    if (percent_decode(rest, false, decoded, &size) != CO_OK || size == 0 || size > TLS_NODE_MAX) return false;
    decoded[size] = '\0';
    struct buffer again = {0};
    node_write(&again, decoded);
    bool canonical = slice_equal(buffer_slice(&again), rest);
    buffer_free(&again);
    if (!canonical) return false;
    memcpy(domain, name.data, name.size);
    domain[name.size] = '\0';
    memcpy(node, decoded, size + 1);
    *role = found;
    return true;
}
