#include "consensus/entry.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "consensus/message.pb-c.h"

/* More than RAFT_MEMBERS_MAX members of the longest kind take. */
#define MEMBERS_BYTES_MAX 4096

/* -- data -- */

struct raft_data *raft_data_new(const void *bytes, size_t size) {
    CHECK(size <= UINT32_MAX);
    struct raft_data *data = mem_alloc(sizeof *data + size);
    atomic_init(&data->refs, 1);
    data->size = (uint32_t)size;
    if (bytes && size) memcpy(data->bytes, bytes, size);
    return data;
}

struct raft_data *raft_data_ref(struct raft_data *data) {
    if (data) atomic_fetch_add_explicit(&data->refs, 1, memory_order_relaxed);
    return data;
}

void raft_data_unref(struct raft_data *data) {
    if (!data) return;
    uint32_t before = atomic_fetch_sub_explicit(&data->refs, 1, memory_order_acq_rel);
    CHECK(before > 0);
    if (before == 1) free(data);
}

/* -- members -- */

const struct raft_member *raft_members_find(const struct raft_members *members, uint64_t id) {
    for (uint32_t i = 0; i < members->count; i++)
        if (members->member[i].id == id) return &members->member[i];
    return NULL;
}

unsigned raft_members_voters(const struct raft_members *members) {
    unsigned voters = 0;
    for (uint32_t i = 0; i < members->count; i++) voters += members->member[i].voter;
    return voters;
}

void raft_members_encode(const struct raft_members *members, struct buffer *out) {
    CHECK(members->count <= RAFT_MEMBERS_MAX);
    Pb__RaftMember member[RAFT_MEMBERS_MAX];
    Pb__RaftMember *list[RAFT_MEMBERS_MAX];
    for (uint32_t i = 0; i < members->count; i++) {
        pb__raft_member__init(&member[i]);
        member[i].id = members->member[i].id;
        member[i].voter = members->member[i].voter;
        member[i].address = (char *)members->member[i].address;
        list[i] = &member[i];
    }
    Pb__RaftMembers all = PB__RAFT_MEMBERS__INIT;
    all.n_member = members->count;
    all.member = list;
    all.recovered_index = members->recovered_index;
    size_t size = pb__raft_members__get_packed_size(&all);
    buffer_reserve(out, size);
    pb__raft_members__pack(&all, (uint8_t *)out->data + out->size);
    out->size += size;
}

static int members_take(const Pb__RaftMembers *all, struct raft_members *out) {
    if (all->n_member > RAFT_MEMBERS_MAX) return CO_CORRUPT;
    out->recovered_index = all->recovered_index;
    for (size_t i = 0; i < all->n_member; i++) {
        const Pb__RaftMember *from = all->member[i];
        size_t length = strlen(from->address);
        if (from->id == 0 || length >= RAFT_ADDRESS_MAX || raft_members_find(out, from->id))
            return CO_CORRUPT;
        struct raft_member *to = &out->member[out->count++];
        to->id = from->id;
        to->voter = from->voter;
        memcpy(to->address, from->address, length + 1);
    }
    return CO_OK;
}

int raft_members_decode(struct slice bytes, struct raft_members *out) {
    memset(out, 0, sizeof *out);
    if (bytes.size > MEMBERS_BYTES_MAX) return CO_CORRUPT;
    struct arena arena = {0};
    ProtobufCAllocator allocator = ARENA_PROTOBUF(&arena);
    Pb__RaftMembers *all = pb__raft_members__unpack(&allocator, bytes.size, (const uint8_t *)bytes.data);
    int rv = all ? members_take(all, out) : CO_CORRUPT;
    if (rv != CO_OK) memset(out, 0, sizeof *out);
    arena_free(&arena);
    return rv;
}
