#include "agent/access_run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "acl/acl.h"
#include "acl/resolve.h"
#include "agent/access_warn.h"
#include "base/check.h"
#include "base/log.h"
#include "rpc/api/access_control.h"

#define FOLLOW_MS 300000
#define AGAIN_MS  1000

struct access_run {
    struct rpc *rpc;
    const char *node;
    bool is_server;
    struct resolve_settings settings;
    struct rpc_access_control control;
    pthread_mutex_t lock;
    struct requester *agent_master; /* under the lock; NULL: none */
    struct access_warn *warn;
    /* Client agents: the question that follows the servers' state. */
    bool stopping, asking; /* under the lock */
    struct rpc_fetch follow;
    uv_timer_t again;
};

/* -- servers ------------------------------------------------------------------------------------------------------ */
/* A region's servers copy this one's catalog, and the keys that it gives out. */
static struct access *of_region(const char *region) {
    struct access *access = access_new(ACCESS_DENY);
    static const enum access_resource read[] = {ACCESS_KEY,   ACCESS_NODE, ACCESS_SERVICE, ACCESS_SESSION,
                                                ACCESS_EVENT, ACCESS_LOCK, ACCESS_QUOTA,   ACCESS_ROLLOUT};
    char accessor[RPC_REGION_MAX + sizeof "region:"];
    for (size_t i = 0; i < ARRAY_COUNT(read); i++) access_add(access, read[i], true, slice_make("", 0), ACCESS_READ);
    access_add(access, ACCESS_OPERATOR, false, slice_make("", 0), ACCESS_READ);
    snprintf(accessor, sizeof accessor, "region:%s", region);
    access_name(access, accessor, "");
    access_seal(access);
    return access;
}

static bool is_agent_master(struct access_run *run, const struct requester *requester) {
    pthread_mutex_lock(&run->lock);
    bool is = requester_equal(requester, run->agent_master);
    pthread_mutex_unlock(&run->lock);
    return is;
}

static int of_secret(struct access_run *run, struct store_txn *txn, const struct requester *requester, uint64_t now_ms,
                     struct resolved *resolved, struct fault *fault) {
    struct slice secret = slice_make(requester->text, requester->size);
    if (requester->slot == REQUESTER_ANONYMOUS || slice_is(secret, REQUESTER_ANONYMOUS_SECRET))
        return resolve_anonymous(txn, &run->settings, resolved, fault);
    struct acl_key *key = acl_key_used();
    int error = resolve_secret(txn, key, secret, &run->settings, now_ms, resolved, fault);
    acl_key_release(key);
    return error;
}

/* Any thread. */
static int resolve(void *data, struct store_txn *txn, const struct requester *requester, int64_t now_unix_ms,
                   struct access **access, int64_t *until_unix_ms) {
    struct access_run *run = data;
    struct resolved resolved = {0};
    struct fault fault = {0};
    int error = CO_OK;
    if (requester->slot == REQUESTER_NODE) resolved.access = resolve_node(requester->text, run->settings.otherwise);
    else if (requester->slot == REQUESTER_REGION) resolved.access = of_region(requester->text);
    else if (is_agent_master(run, requester))
        resolved.access = resolve_agent_master(run->node, run->settings.otherwise);
    else error = of_secret(run, txn, requester, (uint64_t)now_unix_ms, &resolved, &fault);
    if (error && fault.text[0]) log_error("acl", "the rules of a token cannot be found reason=\"%s\"", fault.text);
    *access = resolved.access;
    if (resolved.expires_ms && resolved.expires_ms <= INT64_MAX) *until_unix_ms = (int64_t)resolved.expires_ms;
    if (error == CO_NOTFOUND) return CO_NOTOKEN;
    return error == CO_AGAIN || error == CO_INVALID ? CO_NOTREADY : error;
}

/* -- client agents ------------------------------------------------------------------------------------------------ */
static void ask(struct access_run *run, uint64_t index);

static void ask_again(uv_timer_t *timer) { ask(CONTAINER_OF(timer, struct access_run, again), 0); }

/* Loop thread. A refusal may come at once, each time (an unknown token): so an error waits before the next question. */
static void followed(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct access_run *run = CONTAINER_OF(fetch, struct access_run, follow);
    uint64_t index = error == CO_OK ? fetched->index : 0;
    pthread_mutex_lock(&run->lock);
    run->asking = false;
    bool stopping = run->stopping;
    pthread_mutex_unlock(&run->lock);
    if (stopping) return;
    if (error != CO_OK || index != fetch->index) rpc_access_changed(run->rpc);
    if (error == CO_OK) ask(run, index);
    else uv_timer_start(&run->again, ask_again, AGAIN_MS, 0);
}

static void ask(struct access_run *run, uint64_t index) {
    Pb__AclChangesRequest request = PB__ACL_CHANGES_REQUEST__INIT;
    pthread_mutex_lock(&run->lock);
    bool go = !run->stopping;
    run->asking = go;
    pthread_mutex_unlock(&run->lock);
    if (!go) return;
    run->follow = (struct rpc_fetch){.type = &query_acl_changes,
                                     .freshness = RPC_STALE,
                                     .no_cache = true,
                                     .background = true,
                                     .index = index,
                                     .wait_ms = FOLLOW_MS,
                                     .done = followed};
    rpc_fetch(run->rpc, &run->follow, &request.base);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
void access_run_token(void *data, enum http_agent_token token, const char *secret) {
    struct access_run *run = data;
    struct requester *requester = secret[0] ? requester_new(REQUESTER_DEFAULT, slice_text(secret)) : NULL;
    if (token == HTTP_AGENT_TOKEN_DEFAULT) {
        rpc_default_requester_set(run->rpc, requester);
    } else if (token == HTTP_AGENT_TOKEN_AGENT) {
        if (run->is_server) requester_release(requester);
        else rpc_agent_requester_set(run->rpc, requester);
    } else {
        pthread_mutex_lock(&run->lock);
        struct requester *before = run->agent_master;
        run->agent_master = requester;
        pthread_mutex_unlock(&run->lock);
        requester_release(before);
        rpc_access_changed(run->rpc);
    }
}

struct access_run *access_run_start(uv_loop_t *loop, struct rpc *rpc, const struct config *config, const char *node) {
    if (!config->acl_enabled) return NULL;
    struct access_run *run = mem_zalloc(sizeof *run);
    bool deny = strcasecmp(config->acl_default_policy, "deny") == 0;
    CHECK(pthread_mutex_init(&run->lock, NULL) == 0);
    run->rpc = rpc, run->node = node, run->is_server = config->server;
    run->settings = (struct resolve_settings){config->datacenter, deny ? ACCESS_DENY : ACCESS_WRITE};
    run->control = (struct rpc_access_control){
        .data = run, .changes = {SPACE_ACL_ALL, slice_make("", 0)}, .resolve = config->server ? resolve : NULL};
    rpc_access_control_set(rpc, &run->control);
    CHECK(uv_timer_init(loop, &run->again) == 0);
    if (!config->server) ask(run, 0);
    run->warn = access_warn_start(loop, rpc, config->datacenter, run->settings.otherwise);
    return run;
}

void access_run_stop(struct access_run *run) {
    if (!run) return;
    pthread_mutex_lock(&run->lock);
    run->stopping = true;
    bool asking = run->asking;
    pthread_mutex_unlock(&run->lock);
    uv_close((uv_handle_t *)&run->again, NULL);
    access_warn_stop(run->warn);
    if (asking) rpc_fetch_cancel(run->rpc, &run->follow);
}

void access_run_free(struct access_run *run) {
    if (!run) return;
    access_warn_free(run->warn);
    requester_release(run->agent_master);
    pthread_mutex_destroy(&run->lock);
    free(run);
}
