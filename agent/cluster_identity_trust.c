/* Follows what the cluster trusts: asks for it and waits for changes, keeps it in DATA/tls, and takes the key of a new
 * CA. */
#include <stdio.h>

#include "agent/cluster_identity_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"

#define FOLLOW_MS 300000 /* one question about the cluster's trust waits so long */
#define AGAIN_MS  1000   /* after one that failed */

/* *changed: other regions are trusted than before. */
static int keep_regions(struct cluster_identity *identity, const Pb__Trust *trust, bool *changed, struct fault *fault) {
    struct arena arena = {0};
    struct buffer known = {0};
    Pb__Trust only = PB__TRUST__INIT;
    only.regions = trust->regions, only.n_regions = trust->n_regions;
    struct slice packed = message_pack(&arena, &only.base);
    int error = cluster_identity_read_more(identity->data_dir, TLS_FILE_REGIONS, &known, fault);
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
    else if (!same || (was_both && !both) || others) cluster_identity_take_files(identity);
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
        certificate_renewal_ca(&identity->renewal, trust->cas[0]->pin.data, lacks_key, cluster_identity_now_s());
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

void cluster_identity_follow(struct cluster_identity *identity) {
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

void cluster_identity_answered(struct cluster_identity *identity, int error, struct slice answer, uint64_t index) {
    identity->following = false;
    identity->follow_at_ms = error ? clock_mono_ms() + AGAIN_MS : 0;
    if (!error && !identity->stopping && answer.size) take_trust(identity, answer);
    else if (!error && !identity->stopping) take_open(identity);
    if (!error) identity->index = index;
    cluster_identity_follow(identity);
}
