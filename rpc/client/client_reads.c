/* Reads of a client agent: calls to its server, and to the next one when that is lost. While there is none, kept
 * answers of catalog, health and coordinates (query_type.discovery) are given out with their age.
 *
 *     begun --> waits for a connection --> with a server --answer (in pieces)--> done
 *                  ^  '--nobody to ask for CONNECTIONS_REACH_MS: kept answer, or too late--> done
 *                  '--its connection ends, or it says that it cannot answer */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/message.h"
#include "rpc/client/client_internal.h"

#define ANSWER_MOST (512u << 20)
#define NO_LIMIT_MS (UINT64_C(1) << 40)

/* Cancelling a fetch may meet its end: the thread that first changes LIVE decides, and the loop calls `done`. */
enum fetch_state { FETCH_LIVE, FETCH_CANCELLING, FETCH_OVER };

struct client_read {
    struct loop_task begin, cancel;
    struct call call;
    struct list all; /* client->fetches */
    _Atomic enum fetch_state state;
    uint64_t begun_ms, until_ms; /* until_ms: the end of the wait */
    struct client *client;
    uint8_t *request;
    uint32_t request_size;
    struct buffer pieces;
};
_Static_assert(sizeof(struct client_read) <= sizeof(((struct rpc_fetch *)0)->impl), "rpc_fetch.impl is too small");

static struct client_read *impl_of(struct rpc_fetch *fetch) { return (struct client_read *)(void *)fetch->impl; }
static struct rpc_fetch *fetch_of(struct client_read *impl) {
    return CONTAINER_OF((char *)impl, struct rpc_fetch, impl);
}
static struct client_read *fetch_at(struct list *item) { return LIST_ENTRY(item, struct client_read, all); }
static struct client_read *fetch_called(struct call *call) { return CONTAINER_OF(call, struct client_read, call); }
static struct slice request_of(const struct client_read *impl) { return slice_make(impl->request, impl->request_size); }

/* Ends a fetch that is no call any more. The caller owns the struct again, unless the fetch is being cancelled: then
 * the cancelling ends it. */
static void end(struct client_read *impl, int error, const struct rpc_fetched *fetched) {
    enum fetch_state live = FETCH_LIVE;
    struct rpc_fetch *fetch = fetch_of(impl);
    struct buffer pieces = impl->pieces;
    impl->client->fetch_count -= !fetch->background;
    list_remove(&impl->all);
    free(impl->request);
    if (atomic_compare_exchange_strong(&impl->state, &live, FETCH_OVER)) fetch->done(fetch, error, fetched);
    buffer_free(&pieces);
}

/* -- without a server --------------------------------------------------------------------------------------------- */
static void give_up(struct client_read *impl, int error, const struct rpc_fetched *fetched) {
    calls_cancel(impl->client->rpc->calls, &impl->call);
    end(impl, error, fetched);
}

/* Is the answer not kept? Answers of another region are not, because the client has to learn that the region cannot be
 * reached. */
static bool not_kept(struct client_read *impl) {
    return fetch_of(impl)->no_cache || fetch_of(impl)->region[0] || impl->client->region;
}

static bool end_with_kept(struct client_read *impl, uint64_t now_ms) {
    const struct rpc_fetch *fetch = fetch_of(impl);
    const struct client_kept *kept =
        client_cache_get(impl->client->cache, fetch->type->number, request_of(impl), fetch->requester);
    if (!kept || not_kept(impl) || fetch->freshness == RPC_CONSISTENT) return false;
    if (fetch->index && kept->fetched.index <= fetch->index && now_ms < impl->until_ms) return false; /* it has that */
    struct rpc_fetched fetched = kept->fetched;
    fetched.age_ms = now_ms > kept->at_ms ? now_ms - kept->at_ms : 1;
    fetched.known_leader = false, fetched.last_contact_ms = fetched.age_ms;
    give_up(impl, CO_OK, &fetched);
    return true;
}

static void wait_on(struct client_read *impl, uint64_t now_ms) {
    const struct connections *c = &impl->client->connections;
    if (now_ms - c->lost_ms >= CONNECTIONS_REACH_MS && end_with_kept(impl, now_ms)) return;
    if (connections_gives_up(c, impl->begun_ms, fetch_of(impl)->index != 0, impl->until_ms, now_ms))
        give_up(impl, CO_NOLEADER, NULL);
}

void client_read_tick(struct client *client, uint64_t now_ms) {
    if (client->current) return;
    LIST_FOREACH_SAFE(item, next, &client->fetches)
        if (!fetch_at(item)->call.peer) wait_on(fetch_at(item), now_ms);
}

/* -- with one ----------------------------------------------------------------------------------------------------- */
static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    struct client_read *impl = fetch_called(call);
    const struct rpc_fetch *fetch = fetch_of(impl);
    uint64_t now_ms = clock_mono_ms();
    Pb__PeerFetch *ask = arena_alloc(arena, sizeof *ask);
    pb__peer_fetch__init(ask);
    ask->query = fetch->type->number, ask->stale = fetch->freshness == RPC_STALE;
    ask->request = (ProtobufCBinaryData){impl->request_size, impl->request};
    ask->index = fetch->index, ask->view = fetch->view;
    if (!impl->client->region) ask->region = (char *)(uintptr_t)fetch->region;
    const struct requester *requester = client_requester(impl->client, fetch->requester);
    /* A read over a link that names the region is a client's. Without access control here it is nobody's over there, and has not
     * the rights of this region's servers, which copy. */
    bool nobody = !requester && impl->client->region && fetch->region[0];
    const char *token = nobody ? REQUESTER_ANONYMOUS_SECRET : requester_token(requester);
    ask->token = arena_strndup(arena, token, strlen(token));
    if (requester) ask->slot = requester->slot;
    if (fetch->index) ask->wait_ms = impl->until_ms > now_ms ? impl->until_ms - now_ms : 1;
    buffer_reset(&impl->pieces);
    if (fetch->index == 0) client_asked(impl->client);
    return &ask->base;
}

/* This server cannot answer; the next one may. */
static bool elsewhere(struct call *call, uint32_t outcome) {
    if (outcome != CO_FENCED && outcome != CO_CLOSED) return false;
    struct client *client = fetch_called(call)->client;
    client_leave(client, client->current ? client->current->state.number : 0, co_strerror((int)outcome));
    return true;
}

const struct call_method fetch_method = {.name = "fetch",
                                         CALL_FETCH_FRAMES,
                                         .answer_ms = UINT32_MAX, /* a silent connection is left by itself */
                                         .build = build,
                                         .elsewhere = elsewhere};

static bool take_piece(struct call *call, const ProtobufCMessage *message) {
    struct client_read *impl = fetch_called(call);
    const Pb__PeerFetched *answer = (const Pb__PeerFetched *)message;
    if (impl->pieces.size + answer->records.len > ANSWER_MOST) {
        give_up(impl, CO_TOOLARGE, NULL);
        return false;
    }
    buffer_append(&impl->pieces, answer->records.data, answer->records.len);
    return true;
}

static void answered(struct call *call, int error, const ProtobufCMessage *message) {
    struct client_read *impl = fetch_called(call);
    const struct rpc_fetch *fetch = fetch_of(impl);
    const Pb__PeerFetched *answer = (const Pb__PeerFetched *)message;
    if (error == CO_OK) error = (int)answer->outcome;
    if (error == CO_OK && impl->pieces.size + answer->records.len > ANSWER_MOST) error = CO_TOOLARGE;
    if (error != CO_OK) {
        if (answer && answer->text[0]) fetch_of(impl)->denial = answer->text;
        end(impl, error, NULL);
        return;
    }
    bool whole = impl->pieces.size == 0;
    if (!whole) buffer_append(&impl->pieces, answer->records.data, answer->records.len);
    struct rpc_fetched fetched = {.index = answer->index,
                                  .found = answer->found,
                                  .none = answer->none,
                                  .known_leader = answer->known_leader,
                                  .last_contact_ms = answer->last_contact_ms,
                                  .hidden = answer->hidden,
                                  .view = answer->view};
    if (answer->cause[0]) fetched.cause = answer->cause;
    fetched.records = whole ? message_slice(answer->records) : buffer_slice(&impl->pieces);
    if (fetch->type->discovery && !not_kept(impl))
        client_cache_put(impl->client->cache, fetch->type->number, request_of(impl), fetch->requester, &fetched,
                         clock_mono_ms());
    end(impl, CO_OK, &fetched);
}

void client_read_anew(struct client *client) {
    LIST_FOREACH(item, &client->fetches)
        if (!fetch_at(item)->call.peer) fetch_of(fetch_at(item))->index = 0;
}

/* -- from other threads ------------------------------------------------------------------------------------------- */
static void begin(struct loop_task *task) {
    struct client_read *impl = CONTAINER_OF(task, struct client_read, begin);
    struct client *client = impl->client;
    client->fetch_count += !fetch_of(impl)->background;
    list_append(&client->fetches, &impl->all);
    bool waits = !client->current && !client->stopping; /* else it may be over, and the struct gone */
    calls_begin(client->rpc->calls, &impl->call, &fetch_method, NO_LIMIT_MS, clock_mono_ms());
    if (waits) wait_on(impl, clock_mono_ms());
}

void client_read_begin(struct client *client, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    struct client_read *impl = impl_of(fetch);
    *impl = (struct client_read){.client = client, .begun_ms = clock_mono_ms()};
    impl->until_ms = impl->begun_ms + (fetch->index ? fetch->wait_ms : 0);
    impl->call.done = answered, impl->call.piece = take_piece;
    list_init(&impl->all);
    size_t size = protobuf_c_message_get_packed_size(request);
    CHECK(size <= UINT32_MAX);
    impl->request_size = (uint32_t)size;
    impl->request = mem_alloc(size + 1);
    protobuf_c_message_pack(request, impl->request);
    rpc_on_loop(client->rpc, &impl->begin, begin);
}

/* Tasks run in the order in which they came, so the fetch has begun. It may have ended, and then nobody was told. */
static void cancel(struct loop_task *task) {
    struct client_read *impl = CONTAINER_OF(task, struct client_read, cancel);
    struct rpc_fetch *fetch = fetch_of(impl);
    if (!list_empty(&impl->all)) give_up(impl, CO_CLOSED, NULL);
    fetch->done(fetch, CO_CLOSED, NULL);
}

void client_read_cancel(struct client *client, struct rpc_fetch *fetch) {
    struct client_read *impl = impl_of(fetch);
    enum fetch_state live = FETCH_LIVE;
    if (atomic_compare_exchange_strong(&impl->state, &live, FETCH_CANCELLING))
        rpc_on_loop(client->rpc, &impl->cancel, cancel);
}
