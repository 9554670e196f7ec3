/* The words in which a server without a leader says what it waits for, and what came of each address. Tables. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <uv.h>

#include "base/error.h"
#include "rpc/cluster/waiting.h"

static struct peer_info peer(uint64_t id, uint32_t expect, bool has_log) {
    struct peer_info info = {.id = id, .expect = expect, .has_log = has_log, .connected = true};
    snprintf(info.node, sizeof info.node, "x%u", (unsigned)id);
    snprintf(info.address, sizeof info.address, "10.0.0.%u:8300", (unsigned)id);
    return info;
}

static struct peers_address at(const char *name, enum reach_what what, int cause, const char *why) {
    struct peers_address address = {.connected = what == REACH_MET};
    snprintf(address.name, sizeof address.name, "%s", name);
    reach_note(&address.reach, what, cause, why);
    return address;
}

static void expect_line(const struct waiting *waiting, const char *wanted) {
    struct buffer out = {0};
    waiting_say(waiting, &out);
    cr_expect(slice_is(buffer_slice(&out), wanted), "%.*s\ninstead of\n%s", (int)out.size, out.data, wanted);
    buffer_free(&out);
}

static const struct raft_members nobody;

Test(waiting, a_server_that_is_to_found_a_cluster_says_who_is_missing_and_why) {
    struct peer_info self = peer(1, 2, false), peers[3] = {peer(2, 3, false)};
    struct peers_address addresses[4] = {at("no.such.host:8300", REACH_UNRESOLVED, UV_EAI_NONAME, NULL),
                                         at("10.0.0.2:8300", REACH_FAILED, UV_ECONNREFUSED, NULL)};
    struct waiting waiting = {.self = &self, .members = &nobody, .peers = peers, .addresses = addresses, .port = 8300};
    self.expect = 3;
    expect_line(&waiting, "waiting for servers: 1 of 3 seen; no other address is known (-retry-join=HOST names one)");
    waiting.address_count = 2;
    expect_line(&waiting,
                "waiting for servers: 1 of 3 seen; no.such.host does not resolve; 10.0.0.2:8300 refuses connections");
    addresses[1] = at("10.0.0.2:8300", REACH_MET, 0, NULL), waiting.peer_count = 1;
    expect_line(&waiting, "waiting for servers: 2 of 3 seen; no.such.host does not resolve");
    self.expect = 2;
    expect_line(&waiting, "waiting for servers: 1 of 2 seen; no.such.host does not resolve; x2 expects 3, here 2");
    peers[0] = peer(2, 0, false);
    expect_line(&waiting,
                "waiting for servers: 1 of 2 seen; no.such.host does not resolve; x2 expects none (it has no "
                "-bootstrap-expect), here 2");
    peers[0] = peer(9, 2, true); /* a cluster, which has to take it in */
    expect_line(&waiting, "waiting to be taken in by the cluster of x9; no.such.host does not resolve");
    addresses[0] = at("10.0.0.1:8300", REACH_SELF, 0, NULL);
    peers[0] = peer(9, 2, false);
    expect_line(&waiting, "waiting for servers: 2 of 2 seen; this one is to found the cluster");
    self.id = 10;
    expect_line(&waiting, "waiting for servers: 2 of 2 seen; x9 is to found the cluster");
}

Test(waiting, a_server_that_founds_nothing_says_what_to_give_it) {
    struct peer_info self = peer(1, 0, false), peers[2] = {peer(2, 3, false), peer(3, 0, false)};
    struct peers_address address = at("10.0.0.2:8300", REACH_NO_ANSWER, 0, NULL);
    struct waiting waiting = {.self = &self, .members = &nobody, .peers = peers, .addresses = &address, .port = 8300};
    expect_line(
        &waiting,
        "this server has nobody to join, and is not to found a cluster: give it -retry-join=HOST of a server of "
        "its cluster, or -bootstrap-expect=N (on each of N new servers; 1: it is alone)");
    waiting.address_count = 1;
    expect_line(&waiting,
                "waiting for servers: none of a cluster is seen, and this one founds none (it has no "
                "-bootstrap-expect); 10.0.0.2:8300 does not answer");
    waiting.peer_count = 2;
    expect_line(&waiting,
                "waiting for servers: none of a cluster is seen, and this one founds none (it has no "
                "-bootstrap-expect); x2 waits for 3; x3 has no -bootstrap-expect either; 10.0.0.2:8300 does "
                "not answer");
}

Test(waiting, a_server_of_a_cluster_says_how_many_are_there) {
    struct raft_members members = {.count = 3};
    for (uint32_t i = 0; i < 3; i++) members.member[i] = (struct raft_member){.id = i + 1, .voter = true};
    struct peer_info self = peer(1, 3, true), peers[1] = {peer(2, 3, true)};
    struct peers_address address = at("10.0.0.3:8300", REACH_FAILED, UV_EOF, NULL);
    struct waiting waiting = {.self = &self,
                              .members = &members,
                              .peers = peers,
                              .peer_count = 1,
                              .addresses = &address,
                              .address_count = 1,
                              .port = 8300};
    expect_line(&waiting,
                "no leader is known: 2 of 3 that vote are connected; 10.0.0.3:8300 closes the connection "
                "without a word");
    struct peers_address removed[2] = {address, at("10.0.0.9:8300", REACH_UNWANTED, 0, "it was removed")};
    waiting.addresses = removed, waiting.address_count = 2; /* nothing is waited for there */
    expect_line(&waiting,
                "no leader is known: 2 of 3 that vote are connected; 10.0.0.3:8300 closes the connection "
                "without a word");
    waiting.addresses = &address, waiting.address_count = 1;
    members.member[1].voter = false;
    expect_line(&waiting,
                "no leader is known: 1 of 2 that vote are connected; 10.0.0.3:8300 closes the connection "
                "without a word");
    self.id = 7;
    address = at("10.0.0.3:8300", REACH_REFUSES, 0, "it was removed from this cluster");
    expect_line(&waiting,
                "no leader is known: this server is no member of the cluster (it was removed, or was not "
                "taken in yet); 10.0.0.3:8300 refuses this process: it was removed from this cluster");
}

Test(waiting, a_long_list_ends) {
    struct peer_info self = peer(1, 15, false);
    struct peers_address addresses[11];
    char name[32];
    for (unsigned i = 0; i < 11; i++) {
        snprintf(name, sizeof name, "h%u:8300", i);
        addresses[i] = at(name, REACH_UNTRIED, 0, NULL);
    }
    struct waiting waiting = {
        .self = &self, .members = &nobody, .addresses = addresses, .address_count = 11, .port = 8300};
    expect_line(&waiting,
                "waiting for servers: 1 of 15 seen; h0:8300 is being tried; h1:8300 is being tried; h2:8300 "
                "is being tried; h3:8300 is being tried; h4:8300 is being tried; h5:8300 is being tried; "
                "h6:8300 is being tried; h7:8300 is being tried; and 3 more");
}

Test(waiting, a_line_every_ten_seconds_and_none_with_a_leader) {
    struct waiting_clock clock = {0};
    unsigned lines = 0;
    for (uint64_t ms = 1000; ms < 31000; ms += 100) lines += waiting_due(&clock, true, false, ms);
    cr_expect_eq(lines, 2, "at 10 and 20 s: %u", lines);
    for (uint64_t ms = 31000; ms < 60000; ms += 100) lines += waiting_due(&clock, false, true, ms);
    cr_expect_eq(lines, 2, "a leader is known");
    for (uint64_t ms = 60000; ms < 191000; ms += 100) lines += waiting_due(&clock, true, true, ms);
    cr_expect_eq(lines, 5, "lost: after 10 s, and each minute: %u", lines);
    cr_expect_not(waiting_due(&clock, false, true, 191000));
    cr_expect_not(waiting_due(&clock, true, true, 191100), "an election");
}

/* A client agent and a server say the same of an address. */
Test(waiting, each_end_of_an_attempt_has_its_words) {
    static const struct {
        const char *what;
        int error, cause;
        bool stood;
        const char *address, *says;
    } rows[] = {
        {"refused", CO_IO, UV_ECONNREFUSED, false, "h:8300", "h:8300 refuses connections"},
        {"refused, another port", CO_IO, UV_ECONNREFUSED, false, "h:8301",
         "h:8301 refuses connections (8300 is the servers' port)"},
        {"no answer to SYN", CO_CLOSED, 0, false, "h:8300", "h:8300 does not answer"},
        {"the kernel gave up", CO_IO, UV_ETIMEDOUT, false, "h:8300", "h:8300 does not answer"},
        {"no hello", CO_CLOSED, 0, true, "h:22", "h:22 takes connections and says nothing (8300 is the servers' port)"},
        {"HTTP", CO_TOOLARGE, 0, true, "h:8500", "h:8500 answers in another protocol (8300 is the servers' port)"},
        {"closed", CO_IO, UV_EOF, true, "h:8300", "h:8300 closes the connection without a word"},
        {"no route", CO_IO, UV_EHOSTUNREACH, false, "[::1]:8300", "[::1]:8300 cannot be reached: host is unreachable"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reach reach = {0};
        struct buffer out = {0};
        reach_ended(&reach, rows[i].error, rows[i].cause, rows[i].stood);
        reach_say(&reach, rows[i].address, 8300, &out);
        cr_expect(slice_is(buffer_slice(&out), rows[i].says), "%s: %.*s", rows[i].what, (int)out.size, out.data);
        cr_expect(reach_fails(&reach), "%s", rows[i].what);
        buffer_free(&out);
    }
    struct reach reach = {0};
    struct buffer out = {0};
    reach_note(&reach, REACH_UNWANTED, 0, "it belongs to another\n\"cluster\"");
    reach_say(&reach, "h:99", 8300, &out);
    cr_expect(slice_is(buffer_slice(&out), "h:99 is refused here: it belongs to another??cluster?"), "%.*s",
              (int)out.size, out.data);
    buffer_free(&out);
    cr_expect_str_eq(reach_end_text(CO_IO, UV_EOF), "closed by the other side");
    cr_expect_str_eq(reach_end_text(CO_CLOSED, 0), "closed by this side");
    cr_expect_str_eq(reach_end_text(CO_IO, UV_ECONNRESET), "connection reset by peer");
}
