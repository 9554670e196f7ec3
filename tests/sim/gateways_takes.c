/* Takes of gateways: when they come, how they wait, and what becomes of them. */
#include <string.h>

#include "base/check.h"
#include "tests/sim/gateways_internal.h"

/* False: it waits on. */
static bool judge_spent(struct gateway *gateway, const struct gateway_waiter *waiter, int rv,
                        const struct spender_answer *answer) {
    switch (rv) {
        case CO_OK:
            judge_admitted(gateway, waiter->take.n, answer->source);
            judge_lease(gateway, answer->lease);
            return true;
        case CO_AGAIN: return false;
        case CO_BUSY: judge_refused(gateway); return true;
        case CO_NOLEADER: return true;
        default: sim_violation(gateway->all->sim, RULE_QUOTA, "a take: %s", co_strerror(rv)); return true;
    }
}

static bool try_spend(struct gateway *gateway, const struct gateway_waiter *waiter, bool waited) {
    struct spender_take take = {waiter->take.name, waiter->take.key, waiter->take.n};
    struct spender_answer answer;
    bool last = gateway->all->sim->now_us >= waiter->since_us + gateway_wait_us(gateway);
    int rv = spender_take(gateway->spender, &take, 1, waited, last, gateway_now(gateway).ns, &answer);
    bool decided = judge_spent(gateway, waiter, rv, &answer);
    if (decided && waiter->client) client_decided(gateway, waiter->client, rv, answer.retry_ms);
    return decided;
}

static bool owner_said(struct gateway *gateway, struct gateway_waiter *waiter, int rv,
                       const struct owner_answer *answer) {
    struct gateway_key *key = &gateway->all->keys[waiter->key];
    switch (rv) {
        case CO_OK:
            if (answer->source == SPENDER_LOCAL) judge_counted(gateway, key, waiter->take.n);
            judge_admitted(gateway, waiter->take.n, answer->source);
            if (answer->source != SPENDER_FALLBACK) key->nobody_us = NEVER;
            return true;
        case CO_AGAIN:
            if (answer->node) waiter->asked = call_gateway(gateway, CALL_TAKE, answer->node, answer->request, 0);
            return false;
        case CO_BUSY:
            key->nobody_us = NEVER;
            judge_refused(gateway);
            return true;
        case CO_NOLEADER:
            if (gateway_reached(gateway)) judge_undecided(gateway->all, key);
            return true;
        default: sim_violation(gateway->all->sim, RULE_QUOTA, "a take: %s", co_strerror(rv)); return true;
    }
}

static bool judge_owned(struct gateway *gateway, struct gateway_waiter *waiter, int rv,
                        const struct owner_answer *answer) {
    bool decided = owner_said(gateway, waiter, rv, answer);
    if (decided && waiter->client) client_decided(gateway, waiter->client, rv, answer->retry_ms);
    return decided;
}

static bool try_owned(struct gateway *gateway, struct gateway_waiter *waiter) {
    struct owner_answer answer;
    if (waiter->asked) return false;
    int rv = owner_take(gateway->owner, &waiter->take, gateway_now(gateway), &answer);
    return judge_owned(gateway, waiter, rv, &answer);
}

static bool try_take(struct gateway *gateway, struct gateway_waiter *waiter, bool waited) {
    return gateway->owner ? try_owned(gateway, waiter) : try_spend(gateway, waiter, waited);
}

void gateway_retry(struct gateway *gateway) {
    size_t kept = 0;
    for (size_t i = 0; i < gateway->waiting; i++)
        if (!try_take(gateway, &gateway->waiters[i], true)) gateway->waiters[kept++] = gateway->waiters[i];
    gateway->waiting = kept;
}

/* Those whose time is over are the first. */
void gateway_end_waits(struct gateway *gateway) {
    size_t over = 0;
    while (gateway->spender && over < gateway->waiting &&
           gateway->all->sim->now_us >= gateway->waiters[over].since_us + gateway_wait_us(gateway))
        CHECK(try_spend(gateway, &gateway->waiters[over++], true));
    gateway->waiting -= over;
    memmove(gateway->waiters, gateway->waiters + over, gateway->waiting * sizeof *gateway->waiters);
}

/* Now and then nothing for a while, and now and then very much. */
uint64_t gateway_next_take_us(const struct gateway *gateway) {
    const struct gateways *all = gateway->all;
    uint64_t phase = (all->sim->now_us / (3000 * MS) + 7 * gateway->number) % 8;
    uint64_t rate = all->plan.rate * (phase == 1 ? 10 : 1);
    if (phase == 0) return sim_random(all->sim, 100, 900) * MS;
    return sim_random(all->sim, 1, 2 * 1000 * MS / rate);
}

/* As the program lets them wait, where that is judged. */
uint64_t gateway_wait_us(const struct gateway *gateway) {
    return (gateway->all->plan.clients ? GATEWAY_WAIT_MS / 2 : GATEWAY_WAIT_MS) * MS;
}

void gateway_take(struct gateway *gateway) {
    if (gateway->waiting < GATEWAY_WAITERS) gateway_take_of(gateway, NULL);
}

void gateway_take_of(struct gateway *gateway, struct gateway_client *client) {
    struct gateways *all = gateway->all;
    struct sim *sim = all->sim;
    CHECK(gateway->waiting < GATEWAY_WAITERS);
    struct gateway_waiter *waiter = &gateway->waiters[gateway->waiting++];
    *waiter = (struct gateway_waiter){.since_us = sim->now_us, .client = client};
    if (client) waiter->key = client->key;
    else if (all->owned) waiter->key = (unsigned)sim_random(sim, 0, all->plan.keys - 1);
    waiter->take.name = SLICE_LITERAL("budget");
    if (all->owned) waiter->take.key = slice_text(all->keys[waiter->key].text);
    else if (sim_chance(sim, 700)) waiter->take.key = SLICE_LITERAL("k");
    waiter->take.n = sim_random(sim, 1, all->plan.take_most);
    waiter->take.since_ns = gateway_now(gateway).ns;
    if (try_take(gateway, waiter, false)) gateway->waiting--;
}

void gateway_owner_said(struct gateway *gateway, struct gateway_call *call, enum owner_reach reach) {
    struct gateway_waiter *waiter = gateway->waiters;
    struct owner_answer answer;
    while (waiter < gateway->waiters + gateway->waiting && waiter->asked != call->number) waiter++;
    CHECK(waiter < gateway->waiters + gateway->waiting);
    waiter->asked = 0;
    int rv =
        owner_served(gateway->owner, &waiter->take, reach, buffer_slice(&call->reply), gateway_now(gateway), &answer);
    if (judge_owned(gateway, waiter, rv, &answer)) *waiter = gateway->waiters[--gateway->waiting];
}
