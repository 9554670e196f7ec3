/* Takes of many threads beside the loop that asks and follows for them: nobody is admitted twice, what waits is answered
 * once, and what is held goes back at the end, also while takes wait. A plain main: runs under the sanitizers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "asked.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/message.h"
#include "base/random.h"
#include "registry/catalog.h"
#include "rpc/quota/spender_run.h"
#include "tests/lib/servers.h"

#define TAKERS 4
#define BUDGET 20000
#define OWNED  12000 /* of the one key that is taken from, in owner mode */

static struct server server;

/* -- commands ----------------------------------------------------------------------------------------------------- */

struct told {
    struct rpc_write write;
    uv_sem_t done;
    int error;
};

static void told(struct rpc_write *write, int error, const struct machine_result *result) {
    struct told *command = CONTAINER_OF(write, struct told, write);
    command->error = error ? error : result->error;
    uv_sem_post(&command->done);
}

static int tell(uint8_t number, const ProtobufCMessage *message) {
    struct told command = {.write.done = told};
    CHECK(uv_sem_init(&command.done, 0) == 0);
    rpc_submit(server.rpc, &command.write, number, message);
    uv_sem_wait(&command.done);
    uv_sem_destroy(&command.done);
    return command.error;
}

static void register_node(void) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
    Pb__Service service = PB__SERVICE__INIT;
    node.name = "n1", node.address = "127.0.0.1";
    check.node = "n1", check.check_id = "serfHealth", check.name = "x", check.status = PB__STATUS__PASSING;
    service.node = "n1", service.id = service.name = "gw";
    command.node = &node, command.checks = checks, command.n_checks = 1, command.service = &service;
    CHECK(tell(CATALOG_REGISTER, &command.base) == CO_OK);
}

/* The cluster's version rises soon after the start. */
static void define(const char *name, uint64_t budget, bool owned) {
    Pb__QuotaPutCommand command = PB__QUOTA_PUT_COMMAND__INIT;
    Pb__QuotaDefinition definition = PB__QUOTA_DEFINITION__INIT;
    struct fault fault = {0};
    uint64_t deadline = clock_mono_ms() + 60000;
    definition.name = (char *)(uintptr_t)name, definition.budget = budget;
    definition.window = PB__QUOTA_WINDOW__QUOTA_MONTH, definition.max_lease = 100000;
    if (owned) definition.mode = PB__QUOTA_MODE__QUOTA_OWNER, definition.service = (char *)(uintptr_t) "gw";
    CHECK(quota_definition_check(&definition, &fault) == CO_OK);
    command.definition = &definition, command.now_unix_ms = clock_wall_ns() / 1000000;
    int error;
    while ((error = tell(QUOTA_PUT, &command.base)) == CO_UNSUPPORTED && clock_mono_ms() < deadline) usleep(10000);
    CHECK(error == CO_OK);
}

/* The sum that is settled, when nothing is held. */
static uint64_t spent(const char *name) {
    Pb__QuotaRequest request = PB__QUOTA_REQUEST__INIT;
    struct asked asked;
    struct arena arena = {0};
    request.name = (char *)(uintptr_t)name;
    asked_begin(&asked, server.rpc, &query_quota, &request.base, (struct how){0});
    asked_await(&asked);
    CHECK(asked.error == CO_OK && asked.fetched.found);
    const Pb__QuotaState *state = message_unpack(&arena, &pb__quota_state__descriptor, buffer_slice(&asked.records));
    CHECK(state && state->record->leased == 0 && state->record->stranded == 0);
    uint64_t sum = state->record->spent;
    asked_end(&asked);
    arena_free(&arena);
    return sum;
}

/* -- the agent's loop --------------------------------------------------------------------------------------------- */

static struct agent {
    uv_loop_t loop;
    uv_async_t stop, hurry;
    uv_thread_t thread;
    struct spender_run *spender_run;
} agent;

static void stopped(void *data) {
    (void)data;
    uv_close((uv_handle_t *)&agent.stop, NULL);
    uv_close((uv_handle_t *)&agent.hurry, NULL);
}
static void on_stop(uv_async_t *async) {
    (void)async;
    spender_run_stop(agent.spender_run, stopped, NULL);
}
static void on_hurry(uv_async_t *async) {
    (void)async;
    spender_run_hurry(agent.spender_run);
}
static void loop_run(void *data) { uv_run(data, UV_RUN_DEFAULT); }

static bool passes(void *data, const char *service) {
    (void)data;
    return strcmp(service, "gw") == 0;
}

static void agent_start(void) {
    struct spender_run_config config = {.node = "n1", .priority = 5, .passes = passes};
    CHECK(uv_loop_init(&agent.loop) == 0 && uv_async_init(&agent.loop, &agent.stop, on_stop) == 0);
    CHECK(uv_async_init(&agent.loop, &agent.hurry, on_hurry) == 0);
    agent.spender_run = spender_run_start(&agent.loop, server.rpc, &config);
    CHECK(uv_thread_create(&agent.thread, loop_run, &agent.loop) == 0);
}

static void agent_stop(void) {
    uv_async_send(&agent.stop);
    uv_thread_join(&agent.thread);
    CHECK(uv_loop_close(&agent.loop) == 0);
}

/* -- takers ------------------------------------------------------------------------------------------------------- */

struct request {
    struct spender_run_take take;
    struct spender_take takes[3];
    struct spender_rate rates[3];
    uv_sem_t done;
    _Atomic unsigned answers;
};

static void done(struct spender_run_take *take) {
    struct request *request = CONTAINER_OF(take, struct request, take);
    CHECK(atomic_fetch_add(&request->answers, 1) == 0);
    uv_sem_post(&request->done);
}

static int take(struct request *request, size_t count, uint64_t n) {
    static const char *const names[] = {"a", "b", "o"};
    request->answers = 0;
    for (size_t i = 0; i < count; i++)
        request->takes[i] = (struct spender_take){.name = slice_text(names[i]), .key = slice_text("k"), .n = n};
    request->take =
        (struct spender_run_take){.takes = request->takes, .count = count, .rates = request->rates, .done = done};
    if (!spender_run_take(agent.spender_run, &request->take)) uv_sem_wait(&request->done);
    return request->take.error;
}

static _Atomic uint64_t admitted_a, admitted_b, admitted_o;
static _Atomic bool end;

static void taker(void *data) {
    struct request request = {0};
    struct rng rng;
    unsigned refused = 0;
    rng_seed(&rng, (uint64_t)(uintptr_t)data);
    CHECK(uv_sem_init(&request.done, 0) == 0);
    while (!end && refused < 200) {
        uint64_t n = 1 + rng_below(&rng, 8);
        size_t count = 1 + rng_below(&rng, 3);
        int error = take(&request, count, n);
        /* CO_CLOSED: the agent ends (hurried) */
        CHECK(error == CO_OK || error == CO_BUSY || error == CO_NOLEADER || error == CO_CLOSED);
        if (error == CO_BUSY) refused++;
        if (error != CO_OK) continue;
        atomic_fetch_add(&admitted_a, n);
        if (count > 1) atomic_fetch_add(&admitted_b, n);
        if (count > 2) atomic_fetch_add(&admitted_o, n);
        CHECK(request.rates[0].quota % BUDGET == 0 && request.rates[0].quota);
    }
    uv_sem_destroy(&request.done);
}

static void takers_run(void (*meanwhile)(void)) {
    uv_thread_t threads[TAKERS];
    end = false;
    admitted_a = 0;
    admitted_b = 0;
    admitted_o = 0;
    for (uintptr_t i = 0; i < TAKERS; i++) CHECK(uv_thread_create(&threads[i], taker, (void *)(i + 1)) == 0);
    if (meanwhile) meanwhile();
    for (size_t i = 0; i < TAKERS; i++) uv_thread_join(&threads[i]);
}

/* The key's rest by its owner's count: tokens of takes that were refused together with others came back. */
static uint64_t left_of_key(void) {
    struct request request = {.takes = {{.name = slice_text("o"), .key = slice_text("k")}}};
    CHECK(uv_sem_init(&request.done, 0) == 0);
    request.take = (struct spender_run_take){.takes = request.takes, .count = 1, .rates = request.rates, .done = done};
    do {
        if (!spender_run_take(agent.spender_run, &request.take)) uv_sem_wait(&request.done);
        request.answers = 0;
    } while (request.take.error == CO_NOLEADER); /* it is no owner yet */
    CHECK(request.take.error == CO_OK && request.rates[0].quota == OWNED);
    uv_sem_destroy(&request.done);
    return request.rates[0].remaining;
}

static void all_of_it_is_spent_once(void) {
    agent_start();
    (void)left_of_key(); /* it is an owner from now on */
    takers_run(NULL);
    uint64_t left = left_of_key();
    agent_stop();
    fprintf(stderr, "of the key %llu, %llu are left\n", (unsigned long long)admitted_o, (unsigned long long)left);
    CHECK(admitted_o && admitted_o + left == OWNED);
    fprintf(stderr, "admitted %llu and %llu of %d\n", (unsigned long long)admitted_a, (unsigned long long)admitted_b,
            BUDGET);
    CHECK(admitted_a <= BUDGET && admitted_a + 8 * TAKERS > BUDGET && admitted_b <= admitted_a);
    CHECK(spent("a") == admitted_a && spent("b") == admitted_b);
}

/* Takes are refused at once from then on, and the end gives everything back. */
static void hurried(void) {
    usleep(20000);
    uv_async_send(&agent.hurry);
    usleep(20000);
    end = true;
}

static void the_end_comes_while_takes_wait(void) {
    define("a", BUDGET * 100, false), define("b", BUDGET * 100, false);
    uint64_t before_a = spent("a"), before_b = spent("b");
    agent_start();
    takers_run(hurried);
    agent_stop();
    CHECK(spent("a") == before_a + admitted_a && spent("b") == before_b + admitted_b);
}

int main(void) {
    servers_start(&server, 1, 1);
    register_node();
    define("a", BUDGET, false), define("b", BUDGET, false), define("o", OWNED, true);
    all_of_it_is_spent_once();
    for (int i = 0; i < 3; i++) the_end_comes_while_takes_wait();
    servers_stop(&server, 1);
    puts("ok");
    return 0;
}
