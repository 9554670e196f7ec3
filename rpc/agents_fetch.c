/* Reads that client agents ask for: each goes on as one of this server's own, and its answer back, large ones piece by piece. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "rpc/agents_internal.h"
#include "rpc/rpc_internal.h"

#define PIECE_BYTES (128u << 10) /* of a large answer, in one frame */

/* A read that an agent asked for. `agent` is NULL once its connection ended. */
struct asked {
    struct mail mail;
    struct list link;
    struct asked *chain; /* in its bucket */
    struct agents *agents;
    struct agent *agent;
    uint64_t place, number;
    int error;
    bool held;
    struct rpc_fetched fetched;
    char *records; /* a copy */
    size_t sent;   /* of them, while it is held */
    struct rpc_fetch fetch;
};

static struct metric fetching = {.name = "coord_rpc_agent_fetches", .type = METRIC_GAUGE, .help = "Reads of client agents under way here, those that wait for a change included"};

static uint64_t asked_place(const struct agent *agent, uint64_t number) {
    return (agent->number * 0x9e3779b97f4a7c15u + number) % AGENTS_ASKED_BUCKETS;
}

static void asked_free(struct asked *asked) {
    struct asked **at = &asked->agents->asked[asked->place];
    while (*at != asked) at = &(*at)->chain;
    *at = asked->chain;
    if (asked->agent) {
        asked->agent->fetch_count--;
        if (asked->held) asked->agent->held_bytes -= asked->fetched.records.size;
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
static size_t answer_piece(struct agent *agent, const struct asked *asked) {
    const struct rpc_fetched *fetched = &asked->fetched;
    Pb__PeerFetched answer = PB__PEER_FETCHED__INIT;
    size_t size = fetched->records.size - asked->sent;
    answer.more = size > PIECE_BYTES;
    if (answer.more) size = PIECE_BYTES;
    answer.number = asked->number;
    answer.index = fetched->index, answer.found = fetched->found, answer.none = fetched->none;
    answer.known_leader = fetched->known_leader, answer.last_contact_ms = fetched->last_contact_ms;
    answer.records = (ProtobufCBinaryData){size, (uint8_t *)asked->records + asked->sent};
    agent_tell(agent, PEER_FETCHED, &answer.base);
    return size;
}

static void refuse_fetch(struct agent *agent, uint64_t number, int error) {
    Pb__PeerFetched answer = PB__PEER_FETCHED__INIT;
    answer.number = number, answer.outcome = (uint32_t)error;
    agent_tell(agent, PEER_FETCHED, &answer.base);
}

/* Only as the agent takes them: what else it is told goes out between two pieces. */
void agents_fetch_pieces(struct agent *agent) {
    while (!list_empty(&agent->held) && link_backlog(agent->wire) < PIECE_BYTES) {
        struct asked *asked = LIST_ENTRY(agent->held.next, struct asked, link);
        list_remove(&asked->link);
        asked->sent += answer_piece(agent, asked);
        if (asked->sent == asked->fetched.records.size) asked_free(asked);
        else list_append(&agent->held, &asked->link);
    }
}

/* One answer of any size; of several, only what has room. False: it is done with. */
static bool hold(struct agent *agent, struct asked *asked) {
    size_t size = asked->fetched.records.size;
    if (agent->held_bytes && agent->held_bytes + size > AGENTS_HELD_MAX) {
        refuse_fetch(agent, asked->number, CO_BUSY);
        return false;
    }
    if (list_empty(&agent->held)) agent->taken_ms = clock_mono_ms();
    list_remove(&asked->link);
    list_append(&agent->held, &asked->link);
    asked->held = true;
    agent->held_bytes += size;
    agents_fetch_pieces(agent);
    return true;
}

/* False: it is to be freed. */
static bool answer_fetch(struct agent *agent, struct asked *asked) {
    if (asked->error != CO_OK) refuse_fetch(agent, asked->number, asked->error);
    else if (asked->fetched.records.size > PIECE_BYTES) return hold(agent, asked);
    else (void)answer_piece(agent, asked);
    return false;
}

void agents_fetch_answered(struct agents *agents) {
    for (struct mail *mail = mailbox_take(&agents->answered), *next; mail; mail = next) {
        next = mail->next;
        struct asked *asked = CONTAINER_OF(mail, struct asked, mail);
        bool held = asked->agent && !agents->stopping && answer_fetch(asked->agent, asked);
        if (!held) asked_free(asked);
    }
}

void agents_fetch(struct agent *agent, const Pb__PeerFetch *ask) {
    struct agents *agents = agent->agents;
    const struct query_type *type = machine_query(agents->rpc->machine, ask->query);
    if (!type) { refuse_fetch(agent, ask->number, CO_UNSUPPORTED); return; }
    if (agent->fetch_count >= AGENTS_FETCHES_MAX) { refuse_fetch(agent, ask->number, CO_BUSY); return; }
    ProtobufCMessage *request = protobuf_c_message_unpack(type->request, NULL, ask->request.len, ask->request.data);
    if (!request) { refuse_fetch(agent, ask->number, CO_INVALID); return; }
    struct asked *asked = mem_zalloc(sizeof *asked);
    asked->agents = agents, asked->agent = agent, asked->number = ask->number;
    asked->fetch.type = type, asked->fetch.done = fetch_done;
    asked->fetch.freshness = ask->stale ? RPC_STALE : RPC_DEFAULT;
    asked->fetch.index = ask->index, asked->fetch.wait_ms = ask->wait_ms;
    asked->place = asked_place(agent, ask->number);
    asked->chain = agents->asked[asked->place];
    agents->asked[asked->place] = asked;
    list_append(&agent->fetches, &asked->link);
    agent->fetch_count++;
    metric_set(&fetching, (int64_t)++agents->asked_count);
    rpc_fetch(agents->rpc, &asked->fetch, request);
    protobuf_c_message_free_unpacked(request, NULL);
}

void agents_fetch_end(struct agent *agent, uint64_t number) {
    struct asked *asked = agent->agents->asked[asked_place(agent, number)];
    while (asked && (asked->agent != agent || asked->number != number)) asked = asked->chain;
    if (!asked) return;
    if (asked->held) asked_free(asked);
    else rpc_fetch_cancel(agent->agents->rpc, &asked->fetch);
}

void agents_fetch_down(struct agent *agent) {
    LIST_FOREACH_SAFE(item, next, &agent->held) asked_free(LIST_ENTRY(item, struct asked, link));
    LIST_FOREACH_SAFE(item, next, &agent->fetches) {
        struct asked *asked = LIST_ENTRY(item, struct asked, link);
        list_remove(&asked->link);
        asked->agent = NULL;
        rpc_fetch_cancel(agent->agents->rpc, &asked->fetch);
    }
}

void agents_fetch_init(void) { metric_register(&fetching); }
