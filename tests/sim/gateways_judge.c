/* The rules that hold for gateways, whatever happens to them, the servers and the network. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/machine.h"
#include "tests/sim/gateways_internal.h"

#define P PRIu64

static void must(struct gateways *all, const char *what, int64_t sum, uint64_t most) {
    if (sum > (int64_t)most) sim_violation(all->sim, RULE_QUOTA, "%s: %" PRId64 " admitted, of %" P, what, sum, most);
}

static uint64_t period_of(const struct gateways *all) {
    return (all->definition.window ? 60000 : all->definition.every_ms) * MS;
}

/* A TTL and a second, by the slowest clock. */
static uint64_t patience_of(const struct gateways *all) {
    return (all->definition.lease_ttl_ms + 1000) * MS * 102 / 100;
}

/* -- what gateways admit --------------------------------------------------------------------------------------------- */

/* Of one node, whatever processes it had. */
static void fell_back(struct gateway *gateway, uint64_t n) {
    struct gateways *all = gateway->all;
    const struct quota_bound bound = quota_bound_of(&all->definition, 1);
    uint64_t sum = n, now_us = all->sim->now_us;
    for (size_t i = all->fallback_count; i-- > 0 && all->fallbacks[i].at_us + period_of(all) > now_us;)
        if (all->fallbacks[i].gateway == gateway->number) sum += all->fallbacks[i].n;
    all->fallbacks = mem_realloc(all->fallbacks, (all->fallback_count + 1) * sizeof *all->fallbacks);
    all->fallbacks[all->fallback_count++] = (struct gateway_fallback){now_us, n, gateway->number};
    all->fell_back += n;
    must(all, "by one agent alone, in a period", sum, bound.local_caps + bound.last);
}

void judge_admitted(struct gateway *gateway, uint64_t n, enum spender_source source) {
    struct gateways *all = gateway->all;
    const struct quota_bound bound = quota_bound_of(&all->definition, all->plan.gateways);
    gateway->refused_us = NEVER;
    all->admitted += n;
    if (source == SPENDER_RENEWED) all->renewed += n;
    if (source == SPENDER_FALLBACK) fell_back(gateway, n);
    if (all->owned) return; /* the rest is judged where it is counted */
    if (source != SPENDER_FALLBACK) all->level += (int64_t)n;
    all->window += (int64_t)n;
    must(all, "of the budget", all->level, all->capacity + bound.drift);
    if (all->definition.window) must(all, "in a window", all->window, all->capacity + bound.sum);
}

/* The servers have seen the end of these. (One that ends early, with its session, is held back until its time is over.) */
static bool is_over(const struct gateways *all, uint64_t lease) {
    for (size_t i = all->over_count; i-- > 0;)
        if (all->over[i] == lease) return true;
    return false;
}

void judge_lease(struct gateway *gateway, uint64_t lease) {
    if (is_over(gateway->all, lease))
        sim_violation(gateway->all->sim, RULE_QUOTA, "%s spends of lease %" P ", which is over", gateway->node, lease);
}

static void lease_over(struct gateways *all, uint64_t lease) {
    all->over = mem_realloc(all->over, (all->over_count + 1) * sizeof *all->over);
    all->over[all->over_count++] = lease;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

void judge_refused(struct gateway *gateway) {
    struct gateways *all = gateway->all;
    uint64_t now_us = all->sim->now_us;
    all->refused++;
    if (gateway->refused_us == NEVER) gateway->refused_us = now_us;
    gateways_trouble(all);
    if (all->owned || all->poor_us == NEVER) return;
    uint64_t since_us = later(later(gateway->refused_us, all->poor_us), later(gateway->trouble_us, all->trouble_us));
    uint64_t for_us = now_us > since_us ? now_us - since_us : 0;
    if (for_us > all->longest_us) all->longest_us = for_us;
    /* Where clients obey, and nothing was wrong for a while, a refusal ends with its reason. */
    bool calm = all->plan.clients && later(gateway->trouble_us, all->trouble_us) + 3000 * MS < since_us;
    if (for_us > (calm ? 1100 * MS : patience_of(all)))
        sim_violation(all->sim, RULE_QUOTA, "%s refuses for %" P " ms, and there is enough", gateway->node,
                      for_us / MS);
}

/* -- who counts a key ---------------------------------------------------------------------------------------------------- */

/* As each of them sees it. */
static void tell_views(struct gateways *all, const struct gateway_key *key) {
    for (unsigned i = 0; i < all->plan.gateways; i++) {
        struct gateway *gateway = &all->gateways[i];
        struct owner_view view = {0};
        bool knows = gateway->owner && owner_look(gateway->owner, slice_text(all->definition.name),
                                                  slice_text(key->text), UINT32_MAX, gateway_now(gateway), &view);
        TRACE(all->sim, "  %s%s%s%s: owner %s%s, epoch %" P ", active %" P, gateway->node, gateway->up ? "" : ", down",
              gateway->passing ? ", passes" : "", gateway->leaving ? ", leaves" : "",
              knows && view.owner ? view.owner : "?", view.counts ? ", it counts" : "", view.epoch, view.active);
    }
}

void judge_beside(struct gateways *all, struct gateway_key *key) {
    unsigned count = 0;
    for (unsigned i = 0; i < all->plan.gateways; i++) {
        struct gateway *gateway = &all->gateways[i];
        struct owner_view view;
        if (gateway->owner && owner_look(gateway->owner, slice_text(all->definition.name), slice_text(key->text),
                                         UINT32_MAX, gateway_now(gateway), &view))
            count += view.counts;
    }
    if (count <= 1) return;
    tell_views(all, key);
    sim_violation(all->sim, RULE_QUOTA, "%u agents count %s", count, key->text);
}

/* In the window that the owner's bucket is of, by some clock. */
static void in_window(struct gateway *owner, struct gateway_key *key, uint64_t n) {
    struct gateways *all = owner->all;
    struct owner_view view = {0};
    size_t i = 0;
    (void)owner_look(owner->owner, slice_text(all->definition.name), slice_text(key->text), UINT32_MAX,
                     gateway_now(owner), &view);
    while (i + 1 < GATEWAY_WINDOWS && key->windows[i].window_s && key->windows[i].window_s != view.window_s) i++;
    key->windows[i].window_s = view.window_s;
    key->windows[i].sum += n;
    must(all, "of a key, in a window", key->windows[i].sum,
         all->capacity + quota_bound_of(&all->definition, all->plan.gateways).hand_over);
}

void judge_counted(struct gateway *owner, struct gateway_key *key, uint64_t n) {
    struct gateways *all = owner->all;
    uint64_t now_us = all->sim->now_us;
    judge_beside(all, key);
    if (all->definition.window) {
        in_window(owner, key, n);
        return;
    }
    double back =
        (double)(now_us - key->level_us) / 1e3 * (double)all->definition.tokens / (double)all->definition.every_ms;
    key->level = (key->level > back ? key->level - back : 0) + (double)n;
    key->level_us = now_us;
    if (key->level > (double)all->capacity + 1e-6)
        sim_violation(all->sim, RULE_QUOTA, "of %s %.3f admitted, of %" P, key->text, key->level, all->capacity);
}

void judge_undecided(struct gateways *all, struct gateway_key *key) {
    uint64_t now_us = all->sim->now_us;
    all->undecided++;
    gateways_trouble(all);
    if (key->nobody_us == NEVER) key->nobody_us = now_us;
    uint64_t since_us = later(key->nobody_us, all->trouble_us);
    uint64_t for_us = now_us > since_us ? now_us - since_us : 0;
    if (for_us > all->longest_us) all->longest_us = for_us;
    if (for_us <= patience_of(all)) return;
    tell_views(all, key);
    sim_violation(all->sim, RULE_QUOTA, "nobody counts %s for %" P " ms", key->text, for_us / MS);
}

/* -- what the servers did ----------------------------------------------------------------------------------------------- */

struct trail {
    struct gateways *all;
    uint64_t index;
};

/* Tokens that the servers have spent and that come back count as admitted before, also if their agent hears of it only
 * now. */
static void refilled(struct gateways *all, uint64_t amount) {
    int64_t least = 0;
    for (unsigned i = 0; i < all->plan.gateways; i++) least -= (int64_t)all->gateways[i].on_its_way;
    all->level -= (int64_t)amount;
    if (all->level < least) all->level = least;
    all->window = least;
    all->refills++;
}

/* Takes of servers for an agent. */
static void servers_took(struct gateways *all, const Pb__QuotaAudit *row) {
    for (unsigned i = 0; i < all->plan.gateways; i++)
        if (strcmp(all->gateways[i].node, row->node) == 0) all->gateways[i].on_its_way += row->amount;
}

static void trail_seen(void *data, const struct query_result *result) {
    const struct trail *trail = data;
    struct gateways *all = trail->all;
    if (!result->found) return;
    const Pb__QuotaAuditResult *page = (const Pb__QuotaAuditResult *)result->message;
    for (size_t i = 0; i < page->n_entries && page->entries[i]->index <= trail->index; i++) {
        const Pb__QuotaAudit *row = page->entries[i];
        all->audited = row->number + 1;
        if (row->kind == PB__QUOTA_KIND__QUOTA_TAKEN) servers_took(all, row);
        if (row->kind == PB__QUOTA_KIND__QUOTA_REFILLED && row->amount) refilled(all, row->amount);
    }
}

static void state_seen(void *data, const struct query_result *result) {
    struct gateways *all = data;
    const Pb__QuotaState *state = result->found ? (const Pb__QuotaState *)result->message : NULL;
    int64_t kept = state && all->plan.clients ? (int64_t)state->record->kept : 0; /* that others come for */
    if (state && state->available > all->available) all->came_us = all->sim->now_us;
    if (state) all->available = state->available;
    if (!state || state->available - kept < (int64_t)all->plan.take_most) all->poor_us = NEVER;
    else if (all->poor_us == NEVER) all->poor_us = all->sim->now_us;
}

/* The first server that has applied it shows what came of it. */
struct sim_expected gateways_applied(struct sim *sim, const struct sim_applied *applied) {
    struct gateways *all = sim->gateways;
    if (applied->number == QUOTA_LEASE_END && applied->result->error == CO_OK)
        lease_over(all, ((const Pb__QuotaLeaseEndCommand *)applied->command)->lease);
    if (!all->owned && applied->result->error == CO_OK) {
        Pb__QuotaAuditRequest rows = PB__QUOTA_AUDIT_REQUEST__INIT;
        Pb__QuotaRequest look = PB__QUOTA_REQUEST__INIT;
        struct trail trail = {all, applied->index};
        rows.name = look.name = all->definition.name;
        rows.from = all->audited;
        sim_query(applied->server, &query_quota_audit, &rows.base, trail_seen, &trail);
        sim_query(applied->server, &query_quota, &look.base, state_seen, all);
    }
    return expect_any(applied);
}

static void leases_seen(void *data, const struct query_result *result) {
    bool *over = data;
    const Pb__QuotaState *state = (const Pb__QuotaState *)result->message;
    *over = !result->found || (state->n_leases == 0 && state->record->held == 0);
}

bool gateways_over(struct sim *sim) {
    struct server *leader = sim_leader(sim);
    Pb__QuotaRequest look = PB__QUOTA_REQUEST__INIT;
    bool over = false;
    look.name = sim->gateways->definition.name;
    if (leader) sim_query(leader, &query_quota, &look.base, leases_seen, &over);
    return over;
}
