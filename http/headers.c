/* Reads the headers of a request, and refuses malformed ones. */
#include <string.h>

#include "base/text.h"
#include "http/impl.h"

/* ---- characters ---- */

/* Of RFC 9110: 5.6.2 for names, 5.5 for values. */
enum { IN_NAME = 1, IN_VALUE = 2, IN_BOTH = 3 };
static const uint8_t places[256] = {
    ['\t'] = IN_VALUE,        [' '] = IN_VALUE,         ['!'] = IN_BOTH,         ['"'] = IN_VALUE,
    ['#' ... '\''] = IN_BOTH, ['(' ... ')'] = IN_VALUE, ['*' ... '+'] = IN_BOTH, [','] = IN_VALUE,
    ['-' ... '.'] = IN_BOTH,  ['/'] = IN_VALUE,         ['0' ... '9'] = IN_BOTH, [':' ... '@'] = IN_VALUE,
    ['A' ... 'Z'] = IN_BOTH,  ['[' ... ']'] = IN_VALUE, ['^' ... 'z'] = IN_BOTH, ['{'] = IN_VALUE,
    ['|'] = IN_BOTH,          ['}'] = IN_VALUE,         ['~'] = IN_BOTH,         [0x80 ... 0xff] = IN_VALUE,
};

static bool all_in(const char *text, size_t size, unsigned place) {
    for (size_t i = 0; i < size; i++) place &= places[(unsigned char)text[i]];
    return place != 0;
}

/* ---- single headers ---- */

static bool name_is(const char *key, const char *lower, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if ((key[i] | 0x20) != lower[i]) return false;
    }
    return true;
}
#define NAME_IS(literal) name_is(key, literal, sizeof(literal) - 1)

/* "gzip" among the codings, and not with q=0. */
static bool takes_gzip(const char *value, size_t size) {
    const char *end = value + size;
    while (value < end) {
        const char *comma = memchr(value, ',', (size_t)(end - value)), *stop = comma ? comma : end;
        while (value < stop && (*value == ' ' || *value == '\t')) value++;
        size_t left = (size_t)(stop - value);
        if (left >= 4 && name_is(value, "gzip", 4) && (left == 4 || value[4] == ';' || value[4] == ' ')) {
            const char *q = memmem(value, left, "q=", 2);
            if (!q) return true;
            for (q += 2; q < stop && (*q == '0' || *q == '.'); q++) continue;
            return q < stop && *q >= '1' && *q <= '9';
        }
        value = comma ? comma + 1 : end;
    }
    return false;
}

/* libmicrohttpd 0.9 passes headers as strings, so bytes after a NUL are missing. But the headers lie in its buffer as
 * they came, line after line, so the missing bytes leave a gap, which is refused. (Folded lines lie elsewhere, and are
 * refused too.) 1.0 refuses both itself. */
static void follow_lines(struct http_request *request, const char *key, const char *value, size_t value_size) {
    ptrdiff_t gap = key - request->line_end;
    if (!request->line_break && (gap == 1 || gap == 2)) request->line_break = (uint8_t)gap;
    if (gap != request->line_break) request->bad_lines = true;
    request->line_end = value + value_size;
}

/* After the last header only its line break and the empty line may follow. */
static void follow_end(struct http_request *request) {
    if (!request->line_break) return;
    const char *end = request->method_text + request->head_size;
    if (end - request->line_end != 2 * request->line_break) request->bad_lines = true;
}

static enum MHD_Result on_header(void *data, enum MHD_ValueKind kind, const char *key, size_t key_size,
                                 const char *value, size_t value_size) {
    struct http_request *request = data;
    (void)kind;
    if (request->line_end) {
        follow_lines(request, key, value, value_size);
    } else if (value_size && memchr(value, 0, value_size)) {
        request->bad_lines = true;
    }
    if (!key_size || !all_in(key, key_size, IN_NAME)) {
        request->bad_name = true; /* "Content-Length : 5" is a header to some and none to others */
        return MHD_YES;
    }
    if (!all_in(value, value_size, IN_VALUE)) request->bad_value = true;
    switch (key_size) {
        case 4:
            if (!NAME_IS("host")) break;
            request->hosts += request->hosts < 2;
            if (value_size && !authority_valid(slice_make(value, value_size))) request->bad_host = true;
            break;
        case 6:
            if (NAME_IS("expect")) request->expects = value_size == 12 && name_is(value, "100-continue", 12);
            break;
        case 13:
            if (NAME_IS("authorization") && value_size > 7 && name_is(value, "bearer ", 7) && !request->token_named) {
                size_t blanks = 7;
                while (blanks < value_size && value[blanks] == ' ') blanks++;
                request->token = slice_make(value + blanks, value_size - blanks);
            }
            break;
        case 14:
            if (NAME_IS("content-length")) {
                request->lengths += request->lengths < 2;
                request->has_length =
                    u64_parse(slice_make(value, value_size), UINT64_MAX, &request->body_length) == CO_OK;
            } else if (NAME_IS("x-consul-token") && value_size) {
                request->token = slice_make(value, value_size);
                request->token_named = true;
            }
            break;
        case 15:
            if (NAME_IS("accept-encoding")) request->gzip = takes_gzip(value, value_size);
            break;
        case 17:
            if (NAME_IS("transfer-encoding")) {
                request->encodings += request->encodings < 2;
                request->chunked = value_size == 7 && name_is(value, "chunked", 7);
            }
            break;
        default: break;
    }
    return MHD_YES;
}

/* Refuses headers that two programs may read differently, and closes the connection, because the following bytes may
 * have been meant as another client's request. */
static const char *smuggling(const struct http_request *request) {
    if (request->bad_name) return "Bad request: a header name is empty or holds a character that names cannot hold";
    if (request->bad_lines) return "Bad request: a header holds a NUL, is folded, or ends otherwise than the others";
    if (request->bad_value) return "Bad request: a header value holds a control character";
    if (request->lengths > 1) return "Bad request: more than one Content-Length header";
    if (request->encodings > 1) return "Bad request: more than one Transfer-Encoding header";
    if (request->encodings && request->lengths) return "Bad request: both Content-Length and Transfer-Encoding";
    if (request->lengths && !request->has_length) return "Bad request: Content-Length is not a number";
    if (request->encodings && request->old_version) return "Bad request: Transfer-Encoding in HTTP/1.0";
    if (request->hosts > 1) return "Bad request: more than one Host header";
    if (request->bad_host) return "Bad request: malformed Host header";
    if (!request->hosts && !request->old_version) return "Bad request: missing required Host header";
    return NULL;
}

const char *headers_read(struct http_request *request, const char *version) {
    struct MHD_Connection *mhd = request->connection->mhd;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (info) request->head_size = info->header_size;
    if (request->worker->server->old_library) request->line_end = version + strlen(version);
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, on_header, request);
    if (request->line_end && info) follow_end(request);
    return smuggling(request);
}

/* Trailers of a chunked body are not used, but have to be well-formed as headers. libmicrohttpd has read them by
 * then. */
static enum MHD_Result on_trailer(void *data, enum MHD_ValueKind kind, const char *key, size_t key_size,
                                  const char *value, size_t value_size) {
    struct http_request *request = data;
    (void)kind;
    if (!key_size || !all_in(key, key_size, IN_NAME)) request->bad_name = true;
    else if (!all_in(value, value_size, IN_VALUE)) request->bad_value = true;
    return MHD_YES;
}

void trailers_read(struct http_request *request) {
    MHD_get_connection_values_n(request->connection->mhd, MHD_FOOTER_KIND, on_trailer, request);
    const char *doubtful = smuggling(request);
    if (!doubtful) return;
    request->close = true;
    request_refuse(request, 400, "%s", doubtful);
}
