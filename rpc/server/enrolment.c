#include "rpc/server/enrolment.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/message.h"
#include "registry/trust.h"
#include "rpc/server/renewal_notes.h"
#include "rpc/wire/frame_unpack.h"

#define ANSWERED_MS   15000 /* a connection is kept no longer, answered or not */
#define SKEW_S        300   /* a certificate counts from so long ago, for hosts whose clocks are behind */
#define CAS_MAX       (2 * TRUST_CAS_MAX)
#define ENROLLING_MAX 256 /* questions that wait for a write; more are told to ask again. Renewals wait for none */

struct enrolment {
    struct rpc *rpc;
    struct enrolment_config config;
    struct list all; /* of struct enrolling, the oldest first */
    size_t count, writing;
    struct renewal_notes *notes; /* NULL: they have stopped */
    void (*stopped)(void *data); /* NULL: it runs */
    void *stopped_data;
};

/* One question, until its link and its write are over. */
struct enrolling {
    struct list link;
    struct enrolment *enrolment;
    struct link *wire; /* NULL: it has ended */
    uint64_t since_ms;
    struct rpc_write write;
    bool writing;
    struct loop_task written;
    int outcome;
    char why[256];
    struct arena arena; /* of the answer */
    Pb__EnrolAnswer answer;
    char node[TLS_NODE_MAX + 1];
    enum tls_role role;
    char serial[41];
    Pb__CertificateInfo info; /* of a renewal; its members lie here and in the arena */
    bool awaits;              /* that the node has kept it */
};

struct enrolment *enrolment_new(struct rpc *rpc, const struct enrolment_config *config) {
    struct enrolment *enrolment = mem_zalloc(sizeof *enrolment);
    CHECK(config->authority && config->security && config->life_s > SKEW_S / 10);
    enrolment->rpc = rpc, enrolment->config = *config;
    enrolment->notes = renewal_notes_new(rpc);
    list_init(&enrolment->all);
    return enrolment;
}

static void finish_stop(struct enrolment *enrolment) {
    if (!enrolment->stopped || enrolment->count > 0 || enrolment->notes) return;
    void (*stopped)(void *data) = enrolment->stopped;
    void *data = enrolment->stopped_data;
    free(enrolment);
    stopped(data);
}

static void end_if_over(struct enrolling *enrolling) {
    if (enrolling->wire || enrolling->writing) return;
    struct enrolment *enrolment = enrolling->enrolment;
    enrol_wipe(&enrolling->answer);
    arena_free(&enrolling->arena);
    list_remove(&enrolling->link);
    enrolment->count--;
    free(enrolling);
    finish_stop(enrolment);
}

void enrolment_tick(struct enrolment *enrolment, uint64_t now_ms) {
    if (enrolment->notes) renewal_notes_tick(enrolment->notes, now_ms);
}

static void notes_stopped(void *data) {
    struct enrolment *enrolment = data;
    enrolment->notes = NULL;
    finish_stop(enrolment);
}

void enrolment_stop(struct enrolment *enrolment, void (*stopped)(void *data), void *data) {
    enrolment->stopped = stopped, enrolment->stopped_data = data;
    LIST_FOREACH(item, &enrolment->all) {
        struct link *wire = LIST_ENTRY(item, struct enrolling, link)->wire;
        if (wire) link_close(wire);
    }
    renewal_notes_stop(enrolment->notes, notes_stopped, enrolment);
}

/* -- the answer ---------------------------------------------------------------------------------------------------- */
static void tell(struct enrolling *enrolling) {
    char remote[64];
    if (!enrolling->wire) return;
    link_remote(enrolling->wire, remote);
    enrolling->answer.outcome = (uint32_t)enrolling->outcome;
    if (enrolling->outcome) {
        enrol_wipe(&enrolling->answer);
        pb__enrol_answer__init(&enrolling->answer);
        enrolling->answer.outcome = (uint32_t)enrolling->outcome, enrolling->answer.text = enrolling->why;
        log_warn("certificates", "refused remote=%s node=%s reason=\"%s\"", remote, enrolling->node, enrolling->why);
    } else {
        log_info("certificates", "issued node=%s role=%s serial=%s remote=%s", enrolling->node,
                 tls_role_name(enrolling->role), enrolling->serial, remote);
    }
    link_tell(enrolling->wire, ENROL_ANSWER, &enrolling->answer.base);
    link_flush(enrolling->wire);
    if (enrolling->awaits && !enrolling->outcome) return;
    if (link_backlog(enrolling->wire) == 0) link_close(enrolling->wire); /* else close_old does, or the asker */
}

static int refuse(struct enrolling *enrolling, int error, const char *why) {
    enrolling->outcome = error;
    snprintf(enrolling->why, sizeof enrolling->why, "%s", why);
    for (char *at = enrolling->why; *at; at++)
        if ((unsigned char)*at < ' ' || *at == '"' || *at == 127) *at = '?';
    return error;
}

static char *text_of(struct arena *arena, const struct buffer *buffer) {
    return arena_strndup(arena, buffer->data ? buffer->data : "", buffer->size);
}

/* Whom the cluster trusts, where its servers are, and whether it has access control. */
static void fill_cluster(struct enrolling *enrolling, const Pb__Trust *trust) {
    struct arena *arena = &enrolling->arena;
    Pb__EnrolAnswer *answer = &enrolling->answer;
    answer->cas = arena_alloc(arena, CAS_MAX * sizeof *answer->cas);
    for (size_t i = 0; i < trust->n_cas; i++) {
        answer->cas[answer->n_cas++] = trust->cas[i]->certificate;
        if (trust->cas[i]->cross[0]) answer->cas[answer->n_cas++] = trust->cas[i]->cross;
    }
    answer->domain = trust->domain, answer->mode = trust->mode;
    const struct enrolment_config *config = &enrolling->enrolment->config;
    answer->datacenter = (char *)(uintptr_t)config->datacenter;
    if (config->acl_default_policy) answer->acl_default_policy = (char *)(uintptr_t)config->acl_default_policy;
    const char **addresses;
    answer->n_servers = rpc_peers(enrolling->enrolment->rpc, arena, &addresses);
    answer->servers = (char **)(uintptr_t)addresses;
}

/* The CA's key goes to servers, and only where the certificate or the token of the connection says that it is one. While
 * an open cluster is being closed nobody is known well enough. */
static void fill_keys(struct enrolling *enrolling) {
    struct buffer certificate = {0}, key = {0}, secret = {0};
    if (authority_copy(enrolling->enrolment->config.authority, &certificate, &key, &secret)) {
        struct arena *arena = &enrolling->arena;
        enrolling->answer.ca_certificate = text_of(arena, &certificate);
        enrolling->answer.ca_key = message_bytes(slice_copy(arena, buffer_slice(&key)));
        enrolling->answer.secret_key = message_bytes(slice_copy(arena, buffer_slice(&secret)));
    }
    buffer_free(&certificate);
    tls_wipe(&key);
    tls_wipe(&secret);
}

/* -- signing ------------------------------------------------------------------------------------------------------- */
/* A name that ends with the cluster's own domain could be that of its servers. */
static const char *name_fault(const struct enrolment *enrolment, const char *node) {
    size_t size = strlen(node), end = strlen(enrolment->config.dns_domain);
    if (size == 0 || size > TLS_NODE_MAX) return "the node's name has 1 to 255 bytes";
    bool inside =
        size > end && strcasecmp(node + size - end, enrolment->config.dns_domain) == 0 && node[size - end - 1] == '.';
    if (inside || strcasecmp(node, "localhost") == 0)
        return "this name belongs to the cluster itself; choose another (-node)";
    return NULL;
}

static void remote_ip(struct link *wire, char ip[64]) {
    link_remote(wire, ip);
    char *end = strrchr(ip, ':');
    if (end) *end = 0;
    size_t size = strlen(ip);
    if (ip[0] == '[' && size >= 2) memmove(ip, ip + 1, size - 2), ip[size - 2] = 0;
}

/* Adds the certificates above the CA that signed, for clients that know a root above it alone. */
static void append_above(const Pb__Trust *trust, const uint8_t signer[TLS_PIN_SIZE], struct buffer *chain) {
    for (size_t i = 0; i < trust->n_cas; i++)
        if (slice_equal(message_slice(trust->cas[i]->pin), slice_make(signer, TLS_PIN_SIZE)))
            buffer_append_text(chain, trust->cas[i]->above);
}

/* Signs, and describes the certificate for the replicated state. */
static int sign(struct enrolling *enrolling, const Pb__EnrolRequest *request, const Pb__Trust *trust,
                Pb__CertificateInfo *info) {
    const struct enrolment_config *config = &enrolling->enrolment->config;
    struct fault fault = {0};
    char ip[64];
    remote_ip(enrolling->wire, ip);
    const char *addresses[] = {ip, NULL};
    struct tls_subject subject = {.domain = trust->domain,
                                  .role = enrolling->role,
                                  .node = enrolling->node,
                                  .datacenter = config->datacenter,
                                  .dns_domain = config->dns_domain,
                                  .addresses = addresses};
    int64_t now_s = (int64_t)time(NULL);
    struct tls_life life = {now_s - SKEW_S, now_s + config->life_s};
    struct buffer chain = {0};
    struct tls_certificate made;
    uint8_t *pins = arena_alloc(&enrolling->arena, 2 * TLS_PIN_SIZE);
    int error = authority_sign(config->authority, message_slice(request->request), &subject, life, &chain, &fault);
    if (!error) error = tls_certificate_read(buffer_slice(&chain), &made, &fault);
    if (!error && !authority_pin(config->authority, pins + TLS_PIN_SIZE)) error = CO_AGAIN;
    if (error == CO_NOTFOUND) error = CO_AGAIN; /* another server has the key */
    if (error) {
        buffer_free(&chain);
        return refuse(enrolling, error, fault.text[0] ? fault.text : "this server does not have the CA's key yet");
    }
    append_above(trust, pins + TLS_PIN_SIZE, &chain);
    enrolling->answer.chain = text_of(&enrolling->arena, &chain);
    buffer_free(&chain);
    memcpy(pins, made.pin, TLS_PIN_SIZE);
    memcpy(enrolling->serial, made.serial, sizeof enrolling->serial);
    info->node = enrolling->node, info->server = enrolling->role == TLS_ROLE_SERVER;
    info->serial = enrolling->serial, info->from_s = made.life.from_s, info->to_s = made.life.to_s;
    info->pin = (ProtobufCBinaryData){TLS_PIN_SIZE, pins};
    info->ca_pin = (ProtobufCBinaryData){TLS_PIN_SIZE, pins + TLS_PIN_SIZE};
    return CO_OK;
}

/* -- the write ----------------------------------------------------------------------------------------------------- */
static void written_taken(struct loop_task *task) {
    struct enrolling *enrolling = CONTAINER_OF(task, struct enrolling, written);
    enrolling->writing = false;
    enrolling->enrolment->writing--;
    tell(enrolling);
    end_if_over(enrolling);
}

/* Another thread. */
static void written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct enrolling *enrolling = CONTAINER_OF(write, struct enrolling, write);
    if (error) refuse(enrolling, error, co_strerror(error));
    else if (result->error) refuse(enrolling, result->error, result->text ? result->text : co_strerror(result->error));
    rpc_on_loop(enrolling->enrolment->rpc, &enrolling->written, written_taken);
}

static void submit(struct enrolling *enrolling, uint8_t command, const ProtobufCMessage *message) {
    enrolling->writing = true;
    enrolling->enrolment->writing++;
    enrolling->write.done = written;
    rpc_submit(enrolling->enrolment->rpc, &enrolling->write, command, message);
}

/* -- the three questions -------------------------------------------------------------------------------------------- */
static int join(struct enrolling *enrolling, const Pb__EnrolRequest *request, const Pb__Trust *trust) {
    struct join_token token = {.role = request->server ? TLS_ROLE_SERVER : TLS_ROLE_AGENT};
    uint8_t hash[JOIN_TOKEN_HASH_SIZE];
    Pb__CertificateInfo info = PB__CERTIFICATE_INFO__INIT;
    if (request->token_id.len != JOIN_TOKEN_ID_SIZE || request->token_secret.len != JOIN_TOKEN_SECRET_SIZE)
        return refuse(enrolling, CO_DENIED, "no join token");
    memcpy(token.id, request->token_id.data, sizeof token.id);
    memcpy(token.secret, request->token_secret.data, sizeof token.secret);
    bool hashed = authority_hash(enrolling->enrolment->config.authority, &token, hash);
    explicit_bzero(&token, sizeof token);
    if (!hashed) return refuse(enrolling, CO_AGAIN, "this server does not have the CA's key yet");
    int error = sign(enrolling, request, trust, &info);
    if (error) return error;
    fill_cluster(enrolling, trust);
    if (enrolling->role == TLS_ROLE_SERVER) fill_keys(enrolling);
    Pb__TrustJoinCommand command = PB__TRUST_JOIN_COMMAND__INIT;
    command.id = request->token_id, command.certificate = &info;
    command.hash = (ProtobufCBinaryData){sizeof hash, hash};
    submit(enrolling, TRUST_JOIN, &command.base);
    return CO_AGAIN;
}

static int renew(struct enrolling *enrolling, const Pb__EnrolRequest *request, const Pb__Trust *trust,
                 struct store_txn *txn) {
    const struct tls_certificate *shown = link_peer(enrolling->wire);
    uint8_t pin[TLS_PIN_SIZE];
    struct fault fault = {0};
    if (!shown || strcmp(shown->domain, trust->domain) != 0 || shown->role == TLS_ROLE_NONE)
        return refuse(enrolling, CO_DENIED, "its certificate is not of this cluster");
    if (shown->role != enrolling->role || strcasecmp(shown->node, enrolling->node) != 0)
        return refuse(enrolling, CO_DENIED, "a certificate is renewed for the same node only");
    const char *why =
        trust_refuses(txn, shown->role == TLS_ROLE_SERVER, shown->node, slice_make(shown->pin, sizeof shown->pin));
    if (why) return refuse(enrolling, CO_DENIED, why);
    struct security_seen seen = security_see(enrolling->enrolment->config.security, enrolling->wire);
    if (seen.foreign) return refuse(enrolling, CO_DENIED, "its certificate is signed by the CA of another cluster");
    /* Somebody may have signed it with a key of the CA that was stolen. A server that is behind does not know a node yet. */
    if (!trust_knows(txn, shown->role == TLS_ROLE_SERVER, shown->node))
        return refuse(enrolling, CO_AGAIN, "this server does not know that the cluster gave this node a certificate");
    int error = tls_request_check(message_slice(request->request), pin, &fault);
    if (error) return refuse(enrolling, error, fault.text);
    if (memcmp(pin, shown->pin, sizeof pin) != 0)
        return refuse(enrolling, CO_DENIED, "a node keeps its key when it renews");
    bool any = request->ca_pin.len == 0, there = authority_pin(enrolling->enrolment->config.authority, pin);
    if (!any && !(there && slice_equal(slice_make(pin, sizeof pin), message_slice(request->ca_pin))))
        return refuse(enrolling, CO_AGAIN, "this server does not have the key of the CA that signs now yet");
    pb__certificate_info__init(&enrolling->info);
    error = sign(enrolling, request, trust, &enrolling->info);
    if (error) return error;
    fill_cluster(enrolling, trust);
    if (enrolling->role == TLS_ROLE_SERVER && trust->mode == TRUST_CLOSED) fill_keys(enrolling);
    enrolling->awaits = true;
    return CO_OK;
}

static int secure(struct enrolling *enrolling, const Pb__EnrolRequest *request, const Pb__Trust *trust) {
    Pb__CertificateInfo info = PB__CERTIFICATE_INFO__INIT;
    if (trust->mode != TRUST_BOTH) return refuse(enrolling, CO_DENIED, "this cluster is closed: it takes join tokens");
    int error = sign(enrolling, request, trust, &info);
    if (error) return error;
    fill_cluster(enrolling, trust);
    Pb__TrustRenewedCommand command = PB__TRUST_RENEWED_COMMAND__INIT;
    command.certificate = &info, command.any = true;
    submit(enrolling, TRUST_RENEWED, &command.base);
    return CO_AGAIN;
}

/* CO_AGAIN: the answer comes after a write. */
static int decide(struct enrolling *enrolling, const Pb__EnrolRequest *request, const char *protocol) {
    struct enrolment *enrolment = enrolling->enrolment;
    const char *fault = name_fault(enrolment, request->node);
    if (fault) return refuse(enrolling, CO_INVALID, fault);
    snprintf(enrolling->node, sizeof enrolling->node, "%s", request->node);
    enrolling->role = request->server ? TLS_ROLE_SERVER : TLS_ROLE_AGENT;
    if (request->datacenter[0] && strcasecmp(request->datacenter, enrolment->config.datacenter) != 0) {
        snprintf(enrolling->why, sizeof enrolling->why, "this is datacenter %.64s, not %.64s",
                 enrolment->config.datacenter, request->datacenter);
        enrolling->outcome = CO_INVALID;
        return CO_INVALID;
    }
    struct store_txn *txn = store_read(enrolment->rpc->loop_reader);
    const Pb__Trust *trust = trust_read(txn, &enrolling->arena);
    int error;
    if (!trust) error = refuse(enrolling, CO_AGAIN, "this server does not know yet whom the cluster trusts");
    else if (strcmp(protocol, SECURITY_JOIN) == 0) error = join(enrolling, request, trust);
    else if (strcmp(protocol, SECURITY_RENEW) == 0) error = renew(enrolling, request, trust, txn);
    else error = secure(enrolling, request, trust);
    store_read_done(enrolment->rpc->loop_reader);
    return error;
}

/* -- the link ------------------------------------------------------------------------------------------------------ */
/* One question a connection; after that of a renewal the node says that it has kept the answer. */
static void on_frame(void *data, struct link *wire, uint8_t type, struct slice payload) {
    struct enrolling *enrolling = data;
    if (enrolling->awaits && type == ENROL_KEPT && payload.size == 0 && !enrolling->enrolment->rpc->stopping)
        renewal_notes_add(enrolling->enrolment->notes, &enrolling->info);
    enrolling->awaits = false;
    link_close(wire);
}

static void on_closed(void *data, struct link *wire, int error) {
    struct enrolling *enrolling = data;
    (void)wire, (void)error;
    enrolling->wire = NULL;
    end_if_over(enrolling);
}

/* The asker closes when it has its answer. One that does not is not kept for long. */
static void close_old(struct enrolment *enrolment, uint64_t now_ms) {
    LIST_FOREACH(item, &enrolment->all) {
        struct enrolling *old = LIST_ENTRY(item, struct enrolling, link);
        if (now_ms - old->since_ms < ANSWERED_MS) return;
        if (old->wire && !old->writing) link_close(old->wire);
    }
}

void enrolment_take(struct enrolment *enrolment, struct link *link, uint8_t type, struct slice payload) {
    static const struct link_callbacks callbacks = {.frame = on_frame, .closed = on_closed};
    struct enrolling *enrolling = mem_zalloc(sizeof *enrolling);
    uint64_t now_ms = clock_mono_ms();
    close_old(enrolment, now_ms);
    enrolling->enrolment = enrolment, enrolling->wire = link, enrolling->since_ms = now_ms;
    pb__enrol_answer__init(&enrolling->answer);
    list_append(&enrolment->all, &enrolling->link);
    enrolment->count++;
    link_adopt(link, &callbacks, enrolling);
    link_limit(link, ENROL_FRAME_MAX);
    link_keep_secret(link);
    const char *protocol = link_protocol(link);
    CHECK(protocol);
    Pb__EnrolRequest *request =
        type == ENROL_REQUEST ? frame_unpack(&pb__enrol_request__descriptor, payload, NULL) : NULL;
    explicit_bzero((char *)(uintptr_t)payload.data, payload.size); /* a token's secret; the link reads on behind it */
    int error;
    if (!request) error = refuse(enrolling, CO_CORRUPT, "not a question for a certificate");
    else if (enrolment->writing >= ENROLLING_MAX && strcmp(protocol, SECURITY_RENEW) != 0)
        error = refuse(enrolling, CO_BUSY, "too many ask at once; ask again");
    else error = decide(enrolling, request, protocol);
    if (!enrolling->writing) tell(enrolling);
    (void)error;
    if (request) {
        if (request->token_secret.len) explicit_bzero(request->token_secret.data, request->token_secret.len);
        frame_drop(request);
    }
}
