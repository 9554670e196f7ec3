/* Ready answers: used while they are right, and never after. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "http/impl.h"
#include "kv/keys/kv.h"
#include "web_world.h"

#define HITS(world)   web_metric(world, "coord_http_cache_hits_total")
#define MISSES(world) web_metric(world, "coord_http_cache_misses_total")

static void put(const struct world *world, const char *key, const char *value) {
    char target[128];
    snprintf(target, sizeof target, "PUT /v1/kv/%s", key);
    free(web_want(world, 200, target, value));
}

static struct web_answer get_on(int fd, const char *target, const char *headers) {
    web_say(fd, "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", target, headers);
    return web_hear(fd);
}

Test(cache, third_read_is_ready) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    char *first = web_want(world, 200, "GET /v1/kv/a", NULL), *second = web_want(world, 200, "GET /v1/kv/a", NULL);
    uint64_t hits = HITS(world), misses = MISSES(world);
    cr_expect(hits == 0 && misses == 2);
    char *third = web_want(world, 200, "GET /v1/kv/a", NULL);
    cr_expect(HITS(world) == 1 && MISSES(world) == 2);
    cr_expect_str_eq(first, second);
    cr_expect_str_eq(first, third);
    free(first), free(second), free(third);
    world_stop(world);
}

Test(cache, a_change_ends_it) {
    struct world *world = world_start(NULL);
    for (int i = 0; i < 200; i++) {
        char value[16];
        snprintf(value, sizeof value, "%d", i);
        put(world, "a", value);
        for (int repeat = 0; repeat < 3; repeat++) {
            char *body = web_want(world, 200, "GET /v1/kv/a?raw", NULL);
            cr_assert_str_eq(body, value);
            free(body);
        }
    }
    cr_expect(HITS(world) >= 200);
    free(web_want(world, 200, "DELETE /v1/kv/a", NULL));
    free(web_want(world, 404, "GET /v1/kv/a?raw", NULL));
    world_stop(world);
}

Test(cache, each_form_is_its_own) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    static const struct {
        const char *target, *body, *consistency;
    } forms[] = {
        {"GET /v1/kv/a",
         "[{\"LockIndex\":0,\"Key\":\"a\",\"Flags\":0,\"Value\":\"MQ==\",\"CreateIndex\":1,\"ModifyIndex\":1}"
         "]",
         "leader"},
        {"GET /v1/kv/a?stale",
         "[{\"LockIndex\":0,\"Key\":\"a\",\"Flags\":0,\"Value\":\"MQ==\",\"CreateIndex\":1,\"ModifyIndex\":1}"
         "]",
         "stale"},
        {"GET /v1/kv/a?consistent",
         "[{\"LockIndex\":0,\"Key\":\"a\",\"Flags\":0,\"Value\":\"MQ==\",\"CreateIndex\":1,\"ModifyIndex\":1}"
         "]",
         "consistent"},
        {"GET /v1/kv/a?raw", "1", "leader"},
        {"GET /v1/kv/a?keys", "[\"a\"]", "leader"},
        {"GET /v1/kv/a?keys&pretty", "[\n    \"a\"\n]\n", "leader"},
    };
    for (int repeat = 0; repeat < 4; repeat++) {
        for (size_t i = 0; i < ARRAY_COUNT(forms); i++) {
            struct web_answer answer = web_ask(world, forms[i].target, NULL);
            cr_expect_str_eq(answer.body, forms[i].body);
            cr_expect_str_eq(web_header(&answer, "X-Consul-Effective-Consistency"), forms[i].consistency);
            web_free(&answer);
        }
    }
    struct web_answer raw = web_ask(world, "GET /v1/kv/a?raw", NULL);
    cr_expect_str_eq(web_header(&raw, "Content-Security-Policy"), "sandbox", "the view's own header is kept too");
    cr_expect_str_eq(web_header(&raw, "Content-Type"), "text/plain");
    web_free(&raw);
    world_stop(world);
}

/* The key is the target alone. */
Test(cache, what_a_write_answers_with_is_not_kept) {
    struct world *world = world_start(NULL);
    static const char path[] = "/v1/session/renew/5e551000-0000-4000-8000-000000000001";
    char put_it[100], get_it[100];
    snprintf(put_it, sizeof put_it, "PUT %s", path);
    snprintf(get_it, sizeof get_it, "GET %s", path);
    for (int i = 0; i < 4; i++) free(web_want(world, 404, put_it, NULL));
    free(web_want(world, 405, get_it, NULL));
    cr_expect(HITS(world) == 0);
    world_stop(world);
}

Test(cache, headers_follow_the_cluster) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    for (int i = 0; i < 4; i++) free(web_want(world, 200, "GET /v1/kv/a?stale", NULL));
    fake_rpc_leader(world_rpc(world), false);
    struct web_answer answer = web_ask(world, "GET /v1/kv/a?stale", NULL);
    cr_expect_str_eq(web_header(&answer, "X-Consul-KnownLeader"), "false");
    web_free(&answer);
    fake_rpc_leader(world_rpc(world), true);
    fake_rpc_floor(world_rpc(world), 77);
    answer = web_ask(world, "GET /v1/kv/a?stale", NULL);
    cr_expect_str_eq(web_header(&answer, "X-Consul-KnownLeader"), "true");
    cr_expect(web_index(&answer) == 77);
    web_free(&answer);
    world_stop(world);
}

Test(cache, ready_default_reads_are_confirmed) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    for (int i = 0; i < 4; i++) free(web_want(world, 200, "GET /v1/kv/a", NULL));
    fake_rpc_hold_rounds(world_rpc(world), true);
    int fd = web_dial(world);
    web_say(fd, "GET /v1/kv/a HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(web_silent(fd, 30));
    put(world, "a", "2");
    fake_rpc_hold_rounds(world_rpc(world), false);
    struct web_answer answer = web_hear(fd);
    cr_expect(strstr(answer.body, "Mg=="), "what changed before it was confirmed is in it: %s", answer.body);
    web_free(&answer);
    close(fd);
    world_stop(world);
}

/* ---- gzip ---- */

static void gunzip(const struct web_answer *answer, char *out, size_t room) {
    z_stream stream = {.next_in = (Bytef *)answer->body,
                       .avail_in = (uInt)answer->size,
                       .next_out = (Bytef *)out,
                       .avail_out = (uInt)room - 1};
    cr_assert(inflateInit2(&stream, 15 + 16) == Z_OK && inflate(&stream, Z_FINISH) == Z_STREAM_END);
    out[stream.total_out] = '\0';
    inflateEnd(&stream);
}

Test(cache, gzip_for_those_who_take_it) {
    struct world *world = world_start(NULL);
    char value[2000];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    put(world, "big", value);
    put(world, "small", "1");
    static const struct {
        const char *header;
        bool packed;
    } cases[] = {
        {"Accept-Encoding: gzip\r\n", true},
        {"Accept-Encoding: deflate, GZIP;q=0.5\r\n", true},
        {"", false},
        {"Accept-Encoding: gzip;q=0\r\n", false},
        {"Accept-Encoding: identity\r\n", false},
        {"Accept-Encoding: xgzip\r\n", false},
        {"accept-encoding: br,gzip\r\n", true},
    };
    int fd = web_dial(world);
    for (int repeat = 0; repeat < 4; repeat++) {
        for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
            struct web_answer answer = get_on(fd, "/v1/kv/big", cases[i].header), plain = get_on(fd, "/v1/kv/big", "");
            char text[8192];
            cr_expect_str_eq(web_header(&answer, "Content-Encoding"), cases[i].packed ? "gzip" : "", "%s",
                             cases[i].header);
            cr_expect_str_eq(web_header(&answer, "Vary"), "Accept-Encoding");
            if (cases[i].packed) {
                gunzip(&answer, text, sizeof text);
                cr_expect_str_eq(text, plain.body);
            } else {
                cr_expect_str_eq(answer.body, plain.body);
            }
            web_free(&answer);
            web_free(&plain);
        }
        struct web_answer small = get_on(fd, "/v1/kv/small", "Accept-Encoding: gzip\r\n");
        cr_expect_str_eq(web_header(&small, "Content-Encoding"), "", "it would only grow");
        web_free(&small);
    }
    close(fd);
    world_stop(world);
}

/* ---- bounds ---- */

static struct answer *answer_for(const char *key, size_t size) {
    struct answer *answer = answer_new();
    answer->depends.type = &query_kv_get;
    char *body = mem_zalloc(size);
    answer->key = slice_text(key);
    answer->key_hash = 0x123456789abcdefu * (uint64_t)(strlen(key) * 131 + (unsigned char)key[0]);
    answer->plain = bytes_copy(body, size);
    free(body);
    return answer;
}

/* Offered twice, so that it is taken if it may be. */
static bool offer(struct cache *cache, const char *key, size_t size) {
    for (int i = 0; i < 2; i++) {
        struct answer *answer = answer_for(key, size);
        cache_offer(cache, answer);
        if (answer->kept) return true;
        ready_answer_free(answer);
    }
    return false;
}

static bool kept(struct cache *cache, const char *key) {
    struct answer *probe = answer_for(key, 1);
    bool found = cache_find(cache, probe->key, probe->key_hash, 0) != NULL;
    ready_answer_free(probe);
    return found;
}

Test(cache, is_bounded_and_forgets_the_least_used) {
    struct cache *cache = cache_new(100000);
    cr_expect(!offer(cache, "huge", 30000), "more than a quarter is not worth it");
    cr_expect(offer(cache, "a", 20000) && offer(cache, "bb", 20000) && offer(cache, "ccc", 20000) &&
              offer(cache, "dddd", 20000));
    cr_expect(kept(cache, "a"), "and is now the last used");
    cr_expect(offer(cache, "eeeee", 20000));
    cr_expect(!kept(cache, "bb"));
    cr_expect(kept(cache, "a") && kept(cache, "ccc") && kept(cache, "dddd") && kept(cache, "eeeee"));
    cache_free(cache);
}

Test(cache, one_read_is_not_enough) {
    struct cache *cache = cache_new(100000);
    struct answer *answer = answer_for("once", 10);
    cache_offer(cache, answer);
    cr_expect(!answer->kept);
    ready_answer_free(answer);
    cr_expect(!kept(cache, "once"));
    cache_free(cache);
}

/* ---- readers and a writer ---- */

struct race {
    struct world *world;
    _Atomic bool done;
    _Atomic unsigned acknowledged;
};

/* A write that was acknowledged before a read began is in its answer. */
static void *race_reader(void *data) {
    struct race *race = data;
    int fd = web_dial(race->world);
    uintptr_t stale = 0;
    while (!race->done) {
        unsigned least = race->acknowledged;
        struct web_answer answer = get_on(fd, "/v1/kv/race?raw", "");
        stale += answer.status != 200 || (unsigned)atoi(answer.body) < least;
        web_free(&answer);
    }
    close(fd);
    return (void *)stale;
}

Test(cache, never_older_than_what_was_acknowledged) {
    struct race race = {.world = world_start(NULL)};
    put(race.world, "race", "0");
    pthread_t readers[4];
    for (size_t i = 0; i < ARRAY_COUNT(readers); i++) pthread_create(&readers[i], NULL, race_reader, &race);
    for (unsigned i = 1; i <= 500; i++) {
        char value[16];
        snprintf(value, sizeof value, "%u", i);
        put(race.world, "race", value);
        race.acknowledged = i;
    }
    race.done = true;
    for (size_t i = 0; i < ARRAY_COUNT(readers); i++) {
        void *stale;
        pthread_join(readers[i], &stale);
        cr_expect(stale == NULL, "%zu stale reads", (size_t)stale);
    }
    world_stop(race.world);
}
