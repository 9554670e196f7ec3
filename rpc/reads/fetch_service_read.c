/* One read: runs the query in a transaction and packs its records. Within a turn equal requests share it: a change of a
 * service for which thousands wait is read once. */
#include <stdlib.h>

#include "base/hash.h"
#include "base/message.h"
#include "rpc/reads/fetch_service_internal.h"

struct slice fetch_request(const struct fetch *fetch) {
    return slice_make(fetch->request, fetch->request_size);
}

/* Unpacks a request that this process has packed itself. */
static ProtobufCMessage *request_unpack(const struct query_type *type, struct slice request, struct arena *arena) {
    ProtobufCMessage *message = message_unpack(arena, type->request, request);
    CHECK(message);
    return message;
}

struct depends fetch_depends(struct read *read) {
    struct fetch *fetch = fetch_of_read(read);
    struct fetch_service *fetches = fetch_service_of(fetch);
    arena_reset(&fetches->request_arena);
    fetches->request = request_unpack(fetch_outer(fetch)->type, fetch_request(fetch), &fetches->request_arena);
    return depends_of(fetch_outer(fetch)->type, fetches->request);
}

/* -- answers ------------------------------------------------------------------------------------------------------ */
static struct fetch_answer *answer_of(struct read_answer *answer) {
    return CONTAINER_OF(answer, struct fetch_answer, read);
}

struct asking {
    const struct query_type *type;
    struct slice request;
    const struct requester *requester;
};

static int pack(void *data, const struct query_result *result, struct read_answer **out) {
    const struct asking *asking = data;
    size_t size = result->message ? protobuf_c_message_get_packed_size(result->message) : 0;
    if (size > FETCH_RESULT_MOST) return CO_TOOLARGE;
    struct fetch_answer *answer = mem_alloc(sizeof *answer + size + asking->request.size);
    uint32_t tag = 1u | (result->found ? 2u : 0) | (result->message ? 0 : 4u);
    *answer = (struct fetch_answer){.references = 1,
                                    .type = asking->type,
                                    .read = {.index = result->index, .size = size, .tag = tag},
                                    .found = result->found,
                                    .none = !result->message,
                                    .request_size = asking->request.size};
    if (size) protobuf_c_message_pack(result->message, answer->bytes);
    if (asking->request.size) memcpy(answer->bytes + size, asking->request.data, asking->request.size);
    *out = &answer->read;
    return CO_OK;
}

void fetch_drop(struct read_answer *answer) {
    if (--answer_of(answer)->references != 0) return;
    free(answer_of(answer)->cause);
    free(answer_of(answer));
}

const uint8_t *fetch_digest(struct read_answer *read) {
    struct fetch_answer *answer = answer_of(read);
    if (!answer->digested) hash128(answer->bytes, read->size, answer->digest);
    answer->digested = true;
    return answer->digest;
}

int fetch_run(struct read *read, size_t limit, struct read_answer **answer) {
    struct fetch *fetch = fetch_of_read(read);
    struct fetch_service *fetches = fetch_service_of(fetch);
    struct asking asking = {fetch_outer(fetch)->type, fetch_request(fetch), read->requester};
    return read_run(read->engine, fetches->reader, &fetches->arena, asking.type, fetches->request, asking.requester,
                    limit, pack, &asking, answer);
}

/* -- kept for the turn -------------------------------------------------------------------------------------------- */
static struct slice asked(const struct fetch_answer *answer) {
    return slice_make(answer->bytes + answer->read.size, answer->request_size);
}

static struct fetch_answer **slot_of(struct fetch_service *fetches, const struct query_type *type,
                                     struct slice request) {
    return &fetches->slots[hash64_seed(request.data, request.size, type->number) % FETCH_SLOTS];
}

struct read_answer *fetch_find(struct read *read, uint64_t generation, uint64_t view) {
    struct fetch *fetch = fetch_of_read(read);
    struct fetch_service *fetches = fetch_service_of(fetch);
    const struct query_type *type = fetch_outer(fetch)->type;
    if (!fetches->kept) return NULL;
    struct fetch_answer *answer = *slot_of(fetches, type, fetch_request(fetch));
    if (!answer || answer->type != type || answer->read.generation != generation || answer->read.view != view ||
        !slice_equal(fetch_request(fetch), asked(answer)))
        return NULL;
    answer->references++;
    return &answer->read;
}

static size_t cost(const struct fetch_answer *answer) { return answer->read.size + answer->request_size; }

void fetch_keep(struct read_engine *engine, struct read_answer *read) {
    struct fetch_service *fetches = CONTAINER_OF(engine, struct fetch_service, engine);
    struct fetch_answer *answer = answer_of(read);
    if (fetches->kept_bytes + cost(answer) > FETCH_KEPT_MOST) return;
    struct fetch_answer **slot = slot_of(fetches, answer->type, asked(answer));
    if (*slot) {
        fetches->kept_bytes -= cost(*slot);
        fetch_drop(&(*slot)->read);
    }
    *slot = answer;
    answer->references++;
    fetches->kept_bytes += cost(answer);
    fetches->kept = true;
}

void fetch_kept_clear(struct fetch_service *fetches) {
    for (size_t i = 0; i < FETCH_SLOTS && fetches->kept; i++) {
        if (fetches->slots[i]) fetch_drop(&fetches->slots[i]->read);
        fetches->slots[i] = NULL;
    }
    fetches->kept_bytes = 0;
    fetches->kept = false;
}

/* -- large reads -------------------------------------------------------------------------------------------------- */
struct fetch_build {
    struct read_build read;
    const struct query_type *type;
    struct requester *requester;
    uint32_t request_size;
    uint8_t request[];
};

static struct asking asking_of(const struct read_build *read) {
    const struct fetch_build *build = CONTAINER_OF((struct read_build *)(uintptr_t)read, struct fetch_build, read);
    return (struct asking){build->type, slice_make(build->request, build->request_size), build->requester};
}

struct read_build *fetch_build_new(struct read *read) {
    struct fetch *fetch = fetch_of_read(read);
    struct fetch_build *build = mem_zalloc(sizeof *build + fetch->request_size);
    build->type = fetch_outer(fetch)->type;
    build->requester = requester_keep(read->requester);
    build->request_size = fetch->request_size;
    if (fetch->request_size) memcpy(build->request, fetch->request, fetch->request_size);
    return &build->read;
}

bool fetch_build_like(const struct read_build *build, const struct read *read) {
    struct fetch *fetch = fetch_of_read(read);
    struct asking asking = asking_of(build);
    return asking.type == fetch_outer(fetch)->type && slice_equal(asking.request, fetch_request(fetch)) &&
           requester_equal(asking.requester, read->requester);
}

int fetch_build_run(struct read_build *build, struct rpc_reader *reader, struct arena *arena,
                    struct read_answer **answer) {
    struct asking asking = asking_of(build);
    struct arena request_arena = {0};
    const ProtobufCMessage *request = request_unpack(asking.type, asking.request, &request_arena);
    int error =
        read_run(build->engine, reader, arena, asking.type, request, asking.requester, 0, pack, &asking, answer);
    arena_free(&request_arena);
    return error;
}

void fetch_build_free(struct read_build *read) {
    struct fetch_build *build = CONTAINER_OF(read, struct fetch_build, read);
    requester_release(build->requester);
    free(build);
}
