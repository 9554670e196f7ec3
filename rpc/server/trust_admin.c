#include "rpc/server/trust_admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/message.h"
#include "base/random.h"
#include "registry/trust.h"
#include "rpc/server/server_internal.h"
#include "rpc/wire/enrol.h"
#include "tls/folder.h"

#define SKEW_S       300
#define CA_LIFE_S    (INT64_C(10) * 365 * 24 * 3600)
#define DROP_LOOK_MS 5000
#define LOOK_MOST_MS 10000
#define SERVER_PORT  8300

struct trust_admin {
    struct rpc *rpc;
    struct authority *authority;
    char *data_dir;
    uint64_t looked_ms;
    bool making; /* a new CA is under way */
    struct rpc_write drop;
    _Atomic bool dropping;
};

/* One request. */
struct admin_work {
    struct trust_admin *admin;
    struct rpc_trust *trust;
    struct rpc_write write;
    struct loop_task written;
    int error;
    char text[RPC_TRUST_TEXT]; /* the answer, if it succeeds */
    char why[256];
    /* of a new CA */
    uv_work_t pool;
    struct arena arena;
    bool makes;     /* admin->making is this one's */
    Pb__Trust *old; /* NULL: the cluster is open */
    char domain[TLS_DOMAIN_SIZE + 1];
    struct buffer ca, cross;
    struct tls_certificate shown; /* the server of another region */
    struct fault fault;
};

struct trust_admin *trust_admin_new(struct rpc *rpc, const struct trust_admin_config *config) {
    struct trust_admin *admin = mem_zalloc(sizeof *admin);
    admin->rpc = rpc, admin->authority = config->authority, admin->data_dir = mem_strdup(config->data_dir);
    return admin;
}

void trust_admin_free(struct trust_admin *admin) {
    if (!admin) return;
    CHECK(!admin->dropping);
    free(admin->data_dir);
    free(admin);
}

static void end(struct admin_work *work, int error, const char *text) {
    struct rpc_trust *trust = work->trust;
    struct rpc *rpc = work->admin->rpc;
    if (work->makes) work->admin->making = false;
    snprintf(trust->text, sizeof trust->text, "%s", text ? text : "");
    arena_free(&work->arena);
    buffer_free(&work->ca);
    buffer_free(&work->cross);
    explicit_bzero(work, sizeof *work);
    free(work);
    trust->done(trust, error);
    rpc_job_over(rpc);
}

/* -- the write ----------------------------------------------------------------------------------------------------- */
static void written_taken(struct loop_task *task) {
    struct admin_work *work = CONTAINER_OF(task, struct admin_work, written);
    end(work, work->error, work->error ? work->why : work->text);
}

/* Another thread. */
static void written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct admin_work *work = CONTAINER_OF(write, struct admin_work, write);
    work->error = error ? error : result->error;
    const char *why = !error && result->text ? result->text : co_strerror(work->error);
    snprintf(work->why, sizeof work->why, "%s", work->error ? why : "");
    rpc_on_loop(work->admin->rpc, &work->written, written_taken);
}

static void submit(struct admin_work *work, uint8_t command, const ProtobufCMessage *message) {
    work->write.done = written;
    rpc_submit(work->admin->rpc, &work->write, command, message);
}

/* -- join tokens, removed nodes --------------------------------------------------------------------------------------- */
static void make_token(struct admin_work *work, const Pb__Trust *now) {
    struct trust_admin *admin = work->admin;
    struct rpc_trust *trust = work->trust;
    struct join_token token;
    uint8_t pin[TLS_PIN_SIZE], hash[JOIN_TOKEN_HASH_SIZE];
    struct fault fault = {0};
    if (!authority_pin(admin->authority, pin) ||
        !slice_equal(slice_make(pin, sizeof pin), message_slice(now->cas[0]->pin))) {
        end(work, CO_AGAIN, "this server does not have the CA's key yet; ask again");
        return;
    }
    int error = join_token_make(trust->server ? TLS_ROLE_SERVER : TLS_ROLE_AGENT, pin, &token, &fault);
    if (!error && !authority_hash(admin->authority, &token, hash)) error = CO_AGAIN;
    if (error) {
        end(work, error, fault.text);
        return;
    }
    Pb__JoinToken record = PB__JOIN_TOKEN__INIT;
    Pb__JoinTokenCreateCommand command = PB__JOIN_TOKEN_CREATE_COMMAND__INIT;
    record.id = (ProtobufCBinaryData){sizeof token.id, token.id};
    record.hash = (ProtobufCBinaryData){sizeof hash, hash};
    record.server = trust->server, record.uses = trust->uses, record.ttl_ns = trust->ttl_ns;
    record.node = (char *)(uintptr_t)(trust->node ? trust->node : "");
    command.token = &record;
    char text[JOIN_TOKEN_TEXT_MAX];
    join_token_write(&token, text);
    snprintf(work->text, sizeof work->text, "%s", text);
    submit(work, JOIN_TOKEN_CREATE, &command.base);
    explicit_bzero(text, sizeof text);
    explicit_bzero(&token, sizeof token);
}

/* A member of Raft's configuration that loses its certificate is lost to the cluster, and with the others the cluster is. */
static bool is_member(struct rpc *rpc, const char *node) {
    const struct raft_members *members = node_members(rpc->node);
    uint64_t self = atomic_load(&node_view(rpc->node)->id);
    for (uint32_t i = 0; i < members->count; i++) {
        const char *name = members->member[i].id == self ? rpc->node_name : rpc_server_name(rpc, members->member[i].id);
        if (strcasecmp(name, node) == 0) return true;
    }
    return false;
}

static void remove_node(struct admin_work *work) {
    const char *node = work->trust->node ? work->trust->node : "";
    if (work->trust->server && is_member(work->admin->rpc, node)) {
        end(work, CO_CONFLICT, "it is a server of the cluster; `coord operator raft remove-peer` comes first");
        return;
    }
    Pb__TrustRemoveCommand command = PB__TRUST_REMOVE_COMMAND__INIT;
    command.node = (char *)(uintptr_t)(work->trust->node ? work->trust->node : "");
    command.server = work->trust->server;
    submit(work, TRUST_REMOVE, &command.base);
}

/* -- what is trusted ------------------------------------------------------------------------------------------------ */
static void set(struct admin_work *work, Pb__Trust *trust) {
    Pb__TrustSetCommand command = PB__TRUST_SET_COMMAND__INIT;
    command.trust = trust, command.cas = work->old ? work->old->modify_index : 0;
    submit(work, TRUST_SET, &command.base);
}

static void set_mode(struct admin_work *work, enum trust_mode mode) {
    work->old->mode = mode;
    set(work, work->old);
}

static void drop_cas(struct admin_work *work) {
    work->old->n_cas = 1;
    set(work, work->old);
}

/* -- a new CA (thread pool) ------------------------------------------------------------------------------------------ */
static int make_ca(struct admin_work *work) {
    struct trust_admin *admin = work->admin;
    struct fault *fault = &work->fault;
    struct buffer key = {0}, secret = {0};
    int64_t now_s = (int64_t)time(NULL);
    struct tls_life life = {now_s - SKEW_S, now_s + CA_LIFE_S};
    int error = tls_key_make(&key, fault);
    if (!error && !work->old) error = tls_domain_make(work->domain, fault);
    if (!error) error = tls_ca_make(buffer_slice(&key), work->domain, life, NULL, &work->ca, fault);
    if (!error && work->old)
        error = authority_cross_sign(admin->authority, buffer_slice(&key), work->domain, life, &work->cross, fault);
    if (!error) error = tls_folder_make(admin->data_dir, fault);
    if (!error && work->old) {
        error = tls_folder_write(admin->data_dir, TLS_FILE_CA_NEXT, buffer_slice(&key), fault);
    } else if (!error) {
        buffer_reserve(&secret, TLS_SECRET_SIZE);
        random_bytes(secret.data, TLS_SECRET_SIZE);
        secret.size = TLS_SECRET_SIZE;
        struct tls_issuer issuer = {buffer_slice(&work->ca), buffer_slice(&key)};
        error = tls_folder_write(admin->data_dir, TLS_FILE_CA, buffer_slice(&work->ca), fault);
        if (!error) error = authority_store(admin->authority, admin->data_dir, &issuer, buffer_slice(&secret), fault);
    }
    tls_wipe(&key);
    tls_wipe(&secret);
    return error;
}

static void make(uv_work_t *pool) {
    struct admin_work *work = CONTAINER_OF(pool, struct admin_work, pool);
    work->error = make_ca(work);
}

static void made(uv_work_t *pool, int status) {
    struct admin_work *work = CONTAINER_OF(pool, struct admin_work, pool);
    struct tls_certificate certificate;
    if (status && !work->error) work->error = CO_CLOSED;
    if (!work->error) work->error = tls_certificate_read(buffer_slice(&work->ca), &certificate, &work->fault);
    if (work->error) {
        end(work, work->error, work->fault.text);
        return;
    }
    Pb__Trust trust = PB__TRUST__INIT;
    Pb__TrustCa ca = PB__TRUST_CA__INIT, *cas[TRUST_CAS_MAX] = {&ca};
    if (work->old) trust.regions = work->old->regions, trust.n_regions = work->old->n_regions;
    ca.certificate = arena_strndup(&work->arena, work->ca.data, work->ca.size);
    if (work->cross.size) ca.cross = arena_strndup(&work->arena, work->cross.data, work->cross.size);
    ca.pin = (ProtobufCBinaryData){TLS_PIN_SIZE, certificate.pin};
    trust.cas = cas, trust.n_cas = 1, trust.domain = work->domain;
    trust.mode = work->old ? work->old->mode : TRUST_BOTH;
    for (size_t i = 0; work->old && i < work->old->n_cas; i++) cas[trust.n_cas++] = work->old->cas[i];
    log_info("certificates", "a new CA signs from now on cas=%zu", trust.n_cas);
    set(work, &trust);
}

/* An older CA's key is enough: that of the newest may be lost with the server that made it. */
static bool has_trusted_key(struct admin_work *work) {
    uint8_t pin[TLS_PIN_SIZE];
    if (!authority_pin(work->admin->authority, pin)) return false;
    for (size_t i = 0; i < work->old->n_cas; i++)
        if (slice_equal(slice_make(pin, sizeof pin), message_slice(work->old->cas[i]->pin))) return true;
    return false;
}

static void begin_ca(struct admin_work *work) {
    if (work->admin->making ||
        (work->old && !has_trusted_key(work))) { /* two at once would take each other's key away */
        end(work, CO_AGAIN, "this server makes a new CA already, or does not have the key of a CA yet; ask again");
        return;
    }
    work->admin->making = work->makes = true;
    if (work->old && work->old->n_cas >= TRUST_CAS_MAX) {
        end(work, CO_TOOLARGE, "eight CAs are trusted already; `coord ca status` says who still needs the old ones");
        return;
    }
    if (work->old) snprintf(work->domain, sizeof work->domain, "%s", work->old->domain);
    CHECK(uv_queue_work(work->admin->rpc->loop, &work->pool, make, made) == 0);
}

/* -- other regions (thread pool) ------------------------------------------------------------------------------------- */
static const char hex_digits[] = "0123456789abcdef";

static void pin_write(const uint8_t pin[TLS_PIN_SIZE], char text[2 * TLS_PIN_SIZE + 1]) {
    for (size_t i = 0; i < TLS_PIN_SIZE; i++)
        text[2 * i] = hex_digits[pin[i] >> 4], text[2 * i + 1] = hex_digits[pin[i] & 15];
    text[2 * TLS_PIN_SIZE] = 0;
}

static void look(uv_work_t *pool) {
    struct admin_work *work = CONTAINER_OF(pool, struct admin_work, pool);
    struct tls_context_config nothing = {.only_tls13 = true};
    struct tls_context *context = NULL;
    work->error = tls_context_make(&nothing, &context, &work->fault);
    struct enrol enrol = {.protocol = SECURITY_JOIN, .context = context, .timeout_ms = LOOK_MOST_MS};
    if (!work->error)
        work->error = enrol_look(&enrol, work->trust->address, SERVER_PORT, &work->ca, &work->shown, &work->fault);
    tls_context_unref(context);
}

static int take_region(struct admin_work *work, const struct tls_certificate *ca) {
    Pb__Trust *now = work->old;
    struct buffer pem = {0};
    int error = tls_certificate_to_pem(buffer_slice(&work->ca), &pem, &work->fault);
    if (error) return error;
    Pb__TrustRegion *region = arena_alloc(&work->arena, sizeof *region);
    *region = (Pb__TrustRegion)PB__TRUST_REGION__INIT;
    region->name = (char *)(uintptr_t)work->trust->node;
    region->domain = arena_strndup(&work->arena, work->shown.domain, strlen(work->shown.domain));
    region->certificate = arena_strndup(&work->arena, pem.data, pem.size);
    region->pin = message_bytes(slice_copy(&work->arena, slice_make(ca->pin, sizeof ca->pin)));
    buffer_free(&pem);
    Pb__TrustRegion **regions = arena_alloc(&work->arena, (now->n_regions + 1) * sizeof *regions);
    size_t count = 0;
    for (size_t i = 0; i < now->n_regions; i++)
        if (strcmp(now->regions[i]->name, region->name) != 0) regions[count++] = now->regions[i];
    regions[count++] = region;
    now->regions = regions, now->n_regions = count;
    return CO_OK;
}

static void looked(uv_work_t *pool, int status) {
    struct admin_work *work = CONTAINER_OF(pool, struct admin_work, pool);
    struct rpc_trust *trust = work->trust;
    struct tls_certificate ca;
    char fingerprint[2 * TLS_PIN_SIZE + 1];
    if (status && !work->error) work->error = CO_CLOSED;
    if (!work->error) work->error = tls_certificate_read(buffer_slice(&work->ca), &ca, &work->fault);
    if (work->error) {
        end(work, work->error, work->fault.text);
        return;
    }
    pin_write(ca.pin, fingerprint);
    if (trust->verb == RPC_REGION_LOOK) {
        end(work, CO_OK, fingerprint);
    } else if (strcasecmp(fingerprint, trust->fingerprint) != 0) {
        snprintf(work->why, sizeof work->why, "the CA at %.100s has the fingerprint %s", trust->address, fingerprint);
        end(work, CO_DENIED, work->why);
    } else if ((work->error = take_region(work, &ca)) != CO_OK) {
        end(work, work->error, work->fault.text);
    } else {
        snprintf(work->text, sizeof work->text, "%s", fingerprint);
        set(work, work->old);
    }
}

static void begin_look(struct admin_work *work) {
    const struct rpc_trust *trust = work->trust;
    bool named = trust->node && trust->node[0] && strlen(trust->node) <= TRUST_REGION_NAME_MAX;
    if (!named || !trust->address || !trust->address[0]) {
        end(work, CO_INVALID, "the name of the region and the address of a server there are wanted");
        return;
    }
    CHECK(uv_queue_work(work->admin->rpc->loop, &work->pool, look, looked) == 0);
}

static void forget_region(struct admin_work *work) {
    Pb__Trust *now = work->old;
    size_t count = 0;
    for (size_t i = 0; i < now->n_regions; i++)
        if (strcmp(now->regions[i]->name, work->trust->node ? work->trust->node : "") != 0)
            now->regions[count++] = now->regions[i];
    if (count == now->n_regions) {
        end(work, CO_NOTFOUND, "the CA of this region is not trusted");
        return;
    }
    now->n_regions = count;
    set(work, now);
}

/* -- verbs ---------------------------------------------------------------------------------------------------------- */
/* Is there a protection that the certificates of the cluster would replace, while others still demand it? */
static bool is_protected(const struct rpc *rpc) {
    struct security_rules rules;
    if (!rpc->server->security) return false;
    security_get(rpc->server->security, &rules);
    return !rules.takes_plain || !rules.dials_plain;
}

/* Whoever may do this can be anybody afterwards. */
static bool is_for_servers(const struct rpc_trust *trust) {
    switch (trust->verb) {
        case RPC_JOIN_TOKEN: return trust->server;
        case RPC_CA_ROTATE:
        case RPC_CA_DROP:
        case RPC_REGION_TRUST:
        case RPC_REGION_FORGET: return true;
        default: return false;
    }
}

static void carry_out(struct admin_work *work) {
    Pb__Trust *now = work->old;
    enum rpc_trust_verb verb = work->trust->verb;
    if (now && work->trust->by_agent && is_for_servers(work->trust)) {
        end(work, CO_DENIED, "this is done at a server only, not through a client agent");
        return;
    }
    if (now && now->mode == TRUST_BOTH && verb == RPC_JOIN_TOKEN) {
        end(work, CO_CONFLICT, "the cluster is being closed: hosts join with tokens after `coord secure finish`");
        return;
    }
    if (verb == RPC_NODE_REMOVE) remove_node(work);
    else if (verb == RPC_SECURE_START && now && now->mode == TRUST_BOTH) end(work, CO_OK, "");
    else if (verb == RPC_SECURE_START && now) end(work, CO_CONFLICT, "the cluster is closed already");
    else if (verb == RPC_SECURE_START && is_protected(work->admin->rpc))
        end(work, CO_CONFLICT,
            "encrypt, or a CA of yours, protects connections, and this would cut them: let all nodes take and make "
            "plain "
            "ones first (encrypt_verify_*, verify_*)");
    else if (verb == RPC_SECURE_START) begin_ca(work);
    else if (verb == RPC_SECURE_ABORT && !now) end(work, CO_OK, "");
    else if (!now) end(work, CO_INVALID, "the cluster is open; `coord secure start` closes it while it runs");
    else if (verb == RPC_JOIN_TOKEN) make_token(work, now);
    else if (verb == RPC_CA_ROTATE) begin_ca(work);
    else if (verb == RPC_REGION_LOOK || verb == RPC_REGION_TRUST) begin_look(work);
    else if (verb == RPC_REGION_FORGET) forget_region(work);
    else if (verb == RPC_CA_DROP) drop_cas(work);
    else if (verb == RPC_SECURE_FINISH) set_mode(work, TRUST_CLOSED);
    else if (verb == RPC_SECURE_ABORT && now->mode != TRUST_BOTH)
        end(work, CO_CONFLICT, "the cluster is closed, and stays so");
    else if (verb == RPC_SECURE_ABORT) set_mode(work, TRUST_OPEN);
    else end(work, CO_INVALID, "this server does not know what is asked of it");
}

void trust_admin_do(struct trust_admin *admin, struct rpc_trust *trust) {
    struct admin_work *work = mem_zalloc(sizeof *work);
    work->admin = admin, work->trust = trust;
    rpc_job_begin(admin->rpc);
    if (admin->rpc->stopping) {
        end(work, CO_CLOSED, "");
        return;
    }
    struct store_txn *txn = store_read(admin->rpc->loop_reader);
    work->old = trust_read(txn, &work->arena);
    int error = store_txn_error(txn);
    store_read_done(admin->rpc->loop_reader);
    if (error) end(work, error, co_strerror(error));
    else carry_out(work);
}

/* -- dropping CAs that nobody needs ----------------------------------------------------------------------------------- */
/* May a node still show a certificate of another CA than the first, and renew it? */
static bool needs_old(const Pb__NodeCertificate *record, const Pb__Trust *trust, int64_t now_s) {
    if (record->removed || !record->now) return false;
    if (slice_equal(message_slice(record->now->ca_pin), message_slice(trust->cas[0]->pin))) return false;
    return record->now->to_s + SECURITY_GRACE_S >= now_s;
}

static void dropped(struct rpc_write *write, int error, const struct machine_result *result) {
    struct trust_admin *admin = CONTAINER_OF(write, struct trust_admin, drop);
    if (!error && !result->error) log_info("certificates", "nobody needs the CA of before any more: it is dropped");
    admin->dropping = false;
}

void trust_admin_tick(struct trust_admin *admin, uint64_t now_ms) {
    if (now_ms - admin->looked_ms < DROP_LOOK_MS || admin->dropping || admin->rpc->stopping) return;
    admin->looked_ms = now_ms;
    struct arena arena = {0};
    struct store_txn *txn = store_read(admin->rpc->loop_reader);
    Pb__Trust *trust = trust_read(txn, &arena);
    bool needed = true;
    if (trust && trust->n_cas > 1) {
        Pb__CertificatesRequest request = PB__CERTIFICATES_REQUEST__INIT;
        struct query_result result;
        needed = query_certificates.run(txn, &request.base, &arena, &result) != CO_OK;
        const Pb__CertificatesResult *all = needed ? NULL : (const Pb__CertificatesResult *)result.message;
        for (size_t i = 0; all && i < all->n_certificates && !needed; i++)
            needed = needs_old(all->certificates[i], trust, (int64_t)time(NULL));
    }
    store_read_done(admin->rpc->loop_reader);
    if (!needed) {
        Pb__TrustSetCommand command = PB__TRUST_SET_COMMAND__INIT;
        trust->n_cas = 1;
        command.trust = trust, command.cas = trust->modify_index;
        admin->drop.done = dropped;
        admin->dropping = true;
        rpc_submit(admin->rpc, &admin->drop, TRUST_SET, &command.base);
    }
    arena_free(&arena);
}
