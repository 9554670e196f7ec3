/* Who gets which version, since when, and who is woken.
 *
 * A caller is in the stage under way or not, so a change of the record moves callers of up to four kinds: those who were
 * in the stage before it, or not, and are in it after it, or not. For each kind the version is another one or the same.
 * A layer is just that: the stage before, the stage after, and for which kinds the version changed. A caller's index is
 * that of the newest layer that has changed his version, so it is exact, and takes no row for each caller or bucket.
 *
 * Layers below one that changed every version say nothing any more, and go. Should there be LAYERS_MOST of them all the
 * same (so many stages came and went without a promotion), or too many different matches, the oldest become one that
 * says "everybody": those callers may get an answer that they have once more. */
#include <string.h>

#include "base/hash.h"
#include "kv/rollout/rollout_internal.h"

#define LAYERS_MOST  64
#define MATCHES_MOST 16 /* different ones, the empty one included */
#define EVERY_KIND   15
_Static_assert(2 * LAYERS_MOST < 256, "a layer's matches are few");

/* -- callers ------------------------------------------------------------------------------------------------------ */

uint32_t rollout_bucket(struct slice name, struct slice id) {
    struct buffer both = {0};
    buffer_append(&both, name.data, name.size);
    buffer_append_byte(&both, '\0');
    buffer_append(&both, id.data, id.size);
    uint32_t bucket = (uint32_t)(hash64(both.data, both.size) % ROLLOUT_BUCKETS);
    buffer_free(&both);
    return bucket;
}

static bool has(char *const *list, size_t count, const char *item, bool nocase) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i], item) == 0) return true;
        if (nocase && slice_equal_nocase(slice_text(list[i]), slice_text(item))) return true;
    }
    return false;
}

static bool fits(const Pb__RolloutMatch *match, const Pb__RolloutCaller *caller) {
    if (!match) return true;
    if (match->n_nodes && !has(match->nodes, match->n_nodes, caller->node, true)) return false;
    if (match->n_regions && !has(match->regions, match->n_regions, caller->region, false)) return false;
    bool tagged = match->n_tags == 0;
    for (size_t i = 0; i < caller->n_tags && !tagged; i++)
        tagged = has(match->tags, match->n_tags, caller->tags[i], false);
    return tagged;
}

static bool is_in(uint32_t buckets, const Pb__RolloutMatch *match, const Pb__RolloutCaller *caller) {
    return rollout_bucket(slice_text(caller->name), slice_text(caller->id)) < buckets && fits(match, caller);
}

bool rollout_in_stage(const Pb__RolloutStage *stage, const Pb__RolloutCaller *caller) {
    return stage && is_in(stage->buckets, stage->match, caller);
}

uint64_t rollout_seen_since(const Pb__RolloutRecord *record, const Pb__RolloutCaller *caller) {
    for (size_t i = 0; i < record->n_layers; i++) {
        const Pb__RolloutLayer *layer = record->layers[i];
        unsigned kind = is_in(layer->before_buckets, record->matches[layer->before_match], caller) +
                        2u * is_in(layer->after_buckets, record->matches[layer->after_match], caller);
        if (layer->changed >> kind & 1) return layer->index;
    }
    return record->create_index;
}

/* -- matches ------------------------------------------------------------------------------------------------------ */

static bool same_list(char *const *a, size_t a_count, char *const *b, size_t b_count) {
    bool same = a_count == b_count;
    for (size_t i = 0; same && i < a_count; i++) same = strcmp(a[i], b[i]) == 0;
    return same;
}

static bool same_match(const Pb__RolloutMatch *a, const Pb__RolloutMatch *b) {
    return same_list(a->tags, a->n_tags, b->tags, b->n_tags) && same_list(a->nodes, a->n_nodes, b->nodes, b->n_nodes) &&
           same_list(a->regions, a->n_regions, b->regions, b->n_regions);
}

static bool is_everybody(const Pb__RolloutMatch *match) {
    return match->n_tags == 0 && match->n_nodes == 0 && match->n_regions == 0;
}

/* Its place in the record's list, where it is put if it is not there. */
static uint32_t place_of(Pb__RolloutRecord *record, const Pb__RolloutMatch *match, struct arena *arena) {
    for (uint32_t i = 0; i < record->n_matches; i++)
        if (!match || same_match(record->matches[i], match)) return i; /* the first is empty */
    Pb__RolloutMatch **wider = arena_alloc(arena, (record->n_matches + 1) * sizeof *wider);
    memcpy(wider, record->matches, record->n_matches * sizeof *wider);
    wider[record->n_matches] = (Pb__RolloutMatch *)(uintptr_t)match;
    record->matches = wider;
    return (uint32_t)record->n_matches++;
}

/* Those that no layer means go. */
static void drop_matches(Pb__RolloutRecord *record) {
    uint32_t places[2 * LAYERS_MOST + 3] = {0}, kept = 1;
    bool meant[2 * LAYERS_MOST + 3] = {true};
    CHECK(record->n_matches <= ARRAY_COUNT(meant));
    for (size_t i = 0; i < record->n_layers; i++)
        meant[record->layers[i]->before_match] = meant[record->layers[i]->after_match] = true;
    for (uint32_t i = 1; i < record->n_matches; i++) {
        if (!meant[i]) continue;
        record->matches[kept] = record->matches[i];
        places[i] = kept++;
    }
    record->n_matches = kept;
    for (size_t i = 0; i < record->n_layers; i++) {
        record->layers[i]->before_match = places[record->layers[i]->before_match];
        record->layers[i]->after_match = places[record->layers[i]->after_match];
    }
}

/* -- layers ------------------------------------------------------------------------------------------------------- */

/* Kinds (bits) of which there can be callers. */
static unsigned kinds(uint32_t before, const Pb__RolloutMatch *before_match, uint32_t after,
                      const Pb__RolloutMatch *after_match) {
    unsigned all = EVERY_KIND;
    bool whole_before = is_everybody(before_match), whole_after = is_everybody(after_match);
    if (before == 0) all &= 5u;                                /* nobody was in it */
    if (before >= ROLLOUT_BUCKETS && whole_before) all &= 10u; /* everybody was */
    if (after == 0) all &= 3u;                                 /* nobody is */
    if (after >= ROLLOUT_BUCKETS && whole_after) all &= 12u;   /* everybody is */
    bool same = same_match(before_match, after_match);
    if ((whole_after || same) && after >= before) all &= ~2u;  /* who was in it still is */
    if ((whole_before || same) && before >= after) all &= ~4u; /* nobody has come in */
    return all;
}

static unsigned kinds_of(const Pb__RolloutRecord *record, const Pb__RolloutLayer *layer) {
    return kinds(layer->before_buckets, record->matches[layer->before_match], layer->after_buckets,
                 record->matches[layer->after_match]);
}

/* The oldest layers become one that says everybody, until there are `most`. */
static void merge_oldest(Pb__RolloutRecord *record, size_t most) {
    if (record->n_layers <= most) return;
    record->n_layers = most;
    Pb__RolloutLayer *last = record->layers[most - 1];
    uint64_t index = last->index;
    pb__rollout_layer__init(last);
    last->index = index, last->changed = EVERY_KIND;
}

static void layer_add(struct machine_tx *tx, Pb__RolloutRecord *record, const Pb__RolloutLayer *layer) {
    Pb__RolloutLayer **layers = arena_alloc(tx->arena, (record->n_layers + 1) * sizeof *layers);
    layers[0] = (Pb__RolloutLayer *)(void *)message_copy(tx->arena, &layer->base);
    bool covers = layer->changed == kinds_of(record, layer);
    if (covers) record->n_layers = 0;
    if (record->n_layers) memcpy(layers + 1, record->layers, record->n_layers * sizeof *layers);
    record->layers = layers;
    record->n_layers++;
    merge_oldest(record, LAYERS_MOST);
    drop_matches(record);
    for (size_t most = record->n_layers - 1; record->n_matches > MATCHES_MOST && most > 0; most--) {
        merge_oldest(record, most);
        drop_matches(record);
    }
}

/* -- waking ------------------------------------------------------------------------------------------------------- */

static void touch_buckets(struct machine_tx *tx, struct slice name, uint32_t from, uint32_t to) {
    char room[ROLLOUT_NAME_MOST + 3];
    memcpy(room, name.data, name.size);
    room[name.size] = '\0';
    for (uint32_t bucket = from; bucket < to; bucket++) {
        put_be16(room + name.size + 1, (uint16_t)bucket);
        machine_touch(tx, SPACE_ROLLOUT_CALLER, slice_make(room, name.size + 3));
    }
}

static size_t match_key(char *room, struct slice name, char kind, struct slice item) {
    memcpy(room, name.data, name.size);
    room[name.size] = '\0', room[name.size + 1] = kind;
    memcpy(room + name.size + 2, item.data, item.size);
    if (kind == 'n') bytes_lower(room + name.size + 2, item.size);
    return name.size + 2 + item.size;
}

static void touch_list(struct machine_tx *tx, struct slice name, char kind, char *const *list, size_t count) {
    char room[ROLLOUT_NAME_MOST + 2 + ROLLOUT_NODE_MOST];
    for (size_t i = 0; i < count; i++)
        machine_touch(tx, SPACE_ROLLOUT_MATCH, slice_make(room, match_key(room, name, kind, slice_text(list[i]))));
}

/* All who fit it: by the first of its lists. */
static void touch_match(struct machine_tx *tx, struct slice name, const Pb__RolloutMatch *match) {
    if (match->n_nodes) touch_list(tx, name, 'n', match->nodes, match->n_nodes);
    else if (match->n_tags) touch_list(tx, name, 't', match->tags, match->n_tags);
    else touch_list(tx, name, 'r', match->regions, match->n_regions);
}

/* All that can be of a kind, and as few others as the watch keys allow. */
static void touch_kind(struct machine_tx *tx, const Pb__RolloutRecord *record, const Pb__RolloutLayer *layer,
                       unsigned kind) {
    const Pb__RolloutMatch *before = record->matches[layer->before_match], *after = record->matches[layer->after_match];
    bool was = kind & 1, is = kind & 2;
    struct slice name = slice_text(record->name);
    uint32_t from = 0, to = ROLLOUT_BUCKETS;
    if (was && layer->before_buckets < to) to = layer->before_buckets;
    if (is && layer->after_buckets < to) to = layer->after_buckets;
    if (!was && is_everybody(before) && layer->before_buckets > from) from = layer->before_buckets;
    if (!is && is_everybody(after) && layer->after_buckets > from) from = layer->after_buckets;
    if (was && !is_everybody(before)) touch_match(tx, name, before);
    else if (is && !is_everybody(after)) touch_match(tx, name, after);
    else touch_buckets(tx, name, from, to);
}

/* -- a change ----------------------------------------------------------------------------------------------------- */

static const char *version_of(struct rollout_sides sides, bool in_stage) {
    return in_stage && sides.stage ? sides.stage->version : sides.current;
}

void rollout_changed(struct machine_tx *tx, Pb__RolloutRecord *record, struct rollout_sides before) {
    struct rollout_sides after = rollout_sides(record);
    Pb__RolloutLayer layer = PB__ROLLOUT_LAYER__INIT;
    layer.index = tx->index;
    if (before.stage) layer.before_buckets = before.stage->buckets;
    if (after.stage) layer.after_buckets = after.stage->buckets;
    layer.before_match = place_of(record, before.stage ? before.stage->match : NULL, tx->arena);
    layer.after_match = place_of(record, after.stage ? after.stage->match : NULL, tx->arena);
    unsigned possible = kinds_of(record, &layer);
    for (unsigned kind = 0; kind < 4; kind++) {
        bool other = strcmp(version_of(before, kind & 1), version_of(after, kind & 2)) != 0;
        if (other && possible >> kind & 1) layer.changed |= 1u << kind;
    }
    if (!layer.changed) return;
    for (unsigned kind = 0; kind < 4; kind++)
        if (layer.changed >> kind & 1 && !(tx->mutations & MUTATE_ROLLOUT_SLEEPS)) touch_kind(tx, record, &layer, kind);
    layer_add(tx, record, &layer);
}

/* -- what a caller waits for -------------------------------------------------------------------------------------- */

static void key_add(Pb__RolloutCaller *caller, struct arena *arena, char kind, const char *item) {
    struct slice name = slice_text(caller->name), text = slice_text(item);
    if (!text.size) return;
    char *room = arena_alloc(arena, name.size + 2 + text.size);
    size_t size = match_key(room, name, kind, text);
    caller->keys[caller->n_keys++] = message_bytes(slice_make(room, size));
}

void rollout_caller_keys(Pb__RolloutCaller *caller, struct arena *arena) {
    struct slice name = slice_text(caller->name);
    char *room = arena_alloc(arena, name.size + 3);
    memcpy(room, name.data, name.size);
    room[name.size] = '\0';
    put_be16(room + name.size + 1, (uint16_t)rollout_bucket(name, slice_text(caller->id)));
    caller->keys = arena_alloc(arena, (3 + caller->n_tags) * sizeof *caller->keys);
    caller->n_keys = 0;
    caller->keys[caller->n_keys++] = message_bytes(slice_make(room, name.size + 3));
    key_add(caller, arena, 'n', caller->node);
    key_add(caller, arena, 'r', caller->region);
    for (size_t i = 0; i < caller->n_tags; i++) key_add(caller, arena, 't', caller->tags[i]);
}
