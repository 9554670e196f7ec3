#include "dns/responder.h"

#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "dns/lookup.h"

enum {
    CACHE_ENTRIES_MAX = 16384,
    CACHE_BYTES_MAX = 32 << 20,
    RCODES = 6,
};

/* -- metrics: each thread counts, and adds its counts once per batch ---------------------------------------------- */

METRIC queries_total[DNS_TRANSPORTS] = {
    [DNS_UDP] = {.name = "coord_dns_queries_total",
                 .help = "DNS queries received",
                 .labels = "transport=\"udp\"",
                 .type = METRIC_COUNTER},
    [DNS_TCP] = {.name = "coord_dns_queries_total",
                 .help = "DNS queries received",
                 .labels = "transport=\"tcp\"",
                 .type = METRIC_COUNTER},
    [DNS_TLS] = {.name = "coord_dns_queries_total",
                 .help = "DNS queries received",
                 .labels = "transport=\"tls\"",
                 .type = METRIC_COUNTER},
};
#define ANSWERS(code, label)                          \
    [code] = {.name = "coord_dns_answers_total",      \
              .help = "DNS answers by response code", \
              .labels = "code=\"" label "\"",         \
              .type = METRIC_COUNTER}
METRIC answers_total[RCODES] = {
    ANSWERS(RCODE_NOERROR, "NOERROR"),   ANSWERS(RCODE_FORMERR, "FORMERR"), ANSWERS(RCODE_SERVFAIL, "SERVFAIL"),
    ANSWERS(RCODE_NXDOMAIN, "NXDOMAIN"), ANSWERS(RCODE_NOTIMP, "NOTIMP"),   ANSWERS(RCODE_REFUSED, "REFUSED"),
};
METRIC truncated_total = {
    .name = "coord_dns_truncated_total", .help = "DNS answers cut to the client's size (TC)", .type = METRIC_COUNTER};
METRIC built_total = {.name = "coord_dns_answers_built_total",
                      .help = "DNS answers that were not ready and were made from the catalog",
                      .type = METRIC_COUNTER};

struct counts {
    uint64_t queries[DNS_TRANSPORTS], answers[RCODES], truncated, built;
};

void dns_metrics_register(void) {
    for (size_t i = 0; i < ARRAY_COUNT(queries_total); i++) metric_register(&queries_total[i]);
    for (size_t i = 0; i < ARRAY_COUNT(answers_total); i++) metric_register(&answers_total[i]);
    metric_register(&truncated_total);
    metric_register(&built_total);
}

static void hand_over(struct metric *metric, uint64_t *count) {
    if (*count) metric_add(metric, *count);
    *count = 0;
}

/* -- life --------------------------------------------------------------------------------------------------------- */

struct dns_responder {
    const struct dns_setup *setup;
    struct rpc *rpc;
    struct dns_lookup *lookup;
    struct dns_cache *cache;
    struct dns_depends depends;
    struct answer *nodata[2], *nxdomain[2]; /* one for each domain */
    struct rng rng;
    uint32_t serial;
    uint64_t now_ns;
    bool ready; /* the catalog may be read */
    struct counts counts;
};

struct dns_responder *dns_responder_new(const struct dns_setup *setup, struct rpc *rpc) {
    struct dns_responder *responder = mem_zalloc(sizeof(*responder));
    responder->setup = setup;
    responder->rpc = rpc;
    responder->lookup = dns_lookup_new(setup, rpc);
    responder->cache = dns_cache_new(rpc, CACHE_ENTRIES_MAX, CACHE_BYTES_MAX, setup->stale);
    for (unsigned i = 0; i < setup->zone.count; i++) {
        responder->nodata[i] = dns_lookup_negative(responder->lookup, i, RCODE_NOERROR);
        responder->nxdomain[i] = dns_lookup_negative(responder->lookup, i, RCODE_NXDOMAIN);
    }
    rng_seed(&responder->rng, random_u64());
    return responder;
}

void dns_responder_free(struct dns_responder *responder) {
    if (!responder) return;
    for (size_t i = 0; i < ARRAY_COUNT(responder->nodata); i++) {
        answer_free(responder->nodata[i]);
        answer_free(responder->nxdomain[i]);
    }
    dns_depends_free(&responder->depends);
    dns_cache_free(responder->cache);
    dns_lookup_free(responder->lookup);
    free(responder);
}

/* -- a batch ------------------------------------------------------------------------------------------------------ */

struct confirmation {
    struct rpc_read_index gate;
    sem_t done;
    int error;
};

static void confirmed(struct rpc_read_index *gate, int error) {
    struct confirmation *confirmation = CONTAINER_OF(gate, struct confirmation, gate);
    confirmation->error = error;
    sem_post(&confirmation->done);
}

/* Default reads: one confirmation for all queries of the batch. rpc_read_index has a time limit of its own, so none is
 * needed here. */
static bool confirm_and_wait(struct rpc *rpc) {
    struct confirmation confirmation = {.gate.done = confirmed};
    CHECK(sem_init(&confirmation.done, 0, 0) == 0);
    int error = rpc_read_index(rpc, RPC_DEFAULT, &confirmation.gate);
    if (error == CO_AGAIN) {
        while (sem_wait(&confirmation.done) != 0) continue;
        error = confirmation.error;
    }
    sem_destroy(&confirmation.done);
    return error == CO_OK;
}

/* A server that has applied nothing yet, or whose state is damaged, must not say that names do not exist. */
void dns_responder_begin(struct dns_responder *responder) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    responder->serial = (uint32_t)now.tv_sec;
    responder->now_ns = clock_mono_ns();
    responder->ready = rpc_serves(responder->rpc) == CO_OK && rpc_applied(responder->rpc) > 0 &&
                       (responder->setup->stale || confirm_and_wait(responder->rpc));
}

void dns_responder_end(struct dns_responder *responder) {
    struct counts *counts = &responder->counts;
    for (size_t i = 0; i < ARRAY_COUNT(queries_total); i++) hand_over(&queries_total[i], &counts->queries[i]);
    for (size_t i = 0; i < ARRAY_COUNT(answers_total); i++) hand_over(&answers_total[i], &counts->answers[i]);
    hand_over(&truncated_total, &counts->truncated);
    hand_over(&built_total, &counts->built);
}

/* -- a query ------------------------------------------------------------------------------------------------------ */

/* All types that no name has share one cache key (0), so that made-up types cannot fill the cache. */
static uint16_t known_type(uint16_t type) {
    switch (type) {
        case TYPE_A:
        case TYPE_AAAA:
        case TYPE_SRV:
        case TYPE_ANY:
        case TYPE_TXT:
        case TYPE_CNAME:
        case TYPE_PTR:
        case TYPE_SOA:
        case TYPE_NS: return type;
        default: return 0;
    }
}

static size_t answers_max(const struct dns_responder *responder, const struct packet_query *query,
                          enum dns_transport transport) {
    const struct dns_setup *setup = responder->setup;
    size_t most = 0;
    if (query->type == TYPE_A || query->type == TYPE_AAAA || query->type == TYPE_ANY) most = setup->a_record_limit;
    bool small = transport == DNS_UDP && query->udp_size <= PACKET_UDP_DEFAULT;
    if (small && setup->udp_answer_limit && (most == 0 || setup->udp_answer_limit < most))
        most = setup->udp_answer_limit;
    return most;
}

static bool is_padded(const struct packet_query *query, enum dns_transport transport) {
    return transport == DNS_TLS && query->padding;
}

static size_t size_max(const struct packet_query *query, enum dns_transport transport) {
    if (transport == DNS_UDP) return query->udp_size;
    return is_padded(query, transport) ? PACKET_PADDABLE_MAX : PACKET_TCP_MAX;
}

static size_t render(struct dns_responder *responder, struct answer *answer, struct dns_pick *pick,
                     const struct packet_query *query, enum dns_transport transport, uint8_t *out) {
    struct answer_limits limits = {.size = size_max(query, transport),
                                   .answers_max = answers_max(responder, query, transport),
                                   .serial = responder->serial};
    if (pick) limits.first = dns_pick_first(pick, &responder->rng, responder->now_ns) + 1; /* none: 0 */
    bool truncated;
    size_t size = answer_render(answer, query, &limits, &responder->rng, out, &truncated);
    responder->counts.answers[answer_rcode(answer)]++;
    responder->counts.truncated += truncated;
    return size;
}

static size_t error(struct dns_responder *responder, const struct packet_query *query, int rcode, uint8_t *out) {
    responder->counts.answers[rcode < RCODES ? rcode : RCODE_FORMERR]++;
    return packet_error(out, query, rcode);
}

static size_t answer_new(struct dns_responder *responder, const struct name *name, struct dns_cache_key key,
                         const struct packet_query *query, enum dns_transport transport, uint8_t *out) {
    struct dns_found found = dns_lookup_run(responder->lookup, name, key.type, responder->cache, &responder->depends);
    if (found.rcode != RCODE_NOERROR && found.rcode != RCODE_NXDOMAIN) return error(responder, query, found.rcode, out);
    struct answer *negative = (found.rcode == RCODE_NOERROR ? responder->nodata : responder->nxdomain)[name->domain];
    if (!found.answer) answer_set_zone(negative, found.zone_at);
    responder->counts.built += found.answer != NULL;
    size_t size = render(responder, found.answer ? found.answer : negative, found.pick, query, transport, out);
    if (found.answer && found.keep) {
        dns_cache_store(responder->cache, key, &responder->depends,
                        (struct dns_cache_value){.answer = found.answer, .pick = found.pick, .cost_ns = found.cost_ns});
    } else {
        answer_free(found.answer);
        dns_pick_free(found.pick);
    }
    return size;
}

static size_t answer_unknown(struct dns_responder *responder, struct dns_cache_key key,
                             const struct packet_query *query, enum dns_transport transport, uint8_t *out) {
    struct name name;
    name_parse(&responder->setup->zone, (const uint8_t *)key.name.data, key.name.size, &name);
    if (name.kind == NAME_OUTSIDE) return error(responder, query, RCODE_REFUSED, out);
    return answer_new(responder, &name, key, query, transport, out);
}

static size_t answer_query(struct dns_responder *responder, const struct packet_query *query,
                           enum dns_transport transport, uint8_t *out) {
    if (!responder->ready) return error(responder, query, RCODE_SERVFAIL, out);
    uint8_t lower[PACKET_NAME_MAX];
    wire_name_lower(lower, query->name, query->name_size);
    struct dns_cache_key key = {slice_make(lower, query->name_size), known_type(query->type)};
    const struct dns_cache_value *known = dns_cache_find(responder->cache, key);
    if (known && (!known->pick || dns_pick_current(known->pick, responder->now_ns)))
        return render(responder, known->answer, known->pick, query, transport, out);
    return answer_unknown(responder, key, query, transport, out);
}

size_t dns_responder_answer(struct dns_responder *responder, enum dns_transport transport, const uint8_t *data,
                            size_t size, uint8_t *out) {
    struct packet_query query;
    responder->counts.queries[transport]++;
    int rcode = packet_parse(data, size, &query);
    if (rcode == PACKET_SILENT) return 0;
    size_t answer =
        rcode == RCODE_NOERROR ? answer_query(responder, &query, transport, out) : error(responder, &query, rcode, out);
    return is_padded(&query, transport) ? packet_pad(out, answer, &query) : answer;
}
