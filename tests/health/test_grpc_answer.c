/* The meaning of answers to grpc.health.v1.Health/Check. The texts are those that Consul 1.8.7 gave for the same
 * bytes. */
#include <criterion/criterion.h>

#include "base/check.h"
#include "health/grpc_answer.h"

#define MESSAGE "\0\0\0\0\2\10\1"

struct row {
    const char *status, *content_type, *grpc_status, *grpc_message; /* NULL: not there */
    const char *body;
    size_t size;
    bool serves;
    const char *says;
};

#define BODY(text) (text), sizeof(text) - 1
static const struct row rows[] = {
    {"200", "application/grpc", "0", NULL, BODY(MESSAGE), true, "gRPC check h:1/s: success"},
    {"200", "application/grpc+proto", "0", "", BODY(MESSAGE "\22\3abc"), false,
     "rpc error: code = Unknown desc = grpc: client streaming protocol violation: get <nil>, want <EOF>"},
    {"200", "application/grpc", "0", NULL, BODY("\0\0\0\0\7\10\1\22\3abc"), true, "gRPC check h:1/s: success"},
    {"200", "application/grpc", "0", NULL, BODY("\0\0\0\0\2\10\2"), false, "gRPC h:1/s serving status: NOT_SERVING"},
    {"200", "application/grpc", "0", NULL, BODY("\0\0\0\0\0"), false, "gRPC h:1/s serving status: UNKNOWN"},
    {"200", "application/grpc", "0", NULL, BODY("\0\0\0\0\2\10\3"), false,
     "gRPC h:1/s serving status: SERVICE_UNKNOWN"},
    {"200", "application/grpc", "0", NULL, BODY("\0\0\0\0\2\10\11"), false, "gRPC h:1/s serving status: 9"},
    {"200", "application/grpc", "0", NULL, BODY("\0\0\0\0\1\10"), false,
     "rpc error: code = Internal desc = grpc: failed to unmarshal the received message unexpected EOF"},
    {"200", "application/grpc", "5", "unknown service", BODY(""), false,
     "rpc error: code = NotFound desc = unknown service"},
    {"200", "application/grpc", "7", "no%20%C3%A9 way%0Ax", BODY(""), false,
     "rpc error: code = PermissionDenied desc = no \xc3\xa9 way?x"},
    {"200", "application/grpc", "99", "a%20b%zz%", BODY(""), false, "rpc error: code = Code(99) desc = a b%zz%"},
    {"200", "application/grpc", "x", NULL, BODY(MESSAGE), false,
     "rpc error: code = Internal desc = transport: malformed grpc-status: \"x\""},
    {"200", "application/grpc", "-1", NULL, BODY(MESSAGE), false,
     "rpc error: code = Internal desc = transport: malformed grpc-status: \"-1\""},
    {"200", "application/grpc", NULL, NULL, BODY(MESSAGE), false,
     "rpc error: code = Internal desc = server closed the stream without sending trailers"},
    {"200", "application/grpc", "0", NULL, BODY(""), false, "EOF"},
    {"200", "application/grpc", "0", NULL, BODY("\0\0\0\0"), false, "rpc error: code = Internal desc = unexpected EOF"},
    {"200", "application/grpc", "0", NULL, BODY("\0\0\0\0\3\10\1"), false,
     "rpc error: code = Internal desc = unexpected EOF"},
    {"200", "application/grpc", "0", NULL, BODY("\1\0\0\0\2\10\1"), false,
     "rpc error: code = Internal desc = grpc: compressed flag set with identity or empty encoding"},
    {"200", "application/grpc", NULL, NULL, BODY("\0\177\377\377\377"), false,
     "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (2147483647 vs. 4096)"},
    {"200", "application/grpc", "0", NULL, BODY(MESSAGE MESSAGE), false,
     "rpc error: code = Unknown desc = grpc: client streaming protocol violation: get <nil>, want <EOF>"},
    {"200", NULL, "0", NULL, BODY(MESSAGE), false,
     "rpc error: code = Unknown desc = OK: HTTP status code 200; transport: missing content-type field"},
    {"200", "application/grpcx", "0", NULL, BODY(MESSAGE), false,
     "rpc error: code = Unknown desc = OK: HTTP status code 200; transport: received the unexpected content-type "
     "\"application/grpcx\""},
    {"404", "text/html", NULL, NULL, BODY(""), false,
     "rpc error: code = Unimplemented desc = Not Found: HTTP status code 404; transport: received the unexpected "
     "content-type \"text/html\""},
    {"503", NULL, NULL, NULL, BODY(""), false,
     "rpc error: code = Unavailable desc = Service Unavailable: HTTP status code 503; transport: missing content-type "
     "field"},
    {NULL, NULL, NULL, NULL, BODY(""), false,
     "rpc error: code = Unknown desc = : HTTP status code 0; transport: missing content-type field"},
};

static void give(struct grpc_answer *answer, const char *name, const char *value) {
    if (value) grpc_answer_header(answer, slice_text(name), slice_text(value));
}

Test(grpc_answer, rows) {
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        struct grpc_answer answer = {0};
        struct buffer text = {0};
        give(&answer, ":status", row->status);
        give(&answer, "content-type", row->content_type);
        for (size_t at = 0; at < row->size; at++) grpc_answer_data(&answer, slice_make(row->body + at, 1));
        give(&answer, "grpc-status", row->grpc_status);
        give(&answer, "grpc-message", row->grpc_message);
        bool serves = grpc_answer_judge(&answer, "h:1/s", &text);
        cr_assert(slice_is(buffer_slice(&text), row->says), "row %zu: %.*s", i, (int)text.size, text.data);
        cr_assert_eq(serves, row->serves);
        buffer_free(&text);
    }
}

/* A flood is kept up to a bound, and need not end to be judged. */
Test(grpc_answer, more_than_it_may) {
    struct grpc_answer answer = {0};
    struct buffer text = {0};
    char block[1000] = {0};
    give(&answer, ":status", "200");
    give(&answer, "content-type", "application/grpc");
    grpc_answer_data(&answer, slice_make(MESSAGE, 7));
    cr_assert_not(grpc_answer_is_hopeless(&answer));
    for (int i = 0; i < 10; i++) grpc_answer_data(&answer, slice_make(block, sizeof block));
    cr_assert(grpc_answer_is_hopeless(&answer));
    cr_assert_eq(answer.body_size, sizeof answer.body);
    cr_assert_not(grpc_answer_judge(&answer, "h:1", &text));
    buffer_free(&text);
}

Test(grpc_answer, a_long_message_is_cut_between_characters) {
    struct grpc_answer answer = {0};
    struct buffer value = {0};
    for (int i = 0; i < 1000; i++) buffer_append_text(&value, i ? "\xc3\xa9" : "x");
    grpc_answer_header(&answer, slice_text("grpc-message"), buffer_slice(&value));
    cr_assert_eq(strlen(answer.message), GRPC_TEXT_MOST - 1);
    buffer_free(&value);
}
