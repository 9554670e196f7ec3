/* The state machine: batches of commands into transactions of the store. */
#include "registry/machine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "base/message.h"
#include "base/wakeup_batch.h"
#include "registry/audit.h"
#include "registry/catalog_turns.h"
#include "registry/history.h"
#include "registry/machine_changes.h"
#include "registry/machine_point.h"
#include "registry/machine_restore.h"
#include "registry/machine_version.h"
#include "registry/operator.h"
#include "registry/tables.h"

#define COMMAND_VERSION        1
#define COMMAND_HEAD           2
#define APPLIED_BYTES          24
#define TOMBSTONES_MAX_DEFAULT 1000000

static const struct slice applied_key = SLICE_LITERAL("applied"); /* index, term, time: 8 bytes each */
static const struct store_table own_tables[] = {{TABLE_CHANGES, "marks"}, {TABLE_TOMBSTONES, "removals"}};

struct machine {
    struct store *store;
    struct watch_table *watches;
    struct modules *modules;
    struct history *history;
    struct expiry_updates *updates; /* NULL: nobody counts */
    uint64_t tombstones_max;
    unsigned newest; /* cluster version */
    _Atomic unsigned version;
    _Atomic uint64_t cluster_id;
    _Atomic uint64_t applied, applied_term, floor, index, replacements;
    /* The applier's. */
    uint64_t offset;           /* machine_index - machine_applied */
    uint64_t clock_term;       /* the term in which the log last said that the leader's clock is behind */
    uint64_t unix_ms;          /* as machine_unix_ms_in, of the last committed batch */
    struct version_now raised; /* the batch raised it to this; version 0: it did not */
    struct arena arena;
    struct machine_tx tx;
    struct machine_result *results;
    size_t result_room;
    struct audit_ring noted; /* in the batch that runs */
    pthread_mutex_t sums_lock;
    struct audit_ring sums; /* of committed batches; any thread */
};

/* -- opening ------------------------------------------------------------------------------------------------------ */

static size_t take_tables(const struct modules *modules, struct store_table *tables) {
    size_t count = ARRAY_COUNT(own_tables);
    memcpy(tables, own_tables, sizeof own_tables);
    for (size_t i = 0; i < modules_count(modules); i++)
        for (const struct store_table *table = modules_at(modules, i)->tables; table && table->number; table++) {
            CHECK(count < STORE_TABLES_MAX && table->number != TABLE_CHANGES && table->number != TABLE_TOMBSTONES);
            tables[count++] = *table;
        }
    return count;
}

static void take_topics(const struct modules *modules, uint8_t topics[STORE_TABLES_MAX]) {
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module *module = modules_at(modules, i);
        for (const uint8_t *table = module->topic_tables; table && *table; table++) topics[*table] = module->topic;
    }
}

struct applied {
    uint64_t index, term, unix_ms;
};

static struct applied applied_in(struct store_txn *txn) {
    struct slice value;
    if (store_get(txn, STORE_TABLE_META, applied_key, &value) != CO_OK) return (struct applied){0};
    if (value.size != APPLIED_BYTES) {
        store_fail(txn, CO_CORRUPT);
        return (struct applied){0};
    }
    return (struct applied){get_be64(value.data), get_be64(value.data + 8), get_be64(value.data + 16)};
}

uint64_t machine_index_in(struct store_txn *txn) { return applied_in(txn).index + restore_offset(txn); }

uint64_t machine_unix_ms_in(struct store_txn *txn) { return applied_in(txn).unix_ms; }

static void publish_version(struct machine *machine, const struct version_now *now) {
    atomic_store(&machine->cluster_id, now->cluster_id);
    atomic_store(&machine->version, now->version);
}

/* Publishes the applied index, the version and so on, as the store has them. CO_CORRUPT: a record of them is
 * damaged. */
static int learn(struct machine *machine) {
    struct store_reader *reader = store_reader_new(machine->store);
    struct store_txn *txn = store_read(reader);
    struct applied applied = applied_in(txn);
    atomic_store(&machine->floor, machine_floor(txn));
    machine->offset = restore_offset(txn);
    struct version_now now;
    if (version_read(txn, &now) != CO_OK) log_error("registry", "the record of the cluster version does not decode");
    publish_version(machine, &now);
    atomic_store(&machine->applied_term, applied.term);
    atomic_store(&machine->index, applied.index + machine->offset);
    atomic_store(&machine->applied, applied.index);
    machine->unix_ms = applied.unix_ms;
    int error = store_txn_error(txn);
    store_read_done(reader);
    store_reader_free(reader);
    return error;
}

/* Refuses a store of a cluster whose version is newer than this program. */
static int known_version(struct machine *machine, struct fault *fault) {
    struct version_now now = {machine_version(machine), machine_cluster(machine)};
    struct fault inner = {0};
    int error = version_check(&now, machine->newest, &inner);
    return error ? fault_set(fault, error, "store: %s", inner.text) : CO_OK;
}

/* `there` NULL: opens the store to work with it; else only for reading. */
static int open_learned(struct machine *machine, const struct store_config *config, bool *there, bool *trusted,
                        struct fault *fault) {
    int error = there ? store_look(config, &machine->store, there, trusted, fault)
                      : store_open(config, &machine->store, trusted, fault);
    if (error || (there && !*there)) return error;
    error = learn(machine);
    if (!error) return CO_OK;
    store_close(machine->store);
    return fault_set(fault, error, "store: %s: what it says of itself is damaged", config->folder);
}

static int open_store(struct machine *machine, const struct machine_config *config, bool *there, bool *trusted,
                      struct fault *fault) {
    machine->newest = config->version_newest ? config->version_newest : MACHINE_VERSION_NEWEST;
    machine->modules = modules_new(config->modules, machine->newest);
    machine->updates = config->updates;
    machine->tombstones_max = config->tombstones_max ? config->tombstones_max : TOMBSTONES_MAX_DEFAULT;
    struct store_table tables[STORE_TABLES_MAX];
    struct store_config store = config->store;
    store.tables = tables;
    store.table_count = take_tables(machine->modules, tables);
    take_topics(machine->modules, store.topics);
    int error = open_learned(machine, &store, there, trusted, fault);
    if (error == CO_CORRUPT && !there) { /* a large store is not read to its end before it is opened */
        store.distrust = true;
        error = open_learned(machine, &store, there, trusted, fault);
    }
    if (error) return error;
    pthread_mutex_init(&machine->sums_lock, NULL);
    machine->watches = watch_table_new();
    machine->history = history_new(machine->modules);
    machine->tx = (struct machine_tx){
        .machine = machine, .arena = &machine->arena, .history = machine->history, .mutations = config->mutations};
    return CO_OK;
}

static void unopened_free(struct machine *machine) {
    modules_free(machine->modules);
    free(machine);
}

int machine_look(const struct machine_config *config, struct machine **out, bool *there, bool *trusted,
                 struct fault *fault) {
    struct machine *machine = mem_zalloc(sizeof *machine);
    int error = open_store(machine, config, there, trusted, fault);
    if (error) unopened_free(machine);
    else *out = machine;
    return error;
}

int machine_open(const struct machine_config *config, struct machine **out, struct fault *fault) {
    struct machine *machine = mem_zalloc(sizeof *machine);
    bool trusted;
    int error = open_store(machine, config, NULL, &trusted, fault);
    if (error) {
        unopened_free(machine);
        return error;
    }
    error = known_version(machine, fault);
    if (error) {
        machine_close(machine);
        return error;
    }
    log_info("registry", "store open trusted=%s applied=%llu", trusted ? "yes" : "no",
             (unsigned long long)machine->applied);
    *out = machine;
    return CO_OK;
}

void machine_close(struct machine *machine) {
    if (!machine) return;
    CHECK(!machine->tx.store);
    store_close(machine->store);
    watch_table_free(machine->watches);
    watch_touched_free(&machine->tx.touched);
    history_free(machine->history);
    arena_free(&machine->arena);
    pthread_mutex_destroy(&machine->sums_lock);
    free(machine->results);
    modules_free(machine->modules);
    free(machine);
}

uint64_t machine_applied(const struct machine *machine) {
    return atomic_load_explicit(&machine->applied, memory_order_acquire);
}
uint64_t machine_index(const struct machine *machine) {
    return atomic_load_explicit(&machine->index, memory_order_acquire);
}
unsigned machine_version(const struct machine *machine) { return atomic_load(&machine->version); }
uint64_t machine_cluster(const struct machine *machine) { return atomic_load(&machine->cluster_id); }
unsigned machine_newest(const struct machine *machine) { return machine->newest; }
uint64_t machine_replacements(const struct machine *machine) { return atomic_load(&machine->replacements); }
uint64_t machine_applied_term(const struct machine *machine) { return atomic_load(&machine->applied_term); }
uint64_t machine_floor_now(const struct machine *machine) { return atomic_load(&machine->floor); }
uint64_t machine_tombstones_max(const struct machine *machine) { return machine->tombstones_max; }
struct store *machine_store(struct machine *machine) {
    return machine->store;
}
struct watch_table *machine_watches(struct machine *machine) {
    return machine->watches;
}

const struct modules *machine_modules(const struct machine *machine) { return machine->modules; }
struct expiry_updates *machine_updates(const struct machine *machine) {
    return machine->updates;
}

/* -- applying ----------------------------------------------------------------------------------------------------- */

void machine_touch(struct machine_tx *tx, uint8_t space, struct slice name) {
    watch_touch(&tx->touched, (struct watch_key){space, name});
    history_touched(tx, space, name);
}

const char *machine_forbids(struct machine_tx *tx, const struct machine_thing *thing) {
    const struct modules *modules = tx->machine->modules;
    const char *why = NULL;
    for (size_t i = 0; i < modules_count(modules) && !why; i++) {
        const struct module *module = modules_at(modules, i);
        if (module->forbids) why = module->forbids(tx, thing);
    }
    return why;
}

bool machine_refuses(struct machine_tx *tx, struct machine_thing thing, struct machine_result *result) {
    const char *why = machine_forbids(tx, &thing);
    if (why) (void)machine_refuse(result, CO_DENIED, why);
    return why != NULL;
}

void machine_emit(struct machine_tx *tx, enum machine_event_type type, struct slice node, struct slice id) {
    const struct modules *modules = tx->machine->modules;
    struct machine_event event = {type, node, id};
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module *module = modules_at(modules, i);
        if (module->on_event) module->on_event(tx, &event);
    }
}

const struct module_command *machine_command_row(const struct machine *machine, struct slice command) {
    return command.size ? modules_command(machine->modules, (uint8_t)command.data[0]) : NULL;
}

bool machine_knows(const struct machine *machine, struct slice command) {
    if (command.size < COMMAND_HEAD) return true;
    return machine_command_row(machine, command) && command.data[1] == COMMAND_VERSION;
}

unsigned machine_needs(const struct machine *machine, struct slice command) {
    if (command.size < COMMAND_HEAD) return MACHINE_VERSION_OLDEST;
    if (!machine_knows(machine, command)) return 0;
    unsigned since = machine_command_row(machine, command)->since;
    return since ? since : MACHINE_VERSION_OLDEST;
}

unsigned machine_tx_version(const struct machine_tx *tx) {
    return tx->machine->raised.version ? tx->machine->raised.version : machine_version(tx->machine);
}

void machine_version_note(struct machine *machine, const struct version_now *now) {
    CHECK(now->version >= machine_version(machine) && now->version <= machine->newest);
    CHECK(now->cluster_id != 0);
    machine->raised = *now;
}

static int apply_message(struct machine_tx *tx, const struct module_command *command, struct slice payload,
                         struct machine_result *result) {
    void *request = machine_decode(command->request, payload, tx->arena);
    if (!request) return machine_refuse(result, CO_INVALID, "the command does not decode");
    return command->apply(tx, request, result);
}

/* Packs the result's message into its record, for everybody who gets the result. */
static void pack_record(struct machine_tx *tx, const struct module_command *command, struct machine_result *result) {
    if (!result->message) return;
    if (result->message->descriptor != command->result) { /* a CHECK would end every replica, at each start */
        log_error("machine", "the command's row in its module's table does not name its result command=%s",
                  command->name);
        return;
    }
    result->record = message_pack(tx->arena, result->message);
    result->record_type = command->result->name;
}

int machine_apply_command(struct machine_tx *tx, struct slice command, struct machine_result *result) {
    CHECK(tx->store && tx->arena);
    if (command.size < COMMAND_HEAD) return machine_refuse(result, CO_INVALID, "a command without a type");
    if (!machine_knows(tx->machine, command)) return CO_UNSUPPORTED;
    const struct module_command *row = machine_command_row(tx->machine, command);
    struct slice payload = slice_make(command.data + COMMAND_HEAD, command.size - COMMAND_HEAD);
    int error = row->apply_bytes ? row->apply_bytes(tx, payload, result) : apply_message(tx, row, payload, result);
    if (error == CO_OK) pack_record(tx, row, result);
    return error;
}

#define CLOCK_BEHIND_MS 1000

/* Logs once a term that the leader's clock is behind. */
static void note_clock(struct machine *machine, const struct machine_input *input) {
    if (input->unix_ms == 0 || input->unix_ms + CLOCK_BEHIND_MS >= machine->tx.unix_ms) return;
    if (machine->clock_term == input->term) return;
    machine->clock_term = input->term;
    log_warn("registry",
             "the leader's clock is %llu ms behind that of entries before: times of the history stand still "
             "until it has come that far",
             (unsigned long long)(machine->tx.unix_ms - input->unix_ms));
}

static int apply_one(struct machine *machine, const struct machine_input *input, struct machine_result *result) {
    struct machine_tx *tx = &machine->tx;
    tx->index = input->index + machine->offset, tx->term = input->term, tx->now_unix_ms = 0;
    /* A leader's clock may be behind that of the leader before it; then the time stands still meanwhile. */
    if (input->unix_ms > tx->unix_ms) tx->unix_ms = input->unix_ms;
    CHECK(tx->unix_ms >= machine->unix_ms);
    note_clock(machine, input);
    *result = (struct machine_result){.index = tx->index};
    if (!input->is_command || input->command.size == 0) return CO_OK;
    history_entry_begin(tx, (uint8_t)input->command.data[0]);
    tx->turns = NULL;
    int error = machine_apply_command(tx, input->command, result);
    if (error) return error;
    turns_tell(tx);
    history_entry_end(tx);
    return CO_OK;
}

/* -- the self-audit's sums ---------------------------------------------------------------------------------------- */

/* Called right after the entry `index`. The record of the applied index is still that of the batch before; its hash is
 * subtracted. */
static void note_sum(struct machine *machine, uint64_t index) {
    if (index % AUDIT_EVERY != 0) return;
    audit_note(&machine->noted, index,
               store_sum(machine->tx.store) - store_hash(machine->tx.store, STORE_TABLE_META, applied_key));
}

static void publish_sums(struct machine *machine) {
    if (machine->noted.count == 0) return;
    pthread_mutex_lock(&machine->sums_lock);
    for (size_t i = 0; i < machine->noted.count; i++)
        audit_note(&machine->sums, machine->noted.pairs[i].index, machine->noted.pairs[i].sum);
    pthread_mutex_unlock(&machine->sums_lock);
}

void machine_sums(struct machine *machine, struct audit_ring *ring) {
    pthread_mutex_lock(&machine->sums_lock);
    *ring = machine->sums;
    pthread_mutex_unlock(&machine->sums_lock);
}

void machine_sums_set(struct machine *machine, const struct audit_ring *ring) {
    pthread_mutex_lock(&machine->sums_lock);
    machine->sums = *ring;
    pthread_mutex_unlock(&machine->sums_lock);
}

static void batch_end(struct machine *machine) {
    machine->tx.store = NULL;
    machine->raised = (struct version_now){0};
    watch_touched_reset(&machine->tx.touched);
    arena_reset(&machine->arena);
}

static int commit(struct machine *machine, const struct machine_input *last) {
    CHECK(last->index > machine->applied);
    char bytes[APPLIED_BYTES];
    put_be64(bytes, last->index);
    put_be64(bytes + 8, last->term);
    put_be64(bytes + 16, machine->tx.unix_ms);
    store_put(machine->tx.store, STORE_TABLE_META, applied_key, slice_make(bytes, sizeof bytes));
    uint64_t floor = machine_floor(machine->tx.store);
    int error = store_commit(machine->tx.store);
    /* The version is published first, because a thing that begins with a version (the history) may be ended by a
     * command that only this version has. */
    if (!error && machine->raised.version) publish_version(machine, &machine->raised);
    expiry_updates_batch_end(machine->updates, error == CO_OK);
    if (error) return error;
    machine->unix_ms = machine->tx.unix_ms;
    publish_sums(machine);
    watch_bump(machine->watches, &machine->tx.touched);
    atomic_store(&machine->floor, floor);
    atomic_store(&machine->applied_term, last->term);
    atomic_store_explicit(&machine->index, last->index + machine->offset, memory_order_release);
    atomic_store_explicit(&machine->applied, last->index, memory_order_release);
    watch_wake(machine->watches, &machine->tx.touched);
    return CO_OK;
}

static void result_room(struct machine *machine, size_t count) {
    if (count <= machine->result_room) return;
    machine->results = mem_realloc(machine->results, count * sizeof *machine->results);
    machine->result_room = count;
}

static int apply_batch(struct machine *machine, const struct machine_input *inputs, size_t count,
                       void (*done)(void *data, void *origin, const struct machine_result *result), void *data,
                       uint64_t *stopped_at) {
    result_room(machine, count);
    if (count == 0) return CO_OK;
    CHECK(inputs[0].index == machine->applied + 1);
    CHECK(!machine->tx.store && !machine->raised.version && machine->tx.touched.count == 0);
    machine->tx.store = store_write(machine->store);
    machine->tx.unix_ms = machine->unix_ms;
    machine->noted.count = 0;
    size_t applied = 0;
    int error = CO_OK;
    while (applied < count && !error) {
        CHECK(inputs[applied].index == inputs[0].index + applied);
        error = apply_one(machine, &inputs[applied], &machine->results[applied]);
        if (!error) note_sum(machine, inputs[applied++].index);
    }
    if (error == CO_UNSUPPORTED && stopped_at) *stopped_at = inputs[applied].index;
    int failed = error == CO_UNSUPPORTED ? CO_OK : error;
    if (failed || applied == 0) {
        store_abort(machine->tx.store);
        history_forget(machine->history);
        expiry_updates_batch_end(machine->updates, false);
    } else {
        failed = commit(machine, &inputs[applied - 1]);
        if (failed) history_forget(machine->history);
    }
    for (size_t i = 0; i < applied && !failed && done; i++) done(data, inputs[i].origin, &machine->results[i]);
    batch_end(machine);
    return failed ? failed : error;
}

/* -- the end of a restore: not within a batch, for it replaces the store ------------------------------------------ */

static bool ends_restore(const struct machine_input *input) {
    struct slice command = input->command;
    return input->is_command && command.size >= COMMAND_HEAD && (uint8_t)command.data[0] == OPERATOR_RESTORE_END &&
           command.data[1] == COMMAND_VERSION;
}

static void replaced(struct machine *machine) {
    CHECK(!machine->tx.store); /* not within a batch */
    history_forget(machine->history);
    machine_sums_set(machine, &(struct audit_ring){0}); /* the sums of the old state are dropped */
    watch_touched_all(&machine->tx.touched);
    watch_bump(machine->watches, &machine->tx.touched);
    (void)learn(machine); /* damage in it is noted, and will be met again */
    atomic_fetch_add(&machine->replacements, 1);
    watch_wake(machine->watches, &machine->tx.touched);
    watch_touched_reset(&machine->tx.touched);
}

struct only {
    void (*done)(void *data, void *origin, const struct machine_result *result);
    void *data;
    const char *refused;
};

/* The module has applied the command and dropped the pieces that were kept aside; its result is that the restore was
 * refused. */
static void refuse_restore(void *data, void *origin, const struct machine_result *result) {
    const struct only *only = data;
    struct machine_result refused = *result;
    if (only->refused) refused.error = CO_INVALID, refused.text = only->refused, refused.yes = false;
    if (only->done) only->done(only->data, origin, &refused);
}

static int apply_restore(struct machine *machine, const struct machine_input *input,
                         void (*done)(void *data, void *origin, const struct machine_result *result), void *data,
                         uint64_t *stopped_at) {
    struct slice payload = slice_make(input->command.data + COMMAND_HEAD, input->command.size - COMMAND_HEAD);
    struct fault fault = {0};
    wakeup_batch_flush(); /* so that the results of earlier entries do not wait */
    const struct restore_at place = {.index = input->index,
                                     .term = input->term,
                                     .offset = machine->offset,
                                     .unix_ms = input->unix_ms > machine->unix_ms ? input->unix_ms : machine->unix_ms};
    int error = restore_staged(machine->store, machine->modules, payload, &place, &fault);
    if (error == CO_AGAIN || error == CO_INVALID || error == CO_CORRUPT) {
        struct only only = {done, data, error == CO_AGAIN ? NULL : fault.text};
        return apply_batch(machine, input, 1, refuse_restore, &only, stopped_at);
    }
    if (error == CO_UNSUPPORTED && stopped_at) *stopped_at = input->index;
    if (error) {
        log_error("registry", "a backup cannot be restored here: %s", fault.text);
        return error;
    }
    replaced(machine);
    log_info("registry", "a backup was restored index=%llu", (unsigned long long)machine->index);
    struct machine_result result = {.index = machine->index, .yes = true};
    if (done) done(data, input->origin, &result);
    return CO_OK;
}

int machine_apply(struct machine *machine, const struct machine_input *inputs, size_t count,
                  void (*done)(void *data, void *origin, const struct machine_result *result), void *data,
                  uint64_t *stopped_at) {
    for (size_t at = 0, end; at < count; at = end) {
        for (end = at; end < count && !ends_restore(&inputs[end]); end++) continue;
        int error = CO_OK;
        if (end > at) error = apply_batch(machine, inputs + at, end - at, done, data, stopped_at);
        if (!error && end < count) error = apply_restore(machine, &inputs[end++], done, data, stopped_at);
        if (error) return error;
    }
    return CO_OK;
}

void machine_command(struct buffer *out, uint8_t type, const ProtobufCMessage *message) {
    size_t size = protobuf_c_message_get_packed_size(message);
    buffer_reserve(out, COMMAND_HEAD + size);
    buffer_append_byte(out, (char)type);
    buffer_append_byte(out, COMMAND_VERSION);
    size_t packed = protobuf_c_message_pack(message, (uint8_t *)out->data + out->size);
    CHECK(packed == size);
    out->size += size;
}

/* -- snapshots ---------------------------------------------------------------------------------------------------- */

int machine_copy(struct machine *machine, int fd, uint64_t *index, uint64_t *term) {
    struct store_view *view = store_view_open(machine->store);
    struct applied applied = applied_in(store_view_first(view));
    *index = applied.index, *term = applied.term;
    int error = store_copy_view(view, fd);
    store_view_close(view);
    return error;
}

static int refuse_newer(struct store_txn *txn, void *data, struct fault *fault) {
    const struct machine *machine = data;
    struct version_now now;
    if (version_read(txn, &now) != CO_OK)
        return fault_set(fault, CO_CORRUPT, "store: a copy has a cluster version that does not decode");
    return version_check(&now, machine->newest, fault);
}

int machine_install(struct machine *machine, int fd, uint64_t size, struct fault *fault) {
    int error = store_replace_edited(machine->store, fd, size, true, refuse_newer, machine, fault);
    if (error) return error;
    replaced(machine);
    return CO_OK;
}

int machine_reset(struct machine *machine, struct fault *fault) {
    int error = store_clear(machine->store, fault);
    if (error) return error;
    replaced(machine);
    return CO_OK;
}

int machine_copy_check(struct machine *machine, int fd, uint64_t size, uint64_t *index, struct fault *fault) {
    uint64_t applied;
    return restore_check(machine->store, fd, size, machine_version(machine), index, &applied, fault);
}

int machine_copy_look(struct machine *machine, int fd, uint64_t size, uint64_t *applied, struct fault *fault) {
    uint64_t index;
    return restore_check(machine->store, fd, size, machine->newest, &index, applied, fault);
}
