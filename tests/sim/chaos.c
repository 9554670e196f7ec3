/* The faults of a seed: a chaos_profile (which faults, how often, on what kind of cluster) and then, event by event, what
 * happens to whom. The same chaos_profiles are used with and without broken rules. Faults have a stream of random numbers of
 * their own, each a new one: what clients do changes neither which fault comes next nor when. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "tests/sim/sim.h"

// clang-format off
enum action {
    CUT_LEADER, CUT_SPLIT, CUT_ONE_WAY, CUT_RING, MEND_NETWORK, CHANGE_NETWORK,
    KILL, POWER_LOSS, POWER_LOSS_ALL, DIE_WRITING, STOP_LEADER,
    SLOW_DISK, FAST_DISK, FAIL_WRITE, FAIL_SYNC, FULL_DISK, ROOM_AGAIN,
    PAUSE, PAUSE_LEADER, SNAPSHOT, ADD, PROMOTE, REMOVE, TRANSFER, STEP_DOWN,
    ACTION_COUNT,
};
// clang-format on

struct chaos_profile {
    const char *name;
    uint64_t mean_ms; /* between two actions */
    uint8_t weights[ACTION_COUNT];
    uint64_t election_least_ms, election_most_ms;
    bool small_appends;      /* one entry a message: the window of figure 8 opens */
    uint32_t brief_permille; /* of new leaders are gone within a few messages */
};

// clang-format off
static const struct chaos_profile chaos_profiles[] = {
    {"mild", 400,
     {[CUT_SPLIT] = 1, [MEND_NETWORK] = 3, [KILL] = 1, [SNAPSHOT] = 3, [TRANSFER] = 1},
     150, 300, false, 0},
    {"network", 150,
     {[CUT_LEADER] = 4, [CUT_SPLIT] = 4, [CUT_ONE_WAY] = 4, [CUT_RING] = 2, [MEND_NETWORK] = 10,
      [CHANGE_NETWORK] = 4, [KILL] = 1, [SNAPSHOT] = 1},
     100, 300, false, 0},
    {"crashes", 120,
     {[KILL] = 4, [POWER_LOSS] = 4, [POWER_LOSS_ALL] = 1, [DIE_WRITING] = 5, [STOP_LEADER] = 3,
      [SNAPSHOT] = 2},
     100, 250, false, 0},
    {"flapping", 120,
     {[CUT_LEADER] = 1, [MEND_NETWORK] = 8, [KILL] = 1},
     60, 120, true, 700},
    {"disks", 120,
     {[SLOW_DISK] = 4, [FAST_DISK] = 4, [FAIL_WRITE] = 4, [FAIL_SYNC] = 4, [FULL_DISK] = 2,
      [ROOM_AGAIN] = 4, [DIE_WRITING] = 3, [POWER_LOSS] = 2, [SNAPSHOT] = 3},
     100, 300, false, 0},
    {"members", 80,
     {[ADD] = 6, [PROMOTE] = 8, [REMOVE] = 5, [TRANSFER] = 2, [CUT_LEADER] = 2, [STOP_LEADER] = 2,
      [CUT_SPLIT] = 1, [MEND_NETWORK] = 5, [KILL] = 1, [SNAPSHOT] = 2, [POWER_LOSS] = 1},
     100, 250, false, 0},
    {"snapshots", 60,
     {[SNAPSHOT] = 12, [KILL] = 2, [POWER_LOSS] = 1, [DIE_WRITING] = 2, [CUT_SPLIT] = 2, [CUT_LEADER] = 1,
      [MEND_NETWORK] = 4, [CHANGE_NETWORK] = 2, [ADD] = 1, [PROMOTE] = 1, [SLOW_DISK] = 1, [FAST_DISK] = 1},
     100, 250, false, 0},
    {"pauses", 100,
     {[PAUSE] = 3, [PAUSE_LEADER] = 6, [CUT_LEADER] = 3, [CUT_ONE_WAY] = 2, [MEND_NETWORK] = 5,
      [TRANSFER] = 2, [STEP_DOWN] = 1},
     100, 300, false, 0},
    {"elections", 100,
     {[CUT_LEADER] = 2, [MEND_NETWORK] = 8, [PAUSE_LEADER] = 2, [KILL] = 1, [POWER_LOSS] = 1,
      [DIE_WRITING] = 2, [SLOW_DISK] = 3, [FAST_DISK] = 3, [STEP_DOWN] = 2, [CHANGE_NETWORK] = 1},
     50, 80, true, 500},
    {"everything", 60,
     {[CUT_LEADER] = 2, [CUT_SPLIT] = 2, [CUT_ONE_WAY] = 1, [CUT_RING] = 1, [MEND_NETWORK] = 8,
      [CHANGE_NETWORK] = 2, [KILL] = 2, [POWER_LOSS] = 2, [POWER_LOSS_ALL] = 1, [DIE_WRITING] = 2,
      [STOP_LEADER] = 2, [SLOW_DISK] = 2, [FAST_DISK] = 2, [FAIL_WRITE] = 1, [FAIL_SYNC] = 1,
      [FULL_DISK] = 1, [ROOM_AGAIN] = 2, [PAUSE] = 2, [PAUSE_LEADER] = 1, [SNAPSHOT] = 4, [ADD] = 2,
      [PROMOTE] = 3, [REMOVE] = 2, [TRANSFER] = 2, [STEP_DOWN] = 1},
     80, 300, false, 0},
};
// clang-format on

struct chaos {
    const struct chaos_profile *chaos_profile;
    uint64_t weight; /* sum of the chaos_profile's */
    uint64_t end_us;
    uint64_t number; /* of the fault */
    struct rng rng;  /* of that one */
};

static void next_stream(struct sim *sim) {
    struct chaos *chaos = sim->chaos;
    uint64_t seed[] = {sim->options.seed, chaos->number++};
    rng_seed(&chaos->rng, hash64_seed(seed, sizeof seed, 0xfa7e));
}

static uint64_t chaos_random(struct sim *sim, uint64_t least, uint64_t most) {
    return rng_between(&sim->chaos->rng, least, most);
}

static bool chaos_chance(struct sim *sim, uint32_t permille) { return rng_below(&sim->chaos->rng, 1000) < permille; }

const char *chaos_name(const struct sim *sim) { return sim->chaos ? sim->chaos->chaos_profile->name : "story"; }

/* -- whom -- */

static struct server *any_server(struct sim *sim) { return sim->servers[chaos_random(sim, 0, sim->server_count - 1)]; }

static struct server *leader_or_any(struct sim *sim) {
    struct server *leader = sim_leader(sim);
    return leader ? leader : any_server(sim);
}

/* Mostly short, sometimes long. */
static uint64_t spell_us(struct sim *sim, uint64_t short_ms, uint64_t long_ms) {
    return chaos_random(sim, 1, chaos_chance(sim, 800) ? short_ms : long_ms) * MS;
}

/* -- network -- */

static void cut_off(struct sim *sim, struct server *server) {
    TRACE(sim, "s%u is cut off", server->slot + 1);
    for (uint32_t i = 0; i < sim->server_count; i++) {
        network_cut(sim, server->slot, i, true);
        network_cut(sim, i, server->slot, true);
    }
}

static void cut_split(struct sim *sim) {
    uint64_t side = chaos_random(sim, 0, (1u << sim->server_count) - 1);
    TRACE(sim, "the network splits: %" PRIx64, side);
    for (uint32_t from = 0; from < sim->server_count; from++)
        for (uint32_t to = 0; to < sim->server_count; to++)
            network_cut(sim, from, to, (side >> from & 1) != (side >> to & 1));
}

static void cut_one_way(struct sim *sim) {
    struct server *server = leader_or_any(sim);
    bool deaf = chaos_chance(sim, 500);
    TRACE(sim, "s%u %s", server->slot + 1, deaf ? "hears nobody" : "is heard by nobody");
    for (uint32_t i = 0; i < sim->server_count; i++)
        network_cut(sim, deaf ? i : server->slot, deaf ? server->slot : i, true);
}

static void cut_ring(struct sim *sim) {
    uint32_t count = sim->server_count;
    TRACE(sim, "a ring: each hears its neighbours only");
    for (uint32_t from = 0; from < count; from++)
        for (uint32_t to = 0; to < count; to++)
            network_cut(sim, from, to, from != to && (from + 1) % count != to && (to + 1) % count != from);
}

static void change_network(struct sim *sim) {
    struct network *w = &sim->network;
    w->delay_us = chaos_random(sim, 50, 2 * MS);
    w->delay_span_us = chaos_random(sim, 0, chaos_chance(sim, 300) ? 50 * MS : 4 * MS);
    w->tail_permille = chaos_chance(sim, 400) ? (uint32_t)chaos_random(sim, 1, 100) : 0;
    w->tail_us = chaos_random(sim, 10, 800) * MS;
    w->loss_permille = chaos_chance(sim, 500) ? (uint32_t)chaos_random(sim, 1, 200) : 0;
    w->twice_permille = chaos_chance(sim, 400) ? (uint32_t)chaos_random(sim, 1, 200) : 0;
    w->ordered = chaos_chance(sim, 400);
    w->late = chaos_chance(sim, 300);
}

/* -- crashes and disks -- */

static void crash(struct sim *sim, struct server *server, enum crash how) {
    if (!server->up) return;
    server_crash(server, how);
    server_restart_after(
        server, sim->chaos->chaos_profile->brief_permille ? spell_us(sim, 300, 600) : spell_us(sim, 300, 2500));
}

static void power_loss_all(struct sim *sim) {
    for (uint32_t i = 0; i < sim->server_count; i++) crash(sim, sim->servers[i], CRASH_POWER);
}

static void slow_disk(struct server *server) {
    struct sim *sim = server->sim;
    /* the first: degraded */
    uint64_t most = chaos_chance(sim, 100)   ? 3 * DISK_SLOW_MS
                    : chaos_chance(sim, 200) ? 200
                                             : sim->raft.election_ms / 3;
    server->mood.delay_us = chaos_random(sim, 1, most / 2) * MS;
    server->mood.delay_span_us = chaos_random(sim, 1, most) * MS;
}

static void fast_disk(struct server *server) {
    server->mood = (struct disk_mood){.delay_us = 100, .delay_span_us = 2 * MS};
}

static void fill_disk(struct server *server) {
    TRACE(server->sim, "s%u: its disk is full soon", server->slot + 1);
    fake_disk_set_capacity(server->disk, fake_disk_used(server->disk) + chaos_random(server->sim, 0, 40) * 1024);
}

static void pause_server(struct server *server) {
    if (!server->up) return;
    uint64_t us = spell_us(server->sim, 600, 2000);
    TRACE(server->sim, "s%u stands still for %" PRIu64 " ms", server->slot + 1, us / MS);
    server->paused_until_us = server->sim->now_us + us;
}

/* -- the leader is asked -- */

static void ask_change(struct server *leader, enum raft_change_type type, uint64_t id) {
    struct raft_event event = {.type = RAFT_CHANGE, .u.change = {.type = type, .id = id, .address = "10.0.0.1:8300"}};
    server_flush(leader); /* a change is never in one turn with what came before or comes after */
    if (!leader->up) return;
    int rv = server_step(leader, &event);
    static const char *const names[] = {"add", "promote", "remove"};
    TRACE(leader->sim, "s%u is told to %s s%" PRIu64 ": %s", leader->slot + 1, names[type], id,
          rv ? co_strerror(rv) : "ok");
    server_flush(leader);
}

static bool able(const struct server *server) {
    return server && server->up && server->paused_until_us <= server->sim->now_us;
}

static void add_member(struct sim *sim) {
    struct server *leader = sim_leader(sim);
    if (!able(leader) || raft_members(leader->raft)->count >= 7) return;
    struct server *server = any_server(sim);
    if (raft_members_find(raft_members(leader->raft), server->id)) {
        if (sim->server_count >= SIM_SERVERS_MAX) return;
        server = server_new(sim);
        server_start(server);
    }
    ask_change(leader, RAFT_ADD_LEARNER, server->id);
}

static void promote_member(struct sim *sim) {
    struct server *leader = sim_leader(sim);
    if (!able(leader)) return;
    const struct raft_members *members = raft_members(leader->raft);
    for (uint32_t i = 0; i < members->count; i++) {
        if (members->member[i].voter) continue;
        ask_change(leader, RAFT_PROMOTE, members->member[i].id);
        return;
    }
}

static void remove_member(struct sim *sim) {
    struct server *leader = sim_leader(sim);
    if (!able(leader)) return;
    const struct raft_members *members = raft_members(leader->raft);
    if (members->count <= 2) return;
    ask_change(leader, RAFT_REMOVE, members->member[chaos_random(sim, 0, members->count - 1)].id);
}

static void transfer(struct sim *sim) {
    struct server *leader = sim_leader(sim);
    if (!able(leader)) return;
    struct raft_event event = {.type = RAFT_TRANSFER,
                               .u.transfer.target = chaos_chance(sim, 500) ? 0 : any_server(sim)->id};
    int rv = server_step(leader, &event);
    TRACE(sim, "s%u is told to hand over: %s", leader->slot + 1, rv ? co_strerror(rv) : "ok");
}

static void step_down(struct sim *sim) {
    struct server *leader = sim_leader(sim);
    if (!able(leader)) return;
    struct raft_event event = {.type = RAFT_STEP_DOWN, .u.step_down.quiet_ms = chaos_random(sim, 0, 1000)};
    server_step(leader, &event);
    TRACE(sim, "s%u is told to step down", leader->slot + 1);
}

/* -- events -- */

static void act(struct sim *sim, enum action action) {
    struct server *server = any_server(sim);
    switch (action) {
        case CUT_LEADER: cut_off(sim, leader_or_any(sim)); break;
        case CUT_SPLIT: cut_split(sim); break;
        case CUT_ONE_WAY: cut_one_way(sim); break;
        case CUT_RING: cut_ring(sim); break;
        case MEND_NETWORK: network_heal(sim); break;
        case CHANGE_NETWORK: change_network(sim); break;
        case KILL: crash(sim, server, CRASH_KILL); break;
        case POWER_LOSS: crash(sim, server, CRASH_POWER); break;
        case POWER_LOSS_ALL: power_loss_all(sim); break;
        case DIE_WRITING:
            if (server->up) fake_disk_halt_after(server->disk, chaos_random(sim, 1, 12));
            break;
        case STOP_LEADER: crash(sim, leader_or_any(sim), chaos_chance(sim, 500) ? CRASH_KILL : CRASH_POWER); break;
        case SLOW_DISK: slow_disk(server); break;
        case FAST_DISK: fast_disk(server); break;
        case FAIL_WRITE:
            fake_disk_fail(server->disk, FAKE_ANY_CHANGE & ~FAKE_SYNC, chaos_random(sim, 1, 6), CO_IO);
            break;
        case FAIL_SYNC: fake_disk_fail(server->disk, FAKE_SYNC, chaos_random(sim, 1, 3), CO_IO); break;
        case FULL_DISK: fill_disk(server); break;
        case ROOM_AGAIN: fake_disk_set_capacity(server->disk, 0); break;
        case PAUSE: pause_server(server); break;
        case PAUSE_LEADER: pause_server(leader_or_any(sim)); break;
        case SNAPSHOT: storage_copy_begin(server); break;
        case ADD: add_member(sim); break;
        case PROMOTE: promote_member(sim); break;
        case REMOVE: remove_member(sim); break;
        case TRANSFER: transfer(sim); break;
        case STEP_DOWN: step_down(sim); break;
        case ACTION_COUNT: UNREACHABLE();
    }
}

/* Leaders that go before their first entries have reached the others leave logs that contradict each other. */
void chaos_leader(struct sim *sim, const struct server *leader) {
    struct chaos *chaos = sim->chaos;
    if (!chaos || chaos->chaos_profile->brief_permille == 0) return;
    uint64_t trip_us = sim->network.delay_us + sim->network.delay_span_us, most_us = 2 * trip_us + 300 * MS;
    if (sim_chance(sim, chaos->chaos_profile->brief_permille))
        most_us = sim_chance(sim, 500) ? trip_us / 2 : 5 * trip_us;
    sim_schedule(sim, sim_random(sim, most_us > trip_us ? 2 * trip_us : 0, most_us), EVENT_CHAOS, 0, leader->id, NULL);
}

/* The first acknowledgement is the other such moment: some of its log is on a majority, its own entry is not. */
void chaos_acknowledged(struct sim *sim, struct server *leader) {
    if (leader->acked_term == raft_term(leader->raft)) return;
    leader->acked_term = raft_term(leader->raft);
    if (sim->chaos && sim_chance(sim, sim->chaos->chaos_profile->brief_permille / 2))
        sim_schedule(sim, sim_random(sim, 0, sim->network.delay_us), EVENT_CHAOS, 0, leader->id, NULL);
}

static void end_leader(struct sim *sim, struct server *server) {
    if (!server_leads(server)) return;
    if (sim_chance(sim, 600)) {
        cut_off(sim, server);
        sim_schedule(sim, sim_random(sim, 0, 300 * MS), EVENT_CHAOS, 0, server->id, NULL);
    } else {
        crash(sim, server, sim_chance(sim, 500) ? CRASH_KILL : CRASH_POWER);
    }
}

/* number: the leader whose time has come; 0: whatever comes next. */
void chaos_event(struct sim *sim, uint64_t number) {
    struct chaos *chaos = sim->chaos;
    if (sim->now_us >= chaos->end_us) return;
    if (number != 0) {
        end_leader(sim, sim->servers[number - 1]);
        return;
    }
    next_stream(sim);
    uint64_t pick = chaos_random(sim, 0, chaos->weight - 1);
    enum action action = 0;
    while (pick >= chaos->chaos_profile->weights[action]) pick -= chaos->chaos_profile->weights[action++];
    sim_mix(sim, action);
    uint64_t what[] = {sim->chaos_digest, sim->now_us, action};
    sim->chaos_digest = hash64(what, sizeof what);
    sim_schedule(sim, chaos_random(sim, 0, 2 * chaos->chaos_profile->mean_ms * MS), EVENT_CHAOS, 0, 0, NULL);
    act(sim, action);
}

/* -- the cluster of a seed -- */

#define PICK(sim, ...) \
    pick_of((sim), (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
static uint32_t pick_of(struct sim *sim, const uint32_t *values, size_t count) {
    return values[chaos_random(sim, 0, count - 1)];
}

static void choose_sizes(struct sim *sim, const struct chaos_profile *chaos_profile) {
    struct raft_config *raft = &sim->raft;
    raft->election_ms = (uint32_t)chaos_random(sim, chaos_profile->election_least_ms, chaos_profile->election_most_ms);
    raft->heartbeat_ms = raft->election_ms / PICK(sim, 3, 5, 8);
    raft->append_bytes_max = chaos_profile->small_appends ? 1 : PICK(sim, 1, 300, 3000, 65536);
    raft->append_inflight_max = PICK(sim, 1, 2, 8);
    raft->cache_bytes_max = PICK(sim, 0, 1000, 10000, 100000);
    raft->apply_bytes_max = raft->cache_bytes_max;
    raft->snapshot_chunk_bytes = PICK(sim, 500, 2000, 8000, 70000);
    raft->snapshot_rate = PICK(sim, 0, 0, 100000, 2000000);
    raft->promote_lag_max = PICK(sim, 0, 5, 50);
    sim->snapshot_filler = PICK(sim, 0, 2000, 30000, 30000, 200000);
    sim->keep_entries = PICK(sim, 0, 0, 10, 100);
    sim->wal.segment_bytes = PICK(sim, 8, 16, 64) * 1024;
    change_network(sim);
    if (chaos_profile->brief_permille && chaos_chance(sim, 800))
        sim->network = (struct network){
            .delay_us = chaos_random(sim, 1, 8) * MS, .delay_span_us = chaos_random(sim, 0, 8) * MS, .ordered = true};
}

static void choose_server(struct server *server) {
    struct sim *sim = server->sim;
    server->rate = chaos_random(sim, 900, 1100);
    server->turn_span_us = PICK(sim, 0, 0, 100, 1000);
    server->apply_delay_us = PICK(sim, 50, 500, 10000);
    fast_disk(server);
}

void chaos_begin(struct sim *sim) {
    struct chaos *chaos = sim->chaos = mem_zalloc(sizeof *chaos);
    chaos->chaos_profile = &chaos_profiles[sim->options.seed % ARRAY_COUNT(chaos_profiles)];
    for (int i = 0; i < ACTION_COUNT; i++) chaos->weight += chaos->chaos_profile->weights[i];
    chaos->end_us = (sim->options.ticks                     ? sim->options.ticks
                     : chaos->chaos_profile->brief_permille ? 20000
                                                            : 6000) *
                    MS;
    next_stream(sim);
    choose_sizes(sim, chaos->chaos_profile);
    uint32_t voters = chaos->chaos_profile->brief_permille
                          ? PICK(sim, 3, 3, 3, 5)
                          : PICK(sim, 3, 3, 3, 3, 3, 3, 3, 5, 5, 5, 5, 5, 1, 2, 4, 6, 7);
    cluster_found(sim, sim->options.servers ? sim->options.servers : voters, chaos_chance(sim, 500));
    for (uint32_t i = 0; i < sim->server_count; i++) choose_server(sim->servers[i]);
    clients_start(sim);
    sim_schedule(sim, chaos_random(sim, 0, 1000) * MS, EVENT_CHAOS, 0, 0, NULL);
}

void chaos_close(struct sim *sim) { free(sim->chaos); }

void chaos_run(struct sim *sim) {
    chaos_begin(sim);
    sim_run(sim, sim->chaos->end_us);
    cluster_settle(sim);
    if (!sim->failed) check_at_end(sim);
}
