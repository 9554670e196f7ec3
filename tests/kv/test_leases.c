/* Leases in the state machine: what is bound goes in one entry, who holds a node's name, what becomes of the dead. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "leases.h"
#include "registry/reconnect.h"

static struct fixture world;
static char id[8][UUID_TEXT_SIZE + 1];

static void setup(void) {
    leases_open(&world);
    for (unsigned i = 0; i < 8; i++) lease_uuid(100 + i, id[i]);
}
static void teardown(void) { fixture_close(&world); }

static void sums_hold(void) {
    store_read_done(world.reader);
    struct store_txn *txn = store_read(world.reader);
    cr_expect_eq(store_sum(txn), store_scrub(txn));
    store_read_done(world.reader);
}

static uint64_t marked(uint8_t space, const char *name) {
    store_read_done(world.reader);
    uint64_t index = machine_change_index(store_read(world.reader), space, slice_text(name));
    store_read_done(world.reader);
    return index;
}

static const Pb__KvEntry *entry(const char *key) {
    struct query_result result = kv_get(&world, key);
    cr_assert(result.found, "%s", key);
    return entry_of(&result);
}

static bool is_there(const char *key) { return kv_get(&world, key).found; }

/* -- granting ----------------------------------------------------------------------------------------------------- */

Test(leases, bad_grants, .init = setup, .fini = teardown) {
    Pb__Lease lease = PB__LEASE__INIT;
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    char node[] = "n1", bad[] = "x";
    cr_expect_eq(fixture_apply(&world, LEASE_GRANT, &command.base).error, CO_INVALID);
    command.lease = &lease;
    cr_expect_eq(fixture_apply(&world, LEASE_GRANT, &command.base).error, CO_INVALID, "no id");
    lease.id = id[0];
    cr_expect_eq(fixture_apply(&world, LEASE_GRANT, &command.base).error, CO_INVALID, "no TTL");
    lease.ttl_ns = LEASE_TTL_MAX_NS + 1;
    cr_expect_eq(fixture_apply(&world, LEASE_GRANT, &command.base).error, CO_INVALID, "TTL too long");
    lease.ttl_ns = LEASE_TTL_MIN_NS;
    lease.node = node;
    cr_expect_eq(fixture_apply(&world, LEASE_GRANT, &command.base).error, CO_INVALID, "a node without its id");
    lease.node_id = bad;
    cr_expect_eq(fixture_apply(&world, LEASE_GRANT, &command.base).error, CO_INVALID, "a node id that is none");
    lease.node = bad + 1, lease.node_id = id[1];
    cr_expect_eq(fixture_apply(&world, LEASE_GRANT, &command.base).error, CO_INVALID, "a node id alone");
    lease.node_id = bad + 1, lease.reconnect_timeout_ns = -1;
    cr_expect_eq(fixture_apply(&world, LEASE_GRANT, &command.base).error, CO_INVALID);
    lease.reconnect_timeout_ns = 0;
    cr_expect(fixture_apply(&world, LEASE_GRANT, &command.base).yes);
    cr_expect_eq(fixture_apply(&world, LEASE_GRANT, &command.base).error, CO_EXISTS, "the same id again");
    cr_expect_eq(fixture_apply_bytes(&world, slice_make("\x14\x01\xff", 3)).error, CO_INVALID);
    sums_hold();
}

/* -- bindings ----------------------------------------------------------------------------------------------------- */

Test(leases, everything_bound_goes_in_one_entry, .init = setup, .fini = teardown) {
    char longer[1000];
    memset(longer, 'k', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    cr_assert(lease_grant(&world, id[0], NULL, 0).yes && lease_grant(&world, id[1], NULL, 0).yes);
    cr_assert(kv_put_leased(&world, "a", "1", id[0]).yes);
    cr_assert(kv_put_leased(&world, longer, "1", id[0]).yes);
    cr_assert(kv_put_leased(&world, "other", "1", id[1]).yes);
    cr_assert(
        lease_register(&world, &(struct registration){.node = "n1", .service = "web", .check = "c", .lease = id[0]})
            .yes);
    cr_assert(lease_register(&world, &(struct registration){.node = "n1", .service = "db", .skip = true}).yes);
    cr_assert(lease_register(&world, &(struct registration){.node = "n2", .lease = id[0]}).yes);
    cr_assert(lease_register(&world, &(struct registration){.node = "n2", .service = "api", .skip = true}).yes);
    cr_expect_str_eq(lease_holds(&world, id[0]), "key a; key kkkkkkkkkkkkkkkkkkkk; service n1/web; node n2; ");
    cr_expect_str_eq(entry("a")->lease, id[0]);
    fixture_reopen(&world);
    uint64_t ended = lease_revoke(&world, id[0]).index;
    cr_expect_not(is_there("a"));
    cr_expect_not(is_there(longer));
    cr_expect(is_there("other"));
    cr_expect_str_eq(node_state(&world, "n1"), "", "the service's check went with it, the node stays");
    cr_expect_str_eq(node_state(&world, "n2"), "gone");
    cr_expect_str_eq(lease_holds(&world, id[0]), "gone");
    static const struct {
        uint8_t space;
        const char *name;
    } touched[] = {
        {SPACE_KEY, "a"}, {SPACE_SERVICE, "web"}, {SPACE_SERVICE, "api"}, {SPACE_NODE, "n2"}, {SPACE_NODE, "n1"}};
    for (unsigned i = 0; i < ARRAY_COUNT(touched); i++)
        cr_expect_eq(marked(touched[i].space, touched[i].name), ended, "%s", touched[i].name);
    cr_expect_eq(marked(SPACE_LEASE, id[0]), ended);
    cr_expect_str_eq(lease_holds(&world, id[1]), "key other; ");
    cr_expect(lease_revoke(&world, id[0]).yes, "again: nothing to do");
    sums_hold();
}

Test(leases, a_write_says_anew_what_the_key_hangs_on, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, id[0], NULL, 0).yes && lease_grant(&world, id[1], NULL, 0).yes);
    cr_assert(kv_put_leased(&world, "a", "1", id[0]).yes);
    uint64_t bound = marked(SPACE_LEASE, id[0]);
    cr_assert(kv_put_leased(&world, "a", "2", id[0]).yes);
    cr_expect_eq(marked(SPACE_LEASE, id[0]), bound, "bound already");
    cr_assert(kv_put_leased(&world, "a", "2", id[1]).yes);
    cr_expect_str_eq(lease_holds(&world, id[0]), "");
    cr_expect_str_eq(lease_holds(&world, id[1]), "key a; ");
    uint64_t detached = kv_put(&world, "a", "2").index;
    cr_expect_eq(entry("a")->modify_index, detached);
    cr_expect_str_eq(lease_holds(&world, id[1]), "");
    cr_assert(lease_revoke(&world, id[1]).yes);
    cr_expect(is_there("a"));
    cr_assert(kv_put_leased(&world, "a", "3", id[0]).yes);
    cr_assert(kv_put_leased(&world, "b", "3", id[0]).yes);
    cr_assert(kv_del(&world, "a").yes && kv_del_tree(&world, "b").yes);
    cr_expect_str_eq(lease_holds(&world, id[0]), "");
    sums_hold();
}

/* The lock is the session's, the key the lease's. */
Test(leases, the_end_of_a_session_leaves_the_lease, .init = setup, .fini = teardown) {
    char session[UUID_TEXT_SIZE + 1];
    session_id(1, session);
    cr_assert_eq(node_register(&world, "n1").error, CO_OK);
    cr_assert(session_make(&world, session, &(struct session_plan){.node = "n1"}).yes);
    cr_assert(lease_grant(&world, id[0], NULL, 0).yes);
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    char key[] = "a";
    command.verb = PB__KV_VERB__KV_LOCK;
    command.key = (ProtobufCBinaryData){1, (uint8_t *)key};
    command.session = session, command.lease = id[0];
    cr_assert(fixture_apply(&world, KV_APPLY, &command.base).yes);
    cr_assert(session_drop(&world, session).yes);
    cr_expect_str_eq(lease_holds(&world, id[0]), "key a; ");
    cr_assert(session_make(&world, session, &(struct session_plan){.node = "n1"}).yes);
    cr_assert(fixture_apply(&world, KV_APPLY, &command.base).yes);
    cr_assert(lease_revoke(&world, id[0]).yes);
    cr_expect_not(is_there("a"));
    cr_expect(session_drop(&world, session).yes, "it holds nothing any more");
    sums_hold();
}

Test(leases, a_lease_that_is_not_known_is_refused_everywhere, .init = setup, .fini = teardown) {
    static const char *const unknown[] = {"00000001-1ea5-4000-8000-000000000000", "x", ""};
    for (unsigned i = 0; i < 2; i++) {
        struct outcome o = kv_put_leased(&world, "a", "1", unknown[i]);
        cr_expect(o.error == CO_NOTFOUND && strstr(o.text, "register again"), "%s", o.text);
        o = lease_register(&world, &(struct registration){.node = "n1", .service = "web", .lease = unknown[i]});
        cr_expect_eq(o.error, CO_NOTFOUND);
        o = lease_register(&world, &(struct registration){.node = "n1", .lease = unknown[i]});
        cr_expect_eq(o.error, CO_NOTFOUND);
        o = lease_register(&world, &(struct registration){.node = "n1", .by = unknown[i]});
        cr_expect_eq(o.error, CO_NOTFOUND);
    }
    cr_expect_not(is_there("a"));
    cr_expect_str_eq(node_state(&world, "n1"), "gone");
    cr_assert(lease_grant(&world, id[0], NULL, 0).yes);
    cr_assert(lease_register(&world, &(struct registration){.node = "n1", .by = id[0]}).yes);
    struct outcome o = lease_register(&world, &(struct registration){.node = "n1", .lease = id[0], .skip = true});
    cr_expect_eq(o.error, CO_INVALID, "nothing to bind");
    cr_expect_str_eq(lease_holds(&world, id[0]), "");
}

Test(leases, a_batch_by_a_lease_that_is_over_changes_nothing, .init = setup, .fini = teardown) {
    Pb__CatalogBatchCommand batch = PB__CATALOG_BATCH_COMMAND__INIT;
    Pb__DeregisterCommand gone = PB__DEREGISTER_COMMAND__INIT, *all[] = {&gone};
    char node[] = "n1";
    gone.node = node;
    batch.deregisters = all, batch.n_deregisters = 1, batch.by_lease = id[0];
    cr_assert_eq(node_register(&world, "n1").error, CO_OK);
    cr_expect_eq(fixture_apply(&world, CATALOG_BATCH, &batch.base).error, CO_NOTFOUND);
    cr_expect_str_eq(node_state(&world, "n1"), "");
    cr_assert(lease_grant(&world, id[0], NULL, 0).yes);
    cr_expect(fixture_apply(&world, CATALOG_BATCH, &batch.base).yes);
    cr_expect_str_eq(node_state(&world, "n1"), "gone");
}

Test(leases, a_node_keeps_its_lease_when_something_is_registered_on_it, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, id[0], NULL, 0).yes && lease_grant(&world, id[1], NULL, 0).yes);
    cr_assert(lease_register(&world, &(struct registration){.node = "n1", .lease = id[0]}).yes);
    cr_assert(lease_register(&world, &(struct registration){.node = "n1", .service = "web", .lease = id[1]}).yes);
    cr_expect_str_eq(lease_holds(&world, id[0]), "node n1; ");
    cr_assert(lease_register(&world, &(struct registration){.node = "n1", .check = "c"}).yes);
    cr_expect_str_eq(lease_holds(&world, id[0]), "node n1; ");
    cr_assert(lease_register(&world, &(struct registration){.node = "n1"}).yes);
    cr_expect_str_eq(lease_holds(&world, id[0]), "");
    cr_expect_str_eq(lease_holds(&world, id[1]), "service n1/web; ");
    cr_assert(node_remove(&world, "n1").yes);
    cr_expect_str_eq(lease_holds(&world, id[1]), "");
    sums_hold();
}

/* -- node leases -------------------------------------------------------------------------------------------------- */

static const struct registration agent = {.node = "n1", .node_id = 1, .alive = true};

Test(leases, a_node_name_has_one_owner, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes);
    struct outcome o = lease_grant(&world, id[1], "N1", 2);
    cr_expect_eq(o.error, CO_EXISTS);
    cr_expect(strstr(o.text, "n1") && strstr(o.text, "00000001-1ea5") && strstr(o.text, id[0]), "%s", o.text);
    cr_expect_str_eq(lease_holds(&world, id[1]), "gone");
    cr_assert(lease_register(&world, &agent).yes);
    cr_assert(kv_put_leased(&world, "a", "1", id[0]).yes);
    cr_assert(lease_grant(&world, id[2], "n1", 1).yes, "the same agent, started again");
    cr_expect_str_eq(lease_holds(&world, id[0]), "gone");
    cr_expect_str_eq(node_state(&world, "n1"), "serfHealth=passing ");
    cr_expect_eq(
        lease_register(&world, &(struct registration){.node = "n1", .service = "late", .skip = true, .by = id[0]})
            .error,
        CO_NOTFOUND, "what the lease before had on its way");
    cr_expect(
        lease_register(&world, &(struct registration){.node = "n1", .service = "now", .skip = true, .by = id[2]}).yes);
    cr_expect_not(is_there("a"));
    cr_expect_str_eq(dead_nodes(&world), "");
    cr_expect_eq(lease_grant(&world, id[3], "n1", 2).error, CO_EXISTS);
    cr_assert(lease_expire(&world, id[2], world.term).yes);
    cr_expect(lease_grant(&world, id[3], "n1", 2).yes, "nobody has it now");
    sums_hold();
}

/* The image of a host was copied, with its node id. */
Test(leases, a_node_id_does_not_make_two_agents_one, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes, "by a program that says no process");
    cr_assert(lease_grant_to(&world, id[1], "n1", 1, "10.0.0.1", 1).yes);
    struct outcome o = lease_grant_to(&world, id[2], "n1", 1, "10.0.0.2", 2);
    cr_expect_eq(o.error, CO_EXISTS);
    cr_expect(strstr(o.text, "same node ID") && strstr(o.text, "10.0.0.1") && strstr(o.text, id[1]), "%s", o.text);
    cr_expect(lease_grant_to(&world, id[2], "n1", 1, "10.0.0.9", 1).yes, "the same process, which has moved");
    cr_expect(lease_grant_to(&world, id[3], "n1", 1, "10.0.0.9", 3).yes, "the same address, started again");
    cr_expect_eq(lease_grant_to(&world, id[4], "n1", 1, "10.0.0.1", 1).error, CO_EXISTS);
    cr_assert(lease_expire(&world, id[3], world.term).yes);
    cr_expect(lease_grant_to(&world, id[4], "n1", 1, "10.0.0.1", 1).yes);
    sums_hold();
}

static struct outcome lives_at(const char *node, unsigned node_id, const char *lease) {
    return lease_register(&world, &(struct registration){.node = node, .node_id = node_id, .alive = true, .by = lease});
}

/* Likewise, under another name: what has the node id in the catalog is not renamed while its agent lives. */
Test(leases, a_copied_node_id_does_not_take_the_place_of_a_node_that_lives, .init = setup, .fini = teardown) {
    cr_assert(lease_grant_to(&world, id[0], "n1", 1, "10.0.0.1", 1).yes && lives_at("n1", 1, id[0]).yes);
    struct outcome o = lease_grant_to(&world, id[1], "n2", 1, "10.0.0.2", 2);
    cr_expect_eq(o.error, CO_EXISTS);
    cr_expect(strstr(o.text, "node \"n1\"") && strstr(o.text, "10.0.0.1") && strstr(o.text, id[0]), "%s", o.text);
    cr_expect(lease_grant_to(&world, id[2], "n2", 1, "10.0.0.1", 3).yes, "the same address: it was given another name");
    cr_expect(lives_at("n2", 1, id[2]).yes);
    cr_expect_str_eq(node_state(&world, "n1"), "gone");
    cr_assert(lease_expire(&world, id[0], world.term).yes);
    cr_expect_eq(lease_grant_to(&world, id[3], "n3", 1, "10.0.0.3", 4).error, CO_EXISTS, "by its new name");
    cr_assert(lease_expire(&world, id[2], world.term).yes);
    cr_expect(lease_grant_to(&world, id[3], "n3", 1, "10.0.0.3", 4).yes && lives_at("n3", 1, id[3]).yes,
              "it is dead now");
    cr_expect_str_eq(node_state(&world, "n2"), "gone");
    sums_hold();
}

/* Both were granted before one of them was in the catalog. */
Test(leases, of_two_new_nodes_with_one_id_the_first_one_stays, .init = setup, .fini = teardown) {
    cr_assert(lease_grant_to(&world, id[0], "n1", 1, "10.0.0.1", 1).yes &&
              lease_grant_to(&world, id[1], "n2", 1, "10.0.0.2", 2).yes);
    cr_assert(lives_at("n1", 1, id[0]).yes);
    struct outcome o = lives_at("n2", 1, id[1]);
    cr_expect(o.error == CO_INVALID && strstr(o.text, "two agents need two node IDs"), "%d %s", o.error, o.text);
    cr_expect_str_eq(node_state(&world, "n1"), "serfHealth=passing ");
    cr_expect(lives_at("n1", 1, id[0]).yes);
    cr_assert(lease_expire(&world, id[0], world.term).yes);
    cr_expect(lives_at("n2", 1, id[1]).yes);
    cr_expect_str_eq(node_state(&world, "n1"), "gone");
    sums_hold();
}

/* Without its address nobody would find what is on it. */
Test(leases, what_an_agent_registers_does_not_make_its_node, .init = setup, .fini = teardown) {
    struct registration service = {.node = "n1", .service = "web", .skip = true, .by = id[0]},
                        others = {.node = "n9", .service = "web", .skip = true};
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes);
    cr_expect_eq(lease_register(&world, &service).error, CO_CONFLICT);
    cr_expect_str_eq(node_state(&world, "n1"), "gone");
    cr_expect(lives_at("n1", 1, id[0]).yes && lease_register(&world, &service).yes);
    cr_expect(lease_register(&world, &others).yes, "as Consul takes it from anybody");
    sums_hold();
}

Test(leases, a_dead_agent, .init = setup, .fini = teardown) {
    char session[UUID_TEXT_SIZE + 1];
    session_id(1, session);
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes);
    cr_assert(lease_register(&world, &agent).yes);
    cr_assert(
        lease_register(&world, &(struct registration){.node = "n1", .service = "web", .skip = true, .by = id[0]}).yes);
    cr_assert(session_make(&world, session, &(struct session_plan){.node = "n1", .node_check = "serfHealth"}).yes);
    cr_assert(kv_acquire(&world, "lock", "1", session).yes);
    world.term = 7;
    cr_expect_eq(lease_expire(&world, id[0], 6).error, CO_CONFLICT, "a deposed leader's");
    cr_expect_eq(lease_expire(&world, id[0], 8).error, CO_CONFLICT);
    cr_expect_str_eq(node_state(&world, "n1"), "serfHealth=passing ");
    uint64_t died = lease_expire(&world, id[0], world.term).index;
    cr_expect_str_eq(node_state(&world, "n1"), "serfHealth=critical ");
    cr_expect_str_eq(dead_nodes(&world), "n1 ");
    cr_expect_not(session_get_by(&world, session).found, "its sessions ended in that entry");
    cr_expect_eq(marked(SPACE_SERVICE, "web"), died);
    struct outcome late = lease_register(&world, &(struct registration){.node = "n1", .alive = true, .by = id[0]});
    cr_expect_eq(late.error, CO_NOTFOUND, "what it had on its way changes nothing");
    cr_assert(lease_grant(&world, id[1], "n1", 1).yes);
    cr_expect_str_eq(node_state(&world, "n1"), "serfHealth=passing ");
    cr_expect_str_eq(dead_nodes(&world), "");
    cr_expect(lease_reap(&world, "n1", died, world.term).error == CO_OK, "it came back");
    cr_expect_str_eq(node_state(&world, "n1"), "serfHealth=passing ");
    uint64_t again = lease_revoke(&world, id[1]).index;
    cr_expect_eq(lease_reap(&world, "n1", again, 6).error, CO_CONFLICT);
    cr_expect_eq(lease_reap(&world, "n1", again, 0).error, CO_CONFLICT, "nobody but a leader");
    cr_expect_not(lease_reap(&world, "n1", died, world.term).yes);
    cr_expect_str_eq(node_state(&world, "n1"), "serfHealth=critical ");
    uint64_t reaped = lease_reap(&world, "n1", again, world.term).index;
    cr_expect_str_eq(node_state(&world, "n1"), "gone");
    cr_expect_str_eq(dead_nodes(&world), "");
    cr_expect_eq(marked(SPACE_SERVICE, "web"), reaped);
    sums_hold();
}

Test(leases, a_node_that_leaves_goes_at_once, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes && lease_register(&world, &agent).yes);
    cr_assert(lease_leave(&world, id[0]).yes);
    cr_expect_str_eq(node_state(&world, "n1"), "gone");
    cr_expect_str_eq(dead_nodes(&world), "");
    struct outcome again = lease_leave(&world, id[0]);
    cr_expect(again.error == CO_OK && !again.yes, "it has no lease to leave by");
}

/* A node that left is shown as left until it is here again, or for its reconnect timeout. */
Test(leases, a_node_that_left_is_shown_as_left, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes && lease_register(&world, &agent).yes);
    cr_expect_str_eq(members_now(&world), "n1=alive ");
    uint64_t left = lease_leave(&world, id[0]).index;
    cr_expect_str_eq(members_now(&world), "n1=left ");
    cr_expect_str_eq(dead_nodes(&world), "", "it did not die");
    cr_assert(lease_grant(&world, id[1], "n1", 1).yes);
    cr_expect_str_eq(members_now(&world), "", "it is about to register");
    cr_assert(lease_register(&world, &(struct registration){.node = "n1", .node_id = 1, .alive = true}).yes);
    cr_expect_str_eq(members_now(&world), "n1=alive ");
    cr_expect_not(lease_reap(&world, "n1", left, world.term).yes, "it came back");
    left = lease_leave(&world, id[1]).index;
    cr_assert(node_register(&world, "n1").yes);
    cr_expect_str_eq(members_now(&world), "", "somebody else has registered it, without an agent");
    cr_assert(lease_reap(&world, "n1", left, world.term).yes);
    cr_expect_str_neq(node_state(&world, "n1"), "gone", "that node stays when the note goes");
    cr_assert(node_remove(&world, "n1").yes);
    cr_expect_str_eq(members_now(&world), "", "the note's time was over");
    sums_hold();
}

/* Others have a node leave whose agent is gone, and none that lives. */
Test(leases, a_node_is_made_to_leave, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes && lease_register(&world, &agent).yes);
    cr_expect_eq(node_leave(&world, "n1", false, false).error, CO_CONFLICT, "it renews its lease");
    cr_expect_eq(node_leave(&world, "n1", false, true).error, CO_CONFLICT);
    cr_expect_str_eq(members_now(&world), "n1=alive ");
    cr_assert(lease_expire(&world, id[0], world.term).yes);
    cr_expect_str_eq(members_now(&world), "n1=failed ");
    cr_expect(node_leave(&world, "n1", false, false).yes);
    cr_expect_str_eq(members_now(&world), "n1=left ");
    cr_expect_str_eq(node_state(&world, "n1"), "gone");
    cr_expect_str_eq(dead_nodes(&world), "");
    struct outcome again = node_leave(&world, "n1", false, false);
    cr_expect(again.error == CO_OK && !again.yes, "once");
    cr_expect(node_leave(&world, "n1", false, true).yes);
    cr_expect_str_eq(members_now(&world), "", "pruned");
    cr_expect_not(node_leave(&world, "n1", false, true).yes);
    /* a server that the leader is not connected with: its lease may stand for some seconds */
    cr_assert(lease_grant(&world, id[1], "n2", 2).yes);
    cr_assert(lease_register(&world, &(struct registration){.node = "n2", .node_id = 2, .alive = true}).yes);
    cr_expect(node_leave(&world, "n2", true, false).yes);
    cr_expect_str_eq(members_now(&world), "n2=left ");
    cr_expect_eq(lease_register(&world, &(struct registration){.node = "n2", .alive = true, .by = id[1]}).error,
                 CO_NOTFOUND, "its lease has ended");
    /* an agent without a lease, as somebody says that it lives, or that it is dead */
    cr_assert(lease_register(&world, &(struct registration){.node = "n3", .node_id = 3, .alive = true}).yes);
    cr_expect_eq(node_leave(&world, "n3", false, false).error, CO_CONFLICT);
    cr_expect_eq(node_leave(&world, "", false, false).error, CO_INVALID);
    cr_expect_not(node_leave(&world, "nosuch", false, true).yes);
    sums_hold();
}

Test(leases, a_node_that_never_registered, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes);
    cr_assert(lease_expire(&world, id[0], world.term).yes);
    cr_expect_str_eq(node_state(&world, "n1"), "gone");
    cr_expect_str_eq(dead_nodes(&world), "");
    cr_assert(node_register(&world, "n2").error == CO_OK && lease_grant(&world, id[1], "n2", 2).yes);
    cr_assert(lease_expire(&world, id[1], world.term).yes);
    cr_expect_str_eq(node_state(&world, "n2"), "serfHealth=critical ", "it had no such check");
    cr_assert(node_remove(&world, "n2").yes);
    cr_expect_str_eq(dead_nodes(&world), "", "a node that is removed takes its note along");
}

/* Another agent takes a dead one's name: it is not alive by the grant alone, but by its own registration. */
Test(leases, a_successor_under_the_same_name, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes && lease_register(&world, &agent).yes);
    cr_assert(lease_expire(&world, id[0], world.term).yes);
    cr_assert(lease_grant(&world, id[1], "n1", 2).yes);
    cr_expect_str_eq(node_state(&world, "n1"), "serfHealth=critical ");
    cr_assert(
        lease_register(&world, &(struct registration){.node = "n1", .node_id = 2, .alive = true, .by = id[1]}).yes);
    cr_expect_str_eq(node_state(&world, "n1"), "serfHealth=passing ");
    cr_assert(lease_expire(&world, id[1], world.term).yes);
    cr_expect_str_eq(dead_nodes(&world), "n1 ");
    cr_assert(lease_register(&world, &(struct registration){.node = "n1", .node_id = 2, .alive = true}).yes);
    cr_assert(lease_reap(&world, "n1", marked(SPACE_DEAD_NODES, ""), world.term).yes);
    cr_expect_str_eq(node_state(&world, "n1"), "serfHealth=passing ", "somebody says that it lives");
    cr_expect_str_eq(dead_nodes(&world), "");
}

/* -- the leader's table ------------------------------------------------------------------------------------------- */

static void expect_news(const char *expected, unsigned line) {
    struct buffer text = {0};
    fixture_updates(&world, 1000000000, &text);
    cr_expect_str_eq(text.data, expected, "line %u: %s", line, text.data);
    buffer_free(&text);
}

Test(leases, news, .init = setup, .fini = teardown) {
    expect_news("", __LINE__);
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes && lease_register(&world, &agent).yes);
    expect_news("lease began 00000064 10; ", __LINE__);
    cr_assert(lease_expire(&world, id[0], world.term).yes);
    expect_news("dead node began n1 7; lease ended 00000064 0; ", __LINE__);
    cr_assert(lease_grant(&world, id[1], "n1", 1).yes);
    expect_news("dead node ended n1 0; lease began 00000065 10; ", __LINE__);
    cr_assert(lease_revoke(&world, id[1]).yes && node_remove(&world, "n1").yes);
    expect_news("dead node began n1 7; lease ended 00000065 0; dead node ended n1 0; ", __LINE__);
}

static const struct reconnect_classes classes;

Test(leases, a_new_leader_reads_them_from_the_store, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, id[0], "n1", 1).yes && lease_register(&world, &agent).yes);
    cr_assert(lease_expire(&world, id[0], world.term).yes);
    cr_assert(lease_grant(&world, id[1], NULL, 0).yes);
    fixture_reopen(&world);
    struct expiry *timers = expiry_new();
    int64_t ttl_ns = 0;
    expiry_lead(timers, 3, 1000);
    struct lease_settings settings = {.reconnect = classes};
    struct expiry_leader leader = {.term = 3, .now_ms = 1000, .settings = &settings};
    cr_assert_eq(lease_expiry.read(store_read(world.reader), &leader, timers), CO_OK);
    store_read_done(world.reader);
    cr_assert_eq(dead_node_expiry.read(store_read(world.reader), &leader, timers), CO_OK);
    store_read_done(world.reader);
    cr_expect_eq(expiry_renew(timers, &lease_expiry, slice_text(id[0]), 1000, &ttl_ns), CO_NOTFOUND);
    cr_expect_eq(expiry_renew(timers, &lease_expiry, slice_text(id[1]), 1000, &ttl_ns), CO_OK);
    cr_expect_eq(ttl_ns, 10000000000);
    cr_expect_eq(expiry_count(timers, &dead_node_expiry), 1);
    expiry_free(timers);
}

static int64_t timeout_of(const char *node, const struct reconnect_classes *list) {
    int64_t timeout_ns = reconnect_timeout(store_read(world.reader), slice_text(node), list, 7);
    store_read_done(world.reader);
    return timeout_ns;
}

Test(leases, how_long_a_dead_node_stays_is_said_by_its_meta_its_class_or_its_agent, .init = setup, .fini = teardown) {
    static const struct reconnect_class items[] = {{"spot", 600}, {"edge", 900}};
    const struct reconnect_classes list = {items, ARRAY_COUNT(items)};
    static const struct {
        const char *key, *value, *key_two, *value_two;
        int64_t expected;
    } cases[] = {{"class", "spot", NULL, NULL, 600},
                 {"class", "edge", NULL, NULL, 900},
                 {"class", "other", NULL, NULL, 7},
                 {"reconnect_timeout", "1m", NULL, NULL, 60000000000},
                 {"class", "spot", "reconnect_timeout", "200ms", 200000000},
                 {"class", "spot", "reconnect_timeout", "soon", 600},
                 {"class", "spot", "reconnect_timeout", "0s", 600},
                 {"class", "spot", "reconnect_timeout", "-5s", 600},
                 {"rack", "spot", NULL, NULL, 7}};
    cr_expect_eq(timeout_of("n1", &list), 7, "not there");
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        Pb__Pair one = PB__PAIR__INIT, two = PB__PAIR__INIT, *meta[] = {&one, &two};
        Pb__Node node = PB__NODE__INIT;
        Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
        one.key = (char *)(uintptr_t)cases[i].key, one.value = (char *)(uintptr_t)cases[i].value;
        two.key = (char *)(uintptr_t)cases[i].key_two, two.value = (char *)(uintptr_t)cases[i].value_two;
        node.name = (char *)(uintptr_t) "n1", node.address = (char *)(uintptr_t) "10.0.0.1";
        node.meta = meta, node.n_meta = cases[i].key_two ? 2 : 1;
        command.node = &node;
        cr_assert(fixture_apply(&world, CATALOG_REGISTER, &command.base).yes);
        cr_expect_eq(timeout_of("n1", &list), cases[i].expected, "case %zu", i);
    }
}
