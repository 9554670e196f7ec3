/* The node lease of an agent: nothing is said in the catalog under a name that may be another's. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "fake_agent.h"
#include "health/definition.h"
#include "health/liveness.h"
#include "looks.h"
#include "tests/lib/until.h"

#define NODE        FAKE_AGENT_NODE
#define OTHER_ID    "bb8b5fd8-2166-fa20-21b1-516072ab0089"
#define OTHER_LEASE "0c8b5fd8-2166-4a20-a1b1-516072ab0089"
#define TTL_NS      INT64_C(300000000)

/* -- the agent
 * ---------------------------------------------------------------------------------------------------------- */

/* Not started. */
static struct agent *stopped(void) {
    struct agent *agent = agent_new(false);
    agent_stop(agent);
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)NODE;
    fake_rpc_apply(agent->rpc, CATALOG_DEREGISTER, &command.base); /* what it said before */
    agent->lease_ttl_ns = TTL_NS;
    return agent;
}

static struct agent *started(void) {
    struct agent *agent = stopped();
    agent_start(agent);
    return agent;
}

static void service_from(struct agent *agent, const char *text, bool persist) {
    struct fault fault = {0};
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct service_definition *definition = json ? service_definition_parse(json, &fault) : NULL;
    cr_assert_not_null(definition, "%s", fault.text);
    json_object_put(json);
    cr_assert_eq(local_service_register(agent->local, definition, false, persist, &fault), CO_OK, "%s", fault.text);
}

static void service(struct agent *agent, const char *name) {
    char text[100];
    snprintf(text, sizeof text, "{\"Name\":\"%s\"}", name);
    service_from(agent, text, false);
}

/* Bound to a lease, with a check, and kept. */
static void leased_service(struct agent *agent, const char *name, const char *lease) {
    char text[200];
    snprintf(text, sizeof text, "{\"Name\":\"%s\",\"Lease\":\"%s\",\"Check\":{\"TTL\":\"1h\",\"Status\":\"passing\"}}",
             name, lease);
    service_from(agent, text, true);
}

static bool is_local(struct agent *agent, const char *id) {
    return local_service_hash(agent->local, slice_text(id)) != 0;
}

/* -- the catalog
 * -------------------------------------------------------------------------------------------------------- */

static bool node_there(struct agent *agent) {
    struct arena arena = {0};
    bool yes = look_node(agent->rpc, &arena, NODE) != NULL;
    arena_free(&arena);
    return yes;
}

static bool service_there(struct agent *agent, const char *id) {
    struct arena arena = {0};
    bool yes = look_service(agent->rpc, &arena, NODE, id) != NULL;
    arena_free(&arena);
    return yes;
}

static bool alive(struct agent *agent) {
    struct arena arena = {0};
    const Pb__Check *check = look_check(agent->rpc, &arena, NODE, "serfHealth");
    bool yes = check && check->status == PB__STATUS__PASSING;
    arena_free(&arena);
    return yes;
}

/* The lease under the node's name; false: there is none, or it is another agent's. */
static bool lease(struct agent *agent, char id[40]) {
    struct arena arena = {0};
    const Pb__Lease *found = look_node_lease(agent->rpc, &arena, NODE);
    bool yes = found && strcmp(found->node_id, FAKE_AGENT_ID) == 0;
    if (yes) snprintf(id, 40, "%s", found->id);
    arena_free(&arena);
    return yes;
}

static void grant_free(struct agent *agent, const char *id) {
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    Pb__Lease free_lease = PB__LEASE__INIT;
    free_lease.id = (char *)id, free_lease.ttl_ns = 60000000000;
    command.lease = &free_lease;
    fake_rpc_apply(agent->rpc, LEASE_GRANT, &command.base);
}

static void end_lease(struct agent *agent, const char *id) {
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    command.id = (char *)id;
    fake_rpc_apply(agent->rpc, LEASE_END, &command.base);
}

static void other_takes_the_name(struct agent *agent) {
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    Pb__Lease other = PB__LEASE__INIT;
    other.id = (char *)OTHER_LEASE, other.ttl_ns = TTL_NS;
    other.node = (char *)NODE, other.node_id = (char *)OTHER_ID;
    command.lease = &other;
    fake_rpc_apply(agent->rpc, LEASE_GRANT, &command.base);
}

/* -- what is said in the log
 * ------------------------------------------------------------------------------------------------ */

static _Atomic unsigned warnings;

static void count_warnings(void *data, enum log_level level, const char *line, size_t size) {
    (void)data, (void)size;
    if (level == LOG_WARN && strstr(line, "another agent has this node's name")) warnings++;
}

/* -- stories
 * ------------------------------------------------------------------------------------------------------------ */

Test(liveness, is_granted_and_renewed) {
    struct agent *agent = stopped();
    char id[40], later[40];
    uint64_t begun_ms = clock_mono_ms();
    agent_start(agent);
    UNTIL(lease(agent, id) && alive(agent));
    service(agent, "web");
    UNTIL(service_there(agent, "web") && local_synced(agent->local));
    uint64_t writes = fake_rpc_writes(agent->rpc), renewals = fake_rpc_renewals(agent->rpc);
    UNTIL(fake_rpc_renewals(agent->rpc) >= renewals + 4);
    uint64_t most = (clock_mono_ms() - begun_ms) / 90; /* of the period, a tenth may be missing */
    cr_assert_leq(fake_rpc_renewals(agent->rpc), most + 1, "three in a TTL of 300 ms");
    cr_assert(lease(agent, later) && strcmp(id, later) == 0, "the same lease");
    cr_assert_eq(fake_rpc_writes(agent->rpc), writes, "a renewal is no write");
    agent_free(agent);
}

/* However long it lives: by a renewal an agent learns that a backup was taken in. */
Test(liveness, a_renewal_is_never_far) {
    cr_assert_eq(liveness_period_ms(TTL_NS), 100);
    cr_assert_eq(liveness_period_ms(INT64_C(30000000000)), 10000);
    cr_assert_eq(liveness_period_ms(INT64_C(86400000000000)), 10000);
}

/* The very first thing that the servers apply of this agent is its lease. */
Test(liveness, comes_before_everything_else) {
    struct agent *agent = stopped();
    char id[40];
    fake_rpc_leader(agent->rpc, false);
    agent_start(agent);
    service(agent, "web");
    uint64_t writes = fake_rpc_writes(agent->rpc);
    fake_rpc_leader(agent->rpc, true);
    UNTIL(fake_rpc_writes(agent->rpc) > writes);
    cr_assert(lease(agent, id));
    UNTIL(service_there(agent, "web"));
    agent_free(agent);
}

Test(liveness, that_the_servers_ended_is_asked_for_anew) {
    struct agent *agent = started();
    char first[40], second[40];
    service(agent, "web");
    UNTIL(lease(agent, first) && service_there(agent, "web") && local_synced(agent->local));
    Pb__DeregisterCommand gone = PB__DEREGISTER_COMMAND__INIT;
    gone.node = (char *)NODE, gone.service_id = (char *)"web";
    fake_rpc_apply(agent->rpc, CATALOG_DEREGISTER, &gone.base); /* nobody tells the agent */
    cr_assert_not(service_there(agent, "web"));
    end_lease(agent, first);
    UNTIL(lease(agent, second) && strcmp(first, second) != 0);
    UNTIL(alive(agent));
    UNTIL(service_there(agent, "web")); /* compared at once, not after a minute */
    agent_free(agent);
}

/* A write tells it too, between two renewals. */
Test(liveness, a_refused_write_is_noticed) {
    struct agent *agent = stopped();
    char first[40], second[40];
    agent->lease_ttl_ns = 1000 * TTL_NS; /* it is not renewed here */
    agent_start(agent);
    UNTIL(lease(agent, first) && alive(agent) && local_synced(agent->local));
    end_lease(agent, first);
    service(agent, "web");
    UNTIL(lease(agent, second) && service_there(agent, "web"));
    cr_assert_str_neq(first, second);
    cr_assert_eq(fake_rpc_renewals(agent->rpc), 0);
    agent_free(agent);
}

static uint64_t health_index(struct agent *agent) {
    struct arena arena = {0};
    const Pb__Check *check = look_check(agent->rpc, &arena, NODE, "serfHealth");
    uint64_t index = check ? check->modify_index : 0;
    arena_free(&arena);
    return index;
}

/* A write that was lost on its way arrives after it was made anew, and after that was changed again: it has no
 * effect. */
Test(liveness, a_late_write_undoes_nothing) {
    struct agent *agent = stopped();
    char first[40], second[40], third[40];
    agent->lease_ttl_ns = 1000 * TTL_NS;
    agent_start(agent);
    service(agent, "web");
    UNTIL(lease(agent, first) && alive(agent) && service_there(agent, "web") && local_synced(agent->local));
    uint64_t alive_since = health_index(agent), writes = fake_rpc_writes(agent->rpc);
    fake_rpc_delay(agent->rpc, 1);
    cr_assert_eq(local_service_deregister(agent->local, slice_text("web")), CO_OK);
    UNTIL(!service_there(agent, "web") && local_synced(agent->local));
    cr_assert_eq(fake_rpc_writes(agent->rpc), writes + 2, "a lease, and the write again");
    cr_assert(lease(agent, second) && strcmp(first, second) != 0);
    service(agent, "web");
    UNTIL(service_there(agent, "web") && local_synced(agent->local));
    fake_rpc_delay(agent->rpc, 1);
    service(agent, "ghost");
    UNTIL(service_there(agent, "ghost") && local_synced(agent->local));
    cr_assert_eq(local_service_deregister(agent->local, slice_text("ghost")), CO_OK);
    UNTIL(!service_there(agent, "ghost") && local_synced(agent->local));
    fake_rpc_late(agent->rpc);
    cr_assert(service_there(agent, "web") && !service_there(agent, "ghost"));
    cr_assert_eq(health_index(agent), alive_since, "nobody is told that it lives");
    writes = fake_rpc_writes(agent->rpc);
    cr_assert(lease(agent, third));
    service(agent, "more");
    UNTIL(service_there(agent, "more") && local_synced(agent->local));
    cr_assert_eq(fake_rpc_writes(agent->rpc), writes + 1, "the same lease for what is not lost");
    agent_free(agent);
}

/* Services that are bound to free leases of their owners. */
#define FREE_ONE "1f8b5fd8-2166-4a20-a1b1-516072ab0089"
#define FREE_TWO "2f8b5fd8-2166-4a20-a1b1-516072ab0089"

static void a_leased_service_goes(int64_t lease_ttl_ns) {
    struct agent *agent = agent_new(true);
    agent_stop(agent);
    agent->lease_ttl_ns = lease_ttl_ns;
    agent->sync_ns = 50000000;
    agent_start(agent);
    char first[40] = "", later[40] = "";
    UNTIL(lease_ttl_ns == 0 || lease(agent, first));
    grant_free(agent, FREE_ONE);
    grant_free(agent, FREE_TWO);
    leased_service(agent, "one", FREE_ONE);
    leased_service(agent, "two", FREE_TWO);
    service(agent, "free");
    UNTIL(service_there(agent, "one") && service_there(agent, "two") && service_there(agent, "free"));
    Pb__DeregisterCommand gone = PB__DEREGISTER_COMMAND__INIT;
    gone.node = (char *)NODE, gone.service_id = (char *)"two";
    fake_rpc_apply(agent->rpc, CATALOG_DEREGISTER, &gone.base);
    UNTIL(service_there(agent, "two")); /* its lease stands: it comes back */
    end_lease(agent, FREE_ONE);
    cr_assert_not(service_there(agent, "one"));
    UNTIL(!is_local(agent, "one") && local_synced(agent->local));
    uint64_t writes = fake_rpc_writes(agent->rpc), reads = fake_rpc_fetched(agent->rpc);
    UNTIL(fake_rpc_fetched(agent->rpc) >= reads + 6); /* three comparisons */
    cr_assert_eq(fake_rpc_writes(agent->rpc), writes, "that is all");
    cr_assert(!service_there(agent, "one") && service_there(agent, "two") && service_there(agent, "free"));
    cr_assert(lease_ttl_ns == 0 || (lease(agent, later) && strcmp(first, later) == 0), "its own lease is none of that");
    agent_stop(agent);
    end_lease(agent, FREE_TWO);       /* while it is away */
    fake_rpc_fence(agent->rpc, true); /* the first comparison may come before the next line */
    agent_start(agent);
    cr_assert(is_local(agent, "two") && !is_local(agent, "one"), "as it was saved");
    fake_rpc_fence(agent->rpc, false);
    UNTIL(!is_local(agent, "two") && local_synced(agent->local));
    cr_assert_not(service_there(agent, "two"));
    grant_free(agent, FREE_TWO);
    leased_service(agent, "two", FREE_TWO);
    UNTIL(service_there(agent, "two"));
    service_from(agent, "{\"Name\":\"two\"}", true);
    UNTIL(local_synced(agent->local));
    end_lease(agent, FREE_TWO);
    cr_assert(service_there(agent, "two"), "registered again without one: it is not bound");
    agent_free(agent);
}

Test(liveness, a_service_goes_with_the_lease_that_it_is_bound_to) { a_leased_service_goes(TTL_NS); }
Test(liveness, and_where_no_node_has_one) { a_leased_service_goes(0); }

Test(liveness, waits_while_another_has_the_name) {
    struct agent *agent = stopped();
    char id[40];
    other_takes_the_name(agent);
    int level = log_level_now;
    warnings = 0;
    log_set_sink(count_warnings, NULL);
    log_level_now = LOG_WARN;
    uint64_t writes = fake_rpc_writes(agent->rpc);
    agent_start(agent);
    service(agent, "web");
    UNTIL(fake_rpc_writes(agent->rpc) >= writes + 3); /* it asked again, */
    cr_assert_eq(warnings, 1, "said so once");
    cr_assert_not(node_there(agent), "and nothing of it stands there");
    cr_assert_not(local_synced(agent->local));
    end_lease(agent, OTHER_LEASE);
    UNTIL(lease(agent, id) && alive(agent) && service_there(agent, "web"));
    log_level_now = level;
    agent_free(agent);
    log_set_sink(NULL, NULL);
}

Test(liveness, lost_again_and_again_is_asked_for_later_and_later) {
    cr_assert_eq(liveness_lost_wait_ms(1), 0);
    cr_assert_eq(liveness_lost_wait_ms(2), 0);
    cr_assert_eq(liveness_lost_wait_ms(3), 1000);
    cr_assert_eq(liveness_lost_wait_ms(5), 4000);
    cr_assert_eq(liveness_lost_wait_ms(100), 30000);
    struct agent *agent = stopped();
    char id[40];
    agent->lease_ttl_ns = TTL_NS / 3;
    agent_start(agent);
    uint64_t begun_ms = 0;
    for (int i = 0; i < 3; i++) {
        UNTIL(lease(agent, id));
        begun_ms = clock_mono_ms();
        end_lease(agent, id);
    }
    UNTIL(lease(agent, id));
    cr_assert_geq(clock_mono_ms() - begun_ms, 900, "another one may have the same idea");
    agent_free(agent);
}

Test(liveness, survives_a_time_without_leader) {
    struct agent *agent = started();
    char first[40], later[40];
    UNTIL(lease(agent, first) && alive(agent));
    fake_rpc_leader(agent->rpc, false);
    uint64_t renewals = fake_rpc_renewals(agent->rpc);
    service(agent, "web");
    fake_rpc_leader(agent->rpc, true);
    UNTIL(fake_rpc_renewals(agent->rpc) > renewals && service_there(agent, "web"));
    cr_assert(lease(agent, later) && strcmp(first, later) == 0, "nothing ended it");
    agent_free(agent);
}

/* The same agent after a restart takes over from itself at once. */
Test(liveness, a_restart_takes_over) {
    struct agent *agent = started();
    char first[40], second[40];
    UNTIL(lease(agent, first) && alive(agent));
    agent_stop(agent);
    cr_assert(lease(agent, second) && strcmp(first, second) == 0, "it just stopped");
    agent_start(agent);
    UNTIL(lease(agent, second) && strcmp(first, second) != 0);
    UNTIL(alive(agent));
    agent_free(agent);
}

Test(liveness, who_leaves_goes_at_once) {
    struct agent *agent = started();
    char id[40];
    service(agent, "web");
    UNTIL(lease(agent, id) && service_there(agent, "web"));
    agent->leave = true;
    agent_stop(agent);
    cr_assert_eq(agent->left_error, CO_OK);
    cr_assert_not(node_there(agent));
    cr_assert_not(lease(agent, id));
    agent->leave = false;
    agent_start(agent);
    UNTIL(lease(agent, id) && node_there(agent));
    agent_free(agent);
}

/* Nobody answers: the end of the program does not wait for ever. */
Test(liveness, leaving_without_an_answer_ends) {
    struct agent *agent = started();
    char id[40];
    UNTIL(lease(agent, id) && alive(agent) && local_synced(agent->local));
    fake_rpc_hold(agent->rpc, true);
    agent->leave = true;
    uint64_t begun_ms = clock_mono_ms();
    agent_stop(agent);
    cr_assert_lt(clock_mono_ms() - begun_ms, 10000);
    cr_assert_eq(agent->left_error, CO_TIMEOUT, "and is not said to be done");
    agent->leave = false;
    fake_rpc_hold(agent->rpc, false);
    agent_start(agent);
    agent_free(agent);
}

/* No server was ever reached: there is nothing to leave. */
Test(liveness, leaving_before_any_server_was_reached_is_done_at_once) {
    struct agent *agent = stopped();
    fake_rpc_leader(agent->rpc, false);
    fake_rpc_hold(agent->rpc, true);
    agent_start(agent);
    UNTIL(fake_rpc_held(agent->rpc) > 0); /* a grant waits for one */
    agent->leave = true;
    uint64_t begun_ms = clock_mono_ms();
    agent_stop(agent);
    cr_assert_eq(agent->left_error, CO_OK);
    cr_assert_lt(clock_mono_ms() - begun_ms, 4000);
    agent->leave = false;
    fake_rpc_hold(agent->rpc, false);
    fake_rpc_leader(agent->rpc, true);
    agent_start(agent);
    agent_free(agent);
}

/* -- whose a record is
 * -------------------------------------------------------------------------------------------------- */

static void write_by_others(struct agent *agent, const char *service_id, uint32_t port) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
    node.name = (char *)NODE;
    service.id = service.name = check.check_id = check.name = (char *)service_id;
    service.port = port;
    check.service_id = (char *)service_id;
    command.node = &node, command.skip_node_update = true, command.service = &service;
    command.checks = checks, command.n_checks = 1;
    fake_rpc_apply(agent->rpc, CATALOG_REGISTER, &command.base);
}

static bool labelled(struct agent *agent, const char *id) {
    struct arena arena = {0};
    const Pb__Service *service = look_service(agent->rpc, &arena, NODE, id);
    bool yes = service && service->by_agent;
    arena_free(&arena);
    return yes;
}

/* Records that this agent wrote and has forgotten go; records of others under its node stay; of one id for both, the
 * agent's stands. */
Test(liveness, an_agent_removes_only_what_it_wrote) {
    struct agent *agent = stopped();
    agent->sync_ns = 50000000;
    agent_start(agent);
    char id[40];
    service(agent, "forgotten"), service(agent, "both"); /* not kept: gone with this life */
    UNTIL(lease(agent, id) && labelled(agent, "forgotten") && labelled(agent, "both"));
    agent_stop(agent);
    write_by_others(agent, "guest", 1);
    write_by_others(agent, "both", 1);
    cr_assert(!labelled(agent, "guest") && !labelled(agent, "both"));
    agent_start(agent);
    service(agent, "both");
    UNTIL(!service_there(agent, "forgotten") && labelled(agent, "both"));
    usleep(200000); /* a few comparisons */
    cr_assert(service_there(agent, "guest"));
    agent_free(agent);
}
