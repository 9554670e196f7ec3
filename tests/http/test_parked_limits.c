/* Places of what waits: no address and no token has more than its limit, and each place comes back once. */
#include <criterion/criterion.h>

#include "base/memory.h"
#include "base/random.h"
#include "http/parked_limits.h"

static enum parked_limit over;

static bool takes(struct parked_limits *limits, uint64_t address, uint64_t token, struct parked_place *place) {
    return parked_limits_take(limits, (uint64_t[]){[PARKED_ADDRESS] = address, [PARKED_TOKEN] = token}, place, &over);
}

Test(parked_limits, nothing_is_limited_without_a_limit) {
    cr_assert_null(parked_limits_new(&(struct parked_config){.permissive = true}));
    struct parked_place place = {0};
    cr_assert(takes(NULL, 1, 2, &place));
    cr_assert_eq(over, PARKED_LIMITS);
    parked_limits_give(NULL, &(struct parked_place){0});
    parked_limits_free(NULL);
}

Test(parked_limits, one_address_does_not_take_the_places_of_another) {
    struct parked_limits *limits = parked_limits_new(&(struct parked_config){.most[PARKED_ADDRESS] = 3});
    struct parked_place places[6] = {{{0}, false}}, more = {{0}, false};
    for (int i = 0; i < 3; i++) cr_assert(takes(limits, 1, 0, &places[i]));
    cr_assert_not(takes(limits, 1, 0, &more));
    cr_assert_eq(over, PARKED_ADDRESS);
    cr_assert_not(more.taken);
    for (int i = 3; i < 6; i++) cr_assert(takes(limits, 2, 0, &places[i]));
    parked_limits_give(limits, &places[0]);
    parked_limits_give(limits, &places[0]); /* its wait ends twice: the client hung up, and the server stops */
    cr_assert(takes(limits, 1, 0, &places[0]));
    cr_assert_not(takes(limits, 1, 0, &more));
    for (int i = 0; i < 6; i++) parked_limits_give(limits, &places[i]);
    cr_assert_eq(parked_limits_known(limits), 0, "who has nothing waiting is forgotten");
    parked_limits_free(limits);
}

Test(parked_limits, a_request_that_one_limit_refuses_takes_from_none) {
    struct parked_limits *limits =
        parked_limits_new(&(struct parked_config){.most = {[PARKED_ADDRESS] = 3, [PARKED_TOKEN] = 1}});
    struct parked_place first = {0}, second = {0}, third = {0}, more = {0};
    cr_assert(takes(limits, 1, 9, &first));
    for (int i = 0; i < 10; i++) cr_assert_not(takes(limits, 1, 9, &more));
    cr_assert_eq(over, PARKED_TOKEN);
    cr_assert(takes(limits, 1, 8, &second) && takes(limits, 1, 0, &third));
    cr_assert_not(takes(limits, 1, 7, &more));
    cr_assert_eq(over, PARKED_ADDRESS);
    parked_limits_give(limits, &first), parked_limits_give(limits, &second), parked_limits_give(limits, &third);
    cr_assert_eq(parked_limits_known(limits), 0);
    parked_limits_free(limits);
}

Test(parked_limits, permissive_tells_and_gives_a_place) {
    struct parked_limits *limits =
        parked_limits_new(&(struct parked_config){.most[PARKED_TOKEN] = 1, .permissive = true});
    struct parked_place first = {0}, second = {0};
    cr_assert(takes(limits, 1, 9, &first) && over == PARKED_LIMITS);
    cr_assert(takes(limits, 1, 9, &second) && over == PARKED_TOKEN);
    parked_limits_give(limits, &first), parked_limits_give(limits, &second);
    cr_assert_eq(parked_limits_known(limits), 0);
    parked_limits_free(limits);
}

/* Against plain counters, with as many clients as share chains. */
Test(parked_limits, a_crowd) {
    enum { CLIENTS = 3000, PLACES = 6000, MOST = 3 };
    struct parked_limits *limits =
        parked_limits_new(&(struct parked_config){.most = {[PARKED_ADDRESS] = MOST, [PARKED_TOKEN] = MOST}});
    struct parked_place *places = mem_zalloc(PLACES * sizeof *places);
    unsigned counts[2][CLIENTS + 1] = {{0}}, owner[PLACES][2] = {{0}};
    struct rng rng;
    rng_seed(&rng, 1);
    for (int step = 0; step < 200000; step++) {
        size_t i = rng_below(&rng, PLACES);
        if (places[i].taken) {
            parked_limits_give(limits, &places[i]);
            counts[0][owner[i][0]]--, counts[1][owner[i][1]]--;
            continue;
        }
        unsigned address = 1 + (unsigned)rng_below(&rng, CLIENTS), token = (unsigned)rng_below(&rng, CLIENTS + 1);
        bool fits = counts[0][address] < MOST && (!token || counts[1][token] < MOST);
        cr_assert_eq(takes(limits, address, token, &places[i]), fits);
        if (fits) counts[0][owner[i][0] = address]++, counts[1][owner[i][1] = token]++;
    }
    size_t known = 0;
    for (unsigned c = 1; c <= CLIENTS; c++) known += (counts[0][c] > 0) + (counts[1][c] > 0);
    cr_assert_eq(parked_limits_known(limits), known);
    for (int i = 0; i < PLACES; i++) parked_limits_give(limits, &places[i]);
    cr_assert_eq(parked_limits_known(limits), 0);
    parked_limits_free(limits);
    free(places);
}
