#include "tests/lib/queue_model.h"

#include <string.h>

#include "base/check.h"

unsigned model_holders(const struct model_queue *q) {
    unsigned count = 0;
    while (count < q->count && q->in[count].token) count++;
    return count;
}

struct model_entry *model_find(struct model_queue *q, uint64_t who) {
    for (unsigned i = 0; i < q->count; i++)
        if (q->in[i].who == who) return &q->in[i];
    return NULL;
}

struct model_entry *model_holder(struct model_queue *q, uint64_t token, bool *several) {
    struct model_entry *found = NULL;
    *several = false;
    for (unsigned i = 0; i < model_holders(q); i++) {
        if (q->in[i].token != token) continue;
        *several = found != NULL || q->in[i].common;
        found = &q->in[i];
    }
    return found;
}

uint32_t model_position(const struct model_queue *q, const struct model_entry *entry) {
    return entry->token ? 0 : (uint32_t)(entry - q->in) - model_holders(q) + 1;
}

unsigned model_queues_of(const struct model_family *family, uint64_t who) {
    unsigned count = 0;
    for (size_t i = 0; i < family->count; i++) count += model_find(&family->queues[i], who) != NULL;
    return count;
}

/* -- who is next -------------------------------------------------------------------------------------------------- */

static bool fits(const struct model_queue *q, bool shared) {
    unsigned held = model_holders(q);
    if (q->delay_count) return false;
    return !held || (shared && q->in[0].shared && (!q->limit || held < q->limit));
}

/* Holders stand in the order of their grants, and of one grant in that in which they came. */
static void move_on(struct model_queue *q, uint64_t index) {
    for (unsigned next; (next = model_holders(q)) < q->count && fits(q, q->in[next].shared);) {
        for (unsigned i = 0; i < next; i++)
            if (q->in[i].token == index) q->in[i].common = q->in[next].common = true;
        q->in[next].token = q->newest = q->holder_changed = index;
    }
}

/* Where it would stand. */
static unsigned place_of(const struct model_queue *q, uint32_t priority) {
    unsigned at = model_holders(q);
    while (at < q->count && q->in[at].priority >= priority) at++;
    return at;
}

/* -- circles ------------------------------------------------------------------------------------------------------ */

/* Number `behind` (there, or who would stand there) waits for number `before`. */
static bool waits_for(const struct model_queue *q, unsigned behind, bool shared, unsigned before) {
    for (unsigned i = before; i < behind; i++)
        if (!shared || !q->in[i].shared) return true;
    return false;
}

struct candidate {
    const struct model_family *family;
    uint64_t who;
    uint64_t seen[MODEL_ENTRIES * 4];
    size_t seen_count;
};

static bool leads_back(struct candidate *candidate, uint64_t from);

/* Does one for whom `who` waits, where it waits already, lead back? */
static bool goes_on(struct candidate *candidate, uint64_t who) {
    for (size_t n = 0; n < candidate->family->count; n++) {
        struct model_queue *q = &candidate->family->queues[n];
        const struct model_entry *own = model_find(q, who);
        if (q->limit || !own || own->token) continue;
        unsigned place = (unsigned)(own - q->in);
        for (unsigned i = 0; i < place; i++)
            if (waits_for(q, place, own->shared, i) && leads_back(candidate, q->in[i].who)) return true;
    }
    return false;
}

static bool leads_back(struct candidate *candidate, uint64_t from) {
    if (from == candidate->who) return true;
    for (size_t i = 0; i < candidate->seen_count; i++)
        if (candidate->seen[i] == from) return false;
    CHECK(candidate->seen_count < sizeof candidate->seen / sizeof candidate->seen[0]);
    candidate->seen[candidate->seen_count++] = from;
    return goes_on(candidate, from);
}

static bool is_circle(const struct model_family *family, const struct model_queue *q, const struct model_wish *wish,
                      unsigned at) {
    struct candidate candidate = {.family = family, .who = wish->who};
    for (unsigned i = 0; i < at; i++)
        if (waits_for(q, at, wish->shared, i) && leads_back(&candidate, q->in[i].who)) return true;
    return false;
}

/* -- coming and going --------------------------------------------------------------------------------------------- */

/* With a token of its own. */
static struct model_entry *grant_anew(struct model_queue *q, struct model_entry *entry, uint64_t index) {
    struct model_entry moved = *entry, *last = &q->in[model_holders(q) - 1];
    memmove(entry, entry + 1, (size_t)(last - entry) * sizeof *entry);
    moved.token = q->newest = q->holder_changed = q->changed = index;
    moved.common = false;
    *last = moved;
    return last;
}

static bool is_full(const struct model_family *family, const struct model_queue *q, const struct model_wish *wish,
                    bool waits) {
    if (waits && wish->waiters_max && model_waiters(q) >= wish->waiters_max) return true;
    return !wish->made && wish->of_session_max && model_queues_of(family, wish->who) >= wish->of_session_max;
}

enum model_verdict model_acquire(const struct model_family *family, struct model_queue *q,
                                 const struct model_wish *wish, uint64_t index, struct model_entry **entry) {
    struct model_entry *own = wish->made ? NULL : model_find(q, wish->who);
    *entry = own;
    if (own && (own->shared != wish->shared || q->limit != wish->limit || own->priority != wish->priority))
        return MODEL_DIFFERS;
    if (own && own->common) *entry = grant_anew(q, own, index);
    if (own) return MODEL_AGAIN;
    if (q->count && q->limit != wish->limit) return MODEL_DIFFERS;
    bool waits = model_waiters(q) || !fits(q, wish->shared);
    if (waits && wish->asks) return wish->made || wish->there ? MODEL_ASKED : MODEL_NO_SESSION;
    unsigned at = waits ? place_of(q, wish->priority) : q->count;
    if (is_full(family, q, wish, waits)) return MODEL_FULL;
    if (waits && !wish->made && !wish->limit && !family->is_election && is_circle(family, q, wish, at))
        return MODEL_CIRCLE;
    if (!wish->there) return MODEL_NO_SESSION;
    CHECK(q->count < MODEL_ENTRIES);
    own = *entry = &q->in[at];
    memmove(own + 1, own, (q->count++ - at) * sizeof *own);
    *own = (struct model_entry){.who = wish->who,
                                .shared = wish->shared,
                                .priority = wish->priority,
                                .note = wish->note,
                                .token = waits ? 0 : index,
                                .place = index};
    q->limit = wish->limit;
    q->changed = index;
    if (!waits) q->newest = q->holder_changed = index;
    return waits ? MODEL_WAITS : MODEL_HELD;
}

bool model_leave(struct model_queue *q, uint64_t who, uint64_t index, bool delay) {
    struct model_entry *entry = model_find(q, who);
    CHECK(entry);
    bool begins = delay && entry->token && entry->token != index; /* granted just now: it never knew */
    if (q->delay_count && q->delays[q->delay_count - 1] == index) begins = false;
    if (entry->token) q->holder_changed = index;
    q->count--;
    memmove(entry, entry + 1, (size_t)(&q->in[q->count] - entry) * sizeof *entry);
    CHECK(q->delay_count < MODEL_DELAYS);
    if (begins) q->delays[q->delay_count++] = index;
    move_on(q, index);
    q->changed = index;
    return begins;
}

bool model_delay_over(struct model_queue *q, uint64_t delay, uint64_t index) {
    unsigned at = 0;
    while (at < q->delay_count && q->delays[at] != delay) at++;
    if (at == q->delay_count) return false;
    q->delay_count--;
    memmove(&q->delays[at], &q->delays[at + 1], (q->delay_count - at) * sizeof q->delays[0]);
    move_on(q, index);
    q->changed = index;
    return true;
}
