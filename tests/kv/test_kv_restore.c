/* Keys become what they were (kv/keys/kv_restore.c), against what the queries of the present said then. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "answers.h"
#include "base/check.h"
#include "base/random.h"
#include "leases.h"
#include "registry/history.h"

static struct fixture world;
static char session[UUID_TEXT_SIZE + 1], lease[UUID_TEXT_SIZE + 1];

static void begin(void) {
    fixture_open(&world);
    node_register(&world, "n1");
    fixture_found(&world);
    session_id(1, session), lease_uuid(1, lease);
    cr_assert(session_make(&world, session, &(struct session_plan){.node = "n1"}).yes);
    cr_assert(lease_grant(&world, lease, NULL, 0).yes);
}
static void end(void) { fixture_close(&world); }

TestSuite(kv_restore, .init = begin, .fini = end);

static struct outcome outcome;

struct wish {
    const char *key;
    bool recurse, remove, dry_run;
    uint64_t index, unix_ms, now_ms;
};

static const Pb__KvRestoreAnswer *restore(struct wish wish) {
    Pb__KvRestoreCommand command = PB__KV_RESTORE_COMMAND__INIT;
    Pb__KvMoment moment = PB__KV_MOMENT__INIT;
    const ProtobufCMessage *message;
    command.key = (ProtobufCBinaryData){strlen(wish.key), (uint8_t *)(uintptr_t)wish.key};
    command.recurse = wish.recurse, command.remove = wish.remove, command.dry_run = wish.dry_run;
    moment.index = wish.index, moment.unix_ms = wish.unix_ms, moment.now_unix_ms = wish.now_ms;
    command.at = &moment;
    outcome = answer_of(&world, KV_RESTORE, &command.base, &message);
    return (const Pb__KvRestoreAnswer *)message;
}

static uint64_t index_now(void) { return machine_index(world.machine); }

/* "key=value/flags*lock ...", of all that there is. */
static const char *all(void) {
    static char text[4096];
    struct query_result result = kv_list(&world, "");
    const Pb__KvEntriesResult *list = (const Pb__KvEntriesResult *)result.message;
    size_t size = 0;
    text[0] = '\0';
    for (size_t i = 0; list && i < list->n_entries; i++) {
        const Pb__KvEntry *entry = list->entries[i];
        size +=
            (size_t)snprintf(text + size, sizeof text - size, "%s%.*s=%.*s/%lu%s%s", i ? " " : "", (int)entry->key.len,
                             (const char *)entry->key.data, (int)entry->value.len, (const char *)entry->value.data,
                             entry->flags, entry->session[0] ? "*held" : "", entry->lease[0] ? "*leased" : "");
    }
    return text;
}

static void set(const char *key, const char *value, uint64_t flags) {
    cr_assert(kv_do(&world, PB__KV_VERB__KV_SET, key, value, flags, NULL).yes);
}

/* Value and flags, of one key in one entry; nothing else. */
Test(kv_restore, one_key) {
    set("a", "blue", 7), set("b", "1", 0);
    uint64_t then = index_now();
    set("a", "red", 0), set("b", "2", 0), set("a", "green", 1);
    const Pb__KvRestoreAnswer *answer = restore((struct wish){.key = "a", .index = then});
    cr_assert(outcome.yes && answer->set == 1 && answer->removed == 0 && answer->at == then && !answer->n_changes);
    cr_assert_str_eq(all(), "a=blue/7 b=2/0");
    struct query_result now = kv_get(&world, "a");
    cr_assert_eq(entry_of(&now)->modify_index, outcome.index);
    answer = restore((struct wish){.key = "a", .index = then});
    cr_assert(!outcome.yes && !outcome.error && answer->set == 0, "it is so already: no change");
    kv_del(&world, "a");
    cr_assert_eq(restore((struct wish){.key = "a", .index = then})->set, 1, "it is deleted");
    cr_assert_str_eq(all(), "a=blue/7 b=2/0");
}

Test(kv_restore, a_key_that_was_not_there) {
    set("b", "1", 0);
    uint64_t then = index_now();
    set("a", "red", 0);
    const Pb__KvRestoreAnswer *answer = restore((struct wish){.key = "a", .index = then});
    cr_assert(!outcome.yes && !outcome.error && answer->absent && answer->removed == 0);
    cr_assert_str_eq(all(), "a=red/0 b=1/0");
    answer = restore((struct wish){.key = "a", .index = then, .remove = true});
    cr_assert(outcome.yes && answer->removed == 1);
    cr_assert_str_eq(all(), "b=1/0");
    answer = restore((struct wish){.key = "never", .index = then, .remove = true});
    cr_assert(!outcome.yes && answer->absent && answer->removed == 0);
    set("c", "1", 0);
    then = index_now();
    cr_assert_not(restore((struct wish){.key = "c", .index = then})->absent, "it is there, unchanged since");
}

Test(kv_restore, below_a_prefix_what_is_new_goes) {
    set("a/1", "x", 0), set("a/2", "y", 3), set("b", "1", 0);
    uint64_t then = index_now();
    set("a/1", "X", 0), kv_del(&world, "a/2"), set("a/3", "z", 0), set("b", "2", 0), set("a", "beside", 0);
    const Pb__KvRestoreAnswer *answer =
        restore((struct wish){.key = "a/", .recurse = true, .dry_run = true, .index = then});
    cr_assert(outcome.yes && answer->set == 2 && answer->removed == 1 && answer->n_changes == 3);
    cr_assert(bytes_are(answer->changes[1]->key, "a/2") && bytes_are(answer->changes[1]->value, "y") &&
              answer->changes[1]->flags == 3 && answer->changes[2]->remove);
    cr_assert_str_eq(all(), "a=beside/0 a/1=X/0 a/3=z/0 b=2/0", "a dry run");
    answer = restore((struct wish){.key = "a/", .recurse = true, .index = then});
    cr_assert(outcome.yes && answer->set == 2 && answer->removed == 1);
    cr_assert_str_eq(all(), "a=beside/0 a/1=x/0 a/2=y/3 b=2/0");
    set("a/1", "again", 0);
    cr_assert_eq(restore((struct wish){.key = "", .recurse = true, .index = then})->removed, 1);
    cr_assert_str_eq(all(), "a/1=x/0 a/2=y/3 b=1/0", "all of them");
}

/* As a put and a delete of somebody else: a lock stays with its holder, and a lease lets the key go. */
Test(kv_restore, locks_and_leases_are_as_with_a_put) {
    set("a", "1", 0), set("l", "1", 0);
    uint64_t then = index_now();
    cr_assert(kv_acquire(&world, "a", "2", session).yes);
    kv_put_leased(&world, "l", "2", lease);
    cr_assert(kv_acquire(&world, "new", "2", session).yes);
    cr_assert_eq(restore((struct wish){.key = "", .recurse = true, .index = then})->set, 2);
    cr_assert_str_eq(all(), "a=1/0*held l=1/0");
    cr_assert(lease_revoke(&world, lease).yes);
    cr_assert(session_drop(&world, session).yes);
    cr_assert_str_eq(all(), "a=1/0 l=1/0");
}

Test(kv_restore, moments) {
    world.unix_ms = 1000, set("a", "1", 0);
    world.unix_ms = 2000, set("a", "2", 0);
    world.unix_ms = 1500, set("a", "3", 0); /* another leader: it is 2000 still */
    world.unix_ms = 3000, set("a", "4", 0);
    cr_assert_eq(restore((struct wish){.key = "a", .unix_ms = 1999})->set, 1);
    cr_assert_str_eq(all(), "a=1/0");
    cr_assert_eq(restore((struct wish){.key = "a", .unix_ms = 2000})->set, 1);
    cr_assert_str_eq(all(), "a=3/0");
    cr_assert_eq(restore((struct wish){.key = "a", .unix_ms = 3000})->verdict, PB__KV_MOMENT_VERDICT__MOMENT_KEPT);
    cr_assert_eq(restore((struct wish){.key = "a", .unix_ms = 3001})->verdict, PB__KV_MOMENT_VERDICT__MOMENT_TO_COME);
    cr_assert_eq(restore((struct wish){.key = "a", .unix_ms = 3001, .now_ms = 3001})->verdict,
                 PB__KV_MOMENT_VERDICT__MOMENT_KEPT);
    cr_assert_eq(restore((struct wish){.key = "a", .index = index_now() + 1})->verdict,
                 PB__KV_MOMENT_VERDICT__MOMENT_TO_COME, "its own entry is no past");
    cr_assert_eq(restore((struct wish){.key = "a", .index = index_now()})->verdict, PB__KV_MOMENT_VERDICT__MOMENT_KEPT);
    cr_assert_eq(restore((struct wish){.key = "a", .index = 1})->verdict, PB__KV_MOMENT_VERDICT__MOMENT_GONE);
    cr_assert_not(outcome.yes);
}

static void many(const char *head, unsigned count, size_t bytes) {
    char key[64], *value = mem_alloc(bytes + 1);
    memset(value, 'v', bytes), value[bytes] = '\0';
    for (unsigned i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%s%u", head, i);
        set(key, value, 0);
    }
    free(value);
}

Test(kv_restore, more_than_one_entry_may_change_is_refused, .timeout = 60) {
    set("small", "1", 0);
    uint64_t then = index_now();
    set("small", "2", 0), many("large/", 9, (size_t)500 << 10);
    cr_assert(restore((struct wish){.key = "", .recurse = true, .index = then})->too_large && !outcome.yes);
    cr_assert_not(restore((struct wish){.key = "s", .recurse = true, .index = then})->too_large);
    cr_assert_not(restore((struct wish){.key = "large/1", .recurse = true, .index = then})->too_large);
    then = index_now();
    many("many/", KV_RESTORE_KEYS_MAX + 1, 1);
    cr_assert(restore((struct wish){.key = "many/", .recurse = true, .index = then})->too_large);
    kv_del(&world, "many/7");
    const Pb__KvRestoreAnswer *answer = restore((struct wish){.key = "many/", .recurse = true, .index = then});
    cr_assert(!answer->too_large && answer->removed == KV_RESTORE_KEYS_MAX);
    cr_assert_eq(history_floor(store_read(world.reader), HISTORY_KEYS) < then, true, "the history is whole");
    store_read_done(world.reader);
}

/* -- against the queries of the present --------------------------------------------------------------------------- */

enum { KEYS = 10, STEPS = 150, SEEDS = 6, INDEXES = 600 };
static char names[KEYS][700];
static struct was {
    bool there;
    char value[16];
    uint64_t flags;
} states[INDEXES][KEYS];

static void look(void) {
    struct was *state = states[index_now()];
    for (unsigned i = 0; i < KEYS; i++) {
        struct query_result result = kv_get(&world, names[i]);
        state[i] = (struct was){.there = result.found};
        if (!result.found) continue;
        snprintf(state[i].value, sizeof state[i].value, "%.*s", (int)entry_of(&result)->value.len,
                 (const char *)entry_of(&result)->value.data);
        state[i].flags = entry_of(&result)->flags;
    }
}

static void check_restored(struct wish wish, uint64_t seed) {
    struct was before[KEYS];
    memcpy(before, states[index_now()], sizeof before);
    restore(wish);
    cr_assert_eq(outcome.error, CO_OK, "seed %lu: %s", seed, outcome.text);
    look();
    const struct was *now = states[index_now()], *then = states[wish.index];
    for (unsigned i = 0; i < KEYS; i++) {
        bool meant =
            wish.recurse ? strncmp(names[i], wish.key, strlen(wish.key)) == 0 : strcmp(names[i], wish.key) == 0;
        if (meant && !wish.recurse && !then[i].there && !wish.remove) meant = false;
        const struct was *wanted = meant && !wish.dry_run ? &then[i] : &before[i];
        cr_assert_eq(now[i].there, wanted->there, "seed %lu: key %u to %lu", seed, i, wish.index);
        cr_assert(!now[i].there || (strcmp(now[i].value, wanted->value) == 0 && now[i].flags == wanted->flags),
                  "seed %lu: key %u to %lu", seed, i, wish.index);
    }
}

static void one_world(uint64_t seed) {
    struct rng rng;
    rng_seed(&rng, seed);
    uint64_t began = index_now();
    look();
    for (unsigned step = 0; step < STEPS; step++) {
        const char *key = names[rng_below(&rng, KEYS)];
        char value[16];
        snprintf(value, sizeof value, "v%lu", rng_below(&rng, 4));
        if (rng_below(&rng, 4) == 0) kv_del(&world, key);
        else set(key, value, rng_below(&rng, 2));
        look();
        if (step % 3) continue;
        char head[700];
        snprintf(head, sizeof head, "%s", names[rng_below(&rng, KEYS)]);
        bool recurse = rng_below(&rng, 2);
        if (recurse) head[rng_below(&rng, strlen(head) + 1)] = '\0';
        uint64_t back = rng_below(&rng, index_now() - began + 1);
        check_restored((struct wish){.key = head,
                                     .recurse = recurse,
                                     .remove = rng_below(&rng, 2),
                                     .dry_run = rng_below(&rng, 6) == 0,
                                     .index = index_now() - back},
                       seed);
    }
}

Test(kv_restore, is_what_it_was, .timeout = 120) {
    static const char *const plain[] = {"a", "a/", "a/b", "ab", "b"};
    for (unsigned i = 0; i < KEYS; i++) { /* long ones share their beginnings */
        if (i >= ARRAY_COUNT(plain)) memset(names[i], 'a', 420 + i / 2);
        snprintf(names[i] + strlen(names[i]), 32, "%s", i < ARRAY_COUNT(plain) ? plain[i] : i % 2 ? "/x" : "/y");
    }
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        end(), begin();
        one_world(seed);
    }
}
