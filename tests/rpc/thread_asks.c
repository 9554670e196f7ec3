/* Asks over real connections: three servers and two client agents, each with its loop on a thread of its own, asked by
 * many threads and answered at once, later, and from another thread, while one of the agents goes and comes back at
 * another server. Every ask has a number of its own, so that what its outcome says about its delivery can be compared
 * with what was delivered. A plain main: runs under the sanitizers. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agents.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "rpc/api/ask.h"
#include "rpc/core/rpc_internal.h"
#include "tests/lib/servers.h"

enum { SERVERS = 3, AGENTS = 2, NODES = SERVERS + AGENTS };
enum { TOPIC_AT_ONCE = 1, TOPIC_LATER = 2 };
#define ASKS_MOST (1u << 20)

static struct server servers[SERVERS];
static struct agent agents[AGENTS];
static const char *const names[NODES] = {"server-1", "server-2", "server-3", "agent-a", "agent-b"};
static const char *join[SERVERS][2];

static _Atomic uint8_t delivered[ASKS_MOST]; /* how often, by number */
static _Atomic unsigned last_number;

static struct rpc *rpc_of(unsigned node) { return node < SERVERS ? servers[node].rpc : agents[node - SERVERS].rpc; }

/* -- who answers --------------------------------------------------------------------------------------------------- */
struct later {
    struct mail mail;
    struct rpc_question *question;
    size_t size;
    char answer[64];
};
static struct mailbox later_box;
static uv_sem_t later_wake;
static atomic_bool later_over;

/* "TO<FROM:NUMBER" */
static size_t answer_of(char answer[64], const char *to, const char *from, struct slice payload) {
    unsigned number = 0;
    CHECK(payload.size >= sizeof number);
    memcpy(&number, payload.data, sizeof number);
    CHECK(number < ASKS_MOST);
    atomic_fetch_add(&delivered[number], 1);
    return (size_t)snprintf(answer, 64, "%s<%s:%u", to, from, number);
}
static void asked_at_once(void *data, const char *from, struct slice payload, struct rpc_question *question) {
    char answer[64];
    size_t size = answer_of(answer, data, from, payload);
    rpc_ask_answer(question, CO_OK, slice_make(answer, size));
}
static void asked_later(void *data, const char *from, struct slice payload, struct rpc_question *question) {
    struct later *later = malloc(sizeof *later);
    later->question = question, later->size = answer_of(later->answer, data, from, payload);
    if (mailbox_put(&later_box, &later->mail)) uv_sem_post(&later_wake);
}

static void answer_all(void) {
    for (struct mail *mail = mailbox_take(&later_box), *next; mail; mail = next) {
        struct later *later = CONTAINER_OF(mail, struct later, mail);
        next = mail->next;
        rpc_ask_answer(later->question, CO_OK, slice_make(later->answer, later->size));
        free(later);
    }
}
static void *later_main(void *data) {
    while (!atomic_load(&later_over)) {
        uv_sem_wait(&later_wake);
        answer_all();
    }
    answer_all();
    return data;
}

struct set_up {
    struct loop_task task;
    unsigned node;
    uv_sem_t done;
};
static void answers(struct rpc *rpc, const char *name) {
    rpc_answer_asks(rpc, TOPIC_AT_ONCE, asked_at_once, (void *)(uintptr_t)name);
    rpc_answer_asks(rpc, TOPIC_LATER, asked_later, (void *)(uintptr_t)name);
}
static void agent_started(struct agent *agent) { answers(agent->rpc, agent->node); }
static void on_set_up(struct loop_task *task) {
    struct set_up *up = CONTAINER_OF(task, struct set_up, task);
    answers(task->rpc, names[up->node]);
    uv_sem_post(&up->done);
}
static void server_answers(unsigned node) {
    struct set_up up = {.node = node};
    CHECK(uv_sem_init(&up.done, 0) == 0);
    rpc_on_loop(rpc_of(node), &up.task, on_set_up);
    uv_sem_wait(&up.done);
    uv_sem_destroy(&up.done);
}
static void agent_up(unsigned agent, unsigned server) {
    agent_start(&agents[agent], names[SERVERS + agent], join[server], 0, agent_started);
}
static void agent_gone(unsigned agent) {
    agent_begin_stop(&agents[agent]);
    agent_end(&agents[agent]);
}

/* -- who asks ------------------------------------------------------------------------------------------------------ */
struct mine {
    struct rpc_ask ask;
    uv_sem_t *done;
    unsigned number, from, to;
    _Atomic unsigned ends;
    int error;
    enum rpc_ask_reach reach;
    char payload[sizeof(unsigned)];
};

static void on_done(struct rpc_ask *ask, int error, struct slice answer) {
    struct mine *mine = CONTAINER_OF(ask, struct mine, ask);
    char expected[64];
    size_t size =
        (size_t)snprintf(expected, sizeof expected, "%s<%s:%u", names[mine->to], names[mine->from], mine->number);
    mine->error = error, mine->reach = ask->reach;
    if (ask->reach == RPC_ASK_ANSWERED) CHECK(error == CO_OK && slice_equal(answer, slice_make(expected, size)));
    else CHECK(error != CO_OK && answer.size == 0);
    CHECK(atomic_fetch_add(&mine->ends, 1) == 0);
    uv_sem_post(mine->done);
}
static void begin(struct mine *mine, uv_sem_t *done, unsigned from, unsigned to, uint8_t topic, uint32_t timeout_ms) {
    *mine = (struct mine){.done = done, .from = from, .to = to, .number = atomic_fetch_add(&last_number, 1)};
    CHECK(mine->number < ASKS_MOST);
    memcpy(mine->payload, &mine->number, sizeof mine->number);
    mine->ask = (struct rpc_ask){.node = names[to],
                                 .topic = topic,
                                 .payload = slice_make(mine->payload, sizeof mine->payload),
                                 .timeout_ms = timeout_ms,
                                 .done = on_done};
    rpc_ask(rpc_of(from), &mine->ask);
}
/* The outcome that was reported holds now, and later. */
static void compare(const struct mine *mine) {
    CHECK(atomic_load(&mine->ends) == 1);
    unsigned times = atomic_load(&delivered[mine->number]);
    CHECK(times <= 1);
    if (mine->reach == RPC_ASK_ANSWERED) CHECK(times == 1);
    if (mine->reach == RPC_ASK_NOT_DELIVERED) CHECK(times == 0);
}

static int ask_one(unsigned from, unsigned to, uint8_t topic) {
    struct mine mine;
    uv_sem_t done;
    CHECK(uv_sem_init(&done, 0) == 0);
    begin(&mine, &done, from, to, topic, 10000);
    uv_sem_wait(&done);
    uv_sem_destroy(&done);
    compare(&mine);
    return mine.error;
}
static void ask_until_answered_at(unsigned from, unsigned to, uint8_t topic) {
    uint64_t deadline = clock_mono_ms() + 60000;
    while (ask_one(from, to, topic) != CO_OK) {
        CHECK(clock_mono_ms() < deadline);
        usleep(2000);
    }
}
static void ask_until_answered(unsigned from, unsigned to) { ask_until_answered_at(from, to, TOPIC_AT_ONCE); }

static void everybody_reaches_everybody(void) {
    for (unsigned from = 0; from < NODES; from++)
        for (unsigned to = 0; to < NODES; to++) {
            ask_until_answered(from, to); /* its connection may be to come */
            ask_until_answered(from, to);
            ask_until_answered_at(from, to, TOPIC_LATER);
        }
}

/* -- gathered ------------------------------------------------------------------------------------------------------ */
/* Reads and writes; sockets are not counted otherwise. */
static unsigned long long calls_now(void) {
    unsigned long long reads = 0, writes = 0;
    FILE *file = fopen("/proc/self/io", "r");
    CHECK(file && fscanf(file, "rchar: %*u wchar: %*u syscr: %llu syscw: %llu", &reads, &writes) == 2);
    fclose(file);
    return reads + writes;
}

struct burst {
    struct loop_task task;
    struct mine mine[1000];
    uv_sem_t done;
    unsigned to;
};
static void on_burst(struct loop_task *task) {
    struct burst *burst = CONTAINER_OF(task, struct burst, task);
    for (size_t i = 0; i < ARRAY_COUNT(burst->mine); i++)
        begin(&burst->mine[i], &burst->done, SERVERS, burst->to, TOPIC_AT_ONCE, 20000);
}
/* Those that are asked in one turn go on together, and so do their answers, at every process on the way. False: not
 * this time, because a machine that stands still loses connections, and what the servers say to each other counts too. */
static bool share_a_write(unsigned to) {
    static struct burst burst;
    CHECK(uv_sem_init(&burst.done, 0) == 0);
    burst.to = to;
    unsigned long long calls = calls_now();
    rpc_on_loop(rpc_of(SERVERS), &burst.task, on_burst);
    for (size_t i = 0; i < ARRAY_COUNT(burst.mine); i++) uv_sem_wait(&burst.done);
    calls = calls_now() - calls;
    bool good = calls < ARRAY_COUNT(burst.mine) / 2;
    for (size_t i = 0; i < ARRAY_COUNT(burst.mine); i++) {
        compare(&burst.mine[i]);
        good = good && burst.mine[i].error == CO_OK;
    }
    printf("%zu asks of one turn to %s: %llu reads and writes in all processes\n", ARRAY_COUNT(burst.mine), names[to],
           calls);
    uv_sem_destroy(&burst.done);
    return good;
}

static void many_of_one_turn_share_a_write(unsigned to) {
    bool good = share_a_write(to);
    for (int i = 0; i < 4 && !good; i++) {
        ask_until_answered(SERVERS, to);
        good = share_a_write(to);
    }
    CHECK(good);
}

/* -- a storm ------------------------------------------------------------------------------------------------------- */
enum { ASKERS = 4, ROUNDS = 60, AT_A_TIME = 100, MOVES = 8 };
static _Atomic unsigned tally[3], by_error[CO_ERROR_COUNT];

static struct mine storm[ASKERS][ROUNDS * AT_A_TIME];

static void *asker_main(void *data) {
    struct mine *mine = storm[(uintptr_t)data];
    struct rng rng;
    uv_sem_t done;
    CHECK(uv_sem_init(&done, 0) == 0);
    rng_seed(&rng, 1 + (uintptr_t)data);
    for (unsigned round = 0, at = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < AT_A_TIME; i++, at++) /* not from the agent that goes */
            begin(&mine[at], &done, (unsigned)rng_below(&rng, NODES - 1), (unsigned)rng_below(&rng, NODES),
                  rng_below(&rng, 2) ? TOPIC_LATER : TOPIC_AT_ONCE, rng_below(&rng, 50) ? 20000 : 1);
        for (unsigned i = 0; i < AT_A_TIME; i++) uv_sem_wait(&done);
    }
    for (unsigned i = 0; i < ROUNDS * AT_A_TIME; i++) {
        atomic_fetch_add(&tally[mine[i].reach], 1);
        atomic_fetch_add(&by_error[mine[i].error], 1);
    }
    uv_sem_destroy(&done);
    return NULL;
}

static void a_storm(void) {
    pthread_t askers[ASKERS];
    for (uintptr_t i = 0; i < ASKERS; i++) CHECK(pthread_create(&askers[i], NULL, asker_main, (void *)i) == 0);
    for (unsigned i = 0; i < MOVES; i++) {
        usleep(20000);
        agent_gone(1);
        usleep(i % 2 ? 20000 : 0);
        agent_up(1, (i + 2) % SERVERS);
        ask_until_answered(0, SERVERS + 1); /* found again, also by who believed that it was elsewhere */
    }
    for (unsigned i = 0; i < ASKERS; i++) pthread_join(askers[i], NULL);
    printf("a storm of %u: %u answered, %u surely not delivered, %u maybe\n", ASKERS * ROUNDS * AT_A_TIME,
           tally[RPC_ASK_ANSWERED], tally[RPC_ASK_NOT_DELIVERED], tally[RPC_ASK_MAYBE_DELIVERED]);
    for (int error = 1; error < CO_ERROR_COUNT; error++)
        if (by_error[error]) printf("  %u %s\n", by_error[error], co_strerror(error));
    CHECK(tally[RPC_ASK_ANSWERED] > ASKERS * ROUNDS * AT_A_TIME / 2);
    CHECK(by_error[CO_CLOSED] == 0 && by_error[CO_UNSUPPORTED] == 0);
}

/* -- the end ------------------------------------------------------------------------------------------------------- */
/* All at once, with asks of every kind under way. */
static void stop_in_the_middle(pthread_t later) {
    enum { COUNT = 2000 };
    static struct mine mine[COUNT];
    struct rng rng;
    uv_sem_t done;
    CHECK(uv_sem_init(&done, 0) == 0);
    rng_seed(&rng, 77);
    for (unsigned i = 0; i < COUNT; i++)
        begin(&mine[i], &done, (unsigned)rng_below(&rng, NODES), (unsigned)rng_below(&rng, NODES),
              i % 2 ? TOPIC_LATER : TOPIC_AT_ONCE, 20000);
    for (unsigned i = 0; i < AGENTS; i++) agent_begin_stop(&agents[i]);
    servers_stop(servers, SERVERS);
    for (unsigned i = 0; i < AGENTS; i++) agent_end(&agents[i]);
    atomic_store(&later_over, true);
    uv_sem_post(&later_wake);
    pthread_join(later, NULL);
    for (unsigned i = 0; i < COUNT; i++) uv_sem_wait(&done);
    for (unsigned i = 0; i < COUNT; i++) compare(&mine[i]);
    for (unsigned i = 0; i < ASKERS; i++) /* of what went before nothing is on its way any more */
        for (unsigned k = 0; k < ROUNDS * AT_A_TIME; k++)
            if (storm[i][k].done) compare(&storm[i][k]);
    uv_sem_destroy(&done);
}

/* -- figures: `thread_asks bench` ---------------------------------------------------------------------------------- */
static double cpu_us(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}
/* `many` under way at a time. */
static void measure(const char *what, unsigned from, unsigned to, unsigned count, unsigned many) {
    struct mine *mine = calloc(many, sizeof *mine);
    uv_sem_t done;
    CHECK(uv_sem_init(&done, 0) == 0);
    ask_until_answered(from, to);
    double cpu = cpu_us();
    unsigned long long calls = calls_now();
    uint64_t begun = clock_mono_ns();
    for (unsigned i = 0; i < count; i += many) {
        for (unsigned k = 0; k < many; k++) begin(&mine[k], &done, from, to, TOPIC_AT_ONCE, 10000);
        for (unsigned k = 0; k < many; k++) uv_sem_wait(&done);
        for (unsigned k = 0; k < many; k++) CHECK(mine[k].error == CO_OK);
    }
    double us = (double)(clock_mono_ns() - begun) / 1e3;
    printf(
        "%-34s %4u at a time: %7.1f us for all of them, %8.0f asks/s, %5.1f us CPU and %5.2f reads and writes each\n",
        what, many, us / count * many, count / us * 1e6, (cpu_us() - cpu) / count,
        (double)(calls_now() - calls) / count);
    uv_sem_destroy(&done);
    free(mine);
}

static void figures(void) {
    static const unsigned many[] = {1, 64, 1000};
    agent_gone(1);
    agent_up(1, 0);
    for (unsigned i = 0; i < ARRAY_COUNT(many); i++) {
        unsigned count = many[i] == 1 ? 5000 : 60000;
        measure("own node", SERVERS, SERVERS, count, many[i]);
        measure("agent to its server", SERVERS, 0, count, many[i]);
        measure("agent, server, agent", SERVERS, SERVERS + 1, count, many[i]);
        measure("agent, server, server", SERVERS, 1, count, many[i]);
    }
    agent_gone(1);
    agent_up(1, 1);
    for (unsigned i = 0; i < ARRAY_COUNT(many); i++)
        measure("agent, server, server, agent", SERVERS, SERVERS + 1, many[i] == 1 ? 5000 : 60000, many[i]);
}

int main(int argc, char **argv) {
    pthread_t later;
    signal(SIGPIPE, SIG_IGN); /* as the program does */
    CHECK(uv_sem_init(&later_wake, 0) == 0 && pthread_create(&later, NULL, later_main, NULL) == 0);
    servers_start(servers, SERVERS, 3);
    for (unsigned i = 0; i < SERVERS; i++) {
        CHECK(strcmp(servers[i].name, names[i]) == 0);
        join[i][0] = servers[i].address;
        server_answers(i);
    }
    for (unsigned i = 0; i < AGENTS; i++) agent_up(i, i);
    everybody_reaches_everybody();
    many_of_one_turn_share_a_write(0);
    many_of_one_turn_share_a_write(SERVERS + 1);
    if (argc > 1 && strcmp(argv[1], "bench") == 0) figures();
    else a_storm();
    stop_in_the_middle(later);
    return 0;
}
