/* Lists the living agents, asks each of them, and gathers the answers. */
#include "rpc/keyring/keyring.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "registry/catalog.h"
#include "rpc/api/ask.h"
#include "rpc/keyring/keyring.pb-c.h"

#define ASK_MS 10000
#define WINDOW 256 /* asks under way at a time */

struct work;
struct asked_node {
    struct work *work;
    struct rpc_ask ask;
    const char *name, *refusal; /* refusal NULL: none */
    struct buffer answer;       /* packed; it may have keys */
    bool plain;
};

struct work {
    struct rpc *rpc;
    struct rpc_keyring *keyring;
    struct rpc_fetch fetch;
    struct arena arena; /* of whoever runs `step`, and before of `listed` */
    struct asked_node *nodes;
    size_t count;
    enum rpc_keyring_verb verb; /* of this round */
    struct slice payload;
    _Atomic size_t next, open; /* open: asks under way, and 1 for whoever is starting them */
};

static void wipe(struct buffer *buffer) {
    if (buffer->data) explicit_bzero(buffer->data, buffer->capacity);
    buffer_free(buffer);
}

static void work_free(struct work *work) {
    for (size_t i = 0; i < work->count; i++) wipe(&work->nodes[i].answer);
    if (work->payload.size) explicit_bzero((void *)(uintptr_t)work->payload.data, work->payload.size);
    free(work->nodes);
    arena_free(&work->arena);
    free(work);
}

/* -- the answers -------------------------------------------------------------------------------------------------- */
static void count_key(struct rpc_keyring_result *result, struct slice key, bool primary) {
    struct rpc_keyring_key *at = result->keys;
    while (at < result->keys + result->key_count && !slice_equal(slice_make(at->bytes, at->size), key)) at++;
    if (at == result->keys + result->key_count) {
        if (key.size > RPC_KEYRING_KEY_MAX) return;
        result->keys = mem_realloc(result->keys, (result->key_count + 1) * sizeof *result->keys);
        at = &result->keys[result->key_count++];
        *at = (struct rpc_keyring_key){.size = key.size};
        memcpy(at->bytes, key.data, key.size);
    }
    at->nodes++;
    at->primary_nodes += primary;
}

static void count_keys(struct work *work, const struct asked_node *node, struct rpc_keyring_result *result) {
    const Pb__KeyringAnswer *answer =
        message_unpack(&work->arena, &pb__keyring_answer__descriptor, buffer_slice(&node->answer));
    if (!answer) return;
    for (size_t i = 0; i < answer->n_keys; i++) {
        count_key(result, message_slice(answer->keys[i]), i == 0);
        explicit_bzero(answer->keys[i].data, answer->keys[i].len);
    }
}

static void finish(struct work *work, const char *why) {
    struct rpc_keyring *keyring = work->keyring;
    struct rpc_keyring_result result = {.node_count = work->count, .why = why};
    result.nodes = arena_zalloc(&work->arena, (work->count + 1) * sizeof *result.nodes);
    for (size_t i = 0; i < work->count; i++) {
        result.nodes[i] = (struct rpc_keyring_node){work->nodes[i].name, work->nodes[i].refusal};
        if (work->nodes[i].refusal) result.failed++;
        else count_keys(work, &work->nodes[i], &result);
    }
    keyring->done(keyring, CO_OK, &result);
    if (result.keys) explicit_bzero(result.keys, result.key_count * sizeof *result.keys);
    free(result.keys);
    work_free(work);
}

/* -- asking ------------------------------------------------------------------------------------------------------- */
static void round_over(struct work *work);
static void start_more(struct work *work);

static const char *unreached(enum rpc_ask_reach reach, int error) {
    if (reach == RPC_ASK_MAYBE_DELIVERED)
        return error == CO_TIMEOUT ? "no answer in time" : "the connection was lost before its answer came";
    return error == CO_NOTFOUND      ? "no server has a connection with its agent"
           : error == CO_UNSUPPORTED ? "its program knows no keyring, or it has none"
                                     : co_strerror(error);
}

/* Runs on the thread that brings the answer. Each node is written by one thread, and read when the round is over. */
static void answered(struct rpc_ask *ask, int error, struct slice answer) {
    struct asked_node *node = CONTAINER_OF(ask, struct asked_node, ask);
    struct work *work = node->work;
    wipe(&node->answer);
    node->plain = false, node->refusal = NULL;
    if (ask->reach != RPC_ASK_ANSWERED) node->refusal = unreached(ask->reach, error);
    else if (error) node->refusal = co_strerror(error);
    else if (answer.size) buffer_append(&node->answer, answer.data, answer.size);
    start_more(work);
    if (atomic_fetch_sub(&work->open, 1) == 1) round_over(work);
}

static void start_more(struct work *work) {
    while (atomic_load(&work->open) <= WINDOW) {
        size_t at = atomic_fetch_add(&work->next, 1);
        if (at >= work->count) return;
        struct asked_node *node = &work->nodes[at];
        atomic_fetch_add(&work->open, 1);
        node->ask = (struct rpc_ask){.node = node->name,
                                     .topic = RPC_TOPIC_KEYRING,
                                     .payload = work->payload,
                                     .timeout_ms = ASK_MS,
                                     .done = answered};
        rpc_ask(work->rpc, &node->ask);
    }
}

static void ask_all(struct work *work, enum rpc_keyring_verb verb) {
    const struct rpc_keyring *keyring = work->keyring;
    Pb__KeyringAsk ask = PB__KEYRING_ASK__INIT;
    work->verb = verb;
    ask.verb = verb;
    if (verb != RPC_KEYRING_LIST) ask.key = message_bytes(slice_make(keyring->key, keyring->key_size));
    work->payload = message_pack(&work->arena, &ask.base);
    atomic_store(&work->next, 0);
    atomic_store(&work->open, 1);
    start_more(work);
    if (atomic_fetch_sub(&work->open, 1) == 1) round_over(work);
}

/* Takes a refusal out of the answer. True: it is about plain connections, or there are no keys at all. */
static bool read_refusal(struct work *work, struct asked_node *node) {
    if (node->refusal) return false;
    const Pb__KeyringAnswer *answer =
        message_unpack(&work->arena, &pb__keyring_answer__descriptor, buffer_slice(&node->answer));
    if (!answer) node->refusal = "its answer cannot be read";
    else if (answer->refusal[0]) node->refusal = answer->refusal;
    return answer && answer->plain;
}

static void round_over(struct work *work) {
    bool plain = false;
    for (size_t i = 0; i < work->count; i++) plain |= read_refusal(work, &work->nodes[i]);
    bool looked = work->verb != work->keyring->verb;
    if (looked && !plain) ask_all(work, work->keyring->verb);
    else finish(work, looked ? "the key was sent to nobody" : NULL);
}

/* -- the living agents -------------------------------------------------------------------------------------------- */
static void take_members(struct work *work, const Pb__MembersResult *members) {
    work->nodes = mem_zalloc((members->n_members + 1) * sizeof *work->nodes);
    for (size_t i = 0; i < members->n_members; i++) {
        const Pb__Member *member = members->members[i];
        if (member->failed || member->left) continue;
        work->nodes[work->count++] = (struct asked_node){.work = work, .name = member->name};
    }
}

static void listed(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct work *work = CONTAINER_OF(fetch, struct work, fetch);
    struct rpc_keyring *keyring = work->keyring;
    const Pb__MembersResult *members =
        error ? NULL : message_unpack(&work->arena, &pb__members_result__descriptor, fetched->records);
    if (!members) {
        work_free(work);
        keyring->done(keyring, error ? error : CO_CORRUPT, NULL);
        return;
    }
    take_members(work, members);
    ask_all(work, RPC_KEYRING_LIST); /* a key goes to nobody before all have said that they take no plain connections */
}

void rpc_keyring(struct rpc *rpc, struct rpc_keyring *keyring) {
    struct work *work = mem_zalloc(sizeof *work);
    work->rpc = rpc, work->keyring = keyring;
    CHECK(keyring->key_size <= RPC_KEYRING_KEY_MAX);
    work->fetch =
        (struct rpc_fetch){.type = &query_members, .freshness = RPC_DEFAULT, .no_cache = true, .done = listed};
    Pb__TableRequest request = PB__TABLE_REQUEST__INIT;
    rpc_fetch(rpc, &work->fetch, &request.base);
}
