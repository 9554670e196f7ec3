/* Bounds of the life of a lease or session that was granted (docs/decisions/leases.md). */
#include "base/clock.h"
#include "http/impl.h"

#define LATE_MS 1000 /* on a healthy cluster an end comes at most so much later */

struct http_bounds http_bounds(int64_t ttl_ns, int64_t left_ms) {
    int64_t ttl_ms = ttl_ns / 1000000;
    return (struct http_bounds){.not_before_ms = left_ms > 0 ? left_ms : 0,
                                .not_after_ms = 2 * (ttl_ms + LATE_MS)}; /* a new leader grants a full period */
}

void http_granted(struct http_request *request, int64_t ttl_ns) {
    request->granted.ttl_ns = ttl_ns;
    request->granted.since_ms = request->worker->now_ms;
}

bool http_made_bounds(const struct http_request *request, struct http_bounds *bounds) {
    const struct granted *granted = &request->granted;
    if (!granted->ttl_ns) return false;
    int64_t passed_ms = (int64_t)(clock_mono_ms() - granted->since_ms);
    *bounds = http_bounds(granted->ttl_ns, granted->ttl_ns / 1000000 - passed_ms);
    return true;
}

void http_bounds_write(struct json_out *json, struct http_bounds bounds) {
    json_key(json, "NotBefore");
    json_i64(json, bounds.not_before_ms);
    json_key(json, "NotAfter");
    json_i64(json, bounds.not_after_ms);
}

void http_write_made_bounds(struct json_out *json, const ProtobufCMessage *message, void *request) {
    struct http_bounds bounds;
    (void)message;
    if (http_made_bounds(request, &bounds)) http_bounds_write(json, bounds);
}

void http_bounds_headers(struct http_request *request, struct http_bounds bounds) {
    http_header_u64(request, "X-Coord-Not-Before", (uint64_t)bounds.not_before_ms);
    http_header_u64(request, "X-Coord-Not-After", (uint64_t)bounds.not_after_ms);
}
