/* The program's commands. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/cli.h"
#include "agent/cmd.h"
#include "agent/cmd_endpoint.h"
#include "base/check.h"

#define GROUPS_MOST 32 /* of commands that come from the routing table */

static int version_main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    puts("coord v" COORD_VERSION);
    return 0;
}

static const struct cli_command commands[] = {
    {"acl", "access control: tokens, policies, roles, auth methods", cmd_acl},
    {"agent", "run an agent or a server", agent_main},
    {"api", NULL, cmd_api},
    {"barrier", "wait until so many others have come, and then run a command", cmd_barrier},
    {"ca", "the CA of a closed cluster: status, rotate, import, drop", cmd_ca},
    {"certificates", "list the certificates of the cluster's nodes: until when, and when they are renewed",
     cmd_certificates},
    {"elect", "run a command while leading an election", cmd_elect},
    {"elections", "list the elections that somebody leads or stands in", cmd_elections},
    {"event", "fire an event for all agents", cmd_event},
    {"explain",
     "why something is as it is: a lock, an election, a session, a node, a check, a quota, where a service is answered",
     cmd_explain},
    {"force-leave", "remove a node whose agent has failed", cmd_force_leave},
    {"init", "make a closed cluster, of which this host is the first server", cmd_init},
    {"info", "print figures of the agent", cmd_info},
    {"join", "bring this host into a closed cluster; or give an agent one more address", cmd_join},
    {"join-token", "make a join token, with which a host joins a closed cluster; list, revoke", cmd_join_token},
    {"keygen", "print a new key for encrypt", cmd_keygen},
    {"keyring", "list and change the keys of encrypt, on all agents", cmd_keyring},
    {"kv", "read and write keys", cmd_kv},
    {"leave", "have an agent leave and end", cmd_leave},
    {"lock", "run a command while holding a lock", cmd_lock},
    {"locks", "list the locks that somebody holds or waits for", cmd_locks},
    {"login", "get a token by an auth method", cmd_login},
    {"logout", "end a token that a login made", cmd_logout},
    {"maint", "maintenance mode of a node or a service", cmd_maint},
    {"members", "list the cluster's members", cmd_members},
    {"monitor", "print the lines of an agent's log, as they come", cmd_monitor},
    {"operator", "servers of the cluster: list, remove, health", cmd_operator},
    {"reference", NULL, cmd_reference},
    {"regions", "list the regions: how far away, reachable or not, how old the copy of their catalogs is", cmd_regions},
    {"reload", "have an agent read its configuration files again", cmd_reload},
    {"rtt", "estimate the round trip time between two nodes", cmd_rtt},
    {"secure", "close an open cluster while it runs: start, status, finish, abort", cmd_secure},
    {"snapshot", "save, restore and inspect backups", cmd_snapshot},
    {"tls", "make a CA and certificates, as files", cmd_tls},
    {"txn", "do several operations, all or nothing", cmd_txn},
    {"validate", "check configuration files, without starting an agent", cmd_validate},
    {"verify", "check the data folder of a stopped server, without changing it", cmd_verify},
    {"version", "print the version", version_main},
    {"watch", "watch something, and run a program when it changes", cmd_watch},
};

size_t cli_commands(struct cli_command *all, struct arena *names) {
    CHECK(ARRAY_COUNT(commands) + GROUPS_MOST <= CLI_COMMANDS_MOST);
    memcpy(all, commands, sizeof commands);
    size_t count = ARRAY_COUNT(commands);
    count += cmd_endpoint_groups(all + count, GROUPS_MOST, names);
    cli_sort(all, count);
    return count;
}

int cli_main(int argc, char **argv) {
    struct cli_command all[CLI_COMMANDS_MOST];
    struct arena names = {0};
    size_t count = cli_commands(all, &names);
    int code = cli_run(all, count, argc, argv);
    arena_free(&names);
    errno = 0;
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (!written && errno != EPIPE) /* EPIPE: the reader has read enough */
        fprintf(stderr, "coord: the output is not whole, it could not be written%s%s\n", errno ? ": " : "",
                errno ? strerror(errno) : "");
    return written || code ? code : 2;
}
