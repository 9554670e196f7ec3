/* coord explain node, coord explain check */
#include <stdlib.h>

#include "agent/cmd.h"
#include "agent/cmd_explain.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/text.h"

#define SHOWN_MOST 20 /* of each list */

/* The answer to a GET; NULL: a fault. `name` is encoded and appended to the path. */
static struct json_object *get(const struct client *client, const char *where, const char *name, struct fault *fault) {
    struct buffer path = {0};
    buffer_append_text(&path, where);
    if (name) client_encode(&path, name, false);
    buffer_append_byte(&path, '\0');
    struct json_object *json = cmd_json_get(client, path.data, fault);
    buffer_free(&path);
    return json;
}

/* The name of the asked agent's node; the caller frees it. NULL: a fault. */
static char *own_node(const struct client *client, struct fault *fault) {
    struct json_object *self = get(client, "/v1/agent/self", NULL, fault);
    char *name = NULL;
    if (self) name = strdup(cmd_json_text(json_get_object(self, "Config", NULL), "NodeName"));
    json_object_put(self);
    return name;
}

/* The answer for a node that does not exist is "null". */
static struct json_object *get_node(const struct client *client, const char *name, struct fault *fault) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct json_object *node = NULL;
    buffer_append_text(&path, "/v1/catalog/node/");
    client_encode(&path, name, false);
    buffer_append_byte(&path, '\0');
    int rv = client_want(client, "GET", path.data, NULL, false, &answer, fault);
    if (rv == CO_OK && slice_starts(buffer_slice(&answer.body), SLICE_LITERAL("null")))
        fault_set(fault, CO_NOTFOUND, "there is no node \"%s\"", name);
    else if (rv == CO_OK) node = json_parse(buffer_slice(&answer.body), fault);
    client_answer_free(&answer);
    buffer_free(&path);
    return node;
}

static struct json_object *find(struct json_object *list, const char *member, const char *value) {
    for (size_t i = 0; i < cmd_json_length(list); i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        if (strcmp(cmd_json_text(item, member), value) == 0) return item;
    }
    return NULL;
}

static int64_t duration_of(struct json_object *object, const char *name) {
    int64_t ns = 0;
    (void)duration_parse(slice_text(cmd_json_text(object, name)), &ns);
    return ns;
}

/* Prints a time to a tenth of a second; from 10 s on to a second. */
static void print_time(const char *before, int64_t ns, const char *after) {
    struct buffer text = {0};
    duration_format(&text, ns < 10000000000 ? ns / 100000000 * 100000000 : ns / 1000000000 * 1000000000);
    printf("%s%.*s%s", before, (int)text.size, text.data, after);
    buffer_free(&text);
}

/* -- node --------------------------------------------------------------------------------------------------------- */

static void print_lease(struct json_object *lease) {
    int64_t ttl_ns = duration_of(lease, "TTL"), left_ns = duration_of(lease, "Remaining");
    cmd_print_words("  lease    ", cmd_json_text(lease, "ID"), "");
    cmd_print_words(", TTL ", cmd_json_text(lease, "TTL"), "");
    printf(", granted at index %llu\n", (unsigned long long)cmd_json_number(lease, "CreateIndex"));
    if (!json_get(lease, "Remaining")) return;
    print_time("  renewed  ", ttl_ns > left_ns ? ttl_ns - left_ns : 0, " ago by its agent");
    print_time(", it ends in ", left_ns, " unless it is renewed\n");
}

/* `soon`: there is no lease. */
static void print_alive(struct json_object *health, bool soon) {
    const char *status = cmd_json_text(health, "Status");
    if (!health)
        printf(
            "  because  it has no agent: somebody registered it in the catalog, and it stays as it is written there\n");
    else if (strcmp(status, "passing") == 0)
        printf("  because  its agent renews its lease%s\n", soon ? ", or will have one soon" : "");
    else cmd_print_words("  because  ", cmd_json_text(health, "Output"), "\n");
    if (!health) return;
    if (strcmp(status, "passing") == 0)
        printf(
            "  next     when the lease ends, everything on the node is critical, and sessions that depend on it end\n");
    else
        printf(
            "  next     passing again as soon as its agent is back; removed after its reconnect_timeout, or by "
            "`coord force-leave`\n");
}

static void print_services(struct json_object *node) {
    struct json_object *services = json_get_object(node, "Services", NULL);
    size_t count = 0;
    if (!services || !json_object_object_length(services)) return;
    printf("  services %d: ", json_object_object_length(services));
    json_each(services, id, service) {
        (void)service;
        if (count++ < SHOWN_MOST) cmd_print_words(count > 1 ? ", " : "", id, "");
    }
    printf("%s\n", count > SHOWN_MOST ? ", ..." : "");
}

static void print_checks(struct json_object *checks) {
    static const char *const statuses[] = {"passing", "warning", "critical"};
    for (size_t k = 0; k < ARRAY_COUNT(statuses); k++) {
        size_t count = 0;
        for (size_t i = 0; i < cmd_json_length(checks); i++) {
            struct json_object *check = json_object_array_get_idx(checks, i);
            if (strcmp(cmd_json_text(check, "Status"), statuses[k]) != 0) continue;
            if (count++ == 0) printf("  %-8s ", statuses[k]);
            if (count <= SHOWN_MOST) cmd_print_words(count > 1 ? ", " : "", cmd_json_text(check, "CheckID"), "");
        }
        if (count) printf("%s\n", count > SHOWN_MOST ? ", ..." : "");
    }
}

static void print_sessions(struct json_object *sessions) {
    size_t count = cmd_json_length(sessions);
    for (size_t i = 0; i < count && i < SHOWN_MOST; i++) {
        struct json_object *session = json_object_array_get_idx(sessions, i);
        cmd_print_words(i ? "           " : "  sessions ", cmd_json_text(session, "ID"), "");
        if (cmd_json_text(session, "Name")[0]) cmd_print_words(", \"", cmd_json_text(session, "Name"), "\"");
        printf("\n");
    }
    if (count > SHOWN_MOST) printf("           ... and %zu more\n", count - SHOWN_MOST);
    if (count) printf("           (`coord explain session ID` tells what one holds)\n");
}

static int explain_it(const struct client *client, const char *name, struct fault *fault) {
    struct fault ignored = {0};
    struct json_object *node = get_node(client, name, fault);
    struct json_object *checks = fault->code ? NULL : get(client, "/v1/health/node/", name, fault);
    struct json_object *sessions = fault->code ? NULL : get(client, "/v1/session/node/", name, fault);
    /* When the leader does not answer, or there are very many, the lease is not shown. */
    struct json_object *leases =
        fault->code ? NULL : get(client, client->stale ? "/v1/leases" : "/v1/leases?remaining", NULL, &ignored);
    if (!fault->code) {
        struct json_object *record = json_get_object(node, "Node", NULL), *lease = find(leases, "Node", name),
                           *health = find(checks, "CheckID", "serfHealth");
        const char *status = cmd_json_text(health, "Status");
        cmd_print_words("Node ", cmd_json_text(record, "Node"), "");
        cmd_print_words(", ", cmd_json_text(record, "Address"), "");
        printf("%s\n", !health                          ? ": nobody runs it, as far as coord knows."
                       : strcmp(status, "passing") == 0 ? ": its agent is alive."
                                                        : ": its agent is not heard of.");
        if (lease) print_lease(lease);
        print_alive(health, leases && !lease);
        print_services(node);
        print_checks(checks);
        print_sessions(sessions);
    }
    json_object_put(node), json_object_put(checks), json_object_put(sessions), json_object_put(leases);
    return fault->code;
}

int explain_node(int argc, char **argv) {
    static const char usage[] = "coord explain node [FLAGS] [NODE]";
    struct client client = {0};
    struct fault fault = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (rest[0] && rest[1])
        return cmd_wrong(usage, "one NODE at most, and flags before it; without one the agent's own");
    char *own = rest[0] ? NULL : own_node(&client, &fault);
    if (!fault.code) (void)explain_it(&client, own ? own : rest[0], &fault);
    free(own);
    return fault.code ? cmd_failed("asking for the node", &fault) : 0;
}

/* -- check -------------------------------------------------------------------------------------------------------- */

static void print_runner(struct json_object *check, struct json_object *standing, const char *node) {
    const char *type = cmd_json_text(check, "Type"), *target = cmd_json_text(standing, "Target");
    bool own = strcmp(cmd_json_text(check, "CheckID"), "serfHealth") == 0, told = strcmp(type, "ttl") == 0;
    if (own) {
        printf(
            "  run by   the servers: it is passing while the node's agent renews its lease (`coord explain node`)\n");
    } else if (told) {
        cmd_print_words("  run by   nobody: clients of the agent on ", node, " tell its status");
        if (json_get(standing, "TTL")) cmd_print_words(", at least every ", cmd_json_text(standing, "TTL"), "");
        printf("\n");
    } else if (type[0]) {
        cmd_print_words("  run by   the agent on ", node, "");
        cmd_print_words(": ", type, "");
        if (target[0]) cmd_print_words(" ", target, "");
        if (json_get(standing, "Interval")) cmd_print_words(", every ", cmd_json_text(standing, "Interval"), "");
        if (json_get(standing, "Timeout")) cmd_print_words(", timeout ", cmd_json_text(standing, "Timeout"), "");
        printf("\n");
    } else if (standing) {
        printf("  run by   nobody: it is what its agent was told once\n");
    } else {
        printf("  run by   nobody here: whoever wrote it into the catalog changes it\n");
    }
}

static void print_thresholds(struct json_object *standing) {
    uint64_t passing = cmd_json_number(standing, "SuccessBeforePassing"),
             warning = cmd_json_number(standing, "FailuresBeforeWarning"),
             critical = cmd_json_number(standing, "FailuresBeforeCritical"),
             successes = cmd_json_number(standing, "Successes"), failures = cmd_json_number(standing, "Failures");
    printf("  changes  to passing after %llu success%s in a row", (unsigned long long)(passing ? passing : 1),
           passing > 1 ? "es" : "");
    if (warning && warning < critical) printf(", to warning after %llu failures", (unsigned long long)warning);
    printf(", to critical after %llu failure%s; so far %llu %s\n", (unsigned long long)(critical ? critical : 1),
           critical > 1 ? "s" : "", (unsigned long long)(successes ? successes : failures),
           successes ? "successes" : "failures");
}

static bool flag(struct json_object *object, const char *name) {
    bool value = false;
    json_get_bool(object, name, &value, NULL);
    return value;
}

/* Prints when a TTL check was last updated. */
static void print_told(struct json_object *standing, bool critical) {
    if (json_get(standing, "ResultAge")) print_time("  last     told ", duration_of(standing, "ResultAge"), " ago\n");
    else printf("  last     nobody has told its status since it was registered, or since its agent started\n");
    if (json_get(standing, "NextIn") && !critical)
        print_time("  next     critical in ", duration_of(standing, "NextIn"), ", unless it is told its status\n");
    else printf("  next     nothing, until it is told its status\n");
}

static void print_next(struct json_object *standing, bool critical) {
    if (flag(standing, "Held"))
        printf("  because  it changes too often: damping keeps the worse word (coord.check_flap_limit)\n");
    bool told = flag(standing, "Told");
    if (told) print_told(standing, critical);
    if (!told && json_get(standing, "ResultAge"))
        print_time("  last     result ", duration_of(standing, "ResultAge"), " ago\n");
    if (!told && json_get(standing, "NextIn")) print_time("  next     run in ", duration_of(standing, "NextIn"), "\n");
    if (json_get(standing, "DeregisterAfter"))
        cmd_print_words("           its service is removed when it has been critical for ",
                        cmd_json_text(standing, "DeregisterAfter"), "\n");
}

static void print_check(struct json_object *check, struct json_object *standing, const char *node, bool here) {
    const char *service = cmd_json_text(check, "ServiceName"), *output = cmd_json_text(check, "Output");
    struct json_object *mine = json_get_object(standing, "Check", NULL);
    cmd_print_words("Check \"", cmd_json_text(check, "CheckID"), "\" ");
    if (service[0]) cmd_print_words("of service \"", service, "\" ");
    cmd_print_words("on ", node, " is ");
    cmd_print_words("", cmd_json_text(check, "Status"), ".\n");
    if (json_get(standing, "StatusAge")) print_time("  since    ", duration_of(standing, "StatusAge"), " ago");
    else printf("  since   ");
    printf("%sindex %llu\n", json_get(standing, "StatusAge") ? ", " : " ",
           (unsigned long long)cmd_json_number(check, "ModifyIndex"));
    if (mine) output = cmd_json_text(mine, "Output"); /* the catalog's may be minutes old */
    if (output[0]) cmd_print_words("  output   ", output, "\n");
    if (cmd_json_text(check, "Notes")[0]) cmd_print_words("  notes    ", cmd_json_text(check, "Notes"), "\n");
    print_runner(check, standing, node);
    if (flag(standing, "Runs")) print_thresholds(standing);
    if (standing) print_next(standing, strcmp(cmd_json_text(check, "Status"), "critical") == 0);
    else if (!here && cmd_json_text(check, "Type")[0])
        cmd_print_words("  more     is known to the agent on ", node, ": ask it with -http-addr\n");
}

static int explain_check_of(const struct client *client, const char *node, bool here, const char *id,
                            struct fault *fault) {
    struct fault none = {0};
    struct json_object *checks = get(client, "/v1/health/node/", node, fault), *check = find(checks, "CheckID", id);
    if (!check) check = find(checks, "Name", id);
    if (checks && cmd_json_length(checks) == 0) json_object_put(get_node(client, node, fault));
    if (checks && !check && !fault->code) {
        struct buffer others = {0};
        for (size_t i = 0; i < cmd_json_length(checks) && i < SHOWN_MOST; i++)
            buffer_printf(&others, "%s%s", i ? ", " : "",
                          cmd_json_text(json_object_array_get_idx(checks, i), "CheckID"));
        if (!others.size) buffer_append_text(&others, "none");
        fault_set(fault, CO_NOTFOUND, "node \"%s\" has no check \"%s\"; it has: %.*s", node, id, (int)others.size,
                  others.data);
        buffer_free(&others);
    }
    struct json_object *standing =
        check && here ? get(client, "/v1/agent/check/explain/", cmd_json_text(check, "CheckID"), &none) : NULL;
    if (check) print_check(check, standing, node, here);
    json_object_put(standing);
    json_object_put(checks);
    return fault->code;
}

int explain_check(int argc, char **argv) {
    static const char usage[] = "coord explain check [FLAGS] CHECK";
    struct client client = {0};
    struct fault fault = {0};
    const char *node = NULL;
    const struct cmd_flag flags[] = {{"node", CMD_TEXT, &node, "of this node (default: the agent's own)"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[0][0] || rest[1]) return cmd_wrong(usage, "one CHECK is wanted, and flags before it");
    char *own = own_node(&client, &fault);
    if (own) (void)explain_check_of(&client, node ? node : own, !node || strcmp(node, own) == 0, rest[0], &fault);
    free(own);
    return fault.code ? cmd_failed("asking for the check", &fault) : 0;
}
