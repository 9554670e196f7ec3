#include "health/grpc_answer.h"

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "health/grpc_health.pb-c.h"

static const char *const code_names[] = {
    "OK",       "Canceled",        "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists",   "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "OutOfRange",      "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unauthenticated",
};

void grpc_error_begin(struct buffer *text, uint32_t code) {
    if (code < ARRAY_COUNT(code_names)) {
        buffer_printf(text, "rpc error: code = %s desc = ", code_names[code]);
    } else {
        buffer_printf(text, "rpc error: code = Code(%u) desc = ", code);
    }
}

/* Error codes: RFC 9113, section 7; what they mean: PROTOCOL-HTTP2.md, "Errors". */
uint32_t grpc_code_of_reset(uint32_t error_code) {
    switch (error_code) {
        case 0x3: return GRPC_RESOURCE_EXHAUSTED; /* FLOW_CONTROL_ERROR */
        case 0x7: return GRPC_UNAVAILABLE;        /* REFUSED_STREAM */
        case 0x8: return GRPC_CANCELLED;          /* CANCEL */
        case 0xb: return GRPC_RESOURCE_EXHAUSTED; /* ENHANCE_YOUR_CALM */
        case 0xc: return GRPC_PERMISSION_DENIED;  /* INADEQUATE_SECURITY */
        default: return GRPC_INTERNAL;
    }
}

/* -- taking in ---------------------------------------------------------------------------------------------------- */

/* Cut to what fits; one line, no control characters. */
static void keep(char *to, size_t size, struct slice text) {
    size_t kept = text.size < size - 1 ? text.size : size - 1;
    if (kept > 0) memcpy(to, text.data, kept);
    to[kept] = '\0';
    for (size_t i = 0; i < kept; i++) {
        if ((unsigned char)to[i] < ' ' || to[i] == 0x7f) to[i] = '?';
    }
}

static int hex(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

/* Percent-encoded; what does not decode stays as it is. No more of it is read than can be kept. */
static void keep_message(struct grpc_answer *answer, struct slice value) {
    char decoded[GRPC_TEXT_MOST];
    size_t size = 0;
    for (size_t i = 0; i < value.size && size < sizeof decoded; i++) {
        int high = i + 2 < value.size ? hex(value.data[i + 1]) : -1;
        int low = i + 2 < value.size ? hex(value.data[i + 2]) : -1;
        bool escape = value.data[i] == '%' && high >= 0 && low >= 0;
        decoded[size++] = escape ? (char)(high * 16 + low) : value.data[i];
        if (escape) i += 2;
    }
    size_t valid = 0; /* the output is text: cut before what is not UTF-8 */
    for (size_t next; (next = utf8_next(slice_make(decoded + valid, size - valid))) > 0;) valid += next;
    keep(answer->message, sizeof answer->message, slice_make(decoded, valid));
}

void grpc_answer_header(struct grpc_answer *answer, struct slice name, struct slice value) {
    uint64_t number = 0;
    if (slice_is(name, ":status")) {
        answer->http_status = u64_parse(value, 999, &number) == CO_OK ? (unsigned)number : 0;
    } else if (slice_is(name, "content-type")) {
        struct slice wanted = SLICE_LITERAL("application/grpc");
        answer->has_content_type = true;
        answer->is_grpc =
            slice_starts(value, wanted) && (value.size == wanted.size || strchr("+;", value.data[wanted.size]) != NULL);
        keep(answer->content_type, sizeof answer->content_type, value);
    } else if (slice_is(name, "grpc-status")) {
        answer->has_status = true;
        answer->bad_status = u64_parse(value, INT32_MAX, &number) != CO_OK;
        answer->status = (uint32_t)number;
        keep(answer->status_text, sizeof answer->status_text, value);
    } else if (slice_is(name, "grpc-message")) {
        keep_message(answer, value);
    }
}

void grpc_answer_data(struct grpc_answer *answer, struct slice bytes) {
    size_t room = sizeof answer->body - answer->body_size;
    size_t kept = bytes.size < room ? bytes.size : room;
    if (kept > 0) memcpy(answer->body + answer->body_size, bytes.data, kept);
    answer->body_size += kept;
    if (kept < bytes.size) answer->overflow = true;
}

/* -- judging ------------------------------------------------------------------------------------------------------ */

static uint32_t message_size(const struct grpc_answer *answer) { return get_be32(answer->body + 1); }

static bool has_prefix(const struct grpc_answer *answer) { return answer->body_size >= GRPC_PREFIX_SIZE; }

bool grpc_answer_is_hopeless(const struct grpc_answer *answer) {
    return answer->overflow || (has_prefix(answer) && message_size(answer) > GRPC_MESSAGE_MOST);
}

static const struct {
    unsigned status;
    uint32_t code;
    const char *text;
} http_statuses[] = {
    /* The codes: "HTTP to gRPC Status Code Mapping" of gRPC. */
    {200, GRPC_UNKNOWN, "OK"},
    {400, GRPC_INTERNAL, "Bad Request"},
    {401, GRPC_UNAUTHENTICATED, "Unauthorized"},
    {403, GRPC_PERMISSION_DENIED, "Forbidden"},
    {404, GRPC_UNIMPLEMENTED, "Not Found"},
    {429, GRPC_UNAVAILABLE, "Too Many Requests"},
    {500, GRPC_UNKNOWN, "Internal Server Error"},
    {502, GRPC_UNAVAILABLE, "Bad Gateway"},
    {503, GRPC_UNAVAILABLE, "Service Unavailable"},
    {504, GRPC_UNAVAILABLE, "Gateway Timeout"},
};

/* The head is not that of a gRPC server. */
static void judge_head(const struct grpc_answer *answer, struct buffer *text) {
    uint32_t code = GRPC_UNKNOWN;
    const char *status = "";
    for (size_t i = 0; i < ARRAY_COUNT(http_statuses); i++) {
        if (http_statuses[i].status != answer->http_status) continue;
        code = http_statuses[i].code;
        status = http_statuses[i].text;
    }
    grpc_error_begin(text, code);
    buffer_printf(text, "%s: HTTP status code %u; transport: ", status, answer->http_status);
    if (!answer->has_content_type) {
        buffer_append_text(text, "missing content-type field");
    } else {
        buffer_printf(text, "received the unexpected content-type \"%s\"", answer->content_type);
    }
}

static bool fail(struct buffer *text, uint32_t code, const char *why) {
    grpc_error_begin(text, code);
    buffer_append_text(text, why);
    return false;
}

static bool judge_message(const struct grpc_answer *answer, const char *target, struct buffer *text) {
    static const char *const names[] = {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
    struct arena arena = {0};
    ProtobufCAllocator allocator = ARENA_PROTOBUF(&arena);
    const Pb__GrpcHealthReply *reply =
        pb__grpc_health_reply__unpack(&allocator, message_size(answer), answer->body + GRPC_PREFIX_SIZE);
    bool decodes = reply != NULL;
    int status = reply ? (int)reply->status : 0;
    arena_free(&arena);
    if (!decodes) return fail(text, GRPC_INTERNAL, "grpc: failed to unmarshal the received message unexpected EOF");
    if (status == PB__GRPC_HEALTH_REPLY__SERVING__SERVING) {
        buffer_printf(text, "gRPC check %.255s: success", target);
        return true;
    }
    buffer_printf(text, "gRPC %.255s serving status: ", target);
    if (status >= 0 && (size_t)status < ARRAY_COUNT(names)) {
        buffer_append_text(text, names[status]);
    } else {
        buffer_printf(text, "%d", status);
    }
    return false;
}

/* The body: exactly one message. */
static bool judge_body(const struct grpc_answer *answer, const char *target, struct buffer *text) {
    if (answer->body_size == 0) {
        buffer_append_text(text, "EOF");
        return false;
    }
    if (!has_prefix(answer)) return fail(text, GRPC_INTERNAL, "unexpected EOF");
    if (message_size(answer) > GRPC_MESSAGE_MOST) {
        grpc_error_begin(text, GRPC_RESOURCE_EXHAUSTED);
        buffer_printf(text, "grpc: received message larger than max (%u vs. %u)", message_size(answer),
                      GRPC_MESSAGE_MOST);
        return false;
    }
    if (answer->body[0] != 0) /* we have not said that we could read it compressed */
        return fail(text, GRPC_INTERNAL, "grpc: compressed flag set with identity or empty encoding");
    size_t whole = GRPC_PREFIX_SIZE + (size_t)message_size(answer);
    if (answer->body_size < whole) return fail(text, GRPC_INTERNAL, "unexpected EOF");
    if (answer->body_size > whole || answer->overflow)
        return fail(text, GRPC_UNKNOWN, "grpc: client streaming protocol violation: get <nil>, want <EOF>");
    return judge_message(answer, target, text);
}

bool grpc_answer_judge(const struct grpc_answer *answer, const char *target, struct buffer *text) {
    if (answer->http_status != 200 || !answer->is_grpc) {
        judge_head(answer, text);
        return false;
    }
    if (grpc_answer_is_hopeless(answer)) return judge_body(answer, target, text);
    if (!answer->has_status) return fail(text, GRPC_INTERNAL, "server closed the stream without sending trailers");
    if (answer->bad_status) {
        grpc_error_begin(text, GRPC_INTERNAL);
        buffer_printf(text, "transport: malformed grpc-status: \"%s\"", answer->status_text);
        return false;
    }
    if (answer->status != GRPC_OK) return fail(text, answer->status, answer->message);
    return judge_body(answer, target, text);
}
