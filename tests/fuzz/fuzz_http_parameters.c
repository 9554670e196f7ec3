/* Any text as a request: request line, headers, an empty line, a body. Asked three times: written, written again and
 * kept, from ready bytes; and once more as a URL: the answer is the same. The values of its parameters go through the
 * formats of base/text.h and back. */
#include <stdlib.h>

#include "base/text.h"
#include "http/declared.h"
#include "tests/fuzz/still_web.h"

#define HEADERS_MOST 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- text formats: what is read and written again means the same ---- */

static void check_duration(struct slice text) {
    int64_t value, again;
    int error = duration_parse(text, &value);
    CHECK(error == CO_OK || error == CO_INVALID || error == CO_TOOLARGE);
    if (error) return;
    struct buffer written = {0};
    duration_format(&written, value);
    CHECK(duration_parse(buffer_slice(&written), &again) == CO_OK && again == value);
    buffer_free(&written);
}

static void check_number(struct slice text) {
    uint64_t value;
    int error = u64_parse(text, UINT64_MAX, &value);
    CHECK(error == CO_OK || error == CO_INVALID || error == CO_TOOLARGE);
    if (error) return;
    while (text.size > 1 && text.data[0] == '0') text = slice_make(text.data + 1, text.size - 1);
    struct buffer written = {0};
    buffer_append_u64(&written, value);
    CHECK(slice_equal(buffer_slice(&written), text));
    uint64_t within;
    CHECK(u64_parse(text, value, &within) == CO_OK && within == value);
    CHECK(value == 0 || u64_parse(text, value - 1, &within) == CO_TOOLARGE);
    buffer_free(&written);
}

static void check_base64(struct slice text) {
    struct buffer bytes = {0}, written = {0};
    if (base64_decode(&bytes, text) == CO_OK) {
        base64_encode(&written, bytes.data, bytes.size);
        CHECK(slice_equal(buffer_slice(&written), text));
    } else {
        CHECK(bytes.size == 0);
    }
    buffer_reset(&bytes);
    buffer_reset(&written);
    base64_encode(&written, text.data, text.size);
    CHECK(base64_decode(&bytes, buffer_slice(&written)) == CO_OK && slice_equal(buffer_slice(&bytes), text));
    buffer_free(&bytes);
    buffer_free(&written);
}

static void check_utf8(struct slice text) {
    size_t at = 0;
    for (size_t step; (step = utf8_next(slice_make(text.data + at, text.size - at))) > 0; at += step) CHECK(step <= 4);
    CHECK(utf8_valid(text) == (at == text.size));
}

static void check_text(struct slice text) {
    CHECK(text.data && text.data[text.size] == '\0' && strlen(text.data) == text.size);
    check_duration(text);
    check_number(text);
    check_base64(text);
    check_utf8(text);
    CHECK(!uuid_valid(text) || text.size == UUID_TEXT_SIZE);
    CHECK(edit_distance(text, text) == 0);
}

static void check_parsed(struct http_request *request) {
    size_t bytes = 0;
    for (unsigned i = 0; i < request->parameter_count; i++) {
        const struct parameter *parameter = &request->parameters[i];
        check_text(parameter->name);
        check_text(parameter->value);
        CHECK(parameter->has_value || parameter->value.size == 0);
        if (!request->route || declared_find(request->route->params, parameter->name)) /* handlers ask for no others */
            CHECK(http_has(request, parameter->name.data) && http_parameter(request, parameter->name.data).data);
        bytes += parameter->name.size + parameter->value.size;
    }
    CHECK(bytes <= request->target.size);
    CHECK(slice_starts(request->target, request->path) && request->key.size <= request->target.size);
    for (unsigned i = 0; i < request->value_count; i++) { check_text(request->values[i].value); }
}

/* ---- the request ---- */

static struct slice take_line(struct slice *text) {
    const char *end = text->size ? memchr(text->data, '\n', text->size) : NULL;
    size_t size = end ? (size_t)(end - text->data) : text->size;
    struct slice line = slice_make(text->data, size);
    *text = slice_make(text->data + size + (end != NULL), text->size - size - (end != NULL));
    if (line.size && line.data[line.size - 1] == '\r') line.size--;
    return line;
}

static struct slice trim(struct slice text) {
    while (text.size && (text.data[0] == ' ' || text.data[0] == '\t')) text = slice_make(text.data + 1, text.size - 1);
    while (text.size && (text.data[text.size - 1] == ' ' || text.data[text.size - 1] == '\t')) text.size--;
    return text;
}

/* "METHOD TARGET VERSION": the method ends at the first blank, the version begins behind the last one. */
static bool take_request_line(struct slice line, struct still_request *request) {
    const char *first = line.size ? memchr(line.data, ' ', line.size) : NULL;
    const char *last = line.size ? memrchr(line.data, ' ', line.size) : NULL;
    if (!first || first == last || first == line.data) return false;
    request->method = slice_make(line.data, (size_t)(first - line.data));
    request->target = slice_make(first + 1, (size_t)(last - first - 1));
    request->old_version = slice_is(slice_make(last + 1, (size_t)(line.data + line.size - last - 1)), "HTTP/1.0");
    return !memchr(request->method.data, '\0', request->method.size);
}

static bool take_header(struct slice line, struct still_header *header) {
    const char *colon = memchr(line.data, ':', line.size);
    if (!colon || memchr(line.data, '\0', line.size)) return false;
    header->name = slice_make(line.data, (size_t)(colon - line.data));
    header->value = trim(slice_make(colon + 1, line.size - header->name.size - 1));
    return true;
}

static void ask_again(const struct still_request *request, const struct still_reply *first, struct slice body) {
    struct still_reply again = still_ask(request);
    CHECK(again.status == first->status && again.is_read == first->is_read && again.index == first->index);
    if (first->is_read) CHECK(slice_equal(again.body, body));
}

static void ask(struct still_request *request) {
    struct still_reply first = still_ask(request);
    struct buffer body = {0}, url = {0};
    buffer_append(&body, first.body.data, first.body.size);
    request->parsed = NULL;
    for (int i = 0; i < 2; i++, request->shared_rounds = true) ask_again(request, &first, buffer_slice(&body));
    if (slice_starts(request->target, SLICE_LITERAL("/"))) {
        struct still_request as_url = *request;
        buffer_append_text(&url, "HTTP://u@[::1]:8500");
        buffer_append(&url, request->target.data, request->target.size);
        as_url.target = buffer_slice(&url);
        ask_again(&as_url, &first, buffer_slice(&body));
    }
    buffer_free(&url);
    buffer_free(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice text = slice_make(data, size), line;
    struct still_header headers[HEADERS_MOST];
    struct still_request request = {.headers = headers, .parsed = check_parsed};
    if (!take_request_line(take_line(&text), &request)) return 0;
    while (request.header_count < HEADERS_MOST && (line = take_line(&text)).size) {
        if (!take_header(line, &headers[request.header_count++])) return 0;
    }
    request.body = text;
    ask(&request);
    return 0;
}
