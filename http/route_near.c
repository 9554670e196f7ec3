#include "http/route_near.h"

#include <limits.h>
#include <string.h>

#include "base/check.h"
#include "base/suggest.h"
#include "http/declared.h"

#define SEGMENTS_MOST 16
#define MISSING       4 /* for a missing segment; more than for a word that was cut short or mistyped once */
#define NO_VERSION    1 /* "/lock/x" for "/v1/lock/x" */
#define OTHER_SIDE    1 /* "/v1/quota/x/take" for "/v1/agent/quota/x/take", or the other way round */

static const struct {
    unsigned bit;
    const char *name;
} methods[] = {{HTTP_GET, "GET"}, {HTTP_PUT, "PUT"}, {HTTP_POST, "POST"}, {HTTP_DELETE, "DELETE"}};

struct segments {
    struct slice items[SEGMENTS_MOST];
    unsigned count;
};

/* False: there are too many. */
static bool split(const char *path, size_t size, struct segments *segments) {
    const char *end = path + size;
    segments->count = 0;
    for (const char *at = path; at < end;) {
        at++; /* the slash */
        const char *slash = at < end ? memchr(at, '/', (size_t)(end - at)) : NULL;
        if (segments->count == SEGMENTS_MOST) return false;
        segments->items[segments->count++] = slice_make(at, (size_t)((slash ? slash : end) - at));
        at = slash ? slash : end;
    }
    return true;
}

static unsigned word_cost(struct slice row, struct slice asked) {
    unsigned rank = suggest_rank(asked, row);
    return rank == UINT_MAX ? UINT_MAX : rank == 0 ? 0 : rank < 100 ? 2 : 2 + rank - 100;
}

static unsigned sum(unsigned a, unsigned b) { return a == UINT_MAX || b == UINT_MAX ? UINT_MAX : a + b; }

/* The distance of a path from a row, from segment `j` and `i` on. *literals counts the words of the row that are in the
 * path. */
static unsigned distance(const struct segments *row, unsigned i, const struct segments *asked, unsigned j,
                         unsigned *literals) {
    if (i == row->count) return j == asked->count ? 0 : UINT_MAX;
    char kind = row->items[i].size ? row->items[i].data[0] : '\0';
    if (kind == '*') return 0;
    if (j == asked->count) return sum(MISSING, distance(row, i + 1, asked, j, literals));
    if (kind == ':') return asked->items[j].size ? distance(row, i + 1, asked, j + 1, literals) : UINT_MAX;
    unsigned best = UINT_MAX;
    for (unsigned end = j + 1; kind == '+' && end <= asked->count; end++) {
        unsigned words = *literals, found = distance(row, i + 1, asked, end, &words);
        if (found < best) best = found, *literals = words;
    }
    if (kind == '+') return best;
    unsigned cost = word_cost(row->items[i], asked->items[j]);
    if (cost == UINT_MAX) return UINT_MAX;
    ++*literals;
    return sum(cost, distance(row, i + 1, asked, j + 1, literals));
}

static bool is_version(const struct segments *segments) {
    return segments->count && slice_is(segments->items[0], "v1");
}

/* The corresponding path of the agent for one of the cluster, and the other way round. False: there is none. */
static bool other_side(const struct segments *asked, struct segments *other) {
    static const char agent[] = "agent";
    if (asked->count < 2 || !is_version(asked)) return false;
    bool removes = slice_is(asked->items[1], agent);
    if (removes ? asked->count == 2 : asked->count == SEGMENTS_MOST) return false;
    *other = *asked;
    if (removes) {
        other->count--;
        memmove(&other->items[1], &other->items[2], (other->count - 1) * sizeof other->items[0]);
    } else {
        memmove(&other->items[2], &other->items[1], (other->count - 1) * sizeof other->items[0]);
        other->items[1] = slice_text(agent);
        other->count++;
    }
    return true;
}

/* The distance of a row; UINT_MAX: not similar. */
static unsigned route_distance(const struct http_route *route, const struct segments *asked, unsigned *literals) {
    struct segments row;
    *literals = 0;
    if (!split(route->path, strlen(route->path), &row)) return UINT_MAX;
    unsigned skipped = is_version(&row) && !is_version(asked);
    unsigned found = distance(&row, skipped, asked, 0, literals);
    unsigned words = *literals - (is_version(&row) && !skipped && *literals > 0);
    return words ? sum(found, skipped * NO_VERSION) : UINT_MAX;
}

void route_show(const struct http_route *route, unsigned method, struct buffer *out) {
    size_t at = 0;
    while (at + 1 < ARRAY_COUNT(methods) && !(route->methods & methods[at].bit & (method ? method : UINT_MAX))) at++;
    buffer_append_text(out, methods[at].name);
    buffer_append_byte(out, ' ');
    for (const char *c = route->path; *c; c++)
        buffer_append_byte(out, c > route->path && c[-1] == '/' && (*c == '*' || *c == '+') ? ':' : *c);
}

bool route_nearest(struct slice path, unsigned method, bool only_method, struct buffer *out) {
    const struct http_route *nearest = NULL;
    unsigned best = UINT_MAX, literals;
    struct segments asked, other;
    if (!split(path.data, path.size, &asked)) return false;
    bool has_other = other_side(&asked, &other);
    for (const struct http_topic *topic = http_topics; topic->title; topic++) {
        for (const struct http_route *route = topic->rows; route->path; route++) {
            bool same = (route->methods & method) != 0;
            if (only_method && !same) continue;
            unsigned found = route_distance(route, &asked, &literals);
            /* The corresponding path has to fit exactly. */
            if (has_other && same && route_distance(route, &other, &literals) == 0 && literals > 1 &&
                found > OTHER_SIDE)
                found = OTHER_SIDE;
            if (found == UINT_MAX || (found == 0 && same)) continue;
            found = found * 2 + !same;
            if (found < best) best = found, nearest = route;
        }
    }
    if (nearest) route_show(nearest, nearest->methods & method, out);
    return nearest != NULL;
}

bool route_with_parameter(struct slice path, unsigned method, struct slice parameter, struct buffer *out) {
    const struct http_route *found = NULL;
    unsigned most = 0, literals;
    struct segments asked;
    if (!split(path.data, path.size, &asked)) return false;
    for (const struct http_topic *topic = http_topics; topic->title; topic++) {
        for (const struct http_route *route = topic->rows; route->path; route++) {
            if (route->methods & method || !declared_find(route->params, parameter)) continue;
            if (route_distance(route, &asked, &literals) != 0 || literals <= most) continue;
            most = literals, found = route;
        }
    }
    if (found) route_show(found, 0, out);
    return found != NULL;
}
