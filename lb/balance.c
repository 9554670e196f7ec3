#include "lb/balance.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/memory.h"

#define MS                UINT64_C(1000000)
#define LOOK_LEAST_NS     (10 * MS)
#define LOOK_EACH_NS      50000 /* for each instance */
#define LOOK_MOST_NS      (200 * MS)
#define AGE_NS            (250 * MS) /* hints age out without anything new */
#define GROW_PARTS        60         /* during a slow start, shares are counted anew this often */
#define GROW_LEAST_NS     (100 * MS)
#define DISTANCES_NS      (5000 * MS)
#define VIEWS_MOST        16
#define NODE_MAINTENANCE  "_node_maintenance"
#define THING_MAINTENANCE "_service_maintenance:"

struct instance {
    struct load_instance name;
    struct slice ring; /* "node/id" */
    uint64_t hash;     /* bytes of the two */
    uint64_t created;
    const struct slice *tags;
    size_t tag_count;
    enum pick_status status;
    double weight, share, kept, distance_s;
    struct load_hint hint;
    uint64_t reported_ns;
};

/* An instance, by which a later balance tells the new ones. */
struct incarnation {
    uint64_t hash, created; /* the index of its registration */
};

/* A view: the instances that a request asks for, by tags and passing, ready to be picked from. */
struct view {
    struct list link; /* in balance->views, the one used least recently first */
    struct slice key; /* passing, tags */
    struct pick_set *set;
    uint32_t *place; /* place of an instance among the candidates; UINT32_MAX: it is none */
    uint32_t *entry; /* the instance of a candidate */
    size_t count;
};

struct balance {
    struct hints *hints;
    struct arena arena;
    struct instance *instances;
    struct incarnation *sorted; /* by hash */
    size_t count, bytes, view_count;
    struct list views;
    struct buffer key;
    uint64_t sequence; /* of the hints, when they were looked at */
    uint64_t made_ns, looked_ns, grown_ns, distances_ns;
    bool known, growing; /* some of the hints are known; some of the shares are not 1 */
    bool distant, moved;
};

/* -- the instances ------------------------------------------------------------------------------------------------ */
static enum pick_status status_of(const Pb__ServiceEntry *entry) {
    Pb__Status status = catalog_entry_status(entry);
    if (status == PB__STATUS__PASSING) return PICK_PASSING;
    if (status == PB__STATUS__WARNING) return PICK_WARNING;
    for (size_t i = 0; i < entry->n_checks; i++) {
        struct slice id = slice_text(entry->checks[i]->check_id);
        bool maintenance = slice_is(id, NODE_MAINTENANCE) || slice_starts(id, SLICE_LITERAL(THING_MAINTENANCE));
        if (maintenance && entry->checks[i]->status >= PB__STATUS__CRITICAL) return PICK_MAINTENANCE;
    }
    return PICK_CRITICAL;
}

static struct slice keep(struct balance *balance, const char *text) {
    size_t size = strlen(text);
    balance->bytes += size + 17;
    return slice_make(arena_strndup(&balance->arena, text, size), size);
}

static void instance_fill(struct balance *balance, struct instance *instance, const Pb__ServiceEntry *entry) {
    const Pb__Service *service = entry->service;
    struct slice *tags = arena_alloc(&balance->arena, (service->n_tags + 1) * sizeof *tags);
    for (size_t i = 0; i < service->n_tags; i++) tags[i] = keep(balance, service->tags[i]);
    char *ring = arena_printf(&balance->arena, "%s/%s", service->node, service->id);
    *instance = (struct instance){.name = {.node = keep(balance, entry->node->name),
                                           .service_id = keep(balance, service->id),
                                           .service = keep(balance, service->name)},
                                  .ring = slice_text(ring),
                                  .hash = hash64(ring, strlen(ring)),
                                  .created = service->create_index,
                                  .tags = tags,
                                  .tag_count = service->n_tags,
                                  .status = status_of(entry),
                                  .share = 1,
                                  .kept = 1,
                                  .distance_s = INFINITY,
                                  .hint = load_unknown()};
    instance->weight = instance->status == PICK_WARNING ? service->weight_warning : service->weight_passing;
    balance->bytes += sizeof *instance + sizeof *tags * service->n_tags + instance->ring.size;
}

static int by_hash(const void *a, const void *b) {
    uint64_t one = ((const struct incarnation *)a)->hash, other = ((const struct incarnation *)b)->hash;
    return one < other ? -1 : one > other;
}

struct balance *balance_new(struct hints *hints, const Pb__ServiceEntriesResult *entries, uint64_t now_ns) {
    struct balance *balance = mem_zalloc(sizeof *balance);
    balance->hints = hints, balance->grown_ns = balance->made_ns = now_ns;
    list_init(&balance->views);
    balance->count = entries ? entries->n_entries : 0;
    balance->instances = mem_alloc((balance->count + 1) * sizeof *balance->instances);
    balance->sorted = mem_alloc((balance->count + 1) * sizeof *balance->sorted);
    for (size_t i = 0; i < balance->count; i++) {
        instance_fill(balance, &balance->instances[i], entries->entries[i]);
        balance->sorted[i] = (struct incarnation){balance->instances[i].hash, balance->instances[i].created};
    }
    qsort(balance->sorted, balance->count, sizeof *balance->sorted, by_hash);
    return balance;
}

static void view_free(struct balance *balance, struct view *view) {
    list_remove(&view->link);
    balance->view_count--;
    pick_set_free(view->set);
    free(view->place);
    free(view->entry);
    free((char *)(uintptr_t)view->key.data);
    free(view);
}

void balance_free(struct balance *balance) {
    if (!balance) return;
    LIST_FOREACH_SAFE(at, next, &balance->views) view_free(balance, LIST_ENTRY(at, struct view, link));
    free(balance->instances);
    free(balance->sorted);
    buffer_free(&balance->key);
    arena_free(&balance->arena);
    free(balance);
}

size_t balance_count(const struct balance *balance) { return balance->count; }

size_t balance_bytes(const struct balance *balance) {
    return sizeof *balance + balance->bytes + (balance->view_count + 1) * balance->count * 160;
}

static const struct incarnation *find(const struct balance *balance, const struct instance *instance) {
    struct incarnation key = {.hash = instance->hash};
    return bsearch(&key, balance->sorted, balance->count, sizeof key, by_hash);
}

void balance_follows(const struct balance *balance, const struct balance *before, uint64_t now_ns) {
    for (size_t i = 0; i < balance->count; i++) {
        const struct instance *instance = &balance->instances[i];
        const struct incarnation *was = find(before, instance);
        if (!was || was->created != instance->created)
            hints_created(balance->hints, instance->name, instance->created, was ? before->made_ns : 0, now_ns);
    }
    for (size_t i = 0; i < before->count; i++) {
        const struct instance *instance = &before->instances[i];
        if (!find(balance, instance)) hints_forget(balance->hints, instance->name);
    }
}

/* -- views -------------------------------------------------------------------------------------------------------- */
static bool tagged(const struct instance *instance, const struct balance_ask *ask) {
    for (size_t i = 0; i < ask->tag_count; i++) {
        size_t k = 0;
        while (k < instance->tag_count && !slice_equal_nocase(instance->tags[k], ask->tags[i])) k++;
        if (k == instance->tag_count) return false;
    }
    return true;
}

static void view_fill(struct balance *balance, struct view *view) {
    struct pick_candidate *candidates = mem_alloc((view->count + 1) * sizeof *candidates);
    for (size_t i = 0; i < view->count; i++) {
        const struct instance *instance = &balance->instances[view->entry[i]];
        candidates[i] = (struct pick_candidate){.name = instance->ring,
                                                .status = instance->status,
                                                .weight = instance->weight,
                                                .share = instance->share,
                                                .distance_s = instance->distance_s,
                                                .hint = instance->hint,
                                                .kept = instance->kept,
                                                .reported_ns = instance->reported_ns};
    }
    pick_set_fill(view->set, candidates, view->count, view->key.data[0]);
    free(candidates);
}

static struct view *view_new(struct balance *balance, const struct balance_ask *ask, struct slice key) {
    if (balance->view_count == VIEWS_MOST) view_free(balance, LIST_ENTRY(balance->views.next, struct view, link));
    struct view *view = mem_zalloc(sizeof *view);
    view->key = slice_make(mem_strndup(key.data, key.size), key.size);
    view->set = pick_set_new();
    view->place = mem_alloc((balance->count + 1) * sizeof *view->place);
    view->entry = mem_alloc((balance->count + 1) * sizeof *view->entry);
    for (size_t i = 0; i < balance->count; i++) {
        bool wanted = tagged(&balance->instances[i], ask);
        view->place[i] = wanted ? (uint32_t)view->count : UINT32_MAX;
        if (wanted) view->entry[view->count++] = (uint32_t)i;
    }
    balance->view_count++;
    list_append(&balance->views, &view->link);
    view_fill(balance, view);
    return view;
}

static struct view *view_find(struct balance *balance, const struct balance_ask *ask) {
    struct buffer *key = &balance->key;
    buffer_reset(key);
    buffer_append_byte(key, ask->passing);
    for (size_t i = 0; i < ask->tag_count; i++) {
        buffer_append(key, ask->tags[i].data, ask->tags[i].size);
        buffer_append_byte(key, 0);
    }
    for (struct list *at = balance->views.prev; at != &balance->views; at = at->prev) {
        struct view *view = LIST_ENTRY(at, struct view, link);
        if (!slice_equal(view->key, buffer_slice(key))) continue;
        if (at != balance->views.prev) list_remove(at), list_append(&balance->views, at);
        return view;
    }
    return view_new(balance, ask, buffer_slice(key));
}

/* -- hints -------------------------------------------------------------------------------------------------------- */
static struct load_instance name_of(void *data, size_t i) { return ((struct balance *)data)->instances[i].name; }

static void hint_passed_on(struct balance *balance, size_t i) {
    const struct instance *instance = &balance->instances[i];
    LIST_FOREACH(at, &balance->views) {
        struct view *view = LIST_ENTRY(at, struct view, link);
        if (view->place[i] != UINT32_MAX)
            pick_set_hint(view->set, view->place[i], &instance->hint, instance->reported_ns);
    }
}

static void kept_passed_on(struct balance *balance, size_t i, double kept) {
    if (balance->instances[i].kept == kept) return;
    balance->instances[i].kept = kept;
    LIST_FOREACH(at, &balance->views) {
        struct view *view = LIST_ENTRY(at, struct view, link);
        if (view->place[i] != UINT32_MAX) pick_set_kept(view->set, view->place[i], kept);
    }
}

static void see(void *data, size_t i, bool known, const struct load_entry *entry) {
    struct balance *balance = data;
    struct instance *instance = &balance->instances[i];
    struct load_hint hint = known ? entry->hint : load_unknown();
    uint64_t reported_ns = known && balance->looked_ns > entry->age_ns ? balance->looked_ns - entry->age_ns : 0;
    double share = known ? load_share(entry->known_ns, hints_slow_start(balance->hints)) : 1;
    balance->known |= !isnan(hint.load);
    balance->growing |= share < 1;
    balance->moved |= share != instance->share;
    instance->share = share;
    kept_passed_on(balance, i, known ? entry->kept : 1);
    if (reported_ns == instance->reported_ns && isnan(hint.load) == isnan(instance->hint.load)) return;
    instance->hint = hint, instance->reported_ns = reported_ns;
    hint_passed_on(balance, i);
}

static bool look_is_due(const struct balance *balance, uint64_t now_ns) {
    uint64_t passed_ns = now_ns - balance->looked_ns;
    if (!balance->looked_ns) return hints_sequence(balance->hints) != 0;
    if (balance->known && passed_ns >= AGE_NS) return true;
    uint64_t least_ns = LOOK_LEAST_NS + balance->count * LOOK_EACH_NS;
    if (passed_ns < (least_ns < LOOK_MOST_NS ? least_ns : LOOK_MOST_NS)) return false;
    return hints_sequence(balance->hints) != balance->sequence;
}

static bool growth_is_due(const struct balance *balance, uint64_t now_ns) {
    uint64_t step_ns = hints_slow_start(balance->hints) / GROW_PARTS;
    return balance->growing && now_ns - balance->grown_ns >= (step_ns > GROW_LEAST_NS ? step_ns : GROW_LEAST_NS);
}

/* Brings hints and weights up to date, if it is time. */
static void look(struct balance *balance, uint64_t now_ns) {
    bool grow = growth_is_due(balance, now_ns);
    if (!grow && !look_is_due(balance, now_ns)) return;
    bool grew = balance->growing;
    balance->sequence = hints_sequence(balance->hints);
    balance->looked_ns = now_ns;
    balance->known = balance->growing = false;
    hints_look(balance->hints, balance->count, now_ns, name_of, see, balance);
    if (!balance->moved || !(grow || !grew)) return;
    balance->moved = false;
    balance->grown_ns = now_ns;
    LIST_FOREACH(at, &balance->views) view_fill(balance, LIST_ENTRY(at, struct view, link));
}

/* -- picks -------------------------------------------------------------------------------------------------------- */
static struct view *view_now(struct balance *balance, const struct balance_ask *ask) {
    look(balance, ask->now_ns);
    return view_find(balance, ask);
}

int balance_pick(struct balance *balance, const struct balance_ask *ask, struct balance_picked *picked) {
    struct view *view = view_now(balance, ask);
    struct pick_result result;
    struct pick_ask one = {.policy = ask->policy, .key = ask->key, .rng = ask->rng, .now_ns = ask->now_ns};
    int rv = pick(view->set, &one, &result);
    if (rv != CO_OK) return rv;
    picked->picked = view->entry[result.picked];
    picked->count = result.considered_count;
    for (size_t i = 0; i < result.considered_count; i++) {
        picked->considered[i] = view->entry[result.considered[i]];
        picked->loads[i] = pick_load(view->set, result.considered[i]);
    }
    return CO_OK;
}

size_t balance_owners(struct balance *balance, const struct balance_ask *ask, size_t most, size_t *owners) {
    struct view *view = view_now(balance, ask);
    size_t count = pick_owners(view->set, ask->key, most, owners);
    for (size_t i = 0; i < count; i++) owners[i] = view->entry[owners[i]];
    return count;
}

void balance_why(struct balance *balance, const struct balance_ask *ask, struct buffer *out) {
    const struct view *view = view_now(balance, ask);
    size_t others = balance->count - view->count;
    if (view->count || !others) pick_why(view->set, out);
    if (others)
        buffer_printf(out, "%s%zu without the tag%s", view->count ? ", " : "", others, ask->tag_count > 1 ? "s" : "");
}

bool balance_is_asked(struct balance *balance, const struct balance_ask *ask, size_t entry) {
    CHECK(entry < balance->count);
    bool passes = !ask->passing || balance->instances[entry].status == PICK_PASSING;
    return passes && view_now(balance, ask)->place[entry] != UINT32_MAX;
}

struct balance_shown balance_show(struct balance *balance, const struct balance_ask *ask, size_t entry) {
    CHECK(entry < balance->count);
    struct view *view = view_now(balance, ask);
    const struct instance *instance = &balance->instances[entry];
    struct balance_shown shown = {NAN, 0, NAN};
    if (view->place[entry] == UINT32_MAX) return shown;
    shown.load = pick_load(view->set, view->place[entry]);
    bool picked = instance->status == PICK_PASSING || (instance->status == PICK_WARNING && !ask->passing);
    if (picked) shown.weight = instance->weight * instance->share;
    if (!isnan(instance->hint.load) && ask->now_ns >= instance->reported_ns)
        shown.age_ms = (double)(ask->now_ns - instance->reported_ns) / 1e6;
    return shown;
}

/* -- distances ---------------------------------------------------------------------------------------------------- */
bool balance_wants_distances(const struct balance *balance, uint64_t now_ns) {
    return !balance->distant || now_ns - balance->distances_ns >= DISTANCES_NS;
}

void balance_distances(struct balance *balance, double (*of)(void *data, struct slice node), void *data,
                       uint64_t now_ns) {
    balance->distant = true, balance->distances_ns = now_ns;
    for (size_t i = 0; i < balance->count; i++)
        balance->instances[i].distance_s = of(data, balance->instances[i].name.node);
    LIST_FOREACH(at, &balance->views) view_fill(balance, LIST_ENTRY(at, struct view, link));
}
