/* The life of regions: their leaders' followers and looks, and what is on its way. */
#include "tests/sim/regions.h"

#include <stdlib.h>
#include <string.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/memory.h"
#include "base/message.h"
#include "registry/version.h"

const char *const region_names[REGIONS_HERE] = {"eu", "us", "ap"};
const char *const region_services[REGION_SERVICES] = {"web", "reader"};

#define NAME(text) ((char *)(uintptr_t)(text))

static bool by_chance(struct regions *all, uint32_t permille) { return !all->calm && sim_chance(all->sim, permille); }

static uint64_t now_ms(const struct regions *all) { return all->sim->now_us / MS; }

/* -- entries ------------------------------------------------------------------------------------------------------ */

struct outcome {
    int error;
    bool yes;
    uint64_t index;
};

static void keep(void *data, void *origin, const struct machine_result *result) {
    (void)data;
    *(struct outcome *)origin = (struct outcome){result->error, result->yes, result->index};
}

static struct outcome apply_bytes(struct region *region, struct slice bytes) {
    struct outcome outcome = {.error = CO_OK};
    struct machine_input input = {.index = machine_applied(region->replica.machine) + 1,
                                  .term = region->term,
                                  .command = bytes,
                                  .is_command = true,
                                  .origin = &outcome};
    CHECK(machine_apply(region->replica.machine, &input, 1, keep, NULL, NULL) == CO_OK);
    TRACE(region->all->sim, "%s applies %s: %s%s", region_names[region->number],
          machine_command_row(region->replica.machine, bytes)->name, outcome.yes ? "yes" : "no",
          outcome.error ? ", refused" : "");
    sim_mix(region->all->sim, region->all->sim->now_us << 8 | region->number);
    sim_mix_bytes(region->all->sim, bytes.data, bytes.size);
    region->all->commits += bytes.data[0] == (char)COPY_COMMIT && outcome.yes;
    region_judge_keys(region);
    return outcome;
}

static struct outcome apply(struct region *region, uint8_t number, const ProtobufCMessage *message,
                            const struct region_entry *entry) {
    struct buffer bytes = {0};
    machine_command(&bytes, number, message);
    struct outcome outcome = apply_bytes(region, buffer_slice(&bytes));
    buffer_free(&bytes);
    region_judge(region, entry);
    return outcome;
}

int region_apply(struct region *region, uint8_t number, const ProtobufCMessage *message, bool *yes, uint64_t *index) {
    struct outcome outcome = apply(region, number, message, &(struct region_entry){.home = NULL});
    if (yes) *yes = outcome.yes;
    if (index) *index = outcome.index;
    return outcome.error;
}

void region_order(struct region *region, const struct region_order *order) {
    Pb__FailoverSetCommand command = PB__FAILOVER_SET_COMMAND__INIT;
    Pb__FailoverTarget targets[REGION_TARGETS], *pointers[REGION_TARGETS];
    char *names[REGION_TARGETS][REGIONS_HERE], *blue[] = {NAME("blue")};
    struct region_entry entry = {.ordered = true, .before = region->order};
    for (unsigned i = 0; i < order->count; i++) {
        pointers[i] = &targets[i];
        pb__failover_target__init(&targets[i]);
        if (order->targets[i].reader) targets[i].service = NAME(region_services[SERVICE_READER]);
        if (order->targets[i].blue) targets[i].tags = blue, targets[i].n_tags = 1;
        for (unsigned k = 0; k < order->targets[i].n_regions; k++)
            names[i][k] = NAME(region_names[order->targets[i].regions[k]]);
        targets[i].regions = names[i], targets[i].n_regions = order->targets[i].n_regions;
    }
    command.service = NAME(region_services[SERVICE_WEB]);
    command.targets = pointers, command.n_targets = order->count;
    region->order = *order;
    CHECK(apply(region, FAILOVER_SET, &command.base, &entry).yes);
}

/* -- commands that come later, or again --------------------------------------------------------------------------- */

/* One for which there is no room is lost. */
static void send_later(struct region *region, struct slice bytes, uint64_t us) {
    for (unsigned i = 0; i < REGION_LATE; i++) {
        struct region_late *late = &region->late[i];
        if (late->due_us) continue;
        late->due_us = region->all->sim->now_us + us;
        buffer_reset(&late->bytes);
        buffer_append(&late->bytes, bytes.data, bytes.size);
        return;
    }
    region->led_us = region->all->sim->now_us;
}

static void take_late(struct region *region, struct region_late *late) {
    struct arena arena = {0};
    struct slice bytes = buffer_slice(&late->bytes);
    struct region_entry entry = {.home = NULL};
    late->due_us = 0;
    if ((uint8_t)bytes.data[0] == FAILOVER_HOME) {
        const Pb__FailoverHomeCommand *command =
            message_unpack(&arena, &pb__failover_home_command__descriptor, slice_make(bytes.data + 2, bytes.size - 2));
        if (!command->region[0]) entry.home = command->service;
    }
    if (!apply_bytes(region, bytes).yes) entry.home = NULL;
    region_judge(region, &entry);
    arena_free(&arena);
}

/* -- the look after services that are away ------------------------------------------------------------------------ */

static void look(struct region *region) {
    struct regions *all = region->all;
    struct arena arena = {0};
    struct query_result found = {0};
    Pb__FailoversRequest ask = PB__FAILOVERS_REQUEST__INIT;
    Pb__FailoverHomeCommand command;
    region->look_us = all->sim->now_us + RETURNING_LOOK_MS * MS;
    if (!region->leads) return;
    CHECK(query_failovers.run(store_read(region->replica.reader), &ask.base, &arena, &found) == CO_OK);
    returning_look(region->returning, (const Pb__FailoversResult *)found.message, now_ms(all));
    store_read_done(region->replica.reader);
    while (returning_next(region->returning, now_ms(all), &command)) {
        struct buffer bytes = {0};
        machine_command(&bytes, FAILOVER_HOME, &command.base);
        if (by_chance(all, 50)) region->led_us = all->sim->now_us; /* it gets lost */
        else send_later(region, buffer_slice(&bytes), sim_random(all->sim, 1, 50) * MS);
        if (by_chance(all, 30)) send_later(region, buffer_slice(&bytes), sim_random(all->sim, 1, 9000) * MS);
        buffer_free(&bytes);
    }
    arena_free(&arena);
}

/* -- followers ---------------------------------------------------------------------------------------------------- */

static void begin_call(struct region *region, const struct region_link *link, struct region_follower *to) {
    struct sim *sim = region->all->sim;
    struct region_call *call = &to->call;
    struct follower_effect effect;
    follower_linked(to->follower, link->cut_us <= sim->now_us, now_ms(region->all));
    follower_next(to->follower, now_ms(region->all), &effect);
    if (effect.wish == FOLLOWER_RESTS) return;
    buffer_reset(&call->sent);
    call->query = effect.query;
    if (effect.wish == FOLLOWER_PROPOSES) {
        machine_command(&call->sent, effect.command, effect.message);
    } else {
        struct arena arena = {0};
        struct slice packed = message_pack(&arena, effect.message);
        buffer_append(&call->sent, packed.data, packed.size);
        arena_free(&arena);
    }
    call->under_way = true, call->wish = effect.wish, call->ticket = effect.ticket, call->index = effect.index;
    call->asked_us = sim->now_us, call->until_us = sim->now_us + effect.wait_ms * MS;
    call->due_us = sim->now_us + sim_random(sim, 1, by_chance(region->all, 100) ? 2000 : 60) * MS;
}

/* The answer of that region, which may be the own one. */
static void ask_region(struct region *region, bool cut, struct region_follower *to, struct region *other) {
    struct sim *sim = region->all->sim;
    struct region_call *call = &to->call;
    struct arena arena = {0};
    struct query_result result = {0};
    struct follower_answer answer = {.error = CO_TIMEOUT, .as_of_ms = call->asked_us / MS};
    if (other != region && (cut || by_chance(region->all, 20))) {
        call->under_way = false;
        follower_answered(to->follower, call->ticket, &answer, now_ms(region->all));
        return;
    }
    const ProtobufCMessage *request = message_unpack(&arena, call->query->request, buffer_slice(&call->sent));
    CHECK(call->query->run(store_read(other->replica.reader), request, &arena, &result) == CO_OK);
    answer.error = CO_OK, answer.index = result.index, answer.records = message_pack(&arena, result.message);
    store_read_done(other->replica.reader);
    if (call->index && result.index <= call->index && sim->now_us < call->until_us) {
        call->due_us = sim->now_us + 20 * MS; /* it waits there */
    } else {
        call->under_way = false;
        follower_answered(to->follower, call->ticket, &answer, now_ms(region->all));
    }
    arena_free(&arena);
}

static void propose(struct region *region, struct region_follower *to) {
    struct regions *all = region->all;
    struct region_call *call = &to->call;
    struct slice bytes = buffer_slice(&call->sent);
    call->under_way = false;
    if (by_chance(all, 20)) send_later(region, bytes, sim_random(all->sim, 1, 3000) * MS);
    if (by_chance(all, 20)) {
        follower_proposed(to->follower, call->ticket, CO_NOLEADER, CO_OK, false, 0, now_ms(all));
        return;
    }
    struct outcome outcome = apply_bytes(region, bytes);
    region_judge(region, &(struct region_entry){.home = NULL});
    int error = by_chance(all, 20) ? CO_UNKNOWN_OUTCOME : CO_OK;
    follower_proposed(to->follower, call->ticket, error, outcome.error, outcome.yes, outcome.index, now_ms(all));
}

static void go_on(struct region *region, unsigned other, struct region_follower *to) {
    const struct region_link *link = &region->links[other];
    bool cut = link->cut_us > region->all->sim->now_us;
    if (!to->follower) return;
    if (!to->call.under_way) {
        begin_call(region, link, to);
    } else if (to->call.due_us <= region->all->sim->now_us) {
        if (to->call.wish == FOLLOWER_READS) ask_region(region, cut, to, region);
        else if (to->call.wish == FOLLOWER_ASKS) ask_region(region, cut, to, &region->all->regions[other]);
        else propose(region, to);
    }
}

/* -- operators, leaders ------------------------------------------------------------------------------------------- */

static void lead(struct region *region, bool leads) {
    struct regions *all = region->all;
    region->leads = leads;
    region->led_us = all->sim->now_us;
    returning_forget(region->returning);
    for (unsigned i = 0; i < all->count; i++) {
        struct region_link *link = &region->links[i];
        if (link->catalog.follower) follower_leads(link->catalog.follower, leads && !link->removed, now_ms(all));
        if (link->keys.follower) follower_leads(link->keys.follower, leads, now_ms(all));
        link->catalog.call.under_way = link->keys.call.under_way = false; /* what was asked is heard by nobody */
    }
}

void region_leader_changes(struct region *region) {
    if (region->leads) region->term++;
    lead(region, !region->leads);
}

static void learn(struct region *region, unsigned other) {
    Pb__RegionLearnCommand command = PB__REGION_LEARN_COMMAND__INIT;
    Pb__RegionServer server = PB__REGION_SERVER__INIT, *servers[] = {&server};
    server.address = NAME("10.0.0.1:8300");
    command.name = NAME(region_names[other]), command.cluster_id = other + 1, command.wanted = true;
    command.servers = servers, command.n_servers = 1;
    CHECK(region_apply(region, REGION_LEARN, &command.base, NULL, NULL) == CO_OK);
}

void region_learns(struct region *region, unsigned other) {
    struct region_link *link = &region->links[other];
    if (!link->removed) return;
    learn(region, other);
    link->removed = false;
    follower_leads(link->catalog.follower, region->leads, now_ms(region->all));
}

void region_forgets(struct region *region, unsigned other) {
    struct region_link *link = &region->links[other];
    Pb__RegionRemoveCommand command = PB__REGION_REMOVE_COMMAND__INIT;
    if (link->removed) return;
    command.name = NAME(region_names[other]);
    CHECK(region_apply(region, REGION_REMOVE, &command.base, NULL, NULL) == CO_OK);
    link->removed = true, link->catalog.call.under_way = false;
    follower_leads(link->catalog.follower, false, now_ms(region->all));
}

struct slice region_prefix(unsigned number) {
    static const char *const prefixes[REGIONS_HERE] = {"eu/", "us/", "ap/"};
    return slice_text(prefixes[number]);
}

void region_copies_keys(struct region *region, unsigned other) {
    struct region_follower *to = &region->links[other].keys;
    Pb__KeysSetCommand command = PB__KEYS_SET_COMMAND__INIT;
    Pb__KeysRule rule;
    bool yes;
    command.prefix = message_bytes(region_prefix(other)), command.region = NAME(region_names[other]);
    command.replace = true;
    CHECK(!to->follower && region_apply(region, KEYS_SET, &command.base, &yes, NULL) == CO_OK && yes);
    region_rule(region, other, &rule);
    to->follower = follow_keys(region_prefix(other), rule.create_index);
    follower_rows_most(to->follower, (uint32_t)sim_random(region->all->sim, 1, 6));
    follower_leads(to->follower, region->leads, now_ms(region->all));
}

void region_copies_keys_no_more(struct region *region, unsigned other) {
    struct region_follower *to = &region->links[other].keys;
    Pb__KeysUnsetCommand command = PB__KEYS_UNSET_COMMAND__INIT;
    bool yes;
    follower_free(to->follower);
    to->follower = NULL, to->call.under_way = false;
    region->keys_at[other] = 0;
    command.prefix = message_bytes(region_prefix(other));
    CHECK(region_apply(region, KEYS_UNSET, &command.base, &yes, NULL) == CO_OK && yes);
}

/* A leader compares now and then which copies there should not be. */
static void forget_copies(struct region *region) {
    for (unsigned i = 0; i < region->all->count; i++) {
        Pb__CopyForgetCommand command = PB__COPY_FORGET_COMMAND__INIT;
        command.region = NAME(region_names[i]);
        if (region->leads && region->links[i].removed) region_apply(region, COPY_FORGET, &command.base, NULL, NULL);
    }
}

/* -- time --------------------------------------------------------------------------------------------------------- */

void regions_run(struct regions *all, uint64_t us) {
    struct sim *sim = all->sim;
    uint64_t end_us = sim->now_us + us;
    while (sim->now_us < end_us && !sim->failed) {
        uint64_t step_us = sim_random(sim, 1, 30) * MS;
        sim->now_us = sim->now_us + step_us < end_us ? sim->now_us + step_us : end_us;
        sim->events++;
        for (unsigned i = 0; i < all->count && !sim->failed; i++) {
            struct region *region = &all->regions[i];
            for (unsigned k = 0; k < all->count; k++)
                if (k != i) go_on(region, k, &region->links[k].catalog), go_on(region, k, &region->links[k].keys);
            for (unsigned k = 0; k < REGION_LATE; k++)
                if (region->late[k].due_us && region->late[k].due_us <= sim->now_us)
                    take_late(region, &region->late[k]);
            if (region->look_us <= sim->now_us) forget_copies(region), look(region);
            region_judge_time(region);
        }
    }
}

/* -- begin and end ------------------------------------------------------------------------------------------------ */

static void woken(void *data) { (void)data; }

static void region_begin(struct regions *all, unsigned number) {
    struct region *region = &all->regions[number];
    Pb__ClusterVersionCommand version = PB__CLUSTER_VERSION_COMMAND__INIT;
    *region = (struct region){.all = all, .number = number, .term = 1, .returning = returning_new(all->return_ms)};
    replica_open(&region->replica, number, false, agent_modules, all->sim->options.module_mutations, woken, NULL);
    version.version = MACHINE_VERSION_NEWEST, version.cluster_id = number + 1;
    bool yes = false;
    CHECK(region_apply(region, CLUSTER_VERSION, &version.base, &yes, NULL) == CO_OK && yes);
    region->look_us = sim_random(all->sim, 1, RETURNING_LOOK_MS) * MS;
    for (unsigned i = 0; i < all->count; i++) {
        if (i == number) continue;
        region->links[i].catalog.follower = follow_catalog(region_names[i]);
        follower_rows_most(region->links[i].catalog.follower, (uint32_t)sim_random(all->sim, 1, 4));
        learn(region, i);
    }
    lead(region, true);
}

struct regions *regions_begin(struct sim *sim, unsigned count, uint64_t return_ms) {
    struct regions *all = mem_zalloc(sizeof *all);
    CHECK(count <= REGIONS_HERE);
    all->sim = sim, all->count = count, all->return_ms = return_ms;
    for (unsigned i = 0; i < count; i++) region_begin(all, i);
    return all;
}

void regions_end(struct regions *all) {
    for (unsigned i = 0; i < all->count; i++) {
        struct region *region = &all->regions[i];
        for (unsigned k = 0; k < all->count; k++) {
            follower_free(region->links[k].catalog.follower);
            follower_free(region->links[k].keys.follower);
            buffer_free(&region->links[k].catalog.call.sent);
            buffer_free(&region->links[k].keys.call.sent);
        }
        for (unsigned k = 0; k < REGION_LATE; k++) buffer_free(&region->late[k].bytes);
        returning_free(region->returning);
        free(region->moments);
        replica_close(&region->replica);
    }
    free(all);
}
