#include "registry/trust.h"

#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "registry/access_operator.h"
#include "registry/fold.h"
#include "registry/operator_queries.h"
#include "registry/tables.h"

enum { PIN_SIZE = 32, TOKEN_ID_SIZE = 6, HASH_SIZE = 32, DOMAIN_SIZE = 32, NODE_MAX = 255, SERIAL_MAX = 40 };
#define PEM_MOST 16384

/* Keys of TABLE_TRUST begin with one of these. */
enum trust_row { ROW_TRUST = 1, ROW_TOKEN = 2, ROW_AGENT = 3, ROW_SERVER = 4 };

static const struct slice everything = SLICE_LITERAL("");

/* -- records ------------------------------------------------------------------------------------------------------ */
static const struct slice trust_key = SLICE_LITERAL("\1trust"), tokens_prefix = SLICE_LITERAL("\2");

static struct slice token_key(struct slice id, char room[1 + TOKEN_ID_SIZE]) {
    CHECK(id.size == TOKEN_ID_SIZE);
    room[0] = ROW_TOKEN;
    memcpy(room + 1, id.data, id.size);
    return slice_make(room, 1 + id.size);
}

/* Names of nodes are folded, as in the catalog. */
static struct slice node_key(bool server, const char *node, char room[1 + NODE_MAX]) {
    size_t size = strlen(node);
    CHECK(size > 0 && size <= NODE_MAX);
    room[0] = server ? ROW_SERVER : ROW_AGENT;
    memcpy(room + 1, node, size);
    bytes_lower(room + 1, size);
    return slice_make(room, 1 + size);
}

/* CO_NOTFOUND: `*message` is NULL */
static int get(struct store_txn *txn, struct slice key, const ProtobufCMessageDescriptor *type, struct arena *arena,
               void *message) {
    struct slice bytes;
    ProtobufCMessage **out = message;
    *out = NULL;
    int rv = store_get(txn, TABLE_TRUST, key, &bytes);
    if (rv != CO_OK) return rv;
    *out = message_unpack(arena, type, bytes);
    return *out ? CO_OK : CO_CORRUPT;
}

static void put(struct machine_tx *tx, struct slice key, const ProtobufCMessage *message) {
    store_put(tx->store, TABLE_TRUST, key, message_pack(tx->arena, message));
    machine_changed(tx, SPACE_TRUST, everything, false);
}

Pb__Trust *trust_read(struct store_txn *txn, struct arena *arena) {
    Pb__Trust *trust;
    int rv = get(txn, trust_key, &pb__trust__descriptor, arena, &trust);
    if (rv == CO_CORRUPT) store_fail(txn, CO_CORRUPT);
    return trust;
}

static bool pin_is(struct slice pin, ProtobufCBinaryData known) { return slice_equal(pin, message_slice(known)); }

const char *trust_refuses(struct store_txn *txn, bool server, const char *node, struct slice pin) {
    char room[1 + NODE_MAX];
    struct arena arena = {0};
    Pb__NodeCertificate *record;
    const char *why = NULL;
    if (!node[0] || strlen(node) > NODE_MAX) return "its certificate names no node";
    int rv = get(txn, node_key(server, node, room), &pb__node_certificate__descriptor, &arena, &record);
    if (rv == CO_NOTFOUND) why = NULL;
    else if (rv != CO_OK) why = "the record of its certificate cannot be read";
    else if (record->removed) why = "it was removed from the cluster; it has to join anew";
    else if (!record->now || !pin_is(pin, record->now->pin))
        why = "another certificate was issued for its name since; it has to join anew";
    arena_free(&arena);
    return why;
}

bool trust_knows(struct store_txn *txn, bool server, const char *node) {
    char room[1 + NODE_MAX];
    struct arena arena = {0};
    Pb__NodeCertificate *record = NULL;
    bool named = node[0] && strlen(node) <= NODE_MAX;
    bool known = named &&
                 get(txn, node_key(server, node, room), &pb__node_certificate__descriptor, &arena, &record) == CO_OK &&
                 record->now && !record->removed;
    arena_free(&arena);
    return known;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* Goes back to the last star only, so it takes at most glob times name steps. */
bool trust_glob_fits(const char *glob, const char *node) {
    const char *star = NULL, *from = NULL;
    while (*node) {
        if (*glob == '*') star = glob++, from = node;
        else if (*glob == '?' || (*glob && lower(*glob) == lower(*node))) glob++, node++;
        else if (star) glob = star + 1, node = ++from;
        else return false;
    }
    while (*glob == '*') glob++;
    return !*glob;
}

/* -- the cluster's trust ------------------------------------------------------------------------------------------ */
static const char *trust_fault(const Pb__Trust *trust) {
    if (!trust || strlen(trust->domain) != DOMAIN_SIZE) return "the trust domain has 32 hex digits";
    if (trust->n_cas == 0 || trust->n_cas > TRUST_CAS_MAX) return "a cluster trusts 1 to 8 CAs";
    if (trust->mode >= TRUST_MODES || trust->mode == TRUST_OPEN) return "no such mode";
    if (trust->n_regions > TRUST_REGIONS_MAX) return "a cluster trusts the CAs of 64 regions at most";
    for (size_t i = 0; i < trust->n_regions; i++)
        if (strlen(trust->regions[i]->domain) != DOMAIN_SIZE || !trust->regions[i]->name[0] ||
            strlen(trust->regions[i]->name) > TRUST_REGION_NAME_MAX ||
            strlen(trust->regions[i]->certificate) > PEM_MOST)
            return "a region has a name, a trust domain and the certificate of its CA";
    for (size_t i = 0; i < trust->n_cas; i++)
        if (trust->cas[i]->pin.len != PIN_SIZE || !trust->cas[i]->certificate[0] ||
            strlen(trust->cas[i]->certificate) > PEM_MOST || strlen(trust->cas[i]->cross) > PEM_MOST ||
            strlen(trust->cas[i]->above) > PEM_MOST)
            return "a CA has no certificate, or a certificate that is too long";
    return NULL;
}

static const char *token_fault(const Pb__JoinToken *token) {
    if (!token || token->id.len != TOKEN_ID_SIZE || token->hash.len != HASH_SIZE) return "no join token";
    if (strlen(token->node) > TRUST_GLOB_MAX) return "the pattern of names is longer than 128 bytes";
    if (token->ttl_ns < 0 || token->ttl_ns > JOIN_TOKEN_TTL_MOST_NS) return "a join token lives for 365 days at most";
    return NULL;
}

static void token_put(struct machine_tx *tx, Pb__JoinToken *token) {
    char room[1 + TOKEN_ID_SIZE];
    token->modify_index = tx->index;
    put(tx, token_key(message_slice(token->id), room), &token->base);
}

static void token_begin(struct machine_tx *tx, Pb__JoinToken *token) {
    token->create_index = tx->index, token->used = 0;
    if (!token->created_ms) token->created_ms = tx->unix_ms;
    token_put(tx, token);
    if (token->ttl_ns) expiry_began_in(tx, &join_token_expiry, message_slice(token->id), tx->index, token->ttl_ns);
}

static const char *certificate_fault(const Pb__CertificateInfo *info) {
    if (!info || info->pin.len != PIN_SIZE || info->ca_pin.len != PIN_SIZE) return "no certificate";
    if (!info->node[0] || strlen(info->node) > NODE_MAX) return "a certificate names a node, in 1 to 255 bytes";
    if (strlen(info->serial) > SERIAL_MAX) return "the serial number is too long";
    return NULL;
}

static void certificate_put(struct machine_tx *tx, Pb__CertificateInfo *info, const Pb__NodeCertificate *old) {
    char room[1 + NODE_MAX];
    Pb__NodeCertificate record = PB__NODE_CERTIFICATE__INIT;
    record.now = info;
    record.create_index = old ? old->create_index : tx->index, record.modify_index = tx->index;
    put(tx, node_key(info->server, info->node, room), &record.base);
}

/* Gives up closing an open cluster: nothing of it is left. */
static int open_again(struct machine_tx *tx, const Pb__Trust *old, uint64_t cas, struct machine_result *result) {
    if (!old || old->mode != TRUST_BOTH) return machine_refuse(result, CO_CONFLICT, "a closed cluster stays closed");
    if (cas != old->modify_index)
        return machine_refuse(result, CO_CONFLICT, "the cluster's trust has changed meanwhile");
    struct store_cursor cursor;
    STORE_PREFIX(&cursor, tx->store, TABLE_TRUST, tokens_prefix) {
        const Pb__JoinToken *token = message_unpack(tx->arena, &pb__join_token__descriptor, cursor.value);
        if (token && token->ttl_ns)
            expiry_ended_in(tx, &join_token_expiry, message_slice(token->id), token->create_index);
    }
    store_cursor_close(&cursor);
    store_cursor_open(&cursor, tx->store, TABLE_TRUST, everything);
    while (cursor.valid) store_cursor_del(&cursor);
    store_cursor_close(&cursor);
    machine_changed(tx, SPACE_TRUST, everything, false);
    result->yes = true;
    return CO_OK;
}

static int set(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__TrustSetCommand *command = request;
    const char *fault = command->trust && command->trust->mode == TRUST_OPEN ? NULL : trust_fault(command->trust);
    for (size_t i = 0; i < command->n_tokens && !fault; i++) fault = token_fault(command->tokens[i]);
    for (size_t i = 0; i < command->n_founders && !fault; i++) fault = certificate_fault(command->founders[i]);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    Pb__Trust *old = trust_read(tx->store, tx->arena);
    if (store_txn_error(tx->store) != CO_OK) return store_txn_error(tx->store);
    if (command->trust->mode == TRUST_OPEN) return open_again(tx, old, command->cas, result);
    if (command->cas != (old ? old->modify_index : 0))
        return machine_refuse(result, CO_CONFLICT, "the cluster's trust has changed meanwhile");
    if (old && strcmp(old->domain, command->trust->domain) != 0)
        return machine_refuse(result, CO_INVALID, "the trust domain of a cluster never changes");
    command->trust->create_index = old ? old->create_index : tx->index;
    command->trust->modify_index = tx->index;
    put(tx, trust_key, &command->trust->base);
    for (size_t i = 0; i < command->n_tokens; i++) token_begin(tx, command->tokens[i]);
    for (size_t i = 0; i < command->n_founders && !old; i++) certificate_put(tx, command->founders[i], NULL);
    result->yes = true;
    result->message = &command->trust->base;
    return CO_OK;
}

/* -- join tokens -------------------------------------------------------------------------------------------------- */
static size_t tokens_count(struct store_txn *txn) {
    struct store_cursor cursor;
    size_t count = 0;
    STORE_PREFIX(&cursor, txn, TABLE_TRUST, tokens_prefix) count++;
    store_cursor_close(&cursor);
    return count;
}

static int token_create(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__JoinToken *token = ((Pb__JoinTokenCreateCommand *)request)->token, *there;
    const char *fault = token_fault(token);
    char room[1 + TOKEN_ID_SIZE];
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    int rv = get(tx->store, token_key(message_slice(token->id), room), &pb__join_token__descriptor, tx->arena, &there);
    if (rv == CO_OK) return machine_refuse(result, CO_EXISTS, "a join token with this id exists");
    if (rv != CO_NOTFOUND) return rv;
    if (tokens_count(tx->store) >= JOIN_TOKENS_MAX)
        return machine_refuse(result, CO_TOOLARGE, "there are 1,024 join tokens; revoke some");
    token->created_ms = tx->unix_ms;
    token_begin(tx, token);
    result->yes = true;
    result->message = &token->base;
    return CO_OK;
}

static void token_delete(struct machine_tx *tx, const Pb__JoinToken *token) {
    char room[1 + TOKEN_ID_SIZE];
    (void)store_del(tx->store, TABLE_TRUST, token_key(message_slice(token->id), room));
    machine_changed(tx, SPACE_TRUST, everything, false);
    if (token->ttl_ns) expiry_ended_in(tx, &join_token_expiry, message_slice(token->id), token->create_index);
}

static int token_end(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__JoinTokenEndCommand *command = request;
    Pb__JoinToken *token;
    char room[1 + TOKEN_ID_SIZE];
    if (command->id.len != TOKEN_ID_SIZE) return machine_refuse(result, CO_INVALID, "no id of a join token");
    int rv =
        get(tx->store, token_key(message_slice(command->id), room), &pb__join_token__descriptor, tx->arena, &token);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_NOTFOUND, "no such join token");
    if (rv != CO_OK) return rv;
    if (command->expired && command->index != token->create_index)
        return machine_refuse(result, CO_NOTFOUND, "another join token has this id by now");
    token_delete(tx, token);
    result->yes = true;
    return CO_OK;
}

static bool token_is_over(const struct machine_tx *tx, const Pb__JoinToken *token) {
    return token->ttl_ns && tx->unix_ms >= token->created_ms + (uint64_t)token->ttl_ns / 1000000;
}

/* -- certificates ------------------------------------------------------------------------------------------------- */
/* Why the token gives this node no certificate; NULL: it does. Somebody without the secret learns nothing but that. */
static const char *token_refuses(const struct machine_tx *tx, const Pb__JoinToken *token,
                                 const Pb__TrustJoinCommand *command) {
    if (!token) return "the join token is not known: it was used up, revoked, or its time is over";
    if (!slice_equal(message_slice(token->hash), message_slice(command->hash)))
        return "the join token's secret is wrong";
    if (token_is_over(tx, token)) return "the join token's time is over";
    if (token->server != command->certificate->server)
        return token->server ? "the join token is for servers" : "the join token is for client agents";
    if (token->node[0] && !trust_glob_fits(token->node, command->certificate->node))
        return "the join token is for nodes of other names";
    if (token->uses && token->used >= token->uses) return "the join token is used up";
    return NULL;
}

/* A join token must not be enough to take the place of a node that is in use. */
static bool is_alive(const struct machine_tx *tx, const Pb__NodeCertificate *record) {
    return record && !record->removed && record->now && record->now->to_s > (int64_t)(tx->unix_ms / 1000);
}

static int join(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__TrustJoinCommand *command = request;
    Pb__CertificateInfo *info = command->certificate;
    const char *fault =
        command->id.len != TOKEN_ID_SIZE || command->hash.len != HASH_SIZE ? "no join token" : certificate_fault(info);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    char token_room[1 + TOKEN_ID_SIZE], node_room[1 + NODE_MAX];
    Pb__JoinToken *token;
    Pb__NodeCertificate *old, *other;
    int rv = get(tx->store, token_key(message_slice(command->id), token_room), &pb__join_token__descriptor, tx->arena,
                 &token);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    rv = get(tx->store, node_key(info->server, info->node, node_room), &pb__node_certificate__descriptor, tx->arena,
             &old);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    bool again = old && !old->removed && old->now && pin_is(message_slice(info->pin), old->now->pin);
    /* A used-up token answers once more to the node that used it: its first answer may have been lost. */
    if (again && token && token->uses && token->used >= token->uses) token->used = token->uses - 1;
    else if (again && token && token->used) token->used--;
    const char *why = token_refuses(tx, token, command);
    if (why) return machine_refuse(result, CO_DENIED, why);
    rv = get(tx->store, node_key(!info->server, info->node, node_room), &pb__node_certificate__descriptor, tx->arena,
             &other);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    /* A server and an agent of one name would have the same names for HTTPS clients. */
    if ((!again && is_alive(tx, old)) || is_alive(tx, other))
        return machine_refuse(
            result, CO_CONFLICT,
            "a node of this name has a certificate already; `coord force-leave -prune NAME` removes it, or "
            "give this one another name (-node)");
    token->used++;
    token_put(tx, token);
    certificate_put(tx, info, old);
    result->yes = true;
    return CO_OK;
}

static int renewed(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__TrustRenewedCommand *command = request;
    Pb__CertificateInfo *info = command->certificate;
    const char *fault = certificate_fault(info);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    char room[1 + NODE_MAX];
    Pb__NodeCertificate *old;
    int rv =
        get(tx->store, node_key(info->server, info->node, room), &pb__node_certificate__descriptor, tx->arena, &old);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (old && old->removed)
        return machine_refuse(result, CO_DENIED, "it was removed from the cluster; it has to join anew");
    Pb__NodeCertificate *other;
    rv =
        get(tx->store, node_key(!info->server, info->node, room), &pb__node_certificate__descriptor, tx->arena, &other);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (!old && is_alive(tx, other))
        return machine_refuse(result, CO_CONFLICT, "a node of this name has a certificate already");
    if (!old && !command->any) return machine_refuse(result, CO_DENIED, "this node has no certificate of the cluster");
    if (old && (!old->now || !pin_is(message_slice(info->pin), old->now->pin)))
        return machine_refuse(result, CO_DENIED,
                              "another certificate was issued for its name since; it has to join anew");
    certificate_put(tx, info, old);
    result->yes = true;
    return CO_OK;
}

static int remove_node(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__TrustRemoveCommand *command = request;
    char room[1 + NODE_MAX];
    if (!command->node[0] || strlen(command->node) > NODE_MAX) return machine_refuse(result, CO_INVALID, "no node");
    Pb__NodeCertificate *old;
    struct slice key = node_key(command->server, command->node, room);
    int rv = get(tx->store, key, &pb__node_certificate__descriptor, tx->arena, &old);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (!old && !trust_read(tx->store, tx->arena)) { /* an open cluster: nothing to refuse */
        result->yes = true;
        return store_txn_error(tx->store);
    }
    Pb__NodeCertificate record = PB__NODE_CERTIFICATE__INIT;
    Pb__CertificateInfo info = PB__CERTIFICATE_INFO__INIT;
    info.node = command->node, info.server = command->server;
    record.now = old && old->now ? old->now : &info;
    record.removed = true;
    record.create_index = old ? old->create_index : tx->index, record.modify_index = tx->index;
    put(tx, key, &record.base);
    result->yes = true;
    return CO_OK;
}

/* -- queries ------------------------------------------------------------------------------------------------------ */
static struct watch_key watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_TRUST, everything};
}

static int run_trust(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    (void)request;
    Pb__Trust *trust = trust_read(txn, arena);
    *result = (struct query_result){.index = machine_change_index(txn, SPACE_TRUST, everything),
                                    .found = trust != NULL,
                                    .message = trust ? &trust->base : NULL};
    return store_txn_error(txn);
}

/* Everyone sees the CAs, because every member has to know them, and certificates have them; other regions are shown by
 * operator:read. */
static int show_trust(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                      struct query_result *result) {
    (void)txn, (void)request;
    Pb__Trust *trust = (Pb__Trust *)(uintptr_t)result->message;
    if (!trust || access_operator_reads(check)) return CO_OK;
    check->hidden += trust->n_regions;
    trust->n_regions = 0;
    return CO_OK;
}

/* Appends all records of a row type, up to `most`. There is room for 64, and for twice as many at each power of two. */
static int rows(struct store_txn *txn, struct slice prefix, const ProtobufCMessageDescriptor *type, size_t most,
                struct arena *arena, void ***out, size_t *count) {
    struct store_cursor cursor;
    size_t n = *count;
    int error = CO_OK;
    void **records = *out;
    STORE_PREFIX(&cursor, txn, TABLE_TRUST, prefix) {
        if (error || n == most) break;
        if (n == 0 || (n >= 64 && (n & (n - 1)) == 0)) {
            void **more = arena_alloc(arena, (n < 64 ? 64 : 2 * n) * sizeof *more);
            if (n) memcpy(more, records, n * sizeof *more);
            records = more;
        }
        void *record = message_unpack(arena, type, cursor.value);
        if (record) records[n++] = record;
        else error = CO_CORRUPT;
    }
    store_cursor_close(&cursor);
    *out = records, *count = n;
    return error;
}

static int run_tokens(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    (void)request;
    Pb__JoinTokensResult *records = arena_alloc(arena, sizeof *records);
    pb__join_tokens_result__init(records);
    int error = rows(txn, tokens_prefix, &pb__join_token__descriptor, JOIN_TOKENS_MAX, arena,
                     (void ***)&records->tokens, &records->n_tokens);
    for (size_t i = 0; i < records->n_tokens; i++) records->tokens[i]->hash.len = 0;
    *result = (struct query_result){
        .index = machine_change_index(txn, SPACE_TRUST, everything), .found = true, .message = &records->base};
    return error;
}

static int run_certificates(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                            struct query_result *result) {
    (void)request;
    Pb__CertificatesResult *records = arena_alloc(arena, sizeof *records);
    pb__certificates_result__init(records);
    int error = CO_OK;
    for (char row = ROW_SERVER; row >= ROW_AGENT && !error; row--)
        error = rows(txn, slice_make(&row, 1), &pb__node_certificate__descriptor, TRUST_CERTIFICATES_MAX, arena,
                     (void ***)&records->certificates, &records->n_certificates);
    *result = (struct query_result){
        .index = machine_change_index(txn, SPACE_TRUST, everything), .found = true, .message = &records->base};
    return error;
}

const struct query_type query_trust = {.number = 13,
                                       .name = "trust",
                                       .request = &pb__trust_request__descriptor,
                                       .result = &pb__trust__descriptor,
                                       .watched = watched,
                                       .run = run_trust,
                                       .show = show_trust};
const struct query_type query_trusted_regions = {.number = 23,
                                                 .name = "trusted-regions",
                                                 .request = &pb__trust_request__descriptor,
                                                 .result = &pb__trust__descriptor,
                                                 .watched = watched,
                                                 .run = run_trust,
                                                 .show = access_operator_show};
const struct query_type query_join_tokens = {.number = 14,
                                             .name = "join-tokens",
                                             .request = &pb__join_tokens_request__descriptor,
                                             .result = &pb__join_tokens_result__descriptor,
                                             .watched = watched,
                                             .run = run_tokens,
                                             .show = access_operator_show};
const struct query_type query_certificates = {.number = 15,
                                              .name = "certificates",
                                              .request = &pb__certificates_request__descriptor,
                                              .result = &pb__certificates_result__descriptor,
                                              .watched = watched,
                                              .run = run_certificates,
                                              .show = access_operator_show};

/* -- join tokens end by themselves -------------------------------------------------------------------------------- */
/* Counts the time that is left, by the wall clock: a new leader grants no second period. */
static int tokens_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    struct store_cursor cursor;
    int error = CO_OK;
    STORE_PREFIX(&cursor, txn, TABLE_TRUST, tokens_prefix) {
        struct arena arena = {0};
        const Pb__JoinToken *token = message_unpack(&arena, &pb__join_token__descriptor, cursor.value);
        if (!token || token->id.len != TOKEN_ID_SIZE) error = CO_CORRUPT;
        else if (token->ttl_ns) {
            int64_t passed_ms = leader->unix_ms - (int64_t)token->created_ms;
            int64_t left_ns = token->ttl_ns - (passed_ms > 0 ? passed_ms : 0) * 1000000;
            expiry_began(expiry, &join_token_expiry, message_slice(token->id), token->create_index,
                         left_ns > 1000000 ? left_ns : 1000000, leader->now_ms);
        }
        arena_free(&arena);
    }
    store_cursor_close(&cursor);
    return error ? error : store_txn_error(txn);
}

static void propose_end(const struct expiry_due *due, const struct expiry_leader *leader,
                        void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) {
    (void)leader;
    Pb__JoinTokenEndCommand command = PB__JOIN_TOKEN_END_COMMAND__INIT;
    command.id = message_bytes(due->name), command.expired = true, command.index = due->index;
    propose(data, JOIN_TOKEN_END, &command.base);
}

const struct expiry_kind join_token_expiry = {
    .number = 26, .name = "join token", .no_second_period = true, .read = tokens_read, .end = propose_end};

/* Neither join tokens nor removed nodes of then come back with a backup. */
static bool stays(struct store_txn *txn) {
    (void)txn;
    return true;
}

/* -- the table ---------------------------------------------------------------------------------------------------- */
static const struct module_command commands[] = {
    {.number = TRUST_SET,
     .servers_only = true,
     .name = "trust-set",
     .request = &pb__trust_set_command__descriptor,
     .result = &pb__trust__descriptor,
     .apply = set},
    {.number = JOIN_TOKEN_CREATE,
     .servers_only = true,
     .name = "join-token-create",
     .request = &pb__join_token_create_command__descriptor,
     .result = &pb__join_token__descriptor,
     .apply = token_create},
    {.number = JOIN_TOKEN_END,
     .name = "join-token-end",
     .request = &pb__join_token_end_command__descriptor,
     .may = access_operator_may,
     .apply = token_end},
    {.number = TRUST_JOIN,
     .servers_only = true,
     .name = "trust-join",
     .request = &pb__trust_join_command__descriptor,
     .apply = join},
    {.number = TRUST_RENEWED,
     .servers_only = true,
     .name = "trust-renewed",
     .request = &pb__trust_renewed_command__descriptor,
     .apply = renewed},
    {.number = TRUST_REMOVE,
     .servers_only = true,
     .name = "trust-remove",
     .request = &pb__trust_remove_command__descriptor,
     .apply = remove_node},
    {0},
};
static const struct store_table tables[] = {{TABLE_TRUST, "trust"}, {0}};
static const struct module_space spaces[] = {{SPACE_TRUST, "trust"}, {0}};
static const struct query_type *const queries[] = {&query_trust, &query_trusted_regions, &query_join_tokens,
                                                   &query_certificates, NULL};
static const struct expiry_kind *const expiries[] = {&join_token_expiry, NULL};

const struct module trust_module = {.name = "trust",
                                    .commands = commands,
                                    .tables = tables,
                                    .spaces = spaces,
                                    .queries = queries,
                                    .expiries = expiries,
                                    .stays = stays};
