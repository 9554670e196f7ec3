/* What operators ask and want of the cluster, at a client agent: passed on to its server, which asks the leader if
 * need be.
 *
 * A question is asked again of the next server when a connection ends. A change that was sent is not: its outcome is
 * unknown then. */
#include "rpc/operator.h"

#include <stdio.h>

#include "base/clock.h"
#include "rpc/client_internal.h"
#include "rpc/frame_unpack.h"
#include "rpc/operator_frames.h"

#define ANSWER_MS 30000 /* longer than a server takes at most */

struct client_wish {
    struct client_mail mail;
    struct list link;      /* client->asks or client->changes */
    uint64_t number, conn; /* conn: with which connection it is; 0: none yet */
    uint64_t deadline_ms;
};
_Static_assert(sizeof(struct client_wish) <= sizeof(((struct rpc_ask_cluster *)0)->impl),
               "rpc_ask_cluster.impl is too small");
_Static_assert(sizeof(struct client_wish) <= sizeof(((struct rpc_change *)0)->impl), "rpc_change.impl is too small");

static struct rpc_ask_cluster *ask_of(struct client_wish *wish) {
    return CONTAINER_OF((char *)wish, struct rpc_ask_cluster, impl);
}
static struct rpc_change *change_of(struct client_wish *wish) {
    return CONTAINER_OF((char *)wish, struct rpc_change, impl);
}
static struct client_wish *wish_at(struct list *item) { return LIST_ENTRY(item, struct client_wish, link); }

static void ask_end(struct client_wish *wish, int error, const struct rpc_cluster_state *state) {
    list_remove(&wish->link);
    ask_of(wish)->done(ask_of(wish), error, state);
}

static void change_end(struct client_wish *wish, int error) {
    list_remove(&wish->link);
    change_of(wish)->done(change_of(wish), error);
}

/* -- sending ------------------------------------------------------------------------------------------------------ */
static void sent(struct client *client, struct client_wish *wish) {
    wish->number = ++client->wish_number, wish->conn = client->current->number;
    wish->deadline_ms = clock_mono_ms() + ANSWER_MS;
}

static void ask_send(struct client *client, struct client_wish *wish) {
    sent(client, wish);
    Pb__PeerCluster message = PB__PEER_CLUSTER__INIT;
    message.number = wish->number, message.as_known = !ask_of(wish)->of_leader;
    link_tell(client->current->wire, PEER_CLUSTER, &message.base);
}

static void change_send(struct client *client, struct client_wish *wish) {
    sent(client, wish);
    const struct rpc_change *change = change_of(wish);
    Pb__PeerChange message = PB__PEER_CHANGE__INIT;
    message.number = wish->number, message.type = change->type, message.id = change->id;
    message.address = (char *)(uintptr_t)change->address;
    link_tell(client->current->wire, PEER_CHANGE, &message.base);
}

void client_operator_up(struct client *client) {
    LIST_FOREACH(item, &client->asks)
        if (wish_at(item)->conn == 0) ask_send(client, wish_at(item));
    LIST_FOREACH(item, &client->changes)
        if (wish_at(item)->conn == 0) change_send(client, wish_at(item));
}

/* -- answers ------------------------------------------------------------------------------------------------------ */
static struct client_wish *find(struct list *list, uint64_t conn, uint64_t number) {
    LIST_FOREACH(item, list)
        if (wish_at(item)->conn == conn && wish_at(item)->number == number) return wish_at(item);
    return NULL;
}

static void take_cluster(struct client *client, uint64_t conn, const Pb__PeerClusterAnswer *answer) {
    struct client_wish *wish = find(&client->asks, conn, answer->number);
    if (!wish) return;
    struct arena arena = {0};
    struct rpc_cluster_state state;
    operator_state_unpack(answer, &arena, &state);
    if (answer->outcome == CO_CLOSED) wish->conn = 0; /* that server stops: the next one is asked */
    else ask_end(wish, (int)answer->outcome, answer->outcome == CO_OK ? &state : NULL);
    arena_free(&arena);
}

static void take_change(struct client *client, uint64_t conn, const Pb__PeerChangeAnswer *answer) {
    struct client_wish *wish = find(&client->changes, conn, answer->number);
    if (wish) change_end(wish, (int)answer->outcome);
}

bool client_operator_frame(struct client *client, uint64_t conn, uint8_t type, struct slice payload) {
    if (type == PEER_CLUSTER_ANSWER) {
        Pb__PeerClusterAnswer *answer = frame_unpack(&pb__peer_cluster_answer__descriptor, payload, NULL);
        if (!answer) return false;
        take_cluster(client, conn, answer);
        frame_drop(answer);
        return true;
    }
    Pb__PeerChangeAnswer *answer =
        type == PEER_CHANGE_ANSWER ? frame_unpack(&pb__peer_change_answer__descriptor, payload, NULL) : NULL;
    if (!answer) return false;
    take_change(client, conn, answer);
    frame_drop(answer);
    return true;
}

/* -- events ------------------------------------------------------------------------------------------------------- */
void client_operator_down(struct client *client, uint64_t conn) {
    LIST_FOREACH(item, &client->asks)
        if (wish_at(item)->conn == conn)
            wish_at(item)->conn = 0, wish_at(item)->deadline_ms = clock_mono_ms() + RPC_LEADER_WAIT_MS;
    LIST_FOREACH_SAFE(item, next, &client->changes)
        if (wish_at(item)->conn == conn) change_end(wish_at(item), CO_UNKNOWN_OUTCOME);
}

void client_operator_tick(struct client *client, uint64_t now_ms) {
    LIST_FOREACH_SAFE(item, next, &client->asks)
        if (now_ms >= wish_at(item)->deadline_ms) ask_end(wish_at(item), CO_NOLEADER, NULL);
    LIST_FOREACH_SAFE(item, next, &client->changes)
        if (now_ms >= wish_at(item)->deadline_ms)
            change_end(wish_at(item), wish_at(item)->conn ? CO_UNKNOWN_OUTCOME : CO_NOLEADER);
}

void client_operator_stop(struct client *client) {
    LIST_FOREACH_SAFE(item, next, &client->asks) ask_end(wish_at(item), CO_CLOSED, NULL);
    LIST_FOREACH_SAFE(item, next, &client->changes)
        change_end(wish_at(item), wish_at(item)->conn ? CO_UNKNOWN_OUTCOME : CO_CLOSED);
}

/* -- from other threads ------------------------------------------------------------------------------------------- */
static void ask_taken(struct client *client, struct client_mail *mail) {
    struct client_wish *wish = CONTAINER_OF(mail, struct client_wish, mail);
    list_append(&client->asks, &wish->link);
    if (client->stopping) ask_end(wish, CO_CLOSED, NULL);
}

static void change_taken(struct client *client, struct client_mail *mail) {
    struct client_wish *wish = CONTAINER_OF(mail, struct client_wish, mail);
    list_append(&client->changes, &wish->link);
    if (client->stopping) change_end(wish, CO_CLOSED);
}

static void post(struct client *client, struct client_wish *wish,
                 void (*taken)(struct client *client, struct client_mail *mail)) {
    *wish = (struct client_wish){.mail.taken = taken, .deadline_ms = clock_mono_ms() + RPC_LEADER_WAIT_MS};
    list_init(&wish->link);
    client_post(client, &wish->mail);
}

void client_ask_cluster(struct client *client, struct rpc_ask_cluster *ask) {
    post(client, (struct client_wish *)(void *)ask->impl, ask_taken);
}
void client_change(struct client *client, struct rpc_change *change) {
    post(client, (struct client_wish *)(void *)change->impl, change_taken);
}
