/* Copies of the catalog while the leader that follows it changes. */
#include <string.h>

#include "multi-dc/follower.h"
#include "tests/sim/story.h"

/* A new leader refuses at first. */
static bool registered(struct sim *s, const struct server *server, uint32_t node) {
    struct op op = {0};
    catalog_op(&op, node);
    for (unsigned i = 0; i < 20; i++) {
        uint64_t id = ask(s, server, &op);
        if (WITHIN(s, 5000, op_get(s, id)->state != OP_WAITING) && done(s, id)) return op_get(s, id)->yes;
        sim_run(s, 100 * MS);
    }
    return false;
}

/* Sends the follower's next question to the server. 0: it has none. */
static uint64_t send_next(struct sim *s, struct follower *follower, const struct server *server) {
    struct op op = {.module = &sim_copy, .way = OP_READ, .stale = true};
    uint64_t id = op_new(s, SIM_STORY, server->slot, &op);
    if (!copy_op(follower, op_get(s, id))) {
        s->op_count--;
        return 0;
    }
    op_send(s, id);
    return id;
}

/* Its next step, with the answer. */
static bool step(struct sim *s, struct follower *follower, const struct server *server) {
    uint64_t id = send_next(s, follower, server);
    if (!id) {
        sim_run(s, 20 * MS);
        return true;
    }
    bool answered = WITHIN(s, 5000, op_get(s, id)->state != OP_WAITING);
    if (!answered) op_done(s, id, OP_UNKNOWN, 0);
    copy_learn(follower, op_get(s, id));
    return answered;
}

static bool follow(struct sim *s, struct follower *follower, struct server *server) {
    for (unsigned i = 0; i < 300 && !copy_is_current(s, server); i++) (void)step(s, follower, server);
    return copy_is_current(s, server);
}

/* Until it has something to propose. */
static bool hears(struct sim *s, struct follower *follower, const struct server *server) {
    struct follower_state state;
    for (unsigned i = 0; i < 60; i++) {
        follower_state(follower, &state);
        if (strcmp(state.doing, "taking") == 0) return true;
        (void)step(s, follower, server);
    }
    return false;
}

/* A large change of the first leader's is cut off in the middle: the next one gives it up, and begins anew. */
static void cut_off_in_a_stage(struct sim *s, struct follower *first, struct follower *second) {
    struct server *leader = story_leader(s), *next = NULL;
    for (uint32_t node = 1; node <= SIM_NODES; node++) EXPECT(s, registered(s, leader, node));
    uint64_t parts = 2 + sim_random(s, 0, 2); /* steps into it */
    for (uint64_t i = 0; i < parts; i++) EXPECT(s, step(s, first, leader));
    uint64_t lost = send_next(s, first, leader);
    if (sim_chance(s, 500)) sim_run(s, sim_random(s, 0, 3) * MS);
    story_isolate(s, leader);
    EXPECT(s, WITHIN(s, 20000, (next = sim_leader(s)) && next != leader));
    EXPECT(s, registered(s, next, 2));
    for (uint64_t i = 0; i < parts; i++) (void)step(s, second, next);
    story_join(s, leader);
    sim_run(s, 500 * MS);
    if (lost && op_get(s, lost)->state == OP_WAITING) op_done(s, lost, OP_UNKNOWN, 0);
    if (lost) copy_learn(first, op_get(s, lost));
    for (unsigned i = 0; i < 6; i++) (void)step(s, i % 2 ? first : second, story_leader(s));
}

/* Two of them have heard of different changes. Each proposes what it has heard; that of the second comes first. */
static void late_proposal(struct sim *s, struct follower *first, struct follower *second) {
    struct server *leader = story_leader(s);
    EXPECT(s, follow(s, first, leader));
    EXPECT(s, registered(s, leader, 1) && hears(s, first, leader));
    EXPECT(s, registered(s, leader, 2) && hears(s, second, leader));
    EXPECT(s, follow(s, second, leader));
    EXPECT(s, step(s, first, leader));
    (void)copy_is_current(s, leader);
}

/* Leaders that follow the catalog come and go, and what former ones have proposed comes to nothing. */
void scenario_copy_outlives_its_leaders(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader && story_founded(s, leader));
    for (uint32_t node = 1; node <= SIM_NODES; node++) EXPECT(s, registered(s, leader, node));
    struct follower *first = copy_follower(1), *second = copy_follower(1);
    EXPECT(s, follow(s, first, leader));
    cut_off_in_a_stage(s, first, second);
    if (!s->failed) late_proposal(s, copy_follower(8), copy_follower(8));
    if (s->failed) return;
    leader = story_leader(s);
    EXPECT(s, leader && registered(s, leader, 1));
    EXPECT(s, follow(s, second, leader));
    story_end(s);
    for (uint32_t i = 0; i < s->server_count; i++) EXPECT(s, copy_is_current(s, s->servers[i]));
}
