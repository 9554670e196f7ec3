#include "rpc/server/write_limit_run.h"

#include "base/clock.h"
#include "base/metrics.h"
#include "rpc/server/server_internal.h"

METRIC above_rate = {
    .name = "coord_rpc_writes_limited_total",
    .type = METRIC_COUNTER,
    .help = "Writes of clients above limits.cluster_write_rate, as this server counted them as the leader"};

void write_limit_start(struct rpc *rpc, const struct write_limit_config *config) {
    metric_register(&above_rate);
    rpc->server->write_limit.config = *config;
}

const void *write_limit_refuse(struct rpc *rpc, uint64_t leader, struct judged *judged) {
    static _Thread_local char text[128];
    static _Thread_local struct machine_result refused;
    struct write_limit *limit = &rpc->server->write_limit;
    const struct node_view *view = node_view(rpc->node);
    if (!limit->config.rate || leader != atomic_load_explicit(&view->id, memory_order_relaxed)) return NULL;
    enum write_verdict verdict =
        write_limit_judge(limit, judged, atomic_load_explicit(&view->term, memory_order_relaxed), clock_mono_ns());
    if (verdict == WRITE_TAKEN) return NULL;
    /* Before it is ready, a leader asks again about what it holds back. */
    if (verdict == WRITE_ABOVE || atomic_load(&view->ready)) metric_add(&above_rate, 1);
    if (verdict == WRITE_ABOVE) return NULL;
    snprintf(text, sizeof text,
             "too many requests: limits.cluster_write_rate is %llu a second for all clients of the cluster",
             (unsigned long long)limit->config.rate);
    refused = (struct machine_result){.error = CO_LIMITED, .text = text};
    return &refused;
}
