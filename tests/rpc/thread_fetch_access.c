/* Fetches of somebody whose rules change: at any moment the caller gets what the rules of now show. A plain main: runs under
 * the sanitizers. */
#include <stdatomic.h>
#include <stdio.h>

#include "acl/acl.h"
#include "asked.h"
#include "base/check.h"
#include "registry/access.h"
#include "rpc/api/access_control.h"
#include "tests/lib/servers.h"

static struct server server;
static _Atomic unsigned rules; /* 0: all keys below a/ may be read; 1: below a/b alone; 2: a/b and c */

static int resolve(void *data, struct store_txn *txn, const struct requester *requester, int64_t now_unix_ms,
                   struct access **access, int64_t *until_unix_ms) {
    (void)data, (void)txn, (void)requester, (void)now_unix_ms, (void)until_unix_ms;
    unsigned now = atomic_load(&rules);
    *access = access_new(ACCESS_DENY);
    access_add(*access, ACCESS_KEY, true, slice_text(now ? "a/b" : "a/"), ACCESS_READ);
    if (now == 2) access_add(*access, ACCESS_KEY, false, slice_text("c"), ACCESS_READ);
    access_name(*access, "somebody", "");
    access_seal(*access);
    return CO_OK;
}
static const struct rpc_access_control control = {.changes = {SPACE_ACL_ALL, {"", 0}}, .resolve = resolve};
static void prepare(struct server *one) { one->control = &control; }

static void change(unsigned to) {
    atomic_store(&rules, to);
    rpc_access_changed(server.rpc);
}

static void ask(struct asked *asked, const struct requester *requester, uint64_t index, uint64_t view, bool stale) {
    asked_begin_key(
        asked, server.rpc, &query_kv_list, "a/",
        (struct how){.stale = stale, .index = index, .view = view, .wait_ms = 600000, .requester = requester});
}

static void end(struct asked *asked, uint64_t hidden) {
    asked_await(asked);
    CHECK(asked->error == CO_OK && asked->fetched.hidden == hidden && asked->fetched.view);
    asked_end(asked);
}

/* All that was begun before is past its turn. */
static void pass_turns(const struct requester *requester) {
    struct asked asked;
    for (int i = 0; i < 2; i++) {
        ask(&asked, requester, 0, 0, false);
        asked_await(&asked);
        asked_end(&asked);
    }
}

/* The caller has an answer, the rules change, and only then does it ask for what is newer. */
static void between_two_questions(const struct requester *requester, bool stale) {
    struct asked first, second;
    change(0);
    ask(&first, requester, 0, 0, stale);
    end(&first, 0);
    change(1);
    ask(&second, requester, first.fetched.index, first.fetched.view, stale);
    end(&second, 1);
    CHECK(second.fetched.view != first.fetched.view);
    /* By these rules it has the newest. */
    ask(&first, requester, second.fetched.index, second.fetched.view, stale);
    pass_turns(requester);
    CHECK(!asked_over(&first));
    change(0); /* while it waits */
    end(&first, 0);
}

/* Others that hide the same. */
static void the_same_rows_by_other_rules(const struct requester *requester) {
    struct asked first, second;
    change(1);
    ask(&first, requester, 0, 0, false);
    end(&first, 1);
    change(2);
    ask(&second, requester, first.fetched.index, first.fetched.view, false);
    end(&second, 1);
    CHECK(second.fetched.view != first.fetched.view);
    /* Without a view nothing is newer. */
    ask(&first, requester, second.fetched.index, 0, false);
    pass_turns(requester);
    CHECK(!asked_over(&first));
    server_put(&server, "a/b/2", "new");
    end(&first, 1);
}

int main(void) {
    servers_prepare = prepare;
    servers_start(&server, 1, 1);
    struct requester *requester = requester_new(REQUESTER_REQUEST, SLICE_LITERAL("secret"));
    server_put(&server, "a/b/1", "shown");
    server_put(&server, "a/c", "hidden by some rules");
    between_two_questions(requester, false);
    between_two_questions(requester, true);
    the_same_rows_by_other_rules(requester);
    requester_release(requester);
    servers_stop(&server, 1);
    return 0;
}
