/* Reads that are too large for a worker: written by a thread of their own, shared, dropped, and no different to look
 * at. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "registry/catalog.h"
#include "web_world.h"

#define KEYS          300
#define VALUE         9000 /* together more than a worker reads at a time */
#define PARKED(world) watch_count(rpc_watches(world_rpc(world)))

static void put(const struct world *world, const char *key, const char *value) {
    char target[128];
    snprintf(target, sizeof target, "PUT /v1/kv/%s", key);
    free(web_want(world, 200, target, value));
}

static struct world *start(unsigned workers) {
    struct http_config config = {.workers = workers, .connections_per_address_max = 1000};
    struct world *world = world_start(&config);
    char *value = mem_alloc(VALUE + 1), key[32];
    memset(value, 'x', VALUE);
    value[VALUE] = '\0';
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "big/%04d", i);
        put(world, key, value);
    }
    free(value);
    return world;
}

static bool thread_runs(const char *name) {
    DIR *tasks = opendir("/proc/self/task");
    bool found = false;
    for (struct dirent *task; !found && (task = readdir(tasks));) {
        char path[300], text[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        found = fgets(text, sizeof text, file) && strncmp(text, name, strlen(name)) == 0 && text[strlen(name)] == '\n';
        fclose(file);
    }
    closedir(tasks);
    return found;
}

static size_t count(const char *text, const char *part) {
    size_t n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

Test(large, is_whole_and_of_its_own_thread) {
    struct world *world = start(1);
    cr_expect(!thread_runs("http-large"), "nothing was large yet");
    free(web_want(world, 200, "GET /v1/kv/big/00?recurse", NULL));
    cr_expect(!thread_runs("http-large"));
    struct web_answer answer = web_ask(world, "GET /v1/kv/big/?recurse", NULL);
    cr_expect(thread_runs("http-large"));
    cr_expect(answer.status == 200 && count(answer.body, "\"Key\":\"big/") == KEYS);
    cr_expect(answer.size == strlen(answer.body) && answer.body[answer.size - 1] == ']');
    cr_expect_str_eq(web_header(&answer, "Content-Type"), "application/json");
    cr_expect(web_index(&answer) > 0);
    struct web_answer pretty = web_ask(world, "GET /v1/kv/big/?recurse&pretty", NULL);
    cr_expect(pretty.status == 200 && pretty.size > answer.size && count(pretty.body, "\"Key\": \"big/") == KEYS);
    struct web_answer keys = web_ask(world, "GET /v1/kv/?keys&separator=", NULL);
    cr_expect(keys.status == 200 && count(keys.body, "\"big/") == KEYS);
    web_free(&answer);
    web_free(&pretty);
    web_free(&keys);
    world_stop(world);
}

Test(large, never_older_than_what_was_acknowledged) {
    struct world *world = start(2);
    for (int i = 0; i < 15; i++) {
        char key[32], named[48];
        snprintf(key, sizeof key, "big/new%d", i);
        snprintf(named, sizeof named, "\"Key\":\"%s\"", key);
        put(world, key, "1");
        struct web_answer answer = web_ask(world, "GET /v1/kv/big/?recurse", NULL);
        cr_assert(answer.status == 200 && strstr(answer.body, named), "%s is missing", key);
        web_free(&answer);
    }
    world_stop(world);
}

Test(large, watchers_share_it) {
    struct world *world = start(2);
    struct web_answer answer = web_ask(world, "GET /v1/kv/big/?recurse", NULL);
    char target[128];
    snprintf(target, sizeof target, "/v1/kv/big/?recurse&index=%llu&wait=60s", (unsigned long long)web_index(&answer));
    web_free(&answer);
    int fds[40];
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) fds[i] = web_get(world, target);
    EVENTUALLY(PARKED(world) == ARRAY_COUNT(fds));
    put(world, "other", "1");
    cr_expect(web_silent(fds[0], 50) && PARKED(world) == ARRAY_COUNT(fds));
    put(world, "big/0007", "changed");
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) {
        answer = web_hear(fds[i]);
        cr_expect(answer.status == 200 && strstr(answer.body, "Y2hhbmdlZA=="), "%d", answer.status);
        web_free(&answer);
        close(fds[i]);
    }
    EVENTUALLY(PARKED(world) == 0);
    world_stop(world);
}

Test(large, changes_while_it_is_read_are_not_missed) {
    struct world *world = start(1);
    uint64_t index = 0;
    for (int i = 0; i < 15; i++) {
        char target[128], key[32], value[32];
        snprintf(target, sizeof target, "/v1/kv/big/?recurse&wait=60s&index=%llu", (unsigned long long)index);
        int fd = web_get(world, target);
        snprintf(key, sizeof key, "big/%04d", i);
        snprintf(value, sizeof value, "%d", i);
        put(world, key, value); /* before, during or after the read of the query */
        struct web_answer answer = web_hear(fd);
        cr_assert(answer.status == 200 && web_index(&answer) > index, "round %d", i);
        index = web_index(&answer);
        web_free(&answer);
        close(fd);
    }
    struct web_answer last = web_ask(world, "GET /v1/kv/big/?recurse", NULL);
    cr_expect(web_index(&last) >= index);
    web_free(&last);
    world_stop(world);
}

/* A change of a value is no change of the names: what is read then is no answer, and a name that came meanwhile is. */
Test(large, a_change_during_a_read_that_changes_nothing_is_not_missed) {
    struct world *world = start(1);
    for (int i = 0; i < 15; i++) {
        struct web_answer before = web_ask(world, "GET /v1/kv/big/?keys&separator=", NULL);
        char target[128], key[32], value[32];
        snprintf(target, sizeof target, "/v1/kv/big/?keys&separator=&wait=60s&index=%llu",
                 (unsigned long long)web_index(&before));
        web_free(&before);
        int fd = web_get(world, target);
        EVENTUALLY(PARKED(world) == 1);
        snprintf(value, sizeof value, "%d", i);
        put(world, "big/0000", value);
        usleep((unsigned)(i % 20) * 100); /* before, during or after the read */
        snprintf(key, sizeof key, "big/came%d", i);
        put(world, key, "1");
        struct web_answer answer = web_hear(fd);
        cr_assert(answer.status == 200 && strstr(answer.body, key), "round %d", i);
        web_free(&answer);
        close(fd);
    }
    world_stop(world);
}

Test(large, those_who_leave) {
    struct world *world = start(1);
    for (int i = 0; i < 100; i++) {
        int fd = web_get(world, i % 2 ? "/v1/kv/big/?recurse" : "/v1/kv/big/?recurse&index=1&wait=60s");
        if (i % 3 == 0) usleep(500);
        close(fd);
    }
    EVENTUALLY(web_metric(world, "coord_http_connections") <= 1);
    char *body = web_want(world, 200, "GET /v1/kv/big/?recurse", NULL);
    cr_expect(count(body, "\"Key\":") == KEYS);
    free(body);
    world_stop(world);
}

Test(large, stopping_in_the_middle) {
    struct world *world = start(2);
    int fds[30];
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) {
        char target[64];
        snprintf(target, sizeof target, "/v1/kv/big/?recurse&own=%zu", i); /* none is shared */
        fds[i] = web_get(world, target);
    }
    uint64_t began_ms = clock_mono_ms();
    world_stop_http(world);
    cr_expect(clock_mono_ms() - began_ms < 3000);
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) close(fds[i]);
    world_stop(world);
}
