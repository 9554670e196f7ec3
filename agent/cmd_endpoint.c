/* coord GROUP COMMAND for every endpoint whose row names one (http/route.h, struct http_cli): values of the path and a
 * raw body are arguments, parameters and members of a JSON body are flags, the answer is printed. A JSON body may also
 * come as a whole, as the last argument. */
#include "agent/cmd_endpoint.h"

#include <ctype.h>

#include "agent/cmd.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/text.h"
#include "http/declared.h"

#define FLAGS_MOST     24
#define ARGUMENTS_MOST 4
#define COMMANDS_MOST  32

static const char *group; /* of the command that runs: a process runs one command */
static struct arena arena;

/* -- rows --------------------------------------------------------------------------------------------------------- */

struct rows {
    const struct http_topic *topic;
    const struct http_route *route;
};

static const struct http_route *rows_next(struct rows *rows) {
    if (!rows->topic) rows->topic = http_topics, rows->route = rows->topic->rows;
    else rows->route++;
    while (rows->topic->title) {
        if (!rows->route->path) rows->route = (++rows->topic)->rows;
        else if (rows->route->cli.command) return rows->route;
        else rows->route++;
    }
    return NULL;
}

static struct slice group_of(const struct http_route *route) {
    return slice_make(route->cli.command, strcspn(route->cli.command, " "));
}
static const char *command_of(const struct http_route *route) { return strchr(route->cli.command, ' ') + 1; }

/* -- flags -------------------------------------------------------------------------------------------------------- */

/* "TTL" is -ttl, "LeaseTTL" -lease-ttl, "max_stale" -max-stale. */
static const char *flag_name(const char *name) {
    char *out = arena_alloc(&arena, 2 * strlen(name) + 1), *at = out;
    for (const char *in = name; *in; in++) {
        bool begins = in > name && isupper((unsigned char)*in) &&
                      (!isupper((unsigned char)in[-1]) || (in[1] && islower((unsigned char)in[1])));
        if (begins) *at++ = '-';
        *at++ = *in == '_' ? '-' : (char)tolower((unsigned char)*in);
    }
    *at = '\0';
    return out;
}

static const char *flag_help(const struct http_param *param, const char *otherwise) {
    struct buffer text = {0};
    buffer_append_text(&text, param->help);
    if (param->type != HTTP_FLAG && param->type != HTTP_TEXT) {
        buffer_append_text(&text, ": ");
        declared_wanted(param, &text);
    }
    if (otherwise) buffer_printf(&text, " (default %s)", otherwise);
    const char *help = arena_strndup(&arena, text.data, text.size);
    buffer_free(&text);
    return help;
}

struct call {
    const struct http_route *route;
    struct client client;
    bool json;
    struct cmd_flag flags[FLAGS_MOST + 1];
    const struct http_param *params[FLAGS_MOST],
        *objects[FLAGS_MOST]; /* objects: which one it is a member of; or NULL */
    union {
        bool yes;
        const char *text;
        struct cmd_list list;
    } values[FLAGS_MOST];
    const char *defaults[FLAGS_MOST]; /* NULL: none */
    size_t flag_count, query_count;   /* those of the query come first */
    const char *arguments[ARGUMENTS_MOST];
    size_t argument_count;
};

/* Of "ttl=15s remaining": "15s", "true"; NULL: none. */
static const char *default_of(const struct http_cli *cli, const char *name) {
    size_t size = strlen(name);
    for (const char *at = cli->defaults; at && *at;) {
        size_t word = strcspn(at, " ");
        if (word >= size && memcmp(at, name, size) == 0 && (word == size || at[size] == '='))
            return word == size ? "true" : arena_strndup(&arena, at + size + 1, word - size - 1);
        at += word + strspn(at + word, " ");
    }
    return NULL;
}

/* Is it a flag of this command? The flags that every command has are not, nor parameters that no user gives. */
static bool is_flag(const struct http_param *param) {
    static const char *const others[] = {"dc", "stale", "cached"};
    if (!declared_is_given(param) || declared_in_path(param) || param->type == HTTP_OBJECT) return false;
    for (size_t i = 0; i < ARRAY_COUNT(others); i++)
        if (strcmp(param->name, others[i]) == 0) return false;
    return true;
}

static void add_flag(struct call *call, const struct http_param *param, const struct http_param *object) {
    if (!is_flag(param)) return;
    CHECK(call->flag_count < FLAGS_MOST);
    size_t i = call->flag_count++;
    const char *name = flag_name(param->name);
    call->defaults[i] = default_of(&call->route->cli, name);
    call->params[i] = param, call->objects[i] = object;
    call->flags[i] = (struct cmd_flag){.name = name,
                                       .value = &call->values[i],
                                       .type = param->repeats                 ? CMD_LIST
                                               : param->type == HTTP_FLAG     ? CMD_BOOL
                                               : param->type == HTTP_U64      ? CMD_NUMBER
                                               : param->type == HTTP_DURATION ? CMD_DURATION
                                                                              : CMD_TEXT,
                                       .help = flag_help(param, call->defaults[i])};
    if (param->type == HTTP_FLAG) call->values[i].yes = call->defaults[i] != NULL;
    else if (!param->repeats) call->values[i].text = call->defaults[i];
}

static void take_flags(struct call *call) {
    struct declared_walk walk = declared_begin(call->route->params);
    for (const struct http_param *param; (param = declared_next(&walk));) add_flag(call, param, NULL);
    call->query_count = call->flag_count;
    walk = declared_begin(call->route->endpoint.body);
    for (const struct http_param *param; (param = declared_next(&walk));) {
        add_flag(call, param, NULL);
        bool object = param->type == HTTP_OBJECT && !param->repeats;
        for (const struct http_param *member = object ? param->group : NULL; member && member->name; member++)
            add_flag(call, member, param);
    }
    call->flags[call->flag_count] =
        (struct cmd_flag){"json", CMD_BOOL, &call->json, "the answer as it came, instead of a table"};
}

/* -- arguments ---------------------------------------------------------------------------------------------------- */

static void append_upper(struct buffer *out, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) buffer_append_byte(out, (char)toupper((unsigned char)text[i]));
}

static const char *usage_of(const struct http_route *route) {
    struct buffer text = {0};
    buffer_printf(&text, "coord %s [FLAGS]", route->cli.command);
    for (const char *at = route->path; *at; at++) {
        if (*at != ':' && *at != '*' && *at != '+') continue;
        buffer_append_byte(&text, ' ');
        append_upper(&text, at + 1, strcspn(at + 1, "/"));
    }
    if (route->endpoint.raw) {
        buffer_append_text(&text, route->endpoint.raw->required ? " " : " [");
        append_upper(&text, route->endpoint.raw->name, strlen(route->endpoint.raw->name));
        buffer_append_text(&text, route->endpoint.raw->required ? " | @FILE | -" : " | @FILE | -]");
    }
    if (route->endpoint.body) buffer_append_text(&text, " [JSON | @FILE | -]");
    const char *usage = arena_strndup(&arena, text.data, text.size);
    buffer_free(&text);
    return usage;
}

/* Flags may follow arguments; nothing after "--" is a flag. Returns as cmd_flags. */
static int take_arguments(struct call *call, int argc, char **argv, const char *usage) {
    for (char **rest, **end = argv + argc; argc > 1; argc = (int)(end - argv)) {
        int code = cmd_flags(argc, argv, call->flags, call->flag_count + 1, &call->client, usage, &rest);
        if (code >= 0) return code;
        bool all = rest > argv && strcmp(rest[-1], "--") == 0;
        do {
            if (rest == end) return -1;
            if (call->argument_count == ARGUMENTS_MOST) return cmd_wrong(usage, "too many arguments");
            call->arguments[call->argument_count++] = *rest++;
        } while (all);
        argv = rest - 1;
    }
    return -1;
}

/* -- the request -------------------------------------------------------------------------------------------------- */

static void path_make(const struct call *call, struct buffer *path) {
    size_t argument = 0;
    for (const char *at = call->route->path; *at; at++) {
        if (*at != ':' && *at != '*' && *at != '+') {
            buffer_append_byte(path, *at);
            continue;
        }
        client_encode(path, call->arguments[argument++], *at != ':');
        at += strcspn(at, "/") - 1;
    }
    for (size_t i = 0; i < call->query_count; i++) {
        const struct http_param *param = call->params[i];
        const struct cmd_list *list = &call->values[i].list;
        for (size_t j = 0; param->repeats && j < list->count; j++) client_parameter(path, param->name, list->items[j]);
        if (param->repeats) continue;
        if (param->type == HTTP_FLAG) {
            if (call->values[i].yes) client_parameter(path, param->name, NULL);
        } else if (call->values[i].text) {
            client_parameter(path, param->name, call->values[i].text);
        }
    }
    buffer_append_byte(path, '\0');
}

static void value_json(struct json_out *json, const struct http_param *param, const char *text) {
    bool number = param->type == HTTP_U64 || param->type == HTTP_DECIMAL || param->type == HTTP_FRACTION;
    if (number) json_raw(json, slice_text(text)); /* the agent checks it */
    else json_string(json, text);
}

static bool given(const struct call *call, size_t i) {
    const struct http_param *param = call->params[i];
    return param->repeats             ? call->values[i].list.count > 0
           : param->type == HTTP_FLAG ? call->values[i].yes
                                      : call->values[i].text != NULL;
}

static void body_make(const struct call *call, struct buffer *body) {
    struct json_out json;
    const struct http_param *object = NULL;
    json_out_init(&json, body, false);
    json_object(&json);
    for (size_t i = call->query_count; i < call->flag_count; i++) {
        const struct http_param *param = call->params[i];
        const struct cmd_list *list = &call->values[i].list;
        if (!given(call, i)) continue;
        if (object && object != call->objects[i]) json_object_end(&json);
        if (call->objects[i] && object != call->objects[i]) {
            json_key_raw(&json, call->objects[i]->name, strlen(call->objects[i]->name));
            json_object(&json);
        }
        object = call->objects[i];
        json_key_raw(&json, param->name, strlen(param->name));
        if (param->repeats) json_array(&json);
        for (size_t j = 0; param->repeats && j < list->count; j++) value_json(&json, param, list->items[j]);
        if (param->repeats) json_array_end(&json);
        else if (param->type == HTTP_FLAG) json_bool(&json, true);
        else value_json(&json, param, call->values[i].text);
    }
    if (object) json_object_end(&json);
    json_object_end(&json);
}

static const char *method_of(const struct http_route *route) {
    return route->methods & HTTP_GET    ? "GET"
           : route->methods & HTTP_PUT  ? "PUT"
           : route->methods & HTTP_POST ? "POST"
                                        : "DELETE";
}

/* -- the answer --------------------------------------------------------------------------------------------------- */

static void value_text(struct json_object *value, struct buffer *out) {
    if (json_object_is_type(value, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(value); i++) {
            if (i) buffer_append_text(out, ", ");
            value_text(json_object_array_get_idx(value, i), out);
        }
    } else if (json_object_is_type(value, json_type_object)) {
        bool first = true;
        json_each(value, key, member) {
            (void)key;
            if (!first) buffer_append_byte(out, '/');
            first = false;
            value_text(member, out);
        }
    } else if (value) {
        buffer_append_text(out, json_object_get_string(value));
    }
}

static void cell(struct cmd_table *table, struct json_object *record, const char *command, struct slice column) {
    const char *name = arena_strndup(&arena, column.data, column.size);
    struct buffer text = {0};
    void (*special)(struct json_object *, struct buffer *) = cmd_endpoint_cell(command, name);
    struct json_object *value = NULL;
    if (special) special(record, &text);
    else if (json_object_object_get_ex(record, name, &value)) value_text(value, &text);
    else buffer_append_byte(&text, '-');
    buffer_append_byte(&text, '\0');
    cmd_cell(table, text.data);
    buffer_free(&text);
}

/* The row's columns, or the members of the first record. */
static const char *columns_of(const struct http_route *route, struct json_object *list) {
    if (route->cli.columns) return route->cli.columns;
    struct json_object *first = json_object_array_length(list) ? json_object_array_get_idx(list, 0) : NULL;
    struct buffer names = {0};
    if (json_object_is_type(first, json_type_object)) {
        json_each(first, key, value) {
            (void)value;
            buffer_printf(&names, "%s%s", names.size ? " " : "", key);
        }
    }
    const char *columns = arena_strndup(&arena, names.data, names.size);
    buffer_free(&names);
    return columns;
}

static void print_list(const struct http_route *route, struct json_object *list) {
    const char *columns = columns_of(route, list);
    struct cmd_table table = {0};
    for (size_t i = 0; i <= json_object_array_length(list); i++) {
        for (const char *at = columns; *at; at += *at == ' ') {
            struct slice column = slice_make(at, strcspn(at, " "));
            at += column.size;
            if (i) cell(&table, json_object_array_get_idx(list, i - 1), route->cli.command, column);
            else cmd_cell(&table, arena_strndup(&arena, column.data, column.size)), table.columns++;
        }
    }
    if (table.columns) cmd_table_print(&table);
}

static void print_object(struct json_object *object) {
    struct cmd_table table = {.columns = 2};
    json_each(object, key, value) {
        struct buffer text = {0};
        value_text(value, &text);
        buffer_append_byte(&text, '\0');
        cmd_cell(&table, key), cmd_cell(&table, text.data);
        buffer_free(&text);
    }
    cmd_table_print(&table);
}

static void print(const struct http_route *route, struct json_object *answer) {
    struct json_object *shown = NULL;
    struct buffer text = {0};
    if (route->cli.show && json_object_object_get_ex(answer, route->cli.show, &shown)) {
        value_text(shown, &text);
        printf("%.*s\n", (int)text.size, text.data);
    } else if (json_object_is_type(answer, json_type_array)) {
        print_list(route, answer);
    } else if (json_object_is_type(answer, json_type_object)) {
        print_object(answer);
    } else {
        puts(json_object_get_string(answer));
    }
    buffer_free(&text);
}

/* -- running it --------------------------------------------------------------------------------------------------- */

static int ask(const struct call *call, const struct slice *body) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    path_make(call, &path);
    int rv = client_want(&call->client, method_of(call->route), path.data, body, false, &answer, &fault);
    struct json_object *json = rv == CO_OK && !call->json ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    cmd_answer_print own = cmd_rollout_answer(call->route->cli.command);
    if (json && own) own(json, call->arguments);
    else if (json) print(call->route, json);
    else if (rv == CO_OK && call->json) printf("%.*s\n", (int)answer.body.size, answer.body.data);
    json_object_put(json);
    client_answer_free(&answer);
    buffer_free(&path);
    return fault.code ? cmd_failed(arena_printf(&arena, "(%s)", call->route->cli.command), &fault) : 0;
}

static int ask_with_body(struct call *call, size_t wanted) {
    struct buffer body = {0};
    struct fault fault = {0};
    bool raw = call->argument_count > wanted;
    if (raw && cmd_read_value(call->arguments[wanted], false, &body, &fault) != CO_OK) {
        buffer_free(&body);
        return cmd_failed("reading the body", &fault);
    }
    if (call->route->endpoint.body && !raw) body_make(call, &body);
    struct slice text = buffer_slice(&body);
    int code = ask(call, raw || call->route->endpoint.body ? &text : NULL);
    buffer_free(&body);
    return code;
}

static int run_route(const struct http_route *route, int argc, char **argv) {
    struct call call = {.route = route};
    const char *usage = usage_of(route);
    size_t wanted = 0;
    take_flags(&call);
    int code = take_arguments(&call, argc, argv, usage);
    if (code >= 0) return code;
    for (const char *at = route->path; *at; at++) {
        if (*at != ':' && *at != '*' && *at != '+') continue;
        struct buffer what = {0};
        append_upper(&what, at + 1, strcspn(at + 1, "/"));
        buffer_append_text(&what, " is wanted");
        const char *line = arena_strndup(&arena, what.data, what.size);
        buffer_free(&what);
        if (wanted == call.argument_count) return cmd_wrong(usage, line);
        wanted++;
    }
    bool takes_body = route->endpoint.raw || route->endpoint.body;
    if (call.argument_count > wanted + takes_body) return cmd_wrong(usage, "too many arguments");
    if (route->endpoint.raw && route->endpoint.raw->required && call.argument_count == wanted)
        return cmd_wrong(usage, arena_printf(&arena, "%s is wanted; \"\" is an empty one", route->endpoint.raw->help));
    for (size_t i = call.query_count; i < call.flag_count && call.argument_count > wanted; i++) {
        bool otherwise = call.defaults[i] && call.values[i].text == call.defaults[i];
        if (given(&call, i) && !otherwise) return cmd_wrong(usage, "flags for the body and a body do not go together");
    }
    return ask_with_body(&call, wanted);
}

static int run_command(int argc, char **argv) {
    struct rows rows = {0};
    for (const struct http_route *route; (route = rows_next(&rows));)
        if (slice_is(group_of(route), group) && strcmp(command_of(route), argv[0]) == 0)
            return run_route(route, argc, argv);
    CHECK(!"a command of the group");
    return 2;
}

static const struct cli_command *more_of(const char *name) {
    static const struct {
        const char *group;
        const struct cli_command *commands;
    } more[] = {{"election", cmd_election_commands},
                {"failover", cmd_failover_commands},
                {"quota", cmd_quota_commands},
                {"region", cmd_region_commands},
                {"rollout", cmd_rollout_commands}};
    for (size_t i = 0; i < ARRAY_COUNT(more); i++)
        if (strcmp(more[i].group, name) == 0) return more[i].commands;
    return NULL;
}

static int run_group(int argc, char **argv) {
    struct cli_command commands[COMMANDS_MOST];
    struct rows rows = {0};
    size_t count = 0;
    group = argv[0];
    for (const struct http_route *route; (route = rows_next(&rows));) {
        if (!slice_is(group_of(route), group)) continue;
        CHECK(count < COMMANDS_MOST);
        commands[count++] = (struct cli_command){command_of(route), route->summary, run_command};
    }
    for (const struct cli_command *more = more_of(group); more && more->name; more++) {
        CHECK(count < COMMANDS_MOST);
        commands[count++] = *more;
    }
    cli_sort(commands, count);
    int code = cmd_sub(commands, count, group, argc, argv);
    arena_free(&arena);
    return code;
}

size_t cmd_endpoint_groups(struct cli_command *commands, size_t most, struct arena *names) {
    struct rows rows = {0};
    size_t count = 0;
    for (const struct http_route *route; (route = rows_next(&rows));) {
        struct slice name = group_of(route);
        size_t at = 0;
        while (at < count && !slice_is(name, commands[at].name)) at++;
        if (at == count) {
            CHECK(count < most);
            commands[count++] = (struct cli_command){arena_strndup(names, name.data, name.size), NULL, run_group};
        }
        const char *before = commands[at].help, *title = rows.topic->title;
        commands[at].help =
            before ? arena_printf(names, "%s, %s", before, command_of(route))
                   : arena_printf(names, "%c%s: %s", tolower((unsigned char)title[0]), title + 1, command_of(route));
    }
    for (size_t i = 0; i < count; i++)
        for (const struct cli_command *more = more_of(commands[i].name); more && more->name; more++)
            commands[i].help = arena_printf(names, "%s, %s", commands[i].help, more->name);
    return count;
}
