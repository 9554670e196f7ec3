/* Decides whether a touch of the history is followed. */
#include <stdlib.h>

#include "base/message.h"
#include "kv/stream/stream_internal.h"
#include "registry/fold.h"

static int compare_wanted(const void *a, const void *b) {
    const struct stream_wanted *one = a, *other = b;
    if (one->space != other->space) return one->space < other->space ? -1 : 1;
    return slice_compare(one->name, other->name);
}

static struct slice folded(uint8_t space, struct slice name, struct arena *arena) {
    if (!fold_space(space)) return name;
    struct slice copy = slice_copy(arena, name);
    bytes_lower((char *)(uintptr_t)copy.data, copy.size);
    return copy;
}

/* Hashes the last bytes, because similar names differ there; upper and lower case have the same hash. */
static unsigned mark_of(uint8_t space, struct slice name) {
    uint32_t sum = space;
    for (size_t i = name.size < 6 ? 0 : name.size - 6; i < name.size; i++)
        sum = sum * 31 + ((uint8_t)name.data[i] | 0x20);
    return (sum + (uint32_t)name.size) * UINT32_C(2654435769) >> 22;
}
_Static_assert(STREAM_MARKS == 1 << 10, "as many bits as a mark has");

static bool marked(const struct stream_match *match, uint8_t space, struct slice name) {
    unsigned mark = mark_of(space, name);
    return match->marks[mark / 64] >> mark % 64 & 1;
}

static void add_exact(struct stream_match *match, const struct stream_wanted *wanted) {
    unsigned mark = mark_of(wanted->space, wanted->name);
    match->marks[mark / 64] |= UINT64_C(1) << mark % 64;
    match->exact[match->exact_count++] = *wanted;
}

bool stream_match_init(struct stream_match *match, const Pb__StreamRequest *request, struct arena *arena) {
    size_t count = request->n_subscriptions;
    *match = (struct stream_match){0};
    if (count == 0 || count > STREAM_SUBSCRIPTIONS_MAX) return false;
    match->exact = arena_alloc(arena, count * sizeof *match->exact);
    match->prefixes = arena_alloc(arena, count * sizeof *match->prefixes);
    for (size_t i = 0; i < count; i++) {
        const Pb__StreamSubscription *subscription = request->subscriptions[i];
        struct slice name = message_slice(subscription->name);
        if ((size_t)subscription->kind >= STREAM_KINDS) return false;
        const struct stream_kind *kind = &stream_kinds[subscription->kind];
        bool prefix = kind->space & WATCH_PREFIX_BIT;
        if (name.size > kind->name_max || (name.size == 0 && !prefix)) return false;
        struct stream_wanted wanted = {kind->space, folded(kind->space, name, arena), kind, 0};
        if (prefix) match->prefixes[match->prefix_count++] = wanted;
        else add_exact(match, &wanted);
        match->topics[kind->topic] = true;
        match->wide[kind->topic] |= kind->wide;
    }
    qsort(match->exact, match->exact_count, sizeof *match->exact, compare_wanted);
    return true;
}

static struct stream_wanted *find_exact(const struct stream_match *match, const struct stream_wanted *wanted) {
    return bsearch(wanted, match->exact, match->exact_count, sizeof *match->exact, compare_wanted);
}

struct stream_wanted *stream_match_find(const struct stream_match *match, const struct history_touch *touch) {
    for (size_t i = 0; i < match->prefix_count; i++) {
        struct stream_wanted *wanted = &match->prefixes[i];
        if ((wanted->space & ~WATCH_PREFIX_BIT) == touch->space && slice_starts(touch->name, wanted->name))
            return wanted;
    }
    struct stream_wanted wanted = {.space = touch->space, .name = touch->name};
    if (!marked(match, touch->space, touch->name)) return NULL;
    if (!fold_space(touch->space)) return find_exact(match, &wanted);
    struct fold_name name;
    fold_name_of(&name, touch->name);
    wanted.name = name.folded;
    struct stream_wanted *found = find_exact(match, &wanted);
    fold_name_free(&name);
    return found;
}
