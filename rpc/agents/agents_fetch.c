/* Reads that client agents ask for, and other servers (agents_servers.c): each goes on as one of this server's own,
 * and its answer back, large ones piece by piece. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "rpc/agents/agents.h"
#include "rpc/agents/agents_internal.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/frame_unpack.h"

#define PIECE_BYTES (128u << 10) /* of a large answer, in one frame */

/* `asker` is NULL once its connection ended. */
struct asked {
    struct mail mail;
    struct list link;
    struct asked *chain; /* in its bucket */
    struct agents *agents;
    struct asker *asker;
    uint64_t place, number;
    int error;
    bool held;
    struct rpc_fetched fetched;
    char *records; /* a copy */
    size_t sent;   /* of them, while it is held */
    struct rpc_fetch fetch;
};

METRIC fetching = {.name = "coord_rpc_agent_fetches",
                   .type = METRIC_GAUGE,
                   .help =
                       "Reads of client agents under way here (and of servers whose disk is full), those "
                       "that wait for a change included"};

void asker_init(struct asker *asker, struct agents *agents) {
    asker->agents = agents, asker->number = ++agents->last_number;
    list_init(&asker->fetches);
    list_init(&asker->held);
}

static struct agent *agent_of(struct asker *asker) { return CONTAINER_OF(asker, struct agent, asker); }

static void tell(struct asker *asker, uint8_t type, const ProtobufCMessage *message) {
    if (asker->server) (void)peers_tell(asker->agents->rpc->others, asker->server, type, message);
    else agent_tell(agent_of(asker), type, message);
}

static bool has_room(struct asker *asker) {
    return asker->server ? asking_server_has_room(asker) : link_backlog(agent_of(asker)->wire) < PIECE_BYTES;
}

static uint64_t asked_place(const struct asker *asker, uint64_t number) {
    return (asker->number * 0x9e3779b97f4a7c15u + number) % AGENTS_ASKED_BUCKETS;
}

static void asked_free(struct asked *asked) {
    struct asked **at = &asked->agents->asked[asked->place];
    while (*at != asked) at = &(*at)->chain;
    *at = asked->chain;
    if (asked->asker) {
        asked->asker->fetch_count--;
        if (asked->held) asked->asker->held_bytes -= asked->fetched.records.size;
    }
    list_remove(&asked->link);
    metric_set(&fetching, (int64_t)--asked->agents->asked_count);
    free(asked->records);
    free(asked);
}

/* Another thread. */
static void fetch_done(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct asked *asked = CONTAINER_OF(fetch, struct asked, fetch);
    struct agents *agents = asked->agents; /* once it is put the loop may free it */
    asked->error = error;
    if (error == CO_OK) {
        asked->fetched = *fetched;
        asked->records = mem_alloc(fetched->records.size + 1);
        if (fetched->records.size) memcpy(asked->records, fetched->records.data, fetched->records.size);
        asked->fetched.records.data = asked->records;
    }
    if (mailbox_put(&agents->answered, &asked->mail)) uv_async_send(&agents->wake);
}

/* From `sent` on, a piece of it at most. */
static size_t answer_piece(struct asker *asker, const struct asked *asked) {
    const struct rpc_fetched *fetched = &asked->fetched;
    Pb__PeerFetched answer = PB__PEER_FETCHED__INIT;
    size_t size = fetched->records.size - asked->sent;
    answer.more = size > PIECE_BYTES;
    if (answer.more) size = PIECE_BYTES;
    answer.number = asked->number;
    answer.index = fetched->index, answer.found = fetched->found, answer.none = fetched->none;
    answer.known_leader = fetched->known_leader, answer.last_contact_ms = fetched->last_contact_ms;
    answer.records = (ProtobufCBinaryData){size, (uint8_t *)asked->records + asked->sent};
    tell(asker, PEER_FETCHED, &answer.base);
    return size;
}

static void refuse_fetch(struct asker *asker, uint64_t number, int error) {
    Pb__PeerFetched answer = PB__PEER_FETCHED__INIT;
    answer.number = number, answer.outcome = (uint32_t)error;
    tell(asker, PEER_FETCHED, &answer.base);
}

/* Agents' answers take turns. A server stands for many clients: what is least goes first, so that small answers are
 * not behind large ones, and these are put together there one after the other. */
static struct asked *next_held(struct asker *asker) {
    struct asked *next = LIST_ENTRY(asker->held.next, struct asked, link);
    if (!asker->server) return next;
    LIST_FOREACH(item, &asker->held) {
        struct asked *asked = LIST_ENTRY(item, struct asked, link);
        if (asked->fetched.records.size - asked->sent < next->fetched.records.size - next->sent) next = asked;
    }
    return next;
}

/* Only as they are taken: what else there is to tell goes out between two pieces. */
void agents_fetch_pieces(struct asker *asker) {
    while (!list_empty(&asker->held) && has_room(asker)) {
        struct asked *asked = next_held(asker);
        list_remove(&asked->link);
        asked->sent += answer_piece(asker, asked);
        if (asked->sent == asked->fetched.records.size) asked_free(asked);
        else list_append(&asker->held, &asked->link);
    }
}

/* One answer of any size; of several, only what has room. False: it is done with. */
static bool hold(struct asker *asker, struct asked *asked) {
    size_t size = asked->fetched.records.size;
    if (asker->held_bytes && asker->held_bytes + size > AGENTS_HELD_MAX) {
        /* a server asks again for its clients */
        refuse_fetch(asker, asked->number, asker->server ? CO_AGAIN : CO_BUSY);
        return false;
    }
    if (list_empty(&asker->held)) asker->taken_ms = clock_mono_ms();
    list_remove(&asked->link);
    list_append(&asker->held, &asked->link);
    asked->held = true;
    asker->held_bytes += size;
    agents_fetch_pieces(asker);
    if (asker->server && !list_empty(&asker->held)) asking_server_waits(asker->agents);
    return true;
}

/* What an agent does not take is its own trouble; to a server, whatever has to wait waits here. */
static bool goes_at_once(struct asker *asker, const struct asked *asked) {
    return asked->fetched.records.size <= PIECE_BYTES &&
           (!asker->server || (list_empty(&asker->held) && has_room(asker)));
}

/* False: it is to be freed. */
static bool answer_fetch(struct asker *asker, struct asked *asked) {
    if (asked->error != CO_OK) refuse_fetch(asker, asked->number, asked->error);
    else if (!goes_at_once(asker, asked)) return hold(asker, asked);
    else (void)answer_piece(asker, asked);
    return false;
}

void agents_fetch_answered(struct agents *agents) {
    for (struct mail *mail = mailbox_take(&agents->answered), *next; mail; mail = next) {
        next = mail->next;
        struct asked *asked = CONTAINER_OF(mail, struct asked, mail);
        bool held = asked->asker && !agents->stopping && answer_fetch(asked->asker, asked);
        if (!held) asked_free(asked);
    }
}

void agents_fetch(struct asker *asker, const Pb__PeerFetch *ask) {
    struct agents *agents = asker->agents;
    const struct query_type *type = modules_query(machine_modules(agents->rpc->machine), ask->query);
    if (!type) {
        refuse_fetch(asker, ask->number, CO_UNSUPPORTED);
        return;
    }
    if (ask->request.len > AGENTS_REQUEST_MAX) {
        refuse_fetch(asker, ask->number, CO_TOOLARGE);
        return;
    }
    if (asker->fetch_count >= AGENTS_FETCHES_MAX) {
        refuse_fetch(asker, ask->number, CO_BUSY);
        return;
    }
    /* It would be read in vain: the one that asks has much on its way already. */
    if (asker->server && !ask->index && asker->held_bytes > AGENTS_HELD_MAX / 8 * 7) {
        refuse_fetch(asker, ask->number, CO_AGAIN);
        return;
    }
    ProtobufCMessage *request =
        frame_unpack(type->request, slice_make((const char *)ask->request.data, ask->request.len), NULL);
    if (!request) {
        refuse_fetch(asker, ask->number, CO_INVALID);
        return;
    }
    struct asked *asked = mem_zalloc(sizeof *asked);
    asked->agents = agents, asked->asker = asker, asked->number = ask->number;
    asked->fetch.type = type, asked->fetch.done = fetch_done;
    asked->fetch.freshness = ask->stale ? RPC_STALE : RPC_DEFAULT;
    asked->fetch.here = asker->server != 0;
    asked->fetch.index = ask->index, asked->fetch.wait_ms = ask->wait_ms;
    asked->place = asked_place(asker, ask->number);
    asked->chain = agents->asked[asked->place];
    agents->asked[asked->place] = asked;
    list_append(&asker->fetches, &asked->link);
    asker->fetch_count++;
    metric_set(&fetching, (int64_t)++agents->asked_count);
    rpc_fetch(agents->rpc, &asked->fetch, request);
    frame_drop(request);
}

void agents_fetch_end(struct asker *asker, uint64_t number) {
    struct asked *asked = asker->agents->asked[asked_place(asker, number)];
    while (asked && (asked->asker != asker || asked->number != number)) asked = asked->chain;
    if (!asked) return;
    if (asked->held) asked_free(asked);
    else rpc_fetch_cancel(asker->agents->rpc, &asked->fetch);
}

void agents_fetch_down(struct asker *asker) {
    LIST_FOREACH_SAFE(item, next, &asker->held) asked_free(LIST_ENTRY(item, struct asked, link));
    LIST_FOREACH_SAFE(item, next, &asker->fetches) {
        struct asked *asked = LIST_ENTRY(item, struct asked, link);
        list_remove(&asked->link);
        asked->asker = NULL;
        rpc_fetch_cancel(asker->agents->rpc, &asked->fetch);
    }
}

void agents_fetch_init(void) { metric_register(&fetching); }
