/* For random things and tokens with random rules: a token gets exactly the rows that it may read, and no name that it may
 * not read. A failure names its seed: COORD_SEED=N runs that one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "access_kv.h"
#include "base/check.h"

enum { SEEDS = 8, TOKENS = 12, ASKS = 6 };

static struct fixture world;
static struct known_things known;

/* A thing's name, or a beginning of one; sometimes of none. */
static const char *some_name(const struct known_query *query) {
    static const char *const prefixes[] = {"", "", "g", "h/", "i/1/", "none"};
    if (query->one == ACCESS_RESOURCES) {
        bool node = query->type == &query_sessions && rng_below(&known.rng, 2);
        return node ? known_any(&known, ACCESS_NODE) : prefixes[rng_below(&known.rng, ARRAY_COUNT(prefixes))];
    }
    return rng_below(&known.rng, 8) ? known_any(&known, query->one) : "none";
}

static void judge_seed(uint64_t seed, unsigned *noticed) {
    known_open(&known, &world, seed);
    for (unsigned token = 0; token < TOKENS; token++) {
        struct access *access = known_access(&known);
        for (size_t i = 0; i < known_queries_count; i++)
            for (unsigned ask = 0; ask < ASKS; ask++) {
                const struct known_query *query = &known_queries[i];
                const char *name = some_name(query);
                const char *fault = known_fault(&known, access, query, name, false);
                cr_assert_null(fault, "seed %lu: %s of \"%s\": %s", seed, query->type->name, name, fault);
                noticed[i] += known_fault(&known, access, query, name, true) != NULL;
            }
        access_release(access);
    }
    known_close(&known);
}

Test(access_subsets, a_token_gets_what_it_may_read_and_nothing_else, .timeout = 300) {
    const char *one = getenv("COORD_SEED");
    unsigned noticed[64] = {0};
    cr_assert_leq(known_queries_count, ARRAY_COUNT(noticed));
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (one ? 1 : SEEDS); seed++) judge_seed(seed, noticed);
    /* The judge notices the answer for everybody, with each of the queries. */
    for (size_t i = 0; i < known_queries_count && !one; i++)
        cr_expect_gt(noticed[i], 0, "%s: row %zu", known_queries[i].type->name, i);
}
