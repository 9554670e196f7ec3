/* The leader's table of deadlines: a heap of deadlines over a hash table of names. It decides, it does not act.
 *
 * (1) An entry is in the heap, unless it has no TTL, or its end is proposed.
 *
 * (2) A deadline is never earlier than the full period after the last renewal, as an outside clock counts it. One
 * millisecond is added, because clocks of milliseconds are rounded down.
 *
 * (3) While its end is proposed an entry is not renewed: the proposal may be committed at any time.
 *
 * (4) Messages that arrived while the loop stood still are read before anything ends: a tick that comes late proposes
 * nothing, and one that comes later than `stall_ms` grants every entry a full period. A tick is late when it comes
 * after the moment for which expiry_deadline_ms asked. That is the first deadline, and in the time just before it every
 * `stall_ms` / 4. So the table knows that the loop runs when something ends, and does not wake it otherwise.
 *
 *     created --> waiting --deadline--> proposed --ended--> gone
 *                  |   ^renewed            |
 *                  |   +------failed-------+
 *                  +------------------ended---------------> gone */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "registry/expiry.h"

enum {
    GRACE_MS = 200,  /* for things that can be renewed: a renewal may be on its way when the TTL ends */
    RETRY_MS = 250,  /* after a proposal that did not make it into the log */
    STALL_MS = 1000, /* unless expiry_stall_ms says otherwise */
    BUCKETS_MIN = 64,
};

_Static_assert((BUCKETS_MIN & (BUCKETS_MIN - 1)) == 0, "a power of two");
_Static_assert(RETRY_MS >= 1 + GRACE_MS, "a deadline is at least its slack from now");

struct deadline {
    struct deadline *chain; /* in its bucket */
    uint64_t hash, index, deadline_ms;
    int64_t period_ns;
    size_t place; /* in the heap, from 1; 0: not there */
    const struct expiry_kind *kind;
    bool proposed;
    size_t size;
    char name[];
};

struct expiry {
    struct deadline **buckets;
    size_t bucket_count, count; /* a power of two; entries */
    size_t counts[256];         /* by the kind's number */
    struct deadline **heap;     /* heap[1..heap_count] */
    size_t heap_count, heap_room;
    uint64_t term; /* 0: not leading */
    uint64_t ticked_ms, stall_ms;
};

/* -- heap --------------------------------------------------------------------------------------------------------- */

static void heap_set(struct expiry *t, size_t place, struct deadline *entry) {
    t->heap[place] = entry;
    entry->place = place;
}

static void heap_up(struct expiry *t, size_t place) {
    CHECK(place > 0 && place <= t->heap_count);
    struct deadline *entry = t->heap[place];
    for (; place > 1 && t->heap[place / 2]->deadline_ms > entry->deadline_ms; place /= 2)
        heap_set(t, place, t->heap[place / 2]);
    heap_set(t, place, entry);
}

static void heap_down(struct expiry *t, size_t place) {
    CHECK(place > 0 && place <= t->heap_count);
    struct deadline *entry = t->heap[place];
    for (size_t child; (child = 2 * place) <= t->heap_count; place = child) {
        if (child < t->heap_count && t->heap[child + 1]->deadline_ms < t->heap[child]->deadline_ms) child++;
        if (t->heap[child]->deadline_ms >= entry->deadline_ms) break;
        heap_set(t, place, t->heap[child]);
    }
    heap_set(t, place, entry);
}

/* When the next tick is due: (4). UINT64_MAX: never. */
static uint64_t tick_due_ms(const struct expiry *t) {
    if (t->heap_count == 0) return UINT64_MAX;
    uint64_t first_ms = t->heap[1]->deadline_ms, pulse_ms = t->ticked_ms + t->stall_ms / 4;
    uint64_t watch_ms = first_ms > 2 * t->stall_ms ? first_ms - 2 * t->stall_ms : 0;
    if (pulse_ms < watch_ms) pulse_ms = watch_ms;
    return pulse_ms < first_ms ? pulse_ms : first_ms;
}

static void heap_add(struct expiry *t, struct deadline *entry, uint64_t now_ms) {
    if (tick_due_ms(t) >= now_ms && now_ms > t->ticked_ms) t->ticked_ms = now_ms; /* no tick was due before */
    if (t->heap_count + 1 >= t->heap_room) {
        t->heap_room = t->heap_room ? 2 * t->heap_room : 64;
        t->heap = mem_realloc(t->heap, t->heap_room * sizeof(struct deadline *));
    }
    CHECK(entry->place == 0);
    heap_set(t, ++t->heap_count, entry);
    heap_up(t, entry->place);
}

static void heap_remove(struct expiry *t, struct deadline *entry) {
    size_t place = entry->place;
    if (place == 0) return;
    CHECK(place <= t->heap_count && t->heap[place] == entry);
    entry->place = 0;
    struct deadline *last = t->heap[t->heap_count--];
    if (last == entry) return;
    heap_set(t, place, last);
    heap_up(t, place);
    heap_down(t, last->place);
}

/* -- names -------------------------------------------------------------------------------------------------------- */

static uint64_t name_hash(const struct expiry_kind *kind, struct slice name) {
    return hash64_seed(name.data, name.size, kind->number);
}

static struct deadline **deadline_find(const struct expiry *t, const struct expiry_kind *kind, struct slice name,
                                       uint64_t hash) {
    struct deadline **at = &t->buckets[hash & (t->bucket_count - 1)];
    for (; *at; at = &(*at)->chain)
        if ((*at)->hash == hash && (*at)->kind == kind && slice_equal(slice_make((*at)->name, (*at)->size), name))
            break;
    return at;
}

static struct deadline *deadline_get(const struct expiry *t, const struct expiry_kind *kind, struct slice name) {
    return *deadline_find(t, kind, name, name_hash(kind, name));
}

static void buckets_grow(struct expiry *t) {
    size_t count = 2 * t->bucket_count;
    struct deadline **buckets = mem_zalloc(count * sizeof(struct deadline *));
    for (size_t i = 0; i < t->bucket_count; i++) {
        struct deadline *next;
        for (struct deadline *entry = t->buckets[i]; entry; entry = next) {
            next = entry->chain;
            entry->chain = buckets[entry->hash & (count - 1)];
            buckets[entry->hash & (count - 1)] = entry;
        }
    }
    free(t->buckets);
    t->buckets = buckets;
    t->bucket_count = count;
}

static struct deadline *deadline_new(struct expiry *t, const struct expiry_kind *kind, struct slice name) {
    if (t->count >= t->bucket_count) buckets_grow(t);
    struct deadline *entry = mem_zalloc(sizeof *entry + name.size);
    entry->hash = name_hash(kind, name);
    entry->kind = kind;
    entry->size = name.size;
    memcpy(entry->name, name.data, name.size);
    struct deadline **bucket = &t->buckets[entry->hash & (t->bucket_count - 1)];
    entry->chain = *bucket;
    *bucket = entry;
    t->count++, t->counts[kind->number]++;
    return entry;
}

static void deadline_remove(struct expiry *t, const struct expiry_kind *kind, struct slice name) {
    struct deadline **at = deadline_find(t, kind, name, name_hash(kind, name)), *entry = *at;
    if (!entry) return;
    CHECK(t->count > 0 && t->counts[kind->number] > 0);
    *at = entry->chain;
    heap_remove(t, entry);
    t->count--, t->counts[kind->number]--;
    free(entry);
}

/* -- periods ------------------------------------------------------------------------------------------------------ */

static bool is_renewed(const struct deadline *entry) { return entry->kind->renewed; }

/* The table adds this to a period: the millisecond of (2), and the grace. */
static uint64_t slack_ms(const struct deadline *entry) { return is_renewed(entry) ? 1 + GRACE_MS : 1; }

/* Grants the entry a full period from now on. */
static void deadline_grant(struct deadline *entry, uint64_t now_ms) {
    int64_t ns = entry->period_ns;
    CHECK(ns >= 0);
    entry->deadline_ms = now_ms + (uint64_t)(ns / 1000000) + (ns % 1000000 != 0) + slack_ms(entry);
}

static void grant_all(struct expiry *t, uint64_t now_ms) {
    for (size_t i = 1; i <= t->heap_count; i++)
        if (!t->heap[i]->kind->no_second_period) deadline_grant(t->heap[i], now_ms);
    for (size_t i = t->heap_count / 2; i >= 1; i--) heap_down(t, i);
    t->ticked_ms = now_ms;
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

struct expiry *expiry_new(void) {
    struct expiry *t = mem_zalloc(sizeof *t);
    t->bucket_count = BUCKETS_MIN;
    t->buckets = mem_zalloc(BUCKETS_MIN * sizeof(struct deadline *));
    t->stall_ms = STALL_MS;
    return t;
}

void expiry_stall_ms(struct expiry *t, uint64_t stall_ms) {
    CHECK(stall_ms >= 4);
    t->stall_ms = stall_ms;
}

void expiry_follow(struct expiry *t) {
    for (size_t i = 0; i < t->bucket_count; i++) {
        struct deadline *next;
        for (struct deadline *entry = t->buckets[i]; entry; entry = next) {
            next = entry->chain;
            free(entry);
        }
        t->buckets[i] = NULL;
    }
    t->count = t->heap_count = 0;
    memset(t->counts, 0, sizeof t->counts);
    t->term = 0;
}

void expiry_free(struct expiry *t) {
    if (!t) return;
    expiry_follow(t);
    free(t->buckets);
    free(t->heap);
    free(t);
}

void expiry_lead(struct expiry *t, uint64_t term, uint64_t now_ms) {
    CHECK(term != 0);
    if (t->term == term) {
        grant_all(t, now_ms);
    } else {
        expiry_follow(t);
        t->term = term;
    }
}

uint64_t expiry_term(const struct expiry *t) { return t->term; }

size_t expiry_count(const struct expiry *t, const struct expiry_kind *kind) { return t->counts[kind->number]; }

void expiry_began(struct expiry *t, const struct expiry_kind *kind, struct slice name, uint64_t index,
                  int64_t period_ns, uint64_t now_ms) {
    if (t->term == 0) return;
    struct deadline *entry = deadline_get(t, kind, name);
    if (entry && entry->index >= index) return; /* read from the store before the update came */
    if (entry) deadline_remove(t, kind, name);
    entry = deadline_new(t, kind, name);
    entry->index = index;
    entry->period_ns = period_ns > 0 ? period_ns : 0;
    if (period_ns <= 0 && kind->may_be_endless) return; /* it is known, but never due */
    deadline_grant(entry, now_ms);
    heap_add(t, entry, now_ms);
}

void expiry_ended(struct expiry *t, const struct expiry_kind *kind, struct slice name, uint64_t index) {
    if (t->term == 0) return;
    const struct deadline *entry = deadline_get(t, kind, name);
    if (entry && entry->index <= index) deadline_remove(t, kind, name);
}

int expiry_renew(struct expiry *t, const struct expiry_kind *kind, struct slice name, uint64_t now_ms,
                 int64_t *ttl_ns) {
    if (t->term == 0) return CO_NOTLEADER;
    struct deadline *entry = deadline_get(t, kind, name);
    if (!entry || entry->proposed || !is_renewed(entry)) return CO_NOTFOUND;
    *ttl_ns = entry->period_ns;
    if (entry->place == 0) return CO_OK; /* no TTL */
    deadline_grant(entry, now_ms);
    heap_up(t, entry->place); /* a retry may have left it with a later deadline than it gets now */
    heap_down(t, entry->place);
    return CO_OK;
}

static uint64_t left_of(const struct deadline *entry, uint64_t now_ms) {
    uint64_t end_ms = entry->deadline_ms - slack_ms(entry);
    return entry->place == 0 ? UINT64_MAX : end_ms > now_ms ? end_ms - now_ms : 0;
}

void expiry_each(const struct expiry *t, const struct expiry_kind *kind, uint64_t now_ms,
                 void (*each)(void *data, struct slice name, uint64_t left_ms), void *data) {
    for (size_t i = 1; i <= t->heap_count; i++) {
        const struct deadline *entry = t->heap[i];
        if (entry->kind == kind) each(data, slice_make(entry->name, entry->size), left_of(entry, now_ms));
    }
}

int expiry_left(const struct expiry *t, const struct expiry_kind *kind, struct slice name, uint64_t now_ms,
                uint64_t *left_ms, int64_t *ttl_ns) {
    if (t->term == 0) return CO_NOTLEADER;
    const struct deadline *entry = deadline_get(t, kind, name);
    if (!entry || entry->proposed) return CO_NOTFOUND;
    *left_ms = left_of(entry, now_ms);
    *ttl_ns = entry->period_ns;
    return CO_OK;
}

void expiry_tick(struct expiry *t, uint64_t now_ms, void (*due)(void *data, const struct expiry_due *item),
                 void *data) {
    if (t->term == 0 || t->heap_count == 0) return;
    uint64_t due_ms = tick_due_ms(t);
    if (due_ms < t->ticked_ms) due_ms = t->ticked_ms; /* a tick that was late itself asked for it */
    uint64_t late_ms = now_ms > due_ms ? now_ms - due_ms : 0;
    if (now_ms > t->ticked_ms) t->ticked_ms = now_ms;
    if (late_ms > t->stall_ms) grant_all(t, now_ms);
    if (late_ms > t->stall_ms / 4) return; /* read the waiting messages first */
    uint64_t before_ms = 0;
    while (t->heap_count != 0 && t->heap[1]->deadline_ms <= now_ms) {
        struct deadline *entry = t->heap[1];
        CHECK(entry->deadline_ms >= before_ms && !entry->proposed);
        before_ms = entry->deadline_ms;
        heap_remove(t, entry);
        entry->proposed = true;
        struct expiry_due item = {entry->kind, slice_make(entry->name, entry->size), entry->index};
        due(data, &item);
    }
}

void expiry_failed(struct expiry *t, const struct expiry_due *item, uint64_t now_ms) {
    if (t->term == 0) return;
    struct deadline *entry = deadline_get(t, item->kind, item->name);
    if (!entry || !entry->proposed || entry->index != item->index) return;
    entry->proposed = false;
    entry->deadline_ms = now_ms + RETRY_MS;
    heap_add(t, entry, now_ms);
}

uint64_t expiry_deadline_ms(const struct expiry *t) { return t->term == 0 ? UINT64_MAX : tick_due_ms(t); }
