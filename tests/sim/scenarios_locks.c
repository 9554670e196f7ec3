/* Hand-overs of locks and elections while servers and clients are lost. */
#include "tests/sim/story.h"

#define LONG_MS  20000 /* a session that outlives the story's faults */
#define SHORT_MS 1000

static bool granted(struct sim *s, uint64_t op) {
    return WITHIN(s, 5000, done(s, op)) && op_get(s, op)->error == CO_OK && op_get(s, op)->yes;
}

static bool node_there(struct sim *s, const struct server *server) {
    struct op op = {0};
    catalog_op(&op, 1);
    return granted(s, ask(s, server, &op));
}

static uint64_t session(struct sim *s, const struct server *server, uint64_t ttl_ms) {
    struct op op = {0};
    session_op(&op, 1, ttl_ms, 0);
    uint64_t made = ask(s, server, &op);
    return granted(s, made) ? made : 0;
}

/* For the first queue of the module; owner 0: with a session of its own, of SHORT_MS. */
static uint64_t wish(struct sim *s, const struct server *server, const struct sim_module *module, uint64_t owner,
                     uint32_t priority) {
    struct op op = {.owner = owner};
    queue_op(&op, module, QUEUE_ACQUIRE, 0);
    queue_op_wishes(&op, false, false, 0, priority);
    if (!owner) queue_op_makes(&op, 1, SHORT_MS, 0);
    return ask(s, server, &op);
}

static bool waits(struct sim *s, uint64_t op) {
    return WITHIN(s, 5000, done(s, op)) && op_get(s, op)->error == CO_OK && !op_get(s, op)->yes;
}

static uint64_t release(struct sim *s, const struct server *server, uint64_t owner, uint64_t token) {
    struct op op = {.owner = owner};
    queue_op(&op, &sim_lock, QUEUE_RELEASE, 0);
    if (token) queue_op_token(&op, token);
    return ask(s, server, &op);
}

/* Reads a session's place in the queue; blocks until the answer is newer than `known`, unless that is 0. */
static uint64_t look(struct sim *s, const struct server *server, const struct sim_module *module, uint64_t owner,
                     uint64_t known) {
    struct op op = {.owner = owner, .known_index = known, .wait_us = known ? LONG_MS * MS : 0};
    queue_op(&op, module, QUEUE_ENTRY, 0);
    return ask(s, server, &op);
}

static uint64_t holds(struct sim *s, uint64_t owner) { return queue_token_now(s, &sim_lock, 0, owner); }

/* Its wait is over: the token that it has then. */
static uint64_t turn_came(struct sim *s, uint64_t look, unsigned ms) {
    return WITHIN(s, ms, done(s, look)) && op_get(s, look)->found ? queue_token(op_get(s, look)) : 0;
}

static bool stage(struct sim *s, struct server **leader) {
    story_begin(s, 3);
    *leader = story_leader(s);
    return *leader && story_founded(s, *leader) && node_there(s, *leader);
}

void scenario_hand_over_takes_one_round_trip(struct sim *s) {
    enum { WAITERS = 8 };
    struct server *leader;
    uint64_t sessions[WAITERS + 1], looks[WAITERS + 1] = {0}, before = 0;
    EXPECT(s, stage(s, &leader));
    for (unsigned i = 0; i <= WAITERS; i++) {
        EXPECT(s, (sessions[i] = session(s, leader, LONG_MS)) != 0);
        uint64_t op = wish(s, leader, &sim_lock, sessions[i], 0);
        EXPECT(s, i ? waits(s, op) : granted(s, op));
        if (i) looks[i] = look(s, s->servers[i % 3], &sim_lock, sessions[i], op_get(s, op)->index);
    }
    sim_run(s, 100 * MS);
    for (unsigned i = 0; i < WAITERS; i++) {
        uint64_t op = release(s, s->servers[(i + 1) % 3], sessions[i], 0);
        EXPECT(s, granted(s, op));
        uint64_t token = turn_came(s, looks[i + 1], 15);
        EXPECT(s, token == op_get(s, op)->index && token > before);
        before = token;
        for (unsigned other = i + 2; other <= WAITERS; other++) EXPECT(s, !done(s, looks[other]));
    }
    story_end(s);
}

/* -- the leader dies -- */

enum step { PROPOSED, APPENDED, COMMITTED, APPLIED };

static bool is_there(struct sim *s, const struct server *leader, enum step step, uint64_t before, uint64_t op) {
    uint64_t last = raft_last_index(leader->raft), commit = raft_commit_index(leader->raft);
    if (op_get(s, op)->state != OP_WAITING) return false;
    switch (step) {
        case PROPOSED: return leader->requests.waiting != NULL;
        case APPENDED: return last > before;
        case COMMITTED: return commit > before;
        case APPLIED: return leader->machine.applied > before;
    }
    return false;
}

static void hand_over(struct sim *s, enum step step) {
    struct server *leader;
    EXPECT(s, stage(s, &leader));
    struct server *asker = story_other(s, leader, NULL), *third = story_other(s, leader, asker);
    uint64_t a = session(s, asker, LONG_MS), b = session(s, third, LONG_MS), c = session(s, third, LONG_MS);
    EXPECT(s, a && b && c && granted(s, wish(s, asker, &sim_lock, a, 0)));
    uint64_t b_waits = wish(s, third, &sim_lock, b, 0);
    EXPECT(s, waits(s, b_waits) && waits(s, wish(s, third, &sim_lock, c, 0)) && story_agree(s));
    uint64_t token = holds(s, a), turn = look(s, third, &sim_lock, b, op_get(s, b_waits)->index);
    sim_run(s, 50 * MS);
    uint64_t before = raft_last_index(leader->raft), first = release(s, asker, a, 0);
    EXPECT(s, WITHIN(s, 1000, is_there(s, leader, step, before, first)));
    server_crash(leader, CRASH_KILL);
    server_restart_after(leader, sim_random(s, 0, 4000) * MS);
    EXPECT(s,
           WITHIN(s, 15000, op_get(s, first)->state != OP_WAITING && sim_leader(s) && sim_leader(s)->requests.ready));
    sim_run(s, 300 * MS);
    bool kept = !holds(s, a);
    EXPECT(s, kept || step < COMMITTED);
    uint64_t again = release(s, asker, a, 0); /* whose answer was lost asks again */
    EXPECT(s, WITHIN(s, 8000, done(s, again)));
    EXPECT(s, op_get(s, again)->error == (kept ? CO_CONFLICT : CO_OK));
    EXPECT(s, holds(s, b) > token && queue_waits_now(s, &sim_lock, 0, c) && !holds(s, c));
    EXPECT(s,
           turn_came(s, turn, 1000) == holds(s, b) || refused(s, turn)); /* third may have lost its leader meanwhile */
    uint64_t now = look(s, asker, &sim_lock, b, 0);
    EXPECT(s, turn_came(s, now, 5000) == holds(s, b));
    story_end(s);
}

void scenario_hand_over_proposed(struct sim *s) { hand_over(s, PROPOSED); }
void scenario_hand_over_appended(struct sim *s) { hand_over(s, APPENDED); }
void scenario_hand_over_committed(struct sim *s) { hand_over(s, COMMITTED); }
void scenario_hand_over_applied(struct sim *s) { hand_over(s, APPLIED); }

/* -- a client is lost -- */

/* Its server sees it hold the lock for as long as it is cut off; what it does with its token then comes too late. */
void scenario_lock_passes_on_from_who_is_cut_off(struct sim *s) {
    struct server *leader;
    EXPECT(s, stage(s, &leader));
    struct server *cut = story_other(s, leader, NULL), *other = story_other(s, leader, cut);
    uint64_t a = session(s, cut, SHORT_MS), b = session(s, other, LONG_MS);
    EXPECT(s, a && b && granted(s, wish(s, cut, &sim_lock, a, 0)));
    uint64_t wished = wish(s, other, &sim_lock, b, 0);
    EXPECT(s, waits(s, wished) && story_agree(s));
    uint64_t token = holds(s, a), turn = look(s, other, &sim_lock, b, op_get(s, wished)->index);
    story_isolate(s, cut);
    EXPECT(s, turn_came(s, turn, SHORT_MS + 1500) > token);
    struct op stale = {.owner = a, .stale = true};
    queue_op(&stale, &sim_lock, QUEUE_ENTRY, 0);
    uint64_t seen = ask(s, cut, &stale), late = release(s, cut, a, token);
    EXPECT(s, turn_came(s, seen, 1000) == token && holds(s, b) > token);
    story_join(s, cut);
    EXPECT(s, WITHIN(s, 10000, op_get(s, late)->state != OP_WAITING));
    EXPECT(s, !done(s, late) || op_get(s, late)->error == CO_CONFLICT);
    late = release(s, cut, 0, token);
    EXPECT(s, WITHIN(s, 8000, done(s, late)) && op_get(s, late)->error == CO_CONFLICT && holds(s, b) > token);
    story_end(s);
}

/* The first of those that wait is gone when its turn comes, the second before it. */
void scenario_waiter_gone_before_its_turn(struct sim *s) {
    struct server *leader;
    EXPECT(s, stage(s, &leader));
    struct server *other = story_other(s, leader, NULL);
    uint64_t a = session(s, other, LONG_MS), d = session(s, other, LONG_MS);
    EXPECT(s, a && d && granted(s, wish(s, other, &sim_lock, a, 0)));
    uint64_t gone_before = wish(s, other, &sim_lock, 0, 0);
    EXPECT(s, waits(s, gone_before) && queue_waits_now(s, &sim_lock, 0, gone_before));
    EXPECT(s, WITHIN(s, SHORT_MS + 1000, !queue_waits_now(s, &sim_lock, 0, gone_before)) && holds(s, a));
    uint64_t gone_at = wish(s, other, &sim_lock, 0, 0);
    EXPECT(s, waits(s, gone_at));
    uint64_t wished = wish(s, other, &sim_lock, d, 0);
    EXPECT(s, waits(s, wished));
    uint64_t turn = look(s, other, &sim_lock, d, op_get(s, wished)->index);
    EXPECT(s, granted(s, release(s, other, a, 0)) && holds(s, gone_at));
    uint64_t token = holds(s, gone_at);
    EXPECT(s, turn_came(s, turn, SHORT_MS + 1000) > token && holds(s, d) > token);
    EXPECT(s, op_get(s, gone_at)->ended_index == holds(s, d));
    story_end(s);
}

void scenario_highest_priority_leads_next(struct sim *s) {
    static const uint32_t priorities[] = {1, 3, 2, 3};
    struct server *leader;
    uint64_t candidates[4], turns[4];
    EXPECT(s, stage(s, &leader));
    struct server *other = story_other(s, leader, NULL);
    uint64_t first = wish(s, other, &sim_election, 0, 0);
    EXPECT(s, granted(s, first));
    uint64_t term = op_get(s, first)->index;
    for (unsigned i = 0; i < 4; i++) {
        EXPECT(s, (candidates[i] = session(s, other, LONG_MS)) != 0);
        uint64_t op = wish(s, other, &sim_election, candidates[i], priorities[i]);
        EXPECT(s, waits(s, op));
        turns[i] = look(s, s->servers[i % 3], &sim_election, candidates[i], op_get(s, op)->index);
    }
    struct op observer = {.known_index = term, .wait_us = LONG_MS * MS};
    queue_op(&observer, &sim_election, QUEUE_LEADER, 0);
    uint64_t observes = ask(s, story_other(s, leader, other), &observer);
    sim_run(s, 100 * MS);
    EXPECT(s, !done(s, observes)); /* candidates are nothing to it */
    EXPECT(s, turn_came(s, turns[1], SHORT_MS + 1000) > term);
    EXPECT(s, WITHIN(s, 15, done(s, observes)) && op_get(s, observes)->seen_index == queue_token(op_get(s, turns[1])));
    EXPECT(s, !done(s, turns[0]) && !done(s, turns[2]) && !done(s, turns[3]));
    story_end(s);
}
