/* coord quota: the commands that are more than a row of http/api/quota.c. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "agent/cmd.h"
#include "agent/cmd_endpoint.h"
#include "agent/cmd_json.h"
#include "base/check.h"

#define PAUSE_S 1

/* -- coord quota take --------------------------------------------------------------------------------------------- */

static int tell(const struct client_answer *answer, bool quiet) {
    struct fault fault = {0};
    struct json_object *json = json_parse(buffer_slice(&answer->body), &fault);
    bool allowed = false;
    if (!json) return cmd_failed("reading the answer", &fault);
    json_get_bool(json, "Allowed", &allowed, NULL);
    if (!quiet) { cmd_print_words(allowed ? "allowed (" : "refused (", cmd_json_text(json, "Source"), ")\n"); }
    json_object_put(json);
    return allowed ? 0 : CMD_EXIT_REFUSED;
}

static int take(int argc, char **argv) {
    static const char usage[] = "coord quota take [FLAGS] NAME";
    struct client client = {0};
    const char *n = NULL, *key = NULL;
    bool quiet = false;
    const struct cmd_flag flags[] = {
        {"n", CMD_NUMBER, &n, "how much (default 1); 0 only looks"},
        {"key", CMD_TEXT, &key, "the key to charge, for budgets that are counted by key"},
        {"quiet", CMD_BOOL, &quiet, "only the exit code tells: 0 allowed, 1 refused, 2 a mistake, 3 nobody could say"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[0][0]) return cmd_wrong(usage, "NAME is wanted");
    const char *name = rest[0];
    if (rest[1]) { /* flags behind it */
        code = cmd_flags((int)(argv + argc - rest), rest, flags, ARRAY_COUNT(flags), &client, usage, &rest);
        if (code >= 0) return code;
        if (rest[0]) return cmd_wrong(usage, "one NAME is wanted");
    }
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    buffer_append_text(&path, "/v1/agent/quota/");
    client_encode(&path, name, false);
    buffer_append_text(&path, "/take");
    if (n) client_parameter(&path, "n", n);
    if (key) client_parameter(&path, "key", key);
    buffer_append_byte(&path, '\0');
    if (client_ask(&client, "PUT", path.data, NULL, NULL, NULL, &answer, &fault) == CO_OK) {
        bool told = answer.status == 200 || answer.status == 429;
        if (told) code = tell(&answer, quiet);
        else
            fault_set(&fault, client_answer_code(&answer), "%.*s", answer.body.size < 250 ? (int)answer.body.size : 250,
                      answer.body.size ? answer.body.data : "");
    }
    client_answer_free(&answer);
    buffer_free(&path);
    return fault.code ? cmd_failed("taking", &fault) : code;
}

/* -- coord quota watch -------------------------------------------------------------------------------------------- */

static void print_row(struct json_object *row) {
    static const char *const sums[] = {"Spent", "Stranded", "Leased", "Slack"};
    printf("%llu  %-9s %llu", (unsigned long long)cmd_json_number(row, "Number"), cmd_json_text(row, "Kind"),
           (unsigned long long)cmd_json_number(row, "Amount"));
    if (cmd_json_number(row, "Back")) printf(" (%llu back)", (unsigned long long)cmd_json_number(row, "Back"));
    if (cmd_json_text(row, "Node")[0]) cmd_print_words(" ", cmd_json_text(row, "Node"), "");
    if (cmd_json_number(row, "Lease")) printf(" lease %llu", (unsigned long long)cmd_json_number(row, "Lease"));
    printf("  |");
    for (size_t i = 0; i < ARRAY_COUNT(sums); i++) {
        uint64_t sum = cmd_json_number(row, sums[i]);
        if (sum) printf(" %s %llu", sums[i], (unsigned long long)sum);
    }
    printf(" of %llu\n", (unsigned long long)cmd_json_number(row, "Capacity"));
}

/* Prints the new rows, each only once. Their numbers have gaps only where rows were dropped before they were read. */
static bool print_new(const struct client_answer *answer, uint64_t *from) {
    struct fault fault = {0};
    struct json_object *list = json_parse(buffer_slice(&answer->body), &fault);
    for (size_t i = 0; i < cmd_json_length(list); i++) {
        struct json_object *row = json_object_array_get_idx(list, i);
        uint64_t number = cmd_json_number(row, "Number");
        if (number < *from) continue;
        if (*from && number > *from) printf("... %llu rows are gone\n", (unsigned long long)(number - *from));
        print_row(row);
        *from = number + 1;
    }
    fflush(stdout);
    bool more = cmd_json_length(list) > 0;
    if (list) json_object_put(list);
    return more;
}

static void question(const char *name, uint64_t from, uint64_t index, struct buffer *path) {
    char text[32];
    buffer_reset(path);
    buffer_append_text(path, "/v1/quota/");
    client_encode(path, name, false);
    buffer_append_text(path, "/audit");
    snprintf(text, sizeof text, "%llu", (unsigned long long)from);
    client_parameter(path, "from", text);
    snprintf(text, sizeof text, "%llu", (unsigned long long)index);
    if (index) client_parameter(path, "index", text);
    buffer_append_byte(path, '\0');
}

static int watch(int argc, char **argv) {
    static const char usage[] = "coord quota watch [FLAGS] NAME";
    struct client client = {0};
    uint64_t from = 0, index = 0;
    const struct cmd_flag flags[] = {
        {"from", CMD_U64, &from, "the number of the first row that is printed; else the oldest that is kept"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[0][0] || rest[1]) return cmd_wrong(usage, "one NAME is wanted, and flags before it");
    struct buffer path = {0};
    bool silent = false;
    for (code = -1; code < 0;) {
        struct client_answer answer = {0};
        struct fault fault = {0};
        question(rest[0], from, index, &path);
        int rv = client_ask(&client, "GET", path.data, NULL, NULL, NULL, &answer, &fault);
        if (rv == CO_OK && answer.status == 200) {
            bool more = print_new(&answer, &from);
            /* There may be more rows than fit into one answer, so the next request does not wait. */
            index = more ? 0 : answer.index;
            silent = false;
        } else if (rv == CO_OK && answer.status < 500) {
            fprintf(stderr, "coord quota watch: %.*s\n", (int)answer.body.size,
                    answer.body.size ? answer.body.data : "");
            code = cmd_exit_of(&(struct fault){.code = client_answer_code(&answer)});
        } else {
            if (!silent)
                fprintf(stderr, "coord quota watch: %s; trying again\n", rv ? fault.text : "no answer of the servers");
            silent = true, index = 0;
            nanosleep(&(struct timespec){.tv_sec = PAUSE_S}, NULL);
        }
        client_answer_free(&answer);
    }
    buffer_free(&path);
    return code;
}

/* -- the commands ------------------------------------------------------------------------------------------------- */

const struct cli_command cmd_quota_commands[] = {
    {"take", "spend of a budget by the local agent: exit code 0 allowed, 1 refused, 3 nobody could say", take},
    {"watch", "print the changes of a budget, as they come", watch},
    {0},
};
