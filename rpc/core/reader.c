/* Readers: a thread's reads of the local copy, and the rules of those for whom it reads (rpc/api/access_control.h).
 *
 * A reader keeps the rules of the last requesters in a table. An entry counts while the generation of the state of access
 * control is the one from before the transaction in which the rules were read: then no later change is missed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/message.h"
#include "rpc/api/access_control.h"
#include "rpc/api/access_table.h"
#include "rpc/core/rpc_internal.h"

struct rpc_reader {
    struct rpc *rpc;
    struct store_reader *store; /* NULL: there is no copy here */
    struct store_txn *txn;      /* under way; NULL: none */
    uint64_t generation;        /* of access control, from before the transaction under way */
    struct access_table *known; /* NULL: nobody was asked about yet */
    char denial[400];
};

struct rpc_reader *rpc_reader_new(struct rpc *rpc) {
    struct rpc_reader *reader = mem_zalloc(sizeof *reader);
    reader->rpc = rpc;
    if (rpc_has_copy(rpc)) reader->store = store_reader_new(machine_store(rpc->machine));
    return reader;
}

void rpc_reader_free(struct rpc_reader *reader) {
    if (!reader) return;
    access_table_free(reader->known);
    if (reader->store) store_reader_free(reader->store);
    free(reader);
}

struct store_txn *rpc_read_begin(struct rpc_reader *reader) {
    CHECK(reader->store);
    reader->generation = rpc_access_generation(reader->rpc);
    return reader->txn = store_read(reader->store);
}

void rpc_read_end(struct rpc_reader *reader) {
    reader->txn = NULL;
    if (reader->store) store_read_done(reader->store);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */
static int query_run(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
                     const struct requester *requester, struct arena *arena, struct query_result *result, bool wait) {
    size_t hidden;
    if (!reader->store) return reader->rpc->role->query(reader->rpc, type, request, requester, arena, result, wait);
    struct store_txn *txn = rpc_read_begin(reader);
    int error = type->run(txn, request, arena, result);
    if (!error) error = store_txn_error(txn);
    return error ? error : rpc_show(reader, requester, type, request, arena, result, &hidden);
}

int rpc_query(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
              const struct requester *requester, struct arena *arena, struct query_result *result) {
    return query_run(reader, type, request, requester, arena, result, true);
}

int rpc_query_now(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
                  const struct requester *requester, struct arena *arena, struct query_result *result) {
    return query_run(reader, type, request, requester, arena, result, false);
}

/* -- rules -------------------------------------------------------------------------------------------------------- */
void rpc_access_control_set(struct rpc *rpc, const struct rpc_access_control *control) {
    CHECK(!rpc->control && pthread_mutex_init(&rpc->default_lock, NULL) == 0);
    rpc->control = control;
    rpc_default_requester_set(rpc, NULL);
}

void rpc_access_control_end(struct rpc *rpc) {
    if (!rpc->control) return;
    requester_release(rpc->default_requester);
    requester_release(rpc->agent_requester);
    pthread_mutex_destroy(&rpc->default_lock);
}

static void swap(struct rpc *rpc, struct requester **place, struct requester *requester) {
    CHECK(rpc->control);
    pthread_mutex_lock(&rpc->default_lock);
    struct requester *before = *place;
    *place = requester;
    pthread_mutex_unlock(&rpc->default_lock);
    requester_release(before);
}

static struct requester *copy_of(struct rpc *rpc, struct requester *const *place) {
    if (!rpc->control) return NULL;
    pthread_mutex_lock(&rpc->default_lock);
    struct requester *requester = requester_keep(*place);
    pthread_mutex_unlock(&rpc->default_lock);
    return requester;
}

void rpc_access_changed(struct rpc *rpc) {
    struct watch_touched touched = {0};
    watch_touch(&touched, rpc->control->changes);
    watch_bump(rpc_watches(rpc), &touched);
    watch_wake(rpc_watches(rpc), &touched);
    watch_touched_free(&touched);
}

void rpc_default_requester_set(struct rpc *rpc, struct requester *requester) {
    if (!requester) requester = requester_new(REQUESTER_ANONYMOUS, SLICE_LITERAL(REQUESTER_ANONYMOUS_SECRET));
    swap(rpc, &rpc->default_requester, requester);
    rpc_access_changed(rpc); /* kept answers were made for the one before */
}

struct requester *rpc_default_requester(struct rpc *rpc) {
    return copy_of(rpc, &rpc->default_requester);
}
void rpc_agent_requester_set(struct rpc *rpc, struct requester *requester) {
    swap(rpc, &rpc->agent_requester, requester);
}
struct requester *rpc_agent_requester(struct rpc *rpc) {
    return copy_of(rpc, &rpc->agent_requester);
}

bool rpc_access_controlled(const struct rpc *rpc) { return rpc->control != NULL; }
struct watch_key rpc_access_changes(const struct rpc *rpc) {
    return rpc->control ? rpc->control->changes : (struct watch_key){0};
}
uint64_t rpc_access_generation(struct rpc *rpc) {
    return rpc->control ? rpc_generation(rpc, rpc->control->changes) : 0;
}
const char *rpc_denial(const struct rpc_reader *reader) { return reader->denial; }

static int resolve(struct rpc_reader *reader, const struct requester *requester, int64_t now_unix_ms,
                   const struct access **found) {
    const struct rpc_access_control *control = reader->rpc->control;
    bool within = reader->txn != NULL;
    struct store_txn *txn = within ? reader->txn : rpc_read_begin(reader);
    struct known_access known = {.requester = requester_keep(requester), .until_unix_ms = INT64_MAX};
    int error = control->resolve(control->data, txn, requester, now_unix_ms, &known.access, &known.until_unix_ms);
    known.generation = reader->generation;
    if (!within) rpc_read_end(reader);
    if (error && error != CO_NOTOKEN) access_table_drop(reader->known, requester);
    else *found = access_table_put(reader->known, &known)->access;
    requester_release(known.requester);
    return error;
}

static int fail(struct rpc_reader *reader, int error) {
    const char *text = error == CO_NOTREADY
                           ? "The ACL system is not ready yet: this server waits for the key of the tokens"
                           : co_strerror(error);
    snprintf(reader->denial, sizeof reader->denial, "%s", text);
    return error;
}

int rpc_access(struct rpc_reader *reader, const struct requester *requester, const struct access **access) {
    const struct rpc_access_control *control = reader->rpc->control;
    *access = access_all;
    if (!requester || !control) return CO_OK;
    if (!reader->known) reader->known = access_table_new();
    uint64_t generation = reader->txn ? reader->generation : rpc_access_generation(reader->rpc);
    int64_t now_unix_ms = clock_wall_ns() / 1000000;
    const struct known_access *known = access_table_find(reader->known, requester, now_unix_ms);
    int error = CO_OK;
    if (!known || known->generation != generation) error = resolve(reader, requester, now_unix_ms, access);
    else if (!known->access) error = CO_NOTOKEN;
    else *access = known->access;
    return error ? fail(reader, error) : CO_OK;
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
    CHECK(type->show && reader->txn);
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
    const struct module_command *command = modules_command(rpc_modules(reader->rpc), number);
    CHECK(command && command->may);
    struct store_txn *txn = rpc_read_begin(reader);
    /* once more, as of this transaction */
    error = rpc_access(reader, requester, &check.access);
    if (!error) error = command->may(&check, txn, request);
    if (!error) error = store_txn_error(txn);
    rpc_read_end(reader);
    return error == CO_DENIED ? deny(reader, requester, &check) : error;
}

int rpc_may_write_bytes(struct rpc_reader *reader, const struct requester *requester, struct slice *bytes,
                        struct arena *arena, uint64_t *judged) {
    uint8_t number = (uint8_t)bytes->data[0];
    const struct module_command *command = modules_command(rpc_modules(reader->rpc), number);
    if (!command) return CO_INVALID;
    ProtobufCMessage *message = message_unpack(arena, command->request, slice_make(bytes->data + 2, bytes->size - 2));
    if (!message) return CO_INVALID;
    int error = rpc_may_write(reader, requester, number, message, arena, judged);
    if (error || !command->marks) return error;
    size_t size = 2 + protobuf_c_message_get_packed_size(message);
    char *marked = arena_alloc(arena, size);
    memcpy(marked, bytes->data, 2);
    protobuf_c_message_pack(message, (uint8_t *)marked + 2);
    *bytes = slice_make(marked, size);
    return CO_OK;
}

int rpc_may_renew(struct rpc_reader *reader, const struct requester *requester, const struct expiry_kind *kind,
                  struct slice name, bool look) {
    struct arena arena = {0};
    struct access_check check = {.arena = &arena};
    int error = rpc_access(reader, requester, &check.access);
    if (error || access_is_all(check.access)) return error;
    if (!kind->may) return CO_NOTFOUND;
    struct store_txn *txn = rpc_read_begin(reader);
    error = rpc_access(reader, requester, &check.access);
    if (!error) error = kind->may(&check, txn, name, look);
    if (!error) error = store_txn_error(txn);
    rpc_read_end(reader);
    if (error == CO_DENIED) (void)deny(reader, requester, &check);
    arena_free(&arena);
    return error;
}

int rpc_may(struct rpc_reader *reader, const struct requester *requester, enum access_resource resource,
            struct slice name, enum access_level least) {
    struct arena arena = {0};
    struct access_check check = {.arena = &arena};
    int error = rpc_access(reader, requester, &check.access);
    if (!error) error = access_require(&check, resource, name, least);
    if (error == CO_DENIED) (void)deny(reader, requester, &check);
    arena_free(&arena);
    return error;
}
