#include "lb/coordinate_agent.h"

#include <stdlib.h>

#include "base/check.h"

struct coordinate_agent {
    char *node;
    uint64_t interval_ms, deadline_ms;
    struct rng rng;
    struct vivaldi *vivaldi;
    struct vivaldi_coordinate reported; /* the numbers that a record points to */
};

static void schedule(struct coordinate_agent *agent, size_t nodes, uint64_t now_ms) {
    uint64_t interval_ms = agent->interval_ms, fair_ms = (uint64_t)nodes * 1000 / COORDINATE_REPORTS_PER_S;
    if (interval_ms < fair_ms) interval_ms = fair_ms;
    agent->deadline_ms = now_ms + interval_ms + rng_below(&agent->rng, interval_ms + 1);
}

struct coordinate_agent *coordinate_agent_new(const struct coordinate_agent_config *config, uint64_t now_ms) {
    CHECK(config->node && config->node[0]);
    struct coordinate_agent *agent = mem_zalloc(sizeof *agent);
    agent->node = mem_strdup(config->node);
    agent->interval_ms = config->interval_ms ? config->interval_ms : COORDINATE_INTERVAL_MS;
    rng_seed(&agent->rng, config->seed);
    agent->vivaldi = vivaldi_new(rng_next(&agent->rng));
    schedule(agent, 0, now_ms);
    return agent;
}

void coordinate_agent_free(struct coordinate_agent *agent) {
    if (!agent) return;
    vivaldi_free(agent->vivaldi);
    free(agent->node);
    free(agent);
}

int coordinate_observe(struct coordinate_agent *agent, struct slice node, const struct vivaldi_coordinate *there,
                       double rtt_s) {
    return vivaldi_sample(agent->vivaldi, node, there, rtt_s);
}

void coordinate_forget(struct coordinate_agent *agent, struct slice node) { vivaldi_forget(agent->vivaldi, node); }

const struct vivaldi_coordinate *coordinate_here(const struct coordinate_agent *agent) {
    return vivaldi_here(agent->vivaldi);
}

uint64_t coordinate_agent_deadline_ms(const struct coordinate_agent *agent) { return agent->deadline_ms; }

bool coordinate_report(struct coordinate_agent *agent, size_t nodes, uint64_t now_ms, Pb__Coordinate *record) {
    if (now_ms < agent->deadline_ms) return false;
    schedule(agent, nodes, now_ms);
    agent->reported = *vivaldi_here(agent->vivaldi);
    *record = coordinate_record(agent->node, "", &agent->reported);
    return true;
}
