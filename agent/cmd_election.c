/* coord election: the commands that are more than a row of http/api/election.c. */
#include <time.h>

#include "agent/cmd.h"
#include "agent/cmd_endpoint.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"

#define AGAIN_MS 1000 /* pause after a request that nobody answered */

/* "/v1/election/NAME"; parameters may follow. */
static void path_of(struct buffer *path, const char *name) {
    buffer_append_text(path, "/v1/election/");
    client_encode(path, name, true);
}

/* -- get ---------------------------------------------------------------------------------------------------------- */

static void line(struct cmd_table *table, const char *head, const char *text) {
    cmd_cell(table, head), cmd_cell(table, text[0] ? text : "-");
}
static void number_line(struct cmd_table *table, const char *head, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    line(table, head, text);
}

static void print_election(const struct client *client, struct json_object *election) {
    (void)client;
    struct json_object *leader = json_get_object(election, "Leader", NULL);
    struct cmd_table table = {.columns = 2};
    const char *node = cmd_json_text(leader, "Node");
    line(&table, "Name", cmd_json_text(election, "Name"));
    line(&table, "Leader", node[0] ? node : cmd_json_text(leader, "Session"));
    if (leader) {
        struct buffer since = {0};
        int64_t age_ms = clock_wall_ns() / 1000000 - (int64_t)cmd_json_number(leader, "Since");
        line(&table, "Value", cmd_json_text(leader, "Value"));
        number_line(&table, "Term", cmd_json_number(leader, "Term"));
        line(&table, "Session", cmd_json_text(leader, "Session"));
        duration_format(&since, (age_ms > 0 ? age_ms / 1000 : 0) * 1000000000);
        buffer_append_byte(&since, '\0');
        line(&table, "Leads for", cmd_json_number(leader, "Since") ? since.data : "");
        buffer_free(&since);
    }
    number_line(&table, "Candidates", cmd_json_length(json_get_array(election, "Candidates", NULL)));
    cmd_table_print(&table);
}

static int election_get(int argc, char **argv) {
    static const char usage[] = "coord election get [FLAGS] NAME";
    struct client client = {0};
    bool json = false;
    const struct cmd_flag flags[] = {{"json", CMD_BOOL, &json, "the answer as it came"}};
    const char *name;
    int code = cmd_flags_and_one(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, "NAME", &name);
    if (code >= 0) return code;
    struct buffer path = {0};
    path_of(&path, name);
    return cmd_show(&client, &path, json, "asking for the election", print_election);
}

/* -- observe ------------------------------------------------------------------------------------------------------ */

struct observing {
    struct client client;
    const char *name;
    bool json, complained;
    uint64_t index;
    struct buffer shown; /* the last line, which is not printed twice */
};

/* "term 17: web1 leads, 10.0.0.7:5432" */
static void describe(struct json_object *election, struct buffer *out) {
    struct json_object *leader = json_get_object(election, "Leader", NULL);
    const char *node = cmd_json_text(leader, "Node"), *value = cmd_json_text(leader, "Value");
    if (!leader) {
        buffer_append_text(out, "nobody leads");
        return;
    }
    buffer_printf(out, "term %llu: %s leads", (unsigned long long)cmd_json_number(leader, "Term"),
                  node[0] ? node : cmd_json_text(leader, "Session"));
    if (value[0]) buffer_printf(out, ", %s", value);
}

static void show(struct observing *observing, struct json_object *election) {
    struct buffer text = {0};
    if (observing->json)
        buffer_append_text(
            &text, json_object_to_json_string_ext(election, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    else describe(election, &text);
    buffer_append_byte(&text, '\0');
    if (!slice_equal(buffer_slice(&text), buffer_slice(&observing->shown))) {
        cmd_print_words("", text.data, "\n");
        fflush(stdout);
    }
    buffer_free(&observing->shown);
    observing->shown = text;
}

/* 0: go on. */
static int look(struct observing *observing, struct fault *fault) {
    struct client_answer answer = {0};
    struct buffer path = {0};
    path_of(&path, observing->name);
    buffer_append_text(&path, "?leader");
    if (observing->index) buffer_printf(&path, "&index=%llu", (unsigned long long)observing->index);
    buffer_append_byte(&path, '\0');
    int rv = client_want(&observing->client, "GET", path.data, NULL, false, &answer, fault);
    struct json_object *election = rv == CO_OK ? json_parse(buffer_slice(&answer.body), fault) : NULL;
    if (election) {
        show(observing, election);
        observing->index = answer.index;
    }
    bool refused = fault->code && answer.status >= 400 && answer.status < 500 && answer.status != 429;
    json_object_put(election);
    client_answer_free(&answer);
    buffer_free(&path);
    return refused ? cmd_failed("asking for the election", fault) : 0;
}

/* Ends when the user ends it, or when the request is refused. */
static int election_observe(int argc, char **argv) {
    static const char usage[] = "coord election observe [FLAGS] NAME";
    struct observing observing = {0};
    const struct cmd_flag flags[] = {{"json", CMD_BOOL, &observing.json, "the answers as they come, one in a line"}};
    int code =
        cmd_flags_and_one(argc, argv, flags, ARRAY_COUNT(flags), &observing.client, usage, "NAME", &observing.name);
    if (code >= 0) return code;
    for (;;) {
        struct fault fault = {0};
        code = look(&observing, &fault);
        if (code || ferror(stdout)) break;
        if (fault.code && !observing.complained) fprintf(stderr, "coord: %s; trying again\n", fault.text);
        observing.complained = fault.code != CO_OK;
        if (!fault.code) continue;
        observing.index = 0; /* the next answer may be of another server */
        nanosleep(&(struct timespec){AGAIN_MS / 1000, AGAIN_MS % 1000 * 1000000}, NULL);
    }
    buffer_free(&observing.shown);
    return code ? code : 1;
}

const struct cli_command cmd_election_commands[] = {
    {"get", "the leader of an election, since when, and its advertised value", election_get},
    {"observe", "print a line for each change of the leader, as it comes", election_observe},
    {0}};
