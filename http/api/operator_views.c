#include "http/api/operator_views.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

/* -- asking ------------------------------------------------------------------------------------------------------- */
struct asking {
    struct http_call call;
    struct rpc_ask_cluster ask;
    struct rpc_cluster_state state;
    struct rpc_server_state servers[32];
    char waiting[2048];
    http_cluster_view view;
    const void *context;
};

/* Loop thread. */
static void cluster_known(struct rpc_ask_cluster *ask, int error, const struct rpc_cluster_state *state) {
    struct asking *asking = CONTAINER_OF(ask, struct asking, ask);
    if (error == CO_OK) {
        asking->state = *state;
        if (asking->state.count > ARRAY_COUNT(asking->servers)) asking->state.count = ARRAY_COUNT(asking->servers);
        memcpy(asking->servers, state->servers, asking->state.count * sizeof *asking->servers);
        asking->state.servers = asking->servers;
        if (state->waiting) {
            snprintf(asking->waiting, sizeof asking->waiting, "%s", state->waiting);
            asking->state.waiting = asking->waiting;
        }
    }
    http_called(&asking->call, error);
}

static void cluster_view(struct http_request *request, struct http_call *call, int error) {
    struct asking *asking = CONTAINER_OF(call, struct asking, call);
    asking->view(request, error, error ? NULL : &asking->state, asking->context);
}

void http_ask_cluster(struct http_request *request, bool of_leader, http_cluster_view view, const void *context) {
    struct asking *asking = arena_zalloc(http_arena(request), sizeof *asking);
    asking->view = view, asking->context = context;
    asking->call.view = cluster_view;
    asking->ask.done = cluster_known, asking->ask.of_leader = of_leader;
    http_region_name(request, asking->ask.region);
    http_call(request, &asking->call);
    asking->ask.requester = http_requester(request);
    rpc_ask_cluster(http_env(request)->rpc, &asking->ask);
}

/* "IP:port" or "[IP]:port" of this IP. */
static bool is_at(const char *address, const char *ip) {
    const char *colon = strrchr(address, ':');
    size_t size = colon ? (size_t)(colon - address) : 0, bracket = size > 2 && address[0] == '[';
    return size > 2 * bracket && slice_is(slice_make(address + bracket, size - 2 * bracket), ip);
}

const struct rpc_server_state *http_server_of(const struct rpc_cluster_state *state, const Pb__Member *member) {
    for (size_t i = 0; state && i < state->count; i++) {
        const struct rpc_server_state *server = &state->servers[i];
        bool named = server->node[0] ? slice_equal_nocase(slice_text(server->node), slice_text(member->name))
                                     : member->server_port != 0;
        if (named && is_at(server->address, member->address)) return server;
    }
    return NULL;
}

/* -- changing ----------------------------------------------------------------------------------------------------- */
struct changing {
    struct http_call call;
    struct rpc_change change;
    http_cluster_changed view;
    const void *context;
};

static void changed(struct rpc_change *change, int error) {
    http_called(&CONTAINER_OF(change, struct changing, change)->call, error);
}

static void no_such_server(struct http_request *request, const struct rpc_change *change) {
    static const char why[] = "was not found in the Raft configuration, or it is the last server that votes";
    if (change->address[0]) http_reply_text(request, 500, "address \"%s\" %s", change->address, why);
    else http_reply_text(request, 500, "id \"%016" PRIx64 "\" %s", change->id, why);
}

static void change_view(struct http_request *request, struct http_call *call, int error) {
    struct changing *changing = CONTAINER_OF(call, struct changing, call);
    bool removal = changing->change.type == RPC_REMOVE_SERVER;
    if (error == CO_OK) {
        changing->view(request, changing->context);
    } else if (error == CO_INVALID && removal) {
        no_such_server(request, &changing->change);
    } else if (error == CO_INVALID) {
        http_reply_text(request, 400,
                        "no such server votes, or there is no other voter that is connected and whose disk is well");
    } else if (error == CO_CONFLICT && removal) {
        http_reply_text(request, 500,
                        "without this server those that can be reached and take writes would be no majority of the "
                        "ones that vote, and the cluster would stop: "
                        "remove one that is down first, or bring it back (its disk may be full, or it may be behind)");
    } else if (error == CO_DENIED || error == CO_NOTOKEN) {
        http_reply_error(request, error);
    } else if (error == CO_NOLEADER || error == CO_NOTLEADER) {
        http_reply_error(request, CO_NOLEADER);
    } else {
        http_reply_text(
            request, 500, "%s",
            error == CO_BUSY ? "another change of the configuration is under way"
            : error == CO_UNSUPPORTED
                ? "the cluster's version is too low for this: the leader's log names the server to upgrade first"
                : co_strerror(error));
    }
}

void http_change_cluster(struct http_request *request, const struct rpc_change *change, http_cluster_changed view,
                         const void *context) {
    struct changing *changing = arena_zalloc(http_arena(request), sizeof *changing);
    changing->change = *change;
    changing->change.done = changed;
    changing->view = view, changing->context = context;
    changing->call.view = change_view;
    http_region_name(request, changing->change.region);
    http_call(request, &changing->call);
    changing->change.requester = http_requester(request);
    rpc_change(http_env(request)->rpc, &changing->change);
}
