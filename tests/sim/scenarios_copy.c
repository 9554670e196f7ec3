/* Copies of the catalog while the leader that follows it changes. */
#include "tests/sim/story.h"

static bool registered(struct sim *s, const struct server *server, uint32_t node) {
    struct op op = {0};
    catalog_op(&op, node);
    uint64_t id = ask(s, server, &op);
    return WITHIN(s, 5000, done(s, id)) && op_get(s, id)->yes;
}

/* What the follower wants next is sent to the server. 0: it rests. */
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

/* The first leader is cut off with a part of a large change proposed; the next one gives that up and begins anew, while
 * the catalog goes on. What the first has proposed comes to nothing, when it is heard again. */
void scenario_copy_outlives_its_leaders(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader && story_raised(s, leader));
    for (uint32_t node = 1; node <= SIM_NODES; node++) EXPECT(s, registered(s, leader, node));
    struct follower *first = copy_follower(1), *second = copy_follower(1);
    EXPECT(s, follow(s, first, leader));
    for (uint32_t node = 1; node <= SIM_NODES; node++) EXPECT(s, registered(s, leader, node));
    uint64_t parts = 2 + sim_random(s, 0, 2); /* steps into it */
    for (uint64_t i = 0; i < parts; i++) EXPECT(s, step(s, first, leader));
    uint64_t lost = send_next(s, first, leader);
    if (sim_chance(s, 500)) sim_run(s, sim_random(s, 0, 3) * MS);
    story_isolate(s, leader);
    struct server *next = story_other(s, leader, NULL);
    EXPECT(s, story_elect(s, next));
    EXPECT(s, registered(s, next, 2));
    for (uint64_t i = 0; i < parts; i++) (void)step(s, second, next);
    story_join(s, leader);
    story_all_may(s);
    sim_run(s, 500 * MS);
    if (lost && op_get(s, lost)->state == OP_WAITING) op_done(s, lost, OP_UNKNOWN, 0);
    if (lost) copy_learn(first, op_get(s, lost));
    for (unsigned i = 0; i < 6; i++) (void)step(s, i % 2 ? first : second, story_leader(s));
    struct server *last = story_leader(s);
    EXPECT(s, last && registered(s, last, 1));
    EXPECT(s, follow(s, second, last));
    story_end(s);
    for (uint32_t i = 0; i < s->server_count; i++) EXPECT(s, copy_is_current(s, s->servers[i]));
}
