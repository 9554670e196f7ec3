#include "lb/hot.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/varint.h"

#define REGISTERS    256 /* of HyperLogLog */
#define NAME_SIZE    1024
#define REGISTER_MAX 57
#define TOTAL_MOST   UINT32_MAX /* look-ups that one process passes on at once */

struct counter {
    uint64_t count, error; /* the true count is at least count - error */
    uint16_t size;
    char key[HOT_KEY_SIZE];
};

struct sketch {
    uint64_t total;
    uint8_t registers[REGISTERS];
    size_t count;
    uint64_t hashes[HOT_KEYS]; /* hashes of the keys, which each look-up searches */
    struct counter *counters;  /* HOT_KEYS; NULL: nothing was counted */
};

struct hot_counts {
    struct list link; /* in hot->services, the one asked for least recently first */
    /* This process's look-ups are in `fresh` until they are passed on or read, and then in `now` and `onward`. */
    struct sketch now, before, fresh, onward;
    uint64_t began_ns; /* of `now` */
    size_t size;
    char name[];
};

struct hot {
    struct list services;
    size_t count;
};

/* -- one sketch --------------------------------------------------------------------------------------------------- */
static void sketch_clear(struct sketch *sketch) {
    free(sketch->counters);
    *sketch = (struct sketch){0};
}

static struct counter *counter_find(struct sketch *sketch, struct slice key, uint64_t hash) {
    for (size_t i = 0; i < sketch->count; i++) {
        if (sketch->hashes[i] != hash) continue;
        struct counter *counter = &sketch->counters[i];
        if (slice_equal(slice_make(counter->key, counter->size), key)) return counter;
    }
    return NULL;
}

/* A new counter; when all are taken, the least one makes room for it. */
static struct counter *counter_take(struct sketch *sketch, struct slice key, uint64_t hash) {
    if (!sketch->counters) sketch->counters = mem_alloc(HOT_KEYS * sizeof *sketch->counters);
    struct counter *counter = sketch->counters;
    if (sketch->count < HOT_KEYS) {
        counter = &sketch->counters[sketch->count++];
        counter->count = 0;
    } else {
        for (size_t i = 1; i < HOT_KEYS; i++)
            if (sketch->counters[i].count < counter->count) counter = &sketch->counters[i];
    }
    sketch->hashes[counter - sketch->counters] = hash, counter->error = counter->count,
                             counter->size = (uint16_t)key.size;
    if (key.size) memcpy(counter->key, key.data, key.size);
    return counter;
}

static void sketch_count(struct sketch *sketch, struct slice key, uint64_t hash, uint64_t times) {
    if (key.size > HOT_KEY_SIZE) return;
    struct counter *counter = counter_find(sketch, key, hash);
    if (!counter) counter = counter_take(sketch, key, hash);
    counter->count += times;
}

static void sketch_see(struct sketch *sketch, uint64_t hash) {
    uint8_t rank = (uint8_t)(__builtin_clzll(hash << 8 | 1u << 7) + 1);
    uint8_t *known = &sketch->registers[hash >> 56];
    if (rank > *known) *known = rank;
}

static double distinct(const struct sketch *a, const struct sketch *b) {
    double sum = 0, zeroes = 0;
    for (size_t i = 0; i < REGISTERS; i++) {
        uint8_t rank = a->registers[i] > b->registers[i] ? a->registers[i] : b->registers[i];
        sum += ldexp(1, -rank);
        zeroes += rank == 0;
    }
    double estimate = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS * REGISTERS / sum;
    return estimate <= 2.5 * REGISTERS && zeroes > 0 ? REGISTERS * log(REGISTERS / zeroes) : estimate;
}

/* -- services ----------------------------------------------------------------------------------------------------- */
static void counts_drop(struct hot *hot, struct hot_counts *counts) {
    sketch_clear(&counts->now);
    sketch_clear(&counts->before);
    sketch_clear(&counts->onward);
    sketch_clear(&counts->fresh);
    list_remove(&counts->link);
    hot->count--;
    free(counts);
}

static struct hot_counts *counts_find(struct hot *hot, struct slice service) {
    for (struct list *at = hot->services.prev; at != &hot->services; at = at->prev) {
        struct hot_counts *counts = LIST_ENTRY(at, struct hot_counts, link);
        if (slice_equal_nocase(slice_make(counts->name, counts->size), service)) return counts;
    }
    return NULL;
}

/* Clears counts that are older than two windows. */
static void roll(struct hot_counts *counts, uint64_t now_ns) {
    uint64_t passed_ns = now_ns > counts->began_ns ? now_ns - counts->began_ns : 0;
    if (passed_ns < HOT_WINDOW_NS) return;
    sketch_clear(&counts->before);
    if (passed_ns < 2 * HOT_WINDOW_NS) counts->before = counts->now, counts->now = (struct sketch){0};
    else sketch_clear(&counts->now);
    counts->began_ns = passed_ns < 2 * HOT_WINDOW_NS ? counts->began_ns + HOT_WINDOW_NS : now_ns;
}

/* NULL: its name is too long. */
static struct hot_counts *counts_take(struct hot *hot, struct slice service, uint64_t now_ns) {
    if (service.size == 0 || service.size > NAME_SIZE) return NULL;
    struct hot_counts *counts = counts_find(hot, service);
    if (!counts) {
        if (hot->count == HOT_SERVICES_MOST) counts_drop(hot, LIST_ENTRY(hot->services.next, struct hot_counts, link));
        counts = mem_zalloc(sizeof *counts + service.size);
        counts->size = service.size, counts->began_ns = now_ns;
        memcpy(counts->name, service.data, service.size);
        list_init(&counts->link);
        hot->count++;
    }
    list_remove(&counts->link);
    list_append(&hot->services, &counts->link);
    roll(counts, now_ns);
    return counts;
}

struct hot *hot_new(void) {
    struct hot *hot = mem_zalloc(sizeof *hot);
    list_init(&hot->services);
    return hot;
}

void hot_free(struct hot *hot) {
    if (!hot) return;
    LIST_FOREACH_SAFE(at, next, &hot->services) counts_drop(hot, LIST_ENTRY(at, struct hot_counts, link));
    free(hot);
}

void hot_count(struct hot *hot, struct slice service, struct slice key, uint64_t now_ns) {
    struct hot_counts *counts = counts_take(hot, service, now_ns);
    if (!counts) return;
    uint64_t hash = hash64(key.data, key.size);
    counts->fresh.total++;
    sketch_see(&counts->fresh, hash);
    sketch_count(&counts->fresh, key, hash, 1);
}

static void sketch_add(struct sketch *to, const struct sketch *from) {
    to->total += from->total;
    for (size_t i = 0; i < REGISTERS; i++)
        if (from->registers[i] > to->registers[i]) to->registers[i] = from->registers[i];
    for (size_t i = 0; i < from->count; i++) {
        const struct counter *counter = &from->counters[i];
        if (counter->count > counter->error)
            sketch_count(to, slice_make(counter->key, counter->size), from->hashes[i], counter->count - counter->error);
    }
}

static void fold(struct hot_counts *counts) {
    if (!counts->fresh.total) return;
    sketch_add(&counts->now, &counts->fresh);
    sketch_add(&counts->onward, &counts->fresh);
    sketch_clear(&counts->fresh);
}

/* -- between processes -------------------------------------------------------------------------------------------- */

/* A frame has, for each service: its name; the total of its look-ups; the registers that are not 0, with their places;
 * its keys with their least counts. */
static void sketch_write(const struct sketch *sketch, struct buffer *out) {
    size_t filled = 0, keys = 0;
    varint_append(out, sketch->total < TOTAL_MOST ? sketch->total : TOTAL_MOST);
    for (size_t i = 0; i < REGISTERS; i++) filled += sketch->registers[i] != 0;
    varint_append(out, filled);
    for (size_t i = 0; i < REGISTERS; i++) {
        if (!sketch->registers[i]) continue;
        buffer_append_byte(out, (char)i);
        buffer_append_byte(out, (char)sketch->registers[i]);
    }
    for (size_t i = 0; i < sketch->count; i++) keys += sketch->counters[i].count > sketch->counters[i].error;
    varint_append(out, keys);
    for (size_t i = 0; i < sketch->count; i++) {
        const struct counter *counter = &sketch->counters[i];
        if (counter->count <= counter->error) continue;
        varint_append_slice(out, slice_make(counter->key, counter->size));
        varint_append(out, counter->count - counter->error);
    }
}

void hot_take(struct hot *hot, struct buffer *out) {
    LIST_FOREACH(at, &hot->services) {
        struct hot_counts *counts = LIST_ENTRY(at, struct hot_counts, link);
        fold(counts);
        if (!counts->onward.total) continue;
        varint_append_slice(out, slice_make(counts->name, counts->size));
        sketch_write(&counts->onward, out);
        sketch_clear(&counts->onward);
    }
}

static bool registers_merge(struct slice *rest, struct sketch *const *into, size_t count) {
    uint64_t filled;
    if (!varint_take(rest, &filled) || filled > REGISTERS || rest->size < 2 * filled) return false;
    for (uint64_t i = 0; i < filled; i++) {
        uint8_t place = (uint8_t)rest->data[2 * i], rank = (uint8_t)rest->data[2 * i + 1];
        if (rank > REGISTER_MAX) return false;
        for (size_t k = 0; k < count; k++)
            if (rank > into[k]->registers[place]) into[k]->registers[place] = rank;
    }
    *rest = slice_make(rest->data + 2 * filled, rest->size - 2 * (size_t)filled);
    return true;
}

static bool keys_merge(struct slice *rest, uint64_t total, struct sketch *const *into, size_t count) {
    uint64_t keys, times, left = total;
    if (!varint_take(rest, &keys) || keys > HOT_KEYS) return false;
    for (uint64_t i = 0; i < keys; i++) {
        struct slice key;
        if (!varint_slice(rest, &key) || key.size > HOT_KEY_SIZE || !varint_take(rest, &times) || times > left)
            return false;
        left -= times;
        for (size_t k = 0; k < count; k++) sketch_count(into[k], key, hash64(key.data, key.size), times);
    }
    return true;
}

int hot_merge(struct hot *hot, struct slice frame, bool onward, uint64_t now_ns) {
    while (frame.size) {
        struct slice name;
        uint64_t total;
        if (!varint_slice(&frame, &name) || !varint_take(&frame, &total) || total > TOTAL_MOST) return CO_CORRUPT;
        struct hot_counts *counts = counts_take(hot, name, now_ns);
        if (!counts) return CO_CORRUPT;
        struct sketch *const into[] = {&counts->now, &counts->onward};
        size_t count = onward ? 2 : 1;
        for (size_t i = 0; i < count; i++) into[i]->total += total;
        if (!registers_merge(&frame, into, count) || !keys_merge(&frame, total, into, count)) return CO_CORRUPT;
    }
    return CO_OK;
}

/* -- hot keys ----------------------------------------------------------------------------------------------------- */
static int more_frequent(const void *a, const void *b) {
    double one = ((const struct hot_key *)a)->rate, other = ((const struct hot_key *)b)->rate;
    return one > other ? -1 : one < other;
}

bool hot_look(struct hot *hot, struct slice service, uint64_t now_ns, struct hot_service *out) {
    *out = (struct hot_service){0};
    struct hot_counts *counts = counts_find(hot, service);
    if (!counts) return false;
    fold(counts);
    roll(counts, now_ns);
    struct sketch *now = &counts->now, *before = &counts->before;
    if (now->total + before->total == 0) return false;
    double passed_s = (double)(now_ns - counts->began_ns) / 1e9, window_s = (double)HOT_WINDOW_NS / 1e9;
    double old = before->total ? 1 - passed_s / window_s : 0; /* the part of `before` that is in the window */
    double over_s = before->total ? window_s : fmax(passed_s, 1);
    out->rate = ((double)now->total + old * (double)before->total) / over_s;
    out->keys = fmax(distinct(now, before), 1);
    out->mean = out->rate / out->keys;
    for (size_t i = 0; i < 2 * HOT_KEYS; i++) {
        const struct sketch *sketch = i < HOT_KEYS ? now : before;
        if (i % HOT_KEYS >= sketch->count || out->count == HOT_KEYS) continue;
        const struct counter *counter = &sketch->counters[i % HOT_KEYS];
        struct slice key = slice_make(counter->key, counter->size);
        const struct counter *other = counter_find(sketch == now ? before : now, key, sketch->hashes[i % HOT_KEYS]);
        if (sketch == before && other) continue; /* it has been read */
        double seen = (double)(counter->count - counter->error),
               seen_other = other ? (double)(other->count - other->error) : 0;
        double times = sketch == now ? seen + old * seen_other : old * seen;
        if (times < HOT_LEAST || times / over_s <= HOT_FACTOR * out->mean) continue;
        out->hot[out->count++] = (struct hot_key){key, times / over_s};
    }
    qsort(out->hot, out->count, sizeof out->hot[0], more_frequent);
    return true;
}
