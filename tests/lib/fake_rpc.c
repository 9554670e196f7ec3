#include "tests/lib/fake_rpc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/message.h"
#include "kv/session/session.h"
#include "registry/lease.h"
#include "rpc/api/access_control.h"
#include "rpc/api/ask.h"
#include "rpc/api/trust_admin.h"
#include "rpc/reads/fetch_service.h"
#include "tests/lib/fixture.h"
#include "tls/join_token.h"

struct rpc {
    struct fixture fixture; /* with a machine of its own */
    struct machine *machine;
    struct fake_rpc_options options;
    struct fetch_service *fetches;
    struct hints *hints;
    const struct rpc_access_control *control;
    struct requester *default_requester;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock. */
    struct list jobs, late, gates;
    bool stop, busy, leader, alone, hold, hold_rounds, stand_still, lose_done;
    int fail, round_error;
    unsigned lose, delay, poisoned, rounds, round_fails;
    const char *poison;
    _Atomic uint64_t statuses, peers, writes, renewals, fetched, uncached, cancelled, fenced, reads, floor;
    _Atomic bool fence;
    _Atomic unsigned slow_us;
};
struct rpc_reader {
    struct rpc *rpc;
    struct store_reader *reader;
    struct store_txn *txn; /* under way; NULL: none */
    struct access *access; /* the last that was asked for */
    char denial[400];
};

struct job {
    struct list link;
    struct rpc_write *write; /* NULL: fake_rpc_apply, or one whose writer has been answered */
    struct rpc_renew *renew; /* or this, without a command */
    struct buffer command;
    bool *done; /* somebody waits for it */
    bool sure;  /* it has to be accepted */
};
struct waiting { /* for a round */
    struct list link;
    struct rpc_read_index *gate;
};

static void job_free(struct job *job) {
    buffer_free(&job->command);
    free(job);
}

/* -- writes ------------------------------------------------------------------------------------------------------- */

static void on_result(void *data, const struct machine_result *result) {
    struct job *job = data;
    CHECK(!job->sure || result->error == CO_OK);
    if (job->write) job->write->done(job->write, CO_OK, result);
}

static void on_applied(void *data, void *origin, const struct machine_result *result) {
    (void)data;
    if (origin) on_result(origin, result);
}

static void apply(struct rpc *rpc, struct job *job) {
    struct machine_input input = {.index = machine_applied(rpc->machine) + 1,
                                  .term = 1,
                                  .is_command = true,
                                  .command = buffer_slice(&job->command),
                                  .origin = job};
    if (rpc->options.apply) CHECK(rpc->options.apply(input.command, on_result, job) == CO_OK);
    else CHECK(machine_apply(rpc->machine, &input, 1, on_applied, NULL, NULL) == CO_OK);
    atomic_fetch_add(&rpc->writes, 1);
}

static bool stands(struct rpc *rpc, struct rpc_renew *renewal) {
    struct arena arena = {0};
    struct query_result result = {0};
    Pb__SessionRequest session = PB__SESSION_REQUEST__INIT;
    Pb__LeaseRequest lease = PB__LEASE_REQUEST__INIT;
    session.id = lease.id = renewal->id;
    bool leased = renewal->kind == lease_expiry.number;
    struct rpc_reader *reader = rpc_reader_new(rpc);
    const struct query_type *type = leased ? &query_lease : &query_session;
    CHECK(type->run(rpc_read_begin(reader), leased ? &lease.base : &session.base, &arena, &result) == CO_OK);
    if (result.found) {
        renewal->ttl_ns = leased ? ((const Pb__LeaseEntry *)result.message)->lease->ttl_ns
                                 : ((const Pb__Session *)result.message)->ttl_ns;
        renewal->left_ms = renewal->ttl_ns / 1000000;
    }
    rpc_read_end(reader);
    rpc_reader_free(reader);
    arena_free(&arena);
    return result.found;
}

static void renew(struct rpc *rpc, struct rpc_renew *renewal, bool leader) {
    CHECK(strnlen(renewal->id, sizeof renewal->id) < sizeof renewal->id);
    int error = !leader ? CO_NOLEADER : stands(rpc, renewal) ? CO_OK : CO_NOTFOUND;
    if (error == CO_OK) atomic_fetch_add(&rpc->renewals, 1);
    renewal->done(renewal, error);
}

/* The course of a write. */
struct course {
    int error;           /* the writer's; CO_OK: the result tells */
    bool applied, later; /* later: with fake_rpc_late */
};

static struct course course_of(struct rpc *rpc, const struct job *job) {
    if (!job->write) return (struct course){.applied = true};
    if (rpc->poison && memmem(job->command.data, job->command.size, rpc->poison, strlen(rpc->poison))) {
        rpc->poisoned++;
        return (struct course){.error = CO_UNKNOWN_OUTCOME};
    }
    if (rpc->delay) {
        rpc->delay--;
        return (struct course){.error = CO_UNKNOWN_OUTCOME, .later = true};
    }
    if (rpc->lose) {
        rpc->lose--;
        return (struct course){.error = CO_UNKNOWN_OUTCOME, .applied = rpc->lose_done};
    }
    if (!rpc->leader) return (struct course){.error = CO_NOLEADER};
    if (rpc->fail) return (struct course){.error = rpc->fail};
    return (struct course){.applied = true};
}

/* With the lock; without it while it is at work. */
static void carry_out(struct rpc *rpc, struct job *job) {
    struct course course = job->renew ? (struct course){0} : course_of(rpc, job);
    struct rpc_write *write = job->write;
    bool leader = rpc->leader;
    if (course.error) job->write = NULL;
    if (course.later) list_append(&rpc->late, &job->link);
    pthread_mutex_unlock(&rpc->lock);
    if (job->renew) renew(rpc, job->renew, leader);
    if (course.applied) apply(rpc, job);
    if (course.error) write->done(write, course.error, NULL);
    pthread_mutex_lock(&rpc->lock);
    if (course.later) return;
    if (job->done) *job->done = true;
    job_free(job);
}

/* -- rounds ------------------------------------------------------------------------------------------------------- */

/* All that wait share it. As above. */
static void end_round(struct rpc *rpc) {
    struct list gates;
    list_init(&gates);
    list_splice(&gates, &rpc->gates);
    rpc->rounds++;
    int error = !rpc->leader ? CO_NOLEADER : rpc->round_fails ? rpc->round_error : CO_OK;
    if (rpc->leader && rpc->round_fails) rpc->round_fails--;
    pthread_mutex_unlock(&rpc->lock);
    LIST_FOREACH_SAFE(link, next, &gates) {
        struct waiting *waiting = LIST_ENTRY(link, struct waiting, link);
        waiting->gate->done(waiting->gate, error);
        free(waiting);
    }
    pthread_mutex_lock(&rpc->lock);
}

int rpc_read_index(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate) {
    if (freshness == RPC_STALE) return CO_OK;
    pthread_mutex_lock(&rpc->lock);
    bool needs = !rpc->alone || !rpc->leader;
    if (needs) {
        struct waiting *waiting = mem_zalloc(sizeof *waiting);
        waiting->gate = gate;
        list_append(&rpc->gates, &waiting->link);
        pthread_cond_broadcast(&rpc->wake);
    }
    pthread_mutex_unlock(&rpc->lock);
    return needs ? CO_AGAIN : CO_OK;
}

bool fake_rpc_round(struct rpc *rpc) {
    pthread_mutex_lock(&rpc->lock);
    bool waits = !list_empty(&rpc->gates);
    if (waits) end_round(rpc);
    pthread_mutex_unlock(&rpc->lock);
    return waits;
}

/* -- the thread --------------------------------------------------------------------------------------------------- */

static void close_all(struct rpc *rpc) {
    list_splice(&rpc->jobs, &rpc->late);
    while (!list_empty(&rpc->jobs)) {
        struct job *job = LIST_ENTRY(rpc->jobs.next, struct job, link);
        list_remove(&job->link);
        pthread_mutex_unlock(&rpc->lock);
        if (job->write) job->write->done(job->write, CO_CLOSED, NULL);
        if (job->renew) job->renew->done(job->renew, CO_CLOSED);
        pthread_mutex_lock(&rpc->lock);
        job_free(job);
    }
    while (!list_empty(&rpc->gates)) end_round(rpc);
}

static void *rpc_main(void *data) {
    struct rpc *rpc = data;
    pthread_mutex_lock(&rpc->lock);
    while (!rpc->stop) {
        bool job = !rpc->hold && !list_empty(&rpc->jobs), round = !rpc->hold_rounds && !list_empty(&rpc->gates);
        rpc->busy = job || round;
        if (job) {
            struct list *first = rpc->jobs.next;
            list_remove(first);
            carry_out(rpc, LIST_ENTRY(first, struct job, link));
        }
        if (round) end_round(rpc);
        rpc->busy = false;
        if (job || round) pthread_cond_broadcast(&rpc->wake);
        else pthread_cond_wait(&rpc->wake, &rpc->lock);
    }
    close_all(rpc);
    pthread_mutex_unlock(&rpc->lock);
    return NULL;
}

/* Waits for it if `wait`: it is done when this returns. */
static void ask(struct rpc *rpc, struct job *job, bool wait) {
    bool done = false;
    if (wait) job->done = &done;
    pthread_mutex_lock(&rpc->lock);
    if (rpc->options.at_once) {
        carry_out(rpc, job);
    } else {
        list_append(&rpc->jobs, &job->link);
        pthread_cond_broadcast(&rpc->wake);
        while (wait && !done) pthread_cond_wait(&rpc->wake, &rpc->lock);
        while (rpc->stand_still && !rpc->hold && (rpc->busy || !list_empty(&rpc->jobs)))
            pthread_cond_wait(&rpc->wake, &rpc->lock);
    }
    pthread_mutex_unlock(&rpc->lock);
}

static struct job *job_of(uint8_t command, const ProtobufCMessage *message) {
    struct job *job = mem_zalloc(sizeof *job);
    machine_command(&job->command, command, message);
    return job;
}

/* It knows no other region. */
void rpc_submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message) {
    if (write->region[0]) {
        write->done(write, CO_NOREGION, NULL);
        return;
    }
    struct job *job = job_of(command, message);
    job->write = write;
    ask(rpc, job, false);
}

void rpc_renew(struct rpc *rpc, struct rpc_renew *renewal) {
    if (renewal->region[0]) {
        renewal->done(renewal, CO_NOREGION);
        return;
    }
    struct job *job = mem_zalloc(sizeof *job);
    job->renew = renewal;
    ask(rpc, job, false);
}

void fake_rpc_apply(struct rpc *rpc, uint8_t command, const ProtobufCMessage *message) {
    struct job *job = job_of(command, message);
    job->sure = true;
    ask(rpc, job, true);
}

void fake_rpc_found(struct rpc *rpc) {
    struct machine_input members = {.index = 1, .term = 1};
    CHECK(machine_applied(rpc->machine) == 0);
    CHECK(machine_apply(rpc->machine, &members, 1, on_applied, NULL, NULL) == CO_OK);
}

void fake_rpc_late(struct rpc *rpc) {
    bool done = false;
    pthread_mutex_lock(&rpc->lock);
    CHECK(!list_empty(&rpc->late));
    LIST_ENTRY(rpc->late.prev, struct job, link)->done = &done;
    list_splice(&rpc->jobs, &rpc->late);
    pthread_cond_broadcast(&rpc->wake);
    while (!done) pthread_cond_wait(&rpc->wake, &rpc->lock);
    pthread_mutex_unlock(&rpc->lock);
}

/* -- life --------------------------------------------------------------------------------------------------------- */

struct rpc *fake_rpc_start(const struct fake_rpc_options *options) {
    struct rpc *rpc = mem_zalloc(sizeof *rpc);
    if (options) rpc->options = *options;
    CHECK(!rpc->options.apply || rpc->options.at_once);
    if (!rpc->options.machine) fixture_open_with(&rpc->fixture, rpc->options.more);
    rpc->machine = rpc->options.machine ? rpc->options.machine : rpc->fixture.machine;
    list_init(&rpc->jobs), list_init(&rpc->late), list_init(&rpc->gates);
    rpc->leader = rpc->alone = true;
    rpc->hints = hints_new(0);
    hints_decides(rpc->hints);
    pthread_mutex_init(&rpc->lock, NULL);
    pthread_cond_init(&rpc->wake, NULL);
    if (rpc->options.at_once) return rpc;
    CHECK(pthread_create(&rpc->thread, NULL, rpc_main, rpc) == 0);
    rpc->fetches = fetch_service_new(rpc);
    return rpc;
}

void fake_rpc_stop(struct rpc *rpc) {
    if (!rpc->options.at_once) {
        fetch_service_stop(rpc->fetches);
        pthread_mutex_lock(&rpc->lock);
        rpc->stop = true;
        pthread_cond_broadcast(&rpc->wake);
        pthread_mutex_unlock(&rpc->lock);
        pthread_join(rpc->thread, NULL);
        fetch_service_free(rpc->fetches);
    }
    hints_free(rpc->hints);
    if (rpc->fixture.machine) fixture_close(&rpc->fixture);
    pthread_mutex_destroy(&rpc->lock);
    pthread_cond_destroy(&rpc->wake);
    requester_release(rpc->default_requester);
    free(rpc);
}

/* -- switches ----------------------------------------------------------------------------------------------------- */

#define SWITCH(rpc, what)                     \
    do {                                      \
        pthread_mutex_lock(&(rpc)->lock);     \
        what;                                 \
        pthread_cond_broadcast(&(rpc)->wake); \
        pthread_mutex_unlock(&(rpc)->lock);   \
    } while (0)

void fake_rpc_leader(struct rpc *rpc, bool there) { SWITCH(rpc, rpc->leader = there); }
void fake_rpc_alone(struct rpc *rpc, bool alone) { SWITCH(rpc, rpc->alone = alone); }
void fake_rpc_hold(struct rpc *rpc, bool hold) { SWITCH(rpc, rpc->hold = hold); }
void fake_rpc_hold_rounds(struct rpc *rpc, bool hold) {
    SWITCH(rpc, rpc->hold_rounds = hold; if (hold) rpc->alone = false);
}
void fake_rpc_stand_still(struct rpc *rpc) { SWITCH(rpc, rpc->stand_still = true); }
void fake_rpc_fail(struct rpc *rpc, int error) { SWITCH(rpc, rpc->fail = error); }
void fake_rpc_delay(struct rpc *rpc, unsigned count) { SWITCH(rpc, rpc->delay = count); }
void fake_rpc_lose(struct rpc *rpc, unsigned count, bool done) {
    SWITCH(rpc, rpc->lose = count; rpc->lose_done = done);
}
void fake_rpc_fail_rounds(struct rpc *rpc, unsigned count, int error) {
    SWITCH(rpc, rpc->round_fails = count; rpc->round_error = error);
}
unsigned fake_rpc_poison(struct rpc *rpc, const char *text) {
    unsigned count;
    SWITCH(rpc, count = rpc->poisoned; rpc->poison = text; rpc->poisoned = 0);
    return count;
}
unsigned fake_rpc_held(struct rpc *rpc) {
    unsigned count = 0;
    SWITCH(rpc, LIST_FOREACH(link, &rpc->jobs) count++);
    return count;
}
unsigned fake_rpc_rounds(struct rpc *rpc) {
    unsigned rounds;
    SWITCH(rpc, rounds = rpc->rounds);
    return rounds;
}

void fake_rpc_floor(struct rpc *rpc, uint64_t floor) { rpc->floor = floor; }
void fake_rpc_fence(struct rpc *rpc, bool fence) { rpc->fence = fence; }
void fake_rpc_slow(struct rpc *rpc, unsigned us) { rpc->slow_us = us; }
uint64_t fake_rpc_writes(struct rpc *rpc) { return rpc->writes; }
uint64_t fake_rpc_renewals(struct rpc *rpc) { return rpc->renewals; }
uint64_t fake_rpc_statuses(struct rpc *rpc) { return rpc->statuses; }
uint64_t fake_rpc_peers(struct rpc *rpc) { return rpc->peers; }
uint64_t fake_rpc_fetched(struct rpc *rpc) { return rpc->fetched; }
uint64_t fake_rpc_uncached(struct rpc *rpc) { return rpc->uncached; }
uint64_t fake_rpc_cancelled(struct rpc *rpc) { return rpc->cancelled; }
uint64_t fake_rpc_fenced(struct rpc *rpc) { return rpc->fenced; }
uint64_t fake_rpc_reads(struct rpc *rpc) { return rpc->reads; }

/* -- reads -------------------------------------------------------------------------------------------------------- */

const struct modules *rpc_modules(const struct rpc *rpc) { return machine_modules(rpc->machine); }
bool rpc_has_copy(const struct rpc *rpc) { return rpc != NULL; }

struct rpc_reader *rpc_reader_new(struct rpc *rpc) {
    struct rpc_reader *reader = mem_alloc(sizeof *reader);
    *reader = (struct rpc_reader){.rpc = rpc, .reader = store_reader_new(machine_store(rpc->machine))};
    return reader;
}
void rpc_reader_free(struct rpc_reader *reader) {
    access_release(reader->access);
    store_reader_free(reader->reader);
    free(reader);
}
struct store_txn *rpc_read_begin(struct rpc_reader *reader) {
    atomic_fetch_add(&reader->rpc->reads, 1);
    return reader->txn = store_read(reader->reader);
}
void rpc_read_end(struct rpc_reader *reader) {
    store_read_done(reader->reader);
    reader->txn = NULL;
}
int rpc_query(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
              const struct requester *requester, struct arena *arena, struct query_result *result) {
    size_t hidden;
    int error = type->run(rpc_read_begin(reader), request, arena, result);
    return error ? error : rpc_show(reader, requester, type, request, arena, result, &hidden);
}

int rpc_query_now(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
                  const struct requester *requester, struct arena *arena, struct query_result *result) {
    return rpc_query(reader, type, request, requester, arena, result);
}

/* -- access control: nothing is remembered ------------------------------------------------------------------------ */

void rpc_access_control_set(struct rpc *rpc, const struct rpc_access_control *control) {
    rpc->control = control;
    rpc_default_requester_set(rpc, NULL);
}
bool rpc_access_controlled(const struct rpc *rpc) { return rpc->control != NULL; }
struct watch_key rpc_access_changes(const struct rpc *rpc) {
    return rpc->control ? rpc->control->changes : (struct watch_key){0};
}
uint64_t rpc_access_generation(struct rpc *rpc) {
    return rpc->control ? rpc_generation(rpc, rpc->control->changes) : 0;
}
struct requester *rpc_default_requester(struct rpc *rpc) {
    return requester_keep(rpc->default_requester);
}
void rpc_default_requester_set(struct rpc *rpc, struct requester *requester) {
    requester_release(rpc->default_requester);
    if (!requester) requester = requester_new(REQUESTER_ANONYMOUS, SLICE_LITERAL(REQUESTER_ANONYMOUS_SECRET));
    rpc->default_requester = requester;
}
const char *rpc_denial(const struct rpc_reader *reader) { return reader->denial; }

int rpc_access(struct rpc_reader *reader, const struct requester *requester, const struct access **access) {
    const struct rpc_access_control *control = reader->rpc->control;
    *access = access_all;
    if (!requester || !control) return CO_OK;
    bool within = reader->txn != NULL;
    struct store_txn *txn = within ? reader->txn : rpc_read_begin(reader);
    struct access *found = NULL;
    int64_t until;
    int error = control->resolve(control->data, txn, requester, clock_wall_ns() / 1000000, &found, &until);
    if (!within) rpc_read_end(reader);
    snprintf(reader->denial, sizeof reader->denial, "%s", co_strerror(error));
    if (error) return error;
    access_release(reader->access);
    *access = reader->access = found;
    return CO_OK;
}

static int deny(struct rpc_reader *reader, const struct requester *requester, const struct access_check *check) {
    struct buffer text = {0};
    rpc_denial_print(requester, check->access, &check->missing, &text);
    snprintf(reader->denial, sizeof reader->denial, "%.*s", (int)text.size, text.data);
    buffer_free(&text);
    return CO_DENIED;
}

int rpc_show(struct rpc_reader *reader, const struct requester *requester, const struct query_type *type,
             const ProtobufCMessage *request, struct arena *arena, struct query_result *result, size_t *hidden) {
    struct access_check check = {.arena = arena};
    *hidden = 0;
    int error = rpc_access(reader, requester, &check.access);
    if (error || access_is_all(check.access)) return error;
    error = type->show(&check, reader->txn, request, result);
    *hidden = check.hidden;
    return error == CO_DENIED ? deny(reader, requester, &check) : error;
}

int rpc_may_write(struct rpc_reader *reader, const struct requester *requester, uint8_t number,
                  const ProtobufCMessage *request, struct arena *arena, uint64_t *judged) {
    struct access_check check = {.arena = arena};
    *judged = rpc_access_generation(reader->rpc);
    int error = rpc_access(reader, requester, &check.access);
    if (error || access_is_all(check.access)) return error;
    error = modules_command(rpc_modules(reader->rpc), number)->may(&check, rpc_read_begin(reader), request);
    rpc_read_end(reader);
    return error == CO_DENIED ? deny(reader, requester, &check) : error;
}

int rpc_may_renew(struct rpc_reader *reader, const struct requester *requester, const struct expiry_kind *kind,
                  struct slice name, bool look) {
    struct arena arena = {0};
    struct access_check check = {.arena = &arena};
    int error = rpc_access(reader, requester, &check.access);
    if (!error && !access_is_all(check.access)) {
        error = kind->may(&check, rpc_read_begin(reader), name, look);
        rpc_read_end(reader);
    }
    if (error == CO_DENIED) (void)deny(reader, requester, &check);
    arena_free(&arena);
    return error;
}

struct hints *rpc_hints(const struct rpc *rpc) {
    return rpc->hints;
}
void rpc_hints_follow(struct rpc *rpc, struct slice service) { (void)rpc, (void)service; }

static void hot_see(void *data, const struct hot_service *found) {
    Pb__PeerHotAnswer answer = PB__PEER_HOT_ANSWER__INIT;
    struct rpc_hot *hot = data;
    if (found) answer.rate = found->rate, answer.keys = found->keys, answer.mean = found->mean;
    hot->done(hot, CO_OK, &answer);
}
void rpc_hot(struct rpc *rpc, struct rpc_hot *hot) {
    hints_hot(rpc->hints, slice_text(hot->service), clock_mono_ns(), hot_see, hot);
}

/* A token of no cluster; everything else is done at once, and does nothing. */
void rpc_trust(struct rpc *rpc, struct rpc_trust *trust) {
    static const uint8_t pin[TLS_PIN_SIZE];
    struct join_token token;
    struct fault fault = {0};
    (void)rpc;
    trust->text[0] = 0;
    int error = trust->verb != RPC_JOIN_TOKEN
                    ? CO_OK
                    : join_token_make(trust->server ? TLS_ROLE_SERVER : TLS_ROLE_AGENT, pin, &token, &fault);
    if (trust->verb == RPC_JOIN_TOKEN && !error) join_token_write(&token, trust->text);
    trust->done(trust, error);
}

/* Whatever it would wait for. */
static void fetch_now(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    struct rpc_reader *reader = rpc_reader_new(rpc);
    struct arena arena = {0};
    struct query_result result = {0};
    int error = rpc_query(reader, fetch->type, request, fetch->requester, &arena, &result);
    struct rpc_fetched fetched = {
        .index = result.index ? result.index : 1, .found = result.found, .none = !result.message, .known_leader = true};
    if (!error && result.message) fetched.records = message_pack(&arena, result.message);
    if (error == CO_DENIED || error == CO_NOTOKEN) fetch->denial = rpc_denial(reader);
    fetch->done(fetch, error, error ? NULL : &fetched);
    rpc_read_end(reader);
    rpc_reader_free(reader);
    arena_free(&arena);
}

void rpc_fetch(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    if (fetch->region[0]) {
        fetch->done(fetch, CO_NOREGION, NULL);
        return;
    }
    atomic_fetch_add(&rpc->fetched, 1);
    if (fetch->no_cache) atomic_fetch_add(&rpc->uncached, 1);
    if (rpc->options.at_once) fetch_now(rpc, fetch, request);
    else fetch_service_take(rpc->fetches, fetch, request);
}
void rpc_fetch_cancel(struct rpc *rpc, struct rpc_fetch *fetch) {
    atomic_fetch_add(&rpc->cancelled, 1);
    if (!rpc->options.at_once) fetch_service_cancel(rpc->fetches, fetch);
}

int rpc_serves(struct rpc *rpc) {
    if (rpc->slow_us) usleep(rpc->slow_us);
    if (!rpc->fence) return CO_OK;
    atomic_fetch_add(&rpc->fenced, 1);
    return CO_FENCED;
}
void rpc_fenced_why(struct rpc *rpc, char line[160]) { strcpy(line, rpc->fence ? "a test has fenced it" : ""); }
void rpc_met_damage(struct rpc *rpc) { (void)rpc; }

uint64_t rpc_generation(struct rpc *rpc, struct watch_key watched) {
    return watch_generation(rpc_watches(rpc), watched);
}
struct watch_table *rpc_watches(struct rpc *rpc) {
    return machine_watches(rpc->machine);
}
uint64_t rpc_applied(struct rpc *rpc) { return machine_applied(rpc->machine); }
uint64_t rpc_floor(struct rpc *rpc) {
    uint64_t floor = machine_floor_now(rpc->machine);
    return rpc->floor > floor ? rpc->floor : floor;
}

/* -- other agents: there are none ---------------------------------------------------------------------------------- */

void rpc_ask(struct rpc *rpc, struct rpc_ask *ask) {
    (void)rpc;
    ask->reach = RPC_ASK_NOT_DELIVERED;
    ask->done(ask, CO_NOTFOUND, (struct slice){0});
}
void rpc_answer_asks(struct rpc *rpc, uint8_t topic, rpc_asked asked, void *data) {
    (void)rpc, (void)topic, (void)asked, (void)data;
}
void rpc_ask_answer(struct rpc_question *question, int error, struct slice answer) {
    (void)question, (void)error, (void)answer;
}

/* -- the cluster -------------------------------------------------------------------------------------------------- */

static const char address[] = "10.0.0.1:8300";

bool rpc_known_leader(struct rpc *rpc) {
    bool leader;
    pthread_mutex_lock(&rpc->lock);
    leader = rpc->leader;
    pthread_mutex_unlock(&rpc->lock);
    return leader;
}

void rpc_status(struct rpc *rpc, struct rpc_status *status) {
    bool leader = rpc_known_leader(rpc);
    atomic_fetch_add(&rpc->statuses, 1);
    *status = (struct rpc_status){.is_server = true,
                                  .is_leader = leader,
                                  .known_leader = leader,
                                  .applied = rpc_applied(rpc),
                                  .cluster_version = machine_version(rpc->machine)};
    if (leader) strcpy(status->leader_address, address);
}

size_t rpc_peers(struct rpc *rpc, struct arena *arena, const char ***addresses) {
    atomic_fetch_add(&rpc->peers, 1);
    *addresses = arena_alloc(arena, sizeof **addresses);
    (*addresses)[0] = address;
    return rpc_known_leader(rpc);
}
