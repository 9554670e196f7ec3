#include "agent/access_warn.h"

#include <pthread.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "acl/resolve.h"
#include "acl/warnings.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "rpc/api/access_control.h"

#define TICK_MS    1000
#define UNKNOWN_MS 10000 /* so long after the start the default token may still be on its way */

enum asked { OF_DEFAULT, ANONYMOUS, ASKED };

struct access_warn {
    struct rpc *rpc;
    const char *datacenter;
    enum access_level otherwise;
    uv_timer_t timer;
    uint64_t begun_ms;
    struct requester *of_default; /* NULL: the agent has none */
    pthread_mutex_t lock;
    bool asking; /* under the lock, as the following */
    bool answered[ASKED];
    struct access *access[ASKED]; /* NULL: no such token */
    enum asked asks;
    struct rpc_fetch fetch;
};

/* Any thread. An error is asked again. */
static void told(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct access_warn *warn = CONTAINER_OF(fetch, struct access_warn, fetch);
    struct arena arena = {0};
    struct resolved resolved = {0};
    const Pb__AclResolved *packed = NULL;
    if (error == CO_OK && fetched->found)
        packed = message_unpack(&arena, &pb__acl_resolved__descriptor, fetched->records);
    bool answered = error == CO_OK && (!fetched->found || packed);
    if (packed) answered = resolve_unpack(packed, warn->otherwise, &resolved) == CO_OK;
    pthread_mutex_lock(&warn->lock);
    warn->answered[warn->asks] = answered, warn->access[warn->asks] = resolved.access;
    warn->asking = false;
    pthread_mutex_unlock(&warn->lock);
    arena_free(&arena);
}

static void ask(struct access_warn *warn, enum asked what) {
    Pb__AclResolveRequest request = PB__ACL_RESOLVE_REQUEST__INIT;
    const struct requester *requester = what == OF_DEFAULT ? warn->of_default : NULL;
    if (requester) request.secret = message_bytes(slice_make(requester->text, requester->size));
    request.datacenter = (char *)(uintptr_t)warn->datacenter;
    warn->asking = true, warn->asks = what;
    warn->fetch = (struct rpc_fetch){
        .type = &query_acl_resolve, .freshness = RPC_DEFAULT, .no_cache = true, .background = true, .done = told};
    rpc_fetch(warn->rpc, &warn->fetch, &request.base);
}

static void say(struct access_warn *warn) {
    struct arena arena = {0};
    const char *lines[] = {warn->of_default ? acl_warn_default(warn->access[OF_DEFAULT]) : NULL,
                           acl_warn_anonymous(warn->access[ANONYMOUS], &arena)};
    for (size_t i = 0; i < ARRAY_COUNT(lines); i++)
        if (lines[i]) log_warn("acl", "%s", lines[i]);
    arena_free(&arena);
}

static void tick(uv_timer_t *timer) {
    struct access_warn *warn = CONTAINER_OF(timer, struct access_warn, timer);
    if (!warn->begun_ms) {
        struct requester *requester = rpc_default_requester(warn->rpc);
        if (requester && requester->slot == REQUESTER_DEFAULT) warn->of_default = requester;
        else requester_release(requester);
        warn->begun_ms = clock_mono_ms();
    }
    bool early = clock_mono_ms() - warn->begun_ms < UNKNOWN_MS;
    pthread_mutex_lock(&warn->lock);
    bool known = warn->answered[OF_DEFAULT] && (warn->access[OF_DEFAULT] || !early);
    bool asking = warn->asking, first = warn->of_default && !known, second = !warn->answered[ANONYMOUS];
    pthread_mutex_unlock(&warn->lock);
    if (asking) return;
    if (first || second) {
        ask(warn, first ? OF_DEFAULT : ANONYMOUS);
        return;
    }
    say(warn);
    uv_timer_stop(timer);
}

struct access_warn *access_warn_start(uv_loop_t *loop, struct rpc *rpc, const char *datacenter,
                                      enum access_level otherwise) {
    struct access_warn *warn = mem_zalloc(sizeof *warn);
    warn->rpc = rpc, warn->datacenter = datacenter, warn->otherwise = otherwise;
    CHECK(pthread_mutex_init(&warn->lock, NULL) == 0);
    CHECK(uv_timer_init(loop, &warn->timer) == 0);
    uv_timer_start(&warn->timer, tick, 0, TICK_MS);
    return warn;
}

void access_warn_stop(struct access_warn *warn) {
    uv_close((uv_handle_t *)&warn->timer, NULL);
    pthread_mutex_lock(&warn->lock);
    bool asking = warn->asking;
    pthread_mutex_unlock(&warn->lock);
    if (asking) rpc_fetch_cancel(warn->rpc, &warn->fetch);
}

void access_warn_free(struct access_warn *warn) {
    requester_release(warn->of_default);
    for (size_t i = 0; i < ASKED; i++) access_release(warn->access[i]);
    pthread_mutex_destroy(&warn->lock);
    free(warn);
}
