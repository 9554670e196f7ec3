/* Clients that obey: one that is refused comes again when the Retry-After that it read is over, which is in whole seconds.
 * While nothing is wrong
 *
 *     more has come meanwhile when it is refused again, and it was not told to come later than more comes
 *     modest clients are refused once in a row at most; with leases TURNS_MORE times
 *     no gateway sees more refills pass, with nothing for its clients, than twice as many as it takes to serve one of each,
 *     and TURNS_MORE (where refills come more often than a client may: in turns of two seconds). In owner mode there is no
 *     such order: the owner of a key serves who comes first
 *     none waits longer than these refills take when they come as often as they may: what those hold who went away, and
 *     their agents, which are idle from then on, comes to those who stay
 */
#include "base/check.h"
#include "tests/sim/gateways_internal.h"

enum { TURNS_MORE = 5 };

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t refill_us(const struct gateways *all) {
    const Pb__QuotaDefinition *definition = &all->definition;
    return (definition->window ? 60000 : quota_refill_period_ms(definition)) * MS;
}

static uint64_t tokens_of(const struct gateways *all) {
    const Pb__QuotaDefinition *definition = &all->definition;
    uint32_t next;
    return definition->window ? definition->budget : quota_refill_part(definition, 0, &next);
}

static void wants(struct gateway_client *client, uint64_t at_us) {
    client->at_us = client->want_us = at_us;
    client->took_us = 0;
    client->refusals = 0;
}

void clients_begin(struct gateway *gateway) {
    struct gateways *all = gateway->all;
    CHECK(all->plan.clients <= GATEWAY_CLIENTS);
    gateway->hungry_us = NEVER;
    for (unsigned i = 0; i < all->plan.clients; i++) {
        struct gateway_client *client = &gateway->clients[i];
        *client = (struct gateway_client){0};
        if (all->plan.keys) client->key = (gateway->number + i) % all->plan.keys;
        wants(client, all->sim->now_us + sim_random(all->sim, 1, 1000) * MS);
    }
}

uint64_t clients_next_us(const struct gateway *gateway) {
    uint64_t next_us = NEVER;
    for (unsigned i = 0; i < gateway->all->plan.clients; i++) {
        const struct gateway_client *client = &gateway->clients[i];
        if (!client->waits && client->at_us < next_us) next_us = client->at_us;
    }
    return next_us;
}

void clients_go(struct gateway *gateway) {
    for (unsigned i = 0; i < gateway->all->plan.clients; i++) {
        struct gateway_client *client = &gateway->clients[i];
        if (client->waits || client->at_us > gateway->all->sim->now_us) continue;
        client->waits = true;
        gateway_take_of(gateway, client);
    }
}

/* -- what must hold ------------------------------------------------------------------------------------------------------ */

/* Since then nothing was wrong, nor shortly before. */
static bool calm_since(const struct gateway *gateway, uint64_t us) {
    return later(gateway->trouble_us, gateway->all->trouble_us) + 3000 * MS < us;
}

static void hungers(struct gateway *gateway) {
    struct gateways *all = gateway->all;
    if (gateway->hungry_us == NEVER || !calm_since(gateway, gateway->hungry_us))
        gateway->hungry_us = all->sim->now_us, gateway->hungry_refills = all->refills;
    uint64_t refills = all->refills - gateway->hungry_refills;
    uint64_t at_once = refill_us(all) < 1000 * MS ? 2000 * MS / refill_us(all) : 1;
    uint64_t tokens = at_once * tokens_of(all), turns = (all->plan.gateways + tokens - 1) / tokens;
    uint64_t most = (2 * turns + TURNS_MORE) * at_once, for_us = all->sim->now_us - gateway->hungry_us;
    if (for_us > most * refill_us(all) + 2000 * MS)
        sim_violation(all->sim, RULE_QUOTA, "%s's clients got nothing for %" PRIu64 " ms", gateway->node, for_us / MS);
    if (refills > all->most_refills) all->most_refills = refills;
    if (refills > most)
        sim_violation(all->sim, RULE_QUOTA, "%s saw %" PRIu64 " refills, and its clients got nothing", gateway->node,
                      refills);
}

/* It has come again, as it was told, and is refused again. */
static void told_wrong(struct gateway *gateway, const struct gateway_client *client) {
    struct gateways *all = gateway->all;
    if (all->came_us < client->took_us)
        sim_violation(all->sim, RULE_QUOTA, "%s: a client that obeys came %" PRIu64 " ms later as it was told, in vain",
                      gateway->node, (all->sim->now_us - client->took_us) / MS);
}

/* Leases hold more than is needed now; the servers see to it that others get that soon. */
static unsigned modest_most(const struct gateways *all) {
    return all->definition.mode == PB__QUOTA_MODE__QUOTA_LEASE ? TURNS_MORE : 1;
}

static void refused(struct gateway *gateway, struct gateway_client *client, uint64_t seconds) {
    struct gateways *all = gateway->all;
    uint64_t now_us = all->sim->now_us;
    client->refusals++;
    if (!calm_since(gateway, client->want_us)) { /* from now on it counts */
        wants(client, now_us);
        return;
    }
    if (seconds * 1000 * MS > refill_us(all) + 2000 * MS)
        sim_violation(all->sim, RULE_QUOTA, "%s: a client is told to come in %" PRIu64 " s", gateway->node, seconds);
    if (client->refusals > all->most_refusals) all->most_refusals = client->refusals;
    if (client->refusals > modest_most(all) && all->plan.modest)
        sim_violation(all->sim, RULE_QUOTA, "%s: a client that obeys is refused %u times", gateway->node,
                      client->refusals);
    if (all->owned) return;
    if (client->took_us) told_wrong(gateway, client);
    hungers(gateway);
}

void client_decided(struct gateway *gateway, struct gateway_client *client, int error, uint64_t retry_ms) {
    struct gateways *all = gateway->all;
    uint64_t now_us = all->sim->now_us, took_us = client->at_us, seconds = (retry_ms + 999) / 1000;
    if (!seconds) seconds = 1;
    client->waits = false;
    TRACE(all->sim, "%s: client %u: %s, %" PRIu64 " ms", gateway->node, (unsigned)(client - gateway->clients),
          co_strerror(error), retry_ms);
    if (error == CO_OK) {
        client->served = true;
        gateway->hungry_us = NEVER;
        if (calm_since(gateway, client->want_us) && now_us - client->want_us > all->longest_wait_us)
            all->longest_wait_us = now_us - client->want_us;
        wants(client, now_us + sim_random(all->sim, 1, 3) * MS + (all->plan.modest ? refill_us(all) : 0));
        return;
    }
    if (error == CO_BUSY) refused(gateway, client, seconds);
    client->took_us = took_us;
    if (error == CO_BUSY && client->served && gateway->number < all->plan.leavers) {
        TRACE(all->sim, "%s: it goes away", gateway->node);
        client->at_us = NEVER;
        all->left++, all->left_us = now_us;
        return;
    }
    client->at_us = now_us + seconds * 1000 * MS + sim_random(all->sim, 0, 2 * MS);
}
