/* Hellos: versions are agreed on, strangers are refused with a reason. Tables. */
#include <criterion/criterion.h>
#include <string.h>

#include "rpc/wire/hello.h"

static Pb__PeerHello hello(uint32_t least, uint32_t most) {
    Pb__PeerHello h = PB__PEER_HELLO__INIT;
    h.protocol = (char *)HELLO_PROTOCOL, h.version_least = least, h.version_most = most;
    h.cluster = (char *)"dc1", h.id = 9, h.address = (char *)"10.0.0.9:8300", h.node = (char *)"s9";
    return h;
}
static const struct hello_self member = {.cluster = "dc1",
                                         .cluster_id = 77,
                                         .version = 2,
                                         .version_least = 1,
                                         .version_most = 3},
                               fresh = {.cluster = "dc1", .version_least = 1, .version_most = 3};

Test(hello, the_highest_common_protocol_version_is_spoken) {
    static const struct {
        uint32_t least, most;
        unsigned spoken;
    } table[] = {
        {1, 1, 1}, {1, 2, 1}, {1, 9, 1}, {2, 2, 0}, {2, 9, 0}, {0, 0, 0}, {0, 1, 1}, {2, 1, 0},
    };
    char why[HELLO_WHY];
    struct hello_terms terms;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        Pb__PeerHello h = hello(table[i].least, table[i].most);
        enum hello_verdict verdict = hello_judge(&fresh, &h, &terms, why);
        cr_expect_eq(terms.protocol, table[i].spoken, "%u to %u", table[i].least, table[i].most);
        cr_expect_eq(verdict, table[i].spoken ? HELLO_OK : HELLO_NO_PROTOCOL);
    }
    Pb__PeerHello newer = hello(9, 9);
    hello_judge(&fresh, &newer, &terms, why);
    cr_assert_str_eq(why, "no protocol version in common (it speaks 9 to 9, this server 1 to 1)");
    cr_assert(terms.hears_refusal, "it is told so");
}

Test(hello, a_build_that_says_nothing_of_cluster_versions_supports_the_first) {
    Pb__PeerHello h = hello(1, 1);
    struct hello_terms terms;
    char why[HELLO_WHY];
    cr_assert_eq(hello_judge(&fresh, &h, &terms, why), HELLO_OK);
    cr_assert(terms.version_least == 1 && terms.version_most == 1);
    struct hello_self first = {.cluster = "dc1", .version = 1, .version_least = 1, .version_most = 3};
    cr_assert_eq(hello_judge(&first, &h, &terms, why), HELLO_OK, "in a cluster of version 1 it is at home");
    cr_assert_eq(hello_judge(&member, &h, &terms, why), HELLO_TOO_OLD);
    cr_assert_str_eq(why, "the cluster is at version 2, its program supports only up to 1: it has to be upgraded");
}

Test(hello, supported_cluster_versions) {
    static const struct {
        unsigned ours;
        uint32_t least, most;
        enum hello_verdict verdict;
    } table[] = {
        {2, 1, 2, HELLO_OK},      {2, 2, 3, HELLO_OK},      {2, 2, 2, HELLO_OK}, {2, 3, 4, HELLO_TOO_NEW},
        {1, 2, 3, HELLO_TOO_NEW}, {2, 1, 1, HELLO_TOO_OLD}, {0, 3, 4, HELLO_OK}, {0, 1, 1, HELLO_OK},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct hello_self self = {.cluster = "dc1", .version = table[i].ours, .version_least = 1, .version_most = 3};
        Pb__PeerHello h = hello(1, 2);
        h.cluster_version_least = table[i].least, h.cluster_version_most = table[i].most;
        struct hello_terms terms;
        char why[HELLO_WHY];
        cr_expect_eq(hello_judge(&self, &h, &terms, why), table[i].verdict, "at %u: %u to %u", table[i].ours,
                     table[i].least, table[i].most);
    }
}

Test(hello, who_is_behind_believes_the_other) {
    static const struct {
        const char *what;
        unsigned ours, theirs, least, most;
        enum hello_verdict verdict;
    } table[] = {
        {"both at 2", 2, 2, 1, 2, HELLO_OK},
        {"we have to catch up, their program no longer knows our version", 2, 3, 3, 4, HELLO_OK},
        {"likewise, before we have applied anything", 1, 3, 3, 4, HELLO_OK},
        {"they have to catch up", 3, 1, 1, 3, HELLO_OK},
        {"it went on without us", 2, 4, 3, 4, HELLO_WE_DO_NOT_FIT},
        {"and we are new", 0, 4, 3, 4, HELLO_WE_DO_NOT_FIT},
        {"they are new, and may join", 3, 0, 3, 4, HELLO_OK},
        {"they know that their own program is too old", 1, 3, 1, 2, HELLO_TOO_OLD},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct hello_self self = {.cluster = "dc1", .version = table[i].ours, .version_least = 1, .version_most = 3};
        Pb__PeerHello h = hello(1, 2);
        h.cluster_version_least = table[i].least, h.cluster_version_most = table[i].most,
        h.cluster_version = table[i].theirs;
        struct hello_terms terms;
        char why[HELLO_WHY];
        cr_expect_eq(hello_judge(&self, &h, &terms, why), table[i].verdict, "%s: %s", table[i].what, why);
    }
}

Test(hello, another_cluster_is_refused_by_name_and_by_id) {
    static const struct {
        const struct hello_self *self;
        const char *cluster;
        uint64_t id;
        enum hello_verdict verdict;
    } table[] = {
        {&member, "dc1", 77, HELLO_OK},
        {&member, "dc1", 0, HELLO_OK}, /* it has not learned it yet */
        {&fresh, "dc1", 77, HELLO_OK}, /* we have not */
        {&member, "dc1", 78, HELLO_OTHER_CLUSTER},
        {&member, "dc2", 77, HELLO_OTHER_NAME},
        {&fresh, "dc2", 0, HELLO_OTHER_NAME},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        Pb__PeerHello h = hello(1, 2);
        h.cluster = (char *)table[i].cluster, h.cluster_id = table[i].id, h.cluster_version_least = 1,
        h.cluster_version_most = 2;
        struct hello_terms terms;
        char why[HELLO_WHY];
        cr_expect_eq(hello_judge(table[i].self, &h, &terms, why), table[i].verdict, "row %zu: %s", i, why);
        cr_expect((why[0] != 0) == (table[i].verdict != HELLO_OK));
    }
}

Test(hello, what_is_no_server) {
    struct hello_terms terms;
    char why[HELLO_WHY], address[200];
    Pb__PeerHello h = hello(1, 2);
    h.protocol = (char *)"else";
    cr_assert_eq(hello_judge(&fresh, &h, &terms, why), HELLO_NOT_OURS);
    cr_assert_not(terms.hears_refusal);
    h = hello(1, 2), h.id = 0;
    cr_assert_eq(hello_judge(&fresh, &h, &terms, why), HELLO_NO_ID);
    memset(address, 'x', sizeof address);
    address[HELLO_ADDRESS_MAX + 1] = 0;
    h = hello(1, 2), h.address = address;
    cr_assert_eq(hello_judge(&fresh, &h, &terms, why), HELLO_TOO_LONG);
    address[HELLO_ADDRESS_MAX] = 0;
    cr_assert_eq(hello_judge(&fresh, &h, &terms, why), HELLO_OK);
}

/* -- links from other regions ------------------------------------------------------------------------------------- */

static Pb__PeerHello link_hello(const char *region, uint64_t region_id, const char *cluster, uint64_t cluster_id) {
    struct hello_region link = {
        .region = region, .region_cluster_id = region_id, .cluster = cluster, .cluster_id = cluster_id};
    Pb__PeerHello h = PB__PEER_HELLO__INIT;
    hello_of_region(&h, &link, 9);
    h.address = (char *)"10.2.0.1:8300", h.node = (char *)"e1";
    return h;
}

Test(hello, links_of_other_regions_are_taken_and_those_that_claim_this_one_are_not) {
    static const struct {
        const char *region, *cluster;
        uint64_t region_id, cluster_id;
        enum hello_verdict verdict;
    } table[] = {
        {.region = "eu", .region_id = 5, .verdict = HELLO_OK}, /* whoever is there */
        {.region = "eu", .region_id = 5, .cluster = "dc1", .verdict = HELLO_OK},
        {.region = "eu", .region_id = 5, .cluster = "dc1", .cluster_id = 77, .verdict = HELLO_OK},
        {.region = "eu", .region_id = 5, .cluster = "dc1", .cluster_id = 78, .verdict = HELLO_OTHER_CLUSTER},
        {.region = "eu", .region_id = 5, .cluster = "us", .verdict = HELLO_OTHER_NAME},
        {.region = "dc1", .region_id = 77, .verdict = HELLO_SAME_REGION},
        {.region = "dc1", .region_id = 5, .verdict = HELLO_CLAIMS_REGION},
    };
    char why[HELLO_WHY];
    struct hello_terms terms;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        Pb__PeerHello h = link_hello(table[i].region, table[i].region_id, table[i].cluster, table[i].cluster_id);
        cr_expect_eq(hello_judge(&member, &h, &terms, why), table[i].verdict, "row %zu: %s", i, why);
        cr_expect(table[i].verdict == HELLO_OK || why[0], "row %zu says why", i);
    }
    Pb__PeerHello h = link_hello("eu", 5, NULL, 0);
    cr_expect(h.agent, "it speaks as a client agent");
    struct hello_self joins = {.version_most = UINT32_MAX};
    Pb__PeerHello server = hello(1, 8);
    cr_expect_eq(hello_judge(&joins, &server, &terms, why), HELLO_OK, "who joins a region takes whatever is there");
}
