/* Things of any module that belong to a session: made together with it, and gone with it, in one entry. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "agent/modules.h"
#include "commands.h"
#include "tests/lib/open_to_all.h"

/* A module of things that sessions hold: its one command makes a thing for the session that it names or makes. */
enum { HOLD = 200, THINGS = 61, THING_ROWS = 63 };

static int thing_ended(struct machine_tx *tx, const struct binding_end *end);
static const struct module_binding thing_binding = {.number = THING_ROWS, .ended = thing_ended};
static unsigned ended_count;
static bool keeps_binding; /* a module with a mistake: it does not unbind */

static int hold(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__Session *session;
    int rv = session_ensure(tx, request, result, &session);
    if (rv != CO_OK || result->error) return rv;
    char key[8];
    put_be64(key, tx->index);
    store_put(tx->store, THINGS, slice_make(key, sizeof key), slice_text(session->id));
    session_bind(tx, &thing_binding, slice_text(session->id), slice_make(key, sizeof key), slice_make("", 0));
    result->message = &session->base;
    result->yes = true;
    return CO_OK;
}

static int thing_ended(struct machine_tx *tx, const struct binding_end *end) {
    ended_count++;
    if (!store_del(tx->store, THINGS, end->name)) return CO_CORRUPT;
    if (!keeps_binding) session_unbind(tx, &thing_binding, end->owner, end->name);
    return CO_OK;
}

static const struct module_command commands[] = {{.number = HOLD,
                                                  .name = "hold",
                                                  .request = &pb__session_use__descriptor,
                                                  .result = &pb__session__descriptor,
                                                  .may = open_may,
                                                  .apply = hold},
                                                 {0}};
static const struct store_table tables[] = {{THINGS, "things"}, {THING_ROWS, "thing-rows"}, {0}};
static const struct module_binding bindings[] = {{.number = THING_ROWS, .ended = thing_ended}, {0}};
static const struct module things_module = {
    .name = "things", .commands = commands, .tables = tables, .session_bindings = bindings};

static struct fixture world;
static char id[3][UUID_TEXT_SIZE + 1];

static void setup(void) {
    fixture_open_with(&world, &things_module);
    for (unsigned i = 0; i < ARRAY_COUNT(id); i++) session_id(i, id[i]);
    cr_assert(node_register(&world, "n1").yes);
    ended_count = 0, keeps_binding = false;
}
static void teardown(void) { fixture_close(&world); }
TestSuite(session_bindings, .init = setup, .fini = teardown);

static struct outcome hold_with(const char *session, const char *made, int64_t ttl_ns) {
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    Pb__Session create = PB__SESSION__INIT;
    if (session) use.id = (char *)(uintptr_t)session;
    create.id = (char *)(uintptr_t)made, create.node = (char *)(uintptr_t) "n1", create.ttl_ns = ttl_ns;
    if (made) use.create = &create;
    return fixture_apply(&world, HOLD, &use.base);
}

static uint64_t things(void) {
    store_read_done(world.reader);
    uint64_t count = store_count(store_read(world.reader), THINGS);
    store_read_done(world.reader);
    return count;
}

Test(session_bindings, a_session_is_made_in_the_entry_that_needs_it) {
    struct outcome made = hold_with(NULL, id[0], 15000000000);
    cr_assert(made.yes && strcmp(made.id, id[0]) == 0, "%s", made.text);
    cr_expect_eq(things(), 1);
    struct expiry_update *began = expiry_updates_take(world.updates);
    cr_assert(began && began->kind == &session_expiry && began->period_ns == 15000000000, "the leader counts its TTL");
    free(began);
    struct outcome again = hold_with(id[0], NULL, 0);
    cr_expect(again.yes && strcmp(again.id, id[0]) == 0);
    cr_expect_eq(things(), 2);
}

Test(session_bindings, who_names_no_session_or_one_that_is_gone_is_refused_and_nothing_is_made) {
    cr_expect_eq(hold_with(NULL, NULL, 0).error, CO_INVALID);
    struct outcome unknown = hold_with(id[1], NULL, 0);
    cr_expect(unknown.error == CO_NOTFOUND && strstr(unknown.text, id[1]), "%s", unknown.text);
    cr_expect_eq(hold_with(NULL, "no uuid", 0).error, CO_INVALID);
    cr_expect_eq(things(), 0);
}

Test(session_bindings, the_end_of_a_session_ends_the_things_of_all_modules_in_one_entry) {
    cr_assert(hold_with(NULL, id[0], 0).yes && hold_with(id[0], NULL, 0).yes && hold_with(NULL, id[1], 0).yes);
    cr_assert(kv_acquire(&world, "lock", "v", id[0]).yes);
    uint64_t index = session_drop(&world, id[0]).index;
    cr_expect_eq(ended_count, 2);
    cr_expect_eq(things(), 1, "those of the other session stay");
    struct query_result found = kv_get(&world, "lock");
    const Pb__KvEntry *lock = entry_of(&found);
    cr_assert(lock && !lock->session[0]);
    cr_expect_eq(lock->modify_index, index, "in the same entry");
    cr_expect(node_remove(&world, "n1").yes);
    cr_expect_eq(things(), 0, "a session that falls with its node takes them along too");
}

Test(session_bindings, a_binding_that_outlives_its_end_fails_the_store_instead_of_going_on_for_ever) {
    cr_assert(hold_with(NULL, id[0], 0).yes);
    keeps_binding = true;
    Pb__SessionDestroyCommand command = PB__SESSION_DESTROY_COMMAND__INIT;
    command.id = id[0];
    cr_expect_eq(fixture_try(&world, SESSION_DESTROY, &command.base), CO_CORRUPT);
    cr_expect_eq(ended_count, 1);
}
