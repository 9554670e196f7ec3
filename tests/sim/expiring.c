/* Things that end by themselves: an operation makes one, others renew it, and the servers end it when its TTL is over;
 * sessions, leases and what comes. Their bounds hold for all alike. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tests/sim/module.h"

#define P PRIu64

void expiring_name(const char *kind, uint64_t op, char id[40]) {
    snprintf(id, 40, "%s-0000-4000-8000-%012" PRIx64, kind, op & 0xffffffffffff);
}

uint64_t expiring_maker(const char *kind, const char *id) {
    return strlen(id) == 36 && strncmp(id, kind, 8) == 0 ? strtoull(id + 24, NULL, 16) : 0;
}

bool expiring_alive(struct sim *sim, uint64_t id) {
    if (id == 0 || id > sim->op_count) return false;
    const struct op *op = op_get(sim, id);
    return op->created_index != 0 && op->ended_index == 0;
}

void expiring_began(struct op *op, uint64_t index) { op->created_index = index; }

/* -- bounds: no end before a full period after the last acknowledged renewal was sent -------------------------------- */

uint64_t period_us(const struct sim *sim, uint64_t ms) {
    uint64_t rate = 1000;
    for (uint32_t i = 0; i < sim->server_count; i++)
        if (sim->servers[i]->rate > rate) rate = sim->servers[i]->rate;
    return ms * MS * 1000 / rate;
}

void expiring_ended(struct sim *sim, struct op *op, uint64_t index, bool cut_short) {
    op->ended_index = index;
    op->ended_us = sim->now_us;
    op->cut_short = cut_short;
    if (!cut_short && op->renewed_us + period_us(sim, op->ttl_ms) > op->ended_us)
        sim_violation(sim, RULE_LEASE,
                      "%s %" P " of %" P " ms ends at %" P ", %" P " ms after its last renewal was sent",
                      op->module->name, op->id, op->ttl_ms, index, (op->ended_us - op->renewed_us) / MS);
    sim_notify(sim, &(struct sim_notice){.type = SIM_ENDED, .op = op, .index = index});
}

void check_renewed(struct sim *sim, const struct op *renewal) {
    if (renewal->error != CO_OK) return;
    struct op *op = op_get(sim, renewal->owner);
    if (op->ended_index && !op->cut_short && renewal->invoked_us + period_us(sim, op->ttl_ms) > op->ended_us)
        sim_violation(sim, RULE_LEASE, "renewal %" P " of %s %" P " is acknowledged, it has ended at %" P, renewal->id,
                      op->module->name, op->id, op->ended_index);
    if (renewal->invoked_us > op->renewed_us) op->renewed_us = renewal->invoked_us;
}

bool expiring_over(struct sim *sim) {
    for (size_t i = 0; i < sim->op_count; i++)
        if (expiring_alive(sim, sim->ops[i].id)) return false;
    for (size_t i = 0; sim_modules[i]; i++)
        if (sim_modules[i]->over && !sim_modules[i]->over(sim)) return false;
    return true;
}

uint64_t expiring_longest_ms(struct sim *sim) {
    uint64_t longest_ms = 0, after_ms = 0;
    for (size_t i = 0; i < sim->op_count; i++)
        if (sim->ops[i].ttl_ms > longest_ms) longest_ms = sim->ops[i].ttl_ms;
    for (size_t i = 0; sim_modules[i]; i++) after_ms += sim_modules[i]->over_ms;
    return longest_ms + after_ms;
}

void expiring_judge(struct sim *sim, const struct sim_module *module, bool (*makes)(const struct op *op), size_t count,
                    bool known) {
    size_t wanted = 0;
    for (size_t i = 0; i < sim->op_count; i++) wanted += makes(&sim->ops[i]) && expiring_alive(sim, sim->ops[i].id);
    if (!known || count != wanted)
        sim_violation(sim, RULE_MODEL, "at the end there are %zu of %s, expected %zu%s", count, module->name, wanted,
                      known ? "" : ", and others");
}

/* -- for clients ----------------------------------------------------------------------------------------------------- */

enum keep_step keep_step(struct sim_turn *turn, struct keep_plan *plan, uint32_t make_permille, uint32_t use_permille) {
    static const uint32_t ttls_ms[] = {200, 500, 1000, 2000};
    if (turn->now_us >= plan->gone_us) {
        if (!turn_chance(turn, make_permille)) return KEEP_NOTHING;
        plan->ttl_ms = ttls_ms[turn_random(turn, 0, ARRAY_COUNT(ttls_ms) - 1)];
        plan->renewed_us = plan->until_us = turn->now_us;
        if (turn_chance(turn, 700)) plan->until_us += turn_random(turn, plan->ttl_ms, 6000) * MS;
        plan->gone_us = plan->until_us + turn_random(turn, 0, 3 * plan->ttl_ms) * MS;
        return KEEP_MAKE;
    }
    if (turn->now_us < plan->until_us && turn->now_us - plan->renewed_us > plan->ttl_ms * MS / 3) {
        plan->renewed_us = turn->now_us;
        return KEEP_RENEW;
    }
    return turn_chance(turn, use_permille) ? KEEP_USE : KEEP_NOTHING;
}

bool keep_complete(void *data, struct op *op) {
    struct keep_known *known = data;
    if (op->ttl_ms) { /* it makes one */
        *known = (struct keep_known){.op = op->id};
        return true;
    }
    op->owner = known->op;
    return known->made && !known->lost;
}

void keep_learn(void *data, const struct op *op) {
    struct keep_known *known = data;
    if (op->id == known->op) {
        known->made = op->state == OP_UNKNOWN || (op->state == OP_DONE && op->error == CO_OK);
    } else if (op->owner == known->op && op->state == OP_DONE && op->error != CO_OK) {
        known->lost = true;
    }
}
