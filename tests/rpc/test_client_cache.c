/* Answers that a client agent keeps for the time without servers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "kv/keys/kv.h"
#include "lb/coordinate.h"
#include "registry/catalog.h"
#include "registry/catalog_changes.h"
#include "registry/lease.h"
#include "registry/operator.h"
#include "rpc/client/client_internal.h"

static void each_is(const struct module *module, bool discovery) {
    for (const struct query_type *const *query = module->queries; query && *query; query++)
        if (*query != &query_catalog_changes &&
            *query != &query_catalog_position) /* other regions' servers ask these */
            cr_assert_eq((*query)->discovery, discovery, "%s of %s", (*query)->name, module->name);
}

Test(client_cache, what_is_kept_is_discovery_and_nothing_that_coordinates) {
    each_is(&catalog_module, true);
    each_is(&coordinate_module, true);
    each_is(&lease_module, false);
    each_is(&kv_module, false);
    each_is(&operator_module, false);
}

static void put(struct client_cache *cache, uint16_t query, const char *request, struct slice records, uint64_t index) {
    struct rpc_fetched fetched = {.index = index, .records = records, .found = true};
    client_cache_put(cache, query, slice_text(request), NULL, &fetched, index * 10);
}

static const struct client_kept *get(struct client_cache *cache, uint16_t query, const char *request) {
    return client_cache_get(cache, query, slice_text(request), NULL);
}

Test(client_cache, the_newest_answer_of_a_question) {
    struct client_cache *cache = client_cache_new(1 << 20);
    cr_assert_null(get(cache, 1, "a"));
    put(cache, 1, "a", slice_text("one"), 1);
    put(cache, 2, "a", slice_text("of another query"), 2);
    put(cache, 1, "", slice_text(""), 3);
    put(cache, 1, "a", slice_text("newer"), 4);
    const struct client_kept *kept = get(cache, 1, "a");
    cr_assert(kept && slice_equal(kept->fetched.records, slice_text("newer")));
    cr_assert(kept->fetched.index == 4 && kept->at_ms == 40 && kept->fetched.found);
    cr_assert(slice_equal(get(cache, 2, "a")->fetched.records, slice_text("of another query")));
    cr_assert(get(cache, 1, "")->fetched.records.size == 0);
    cr_assert_null(get(cache, 1, "b"));
    client_cache_free(cache);
}

Test(client_cache, the_records_are_its_own) {
    struct client_cache *cache = client_cache_new(1 << 20);
    char request[] = "request", records[] = "records";
    put(cache, 1, request, slice_text(records), 1);
    memset(request, 'x', sizeof request - 1), memset(records, 'x', sizeof records - 1);
    cr_assert(slice_equal(get(cache, 1, "request")->fetched.records, slice_text("records")));
    client_cache_free(cache);
}

Test(client_cache, what_was_not_used_for_long_goes_first) {
    enum { SIZE = 1000, LIMIT = 20000 };
    static char bytes[SIZE];
    struct client_cache *cache = client_cache_new(LIMIT);
    char name[16];
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "%u", i);
        put(cache, 1, name, slice_make(bytes, SIZE), i + 1);
        cr_assert(get(cache, 1, "0"), "in use all the time");
        cr_assert(get(cache, 1, name), "the newest is there");
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "%u", i);
        const struct client_kept *found = get(cache, 1, name);
        kept += found != NULL;
        cr_assert(!found || i == 0 || i > 1000 - LIMIT / SIZE, "%u is old", i);
    }
    cr_assert(kept > LIMIT / (SIZE + 300) && kept <= LIMIT / SIZE, "%u", kept);
    client_cache_free(cache);
}

Test(client_cache, an_answer_that_is_too_large_replaces_the_old_one_by_nothing) {
    struct client_cache *cache = client_cache_new(4000);
    static char bytes[1000];
    put(cache, 1, "a", slice_text("old"), 1);
    put(cache, 1, "b", slice_text("stays"), 1);
    put(cache, 1, "a", slice_make(bytes, sizeof bytes), 2);
    cr_assert_null(get(cache, 1, "a"), "an old answer that is known to be wrong is not given");
    cr_assert_not_null(get(cache, 1, "b"));
    client_cache_free(cache);
}
