/* Lines of the audit log: their escapes, and that no secret is in them; ids of requests. */
#include <criterion/criterion.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "http/audit_line.h"

#define SECRET "11111111-aaaa-4bbb-8ccc-222222222222"

static struct buffer out;
static void done(void) { buffer_free(&out); }
TestSuite(audit_line, .fini = done);

static struct audit_line plain(const char *target) {
    return (struct audit_line){.unix_ms = 1700000000123,
                               .kind = "write",
                               .id = "id-1",
                               .accessor = "acc",
                               .token = "web",
                               .slot = "request",
                               .certificate = "",
                               .address = "10.0.0.1:1",
                               .method = "PUT",
                               .target = slice_text(target),
                               .secret = SLICE_LITERAL(SECRET),
                               .status = 200};
}

static const char *written(const struct audit_line *line) {
    buffer_reset(&out);
    audit_line_write(&out, line);
    buffer_append_byte(&out, '\0');
    return out.data;
}

/* Of the line's path. */
static const char *path_of(struct slice target, struct slice secret) {
    static char path[3 * AUDIT_TARGET_MAX];
    struct audit_line line = plain("");
    line.target = target, line.secret = secret;
    struct json_object *json = json_tokener_parse(written(&line));
    cr_assert_not_null(json, "%s", out.data);
    snprintf(path, sizeof path, "%s", json_object_get_string(json_object_object_get(json, "path")));
    json_object_put(json);
    return path;
}

Test(audit_line, a_line_has_what_is_known) {
    struct audit_line line = plain("/v1/kv/a");
    cr_expect_str_eq(written(&line),
                     "{\"time\":\"2023-11-14T22:13:20.123Z\",\"kind\":\"write\",\"request_id\":\"id-1\","
                     "\"accessor\":\"acc\",\"token\":\"web\",\"slot\":\"request\",\"address\":\"10.0.0.1:1\","
                     "\"method\":\"PUT\",\"path\":\"/v1/kv/a\",\"status\":200}\n");
    line.certificate = "h9", line.denied = "lacks key:write on \"a\nb\"", line.subject = "s", line.index = 12;
    cr_expect_str_eq(written(&line),
                     "{\"time\":\"2023-11-14T22:13:20.123Z\",\"kind\":\"write\",\"request_id\":\"id-1\","
                     "\"accessor\":\"acc\",\"token\":\"web\",\"slot\":\"request\",\"certificate\":\"h9\","
                     "\"address\":\"10.0.0.1:1\",\"method\":\"PUT\",\"path\":\"/v1/kv/a\",\"status\":200,"
                     "\"denied\":\"lacks key:write on \\\"a\\nb\\\"\",\"subject\":\"s\",\"index\":12}\n");
}

Test(audit_line, secrets_in_targets_are_hidden) {
    static const char *const rows[][2] = {
        {"/v1/kv/a?token=" SECRET, "/v1/kv/a?token=<hidden>"},
        {"/v1/kv/a?flags=1&token=another&cas=2", "/v1/kv/a?flags=1&token=<hidden>&cas=2"},
        {"/v1/kv/a?tok%65n=another", "/v1/kv/a?token=<hidden>"},
        {"/v1/kv/a?TOKEN=another&token=%31", "/v1/kv/a?token=<hidden>&token=<hidden>"},
        {"/v1/kv/a?token", "/v1/kv/a?token"},
        {"/v1/kv/a?tokens=3", "/v1/kv/a?tokens=3"},
        {"/v1/kv/a?&&x", "/v1/kv/a?&&x"},
        {"/v1/kv/" SECRET "?x=1", "/<hidden>?x=1"},
        {"/v1/kv/11111111%2Daaaa-4bbb-8ccc-222222222222", "/<hidden>"},
        {"/v1/kv/a?x=11111111-aaaa-4bbb-8ccc-22222222222%32&y", "/v1/kv/a?<hidden>&y"},
        {"/v1/kv/%zz" SECRET, "/<hidden>"},
        {"/v1/acl/info/another", "/v1/acl/info/<hidden>"},
        {"/v1/%61cl/destroy/another", "/v1/acl/destroy/<hidden>"},
        {"/v1/acl/clone/another?x", "/v1/acl/clone/<hidden>?x"},
        {"http://user:another@host/v1/kv/a", ""},
        {"*", ""},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const char *path = path_of(slice_text(rows[i][0]), SLICE_LITERAL(SECRET));
        cr_expect_str_eq(path, rows[i][1], "%s: %s", rows[i][0], path);
    }
    cr_expect_str_eq(path_of(SLICE_LITERAL("/v1/kv/abc"), SLICE_LITERAL("abc")), "/v1/kv/abc", "too short to be one");
}

Test(audit_line, every_byte_of_a_path_is_seen_and_breaks_no_line) {
    for (int byte = 1; byte < 256; byte++) {
        if (byte == '?') continue;
        char target[] = "/v1/kv/x", wanted[16];
        target[7] = (char)byte;
        snprintf(wanted, sizeof wanted, byte > ' ' && byte < 0x7f ? "/v1/kv/%c" : "/v1/kv/%%%02X", byte);
        cr_expect_str_eq(path_of(slice_make(target, 8), (struct slice){0}), wanted);
        cr_expect_eq(strchr(out.data, '\n'), out.data + out.size - 2, "one line feed, at the end");
    }
}

Test(audit_line, long_targets_are_cut) {
    static char target[AUDIT_TARGET_MAX * 2];
    memset(target, 'a', sizeof target);
    target[0] = '/';
    const char *path = path_of(slice_make(target, sizeof target), (struct slice){0});
    cr_expect_eq(strlen(path), (size_t)AUDIT_TARGET_MAX + 3);
    cr_expect_lt(audit_line_estimate(slice_make(target, sizeof target)), 3u * AUDIT_TARGET_MAX);
}

Test(audit_line, ids_of_clients_are_taken_when_they_are_well_formed) {
    static const struct {
        const char *id;
        bool valid;
    } rows[] = {{"a", true},    {"Az09._-", true},   {"", false},     {"a b", false},       {"a\n", false},
                {"a/b", false}, {"\xc3\xa7", false}, {SECRET, false}, {"x-" SECRET, false}, {"11111111-aaaa", true}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        cr_expect_eq(audit_id_valid(slice_text(rows[i].id), SLICE_LITERAL(SECRET)), rows[i].valid, "%s", rows[i].id);
    char id[AUDIT_ID_MAX + 2];
    memset(id, 'a', sizeof id);
    cr_expect(audit_id_valid(slice_make(id, AUDIT_ID_MAX), (struct slice){0}));
    cr_expect_not(audit_id_valid(slice_make(id, AUDIT_ID_MAX + 1), (struct slice){0}));
    struct rng rng;
    char one[AUDIT_ID_MAX + 1], two[AUDIT_ID_MAX + 1];
    rng_seed(&rng, 1);
    audit_id_draw(&rng, one), audit_id_draw(&rng, two);
    cr_expect(strlen(one) == 16 && strlen(two) == 16 && strcmp(one, two) != 0 && strspn(one, "0123456789abcdef") == 16);
}
