/* The core alone: three of them in one room, messages handed over at once, disks that are done at once. Whole
 * clusters with faults are the simulator's (tests/sim/). */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/error.h"
#include "consensus/raft.h"

#define SERVERS     3
#define APPLY_BYTES 20000

struct room {
    struct raft *raft[SERVERS];
    bool cut[SERVERS];
    bool slow[SERVERS]; /* it applies nothing */
    bool deaf[SERVERS]; /* to wishes that it should lead */
    unsigned wishes[SERVERS];
    uint64_t owed[SERVERS]; /* up to here then */
    uint64_t now_ms;
};

static void settle(struct room *room);

static struct raft *core(uint64_t id, uint64_t now_ms) {
    struct raft_config config = {.id = id,
                                 .seed = id * 77,
                                 .election_ms = 100,
                                 .heartbeat_ms = 20,
                                 .append_bytes_max = 1 << 16,
                                 .append_inflight_max = 8,
                                 .cache_bytes_max = 1 << 20,
                                 .apply_bytes_max = APPLY_BYTES,
                                 .snapshot_chunk_bytes = 1024,
                                 .promote_lag_max = 100};
    struct raft_start start = {0};
    return raft_new(&config, &start, now_ms);
}

static void step(struct room *room, int who, struct raft_event *event) {
    event->now_ms = room->now_ms;
    (void)raft_step(room->raft[who], event);
}

/* Carries out one server's effects; true when there were any. */
static bool act(struct room *room, int who) {
    const struct raft_effects *fx = raft_effects(room->raft[who]);
    struct {
        struct raft_message m;
        bool deliver;
    } out[64];
    size_t count = 0;
    uint64_t seq = fx->persist_count ? fx->persists[fx->persist_count - 1].seq : 0;
    uint64_t applied = fx->committed_count ? fx->committed[fx->committed_count - 1].index : 0;
    struct buffer bytes[64] = {0};
    for (size_t i = 0; i < fx->message_count && count < 64; i++) raft_message_encode(&fx->messages[i], &bytes[count++]);
    raft_effects_done(room->raft[who]);
    if (seq) step(room, who, &(struct raft_event){.type = RAFT_PERSISTED, .u.persisted.seq = seq});
    if (applied && room->slow[who]) room->owed[who] = applied;
    else if (applied) step(room, who, &(struct raft_event){.type = RAFT_APPLIED, .u.applied.index = applied});
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(raft_message_decode(buffer_slice(&bytes[i]), &out[i].m), CO_OK);
        int to = (int)out[i].m.to - 1;
        bool wish = out[i].m.type == RAFT_MSG_TIMEOUT_NOW;
        room->wishes[to] += wish;
        if (!room->cut[who] && !room->cut[to] && !(wish && room->deaf[to]))
            step(room, to, &(struct raft_event){.type = RAFT_RECEIVE, .u.receive = &out[i].m});
        raft_message_drop(&out[i].m);
        buffer_free(&bytes[i]);
    }
    return seq || applied || count;
}

static void settle(struct room *room) {
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < SERVERS; i++) any |= act(room, i);
    }
}

static void pass(struct room *room, uint64_t ms) {
    for (uint64_t end = room->now_ms + ms; room->now_ms < end; room->now_ms += 5) {
        for (int i = 0; i < SERVERS; i++) step(room, i, &(struct raft_event){.type = RAFT_TICK});
        settle(room);
    }
}

static int leader(const struct room *room) {
    for (int i = 0; i < SERVERS; i++)
        if (!room->cut[i] && raft_leader_ready(room->raft[i])) return i;
    return -1;
}

static struct room *found(void) {
    struct room *room = calloc(1, sizeof *room);
    room->now_ms = 1000;
    struct raft_members members = {.count = SERVERS};
    for (int i = 0; i < SERVERS; i++) {
        room->raft[i] = core((uint64_t)i + 1, room->now_ms);
        members.member[i] = (struct raft_member){.id = (uint64_t)i + 1, .voter = true};
    }
    struct raft_event event = {.type = RAFT_BOOTSTRAP, .now_ms = room->now_ms};
    event.u.bootstrap = &members;
    cr_assert_eq(raft_step(room->raft[0], &event), CO_OK);
    cr_assert_eq(raft_step(room->raft[0], &event), CO_EXISTS, "a cluster is founded once");
    pass(room, 50);
    cr_assert_eq(leader(room), 0, "the founder leads");
    return room;
}

static void leave(struct room *room) {
    for (int i = 0; i < SERVERS; i++) raft_free(room->raft[i]);
    free(room);
}

static void disk(struct room *room, int who, bool degraded) {
    step(room, who, &(struct raft_event){.type = RAFT_DISK, .u.disk.degraded = degraded});
}

Test(raft, a_leader_with_a_degraded_disk_hands_over_to_a_healthy_server) {
    struct room *room = found();
    disk(room, 1, true);
    pass(room, 100);
    disk(room, 0, true);
    pass(room, 50);
    cr_assert_eq(leader(room), 2, "not to the server whose disk is degraded too");
    cr_assert_eq(raft_role(room->raft[0]), RAFT_FOLLOWER);
    leave(room);
}

Test(raft, leadership_is_handed_over_at_most_once_in_ten_seconds) {
    struct room *room = found();
    disk(room, 0, true);
    pass(room, 50);
    int second = leader(room);
    cr_assert(second > 0);
    disk(room, 0, false);
    pass(room, 200);
    disk(room, second, true);
    pass(room, 50);
    cr_assert_eq(leader(room), second, "the pause is the cluster's: servers on one machine share its disk");
    pass(room, 11000);
    int third = leader(room);
    cr_assert_neq(third, second);
    disk(room, second, false);
    disk(room, third, true);
    pass(room, 5000);
    cr_assert_eq(leader(room), third);
    pass(room, 6000);
    cr_assert_neq(leader(room), third);
    leave(room);
}

Test(raft, who_does_not_take_leadership_from_a_degraded_disk_is_passed_over) {
    struct room *room = found();
    room->deaf[1] = room->deaf[2] = true;
    disk(room, 0, true);
    pass(room, 5);
    int first = room->wishes[1] ? 1 : 2, second = 3 - first;
    cr_assert_eq(room->wishes[first], 1);
    pass(room, 200);
    cr_assert_eq(room->wishes[second], 1, "the other is asked after an election timeout, not after the pause");
    pass(room, 5000);
    cr_assert_eq(leader(room), 0);
    cr_assert(room->wishes[1] == 1 && room->wishes[2] == 1, "who let it pass is left alone for the pause");
    room->deaf[second] = false;
    pass(room, 6000);
    cr_assert_eq(leader(room), second);
    leave(room);
}

Test(raft, an_operator_may_ask_again_who_let_leadership_pass) {
    struct room *room = found();
    room->cut[1] = room->deaf[2] = true;
    pass(room, 80);
    struct raft_event any = {.type = RAFT_TRANSFER};
    step(room, 0, &any);
    pass(room, 150);
    cr_assert_eq(room->wishes[2], 1);
    room->deaf[2] = false;
    step(room, 0, &any);
    pass(room, 20);
    cr_assert_eq(leader(room), 2);
    leave(room);
}

Test(raft, with_all_disks_degraded_the_leader_stays) {
    struct room *room = found();
    for (int i = 0; i < SERVERS; i++) disk(room, i, true);
    pass(room, 500);
    cr_assert_eq(leader(room), 0);
    leave(room);
}

/* A new leader with a degraded disk has not heard of the others yet: one of them is gone, the other's disk was degraded
 * as well until a moment ago. */
Test(raft, a_new_leader_with_a_degraded_disk_hands_over_to_nobody_whom_it_has_not_heard) {
    struct room *room = found();
    step(room, 0, &(struct raft_event){.type = RAFT_TRANSFER, .u.transfer.target = 3});
    pass(room, 50);
    cr_assert_eq(leader(room), 2);
    pass(room, 11000); /* what comes now is no second handover */
    disk(room, 0, true), disk(room, 1, true);
    pass(room, 100);
    room->cut[2] = true;
    for (int i = 0; i < 1000 && leader(room) < 0; i++) pass(room, 5);
    int first = leader(room), other = 1 - first;
    cr_assert(first == 0 || first == 1);
    pass(room, 200);
    cr_assert_eq(leader(room), first, "the other is degraded, the third is gone");
    disk(room, other, false);
    pass(room, 100);
    cr_assert_eq(leader(room), other);
    leave(room);
}

Test(raft, a_degraded_server_does_not_campaign) {
    struct room *room = found();
    disk(room, 1, true);
    room->cut[0] = true;
    pass(room, 2000);
    cr_assert_eq(leader(room), 2);
    leave(room);
}

/* The leader is gone. One of the others has no room for a vote, so the third cannot win, and does not use up terms in
 * trying. */
Test(raft, without_room_for_votes_there_are_no_elections) {
    struct room *room = found();
    uint64_t term = raft_term(room->raft[2]);
    step(room, 1, &(struct raft_event){.type = RAFT_DISK, .u.disk = {.degraded = true, .full = true, .spent = true}});
    room->cut[0] = true;
    pass(room, 3000);
    cr_assert_eq(leader(room), -1);
    cr_assert_eq(raft_term(room->raft[2]), term);
    cr_assert_eq(raft_term(room->raft[1]), term, "nor does it campaign itself");
    disk(room, 1, false);
    pass(room, 1000);
    cr_assert(leader(room) > 0);
    leave(room);
}

/* -- a snapshot that comes in while it campaigns ------------------------------------------------------------------ */
static void effects(struct raft *raft, uint64_t now_ms) {
    const struct raft_effects *fx = raft_effects(raft);
    uint64_t seq = fx->persist_count ? fx->persists[fx->persist_count - 1].seq : 0;
    raft_effects_done(raft);
    struct raft_event event = {.type = RAFT_PERSISTED, .now_ms = now_ms, .u.persisted.seq = seq};
    if (seq) (void)raft_step(raft, &event);
}

static void hear(struct raft *raft, uint64_t now_ms, const struct raft_message *message) {
    struct raft_event event = {.type = RAFT_RECEIVE, .now_ms = now_ms, .u.receive = message};
    (void)raft_step(raft, &event);
}

/* Votes are kept by the members' places, and the snapshot brings others: 2 was asked in the second place, where the
 * snapshot has 4. */
Test(raft, a_campaign_ends_where_a_snapshot_brings_other_members) {
    struct raft_start start = {.term = 1};
    start.snapshot = (struct raft_snapshot_meta){.index = 5, .term = 1, .members_index = 1, .members = {.count = 4}};
    for (uint64_t i = 0; i < 4; i++)
        start.snapshot.members.member[i] = (struct raft_member){.id = i + 1, .voter = true};
    start.applied = 5;
    struct raft_config config = {.id = 1,
                                 .seed = 7,
                                 .election_ms = 100,
                                 .heartbeat_ms = 20,
                                 .append_bytes_max = 1 << 16,
                                 .append_inflight_max = 8,
                                 .cache_bytes_max = 1 << 20,
                                 .apply_bytes_max = APPLY_BYTES,
                                 .snapshot_chunk_bytes = 1024,
                                 .promote_lag_max = 100};
    struct raft *raft = raft_new(&config, &start, 1000);
    struct raft_message chunk = {
        .type = RAFT_MSG_SNAPSHOT, .from = 3, .to = 1, .term = 1, .data = slice_make("state", 5), .last = true};
    chunk.snapshot =
        (struct raft_snapshot_meta){.index = 50, .term = 1, .size = 5, .members_index = 40, .members = {.count = 3}};
    static const uint64_t after[] = {1, 4, 3};
    for (size_t i = 0; i < 3; i++)
        chunk.snapshot.members.member[i] = (struct raft_member){.id = after[i], .voter = true};
    hear(raft, 1001, &chunk);
    effects(raft, 1001);
    uint64_t now_ms = 1001;
    for (; raft_role(raft) == RAFT_FOLLOWER; now_ms += 5) { /* the chunk's write takes long */
        struct raft_event tick = {.type = RAFT_TICK, .now_ms = now_ms};
        cr_assert(now_ms < 5000 && raft_step(raft, &tick) == CO_OK);
        effects(raft, now_ms);
    }
    cr_assert_eq(raft_role(raft), RAFT_PRECANDIDATE);
    struct raft_message grant = {.type = RAFT_MSG_PREVOTE_REPLY, .from = 2, .to = 1, .term = 2, .granted = true};
    hear(raft, now_ms, &grant);
    struct raft_event written = {.type = RAFT_CHUNK_WRITTEN,
                                 .now_ms = now_ms,
                                 .u.chunk_written = {.from = 3, .snapshot_index = 50, .offset = 5}};
    (void)raft_step(raft, &written);
    cr_assert_eq(raft_role(raft), RAFT_FOLLOWER, "it takes the snapshot first");
    struct raft_message refusal = {.type = RAFT_MSG_PREVOTE_REPLY, .from = 3, .to = 1, .term = 1};
    hear(raft, now_ms, &refusal);
    cr_assert_eq(raft_role(raft), RAFT_FOLLOWER);
    cr_assert_eq(raft_term(raft), 1, "nobody who votes there has granted anything");
    raft_free(raft);
}

/* -- a leader of another history ---------------------------------------------------------------------------------- */
/* Server 1 has a snapshot of 5, entries 6 to 10, and knows 8 to be committed; 9 and 10 are of term 3, all others of
 * 1. An operator went on without it in term 1002. `known`: the recovery that it has heard of, of the same term. */
static struct raft *one_of_before(struct raft_recovery known) {
    struct raft_entry entries[5];
    for (uint64_t i = 0; i < 5; i++)
        entries[i] = (struct raft_entry){.index = 6 + i, .term = i < 3 ? 1 : 3, .type = RAFT_ENTRY_EMPTY};
    struct raft_start start = {.term = 3, .entries = entries, .entry_count = 5, .applied = 8};
    start.snapshot = (struct raft_snapshot_meta){.index = 5, .term = 1, .members_index = 1, .members = {.count = 3}};
    for (uint64_t i = 0; i < 3; i++)
        start.snapshot.members.member[i] = (struct raft_member){.id = i + 1, .voter = true};
    if (known.index) raft_recovery_add(&start.snapshot.members, &known);
    struct raft_config config = {.id = 1,
                                 .seed = 7,
                                 .election_ms = 100,
                                 .heartbeat_ms = 20,
                                 .append_bytes_max = 1 << 16,
                                 .append_inflight_max = 8,
                                 .cache_bytes_max = 1 << 20,
                                 .apply_bytes_max = APPLY_BYTES,
                                 .snapshot_chunk_bytes = 1024,
                                 .promote_lag_max = 100};
    return raft_new(&config, &start, 1000);
}

/* The highest index that it acknowledges; 0: none. *taken: it keeps a part of a snapshot. */
static uint64_t acknowledged_to(struct raft *raft, uint64_t now_ms, bool *taken) {
    uint64_t match = 0;
    *taken = false;
    for (bool more = true; more;) {
        const struct raft_effects *fx = raft_effects(raft);
        uint64_t seq = fx->persist_count ? fx->persists[fx->persist_count - 1].seq : 0;
        if (fx->chunk_write_count) *taken = true;
        for (size_t i = 0; i < fx->message_count; i++)
            if (fx->messages[i].type == RAFT_MSG_APPEND_REPLY && !fx->messages[i].rejected &&
                fx->messages[i].match > match)
                match = fx->messages[i].match;
        raft_effects_done(raft);
        struct raft_event event = {.type = RAFT_PERSISTED, .now_ms = now_ms, .u.persisted.seq = seq};
        if (seq) (void)raft_step(raft, &event);
        more = seq != 0;
    }
    return match;
}

Test(raft, a_leader_that_contradicts_what_is_committed_is_acknowledged_nothing) {
    static const struct {
        const char *what;
        uint64_t prev, prev_term, first_term, second_term; /* entries' terms; 0: none */
        uint64_t contradicts, match;
    } rows[] = {
        {"a heartbeat that fits", 8, 1, 0, 0, 0, 8},
        {"one that proves nothing", 0, 0, 0, 0, 0, 0},
        {"what is committed has another term there", 8, 1002, 0, 0, 8, 0},
        {"an entry that is committed here", 7, 1, 1002, 0, 8, 0},
        {"the second of two", 6, 1, 1, 1002, 8, 0},
        {"the last one in the snapshot", 5, 1002, 0, 0, 5, 0},
        {"in the snapshot, where only the end's term is known", 3, 1002, 0, 0, 3, 0},
        {"in the snapshot, and it may be the same", 3, 1, 1, 1, 0, 5},
        {"behind what is committed: as any conflict", 8, 1, 1002, 0, 0, 9},
        {"before it and behind it", 7, 1, 1, 1002, 0, 9},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct raft *raft = one_of_before((struct raft_recovery){0});
        struct raft_entry entries[2] = {
            {.index = rows[i].prev + 1, .term = rows[i].first_term, .type = RAFT_ENTRY_EMPTY},
            {.index = rows[i].prev + 2, .term = rows[i].second_term, .type = RAFT_ENTRY_EMPTY}};
        struct raft_message append = {.type = RAFT_MSG_APPEND,
                                      .from = 2,
                                      .to = 1,
                                      .term = 1002,
                                      .last_index = rows[i].prev,
                                      .last_term = rows[i].prev_term,
                                      .entries = entries,
                                      .entry_count = (rows[i].first_term != 0) + (rows[i].second_term != 0)};
        hear(raft, 1001, &append);
        bool taken;
        cr_expect_eq(acknowledged_to(raft, 1001, &taken), rows[i].match, "%s", rows[i].what);
        cr_expect_eq(raft_contradiction(raft).index, rows[i].contradicts, "%s", rows[i].what);
        cr_expect_eq(raft_failed(raft), rows[i].contradicts != 0, "%s", rows[i].what);
        raft_free(raft);
    }
}

/* The server has just started, and does not know what is committed beyond 8. Its own end is compared with the end of
 * the survivor's log. */
Test(raft, nothing_that_may_be_committed_gives_way_after_a_recovery) {
    static const struct {
        const char *what;
        struct raft_recovery known, first, second;
        uint64_t prev, prev_term, first_term, second_term;
        uint64_t contradicts, match;
    } rows[] = {
        {"no recovery: as any conflict", {0}, {0}, {0}, 8, 1, 1002, 0, 0, 9},
        {"ours is unknown there, and a leader was elected after it", {4, 2, 1, 7}, {0}, {0}, 8, 1, 1002, 0, 10, 0},
        {"ours is unknown there, and nobody led since", {4, 3, 1, 7}, {0}, {0}, 8, 1, 1002, 0, 0, 9},
        {"ours is known there", {4, 2, 1, 7}, {4, 2, 1, 7}, {0}, 8, 1, 1002, 0, 0, 9},
        {"another survivor's, of the same place", {4, 2, 1, 7}, {4, 2, 1, 8}, {0}, 8, 1, 1002, 0, 10, 0},
        {"no recovery, an older entry", {0}, {0}, {0}, 8, 1, 2, 0, 0, 9},
        {"gone on from 8", {0}, {9, 1002, 1, 7}, {0}, 8, 1, 1002, 0, 10, 0},
        {"gone on from 9", {0}, {10, 1002, 3, 7}, {0}, 8, 1, 3, 1002, 10, 0},
        {"gone on from 10", {0}, {11, 1002, 3, 7}, {0}, 10, 3, 1002, 0, 0, 11},
        {"it has just that", {0}, {11, 1002, 3, 7}, {0}, 8, 1, 3, 3, 0, 10},
        {"the survivor ended further on, in an older term", {0}, {13, 1002, 2, 7}, {0}, 8, 1, 2, 2, 10, 0},
        {"the survivor ended in a younger term", {0}, {12, 1002, 4, 7}, {0}, 8, 1, 4, 0, 0, 9},
        {"and before that it had older ones", {0}, {11, 1002, 4, 7}, {0}, 8, 1, 2, 4, 0, 10},
        {"and is shorter", {0}, {10, 1002, 4, 7}, {0}, 8, 1, 4, 1002, 0, 10},
        {"it knows that one", {9, 1002, 1, 7}, {9, 1002, 1, 7}, {0}, 8, 1, 1002, 0, 0, 9},
        {"it knows one at that index, of another term", {9, 1001, 1, 7}, {9, 1002, 1, 7}, {0}, 8, 1, 1002, 0, 10, 0},
        {"it knows an older one", {4, 1001, 1, 7}, {4, 1001, 1, 7}, {9, 1002, 1, 7}, 8, 1, 1002, 0, 10, 0},
        {"gone on from 8, and again", {0}, {9, 1002, 1, 7}, {31, 2002, 1002, 7}, 8, 1, 1002, 0, 10, 0},
        {"gone on from 10, and again", {0}, {11, 1002, 3, 7}, {31, 2002, 1002, 7}, 10, 3, 1002, 0, 0, 11},
        {"where they part is to be found first", {0}, {9, 1002, 1, 7}, {0}, 9, 1002, 1002, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct raft *raft = one_of_before(rows[i].known);
        struct raft_entry entries[2] = {
            {.index = rows[i].prev + 1, .term = rows[i].first_term, .type = RAFT_ENTRY_EMPTY},
            {.index = rows[i].prev + 2, .term = rows[i].second_term, .type = RAFT_ENTRY_EMPTY}};
        struct raft_message append = {
            .type = RAFT_MSG_APPEND,
            .from = 2,
            .to = 1,
            .term = 2002,
            .last_index = rows[i].prev,
            .last_term = rows[i].prev_term,
            .entries = entries,
            .entry_count = (rows[i].first_term != 0) + (rows[i].second_term != 0),
            .recoveries = {(rows[i].first.index != 0) + (rows[i].second.index != 0), {rows[i].first, rows[i].second}},
            .recoveries_told = true};
        bool taken;
        hear(raft, 1001, &append);
        cr_expect_eq(acknowledged_to(raft, 1001, &taken), rows[i].match, "%s", rows[i].what);
        cr_expect_eq(raft_contradiction(raft).index, rows[i].contradicts, "%s", rows[i].what);
        cr_expect_eq(raft_failed(raft), rows[i].contradicts != 0, "%s", rows[i].what);
        if (rows[i].contradicts) cr_expect_eq(raft_last_index(raft), 10, "%s: what it has stays", rows[i].what);
        raft_free(raft);
    }
}

/* A build from before that says nothing of recoveries, a list that may have lost its beginning, a configuration that
 * lost its list. */
Test(raft, what_is_not_known_of_recoveries) {
    struct raft_members ours = {.recovered_index = 31};
    struct raft_recoveries two = {2, {{9, 1002, 1, 5}, {31, 2002, 1002, 5}}}, full = {.count = RAFT_RECOVERIES_MAX};
    cr_expect_null(raft_recovery_ahead(&ours, 50, 2003, &two), "who knows the last one has all before it");
    cr_expect_null(raft_recovery_behind(&ours, 2003, &(struct raft_recoveries){0}));
    ours = (struct raft_members){0};
    cr_expect_eq(raft_recovery_ahead(&ours, 50, 3, &two), &two.item[0]);
    for (uint32_t i = 0; i < full.count; i++)
        full.item[i] = (struct raft_recovery){100 + i, 1000 * (i + 2), 1000 * (i + 1), 5};
    cr_expect_eq(raft_recovery_ahead(&ours, 50, 3, &full), &full.item[0], "one before it may have lacked what is here");
    cr_expect_null(raft_recovery_ahead(&ours, 0, 0, &full), "nothing is here");
    raft_recovery_add(&ours, &(struct raft_recovery){90, 1000, 1, 5});
    cr_expect_null(raft_recovery_behind(&ours, 1003, &full), "it may be the one that is left out");
    raft_recovery_add(&ours, &full.item[3]);
    cr_expect_null(raft_recovery_ahead(&ours, 103, 5000, &full), "it has what the next survivor had");
    cr_expect_eq(raft_recovery_ahead(&ours, 104, 5000, &full), &full.item[4]);
    cr_expect_null(raft_recovery_behind(&ours, 6000, &full), "ours is among them");

    struct raft *raft = one_of_before((struct raft_recovery){4, 2, 1, 0});
    struct raft_entry entry = {.index = 9, .term = 1002, .type = RAFT_ENTRY_EMPTY};
    struct raft_message append = {.type = RAFT_MSG_APPEND,
                                  .from = 2,
                                  .to = 1,
                                  .term = 2002,
                                  .last_index = 8,
                                  .last_term = 1,
                                  .entries = &entry,
                                  .entry_count = 1};
    bool taken;
    hear(raft, 1001, &append);
    cr_expect_eq(acknowledged_to(raft, 1001, &taken), 9, "a leader that does not tell");
    raft_free(raft);
}

Test(raft, a_snapshot_that_is_not_needed_is_acknowledged_as_far_as_it_goes) {
    static const struct {
        const char *what;
        uint64_t index, term;
        struct raft_recovery first, second;
        uint64_t contradicts, match;
        bool taken;
    } rows[] = {
        /* It holds 7 and more: what it says of that is 7, for the rest was not compared. */
        {"committed here", 7, 1, {0}, {0}, 0, 7, false},
        {"another is committed here", 7, 1002, {0}, {0}, 7, 0, false},
        {"in its own snapshot", 4, 1, {0}, {0}, 0, 4, false},
        {"another is in its own snapshot", 4, 1002, {0}, {0}, 4, 0, false},
        {"it is behind", 20, 3, {0}, {0}, 0, 0, true},
        {"it parts from that", 9, 2, {0}, {0}, 0, 0, true},
        {"the survivor had what it has", 20, 1002, {11, 1002, 3, 7}, {0}, 0, 0, true},
        {"and more, but shorter", 20, 1002, {10, 1002, 4, 7}, {0}, 0, 0, true},
        {"the survivor ended further on, in an older term", 20, 1002, {15, 1002, 2, 7}, {0}, 10, 0, false},
        {"the survivor lacked an entry", 20, 1002, {10, 1002, 3, 7}, {0}, 10, 0, false},
        {"from before the recovery, of one that lacked what it has", 9, 2, {12, 1002, 2, 7}, {0}, 10, 0, false},
        {"from before the recovery, of one that went on further", 9, 2, {12, 1002, 4, 7}, {0}, 0, 0, true},
        {"the survivor lacked an entry, and it was done again",
         40,
         2002,
         {9, 1002, 1, 7},
         {31, 2002, 1002, 7},
         10,
         0,
         false},
        {"it has that", 9, 3, {12, 1002, 4, 7}, {0}, 0, 9, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct raft *raft = one_of_before((struct raft_recovery){0});
        struct raft_message chunk = {
            .type = RAFT_MSG_SNAPSHOT,
            .from = 2,
            .to = 1,
            .term = 2002,
            .data = slice_make("state", 5),
            .last = true,
            .recoveries = {(rows[i].first.index != 0) + (rows[i].second.index != 0), {rows[i].first, rows[i].second}},
            .recoveries_told = true};
        chunk.snapshot = (struct raft_snapshot_meta){
            .index = rows[i].index, .term = rows[i].term, .size = 5, .members_index = 1, .members = {.count = 1}};
        chunk.snapshot.members.member[0] = (struct raft_member){.id = 2, .voter = true};
        hear(raft, 1001, &chunk);
        bool taken;
        cr_expect_eq(acknowledged_to(raft, 1001, &taken), rows[i].match, "%s", rows[i].what);
        cr_expect_eq(taken, rows[i].taken, "%s", rows[i].what);
        cr_expect_eq(raft_contradiction(raft).index, rows[i].contradicts, "%s", rows[i].what);
        raft_free(raft);
    }
}

/* -- a state machine that falls behind ---------------------------------------------------------------------------- */
static void propose(struct room *room, int who, size_t size) {
    static char bytes[1000];
    struct raft_entry entry = {.type = RAFT_ENTRY_COMMAND, .data = raft_data_new(bytes, size)};
    struct raft_event event = {.type = RAFT_PROPOSE, .now_ms = room->now_ms, .unix_ms = 7 + room->now_ms};
    event.u.propose.entries = &entry, event.u.propose.count = 1;
    cr_assert_eq(raft_step(room->raft[who], &event), CO_OK);
    cr_assert_eq(raft_entry_at(room->raft[who], raft_last_index(room->raft[who]))->unix_ms, 7 + room->now_ms);
}

static uint64_t held_bytes(const struct raft *raft) {
    uint64_t bytes = 0;
    for (uint64_t i = raft_applied_index(raft) + 1; i <= raft_last_index(raft); i++)
        bytes += raft_entry_at(raft, i) ? 1000 : 0;
    return bytes;
}

Test(raft, a_follower_that_applies_slowly_holds_a_bounded_part_of_the_log) {
    struct room *room = found();
    room->slow[2] = true;
    for (int i = 0; i < 700; i++) { /* less than the leader keeps in memory */
        propose(room, 0, 1000);
        pass(room, 5);
    }
    uint64_t last = raft_last_index(room->raft[0]);
    cr_assert_eq(raft_commit_index(room->raft[0]), last, "the others go on");
    cr_assert_lt(raft_last_index(room->raft[2]), last);
    cr_assert_lt(held_bytes(room->raft[2]), 4 * APPLY_BYTES, "%llu bytes",
                 (unsigned long long)held_bytes(room->raft[2]));
    room->slow[2] = false;
    step(room, 2, &(struct raft_event){.type = RAFT_APPLIED, .u.applied.index = room->owed[2]});
    pass(room, 500);
    cr_assert_eq(raft_applied_index(room->raft[2]), last, "it catches up");
    leave(room);
}

/* Entries that a server holds cannot commit without its acknowledgement, so that must not wait for their commit. */
Test(raft, one_that_is_needed_for_the_majority_acknowledges_what_is_not_committed_yet) {
    struct room *room = found();
    room->cut[1] = true;
    for (int i = 0; i < 100; i++) propose(room, 0, 1000);
    settle(room);
    cr_assert_eq(raft_commit_index(room->raft[0]), raft_last_index(room->raft[0]));
    room->slow[2] = true;
    for (int i = 0; i < 100; i++) {
        propose(room, 0, 1000);
        pass(room, 5);
    }
    cr_assert_lt(raft_commit_index(room->raft[0]), raft_last_index(room->raft[0]), "it waits for the slow one");
    for (int i = 0; i < 20; i++) {
        step(room, 2, &(struct raft_event){.type = RAFT_APPLIED, .u.applied.index = room->owed[2]});
        pass(room, 40);
    }
    cr_assert_eq(raft_commit_index(room->raft[0]), raft_last_index(room->raft[0]));
    leave(room);
}
