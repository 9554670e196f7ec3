/* Regions whose checks, links, leaders and orders change at random: a healthy home is not left, and who is away comes home. */
#include "base/check.h"
#include "tests/sim/regions.h"
#include "tests/sim/story.h"

#define NAME(text) ((char *)(uintptr_t)(text))

/* -- registrations ------------------------------------------------------------------------------------------------ */

struct put { /* one of them, with room for its records */
    Pb__RegisterCommand command;
    Pb__Node node;
    Pb__Service service;
    Pb__Check checks[2], *pointers[2];
    char name[8], *blue;
};

static const Pb__Status statuses[] = {PB__STATUS__PASSING, PB__STATUS__CRITICAL, PB__STATUS__PASSING,
                                      PB__STATUS__CRITICAL, PB__STATUS__WARNING};

static Pb__Status any_status(struct sim *s) {
    return statuses[sim_random(s, 0, sizeof statuses / sizeof statuses[0] - 1)];
}

static void put_node(struct put *put, unsigned node) {
    pb__register_command__init(&put->command);
    pb__node__init(&put->node);
    snprintf(put->name, sizeof put->name, "n%u", node);
    put->node.name = put->name, put->node.address = NAME("10.0.0.1");
    put->command.node = &put->node, put->command.checks = put->pointers;
    for (unsigned i = 0; i < 2; i++) {
        pb__check__init(&put->checks[i]);
        put->pointers[i] = &put->checks[i];
    }
}

/* With one check or two. */
static void put_instance(struct put *put, unsigned node, unsigned service, bool blue, unsigned checks,
                         const Pb__Status *status) {
    static const char *const ids[REGION_SERVICES][2] = {{"web a", "web b"}, {"reader a", "reader b"}};
    put_node(put, node);
    pb__service__init(&put->service);
    put->service.id = put->service.name = NAME(region_services[service]);
    put->blue = NAME("blue"), put->service.tags = &put->blue, put->service.n_tags = blue;
    put->command.service = &put->service, put->command.n_checks = checks;
    for (unsigned i = 0; i < checks; i++) {
        put->checks[i].check_id = put->checks[i].name = NAME(ids[service][i]);
        put->checks[i].service_id = put->service.id, put->checks[i].status = status[i];
    }
}

static void put_any(struct sim *s, struct put *put) {
    Pb__Status status[] = {any_status(s), any_status(s)};
    unsigned service = sim_chance(s, 750) ? SERVICE_WEB : SERVICE_READER, checks = sim_chance(s, 250) ? 2 : 1;
    put_instance(put, (unsigned)sim_random(s, 0, REGION_NODES - 1), service, sim_chance(s, 500), checks, status);
}

static void register_any(struct region *region) {
    struct put put;
    put_any(region->all->sim, &put);
    region_apply(region, CATALOG_REGISTER, &put.command.base, NULL, NULL);
}

static void register_some(struct region *region) {
    struct sim *s = region->all->sim;
    Pb__CatalogBatchCommand batch = PB__CATALOG_BATCH_COMMAND__INIT;
    Pb__RegisterCommand *commands[4];
    struct put puts[4];
    batch.registers = commands, batch.n_registers = sim_random(s, 2, 4);
    for (size_t i = 0; i < batch.n_registers; i++) {
        put_any(s, &puts[i]);
        commands[i] = &puts[i].command;
    }
    region_apply(region, CATALOG_BATCH, &batch.base, NULL, NULL);
}

static void register_node(struct region *region, unsigned node, Pb__Status status) {
    struct put put;
    put_node(&put, node);
    put.checks[0].check_id = put.checks[0].name = NAME("the node's own"), put.checks[0].status = status;
    put.command.n_checks = 1;
    region_apply(region, CATALOG_REGISTER, &put.command.base, NULL, NULL);
}

static void deregister(struct region *region) {
    struct sim *s = region->all->sim;
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    char node[8];
    snprintf(node, sizeof node, "n%u", (unsigned)sim_random(s, 0, REGION_NODES - 1));
    command.node = node;
    if (sim_chance(s, 700))
        command.service_id = NAME(region_services[sim_chance(s, 700) ? SERVICE_WEB : SERVICE_READER]);
    region_apply(region, CATALOG_DEREGISTER, &command.base, NULL, NULL);
}

/* -- orders ------------------------------------------------------------------------------------------------------- */

static void order_any(struct region *region) {
    struct sim *s = region->all->sim;
    struct region_order order = {.count = (unsigned)sim_random(s, 0, REGION_TARGETS)};
    for (unsigned i = 0; i < order.count; i++) {
        struct region_target *target = &order.targets[i];
        target->reader = sim_chance(s, 400), target->blue = sim_chance(s, 300);
        target->n_regions = (unsigned)sim_random(s, 0, 2);
        for (unsigned k = 0; k < target->n_regions; k++)
            target->regions[k] = (unsigned)sim_random(s, 0, region->all->count - 1);
    }
    region_order(region, &order);
}

/* -- what happens ------------------------------------------------------------------------------------------------- */

static unsigned another(const struct region *region) {
    unsigned other = (unsigned)sim_random(region->all->sim, 1, region->all->count - 1);
    return (region->number + other) % region->all->count;
}

/* All of the service at once. */
static void turn_all(struct region *region, unsigned service, Pb__Status status) {
    const Pb__Status both[] = {status, status};
    for (unsigned node = 0; node < REGION_NODES; node++) {
        struct put put;
        put_instance(&put, node, service, node % 2, 2, both);
        region_apply(region, CATALOG_REGISTER, &put.command.base, NULL, NULL);
    }
}

/* While one waits to come home another goes, or comes. */
static bool disturb(struct regions *all) {
    for (unsigned i = 0; i < all->count; i++) {
        if (!all->regions[i].waits[SERVICE_WEB] || !sim_chance(all->sim, 300)) continue;
        Pb__Status status = sim_chance(all->sim, 700) ? PB__STATUS__CRITICAL : PB__STATUS__PASSING;
        turn_all(&all->regions[another(&all->regions[i])], sim_chance(all->sim, 800) ? SERVICE_WEB : SERVICE_READER,
                 status);
        return true;
    }
    return false;
}

static void something(struct regions *all) {
    struct sim *s = all->sim;
    if (disturb(all)) return;
    struct region *region = &all->regions[sim_random(s, 0, all->count - 1)];
    uint64_t what = sim_random(s, 0, 99);
    if (what < 55) register_any(region);
    else if (what < 65) register_some(region);
    else if (what < 72) register_node(region, (unsigned)sim_random(s, 0, REGION_NODES - 1), any_status(s));
    else if (what < 80) deregister(region);
    else if (what < 87) order_any(region);
    else if (what < 90) region_leader_changes(region);
    else if (what < 92) region_forgets(region, another(region));
    else if (what < 95) region_learns(region, another(region));
    else region->links[another(region)].cut_us = s->now_us + sim_random(s, 50, 4000) * MS;
}

/* Home is healthy everywhere, for good, and nothing else happens. */
static void all_is_well(struct regions *all) {
    all->calm = true;
    for (unsigned i = 0; i < all->count; i++) {
        struct region *region = &all->regions[i];
        if (!region->leads) region_leader_changes(region);
        for (unsigned k = 0; k < all->count; k++) region->links[k].cut_us = 0;
        register_node(region, 0, PB__STATUS__PASSING);
        for (unsigned service = 0; service < REGION_SERVICES; service++) turn_all(region, service, PB__STATUS__PASSING);
    }
}

static void play(struct sim *s, struct regions *all) {
    unsigned changes = (unsigned)sim_random(s, 20, 60);
    for (unsigned i = 0; i < changes && !s->failed; i++) {
        something(all);
        regions_run(all, sim_random(s, 1, sim_chance(s, 150) ? all->return_ms + 2000 : 400) * MS);
    }
    all_is_well(all);
    regions_run(all, (all->return_ms + 2 * RETURNING_LOOK_MS + 500) * MS);
    for (unsigned i = 0; i < all->count; i++)
        for (unsigned service = 0; service < REGION_SERVICES; service++)
            EXPECT(s, !all->regions[i].view.noted[service]);
    TRACE(s,
          "%" PRIu64 " answers, %" PRIu64 " from others, %" PRIu64 " of them while home was healthy; %" PRIu64
          " came home after their time, %" PRIu64 " when nobody else was left; %" PRIu64 " large changes",
          all->answers, all->from_others, all->while_healthy, all->homes, all->ends, all->commits);
}

void scenario_a_healthy_home_is_not_left(struct sim *s) {
    static const uint64_t returns_ms[] = {0, 1000, 3000, 10000};
    struct regions *all = regions_begin(s, (unsigned)sim_random(s, 2, REGIONS_HERE), returns_ms[sim_random(s, 0, 3)]);
    play(s, all);
    regions_end(all);
}
