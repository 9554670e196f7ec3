/* Clusters of three servers and five agents through months of virtual time, by the rules of agent/certificate_renewal.h
 * and with real certificates and judgements: rotations at any server, lost answers and records, nodes away for days,
 * removed nodes, restarts at any moment. No living member is locked out for longer than it takes to ask again; nobody
 * renews in a loop; a key of the newest CA is found or made; in the end the old CAs are gone, and whoever was removed
 * stays out. A failure names its seed: COORD_SEED=N runs that one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/certificate_renewal.h"
#include "base/check.h"
#include "base/memory.h"
#include "rpc/wire/security.h"
#include "tests/lib/identity.h"

enum { SERVERS = 3, NODES = 8, CAS = 8, SEEDS = 1000 };
#define MINUTE   INT64_C(60)
#define HOUR     (60 * MINUTE)
#define DAY      (24 * HOUR)
#define WEEK     (7 * DAY)
#define SKEW     300 /* as the server issues them */
#define SPREAD   60
#define NEVER    INT64_MAX
#define PATIENCE (3 * CERTIFICATE_RENEWAL_RETRY_MOST_S + SPREAD)

static uint64_t seed;
#define EXPECT(condition, ...)                                                  \
    do {                                                                        \
        if (!(condition)) {                                                     \
            char said[128];                                                     \
            snprintf(said, sizeof said, __VA_ARGS__);                           \
            cr_assert(false, "COORD_SEED=%lu: %s: %s", seed, #condition, said); \
        }                                                                       \
    } while (0)

/* -- real certificates: once for all seeds, because time is judged apart from them ---------------------------------- */
static struct buffer ca_key[CAS], ca[CAS], crossed[CAS][CAS], request[NODES], chain_of[NODES][CAS];
static uint8_t ca_pin[CAS][TLS_PIN_SIZE];
static char domain[TLS_DOMAIN_SIZE + 1];

static struct tls_life long_life(void) {
    int64_t now_s = (int64_t)time(NULL);
    return (struct tls_life){now_s - DAY, now_s + 100 * DAY};
}

static struct slice cross(int of, int by) {
    struct tls_issuer issuer = {buffer_slice(&ca[by]), buffer_slice(&ca_key[by])};
    if (!crossed[of][by].size)
        CHECK(tls_ca_cross(buffer_slice(&ca[of]), long_life(), &issuer, &crossed[of][by], NULL) == CO_OK);
    return buffer_slice(&crossed[of][by]);
}

static struct slice chain(int node, int by) {
    char name[8];
    snprintf(name, sizeof name, "n%d", node);
    struct tls_issuer issuer = {buffer_slice(&ca[by]), buffer_slice(&ca_key[by])};
    struct tls_subject subject = {.domain = domain,
                                  .role = node < SERVERS ? TLS_ROLE_SERVER : TLS_ROLE_AGENT,
                                  .node = name,
                                  .datacenter = "dc1",
                                  .dns_domain = "coord"};
    if (!chain_of[node][by].size)
        CHECK(tls_issue(&issuer, buffer_slice(&request[node]), &subject, long_life(), &chain_of[node][by], NULL) ==
              CO_OK);
    return buffer_slice(&chain_of[node][by]);
}

static void make_keys(void) {
    CHECK(tls_domain_make(domain, NULL) == CO_OK);
    for (int i = 0; i < CAS; i++) {
        struct tls_certificate read;
        CHECK(tls_key_make(&ca_key[i], NULL) == CO_OK);
        CHECK(tls_ca_make(buffer_slice(&ca_key[i]), domain, long_life(), &ca[i], NULL) == CO_OK);
        CHECK(tls_certificate_read(buffer_slice(&ca[i]), &read, NULL) == CO_OK);
        memcpy(ca_pin[i], read.pin, TLS_PIN_SIZE);
    }
    for (int i = 0; i < NODES; i++) {
        struct buffer key = {0};
        CHECK(tls_key_make(&key, NULL) == CO_OK && tls_request_make(buffer_slice(&key), &request[i], NULL) == CO_OK);
        buffer_free(&key);
    }
}

/* -- what is trusted ------------------------------------------------------------------------------------------------ */
/* A byte for each CA, the newest lowest: its number, and that of the one that signed it, or 15; 0xff: no more. */
typedef uint64_t cas_t;
#define NO_CAS UINT64_MAX

static unsigned cas_count(cas_t cas) {
    unsigned count = 0;
    while (count < 8 && (cas >> 8 * count & 0xff) != 0xff) count++;
    return count;
}
static int cas_at(cas_t cas, unsigned i) { return (int)(cas >> (8 * i + 4) & 15); }
static bool cas_have(cas_t cas, int wanted) {
    for (unsigned i = 0; i < cas_count(cas); i++)
        if (cas_at(cas, i) == wanted) return true;
    return false;
}
static cas_t cas_first(cas_t cas) { return (cas & 0xff) | ~UINT64_C(0xff); }
static cas_t cas_add(cas_t cas, int one, int by) { return cas << 8 | (uint64_t)(one << 4 | by); }

static void cas_pem(cas_t cas, struct buffer *pem) { /* as cluster_identity writes ca.pem */
    for (unsigned i = 0; i < cas_count(cas); i++) {
        int one = cas_at(cas, i), by = (int)(cas >> 8 * i & 15);
        buffer_append(pem, ca[one].data, ca[one].size);
        if (by != 15) buffer_append(pem, cross(one, by).data, cross(one, by).size);
    }
}

/* The judgement of a node's chain, as it shows it with what it knows, by somebody who knows `judge`. */
static bool trusted_really(int node, int signer, cas_t shows, cas_t judge, bool as_server) {
    struct buffer known = {0}, trusted = {0}, shown = {0}, der[TLS_CHAIN_MOST] = {{0}};
    struct slice slices[TLS_CHAIN_MOST];
    struct tls_certificate said;
    char why[160];
    cas_pem(shows, &known);
    cas_pem(judge, &trusted);
    tls_chain_shown(chain(node, signer), buffer_slice(&known), &shown);
    size_t count = tls_certificate_count(buffer_slice(&shown));
    CHECK(count <= TLS_CHAIN_MOST);
    for (size_t i = 0; i < count; i++) {
        struct buffer pem = {0};
        CHECK(tls_certificate_at(buffer_slice(&shown), i, &pem, NULL) == CO_OK);
        CHECK(tls_certificate_to_der(buffer_slice(&pem), &der[i], NULL) == CO_OK);
        slices[i] = buffer_slice(&der[i]);
        buffer_free(&pem);
    }
    struct tls_rules rules = {.trusted = buffer_slice(&trusted), .now_s = (int64_t)time(NULL), .as_server = as_server};
    bool fits = tls_judge(&rules, slices, count, &said, why) == TLS_TRUSTED;
    for (size_t i = 0; i < count; i++) buffer_free(&der[i]);
    buffer_free(&known);
    buffer_free(&trusted);
    buffer_free(&shown);
    return fits;
}

static struct verdict {
    cas_t shows, judge;
    uint32_t what; /* 0: none */
    bool fits;
} verdicts[1 << 16];
static size_t verdict_count;

static bool trusted(int node, int signer, cas_t shows, cas_t judge, bool as_server) {
    node = node < SERVERS ? 0 : SERVERS; /* one of its kind: its name does not count here */
    uint32_t what = 1 + (uint32_t)(node * CAS + signer) * 2 + as_server;
    uint64_t at = (shows * 0x9e3779b97f4a7c15 ^ judge * 0xc2b2ae3d27d4eb4f ^ what * 0x165667b19e3779f9);
    for (at ^= at >> 29;; at++) {
        struct verdict *verdict = &verdicts[at & 0xffff];
        if (verdict->what == what && verdict->shows == shows && verdict->judge == judge) return verdict->fits;
        if (verdict->what) continue;
        CHECK(++verdict_count < 60000);
        *verdict = (struct verdict){shows, judge, what, trusted_really(node, signer, shows, judge, as_server)};
        return verdict->fits;
    }
}

/* -- the world ------------------------------------------------------------------------------------------------------ */
struct state { /* replicated */
    cas_t cas;
    struct {
        bool removed;
        int signer;
        int64_t to_s;
    } record[NODES];
};

struct node {
    bool up, lost;
    /* its disk */
    int signer, key, next; /* key, next: of a CA; -1: none */
    struct tls_life life;
    cas_t cas;
    size_t applied; /* servers: so many states */
    /* its memory */
    struct certificate_renewal renewal;
    size_t followed; /* the state that it took last */
    int64_t follow_s, catch_s, back_s, out_s;
    unsigned renewals, restarts, refusals;
};

static struct world {
    struct rng rng;
    int64_t now_s;
    struct state *states;
    size_t count, room;
    struct node nodes[NODES];
    int made;       /* so many CAs */
    int64_t late_s; /* a rotation whose outcome is unknown comes so late; NEVER: none */
    struct state late;
    size_t late_base;
    unsigned rotations;
    int held; /* the newest CA whose key a server had */
} w;

static uint64_t below(uint64_t limit) { return rng_below(&w.rng, limit); }
static int64_t soon(uint64_t most_s) { return w.now_s + 1 + (int64_t)below(most_s); }
static bool is_server(const struct node *node) { return node < w.nodes + SERVERS; }
static int number(const struct node *node) { return (int)(node - w.nodes); }
static struct state *newest(void) { return &w.states[w.count - 1]; }
static const struct state *known(const struct node *server) { return &w.states[server->applied - 1]; }

static bool in_time(const struct node *node, int64_t grace_s) {
    return w.now_s >= node->life.from_s && w.now_s <= node->life.to_s + grace_s;
}

/* Does a handshake succeed, and does the server take it for a member (or for one who comes to renew)? */
static bool handshake(const struct node *from, const struct node *to, int64_t grace_s) {
    if (!from->up || !to->up || !in_time(from, grace_s) || !in_time(to, grace_s)) return false;
    return trusted(number(from), from->signer, from->cas, to->cas, false) &&
           trusted(number(to), to->signer, to->cas, from->cas, true);
}
static bool takes(const struct node *from, const struct node *to) {
    return !known(to)->record[number(from)].removed && handshake(from, to, 0);
}
static bool linked(const struct node *a, const struct node *b) { return takes(a, b) || takes(b, a); }

static bool has_quorum(const struct node *server) {
    for (int i = 0; i < SERVERS; i++)
        if (&w.nodes[i] != server && linked(server, &w.nodes[i])) return true;
    return false;
}
static struct node *some_leader(void) { /* whoever has all; NULL: there is no quorum */
    for (int i = 0; i < SERVERS; i++)
        if (w.nodes[i].up && w.nodes[i].applied == w.count && has_quorum(&w.nodes[i])) return &w.nodes[i];
    return NULL;
}

static void commit(struct state next) {
    struct node *leader = some_leader();
    CHECK(leader);
    if (w.count == w.room) w.states = mem_realloc(w.states, (w.room = 2 * w.room + 64) * sizeof *w.states);
    w.states[w.count++] = next;
    leader->applied = w.count;
    bool other = false; /* has it, too */
    for (int i = 0; i < SERVERS; i++) {
        struct node *server = &w.nodes[i];
        if (server == leader || !server->up || !linked(server, leader)) continue;
        if (!other || below(2)) server->applied = w.count, other = true;
        else server->catch_s = soon(30);
    }
    for (int i = 0; i < NODES; i++)
        if (w.nodes[i].up) w.nodes[i].follow_s = soon(3);
}

/* -- a node, as agent/cluster_identity.c acts ---------------------------------------------------------------------- */
static void note_key(struct node *node) {
    if (node->renewal.lacks_key && node->key >= 0 &&
        memcmp(ca_pin[node->key], node->renewal.signs_now, TLS_PIN_SIZE) == 0)
        certificate_renewal_ca(&node->renewal, ca_pin[node->key], false, w.now_s);
}

static void take_files(struct node *node) {
    certificate_renewal_certificate(&node->renewal, node->life, ca_pin[node->signer], w.now_s);
    note_key(node);
}

static void take_trust(struct node *node, cas_t cas) {
    int first = cas_at(cas, 0);
    if (node->cas != cas) node->cas = cas, take_files(node);
    if (is_server(node) && node->key != first && node->next == first) node->key = first, node->next = -1;
    certificate_renewal_ca(&node->renewal, ca_pin[first], is_server(node) && node->key != first, w.now_s);
}

static void follow(struct node *node) {
    size_t from = is_server(node) ? node->applied : 0;
    for (int i = 0, at = (int)below(SERVERS); i < SERVERS && !from; i++, at = (at + 1) % SERVERS)
        if (takes(node, &w.nodes[at])) from = w.nodes[at].applied;
    if (from) take_trust(node, w.states[from - 1].cas), node->followed = from;
    bool hopeless = node->lost || newest()->record[number(node)].removed;
    node->follow_s = from == w.count || hopeless ? NEVER : soon(from ? 5 : 60);
}

static void catch_up(struct node *server) {
    for (int i = 0; i < SERVERS; i++)
        if (&w.nodes[i] != server && linked(server, &w.nodes[i]) && w.nodes[i].applied > server->applied)
            server->applied = w.nodes[i].applied, server->follow_s = soon(2);
    server->catch_s = server->applied == w.count ? NEVER : soon(20);
}

static void start(struct node *node) {
    node->up = true, node->back_s = NEVER, node->out_s = NEVER, node->restarts++;
    if (is_server(node) && !cas_have(node->cas, node->key)) node->key = -1;
    certificate_renewal_begin(&node->renewal, rng_next(&w.rng), SPREAD);
    take_files(node);
    node->follow_s = soon(3);
    node->catch_s = is_server(node) ? soon(10) : NEVER;
}

static void stop(struct node *node, int64_t for_s) {
    node->up = false, node->back_s = w.now_s + for_s;
    node->follow_s = node->catch_s = node->out_s = NEVER;
}

/* The server's part: rpc/server/enrolment.c. */
static int ask(struct node *node, const struct node *server, bool insists, const uint8_t *signs) {
    if (!server->up || !handshake(node, server, SECURITY_GRACE_S)) return CO_IO;
    if (known(server)->record[number(node)].removed) return CO_DENIED;
    if (server->key < 0 || (insists && memcmp(ca_pin[server->key], signs, TLS_PIN_SIZE) != 0)) return CO_AGAIN;
    return CO_OK;
}

static void keep_answer(struct node *node, const struct node *server) {
    int key = server->key;
    node->signer = key, node->life = (struct tls_life){w.now_s - SKEW, w.now_s + WEEK};
    node->cas = known(server)->cas, node->renewals++;
    if (is_server(node) && certificate_renewal_takes_key(&node->renewal, node->key >= 0, ca_pin[key])) node->key = key;
    take_files(node);
    certificate_renewal_succeeded(&node->renewal, w.now_s);
    if (!some_leader() || below(20) == 0) return; /* its record is lost */
    struct state next = *newest();
    if (next.record[number(node)].removed) return;
    next.record[number(node)].signer = node->signer, next.record[number(node)].to_s = node->life.to_s;
    commit(next);
}

static void renew(struct node *node) {
    bool insists = certificate_renewal_insists(&node->renewal, w.now_s);
    uint8_t signs[TLS_PIN_SIZE];
    int error = CO_NOLEADER;
    memcpy(signs, node->renewal.signs_now, sizeof signs);
    for (int i = 0; i < SERVERS; i++) {
        int rv = ask(node, &w.nodes[i], insists, signs);
        if (rv == CO_OK && below(20) == 0) { /* it is killed before it has kept the answer */
            stop(node, (int64_t)below(HOUR));
            return;
        }
        if (rv == CO_OK) {
            keep_answer(node, &w.nodes[i]);
            return;
        }
        if (i == 0 || (rv != CO_DENIED) >= (error != CO_DENIED)) error = rv;
    }
    node->refusals += error == CO_DENIED;
    certificate_renewal_failed(&node->renewal, error == CO_DENIED, w.now_s);
}

/* -- operators: rpc/server/trust_admin.c ---------------------------------------------------------------------------- */
static void rotate(struct node *server) {
    const struct state *base = known(server);
    if (!server->up || w.made == CAS || cas_count(base->cas) == CAS || !cas_have(base->cas, server->key)) return;
    struct state next = *base;
    server->next = w.made++, w.rotations++;
    next.cas = cas_add(next.cas, server->next, server->key);
    uint64_t luck = below(10);
    if (luck == 0) w.late_s = soon(20), w.late = next, w.late_base = server->applied;
    else if (luck > 1 && server->applied == w.count && some_leader()) commit(next);
    if (below(4) == 0) stop(server, (int64_t)below(HOUR)); /* before it has taken the key, perhaps */
}

static void late_rotation(void) {
    w.late_s = NEVER;
    if (w.late_base == w.count && some_leader()) commit(w.late);
}

static void drop_old(void) {
    struct state next = *newest();
    for (int i = 0; i < NODES; i++)
        if (!next.record[i].removed && next.record[i].signer != cas_at(next.cas, 0) &&
            next.record[i].to_s + SECURITY_GRACE_S >= w.now_s)
            return;
    if (cas_count(next.cas) < 2 || !some_leader()) return;
    next.cas = cas_first(next.cas);
    commit(next);
}

static void remove_agent(void) {
    struct state next = *newest();
    if (!some_leader()) return;
    next.record[SERVERS + below(NODES - SERVERS)].removed = true;
    commit(next);
}

/* -- rules ---------------------------------------------------------------------------------------------------------- */
/* Can it reach somebody who can take it? True, too, where there is nobody. */
static bool has_company(const struct node *node) {
    bool anybody = false;
    for (int i = 0; i < SERVERS; i++) {
        const struct node *server = &w.nodes[i];
        if (server == node || !server->up) continue;
        if (is_server(node) ? linked(node, server) : takes(node, server)) return true;
        anybody = true;
    }
    return !anybody;
}

static bool has_key(int wanted) {
    for (int i = 0; i < SERVERS; i++)
        if (w.nodes[i].key == wanted) return true;
    return false;
}

static void check_rules(void) {
    int first = cas_at(newest()->cas, 0);
    if (has_key(first)) w.held = first;
    EXPECT(w.held != first || has_key(first), "the key of the CA that signs is lost");
    for (int i = 0; i < NODES; i++) {
        struct node *node = &w.nodes[i];
        bool removed = newest()->record[i].removed;
        if (w.now_s > node->life.to_s + SECURITY_GRACE_S && !node->lost && !removed) {
            EXPECT(!node->up, "node %d was up, and its certificate ended", i);
            node->lost = true;
        }
        for (int s = 0; s < SERVERS && removed; s++)
            EXPECT(w.nodes[s].applied < w.count || !takes(node, &w.nodes[s]), "removed node %d is taken", i);
        if (!node->up || removed || node->lost || has_company(node)) node->out_s = NEVER;
        else if (node->out_s == NEVER) node->out_s = w.now_s;
        EXPECT(node->out_s == NEVER || w.now_s - node->out_s <= PATIENCE, "node %d is locked out since %ld s", i,
               (long)(w.now_s - node->out_s));
    }
}

static void check_renewals(void) {
    for (int i = 0; i < NODES; i++) {
        const struct node *node = &w.nodes[i];
        unsigned most = (unsigned)(w.now_s / (WEEK / 2 - SKEW)) + 1 + 3 * w.rotations + node->restarts;
        EXPECT(node->renewals <= most, "node %d renewed %u times, %u is the most", i, node->renewals, most);
        EXPECT(node->refusals <= 1 + (unsigned)(w.now_s / DAY) + node->restarts, "node %d: %u", i, node->refusals);
    }
}

/* -- time ----------------------------------------------------------------------------------------------------------- */
static int64_t next_of(const struct node *node) {
    int64_t next = node->back_s;
    if (!node->up) return next;
    int64_t due = certificate_renewal_next_s(&node->renewal, w.now_s);
    next = node->follow_s < node->catch_s ? node->follow_s : node->catch_s;
    return due < next ? due : next;
}

static void turn(struct node *node) {
    if (!node->up && node->back_s <= w.now_s) start(node);
    if (!node->up) return;
    if (node->catch_s <= w.now_s) catch_up(node);
    if (node->follow_s <= w.now_s) follow(node);
    if (certificate_renewal_state(&node->renewal, w.now_s) == CERTIFICATE_RENEWAL_DUE) renew(node);
}

static void run_to(int64_t end_s) {
    for (unsigned turns = 0;; turns++) {
        int64_t next = w.late_s < end_s ? w.late_s : end_s;
        for (int i = 0; i < NODES; i++)
            if (next_of(&w.nodes[i]) < next) next = next_of(&w.nodes[i]);
        EXPECT(turns < 400000, "at %ld s", (long)w.now_s);
        if (next > w.now_s) w.now_s = next;
        if (w.now_s >= end_s) return;
        if (w.late_s <= w.now_s) late_rotation();
        for (int i = 0; i < NODES; i++) turn(&w.nodes[i]);
        drop_old();
        check_rules();
    }
}

/* -- a seed --------------------------------------------------------------------------------------------------------- */
static void begin(void) {
    free(w.states);
    memset(&w, 0, sizeof w);
    rng_seed(&w.rng, seed);
    w.late_s = NEVER, w.made = 1;
    struct state first = {.cas = cas_add(NO_CAS, 0, 15)};
    for (int i = 0; i < NODES; i++) {
        struct node *node = &w.nodes[i];
        int64_t age_s = (int64_t)below(WEEK / 2);
        *node = (struct node){.key = i < SERVERS ? 0 : -1, .next = -1, .life = {-age_s, WEEK - age_s}};
        node->cas = first.cas, node->applied = i < SERVERS;
        first.record[i].to_s = node->life.to_s;
    }
    w.states = mem_zalloc(sizeof *w.states), w.states[0] = first, w.count = w.room = 1;
    for (int i = 0; i < NODES; i++) start(&w.nodes[i]);
}

static int64_t away_s(void) {
    static const int64_t most[] = {10, MINUTE, HOUR, DAY, 12 * DAY, 80 * DAY};
    uint64_t luck = below(100);
    return (int64_t)below((uint64_t)most[luck < 30   ? 0
                                         : luck < 55 ? 1
                                         : luck < 80 ? 2
                                         : luck < 92 ? 3
                                         : luck < 98 ? 4
                                                     : 5]);
}

static void act(void) {
    struct node *node = &w.nodes[below(NODES)];
    uint64_t luck = below(100);
    for (int i = 0; i < NODES; i++) w.nodes[i].out_s = NEVER;
    if (luck < 50 && node->up) stop(node, is_server(node) ? away_s() / 40 : away_s());
    else if (luck < 60) /* all servers at once */
        for (int i = 0; i < SERVERS; i++) stop(&w.nodes[i], (int64_t)below(MINUTE));
    else if (luck < 95) rotate(&w.nodes[below(SERVERS)]);
    else remove_agent();
}

/* Everybody is up, but who is away for long; and an operator looks after a lost key. */
static void settle(void) {
    for (int i = 0; i < NODES; i++)
        if (!w.nodes[i].up && w.nodes[i].back_s - w.now_s < 20 * DAY) w.nodes[i].back_s = w.now_s;
    run_to(w.now_s + HOUR);
    for (int tries = 0; tries < 30 && !has_key(cas_at(newest()->cas, 0)); tries++) {
        EXPECT(w.made < CAS || tries == 0, "no more CAs in this test");
        rotate(&w.nodes[below(SERVERS)]);
        run_to(w.now_s + HOUR);
    }
    for (int day = 0; day < 90; day++) { /* with lost records, and killed at any moment still */
        run_to(w.now_s + DAY);
        for (int i = 0; i < NODES; i++) w.nodes[i].out_s = NEVER;
    }
    int first = cas_at(newest()->cas, 0);
    EXPECT(cas_count(newest()->cas) == 1, "%u CAs", cas_count(newest()->cas));
    for (int i = 0; i < SERVERS; i++)
        EXPECT(w.nodes[i].key == first || !w.nodes[i].up, "server %d has the key of CA %d", i, w.nodes[i].key);
    for (int i = 0; i < NODES; i++)
        EXPECT(!w.nodes[i].up || w.nodes[i].lost || newest()->record[i].removed || w.nodes[i].signer == first,
               "node %d", i);
}

static void run_seed(void) {
    begin();
    for (unsigned acts = 10 + (unsigned)below(30); acts > 0; acts--) {
        static const uint64_t gaps[] = {5, MINUTE, 20 * MINUTE, DAY, 3 * DAY};
        run_to(w.now_s + (int64_t)below(gaps[below(ARRAY_COUNT(gaps))]));
        if (w.made < CAS - 3) act();
    }
    settle();
    check_renewals();
}

Test(certificate_renewal_model, nobody_is_locked_out_and_nobody_renews_in_a_loop) {
    const char *chosen = getenv("COORD_SEED");
    unsigned rotations = 0, lost = 0, removed = 0;
    make_keys();
    for (seed = chosen ? strtoul(chosen, NULL, 10) : 1; seed <= SEEDS || chosen; seed++) {
        run_seed();
        rotations += w.rotations;
        for (int i = 0; i < NODES; i++) lost += w.nodes[i].lost, removed += newest()->record[i].removed;
        if (chosen) return;
    }
    printf("%u rotations, %u nodes removed, %u away for too long, %zu judgements\n", rotations, removed, lost,
           verdict_count);
    cr_assert(rotations > SEEDS && lost > 10 && removed > 100);
}
