/* coord txn: a transaction from a file. */
#include "agent/cmd.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/json_in.h"

/* The endpoint for the content of the file; NULL and a fault: it is of neither form. */
static const char *endpoint_of(struct json_object *json, struct fault *fault) {
    static const char *const members[] = {"If", "Then", "Else", NULL};
    if (json_object_is_type(json, json_type_array)) return "/v1/txn";
    if (json_object_is_type(json, json_type_object)) json_only_known(json, members, fault);
    else fault_set(fault, CO_INVALID, "a list of operations is wanted, or an object with If, Then and Else");
    return fault->code ? NULL : "/v1/txn/if";
}

static void print_errors(struct json_object *answer) {
    struct fault fault = {0};
    struct json_object *errors = json_get_array(answer, "Errors", &fault);
    for (size_t i = 0; errors && i < json_object_array_length(errors); i++) {
        struct json_object *error = json_object_array_get_idx(errors, i);
        uint64_t number = 0;
        const char *what = "";
        json_get_u64(error, "OpIndex", UINT64_MAX, &number, &fault);
        json_get_string(error, "What", &what, &fault);
        fprintf(stderr, "operation %llu: %s\n", (unsigned long long)number, what);
    }
}

/* Returns 0 when the transaction was applied; else as enum cmd_exit. */
static int judge(const struct client_answer *answer) {
    struct slice body = buffer_slice(&answer->body);
    struct fault fault = {0};
    if (answer->status == 200) {
        fwrite(body.data, 1, body.size, stdout);
        putchar('\n');
        return 0;
    }
    struct json_object *json = answer->status == 409 ? json_parse(body, &fault) : NULL;
    if (json) {
        print_errors(json);
        json_object_put(json);
        return 1;
    }
    fprintf(stderr, "Error: %ld: %.*s\n", answer->status, (int)body.size, body.data ? body.data : "");
    return cmd_exit_of(&(struct fault){.code = client_answer_code(answer)});
}

static int submit(const struct client *client, const char *endpoint, struct slice body) {
    struct client_answer answer = {0};
    struct fault fault = {0};
    int rv = client_ask(client, "PUT", endpoint, &body, NULL, NULL, &answer, &fault);
    int code = rv == CO_OK ? judge(&answer) : cmd_failed("sending the transaction", &fault);
    client_answer_free(&answer);
    return code;
}

int cmd_txn(int argc, char **argv) {
    static const char usage[] = "coord txn [FLAGS] FILE";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1]) return cmd_wrong(usage, "one FILE is wanted, or - for stdin");
    struct buffer text = {0};
    struct fault fault = {0};
    struct json_object *json = NULL;
    if (cmd_read_file(rest[0], &text, &fault) == CO_OK) json = cmd_json_given(rest[0], buffer_slice(&text), &fault);
    const char *endpoint = json ? endpoint_of(json, &fault) : NULL;
    if (json) json_object_put(json);
    if (endpoint) code = submit(&client, endpoint, buffer_slice(&text));
    else cmd_failed("reading the transaction", &fault), code = 2;
    buffer_free(&text);
    return code;
}
