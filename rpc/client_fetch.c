/* Reads of a client agent: asked of the server that it is connected with, and again of the next one when that goes.
 * While there is none, what is kept of catalog, health and coordinates (query_type.discovery) is given out with its
 * age.
 *
 *     posted --> unsent --connection--> with a server --answer (in pieces)--> done
 *                  ^  '--nobody to ask for CLIENT_REACH_MS: kept answer, or too late--> done */
#include <stdlib.h>

#include "base/clock.h"
#include "rpc/client_internal.h"
#include "rpc/frame_unpack.h"

#define ANSWER_MOST (512u << 20)

struct client_fetch {
    struct loop_task task;
    struct list link; /* client->unsent, or by itself */
    struct client_fetch *chain;
    uint64_t number, conn;       /* conn: with which connection it is; 0: none */
    uint64_t begun_ms, until_ms; /* until_ms: the end of the wait */
    uint8_t *request;
    size_t request_size;
    struct buffer pieces;
};
_Static_assert(sizeof(struct client_fetch) <= sizeof(((struct rpc_fetch *)0)->impl), "rpc_fetch.impl is too small");

struct client_cancel {
    struct loop_task task;
    uint64_t number;
};

static struct client_fetch *impl_of(struct rpc_fetch *fetch) { return (struct client_fetch *)(void *)fetch->impl; }
static struct rpc_fetch *fetch_of(struct client_fetch *impl) {
    return CONTAINER_OF((char *)impl, struct rpc_fetch, impl);
}
static struct slice request_of(const struct client_fetch *impl) {
    return slice_make(impl->request, impl->request_size);
}

static struct client_fetch **find(struct client *client, uint64_t number) {
    struct client_fetch **at = &client->fetches[number % CLIENT_FETCH_BUCKETS];
    while (*at && (*at)->number != number) at = &(*at)->chain;
    return at;
}

/* It is over; the struct is the caller's again. */
static void end(struct client *client, struct client_fetch *impl, int error, const struct rpc_fetched *fetched) {
    *find(client, impl->number) = impl->chain;
    client->fetch_count -= !fetch_of(impl)->background;
    list_remove(&impl->link);
    struct buffer pieces = impl->pieces;
    free(impl->request);
    struct rpc_fetch *fetch = fetch_of(impl);
    fetch->done(fetch, error, fetched);
    buffer_free(&pieces);
}

/* -- without a server --------------------------------------------------------------------------------------------- */
static bool end_with_kept(struct client *client, struct client_fetch *impl, uint64_t now_ms) {
    const struct rpc_fetch *fetch = fetch_of(impl);
    const struct client_kept *kept = client_cache_get(client->cache, fetch->type->number, request_of(impl));
    if (!kept || fetch->unkept || fetch->freshness == RPC_CONSISTENT) return false;
    if (fetch->index && kept->fetched.index <= fetch->index && now_ms < impl->until_ms) return false; /* it has that */
    struct rpc_fetched fetched = kept->fetched;
    fetched.age_ms = now_ms > kept->at_ms ? now_ms - kept->at_ms : 1;
    fetched.known_leader = false, fetched.last_contact_ms = fetched.age_ms;
    end(client, impl, CO_OK, &fetched);
    return true;
}

static void wait_on(struct client *client, struct client_fetch *impl, uint64_t now_ms) {
    if (now_ms - client->lost_ms >= CLIENT_REACH_MS && end_with_kept(client, impl, now_ms)) return;
    bool nobody = list_empty(&client->servers) && fetch_of(impl)->index == 0; /* to look for, before `coord join` */
    uint64_t last_ms = impl->begun_ms + (nobody ? 0 : RPC_LEADER_WAIT_MS);
    if (now_ms >= last_ms && now_ms >= impl->until_ms) end(client, impl, CO_NOLEADER, NULL);
}

void client_fetch_tick(struct client *client, uint64_t now_ms) {
    if (client->current) return;
    LIST_FOREACH_SAFE(item, next, &client->unsent) wait_on(client, LIST_ENTRY(item, struct client_fetch, link), now_ms);
}

/* -- with one ----------------------------------------------------------------------------------------------------- */
static void send_one(struct client *client, struct client_fetch *impl, uint64_t now_ms) {
    const struct rpc_fetch *fetch = fetch_of(impl);
    Pb__PeerFetch ask = PB__PEER_FETCH__INIT;
    ask.number = impl->number, ask.query = fetch->type->number, ask.stale = fetch->freshness == RPC_STALE;
    ask.request = (ProtobufCBinaryData){impl->request_size, impl->request};
    ask.index = fetch->index;
    if (fetch->index) ask.wait_ms = impl->until_ms > now_ms ? impl->until_ms - now_ms : 1;
    list_remove(&impl->link);
    impl->conn = client->current->number;
    buffer_reset(&impl->pieces);
    link_tell(client->current->wire, PEER_FETCH, &ask.base);
    if (fetch->index == 0) client_asked(client);
}

void client_fetch_up(struct client *client) {
    uint64_t now_ms = clock_mono_ms();
    LIST_FOREACH_SAFE(item, next, &client->unsent)
        send_one(client, LIST_ENTRY(item, struct client_fetch, link), now_ms);
}

static void tell_end(struct client *client, const struct client_fetch *impl) {
    struct client_conn *conn = client_conn_of(client, impl->conn);
    if (!conn) return;
    Pb__PeerFetchEnd message = PB__PEER_FETCH_END__INIT;
    message.number = impl->number;
    link_tell(conn->wire, PEER_FETCH_END, &message.base);
    link_flush(conn->wire);
}

void client_fetch_move(struct client *client, uint64_t conn, bool tell) {
    for (size_t i = 0; i < CLIENT_FETCH_BUCKETS; i++) {
        for (struct client_fetch *impl = client->fetches[i]; impl; impl = impl->chain) {
            if (impl->conn != conn) continue;
            if (tell) tell_end(client, impl);
            impl->conn = 0;
            list_append(&client->unsent, &impl->link);
        }
    }
}

void client_fetch_anew(struct client *client) {
    LIST_FOREACH(item, &client->unsent) fetch_of(LIST_ENTRY(item, struct client_fetch, link))->index = 0;
}

/* This server cannot answer; the next one may. */
static void ask_elsewhere(struct client *client, struct client_fetch *impl, int error) {
    uint64_t conn = impl->conn;
    impl->conn = 0;
    list_append(&client->unsent, &impl->link);
    client_leave(client, conn, co_strerror(error));
}

static void take_piece(struct client *client, struct client_fetch *impl, const Pb__PeerFetched *answer) {
    if (impl->pieces.size + answer->records.len > ANSWER_MOST) {
        end(client, impl, CO_TOOLARGE, NULL);
        return;
    }
    bool whole = !answer->more && impl->pieces.size == 0;
    if (!whole) buffer_append(&impl->pieces, answer->records.data, answer->records.len);
    if (answer->more) return;
    struct rpc_fetched fetched = {.index = answer->index,
                                  .found = answer->found,
                                  .none = answer->none,
                                  .known_leader = answer->known_leader,
                                  .last_contact_ms = answer->last_contact_ms};
    fetched.records = whole ? slice_make(answer->records.data, answer->records.len) : buffer_slice(&impl->pieces);
    const struct rpc_fetch *fetch = fetch_of(impl);
    if (fetch->type->discovery && !fetch->unkept)
        client_cache_put(client->cache, fetch->type->number, request_of(impl), &fetched, clock_mono_ms());
    end(client, impl, CO_OK, &fetched);
}

bool client_fetch_answered(struct client *client, uint64_t conn, struct slice payload) {
    Pb__PeerFetched *answer = frame_unpack(&pb__peer_fetched__descriptor, payload, NULL);
    if (!answer) return false;
    struct client_fetch *impl = *find(client, answer->number);
    if (!impl || impl->conn != conn) { /* ended meanwhile, or asked again elsewhere */
    } else if (answer->outcome == CO_OK) {
        take_piece(client, impl, answer);
    } else if (answer->outcome == CO_FENCED || answer->outcome == CO_CLOSED) {
        ask_elsewhere(client, impl, (int)answer->outcome);
    } else {
        end(client, impl, (int)answer->outcome, NULL);
    }
    frame_drop(answer);
    return true;
}

/* -- from other threads ------------------------------------------------------------------------------------------- */
static void taken(struct loop_task *task) {
    struct client *client = task->rpc->client;
    struct client_fetch *impl = CONTAINER_OF(task, struct client_fetch, task);
    struct client_fetch **at = find(client, impl->number);
    impl->chain = *at;
    *at = impl;
    client->fetch_count += !fetch_of(impl)->background;
    list_append(&client->unsent, &impl->link);
    if (client->stopping) end(client, impl, CO_CLOSED, NULL);
    else if (client->current) send_one(client, impl, clock_mono_ms());
    else wait_on(client, impl, clock_mono_ms());
}

void client_fetch_begin(struct client *client, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    struct client_fetch *impl = impl_of(fetch);
    *impl = (struct client_fetch){.begun_ms = clock_mono_ms()};
    impl->number = atomic_fetch_add(&client->fetch_number, 1) + 1;
    impl->until_ms = impl->begun_ms + (fetch->index ? fetch->wait_ms : 0);
    list_init(&impl->link);
    impl->request_size = protobuf_c_message_get_packed_size(request);
    impl->request = mem_alloc(impl->request_size + 1);
    protobuf_c_message_pack(request, impl->request);
    rpc_on_loop(client->rpc, &impl->task, taken);
}

static void cancelled(struct loop_task *task) {
    struct client *client = task->rpc->client;
    struct client_cancel *cancel = CONTAINER_OF(task, struct client_cancel, task);
    struct client_fetch *impl = *find(client, cancel->number);
    free(cancel);
    if (!impl) return;
    if (impl->conn) tell_end(client, impl);
    end(client, impl, CO_CLOSED, NULL);
}

/* By its number: the struct may be gone when this arrives. */
void client_fetch_cancel(struct client *client, struct rpc_fetch *fetch) {
    struct client_cancel *cancel = mem_zalloc(sizeof *cancel);
    cancel->number = impl_of(fetch)->number;
    rpc_on_loop(client->rpc, &cancel->task, cancelled);
}

void client_fetch_stop(struct client *client) {
    for (size_t i = 0; i < CLIENT_FETCH_BUCKETS; i++)
        while (client->fetches[i]) end(client, client->fetches[i], CO_CLOSED, NULL);
}
