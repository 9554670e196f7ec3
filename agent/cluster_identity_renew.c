/* The certificate: asks the servers for a new one, or for the first one, in the thread pool. */
#include <stdio.h>

#include "agent/cluster_identity_internal.h"
#include "agent/enrolled.h"
#include "base/check.h"
#include "base/log.h"
#include "base/message.h"
#include "rpc/wire/enrol.h"

#define SECURE_AGAIN_S 2
#define ASK_MOST_MS    10000 /* one server */

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
    struct tls_life life = {cluster_identity_now_s() - ENROLLED_SKEW_S, cluster_identity_now_s() + ENROLLED_LIFE_S};
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
    struct cluster_identity_files loaded;
    int error = cluster_identity_read(identity->data_dir, &loaded, fault);
    struct tls_context_config config = {.chain = buffer_slice(&loaded.shown),
                                        .key = buffer_slice(&loaded.key),
                                        .trusted = buffer_slice(&loaded.cas),
                                        .only_tls13 = true};
    if (!error) error = tls_context_make(&config, context, fault);
    cluster_identity_files_free(&loaded);
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

void cluster_identity_note_own(struct cluster_identity *identity) {
    struct cluster_identity_files loaded;
    struct fault fault = {0};
    if (!identity->config.server || identity->noting || !authority_can_sign(identity->config.authority)) return;
    if (cluster_identity_read(identity->data_dir, &loaded, &fault) == CO_OK) {
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
    cluster_identity_files_free(&loaded);
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
        cluster_identity_take_files(identity);
        identity->secures = false;
        log_info("certificates", "this node has its first certificate, the cluster is being closed node=%s",
                 identity->node);
        cluster_identity_note_own(identity);
    } else if (!error) {
        cluster_identity_take_files(identity);
        certificate_renewal_succeeded(&identity->renewal, cluster_identity_now_s());
        log_info("certificates", "renewed node=%s", identity->node);
    } else if (identity->secures) {
        identity->secure_at_s = cluster_identity_now_s() + SECURE_AGAIN_S;
        log_warn("certificates", "no first certificate yet error=\"%s\"", identity->work_fault.text);
    } else if (!identity->stopping) {
        certificate_renewal_failed(&identity->renewal, error == CO_DENIED, cluster_identity_now_s());
        log_warn("certificates", "the certificate was not renewed, it counts until %lld error=\"%s\"",
                 (long long)identity->renewal.life.to_s, identity->work_fault.text);
    }
    cluster_identity_finish_stop(identity);
}

void cluster_identity_begin_renewal(struct cluster_identity *identity) {
    identity->work_fault = (struct fault){0};
    identity->work_arena = (struct arena){0};
    identity->server_count = rpc_servers(identity->rpc, &identity->work_arena, &identity->servers);
    identity->working = true;
    identity->work_wants = certificate_renewal_insists(&identity->renewal, cluster_identity_now_s());
    memcpy(identity->work_signs, identity->renewal.signs_now, TLS_PIN_SIZE);
    CHECK(uv_queue_work(identity->timer.loop, &identity->work, renew, renewed) == 0);
}
