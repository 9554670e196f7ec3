#include "consensus/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "consensus/message.pb-c.h"

/* The head of a message with as many entries as may be, each with the longest varints. */
#define HEAD_BYTES_MAX (RAFT_MESSAGE_ENTRIES_MAX * (size_t)30 + 8192)
_Static_assert(HEAD_BYTES_MAX < RAFT_MESSAGE_BYTES_MAX, "the longest head leaves room for entries");

/* -- encode -- */

static void encode_entries(const struct raft_message *message, Pb__RaftMessage *head, struct arena *arena) {
    size_t count = message->entry_count;
    if (count == 0) return;
    CHECK(count <= RAFT_MESSAGE_ENTRIES_MAX);
    head->n_entry_terms = head->n_entry_types = head->n_entry_sizes = head->n_entry_times = count;
    head->entry_terms = arena_alloc(arena, count * sizeof *head->entry_terms);
    head->entry_types = arena_alloc(arena, count * sizeof *head->entry_types);
    head->entry_sizes = arena_alloc(arena, count * sizeof *head->entry_sizes);
    head->entry_times = arena_alloc(arena, count * sizeof *head->entry_times);
    uint64_t before_ms = 0;
    for (size_t i = 0; i < count; i++) {
        const struct raft_entry *entry = &message->entries[i];
        CHECK(entry->index == message->last_index + 1 + i);
        head->entry_terms[i] = entry->term;
        head->entry_types[i] = entry->type;
        head->entry_sizes[i] = entry->data ? entry->data->size : 0;
        head->entry_times[i] = (int64_t)entry->unix_ms - (int64_t)before_ms;
        before_ms = entry->unix_ms;
    }
}

static void encode_recoveries(const struct raft_recoveries *recoveries, Pb__RaftMessage *head, struct buffer *out) {
    if (recoveries->count == 0) return; /* nearly always */
    struct raft_members none = {.recovered_index = recoveries->item[recoveries->count - 1].index,
                                .recoveries = *recoveries};
    raft_members_encode(&none, out);
    head->recoveries.data = (uint8_t *)out->data;
    head->recoveries.len = out->size;
}

static void encode_head(const struct raft_message *message, Pb__RaftMessage *head, struct buffer *members) {
    head->type = (uint32_t)message->type;
    head->from = message->from;
    head->to = message->to;
    head->term = message->term;
    head->last_index = message->last_index;
    head->last_term = message->last_term;
    head->commit = message->commit;
    head->round = message->round;
    head->granted = message->granted;
    head->transfer = message->transfer;
    head->rejected = message->rejected;
    head->degraded = message->degraded;
    head->full = message->full;
    head->match = message->match;
    head->hint_index = message->hint_index;
    head->hint_term = message->hint_term;
    head->snapshot_index = message->snapshot.index;
    head->snapshot_term = message->snapshot.term;
    head->snapshot_size = message->snapshot.size;
    head->snapshot_members_index = message->snapshot.members_index;
    if (message->snapshot.members.count > 0) {
        raft_members_encode(&message->snapshot.members, members);
        head->snapshot_members.data = (uint8_t *)members->data;
        head->snapshot_members.len = members->size;
    }
    head->offset = message->offset;
    head->last = message->last;
    head->recoveries_told = message->recoveries_told;
}

void raft_message_encode(const struct raft_message *message, struct buffer *out) {
    CHECK(message->type >= RAFT_MSG_PREVOTE && message->type <= RAFT_MSG_TIMEOUT_NOW);
    Pb__RaftMessage head = PB__RAFT_MESSAGE__INIT;
    struct arena arena = {0};
    struct buffer members = {0}, recoveries = {0};
    encode_head(message, &head, &members);
    encode_recoveries(&message->recoveries, &head, &recoveries);
    encode_entries(message, &head, &arena);

    size_t size = pb__raft_message__get_packed_size(&head);
    CHECK(size <= HEAD_BYTES_MAX);
    size_t payload = message->type == RAFT_MSG_SNAPSHOT ? message->data.size : 0;
    for (size_t i = 0; i < head.n_entry_sizes; i++) payload += head.entry_sizes[i];
    buffer_reserve(out, 4 + size + payload);
    put_le32(out->data + out->size, (uint32_t)size);
    pb__raft_message__pack(&head, (uint8_t *)out->data + out->size + 4);
    out->size += 4 + size;
    for (size_t i = 0; i < message->entry_count; i++) {
        struct slice bytes = raft_entry_bytes(&message->entries[i]);
        if (bytes.size) buffer_append(out, bytes.data, bytes.size);
    }
    if (message->type == RAFT_MSG_SNAPSHOT && message->data.size)
        buffer_append(out, message->data.data, message->data.size);
    buffer_free(&members);
    buffer_free(&recoveries);
    arena_free(&arena);
}

/* -- decode -- */

/* Checks that the columns of the entries agree, before memory is taken for the entries. */
static bool entries_sane(const Pb__RaftMessage *head, size_t payload) {
    size_t count = head->n_entry_terms;
    if (head->n_entry_types != count || head->n_entry_sizes != count || head->n_entry_times != count) return false;
    if (count == 0) return true;
    if (head->type != RAFT_MSG_APPEND || count > RAFT_MESSAGE_ENTRIES_MAX) return false;
    if (head->last_index > UINT64_MAX - count) return false;
    uint64_t total = 0, term = head->last_term, unix_ms = 0;
    for (size_t i = 0; i < count; i++) {
        unix_ms += (uint64_t)head->entry_times[i];
        if (unix_ms > RAFT_UNIX_MS_MAX) return false;
        if (head->entry_terms[i] == 0 || head->entry_terms[i] < term || head->entry_terms[i] > head->term) return false;
        if (head->entry_types[i] > RAFT_ENTRY_MEMBERS) return false;
        term = head->entry_terms[i];
        total += head->entry_sizes[i];
    }
    return total == payload;
}

static void decode_entries(const Pb__RaftMessage *head, struct slice payload, struct raft_message *message) {
    size_t count = head->n_entry_terms;
    if (count == 0) return;
    message->entries = mem_alloc(count * sizeof *message->entries);
    message->entry_count = count;
    const char *at = payload.data;
    uint64_t unix_ms = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t size = head->entry_sizes[i];
        unix_ms += (uint64_t)head->entry_times[i];
        message->entries[i] = (struct raft_entry){
            .index = head->last_index + 1 + i,
            .term = head->entry_terms[i],
            .type = (uint8_t)head->entry_types[i],
            .data = size ? raft_data_new(at, size) : NULL,
            .unix_ms = unix_ms,
        };
        at += size;
    }
    CHECK(at == payload.data + payload.size); /* entries_sane */
}

static void decode_head(const Pb__RaftMessage *head, struct raft_message *message) {
    message->type = (enum raft_message_type)head->type;
    message->from = head->from;
    message->to = head->to;
    message->term = head->term;
    message->last_index = head->last_index;
    message->last_term = head->last_term;
    message->commit = head->commit;
    message->round = head->round;
    message->granted = head->granted;
    message->transfer = head->transfer;
    message->rejected = head->rejected;
    message->degraded = head->degraded;
    message->full = head->full;
    message->match = head->match;
    message->hint_index = head->hint_index;
    message->hint_term = head->hint_term;
    message->snapshot.index = head->snapshot_index;
    message->snapshot.term = head->snapshot_term;
    message->snapshot.size = head->snapshot_size;
    message->snapshot.members_index = head->snapshot_members_index;
    message->offset = head->offset;
    message->last = head->last;
    message->recoveries_told = head->recoveries_told;
}

static int decode(const Pb__RaftMessage *head, struct slice payload, struct raft_message *message) {
    if (head->type < RAFT_MSG_PREVOTE || head->type > RAFT_MSG_TIMEOUT_NOW || head->from == 0) return CO_CORRUPT;
    bool chunk = head->type == RAFT_MSG_SNAPSHOT;
    if (!chunk && head->n_entry_terms == 0 && payload.size > 0) return CO_CORRUPT;
    if (!entries_sane(head, payload.size)) return CO_CORRUPT;
    if (chunk && (head->snapshot_index == 0 || head->offset > UINT64_MAX - payload.size)) return CO_CORRUPT;
    if (head->snapshot_members.len > 0) {
        struct slice members = message_slice(head->snapshot_members);
        int rv = raft_members_decode(members, &message->snapshot.members);
        if (rv != CO_OK) return rv;
    }
    if (head->recoveries.len > 0) {
        struct raft_members none;
        int rv = raft_members_decode(message_slice(head->recoveries), &none);
        if (rv != CO_OK) return rv;
        message->recoveries = none.recoveries;
    }
    decode_head(head, message);
    if (chunk) message->data = payload;
    else decode_entries(head, payload, message);
    return CO_OK;
}

int raft_message_decode(struct slice bytes, struct raft_message *message) {
    memset(message, 0, sizeof *message);
    if (bytes.size < 4 || bytes.size > RAFT_MESSAGE_BYTES_MAX) return CO_CORRUPT;
    size_t head_size = get_le32(bytes.data);
    if (head_size > bytes.size - 4 || head_size > HEAD_BYTES_MAX) return CO_CORRUPT;
    struct arena arena = {0};
    ProtobufCAllocator allocator = ARENA_PROTOBUF(&arena);
    const uint8_t *at = (const uint8_t *)bytes.data + 4;
    Pb__RaftMessage *head = pb__raft_message__unpack(&allocator, head_size, at);
    struct slice payload = slice_make(bytes.data + 4 + head_size, bytes.size - 4 - head_size);
    int rv = head ? decode(head, payload, message) : CO_CORRUPT;
    if (rv != CO_OK) memset(message, 0, sizeof *message);
    arena_free(&arena);
    return rv;
}

void raft_message_drop(struct raft_message *message) {
    for (size_t i = 0; i < message->entry_count; i++) raft_data_unref(message->entries[i].data);
    free(message->entries);
    message->entries = NULL;
    message->entry_count = 0;
}

uint64_t raft_message_room(const struct raft_message *append) {
    uint64_t bytes = 0;
    bool commands = false;
    for (size_t i = 0; i < append->entry_count; i++) {
        bytes += raft_entry_bytes(&append->entries[i]).size + RAFT_ENTRY_OVERHEAD;
        commands |= append->entries[i].type == RAFT_ENTRY_COMMAND;
    }
    return commands ? bytes : 0;
}

struct raft_message raft_message_heard(const struct raft_message *append) {
    CHECK(append->type == RAFT_MSG_APPEND);
    return (struct raft_message){
        .type = append->type, .from = append->from, .to = append->to, .term = append->term, .round = append->round};
}
