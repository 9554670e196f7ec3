/* The key of tokens' secrets among servers: the leader's counts, the others come for it, and a configured token is made. A
 * plain main: runs under the sanitizers. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "acl/acl.h"
#include "base/check.h"
#include "base/clock.h"
#include "tests/lib/servers.h"

enum { COUNT = 3 };
static struct server servers[COUNT];
static const char secret[] = "the configured secret";

#define UNTIL(condition) \
    for (uint64_t until_ = clock_mono_ms() + 60000; !(condition); usleep(2000)) CHECK(clock_mono_ms() < until_)

static void prepare(struct server *server) {
    server->config.acl = (struct acl_keys_config){.enabled = true, .initial = secret};
}

/* Each comes with a key of its own. */
static void prepare_with_key(struct server *server) {
    struct acl_key *key;
    prepare(server);
    CHECK(acl_key_make(&key, NULL) == CO_OK && acl_key_store(key, server->folder, NULL) == CO_OK);
    acl_key_release(key);
}

static void prepare_first(struct server *server) {
    prepare(server);
    server->config.acl.only_first = true;
}

static void prepare_without(struct server *server) { (void)server; }

static struct acl_key *file_of(const struct server *server) {
    struct acl_key *key;
    return acl_key_load(server->folder, &key, NULL) == CO_OK ? key : NULL;
}

/* This server's state: the id of the key, and the token of the secret. */
struct seen {
    bool begun, right, token, management;
};
static struct seen look(struct server *server) {
    struct seen seen = {0};
    struct acl_key *key = file_of(server);
    struct arena arena = {0};
    struct rpc_reader *reader = rpc_reader_new(server->rpc);
    struct store_txn *txn = rpc_read_begin(reader);
    Pb__AclState *state;
    Pb__AclToken *token;
    seen.begun = acl_state_read(txn, &arena, &state) == CO_OK;
    seen.right = seen.begun && acl_key_is(key, slice_make(state->key_id.data, state->key_id.len));
    seen.token = seen.right && acl_secret_find(txn, key, slice_text(secret), &arena, &token) == CO_OK;
    seen.management = seen.token && token->n_policies == 1 && strcmp(token->policies[0]->id, ACL_MANAGEMENT_ID) == 0;
    rpc_read_end(reader);
    rpc_reader_free(reader);
    arena_free(&arena);
    acl_key_release(key);
    return seen;
}

static void all_get_it(unsigned count, void (*prepares)(struct server *server)) {
    servers_prepare = prepares;
    servers_start(servers, count, 3);
    for (unsigned i = 0; i < count; i++) {
        char path[4200];
        struct stat info;
        UNTIL(look(&servers[i]).management && acl_keys_ready(servers[i].rpc));
        snprintf(path, sizeof path, "%s/acl/key", servers[i].folder);
        CHECK(stat(path, &info) == 0 && (info.st_mode & 07777) == 0600);
    }
    struct acl_key *first = file_of(&servers[0]), *last = file_of(&servers[count - 1]);
    CHECK(first && last && acl_key_is(first, acl_key_id(last)));
    acl_key_release(first), acl_key_release(last);
    servers_stop(servers, count);
}

/* The file is written in the thread pool, which has other work: meanwhile nobody asks for the key again. */
static void waste_time(uv_work_t *work) {
    (void)work;
    usleep(700000);
}
static void wasted(uv_work_t *work, int status) { (void)work, (void)status; }
static void *keep_pool_busy(void *loop) {
    uv_run(loop, UV_RUN_DEFAULT);
    return NULL;
}
static void the_pool_is_busy(void) {
    uv_loop_t loop;
    uv_work_t works[16];
    pthread_t thread;
    CHECK(uv_loop_init(&loop) == 0);
    for (size_t i = 0; i < ARRAY_COUNT(works); i++) CHECK(uv_queue_work(&loop, &works[i], waste_time, wasted) == 0);
    CHECK(pthread_create(&thread, NULL, keep_pool_busy, &loop) == 0);
    all_get_it(COUNT, prepare_with_key);
    pthread_join(thread, NULL);
    CHECK(uv_loop_close(&loop) == 0);
}

/* Nobody else can bootstrap before, because without the key no secret is hashed. */
static void the_first_is_there_before_anybody_may(void) {
    servers_prepare = prepare_first;
    servers_start(servers, 1, 1);
    UNTIL(acl_keys_ready(servers[0].rpc));
    CHECK(look(&servers[0]).management);
    servers_stop(servers, 1);
}

static void nothing_without_access_control(void) {
    servers_prepare = prepare_without;
    servers_start(servers, 1, 3);
    server_put(&servers[0], "a", "b");
    usleep(500000); /* two turns, if there were any */
    struct seen seen = look(&servers[0]);
    struct acl_key *key = file_of(&servers[0]);
    CHECK(!seen.begun && !key && !acl_keys_ready(servers[0].rpc));
    servers_stop(servers, 1);
}

int main(void) {
    all_get_it(COUNT, prepare);
    all_get_it(COUNT, prepare_with_key);
    all_get_it(1, prepare);
    the_pool_is_busy();
    for (int i = 0; i < 3; i++) the_first_is_there_before_anybody_may();
    nothing_without_access_control();
    puts("ok");
    return 0;
}
