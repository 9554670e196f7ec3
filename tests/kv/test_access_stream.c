/* A stream tells a token each change that the token sees, once and in order, and nothing else. Random commands against a
 * model that asks everything as the token after each entry (streams.h). A failure names its seed: COORD_SEED=N runs that
 * one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "base/random.h"
#include "leases.h"
#include "streams.h"
#include "tests/lib/with_access.h"

enum { SEEDS = 8, STEPS = 120, TOKENS = 4, ASKS = 25, EVENTS_MAX = 2048 };

static struct fixture world;
static struct rng rng;
static uint64_t seed;

/* -- following ----------------------------------------------------------------------------------------------------- */

struct event {
    uint64_t index;
    size_t thing;
    bool gone;
    struct slice record;
};
static struct {
    struct event events[EVENTS_MAX];
    size_t count;
    struct arena arena;
} seen;

/* One answer; NULL: denied. */
static const Pb__StreamResult *answer_as(const struct access *access, const struct stream_ask *ask, uint64_t *index) {
    struct query_result result;
    struct access_check check;
    int error = fixture_ask_as(&world, access, &query_stream, &ask->request.base, &result, &check);
    cr_assert(error == CO_OK || error == CO_DENIED);
    *index = result.index;
    return error ? NULL : (const Pb__StreamResult *)result.message;
}

/* False: denied. */
static bool follow_as(const struct access *access, struct stream_ask *ask) {
    arena_reset(&seen.arena);
    seen.count = 0;
    for (bool more = true; more;) {
        uint64_t index, had = ask->from.index, last = 0;
        ask->request.bytes_most = 1 + (uint32_t)rng_below(&rng, 1500);
        const Pb__StreamResult *result = answer_as(access, ask, &index);
        if (!result) return false;
        cr_assert(result->position && !result->gap && !result->reset && !result->off);
        cr_assert_eq(index, result->n_events ? machine_index(world.machine) : had,
                     "seed %lu: who has nothing to tell waits", seed);
        for (size_t i = 0; i < result->n_events; i++) {
            const Pb__StreamEvent *event = result->events[i];
            cr_assert_lt(seen.count, EVENTS_MAX);
            cr_assert_eq(event->last, event->position->topic == 0);
            cr_assert(event->position->index != last, "seed %lu: it was the last of that index", seed);
            bool next = i > 0 && event->position->index != result->events[i - 1]->position->index;
            cr_assert(!next || result->events[i - 1]->last, "seed %lu: it waits for more of that index", seed);
            if (event->last) last = event->position->index;
            seen.events[seen.count++] =
                (struct event){event->position->index, stream_thing_of(event->kind, message_slice(event->name)),
                               event->gone, slice_copy(&seen.arena, message_slice(event->record))};
        }
        more = result->n_events > 0;
        stream_ask_from(ask, result->position->index, result->position->topic, result->position->place);
    }
    cr_assert(ask->from.index == machine_index(world.machine) && ask->from.topic == 0, "seed %lu", seed);
    return true;
}

/* -- random -------------------------------------------------------------------------------------------------------- */

static struct access *random_rules(void) {
    static const char *const prefixes[] = {"", "a", "a/", "b", "n"}, *const names[] = {"api", "web", "other"};
    static const enum access_resource of[] = {ACCESS_KEY, ACCESS_SERVICE, ACCESS_NODE, ACCESS_LOCK};
    struct access *access = access_new(rng_below(&rng, 2) ? ACCESS_READ : ACCESS_DENY);
    for (size_t i = 0; i < ARRAY_COUNT(of); i++) {
        for (size_t j = 0; j < ARRAY_COUNT(prefixes); j++)
            if (rng_below(&rng, 4) == 0)
                access_add(access, of[i], true, slice_text(prefixes[j]),
                           rng_below(&rng, 2) ? ACCESS_READ : ACCESS_DENY);
        for (size_t j = 0; j < stream_things_count + ARRAY_COUNT(names); j++)
            if (rng_below(&rng, 4) == 0)
                access_add(access, of[i], false,
                           slice_text(j < stream_things_count ? stream_things[j].name : names[j - stream_things_count]),
                           rng_below(&rng, 2) ? ACCESS_READ : ACCESS_DENY);
    }
    access_seal(access);
    return access;
}

/* Is one of the things hidden, of which a stream is for those only who may read it? */
static bool random_subscriptions(struct stream_ask *ask, const struct access *access) {
    static const char *const prefixes[] = {"", "a", "a/", "b"};
    bool denied = false;
    stream_ask_init(ask);
    for (size_t left = 1 + rng_below(&rng, 4); left > 0; left--) {
        const struct stream_thing *thing = &stream_things[rng_below(&rng, stream_things_count)];
        bool key = thing->kind == PB__STREAM_KIND__STREAM_KEY, lock = thing->kind == PB__STREAM_KIND__STREAM_LOCK,
             hidden = (key || lock) &&
                      !access_allows(access, key ? ACCESS_KEY : ACCESS_LOCK, slice_text(thing->name), ACCESS_READ);
        if (rng_below(&rng, 2) && !hidden) stream_ask_add(ask, thing->kind, thing->name);
        else if (rng_below(&rng, 8) == 0) stream_ask_add(ask, thing->kind, thing->name), denied |= hidden;
        else stream_ask_add(ask, PB__STREAM_KIND__STREAM_PREFIX, prefixes[rng_below(&rng, ARRAY_COUNT(prefixes))]);
    }
    return denied;
}

static void judge(const struct stream_model *model, const struct stream_ask *ask, uint64_t after) {
    size_t expected = 0;
    for (size_t i = 0; i < model->count; i++)
        expected += model->changes[i].index > after && stream_follows(ask, model->changes[i].thing);
    for (size_t i = 0; i < seen.count; i++) {
        const struct event *event = &seen.events[i];
        const char *name = stream_things[event->thing].name;
        const struct stream_change *change = stream_change_at(model, event->index, event->thing);
        cr_assert(change, "seed %lu: an event of %s at %lu, of which the token sees no change", seed, name,
                  event->index);
        cr_assert(event->index > after && stream_follows(ask, event->thing));
        cr_assert(event->gone == change->gone && (event->gone || slice_equal(event->record, change->record)),
                  "seed %lu: %s at %lu", seed, name, event->index);
        cr_assert(i == 0 || event[-1].index <= event->index);
        for (size_t j = i; j-- > 0 && seen.events[j].index == event->index;)
            cr_assert_neq(seen.events[j].thing, event->thing, "seed %lu: twice", seed);
    }
    cr_assert_eq(seen.count, expected, "seed %lu: %zu events of %zu after %lu", seed, seen.count, expected, after);
}

static void run_seed(void) {
    static struct stream_model models[TOKENS];
    struct access *tokens[TOKENS];
    unsigned denials = 0, events = 0;
    rng_seed(&rng, seed);
    fixture_open(&world);
    fixture_found(&world);
    uint64_t begun = machine_index(world.machine);
    for (size_t i = 0; i < TOKENS; i++) stream_model_open_as(&models[i], &world, tokens[i] = random_rules());
    for (unsigned step = 0; step < STEPS; step++) {
        stream_model_act(&models[0], &rng);
        for (size_t i = 1; i < TOKENS; i++) stream_model_look(&models[i]);
    }
    for (unsigned n = 0; n < TOKENS * ASKS; n++) {
        size_t i = n % TOKENS;
        struct stream_ask ask;
        bool denied = random_subscriptions(&ask, tokens[i]);
        uint64_t from = begun + rng_below(&rng, machine_index(world.machine) - begun + 1);
        stream_ask_from(&ask, from, 0, 0);
        cr_assert_eq(follow_as(tokens[i], &ask), !denied, "seed %lu", seed);
        if (denied) denials++;
        else judge(&models[i], &ask, from);
        events += (unsigned)seen.count;
    }
    cr_expect(events > 100 && denials > 0, "seed %lu: %u %u", seed, events, denials);
    for (size_t i = 0; i < TOKENS; i++) stream_model_close(&models[i]), access_release(tokens[i]);
    fixture_close(&world);
}

Test(access_stream, a_token_is_told_what_it_sees, .timeout = 300) {
    const char *one = getenv("COORD_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    for (seed = first; seed < first + (one ? 1 : SEEDS); seed++) run_seed();
}

/* -- what is hidden ------------------------------------------------------------------------------------------------ */

static void setup(void) {
    fixture_open(&world);
    fixture_found(&world);
}
static void teardown(void) { fixture_close(&world); }

/* Its index stays that of the position, so that the read engine goes on waiting; and its position passes them. */
Test(access_stream, hidden_keys_wake_nobody, .init = setup, .fini = teardown) {
    struct access *access = access_of("key_prefix:read= key_prefix:deny=a/secret");
    struct stream_ask ask;
    uint64_t index, from = machine_index(world.machine);
    stream_ask_init(&ask);
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_PREFIX, "a/");
    stream_ask_from(&ask, from, 0, 0);
    for (unsigned i = 0; i < STREAM_EVENTS_MAX + 10; i++) cr_assert(kv_put(&world, "a/secret", i % 2 ? "1" : "2").yes);
    const Pb__StreamResult *result = answer_as(access, &ask, &index);
    cr_assert(result && result->n_events == 0);
    cr_expect_eq(index, from);
    cr_expect(result->position->index == machine_index(world.machine) && result->position->topic == 0);
    cr_assert(kv_put(&world, "a/open", "1").yes);
    result = answer_as(access, &ask, &index);
    cr_assert(result && result->n_events == 1 && bytes_are(result->events[0]->name, "a/open"));
    cr_expect_eq(index, machine_index(world.machine));
    access_release(access);
}

/* More changes than one answer looks at, of an instance that the token does not see. */
Test(access_stream, hidden_instances_wake_nobody, .init = setup, .fini = teardown) {
    struct access *access = access_of("service_prefix:read= node:read=n1");
    struct stream_ask ask;
    cr_assert(lease_register(&world, &(struct registration){.node = "n1", .service = "web"}).yes);
    cr_assert(lease_register(&world, &(struct registration){.node = "n2", .service = "web", .check = "c"}).yes);
    uint64_t index, from = machine_index(world.machine);
    for (unsigned delta = 0; delta < 2; delta++) {
        stream_ask_init(&ask);
        stream_ask_add(&ask, PB__STREAM_KIND__STREAM_SERVICE, "web");
        stream_ask_from(&ask, from, 0, 0);
        ask.request.delta = delta;
        for (unsigned i = 0; i < STREAM_EVENTS_MAX + 10; i++)
            cr_assert(check_register(&world, "n2", "disk", i % 2 ? PB__STATUS__PASSING : PB__STATUS__CRITICAL).yes);
        const Pb__StreamResult *result = answer_as(access, &ask, &index);
        cr_assert(result && result->n_events == 0);
        cr_expect_eq(index, from);
        cr_expect(result->position->index == machine_index(world.machine) && result->position->topic == 0);
        cr_assert(check_register(&world, "n1", "disk", delta ? PB__STATUS__CRITICAL : PB__STATUS__PASSING).yes);
        result = answer_as(access, &ask, &index);
        cr_assert(result && result->n_events == 1 && !result->events[0]->gone && result->events[0]->n_removed == 0);
        cr_expect_eq(index, machine_index(world.machine));
        from = index;
    }
    access_release(access);
}

Test(access_stream, a_recursive_stream_needs_what_a_list_does, .init = setup, .fini = teardown) {
    struct access *reader = access_of("key_prefix:read="), *lister = access_of("key_prefix:list=");
    struct stream_ask ask;
    uint64_t index;
    stream_ask_init(&ask);
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_PREFIX, "a/");
    cr_expect(answer_as(reader, &ask, &index));
    kv_key_list_policy = true;
    cr_expect_not(answer_as(reader, &ask, &index));
    cr_expect(answer_as(lister, &ask, &index));
    kv_key_list_policy = false;
    access_release(reader), access_release(lister);
}
