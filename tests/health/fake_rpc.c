#include "fake_rpc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/list.h"
#include "registry/lease.h"
#include "registry/version.h"
#include "rpc/fetch.h"

struct rpc {
    char folder[64];
    struct machine *machine;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list queue, late;
    struct fetches *fetches;
    bool leader, hold, stop, lose_done;
    unsigned lose, delay, poisoned;
    const char *poison;
    _Atomic uint64_t writes, renewals, fetched, cancelled, fenced;
    _Atomic bool fence;
    _Atomic unsigned slow_us;
};

struct job {
    struct list link;
    struct rpc_write *write; /* NULL: fake_rpc_apply */
    struct rpc_renew *renew; /* or this, without a command */
    struct buffer command;
    bool *applied; /* fake_rpc_apply waits for it */
};

static void on_applied(void *data, void *origin, const struct machine_result *result) {
    struct rpc_write *write = origin;
    (void)data;
    if (write) write->done(write, CO_OK, result);
}

static void apply(struct rpc *rpc, struct job *job, struct rpc_write *write) {
    struct machine_input input = {.index = machine_applied(rpc->machine) + 1,
                                  .term = 1,
                                  .is_command = true,
                                  .command = buffer_slice(&job->command),
                                  .origin = write};
    uint64_t stopped;
    CHECK(machine_apply(rpc->machine, &input, 1, on_applied, NULL, &stopped) == CO_OK);
    atomic_fetch_add(&rpc->writes, 1);
}

/* Nothing ends by itself here: what stands is renewed. */
static void renew(struct rpc *rpc, struct rpc_renew *renewal, bool leader) {
    struct arena arena = {0};
    int error = !leader ? CO_NOLEADER : fake_rpc_lease(rpc, &arena, renewal->id) ? CO_OK : CO_NOTFOUND;
    arena_free(&arena);
    if (error == CO_OK) atomic_fetch_add(&rpc->renewals, 1);
    renewal->done(renewal, error);
}

static void carry_out(struct rpc *rpc, struct job *job, bool leader, bool lose, bool lose_done) {
    if (job->renew) {
        renew(rpc, job->renew, leader);
    } else if (!job->write) {
        apply(rpc, job, NULL);
    } else if (lose) {
        if (lose_done) apply(rpc, job, NULL);
        job->write->done(job->write, CO_UNKNOWN_OUTCOME, NULL);
    } else if (!leader) {
        job->write->done(job->write, CO_NOLEADER, NULL);
    } else if (machine_needs(rpc->machine, buffer_slice(&job->command)) > machine_version(rpc->machine)) {
        job->write->done(job->write, CO_UNSUPPORTED, NULL);
    } else {
        apply(rpc, job, job->write);
    }
}

static void *rpc_main(void *data) {
    struct rpc *rpc = data;
    pthread_mutex_lock(&rpc->lock);
    for (;;) {
        while (!rpc->stop && (rpc->hold || list_empty(&rpc->queue))) pthread_cond_wait(&rpc->wake, &rpc->lock);
        if (rpc->stop) break;
        struct job *job = LIST_ENTRY(rpc->queue.next, struct job, link);
        list_remove(&job->link);
        bool leader = rpc->leader, lose = rpc->lose > 0 && job->write, lose_done = rpc->lose_done;
        if (lose) rpc->lose--;
        if (job->write && rpc->poison &&
            memmem(job->command.data, job->command.size, rpc->poison, strlen(rpc->poison))) {
            lose = true, lose_done = false;
            rpc->poisoned++;
        }
        bool delay = rpc->delay > 0 && job->write;
        if (delay) {
            struct rpc_write *write = job->write;
            rpc->delay--;
            job->write = NULL;
            list_append(&rpc->late, &job->link);
            pthread_mutex_unlock(&rpc->lock);
            write->done(write, CO_UNKNOWN_OUTCOME, NULL);
            pthread_mutex_lock(&rpc->lock);
            continue;
        }
        pthread_mutex_unlock(&rpc->lock);
        carry_out(rpc, job, leader, lose, lose_done);
        pthread_mutex_lock(&rpc->lock);
        if (job->applied) *job->applied = true;
        pthread_cond_broadcast(&rpc->wake);
        buffer_free(&job->command);
        free(job);
    }
    LIST_FOREACH_SAFE(link, next, &rpc->late) {
        list_remove(link);
        list_append(&rpc->queue, link);
    }
    while (!list_empty(&rpc->queue)) {
        struct job *job = LIST_ENTRY(rpc->queue.next, struct job, link);
        list_remove(&job->link);
        pthread_mutex_unlock(&rpc->lock);
        if (job->write) job->write->done(job->write, CO_CLOSED, NULL);
        if (job->renew) job->renew->done(job->renew, CO_CLOSED);
        pthread_mutex_lock(&rpc->lock);
        buffer_free(&job->command);
        free(job);
    }
    pthread_mutex_unlock(&rpc->lock);
    return NULL;
}

struct rpc *fake_rpc_start(void) {
    struct rpc *rpc = mem_zalloc(sizeof *rpc);
    struct fault fault = {0};
    strcpy(rpc->folder, "/tmp/coord-test-XXXXXX");
    CHECK(mkdtemp(rpc->folder) != NULL);
    struct machine_config config = {.store = {.folder = rpc->folder, .map_bytes = 64 << 20}, .modules = agent_modules};
    CHECK(machine_open(&config, &rpc->machine, &fault) == CO_OK);
    list_init(&rpc->queue);
    list_init(&rpc->late);
    rpc->leader = true;
    pthread_mutex_init(&rpc->lock, NULL);
    pthread_cond_init(&rpc->wake, NULL);
    CHECK(pthread_create(&rpc->thread, NULL, rpc_main, rpc) == 0);
    rpc->fetches = fetches_new(rpc);
    return rpc;
}

void fake_rpc_stop(struct rpc *rpc) {
    fetches_stop(rpc->fetches);
    pthread_mutex_lock(&rpc->lock);
    rpc->stop = true;
    pthread_cond_broadcast(&rpc->wake);
    pthread_mutex_unlock(&rpc->lock);
    pthread_join(rpc->thread, NULL);
    fetches_free(rpc->fetches);
    machine_close(rpc->machine);
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", rpc->folder);
    CHECK(system(command) == 0);
    pthread_mutex_destroy(&rpc->lock);
    pthread_cond_destroy(&rpc->wake);
    free(rpc);
}

static void put(struct rpc *rpc, struct job *job) {
    list_append(&rpc->queue, &job->link);
    pthread_cond_broadcast(&rpc->wake);
}

void fake_rpc_leader(struct rpc *rpc, bool there) {
    pthread_mutex_lock(&rpc->lock);
    rpc->leader = there;
    pthread_mutex_unlock(&rpc->lock);
}

void fake_rpc_lose(struct rpc *rpc, unsigned count, bool done) {
    pthread_mutex_lock(&rpc->lock);
    rpc->lose = count;
    rpc->lose_done = done;
    pthread_mutex_unlock(&rpc->lock);
}

unsigned fake_rpc_poison(struct rpc *rpc, const char *text) {
    pthread_mutex_lock(&rpc->lock);
    unsigned count = rpc->poisoned;
    rpc->poison = text;
    rpc->poisoned = 0;
    pthread_mutex_unlock(&rpc->lock);
    return count;
}

void fake_rpc_delay(struct rpc *rpc, unsigned count) {
    pthread_mutex_lock(&rpc->lock);
    rpc->delay = count;
    pthread_mutex_unlock(&rpc->lock);
}

void fake_rpc_late(struct rpc *rpc) {
    bool applied = false;
    pthread_mutex_lock(&rpc->lock);
    CHECK(!list_empty(&rpc->late));
    LIST_ENTRY(rpc->late.prev, struct job, link)->applied = &applied;
    LIST_FOREACH_SAFE(link, next, &rpc->late) {
        list_remove(link);
        put(rpc, LIST_ENTRY(link, struct job, link));
    }
    while (!applied) pthread_cond_wait(&rpc->wake, &rpc->lock);
    pthread_mutex_unlock(&rpc->lock);
}

void fake_rpc_hold(struct rpc *rpc, bool hold) {
    pthread_mutex_lock(&rpc->lock);
    rpc->hold = hold;
    pthread_cond_broadcast(&rpc->wake);
    pthread_mutex_unlock(&rpc->lock);
}

uint64_t fake_rpc_writes(struct rpc *rpc) { return rpc->writes; }
uint64_t fake_rpc_renewals(struct rpc *rpc) { return rpc->renewals; }

static struct job *new_job(uint8_t command, const ProtobufCMessage *message) {
    struct job *job = mem_zalloc(sizeof *job);
    machine_command(&job->command, command, message);
    return job;
}

void fake_rpc_apply(struct rpc *rpc, uint8_t command, const ProtobufCMessage *message) {
    struct job *job = new_job(command, message);
    bool applied = false;
    job->applied = &applied;
    pthread_mutex_lock(&rpc->lock);
    put(rpc, job);
    while (!applied) pthread_cond_wait(&rpc->wake, &rpc->lock);
    pthread_mutex_unlock(&rpc->lock);
}

uint64_t fake_rpc_fetched(struct rpc *rpc) { return rpc->fetched; }
uint64_t fake_rpc_cancelled(struct rpc *rpc) { return rpc->cancelled; }
void fake_rpc_fence(struct rpc *rpc, bool fence) { rpc->fence = fence; }
void fake_rpc_slow(struct rpc *rpc, unsigned us) { rpc->slow_us = us; }
uint64_t fake_rpc_fenced(struct rpc *rpc) { return rpc->fenced; }
void fake_rpc_version(struct rpc *rpc, unsigned version) {
    Pb__ClusterVersionCommand command = PB__CLUSTER_VERSION_COMMAND__INIT;
    command.version = version, command.cluster_id = 7;
    fake_rpc_apply(rpc, CLUSTER_VERSION, &command.base);
    CHECK(machine_version(rpc->machine) == version);
}

/* -- rpc.h
 * ------------------------------------------------------------------------------------------------------------- */

void rpc_submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message) {
    struct job *job = new_job(command, message);
    job->write = write;
    pthread_mutex_lock(&rpc->lock);
    put(rpc, job);
    pthread_mutex_unlock(&rpc->lock);
}

void rpc_renew(struct rpc *rpc, struct rpc_renew *renewal) {
    struct job *job = mem_zalloc(sizeof *job);
    job->renew = renewal;
    pthread_mutex_lock(&rpc->lock);
    put(rpc, job);
    pthread_mutex_unlock(&rpc->lock);
}

int rpc_serves(struct rpc *rpc) {
    if (rpc->slow_us) usleep(rpc->slow_us);
    if (!rpc->fence) return CO_OK;
    atomic_fetch_add(&rpc->fenced, 1);
    return CO_FENCED;
}

bool rpc_known_leader(struct rpc *rpc) {
    pthread_mutex_lock(&rpc->lock);
    bool leader = rpc->leader;
    pthread_mutex_unlock(&rpc->lock);
    return leader;
}

void rpc_fetch(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    atomic_fetch_add(&rpc->fetched, 1);
    fetches_take(rpc->fetches, fetch, request);
}
void rpc_fetch_cancel(struct rpc *rpc, struct rpc_fetch *fetch) {
    atomic_fetch_add(&rpc->cancelled, 1);
    fetches_cancel(rpc->fetches, fetch);
}
const struct modules *rpc_modules(const struct rpc *rpc) { return machine_modules(rpc->machine); }
bool rpc_has_copy(const struct rpc *rpc) {
    (void)rpc;
    return true;
}

int rpc_confirm(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_gate *gate) {
    (void)freshness;
    (void)gate;
    return rpc_known_leader(rpc) ? CO_OK : CO_NOLEADER;
}
void rpc_met_damage(struct rpc *rpc) { (void)rpc; }
void rpc_status(struct rpc *rpc, struct rpc_status *status) {
    *status = (struct rpc_status){.is_server = true, .known_leader = rpc_known_leader(rpc)};
}
uint64_t rpc_generation(struct rpc *rpc, struct watch_thing thing) {
    return watch_generation(machine_watches(rpc->machine), thing);
}
struct watch_table *rpc_watches(struct rpc *rpc) {
    return machine_watches(rpc->machine);
}
uint64_t rpc_applied(struct rpc *rpc) { return machine_applied(rpc->machine); }
uint64_t rpc_floor(struct rpc *rpc) { return machine_floor_now(rpc->machine); }

struct rpc_reader {
    struct store_reader *reader;
};

struct rpc_reader *rpc_reader_new(struct rpc *rpc) {
    struct rpc_reader *reader = mem_zalloc(sizeof *reader);
    reader->reader = store_reader_new(machine_store(rpc->machine));
    return reader;
}
void rpc_reader_free(struct rpc_reader *reader) {
    store_reader_free(reader->reader);
    free(reader);
}
struct store_txn *rpc_read_begin(struct rpc_reader *reader) {
    return store_read(reader->reader);
}
void rpc_read_end(struct rpc_reader *reader) { store_read_done(reader->reader); }

/* -- looking
 * ---------------------------------------------------------------------------------------------------------------- */

static ProtobufCMessage *copy(const ProtobufCMessage *message, struct arena *arena) {
    ProtobufCAllocator allocator = ARENA_PROTOBUF(arena);
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = arena_alloc(arena, size);
    protobuf_c_message_pack(message, bytes);
    return protobuf_c_message_unpack(message->descriptor, &allocator, size, bytes);
}

static const ProtobufCMessage *ask_for(struct rpc *rpc, const struct query_type *type, struct arena *arena,
                                       const ProtobufCMessage *request) {
    struct rpc_reader *reader = rpc_reader_new(rpc);
    struct query_result result = {0};
    CHECK(type->run(rpc_read_begin(reader), request, arena, &result) == CO_OK);
    const ProtobufCMessage *message = result.message ? copy(result.message, arena) : NULL;
    rpc_read_end(reader);
    rpc_reader_free(reader);
    return message;
}

static const ProtobufCMessage *ask(struct rpc *rpc, const struct query_type *type, struct arena *arena,
                                   const char *node) {
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = (char *)node;
    return ask_for(rpc, type, arena, &request.base);
}

const Pb__Service *fake_rpc_service(struct rpc *rpc, struct arena *arena, const char *node, const char *id) {
    const Pb__NodeServicesResult *all = (const Pb__NodeServicesResult *)ask(rpc, &query_node_services, arena, node);
    for (size_t i = 0; all && i < all->n_services; i++) {
        if (strcmp(all->services[i]->id, id) == 0) return all->services[i];
    }
    return NULL;
}

const Pb__Check *fake_rpc_check(struct rpc *rpc, struct arena *arena, const char *node, const char *id) {
    const Pb__ChecksResult *all = (const Pb__ChecksResult *)ask(rpc, &query_node_checks, arena, node);
    for (size_t i = 0; all && i < all->n_checks; i++) {
        if (strcmp(all->checks[i]->check_id, id) == 0) return all->checks[i];
    }
    return NULL;
}

const Pb__Node *fake_rpc_node(struct rpc *rpc, struct arena *arena, const char *node) {
    const Pb__NodeServicesResult *all = (const Pb__NodeServicesResult *)ask(rpc, &query_node_services, arena, node);
    return all ? all->node : NULL;
}

static const Pb__LeaseEntriesResult *leases(struct rpc *rpc, struct arena *arena) {
    Pb__LeaseListRequest request = PB__LEASE_LIST_REQUEST__INIT;
    return (const Pb__LeaseEntriesResult *)ask_for(rpc, &query_leases, arena, &request.base);
}

const Pb__Lease *fake_rpc_lease(struct rpc *rpc, struct arena *arena, const char *id) {
    const Pb__LeaseEntriesResult *all = leases(rpc, arena);
    for (size_t i = 0; all && i < all->n_leases; i++) {
        if (strcmp(all->leases[i]->lease->id, id) == 0) return all->leases[i]->lease;
    }
    return NULL;
}

const Pb__Lease *fake_rpc_node_lease(struct rpc *rpc, struct arena *arena, const char *node) {
    const Pb__LeaseEntriesResult *all = leases(rpc, arena);
    for (size_t i = 0; all && i < all->n_leases; i++) {
        if (strcmp(all->leases[i]->lease->node, node) == 0) return all->leases[i]->lease;
    }
    return NULL;
}

size_t fake_rpc_count(struct rpc *rpc, const char *node) {
    struct arena arena = {0};
    const Pb__NodeServicesResult *services =
        (const Pb__NodeServicesResult *)ask(rpc, &query_node_services, &arena, node);
    const Pb__ChecksResult *checks = (const Pb__ChecksResult *)ask(rpc, &query_node_checks, &arena, node);
    size_t count = (services ? services->n_services : 0) + (checks ? checks->n_checks : 0);
    arena_free(&arena);
    return count;
}

int rpc_query(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
              struct arena *arena, struct query_result *result) {
    return type->run(rpc_read_begin(reader), request, arena, result);
}
