/* Is a touch of the history followed? */
#include <stdlib.h>

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

bool stream_match_init(struct stream_match *match, const Pb__StreamRequest *request, struct arena *arena) {
    size_t count = request->n_subscriptions;
    *match = (struct stream_match){0};
    if (count == 0 || count > STREAM_SUBSCRIPTIONS_MAX) return false;
    match->exact = arena_alloc(arena, count * sizeof *match->exact);
    match->prefixes = arena_alloc(arena, count * sizeof *match->prefixes);
    for (size_t i = 0; i < count; i++) {
        const Pb__StreamSubscription *subscription = request->subscriptions[i];
        struct slice name = slice_make(subscription->name.data, subscription->name.len);
        if ((size_t)subscription->kind >= STREAM_KINDS) return false;
        const struct stream_kind *kind = &stream_kinds[subscription->kind];
        bool prefix = kind->space & WATCH_PREFIX_BIT;
        if (name.size > kind->name_max || (name.size == 0 && !prefix)) return false;
        struct stream_wanted wanted = {kind->space, folded(kind->space, name, arena), kind, 0};
        if (prefix) match->prefixes[match->prefix_count++] = wanted;
        else match->exact[match->exact_count++] = wanted;
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
    if (match->exact_count == 0) return NULL;
    if (!fold_space(touch->space)) return find_exact(match, &wanted);
    struct fold_name name;
    fold_name_of(&name, touch->name);
    wanted.name = name.folded;
    struct stream_wanted *found = find_exact(match, &wanted);
    fold_name_free(&name);
    return found;
}
