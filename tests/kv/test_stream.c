/* A stream tells each change once, in order, as it was then, or says that it cannot know. Random commands against a
 * model that asks everything after each entry (streams.h). A failure names its seed: COORD_SEED=N runs that one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "registry/operator.h"
#include "streams.h"

enum { SEEDS = 12, STEPS = 220, ASKS = 40, EVENTS_MAX = 4096 };

static struct fixture world;
static struct rng rng;
static uint64_t seed;

/* -- following ----------------------------------------------------------------------------------------------------- */

struct event {
    Pb__StreamPosition position;
    size_t thing;
    uint64_t index;
    bool gone;
    struct slice record;
};
struct followed {
    struct event events[EVENTS_MAX];
    size_t count, answers;
    bool gap, reset;
    Pb__StreamPosition end;
    struct arena arena;
};
static struct followed followed, again;

static void take_event(struct followed *to, const Pb__StreamEvent *event) {
    cr_assert_lt(to->count, EVENTS_MAX);
    cr_assert_eq(event->last, event->position->topic == 0);
    to->events[to->count++] =
        (struct event){.position = *event->position,
                       .thing = stream_thing_of(event->kind, slice_make(event->name.data, event->name.len)),
                       .index = event->position->index,
                       .gone = event->gone,
                       .record = slice_copy(&to->arena, slice_make(event->record.data, event->record.len))};
}

/* Asks as a server does until there is nothing more, `most` bytes at a time (0: each time others). */
static void follow(struct followed *to, struct stream_ask *ask, uint32_t most) {
    arena_reset(&to->arena);
    to->count = to->answers = 0;
    to->gap = to->reset = false;
    for (bool more = true; more;) {
        ask->request.bytes_most = most ? most : 1 + (uint32_t)rng_below(&rng, 2000);
        uint64_t index, had = ask->from.index;
        const Pb__StreamResult *result = stream_answer(&world, ask, &index);
        cr_assert(result && result->position && !result->off);
        to->answers++;
        to->gap |= result->gap, to->reset |= result->reset;
        bool news = result->n_events || result->gap || result->reset;
        cr_assert_eq(index, news ? machine_index(world.machine) : had, "seed %lu: who has nothing to tell waits", seed);
        for (size_t i = 0; i < result->n_events; i++) take_event(to, result->events[i]);
        more = result->n_events > 0;
        to->end = *result->position;
        stream_ask_from(ask, to->end.index, to->end.topic, to->end.place);
    }
    cr_assert(to->end.index == machine_index(world.machine) && to->end.topic == 0, "seed %lu", seed);
}

static size_t changes_after(const struct stream_model *model, const struct stream_ask *ask, uint64_t after) {
    size_t count = 0;
    for (size_t i = 0; i < model->count; i++)
        count += model->changes[i].index > after && stream_follows(ask, model->changes[i].thing);
    return count;
}

static bool ordered(const Pb__StreamPosition *a, const Pb__StreamPosition *b) {
    if (a->index != b->index) return a->index < b->index;
    if (b->topic == 0) return a->topic != 0;
    return a->topic != b->topic ? a->topic != 0 && a->topic < b->topic : a->place < b->place;
}

/* Each event is a change of the model's, as it was; no two are one; and there are as many. */
static void judge(const struct followed *seen, const struct stream_model *model, const struct stream_ask *ask,
                  uint64_t after) {
    for (size_t i = 0; i < seen->count; i++) {
        const struct event *event = &seen->events[i];
        const struct stream_thing *thing = &stream_things[event->thing];
        const struct stream_change *change = stream_change_at(model, event->index, event->thing);
        cr_assert(event->index > after && stream_follows(ask, event->thing));
        cr_assert(change, "seed %lu: an event of %s at %lu, where it did not change", seed, thing->name, event->index);
        cr_assert(event->gone == change->gone && (event->gone || slice_equal(event->record, change->record)),
                  "seed %lu: %s at %lu", seed, thing->name, event->index);
        if (i == 0) continue;
        cr_assert(ordered(&event[-1].position, &event->position), "seed %lu: at %lu", seed, event->index);
        for (size_t j = i; j-- > 0 && seen->events[j].index == event->index;)
            cr_assert_neq(seen->events[j].thing, event->thing, "seed %lu: %s at %lu twice", seed, thing->name,
                          event->index);
    }
    cr_assert_eq(seen->count, changes_after(model, ask, after), "seed %lu: %zu events, %zu changes after %lu", seed,
                 seen->count, changes_after(model, ask, after), after);
}

/* -- random -------------------------------------------------------------------------------------------------------- */

static void random_subscriptions(struct stream_ask *ask) {
    static const char *const prefixes[] = {"", "a", "a/", "b", "none"}, *const shouted[] = {"API", "Web", "N1", "n2",
                                                                                            "N3"};
    stream_ask_init(ask);
    for (size_t left = 1 + rng_below(&rng, 5); left > 0; left--) {
        const struct stream_thing *thing = &stream_things[rng_below(&rng, stream_things_count)];
        size_t other = rng_below(&rng, ARRAY_COUNT(shouted));
        if (rng_below(&rng, 4) == 0)
            stream_ask_add(ask, PB__STREAM_KIND__STREAM_PREFIX, prefixes[rng_below(&rng, ARRAY_COUNT(prefixes))]);
        else if (rng_below(&rng, 4) == 0)
            stream_ask_add(ask, other < 2 ? PB__STREAM_KIND__STREAM_SERVICE : PB__STREAM_KIND__STREAM_NODE,
                           shouted[other]);
        else stream_ask_add(ask, thing->kind, thing->name);
    }
}

static void equal_from(const struct followed *whole, size_t first, const struct followed *rest) {
    cr_assert_eq(rest->count, whole->count - first, "seed %lu: %zu of %zu after event %zu", seed, rest->count,
                 whole->count, first);
    for (size_t i = 0; i < rest->count; i++) {
        const struct event *a = &whole->events[first + i], *b = &rest->events[i];
        cr_assert(
            a->index == b->index && a->thing == b->thing && a->gone == b->gone && slice_equal(a->record, b->record),
            "seed %lu: event %zu", seed, first + i);
    }
}

/* As a whole, and gone on with after any event of it. */
static void ask_at_random(const struct stream_model *model, uint64_t begun) {
    struct stream_ask ask;
    random_subscriptions(&ask);
    uint64_t from = begun + rng_below(&rng, machine_index(world.machine) - begun + 1);
    stream_ask_from(&ask, from, 0, 0);
    follow(&followed, &ask, rng_below(&rng, 2) ? 1 : 0);
    cr_assert_not(followed.gap || followed.reset);
    judge(&followed, model, &ask, from);
    for (size_t i = 0; i < 4 && followed.count; i++) {
        size_t at = rng_below(&rng, followed.count);
        const Pb__StreamPosition *position = &followed.events[at].position;
        stream_ask_from(&ask, position->index, position->topic, position->place);
        follow(&again, &ask, 0);
        equal_from(&followed, at + 1, &again);
    }
}

static void run(void) {
    struct stream_model model;
    fixture_open(&world);
    fixture_found(&world);
    uint64_t begun = machine_index(world.machine);
    stream_model_open(&model, &world);
    for (size_t step = 0; step < STEPS; step++) stream_model_act(&model, &rng);
    cr_assert_gt(model.count, STEPS / 2);
    for (size_t i = 0; i < ASKS; i++) ask_at_random(&model, begun);
    stream_model_close(&model);
    arena_free(&followed.arena), arena_free(&again.arena);
    fixture_close(&world);
}

Test(stream, tells_each_change_once_and_as_it_was, .timeout = 300) {
    const char *only = getenv("COORD_SEED");
    for (seed = only ? strtoull(only, NULL, 10) : 1; seed <= SEEDS || only; seed++) {
        rng_seed(&rng, seed);
        run();
        if (only) break;
    }
}

/* -- a small window ------------------------------------------------------------------------------------------------ */

static uint64_t floor_of(const struct stream_ask *ask) {
    uint64_t floor = 0;
    fixture_forget(&world);
    struct store_txn *txn = store_read(world.reader);
    for (size_t i = 0; i < ask->request.n_subscriptions; i++) {
        uint64_t one = history_floor(txn, stream_kinds[ask->request.subscriptions[i]->kind].topic);
        if (one > floor) floor = one;
    }
    store_read_done(world.reader);
    return floor;
}

/* Below the floor there is a gap if something that is followed has changed since; else all goes on. */
Test(stream, says_gap_only_when_something_has_changed, .timeout = 300) {
    size_t gaps = 0, below = 0;
    for (seed = 1; seed <= SEEDS; seed++) {
        struct stream_model model;
        rng_seed(&rng, seed);
        fixture_open(&world);
        fixture_found(&world);
        uint64_t begun = machine_index(world.machine);
        stream_model_open(&model, &world);
        stream_limits(&world, 12);
        for (size_t step = 0; step < STEPS; step++) stream_model_act(&model, &rng);
        for (size_t i = 0; i < 4 * ASKS; i++) {
            struct stream_ask ask;
            random_subscriptions(&ask);
            uint64_t from = begun + rng_below(&rng, machine_index(world.machine) - begun + 1), floor = floor_of(&ask);
            size_t changes = changes_after(&model, &ask, from);
            bool gap = from < floor && changes;
            stream_ask_from(&ask, from, 0, 0);
            follow(&followed, &ask, 0);
            cr_assert_eq(followed.gap, gap, "seed %lu: after %lu, floor %lu, %zu changes", seed, from, floor, changes);
            cr_assert_not(followed.reset);
            if (gap) cr_assert_eq(followed.count, 0);
            else judge(&followed, &model, &ask, from);
            gaps += gap, below += from < floor && !gap;
        }
        stream_model_close(&model);
        fixture_close(&world);
    }
    arena_free(&followed.arena);
    cr_assert(gaps > 100 && below > 10, "%zu gaps, %zu without a change", gaps, below);
}

/* -- entries that change much ---------------------------------------------------------------------------------------- */

static void open_world(void) {
    fixture_open(&world);
    fixture_found(&world);
}
static void close_world(void) { fixture_close(&world); }

/* Of one entry come as many events as it changed things, however many answers that takes; and it takes no long. */
Test(stream, an_entry_with_many_changes_comes_in_parts, .init = open_world, .fini = close_world, .timeout = 300) {
    enum { KEYS = 20000 };
    static bool seen[KEYS];
    char key[32];
    struct stream_ask ask;
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "many/%u", i);
        kv_put(&world, key, "1");
    }
    uint64_t before = machine_index(world.machine);
    kv_del_tree(&world, "many/");
    kv_put(&world, "many/0", "after");
    stream_ask_init(&ask);
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_PREFIX, "many/");
    stream_ask_from(&ask, before, 0, 0);
    size_t count = 0;
    for (bool more = true; more;) {
        const Pb__StreamResult *result = stream_answer(&world, &ask, NULL);
        cr_assert_leq(result->n_events, STREAM_EVENTS_MAX);
        for (size_t i = 0; i < result->n_events; i++, count++) {
            const Pb__StreamEvent *event = result->events[i];
            unsigned number = (unsigned)strtoul(
                slice_copy(&world.arena, slice_make(event->name.data + 5, event->name.len - 5)).data, NULL, 10);
            cr_assert(number < KEYS && event->gone == (count < KEYS) && seen[number] == (count == KEYS));
            cr_assert_eq(event->last, count >= KEYS - 1, "event %zu", count);
            seen[number] = true;
        }
        more = result->n_events > 0;
        stream_ask_from(&ask, result->position->index, result->position->topic, result->position->place);
    }
    cr_assert_eq(count, KEYS + 1);
}

/* A stream that goes on in the middle of an entry, at a server that has not applied that entry yet. */
Test(stream, a_server_that_is_behind_keeps_the_place_within_an_entry) {
    enum { KEYS = 10 };
    char key[32];
    struct stream_ask ask;
    Pb__StreamPosition place = PB__STREAM_POSITION__INIT;
    for (unsigned life = 0; life < 2; life++) { /* two servers that apply the same entries */
        open_world();
        for (unsigned i = 0; i < KEYS; i++) {
            snprintf(key, sizeof key, "many/%u", i);
            kv_put(&world, key, "1");
        }
        uint64_t before = machine_index(world.machine);
        stream_ask_init(&ask);
        stream_ask_add(&ask, PB__STREAM_KIND__STREAM_PREFIX, "many/");
        ask.request.bytes_most = 1;
        if (life == 1) {
            stream_ask_from(&ask, place.index, place.topic, place.place);
            const Pb__StreamResult *result = stream_answer(&world, &ask, NULL);
            cr_assert_eq(result->n_events, 0);
            cr_assert(result->position->index == place.index && result->position->topic == place.topic &&
                          result->position->place == place.place,
                      "what is left of the entry is still to come");
        }
        kv_del_tree(&world, "many/");
        if (life == 0) {
            stream_ask_from(&ask, before, 0, 0);
            place = *stream_answer(&world, &ask, NULL)->position;
            cr_assert(place.index == before + 1 && place.topic != 0, "the answer was cut within the entry");
        } else {
            size_t count = 0;
            for (bool more = true; more;) {
                const Pb__StreamResult *result = stream_answer(&world, &ask, NULL);
                count += result->n_events, more = result->n_events > 0;
                stream_ask_from(&ask, result->position->index, result->position->topic, result->position->place);
            }
            cr_assert_eq(count, KEYS - 1, "%zu events", count);
        }
        close_world();
    }
}

/* One name in two spellings is one thing: an entry that touches both is one event, wherever the answer was cut. */
Test(stream, an_entry_that_touches_a_thing_twice_is_one_event, .init = open_world, .fini = close_world) {
    static const char *const written[] = {"api", "web", "API", "Web"};
    Pb__CatalogBatchCommand batch = PB__CATALOG_BATCH_COMMAND__INIT;
    Pb__RegisterCommand registers[4], *list[4];
    Pb__Node nodes[4];
    Pb__Service services[4];
    char names[4][8], address[] = "10.0.0.1";
    for (size_t i = 0; i < 4; i++) {
        snprintf(names[i], sizeof names[i], "n%zu", i);
        pb__register_command__init(&registers[i]), pb__node__init(&nodes[i]), pb__service__init(&services[i]);
        nodes[i].name = names[i], nodes[i].address = address;
        services[i].id = services[i].name = (char *)(uintptr_t)written[i];
        registers[i].node = &nodes[i], registers[i].service = &services[i];
        list[i] = &registers[i];
    }
    batch.registers = list, batch.n_registers = 4;
    uint64_t before = machine_index(world.machine);
    cr_assert_eq(fixture_apply(&world, CATALOG_BATCH, &batch.base).error, CO_OK);
    struct stream_ask ask;
    stream_ask_init(&ask);
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_SERVICE, "aPi");
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_SERVICE, "web");
    for (uint32_t most = 1; most <= STREAM_BYTES; most += STREAM_BYTES - 1) {
        stream_ask_from(&ask, before, 0, 0);
        follow(&followed, &ask, most);
        cr_assert_eq(followed.count, 2, "%zu events with %u bytes at most", followed.count, most);
        cr_assert_eq(followed.answers, most == 1 ? 3 : 2);
        cr_assert_neq(followed.events[0].thing, followed.events[1].thing);
    }
    arena_free(&followed.arena);
}

/* -- what is no stream ----------------------------------------------------------------------------------------------- */

static void refuses(Pb__StreamRequest *request, const char *what) {
    struct query_result result = fixture_ask(&world, &query_stream, &request->base);
    cr_assert(!result.found && result.index == 0 && !result.message, "%s", what);
    /* As the read engine asks of requests that came from a peer, before they are run. */
    cr_assert_neq(query_stream.watched(&request->base).space, 0, "%s", what);
    size_t keys = 0;
    while (query_stream.own(&request->base, keys).space) keys++;
    cr_assert_leq(keys, STREAM_SUBSCRIPTIONS_MAX, "%s", what);
}

Test(stream, requests_that_make_no_sense, .init = open_world, .fini = close_world) {
    enum { MANY = 5000 };
    static Pb__StreamSubscription items[MANY], *list[MANY];
    static char name[9000];
    Pb__StreamRequest request = PB__STREAM_REQUEST__INIT;
    memset(name, 'x', sizeof name);
    for (size_t i = 0; i < MANY; i++) {
        pb__stream_subscription__init(&items[i]);
        items[i].name = (ProtobufCBinaryData){1, (uint8_t *)name};
        list[i] = &items[i];
    }
    request.subscriptions = list;
    refuses(&request, "none");
    request.n_subscriptions = MANY;
    refuses(&request, "5000");
    request.n_subscriptions = STREAM_SUBSCRIPTIONS_MAX + 1;
    refuses(&request, "one too many");
    request.n_subscriptions = STREAM_SUBSCRIPTIONS_MAX;
    cr_assert(fixture_ask(&world, &query_stream, &request.base).found);
    request.n_subscriptions = 2;
    for (int kind = -1; kind <= 1000; kind += kind == STREAM_KINDS - 1 ? 500 : 1) {
        if (kind >= 0 && kind < STREAM_KINDS) continue;
        items[1].kind = (Pb__StreamKind)kind;
        refuses(&request, "a kind that is not known");
        items[0].kind = (Pb__StreamKind)kind;
        refuses(&request, "the first, too");
        items[0].kind = PB__STREAM_KIND__STREAM_KEY;
    }
    static const size_t longest[STREAM_KINDS] = {8192, 8192, 512, 512, 256, 256};
    for (int kind = 0; kind < STREAM_KINDS; kind++) {
        items[1].kind = (Pb__StreamKind)kind;
        items[1].name.len = longest[kind];
        cr_assert(fixture_ask(&world, &query_stream, &request.base).found);
        items[1].name.len = longest[kind] + 1;
        refuses(&request, "a name too long");
        items[1].name.len = 0;
        if (kind == PB__STREAM_KIND__STREAM_PREFIX) cr_assert(fixture_ask(&world, &query_stream, &request.base).found);
        else refuses(&request, "no name");
    }
}

/* Positions that no server has given: of no topic, behind everything, at 0. */
Test(stream, positions_that_no_server_gave, .init = open_world, .fini = close_world) {
    static const uint64_t indexes[] = {0, 1000000, UINT64_MAX - 1, UINT64_MAX};
    static const uint32_t numbers[] = {0, 1, 3, 4, 255, 256, UINT32_MAX};
    struct stream_ask ask;
    kv_put(&world, "a", "1"), kv_put(&world, "a", "2");
    stream_ask_init(&ask);
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_PREFIX, "");
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_LOCK, "l");
    for (size_t i = 0; i < ARRAY_COUNT(indexes); i++)
        for (size_t j = 0; j < ARRAY_COUNT(numbers); j++)
            for (size_t k = 0; k < ARRAY_COUNT(numbers); k++) {
                stream_ask_from(&ask, indexes[i], numbers[j], numbers[k]);
                const Pb__StreamResult *result = stream_answer(&world, &ask, NULL);
                cr_assert(result && result->position);
                bool old = indexes[i] == 0;
                cr_assert_eq(result->gap, old, "%lu.%u.%u", indexes[i], numbers[j], numbers[k]);
                cr_assert_eq(result->n_events, 0);
                if (!old) cr_assert_geq(result->position->index, indexes[i]);
            }
}

/* -- off, from now on, restored ---------------------------------------------------------------------------------------- */

Test(stream, without_a_history_it_says_so, .init = open_world, .fini = close_world) {
    struct stream_ask ask;
    stream_ask_init(&ask);
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_KEY, "a");
    uint64_t index, before = machine_index(world.machine);
    const Pb__StreamResult *result = stream_answer(&world, &ask, &index);
    cr_assert(result->position->index == before && index == before && result->n_events == 0 && !result->off);
    cr_assert_eq(result->window, HISTORY_CHANGES);
    stream_limits(&world, 0);
    for (unsigned i = 0; i < 2; i++) {
        cr_assert(stream_answer(&world, &ask, &index)->off);
        cr_assert_eq(index, machine_index(world.machine), "it is told at once");
        stream_ask_from(&ask, before, 0, 0);
    }
    kv_put(&world, "a", "1");
    stream_limits(&world, 100);
    result = stream_answer(&world, &ask, NULL);
    cr_assert(result->gap && !result->off, "what happened meanwhile is not known");
    uint64_t again_index = result->position->index;
    kv_put(&world, "a", "2");
    stream_ask_from(&ask, again_index, 0, 0);
    cr_assert_eq(stream_answer(&world, &ask, NULL)->n_events, 1);
}

static void restore_own_backup(void) {
    static const char id[] = "0123456789abcdef";
    char bytes[8192];
    uint64_t index, term, offset = 0;
    int fd = fileno(tmpfile());
    cr_assert_eq(machine_copy(world.machine, fd, &index, &term), CO_OK);
    for (ssize_t n; (n = pread(fd, bytes, sizeof bytes, (off_t)offset)) > 0; offset += (uint64_t)n) {
        Pb__RestoreChunkCommand chunk = PB__RESTORE_CHUNK_COMMAND__INIT;
        chunk.id = (ProtobufCBinaryData){OPERATOR_RESTORE_ID, (uint8_t *)(uintptr_t)id};
        chunk.offset = offset;
        chunk.data = (ProtobufCBinaryData){(size_t)n, (uint8_t *)bytes};
        cr_assert_eq(fixture_apply(&world, OPERATOR_RESTORE_CHUNK, &chunk.base).error, CO_OK);
    }
    Pb__RestoreEndCommand end = PB__RESTORE_END_COMMAND__INIT;
    end.id = (ProtobufCBinaryData){OPERATOR_RESTORE_ID, (uint8_t *)(uintptr_t)id};
    end.size = offset;
    struct outcome outcome = fixture_apply(&world, OPERATOR_RESTORE_END, &end.base);
    cr_assert(outcome.error == CO_OK && outcome.yes, "%s", outcome.text);
    close(fd);
}

Test(stream, a_backup_that_became_the_state_is_a_reset, .init = open_world, .fini = close_world) {
    struct stream_ask ask;
    stream_ask_init(&ask);
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_KEY, "a");
    kv_put(&world, "a", "1");
    uint64_t before = machine_index(world.machine), index;
    restore_own_backup();
    uint64_t restored = machine_index(world.machine);
    cr_assert_gt(restored, before);
    kv_put(&world, "a", "2");
    static const uint32_t topics[] = {0, HISTORY_KEYS};
    for (size_t i = 0; i < 2; i++) {
        stream_ask_from(&ask, before, topics[i], topics[i]);
        const Pb__StreamResult *result = stream_answer(&world, &ask, &index);
        cr_assert(result->reset && !result->gap && result->n_events == 0);
        cr_assert_eq(result->position->index, machine_index(world.machine));
        cr_assert_eq(index, machine_index(world.machine));
    }
    stream_ask_from(&ask, restored, 0, 0);
    const Pb__StreamResult *result = stream_answer(&world, &ask, NULL);
    cr_assert(!result->reset && !result->gap && result->n_events == 1, "who read it anew goes on");
}

/* A key below a prefix that is followed itself, too. */
Test(stream, what_is_followed_twice_is_told_once, .init = open_world, .fini = close_world) {
    struct stream_ask ask;
    stream_ask_init(&ask);
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_KEY, "a/1");
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_PREFIX, "a/");
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_PREFIX, "a");
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_KEY, "a/1");
    stream_ask_from(&ask, machine_index(world.machine), 0, 0);
    uint64_t index = kv_put(&world, "a/1", "1").index;
    kv_put(&world, "A/1", "1");
    const Pb__StreamResult *result = stream_answer(&world, &ask, NULL);
    cr_assert_eq(result->n_events, 1, "%zu", result->n_events);
    cr_assert(result->events[0]->kind == PB__STREAM_KIND__STREAM_KEY && result->events[0]->position->index == index);
}
