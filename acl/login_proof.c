#include "acl/login_proof.h"

#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "base/text.h"

static const struct jwt_mapping unix_values[] = {{"user", "user"}, {"group", "group"}, {"uid", "uid"},
                                                 {"gid", "gid"},   {"unit", "unit"},   {"host", "host"}};
static const struct jwt_mapping certificate_values[] = {{"cn", "cn"}, {"serial", "serial"}, {"host", "host"}};
static const struct jwt_mapping certificate_lists[] = {{"dns", "dns"}, {"uri", "uri"}};

const struct selector_names proof_unix_names = {.values = unix_values, .value_count = ARRAY_COUNT(unix_values)};
const struct selector_names proof_certificate_names = {.values = certificate_values,
                                                       .value_count = ARRAY_COUNT(certificate_values),
                                                       .lists = certificate_lists,
                                                       .list_count = ARRAY_COUNT(certificate_lists)};

/* -- units -------------------------------------------------------------------------------------------------------------- */
static bool ends(struct slice text, const char *with) {
    size_t size = strlen(with);
    return text.size > size && memcmp(text.data + text.size - size, with, size) == 0;
}

/* The first part of the path that is no slice. */
static struct slice unit_of(struct slice path) {
    while (path.size) {
        const char *slash = memchr(path.data, '/', path.size);
        struct slice part = slice_make(path.data, slash ? (size_t)(slash - path.data) : path.size);
        path = slash ? slice_make(slash + 1, path.size - part.size - 1) : slice_make("", 0);
        if (!part.size || ends(part, ".slice")) continue;
        return ends(part, ".service") || ends(part, ".scope") ? part : slice_make("", 0);
    }
    return slice_make("", 0);
}

/* Lines are "0::PATH", and with the old hierarchies also "1:name=systemd:PATH", which is then the one that counts. */
struct slice proof_unit(struct slice cgroup) {
    static const char unified[] = "0::", named[] = ":name=systemd:";
    struct slice unit = slice_make("", 0);
    while (cgroup.size) {
        const char *end = memchr(cgroup.data, '\n', cgroup.size);
        struct slice line = slice_make(cgroup.data, end ? (size_t)(end - cgroup.data) : cgroup.size);
        cgroup = end ? slice_make(end + 1, cgroup.size - line.size - 1) : slice_make("", 0);
        const char *colon = memchr(line.data, ':', line.size);
        struct slice rest = colon ? slice_make(colon, line.size - (size_t)(colon - line.data)) : slice_make("", 0);
        if (slice_starts(rest, SLICE_LITERAL(named)))
            return unit_of(slice_make(rest.data + sizeof named - 1, rest.size - (sizeof named - 1)));
        if (slice_starts(line, SLICE_LITERAL(unified)))
            unit = unit_of(slice_make(line.data + sizeof unified - 1, line.size - (sizeof unified - 1)));
    }
    return unit;
}

/* -- variables ---------------------------------------------------------------------------------------------------------- */
static void set(struct proven *proven, const char *name, const char *text, struct arena *arena) {
    struct jwt_variables *variables = &proven->variables;
    variables->values[variables->value_count++] = (struct jwt_value){name, slice_copy(arena, slice_text(text))};
}

static void begin(struct proven *proven, const struct selector_names *names, struct arena *arena) {
    *proven = (struct proven){0};
    proven->variables.values = arena_zalloc(arena, names->value_count * sizeof *proven->variables.values);
    proven->variables.lists = arena_zalloc(arena, (names->list_count + 1) * sizeof *proven->variables.lists);
}

static int without_host(struct fault *fault) {
    return fault_set(fault, CO_DENIED,
                     "Permission denied: nothing proves from which node this login comes: a client agent needs a "
                     "certificate of this cluster's own CA, and the login cannot be for another datacenter");
}

/* "unix:NAME@HOST"; bytes that do not belong into a line become "?". */
static const char *who_of(const char *kind, const char *label, const char *name, const char *host,
                          struct arena *arena) {
    char *who = arena_printf(arena, "%s:%s%s@%s", kind, label, name, host);
    for (char *at = who; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
    return who;
}

/* -- programs ----------------------------------------------------------------------------------------------------------- */
int proof_unix(const Pb__AclProof *proof, struct arena *arena, struct proven *proven, struct fault *fault) {
    if (!proof || !proof->local)
        return fault_set(
            fault, CO_DENIED,
            "Permission denied: by an auth method of type unix a program logs in over the unix socket of the "
            "agent on its host (addresses.http = \"unix:///...\"); this login came over TCP");
    if (!proof->host[0]) return without_host(fault);
    char *uid = arena_printf(arena, "%u", proof->uid), *gid = arena_printf(arena, "%u", proof->gid);
    begin(proven, &proof_unix_names, arena);
    set(proven, "user", proof->user, arena), set(proven, "group", proof->group, arena);
    set(proven, "uid", uid, arena), set(proven, "gid", gid, arena);
    set(proven, "unit", proof->unit, arena), set(proven, "host", proof->host, arena);
    proven->who = proof->user[0] ? who_of("unix", "", proof->user, proof->host, arena)
                                 : who_of("unix", "uid=", uid, proof->host, arena);
    return CO_OK;
}

/* -- certificates ------------------------------------------------------------------------------------------------------- */
static void set_list(struct proven *proven, const char *name, enum tls_name kind, struct slice der,
                     struct arena *arena) {
    struct jwt_list *list = &proven->variables.lists[proven->variables.list_count++];
    *list = (struct jwt_list){.name = name};
    list->count = tls_certificate_list(der, kind, arena, &list->items);
    for (size_t i = 0; kind == TLS_NAME_DNS && i < list->count; i++)
        bytes_lower((char *)(uintptr_t)list->items[i].data, list->items[i].size);
}

int proof_certificate(const Pb__AclProof *proof, struct slice cas, int64_t now_s, struct arena *arena,
                      struct proven *proven, struct fault *fault) {
    if (!proof || !proof->n_certificates)
        return fault_set(
            fault, CO_DENIED,
            "Permission denied: by an auth method of type certificate a program logs in over HTTPS, with a "
            "client certificate; this login showed none");
    if (!proof->host[0]) return without_host(fault);
    if (!cas.size)
        return fault_set(fault, CO_DENIED,
                         "Permission denied: the auth method has no CACerts, and this cluster has no CA of its own");
    struct slice chain[TLS_CHAIN_MOST];
    size_t count = proof->n_certificates < TLS_CHAIN_MOST ? proof->n_certificates : TLS_CHAIN_MOST;
    for (size_t i = 0; i < count; i++) chain[i] = message_slice(proof->certificates[i]);
    struct tls_rules rules = {.trusted = cas, .now_s = now_s};
    char why[160];
    begin(proven, &proof_certificate_names, arena);
    struct tls_certificate *own = &proven->certificate;
    if (tls_judge(&rules, chain, count, own, why) != TLS_TRUSTED)
        return fault_set(fault, CO_DENIED, "Permission denied: the client certificate is refused: %s", why);
    set(proven, "cn", own->common_name, arena), set(proven, "serial", own->serial, arena);
    set(proven, "host", proof->host, arena);
    set_list(proven, "dns", TLS_NAME_DNS, chain[0], arena), set_list(proven, "uri", TLS_NAME_URI, chain[0], arena);
    proven->who = own->common_name[0] ? who_of("certificate", "", own->common_name, proof->host, arena)
                                      : who_of("certificate", "serial=", own->serial, proof->host, arena);
    return CO_OK;
}
