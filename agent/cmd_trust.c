/* coord join-token, certificates, ca, secure: the cluster's trust. */
#include <stdlib.h>
#include <string.h>

#include "agent/cmd.h"
#include "agent/cmd_ca.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/text.h"

/* Sends a request whose answer does not matter. */
static int send_to(const struct client *client, const char *method, const char *path, const char *doing,
                   const char *done) {
    struct client_answer answer = {0};
    struct fault fault = {0};
    int rv = client_want(client, method, path, NULL, false, &answer, &fault);
    client_answer_free(&answer);
    if (rv != CO_OK) return cmd_failed(doing, &fault);
    puts(done);
    return 0;
}

static int takes_nothing(int argc, char **argv, struct client *client, const char *usage) {
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, client, usage, &rest);
    if (code >= 0) return code;
    return *rest ? cmd_wrong(usage, "no argument is wanted") : -1;
}

static bool yes_of(struct json_object *object, const char *name) {
    bool yes = false;
    json_get_bool(object, name, &yes, NULL);
    return yes;
}

static void heads(struct cmd_table *table, const char *const *names, size_t count) {
    table->columns = count;
    for (size_t i = 0; i < count; i++) cmd_cell(table, names[i]);
}

static void text_or_dash(struct cmd_table *table, struct json_object *object, const char *name) {
    const char *text = cmd_json_text(object, name);
    cmd_cell(table, *text ? text : "-");
}

/* "a, b, c" */
static void append_names(struct buffer *out, struct json_object *list) {
    for (size_t i = 0; i < cmd_json_length(list); i++)
        buffer_printf(out, "%s%s", i ? ", " : "", json_object_get_string(json_object_array_get_idx(list, i)));
    buffer_append_byte(out, '\0');
}

/* -- join tokens ------------------------------------------------------------------------------------------------------ */
static const char token_usage[] =
    "coord join-token [-server] [-ttl=1h] [-uses=1] [-node=PATTERN] [FLAGS] | list | revoke ID";

static void token_body(bool server, const char *ttl, uint64_t uses, const char *node, struct buffer *body) {
    struct json_out json;
    json_out_init(&json, body, false);
    json_object(&json);
    json_key(&json, "Role"), json_string(&json, server ? "server" : "agent");
    json_key(&json, "TTL"), json_string(&json, ttl);
    json_key(&json, "Uses"), json_u64(&json, uses);
    json_key(&json, "Node"), json_string(&json, node);
    json_object_end(&json);
}

static int token_make(int argc, char **argv) {
    struct client client = {0};
    bool server = false;
    const char *ttl = "1h", *node = "";
    uint64_t uses = 1;
    const struct cmd_flag flags[] = {
        {"server", CMD_BOOL, &server, "it makes servers; without it client agents"},
        {"ttl", CMD_DURATION, &ttl, "how long it counts (default 1h)"},
        {"uses", CMD_U64, &uses, "how many nodes it takes; 0: any number (default 1)"},
        {"node", CMD_TEXT, &node, "only nodes of such names: a pattern with * and ?, as 'web-*'"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, token_usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(token_usage, "no argument is wanted, but list or revoke as the first one");
    struct buffer body = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    token_body(server, ttl, uses, node, &body);
    struct slice text = buffer_slice(&body);
    int rv = client_want(&client, "PUT", "/v1/join-token", &text, false, &answer, &fault);
    struct json_object *made = rv == CO_OK ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (made) puts(cmd_json_text(made, "Token"));
    json_object_put(made);
    client_answer_free(&answer);
    buffer_free(&body);
    return fault.code ? cmd_failed("making a join token", &fault) : 0;
}

static void uses_cell(struct cmd_table *table, struct json_object *token) {
    uint64_t uses = cmd_json_number(token, "Uses"), used = cmd_json_number(token, "Used");
    char text[48];
    if (uses) snprintf(text, sizeof text, "%llu of %llu", (unsigned long long)used, (unsigned long long)uses);
    else snprintf(text, sizeof text, "%llu", (unsigned long long)used);
    cmd_cell(table, text);
}

static void print_tokens(struct json_object *list) {
    static const char *const names[] = {"ID", "Role", "Node", "Used", "Until"};
    struct cmd_table table = {0};
    heads(&table, names, ARRAY_COUNT(names));
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *token = json_object_array_get_idx(list, i);
        text_or_dash(&table, token, "ID"), text_or_dash(&table, token, "Role");
        cmd_cell(&table, *cmd_json_text(token, "Node") ? cmd_json_text(token, "Node") : "*");
        uses_cell(&table, token);
        cmd_cell(&table, *cmd_json_text(token, "ExpiresAt") ? cmd_json_text(token, "ExpiresAt") : "revoked");
    }
    cmd_table_print(&table);
}

static int lists(int argc, char **argv, const char *usage, const char *path, const char *doing,
                 void (*print)(struct json_object *list)) {
    struct client client = {0};
    bool json = false;
    const struct cmd_flag flags[] = {{"json", CMD_BOOL, &json, "the answer as it came, instead of a table"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    return cmd_list(&client, path, json, doing, print);
}

/* The same for an answer that is an object. */
static int shows(int argc, char **argv, const char *usage, const char *path, const char *doing,
                 void (*print)(const struct client *client, struct json_object *answer)) {
    struct client client = {0};
    bool json = false;
    const struct cmd_flag flags[] = {{"json", CMD_BOOL, &json, "the answer as it came, instead of a table"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    struct buffer at = {0};
    buffer_append_text(&at, path);
    return cmd_show(&client, &at, json, doing, print);
}

static int token_list(int argc, char **argv) {
    return lists(argc, argv, "coord join-token list [FLAGS]", "/v1/join-tokens", "listing the join tokens",
                 print_tokens);
}

static int token_revoke(int argc, char **argv) {
    static const char usage[] = "coord join-token revoke [FLAGS] ID";
    struct client client = {0};
    const char *id;
    int code = cmd_flags_and_one(argc, argv, NULL, 0, &client, usage, "ID", &id);
    if (code >= 0) return code;
    struct buffer path = {0};
    buffer_append_text(&path, "/v1/join-token/");
    client_encode(&path, id, false);
    buffer_append_byte(&path, '\0');
    code = send_to(&client, "DELETE", path.data, "revoking the join token", "revoked: nobody joins by it any more");
    buffer_free(&path);
    return code;
}

int cmd_join_token(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "list") == 0) return token_list(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "revoke") == 0) return token_revoke(argc - 1, argv + 1);
    return token_make(argc, argv);
}

/* -- certificates ------------------------------------------------------------------------------------------------------- */
static void print_certificates(struct json_object *list) {
    static const char *const names[] = {"Node", "Role", "Until", "Renewed", "State"};
    struct cmd_table table = {0};
    heads(&table, names, ARRAY_COUNT(names));
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *one = json_object_array_get_idx(list, i);
        static const char *const members[] = {"Node", "Role", "NotAfter", "RenewAt", "State"};
        for (size_t k = 0; k < ARRAY_COUNT(members); k++) text_or_dash(&table, one, members[k]);
    }
    cmd_table_print(&table);
}

int cmd_certificates(int argc, char **argv) {
    return lists(argc, argv, "coord certificates [FLAGS]", "/v1/certificates", "listing the certificates",
                 print_certificates);
}

/* -- the CA --------------------------------------------------------------------------------------------------------------- */
static void print_cas(const struct client *client, struct json_object *answer) {
    static const char *const names[] = {"CA", "Signs", "Until", "Nodes"};
    struct json_object *cas = json_get_array(answer, "CAs", NULL);
    struct cmd_table table = {0};
    (void)client;
    heads(&table, names, ARRAY_COUNT(names));
    for (size_t i = 0; i < cmd_json_length(cas); i++) {
        struct json_object *ca = json_object_array_get_idx(cas, i);
        char count[24];
        snprintf(count, sizeof count, "%llu", (unsigned long long)cmd_json_number(ca, "Nodes"));
        cmd_cell(&table, cmd_json_text(ca, "Pin"));
        cmd_cell(&table, yes_of(ca, "Signs") ? "yes" : "no");
        text_or_dash(&table, ca, "NotAfter"), cmd_cell(&table, count);
    }
    cmd_table_print(&table);
    for (size_t i = 1; i < cmd_json_length(cas); i++) { /* nodes that have not moved to the first one */
        struct json_object *ca = json_object_array_get_idx(cas, i);
        struct buffer line = {0};
        append_names(&line, json_get_array(ca, "Names", NULL));
        if (line.size > 1)
            printf("\nstill with a certificate of %.12s...: %s%s\n", cmd_json_text(ca, "Pin"), line.data,
                   cmd_json_number(ca, "Nodes") > cmd_json_length(json_get_array(ca, "Names", NULL)) ? ", ..." : "");
        buffer_free(&line);
    }
}

static int ca_status(int argc, char **argv) {
    return shows(argc, argv, "coord ca status [FLAGS]", "/v1/ca", "asking for the CAs", print_cas);
}

static int ca_rotate(int argc, char **argv) {
    struct client client = {0};
    int code = takes_nothing(argc, argv, &client, "coord ca rotate [FLAGS]");
    if (code >= 0) return code;
    struct fault fault = {0};
    int rv = cmd_ca_change(&client, "/v1/ca/rotate", NULL,
                           "a new CA signs from now on, and all nodes renew; `coord ca status` shows how far they are",
                           &fault);
    return rv == CO_OK ? 0 : cmd_failed("rotating the CA", &fault);
}

/* The names of nodes that the drop shuts out, before it does. */
static int ca_drop(int argc, char **argv) {
    struct client client = {0};
    struct fault fault = {0};
    int code = takes_nothing(argc, argv, &client, "coord ca drop [FLAGS]");
    if (code >= 0) return code;
    struct json_object *answer = cmd_json_get(&client, "/v1/ca", &fault);
    if (!answer) return cmd_failed("asking for the CAs", &fault);
    struct json_object *cas = json_get_array(answer, "CAs", NULL);
    code =
        send_to(&client, "PUT", "/v1/ca/drop", "dropping the CAs of before", "only the CA that signs is trusted now");
    for (size_t i = 1; !code && i < cmd_json_length(cas); i++) {
        struct json_object *names = json_get_array(json_object_array_get_idx(cas, i), "Names", NULL);
        struct buffer line = {0};
        append_names(&line, names);
        if (line.size > 1)
            printf("these have to join anew: %s%s\n", line.data,
                   cmd_json_number(json_object_array_get_idx(cas, i), "Nodes") > cmd_json_length(names) ? ", ..." : "");
        buffer_free(&line);
    }
    json_object_put(answer);
    return code;
}

int cmd_ca(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"rotate", "have a new CA sign; all nodes renew by themselves", ca_rotate},
        {"import", "have a CA of your own sign, for example an intermediate one of a company", cmd_ca_import},
        {"status", "which CAs are trusted, and which nodes still have certificates of each", ca_status},
        {"drop", "trust only the CA that signs now; nodes with another's certificate have to join anew", ca_drop},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "ca", argc, argv);
}

/* -- closing an open cluster ---------------------------------------------------------------------------------------------- */
static void print_secure(const struct client *client, struct json_object *answer) {
    static const char *const modes[][2] = {{"open", "open: nothing is encrypted"},
                                           {"both", "being closed: plain and encrypted connections are taken"},
                                           {"closed", "closed: every connection is encrypted"}};
    struct json_object *with = json_get_array(answer, "With", NULL), *without = json_get_array(answer, "Without", NULL);
    const char *mode = cmd_json_text(answer, "Mode");
    struct buffer named = {0}, names = {0};
    (void)client;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++)
        if (strcmp(mode, modes[i][0]) == 0) printf("The cluster is %s.\n", modes[i][1]);
    append_names(&named, with);
    append_names(&names, without);
    printf("%zu nodes have a certificate%s%s\n%zu have none%s%s\n", cmd_json_length(with), named.size > 1 ? ": " : "",
           named.data, cmd_json_length(without), names.size > 1 ? ": " : "", names.data);
    struct json_object *strangers = json_get_array(answer, "Strangers", NULL);
    names.size = 0;
    append_names(&names, strangers);
    if (cmd_json_length(strangers))
        printf("%zu certificates belong to no node of the catalog: %s\n", cmd_json_length(strangers), names.data);
    buffer_free(&named);
    buffer_free(&names);
}

static int secure_status(int argc, char **argv) {
    return shows(argc, argv, "coord secure status [FLAGS]", "/v1/secure", "asking how far the cluster is closed",
                 print_secure);
}

static int secure_start(int argc, char **argv) {
    struct client client = {0};
    int code = takes_nothing(argc, argv, &client, "coord secure start [FLAGS]");
    if (code >= 0) return code;
    return send_to(&client, "PUT", "/v1/secure/start", "closing the cluster",
                   "nodes get certificates; `coord secure status` shows who has one, `coord secure finish` ends it");
}

static int secure_abort(int argc, char **argv) {
    struct client client = {0};
    int code = takes_nothing(argc, argv, &client, "coord secure abort [FLAGS]");
    if (code >= 0) return code;
    return send_to(&client, "PUT", "/v1/secure/abort", "giving up", "the cluster stays open");
}

static int secure_finish(int argc, char **argv) {
    static const char usage[] = "coord secure finish [-without=NODE]... [FLAGS]";
    struct client client = {0};
    struct cmd_list without = {0};
    const struct cmd_flag flags[] = {
        {"without", CMD_LIST, &without, "a node that may be shut out, because it has no certificate; may be repeated"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    struct buffer path = {0};
    buffer_append_text(&path, "/v1/secure/finish");
    for (size_t i = 0; i < without.count; i++) client_parameter(&path, "without", without.items[i]);
    buffer_append_byte(&path, '\0');
    code = send_to(&client, "PUT", path.data, "closing the cluster", "the cluster is closed: hosts join with tokens");
    buffer_free(&path);
    return code;
}

int cmd_secure(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"start", "give every node a certificate; plain connections are still taken", secure_start},
        {"status", "which nodes have a certificate, and which have none", secure_status},
        {"finish", "take only encrypted connections from now on", secure_finish},
        {"abort", "leave the cluster open", secure_abort},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "secure", argc, argv);
}
