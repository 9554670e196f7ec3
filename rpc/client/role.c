/* The functions of rpc/api/rpc.h on a client agent: they use its connection to a server (rpc/client/client.h). */
#include <stdio.h>

#include "rpc/backup/backup_transfer.h"
#include "rpc/client/client_internal.h"

static void submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message) {
    client_submit(rpc->client, write, command, message);
}
static void propose(struct rpc *rpc, struct node_proposal *proposal) { client_propose(rpc->client, proposal); }
/* The server that is asked confirms the read. */
static int read_index(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate) {
    (void)rpc, (void)freshness, (void)gate;
    return CO_OK;
}
static void fetch(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    client_read_begin(rpc->client, fetch, request);
}
static void fetch_cancel(struct rpc *rpc, struct rpc_fetch *fetch) { client_read_cancel(rpc->client, fetch); }
static int query(struct rpc *rpc, const struct query_type *type, const ProtobufCMessage *request,
                 const struct requester *requester, struct arena *arena, struct query_result *result, bool wait) {
    return dns_subscriptions_query(rpc->client->subscriptions, type, request, requester, arena, result, wait);
}
static const struct modules *modules(const struct rpc *rpc) { return rpc->client->modules; }
static struct watch_table *watches(struct rpc *rpc) { return dns_subscriptions_watches(rpc->client->subscriptions); }
static uint64_t applied(struct rpc *rpc) {
    (void)rpc;
    return 1;
}
static uint64_t floor_now(struct rpc *rpc) {
    (void)rpc;
    return 0;
}
static void renew(struct rpc *rpc, struct rpc_renew *renew) { client_renew(rpc->client, renew); }

static int serves(struct rpc *rpc) {
    (void)rpc;
    return CO_OK;
}
static void fenced_why(struct rpc *rpc, char line[160]) {
    (void)rpc;
    snprintf(line, 160, "the server that was asked found its state damaged: it is being rebuilt");
}
static void met_damage(struct rpc *rpc) { (void)rpc; }

static int coordinate_put(struct rpc *rpc, const Pb__Coordinate *record) {
    return client_coordinate_put(rpc->client, record);
}
static struct vivaldi_coordinate coordinate_here(struct rpc *rpc) { return client_coordinate_here(rpc->client); }

static void hints_follow(struct rpc *rpc, struct slice service) { client_hints_follow(rpc->client, service); }

static bool known_leader(struct rpc *rpc) {
    return rpc->client->connections.connected && rpc->client->connections.known_leader;
}
static void status_now(struct rpc *rpc, struct rpc_status *status) { client_status(rpc->client, status); }
static size_t peers(struct rpc *rpc, struct arena *arena, const char ***addresses) {
    return client_peers(rpc->client, arena, addresses);
}
static size_t servers(struct rpc *rpc, struct arena *arena, const char ***addresses) {
    return connections_addresses(&rpc->client->connections, arena, addresses);
}
static struct rpc_self self(const struct rpc *rpc) {
    const struct client *client = rpc->client;
    return (struct rpc_self){.cluster = client->cluster,
                             .address = client->address,
                             .node_name = client->node_name,
                             .cluster_id = client->connections.cluster_id,
                             .loop = client->loop,
                             .security = client->security};
}
static void asked(struct rpc *rpc) { client_asked(rpc->client); }
static void know_server(struct rpc *rpc, const char *address) { rpc_client_know(rpc, address); }

static void save(struct rpc *rpc, struct rpc_save *save) { client_save(rpc->client, save); }
static void restore(struct rpc *rpc, struct rpc_restore *restore) { client_restore(rpc->client, restore); }
static uint64_t call_wait_ms(struct rpc *rpc) { return client_wait_ms(rpc->client); }
static void post(struct rpc *rpc, struct loop_task *task) { client_post(rpc->client, task); }

/* `ask_here`, `change_here`: its calls always have a server to go to. */
const struct rpc_role client_role = {.submit = submit,
                                     .read_index = read_index,
                                     .fetch = fetch,
                                     .fetch_cancel = fetch_cancel,
                                     .propose = propose,
                                     .query = query,
                                     .modules = modules,
                                     .watches = watches,
                                     .applied = applied,
                                     .floor = floor_now,
                                     .renew = renew,
                                     .serves = serves,
                                     .fenced_why = fenced_why,
                                     .met_damage = met_damage,
                                     .coordinate_put = coordinate_put,
                                     .coordinate_here = coordinate_here,
                                     .hints_follow = hints_follow,
                                     .hot = hot_ask,
                                     .known_leader = known_leader,
                                     .status = status_now,
                                     .peers = peers,
                                     .servers = servers,
                                     .self = self,
                                     .know_server = know_server,
                                     .asked = asked,
                                     .ask = operator_call_ask,
                                     .save = save,
                                     .restore = restore,
                                     .trust = trust_ask,
                                     .acl = acl_ask,
                                     .post = post,
                                     .call_wait_ms = call_wait_ms};
