/* Aliases of other nodes come and go while those nodes change, answers fail and the agent is stopped with questions
 * out: in the end each alias is as its node. With a node lease, which ends now and then. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "fake_agent.h"
#include "health/definition.h"
#include "looks.h"

#define NODES  5
#define ROUNDS 4

static _Atomic bool over;

static void name_of(int i, char name[20]) { snprintf(name, 20, "far%d", i); }

static Pb__Status last[NODES];

static void far_check(struct agent *agent, int i, Pb__Status status) {
    char name[20];
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Check one = PB__CHECK__INIT, *checks[] = {&one};
    name_of(i, name);
    node.name = one.node = name;
    node.address = (char *)"10.0.0.2";
    one.check_id = one.name = (char *)"c";
    one.status = last[i] = status;
    command.node = &node;
    command.checks = checks;
    command.n_checks = 1;
    fake_rpc_apply(agent->rpc, CATALOG_REGISTER, &command.base);
}

static void alias(struct agent *agent, int number) {
    char text[200], name[20];
    struct fault fault = {0};
    name_of(number % NODES, name);
    snprintf(text, sizeof text, "{\"Name\":\"a%d\",\"AliasNode\":\"%s\"}", number, name);
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct check_definition *definition = json ? check_definition_parse(json, &fault) : NULL;
    CHECK(definition != NULL);
    json_object_put(json);
    CHECK(local_check_register(agent->local, definition, true, &fault) == CO_OK);
}

static void *aliases_main(void *data) {
    struct agent *agent = data;
    for (int i = 0; i < 300; i++) {
        char id[20];
        alias(agent, i % 17);
        snprintf(id, sizeof id, "a%d", (i * 5) % 17);
        if (i % 3 == 0) local_check_deregister(agent->local, slice_text(id));
        if (i % 10 == 0) usleep(1000);
    }
    over = true;
    return NULL;
}

static void end_its_lease(struct agent *agent) {
    struct arena arena = {0};
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    const Pb__Lease *lease = look_node_lease(agent->rpc, &arena, FAKE_AGENT_NODE);
    if (lease) {
        command.id = lease->id;
        fake_rpc_apply(agent->rpc, LEASE_END, &command.base);
    }
    arena_free(&arena);
}

static bool all_follow(struct agent *agent) {
    struct arena arena = {0};
    Pb__Check **checks;
    size_t count = local_checks(agent->local, &arena, &checks);
    bool all = count > 0;
    for (size_t i = 0; i < count; i++) {
        const Pb__Check *stored = look_check(agent->rpc, &arena, FAKE_AGENT_NODE, checks[i]->check_id);
        Pb__Status expected = last[atoi(checks[i]->check_id + 1) % NODES];
        all = all && checks[i]->status == expected && stored && stored->status == expected;
    }
    arena_free(&arena);
    return all;
}

static void until_all_follow(struct agent *agent) {
    uint64_t end_ms = clock_mono_ms() + 60000;
    while (!all_follow(agent)) {
        CHECK(clock_mono_ms() < end_ms);
        usleep(2000);
    }
}

int main(void) {
    struct agent *agent = agent_new(true);
    pthread_t thread;
    agent_stop(agent);
    agent->lease_ttl_ns = 100000000;
    for (int round = 0; round < ROUNDS; round++) {
        agent_start(agent);
        over = false;
        CHECK(pthread_create(&thread, NULL, aliases_main, agent) == 0);
        for (int i = 0; !over; i++) {
            far_check(agent, i % NODES, (Pb__Status)(i % 3));
            if (i % 50 == 49) end_its_lease(agent);
            fake_rpc_fence(agent->rpc, i % 20 == 7);
        }
        fake_rpc_fence(agent->rpc, false);
        pthread_join(thread, NULL);
        for (int i = 0; i < NODES; i++) far_check(agent, i, (Pb__Status)((i + round) % 3));
        until_all_follow(agent);
        alias(agent, 3); /* its question may be on its way when the agent goes */
        agent_stop(agent);
    }
    agent_start(agent);
    until_all_follow(agent);
    agent_free(agent);
    return 0;
}
