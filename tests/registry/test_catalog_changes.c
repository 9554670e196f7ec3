/* Changes of the catalog since an index: applied to a picture of the catalog as it was then, they make a picture of it
 * as it is now, whatever happened in between, with the whole history, a part of it, or none. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/message.h"
#include "catalog_specs.h"
#include "history_rows.h"
#include "registry/catalog_changes.h"
#include "registry/operator.h"
#include "tests/lib/random_catalog.h"

static struct fixture f;

static const Pb__CatalogChangesResult *ask(const Pb__CatalogAt *from, bool all, uint64_t *index) {
    Pb__CatalogChangesRequest request = PB__CATALOG_CHANGES_REQUEST__INIT;
    request.from = (Pb__CatalogAt *)(uintptr_t)from;
    request.all = all;
    struct query_result result = fixture_ask(&f, &query_catalog_changes, &request.base);
    *index = result.index;
    return (const Pb__CatalogChangesResult *)result.message;
}

static Pb__CatalogAt position(void) {
    Pb__TableRequest request = PB__TABLE_REQUEST__INIT;
    return *(const Pb__CatalogAt *)fixture_ask(&f, &query_catalog_position, &request.base).message;
}

static Pb__CatalogAt now(void) {
    uint64_t index;
    return *ask(NULL, false, &index)->to;
}

static void open_founded(void) {
    fixture_open(&f);
    fixture_found(&f);
}

/* -- against brute force ------------------------------------------------------------------------------------------ */

enum { MOMENTS = 60 };
struct moment {
    Pb__CatalogAt at;
    struct catalog_picture picture;
};

/* window: entries of history; UINT64_MAX: as it is by default */
static void run_seed(uint64_t seed, uint64_t window, bool any_case) {
    struct moment moments[MOMENTS] = {0};
    struct rng rng;
    size_t by_history = 0, walked = 0;
    rng_seed(&rng, seed);
    open_founded();
    if (window != UINT64_MAX) limit(&f, window, 1 << 20, 600000);
    for (size_t i = 0; i < MOMENTS; i++) {
        for (uint64_t more = rng_below(&rng, 6); more > 0; more--) random_catalog_change(&f, &rng, any_case);
        if (rng_below(&rng, 3) == 0) change(&f); /* of a key: the index rises, the catalog stays */
        moments[i].at = now();
        picture_of(&f, &moments[i].picture);
        for (int tries = 0; tries < 5; tries++) {
            const struct moment *from = &moments[rng_below(&rng, i + 1)];
            struct catalog_picture copy = picture_copy(&from->picture);
            bool all = rng_below(&rng, 20) == 0;
            uint64_t index;
            const Pb__CatalogChangesResult *changes = ask(&from->at, all, &index);
            *(changes->complete ? &walked : &by_history) += 1;
            cr_assert_eq(changes->to->index, moments[i].at.index);
            cr_assert(!all || (changes->complete && changes->n_kept == 0));
            picture_take(&copy, changes);
            cr_assert(picture_equal(&copy, &moments[i].picture), "seed %d, from %d to %d", (int)seed,
                      (int)from->at.index, (int)moments[i].at.index);
            bool same = picture_equal(&from->picture, &moments[i].picture);
            cr_assert(same || index > from->at.index, "who waits must hear of it");
            picture_free(&copy);
        }
    }
    cr_assert(window == 0 ? by_history == 0 : by_history > 0);
    cr_assert(window == UINT64_MAX || walked > 20);
    for (size_t i = 0; i < MOMENTS; i++) picture_free(&moments[i].picture);
    fixture_close(&f);
}

Test(catalog_changes, with_the_whole_history) {
    for (uint64_t seed = 1; seed <= 6; seed++) run_seed(seed, UINT64_MAX, seed % 2);
}
Test(catalog_changes, with_a_part_of_the_history) {
    for (uint64_t seed = 11; seed <= 14; seed++) run_seed(seed, 15, seed % 2);
}
Test(catalog_changes, without_history) {
    for (uint64_t seed = 21; seed <= 24; seed++) run_seed(seed, 0, seed % 2);
}

/* -- one by one --------------------------------------------------------------------------------------------------- */

Test(catalog_changes, only_what_changed_is_told) {
    uint64_t index;
    open_founded();
    for (int i = 0; i < 20; i++) {
        char spec[80];
        snprintf(spec, sizeof spec, "node=n%d service=web:web:80 check=c:passing:web output=a", i);
        fixture_register(&f, spec);
    }
    Pb__CatalogAt from = now();
    fixture_register(&f, "node=n3 skip check=c:critical:web");
    const Pb__CatalogChangesResult *changes = ask(&from, false, &index);
    cr_assert(changes->n_entries == 1 && changes->n_removed == 0 && !changes->complete);
    cr_assert_gt(index, from.index);
    from = now();
    fixture_register(&f, "node=n4 skip check=c:passing:web output=another");
    changes = ask(&from, false, &index);
    cr_assert_eq(changes->n_entries, 0, "what a check prints is no change");
    fixture_register(&f, "node=n4 skip service=web:api:80");
    changes = ask(&from, false, &index);
    cr_assert(changes->n_entries == 1 && changes->n_removed == 1);
    cr_assert_str_eq(changes->removed[0]->service, "web");
    cr_assert_str_eq(changes->removed[0]->node, "n4");
    from = now();
    change(&f);
    changes = ask(&from, false, &index);
    cr_assert_leq(index, from.index, "a key is none of it");
    cr_assert_gt(changes->to->index, from.index);
    cr_assert_eq(position().index, index);
    fixture_close(&f);
}

Test(catalog_changes, of_another_life_is_all_of_it) {
    uint64_t index;
    open_founded();
    fixture_register(&f, "node=n service=web:web:80");
    Pb__CatalogAt from = now();
    change(&f);
    from.cluster_id++;
    const Pb__CatalogChangesResult *changes = ask(&from, false, &index);
    cr_assert(changes->complete && changes->n_entries == 1 && index > from.index);
    from.index = 1000000;
    changes = ask(&from, false, &index);
    cr_assert(changes->complete && changes->n_entries == 1 && index > from.index, "it does not wait for so many");
    from = now();
    from.restored = 1;
    changes = ask(&from, false, &index);
    cr_assert(changes->complete && changes->n_entries == 1 && index > from.index);
    fixture_close(&f);
}

Test(catalog_changes, a_server_that_is_behind_says_nothing) {
    uint64_t index;
    open_founded();
    fixture_register(&f, "node=n service=web:web:80");
    Pb__CatalogAt from = now();
    from.index += 10;
    const Pb__CatalogChangesResult *changes = ask(&from, false, &index);
    cr_assert(changes->n_entries == 0 && !changes->complete && changes->to->index < from.index && index < from.index);
    fixture_close(&f);
}

Test(catalog_changes, who_waits_is_woken_by_any_change) {
    (void)f;
    Pb__CatalogChangesRequest request = PB__CATALOG_CHANGES_REQUEST__INIT;
    struct watch_key watched = query_catalog_changes.watched(&request.base);
    open_founded();
    const char *specs[] = {"node=n",
                           "node=n service=web:web:80",
                           "node=n service=web:web:81",
                           "node=n skip check=c:passing:web",
                           "node=n skip check=c:critical:web",
                           "node=n addr=1.2.3.4"};
    for (size_t i = 0; i < ARRAY_COUNT(specs); i++) {
        uint64_t generation = watch_generation(machine_watches(f.machine), watched);
        fixture_register(&f, specs[i]);
        cr_assert_neq(watch_generation(machine_watches(f.machine), watched), generation, "%s", specs[i]);
    }
    uint64_t generation = watch_generation(machine_watches(f.machine), watched);
    fixture_deregister(&f, "n", "web", NULL);
    cr_assert_neq(watch_generation(machine_watches(f.machine), watched), generation);
    fixture_close(&f);
}
