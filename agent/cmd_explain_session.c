/* coord explain session */
#include "agent/cmd.h"
#include "agent/cmd_explain.h"
#include "agent/cmd_json.h"
#include "base/check.h"

static bool flag(struct json_object *object, const char *name) {
    bool value = false;
    json_get_bool(object, name, &value, NULL);
    return value;
}

/* "web1" or "its node", for ends that have it. */
static void print_checks(struct json_object *session) {
    struct json_object *lists[] = {json_get_array(session, "NodeChecks", NULL),
                                   json_get_array(session, "ServiceChecks", NULL)};
    for (size_t k = 0; k < ARRAY_COUNT(lists); k++)
        for (size_t i = 0; i < cmd_json_length(lists[k]); i++) {
            struct json_object *check = json_object_array_get_idx(lists[k], i);
            const char *id = k ? cmd_json_text(check, "ID") : json_object_get_string(check);
            if (strcmp(id, "serfHealth") == 0) printf("           when its node's agent is not heard of\n");
            else cmd_print_words("           when check \"", id, "\" is critical\n");
        }
}

static void print_ends(struct json_object *why, struct json_object *session) {
    const char *ttl = cmd_json_text(session, "TTL"), *left = cmd_json_text(why, "Remaining");
    if (ttl[0] && strcmp(ttl, "0s") != 0) {
        cmd_print_words("  ends     when it is not renewed for its TTL, ", ttl, "");
        if (left[0]) cmd_print_words("; so much is left: ", left, "\n");
        else printf("; its end is on its way\n");
    } else {
        printf("  ends     not by itself: it has no TTL\n");
    }
    print_checks(session);
    if (cmd_json_text(session, "Node")[0]) printf("           when its node is removed\n");
    if (flag(why, "Made")) printf("           with the last thing that it holds, since a request made it by ttl=\n");
    printf("           when it is destroyed\n");
}

static void print_then(struct json_object *session) {
    bool deletes = strcmp(cmd_json_text(session, "Behavior"), "delete") == 0;
    double delay_ns = 0;
    struct json_object *delay = json_get(session, "LockDelay");
    if (delay) delay_ns = json_object_get_double(delay);
    printf("  then     what it holds is free, and its keys are %s", deletes ? "deleted" : "released");
    if (delay_ns > 0) printf("; locks that it held stay free for %g s (its lock-delay)", delay_ns / 1e9);
    printf("\n");
}

static void print_holdings(struct json_object *why) {
    struct json_object *holdings = json_get_array(why, "Holdings", NULL);
    if (!cmd_json_length(holdings)) printf("It holds nothing, and waits for nothing.\n");
    for (size_t i = 0; i < cmd_json_length(holdings); i++) {
        struct json_object *holding = json_object_array_get_idx(holdings, i);
        uint64_t token = cmd_json_number(holding, "Token"), position = cmd_json_number(holding, "Position");
        cmd_print_words(i ? "           " : "  holds    ", cmd_json_text(holding, "Kind"), " \"");
        cmd_print_words("", cmd_json_text(holding, "Name"), "\"");
        cmd_print_words(": ", cmd_json_text(holding, "Standing"), "");
        if (token) printf(", token %llu", (unsigned long long)token);
        if (position) printf(", place %llu", (unsigned long long)position);
        printf("\n");
    }
    if (flag(why, "More")) printf("           ... and more\n");
}

static void print_session(const struct client *client, struct json_object *why) {
    struct json_object *session = json_get_object(why, "Session", NULL);
    const char *name = cmd_json_text(session, "Name"), *node = cmd_json_text(session, "Node");
    (void)client;
    cmd_print_words("Session ", cmd_json_text(session, "ID"), "");
    if (node[0]) cmd_print_words(" on ", node, "");
    if (name[0]) cmd_print_words(", \"", name, "\"");
    printf(".\n");
    print_holdings(why);
    print_ends(why, session);
    print_then(session);
}

int explain_session(int argc, char **argv) {
    static const char usage[] = "coord explain session [FLAGS] ID";
    struct client client = {0};
    const char *id;
    int code = cmd_flags_and_one(argc, argv, NULL, 0, &client, usage, "ID", &id);
    if (code >= 0) return code;
    struct buffer path = {0};
    client.stale = false; /* the leader knows the time that is left */
    buffer_append_text(&path, "/v1/session/explain/");
    client_encode(&path, id, false);
    return cmd_show(&client, &path, false, "asking for the session", print_session);
}
