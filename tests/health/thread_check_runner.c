/* A host with many checks of every kind at once, on one loop: servers good and bad on threads of their own, attempts
 * given up at random moments. Each ends exactly once, or never when it was given up, and nothing is left in the end. */
#include <signal.h>
#include <stdlib.h>

#include "attempt.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "h2_peer.h"
#include "web.h"

#define ATTEMPTS 240
#define PEERS    7

struct one {
    uv_timer_t begin, give_up;
    struct run *run;
    unsigned calls;
    bool given_up;
    Pb__Status status;
    unsigned number;
    struct host *host;
};
struct host {
    uv_loop_t loop;
    struct runners runners;
    struct peer *peers[PEERS];
    struct one ones[ATTEMPTS];
    unsigned open;
    struct rng rng;
};

static void on_closed(struct runners *runners) { (void)runners; }

static void over(struct one *one) {
    one->run = NULL;
    uv_close((uv_handle_t *)&one->give_up, NULL);
    if (--one->host->open == 0) runners_close(&one->host->runners, on_closed);
}

static void on_done(void *data, Pb__Status status, struct slice output) {
    struct one *one = data;
    CHECK(one->calls++ == 0 && !one->given_up && output.size > 0 && output.size < 600);
    one->status = status;
    over(one);
}

static void on_give_up(uv_timer_t *timer) {
    struct one *one = timer->data;
    one->given_up = true;
    run_cancel(one->run);
    over(one);
}

static bool is_good(const struct one *one) { return one->number % (PEERS + 1) == 0; }

static void on_begin(uv_timer_t *timer) {
    static const enum check_kind kinds[] = {CHECK_H2PING, CHECK_GRPC, CHECK_UDP, CHECK_TCP};
    struct one *one = timer->data;
    struct host *host = one->host;
    unsigned which = one->number % (PEERS + 1);
    enum check_kind kind = kinds[one->number / (PEERS + 1) % ARRAY_COUNT(kinds)];
    char target[60];
    if (which == PEERS) {
        snprintf(target, sizeof target, "nowhere.invalid:1");
    } else {
        snprintf(target, sizeof target, "localhost:%u", peer_port(host->peers[which]));
    }
    struct check_definition *d = attempt_definition(kind, target, is_good(one) ? 60000 : 400);
    d->grpc_use_tls = d->h2ping_use_tls = which == 1;
    d->tls_skip_verify = true;
    one->run = run_start(&host->runners, d, 4096, on_done, one);
    check_definition_free(d);
    uv_close((uv_handle_t *)timer, NULL);
    uv_timer_init(&host->loop, &one->give_up);
    one->give_up.data = one;
    if (!is_good(one) && rng_below(&host->rng, 3) == 0)
        uv_timer_start(&one->give_up, on_give_up, rng_below(&host->rng, 100), 0);
}

/* UDP to a port where only TCP is spoken is refused. */
static void judge(const struct one *one) {
    bool udp = one->number / (PEERS + 1) % 4 == 2;
    CHECK(one->calls == (one->given_up ? 0 : 1));
    if (is_good(one)) CHECK(one->status == (udp ? PB__STATUS__CRITICAL : PB__STATUS__PASSING));
}

int main(void) {
    static struct host host;
    struct buffer settings = {0}, answer = {0};
    static const char zeros[16384];
    peer_frame(&settings, 4, 0, 0, slice_make(NULL, 0));
    peer_grpc_answer(&answer, SLICE_LITERAL("\10\1"), "0");
    const struct slice hello = buffer_slice(&settings), reply = buffer_slice(&answer);
    const struct peer_script scripts[PEERS] = {
        {hello, reply, PEER_ANSWERS, false, NULL},
        {hello, reply, PEER_ANSWERS, true, "h2"},
        {.then = PEER_HANGS},
        {.bytes = hello, .then = PEER_RESETS},
        {.bytes = hello, .then = PEER_DRIPS},
        {.bytes = hello, .again = slice_make(zeros, sizeof zeros), .then = PEER_FLOODS},
        {.bytes = hello, .then = PEER_HALF_CLOSES},
    };
    uint64_t seed = random_u64();
    printf("seed %llu\n", (unsigned long long)seed);
    signal(SIGPIPE, SIG_IGN);
    rng_seed(&host.rng, seed);
    for (unsigned i = 0; i < PEERS; i++) host.peers[i] = peer_start(&scripts[i]);
    CHECK(uv_loop_init(&host.loop) == 0);
    runners_init(&host.runners, &host.loop);
    for (unsigned i = 0; i < ATTEMPTS; i++) {
        struct one *one = &host.ones[i];
        *one = (struct one){.number = i, .host = &host};
        host.open++;
        uv_timer_init(&host.loop, &one->begin);
        one->begin.data = one;
        uv_timer_start(&one->begin, on_begin, rng_below(&host.rng, 300), 0);
    }
    uv_run(&host.loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&host.loop) == 0);
    for (unsigned i = 0; i < ATTEMPTS; i++) judge(&host.ones[i]);
    for (unsigned i = 0; i < PEERS; i++) peer_stop(host.peers[i]);
    buffer_free(&settings);
    buffer_free(&answer);
    return 0;
}
