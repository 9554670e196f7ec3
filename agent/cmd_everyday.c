/* coord join, leave, force-leave, maint, reload: requests to one agent. */
#include <stdio.h>
#include <unistd.h>

#include "agent/cmd.h"
#include "agent/cmd_join_cluster.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/json_in.h"

static int complain(const char *line) {
    fprintf(stderr, "%s\n", line);
    return CMD_EXIT_MISTAKE;
}

/* PUTs to `path` (ended here, and freed). */
static int put(const struct client *client, struct buffer *path, struct fault *fault) {
    struct client_answer answer = {0};
    buffer_append_byte(path, '\0');
    int rv = client_want(client, "PUT", path->data, NULL, false, &answer, fault);
    client_answer_free(&answer);
    buffer_free(path);
    return rv;
}

/* Only that of a host into a closed cluster has a data folder. */
static bool brings_a_host(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i] + strspn(argv[i], "-");
        if (name != argv[i] && (strncmp(name, "data-dir", 8) == 0 || strncmp(name, "token-file", 10) == 0)) return true;
        if (cmd_is_join_token(argv[i])) return true;
    }
    return false;
}

int cmd_join(int argc, char **argv) {
    if (brings_a_host(argc, argv)) return cmd_join_cluster(argc, argv);
    static const char usage[] = "coord join [FLAGS] ADDRESS ...";
    struct client client = {0};
    bool wan = false;
    const struct cmd_flag flags[] = {{"wan", CMD_BOOL, &wan, "joins another datacenter"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, 1, &client, usage, &rest);
    if (code >= 0) return code;
    if (!*rest)
        return complain("At least one address to join must be specified.\n\nusage: coord join [FLAGS] ADDRESS ...");
    unsigned joined = 0;
    code = 0;
    for (; *rest; rest++) {
        struct buffer path = {0};
        struct fault fault = {0};
        buffer_append_text(&path, "/v1/agent/join/");
        client_encode(&path, *rest, true);
        if (wan) client_parameter(&path, "wan", "1");
        if (put(&client, &path, &fault) == CO_OK) joined++;
        else fprintf(stderr, "Error joining address '%s': %s\n", *rest, fault.text), code = cmd_exit_of(&fault);
    }
    if (!joined) {
        fputs("Failed to join any nodes.\n", stderr);
        return code;
    }
    printf("Successfully joined cluster by contacting %u nodes.\n", joined);
    return 0;
}

/* Waits until an agent that has left no longer answers, for up to 5 s. */
static void await_end(const struct client *client) {
    for (int i = 0; i < 100; i++) {
        struct client_answer answer = {0};
        struct fault fault = {0};
        int rv = client_want(client, "GET", "/v1/status/leader", NULL, false, &answer, &fault);
        client_answer_free(&answer);
        if (rv != CO_OK) return;
        usleep(50000);
    }
}

struct plain {
    const char *usage, *where, *doing, *done;
    bool ends;   /* the agent ends */
    FILE *notes; /* the text of the answer goes there */
};

/* A command without arguments: a PUT. */
static int plain(int argc, char **argv, const struct plain *plain) {
    struct client client = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, plain->usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(plain->usage, "no argument is wanted");
    int rv = client_want(&client, "PUT", plain->where, NULL, false, &answer, &fault);
    if (rv == CO_OK) {
        if (plain->ends) await_end(&client);
        puts(plain->done);
        if (answer.body.size) fprintf(plain->notes, "%.*s\n", (int)answer.body.size, answer.body.data);
    }
    client_answer_free(&answer);
    return rv == CO_OK ? 0 : cmd_failed(plain->doing, &fault);
}

int cmd_leave(int argc, char **argv) {
    return plain(argc, argv,
                 &(struct plain){"coord leave [FLAGS]", "/v1/agent/leave", "leaving", "Graceful leave complete",
                                 .ends = true, .notes = stdout});
}

/* The answer lists the changed keys that only a restart applies. */
int cmd_reload(int argc, char **argv) {
    return plain(argc, argv,
                 &(struct plain){"coord reload [FLAGS]", "/v1/agent/reload", "reloading",
                                 "Configuration reload triggered", .notes = stderr});
}

/* Recognizes Consul's text, with a 500, for a node that does not exist. */
static bool is_unknown(const struct client_answer *answer) {
    return answer->status == 500 &&
           slice_starts(buffer_slice(&answer->body), SLICE_LITERAL("agent: No node found with name "));
}

/* Returns CMD_EXIT_REFUSED when the node stays. */
static int force_leave(const struct client *client, struct buffer *path, const char *node) {
    struct client_answer answer = {0};
    struct fault fault = {0};
    buffer_append_byte(path, '\0');
    int rv = client_want(client, "PUT", path->data, NULL, false, &answer, &fault), code = CMD_EXIT_REFUSED;
    buffer_free(path);
    if (rv != CO_OK && is_unknown(&answer)) fault.code = CO_NOTFOUND;
    bool mute = rv == CO_OK && answer.body.size == 0; /* Consul's agents answer so */
    struct json_object *did = rv == CO_OK && !mute ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (mute) code = 0;
    if (did) {
        struct json_object *left = json_get(did, "Left");
        code = json_object_get_boolean(left) ? 0 : CMD_EXIT_REFUSED;
        fprintf(code ? stderr : stdout, "%s: %s\n", node, cmd_json_text(did, "Did"));
        json_object_put(did);
    }
    client_answer_free(&answer);
    return fault.code ? cmd_failed("force leaving", &fault) : code;
}

int cmd_force_leave(int argc, char **argv) {
    static const char usage[] = "coord force-leave [FLAGS] NODE";
    struct client client = {0};
    bool prune = false;
    const struct cmd_flag flags[] = {
        {"prune", CMD_BOOL, &prune,
         "remove it from the list of members too, and its certificate, which also works while its agent lives"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, 1, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1])
        return complain(
            "A single node name must be specified to force leave.\n\nusage: coord force-leave [FLAGS] NODE");
    struct buffer path = {0};
    buffer_append_text(&path, "/v1/agent/force-leave/");
    client_encode(&path, rest[0], false);
    if (prune) client_parameter(&path, "prune", NULL);
    return force_leave(&client, &path, rest[0]);
}

/* -- maint -------------------------------------------------------------------------------------------------------- */
/* Nodes after services, as Consul prints them. */
static void print_maintained(struct json_object *checks, bool nodes) {
    static const char service_prefix[] = "_service_maintenance:";
    json_object_object_foreach(checks, id, check) {
        bool node = strcmp(id, "_node_maintenance") == 0;
        if (node && nodes)
            printf("Node:\n  Name:   %s\n  Reason: %s\n\n", cmd_json_text(check, "Node"),
                   cmd_json_text(check, "Notes"));
        if (strncmp(id, service_prefix, sizeof service_prefix - 1) == 0 && !nodes)
            printf("Service:\n  ID:     %s\n  Reason: %s\n\n", cmd_json_text(check, "ServiceID"),
                   cmd_json_text(check, "Notes"));
    }
}

static int list_maintained(const struct client *client) {
    struct client_answer answer = {0};
    struct fault fault = {0};
    int rv = client_want(client, "GET", "/v1/agent/checks", NULL, false, &answer, &fault);
    struct json_object *checks = rv == CO_OK ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (checks && json_object_is_type(checks, json_type_object))
        print_maintained(checks, false), print_maintained(checks, true);
    if (checks) json_object_put(checks);
    client_answer_free(&answer);
    return fault.code ? cmd_failed("getting checks", &fault) : 0;
}

static int maintain(const struct client *client, bool enable, const char *service, const char *reason) {
    struct buffer path = {0};
    struct fault fault = {0};
    char doing[64];
    buffer_append_text(&path, service ? "/v1/agent/service/maintenance/" : "/v1/agent/maintenance");
    if (service) client_encode(&path, service, false);
    client_parameter(&path, "enable", enable ? "true" : "false");
    if (reason) client_parameter(&path, "reason", reason);
    snprintf(doing, sizeof doing, "%s %s maintenance", enable ? "enabling" : "disabling", service ? "service" : "node");
    if (put(client, &path, &fault) != CO_OK) return cmd_failed(doing, &fault);
    if (service) printf("Service maintenance is now %s for \"%s\"\n", enable ? "enabled" : "disabled", service);
    else printf("Node maintenance is now %s\n", enable ? "enabled" : "disabled");
    return 0;
}

int cmd_maint(int argc, char **argv) {
    static const char usage[] = "coord maint [FLAGS]";
    struct client client = {0};
    bool enable = false, disable = false;
    const char *service = NULL, *reason = NULL;
    const struct cmd_flag flags[] = {
        {"enable", CMD_BOOL, &enable, "turns it on"},
        {"disable", CMD_BOOL, &disable, "turns it off"},
        {"service", CMD_TEXT, &service, "of this service alone, by its id; else of the node"},
        {"reason", CMD_TEXT, &reason, "why, with -enable"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    if (enable && disable) return complain("Only one of -enable or -disable may be provided");
    if (!enable && reason) return complain("Reason may only be provided with -enable");
    if (!enable && !disable && service) return complain("Service requires either -enable or -disable");
    return enable || disable ? maintain(&client, enable, service, reason) : list_maintained(&client);
}
