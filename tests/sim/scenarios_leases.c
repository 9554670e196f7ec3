/* Scenarios of leases and sessions, and of forwarded writes, full disks, watches and events. */
#include "kv/event/event.h"
#include "tests/sim/story.h"

#define TTL_MS 1000

/* It is answered, and with yes. */
static bool granted(struct sim *s, uint64_t op) { return WITHIN(s, 5000, done(s, op)) && op_get(s, op)->yes; }

static uint64_t ask_register(struct sim *s, const struct server *server) {
    struct op op = {0};
    catalog_op(&op, 1);
    return ask(s, server, &op);
}

/* A session of a registered node, renewed by nobody unless told. 0: failed. */
static uint64_t session(struct sim *s, const struct server *server) {
    struct op op = {0};
    if (!granted(s, ask_register(s, server))) return 0;
    session_op(&op, 1, TTL_MS, 0);
    uint64_t made = ask(s, server, &op);
    return granted(s, made) ? made : 0;
}

/* Of a key, for a session or a lease. */
static uint64_t ask_key(struct sim *s, const struct server *server, enum kv_kind kind, uint32_t key, uint64_t owner) {
    struct op op = {.owner = owner};
    kv_op(&op, kind, key, 20);
    return ask(s, server, &op);
}

static uint64_t ask_renew(struct sim *s, const struct server *server, uint64_t made) {
    struct op op = {.owner = made};
    renew_op(&op, op_get(s, made)->module);
    return ask(s, server, &op);
}

static uint64_t ask_grant(struct sim *s, const struct server *server, uint32_t node, uint32_t owner) {
    struct op op = {0};
    lease_op(&op, node, owner, TTL_MS);
    return ask(s, server, &op);
}

static bool alive(struct sim *s, uint64_t made) { return op_get(s, made)->ended_index == 0; }

static bool renewed(struct sim *s, uint64_t op) { return done(s, op) && op_get(s, op)->yes; }

/* Renews through `server` every 100 ms, for so long. */
static bool keep(struct sim *s, const struct server *server, uint64_t made, unsigned ms) {
    for (unsigned i = 0; i < ms / 100; i++) {
        uint64_t op = ask_renew(s, server, made);
        sim_run(s, 100 * MS);
        if (!renewed(s, op)) return false;
    }
    return true;
}

void scenario_lease_lives_while_renewed(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL);
    struct server *other = story_other(s, leader, NULL);
    uint64_t made = session(s, other), lock;
    EXPECT(s, made != 0);
    lock = ask_key(s, other, KV_LOCK, SIM_KEYS - 1, made);
    EXPECT(s, WITHIN(s, 1000, done(s, lock)) && op_get(s, lock)->yes);
    EXPECT(s, keep(s, other, made, 4 * TTL_MS) && alive(s, made));
    EXPECT(s, NEVER_IN(s, TTL_MS - 100, !alive(s, made)));
    EXPECT(s, WITHIN(s, TTL_MS + 1000, !alive(s, made)));
    story_end(s);
}

/* A lease; `node` 0: free. 0: failed. */
static uint64_t lease(struct sim *s, const struct server *server, uint32_t node, uint32_t owner) {
    if (!story_founded(s, server)) return 0;
    uint64_t made = ask_grant(s, server, node, owner);
    return granted(s, made) ? made : 0;
}

void scenario_all_that_hangs_on_a_lease_goes_at_once(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL);
    struct server *other = story_other(s, leader, NULL);
    uint64_t made = lease(s, other, 0, 0), bound[4], lost;
    EXPECT(s, made != 0);
    for (uint32_t key = 0; key < 4; key++) {
        bound[key] = ask_key(s, other, KV_LEASED, key, made);
        EXPECT(s, WITHIN(s, 1000, done(s, bound[key])) && op_get(s, bound[key])->yes);
    }
    EXPECT(s, keep(s, other, made, 3 * TTL_MS) && alive(s, made));
    EXPECT(s, WITHIN(s, TTL_MS + 1000, !alive(s, made)));
    for (uint32_t key = 0; key < 4; key++) {
        EXPECT(s, kv_now(s, key)->gone);
        EXPECT(s, kv_now(s, key)->index == op_get(s, made)->ended_index);
    }
    lost = ask_key(s, other, KV_LEASED, 0, made);
    EXPECT(s, WITHIN(s, 1000, done(s, lost)) && op_get(s, lost)->error == CO_NOTFOUND);
    story_end(s); /* reads at any index see all four keys, or none */
}

/* The second agent of a name waits for the first one's lease, also when that is counted anew by a new leader. */
void scenario_a_node_name_has_one_owner(struct sim *s) {
    story_begin(s, 3);
    struct server *old = story_leader(s);
    EXPECT(s, old != NULL);
    EXPECT(s, granted(s, ask_register(s, old)));
    uint64_t first = lease(s, old, 1, 1);
    EXPECT(s, first != 0 && lease(s, old, 1 | SIM_CAPITALS, 2) == 0 && !s->failed);
    EXPECT(s, keep(s, story_other(s, old, NULL), first, TTL_MS));
    server_crash(old, CRASH_KILL);
    EXPECT(s, WITHIN(s, 5000, sim_leader(s) != NULL && sim_leader(s)->requests.ready));
    uint64_t again = ask_grant(s, sim_leader(s), 1 | SIM_CAPITALS, 2);
    EXPECT(s, WITHIN(s, 500, done(s, again)) && op_get(s, again)->error == CO_EXISTS && alive(s, first));
    EXPECT(s, WITHIN(s, 2 * TTL_MS + 2000, !alive(s, first)));
    EXPECT(s, lease(s, sim_leader(s), 1, 2) != 0);
    story_end(s);
}

/* It comes back before it is reaped, in capitals, or does not. */
void scenario_dead_nodes_are_removed_in_time(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL);
    EXPECT(s, granted(s, ask_register(s, leader)));
    uint64_t first = lease(s, leader, 1, 1);
    EXPECT(s, first != 0 && WITHIN(s, TTL_MS + 1000, !alive(s, first)));
    EXPECT(s, lease_dead_index(s, 1) != 0);
    sim_run(s, (SIM_REAP_MS - 500) * MS);
    uint64_t second = lease(s, leader, 1 | SIM_CAPITALS, 1);
    EXPECT(s, second != 0 && keep(s, leader, second, 2 * SIM_REAP_MS) && catalog_registered(s, 1));
    EXPECT(s, WITHIN(s, TTL_MS + 1000, !alive(s, second)) && catalog_registered(s, 1));
    EXPECT(s, NEVER_IN(s, SIM_REAP_MS - 100, !catalog_registered(s, 1)));
    EXPECT(s, WITHIN(s, 1000, !catalog_registered(s, 1)));
    story_end(s);
}

/* It still believes that it leads, and its table has not heard of the renewals elsewhere. */
static void deposed_leader(struct sim *s, bool leased) {
    story_begin(s, 3);
    struct server *old = story_leader(s);
    EXPECT(s, old != NULL);
    struct server *other = story_other(s, old, NULL);
    uint64_t made = leased ? lease(s, other, 1, 1) : session(s, other);
    EXPECT(s, made != 0);
    story_isolate(s, old);
    uint64_t stale = ask_renew(s, old, made); /* no majority confirms it */
    EXPECT(s, WITHIN(s, 3000,
                     sim_leader(s) != NULL && sim_leader(s) != old && raft_leader_ready(sim_leader(s)->raft) &&
                         raft_leader(other->raft) == sim_leader(s)->id));
    sim_run(s, 200 * MS);
    EXPECT(s, keep(s, sim_leader(s), made, 2 * TTL_MS) && !renewed(s, stale));
    story_join(s, old);
    EXPECT(s, keep(s, sim_leader(s), made, 3 * TTL_MS) && alive(s, made));
    story_end(s);
}

void scenario_deposed_leader_ends_no_session(struct sim *s) { deposed_leader(s, false); }
void scenario_deposed_leader_ends_no_lease(struct sim *s) { deposed_leader(s, true); }

void scenario_new_leader_grants_full_period(struct sim *s) {
    story_begin(s, 3);
    struct server *old = story_leader(s);
    EXPECT(s, old != NULL);
    uint64_t made = session(s, old);
    EXPECT(s, made != 0);
    sim_run(s, (TTL_MS - 300) * MS);
    server_crash(old, CRASH_KILL);
    EXPECT(s, WITHIN(s, 5000, sim_leader(s) != NULL && sim_leader(s)->requests.ready));
    EXPECT(s, NEVER_IN(s, TTL_MS - 100, !alive(s, made)));
    EXPECT(s, WITHIN(s, TTL_MS + 1000, !alive(s, made)));
    story_end(s);
}

/* The loop stood still while renewals waited in its sockets: they count first. */
void scenario_standstill_ends_no_lease(struct sim *s) {
    story_begin(s, 1);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL);
    uint64_t made = session(s, leader);
    EXPECT(s, made != 0);
    sim_run(s, (TTL_MS - 100) * MS);
    leader->paused_until_us = s->now_us + 3000 * MS;
    sim_run(s, 50 * MS);
    uint64_t op = ask_renew(s, leader, made);
    EXPECT(s, WITHIN(s, 3200, renewed(s, op)) && alive(s, made));
    EXPECT(s, NEVER_IN(s, TTL_MS - 100, !alive(s, made)));
    story_end(s);
}

/* The leader it was handed to dies with it: it may be in the log, so it is not sent again. */
void scenario_forwarded_once(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL && put_many(s, leader, 3));
    struct server *asker = story_other(s, leader, NULL);
    EXPECT(s, WITHIN(s, 1000, links_up(asker, leader->id)));
    uint64_t ops[8];
    for (unsigned i = 0; i < 8; i++) ops[i] = put(s, asker);
    sim_run(s, sim_random(s, 500, 8000));
    server_crash(leader, CRASH_KILL);
    server_restart_after(leader, 2000 * MS);
    EXPECT(s, WITHIN(s, 8000, ({
                         bool all = true;
                         for (unsigned i = 0; i < 8; i++) all = all && op_get(s, ops[i])->state != OP_WAITING;
                         all;
                     })));
    story_end(s); /* twice would be noticed */
}

/* Its former incarnation asked, the answer comes when it runs again and has asked something else. */
void scenario_answer_to_a_former_life(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *asker = s->servers[1], *third = s->servers[2];
    EXPECT(s, put_many(s, leader, 2) && WITHIN(s, 1000, links_up(asker, leader->id)));
    story_isolate(s, third);
    put(s, asker);
    EXPECT(s, WITHIN(s, 100, leader->requests.pending != NULL || asker->machine.applied > 4));
    story_slow_disk(asker, 400); /* so that what it asks now is on its way when the old command commits */
    story_restart(asker, CRASH_KILL);
    for (unsigned i = 0; i < 4; i++) put(s, asker);
    sim_run(s, 2000 * MS);
    story_join(s, third);
    story_all_may(s);
    story_end(s);
}

void scenario_deposed_with_full_disk(struct sim *s) {
    story_begin(s, 3);
    struct server *full = story_leader(s);
    EXPECT(s, full != NULL && put_many(s, full, 5));
    fake_disk_set_capacity(full->disk, fake_disk_used(full->disk));
    uint64_t last = 0;
    for (unsigned i = 0; i < 2000 && full->disk_health.full == false; i++) {
        last = put(s, full);
        EXPECT(s, WITHIN(s, 1000, done(s, last) || refused(s, last)));
    }
    EXPECT(s, full->disk_health.full);
    EXPECT(s, WITHIN(s, 3000, !server_leads(full) && sim_leader(s) != NULL)); /* others can: it hands over */
    EXPECT(s, full->disk_health.degraded);
    fake_disk_set_capacity(full->disk, 0);
    EXPECT(s, WITHIN(s, DISK_WELL_MS + 2000, !full->disk_health.full && !full->disk_health.degraded));
    EXPECT(s, story_elect(s, full) && put_many(s, full, 5));
    story_all_may(s);
    story_end(s);
}

void scenario_snapshot_meets_full_disk(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *full = s->servers[1];
    EXPECT(s, put_many(s, leader, 5));
    fake_disk_set_capacity(full->disk, fake_disk_used(full->disk));
    EXPECT(s, put_many(s, leader, 200));
    story_snapshot(s, leader); /* what it lacks is no longer in the log */
    EXPECT(s, full->machine.applied < leader->machine.applied);
    EXPECT(s, put_many(s, leader, 100));
    sim_run(s, sim_random(s, 0, 3000) * MS);
    fake_disk_set_capacity(full->disk, 0);
    EXPECT(s, WITHIN(s, 10000, full->machine.applied == leader->machine.applied));
    story_all_may(s);
    story_end(s);
}

/* A change that comes between a reader's look and its entry into the table wakes it all the same. */
void scenario_watch_between_read_and_apply(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL && put_many(s, leader, 20));
    for (unsigned round = 0; round < 60; round++) {
        uint64_t look = get(s, leader);
        EXPECT(s, WITHIN(s, 1000, done(s, look)));
        struct op watch = {.known_index = op_get(s, look)->seen_index, .wait_us = 1000 * MS};
        kv_op(&watch, KV_GET, kv_key(op_get(s, look)), 0);
        watch.stale = sim_chance(s, 500);
        uint64_t id = ask(s, leader, &watch);
        sim_run(s, sim_random(s, 0, 2000));
        uint64_t change = ask_key(s, leader, KV_PUT, kv_key(op_get(s, id)), 0);
        EXPECT(s, WITHIN(s, 500, done(s, change) && done(s, id)));
        EXPECT(s, op_get(s, id)->seen_index > op_get(s, id)->known_index);
    }
    story_end(s);
}

/* More than are kept are fired, past a restart and by way of a snapshot to one that was away. */
void scenario_newest_events_are_kept(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL && story_founded(s, leader));
    struct server *away = story_other(s, leader, NULL), *third = story_other(s, leader, away);
    struct op event = {0}, list = {0};
    event_list_op(&list);
    story_isolate(s, away);
    for (unsigned i = 0; i < EVENTS_MAX + 20; i++) {
        event = (struct op){0};
        event_op(&event, i % 100);
        EXPECT(s, granted(s, ask(s, leader, &event)));
        if (i == EVENTS_MAX) story_restart(third, CRASH_KILL);
    }
    story_snapshot(s, leader);
    story_join(s, away);
    story_all_may(s);
    EXPECT(s, WITHIN(s, 10000, away->machine.applied == leader->machine.applied));
    uint64_t read = ask(s, away, &list);
    EXPECT(s, WITHIN(s, 5000, done(s, read)) && event_kept(op_get(s, read)) == EVENTS_MAX);
    story_end(s);
}
