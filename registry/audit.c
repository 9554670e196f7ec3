#include "registry/audit.h"

#include <string.h>

#include "base/check.h"

void audit_note(struct audit_ring *ring, uint64_t index, uint64_t sum) {
    CHECK(ring->count <= AUDIT_KEPT);
    if (index <= audit_newest(ring)) ring->count = 0;
    if (ring->count == AUDIT_KEPT) memmove(ring->pairs, ring->pairs + 1, (--ring->count) * sizeof *ring->pairs);
    ring->pairs[ring->count++] = (struct audit_pair){index, sum};
}

bool audit_find(const struct audit_ring *ring, uint64_t index, uint64_t *sum) {
    for (size_t i = ring->count; i > 0 && ring->pairs[i - 1].index >= index; i--) {
        if (ring->pairs[i - 1].index != index) continue;
        *sum = ring->pairs[i - 1].sum;
        return true;
    }
    return false;
}

uint64_t audit_newest(const struct audit_ring *ring) { return ring->count ? ring->pairs[ring->count - 1].index : 0; }

static size_t count_votes(uint64_t index, uint64_t value, const struct audit_report *reports, size_t count) {
    size_t votes = 0;
    uint64_t sum;
    for (size_t i = 0; i < count; i++)
        votes += reports[i].voter && audit_find(&reports[i].ring, index, &sum) && sum == value;
    return votes;
}

static struct audit_judgement judge_at(const struct audit_pair *own, size_t voters, const struct audit_report *reports,
                                       size_t count) {
    struct audit_judgement judgement = {.index = own->index, .own = own->sum, .other = own->sum};
    size_t told = 0, quorum = voters / 2 + 1;
    if (count_votes(own->index, own->sum, reports, count) >= quorum) {
        judgement.verdict = AUDIT_EQUAL;
        return judgement;
    }
    bool differ = false;
    for (size_t i = 0; i < count; i++) {
        uint64_t sum;
        if (!reports[i].voter || !audit_find(&reports[i].ring, own->index, &sum)) continue;
        told++;
        if (sum == own->sum) continue;
        if (!differ) judgement.other = sum;
        differ = true;
        if (count_votes(own->index, sum, reports, count) < quorum) continue;
        judgement.verdict = AUDIT_MINORITY;
        judgement.other = sum;
        return judgement;
    }
    judgement.verdict = !differ ? AUDIT_NOTHING : told >= voters ? AUDIT_SPLIT : AUDIT_OPEN;
    return judgement;
}

struct audit_judgement audit_judge(uint64_t self, size_t voters, const struct audit_report *reports, size_t count) {
    struct audit_judgement open = {.verdict = AUDIT_NOTHING};
    const struct audit_ring *own = NULL;
    for (size_t i = 0; i < count; i++)
        if (reports[i].id == self) own = &reports[i].ring;
    for (size_t i = own && voters ? own->count : 0; i > 0; i--) {
        struct audit_judgement judgement = judge_at(&own->pairs[i - 1], voters, reports, count);
        if (judgement.verdict == AUDIT_OPEN && open.verdict == AUDIT_NOTHING) open = judgement;
        if (judgement.verdict != AUDIT_NOTHING && judgement.verdict != AUDIT_OPEN) {
            /* A newer index that is still open is more important than an older one at which all was well. */
            return judgement.verdict == AUDIT_EQUAL && open.verdict == AUDIT_OPEN ? open : judgement;
        }
    }
    return open;
}
