#include "multi-dc/copy_age.h"

void copy_age_begin(struct copy_age *age) {
    *age = (struct copy_age){.heartbeat_ms = 0};
    pb__catalog_at__init(&age->ours);
}

bool copy_age_asks(struct copy_age *age, uint64_t now_ms) {
    if (now_ms < age->heartbeat_ms) return false;
    age->heartbeat_ms = now_ms + COPY_AGE_HEARTBEAT_MS;
    return true;
}

void copy_age_answered(struct copy_age *age, const Pb__CatalogAt *at, uint64_t round_ns, uint64_t now_ms) {
    uint64_t round_us = round_ns / 1000 + 1;
    age->rounds_us[age->round_count++ % COPY_AGE_ROUNDS] = round_us > UINT32_MAX ? UINT32_MAX : (uint32_t)round_us;
    age->answered_ms = now_ms;
    age->newest = at->index;
}

static void place(Pb__CatalogAt *to, const Pb__CatalogAt *from) {
    pb__catalog_at__init(to);
    to->cluster_id = from->cluster_id, to->restored = from->restored, to->index = from->index;
}

/* Does the copy have what was heard? */
static void confirm(struct copy_age *age, const struct copy_age_heard *heard) {
    bool has_it = copy_same_life(&age->ours, &heard->at) && heard->at.index <= age->ours.index;
    if (has_it && heard->ms > age->confirmed_ms) age->confirmed_ms = heard->ms;
}

void copy_age_heard(struct copy_age *age, const Pb__CatalogAt *at, uint64_t as_of_ms) {
    struct copy_age_heard *heard = &age->heard[age->heard_count++ % COPY_AGE_HEARD];
    place(&heard->at, at);
    heard->ms = as_of_ms;
    confirm(age, heard);
}

void copy_age_seen(struct copy_age *age, const Pb__CatalogAt *at, bool other) {
    if (other || !at || at->index < age->position) age->confirmed_ms = 0;
    age->position = at ? at->index : 0;
    pb__catalog_at__init(&age->ours);
    if (!at) return;
    place(&age->ours, at);
    for (unsigned i = 0; i < age->heard_count && i < COPY_AGE_HEARD; i++) confirm(age, &age->heard[i]);
}

uint64_t copy_age_ms(const struct copy_age *age, uint64_t confirmed_ms, uint64_t now_ms) {
    if (age->confirmed_ms > confirmed_ms) confirmed_ms = age->confirmed_ms;
    if (!confirmed_ms) return UINT64_MAX;
    return now_ms > confirmed_ms ? now_ms - confirmed_ms : 0;
}

uint32_t copy_age_round_us(const struct copy_age *age) {
    uint32_t least = 0;
    for (unsigned i = 0; i < age->round_count && i < COPY_AGE_ROUNDS; i++)
        if (!least || age->rounds_us[i] < least) least = age->rounds_us[i];
    return least;
}
