/* Reports of load by instances of this host, and the places that know them then. */
#include <criterion/criterion.h>
#include <math.h>

#include "agent_talk.h"
#include "base/clock.h"
#include "lb/hints.h"

static void see(void *data, size_t i, bool known, const struct load_entry *entry) {
    (void)i;
    *(double *)data = known ? entry->hint.load : -1;
}

static struct load_instance web(void *data, size_t i) {
    (void)data, (void)i;
    return (struct load_instance){.node = slice_text(FAKE_AGENT_NODE), .service_id = SLICE_LITERAL("web-1")};
}

/* -1: nothing at all is known. */
static double known(const struct agent *agent) {
    double load;
    hints_look(rpc_hints(agent->rpc), 1, clock_mono_ns(), web, see, &load);
    return load;
}

static int report(struct agent *agent, const char *id, double load) {
    struct load_hint hint = load_unknown();
    hint.load = load;
    return local_service_load(agent->local, slice_text(id), &hint);
}

static void note(struct agent *agent, const char *text) {
    struct fault fault = {0};
    cr_assert_eq(
        local_check_update(agent->local, SLICE_LITERAL("service:web-1"), PB__STATUS__PASSING, slice_text(text), &fault),
        CO_OK);
}

Test(load, reports_and_notes_of_checks) {
    struct agent *agent = agent_new(false);
    register_service(agent, "{\"ID\":\"web-1\",\"Name\":\"web\",\"Check\":{\"TTL\":\"60s\"}}");
    cr_expect_eq(known(agent), -1);
    cr_expect_eq(report(agent, "web-1", 0.5), CO_OK);
    cr_expect_eq(known(agent), 0.5);
    cr_expect(hints_known(rpc_hints(agent->rpc), SLICE_LITERAL("web")), "by its name too");
    cr_expect_eq(report(agent, "WEB-1", 0.75), CO_OK,
                 "IDs have no case; the hint is that of the one that is registered");
    cr_expect_eq(known(agent), 0.75);
    cr_expect_eq(report(agent, "web-2", 0.5), CO_NOTFOUND);
    cr_expect_eq(report(agent, "web-1", -1), CO_INVALID);
    cr_expect_eq(report(agent, "web-1", NAN), CO_INVALID);
    cr_expect_eq(known(agent), 0.75);
    note(agent, "all is well\nload=0.25 inflight=3\n");
    cr_expect_eq(known(agent), 0.25);
    note(agent, "load=high");
    note(agent, "nothing is said of it");
    cr_expect_eq(known(agent), 0.25, "what makes no sense is not used, and the check counts");
    cr_expect_eq(local_service_deregister(agent->local, SLICE_LITERAL("web-1")), CO_OK);
    cr_expect_eq(known(agent), -1, "it goes with the service");
    cr_expect_eq(report(agent, "web-1", 0.5), CO_NOTFOUND);
    agent_free(agent);
}
