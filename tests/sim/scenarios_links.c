/* Links: when agents, and servers of other regions, leave a server and find another. Bounds are in virtual time; each says
 * what it is the sum of. */
#include "base/check.h"
#include "tests/sim/dialling.h"
#include "tests/sim/story.h"

#define SILENT_MS \
    1150              /* a silent server is noticed while somebody waits, or asks: 400 + 450, or 200 + 600, and ticks */
#define IDLE_MS  6200 /* ... while nobody does: 5000 + 1000, and ticks */
#define DIAL_MS  900  /* a server that says no hello is given up: 800, and ticks */
#define LEAVE_MS 900  /* one that knows no leader is left: 500 to 800, and ticks */
#define HOME_MS  95000 /* an agent goes home after 30 to 60 s; a second time when a dial was under way just then */
#define AGAIN_MS 5000  /* the longest back-off */

static bool all_work(struct dialling *d) {
    for (unsigned i = 0; i < d->agent_count; i++)
        if (!dial_works(&d->agents[i])) return false;
    return true;
}

static bool all_at_home(struct dialling *d) {
    for (unsigned i = 0; i < d->agent_count; i++)
        if (dial_current(&d->agents[i]) != dial_home(&d->agents[i])) return false;
    return true;
}

static unsigned changes(const struct dialling *d) {
    unsigned sum = 0;
    for (unsigned i = 0; i < d->agent_count; i++) sum += d->agents[i].changes;
    return sum;
}

static unsigned dials(const struct dialling *d) {
    unsigned sum = 0;
    for (unsigned i = 0; i < d->agent_count; i++) sum += d->agents[i].dials;
    return sum;
}

static void heal(struct dialling *d) {
    for (unsigned i = 0; i < d->host_count; i++) {
        struct dial_host *host = &d->hosts[i];
        dial_host_is(d, host, DIAL_UP);
        host->paused_us = host->hello_us = 0, host->leads = true, host->cut_off = false;
        host->cluster_id = DIAL_CLUSTER;
        for (unsigned k = 0; k < d->agent_count; k++) d->agents[k].cut[i] = false;
    }
}

/* When nothing is wrong nobody changes its server, and nobody dials. */
static void expect_calm(struct sim *s, struct dialling *d) {
    EXPECT(s, DIAL_WITHIN(d, HOME_MS, all_at_home(d)));
    dialling_run(d, 11000); /* what drains is over */
    unsigned changes_before = changes(d), dials_before = dials(d);
    dialling_run(d, 60000);
    EXPECT(s, changes(d) == changes_before && dials(d) == dials_before && all_at_home(d));
}

static void agents_begin(struct dialling *d, unsigned count) {
    for (unsigned i = 0; i < count; i++) dialling_agent(d, &d->hosts[sim_random(d->sim, 0, d->host_count - 1)], 0);
}

/* -- servers that fail at random ---------------------------------------------------------------------------------- */

static void break_host(struct dialling *d, struct dial_host *host) {
    struct sim *s = d->sim;
    dial_host_is(d, host, DIAL_UP);
    host->paused_us = host->hello_us = 0, host->leads = true, host->cut_off = false;
    for (unsigned i = 0; i < d->agent_count; i++) d->agents[i].cut[host->number] = false;
    uint64_t fault = sim_random(s, 0, 8);
    static const char *const words[] = {"ends",
                                        "loses power",
                                        "stands still",
                                        "is cut off from agents",
                                        "knows no leader",
                                        "is cut off from the others",
                                        "says hello late"};
    TRACE(s, "%s %s", host->address, fault < ARRAY_COUNT(words) ? words[fault] : "is well");
    switch (fault) {
        case 0: dial_host_is(d, host, DIAL_DOWN); break;
        case 1: dial_host_is(d, host, DIAL_GONE); break;
        case 2: host->paused_us = s->now_us + sim_random(s, 100, 20000) * MS; break;
        case 3:
            for (unsigned i = 0; i < d->agent_count; i++) d->agents[i].cut[host->number] = sim_chance(s, 600);
            break;
        case 4: host->leads = false; break;
        case 5: host->leads = false, host->cut_off = true; break;
        case 6: host->hello_us = sim_random(s, 100, 3000) * MS; break;
        default: break; /* well again */
    }
}

void scenario_agents_find_the_server_that_works(struct sim *s) {
    struct dialling *d = dialling_begin(s, (unsigned)sim_random(s, 2, 5));
    struct dial_host *good = &d->hosts[sim_random(s, 0, d->host_count - 1)];
    agents_begin(d, 8);
    EXPECT(s, DIAL_WITHIN(d, 2000, all_work(d)));
    dialling_run(d, 1000);
    for (unsigned i = 0; i < d->agent_count; i++) {
        struct dial_agent *agent = &d->agents[i];
        if (sim_chance(s, 250)) agent->awaits = false, agent->ask_ms = 0;
        bool idle = !agent->awaits && !agent->ask_ms;
        agent->bound_ms = (idle ? IDLE_MS : SILENT_MS) + (d->host_count - 1) * DIAL_MS + LEAVE_MS;
    }
    for (unsigned i = 0; i < 60 && !s->failed; i++) {
        struct dial_host *host = &d->hosts[sim_random(s, 0, d->host_count - 1)];
        if (host != good) break_host(d, host);
        if (sim_chance(s, 100)) d->agents[sim_random(s, 0, 7)].paused_us = s->now_us + sim_random(s, 100, 3000) * MS;
        dialling_run(d, sim_random(s, 1, sim_chance(s, 200) ? 20000 : 1500));
    }
    heal(d);
    expect_calm(s, d);
    dialling_end(d);
}

/* -- half-open connections ---------------------------------------------------------------------------------------- */

/* Nothing comes back, and no end of the connection either. */
void scenario_a_silent_connection_is_given_up(struct sim *s) {
    struct dialling *d = dialling_begin(s, 2);
    agents_begin(d, 4);
    for (unsigned i = 0; i < d->agent_count; i++) d->agents[i].awaits = i < 2, d->agents[i].ask_ms = i == 2 ? 100 : 0;
    EXPECT(s, DIAL_WITHIN(d, HOME_MS, all_at_home(d)));
    for (unsigned i = 0; i < d->agent_count && !s->failed; i++) {
        struct dial_agent *agent = &d->agents[i];
        struct dial_host *host = dial_home(agent), *other = &d->hosts[1 - host->number];
        dialling_run(d, sim_random(s, 0, 7000));
        EXPECT(s, dial_current(agent) == host);
        agent->cut[host->number] = true;
        EXPECT(s, DIAL_WITHIN(d, i == 3 ? IDLE_MS : SILENT_MS, !agent->connections.current));
        EXPECT(s, DIAL_WITHIN(d, DIAL_LATE_MS, dial_current(agent) == other));
        agent->cut[host->number] = false;
        EXPECT(s, DIAL_WITHIN(d, HOME_MS, all_at_home(d)));
    }
    dialling_end(d);
}

/* -- names -------------------------------------------------------------------------------------------------------- */

/* One that has just started knows a name alone. */
void scenario_a_name_is_tried_address_by_address(struct sim *s) {
    struct dialling *d = dialling_begin(s, DIAL_NAME_MOST);
    unsigned count = (unsigned)sim_random(s, 1, DIAL_NAME_MOST), good = (unsigned)sim_random(s, 0, count - 1);
    for (unsigned i = 0; i < DIAL_NAME_MOST; i++) {
        if (i < count) d->named[d->named_count++] = i;
        if (i != good) dial_host_is(d, &d->hosts[i], sim_chance(s, 500) ? DIAL_DOWN : DIAL_GONE);
    }
    uint64_t unresolved_ms = sim_chance(s, 500) ? sim_random(s, 1, 20000) : 0;
    d->resolves = !unresolved_ms;
    struct dial_agent *agent = dialling_agent(d, NULL, 0);
    dialling_run(d, unresolved_ms);
    d->resolves = true;
    uint64_t waits_ms = unresolved_ms ? AGAIN_MS + 300 : 0; /* the back-off of the name, and a look-up that fails */
    EXPECT(s, DIAL_WITHIN(d, waits_ms + count * (DIAL_MS + 250), dial_works(agent)));
    dialling_end(d);
}

/* -- restarts ----------------------------------------------------------------------------------------------------- */

enum { MANY = 60 };
#define WINDOW_MS 100

void scenario_agents_come_back_spread_over_time(struct sim *s) {
    struct dialling *d = dialling_begin(s, 3);
    unsigned arrived = 0, most = 0, before = 0;
    agents_begin(d, MANY);
    EXPECT(s, DIAL_WITHIN(d, HOME_MS, all_at_home(d)));
    for (unsigned i = 0; i < 3; i++) dial_host_is(d, &d->hosts[i], DIAL_DOWN);
    unsigned dials_before = dials(d);
    uint64_t down_ms = sim_random(s, 8000, 40000);
    dialling_run(d, down_ms);
    /* With 0.1, 0.2, 0.4 s ... between them at first, and half of the longest back-off at least later. */
    uint64_t dials_most = 3 * (7 + down_ms / (AGAIN_MS / 2));
    EXPECT(s, dials(d) - dials_before <= MANY * dials_most);
    for (unsigned i = 0; i < 3; i++) dial_host_is(d, &d->hosts[i], DIAL_UP), d->hosts[i].arrivals = 0;
    for (uint64_t ms = 0; ms < AGAIN_MS + DIAL_LATE_MS; ms += WINDOW_MS, before = arrived) {
        dialling_run(d, WINDOW_MS);
        arrived = d->hosts[0].arrivals + d->hosts[1].arrivals + d->hosts[2].arrivals;
        if (arrived - before > most) most = arrived - before;
    }
    TRACE(s, "%u of %u at most came in %u ms", most, MANY, WINDOW_MS);
    EXPECT(s, most <= MANY / 3);
    EXPECT(s, all_work(d));
    dialling_end(d);
}

void scenario_a_restart_of_the_only_server_is_short(struct sim *s) {
    struct dialling *d = dialling_begin(s, 1);
    agents_begin(d, 4);
    EXPECT(s, DIAL_WITHIN(d, 2000, all_work(d)));
    for (unsigned i = 0; i < 6 && !s->failed; i++) {
        uint64_t down_ms = sim_chance(s, 500) ? sim_random(s, 1, 900) : sim_random(s, 1, 15000);
        dialling_run(d, sim_random(s, 200, 10000));
        dial_host_is(d, &d->hosts[0], DIAL_DOWN);
        dialling_run(d, down_ms);
        dial_host_is(d, &d->hosts[0], DIAL_UP);
        /* It is tried again after a second; the waits after that are at most twice what has passed. */
        uint64_t most_ms = down_ms < 1000 ? 1000 - down_ms : 2 * down_ms;
        EXPECT(s, DIAL_WITHIN(d, (most_ms < AGAIN_MS ? most_ms : AGAIN_MS) + DIAL_LATE_MS, all_work(d)));
    }
    dialling_end(d);
}

/* -- a minority without a leader ---------------------------------------------------------------------------------- */

static bool majority_leads(struct dialling *d, unsigned minority) {
    for (unsigned i = 0; i < d->host_count; i++)
        if (!(minority & 1u << i) && !d->hosts[i].leads) return false;
    return true;
}

static bool nobody_in(const struct dialling *d, unsigned minority) {
    for (unsigned i = 0; i < d->agent_count; i++) {
        const struct dial_host *host = dial_current(&d->agents[i]);
        if (!host || minority & 1u << host->number || !dial_works(&d->agents[i])) return false;
    }
    return true;
}

/* Of the simulated cluster, off from the others; agents reach all of them. */
void scenario_agents_leave_a_leaderless_minority(struct sim *s) {
    story_begin(s, 5);
    struct server *leader = story_leader(s);
    if (!leader) return;
    struct dialling *d = dialling_begin(s, 5);
    dialling_of_cluster(d);
    agents_begin(d, 10);
    EXPECT(s, DIAL_WITHIN(d, HOME_MS, all_at_home(d)));
    unsigned minority = 1u << sim_random(s, 0, 4) | 1u << sim_random(s, 0, 4);
    if (sim_chance(s, 500)) minority |= 1u << leader->slot;
    if (__builtin_popcount(minority) > 2) minority = 1u << leader->slot;
    for (uint32_t a = 0; a < 5; a++)
        for (uint32_t b = 0; b < 5; b++)
            if ((minority >> a & 1) != (minority >> b & 1)) network_cut(s, a, b, true);
    EXPECT(s, DIAL_WITHIN(d, 5000, majority_leads(d, minority)));
    /* A leader that is cut off believes in itself for an election's time; one that was tried before its election is left
     * alone for 2 s. */
    EXPECT(s, DIAL_WITHIN(d, 1000 + LEAVE_MS + 2000 + DIAL_LATE_MS, nobody_in(d, minority)));
    dialling_run(d, 2000);
    unsigned before = changes(d);
    dialling_run(d, 70000); /* those whose home it is look there every now and then */
    EXPECT(s, changes(d) == before && nobody_in(d, minority));
    network_heal(s);
    EXPECT(s, DIAL_WITHIN(d, 5000, majority_leads(d, 0)));
    expect_calm(s, d);
    dialling_end(d);
    story_end(s);
}

/* -- other clusters ----------------------------------------------------------------------------------------------- */

static bool follows(const struct dialling *d) {
    for (unsigned i = 0; i < d->agent_count; i++)
        if (!d->agents[i].anew || !dial_current(&d->agents[i])) return false;
    return true;
}

/* One server stays away, and might come back; all others' addresses answer as another cluster. */
void scenario_agents_stay_with_their_cluster(struct sim *s) {
    struct dialling *d = dialling_begin(s, (unsigned)sim_random(s, 2, 4));
    agents_begin(d, 6);
    EXPECT(s, DIAL_WITHIN(d, 2000, all_work(d)));
    dialling_run(d, 1000);
    for (unsigned round = 0; round < 3 && !s->failed; round++) {
        struct dial_host *away = &d->hosts[sim_random(s, 0, d->host_count - 1)];
        for (unsigned i = 0; i < d->host_count; i++) {
            dial_host_is(d, &d->hosts[i], DIAL_DOWN);
            if (&d->hosts[i] != away) d->hosts[i].cluster_id = DIAL_STRANGER;
        }
        for (unsigned i = 0; i < d->host_count; i++)
            if (&d->hosts[i] != away) dial_host_is(d, &d->hosts[i], DIAL_UP);
        unsigned before = dials(d);
        dialling_run(d, 60000);
        EXPECT(s, dials(d) - before <= d->agent_count * d->host_count * (60000 / (AGAIN_MS / 2) + 7));
        for (unsigned i = 0; i < d->agent_count; i++)
            EXPECT(s, !d->agents[i].connections.current && d->agents[i].connections.cluster_id == DIAL_CLUSTER);
        if (sim_chance(s, 500)) dial_host_is(d, away, DIAL_UP); /* what is left of the cluster */
        else heal(d);
        EXPECT(s, DIAL_WITHIN(d, AGAIN_MS + DIAL_LATE_MS, all_work(d)));
        heal(d);
        dialling_run(d, sim_random(s, 1, 90000));
    }
    /* All of them founded anew: the agents go along. */
    for (unsigned i = 0; i < d->host_count; i++) {
        dial_host_is(d, &d->hosts[i], DIAL_DOWN);
        d->hosts[i].cluster_id = DIAL_STRANGER;
        dial_host_is(d, &d->hosts[i], DIAL_UP);
    }
    EXPECT(s, !DIAL_WITHIN(d, CONNECTIONS_OTHER_CLUSTER_MS - DIAL_LATE_MS, follows(d)));
    EXPECT(s, DIAL_WITHIN(d, AGAIN_MS + 2 * DIAL_LATE_MS, follows(d)));
    dialling_end(d);
}

/* -- another region ----------------------------------------------------------------------------------------------- */

static void cut_servers(struct dialling *d, bool cut) {
    bool silent = sim_chance(d->sim, 500);
    for (unsigned i = 0; i < d->host_count; i++)
        if (!cut) dial_host_is(d, &d->hosts[i], DIAL_UP), d->agents[0].cut[i] = false;
        else if (silent) d->agents[0].cut[i] = true;
        else dial_host_is(d, &d->hosts[i], DIAL_DOWN);
}

static void read_for(struct dialling *d, uint64_t ms) {
    for (uint64_t left = ms, step; left && !d->sim->failed; left -= step) {
        step = sim_random(d->sim, 1, 1000);
        if (step > left) step = left;
        dialling_run(d, step);
        if (d->agents[0].reading < DIAL_READERS) dial_read(&d->agents[0]);
    }
}

/* The judge in dialling.c sees when readers are told, and of what. */
void scenario_a_region_that_is_away_says_so_at_once(struct sim *s) {
    struct dialling *d = dialling_begin(s, (unsigned)sim_random(s, 1, 3));
    uint64_t hold_ms = sim_random(s, 300, 7000);
    struct dial_agent *link = dialling_agent(d, &d->hosts[0], hold_ms);
    EXPECT(s, DIAL_WITHIN(d, 2000, all_work(d)));
    for (unsigned i = 0; i < 6 && !s->failed; i++) {
        uint64_t away_ms = sim_random(s, 1, 30000);
        read_for(d, sim_random(s, 1000, 20000));
        cut_servers(d, true);
        read_for(d, away_ms);
        unsigned told = link->told, served = link->served;
        bool noticed = !link->connections.current;
        dial_read(link);
        if (noticed && connections_away(&link->connections, s->now_us / 1000 + link->clock_ms))
            EXPECT(s, link->told == told + 1);
        cut_servers(d, false);
        /* Packets that were held back come again; else the longest back-off, and an attempt that hangs. */
        EXPECT(s, DIAL_WITHIN(d, AGAIN_MS + DIAL_MS + 2 * DIAL_LATE_MS, all_work(d)));
        served = link->served;
        dial_read(link);
        EXPECT(s, link->served == served + 1);
    }
    dialling_end(d);
}

/* Of an agent: each reader waits for its own 7 s. */
void scenario_a_read_without_servers_ends_in_time(struct sim *s) {
    struct dialling *d = dialling_begin(s, (unsigned)sim_random(s, 1, 3));
    struct dial_agent *agent = dialling_agent(d, &d->hosts[0], 0);
    EXPECT(s, DIAL_WITHIN(d, 2000, all_work(d)));
    for (unsigned i = 0; i < 3 && !s->failed; i++) {
        cut_servers(d, true);
        read_for(d, sim_random(s, 1, 20000));
        cut_servers(d, false);
        EXPECT(s, DIAL_WITHIN(d, AGAIN_MS + DIAL_MS + 2 * DIAL_LATE_MS, all_work(d) && !agent->reading));
    }
    dialling_end(d);
}
