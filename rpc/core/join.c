/* Joining by an address that a person gave: it is dialled and greeted as a client agent would do it (also by a server),
 * so that the outcome can be told. Then the connection ends, and the address is one of those that peers.c or
 * connections.c keep trying.
 *
 *     name --resolved--> first address --connected, hello--> their hello: joined
 *                            '--refused, closed, silent--> the next address, after the last: not joined
 *
 * Hellos are no calls (rpc/wire/calls.h): calls go to processes that have said hello. */
#include <stdio.h>
#include <stdlib.h>

#include "rpc/core/rpc_internal.h"
#include "rpc/wire/address.h"
#include "rpc/wire/frame_unpack.h"
#include "rpc/wire/reach.h"

#define ADDRESS_MS 2000 /* for one address */
#define HELLO_MAX  (64 * 1024)

struct join_work {
    struct rpc *rpc;
    struct rpc_join *join;
    uv_getaddrinfo_t resolve;
    struct addrinfo *found, *next; /* next: the address to try after this one */
    struct link *wire;
    uv_timer_t timer;
    bool joined;
};

static void timer_closed(uv_handle_t *handle) {
    struct join_work *work = handle->data;
    struct rpc *rpc = work->rpc;
    struct rpc_join *join = work->join;
    int rv = work->joined ? CO_OK : join->fault.code;
    if (work->joined && !join->wan) rpc->role->know_server(rpc, join->address);
    uv_freeaddrinfo(work->found);
    free(work);
    join->done(join, rv);
}

static void finish(struct join_work *work) { uv_close((uv_handle_t *)&work->timer, timer_closed); }

/* Sets the fault; that of the last address stays. */
static void because(struct join_work *work, int error, const char *why) {
    work->join->fault = (struct fault){0};
    fault_set(&work->join->fault, error, "%s", why);
}

static void on_connected(void *data, struct link *wire) {
    const struct join_work *work = data;
    struct rpc_self self = work->rpc->role->self(work->rpc);
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    struct hello_region link = {.region = self.cluster, .region_cluster_id = self.cluster_id};
    if (work->join->wan) hello_of_region(&hello, &link, random_u64() | 1);
    else hello_of_agent(&hello, self.cluster, self.cluster_id, random_u64() | 1);
    hello.address = (char *)(uintptr_t)self.address, hello.node = (char *)(uintptr_t)self.node_name;
    link_tell(wire, PEER_HELLO, &hello.base);
    link_flush(wire);
}

static void add_server(struct rpc_join *join, const char *address) {
    if (join->server_count == RPC_JOIN_SERVERS || !address[0] || strlen(address) > HELLO_ADDRESS_MAX) return;
    snprintf(join->servers[join->server_count++], sizeof join->servers[0], "%s", address);
}

/* Takes the answer of another region's server. */
static bool take_region(struct join_work *work, const Pb__PeerHello *hello) {
    struct rpc_join *join = work->join;
    if (strlen(hello->cluster) > RPC_REGION_MAX || !hello->cluster[0]) {
        because(work, CO_CORRUPT, "its region has no name, or a name that is too long");
        return false;
    }
    snprintf(join->region, sizeof join->region, "%s", hello->cluster);
    join->cluster_id = hello->cluster_id, join->server_count = 0;
    add_server(join, hello->address);
    for (size_t i = 0; i < hello->n_known; i++) add_server(join, hello->known[i]->address);
    return true;
}

/* In a closed cluster a server of another region may call itself only what an operator trusts it as, and with
 * verify_server_hostname what its certificate says. NULL: it may. */
static const char *not_that_region(struct join_work *work, const Pb__PeerHello *hello, char why[SECURITY_WHY]) {
    struct security_rules rules;
    struct rpc_self self = work->rpc->role->self(work->rpc);
    const struct tls_certificate *certificate = link_peer(work->wire);
    if (!self.security) return NULL;
    security_get(self.security, &rules);
    if (rules.kind != SECURITY_CLUSTER && rules.kind != SECURITY_OWN_CA) return NULL;
    if (!certificate && rules.secures) return NULL;
    struct security_seen seen = security_see(self.security, work->wire);
    return security_judge_dialled(&rules, &seen, work->join->wan ? hello->cluster : NULL, why);
}

static void take_hello(struct join_work *work, struct slice payload) {
    Pb__PeerHello *hello = frame_unpack(&pb__peer_hello__descriptor, payload, NULL);
    struct rpc_self here = work->rpc->role->self(work->rpc);
    bool wan = work->join->wan;
    struct hello_self self = {
        .cluster = wan ? NULL : here.cluster, .cluster_id = wan ? 0 : here.cluster_id, .version_most = UINT32_MAX};
    struct hello_terms terms;
    char why[HELLO_WHY], insecure[SECURITY_WHY];
    const char *fault = hello ? not_that_region(work, hello, insecure) : NULL;
    if (fault) because(work, CO_DENIED, fault);
    else if (!hello) because(work, CO_CORRUPT, "no server of this kind answers there");
    else if (hello_judge(&self, hello, &terms, why) != HELLO_OK) because(work, CO_DENIED, why);
    else work->joined = !wan || take_region(work, hello);
    if (hello) frame_drop(hello);
}

static void on_frame(void *data, struct link *wire, uint8_t type, struct slice payload) {
    struct join_work *work = data;
    char text[HELLO_WHY + 32];
    if (work->joined) return;
    if (type == PEER_HELLO) {
        take_hello(work, payload);
    } else if (type == PEER_REFUSED) {
        snprintf(text, sizeof text, "it refuses this agent: %.*s",
                 (int)(payload.size < HELLO_WHY ? payload.size : HELLO_WHY), payload.data);
        because(work, CO_DENIED, text);
    } else {
        because(work, CO_CORRUPT, "no server of this kind answers there");
    }
    link_close(wire);
}

static void dial(struct join_work *work);

static void on_closed(void *data, struct link *wire, int error) {
    struct join_work *work = data;
    int cause = link_cause(wire);
    work->wire = NULL;
    uv_timer_stop(&work->timer);
    if (error == CO_TOOLARGE) because(work, CO_CORRUPT, "no server of this kind answers there");
    else if (error != CO_CLOSED && link_why(wire)[0]) because(work, error, link_why(wire));
    else if (error != CO_CLOSED && !work->joined) because(work, error, reach_end_text(error, cause));
    if (work->joined || !work->next) finish(work);
    else dial(work);
}

static void late(uv_timer_t *timer) {
    struct join_work *work = timer->data;
    because(work, CO_TIMEOUT, "no answer");
    link_close(work->wire);
}

static void dial(struct join_work *work) {
    static const struct link_callbacks callbacks = {.frame = on_frame, .connected = on_connected, .closed = on_closed};
    const struct sockaddr *to = work->next->ai_addr;
    work->next = work->next->ai_next;
    uv_timer_start(&work->timer, late, ADDRESS_MS, 0);
    struct rpc_self self = work->rpc->role->self(work->rpc);
    struct link_security security;
    bool secure = security_dial(self.security, &security);
    work->wire = link_dial(self.loop, to, NULL, secure ? &security : NULL, &callbacks, work);
    link_limit(work->wire, HELLO_MAX);
}

static void resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *found) {
    struct join_work *work = CONTAINER_OF(resolve, struct join_work, resolve);
    work->found = work->next = found;
    if (status == 0 && found) {
        dial(work);
        return;
    }
    because(work, CO_IO, uv_strerror(status ? status : UV_EAI_NONAME));
    finish(work);
}

void rpc_join(struct rpc *rpc, struct rpc_join *join) {
    char host[ADDRESS_MAX], port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct rpc_self self = rpc->role->self(rpc);
    if (self.alone) {
        join->done(join, fault_set(&join->fault, CO_UNSUPPORTED, "this server is alone by configuration"));
        return;
    }
    struct join_work *work = mem_zalloc(sizeof *work);
    work->rpc = rpc, work->join = join;
    if (!address_split(join->address, host, port) ||
        uv_getaddrinfo(self.loop, &work->resolve, resolved, host, port, &hints) != 0) {
        free(work);
        join->done(join, fault_set(&join->fault, CO_INVALID, "not an address"));
        return;
    }
    CHECK(uv_timer_init(self.loop, &work->timer) == 0);
    work->timer.data = work;
}
