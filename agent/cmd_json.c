#include "agent/cmd_json.h"

#include <stdio.h>

#include "agent/cmd.h"
#include "base/text.h"

struct json_object *cmd_json_get(const struct client *client, const char *path, struct fault *fault) {
    struct client_answer answer = {0};
    int rv = client_want(client, "GET", path, NULL, false, &answer, fault);
    struct json_object *json = rv == CO_OK ? json_parse(buffer_slice(&answer.body), fault) : NULL;
    client_answer_free(&answer);
    return json;
}

struct json_object *cmd_json_given(const char *argument, struct slice text, struct fault *fault) {
    const char *why, *from = argument[0] == '@' ? argument + 1 : strcmp(argument, "-") == 0 ? "stdin" : argument;
    size_t at, line, column;
    struct json_object *json = json_parse_placed(text, &why, &at);
    if (json) return json;
    bool itself = text.size == strlen(argument) && memcmp(text.data, argument, text.size) == 0;
    text_place(text, at, &line, &column);
    if (itself) fault_set(fault, CO_INVALID, "%zu:%zu: JSON: %s", line, column, why);
    else fault_set(fault, CO_INVALID, "%.160s:%zu:%zu: JSON: %s", from, line, column, why);
    return NULL;
}

int cmd_show(const struct client *client, struct buffer *path, bool json, const char *doing,
             void (*print)(const struct client *client, struct json_object *answer)) {
    struct client_answer answer = {0};
    struct fault fault = {0};
    buffer_append_byte(path, '\0');
    int rv = client_want(client, "GET", path->data, NULL, false, &answer, &fault);
    struct json_object *object = rv == CO_OK ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (object && json) printf("%.*s\n", (int)answer.body.size, answer.body.data);
    else if (object) print(client, object);
    json_object_put(object);
    client_answer_free(&answer);
    buffer_free(path);
    return fault.code ? cmd_failed(doing, &fault) : 0;
}

int cmd_list(const struct client *client, const char *path, bool json, const char *doing,
             void (*print)(struct json_object *list)) {
    struct client_answer answer = {0};
    struct fault fault = {0};
    int rv = client_want(client, "GET", path, NULL, false, &answer, &fault);
    struct json_object *list = rv == CO_OK ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (list && !json_object_is_type(list, json_type_array)) fault_set(&fault, CO_INVALID, "the answer is not a list");
    if (!fault.code && json) printf("%.*s\n", (int)answer.body.size, answer.body.data);
    else if (!fault.code) print(list);
    if (list) json_object_put(list);
    client_answer_free(&answer);
    return fault.code ? cmd_failed(doing, &fault) : 0;
}

const char *cmd_json_text(struct json_object *object, const char *name) {
    const char *text = "";
    json_get_string(object, name, &text, NULL);
    return text;
}

uint64_t cmd_json_number(struct json_object *object, const char *name) {
    uint64_t number = 0;
    json_get_u64(object, name, UINT64_MAX, &number, NULL);
    return number;
}

size_t cmd_json_length(struct json_object *list) { return list ? json_object_array_length(list) : 0; }

void cmd_print_words(const char *before, const char *words, const char *after) {
    fputs(before, stdout);
    for (; *words; words++) putchar((unsigned char)*words < ' ' || *words == 0x7f ? '?' : *words);
    fputs(after, stdout);
}
