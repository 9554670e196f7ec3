#include "dns/segments.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/hash.h"

/* Sorts answers to one peer next to each other, long ones first. Two peers may share a key by accident: they are
 * compared as well. */
static uint64_t key_of(const struct segments_answer *answer) {
    uint64_t hash = hash64(answer->peer, answer->peer_size);
    if (answer->control_size) hash ^= hash64(answer->control, answer->control_size) * 0x9E3779B97F4A7C15u;
    return (hash & ~(uint64_t)0xffff) | (0xffff - answer->size);
}

static bool same_way(const struct segments_answer *a, const struct segments_answer *b) {
    return a->peer_size == b->peer_size && a->control_size == b->control_size &&
           memcmp(a->peer, b->peer, a->peer_size) == 0 &&
           (a->control_size == 0 || memcmp(a->control, b->control, a->control_size) == 0);
}

/* Insertion sort, because batches are small, and equal keys must keep their order. */
static void sort(const struct segments_answer *answers, size_t count, uint64_t *keys, uint16_t *order) {
    for (size_t i = 0; i < count; i++) {
        uint64_t key = key_of(&answers[i]);
        size_t at = i;
        for (; at > 0 && keys[at - 1] > key; at--) {
            keys[at] = keys[at - 1];
            order[at] = order[at - 1];
        }
        keys[at] = key;
        order[at] = (uint16_t)i;
    }
}

/* How many of the `count` answers from order[0] on are one message. */
static size_t run_length(const struct segments_answer *answers, const uint16_t *order, size_t count, size_t size_max) {
    const struct segments_answer *head = &answers[order[0]];
    if (head->size > size_max) return 1;
    size_t bytes = head->size, length = 1;
    while (length < count && length < SEGMENTS_MAX) {
        const struct segments_answer *next = &answers[order[length]];
        if (next->size > head->size || bytes + next->size > SEGMENTS_BYTES_MAX || !same_way(head, next)) break;
        length++;
        bytes += next->size;
        if (next->size < head->size) break; /* only the last may be shorter */
    }
    return length;
}

size_t segments_plan(const struct segments_answer *answers, size_t count, size_t size_max, uint64_t *keys,
                     uint16_t *order, struct segments_group *groups) {
    size_t group_count = 0;
    sort(answers, count, keys, order);
    for (size_t first = 0; first < count;) {
        size_t length = run_length(answers, order + first, count - first, size_max);
        groups[group_count++] = (struct segments_group){(uint16_t)first, (uint16_t)length};
        first += length;
    }
    return group_count;
}

size_t segments_refused(size_t size_max, size_t size, int error) {
    switch (error) {
        case EMSGSIZE:
        case EINVAL: return size - 1 < size_max ? size - 1 : size_max;
        case EIO:
        case ENOPROTOOPT:
        case EOPNOTSUPP: return 0;
        default: return size_max;
    }
}
