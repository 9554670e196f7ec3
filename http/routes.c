/* The routing table: rows of all topics, compiled once into a tree of path segments. */
#include <stdio.h>
#include <string.h>

#include "base/consul_words.h"
#include "base/text.h"
#include "http/impl.h"
#include "http/route_near.h"

#define SEGMENTS_MOST 16
#define NODES_MOST    512
#define ROUTES_MOST   256

/* A segment of the tree. When more than one row with the request's method fits a path, a literal child is preferred to
 * ":name", that to "+name", and that to "*name". */
struct node {
    const char *text; /* in the row's path; not NUL-terminated */
    size_t size;
    unsigned next, first; /* sibling, first child; 0: none */
    unsigned routes;      /* chain of rows that end here, numbers from 1 */
};
static struct node nodes[NODES_MOST];
static unsigned node_count;
static struct {
    const struct http_route *route;
    unsigned next;
} rows[ROUTES_MOST];
static unsigned row_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static unsigned node_child(unsigned parent, const char *text, size_t size) {
    unsigned *at = &nodes[parent].first;
    while (*at && !(nodes[*at].size == size && memcmp(nodes[*at].text, text, size) == 0)) at = &nodes[*at].next;
    if (*at) return *at;
    CHECK(node_count < NODES_MOST);
    nodes[node_count] = (struct node){.text = text, .size = size};
    *at = node_count;
    return node_count++;
}

static void compile_row(const struct http_route *route) {
    CHECK(route->path[0] == '/' && row_count + 1 < ROUTES_MOST);
    unsigned node = 0;
    for (const char *at = route->path + 1; *at;) {
        size_t size = strcspn(at, "/");
        node = node_child(node, at, size);
        at += size + (at[size] == '/');
    }
    rows[++row_count].route = route;
    rows[row_count].next = nodes[node].routes;
    nodes[node].routes = row_count;
}

static void compile(void) {
    node_count = 1;
    for (const struct http_topic *topic = http_topics; topic->title; topic++) {
        for (const struct http_route *route = topic->rows; route->path; route++) compile_row(route);
    }
}

void routes_init(void) { pthread_once(&once, compile); }

/* ---- matching ---- */

struct match {
    struct http_request *request;
    unsigned wanted; /* the method's bit */
    unsigned others; /* methods of other rows that fit the path */
    struct slice raw[SEGMENTS_MOST], decoded[SEGMENTS_MOST];
    unsigned count;
    unsigned captured[SEGMENTS_MOST]; /* node by depth, for names of values */
    struct slice last;                /* the path's last segment, also of one with more than SEGMENTS_MOST */
};

static bool split(struct match *match) {
    struct http_request *request = match->request;
    const char *at = request->path.data + 1, *end = request->path.data + request->path.size;
    const char *last = memrchr(request->path.data, '/', request->path.size);
    match->last = slice_make(last + 1, (size_t)(end - last) - 1);
    if (at == end) return true; /* the root */
    for (; match->count < SEGMENTS_MOST; at += match->raw[match->count - 1].size + 1) {
        const char *slash = at < end ? memchr(at, '/', (size_t)(end - at)) : NULL;
        struct slice raw = slice_make(at, at < end ? (size_t)((slash ? slash : end) - at) : 0);
        char *text = arena_alloc(&request->arena, raw.size + 1);
        size_t size;
        if (percent_decode(raw, false, text, &size) != CO_OK) {
            request_refuse(request, 400, "Bad request: bad percent-encoding or NUL in the path");
            return false;
        }
        text[size] = '\0';
        match->raw[match->count] = raw;
        match->decoded[match->count++] = slice_make(text, size);
        if (!slash) break;
    }
    return true;
}

/* The row of the wanted method among those that end at a node; NULL: none. */
static const struct http_route *row_of(struct match *match, unsigned node) {
    for (unsigned row = nodes[node].routes; row; row = rows[row].next) {
        if (rows[row].route->methods & match->wanted) return rows[row].route;
        match->others |= rows[row].route->methods;
    }
    return NULL;
}

/* "+name" takes everything before the last segment, which is its child. */
static const struct http_route *walk_to_last(struct match *match, unsigned several, unsigned depth) {
    if (depth + 1 >= match->count) return NULL;
    for (unsigned child = nodes[several].first; child; child = nodes[child].next) {
        if (!slice_equal(match->last, slice_make(nodes[child].text, nodes[child].size))) continue;
        const struct http_route *found = row_of(match, child);
        if (found) match->captured[depth] = several;
        return found;
    }
    return NULL;
}

static const struct http_route *walk(struct match *match, unsigned parent, unsigned depth) {
    const struct http_route *found = depth == match->count ? row_of(match, parent) : NULL;
    unsigned any = 0, several = 0, rest = 0;
    for (unsigned child = nodes[parent].first; child && !found; child = nodes[child].next) {
        const struct node *node = &nodes[child];
        if (node->text[0] == ':') {
            any = child;
        } else if (node->text[0] == '+') {
            several = child;
        } else if (node->text[0] == '*') {
            rest = child;
        } else if (depth < match->count && slice_equal(match->decoded[depth], slice_make(node->text, node->size))) {
            found = walk(match, child, depth + 1);
        }
    }
    if (!found && any && depth < match->count && match->decoded[depth].size) {
        match->captured[depth] = any;
        found = walk(match, any, depth + 1);
        if (!found) match->captured[depth] = 0;
    }
    if (!found && several) found = walk_to_last(match, several, depth);
    if (!found && rest) {
        found = row_of(match, rest);
        if (found) match->captured[depth < SEGMENTS_MOST ? depth : SEGMENTS_MOST - 1] = rest;
    }
    return found;
}

static bool capture(struct match *match) {
    struct http_request *request = match->request;
    for (unsigned depth = 0; depth < SEGMENTS_MOST; depth++) {
        if (!match->captured[depth]) continue;
        const struct node *node = &nodes[match->captured[depth]];
        CHECK(request->value_count < ARRAY_COUNT(request->values));
        struct slice value = depth < match->count ? match->decoded[depth] : slice_make("", 0);
        if (node->text[0] != ':' && depth < match->count) {
            /* Everything from here on, slashes included; of "+name" up to the last segment. */
            const char *from = match->raw[depth].data, *end = request->path.data + request->path.size;
            if (node->text[0] == '+') end -= match->last.size + 1;
            struct slice raw = slice_make(from, (size_t)(end - from));
            char *text = arena_alloc(&request->arena, raw.size + 1);
            size_t size;
            if (percent_decode(raw, false, text, &size) != CO_OK) {
                request_refuse(request, 400, "Bad request: bad percent-encoding or NUL in the path");
                return false;
            }
            text[size] = '\0';
            value = slice_make(text, size);
        }
        request->values[request->value_count].name = slice_make(node->text + 1, node->size - 1);
        request->values[request->value_count++].value = value;
    }
    return true;
}

/* Adds the header Allow. Returns the methods other than OPTIONS, for messages. */
static const char *allow(struct http_request *request, unsigned methods) {
    static const struct {
        unsigned bit;
        const char *text;
    } names[] = {
        {HTTP_GET, "GET"},
        {HTTP_PUT, "PUT"},
        {HTTP_POST, "POST"},
        {HTTP_DELETE, "DELETE"},
    };
    const char *text = "OPTIONS";
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (methods & names[i].bit) text = arena_printf(&request->arena, "%s,%s", text, names[i].text);
    }
    http_header(request, "Allow", text);
    return strchr(text, ',') ? strchr(text, ',') + 1 : text;
}

static void refuse_path(struct http_request *request) {
    const struct consul_word *consul = consul_word_find(CONSUL_PATH, request->path);
    struct buffer more = {0};
    if (consul) consul_word_print(&more, consul);
    else if (route_nearest(request->path, request->method, false, &more)) buffer_append_text(&more, " is the nearest");
    request_refuse(request, 404, "Invalid path: there is no such endpoint%s%.*s", more.size ? ": " : "", (int)more.size,
                   more.size ? more.data : "");
    buffer_free(&more);
}

/* The text begins as Consul's. */
static bool refuse_method(struct match *match) {
    struct http_request *request = match->request;
    struct buffer more = {0};
    const char *allowed = allow(request, match->others);
    if (request->method == HTTP_OPTIONS) {
        request_refuse(request, 200, "%s", "");
        return false;
    }
    buffer_printf(&more, "; allowed: %s", allowed);
    size_t before = more.size;
    buffer_append_text(&more, "; nearest: ");
    if (!route_nearest(request->path, match->wanted, true, &more)) more.size = before;
    request_refuse(request, 405, "method %.20s not allowed%.*s", request->method_text, (int)more.size, more.data);
    buffer_free(&more);
    return false;
}

bool route_find(struct http_request *request) {
    struct match match = {.request = request, .wanted = request->method == HTTP_HEAD ? HTTP_GET : request->method};
    if (!split(&match)) return false;
    request->route = walk(&match, 0, 0);
    if (request->route) return capture(&match);
    if (match.others) return refuse_method(&match);
    refuse_path(request);
    return false;
}
