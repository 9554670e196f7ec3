#include "rpc/wire/security.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

struct security {
    pthread_mutex_t lock; /* of `rules` */
    struct security_rules rules;
    struct {
        char domain[TLS_DOMAIN_SIZE + 1];
        struct buffer cas;
    } anchors[SECURITY_REGIONS_MAX + 1]; /* under the lock, too */
    size_t anchor_count;
    struct tls_slot *slot;
    _Atomic uint64_t generation;
    _Atomic uint64_t plain_until_ms; /* 0: no cluster was closed */
};

struct security *security_new(void) {
    struct security *security = mem_zalloc(sizeof *security);
    CHECK(pthread_mutex_init(&security->lock, NULL) == 0);
    security->rules = (struct security_rules){.kind = SECURITY_OPEN, .takes_plain = true, .dials_plain = true};
    security->slot = tls_slot_new();
    security->generation = 1;
    return security;
}

static void forget_anchors(struct security *security) {
    for (size_t i = 0; i < security->anchor_count; i++) buffer_free(&security->anchors[i].cas);
    security->anchor_count = 0;
}

void security_free(struct security *security) {
    if (!security) return;
    forget_anchors(security);
    tls_slot_free(security->slot);
    pthread_mutex_destroy(&security->lock);
    free(security);
}

void security_set(struct security *security, const struct security_rules *rules, struct tls_context *context) {
    security_set_anchored(security, rules, context, NULL, 0);
}

void security_set_anchored(struct security *security, const struct security_rules *rules, struct tls_context *context,
                           const struct security_anchor *anchors, size_t count) {
    CHECK(count <= ARRAY_COUNT(security->anchors));
    CHECK(rules->kind == SECURITY_OPEN || context || rules->dials_plain);
    CHECK(rules->region_count <= SECURITY_REGIONS_MAX);
    pthread_mutex_lock(&security->lock);
    bool closes = security->rules.secures && !rules->takes_plain;
    if (closes) security->plain_until_ms = clock_mono_ms() + SECURITY_KEEPS_MS;
    security->rules = *rules;
    forget_anchors(security);
    for (size_t i = 0; i < count; i++) {
        memcpy(security->anchors[i].domain, anchors[i].domain, sizeof anchors[i].domain);
        buffer_append(&security->anchors[i].cas, anchors[i].cas.data, anchors[i].cas.size);
    }
    security->anchor_count = count;
    tls_slot_set(security->slot, context);
    pthread_mutex_unlock(&security->lock);
    atomic_fetch_add(&security->generation, 1);
}

void security_get(struct security *security, struct security_rules *rules) {
    pthread_mutex_lock(&security->lock);
    *rules = security->rules;
    pthread_mutex_unlock(&security->lock);
}

struct tls_slot *security_slot(struct security *security) {
    return security->slot;
}

bool security_keeps_plain(const struct security *security) {
    return clock_mono_ms() < atomic_load(&security->plain_until_ms);
}

uint64_t security_generation(const struct security *security) {
    bool over = security->plain_until_ms && !security_keeps_plain(security);
    return 2 * atomic_load(&security->generation) + over;
}

/* -- links -------------------------------------------------------------------------------------------------------- */
static const char *const member_protocols[] = {SECURITY_MEMBER, NULL};
static const char *const all_protocols[] = {SECURITY_MEMBER, SECURITY_JOIN, SECURITY_RENEW, SECURITY_SECURE, NULL};

bool security_dial(struct security *security, struct link_security *link) {
    *link = (struct link_security){0};
    if (!security) return false;
    struct security_rules rules;
    security_get(security, &rules);
    if (rules.kind == SECURITY_OPEN || rules.dials_plain) return false;
    bool shared = rules.kind == SECURITY_SHARED_KEY;
    link->slot = security->slot;
    link->session = (struct tls_session_config){
        .peer = shared ? TLS_PEER_UNASKED : TLS_PEER_REQUIRED, .psk = shared, .protocols = member_protocols};
    return true;
}

bool security_mixed(struct security *security) {
    struct security_rules rules;
    if (!security) return false;
    security_get(security, &rules);
    return rules.secures;
}

/* Members show certificates; who comes for one has none, or one that has expired. */
static void chosen(void *data, const char *protocol, struct tls_session_config *config) {
    (void)data;
    if (strcmp(protocol, SECURITY_RENEW) == 0) config->peer = TLS_PEER_REQUIRED, config->grace_s = SECURITY_GRACE_S;
    else if (strcmp(protocol, SECURITY_MEMBER) != 0) config->peer = TLS_PEER_UNASKED;
}

bool security_accept(struct security *security, uint8_t refusal_type, struct link_security *link) {
    *link = (struct link_security){0};
    if (!security) return false;
    struct security_rules rules;
    security_get(security, &rules);
    if (rules.kind == SECURITY_OPEN) return false;
    link->slot = security->slot;
    link->session.peer = rules.asks_clients                  ? TLS_PEER_REQUIRED
                         : rules.kind == SECURITY_SHARED_KEY ? TLS_PEER_UNASKED
                                                             : TLS_PEER_ASKED;
    link->session.protocols = rules.kind == SECURITY_CLUSTER ? all_protocols : member_protocols;
    link->session.chosen = chosen;
    link->allow_plain = rules.takes_plain;
    link->refusal_type = refusal_type;
    link->refusal = "this cluster takes encrypted connections only: bring this host in with `coord join TOKEN ADDRESS`";
    if (rules.kind == SECURITY_SHARED_KEY)
        link->refusal = "this cluster is encrypted: give this host its key (encrypt)";
    if (rules.kind == SECURITY_OWN_CA)
        link->refusal = "this cluster takes encrypted connections only: give this host ca_file, cert_file and key_file";
    return true;
}

/* With several CAs in the context the handshake has only shown that one of them signed. */
static bool is_foreign(struct security *security, struct tls_session *session, bool dialled,
                       const struct tls_certificate *certificate) {
    struct slice chain[TLS_CHAIN_MOST];
    size_t count = 0;
    bool fits = false;
    struct tls_certificate read;
    char why[160];
    for (struct slice next; count < TLS_CHAIN_MOST && (next = tls_session_peer_chain(session, count)).size; count++)
        chain[count] = next;
    pthread_mutex_lock(&security->lock);
    bool only_one = security->anchor_count < 2;
    for (size_t i = 0; i < security->anchor_count && !only_one && !fits; i++) {
        if (strcmp(security->anchors[i].domain, certificate->domain) != 0) continue;
        struct tls_rules rules = {.trusted = buffer_slice(&security->anchors[i].cas),
                                  .now_s = (int64_t)time(NULL),
                                  .grace_s = SECURITY_GRACE_S,
                                  .as_server = dialled};
        fits = tls_judge(&rules, chain, count, &read, why) == TLS_TRUSTED;
    }
    pthread_mutex_unlock(&security->lock);
    return !only_one && !fits;
}

struct security_seen security_see(struct security *security, struct link *link) {
    struct tls_session *session = link_session(link);
    struct security_seen seen = {.dialled = link_dialled(link),
                                 .encrypted = link_encrypted(link),
                                 .certificate = link_peer(link),
                                 .der = session ? tls_session_peer_der(session) : slice_make(NULL, 0)};
    seen.foreign = security && seen.certificate && seen.certificate->role != TLS_ROLE_NONE &&
                   is_foreign(security, session, seen.dialled, seen.certificate);
    return seen;
}

/* -- who it is ---------------------------------------------------------------------------------------------------- */
static const char *say(char why[SECURITY_WHY], const char *text) {
    snprintf(why, SECURITY_WHY, "%s", text);
    return why;
}

static const struct security_region *region_of(const struct security_rules *rules, const char *name) {
    for (size_t i = 0; i < rules->region_count; i++)
        if (strcmp(rules->regions[i].name, name) == 0) return &rules->regions[i];
    return NULL;
}

/* The certificate is of the cluster's own CA, or of the region's. `region` empty: of this one. */
static const char *judge_domain(const struct security_rules *rules, const struct tls_certificate *certificate,
                                bool foreign, const char *region, char why[SECURITY_WHY]) {
    const char *domain = rules->domain;
    if (region[0]) {
        const struct security_region *known = region_of(rules, region);
        if (!known) {
            snprintf(why, SECURITY_WHY, "the CA of region %.63s is not trusted here: `coord region trust` says how",
                     region);
            return why;
        }
        domain = known->domain;
    }
    if (certificate->role == TLS_ROLE_NONE) return say(why, "its certificate names no node of a cluster");
    if (foreign) return say(why, "its certificate is signed by the CA of another cluster than it names");
    if (strcmp(certificate->domain, domain) == 0) return NULL;
    return say(why, region[0] ? "its certificate is of another cluster than that region's"
                              : "its certificate is of another cluster");
}

static const char *judge_server(const struct tls_certificate *certificate, char why[SECURITY_WHY]) {
    if (certificate->role == TLS_ROLE_SERVER) return NULL;
    snprintf(why, SECURITY_WHY, "its certificate is that of client agent %.128s, no server's", certificate->node);
    return why;
}

/* `region` empty: this one. */
static const char *judge_named(const struct security_rules *rules, const struct security_seen *seen, const char *region,
                               char why[SECURITY_WHY]) {
    char name[352];
    if (!rules->checks_servers) return NULL;
    snprintf(name, sizeof name, "server.%.63s.%s", region[0] ? region : rules->datacenter, rules->dns_domain);
    if (seen->certificate && tls_certificate_names(seen->der, name)) return NULL;
    snprintf(why, SECURITY_WHY, "its certificate does not have the name %.128s (verify_server_hostname)", name);
    return why;
}

/* Is there a certificate, or need there be none? Sets *over when nothing more is to be judged. */
static const char *judge_shown(const struct security_rules *rules, const struct security_seen *seen, bool *over,
                               char why[SECURITY_WHY]) {
    *over = true;
    bool plain = seen->dialled ? rules->dials_plain || rules->secures : rules->takes_plain;
    if (!seen->encrypted) return plain || seen->kept ? NULL : say(why, "it is not encrypted, and this cluster is");
    if (rules->kind == SECURITY_OPEN || rules->kind == SECURITY_SHARED_KEY) return NULL;
    if (!seen->certificate && (rules->kind == SECURITY_CLUSTER || (rules->asks_clients && !seen->dialled)))
        return say(why, "it shows no certificate");
    *over = !seen->certificate && !rules->checks_servers;
    return NULL;
}

const char *security_judge(const struct security_rules *rules, const struct security_seen *seen,
                           const Pb__PeerHello *hello, char why[SECURITY_WHY]) {
    bool over;
    const char *fault = judge_shown(rules, seen, &over, why);
    if (fault || over) return fault;
    if (rules->kind == SECURITY_OWN_CA) /* a link from another region's server speaks as a client agent does */
        return hello->agent && !hello->region[0] ? NULL : judge_named(rules, seen, hello->region, why);
    const struct tls_certificate *certificate = seen->certificate;
    fault = judge_domain(rules, certificate, seen->foreign, hello->region, why);
    /* A link from another region's server speaks as a client agent does. */
    if (!fault && (!hello->agent || hello->region[0])) fault = judge_server(certificate, why);
    if (fault) return fault;
    if (slice_equal_nocase(slice_text(certificate->node), slice_text(hello->node))) return NULL;
    snprintf(why, SECURITY_WHY, "it says that it is node %.80s, and its certificate is that of %.80s", hello->node,
             certificate->node);
    return why;
}

const char *security_judge_dialled(const struct security_rules *rules, const struct security_seen *seen,
                                   const char *region, char why[SECURITY_WHY]) {
    bool over;
    const char *fault = judge_shown(rules, seen, &over, why);
    if (fault || over) return fault;
    if (rules->kind == SECURITY_OWN_CA) return judge_named(rules, seen, region ? region : "", why);
    fault = judge_domain(rules, seen->certificate, seen->foreign, region ? region : "", why);
    return fault ? fault : judge_server(seen->certificate, why);
}
