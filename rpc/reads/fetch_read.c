/* One read: the query runs in a transaction, its records are packed. Within a turn those who ask the same share it:
 * a change of a service that thousands wait for is read once. */
#include <stdlib.h>

#include "base/hash.h"
#include "base/message.h"
#include "rpc/reads/fetch_internal.h"

struct slice fetch_request(const struct fetch *fetch) {
    return slice_make(fetch->request, fetch->request_size);
}

/* What we packed ourselves. */
static ProtobufCMessage *request_unpack(const struct query_type *type, struct slice request, struct arena *arena) {
    ProtobufCMessage *message = message_unpack(arena, type->request, request);
    CHECK(message);
    return message;
}

struct watch_thing fetch_thing(const struct query_type *type, struct slice request, struct arena *arena) {
    return type->thing(request_unpack(type, request, arena));
}

/* -- answers ------------------------------------------------------------------------------------------------------ */
static int pack(const struct query_type *type, struct slice request, const struct query_result *result,
                struct fetch_answer **out) {
    size_t size = result->message ? protobuf_c_message_get_packed_size(result->message) : 0;
    if (size > FETCH_RESULT_MOST) return CO_TOOLARGE;
    struct fetch_answer *answer = mem_alloc(sizeof *answer + size + request.size);
    *answer = (struct fetch_answer){.references = 1,
                                    .type = type,
                                    .index = result->index,
                                    .found = result->found,
                                    .none = !result->message,
                                    .size = size,
                                    .request_size = request.size};
    if (size) protobuf_c_message_pack(result->message, answer->bytes);
    if (request.size) memcpy(answer->bytes + size, request.data, request.size);
    *out = answer;
    return CO_OK;
}

void fetch_answer_drop(struct fetch_answer *answer) {
    if (answer && --answer->references == 0) free(answer);
}

const uint8_t *fetch_digest(struct fetch_answer *answer) {
    if (!answer->digested) hash128(answer->bytes, answer->size, answer->digest);
    answer->digested = true;
    return answer->digest;
}

static struct slice asked(const struct fetch_answer *answer) {
    return slice_make(answer->bytes + answer->size, answer->request_size);
}

bool fetch_asks(struct fetch *fetch, const struct fetch_answer *answer) {
    return fetch_outer(fetch)->type == answer->type && slice_equal(fetch_request(fetch), asked(answer));
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
static int run(struct store_txn *txn, const struct query_type *type, const ProtobufCMessage *message,
               struct slice request, size_t limit, struct arena *arena, struct fetch_answer **answer) {
    struct query_result result = {0};
    if (limit) store_read_limit(txn, limit);
    int error = type->run(txn, message, arena, &result);
    if (limit && store_read_limit_hit(txn)) return CO_AGAIN;
    if (error) return error;
    /* Of the same transaction: after a restore the records' own indexes are older than those that were seen. */
    uint64_t floor = machine_floor(txn);
    if (result.index < floor) result.index = floor;
    error = store_txn_error(txn);
    return error ? error : pack(type, request, &result, answer);
}

int fetch_read(struct rpc *rpc, struct rpc_reader *reader, struct arena *arena, const struct query_type *type,
               struct slice request, size_t limit, struct watch_thing *thing, struct fetch_answer **answer) {
    const ProtobufCMessage *message = request_unpack(type, request, arena);
    *answer = NULL;
    *thing = type->thing(message);
    uint64_t generation = rpc_generation(rpc, *thing);
    if (rpc_serves(rpc) != CO_OK) return CO_FENCED;
    int error = run(rpc_read_begin(reader), type, message, request, limit, arena, answer);
    rpc_read_end(reader);
    if (error == CO_CORRUPT) rpc_met_damage(rpc);
    if (!error && rpc_serves(rpc) != CO_OK) { /* fenced meanwhile */
        fetch_answer_drop(*answer);
        *answer = NULL;
        error = CO_FENCED;
    }
    if (!error) (*answer)->generation = generation;
    return error;
}

/* -- kept for the turn -------------------------------------------------------------------------------------------- */
static struct fetch_answer **slot_of(struct fetches *fetches, const struct query_type *type, struct slice request) {
    return &fetches->slots[hash64_seed(request.data, request.size, type->number) % FETCH_SLOTS];
}

struct fetch_answer *fetch_kept(struct fetch *fetch) {
    if (!fetch->fetches->kept) return NULL;
    struct fetch_answer *answer = *slot_of(fetch->fetches, fetch_outer(fetch)->type, fetch_request(fetch));
    return answer && fetch_asks(fetch, answer) ? answer : NULL;
}

void fetch_keep(struct fetches *fetches, struct fetch_answer *answer) {
    size_t bytes = answer->size + answer->request_size;
    if (fetches->kept_bytes + bytes > FETCH_KEPT_MOST) return;
    struct fetch_answer **slot = slot_of(fetches, answer->type, asked(answer));
    if (*slot) fetches->kept_bytes -= (*slot)->size + (*slot)->request_size;
    fetch_answer_drop(*slot);
    *slot = answer;
    answer->references++;
    fetches->kept_bytes += bytes;
    fetches->kept = true;
}

void fetch_kept_clear(struct fetches *fetches) {
    for (size_t i = 0; i < FETCH_SLOTS && fetches->kept; i++) {
        fetch_answer_drop(fetches->slots[i]);
        fetches->slots[i] = NULL;
    }
    fetches->kept_bytes = 0;
    fetches->kept = false;
}
