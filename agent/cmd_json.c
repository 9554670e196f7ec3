#include "agent/cmd_json.h"

struct json_object *cmd_json_get(const struct client *client, const char *path, struct fault *fault) {
    struct client_answer answer = {0};
    int rv = client_want(client, "GET", path, NULL, false, &answer, fault);
    struct json_object *json = rv == CO_OK ? json_parse(buffer_slice(&answer.body), fault) : NULL;
    client_answer_free(&answer);
    return json;
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
