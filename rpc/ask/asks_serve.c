/* Asks of others: for this agent, or to be carried on to another one. */
#include <stdlib.h>

#include "base/message.h"
#include "rpc/ask/asks_internal.h"
#include "rpc/cluster/peers.h"
#include "rpc/wire/frame_unpack.h"

/* The asks of this thread whose answering function is being called: answers within the call go at once. */
static _Thread_local struct asks *in_question;

void asks_tell(struct asks *asks, struct asks_peer *to, uint64_t number, int outcome, int error, struct slice data) {
    if (to == &asks->self) {
        asks_answered(asks, to, number, (uint32_t)outcome, (uint32_t)error, data);
        return;
    }
    if (data.size && asks->callbacks.backlog(asks->callbacks.data, to->connection) > ASKS_ANSWERS_MAX)
        outcome = CO_UNKNOWN_OUTCOME, error = CO_OK, data = (struct slice){0};
    Pb__PeerAskAnswer message = PB__PEER_ASK_ANSWER__INIT;
    message.number = number, message.outcome = (uint32_t)outcome, message.error = (uint32_t)error;
    message.data = message_bytes(data);
    asks->callbacks.send(asks->callbacks.data, to->connection, PEER_ASK_ANSWER, &message.base);
}

/* -- for this agent ------------------------------------------------------------------------------------------------ */
static void answer(struct rpc_question *question, int error, struct slice data) {
    struct asks *asks = question->asks;
    struct asks_peer *from = question->from;
    uint64_t number = question->number;
    if (data.size > RPC_ASK_BYTES_MAX) error = CO_TOOLARGE, data = (struct slice){0};
    from->questions--;
    if (!from->gone) asks_tell(asks, from, number, CO_OK, error, data);
    else if (from->questions == 0) free(from);
    free(question->answer);
    free(question);
    asks->callbacks.question(asks->callbacks.data, false);
}

void rpc_ask_answer(struct rpc_question *question, int error, struct slice data) {
    struct asks *asks = question->asks;
    if (in_question == asks) {
        answer(question, error, data);
        return;
    }
    question->error = error;
    question->size = data.size > RPC_ASK_BYTES_MAX ? RPC_ASK_BYTES_MAX + 1 : data.size;
    if (data.size) {
        question->answer = mem_alloc(question->size);
        memcpy(question->answer, data.data, question->size);
    }
    if (mailbox_put(&asks->answered, &question->mail)) asks->callbacks.wake(asks->callbacks.data);
}

void asks_woken(struct asks *asks, uint64_t now_ms) {
    asks->now_ms = now_ms;
    for (struct mail *mail = mailbox_take(&asks->answered), *next; mail; mail = next) {
        next = mail->next;
        struct rpc_question *question = CONTAINER_OF(mail, struct rpc_question, mail);
        answer(question, question->error, slice_make(question->answer, question->size));
    }
}

void asks_question(struct asks *asks, struct asks_peer *from, uint64_t number, uint8_t topic, const char *asker,
                   struct slice payload) {
    rpc_asked asked = asks->topics[topic].asked;
    int refusal = !asked ? CO_UNSUPPORTED : from->questions >= asks_most(asks, from) ? CO_BUSY : CO_OK;
    if (refusal != CO_OK) {
        asks_tell(asks, from, number, refusal, CO_OK, (struct slice){0});
        return;
    }
    struct rpc_question *question = mem_zalloc(sizeof *question);
    question->asks = asks, question->from = from, question->number = number;
    from->questions++;
    asks->callbacks.question(asks->callbacks.data, true);
    struct asks *outer = in_question;
    in_question = asks;
    asked(asks->topics[topic].data, asker, payload, question);
    in_question = outer;
}

/* -- carried on ---------------------------------------------------------------------------------------------------- */
static char *put(char **at, const void *bytes, size_t size) {
    char *placed = *at;
    memcpy(placed, bytes, size);
    *at += size;
    return placed;
}

/* `keep`: with a copy of the payload, which is not needed when it goes to an agent at once. */
static struct asked *carried_new(struct asks *asks, struct asks_peer *from, const Pb__PeerAsk *ask, bool keep) {
    const char *asker = from->server ? ask->from : from->node;
    size_t node_size = strlen(ask->node) + 1, asker_size = strlen(asker) + 1;
    size_t kept = keep ? node_size + asker_size + ask->payload.len : 0;
    struct asked *asked = mem_alloc(sizeof *asked + kept);
    char *at = (char *)(asked + 1);
    uint32_t timeout_ms = ask->timeout_ms < RPC_ASK_TIMEOUT_MAX_MS ? ask->timeout_ms : RPC_ASK_TIMEOUT_MAX_MS;
    *asked = (struct asked){.asks = asks,
                            .from = from,
                            .from_number = ask->number,
                            .node = keep ? put(&at, ask->node, node_size) : ask->node,
                            .asker = keep ? put(&at, asker, asker_size) : asker,
                            .topic = (uint8_t)ask->topic,
                            .payload = message_slice(ask->payload),
                            .deadline_ms = asks->now_ms + timeout_ms,
                            .kept = (uint32_t)kept};
    if (keep && ask->payload.len) asked->payload.data = put(&at, ask->payload.data, ask->payload.len);
    asks_enter(asked);
    return asked;
}

static void carry(struct asks *asks, struct asks_peer *from, const Pb__PeerAsk *ask) {
    const struct asks_peer *agent = asks_agent_of(asks, ask->node);
    bool at_once = from->server || (agent && !agent->doubted);
    int refusal = from->from >= asks_most(asks, from)                         ? CO_BUSY
                  : !at_once && asks->kept + ask->payload.len > ASKS_KEPT_MAX ? CO_BUSY
                                                                              : CO_OK;
    if (refusal != CO_OK) asks_tell(asks, from, ask->number, refusal, CO_OK, (struct slice){0});
    else asks_go(carried_new(asks, from, ask, !at_once));
}

/* CO_OK: the ask is accepted. */
static int judge(struct asks *asks, const struct asks_peer *from, const Pb__PeerAsk *ask) {
    bool client = !asks->callbacks.servers;
    if (asks->stopping) return CO_CLOSED;
    if (ask->payload.len > RPC_ASK_BYTES_MAX) return CO_TOOLARGE;
    if (ask->topic > UINT8_MAX) return CO_UNSUPPORTED;
    if (!client && from->server && !asks_is_member(asks, from->id)) return CO_AGAIN; /* (3) */
    if (from->server && strlen(ask->from) > HELLO_NODE_MAX) return CO_INVALID;
    if (!client && strlen(ask->node) > HELLO_NODE_MAX) return CO_NOTFOUND;
    return CO_OK;
}

bool asks_take(struct asks *asks, struct asks_peer *from, struct slice payload) {
    const Pb__PeerAsk *ask = frame_unpack(&pb__peer_ask__descriptor, payload, &asks->frame);
    if (!ask) return false;
    int refusal = judge(asks, from, ask);
    const char *asker = from->server ? ask->from : from->node;
    if (refusal != CO_OK) asks_tell(asks, from, ask->number, refusal, CO_OK, (struct slice){0});
    else if (!asks->callbacks.servers || asks_same_node(ask->node, asks->node))
        asks_question(asks, from, ask->number, (uint8_t)ask->topic, asker, message_slice(ask->payload));
    else carry(asks, from, ask);
    return true;
}
