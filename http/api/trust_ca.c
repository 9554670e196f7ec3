/* /v1/ca: the CAs that the cluster trusts. /v1/secure: an open cluster is closed while it runs. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/message.h"
#include "http/api/topics.h"
#include "http/api/trust_views.h"
#include "http/declared.h"
#include "registry/catalog.h"
#include "registry/operator_queries.h"
#include "registry/trust.h"
#include "rpc/wire/security.h"
#include "tls/certificate.h"

#define NAMES_SHOWN 20 /* of the nodes that have a CA's certificates, or that have none */

/* -- reading: what is trusted, then the certificates of the nodes, then the nodes --------------------------------------- */
struct facts {
    const Pb__Trust *trust; /* NULL: the cluster is open */
    const Pb__CertificatesResult *certificates;
    const Pb__MembersResult *members;
    bool wants_members;
    void (*view)(struct http_request *request, const struct facts *facts);
};

static struct facts *facts_of(struct http_request *request) { return (struct facts *)(uintptr_t)http_context(request); }

static void members_known(struct http_request *request, int error, const struct query_result *result) {
    struct facts *facts = facts_of(request);
    if (error) {
        http_reply_error(request, error);
        return;
    }
    facts->members = (const Pb__MembersResult *)result->message;
    facts->view(request, facts);
}

static void certificates_known(struct http_request *request, int error, const struct query_result *result) {
    struct facts *facts = facts_of(request);
    if (error) {
        http_reply_error(request, error);
        return;
    }
    facts->certificates = (const Pb__CertificatesResult *)result->message;
    if (!facts->wants_members) {
        facts->view(request, facts);
        return;
    }
    Pb__TableRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__table_request__init(message);
    http_read_once(request, &query_all_members, &message->base, RPC_DEFAULT, members_known);
}

static void trust_known(struct http_request *request, int error, const struct query_result *result) {
    if (error) {
        http_reply_error(request, error);
        return;
    }
    if (result->found) facts_of(request)->trust = (const Pb__Trust *)result->message;
    Pb__CertificatesRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__certificates_request__init(message);
    http_read_once(request, &query_certificates, &message->base, RPC_DEFAULT, certificates_known);
}

static void read_facts(struct http_request *request, bool members,
                       void (*view)(struct http_request *request, const struct facts *facts)) {
    struct facts *facts = arena_zalloc(http_arena(request), sizeof *facts);
    Pb__TrustRequest *message = arena_alloc(http_arena(request), sizeof *message);
    facts->wants_members = members, facts->view = view;
    pb__trust_request__init(message);
    http_set_context(request, facts);
    http_read_once(request, &query_trust, &message->base, RPC_DEFAULT, trust_known);
}

/* -- the CAs ------------------------------------------------------------------------------------------------------------ */
/* Does the node depend on this CA: may it show, or still renew, a certificate of it? */
static bool depends(const Pb__NodeCertificate *record, const Pb__TrustCa *ca, int64_t now_s) {
    return !record->removed && record->now && record->now->to_s + SECURITY_GRACE_S >= now_s &&
           slice_equal(message_slice(record->now->ca_pin), message_slice(ca->pin));
}

static void write_nodes_of(struct json_out *json, const Pb__CertificatesResult *all, const Pb__TrustCa *ca) {
    int64_t now_s = (int64_t)time(NULL);
    size_t count = 0;
    json_key(json, "Names");
    json_array(json);
    for (size_t i = 0; i < all->n_certificates; i++)
        if (depends(all->certificates[i], ca, now_s) && count++ < NAMES_SHOWN)
            json_string(json, all->certificates[i]->now->node);
    json_array_end(json);
    json_key(json, "Nodes"), json_u64(json, count);
}

static void write_ca(struct http_request *request, struct json_out *json, const struct facts *facts, size_t i) {
    const Pb__TrustCa *ca = facts->trust->cas[i];
    struct arena *arena = http_arena(request);
    struct tls_certificate read;
    struct fault fault = {0};
    json_object(json);
    json_key(json, "Pin"), json_string(json, trust_pin_text(arena, message_slice(ca->pin)));
    json_key(json, "Signs"), json_bool(json, i == 0);
    bool readable = tls_certificate_read(slice_text(ca->certificate), &read, &fault) == CO_OK;
    json_key(json, "NotBefore");
    if (readable) json_string(json, trust_time_text(arena, read.life.from_s));
    else json_null(json);
    json_key(json, "NotAfter");
    if (readable) json_string(json, trust_time_text(arena, read.life.to_s));
    else json_null(json);
    write_nodes_of(json, facts->certificates, ca);
    json_key(json, "Certificate"), json_string(json, ca->certificate);
    json_object_end(json);
}

static void view_cas(struct http_request *request, const struct facts *facts) {
    if (!facts->trust) {
        http_reply_text(request, 404,
                        "the cluster is open, and has no CA; `coord secure start` closes it while it runs");
        return;
    }
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Domain"), json_string(json, facts->trust->domain);
    json_key(json, "CAs");
    json_array(json);
    for (size_t i = 0; i < facts->trust->n_cas; i++) write_ca(request, json, facts, i);
    json_array_end(json);
    json_key(json, "ModifyIndex"), json_u64(json, facts->trust->modify_index);
    json_object_end(json);
    http_reply_json(request, 200);
}

static void get_ca(struct http_request *request) { read_facts(request, false, view_cas); }

/* -- requests to a server --------------------------------------------------------------------------------------------------- */
static void view_done(struct http_request *request, int error, const struct rpc_trust *trust, const void *context) {
    (void)context;
    if (error) {
        http_refuse_trust(request, error, trust);
        return;
    }
    json_bool(http_out(request), true);
    http_reply_json(request, 200);
}

static void ask_for(struct http_request *request, enum rpc_trust_verb verb, http_trust_view view) {
    struct rpc_trust trust = {.verb = verb};
    if (http_body(request).size) http_reply_text(request, 400, "this endpoint takes no body");
    else http_ask_trust(request, &trust, view, NULL);
}

static void ask(struct http_request *request, enum rpc_trust_verb verb) { ask_for(request, verb, view_done); }

static void put_drop(struct http_request *request) { ask(request, RPC_CA_DROP); }
static void put_start(struct http_request *request) { ask(request, RPC_SECURE_START); }
static void put_abort(struct http_request *request) { ask(request, RPC_SECURE_ABORT); }

/* -- another CA ---------------------------------------------------------------------------------------------------- */
static void view_warnings(struct http_request *request, int error, const struct rpc_trust *trust, const void *context) {
    (void)context;
    if (error) {
        http_refuse_trust(request, error, trust);
        return;
    }
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Warnings");
    json_array(json);
    for (const char *at = trust->text; *at;) {
        size_t size = strcspn(at, "\n");
        json_slice(json, slice_make(at, size));
        at += size + (at[size] != '\0');
    }
    json_array_end(json);
    json_object_end(json);
    http_reply_json(request, 200);
}

static void put_rotate(struct http_request *request) { ask_for(request, RPC_CA_ROTATE, view_warnings); }

static void put_import(struct http_request *request) {
    const Pb__CaImportAsk *ask =
        (const Pb__CaImportAsk *)(void *)declared_message(request, &pb__ca_import_ask__descriptor);
    if (!ask) return;
    struct rpc_trust trust = {.verb = RPC_CA_IMPORT, .certificates = ask->certificates};
    http_ask_trust(request, &trust, view_warnings, NULL);
}

/* -- closing an open cluster ---------------------------------------------------------------------------------------------- */
static bool is_without(const struct trust_names *names, const Pb__Member *member) {
    return !member->left && !trust_has(names, member->server_port != 0, member->name);
}

static int by_name(const void *a, const void *b) {
    const Pb__Member *x = *(Pb__Member *const *)a, *y = *(Pb__Member *const *)b;
    int order = strcasecmp(x->name, y->name);
    return order ? order : (x->server_port != 0) - (y->server_port != 0);
}

/* Certificates that belong to no node of the catalog. While the cluster is open, anybody on the network may have asked for
 * one, a server's too. In the arena. */
static size_t strangers(struct http_request *request, const struct facts *facts, const Pb__CertificateInfo ***out) {
    const Pb__MembersResult *all = facts->members;
    struct arena *arena = http_arena(request);
    const Pb__Member **sorted = arena_alloc(arena, (all->n_members + 1) * sizeof *sorted);
    const Pb__CertificateInfo **found = arena_alloc(arena, (facts->certificates->n_certificates + 1) * sizeof *found);
    size_t count = 0, members = 0;
    for (size_t i = 0; i < all->n_members; i++)
        if (!all->members[i]->left) sorted[members++] = all->members[i];
    qsort(sorted, members, sizeof *sorted, by_name);
    for (size_t i = 0; i < facts->certificates->n_certificates; i++) {
        const Pb__NodeCertificate *record = facts->certificates->certificates[i];
        if (record->removed || !record->now) continue;
        Pb__Member wanted = PB__MEMBER__INIT;
        const Pb__Member *key = &wanted;
        wanted.name = record->now->node, wanted.server_port = record->now->server;
        if (!bsearch(&key, sorted, members, sizeof *sorted, by_name)) found[count++] = record->now;
    }
    *out = found;
    return count;
}

static void view_secure(struct http_request *request, const struct facts *facts) {
    static const char *const modes[] = {"open", "both", "closed"};
    const struct trust_names names = trust_names_of(http_arena(request), facts->certificates);
    const Pb__MembersResult *all = facts->members;
    struct json_out *json = http_out(request);
    uint32_t mode = facts->trust ? facts->trust->mode : TRUST_OPEN;
    json_object(json);
    json_key(json, "Mode"), json_string(json, mode < TRUST_MODES ? modes[mode] : "unknown");
    for (int without = 0; without <= 1; without++) {
        if (without) json_key(json, "Without");
        else json_key(json, "With");
        json_array(json);
        for (size_t i = 0; i < all->n_members; i++)
            if (!all->members[i]->left && is_without(&names, all->members[i]) == without)
                json_string(json, all->members[i]->name);
        json_array_end(json);
    }
    const Pb__CertificateInfo **found;
    size_t count = strangers(request, facts, &found);
    json_key(json, "Strangers");
    json_array(json);
    for (size_t i = 0; i < count; i++) json_string(json, found[i]->node);
    json_array_end(json);
    json_object_end(json);
    http_reply_json(request, 200);
}

static void get_secure(struct http_request *request) { read_facts(request, true, view_secure); }

/* The names of nodes that may be left behind: those of ?without= and of the body's "Without". */
struct left_behind {
    struct slice *names;
    size_t count;
    struct json_object *list; /* NULL: none */
};

static bool may_stay_behind(const struct left_behind *behind, const char *node) {
    for (size_t i = 0; i < behind->count; i++)
        if (slice_equal_nocase(behind->names[i], slice_text(node))) return true;
    for (size_t i = 0; behind->list && i < json_object_array_length(behind->list); i++)
        if (strcasecmp(json_object_get_string(json_object_array_get_idx(behind->list, i)), node) == 0) return true;
    return false;
}

/* False: it has replied. */
static bool read_behind(struct http_request *request, struct left_behind *behind) {
    static const char *const known[] = {"Without", NULL};
    struct fault fault = {0};
    behind->count = http_parameters(request, "without", &behind->names);
    if (!http_body(request).size) return true;
    struct json_object *json = http_json(request);
    if (!json) return false;
    json_only_known(json, known, &fault);
    behind->list = json_get_array(json, "Without", &fault);
    for (size_t i = 0; behind->list && !fault.code && i < json_object_array_length(behind->list); i++)
        if (!json_object_is_type(json_object_array_get_idx(behind->list, i), json_type_string))
            fault_set(&fault, CO_INVALID, "Without[%zu]: a name of a node is wanted", i);
    if (fault.code) http_reply_fault(request, &fault);
    return !fault.code;
}

static void view_finish(struct http_request *request, const struct facts *facts) {
    const struct trust_names names = trust_names_of(http_arena(request), facts->certificates);
    const Pb__MembersResult *all = facts->members;
    struct left_behind behind = {0};
    struct buffer list = {0};
    size_t count = 0;
    if (!read_behind(request, &behind)) return;
    for (size_t i = 0; i < all->n_members; i++) {
        const Pb__Member *member = all->members[i];
        if (!is_without(&names, member) || may_stay_behind(&behind, member->name)) continue;
        if (count++ < NAMES_SHOWN) buffer_printf(&list, "%s%.255s", list.size ? ", " : "", member->name);
    }
    const Pb__CertificateInfo **found;
    size_t unknown = strangers(request, facts, &found);
    bool closing = facts->trust && facts->trust->mode == TRUST_BOTH;
    if (closing && unknown && !count) {
        for (size_t i = 0; i < unknown && i < NAMES_SHOWN; i++)
            buffer_printf(&list, "%s%.255s (%s)", i ? ", " : "", found[i]->node, found[i]->server ? "server" : "agent");
        http_reply_text(
            request, 409,
            "certificates were given to nodes that the catalog does not have: %.*s%s. Somebody else may have "
            "asked for them; `coord force-leave -prune NAME` takes them back",
            (int)list.size, list.data, unknown > NAMES_SHOWN ? ", ..." : "");
        buffer_free(&list);
        return;
    }
    struct rpc_trust trust = {.verb = RPC_SECURE_FINISH};
    if (!count || !facts->trust) http_ask_trust(request, &trust, view_done, NULL);
    else
        http_reply_text(
            request, 409,
            "%zu node%s without a certificate, and would be shut out: %.*s%s. ?without=NODE leaves one behind", count,
            count == 1 ? " is" : "s are", (int)list.size, list.data, count > NAMES_SHOWN ? ", ..." : "");
    buffer_free(&list);
}

static void put_finish(struct http_request *request) { read_facts(request, true, view_finish); }

/* -- rows --------------------------------------------------------------------------------------------------------------- */
#define CLOSED "it needs a closed cluster"
#define CLOSES "it closes the cluster"
static const struct http_param import_body[] = {
    {"Certificates", HTTP_TEXT,
     .help = "the CA's certificate, then those of its issuers, in PEM; its key lies in DATA/tls/ca-import.key of the "
             "server",
     .least = 1, .most = 32768, .required = true, .field = "certificates"},
    {0},
};

const struct http_route http_routes_trust_ca[] = {
    {HTTP_GET, "/v1/ca", get_ca, "operator:read", HTTP_PARAMS(HTTP_DC),
     "The CAs that the cluster trusts: which one signs, until when, and how many nodes have certificates of each",
     HTTP_OWN, .no_example = CLOSED},
    {HTTP_PUT, "/v1/ca/rotate", put_rotate, "operator:write", NULL,
     "A new CA signs from now on; the one before goes by itself when no node has its certificates any more",
     HTTP_OWN | HTTP_LOCAL, .no_example = CLOSED},
    {HTTP_PUT, "/v1/ca/import", put_import, "operator:write", NULL,
     "A CA that somebody brings signs from now on, as after a rotation; `coord ca import` puts its key aside first",
     HTTP_OWN | HTTP_LOCAL, .no_example = CLOSED,
     .endpoint = {.message = &pb__ca_import_ask__descriptor, .body = import_body}},
    {HTTP_PUT, "/v1/ca/drop", put_drop, "operator:write", NULL,
     "Trusts only the CA that signs now; nodes that have another's certificate have to join anew",
     HTTP_OWN | HTTP_LOCAL, .no_example = CLOSED},
    {HTTP_GET, "/v1/secure", get_secure, "operator:read", HTTP_PARAMS(HTTP_DC),
     "Is the cluster open or closed, and which nodes have a certificate of it", HTTP_OWN, .example = {.status = 200}},
    {HTTP_PUT, "/v1/secure/start", put_start, "operator:write", NULL,
     "Begins to close an open cluster: nodes get certificates, plain and encrypted connections are taken",
     HTTP_OWN | HTTP_LOCAL, .no_example = CLOSES},
    {HTTP_PUT, "/v1/secure/finish", put_finish, "operator:write",
     HTTP_PARAMS({"without", HTTP_TEXT, .help = "a node that may be shut out; also as body {\"Without\":[...]}",
                  .repeats = true, .least = 1, .most = 255}),
     "From now on only encrypted connections; 409 with their names while nodes are without a certificate",
     HTTP_OWN | HTTP_LOCAL, .no_example = CLOSES},
    {HTTP_PUT, "/v1/secure/abort", put_abort, "operator:write", NULL,
     "The cluster stays open; certificates that were given so far count no more", HTTP_OWN | HTTP_LOCAL,
     .no_example = CLOSES},
    {0},
};
