/* The leader's lease table: a heap of deadlines over a hash table of names. It decides, it does not act.
 *
 * (1) A lease is in the heap, unless it has no TTL, or its end is proposed.
 *
 * (2) A deadline is never earlier than the full period after the last renewal, as an outside clock counts it: clocks
 * of milliseconds cut, so one more is added.
 *
 * (3) While its end is proposed a lease is not renewed: the proposal may be committed at any time.
 *
 * (4) What arrived while the loop stood still is read before anything ends: a tick that comes late proposes nothing,
 * and one that comes later than `stall_ms` grants every lease a full period. What is late is measured from the
 * moment for which lease_timers_deadline_ms asked: the first deadline, and in the time just before it every
 * `stall_ms` / 4, so that the loop is known to run when something ends, and is left alone otherwise.
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
#include "registry/lease_timers.h"

enum {
    GRACE_MS = 200,  /* of what can be renewed: for a renewal that is on its way when the TTL ends */
    RETRY_MS = 250,  /* after a proposal that did not make it into the log */
    STALL_MS = 1000, /* unless lease_timers_stall_ms says otherwise */
    BUCKETS_MIN = 64,
};

struct lease {
    struct lease *chain; /* in its bucket */
    uint64_t hash, index, deadline_ms;
    int64_t period_ns;
    size_t place; /* in the heap, from 1; 0: not there */
    uint8_t kind;
    bool proposed;
    size_t size;
    char name[];
};

struct lease_timers {
    struct lease **buckets;
    size_t bucket_count, count; /* a power of two; leases */
    size_t counts[TIMED_KINDS];
    struct lease **heap; /* heap[1..heap_count] */
    size_t heap_count, heap_room;
    uint64_t term; /* 0: not leading */
    uint64_t ticked_ms, stall_ms;
};

/* -- heap --------------------------------------------------------------------------------------------------------- */

static void heap_set(struct lease_timers *t, size_t place, struct lease *lease) {
    t->heap[place] = lease;
    lease->place = place;
}

static void heap_up(struct lease_timers *t, size_t place) {
    struct lease *lease = t->heap[place];
    for (; place > 1 && t->heap[place / 2]->deadline_ms > lease->deadline_ms; place /= 2)
        heap_set(t, place, t->heap[place / 2]);
    heap_set(t, place, lease);
}

static void heap_down(struct lease_timers *t, size_t place) {
    struct lease *lease = t->heap[place];
    for (size_t child; (child = 2 * place) <= t->heap_count; place = child) {
        if (child < t->heap_count && t->heap[child + 1]->deadline_ms < t->heap[child]->deadline_ms) child++;
        if (t->heap[child]->deadline_ms >= lease->deadline_ms) break;
        heap_set(t, place, t->heap[child]);
    }
    heap_set(t, place, lease);
}

/* When the next tick is wanted: (4). UINT64_MAX: never. */
static uint64_t tick_due_ms(const struct lease_timers *t) {
    if (t->heap_count == 0) return UINT64_MAX;
    uint64_t first_ms = t->heap[1]->deadline_ms, pulse_ms = t->ticked_ms + t->stall_ms / 4;
    uint64_t watch_ms = first_ms > 2 * t->stall_ms ? first_ms - 2 * t->stall_ms : 0;
    if (pulse_ms < watch_ms) pulse_ms = watch_ms;
    return pulse_ms < first_ms ? pulse_ms : first_ms;
}

static void heap_add(struct lease_timers *t, struct lease *lease, uint64_t now_ms) {
    if (tick_due_ms(t) >= now_ms && now_ms > t->ticked_ms) t->ticked_ms = now_ms; /* nobody had to tick before */
    if (t->heap_count + 1 >= t->heap_room) {
        t->heap_room = t->heap_room ? 2 * t->heap_room : 64;
        t->heap = mem_realloc(t->heap, t->heap_room * sizeof(struct lease *));
    }
    heap_set(t, ++t->heap_count, lease);
    heap_up(t, lease->place);
}

static void heap_remove(struct lease_timers *t, struct lease *lease) {
    size_t place = lease->place;
    if (place == 0) return;
    lease->place = 0;
    struct lease *last = t->heap[t->heap_count--];
    if (last == lease) return;
    heap_set(t, place, last);
    heap_up(t, place);
    heap_down(t, last->place);
}

/* -- names -------------------------------------------------------------------------------------------------------- */

static uint64_t name_hash(enum timed kind, struct slice name) {
    return hash64_seed(name.data, name.size, (uint64_t)kind);
}

static struct lease **lease_find(const struct lease_timers *t, enum timed kind, struct slice name, uint64_t hash) {
    struct lease **at = &t->buckets[hash & (t->bucket_count - 1)];
    for (; *at; at = &(*at)->chain)
        if ((*at)->hash == hash && (*at)->kind == kind && slice_equal(slice_make((*at)->name, (*at)->size), name))
            break;
    return at;
}

static struct lease *lease_get(const struct lease_timers *t, enum timed kind, struct slice name) {
    return *lease_find(t, kind, name, name_hash(kind, name));
}

static void buckets_grow(struct lease_timers *t) {
    size_t count = 2 * t->bucket_count;
    struct lease **buckets = mem_zalloc(count * sizeof(struct lease *));
    for (size_t i = 0; i < t->bucket_count; i++) {
        struct lease *next;
        for (struct lease *lease = t->buckets[i]; lease; lease = next) {
            next = lease->chain;
            lease->chain = buckets[lease->hash & (count - 1)];
            buckets[lease->hash & (count - 1)] = lease;
        }
    }
    free(t->buckets);
    t->buckets = buckets;
    t->bucket_count = count;
}

static struct lease *lease_new(struct lease_timers *t, enum timed kind, struct slice name) {
    if (t->count >= t->bucket_count) buckets_grow(t);
    struct lease *lease = mem_zalloc(sizeof *lease + name.size);
    lease->hash = name_hash(kind, name);
    lease->kind = (uint8_t)kind;
    lease->size = name.size;
    memcpy(lease->name, name.data, name.size);
    struct lease **bucket = &t->buckets[lease->hash & (t->bucket_count - 1)];
    lease->chain = *bucket;
    *bucket = lease;
    t->count++, t->counts[kind]++;
    return lease;
}

static void lease_remove(struct lease_timers *t, enum timed kind, struct slice name) {
    struct lease **at = lease_find(t, kind, name, name_hash(kind, name)), *lease = *at;
    if (!lease) return;
    *at = lease->chain;
    heap_remove(t, lease);
    t->count--, t->counts[kind]--;
    free(lease);
}

/* -- periods ------------------------------------------------------------------------------------------------------ */

static bool is_renewed(const struct lease *lease) { return lease->kind == TIMED_SESSION || lease->kind == TIMED_LEASE; }

/* What the table adds to a period: (2), and the grace. */
static uint64_t slack_ms(const struct lease *lease) { return is_renewed(lease) ? 1 + GRACE_MS : 1; }

/* A full period from now on. */
static void lease_grant(struct lease *lease, uint64_t now_ms) {
    int64_t ns = lease->period_ns;
    lease->deadline_ms = now_ms + (uint64_t)(ns / 1000000) + (ns % 1000000 != 0) + slack_ms(lease);
}

static void grant_all(struct lease_timers *t, uint64_t now_ms) {
    for (size_t i = 1; i <= t->heap_count; i++)
        if (t->heap[i]->kind != TIMED_HELD) lease_grant(t->heap[i], now_ms);
    for (size_t i = t->heap_count / 2; i >= 1; i--) heap_down(t, i);
    t->ticked_ms = now_ms;
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

const char *timed_text(enum timed kind) {
    static const char *const texts[TIMED_KINDS] = {"session", "lease", "lock-delay", "dead node", "held service"};
    CHECK((size_t)kind < ARRAY_COUNT(texts));
    return texts[kind];
}

struct lease_timers *lease_timers_new(void) {
    struct lease_timers *t = mem_zalloc(sizeof *t);
    t->bucket_count = BUCKETS_MIN;
    t->buckets = mem_zalloc(BUCKETS_MIN * sizeof(struct lease *));
    t->stall_ms = STALL_MS;
    return t;
}

void lease_timers_stall_ms(struct lease_timers *t, uint64_t stall_ms) {
    CHECK(stall_ms >= 4);
    t->stall_ms = stall_ms;
}

void lease_timers_follow(struct lease_timers *t) {
    for (size_t i = 0; i < t->bucket_count; i++) {
        struct lease *next;
        for (struct lease *lease = t->buckets[i]; lease; lease = next) {
            next = lease->chain;
            free(lease);
        }
        t->buckets[i] = NULL;
    }
    t->count = t->heap_count = 0;
    memset(t->counts, 0, sizeof t->counts);
    t->term = 0;
}

void lease_timers_free(struct lease_timers *t) {
    if (!t) return;
    lease_timers_follow(t);
    free(t->buckets);
    free(t->heap);
    free(t);
}

void lease_timers_lead(struct lease_timers *t, uint64_t term, uint64_t now_ms) {
    CHECK(term != 0);
    if (t->term == term) {
        grant_all(t, now_ms);
    } else {
        lease_timers_follow(t);
        t->term = term;
    }
}

uint64_t lease_timers_term(const struct lease_timers *t) { return t->term; }

size_t lease_timers_count(const struct lease_timers *t, enum timed kind) { return t->counts[kind]; }

void lease_timers_began(struct lease_timers *t, enum timed kind, struct slice name, uint64_t index, int64_t period_ns,
                        uint64_t now_ms) {
    if (t->term == 0) return;
    struct lease *lease = lease_get(t, kind, name);
    if (lease && lease->index >= index) return; /* read from the store before the news came */
    if (lease) lease_remove(t, kind, name);
    lease = lease_new(t, kind, name);
    lease->index = index;
    lease->period_ns = period_ns > 0 ? period_ns : 0;
    if (period_ns <= 0 && kind == TIMED_SESSION) return; /* known, never due */
    lease_grant(lease, now_ms);
    heap_add(t, lease, now_ms);
}

void lease_timers_ended(struct lease_timers *t, enum timed kind, struct slice name, uint64_t index) {
    if (t->term == 0) return;
    const struct lease *lease = lease_get(t, kind, name);
    if (lease && lease->index <= index) lease_remove(t, kind, name);
}

int lease_timers_renew(struct lease_timers *t, enum timed kind, struct slice name, uint64_t now_ms, int64_t *ttl_ns) {
    if (t->term == 0) return CO_NOTLEADER;
    struct lease *lease = lease_get(t, kind, name);
    if (!lease || lease->proposed || !is_renewed(lease)) return CO_NOTFOUND;
    *ttl_ns = lease->period_ns;
    if (lease->place == 0) return CO_OK; /* no TTL */
    lease_grant(lease, now_ms);
    heap_up(t, lease->place); /* a retry may have left it with a later deadline than it gets now */
    heap_down(t, lease->place);
    return CO_OK;
}

static uint64_t left_of(const struct lease *lease, uint64_t now_ms) {
    uint64_t end_ms = lease->deadline_ms - slack_ms(lease);
    return lease->place == 0 ? UINT64_MAX : end_ms > now_ms ? end_ms - now_ms : 0;
}

void lease_timers_each(const struct lease_timers *t, enum timed kind, uint64_t now_ms,
                       void (*each)(void *data, struct slice name, uint64_t left_ms), void *data) {
    for (size_t i = 1; i <= t->heap_count; i++) {
        const struct lease *lease = t->heap[i];
        if (lease->kind == kind) each(data, slice_make(lease->name, lease->size), left_of(lease, now_ms));
    }
}

int lease_timers_left(const struct lease_timers *t, enum timed kind, struct slice name, uint64_t now_ms,
                      uint64_t *left_ms, int64_t *ttl_ns) {
    if (t->term == 0) return CO_NOTLEADER;
    const struct lease *lease = lease_get(t, kind, name);
    if (!lease || lease->proposed) return CO_NOTFOUND;
    *left_ms = left_of(lease, now_ms);
    *ttl_ns = lease->period_ns;
    return CO_OK;
}

void lease_timers_tick(struct lease_timers *t, uint64_t now_ms, void (*due)(void *data, const struct lease_due *item),
                       void *data) {
    if (t->term == 0 || t->heap_count == 0) return;
    uint64_t due_ms = tick_due_ms(t);
    if (due_ms < t->ticked_ms) due_ms = t->ticked_ms; /* asked for by a tick that was late itself */
    uint64_t late_ms = now_ms > due_ms ? now_ms - due_ms : 0;
    if (now_ms > t->ticked_ms) t->ticked_ms = now_ms;
    if (late_ms > t->stall_ms) grant_all(t, now_ms);
    if (late_ms > t->stall_ms / 4) return; /* read what waits first */
    while (t->heap_count != 0 && t->heap[1]->deadline_ms <= now_ms) {
        struct lease *lease = t->heap[1];
        heap_remove(t, lease);
        lease->proposed = true;
        struct lease_due item = {lease->kind, slice_make(lease->name, lease->size), lease->index};
        due(data, &item);
    }
}

void lease_timers_failed(struct lease_timers *t, const struct lease_due *item, uint64_t now_ms) {
    if (t->term == 0) return;
    struct lease *lease = lease_get(t, item->kind, item->name);
    if (!lease || !lease->proposed || lease->index != item->index) return;
    lease->proposed = false;
    lease->deadline_ms = now_ms + RETRY_MS;
    heap_add(t, lease, now_ms);
}

uint64_t lease_timers_deadline_ms(const struct lease_timers *t) { return t->term == 0 ? UINT64_MAX : tick_due_ms(t); }
