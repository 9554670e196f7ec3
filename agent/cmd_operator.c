/* coord operator raft list-peers | remove-peer | transfer-leader, coord operator autopilot get-config | set-config |
 * health. For `recover` see cmd_recover.c. */
#include <stdlib.h>

#include <json-c/json_tokener.h>
#include "agent/cmd.h"
#include "agent/cmd_json.h"
#include "base/check.h"

#include "base/json_in.h"
#include "base/text.h"

/* -- raft --------------------------------------------------------------------------------------------------------- */
static bool yes_of(struct json_object *object, const char *name) {
    bool yes = false;
    json_get_bool(object, name, &yes, NULL);
    return yes;
}

static void print_peers(struct json_object *servers) {
    static const char *const heads[] = {"Node", "ID", "Address", "State", "Voter", "RaftProtocol"};
    struct cmd_table table = {.columns = ARRAY_COUNT(heads)};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++) cmd_cell(&table, heads[i]);
    for (size_t i = 0; servers && i < json_object_array_length(servers); i++) {
        struct json_object *server = json_object_array_get_idx(servers, i);
        cmd_cell(&table, cmd_json_text(server, "Node"));
        cmd_cell(&table, cmd_json_text(server, "ID"));
        cmd_cell(&table, cmd_json_text(server, "Address"));
        cmd_cell(&table, yes_of(server, "Leader") ? "leader" : "follower");
        cmd_cell(&table, yes_of(server, "Voter") ? "true" : "false");
        cmd_cell(&table, cmd_json_text(server, "ProtocolVersion"));
    }
    cmd_table_print(&table);
}

/* Sends the GET and parses the answer; NULL and a fault. */
static struct json_object *ask_object(const struct client *client, const char *path, bool or_429, struct fault *fault) {
    struct client_answer answer = {0};
    struct fault refused = {0};
    int rv = client_want(client, "GET", path, NULL, false, &answer, &refused);
    struct json_object *object =
        rv == CO_OK || (or_429 && answer.status == 429) ? json_parse(buffer_slice(&answer.body), fault) : NULL;
    if (!object)
        fault_set(fault, refused.code ? refused.code : CO_INVALID, "%s", refused.code ? refused.text : "not an object");
    client_answer_free(&answer);
    return object;
}

static int raft_list_peers(int argc, char **argv) {
    static const char usage[] = "coord operator raft list-peers [FLAGS]";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    struct fault fault = {0};
    struct json_object *state = ask_object(&client, "/v1/operator/raft/configuration", false, &fault);
    const char *waiting = state ? cmd_json_text(state, "Waiting") : "";
    if (waiting[0]) printf("This server belongs to no cluster yet: %s\n", waiting);
    else if (state) print_peers(json_get_array(state, "Servers", NULL));
    if (state) json_object_put(state);
    return fault.code ? cmd_failed("getting peers", &fault) : 0;
}

static int raft_ask(const struct client *client, const char *method, const char *what, const char *where,
                    const char *id, const char *address, const char *doing) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    buffer_append_text(&path, where);
    if (id) client_parameter(&path, "id", id);
    if (address) client_parameter(&path, "address", address);
    buffer_append_byte(&path, '\0');
    int rv = client_want(client, method, path.data, NULL, false, &answer, &fault);
    if (rv == CO_OK) puts(what);
    if (rv == CO_OK && strcmp(method, "DELETE") == 0 && answer.body.size)
        printf("%.*s\n", (int)answer.body.size, answer.body.data); /* what is left to do */
    client_answer_free(&answer);
    buffer_free(&path);
    return rv == CO_OK ? 0 : cmd_failed(doing, &fault);
}

static int raft_remove_peer(int argc, char **argv) {
    static const char usage[] = "coord operator raft remove-peer -id=ID | -address=IP:PORT [FLAGS]";
    struct client client = {0};
    const char *id = NULL, *address = NULL;
    const struct cmd_flag flags[] = {{"id", CMD_TEXT, &id, "the server's ID, as list-peers prints it"},
                                     {"address", CMD_TEXT, &address, "IP:PORT of the server"}};
    char **rest, text[256];
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest || !id == !address) return cmd_wrong(usage, "either -id or -address is wanted");
    snprintf(text, sizeof text, "Removed peer with %s \"%.160s\"", id ? "id" : "address", id ? id : address);
    return raft_ask(&client, "DELETE", text, "/v1/operator/raft/peer", id, address, "removing peer");
}

static int raft_transfer(int argc, char **argv) {
    static const char usage[] = "coord operator raft transfer-leader [-id=ID] [FLAGS]";
    struct client client = {0};
    const char *id = NULL;
    const struct cmd_flag flags[] = {
        {"id", CMD_TEXT, &id, "the server that shall lead; without it the one whose log is furthest"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    return raft_ask(&client, "PUT", "Success", "/v1/operator/raft/transfer-leader", id, NULL,
                    "transferring leadership");
}

static int operator_raft(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"list-peers", "the servers of the cluster", raft_list_peers},
        {"remove-peer", "remove a server from the cluster", raft_remove_peer},
        {"transfer-leader", "let another server lead", raft_transfer},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "operator raft", argc, argv);
}

/* -- autopilot ---------------------------------------------------------------------------------------------------- */
static const char autopilot_path[] = "/v1/operator/autopilot/configuration";

static int autopilot_get(int argc, char **argv) {
    static const char usage[] = "coord operator autopilot get-config [FLAGS]";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    struct fault fault = {0};
    struct json_object *config = ask_object(&client, autopilot_path, false, &fault);
    static const char *const names[] = {"CleanupDeadServers", "LastContactThreshold", "MaxTrailingLogs", "MinQuorum",
                                        "ServerStabilizationTime"};
    for (size_t i = 0; config && i < ARRAY_COUNT(names); i++)
        printf("%s = %s\n", names[i], json_object_get_string(json_get(config, names[i])));
    if (config) json_object_put(config);
    return fault.code ? cmd_failed("querying Autopilot configuration", &fault) : 0;
}

struct autopilot {
    const char *contact, *stabilization, *logs, *quorum, *cleanup;
};

static void replace(struct json_object *config, const char *name, const char *text, bool is_text) {
    if (!text) return;
    struct json_object *value = is_text ? json_object_new_string(text) : json_tokener_parse(text);
    json_object_object_add(config, name, value);
}

/* Writes the whole configuration back, if nobody has changed it since it was read: so no other change gets lost. */
static int autopilot_write(const struct client *client, struct json_object *config, struct fault *fault) {
    uint64_t index = 0;
    char path[160];
    struct client_answer answer = {0};
    json_get_u64(config, "ModifyIndex", UINT64_MAX, &index, fault);
    snprintf(path, sizeof path, "%s?cas=%llu", autopilot_path, (unsigned long long)index);
    struct slice body = slice_text(json_object_to_json_string(config));
    int rv = client_want(client, "PUT", path, &body, false, &answer, fault);
    if (rv == CO_OK && !slice_starts(buffer_slice(&answer.body), SLICE_LITERAL("true")))
        rv = fault_set(fault, CO_CONFLICT, "somebody else changed it meanwhile, try again");
    client_answer_free(&answer);
    return rv;
}

static int autopilot_set(int argc, char **argv) {
    static const char usage[] = "coord operator autopilot set-config [FLAGS]";
    struct client client = {0};
    struct autopilot set = {0};
    uint64_t logs = UINT64_MAX, quorum = UINT64_MAX;
    char logs_text[24], quorum_text[24];
    const struct cmd_flag flags[] = {
        {"cleanup-dead-servers", CMD_TEXT, &set.cleanup, "true or false"},
        {"last-contact-threshold", CMD_DURATION, &set.contact, "a server not heard for longer is not healthy"},
        {"max-trailing-logs", CMD_U64, &logs, "a server that lags by more entries is not healthy"},
        {"min-quorum", CMD_U64, &quorum, "least number of servers to keep"},
        {"server-stabilization-time", CMD_DURATION, &set.stabilization, "how long a new server must be healthy"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    if (set.cleanup && strcmp(set.cleanup, "true") != 0 && strcmp(set.cleanup, "false") != 0)
        return cmd_wrong(usage, "-cleanup-dead-servers: true or false is wanted");
    struct fault fault = {0};
    struct json_object *config = ask_object(&client, autopilot_path, false, &fault);
    if (config) {
        snprintf(logs_text, sizeof logs_text, "%llu", (unsigned long long)logs);
        snprintf(quorum_text, sizeof quorum_text, "%llu", (unsigned long long)quorum);
        replace(config, "CleanupDeadServers", set.cleanup, false);
        replace(config, "LastContactThreshold", set.contact, true);
        replace(config, "MaxTrailingLogs", logs == UINT64_MAX ? NULL : logs_text, false);
        replace(config, "MinQuorum", quorum == UINT64_MAX ? NULL : quorum_text, false);
        replace(config, "ServerStabilizationTime", set.stabilization, true);
        (void)autopilot_write(&client, config, &fault);
        json_object_put(config);
    }
    if (fault.code) return cmd_failed("setting Autopilot configuration", &fault);
    puts("Configuration updated!");
    return 0;
}

static void print_health(struct json_object *health) {
    static const char *const heads[] = {"Node", "ID", "Address", "Status", "Voter", "LastContact", "Healthy"};
    struct cmd_table table = {.columns = ARRAY_COUNT(heads)};
    struct json_object *servers = json_get_array(health, "Servers", NULL);
    uint64_t tolerance = 0;
    json_get_u64(health, "FailureTolerance", UINT64_MAX, &tolerance, NULL);
    printf("Healthy: %s, may lose %llu more\n", yes_of(health, "Healthy") ? "yes" : "no",
           (unsigned long long)tolerance);
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++) cmd_cell(&table, heads[i]);
    for (size_t i = 0; servers && i < json_object_array_length(servers); i++) {
        struct json_object *server = json_object_array_get_idx(servers, i);
        const char *cells[] = {cmd_json_text(server, "Name"),
                               cmd_json_text(server, "ID"),
                               cmd_json_text(server, "Address"),
                               cmd_json_text(server, "SerfStatus"),
                               yes_of(server, "Voter") ? "true" : "false",
                               cmd_json_text(server, "LastContact"),
                               yes_of(server, "Healthy") ? "true" : "false"};
        for (size_t k = 0; k < ARRAY_COUNT(cells); k++) cmd_cell(&table, cells[k]);
    }
    cmd_table_print(&table);
}

static int autopilot_health(int argc, char **argv) {
    static const char usage[] = "coord operator autopilot health [FLAGS]";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    struct fault fault = {0};
    struct json_object *health = ask_object(&client, "/v1/operator/autopilot/health", true, &fault);
    bool healthy = health && yes_of(health, "Healthy");
    if (health) print_health(health);
    if (health) json_object_put(health);
    return fault.code ? cmd_failed("asking for health", &fault) : healthy ? 0 : 2;
}

static int operator_autopilot(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"get-config", "print the rules for a healthy server", autopilot_get},
        {"set-config", "change these rules", autopilot_set},
        {"health", "the health of each server; exit code 2 when one is not healthy", autopilot_health},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "operator autopilot", argc, argv);
}

int cmd_operator(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"raft", "the servers of the cluster", operator_raft},
        {"autopilot", "health of the servers", operator_autopilot},
        {"recover", "go on after the majority of the servers was lost for good (offline)", cmd_recover},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "operator", argc, argv);
}
