/* coord login, coord logout: a token by an auth method, kept in a file. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cmd_acl.h"
#include "base/check.h"

/* Only its owner may read it. */
static int write_sink(const char *path, const char *secret, struct fault *fault) {
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write(fd, secret, strlen(secret)) == (ssize_t)strlen(secret);
    if (!written) fault_set(fault, CO_IO, "%s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return fault->code;
}

/* "key=value", several times. */
static bool set_meta(struct json_object *body, const struct cmd_list *given) {
    struct json_object *meta = json_object_new_object();
    json_object_object_add(body, "Meta", meta);
    for (size_t i = 0; i < given->count; i++) {
        const char *equals = strchr(given->items[i], '=');
        if (!equals || equals == given->items[i]) return false;
        char *key = strndup(given->items[i], (size_t)(equals - given->items[i]));
        CHECK(key);
        acl_set(meta, key, equals + 1);
        free(key);
    }
    return true;
}

static int log_in(const struct client *client, struct json_object *body, const char *sink) {
    struct client anonymous = *client;
    struct fault fault = {0};
    anonymous.token = NULL; /* whoever logs in has none, and one of before may be gone */
    struct json_object *token = acl_send(&anonymous, "POST", "/v1/acl/login", body, &fault);
    if (token) (void)write_sink(sink, cmd_json_text(token, "SecretID"), &fault);
    if (token) json_object_put(token);
    return fault.code ? cmd_failed("logging in", &fault) : 0;
}

int cmd_login(int argc, char **argv) {
    static const char usage[] = "coord login [FLAGS] -method=METHOD -token-sink-file=FILE [-bearer-token-file=FILE]";
    struct client client = {0};
    struct cmd_list meta = {0};
    const char *method = NULL, *bearer = NULL, *sink = NULL;
    const struct cmd_flag flags[] = {
        {"method", CMD_TEXT, &method, "the auth method"},
        {"bearer-token-file", CMD_TEXT, &bearer, "file with what a method of type jwt judges"},
        {"token-sink-file", CMD_TEXT, &sink, "file that the token's secret is written to"},
        {"meta", CMD_LIST, &meta, "KEY=VALUE for the token's description; may be given several times"},
    };
    char **rest;
    struct fault fault = {0};
    struct buffer shown = {0};
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code < 0)
        code = acl_checked(usage, rest, NULL, method && sink ? NULL : "-method and -token-sink-file are wanted");
    if (code >= 0) return code;
    if (bearer && cmd_read_file(bearer, &shown, &fault) != CO_OK) return cmd_failed("reading the bearer token", &fault);
    buffer_append_byte(&shown, '\0');
    shown.data[strcspn(shown.data, " \t\r\n")] = '\0';
    struct json_object *body = json_object_new_object();
    acl_set(body, "AuthMethod", method), acl_set(body, "BearerToken", bearer ? shown.data : NULL);
    explicit_bzero(shown.data, shown.size);
    buffer_free(&shown);
    if (set_meta(body, &meta)) return log_in(&client, body, sink);
    json_object_put(body);
    return cmd_wrong(usage, "-meta: KEY=VALUE is wanted");
}

int cmd_logout(int argc, char **argv) {
    static const char usage[] = "coord logout [FLAGS]";
    struct client client = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code < 0) code = acl_checked(usage, rest, NULL, NULL);
    if (code >= 0) return code;
    (void)client_want(&client, "POST", "/v1/acl/logout", NULL, false, &answer, &fault);
    client_answer_free(&answer);
    return fault.code ? cmd_failed("logging out", &fault) : 0;
}
