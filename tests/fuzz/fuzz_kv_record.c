/* Records of the store and of the log about keys and sessions: a letter for the kind, then any bytes.
 *
 *   R  size of the store key, store key, record     D  the same, of a lock-delay
 *   C  a command on keys, read in place and by protobuf
 *   S  the record of a session                      A  type, then any command's message: applied */
#include <stdlib.h>

#include "kv/keys/kv_command.h"
#include "kv/keys/kv_internal.h"
#include "kv/session/session_internal.h"
#include "tests/fuzz/still_machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool inside(struct slice part, struct slice whole) {
    if (part.size == 0) return true;
    return part.data >= whole.data && part.data + part.size <= whole.data + whole.size;
}

/* ---- R ---- */

static bool same_record(const struct kv_record *a, const struct kv_record *b) {
    return a->create_index == b->create_index && a->modify_index == b->modify_index && a->lock_index == b->lock_index &&
           a->token == b->token && a->flags == b->flags && slice_equal(a->session, b->session) &&
           slice_equal(a->lease, b->lease) && slice_equal(a->key, b->key) && slice_equal(a->value, b->value);
}

static void check_record(struct slice store_key, struct slice bytes) {
    struct kv_record record, again;
    int rv = kv_record_decode(store_key, bytes, &record);
    CHECK(rv == CO_OK || rv == CO_CORRUPT);
    if (rv != CO_OK) return;
    CHECK(inside(record.value, bytes) && (inside(record.key, bytes) || inside(record.key, store_key)));
    CHECK(record.session.size == 0 || (record.session.size == UUID_TEXT_SIZE && inside(record.session, bytes)));
    CHECK(record.lease.size == 0 || (record.lease.size == UUID_TEXT_SIZE && inside(record.lease, bytes)));
    /* Only what a server could have written can be written again. */
    char room[KV_STORE_KEY_MAX];
    if (record.key.size > KV_KEY_MAX || !slice_equal(kv_store_key(record.key, room), store_key)) return;
    struct arena arena = {0};
    struct slice written = kv_record_encode(&record, &arena);
    CHECK(kv_record_decode(store_key, written, &again) == CO_OK && same_record(&record, &again));
    arena_free(&arena);
}

/* A long key's record as a server writes it, whatever is in the input for its parts. */
static void check_written(struct slice text, struct slice value) {
    static char key[KV_KEY_MAX];
    size_t size = text.size ? text.size * 37 % sizeof key + 1 : 1;
    for (size_t i = 0; i < size; i++) key[i] = text.size ? text.data[i % text.size] : 'k';
    struct kv_record record = {.create_index = 1, .modify_index = size, .flags = ~UINT64_C(0), .value = value}, again;
    record.key = slice_make(key, size);
    if (size & 1) record.session = slice_text(STILL_SESSION), record.token = size & 4 ? size : 0;
    if (size & 2) record.lease = slice_text(STILL_LEASE);
    char room[KV_STORE_KEY_MAX];
    struct arena arena = {0};
    struct slice store_key = kv_store_key(record.key, room), written = kv_record_encode(&record, &arena);
    CHECK(store_key.size <= STORE_KEY_MAX && kv_is_long(store_key) == (size > STORE_KEY_PREFIX));
    CHECK(kv_record_decode(store_key, written, &again) == CO_OK && same_record(&record, &again));
    arena_free(&arena);
}

/* ---- C ---- */

static struct slice bytes_of(ProtobufCBinaryData data) { return slice_make(data.data, data.len); }

static void check_command(struct slice bytes) {
    struct arena arena = {0};
    ProtobufCAllocator allocator = ARENA_PROTOBUF(&arena);
    struct kv_command_view view;
    bool valid = kv_command_decode(bytes, &view);
    Pb__KvCommand *command = pb__kv_command__unpack(&allocator, bytes.size, (const uint8_t *)bytes.data);
    /* protobuf-c takes a field of number 0 for an unknown one; it is none. */
    CHECK(!valid || command);
    CHECK(valid || !command || command->base.n_unknown_fields > 0);
    if (valid) {
        CHECK(inside(view.key, bytes) && inside(view.value, bytes) && inside(view.session, bytes));
        CHECK(view.verb == (uint32_t)command->verb && view.flags == command->flags && view.index == command->index);
        CHECK(slice_equal(view.key, bytes_of(command->key)) && slice_equal(view.value, bytes_of(command->value)));
        CHECK(inside(view.lease, bytes) && slice_starts(view.lease, slice_text(command->lease)));
        CHECK(inside(view.fence, bytes) && slice_starts(view.fence, slice_text(command->fence)));
        CHECK(view.token == command->token && view.want_token == (command->want_token != 0));
        CHECK(slice_starts(view.session, slice_text(command->session))); /* protobuf's text ends at a NUL */
    }
    arena_free(&arena);
}

/* ---- D, S ---- */

static void check_delay(struct slice bytes) {
    struct lock_delay delay;
    int rv = lock_delay_decode(bytes, &delay);
    CHECK(rv == CO_OK || rv == CO_CORRUPT);
    if (rv == CO_OK) CHECK(inside(delay.name, bytes) && delay.name.size > 0);
}

static void check_session(struct slice bytes) {
    struct arena arena = {0};
    ProtobufCAllocator allocator = ARENA_PROTOBUF(&arena);
    Pb__Session *session;
    int rv = session_unpack(bytes, &arena, &session);
    CHECK(rv == CO_OK || rv == CO_CORRUPT);
    if (bytes.size < 8) CHECK(rv == CO_CORRUPT && session_record_ttl_ns(bytes) == -1);
    if (rv == CO_OK) {
        size_t size = pb__session__get_packed_size(session);
        uint8_t *packed = arena_alloc(&arena, size + 1);
        CHECK(pb__session__pack(session, packed) == size && pb__session__unpack(&allocator, size, packed));
    }
    arena_free(&arena);
}

/* ---- A ---- */

static void apply(struct slice bytes) {
    struct buffer command = {0};
    buffer_append_byte(&command, bytes.data[0]);
    buffer_append_byte(&command, 1);
    buffer_append(&command, bytes.data + 1, bytes.size - 1);
    still_apply(buffer_slice(&command), NULL, NULL);
    buffer_free(&command);
}

/* ---- one input ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    /* A copy of just this size, so that a read past the end is seen. */
    char *exact = mem_alloc(size - 1);
    memcpy(exact, data + 1, size - 1);
    struct slice bytes = slice_make(exact, size - 1);
    if (data[0] == 'R' || data[0] == 'D') {
        size_t wanted = (uint8_t)exact[0] * 2u, left = size - 2, key_size = wanted < left ? wanted : left;
        if (key_size > KV_STORE_KEY_MAX) key_size = KV_STORE_KEY_MAX;
        struct slice store_key = slice_make(exact + 1, key_size),
                     rest = slice_make(exact + 1 + key_size, left - key_size);
        if (data[0] == 'D') {
            check_delay(rest);
        } else {
            check_record(store_key, rest);
            check_written(store_key, rest);
        }
    }
    if (data[0] == 'C') check_command(bytes);
    if (data[0] == 'S') check_session(bytes);
    if (data[0] == 'A') apply(bytes);
    free(exact);
    return 0;
}
