/* Answers kept: good while the generations stand, bounded in entries and bytes. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "dns/cache.h"
#include "registry/catalog.h"
#include "tests/lib/fake_rpc.h"

static struct rpc *rpc;
static struct answer_builder *builder;
static struct dns_depends depends;

static void set_up(void) {
    rpc = fake_rpc_start(NULL);
    builder = answer_builder_new();
}
static void tear_down(void) {
    dns_depends_free(&depends);
    answer_builder_free(builder);
    fake_rpc_stop(rpc);
}
TestSuite(dns_cache, .init = set_up, .fini = tear_down);

static struct watch_key watched(const char *name) { return (struct watch_key){SPACE_SERVICE, slice_text(name)}; }

static void change(const char *name) {
    struct watch_touched touched = {0};
    watch_touch(&touched, watched(name));
    watch_bump(rpc_watches(rpc), &touched);
    watch_touched_free(&touched);
}

/* An answer with `count` addresses. */
static struct answer *answer_of(unsigned count) {
    answer_start(builder, NULL);
    for (unsigned i = 0; i < count; i++) {
        uint8_t address[4];
        put_be32(address, i);
        answer_address(builder, (struct answer_place){ANSWER_SHUFFLED, ANSWER_QUESTION, 0}, address, 4);
    }
    return answer_finish(builder, 0);
}

static struct dns_cache_key key(const char *name, uint16_t type) {
    return (struct dns_cache_key){slice_text(name), type};
}

static bool store(struct dns_cache *cache, const char *name, uint16_t type, unsigned count) {
    return dns_cache_store(cache, key(name, type), &depends, (struct dns_cache_value){.answer = answer_of(count)});
}

Test(dns_cache, found_until_something_changes) {
    struct dns_cache *cache = dns_cache_new(rpc, 64, 1 << 20, true);
    dns_depends_reset(&depends);
    dns_depends_add(&depends, rpc, watched("one"));
    dns_depends_add(&depends, rpc, watched("two"));
    cr_expect(store(cache, "name", TYPE_A, 3));
    cr_expect(store(cache, "name", TYPE_SRV, 4));
    cr_expect(eq(sz, answer_count(dns_cache_find(cache, key("name", TYPE_A))->answer), 3));
    cr_expect(eq(sz, answer_count(dns_cache_find(cache, key("name", TYPE_SRV))->answer), 4));
    cr_expect(dns_cache_find(cache, key("name", TYPE_AAAA)) == NULL);
    cr_expect(dns_cache_find(cache, key("nam", TYPE_A)) == NULL);
    change("three");
    cr_expect(dns_cache_find(cache, key("name", TYPE_A)) != NULL);
    change("two");
    cr_expect(dns_cache_find(cache, key("name", TYPE_A)) == NULL);
    cr_expect(eq(sz, dns_cache_count(cache), 1));
    cr_expect(dns_cache_find(cache, key("name", TYPE_SRV)) == NULL);
    cr_expect(eq(sz, dns_cache_bytes(cache), 0));
    dns_cache_free(cache);
}

/* An answer is never served if its data changed between reading the generation and storing the answer. */
Test(dns_cache, a_change_while_it_was_made) {
    struct dns_cache *cache = dns_cache_new(rpc, 64, 1 << 20, true);
    dns_depends_reset(&depends);
    dns_depends_add(&depends, rpc, watched("one"));
    change("one");
    store(cache, "name", TYPE_A, 1);
    cr_expect(dns_cache_find(cache, key("name", TYPE_A)) == NULL);
    dns_cache_free(cache);
}

/* An answer that is slow to make outlives a change for ten times as long, where stale answers are allowed; others do
 * not. */
Test(dns_cache, slow_answers_rest) {
    for (unsigned stale = 0; stale < 2; stale++) {
        struct dns_cache *cache = dns_cache_new(rpc, 64, 1 << 20, stale);
        const uint64_t cost_ns = 30000000, before_ns = clock_mono_ns();
        dns_depends_reset(&depends);
        dns_depends_add(&depends, rpc, watched("one"));
        dns_cache_store(cache, key("slow", TYPE_A), &depends,
                        (struct dns_cache_value){.answer = answer_of(1), .cost_ns = cost_ns});
        dns_cache_store(cache, key("fast", TYPE_A), &depends,
                        (struct dns_cache_value){.answer = answer_of(1), .cost_ns = DNS_CACHE_SLOW_NS - 1});
        change("one");
        cr_expect(dns_cache_find(cache, key("fast", TYPE_A)) == NULL);
        bool found = dns_cache_find(cache, key("slow", TYPE_A)) != NULL;
        cr_expect(found == stale || clock_mono_ns() - before_ns > cost_ns * DNS_CACHE_REST_FACTOR);
        while (stale && dns_cache_find(cache, key("slow", TYPE_A))) {
            cr_assert(lt(u64, clock_mono_ns() - before_ns, UINT64_C(20000000000)));
        }
        if (found) cr_expect(ge(u64, clock_mono_ns() - before_ns, cost_ns * DNS_CACHE_REST_FACTOR));
        dns_cache_free(cache);
    }
}

Test(dns_cache, too_many_things) {
    struct dns_cache *cache = dns_cache_new(rpc, 64, 1 << 20, true);
    dns_depends_reset(&depends);
    for (unsigned i = 0; i < DNS_CACHE_DEPENDS_MAX; i++) dns_depends_add(&depends, rpc, watched("one"));
    cr_expect(store(cache, "name", TYPE_A, 1));
    dns_depends_add(&depends, rpc, watched("one"));
    cr_expect(not(store(cache, "other", TYPE_A, 1)));
    cr_expect(dns_cache_find(cache, key("other", TYPE_A)) == NULL);
    dns_cache_free(cache);
}

Test(dns_cache, stored_again) {
    struct dns_cache *cache = dns_cache_new(rpc, 64, 1 << 20, true);
    dns_depends_reset(&depends);
    store(cache, "name", TYPE_A, 1);
    size_t bytes = dns_cache_bytes(cache);
    store(cache, "name", TYPE_A, 1);
    cr_expect(eq(sz, dns_cache_bytes(cache), bytes));
    cr_expect(eq(sz, dns_cache_count(cache), 1));
    struct dns_cache_value tags = {.tags = calloc(4, sizeof(uint64_t)), .tag_count = 4};
    cr_expect(dns_cache_store(cache, key("name", 0xff01), &depends, tags));
    cr_expect(eq(sz, dns_cache_find(cache, key("name", 0xff01))->tag_count, 4));
    dns_cache_free(cache);
}

Test(dns_cache, bounded_in_entries) {
    struct dns_cache *cache = dns_cache_new(rpc, 64, 1 << 24, true);
    dns_depends_reset(&depends);
    for (unsigned i = 0; i < 1000; i++) {
        char name[20];
        snprintf(name, sizeof(name), "name-%u", i);
        store(cache, name, TYPE_A, 1);
        cr_expect(dns_cache_find(cache, key(name, TYPE_A)) != NULL);
        cr_assert(le(sz, dns_cache_count(cache), 64));
    }
    cr_expect(gt(sz, dns_cache_count(cache), 50));
    dns_cache_free(cache);
}

/* Answers that are asked for often stay when the bytes run out. */
Test(dns_cache, bounded_in_bytes) {
    struct dns_cache *cache = dns_cache_new(rpc, 4096, 64 * 1024, true);
    dns_depends_reset(&depends);
    store(cache, "hot", TYPE_A, 2);
    unsigned lost = 0;
    for (unsigned i = 0; i < 1000; i++) {
        char name[20];
        snprintf(name, sizeof(name), "name-%u", i);
        store(cache, name, TYPE_A, 1 + i % 20);
        cr_assert(le(sz, dns_cache_bytes(cache), 64 * 1024));
        if (!dns_cache_find(cache, key("hot", TYPE_A))) {
            lost++;
            store(cache, "hot", TYPE_A, 2);
        }
    }
    cr_expect(lt(uint, lost, 5));
    cr_expect(gt(sz, dns_cache_bytes(cache), 32 * 1024));
    cr_expect(not(store(cache, "huge", TYPE_A, 2000)));
    cr_expect(dns_cache_find(cache, key("huge", TYPE_A)) == NULL);
    dns_cache_free(cache);
}
