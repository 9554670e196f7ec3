/* coord watch; with -stream: cmd_watch_stream.c */

#include "agent/cmd.h"
#include "agent/watch.h"
#include "base/check.h"
#include "base/json_in.h"

static int complain(const char *line) {
    fprintf(stderr, "%s\n", line);
    return CMD_EXIT_MISTAKE;
}

/* The flags become a "watches" block, because those are parsed and checked in one place. */
struct flags {
    const char *type, *key, *prefix, *service, *state, *name, *passing_only;
    struct cmd_list tags;
    bool shell, stream;
};

static void put_text(struct json_object *json, const char *name, const char *value) {
    if (value) json_object_object_add(json, name, json_object_new_string(value));
}

static void put_handler(struct json_object *json, char **words, bool shell) {
    struct buffer line = {0};
    struct json_object *args = json_object_new_array();
    for (size_t i = 0; words[i]; i++) {
        json_object_array_add(args, json_object_new_string(words[i]));
        buffer_printf(&line, "%s%s", i ? " " : "", words[i]);
    }
    buffer_append_byte(&line, '\0');
    if (words[0] && shell) put_text(json, "handler", line.data);
    if (words[0] && !shell) json_object_object_add(json, "args", json_object_get(args));
    json_object_put(args);
    buffer_free(&line);
}

static struct watch *watch_of(const struct flags *flags, char **words, struct fault *fault) {
    struct json_object *json = json_object_new_object(), *tags = json_object_new_array();
    put_text(json, "type", flags->type), put_text(json, "key", flags->key), put_text(json, "prefix", flags->prefix);
    put_text(json, "service", flags->service), put_text(json, "state", flags->state),
        put_text(json, "name", flags->name);
    if (flags->passing_only)
        json_object_object_add(json, "passingonly", json_object_new_boolean(strcmp(flags->passing_only, "true") == 0));
    for (size_t i = 0; i < flags->tags.count; i++)
        json_object_array_add(tags, json_object_new_string(flags->tags.items[i]));
    if (flags->tags.count) json_object_object_add(json, "tag", json_object_get(tags));
    put_handler(json, words, flags->shell);
    struct watch *watch = watch_parse(json, false, fault);
    json_object_put(tags);
    json_object_put(json);
    return watch;
}

/* Prints the present values, indented. */
static int print_once(const struct watch *watch, const struct client *client) {
    struct buffer path = {0}, result = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    uint64_t since = 0;
    buffer_append_text(&path, watch->path);
    client_parameter(&path, "pretty", NULL);
    buffer_append_byte(&path, '\0');
    if (client_want(client, "GET", path.data, NULL, true, &answer, &fault) == CO_OK)
        watch_result(watch, &answer, &since, &result);
    bool none = slice_is(buffer_slice(&result), "null");
    struct json_object *json = result.size && !none ? json_parse(buffer_slice(&result), &fault) : NULL;
    if (fault.code == CO_OK)
        printf("%s\n", json ? json_object_to_json_string_ext(json, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
                                                                       JSON_C_TO_STRING_NOSLASHESCAPE)
                            : "null");
    if (json) json_object_put(json);
    client_answer_free(&answer);
    buffer_free(&path);
    buffer_free(&result);
    return fault.code ? cmd_failed("querying agent", &fault) : 0;
}

/* Is -stream among the flags? Then the other flags are those of a stream. */
static bool is_stream(int argc, char **argv) {
    for (int i = 1; i < argc && argv[i][0] == '-'; i++) {
        const char *name = argv[i] + 1 + (argv[i][1] == '-');
        if (strcmp(name, "stream") == 0 || strcmp(name, "stream=true") == 0) return true;
    }
    return false;
}

int cmd_watch(int argc, char **argv) {
    if (is_stream(argc, argv)) return cmd_watch_stream(argc, argv);
    static const char usage[] = "coord watch [FLAGS] [PROGRAM ...]";
    struct client client = {0};
    struct flags of = {0};
    const struct cmd_flag flags[] = {
        {"type", CMD_TEXT, &of.type, "key, keyprefix, services, nodes, service, checks or event"},
        {"key", CMD_TEXT, &of.key, "the key, for type key"},
        {"prefix", CMD_TEXT, &of.prefix, "the prefix, for type keyprefix"},
        {"service", CMD_TEXT, &of.service, "the service, for types service and checks"},
        {"tag", CMD_LIST, &of.tags, "with this tag, for type service; repeatable"},
        {"passingonly", CMD_TEXT, &of.passing_only, "true: instances whose checks pass, for type service"},
        {"state", CMD_TEXT, &of.state, "of this state, for type checks"},
        {"name", CMD_TEXT, &of.name, "of this name, for type event"},
        {"shell", CMD_BOOL, &of.shell, "the program is a line for the shell"},
        {"stream", CMD_BOOL, &of.stream, "first: an event a line, for ever; `coord watch -stream -h` tells more"}};
    char **rest;
    of.shell = true;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (of.stream) return cmd_watch_stream(argc, argv);
    if (!of.type) return complain("Watch type must be specified\n\nusage: coord watch [FLAGS] [PROGRAM ...]");
    struct fault fault = {0};
    struct watch *watch = watch_of(&of, rest, &fault);
    if (!watch) return complain(fault.text);
    if (!*rest) {
        code = print_once(watch, &client);
    } else {
        struct watch_stop *stop = watch_stop_new();
        struct buffer url = {0};
        client.address = client_address(&client);
        client_url(client.address, "", &url);
        buffer_append_byte(&url, '\0');
        bool plain = !strstr(client.address, "://") && strncmp(url.data, "http://", 7) == 0;
        if (strncmp(client.address, "unix://", 7) != 0) client.address = url.data + (plain ? 7 : 0);
        client_note_leader(&client);
        watch_run(watch, &client, stop, true, false);
        watch_stop_free(stop);
        buffer_free(&url);
        code = 0;
    }
    watch_free(watch);
    return code;
}
