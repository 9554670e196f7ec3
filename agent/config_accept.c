/* Checks of the texts of keys. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#include "agent/config_internal.h"
#include "base/check.h"
#include "base/log.h"
#include "base/log_targets.h"
#include "base/text.h"
#include "rpc/api/requester.h"
#include "rpc/wire/address.h"

#define SOCKET_PATH_MOST 107 /* bytes of sun_path, without the NUL */

/* An empty text means that the key is not given, for keys that may be left out. */
static bool none(const char **text) {
    if (**text) return false;
    *text = NULL;
    return true;
}

static bool is_ip(const char *text) {
    unsigned char address[16];
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

/* Why a text cannot be an address, for people; NULL when it may be one. */
static const char *no_address(const char *text) {
    if (strstr(text, "{{")) return "is a go-sockaddr template, which is not supported: write the address itself";
    if (strncmp(text, "unix://", 7) == 0) return "is a Unix socket, which only addresses.http and addresses.https take";
    return NULL;
}

/* Removes the brackets round an IPv6 address. */
static const char *without_brackets(struct arena *arena, const char *text) {
    size_t size = strlen(text);
    if (size < 2 || text[0] != '[' || text[size - 1] != ']') return text;
    return arena_strndup(arena, text + 1, size - 2);
}

const char *accept_ip(struct arena *arena, const char **text) {
    const char *wrong = no_address(*text);
    if (wrong) return wrong;
    *text = without_brackets(arena, *text);
    return is_ip(*text) ? NULL : "is not an IP address";
}

const char *accept_own_ip(struct arena *arena, const char **text) {
    if (none(text)) return NULL;
    const char *wrong = accept_ip(arena, text);
    if (wrong) return wrong;
    unsigned char address[16];
    if (inet_pton(AF_INET, *text, address) == 1) {
        return memcmp(address, "\0\0\0\0", 4) ? NULL : "is no address that others can connect to";
    }
    inet_pton(AF_INET6, *text, address);
    return memcmp(address, &in6addr_any, 16) ? NULL : "is no address that others can connect to";
}

/* Several addresses, blanks between. */
static const char *accept_list(struct arena *arena, const char **text, bool sockets) {
    struct buffer list = {0};
    const char *at = *text, *wrong = NULL;
    while (!wrong && *(at += strspn(at, " \t"))) {
        size_t size = strcspn(at, " \t");
        const char *one = without_brackets(arena, arena_strndup(arena, at, size));
        at += size;
        bool socket = sockets && strncmp(one, "unix://", 7) == 0;
        if (socket && one[7] != '/') wrong = "is no Unix socket: write unix:///path";
        else if (socket && strlen(one + 7) > SOCKET_PATH_MOST) wrong = "has a path of more than 107 bytes";
        else if (!socket && !is_ip(one) && !(wrong = no_address(one)))
            wrong = "is not an IP address (several are separated by blanks)";
        if (list.size) buffer_append_byte(&list, ' ');
        buffer_append_text(&list, one);
    }
    if (!wrong && list.size == 0) wrong = "holds no address";
    if (!wrong) *text = arena_strndup(arena, list.data, list.size);
    buffer_free(&list);
    return wrong;
}

const char *accept_client_ips(struct arena *arena, const char **text) {
    const char *wrong = no_address(*text);
    return wrong ? wrong : accept_list(arena, text, false);
}

const char *accept_no_client_ips(struct arena *arena, const char **text) {
    return none(text) ? NULL : accept_client_ips(arena, text);
}

const char *accept_no_http_addresses(struct arena *arena, const char **text) {
    return none(text) ? NULL : accept_list(arena, text, true);
}

const char *accept_mode(struct arena *arena, const char **text) {
    (void)arena;
    if (none(text)) return NULL;
    size_t size = strlen(*text);
    bool octal = strspn(*text, "01234567") == size;
    return octal && size >= 3 && size <= 4 && (size == 3 || **text == '0') ? NULL : "is no mode of a file: write 0660";
}

const char *accept_shared_key(struct arena *arena, const char **text) {
    struct buffer key = {0};
    (void)arena;
    if (none(text)) return NULL;
    bool base64 = base64_decode(&key, slice_text(*text)) == CO_OK;
    bool fits = key.size == 16 || key.size == 24 || key.size == 32;
    if (key.data) explicit_bzero(key.data, key.capacity);
    buffer_free(&key);
    return !base64 ? "is no base64: `coord keygen` makes a key"
           : fits  ? NULL
                   : "is no key of 16, 24 or 32 bytes in base64: `coord keygen` makes one";
}

const char *accept_tls_version(struct arena *arena, const char **text) {
    static const char *const versions[] = {"tls10",   "tls11",   "tls12",   "tls13",   "TLS_AUTO",
                                           "TLSv1_0", "TLSv1_1", "TLSv1_2", "TLSv1_3", NULL};
    (void)arena;
    if (none(text)) return NULL;
    for (size_t i = 0; versions[i]; i++)
        if (strcmp(*text, versions[i]) == 0) return NULL;
    return "is no version of TLS: tls12 or tls13 (TLSv1_2, TLSv1_3)";
}

const char *accept_datacenter(struct arena *arena, const char **text) {
    size_t size = strlen(*text);
    if (size == 0 || size > 63) return "must have 1 to 63 characters";
    char *lower = arena_strndup(arena, *text, size);
    for (char *at = lower; *at; at++) {
        if (!isalnum((unsigned char)*at) && *at != '-' && *at != '_') return "may hold only letters, digits, - and _";
        *at = (char)tolower((unsigned char)*at);
    }
    *text = lower;
    return NULL;
}

const char *accept_domain(struct arena *arena, const char **text) {
    const char *from = *text;
    size_t size = strlen(from);
    while (size > 0 && from[size - 1] == '.') size--;
    while (size > 0 && from[0] == '.') from++, size--;
    if (size == 0 || size > 200) return "must be a domain of 1 to 200 characters";
    size_t label = 0;
    for (size_t i = 0; i <= size; i++) {
        if (i == size || from[i] == '.') {
            if (label == 0 || label > 63) return "is not a domain: each label has 1 to 63 characters";
            label = 0;
        } else if (isalnum((unsigned char)from[i]) || from[i] == '-' || from[i] == '_') {
            label++;
        } else {
            return "is not a domain: labels hold only letters, digits, - and _";
        }
    }
    *text = arena_strndup(arena, from, size);
    return NULL;
}

const char *accept_no_domain(struct arena *arena, const char **text) {
    return none(text) ? NULL : accept_domain(arena, text);
}

const char *accept_node_name(struct arena *arena, const char **text) {
    if (none(text)) return NULL;
    (void)arena;
    size_t size = strlen(*text);
    if (size == 0 || size > 255) return "must have 1 to 255 bytes";
    for (const char *at = *text; *at; at++) {
        if (iscntrl((unsigned char)*at) || *at == '/') return "may hold neither / nor control characters";
    }
    return NULL;
}

const char *accept_level(struct arena *arena, const char **text) {
    (void)arena;
    return log_level_parse(slice_text(*text)) >= 0 ? NULL : "is not a level: trace, debug, info, warn or err";
}

const char *accept_policy(struct arena *arena, const char **text) {
    (void)arena;
    bool known = strcasecmp(*text, "allow") == 0 || strcasecmp(*text, "deny") == 0;
    return known ? NULL : "is not a default: allow or deny";
}

const char *accept_on_failure(struct arena *arena, const char **text) {
    (void)arena;
    bool known = strcasecmp(*text, "continue") == 0 || strcasecmp(*text, "refuse") == 0;
    return known ? NULL : "is neither continue nor refuse";
}

const char *accept_down_policy(struct arena *arena, const char **text) {
    (void)arena;
    static const char *const known[] = {"allow", "deny", "extend-cache", "async-cache"};
    for (size_t i = 0; i < ARRAY_COUNT(known); i++)
        if (strcasecmp(*text, known[i]) == 0) return NULL;
    return "is not one of extend-cache, async-cache, deny and allow";
}

const char *accept_limits_mode(struct arena *arena, const char **text) {
    (void)arena;
    static const char *const known[] = {"disabled", "permissive", "enforcing"};
    for (size_t i = 0; i < ARRAY_COUNT(known); i++)
        if (strcmp(*text, known[i]) == 0) return NULL;
    return "is not one of disabled, permissive and enforcing";
}

const char *accept_token(struct arena *arena, const char **text) {
    (void)arena;
    if (none(text)) return NULL;
    return strlen(*text) > REQUESTER_TOKEN_MOST ? "is longer than a token can be (256 bytes)" : NULL;
}

const char *accept_uuid(struct arena *arena, const char **text) {
    if (none(text)) return NULL;
    if (!uuid_valid(slice_text(*text))) return "is not a UUID";
    char *lower = arena_strndup(arena, *text, UUID_TEXT_SIZE);
    for (char *at = lower; *at; at++) *at = (char)tolower((unsigned char)*at);
    *text = lower;
    return NULL;
}

/* Three numbers as Consul's releases have, which a suffix of semantic versions may follow. */
const char *accept_version(struct arena *arena, const char **text) {
    static const char digits[] = "0123456789", wrong[] = "is not a version as Consul's are, like 1.8.7";
    const char *at = *text;
    (void)arena;
    for (int part = 0; part < 3; part++) {
        size_t size = strspn(at, digits);
        if (size == 0 || size > 9 || (part < 2 && at[size] != '.')) return wrong;
        at += size + (part < 2);
    }
    if (*at && *at != '-' && *at != '+') return wrong;
    if (*at && !at[1]) return wrong;
    for (; *at; at++) {
        if (!isalnum((unsigned char)*at) && !strchr("-+.", *at)) return wrong;
    }
    return strlen(*text) <= 40 ? NULL : wrong;
}

const char *accept_any(struct arena *arena, const char **text) {
    (void)arena;
    none(text);
    return NULL;
}

const char *accept_facility(struct arena *arena, const char **text) {
    (void)arena;
    return log_facility(*text) >= 0 ? NULL : "is no facility of syslog (daemon, user, local0 to local7, ...)";
}

const char *accept_not_empty(struct arena *arena, const char **text) {
    (void)arena;
    return **text ? NULL : "must not be empty";
}

const char *accept_join(struct arena *arena, const char **text) {
    (void)arena;
    return address_refused(*text);
}

const char *accept_meta(const char *name, const char *value) {
    size_t size = strlen(name);
    if (size == 0 || size > 128) return "a name must have 1 to 128 characters";
    for (const char *at = name; *at; at++) {
        if (!isalnum((unsigned char)*at) && *at != '-' && *at != '_') {
            return "a name may hold only letters, digits, - and _";
        }
    }
    if (strncmp(name, "consul-", 7) == 0) return "names that begin with consul- are reserved";
    return strlen(value) <= 512 ? NULL : "a value may have at most 512 bytes";
}
