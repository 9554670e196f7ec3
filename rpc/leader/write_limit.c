#include "rpc/leader/write_limit.h"

#include <stddef.h>

#include "base/rate_bucket.h"
#include "rpc/forward/forwarding.h"

enum write_verdict write_limit_judge(struct write_limit *limit, struct judged *judged, uint64_t term, uint64_t now_ns) {
    if (!limit->config.rate || !judged || !judged->client || judged->counted) return WRITE_TAKEN;
    if (limit->term != term) limit->term = term, limit->full_ns = 0;
    bool above = rate_bucket_wait(limit->full_ns, limit->config.rate, now_ns, &limit->full_ns) > 0;
    judged->counted = !above || limit->config.permissive;
    return !above ? WRITE_TAKEN : limit->config.permissive ? WRITE_ABOVE : WRITE_REFUSED;
}
