/* The target of a request in its four forms (RFC 9112 3.2): a path, a URL (which clients send to what they take for a
 * proxy), "*", and the "host:port" of CONNECT. The code after this sees a path. */
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "http/impl.h"

/* libmicrohttpd hands the target over as a string in its buffer, where the version follows: a gap means that the target
 * held a NUL. A blank in it is refused, too. */
static bool whole(struct slice target, const char *url, const char *version) {
    for (size_t i = 0; i < target.size; i++) {
        unsigned char c = (unsigned char)target.data[i];
        if (c <= ' ' || c == 0x7f) return false;
    }
    return target.size && version == url + target.size + 1;
}

static bool port_valid(struct slice text) {
    if (text.size && text.data[0] != ':') return false;
    for (size_t i = 1; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
    }
    return true;
}

/* RFC 3986: unreserved, sub-delims, and the '%' of escapes. */
static const bool in_host[256] = {
    ['!'] = true,         ['$' ... '.'] = true, ['0' ... '9'] = true, [';'] = true, ['='] = true,
    ['A' ... 'Z'] = true, ['_'] = true,         ['a' ... 'z'] = true, ['~'] = true,
};

/* [user@]host[:port] */
bool authority_valid(struct slice text) {
    const char *at = text.data, *end = at + text.size, *user = memrchr(at, '@', text.size);
    for (; user && at < user; at++) {
        if (*at != ':' && !in_host[(unsigned char)*at]) return false;
    }
    if (user) at++;
    const char *host = at;
    bool bracketed = at < end && *at == '[';
    if (bracketed) {
        for (at++; at < end && (*at == ':' || in_host[(unsigned char)*at]);) at++;
        if (at == end || *at++ != ']') return false;
    } else {
        while (at < end && in_host[(unsigned char)*at]) at++;
    }
    return at > host && port_valid(slice_make(at, (size_t)(end - at)));
}

/* The path and the rest of an http or https URL; {NULL,0}: it is no such URL. */
static struct slice path_of_url(struct http_request *request) {
    const char *at = request->target.data, *end = at + request->target.size;
    size_t scheme = strncasecmp(at, "http://", 7) == 0 ? 7 : strncasecmp(at, "https://", 8) == 0 ? 8 : 0;
    if (!scheme) return (struct slice){0};
    at += scheme;
    size_t size = strcspn(at, "/?#");
    if (!authority_valid(slice_make(at, size))) return (struct slice){0};
    at += size;
    if (*at == '/') return slice_make(at, (size_t)(end - at));
    return slice_text(arena_printf(&request->arena, "/%s", at));
}

void target_take(struct http_request *request, const char *url, const char *version) {
    struct slice target = request->target;
    if (!whole(target, url, version)) {
        request_refuse(request, 400, "Bad request: the target holds a NUL, a blank or a control character");
    } else if (slice_is(target, "*") && request->method == HTTP_OPTIONS) {
        http_header(request, "Allow", "OPTIONS,GET,PUT,POST,DELETE");
        request_refuse(request, 200, "%s", "");
    } else if (target.data[0] != '/') {
        struct slice path = path_of_url(request);
        if (path.data) request->target = path;
        else request_refuse(request, 400, "Bad request: the target is neither a path nor an http URL with a host");
    }
}
