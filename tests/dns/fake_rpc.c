#include "fake_rpc.h"

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/log.h"
#include "registry/catalog.h"

struct rpc {
    struct machine *machine;
    uint64_t last_index;
    _Atomic int confirm;
    _Atomic unsigned long reads;
    char folder[64];
};
struct rpc_reader {
    struct rpc *rpc;
    struct store_reader *reader;
};

/* -- life and writes ---------------------------------------------------------------------------------------------- */

struct rpc *fake_rpc_open(void) {
    log_level_now = LOG_WARN;
    struct rpc *rpc = mem_zalloc(sizeof(*rpc));
    snprintf(rpc->folder, sizeof(rpc->folder), "/tmp/coord-dns-test-XXXXXX");
    CHECK(mkdtemp(rpc->folder));
    char *store = NULL;
    CHECK(asprintf(&store, "%s/store", rpc->folder) > 0);
    struct machine_config config = {
        .store = {.folder = store, .map_bytes = UINT64_C(1) << 28, .reserve_step_bytes = 1 << 20},
        .modules = agent_modules};
    struct fault fault = {0};
    if (machine_open(&config, &rpc->machine, &fault) != CO_OK) fprintf(stderr, "%s\n", fault.text);
    CHECK(rpc->machine);
    free(store);
    return rpc;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk) {
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void fake_rpc_close(struct rpc *rpc) {
    machine_close(rpc->machine);
    nftw(rpc->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(rpc);
}

static void applied(void *data, void *origin, const struct machine_result *result) {
    (void)origin;
    int *error = data;
    *error = result->error;
}

static int apply(struct rpc *rpc, uint8_t command, const ProtobufCMessage *message) {
    struct buffer bytes = {0};
    machine_command(&bytes, command, message);
    struct machine_input input = {
        .index = ++rpc->last_index, .term = 1, .command = buffer_slice(&bytes), .is_command = true};
    uint64_t stopped_at = 0;
    int error = CO_IO;
    int rv = machine_apply(rpc->machine, &input, 1, applied, &error, &stopped_at);
    buffer_free(&bytes);
    return rv != CO_OK ? rv : error;
}

void fake_rpc_apply(struct rpc *rpc, uint8_t command, const ProtobufCMessage *message) {
    CHECK(apply(rpc, command, message) == CO_OK);
}

void rpc_submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message) {
    struct machine_result result = {.error = apply(rpc, command, message)};
    write->done(write, CO_OK, &result);
}

/* -- reads -------------------------------------------------------------------------------------------------------- */

void fake_rpc_set_confirm(struct rpc *rpc, int error) { rpc->confirm = error; }
unsigned long fake_rpc_reads(struct rpc *rpc) { return rpc->reads; }

struct late {
    struct rpc_gate *gate;
    int error;
};
static void *confirm_late(void *data) {
    struct late late = *(struct late *)data;
    free(data);
    late.gate->done(late.gate, late.error);
    return NULL;
}

int rpc_confirm(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_gate *gate) {
    if (freshness == RPC_STALE || rpc->confirm == CO_OK) return CO_OK;
    struct late *late = mem_alloc(sizeof(*late));
    *late = (struct late){gate, rpc->confirm == CO_AGAIN ? CO_OK : rpc->confirm};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, confirm_late, late) == 0);
    pthread_detach(thread);
    return CO_AGAIN;
}

struct rpc_reader *rpc_reader_new(struct rpc *rpc) {
    struct rpc_reader *reader = mem_alloc(sizeof(*reader));
    *reader = (struct rpc_reader){rpc, store_reader_new(machine_store(rpc->machine))};
    return reader;
}
void rpc_reader_free(struct rpc_reader *reader) {
    store_reader_free(reader->reader);
    free(reader);
}
struct store_txn *rpc_read_begin(struct rpc_reader *reader) {
    reader->rpc->reads++;
    return store_read(reader->reader);
}
void rpc_read_end(struct rpc_reader *reader) { store_read_done(reader->reader); }
struct watch_table *rpc_watches(struct rpc *rpc) {
    return machine_watches(rpc->machine);
}
uint64_t rpc_generation(struct rpc *rpc, struct watch_thing thing) { return watch_generation(rpc_watches(rpc), thing); }
uint64_t rpc_applied(struct rpc *rpc) { return machine_applied(rpc->machine); }
int rpc_serves(struct rpc *rpc) {
    (void)rpc;
    return CO_OK;
}
uint64_t rpc_floor(struct rpc *rpc) {
    (void)rpc;
    return 0;
}

/* -- the rest of rpc.h, so that the real one stays out ------------------------------------------------------------ */

void rpc_status(struct rpc *rpc, struct rpc_status *status) {
    *status =
        (struct rpc_status){.is_server = true, .is_leader = true, .known_leader = true, .applied = rpc_applied(rpc)};
}
bool rpc_has_copy(const struct rpc *rpc) { return rpc != NULL; }
bool rpc_known_leader(struct rpc *rpc) { return rpc != NULL; }
size_t rpc_peers(struct rpc *rpc, struct arena *arena, const char ***addresses) {
    (void)rpc, (void)arena;
    *addresses = NULL;
    return 0;
}
void rpc_renew(struct rpc *rpc, struct rpc_renew *renew) {
    (void)rpc;
    renew->done(renew, CO_OK);
}

int rpc_query(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
              struct arena *arena, struct query_result *result) {
    return type->run(rpc_read_begin(reader), request, arena, result);
}
