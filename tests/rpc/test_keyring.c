/* Changes of the shared keys: who is asked, in which order, and what comes of the answers (rpc/keyring/keyring.h). The agents
 * are made up: rpc_ask is the test's (--wrap, tests/CMakeLists.txt). */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "registry/catalog.h"
#include "rpc/api/ask.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/keyring/keyring.h"
#include "rpc/keyring/keyring.pb-c.h"

#define KEY_A "aaaaaaaaaaaaaaaa"
#define KEY_B "bbbbbbbbbbbbbbbb"

enum { AGENTS_MOST = 600 };
static struct agent {
    char name[16];
    const char *keys[3]; /* the primary first */
    bool plain, failed;  /* failed: of the catalog's list */
    const char *refuses;
    int error; /* instead of an answer; of the reach: */
    enum rpc_ask_reach reach;
    bool garbled;
    unsigned listed, asked; /* so often: list; another verb */
} agents[AGENTS_MOST];
static size_t agent_count;
static int list_error;
static struct rpc_ask *held[AGENTS_MOST];
static size_t held_count, most_held;

static struct agent *add(const char *name, const char *key) {
    struct agent *agent = &agents[agent_count++];
    snprintf(agent->name, sizeof agent->name, "%s", name);
    agent->keys[0] = key;
    agent->reach = RPC_ASK_ANSWERED;
    return agent;
}

/* -- rpc --------------------------------------------------------------------------------------------------------------- */
static void fetch(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    (void)rpc, (void)request;
    struct arena arena = {0};
    Pb__MembersResult all = PB__MEMBERS_RESULT__INIT;
    cr_assert(fetch->type == &query_members && fetch->no_cache);
    all.members = arena_alloc(&arena, agent_count * sizeof *all.members);
    for (; all.n_members < agent_count; all.n_members++) {
        Pb__Member *member = all.members[all.n_members] = arena_alloc(&arena, sizeof *member);
        pb__member__init(member);
        member->name = agents[all.n_members].name, member->failed = agents[all.n_members].failed;
    }
    struct rpc_fetched fetched = {.found = true, .records = message_pack(&arena, &all.base)};
    fetch->done(fetch, list_error, list_error ? NULL : &fetched);
    arena_free(&arena);
}
static const struct rpc_role role = {.fetch = fetch};
static struct rpc rpc = {.role = &role};

static struct agent *find(const char *name) {
    for (size_t i = 0; i < agent_count; i++)
        if (strcmp(agents[i].name, name) == 0) return &agents[i];
    UNREACHABLE();
}

static void answer(struct rpc_ask *ask) {
    struct arena arena = {0};
    struct agent *agent = find(ask->node);
    const Pb__KeyringAsk *asked = message_unpack(&arena, &pb__keyring_ask__descriptor, ask->payload);
    Pb__KeyringAnswer said = PB__KEYRING_ANSWER__INIT;
    ProtobufCBinaryData keys[3];
    cr_assert(asked && ask->topic == RPC_TOPIC_KEYRING);
    cr_assert_eq(asked->key.len > 0, asked->verb != RPC_KEYRING_LIST, "a list carries no key");
    *(asked->verb == RPC_KEYRING_LIST ? &agent->listed : &agent->asked) += 1;
    said.plain = agent->plain;
    said.refusal = (char *)(uintptr_t)(agent->refuses ? agent->refuses : agent->plain ? "it is plain" : "");
    said.keys = keys;
    for (; said.n_keys < 3 && agent->keys[said.n_keys] && !said.refusal[0]; said.n_keys++)
        keys[said.n_keys] = message_bytes(slice_text(agent->keys[said.n_keys]));
    ask->reach = agent->reach;
    struct slice packed = agent->garbled ? SLICE_LITERAL("\xff\xff") : message_pack(&arena, &said.base);
    ask->done(ask, agent->error, agent->reach == RPC_ASK_ANSWERED && !agent->error ? packed : (struct slice){0});
    arena_free(&arena);
}

void __wrap_rpc_ask(struct rpc *of, struct rpc_ask *ask) {
    cr_assert(of == &rpc && held_count < AGENTS_MOST);
    held[held_count++] = ask;
    if (held_count > most_held) most_held = held_count;
}

/* -- asking ------------------------------------------------------------------------------------------------------------- */
static struct rpc_keyring keyring;
static struct {
    int error;
    unsigned count;
    size_t keys, nodes, failed, primaries;
    unsigned of_a, of_b;
    char why[128], refusal[128], refuser[16];
} got;

static void done(struct rpc_keyring *of, int error, const struct rpc_keyring_result *result) {
    cr_assert(of == &keyring);
    got.error = error, got.count++;
    if (error) return;
    got.keys = result->key_count, got.nodes = result->node_count, got.failed = result->failed;
    if (result->why) snprintf(got.why, sizeof got.why, "%s", result->why);
    for (size_t i = 0; i < result->key_count; i++) {
        struct slice key = slice_make(result->keys[i].bytes, result->keys[i].size);
        got.primaries += result->keys[i].primary_nodes;
        if (slice_is(key, KEY_A)) got.of_a = result->keys[i].nodes;
        if (slice_is(key, KEY_B)) got.of_b = result->keys[i].nodes;
    }
    for (size_t i = 0; i < result->node_count; i++)
        if (result->nodes[i].refusal) {
            snprintf(got.refusal, sizeof got.refusal, "%s", result->nodes[i].refusal);
            snprintf(got.refuser, sizeof got.refuser, "%s", result->nodes[i].name);
        }
}

static void ask(enum rpc_keyring_verb verb, const char *key) {
    memset(&got, 0, sizeof got);
    keyring = (struct rpc_keyring){.verb = verb, .done = done};
    if (key) memcpy(keyring.key, key, keyring.key_size = strlen(key));
    rpc_keyring(&rpc, &keyring);
    while (held_count > 0) answer(held[--held_count]); /* the last one first */
    cr_assert_eq(got.count, 1);
}

Test(keyring, what_all_have_is_gathered) {
    add("a1", KEY_A), add("a2", KEY_A)->keys[1] = KEY_B, add("a3", KEY_B)->keys[1] = KEY_A;
    add("gone", KEY_A)->failed = true;
    ask(RPC_KEYRING_LIST, NULL);
    cr_expect(got.error == CO_OK && got.nodes == 3 && got.failed == 0 && got.keys == 2 && got.primaries == 3);
    cr_expect(got.of_a == 3 && got.of_b == 2);
    cr_expect_str_eq(got.why, "");
    cr_expect(agents[0].listed == 1 && agents[0].asked == 0, "once is enough for a list");
    cr_expect_eq(agents[3].listed, 0, "nodes that are down are not asked");
}

Test(keyring, a_key_is_sent_when_all_have_said_that_they_take_no_plain_connections) {
    add("a1", KEY_A), add("a2", KEY_A);
    ask(RPC_KEYRING_INSTALL, KEY_B);
    cr_expect(got.error == CO_OK && got.failed == 0 && !got.why[0]);
    for (int i = 0; i < 2; i++) cr_expect(agents[i].listed == 1 && agents[i].asked == 1);

    agents[1].plain = true;
    static const enum rpc_keyring_verb verbs[] = {RPC_KEYRING_INSTALL, RPC_KEYRING_USE, RPC_KEYRING_REMOVE};
    for (size_t i = 0; i < ARRAY_COUNT(verbs); i++) {
        ask(verbs[i], KEY_B);
        cr_expect(got.error == CO_OK && got.failed == 1);
        cr_expect_str_eq(got.why, "the key was sent to nobody");
        cr_expect_str_eq(got.refuser, "a2");
    }
    for (int i = 0; i < 2; i++) cr_expect_eq(agents[i].asked, 1);
}

Test(keyring, who_did_not_do_it_is_named) {
    static const struct {
        enum rpc_ask_reach reach;
        int error;
        const char *refuses;
        bool garbled;
        const char *why;
    } rows[] = {
        {RPC_ASK_NOT_DELIVERED, CO_NOTFOUND, NULL, false, "no server has a connection with its agent"},
        {RPC_ASK_NOT_DELIVERED, CO_UNSUPPORTED, NULL, false, "its program knows no keyring, or it has none"},
        {RPC_ASK_MAYBE_DELIVERED, CO_TIMEOUT, NULL, false, "no answer in time"},
        {RPC_ASK_MAYBE_DELIVERED, CO_UNKNOWN_OUTCOME, NULL, false, "the connection was lost before its answer came"},
        {RPC_ASK_ANSWERED, CO_OK, "it is the primary key", false, "it is the primary key"},
        {RPC_ASK_ANSWERED, CO_OK, NULL, true, "its answer cannot be read"},
    };
    add("a1", KEY_A), add("a2", KEY_A);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        agents[1].reach = rows[i].reach, agents[1].error = rows[i].error, agents[1].refuses = rows[i].refuses,
        agents[1].garbled = rows[i].garbled;
        ask(RPC_KEYRING_USE, KEY_A);
        cr_expect(got.error == CO_OK && got.failed == 1 && got.nodes == 2 && got.of_a == 1);
        cr_expect_str_eq(got.refuser, "a2");
        cr_expect_str_eq(got.refusal, rows[i].why);
        cr_expect_str_eq(got.why, "", "the others were asked: it may be repeated");
    }
    cr_expect_eq(agents[0].asked, ARRAY_COUNT(rows));
}

Test(keyring, many_are_asked_a_part_at_a_time) {
    char name[16];
    for (int i = 0; i < AGENTS_MOST; i++) {
        snprintf(name, sizeof name, "a%d", i);
        add(name, KEY_A);
    }
    ask(RPC_KEYRING_USE, KEY_A);
    cr_expect(got.nodes == AGENTS_MOST && got.failed == 0 && got.of_a == AGENTS_MOST);
    cr_expect(most_held <= 257 && most_held > 100, "%zu at once", most_held);
    for (int i = 0; i < AGENTS_MOST; i++) cr_assert(agents[i].listed == 1 && agents[i].asked == 1);
}

Test(keyring, nobody_can_be_asked) {
    list_error = CO_NOLEADER;
    ask(RPC_KEYRING_LIST, NULL);
    cr_expect_eq(got.error, CO_NOLEADER);
    list_error = CO_OK;
    ask(RPC_KEYRING_LIST, NULL);
    cr_expect(got.error == CO_OK && got.nodes == 0 && got.keys == 0);
}
