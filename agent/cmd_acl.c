/* coord acl: its small sub-commands, and the list of all. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/cmd_acl.h"
#include "base/check.h"
#include "base/clock.h"

/* -- reset ----------------------------------------------------------------------------------------------------------- */
#define RESET_FILE "acl-bootstrap-reset"
#define KEY_MS     15000 /* a new key is there sooner */

struct reset {
    const struct client *client;
    const char *data_dir;
    bool new_key;
};

/* The index that the refusal of a bootstrap names; NULL: it names none. */
static const char *reset_index(const char *text) {
    static const char before[] = "reset index: ";
    const char *at = strstr(text, before);
    return at ? at + sizeof before - 1 : NULL;
}

/* Only root and the server's user may write there: that is the right to reset. */
static int write_file(const struct reset *reset, const char *index, struct fault *fault) {
    struct buffer path = {0}, line = {0};
    buffer_printf(&path, "%s/%s", reset->data_dir, RESET_FILE);
    buffer_append_byte(&path, '\0');
    buffer_printf(&line, "%.*s%s\n", (int)strspn(index, "0123456789"), index, reset->new_key ? " new-key" : "");
    int fd = open(path.data, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write(fd, line.data, line.size) == (ssize_t)line.size;
    if (!written) fault_set(fault, CO_IO, "%s: %s", path.data, strerror(errno));
    if (fd >= 0) close(fd);
    buffer_free(&path), buffer_free(&line);
    return fault->code;
}

static int bootstrap(const struct reset *reset, struct json_object **token, struct fault *fault) {
    *token = acl_send(reset->client, "PUT", "/v1/acl/bootstrap", NULL, fault);
    return *token ? CO_OK : fault->code;
}

static int run_reset(const struct reset *reset, struct json_object **token, struct fault *fault) {
    struct fault refused = {0};
    if (bootstrap(reset, token, &refused) == CO_OK) return CO_OK;
    const char *index = reset_index(refused.text);
    if (!index) {
        *fault = refused;
        return fault->code;
    }
    if (write_file(reset, index, fault) != CO_OK) return fault->code;
    int rv = bootstrap(reset, token, fault);
    uint64_t until_ms = clock_mono_ms() + KEY_MS;
    while (rv != CO_OK && reset->new_key && clock_mono_ms() < until_ms) {
        *fault = (struct fault){0};
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        rv = bootstrap(reset, token, fault);
    }
    return rv;
}

int cmd_acl_reset(int argc, char **argv) {
    static const char usage[] = "coord acl reset [FLAGS] -data-dir=FOLDER";
    struct client client = {0};
    struct acl_show show = {0};
    struct reset reset = {.client = &client};
    struct json_object *token = NULL;
    const struct cmd_flag flags[] = {
        {"data-dir", CMD_TEXT, &reset.data_dir, "data_dir of the server that is asked; it is on this host"},
        {"new-key", CMD_BOOL, &reset.new_key,
         "the servers have lost the key of the secrets: end all tokens, make another key"},
        ACL_SHOW_FLAGS(show),
    };
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, &show, reset.data_dir ? NULL : "-data-dir is wanted");
    if (code >= 0) return code;
    if (run_reset(&reset, &token, &fault) != CO_OK) return cmd_failed("making a management token", &fault);
    if (show.format && strcmp(show.format, "json") == 0) puts(json_object_to_json_string(token));
    else acl_print_token(token, &show);
    json_object_put(token);
    return 0;
}

/* -- small ones ------------------------------------------------------------------------------------------------------ */
static int set_agent_token(int argc, char **argv) {
    static const char usage[] = "coord acl set-agent-token [FLAGS] default|agent|master|replication TOKEN";
    struct client client = {0};
    char **rest;
    struct fault fault = {0};
    struct client_answer answer = {0};
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[1] || rest[2]) return cmd_wrong(usage, "the kind of token, and the token are wanted");
    struct json_object *body = json_object_new_object();
    acl_set(body, "Token", rest[1]);
    struct slice text = slice_text(json_object_to_json_string(body));
    struct buffer path = acl_path("/v1/agent/token/", rest[0], "");
    (void)client_want(&client, "PUT", path.data, &text, false, &answer, &fault);
    client_answer_free(&answer);
    buffer_free(&path);
    json_object_put(body);
    if (fault.code) return cmd_failed("setting the token", &fault);
    printf("ACL token \"%s\" set successfully\n", rest[0]);
    return 0;
}

static int translate_rules(int argc, char **argv) {
    static const char usage[] = "coord acl translate-rules [FLAGS] RULES | @FILE | -";
    struct client client = {0};
    struct client_answer answer = {0};
    struct buffer rules = {0};
    struct fault fault = {0};
    const char *given;
    int code = cmd_flags_and_one(argc, argv, NULL, 0, &client, usage, "text, @FILE or -", &given);
    if (code >= 0) return code;
    if (cmd_read_value(given, true, &rules, &fault) == CO_OK) {
        struct slice text = buffer_slice(&rules);
        (void)client_want(&client, "POST", "/v1/acl/rules/translate", &text, false, &answer, &fault);
    }
    if (!fault.code) printf("%.*s\n", (int)answer.body.size, answer.body.data);
    client_answer_free(&answer);
    buffer_free(&rules);
    return fault.code ? cmd_failed("translating the rules", &fault) : 0;
}

static int can_i(int argc, char **argv) {
    static const char usage[] = "coord acl can-i [FLAGS] read|list|write RESOURCE [NAME]";
    struct client client = {0};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[1] || (rest[2] && rest[3])) return cmd_wrong(usage, "a verb and a resource are wanted");
    struct json_object *body = json_object_new_array(), *question = json_object_new_object();
    json_object_array_add(body, question);
    acl_set(question, "Access", rest[0]), acl_set(question, "Resource", rest[1]);
    acl_set(question, "Segment", rest[2] ? rest[2] : "");
    struct json_object *answer = acl_send(&client, "POST", "/v1/internal/acl/authorize", body, &fault);
    if (!answer) return cmd_failed("asking", &fault);
    bool allow = false;
    json_get_bool(json_object_array_get_idx(answer, 0), "Allow", &allow, &fault);
    json_object_put(answer);
    puts(allow ? "yes" : "no");
    return allow ? 0 : CMD_EXIT_REFUSED;
}

/* -- status ----------------------------------------------------------------------------------------------------------- */
static bool allows(struct json_object *answers, size_t i) {
    bool allow = false;
    json_get_bool(json_object_array_get_idx(answers, i), "Allow", &allow, NULL);
    return allow;
}

/* Prints the rights that the token of this command has everywhere. */
static void print_rights(const struct client *client, struct fault *fault) {
    static const char *const levels[] = {"write", "read"};
    static const char *const resources[] = {"acl",      "agent", "event", "key",     "keyring", "lock",   "node",
                                            "operator", "query", "quota", "rollout", "service", "session"};
    struct json_object *body = json_object_new_array();
    for (size_t i = 0; i < 2 * ARRAY_COUNT(resources); i++) {
        struct json_object *question = json_object_new_object();
        acl_set(question, "Resource", resources[i / 2]), acl_set(question, "Access", levels[i % 2]);
        acl_set(question, "Segment", "");
        json_object_array_add(body, question);
    }
    struct json_object *answers = acl_send(client, "POST", "/v1/internal/acl/authorize", body, fault);
    for (size_t i = 0; answers && i < ARRAY_COUNT(resources); i++)
        printf("  %-10s %s\n", resources[i],
               allows(answers, 2 * i)       ? "write"
               : allows(answers, 2 * i + 1) ? "read"
                                            : "-");
    if (answers) json_object_put(answers);
}

/* Prints how the agent has access control. */
static void print_agent(const struct client *client, struct fault *fault) {
    struct json_object *answer = acl_send(client, "GET", "/v1/internal/acl/status", NULL, fault);
    struct json_object *warnings = answer ? json_get(answer, "Warnings") : NULL;
    if (!answer) return;
    acl_line("", "Default policy", cmd_json_text(answer, "DefaultPolicy"));
    acl_line("", "The agent's work", cmd_json_text(answer, "Agent"));
    bool has = false;
    json_get_bool(answer, "DefaultToken", &has, NULL);
    acl_line("", "Without a token", has ? "the agent's default token" : "the anonymous token");
    for (size_t i = 0; warnings && i < cmd_json_length(warnings); i++)
        printf("Warning: %s\n", json_object_get_string(json_object_array_get_idx(warnings, i)));
    json_object_put(answer);
}

static int status(int argc, char **argv) {
    static const char usage[] = "coord acl status [FLAGS]";
    static const struct acl_show show = {0};
    struct client client = {0};
    struct client_answer answer = {0};
    char **rest;
    struct fault fault = {0};
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, NULL, NULL);
    if (code >= 0) return code;
    if (client_ask(&client, "GET", "/v1/acl/token/self", NULL, NULL, NULL, &answer, &fault) != CO_OK)
        return cmd_failed("asking", &fault);
    bool off = answer.status == 401;
    struct json_object *self = answer.status == 200 ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (!off && !self) (void)client_refused(&answer, &fault);
    client_answer_free(&answer);
    if (off) puts("Access control is off: everybody may do everything.");
    if (!self) return fault.code ? cmd_failed("asking", &fault) : 0;
    puts("Access control is on.");
    print_agent(&client, &fault);
    puts("The token of this command:");
    json_object_object_del(self, "SecretID");
    acl_print_token(self, &show);
    puts("It may, for names without a rule of their own:");
    print_rights(&client, &fault);
    json_object_put(self);
    return fault.code ? cmd_failed("asking", &fault) : 0;
}

int cmd_acl(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"auth-method", "auth methods: who gets a token by a login", cmd_acl_auth_method},
        {"binding-rule", "binding rules: what such a token may do", cmd_acl_binding_rule},
        {"bootstrap", "make the first management token", cmd_acl_bootstrap},
        {"can-i", "may this token do something? Exit code 1: no", can_i},
        {"policy", "policies: what tokens may do", cmd_acl_policy},
        {"reset", "on a server: make a management token when none is left", cmd_acl_reset},
        {"role", "roles: policies that tokens have together", cmd_acl_role},
        {"set-agent-token", "give an agent a token of its own, or for its clients that have none", set_agent_token},
        {"status", "is access control on, and what may this token do", status},
        {"token", "tokens", cmd_acl_token},
        {"translate-rules", "rules of before Consul 1.4 as rules of today", translate_rules},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "acl", argc, argv);
}
