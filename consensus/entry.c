#include "consensus/entry.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "consensus/message.pb-c.h"

/* More than RAFT_MEMBERS_MAX members of the longest kind take. */
#define MEMBERS_BYTES_MAX 4096
enum { NUMBER_BYTES = 1 + 10, HEAD_BYTES = 1 + 5 }; /* of protobuf, at most: a field of a number; before bytes */
_Static_assert(RAFT_MEMBERS_MAX *(2 * HEAD_BYTES + RAFT_ADDRESS_MAX + 2 * NUMBER_BYTES) +
                       RAFT_RECOVERIES_MAX * (HEAD_BYTES + 4 * NUMBER_BYTES) + NUMBER_BYTES <=
                   MEMBERS_BYTES_MAX,
               "what is encoded is decoded");

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
    if (!data) return NULL;
    uint32_t before = atomic_fetch_add_explicit(&data->refs, 1, memory_order_relaxed);
    CHECK(before > 0 && before < UINT32_MAX);
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

/* -- recoveries -- */
static bool has(const struct raft_recoveries *all, const struct raft_recovery *recovery) {
    for (uint32_t i = 0; i < all->count; i++) {
        const struct raft_recovery *one = &all->item[i];
        if (one->index == recovery->index && one->term == recovery->term && one->survivor == recovery->survivor)
            return true;
    }
    return false;
}

static bool knows(const struct raft_members *ours, const struct raft_recovery *recovery) {
    /* written by a build that knew only recovered_index */
    if (ours->recoveries.count == 0 && ours->recovered_index == recovery->index) return true;
    return has(&ours->recoveries, recovery);
}

const struct raft_recovery *raft_recovery_ahead(const struct raft_members *ours, uint64_t last_index,
                                                uint64_t last_term, const struct raft_recoveries *theirs) {
    uint32_t known = theirs->count;
    while (known > 0 && !knows(ours, &theirs->item[known - 1])) known--;
    if (known == theirs->count) return NULL;
    const struct raft_recovery *first = &theirs->item[known];
    bool hidden = known == 0 && theirs->count == RAFT_RECOVERIES_MAX; /* there may have been one before it */
    bool lacked = last_term > first->before_term || (last_term == first->before_term && last_index >= first->index);
    return lacked || (hidden && last_index > 0) ? first : NULL;
}

const struct raft_recovery *raft_recovery_behind(const struct raft_members *ours, uint64_t last_term,
                                                 const struct raft_recoveries *theirs) {
    if (ours->recoveries.count == 0) return NULL;
    const struct raft_recovery *newest = &ours->recoveries.item[ours->recoveries.count - 1];
    bool hidden = theirs->count == RAFT_RECOVERIES_MAX && theirs->item[0].index > newest->index;
    return last_term > newest->term && !hidden && !has(theirs, newest) ? newest : NULL;
}

void raft_recovery_add(struct raft_members *members, const struct raft_recovery *recovery) {
    struct raft_recoveries *all = &members->recoveries;
    CHECK(all->count == 0 || all->item[all->count - 1].index < recovery->index);
    if (all->count == RAFT_RECOVERIES_MAX) memmove(all->item, all->item + 1, --all->count * sizeof *all->item);
    all->item[all->count++] = *recovery;
    members->recovered_index = recovery->index;
}

/* -- configurations -- */
void raft_members_encode(const struct raft_members *members, struct buffer *out) {
    CHECK(members->count <= RAFT_MEMBERS_MAX && members->recoveries.count <= RAFT_RECOVERIES_MAX);
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
    Pb__RaftRecovery recovery[RAFT_RECOVERIES_MAX];
    Pb__RaftRecovery *recoveries[RAFT_RECOVERIES_MAX];
    for (uint32_t i = 0; i < members->recoveries.count; i++) {
        const struct raft_recovery *from = &members->recoveries.item[i];
        pb__raft_recovery__init(&recovery[i]);
        recovery[i].index = from->index, recovery[i].term = from->term, recovery[i].before_term = from->before_term,
        recovery[i].survivor = from->survivor;
        recoveries[i] = &recovery[i];
    }
    all.n_recovery = members->recoveries.count;
    all.recovery = recoveries;
    size_t size = pb__raft_members__get_packed_size(&all);
    buffer_reserve(out, size);
    pb__raft_members__pack(&all, (uint8_t *)out->data + out->size);
    out->size += size;
}

static int recoveries_take(const Pb__RaftMembers *all, struct raft_recoveries *out) {
    if (all->n_recovery > RAFT_RECOVERIES_MAX) return CO_CORRUPT;
    for (size_t i = 0; i < all->n_recovery; i++) {
        const Pb__RaftRecovery *from = all->recovery[i];
        if (from->term <= from->before_term || from->index <= (i ? all->recovery[i - 1]->index : 0)) return CO_CORRUPT;
        out->item[out->count++] = (struct raft_recovery){from->index, from->term, from->before_term, from->survivor};
    }
    return out->count == 0 || out->item[out->count - 1].index == all->recovered_index ? CO_OK : CO_CORRUPT;
}

static int members_take(const Pb__RaftMembers *all, struct raft_members *out) {
    if (all->n_member > RAFT_MEMBERS_MAX) return CO_CORRUPT;
    out->recovered_index = all->recovered_index;
    if (recoveries_take(all, &out->recoveries) != CO_OK) return CO_CORRUPT;
    for (size_t i = 0; i < all->n_member; i++) {
        const Pb__RaftMember *from = all->member[i];
        size_t length = strlen(from->address);
        if (from->id == 0 || length >= RAFT_ADDRESS_MAX || raft_members_find(out, from->id)) return CO_CORRUPT;
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
