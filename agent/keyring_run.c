#include "agent/keyring_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/list.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message.h"
#include "rpc/api/ask.h"
#include "rpc/keyring/keyring.h"
#include "rpc/keyring/keyring.pb-c.h"

struct keyring_run {
    struct security *security;
    struct security_rules rules;
    struct keyring ring;
    char *path;
    uv_loop_t *loop;
    struct rpc *rpc;     /* NULL: it has not started, or has stopped */
    struct list waiting; /* struct change: one after the other */
    uv_work_t work;
    bool busy;
    void (*stopped)(void *data);
    void *stopped_data;
};

/* A question for a change. */
struct change {
    struct list link;
    struct keyring_run *run;
    struct rpc_question *question;
    char from[256];
    enum rpc_keyring_verb verb;
    struct keyring_key key;
    struct keyring next; /* the ring afterwards */
    struct fault fault;
};

/* -- protecting --------------------------------------------------------------------------------------------------- */
static void protect(struct keyring_run *run) {
    struct security_rules now;
    struct tls_context_config config = {.only_tls13 = true, .psk_count = run->ring.count};
    struct tls_context *context;
    struct fault fault = {0};
    security_get(run->security, &now);
    /* Certificates of the cluster may have come meanwhile (coord secure start): they win. */
    if (run->rules.kind != SECURITY_SHARED_KEY || now.kind == SECURITY_CLUSTER) return;
    for (size_t i = 0; i < run->ring.count; i++)
        config.psk[i] = slice_make(run->ring.keys[i].bytes, run->ring.keys[i].size);
    CHECK(tls_context_make(&config, &context, &fault) == CO_OK);
    security_set(run->security, &run->rules, context);
}

/* -- answering ---------------------------------------------------------------------------------------------------- */
static void tell(struct keyring_run *run, struct rpc_question *question, const char *refusal, bool plain) {
    Pb__KeyringAnswer answer = PB__KEYRING_ANSWER__INIT;
    ProtobufCBinaryData keys[KEYRING_KEYS_MAX];
    struct arena arena = {0};
    answer.refusal = (char *)(uintptr_t)(refusal ? refusal : ""), answer.plain = plain, answer.keys = keys;
    for (; !refusal && answer.n_keys < run->ring.count; answer.n_keys++)
        keys[answer.n_keys] =
            message_bytes(slice_make(run->ring.keys[answer.n_keys].bytes, run->ring.keys[answer.n_keys].size));
    struct slice packed = message_pack(&arena, &answer.base);
    rpc_ask_answer(question, CO_OK, packed);
    if (packed.size) explicit_bzero((void *)(uintptr_t)packed.data, packed.size);
    arena_free(&arena);
}

/* Why keys are not talked about here; NULL: they are. */
static const char *unsafe(const struct keyring_run *run) {
    struct security_rules now;
    security_get(run->security, &now);
    if (run->ring.count == 0) return "there is no keyring: encrypt is not given";
    if (now.kind == SECURITY_OPEN || now.dials_plain) return "it makes plain connections, over which keys must not go";
    if (now.takes_plain) return "it takes plain connections, over which keys must not go";
    return NULL;
}

static const char *const verbs[] = {[RPC_KEYRING_INSTALL] = "installed",
                                    [RPC_KEYRING_USE] = "used for new connections",
                                    [RPC_KEYRING_REMOVE] = "removed"};

static void write_ring(uv_work_t *work) {
    struct keyring_run *run = work->data;
    struct change *change = LIST_ENTRY(run->waiting.next, struct change, link);
    (void)keyring_write(run->path, &change->next, &change->fault);
}

static void end_change(struct keyring_run *run) {
    struct change *change = LIST_ENTRY(run->waiting.next, struct change, link);
    if (!change->fault.code) {
        bool same = memcmp(&run->ring, &change->next, sizeof run->ring) == 0;
        run->ring = change->next;
        if (!same) protect(run);
        if (!same)
            log_info("keyring", "a key was %s from=%s keys=%zu", verbs[change->verb], change->from, run->ring.count);
    } else {
        log_warn("keyring", "a change was refused from=%s reason=\"%s\"", change->from, change->fault.text);
    }
    tell(run, change->question, change->fault.code ? change->fault.text : NULL, false);
    list_remove(&change->link);
    explicit_bzero(change, sizeof *change);
    free(change);
}

static void begin(struct keyring_run *run);

static void written(uv_work_t *work, int status) {
    struct keyring_run *run = work->data;
    CHECK(status == 0);
    run->busy = false;
    end_change(run);
    begin(run);
}

static void finish_stop(struct keyring_run *run) {
    void (*stopped)(void *data) = run->stopped;
    run->stopped = NULL;
    if (stopped) stopped(run->stopped_data);
}

/* Computes the ring after the change. False: there is nothing to write. */
static bool compute(struct keyring_run *run, struct change *change) {
    change->next = run->ring;
    if (change->verb == RPC_KEYRING_INSTALL) (void)keyring_install(&change->next, &change->key, &change->fault);
    else if (change->verb == RPC_KEYRING_USE) (void)keyring_use(&change->next, &change->key, &change->fault);
    else (void)keyring_remove(&change->next, &change->key, &change->fault);
    return !change->fault.code && run->path && memcmp(&run->ring, &change->next, sizeof run->ring) != 0;
}

static void begin(struct keyring_run *run) {
    while (!run->busy && !list_empty(&run->waiting)) {
        if (!compute(run, LIST_ENTRY(run->waiting.next, struct change, link))) {
            end_change(run);
            continue;
        }
        run->busy = true;
        run->work.data = run;
        CHECK(uv_queue_work(run->loop, &run->work, write_ring, written) == 0);
    }
    if (!run->busy) finish_stop(run);
}

static void take_change(struct keyring_run *run, const char *from, const Pb__KeyringAsk *ask,
                        struct rpc_question *question) {
    struct change *change = mem_zalloc(sizeof *change);
    change->run = run, change->question = question, change->verb = ask->verb;
    snprintf(change->from, sizeof change->from, "%s", from);
    struct fault fault = {0};
    if (keyring_key_of(message_slice(ask->key), &change->key, &fault) != CO_OK) {
        tell(run, question, fault.text, false);
        free(change);
        return;
    }
    list_append(&run->waiting, &change->link);
    begin(run);
}

static void asked(void *data, const char *from, struct slice payload, struct rpc_question *question) {
    struct keyring_run *run = data;
    struct arena arena = {0};
    const Pb__KeyringAsk *ask = message_unpack(&arena, &pb__keyring_ask__descriptor, payload);
    const char *no = unsafe(run);
    if (!ask || ask->verb == 0 || ask->verb >= RPC_KEYRING_VERBS)
        tell(run, question, "its program knows no such request", false);
    else if (no) tell(run, question, no, true);
    else if (ask->verb == RPC_KEYRING_LIST) tell(run, question, NULL, false);
    else take_change(run, from, ask, question);
    if (ask && ask->key.len) explicit_bzero(ask->key.data, ask->key.len);
    arena_free(&arena);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct keyring_run *keyring_run_new(struct security *security, const struct security_rules *rules,
                                    const struct keyring *ring, const char *path) {
    struct keyring_run *run = mem_zalloc(sizeof *run);
    run->security = security, run->rules = *rules, run->ring = *ring;
    run->path = path ? mem_strdup(path) : NULL;
    list_init(&run->waiting);
    protect(run);
    return run;
}

void keyring_run_start(struct keyring_run *run, uv_loop_t *loop, struct rpc *rpc) {
    run->loop = loop, run->rpc = rpc;
    rpc_answer_asks(rpc, RPC_TOPIC_KEYRING, asked, run);
}

void keyring_run_stop(struct keyring_run *run, void (*stopped)(void *data), void *data) {
    if (!run || !run->rpc) {
        stopped(data);
        return;
    }
    rpc_answer_asks(run->rpc, RPC_TOPIC_KEYRING, NULL, NULL);
    run->rpc = NULL;
    run->stopped = stopped, run->stopped_data = data;
    if (!run->busy) finish_stop(run);
}

void keyring_run_free(struct keyring_run *run) {
    if (!run) return;
    keyring_wipe(&run->ring);
    free(run->path);
    free(run);
}
