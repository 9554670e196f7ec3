/* When the cluster version may rise, and where a new cluster begins: tables. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "registry/version.h"
#include "rpc/server/version.h"

static struct peer_info peer(uint64_t id, unsigned most) {
    struct peer_info info = {
        .id = id, .connected = true, .terms = {.protocol = 1, .version_least = 1, .version_most = most}};
    snprintf(info.node, sizeof info.node, "s%u", (unsigned)id);
    return info;
}
static struct raft_members three(void) {
    struct raft_members members = {.count = 3};
    for (uint64_t i = 0; i < 3; i++) {
        members.member[i] = (struct raft_member){.id = i + 1, .voter = i < 2}; /* the last one is a learner */
        snprintf(members.member[i].address, sizeof members.member[i].address, "10.0.0.%u:8300", (unsigned)i + 1);
    }
    return members;
}

Test(version, rises_when_every_member_is_there_and_supports_it) {
    struct raft_members members = three();
    struct {
        const char *what;
        unsigned now, newest;
        struct peer_info peers[3];
        size_t count;
        unsigned to;
        const char *why;
    } table[] = {
        {"all support it", 1, 2, {peer(2, 2), peer(3, 2)}, 2, 2, ""},
        {"others more than we", 1, 2, {peer(2, 3), peer(3, 4)}, 2, 2, ""},
        {"as far as all go", 1, 4, {peer(2, 3), peer(3, 2)}, 2, 2, ""},
        {"nothing to do", 2, 2, {peer(2, 3), peer(3, 3)}, 2, 0, ""},
        {"a voter is older", 1, 2, {peer(2, 1), peer(3, 2)}, 2, 0, "server s2 supports only 1"},
        {"a learner is older", 1, 2, {peer(2, 2), peer(3, 1)}, 2, 0, "server s3 supports only 1"},
        {"a member is away", 1, 2, {peer(2, 2)}, 1, 0, "server 10.0.0.3:8300 is not connected"},
        {"a stranger does not count", 1, 2, {peer(2, 2), peer(3, 2), peer(9, 1)}, 3, 2, ""},
        {"never down", 3, 4, {peer(2, 2), peer(3, 4)}, 2, 0, "server s2 supports only 2"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct version_raise raise =
            version_next(table[i].now, table[i].newest, &members, 1, table[i].peers, table[i].count);
        cr_expect_eq(raise.to, table[i].to, "%s", table[i].what);
        cr_expect_str_eq(raise.why, table[i].why, "%s", table[i].what);
    }
    struct peer_info away[2] = {peer(2, 2), peer(3, 2)};
    away[1].connected = false;
    cr_expect_eq(version_next(1, 2, &members, 1, away, 2).to, 0);
    members.count = 1;
    cr_expect_eq(version_next(1, 2, &members, 1, NULL, 0).to, 2, "alone");
}

Test(version, a_new_cluster_begins_at_what_its_founders_support) {
    struct raft_members members = three();
    struct peer_info peers[] = {peer(2, 3), peer(3, 2), peer(9, 1)};
    cr_assert_eq(version_of_founders(&members, peers, 3, 4), 2, "the fourth is no founder");
    cr_assert_eq(version_of_founders(&members, peers, 3, 2), 2);
    peers[0].terms.version_most = 1;
    cr_assert_eq(version_of_founders(&members, peers, 3, 4), 1);
}

Test(version, only_servers_that_support_it_may_join) {
    struct raft_members members = three();
    struct peer_info peers[] = {peer(7, 1), peer(8, 2), peer(9, 3)};
    peers[2].terms.version_least = 3;
    cr_assert_not_null(version_incompatible(&peers[0], 2, 77, &members));
    cr_assert_null(version_incompatible(&peers[1], 2, 77, &members));
    cr_assert_not_null(version_incompatible(&peers[2], 2, 77, &members));
    cr_assert_null(version_incompatible(&peers[0], 1, 0, &members));
}

Test(version, a_server_with_a_log_says_of_which_cluster_before_it_is_taken_in) {
    struct raft_members members = three();
    struct peer_info stranger = peer(9, 2), member = peer(3, 2);
    cr_assert_null(version_incompatible(&stranger, 2, 77, &members), "it is empty");
    stranger.has_log = member.has_log = true;
    cr_assert_not_null(version_incompatible(&stranger, 2, 77, &members));
    cr_assert_null(version_incompatible(&member, 2, 77, &members), "it has not learned it yet");
    cr_assert_null(version_incompatible(&stranger, 1, 0, &members), "a cluster without an id cannot tell");
    stranger.cluster_id = 77;
    cr_assert_null(version_incompatible(&stranger, 2, 77, &members), "it was here before");
}

Test(version, the_first_command_of_a_cluster) {
    struct buffer first = {0};
    version_first_command(2, &first);
    cr_assert(first.size > 2 && (uint8_t)first.data[0] == CLUSTER_VERSION);
    Pb__ClusterVersionCommand *command =
        pb__cluster_version_command__unpack(NULL, first.size - 2, (uint8_t *)first.data + 2);
    cr_assert(command && command->version == 2 && command->cluster_id != 0);
    pb__cluster_version_command__free_unpacked(command, NULL);
    buffer_free(&first);
}
