#include <stdio.h>
#include <stdlib.h>

#include "agent/cluster_identity_internal.h"
#include "base/check.h"
#include "base/log.h"
#include "base/message.h"

#define TICK_MS       1000
#define FIRST_TICK_MS 50 /* until what coord init left is brought in: others wait for it to join */

/* -- what is in DATA/tls -------------------------------------------------------------------------------------------- */
void cluster_identity_files_free(struct cluster_identity_files *loaded) {
    buffer_free(&loaded->cas);
    buffer_free(&loaded->chain);
    buffer_free(&loaded->mode);
    buffer_free(&loaded->regions);
    buffer_free(&loaded->shown);
    buffer_free(&loaded->trusted);
    tls_wipe(&loaded->key);
}

int cluster_identity_read_more(const char *data_dir, enum tls_file file, struct buffer *content, struct fault *fault) {
    int error = tls_folder_read(data_dir, file, content, fault);
    return error == CO_NOTFOUND ? CO_OK : error;
}

int cluster_identity_read(const char *data_dir, struct cluster_identity_files *loaded, struct fault *fault) {
    *loaded = (struct cluster_identity_files){0};
    int error = tls_folder_recover(data_dir, fault);
    if (!error) error = tls_folder_read(data_dir, TLS_FILE_CERT, &loaded->chain, fault);
    if (!error) error = tls_folder_read(data_dir, TLS_FILE_KEY, &loaded->key, fault);
    if (!error) error = tls_folder_read(data_dir, TLS_FILE_CA, &loaded->cas, fault);
    if (!error) error = cluster_identity_read_more(data_dir, TLS_FILE_MODE, &loaded->mode, fault);
    if (!error) error = cluster_identity_read_more(data_dir, TLS_FILE_REGIONS, &loaded->regions, fault);
    if (!error) error = tls_certificate_read(buffer_slice(&loaded->chain), &loaded->own, fault);
    struct buffer second = {0};
    if (!error) error = tls_certificate_at(buffer_slice(&loaded->chain), 1, &second, fault);
    if (!error) error = tls_certificate_read(buffer_slice(&second), &loaded->signer, fault);
    if (!error) tls_chain_shown(buffer_slice(&loaded->chain), buffer_slice(&loaded->cas), &loaded->shown);
    buffer_free(&second);
    return error;
}

/* The CAs of other regions count between servers, for the names of those regions. */
static void take_regions(struct cluster_identity_files *loaded, struct security_rules *rules, struct arena *arena,
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

static int protect(const struct cluster_identity_config *config, struct cluster_identity_files *loaded,
                   struct fault *fault) {
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
    struct cluster_identity_files loaded;
    int error = cluster_identity_read(config->data_dir, &loaded, fault);
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
    cluster_identity_files_free(&loaded);
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

static void note_facts(struct cluster_identity *identity, const struct cluster_identity_files *loaded) {
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
        certificate_renewal_ca(&identity->renewal, pin, false, cluster_identity_now_s());
}

void cluster_identity_take_files(struct cluster_identity *identity) {
    struct cluster_identity_files loaded;
    struct fault fault = {0};
    int error = cluster_identity_read(identity->data_dir, &loaded, &fault);
    if (!error) error = protect(&identity->config, &loaded, &fault);
    if (error && error != CO_NOTFOUND)
        log_error("certificates", "the new certificate cannot be used, the one of before stays in use error=\"%s\"",
                  fault.text);
    if (!error) {
        certificate_renewal_certificate(&identity->renewal, loaded.own.life, loaded.signer.pin,
                                        cluster_identity_now_s());
        note_key(identity);
        note_facts(identity, &loaded);
    }
    cluster_identity_files_free(&loaded);
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
        if (note_error && !identity->stopping) cluster_identity_note_own(identity);
    }
    if (answered) cluster_identity_answered(identity, error, buffer_slice(&answer), index);
    buffer_free(&answer);
    cluster_identity_finish_stop(identity);
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
    cluster_identity_follow(identity);
    enum certificate_renewal_state state = certificate_renewal_state(&identity->renewal, cluster_identity_now_s());
    atomic_store(&identity->state, state);
    tell_state(identity, state);
    bool first =
        state == CERTIFICATE_RENEWAL_NONE && identity->secures && cluster_identity_now_s() >= identity->secure_at_s;
    if ((state == CERTIFICATE_RENEWAL_DUE || first) && !identity->working) cluster_identity_begin_renewal(identity);
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
    cluster_identity_take_files(identity);
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

void cluster_identity_finish_stop(struct cluster_identity *identity) {
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
    cluster_identity_finish_stop(identity);
}
