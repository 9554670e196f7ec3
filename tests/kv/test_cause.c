/* The cause that woke a blocking query, in a few words (kv/stream/stream.h: stream_cause). */
#include <criterion/criterion.h>
#include <stdio.h>

#include "kv/stream/stream.h"
#include "leases.h"
#include "tests/lib/with_access.h"

static struct fixture world;

static void setup(void) {
    fixture_open(&world);
    fixture_found(&world);
}
static void teardown(void) { fixture_close(&world); }
TestSuite(cause, .init = setup, .fini = teardown);

/* Until the next call; "": the history does not tell. */
static const char *cause_for(const struct access *access, uint8_t space, const char *name, uint64_t index) {
    static char text[400];
    struct arena arena = {0};
    struct buffer out = {0};
    struct store_txn *txn = store_read(world.reader);
    bool told = stream_cause(txn, access, (struct watch_key){space, slice_text(name)}, index, &arena, &out);
    store_read_done(world.reader);
    snprintf(text, sizeof text, "%.*s", (int)out.size, out.data ? out.data : "");
    cr_expect_eq(told, out.size > 0);
    buffer_free(&out);
    arena_free(&arena);
    return text;
}

static const char *cause(uint8_t space, const char *name, uint64_t index) {
    return cause_for(access_all, space, name, index);
}

#define CAUSE(space, name, outcome, expected)                                                 \
    do {                                                                                      \
        uint64_t index_ = (outcome).index;                                                    \
        char text_[400];                                                                      \
        snprintf(text_, sizeof text_, "%s index %llu", expected, (unsigned long long)index_); \
        cr_expect_str_eq(cause(space, name, index_), text_);                                  \
    } while (0)

Test(cause, of_keys) {
    char id[UUID_TEXT_SIZE + 1];
    session_id(1, id);
    cr_assert(node_register(&world, "n1").yes && session_make(&world, id, &(struct session_plan){.node = "n1"}).yes);
    struct outcome made = kv_put(&world, "a/b", "1"), changed = kv_put(&world, "a/b", "2");
    struct outcome locked = kv_acquire(&world, "a/b", "3", id), again = kv_acquire(&world, "a/b", "4", id);
    struct outcome unlocked = kv_release(&world, "a/b", "4", id), gone = kv_del(&world, "a/b");
    cr_assert(kv_put(&world, "a/b", "5").yes); /* what came later changes nothing of what is told */
    for (unsigned prefix = 0; prefix < 2; prefix++) {
        uint8_t space = prefix ? SPACE_KEY | WATCH_PREFIX_BIT : SPACE_KEY;
        const char *name = prefix ? "a/" : "a/b";
        CAUSE(space, name, made, "key a/b created");
        CAUSE(space, name, changed, "key a/b set");
        CAUSE(space, name, locked, "key a/b locked");
        CAUSE(space, name, again, "key a/b set");
        CAUSE(space, name, unlocked, "key a/b unlocked");
        CAUSE(space, name, gone, "key a/b deleted");
    }
}

/* Of an entry that changed more, only what the query may see. */
Test(cause, of_a_tree_that_is_deleted_tells_of_what_was_asked_for) {
    cr_assert(kv_put(&world, "t/secret", "1").yes && kv_put(&world, "t/z/mine", "1").yes);
    struct outcome gone = kv_del_tree(&world, "t/");
    CAUSE(SPACE_KEY, "t/z/mine", gone, "key t/z/mine deleted");
    CAUSE(SPACE_KEY | WATCH_PREFIX_BIT, "t/z/", gone, "key t/z/mine deleted");
}

Test(cause, of_services_and_nodes) {
    struct outcome came = lease_register(&world, &(struct registration){.node = "n1", .service = "web", .check = "c"});
    CAUSE(SPACE_SERVICE, "web", came, "service web registered web");
    CAUSE(SPACE_SERVICE, "WEB", came, "service WEB registered web");
    CAUSE(SPACE_NODE, "n1", came, "node n1 registered web");
    struct outcome bad = check_register(&world, "n1", "disk", PB__STATUS__PASSING);
    CAUSE(SPACE_NODE, "n1", bad, "node n1 changed");
    bad = check_register(&world, "n1", "disk", PB__STATUS__CRITICAL);
    CAUSE(SPACE_NODE, "n1", bad, "node n1 passing->critical");
    CAUSE(SPACE_SERVICE, "web", bad, "service web passing->critical");
    struct outcome gone = node_remove(&world, "n1");
    CAUSE(SPACE_SERVICE, "web", gone, "service web deregistered web");
    CAUSE(SPACE_NODE, "n1", gone, "node n1 deregistered web");
}

Test(cause, of_locks) {
    char id[UUID_TEXT_SIZE + 1];
    session_id(1, id);
    cr_assert(node_register(&world, "n1").yes && session_make(&world, id, &(struct session_plan){.node = "n1"}).yes);
    struct outcome taken = lock_take(&world, "l", id, PB__QUEUE_MODE__QUEUE_EXCLUSIVE);
    CAUSE(SPACE_LOCK, "l", taken, "lock l changed");
}

/* It is a header: one line of printable ASCII, and not long. */
Test(cause, may_stand_in_a_header) {
    char name[3000];
    memset(name, 'x', sizeof name - 1), name[sizeof name - 1] = '\0';
    memcpy(name, "a\r\nb\xc3\xa9 \t", 8);
    struct outcome made = kv_put(&world, name, "1");
    const char *text = cause(SPACE_KEY, name, made.index);
    cr_expect(strncmp(text, "key a??b????", 12) == 0, "%s", text);
    cr_expect_lt(strlen(text), 256);
    for (const char *at = text; *at; at++) cr_expect(*at >= ' ' && *at < 0x7f);
}

Test(cause, shows_nothing_of_an_instance_that_may_not_stand_in_a_header) {
    struct outcome came = lease_register(&world, &(struct registration){.node = "n1", .service = "we\r\nb\xc3\xa9"});
    const char *text = cause(SPACE_NODE, "n1", came.index);
    cr_expect_eq(strncmp(text, "node n1 registered we??b??", 26), 0, "%s", text);
}

/* The one that is asked for is behind many others of the entry: what became of it is not looked for. */
Test(cause, of_an_entry_that_changed_very_much) {
    char key[32];
    for (unsigned i = 0; i < 300; i++) snprintf(key, sizeof key, "m/%03u", i), kv_put(&world, key, "1");
    struct outcome gone = kv_del_tree(&world, "m/");
    CAUSE(SPACE_KEY, "m/000", gone, "key m/000 deleted");
    CAUSE(SPACE_KEY, "m/299", gone, "key m/299 changed");
}

Test(cause, is_not_told_of_what_is_not_known) {
    struct outcome made = kv_put(&world, "a", "1"), other = kv_put(&world, "b", "1");
    cr_expect_str_eq(cause(SPACE_KEY, "a", 0), "");
    cr_expect_str_eq(cause(SPACE_KEY, "a", 1), "", "below the floor");
    cr_expect_str_eq(cause(SPACE_KEY, "a", other.index + 1), "", "not there yet");
    cr_expect_str_eq(cause(SPACE_TABLE, "nodes", made.index), "", "of no topic");
}

/* -- tokens ------------------------------------------------------------------------------------------------------- */

static void expect_for(const char *rules, uint8_t space, const char *name, uint64_t index, const char *expected) {
    struct access *access = access_of(rules);
    char text[400] = "";
    if (expected[0]) snprintf(text, sizeof text, "%s index %llu", expected, (unsigned long long)index);
    cr_expect_str_eq(cause_for(access, space, name, index), text);
    access_release(access);
}

Test(cause, names_nothing_that_is_hidden) {
    cr_assert(kv_put(&world, "t/a-secret", "1").yes && kv_put(&world, "t/z", "1").yes);
    struct outcome gone = kv_del_tree(&world, "t/");
    uint8_t below = SPACE_KEY | WATCH_PREFIX_BIT;
    expect_for("key:read=t/z", below, "t/", gone.index, "key t/z deleted");
    expect_for("key:read=t/y", below, "t/", gone.index, "");
    expect_for("key:read=t/y", SPACE_KEY, "t/z", gone.index, "");
    struct outcome came = lease_register(&world, &(struct registration){.node = "n1", .service = "web", .check = "c"});
    expect_for("service:read=web node:read=n1", SPACE_SERVICE, "web", came.index, "service web registered web");
    expect_for("service:read=web", SPACE_SERVICE, "web", came.index, "service web changed");
    expect_for("node:read=n1", SPACE_SERVICE, "web", came.index, "");
    expect_for("node:read=n1", SPACE_NODE, "n1", came.index, "node n1 changed");
    struct outcome bad = check_register(&world, "n1", "disk", PB__STATUS__PASSING);
    bad = check_register(&world, "n1", "disk", PB__STATUS__CRITICAL);
    expect_for("node:read=n1", SPACE_NODE, "n1", bad.index, "node n1 passing->critical");
    expect_for("service:read=web", SPACE_SERVICE, "web", bad.index, "service web changed");
}
