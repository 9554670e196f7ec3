/* Agents that keep their services in the catalog while servers, agents and the network between them fail. */
#include "registry/catalog.h"
#include "registry/lease.h"
#include "tests/sim/agents.h"
#include "tests/sim/story.h"

#define TTL_MS    4000
#define END_MS    1500 /* a lease ends so much after its TTL at most */
#define WITHIN_MS 8000

static const struct agents_plan plan = {
    .agents = 4, .ttl_ms = TTL_MS, .reconnect_ms = 72000, .sync_ms = 60000, .within_ms = WITHIN_MS, .services = 3};

/* All of them have arrived. NULL: that failed, and is noted. */
static struct agents *begin(struct sim *s, const struct agents_plan *of) {
    story_begin(s, 3);
    if (!story_leader(s)) return NULL;
    struct agents *all = agents_begin(s, of);
    if (!WITHIN(s, of->within_ms, agents_agree(all))) sim_violation(s, RULE_STORY, "agents do not arrive");
    return s->failed ? NULL : all;
}

static void end(struct sim *s) {
    TRACE(s, "%u leases granted, %u ended; %u messages lost; %u comparisons; longest difference %" PRIu64 " ms",
          s->agents->granted, s->agents->ended, s->agents->lost, s->agents->compared, s->agents->longest_us / MS);
    if (!s->failed) agents_stop(s);
    story_end(s);
}

/* -- what happens to them ----------------------------------------------------------------------------------------- */

static struct agent *any(struct sim *s) { return &s->agents->agents[sim_random(s, 0, s->agents->plan.agents - 1)]; }

static Pb__Status any_status(struct sim *s) {
    static const Pb__Status all[] = {PB__STATUS__PASSING, PB__STATUS__CRITICAL, PB__STATUS__WARNING};
    return all[sim_random(s, 0, 2)];
}

static void changes(struct sim *s, struct agent *agent) {
    unsigned service = (unsigned)sim_random(s, 0, AGENT_SERVICES - 1);
    switch (sim_random(s, 0, 3)) {
        case 0: agent_put(agent, service, any_status(s)); break;
        case 1: agent_drop(agent, service); break;
        default: agent_report(agent, service, any_status(s)); break;
    }
}

static void fails(struct sim *s, struct agent *agent) {
    uint64_t for_us = sim_random(s, 100, sim_chance(s, 400) ? 12000 : 2000) * MS;
    switch (sim_random(s, 0, 6)) {
        case 0: agent_cut(agent, for_us); break;
        case 1: agent_pause(agent, for_us); break;
        case 2: agent_kill(agent); break;
        case 3: agent_leave(agent); break;
        case 4: agents_interfere(agent, sim_chance(s, 500)); break;
        default: agent_start(agent); break;
    }
}

static void server_fails(struct sim *s) {
    struct server *server = s->servers[sim_random(s, 0, s->server_count - 1)], *leader = sim_leader(s);
    uint64_t for_us = sim_random(s, 50, 2500) * MS;
    if (!server->up) return;
    switch (sim_random(s, 0, 4)) {
        case 0:
            server_crash(server, CRASH_KILL);
            server_restart_after(server, for_us);
            break;
        case 1: server->paused_until_us = s->now_us + for_us; break;
        case 2: story_isolate(s, server); break;
        case 3:
            if (leader) (void)transfer_to(leader, story_other(s, leader, NULL));
            break;
        default: network_heal(s); break;
    }
}

static void weather(struct sim *s, uint64_t ms) {
    uint64_t end_us = s->now_us + ms * MS;
    while (!s->failed && s->now_us < end_us) {
        sim_run(s, sim_random(s, 20, 1500) * MS);
        if (sim_chance(s, 300)) server_fails(s);
        else if (sim_chance(s, 500)) fails(s, any(s));
        else changes(s, any(s));
    }
}

static void heal(struct sim *s) {
    cluster_heal(s);
    for (unsigned i = 0; i < s->agents->plan.agents; i++) {
        struct agent *agent = &s->agents->agents[i];
        agent->cut_us = 0;
        agent_start(agent);
    }
}

/* -- scenarios ---------------------------------------------------------------------------------------------------- */

void scenario_agents_keep_the_catalog_true(struct sim *s) {
    struct agents_plan of = plan;
    of.twins = 1, of.copied = s->options.seed % 2;
    of.lost_permille = 20, of.late_ms = 2000, of.sync_ms = 20000;
    of.reconnect_ms = 2000 * sim_random(s, 1, 4);
    EXPECT(s, begin(s, &of) != NULL);
    for (unsigned round = 0; round < 2; round++) {
        weather(s, 25000);
        heal(s);
        sim_run(s, 30000 * MS); /* somebody may have removed something that only a comparison finds */
        EXPECT(s, agents_agree(s->agents));
    }
    end(s);
}

/* Messages get lost, leaders die, and it changes what it has all the time. */
void scenario_an_agent_that_lives_keeps_its_lease(struct sim *s) {
    struct agents_plan of = plan;
    of.ttl_ms = 10000, of.lost_permille = 50, of.late_ms = 1000;
    struct agents *all = begin(s, &of);
    EXPECT(s, all != NULL);
    for (unsigned i = 0; i < 60 && !s->failed; i++) {
        sim_run(s, sim_random(s, 100, 1500) * MS);
        changes(s, any(s));
        struct server *leader = sim_leader(s);
        if (i % 20 == 19 && leader) {
            server_crash(leader, CRASH_KILL);
            server_restart_after(leader, sim_random(s, 500, 3000) * MS);
        }
    }
    EXPECT(s, all->ended == 0);
    end(s);
}

static uint64_t ended_us(const struct agent *agent) { return agent->all->lease_ended_us[agent_name(agent)]; }

/* A dead agent, one that stands still and one that is cut off are given up in time, and not before. */
void scenario_a_dead_agent_is_given_up_in_time(struct sim *s) {
    struct agents_plan of = plan;
    of.reconnect_ms = 3000;
    struct agents *all = begin(s, &of);
    EXPECT(s, all != NULL);
    sim_run(s, sim_random(s, 0, 5000) * MS);
    agent_kill(&all->agents[0]);
    agent_pause(&all->agents[1], 60000 * MS);
    agent_cut(&all->agents[2], 60000 * MS);
    uint64_t begun_us = s->now_us, third = TTL_MS / 3 + 100; /* since the last renewal */
    bool *left = all->node_left;
    EXPECT(s, NEVER_IN(s, TTL_MS - third, all->ended > 0));
    EXPECT(s, WITHIN(s, third + END_MS + TTL_MS / 100, all->ended == 3));
    for (unsigned i = 0; i < 3; i++) EXPECT(s, ended_us(&all->agents[i]) > begun_us && !left[i]);
    /* then they are removed: agents_judge.c. Living agents go on, and leave at once. */
    sim_run(s, 8000 * MS);
    EXPECT(s, all->agents[3].agrees && all->ended == 3);
    agent_leave(&all->agents[3]);
    EXPECT(s, WITHIN(s, 1000, !all->agents[3].up) && left[3] && all->ended == 4);
    end(s);
}

/* For longer than its TTL, and than the time after which its node is removed. */
void scenario_who_was_cut_off_comes_back_whole(struct sim *s) {
    struct agents_plan of = plan;
    of.reconnect_ms = 1000 * sim_random(s, 1, 5), of.lost_permille = 10;
    struct agents *all = begin(s, &of);
    EXPECT(s, all != NULL);
    for (unsigned round = 0; round < 3; round++) {
        struct agent *agent = any(s);
        uint64_t for_us = sim_random(s, TTL_MS + END_MS, 15000) * MS;
        if (sim_chance(s, 500)) agent_cut(agent, for_us);
        else agent_pause(agent, for_us);
        for (unsigned i = 0; i < 4; i++) {
            sim_run(s, for_us / 4);
            changes(s, agent);
        }
        EXPECT(s, WITHIN(s, WITHIN_MS, agents_agree(all)));
    }
    EXPECT(s, all->ended >= 3);
    end(s);
}

/* The second waits, and takes over when the first has gone; so does a copy of the first one's host. */
void scenario_two_agents_of_one_name(struct sim *s) {
    struct agents_plan of = plan;
    of.agents = 2, of.twins = 1, of.copied = s->options.seed % 2;
    of.lost_permille = 10;
    struct agents *all = begin(s, &of);
    EXPECT(s, all != NULL);
    for (unsigned round = 0; round < 4; round++) {
        struct agent *holder = &all->agents[all->lease_of[0]], *other = &all->agents[1 - all->lease_of[0]];
        agent_start(other);
        for (unsigned i = 0; i < 6; i++) {
            changes(s, &all->agents[i % 2]);
            sim_run(s, sim_random(s, 100, 1500) * MS);
            EXPECT(s, all->lease_of[0] == holder->number);
        }
        if (sim_chance(s, 300)) agent_leave(holder);
        else agent_kill(holder);
        EXPECT(s, WITHIN(s, TTL_MS + END_MS + 3000 + 1000, all->lease_of[0] == other->number));
        EXPECT(s, WITHIN(s, WITHIN_MS, agents_agree(all)));
    }
    end(s);
}

/* One message in ten is lost or its answer is, and a third of those arrive seconds later. */
void scenario_a_late_write_undoes_nothing(struct sim *s) {
    struct agents_plan of = plan;
    of.agents = 3, of.ttl_ms = 10000, of.lost_permille = 100, of.late_ms = 5000;
    struct agents *all = begin(s, &of);
    EXPECT(s, all != NULL);
    for (unsigned i = 0; i < 120 && !s->failed; i++) {
        changes(s, any(s));
        sim_run(s, sim_random(s, 10, 800) * MS);
    }
    EXPECT(s, !s->failed);
    all->plan.lost_permille = 0;
    sim_run(s, (5000 + WITHIN_MS) * MS);
    EXPECT(s, agents_agree(all));
    end(s);
}

/* Each write with it loses the connection; the others arrive, and it arrives when it may. */
void scenario_a_poisonous_record_holds_no_others(struct sim *s) {
    struct agents_plan of = plan;
    of.agents = 2, of.sync_ms = 600000;
    struct agents *all = begin(s, &of);
    EXPECT(s, all != NULL);
    struct agent *agent = &all->agents[0];
    agent->poisoned = true;
    for (unsigned i = 0; i < 20 && !s->failed; i++) {
        if (i % 4 == 0) agent_put(agent, 0, any_status(s));
        changes(s, agent);
        changes(s, agent);
        sim_run(s, sim_random(s, 500, 3000) * MS);
    }
    sim_run(s, WITHIN_MS * MS);
    EXPECT(s, !s->failed);
    agent->services[0].changed_us = s->now_us + 125000 * MS; /* it is tried again within two minutes */
    agent->poisoned = false;
    EXPECT(s, WITHIN(s, 125000, agents_agree(all)));
    end(s);
}

/* -- self-preservation -------------------------------------------------------------------------------------------- */

static void count_entries(void *data, const struct query_result *result) {
    const Pb__ServiceEntriesResult *all = (const Pb__ServiceEntriesResult *)result->message;
    *(size_t *)data = all ? all->n_entries : 0;
}

/* So many healthy instances of "web" clients are shown. */
static size_t shown(struct sim *s) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    const struct server *leader = sim_leader(s);
    size_t count = 0;
    request.service = (char *)(uintptr_t) "web", request.passing_only = true, request.held = true;
    if (leader) sim_query(s->servers[leader->slot], &query_service_entries, &request.base, count_entries, &count);
    return count;
}

/* In all that time so many are shown at least; looked at often enough to see a moment without. */
static bool stays(struct sim *s, uint64_t until_us, size_t least) {
    bool stays = true;
    while (s->now_us < until_us && !s->failed && (stays = shown(s) >= least)) sim_run(s, 20 * MS);
    return stays;
}

/* They are so many in so long. */
static bool comes_to(struct sim *s, uint64_t ms, size_t count) {
    uint64_t end_us = s->now_us + ms * MS;
    while (s->now_us < end_us && !s->failed && shown(s) != count) sim_run(s, 20 * MS);
    return shown(s) == count;
}

void scenario_many_at_once_stay_in_answers(struct sim *s) {
    static const struct lease_settings settings = {
        .preservation = {.percent = 85, .instances = 6, .nodes = 3, .window_ms = 15000, .hold_ms = 20000}};
    struct agents_plan of = plan;
    of.agents = 12, of.services = 1;
    s->lease_settings = &settings;
    struct agents *all = begin(s, &of);
    EXPECT(s, all != NULL && shown(s) == 12);
    agent_kill(&all->agents[0]); /* one goes */
    EXPECT(s, comes_to(s, TTL_MS + END_MS + 100, 11));
    sim_run(s, 16000 * MS);
    uint64_t cut_us = s->now_us, for_us = sim_random(s, 15000, 35000) * MS;
    uint64_t held_us = cut_us + (for_us < 20000 * MS ? for_us : 20000 * MS);
    for (unsigned i = 1; i < 12; i++) agent_cut(&all->agents[i], for_us);
    EXPECT(s, stays(s, cut_us + (TTL_MS + END_MS + 100) * MS, 1) && all->ended == 12);
    EXPECT(s, stays(s, held_us, 11));
    if (for_us > 28000 * MS) EXPECT(s, comes_to(s, 7000, 0));
    sim_run(s, cut_us + for_us > s->now_us ? cut_us + for_us - s->now_us : 1);
    EXPECT(s, WITHIN(s, WITHIN_MS, agents_agree(all)) && shown(s) == 11);
    end(s);
}
