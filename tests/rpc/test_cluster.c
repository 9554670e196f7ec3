/* Founding a cluster and bringing servers in: pure decisions, as tables. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "rpc/cluster/cluster.h"

static struct peer_info server(uint64_t id, uint32_t expect, bool has_log) {
    struct peer_info info = {.id = id, .expect = expect, .has_log = has_log, .connected = true};
    snprintf(info.address, sizeof info.address, "10.0.0.%u:8300", (unsigned)id);
    return info;
}

Test(cluster, the_lowest_of_enough_empty_servers_founds_it) {
    struct {
        const char *what;
        struct peer_info self, peers[4];
        size_t count;
        bool found;
    } cases[] = {
        {"alone, three expected", server(1, 3, false), {{0}}, 0, false},
        {"two of three", server(1, 3, false), {server(2, 3, false)}, 1, false},
        {"three of three, lowest", server(1, 3, false), {server(3, 3, false), server(2, 3, false)}, 2, true},
        {"three of three, not the lowest", server(2, 3, false), {server(3, 3, false), server(1, 3, false)}, 2, false},
        {"one of them has a log: there is a cluster",
         server(1, 3, false),
         {server(3, 3, true), server(2, 3, false)},
         2,
         false},
        {"we have a log", server(1, 3, true), {server(3, 3, false), server(2, 3, false)}, 2, false},
        {"they expect another number", server(1, 3, false), {server(3, 5, false), server(2, 3, false)}, 2, false},
        {"nothing is expected: to be taken in", server(1, 0, false), {server(2, 0, false)}, 1, false},
        {"four servers, three expected: once, by the lowest",
         server(1, 3, false),
         {server(4, 3, false), server(3, 3, false), server(2, 3, false)},
         3,
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster_found found = cluster_may_found(&cases[i].self, cases[i].peers, cases[i].count);
        cr_expect_eq(found.found, cases[i].found, "%s", cases[i].what);
        if (!found.found) continue;
        cr_expect_eq(found.members.count, cases[i].self.expect, "%s", cases[i].what);
        for (uint32_t k = 0; k < found.members.count; k++)
            cr_expect(found.members.member[k].voter && found.members.member[k].id == k + 1,
                      "%s: the lowest ids, in order", cases[i].what);
    }
}

Test(cluster, a_peer_that_is_not_connected_does_not_count) {
    struct peer_info self = server(1, 3, false), peers[2] = {server(2, 3, false), server(3, 3, false)};
    peers[1].connected = false;
    cr_assert_not(cluster_may_found(&self, peers, 2).found);
}

static struct raft_members three(void) {
    struct raft_members members = {.count = 3};
    for (uint64_t i = 0; i < 3; i++) {
        members.member[i] = (struct raft_member){.id = i + 1, .voter = true};
        snprintf(members.member[i].address, sizeof members.member[i].address, "10.0.0.%u:8300", (unsigned)i + 1);
    }
    return members;
}

static struct peer_info self; /* s1 */
static bool caught_up[RAFT_MEMBERS_MAX];
static void setup(void) {
    self = server(1, 3, true);
    memset(caught_up, true, sizeof caught_up);
}
TestSuite(cluster, .init = setup);

Test(cluster, a_member_that_says_another_address_has_moved) {
    struct raft_members members = three();
    struct peer_info peers[2] = {server(2, 3, true), server(3, 3, true)};
    cr_assert_not(cluster_next_change(&members, caught_up, &self, peers, 2).wanted);
    strcpy(peers[1].address, "10.0.0.33:8300");
    struct cluster_change change = cluster_next_change(&members, caught_up, &self, peers, 2);
    cr_assert(change.wanted && change.type == RAFT_READDRESS && change.id == 3);
    cr_assert_str_eq(change.address, "10.0.0.33:8300");
    peers[1].connected = false;
    cr_assert_not(cluster_next_change(&members, caught_up, &self, peers, 2).wanted, "it is not there");
    peers[1].connected = true;
    strcpy(peers[1].address, "10.0.0.2:8300");
    cr_assert_not(cluster_next_change(&members, caught_up, &self, peers, 2).wanted, "another's");
    strcpy(self.address, "10.0.0.11:8300");
    change = cluster_next_change(&members, caught_up, &self, peers, 2);
    cr_assert(change.wanted && change.type == RAFT_READDRESS && change.id == 1, "this server itself");
    cr_assert_str_eq(change.address, "10.0.0.11:8300");
}

Test(cluster, a_new_server_becomes_a_learner_and_then_a_voter) {
    struct raft_members members = three();
    struct peer_info peers[3] = {server(2, 3, true), server(3, 3, true), server(4, 0, false)};
    struct cluster_change change = cluster_next_change(&members, caught_up, &self, peers, 3);
    cr_assert(change.wanted && change.type == RAFT_ADD_LEARNER && change.id == 4);
    cr_assert_str_eq(change.address, "10.0.0.4:8300");
    members.member[members.count++] = (struct raft_member){.id = 4, .address = "10.0.0.4:8300"};
    change = cluster_next_change(&members, caught_up, &self, peers, 3);
    cr_assert(change.wanted && change.type == RAFT_PROMOTE && change.id == 4);
    members.member[3].voter = true;
    cr_assert_not(cluster_next_change(&members, caught_up, &self, peers, 3).wanted, "nothing is left to do");
}

Test(cluster, a_new_disk_under_an_old_address_replaces_the_old_member) {
    struct raft_members members = three();
    struct peer_info peers[2] = {server(2, 3, true), server(9, 3, false)};
    snprintf(peers[1].address, sizeof peers[1].address, "10.0.0.3:8300");
    struct cluster_change change = cluster_next_change(&members, caught_up, &self, peers, 2);
    cr_assert(change.wanted && change.type == RAFT_REMOVE && change.id == 3);
    members.count = 2;
    change = cluster_next_change(&members, caught_up, &self, peers, 2);
    cr_assert(change.wanted && change.type == RAFT_ADD_LEARNER && change.id == 9);
}

Test(cluster, a_learner_that_is_away_is_not_promoted) {
    struct raft_members members = three();
    members.member[2].voter = false;
    struct peer_info peers[1] = {server(2, 3, true)};
    cr_assert_not(cluster_next_change(&members, caught_up, &self, peers, 1).wanted);
}

Test(cluster, a_learner_that_lags_keeps_nobody_waiting) {
    struct raft_members members = three();
    members.member[1].voter = members.member[2].voter = false;
    struct peer_info peers[2] = {server(2, 3, true), server(3, 3, true)};
    caught_up[1] = false;
    struct cluster_change change = cluster_next_change(&members, caught_up, &self, peers, 2);
    cr_assert(change.wanted && change.type == RAFT_PROMOTE && change.id == 3);
    members.member[2].voter = true;
    cr_assert_not(cluster_next_change(&members, caught_up, &self, peers, 2).wanted,
                  "so that a dead one may be removed");
}

/* An election makes all of them speak; who hears of none is cut off. */
Test(cluster, who_hears_no_majority_while_nobody_leads_is_cut_off) {
    struct {
        const char *what;
        uint32_t count, learners;       /* the last ones */
        uint64_t self, last_seen_ms[5]; /* of each; nobody leads since 1000 */
        bool cut_off;
    } cases[] = {
        {"all silent", 3, 0, 1, {0, 900, 999}, true},
        {"one of two others speaks", 3, 0, 1, {0, 900, 1000}, false},
        {"one of four others speaks", 5, 0, 3, {1100, 900, 0, 0, 0}, true},
        {"two of four others speak", 5, 0, 3, {1100, 900, 0, 1001, 0}, false},
        {"alone", 1, 0, 1, {0}, false},
        {"a learner speaks", 4, 1, 1, {0, 900, 900, 1100}, true},
        {"a learner itself: nobody asks it for a vote", 4, 1, 4, {900, 900, 900, 0}, false},
        {"no member yet", 3, 0, 9, {900, 900, 900}, false},
        {"no cluster yet", 0, 0, 1, {0}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct raft_members members = {.count = cases[i].count};
        for (uint32_t k = 0; k < members.count; k++)
            members.member[k] = (struct raft_member){.id = k + 1, .voter = k < members.count - cases[i].learners};
        cr_expect_eq(cluster_cut_off(&members, cases[i].self, cases[i].last_seen_ms, 1000), cases[i].cut_off, "%s",
                     cases[i].what);
    }
}
