/* Reads of client agents and of other servers (agents_servers.c): each is done like one of this server's own, and its
 * answer is sent back, large ones piece by piece. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "rpc/agents/agents.h"
#include "rpc/agents/agents_internal.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/frame_unpack.h"

#define PIECE_BYTES (128u << 10) /* of a large answer, in one frame */

/* `reader` is NULL once its connection ended. */
struct pending_fetch {
    struct mail mail;
    struct list link;
    struct pending_fetch *chain; /* in its bucket */
    struct agents *agents;
    struct remote_reader *reader;
    uint64_t place, number;
    int error;
    char *text; /* why it was denied; NULL: it was not */
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

void remote_reader_init(struct remote_reader *reader, struct agents *agents) {
    reader->agents = agents, reader->number = ++agents->last_number;
    list_init(&reader->fetches);
    list_init(&reader->held);
}

static struct agent *agent_of(struct remote_reader *reader) { return CONTAINER_OF(reader, struct agent, reader); }

static void tell(struct remote_reader *reader, uint8_t type, const ProtobufCMessage *message) {
    if (reader->server) (void)peers_tell(reader->agents->rpc->others, reader->server, type, message);
    else agent_tell(agent_of(reader), type, message);
}

static bool has_room(struct remote_reader *reader) {
    return reader->server ? peer_reader_has_room(reader) : link_backlog(agent_of(reader)->wire) < PIECE_BYTES;
}

static uint64_t pending_place(const struct remote_reader *reader, uint64_t number) {
    return (reader->number * 0x9e3779b97f4a7c15u + number) % AGENTS_ASKED_BUCKETS;
}

static void pending_free(struct pending_fetch *pending) {
    struct pending_fetch **at = &pending->agents->pending[pending->place];
    while (*at != pending) at = &(*at)->chain;
    *at = pending->chain;
    if (pending->reader) {
        pending->reader->fetch_count--;
        if (pending->held) pending->reader->held_bytes -= pending->fetched.records.size;
    }
    list_remove(&pending->link);
    metric_set(&fetching, (int64_t)--pending->agents->asked_count);
    free((char *)(uintptr_t)pending->fetched.cause);
    requester_release(pending->fetch.requester);
    free(pending->records);
    free(pending->text);
    free(pending);
}

/* Another thread. */
static void fetch_done(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct pending_fetch *pending = CONTAINER_OF(fetch, struct pending_fetch, fetch);
    struct agents *agents = pending->agents; /* once it is in the mailbox the loop may free it */
    pending->error = error;
    if (error && fetch->denial) pending->text = mem_strdup(fetch->denial);
    if (error == CO_OK) {
        pending->fetched = *fetched;
        pending->records = mem_alloc(fetched->records.size + 1);
        if (fetched->records.size) memcpy(pending->records, fetched->records.data, fetched->records.size);
        pending->fetched.records.data = pending->records;
        if (fetched->cause) pending->fetched.cause = mem_strndup(fetched->cause, strlen(fetched->cause));
    }
    if (mailbox_put(&agents->answered, &pending->mail)) uv_async_send(&agents->wake);
}

/* Sends at most one piece, from `sent` on. */
static size_t answer_piece(struct remote_reader *reader, const struct pending_fetch *pending) {
    const struct rpc_fetched *fetched = &pending->fetched;
    Pb__PeerFetched answer = PB__PEER_FETCHED__INIT;
    size_t size = fetched->records.size - pending->sent;
    answer.more = size > PIECE_BYTES;
    if (answer.more) size = PIECE_BYTES;
    answer.number = pending->number;
    answer.index = fetched->index, answer.found = fetched->found, answer.none = fetched->none;
    answer.hidden = fetched->hidden, answer.view = fetched->view;
    answer.known_leader = fetched->known_leader, answer.last_contact_ms = fetched->last_contact_ms;
    answer.records = (ProtobufCBinaryData){size, (uint8_t *)pending->records + pending->sent};
    if (!answer.more && fetched->cause) answer.cause = (char *)(uintptr_t)fetched->cause;
    tell(reader, PEER_FETCHED, &answer.base);
    return size;
}

static void deny_fetch(struct remote_reader *reader, uint64_t number, int error, const char *text) {
    Pb__PeerFetched answer = PB__PEER_FETCHED__INIT;
    if (text) answer.text = (char *)(uintptr_t)text;
    answer.number = number, answer.outcome = (uint32_t)error;
    tell(reader, PEER_FETCHED, &answer.base);
}

static void refuse_fetch(struct remote_reader *reader, uint64_t number, int error) {
    deny_fetch(reader, number, error, NULL);
}

/* Agents' answers take turns. For a server, which asks for many clients, the smallest answer goes first, so that small
 * answers do not wait behind large ones, and the server assembles these one after the other. */
static struct pending_fetch *next_held(struct remote_reader *reader) {
    struct pending_fetch *next = LIST_ENTRY(reader->held.next, struct pending_fetch, link);
    if (!reader->server) return next;
    LIST_FOREACH(item, &reader->held) {
        struct pending_fetch *pending = LIST_ENTRY(item, struct pending_fetch, link);
        if (pending->fetched.records.size - pending->sent < next->fetched.records.size - next->sent) next = pending;
    }
    return next;
}

/* Sends pieces only as the reader takes them, so that other frames go between two pieces. */
void agents_read_pieces(struct remote_reader *reader) {
    while (!list_empty(&reader->held) && has_room(reader)) {
        struct pending_fetch *pending = next_held(reader);
        list_remove(&pending->link);
        pending->sent += answer_piece(reader, pending);
        if (pending->sent == pending->fetched.records.size) pending_free(pending);
        else list_append(&reader->held, &pending->link);
    }
}

/* Holds the answer, to be sent in pieces: a single one of any size, several only while there is room. False: it was
 * refused. */
static bool hold(struct remote_reader *reader, struct pending_fetch *pending) {
    size_t size = pending->fetched.records.size;
    if (reader->held_bytes && reader->held_bytes + size > reader->agents->held_max) {
        /* a server will ask again */
        refuse_fetch(reader, pending->number, reader->server ? CO_AGAIN : CO_BUSY);
        return false;
    }
    if (list_empty(&reader->held)) reader->taken_ms = clock_mono_ms();
    list_remove(&pending->link);
    list_append(&reader->held, &pending->link);
    pending->held = true;
    reader->held_bytes += size;
    agents_read_pieces(reader);
    if (reader->server && !list_empty(&reader->held)) peer_reader_waits(reader->agents);
    return true;
}

/* May the answer go at once? To an agent, small answers always do: if it does not take them that is its own problem.
 * For a server, an answer waits here while others do, or while there is no room. */
static bool goes_at_once(struct remote_reader *reader, const struct pending_fetch *pending) {
    return pending->fetched.records.size <= PIECE_BYTES &&
           (!reader->server || (list_empty(&reader->held) && has_room(reader)));
}

/* False: the caller frees it. */
static bool answer_fetch(struct remote_reader *reader, struct pending_fetch *pending) {
    if (pending->error != CO_OK) deny_fetch(reader, pending->number, pending->error, pending->text);
    else if (!goes_at_once(reader, pending)) return hold(reader, pending);
    else (void)answer_piece(reader, pending);
    return false;
}

void agents_read_answered(struct agents *agents) {
    for (struct mail *mail = mailbox_take(&agents->answered), *next; mail; mail = next) {
        next = mail->next;
        struct pending_fetch *pending = CONTAINER_OF(mail, struct pending_fetch, mail);
        bool held = pending->reader && !agents->stopping && answer_fetch(pending->reader, pending);
        if (!held) pending_free(pending);
    }
}

/* Another server asks for its clients, whose names it has seen proven, or for itself. */
static int requester_of(struct remote_reader *reader, const Pb__PeerFetch *ask, struct requester **requester) {
    if (!reader->server) return agent_requester(agent_of(reader), ask->token, ask->slot, requester);
    size_t size = strlen(ask->token);
    if (size == 0) return CO_OK;
    if (size > REQUESTER_TOKEN_MOST || ask->slot > REQUESTER_REGION) return CO_NOTOKEN;
    *requester = requester_new((enum requester_slot)ask->slot, slice_make(ask->token, size));
    return CO_OK;
}

void agents_read(struct remote_reader *reader, const Pb__PeerFetch *ask) {
    struct agents *agents = reader->agents;
    const struct query_type *type = modules_query(machine_modules(agents->rpc->machine), ask->query);
    if (!type) {
        refuse_fetch(reader, ask->number, CO_UNSUPPORTED);
        return;
    }
    if (ask->request.len > AGENTS_REQUEST_MAX) {
        refuse_fetch(reader, ask->number, CO_TOOLARGE);
        return;
    }
    if (reader->fetch_count >= AGENTS_FETCHES_MAX) {
        refuse_fetch(reader, ask->number, CO_BUSY);
        return;
    }
    /* The read would be in vain, because much is on its way to that server already. */
    if (reader->server && !ask->index && reader->held_bytes > reader->agents->held_max / 8 * 7) {
        refuse_fetch(reader, ask->number, CO_AGAIN);
        return;
    }
    if (strlen(ask->region) > RPC_REGION_MAX) {
        refuse_fetch(reader, ask->number, CO_NOREGION);
        return;
    }
    struct requester *requester = NULL;
    int unknown = requester_of(reader, ask, &requester);
    if (unknown) {
        refuse_fetch(reader, ask->number, unknown);
        return;
    }
    ProtobufCMessage *request =
        frame_unpack(type->request, slice_make((const char *)ask->request.data, ask->request.len), NULL);
    if (!request) {
        requester_release(requester);
        refuse_fetch(reader, ask->number, CO_INVALID);
        return;
    }
    struct pending_fetch *pending = mem_zalloc(sizeof *pending);
    pending->agents = agents, pending->reader = reader, pending->number = ask->number;
    pending->fetch.type = type, pending->fetch.done = fetch_done;
    pending->fetch.freshness = ask->stale ? RPC_STALE : RPC_DEFAULT;
    pending->fetch.here = reader->server != 0;
    pending->fetch.requester = requester;
    memcpy(pending->fetch.region, ask->region, strlen(ask->region) + 1);
    pending->fetch.index = ask->index, pending->fetch.wait_ms = ask->wait_ms, pending->fetch.view = ask->view;
    pending->place = pending_place(reader, ask->number);
    pending->chain = agents->pending[pending->place];
    agents->pending[pending->place] = pending;
    list_append(&reader->fetches, &pending->link);
    reader->fetch_count++;
    metric_set(&fetching, (int64_t)++agents->asked_count);
    rpc_fetch(agents->rpc, &pending->fetch, request);
    frame_drop(request);
}

void agents_read_end(struct remote_reader *reader, uint64_t number) {
    struct pending_fetch *pending = reader->agents->pending[pending_place(reader, number)];
    while (pending && (pending->reader != reader || pending->number != number)) pending = pending->chain;
    if (!pending) return;
    if (pending->held) pending_free(pending);
    else rpc_fetch_cancel(reader->agents->rpc, &pending->fetch);
}

void agents_read_down(struct remote_reader *reader) {
    LIST_FOREACH_SAFE(item, next, &reader->held) pending_free(LIST_ENTRY(item, struct pending_fetch, link));
    LIST_FOREACH_SAFE(item, next, &reader->fetches) {
        struct pending_fetch *pending = LIST_ENTRY(item, struct pending_fetch, link);
        list_remove(&pending->link);
        pending->reader = NULL;
        rpc_fetch_cancel(reader->agents->rpc, &pending->fetch);
    }
}

void agents_read_init(void) { metric_register(&fetching); }
