#include "agent/cluster_identity.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "agent/enrolled.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "registry/trust.h"
#include "rpc/wire/enrol.h"
#include "tls/folder.h"

#define TICK_MS        1000
#define FIRST_TICK_MS  50     /* until what coord init left is brought in: others wait for it to join */
#define FOLLOW_MS      300000 /* one question about the cluster's trust waits so long */
#define AGAIN_MS       1000   /* after one that failed */
#define SECURE_AGAIN_S 2
#define ASK_MOST_MS    10000 /* one server */

struct cluster_identity {
    struct cluster_identity_config config;
    char *data_dir, *node, *datacenter, *bind, *address;
    struct rpc *rpc;
    uv_timer_t timer;
    uv_async_t wake; /* `follow` or `first` is answered */
    struct certificate_renewal renewal;
    enum certificate_renewal_state told;
    _Atomic enum certificate_renewal_state state; /* as of the last tick */
    /* the question about the cluster's trust */
    struct rpc_fetch follow;
    bool following, followed;
    uint64_t follow_at_ms, index;
    uv_mutex_t lock;                     /* what other threads leave for the loop, and: */
    struct cluster_identity_facts facts; /* its state is that of now when they are read */
    struct buffer answer;
    uint64_t answer_index;
    int answer_error;
    bool answered, first_done, note_done;
    int note_error;
    /* what `coord init` left */
    bool has_first, first_asked;
    struct rpc_write first;
    int first_error;
    /* a renewal, in the thread pool */
    uv_work_t work;
    bool working;
    struct buffer work_own_key;
    bool work_wants; /* only a certificate of the CA that signs now, as of its beginning */
    uint8_t work_signs[TLS_PIN_SIZE];
    struct buffer work_ca, work_key, work_secret; /* the CA's key that it brought; empty: none */
    struct arena work_arena;
    const char **servers;
    size_t server_count;
    int work_error;
    struct fault work_fault;
    /* an open cluster is being closed: this node comes for its first certificate */
    bool secures;                     /* it wants one */
    uint8_t secure_pin[TLS_PIN_SIZE]; /* of the CA */
    char secure_domain[TLS_DOMAIN_SIZE + 1];
    int64_t secure_at_s;
    struct rpc_write noted; /* a server that signed its own */
    bool noting;
    /* the end */
    bool stopping;
    unsigned closing;
    void (*stopped)(void *data);
    void *stopped_data;
};

static int64_t now_s(void) { return (int64_t)time(NULL); }

/* -- what is in DATA/tls -------------------------------------------------------------------------------------------- */
struct loaded {
    struct buffer cas, chain, key, mode, regions;
    struct buffer shown;                /* tls_chain_shown */
    struct buffer trusted;              /* the CAs, and those of other regions */
    struct tls_certificate own, signer; /* signer: the CA's own, as the chain has it */
};

static void loaded_free(struct loaded *loaded) {
    buffer_free(&loaded->cas);
    buffer_free(&loaded->chain);
    buffer_free(&loaded->mode);
    buffer_free(&loaded->regions);
    buffer_free(&loaded->shown);
    buffer_free(&loaded->trusted);
    tls_wipe(&loaded->key);
}

/* Where it is there. */
static int load_more(const char *data_dir, enum tls_file file, struct buffer *content, struct fault *fault) {
    int error = tls_folder_read(data_dir, file, content, fault);
    return error == CO_NOTFOUND ? CO_OK : error;
}

/* CO_NOTFOUND: this node has no certificate. */
static int load(const char *data_dir, struct loaded *loaded, struct fault *fault) {
    *loaded = (struct loaded){0};
    int error = tls_folder_recover(data_dir, fault);
    if (!error) error = tls_folder_read(data_dir, TLS_FILE_CERT, &loaded->chain, fault);
    if (!error) error = tls_folder_read(data_dir, TLS_FILE_KEY, &loaded->key, fault);
    if (!error) error = tls_folder_read(data_dir, TLS_FILE_CA, &loaded->cas, fault);
    if (!error) error = load_more(data_dir, TLS_FILE_MODE, &loaded->mode, fault);
    if (!error) error = load_more(data_dir, TLS_FILE_REGIONS, &loaded->regions, fault);
    if (!error) error = tls_certificate_read(buffer_slice(&loaded->chain), &loaded->own, fault);
    struct buffer second = {0};
    if (!error) error = tls_certificate_at(buffer_slice(&loaded->chain), 1, &second, fault);
    if (!error) error = tls_certificate_read(buffer_slice(&second), &loaded->signer, fault);
    if (!error) tls_chain_shown(buffer_slice(&loaded->chain), buffer_slice(&loaded->cas), &loaded->shown);
    buffer_free(&second);
    return error;
}

/* The CAs of other regions count between servers, for the names of those regions. */
static void take_regions(struct loaded *loaded, struct security_rules *rules, struct arena *arena,
                         struct security_anchor *anchors, size_t *count) {
    memcpy(anchors[0].domain, loaded->own.domain, sizeof anchors[0].domain);
    anchors[0].cas = buffer_slice(&loaded->cas);
    *count = 1;
    const Pb__Trust *trust = message_unpack(arena, &pb__trust__descriptor, buffer_slice(&loaded->regions));
    buffer_append(&loaded->trusted, loaded->cas.data, loaded->cas.size);
    for (size_t i = 0; trust && i < trust->n_regions && i < SECURITY_REGIONS_MAX; i++) {
        const Pb__TrustRegion *region = trust->regions[i];
        struct security_region *to = &rules->regions[rules->region_count++];
        snprintf(to->name, sizeof to->name, "%s", region->name);
        snprintf(to->domain, sizeof to->domain, "%s", region->domain);
        memcpy(anchors[*count].domain, to->domain, sizeof to->domain);
        anchors[(*count)++].cas = slice_text(region->certificate);
        buffer_append_text(&loaded->trusted, region->certificate);
    }
}

static int protect(const struct cluster_identity_config *config, struct loaded *loaded, struct fault *fault) {
    struct security_rules rules = {.kind = SECURITY_CLUSTER, .asks_clients = true};
    struct security_anchor anchors[SECURITY_REGIONS_MAX + 1];
    struct arena arena = {0};
    size_t anchor_count;
    take_regions(loaded, &rules, &arena, anchors, &anchor_count);
    struct tls_context_config context_config = {.chain = buffer_slice(&loaded->shown),
                                                .key = buffer_slice(&loaded->key),
                                                .trusted = buffer_slice(&loaded->trusted),
                                                .only_tls13 = true};
    struct tls_context *context;
    int error = tls_context_make(&context_config, &context, fault);
    if (error) {
        arena_free(&arena);
        return error;
    }
    rules.takes_plain = rules.secures = loaded->mode.size > 0;
    memcpy(rules.domain, loaded->own.domain, sizeof rules.domain);
    security_set_anchored(config->security, &rules, context, anchors, anchor_count);
    arena_free(&arena);
    return CO_OK;
}

int cluster_identity_load(const struct cluster_identity_config *config, struct fault *fault) {
    struct loaded loaded;
    int error = load(config->data_dir, &loaded, fault);
    if (!error && loaded.own.role != (config->server ? TLS_ROLE_SERVER : TLS_ROLE_AGENT))
        error = fault_set(fault, CO_INVALID, "the certificate in %s/tls is that of a %s, and this is a %s",
                          config->data_dir, loaded.own.role == TLS_ROLE_SERVER ? "server" : "client agent",
                          config->server ? "server" : "client agent");
    if (!error && !slice_equal_nocase(slice_text(loaded.own.node), slice_text(config->node)))
        error =
            fault_set(fault, CO_INVALID,
                      "the certificate in %s/tls is that of node %.80s, and this is %.80s: a node that gets another "
                      "name has to join anew",
                      config->data_dir, loaded.own.node, config->node);
    if (!error) error = protect(config, &loaded, fault);
    if (!error && config->server) error = authority_load(config->authority, config->data_dir, fault);
    if (config->server) tls_folder_remove(config->data_dir, TLS_FILE_CA_IMPORT); /* of a command that was killed */
    loaded_free(&loaded);
    return error == CO_NOTFOUND && !fault->code ? CO_OK : error;
}

static void note_cas(struct slice cas, struct cluster_identity_facts *facts) {
    uint8_t pins[TRUST_CAS_MAX][TLS_PIN_SIZE];
    size_t count = tls_certificate_count(cas);
    for (size_t i = 0; i < count && facts->ca_count < TRUST_CAS_MAX; i++) {
        struct buffer one = {0};
        struct tls_certificate read;
        bool known = tls_certificate_at(cas, i, &one, NULL) != CO_OK ||
                     tls_certificate_read(buffer_slice(&one), &read, NULL) != CO_OK;
        for (size_t k = 0; k < facts->ca_count && !known; k++)
            known = memcmp(pins[k], read.pin, TLS_PIN_SIZE) == 0; /* the same one, signed by the one before */
        buffer_free(&one);
        if (known) continue;
        size_t at = facts->ca_count++;
        memcpy(pins[at], read.pin, TLS_PIN_SIZE);
        memcpy(facts->cas[at].name, read.common_name, sizeof facts->cas[at].name);
        memcpy(facts->cas[at].serial, read.serial, sizeof facts->cas[at].serial);
        facts->cas[at].life = read.life;
    }
}

static void note_facts(struct cluster_identity *identity, const struct loaded *loaded) {
    struct cluster_identity_facts facts = {.has_certificate = true, .life = loaded->own.life};
    memcpy(facts.serial, loaded->own.serial, sizeof facts.serial);
    note_cas(buffer_slice(&loaded->cas), &facts);
    uv_mutex_lock(&identity->lock);
    identity->facts = facts;
    uv_mutex_unlock(&identity->lock);
}

void cluster_identity_facts(struct cluster_identity *identity, struct cluster_identity_facts *facts) {
    *facts = (struct cluster_identity_facts){0};
    if (!identity) return;
    uv_mutex_lock(&identity->lock);
    *facts = identity->facts;
    uv_mutex_unlock(&identity->lock);
    facts->state = atomic_load(&identity->state);
}

/* The renewal may have brought the CA's key, too. */
static void note_key(struct cluster_identity *identity) {
    uint8_t pin[TLS_PIN_SIZE];
    if (identity->renewal.lacks_key && authority_pin(identity->config.authority, pin) &&
        memcmp(pin, identity->renewal.signs_now, sizeof pin) == 0)
        certificate_renewal_ca(&identity->renewal, pin, false, now_s());
}

/* After the files have changed. The ones of before stay in use when the new ones cannot be. */
static void take_files(struct cluster_identity *identity) {
    struct loaded loaded;
    struct fault fault = {0};
    int error = load(identity->data_dir, &loaded, &fault);
    if (!error) error = protect(&identity->config, &loaded, &fault);
    if (error && error != CO_NOTFOUND)
        log_error("certificates", "the new certificate cannot be used, the one of before stays in use error=\"%s\"",
                  fault.text);
    if (!error) {
        certificate_renewal_certificate(&identity->renewal, loaded.own.life, loaded.signer.pin, now_s());
        note_key(identity);
        note_facts(identity, &loaded);
    }
    loaded_free(&loaded);
}

/* -- renewing (thread pool) ----------------------------------------------------------------------------------------- */
static void forget_key(struct cluster_identity *identity) {
    buffer_free(&identity->work_ca);
    tls_wipe(&identity->work_key);
    tls_wipe(&identity->work_secret);
}

static void keep_key(struct cluster_identity *identity, const Pb__EnrolAnswer *answer) { /* aside, for take_key */
    buffer_append_text(&identity->work_ca, answer->ca_certificate);
    buffer_append(&identity->work_key, (const char *)answer->ca_key.data, answer->ca_key.len);
    buffer_append(&identity->work_secret, (const char *)answer->secret_key.data, answer->secret_key.len);
}

static int keep(void *data, const Pb__EnrolAnswer *answer, struct fault *fault) {
    struct cluster_identity *identity = data;
    struct slice key = buffer_slice(&identity->work_own_key);
    struct buffer cas = {0};
    for (size_t i = 0; i < answer->n_cas; i++) buffer_append_text(&cas, answer->cas[i]);
    int error = tls_pair_check(key, slice_text(answer->chain), fault);
    if (!error && tls_certificate_count(buffer_slice(&cas)) == 0)
        error = fault_set(fault, CO_CORRUPT, "the server's answer has no CA");
    if (!error && identity->secures)
        error = tls_folder_write(identity->data_dir, TLS_FILE_MODE, SLICE_LITERAL("both\n"), fault);
    if (!error) error = tls_folder_write(identity->data_dir, TLS_FILE_CA, buffer_slice(&cas), fault);
    if (!error) error = tls_folder_write_pair(identity->data_dir, slice_text(answer->chain), key, fault);
    if (!error && identity->config.server) keep_key(identity, answer);
    buffer_free(&cas);
    return error;
}

static int ask_at(struct cluster_identity *identity, const char *server, struct slice request_der,
                  struct tls_context *context, struct fault *fault) {
    struct arena arena = {0};
    Pb__EnrolAnswer *answer = NULL;
    Pb__EnrolRequest request = PB__ENROL_REQUEST__INIT;
    request.request = message_bytes(request_der);
    request.node = identity->node, request.server = identity->config.server, request.datacenter = identity->datacenter;
    if (identity->work_wants) request.ca_pin = (ProtobufCBinaryData){TLS_PIN_SIZE, identity->work_signs};
    struct enrol enrol = {.protocol = identity->secures ? SECURITY_SECURE : SECURITY_RENEW,
                          .pin = identity->secures ? identity->secure_pin : NULL,
                          .context = context,
                          .request = &request,
                          .keep = keep,
                          .data = identity,
                          .from = identity->bind,
                          .timeout_ms = ASK_MOST_MS};
    int error = enrol_ask(&enrol, server, identity->config.port, &arena, &answer, fault);
    /* Only a server's word is a refusal. A handshake that fails may be somebody else's doing, or a wrong clock. */
    if (error == CO_DENIED && !answer) error = CO_IO;
    enrol_wipe(answer);
    arena_free(&arena);
    return error;
}

/* The server that made the CA signs its own first certificate. */
static int sign_own(struct cluster_identity *identity, struct slice key, struct slice request, struct fault *fault) {
    const char *addresses[] = {identity->address, NULL};
    struct tls_subject subject = {.domain = identity->secure_domain,
                                  .role = TLS_ROLE_SERVER,
                                  .node = identity->node,
                                  .datacenter = identity->datacenter,
                                  .dns_domain = ENROLLED_DNS_DOMAIN,
                                  .addresses = addresses};
    struct tls_life life = {now_s() - ENROLLED_SKEW_S, now_s() + ENROLLED_LIFE_S};
    struct buffer chain = {0};
    int error = authority_sign(identity->config.authority, request, &subject, life, &chain, fault);
    if (!error) error = tls_folder_write(identity->data_dir, TLS_FILE_MODE, SLICE_LITERAL("both\n"), fault);
    if (!error) error = tls_folder_write_pair(identity->data_dir, buffer_slice(&chain), key, fault);
    buffer_free(&chain);
    return error;
}

static int ask_all(struct cluster_identity *identity, struct slice request, struct tls_context *context,
                   struct fault *fault) {
    int error = CO_NOLEADER;
    snprintf(fault->text, sizeof fault->text, "no server is known");
    for (size_t i = 0; i < identity->server_count; i++) {
        struct fault one = {0};
        int rv = ask_at(identity, identity->servers[i], request, context, &one);
        if (rv == CO_OK) return CO_OK;
        if (i == 0 || enrol_may_repeat(rv) >= enrol_may_repeat(error))
            error = rv, snprintf(fault->text, sizeof fault->text, "%s", one.text);
    }
    return error;
}

/* A key that is there is kept: of an earlier attempt, or that of the certificate. */
static int own_key(struct cluster_identity *identity, struct buffer *key, struct fault *fault) {
    int error = identity->secures ? tls_folder_make(identity->data_dir, fault) : CO_OK;
    if (!error) error = tls_folder_read(identity->data_dir, TLS_FILE_KEY, key, fault);
    if (error != CO_NOTFOUND || !identity->secures) return error;
    error = tls_key_make(key, fault);
    return error ? error : tls_folder_write(identity->data_dir, TLS_FILE_KEY, buffer_slice(key), fault);
}

/* For renewals only the CAs of this cluster count, and no other region's. */
static int own_context(struct cluster_identity *identity, struct tls_context **context, struct fault *fault) {
    struct loaded loaded;
    int error = load(identity->data_dir, &loaded, fault);
    struct tls_context_config config = {.chain = buffer_slice(&loaded.shown),
                                        .key = buffer_slice(&loaded.key),
                                        .trusted = buffer_slice(&loaded.cas),
                                        .only_tls13 = true};
    if (!error) error = tls_context_make(&config, context, fault);
    loaded_free(&loaded);
    return error;
}

/* Asks one server after the other. Only a refusal by all that answered is one for good. */
static void renew(uv_work_t *work) {
    struct cluster_identity *identity = CONTAINER_OF(work, struct cluster_identity, work);
    struct buffer *key = &identity->work_own_key, request = {0};
    struct fault *fault = &identity->work_fault;
    struct tls_context *context = NULL;
    struct tls_context_config nothing = {.only_tls13 = true};
    int error = own_key(identity, key, fault);
    if (!error) error = tls_request_make(buffer_slice(key), &request, fault);
    if (!error && identity->secures) error = tls_context_make(&nothing, &context, fault);
    else if (!error) error = own_context(identity, &context, fault);
    uint8_t pin[TLS_PIN_SIZE];
    bool own = identity->secures && identity->config.server && authority_pin(identity->config.authority, pin) &&
               memcmp(pin, identity->secure_pin, sizeof pin) == 0;
    if (!error && own) error = sign_own(identity, buffer_slice(key), buffer_slice(&request), fault);
    else if (!error) error = ask_all(identity, buffer_slice(&request), context, fault);
    identity->work_error = error;
    tls_context_unref(context);
    tls_wipe(key);
    buffer_free(&request);
}

static void finish_stop(struct cluster_identity *identity);

/* Another thread. */
static void noted(struct rpc_write *write, int error, const struct machine_result *result) {
    struct cluster_identity *identity = CONTAINER_OF(write, struct cluster_identity, noted);
    (void)result;
    uv_mutex_lock(&identity->lock);
    identity->note_error = error;
    identity->note_done = true;
    uv_mutex_unlock(&identity->lock);
    uv_async_send(&identity->wake);
}

/* The record of a certificate that this server signed itself. Other nodes' are made by the server that signs. */
static void note_own(struct cluster_identity *identity) {
    struct loaded loaded;
    struct fault fault = {0};
    if (!identity->config.server || identity->noting || !authority_can_sign(identity->config.authority)) return;
    if (load(identity->data_dir, &loaded, &fault) == CO_OK) {
        Pb__CertificateInfo info = PB__CERTIFICATE_INFO__INIT;
        Pb__TrustRenewedCommand command = PB__TRUST_RENEWED_COMMAND__INIT;
        info.node = loaded.own.node, info.server = true, info.serial = loaded.own.serial;
        info.from_s = loaded.own.life.from_s, info.to_s = loaded.own.life.to_s;
        info.pin = (ProtobufCBinaryData){TLS_PIN_SIZE, loaded.own.pin};
        info.ca_pin = (ProtobufCBinaryData){TLS_PIN_SIZE, loaded.signer.pin};
        command.certificate = &info, command.any = true;
        identity->noting = true, identity->noted.done = noted;
        rpc_submit(identity->rpc, &identity->noted, TRUST_RENEWED, &command.base);
    }
    loaded_free(&loaded);
}

static int take_key(struct cluster_identity *identity) {
    struct tls_issuer issuer = {buffer_slice(&identity->work_ca), buffer_slice(&identity->work_key)};
    struct tls_certificate ca;
    int error =
        identity->work_key.size ? tls_certificate_read(issuer.certificate, &ca, &identity->work_fault) : CO_NOTFOUND;
    if (!error &&
        certificate_renewal_takes_key(&identity->renewal, authority_can_sign(identity->config.authority), ca.pin))
        error = authority_store(identity->config.authority, identity->data_dir, &issuer,
                                buffer_slice(&identity->work_secret), &identity->work_fault);
    forget_key(identity);
    return error == CO_NOTFOUND ? CO_OK : error;
}

static void renewed(uv_work_t *work, int status) {
    struct cluster_identity *identity = CONTAINER_OF(work, struct cluster_identity, work);
    int error = status ? CO_CLOSED : identity->work_error;
    if (!error) error = take_key(identity);
    else forget_key(identity);
    identity->working = false;
    arena_free(&identity->work_arena);
    if (!error && identity->secures) {
        take_files(identity);
        identity->secures = false;
        log_info("certificates", "this node has its first certificate, the cluster is being closed node=%s",
                 identity->node);
        note_own(identity);
    } else if (!error) {
        take_files(identity);
        certificate_renewal_succeeded(&identity->renewal, now_s());
        log_info("certificates", "renewed node=%s", identity->node);
    } else if (identity->secures) {
        identity->secure_at_s = now_s() + SECURE_AGAIN_S;
        log_warn("certificates", "no first certificate yet error=\"%s\"", identity->work_fault.text);
    } else if (!identity->stopping) {
        certificate_renewal_failed(&identity->renewal, error == CO_DENIED, now_s());
        log_warn("certificates", "the certificate was not renewed, it counts until %lld error=\"%s\"",
                 (long long)identity->renewal.life.to_s, identity->work_fault.text);
    }
    finish_stop(identity);
}

static void begin_renewal(struct cluster_identity *identity) {
    identity->work_fault = (struct fault){0};
    identity->work_arena = (struct arena){0};
    identity->server_count = rpc_servers(identity->rpc, &identity->work_arena, &identity->servers);
    identity->working = true;
    identity->work_wants = certificate_renewal_insists(&identity->renewal, now_s());
    memcpy(identity->work_signs, identity->renewal.signs_now, TLS_PIN_SIZE);
    CHECK(uv_queue_work(identity->timer.loop, &identity->work, renew, renewed) == 0);
}

/* -- what the cluster trusts ---------------------------------------------------------------------------------------- */
/* *changed: other regions are trusted than before. */
static int keep_regions(struct cluster_identity *identity, const Pb__Trust *trust, bool *changed, struct fault *fault) {
    struct arena arena = {0};
    struct buffer known = {0};
    Pb__Trust only = PB__TRUST__INIT;
    only.regions = trust->regions, only.n_regions = trust->n_regions;
    struct slice packed = message_pack(&arena, &only.base);
    int error = load_more(identity->data_dir, TLS_FILE_REGIONS, &known, fault);
    *changed = !error && !slice_equal(packed, buffer_slice(&known));
    if (*changed) error = tls_folder_write(identity->data_dir, TLS_FILE_REGIONS, packed, fault);
    buffer_free(&known);
    arena_free(&arena);
    return error;
}

static void write_cas(struct cluster_identity *identity, const Pb__Trust *trust) {
    struct buffer cas = {0}, known = {0};
    struct fault fault = {0};
    for (size_t i = 0; i < trust->n_cas; i++) {
        buffer_append_text(&cas, trust->cas[i]->certificate);
        buffer_append_text(&cas, trust->cas[i]->cross);
    }
    int error = tls_folder_read(identity->data_dir, TLS_FILE_CA, &known, &fault);
    bool same = !error && slice_equal(buffer_slice(&cas), buffer_slice(&known));
    bool was_both = false, both = trust->mode == TRUST_BOTH;
    struct buffer mode = {0};
    was_both = tls_folder_read(identity->data_dir, TLS_FILE_MODE, &mode, &fault) == CO_OK && mode.size > 0;
    if (!same && (!error || error == CO_NOTFOUND))
        error = tls_folder_write(identity->data_dir, TLS_FILE_CA, buffer_slice(&cas), &fault);
    /* Never from closed to open: a server that lost its store sees old states again. */
    if (!error && !both && was_both)
        error = tls_folder_write(identity->data_dir, TLS_FILE_MODE, slice_make("", 0), &fault);
    bool others = false;
    if (!error && identity->config.server) error = keep_regions(identity, trust, &others, &fault);
    if (error) log_error("certificates", "what the cluster trusts cannot be kept error=\"%s\"", fault.text);
    else if (!same || (was_both && !both) || others) take_files(identity);
    buffer_free(&cas);
    buffer_free(&known);
    buffer_free(&mode);
}

/* This server made the new CA: it takes the key that it kept aside. A key that does not fit stays: it is of a rotation that
 * is under way still, or that another one overtook; the next one writes its own there. */
static void adopt_next(struct cluster_identity *identity, const Pb__TrustCa *ca) {
    struct buffer key = {0};
    struct fault fault = {0};
    if (tls_folder_read(identity->data_dir, TLS_FILE_CA_NEXT, &key, &fault) == CO_OK) {
        struct tls_issuer issuer = {slice_text(ca->certificate), buffer_slice(&key)};
        bool fits = tls_pair_check(issuer.key, issuer.certificate, NULL) == CO_OK;
        int error =
            fits ? authority_store(identity->config.authority, identity->data_dir, &issuer, slice_make("", 0), &fault)
                 : CO_OK;
        if (fits && !error) tls_folder_remove(identity->data_dir, TLS_FILE_CA_NEXT);
        else if (error) log_error("certificates", "the key of the new CA cannot be kept error=\"%s\"", fault.text);
    }
    tls_wipe(&key);
}

/* A CA of one's own may get another certificate for its key. ca.pem has it already. */
static void renew_ca(struct cluster_identity *identity, const Pb__TrustCa *ca) {
    struct fault fault = {0};
    if (authority_take_certificate(identity->config.authority, slice_text(ca->certificate), &fault) != CO_OK)
        log_error("certificates", "the CA's certificate cannot be taken error=\"%s\"", fault.text);
}

static bool has_key_of(struct cluster_identity *identity, const Pb__TrustCa *ca) {
    uint8_t pin[TLS_PIN_SIZE];
    return authority_pin(identity->config.authority, pin) && memcmp(pin, ca->pin.data, sizeof pin) == 0;
}

static void want_first_certificate(struct cluster_identity *identity, const Pb__Trust *trust) {
    memcpy(identity->secure_pin, trust->cas[0]->pin.data, TLS_PIN_SIZE);
    snprintf(identity->secure_domain, sizeof identity->secure_domain, "%s", trust->domain);
    identity->secures = true;
}

/* The cluster has no trust: it is open, or closing it was given up. Files of a closed cluster stay, because this server may
 * just not know its state yet. */
static void take_open(struct cluster_identity *identity) {
    static const enum tls_file files[] = {TLS_FILE_CERT,   TLS_FILE_KEY,    TLS_FILE_CA,
                                          TLS_FILE_CA_KEY, TLS_FILE_SECRET, TLS_FILE_MODE};
    struct buffer mode = {0};
    struct fault fault = {0};
    identity->secures = false;
    bool both = tls_folder_read(identity->data_dir, TLS_FILE_MODE, &mode, &fault) == CO_OK && mode.size > 0;
    buffer_free(&mode);
    if (!both || identity->working) return;
    struct security_rules rules = {.kind = SECURITY_OPEN, .takes_plain = true, .dials_plain = true};
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) tls_folder_remove(identity->data_dir, files[i]);
    security_set(identity->config.security, &rules, NULL);
    authority_forget(identity->config.authority);
    certificate_renewal_begin(&identity->renewal, random_u64(), identity->config.spread_s);
    log_info("certificates", "closing the cluster was given up: it is open");
}

static void take_trust(struct cluster_identity *identity, struct slice record) {
    struct arena arena = {0};
    const Pb__Trust *trust = message_unpack(&arena, &pb__trust__descriptor, record);
    if (trust && trust->n_cas && trust->cas[0]->pin.len == TLS_PIN_SIZE) {
        bool server = identity->config.server, closed = trust->mode == TRUST_CLOSED;
        if (identity->renewal.has_certificate) write_cas(identity, trust);
        else if (!closed) want_first_certificate(identity, trust);
        if (server && has_key_of(identity, trust->cas[0])) renew_ca(identity, trust->cas[0]);
        else if (server) adopt_next(identity, trust->cas[0]);
        /* The CA's key is handed over once the operator has seen all names. */
        bool lacks_key = server && closed && !has_key_of(identity, trust->cas[0]);
        certificate_renewal_ca(&identity->renewal, trust->cas[0]->pin.data, lacks_key, now_s());
    }
    arena_free(&arena);
}

/* Another thread. */
static void follow_done(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct cluster_identity *identity = CONTAINER_OF(fetch, struct cluster_identity, follow);
    uv_mutex_lock(&identity->lock);
    identity->answer_error = error;
    buffer_reset(&identity->answer);
    if (!error && fetched->found) buffer_append(&identity->answer, fetched->records.data, fetched->records.size);
    if (!error) identity->answer_index = fetched->index;
    identity->answered = true;
    uv_mutex_unlock(&identity->lock);
    uv_async_send(&identity->wake);
}

static void follow(struct cluster_identity *identity) {
    if (identity->following || identity->stopping || clock_mono_ms() < identity->follow_at_ms) return;
    Pb__TrustRequest request = PB__TRUST_REQUEST__INIT;
    identity->follow = (struct rpc_fetch){.done = follow_done,
                                          .type = &query_trust,
                                          .freshness = RPC_STALE,
                                          .no_cache = true,
                                          .background = true,
                                          .index = identity->index,
                                          .wait_ms = identity->index ? FOLLOW_MS : 0};
    identity->following = true;
    rpc_fetch(identity->rpc, &identity->follow, &request.base);
}

/* -- what `coord init` left ----------------------------------------------------------------------------------------- */
static void first_done(struct rpc_write *write, int error, const struct machine_result *result) {
    struct cluster_identity *identity = CONTAINER_OF(write, struct cluster_identity, first);
    uv_mutex_lock(&identity->lock);
    identity->first_error = error ? error : result->error;
    identity->first_done = true;
    uv_mutex_unlock(&identity->lock);
    uv_async_send(&identity->wake);
}

static void bring_first(struct cluster_identity *identity) {
    struct buffer content = {0};
    struct fault fault = {0};
    struct arena arena = {0};
    if (!identity->has_first || identity->first_asked || identity->stopping || !rpc_known_leader(identity->rpc)) return;
    int error = tls_folder_read(identity->data_dir, TLS_FILE_FIRST, &content, &fault);
    const Pb__TrustSetCommand *command =
        error ? NULL : message_unpack(&arena, &pb__trust_set_command__descriptor, buffer_slice(&content));
    if (error == CO_NOTFOUND) identity->has_first = false;
    else if (!command) {
        identity->has_first = false;
        log_error("certificates", "what coord init left cannot be read: init again in an empty folder error=\"%s\"",
                  error ? fault.text : "it does not decode");
    } else {
        identity->first_asked = true;
        identity->first.done = first_done;
        rpc_submit(identity->rpc, &identity->first, TRUST_SET, &command->base);
    }
    buffer_free(&content);
    arena_free(&arena);
}

/* CO_CONFLICT: it was brought in before, and the answer was lost. */
static void take_first(struct cluster_identity *identity, int error) {
    identity->first_asked = false;
    if (error && error != CO_CONFLICT) return;
    identity->has_first = false;
    uv_timer_set_repeat(&identity->timer, TICK_MS);
    tls_folder_remove(identity->data_dir, TLS_FILE_FIRST);
    log_info("certificates", "the cluster is closed: hosts join with tokens");
}

/* -- life ----------------------------------------------------------------------------------------------------------- */
static void on_wake(uv_async_t *wake) {
    struct cluster_identity *identity = wake->data;
    uv_mutex_lock(&identity->lock);
    bool answered = identity->answered, first_answered = identity->first_done, note_answered = identity->note_done;
    int note_error = identity->note_error;
    int error = identity->answer_error, first_error = identity->first_error;
    uint64_t index = identity->answer_index;
    struct buffer answer = {0};
    if (answered) answer = identity->answer, identity->answer = (struct buffer){0};
    identity->answered = identity->first_done = identity->note_done = false;
    uv_mutex_unlock(&identity->lock);
    if (first_answered) take_first(identity, first_error);
    if (note_answered) {
        identity->noting = false;
        if (note_error && !identity->stopping) note_own(identity);
    }
    if (answered) {
        identity->following = false;
        identity->follow_at_ms = error ? clock_mono_ms() + AGAIN_MS : 0;
        if (!error && !identity->stopping && answer.size) take_trust(identity, buffer_slice(&answer));
        else if (!error && !identity->stopping) take_open(identity);
        if (!error) identity->index = index;
        follow(identity);
    }
    buffer_free(&answer);
    finish_stop(identity);
}

static void tell_state(struct cluster_identity *identity, enum certificate_renewal_state state) {
    if (state == identity->told) return;
    identity->told = state;
    if (state == CERTIFICATE_RENEWAL_EXPIRED)
        log_error("certificates", "this node's certificate expired more than 30 days ago: it has to join anew");
    if (state == CERTIFICATE_RENEWAL_REFUSED)
        log_error("certificates", "the cluster refuses to renew this node's certificate: it has to join anew");
}

static void on_tick(uv_timer_t *timer) {
    struct cluster_identity *identity = timer->data;
    bring_first(identity);
    follow(identity);
    enum certificate_renewal_state state = certificate_renewal_state(&identity->renewal, now_s());
    atomic_store(&identity->state, state);
    tell_state(identity, state);
    bool first = state == CERTIFICATE_RENEWAL_NONE && identity->secures && now_s() >= identity->secure_at_s;
    if ((state == CERTIFICATE_RENEWAL_DUE || first) && !identity->working) begin_renewal(identity);
}

void cluster_identity_look(struct cluster_identity *identity) { on_tick(&identity->timer); }

struct cluster_identity *cluster_identity_start(uv_loop_t *loop, struct rpc *rpc,
                                                const struct cluster_identity_config *config) {
    struct cluster_identity *identity = mem_zalloc(sizeof *identity);
    identity->config = *config, identity->rpc = rpc;
    identity->data_dir = mem_strdup(config->data_dir), identity->node = mem_strdup(config->node);
    identity->datacenter = mem_strdup(config->datacenter),
    identity->bind = config->bind ? mem_strdup(config->bind) : NULL;
    identity->address = mem_strdup(config->address);
    struct buffer first = {0};
    identity->has_first = tls_folder_read(identity->data_dir, TLS_FILE_FIRST, &first, NULL) == CO_OK;
    buffer_free(&first);
    CHECK(uv_mutex_init(&identity->lock) == 0 && uv_timer_init(loop, &identity->timer) == 0);
    CHECK(uv_async_init(loop, &identity->wake, on_wake) == 0);
    identity->timer.data = identity->wake.data = identity;
    certificate_renewal_begin(&identity->renewal, random_u64(), identity->config.spread_s);
    take_files(identity);
    uv_timer_start(&identity->timer, on_tick, 0, identity->has_first ? FIRST_TICK_MS : TICK_MS);
    return identity;
}

static void freed(uv_handle_t *handle) {
    struct cluster_identity *identity = handle->data;
    if (--identity->closing > 0) return;
    void (*stopped)(void *data) = identity->stopped;
    void *data = identity->stopped_data;
    uv_mutex_destroy(&identity->lock);
    buffer_free(&identity->answer);
    free(identity->data_dir), free(identity->node), free(identity->datacenter), free(identity->bind),
        free(identity->address);
    free(identity);
    stopped(data);
}

static void finish_stop(struct cluster_identity *identity) {
    if (!identity->stopping || identity->working || identity->following || identity->first_asked || identity->noting ||
        identity->closing)
        return;
    identity->closing = 2;
    uv_close((uv_handle_t *)&identity->timer, freed);
    uv_close((uv_handle_t *)&identity->wake, freed);
}

void cluster_identity_stop(struct cluster_identity *identity, void (*stopped)(void *data), void *data) {
    if (!identity) {
        stopped(data);
        return;
    }
    identity->stopping = true, identity->stopped = stopped, identity->stopped_data = data;
    uv_timer_stop(&identity->timer);
    if (identity->following) rpc_fetch_cancel(identity->rpc, &identity->follow);
    finish_stop(identity);
}
