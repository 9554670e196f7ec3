/* Decides which version a caller gets, since which index it has had it, and which callers a change wakes.
 *
 * A caller is in the stage under way or not. So a change of the record knows callers of four kinds: in the stage before
 * the change or not, and in the stage after it or not. For each kind the version has changed or stayed the same. A
 * layer notes just that: the stage before, the stage after, and the kinds for which the version changed. A caller's
 * index is that of the newest layer that changed its version. So the index is exact, and needs no row for each caller
 * or bucket.
 *
 * The parts of a layer that newer layers cover are dropped, so that there are no more layers than different indexes of
 * callers. The number of layers is bounded all the same, and a stage that might exceed the bound is refused before it
 * begins. */
#include <string.h>

#include "base/hash.h"
#include "kv/rollout/rollout_internal.h"

#define LAYERS_MOST  128
#define MATCHES_MOST 32 /* different matches, the empty one included */
#define EVERY_KIND   15

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

static uint32_t bucket_of(const Pb__RolloutCaller *caller) {
    return rollout_bucket(slice_text(caller->name), slice_text(caller->id));
}

bool rollout_in_stage(const Pb__RolloutStage *stage, const Pb__RolloutCaller *caller) {
    return stage && bucket_of(caller) < stage->buckets && fits(stage->match, caller);
}

uint64_t rollout_seen_since(const Pb__RolloutRecord *record, const Pb__RolloutCaller *caller) {
    uint32_t bucket = bucket_of(caller);
    for (size_t i = 0; i < record->n_layers; i++) {
        const Pb__RolloutLayer *layer = record->layers[i];
        bool was = bucket < layer->before_buckets && fits(record->matches[layer->before_match], caller);
        bool is = bucket < layer->after_buckets && fits(record->matches[layer->after_match], caller);
        if (layer->changed >> (was + 2u * is) & 1) return layer->index;
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

/* The place of a match in the record's list, or the end of the list when it is not there. The first match is the empty
 * one. */
static uint32_t find_place(const Pb__RolloutRecord *record, const Pb__RolloutMatch *match) {
    uint32_t place = 0;
    while (match && place < record->n_matches && !same_match(record->matches[place], match)) place++;
    return place;
}

static uint32_t place_of(Pb__RolloutRecord *record, const Pb__RolloutMatch *match, struct arena *arena) {
    uint32_t place = find_place(record, match);
    if (place < record->n_matches) return place;
    Pb__RolloutMatch **wider = arena_alloc(arena, (record->n_matches + 1) * sizeof *wider);
    memcpy(wider, record->matches, record->n_matches * sizeof *wider);
    wider[record->n_matches] = (Pb__RolloutMatch *)(uintptr_t)match;
    record->matches = wider;
    return (uint32_t)record->n_matches++;
}

/* Drops matches to which no layer refers. */
static void drop_matches(Pb__RolloutRecord *record, struct arena *arena) {
    uint32_t *places = arena_zalloc(arena, record->n_matches * sizeof *places), kept = 1;
    bool *meant = arena_zalloc(arena, record->n_matches * sizeof *meant);
    for (size_t i = 0; i < record->n_layers; i++)
        meant[record->layers[i]->before_match] = meant[record->layers[i]->after_match] = true;
    for (uint32_t i = 1; i < record->n_matches; i++) {
        if (!meant[i]) continue;
        record->matches[kept] = record->matches[i];
        places[i] = kept++;
    }
    CHECK(kept <= record->n_matches);
    record->n_matches = kept;
    for (size_t i = 0; i < record->n_layers; i++) {
        record->layers[i]->before_match = places[record->layers[i]->before_match];
        record->layers[i]->after_match = places[record->layers[i]->after_match];
    }
}

/* -- layers ------------------------------------------------------------------------------------------------------- */

/* The kinds (as bits) of which there can be callers. */
static unsigned kinds(uint32_t before, const Pb__RolloutMatch *before_match, uint32_t after,
                      const Pb__RolloutMatch *after_match) {
    unsigned all = EVERY_KIND;
    bool whole_before = is_everybody(before_match), whole_after = is_everybody(after_match);
    if (before == 0) all &= 5u;                                /* no caller was in the stage */
    if (before >= ROLLOUT_BUCKETS && whole_before) all &= 10u; /* all callers were */
    if (after == 0) all &= 3u;                                 /* no caller is */
    if (after >= ROLLOUT_BUCKETS && whole_after) all &= 12u;   /* all callers are */
    bool same = same_match(before_match, after_match);
    if ((whole_after || same) && after >= before) all &= ~2u;  /* no caller has left it */
    if ((whole_before || same) && before >= after) all &= ~4u; /* no caller has entered it */
    return all;
}

static unsigned kinds_of(const Pb__RolloutRecord *record, const Pb__RolloutLayer *layer) {
    return kinds(layer->before_buckets, record->matches[layer->before_match], layer->after_buckets,
                 record->matches[layer->after_match]);
}

/* The callers of a kind: those in these buckets that fit these matches (0: any). `whole`: the box has no other callers,
 * because no match excludes some of them from the kind. */
struct box {
    uint32_t from, to, matches[2];
    bool whole;
};

static void box_cut(struct box *box, bool in, uint32_t buckets, uint32_t match, size_t side) {
    if (in && buckets < box->to) box->to = buckets;
    if (in) box->matches[side] = match;
    else if (match) box->whole = box->whole && buckets == 0;
    else if (buckets > box->from) box->from = buckets;
}

static struct box box_of(const Pb__RolloutLayer *layer, unsigned kind) {
    struct box box = {.to = ROLLOUT_BUCKETS, .whole = true};
    box_cut(&box, kind & 1, layer->before_buckets, layer->before_match, 0);
    box_cut(&box, kind & 2, layer->after_buckets, layer->after_match, 1);
    return box;
}

/* Do all callers that fit `inner`'s matches fit those of `outer`? */
static bool matches_within(const struct box *inner, const struct box *outer) {
    for (size_t i = 0; i < 2; i++)
        if (outer->matches[i] && outer->matches[i] != inner->matches[0] && outer->matches[i] != inner->matches[1])
            return false;
    return true;
}

/* The bucket up to which, from `at` on, one newer layer has changed all callers of the box. */
static uint32_t covered_to(const Pb__RolloutRecord *record, size_t newer, const struct box *box, uint32_t at) {
    uint32_t to = at;
    for (size_t i = 0; i < newer; i++)
        for (unsigned kind = 0; kind < 4; kind++) {
            if (!(record->layers[i]->changed >> kind & 1)) continue;
            struct box other = box_of(record->layers[i], kind);
            if (other.whole && other.from <= at && other.to > to && matches_within(box, &other)) to = other.to;
        }
    return to;
}

static bool is_covered(const Pb__RolloutRecord *record, size_t newer, unsigned kind) {
    struct box box = box_of(record->layers[newer], kind);
    for (uint32_t at = box.from, to; at < box.to; at = to) {
        to = covered_to(record, newer, &box, at);
        if (to == at) return false;
    }
    return true;
}

/* Drops the parts of layers that newer layers cover, and layers that are older than `least`. */
static void drop_layers(Pb__RolloutRecord *record, uint64_t least) {
    size_t count = record->n_layers;
    record->n_layers = 0;
    for (size_t i = 0; i < count; i++) {
        Pb__RolloutLayer *layer = record->layers[record->n_layers] = record->layers[i];
        for (unsigned kind = 0; kind < 4; kind++)
            if (layer->changed >> kind & 1 && is_covered(record, record->n_layers, kind))
                layer->changed &= ~(1u << kind);
        if (layer->changed && layer->index >= least) record->n_layers++;
    }
}

static void layer_add(struct machine_tx *tx, Pb__RolloutRecord *record, const Pb__RolloutLayer *layer, uint64_t least) {
    Pb__RolloutLayer **layers = arena_alloc(tx->arena, (record->n_layers + 1) * sizeof *layers);
    layers[0] = (Pb__RolloutLayer *)(void *)message_copy(tx->arena, &layer->base);
    bool covers = layer->changed == kinds_of(record, layer);
    if (covers) record->n_layers = 0;
    if (record->n_layers) memcpy(layers + 1, record->layers, record->n_layers * sizeof *layers);
    record->layers = layers;
    record->n_layers++;
    CHECK(record->layers[0]->index == tx->index && layer->changed <= EVERY_KIND);
    drop_layers(record, least);
    drop_matches(record, tx->arena);
}

bool rollout_has_room(const Pb__RolloutRecord *record, const Pb__RolloutMatch *match, size_t steps) {
    bool another = find_place(record, match) == record->n_matches;
    /* One layer when the stage begins, one for each step, one when it ends. */
    return record->n_layers + 1 + steps + 1 <= LAYERS_MOST && record->n_matches + another <= MATCHES_MOST;
}

/* -- waking ------------------------------------------------------------------------------------------------------- */

static void touch_buckets(struct machine_tx *tx, struct slice name, uint32_t from, uint32_t to) {
    char room[ROLLOUT_NAME_MOST + 3];
    memcpy(room, name.data, name.size);
    room[name.size] = '\0';
    CHECK(to <= ROLLOUT_BUCKETS && name.size <= ROLLOUT_NAME_MOST);
    for (uint32_t bucket = from; bucket < to; bucket++) {
        put_be16(room + name.size + 1, (uint16_t)bucket);
        machine_touch(tx, SPACE_ROLLOUT_CALLER, slice_make(room, name.size + 3));
    }
}

static size_t match_key(char *room, struct slice name, char kind, struct slice item) {
    memcpy(room, name.data, name.size);
    room[name.size] = '\0', room[name.size + 1] = kind;
    CHECK(kind == 'n' || kind == 't' || kind == 'r');
    memcpy(room + name.size + 2, item.data, item.size);
    if (kind == 'n') bytes_lower(room + name.size + 2, item.size);
    return name.size + 2 + item.size;
}

static void touch_list(struct machine_tx *tx, struct slice name, char kind, char *const *list, size_t count) {
    char room[ROLLOUT_NAME_MOST + 2 + ROLLOUT_NODE_MOST];
    for (size_t i = 0; i < count; i++)
        machine_touch(tx, SPACE_ROLLOUT_MATCH, slice_make(room, match_key(room, name, kind, slice_text(list[i]))));
}

/* Wakes all callers that fit the match, by the first of its lists. */
static void touch_match(struct machine_tx *tx, struct slice name, const Pb__RolloutMatch *match) {
    if (match->n_nodes) touch_list(tx, name, 'n', match->nodes, match->n_nodes);
    else if (match->n_tags) touch_list(tx, name, 't', match->tags, match->n_tags);
    else touch_list(tx, name, 'r', match->regions, match->n_regions);
}

/* Wakes all callers that can be of a kind, and as few others as the watch keys allow. */
static void touch_kind(struct machine_tx *tx, const Pb__RolloutRecord *record, const Pb__RolloutLayer *layer,
                       unsigned kind) {
    struct box box = box_of(layer, kind);
    uint32_t match = box.matches[0] ? box.matches[0] : box.matches[1];
    if (match) touch_match(tx, slice_text(record->name), record->matches[match]);
    else touch_buckets(tx, slice_text(record->name), box.from, box.to);
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
    /* After a promotion, layers from before the stage are no longer needed: callers of the stage have had the version
     * at the earliest since it began, and the others get it now. */
    bool promoted = before.stage && !after.stage && strcmp(before.stage->version, after.current) == 0;
    layer_add(tx, record, &layer, promoted ? before.stage->began : 0);
}

/* -- watch keys of a caller --------------------------------------------------------------------------------------- */

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
