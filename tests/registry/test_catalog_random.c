/* Random commands, and what must hold after each of them:
 *  - an index never goes back;
 *  - the index of a thing rises exactly when something in it changed: then it is the command's index, and a
 * waiter on the thing was fired; otherwise index, result bytes and waiter stand still;
 *  - the state sum is that of a scrub; another machine that applies the same log in other batches has the
 * same sum, and so has a restored copy.
 * All of it with names written in any case too, in a cluster that folds them (registry/fold.h). */
#include <criterion/criterion.h>
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/random.h"
#include "catalog_specs.h"
#include "registry/fold.h"
#include "tests/lib/scratch.h"

enum { NODES = 5, IDS = 4, NAMES = 4, CHECKS = 4, THINGS = 4 + NODES + NAMES };

struct seen {
    struct watch_waiter waiter;
    struct watch_key watched;
    char name[16];
    bool fired;
    uint64_t index, content;
};
static struct seen things[THINGS];
static struct fixture f;
static bool any_case; /* names are written so */

static void fired(struct watch_waiter *waiter) { CONTAINER_OF(waiter, struct seen, waiter)->fired = true; }

static void watch_things(void) {
    const char *tables[] = {"nodes", "services", "checks", "service-nodes"};
    for (int i = 0; i < THINGS; i++) {
        struct seen *seen = &things[i];
        uint8_t space = i < 4 ? SPACE_TABLE : i < 4 + NODES ? SPACE_NODE : SPACE_SERVICE;
        if (i < 4) snprintf(seen->name, sizeof seen->name, "%s", tables[i]);
        else
            snprintf(seen->name, sizeof seen->name, i < 4 + NODES ? "n%d" : "s%d",
                     i < 4 + NODES ? i - 4 : i - 4 - NODES);
        seen->watched = (struct watch_key){space, slice_text(seen->name)};
        watch_add(machine_watches(f.machine), &seen->waiter, seen->watched, fired);
    }
}

/* -- what is in a thing, as bytes --------------------------------------------------------------------------------- */

static uint64_t checks_with_meta(struct buffer *out) {
    Pb__StateRequest any = PB__STATE_REQUEST__INIT;
    any.state = (char *)(uintptr_t) "any";
    uint64_t index = fixture_bytes(&f, &query_state_checks, &any.base, out);
    struct query_result result = fixture_table(&f, &query_nodes);
    const Pb__NodesResult *nodes = (const Pb__NodesResult *)result.message;
    char names[NODES][16], meta[NODES][64];
    size_t count = nodes->n_nodes;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "%s", nodes->nodes[i]->name);
        snprintf(meta[i], sizeof meta[i], "%s", nodes->nodes[i]->n_meta ? nodes->nodes[i]->meta[0]->value : "");
    }
    for (size_t i = 0; i < count; i++) {
        size_t checks = ((const Pb__ChecksResult *)fixture_node(&f, &query_node_checks, names[i]).message)->n_checks;
        for (char *at = names[i]; *at; at++) *at = (char)tolower((unsigned char)*at); /* is no part of the checks */
        if (checks > 0) buffer_printf(out, "%s %s;", names[i], meta[i]);
    }
    fixture_forget(&f);
    return index;
}

static void tags_sorted(const Pb__Service *service, struct buffer *out) {
    for (char tag = 'a'; tag < 'f'; tag++) {
        for (size_t i = 0; i < service->n_tags; i++) {
            if (service->tags[i][0] != tag) continue;
            buffer_append_byte(out, tag);
            break;
        }
    }
}

static uint64_t service_nodes(struct buffer *out) {
    for (int i = 0; i < NODES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        const Pb__NodeServicesResult *node =
            (const Pb__NodeServicesResult *)fixture_node(&f, &query_node_services, name).message;
        if (node->n_services > 0)
            buffer_printf(out, "%s %s:", name, node->node->n_meta ? node->node->meta[0]->value : "");
        for (size_t j = 0; j < node->n_services; j++) {
            const char *id = node->services[j]->id;
            buffer_printf(out, "%c%s=%s/", tolower((unsigned char)id[0]), id + 1, node->services[j]->name);
            tags_sorted(node->services[j], out);
        }
        fixture_forget(&f);
    }
    Pb__TableRequest by_meta = PB__TABLE_REQUEST__INIT;
    Pb__Pair pair = PB__PAIR__INIT, *pairs[] = {&pair};
    pair.key = (char *)(uintptr_t) "m";
    by_meta.node_meta = pairs;
    by_meta.n_node_meta = 1;
    uint64_t index = 0;
    for (int i = 0; i < 3; i++) {
        char value[2] = {(char)('0' + i), 0};
        pair.value = value;
        index = fixture_bytes(&f, &query_services, &by_meta.base, out);
    }
    return index;
}

static uint64_t content_of(const struct seen *seen, struct buffer *out) {
    Pb__TableRequest table = PB__TABLE_REQUEST__INIT;
    Pb__NodeRequest node = PB__NODE_REQUEST__INIT;
    Pb__ServiceRequest service = PB__SERVICE_REQUEST__INIT;
    node.node = service.service = (char *)(uintptr_t)seen->name;
    if (slice_is(seen->watched.name, "nodes")) return fixture_bytes(&f, &query_nodes, &table.base, out);
    if (slice_is(seen->watched.name, "services")) return fixture_bytes(&f, &query_services, &table.base, out);
    if (slice_is(seen->watched.name, "checks")) return checks_with_meta(out);
    if (slice_is(seen->watched.name, "service-nodes")) return service_nodes(out);
    if (seen->watched.space == SPACE_NODE) {
        uint64_t index = fixture_bytes(&f, &query_node_services, &node.base, out);
        cr_assert_eq(fixture_bytes(&f, &query_node_checks, &node.base, out), index);
        return index;
    }
    uint64_t index = fixture_bytes(&f, &query_service_entries, &service.base, out);
    cr_assert_eq(fixture_bytes(&f, &query_service_checks, &service.base, out), index);
    return index;
}

/* -- random commands ---------------------------------------------------------------------------------------------- */

static int pick(struct rng *rng, int below) { return (int)rng_below(rng, (uint64_t)below); }

/* The first letters of names. */
static void write_names(struct rng *rng, char *spec) {
    bool names = false;
    for (char *at = spec; any_case && *at; at++) {
        if (at == spec || at[-1] == ' ')
            names = strncmp(at, "node=", 5) == 0 || strncmp(at, "service=", 8) == 0 || strncmp(at, "check=", 6) == 0;
        bool begins = at > spec && (at[-1] == '=' || at[-1] == ':') && isdigit((unsigned char)at[1]);
        if (names && begins && pick(rng, 2)) *at = (char)toupper((unsigned char)*at);
    }
}

static char *write_name(struct rng *rng, char *name) {
    if (any_case && pick(rng, 2)) name[0] = (char)toupper((unsigned char)name[0]);
    return name;
}

static Pb__RegisterCommand *random_register(struct rng *rng, struct arena *arena) {
    struct buffer spec = {0};
    buffer_printf(&spec, "node=n%d addr=10.0.0.%d", pick(rng, NODES), pick(rng, 3) == 0);
    if (pick(rng, 3) == 0) buffer_append_text(&spec, " skip");
    if (pick(rng, 2) == 0) buffer_printf(&spec, " id=22222222-2222-2222-2222-22222222222%d", pick(rng, NODES));
    if (pick(rng, 3) == 0) buffer_printf(&spec, " meta=m:%d", pick(rng, 3));
    if (pick(rng, 2) == 0) {
        buffer_printf(&spec, " service=i%d:s%d:%d", pick(rng, IDS), pick(rng, NAMES), pick(rng, 2));
        for (int i = pick(rng, 3); i > 0; i--) buffer_printf(&spec, " tag=%c", 'a' + pick(rng, 5));
    }
    const char *statuses[] = {"passing", "warning", "critical"};
    for (int i = pick(rng, 3); i > 0; i--) {
        int check = 2 * pick(rng, CHECKS / 2) + i % 2; /* no check twice in a command */
        if (i == 1 && pick(rng, 10) == 0) buffer_printf(&spec, " check=serfHealth:%s:", statuses[pick(rng, 3)]);
        else if (pick(rng, 3) == 0) buffer_printf(&spec, " check=c%d:%s:", check, statuses[pick(rng, 3)]);
        else buffer_printf(&spec, " check=c%d:%s:i%d", check, statuses[pick(rng, 3)], pick(rng, IDS));
        if (pick(rng, 3) == 0) buffer_printf(&spec, " output=o%d", pick(rng, 2));
    }
    buffer_append_byte(&spec, '\0');
    write_names(rng, spec.data);
    Pb__RegisterCommand *command = fixture_register_command(arena, spec.data);
    buffer_free(&spec);
    return command;
}

static Pb__DeregisterCommand *random_deregister(struct rng *rng, struct arena *arena) {
    Pb__DeregisterCommand *command = arena_alloc(arena, sizeof *command);
    pb__deregister_command__init(command);
    command->node = write_name(rng, arena_printf(arena, "n%d", pick(rng, NODES)));
    int what = pick(rng, 5);
    if (what < 2) command->service_id = write_name(rng, arena_printf(arena, "i%d", pick(rng, IDS)));
    else if (what < 4) command->check_id = write_name(rng, arena_printf(arena, "c%d", pick(rng, CHECKS)));
    return command;
}

static uint8_t random_command(struct rng *rng, struct arena *arena, const ProtobufCMessage **message) {
    int kind = pick(rng, 10);
    if (kind < 6) {
        *message = &random_register(rng, arena)->base;
        return CATALOG_REGISTER;
    }
    if (kind < 9) {
        *message = &random_deregister(rng, arena)->base;
        return CATALOG_DEREGISTER;
    }
    Pb__CatalogBatchCommand *batch = arena_alloc(arena, sizeof *batch);
    pb__catalog_batch_command__init(batch);
    batch->n_registers = rng_below(rng, 4);
    batch->n_deregisters = rng_below(rng, 2);
    batch->registers = arena_alloc(arena, 4 * sizeof *batch->registers);
    batch->deregisters = arena_alloc(arena, 2 * sizeof *batch->deregisters);
    for (size_t i = 0; i < batch->n_registers; i++) batch->registers[i] = random_register(rng, arena);
    for (size_t i = 0; i < batch->n_deregisters; i++) batch->deregisters[i] = random_deregister(rng, arena);
    *message = &batch->base;
    return CATALOG_BATCH;
}

/* A command that does several things can undo in its second part what it did in its first, or be refused after the
 * first was tried: then an index may rise, or a waiter wake, for nothing. Simple commands have no such excuse. */
static bool is_simple(uint8_t type, const ProtobufCMessage *message) {
    if (type == CATALOG_DEREGISTER) return true;
    return type == CATALOG_REGISTER && !((const Pb__RegisterCommand *)message)->node->id[0]; /* an ID may rename */
}

/* `step` -1: the empty catalog, only looked at. */
static void check_things(uint64_t index, bool simple, bool refused, int step) {
    struct buffer content = {0};
    for (int i = 0; i < THINGS; i++) {
        struct seen *seen = &things[i];
        buffer_reset(&content);
        uint64_t now = content_of(seen, &content), hash = hash64(content.data, content.size);
        bool changed = step >= 0 && hash != seen->content, rose = now > seen->index;
        cr_assert_geq(now, seen->index, "step %d %s", step, seen->name);
        if (changed)
            cr_assert(now == index && rose && seen->fired, "step %d %s: changed, index %d, fired %d", step, seen->name,
                      (int)now, seen->fired);
        if (rose) cr_assert(now == index && seen->fired && !refused, "step %d %s", step, seen->name);
        if (simple && !changed) cr_assert(!rose && !seen->fired, "step %d %s: nothing changed", step, seen->name);
        seen->index = now;
        seen->content = hash;
        seen->fired = false;
        watch_arm(&seen->waiter);
    }
    buffer_free(&content);
}

static void run_seed(uint64_t seed, int steps) {
    fixture_open(&f);
    memset(things, 0, sizeof things);
    watch_things();
    struct rng rng;
    rng_seed(&rng, seed);
    check_things(0, false, false, -1);
    for (int step = 0; step < steps; step++) {
        struct arena arena = {0};
        const ProtobufCMessage *message;
        uint8_t type = random_command(&rng, &arena, &message);
        struct outcome result = fixture_apply(&f, type, message);
        check_things(result.index, is_simple(type, message), result.error != CO_OK, step);
        if (step % 20 == 0) (void)fixture_sum(&f);
        arena_free(&arena);
    }
    (void)fixture_sum(&f);
    for (int i = 0; i < THINGS; i++) watch_remove(machine_watches(f.machine), &things[i].waiter);
    fixture_close(&f);
}

Test(catalog_random, indexes_rise_exactly_with_what_changes, .timeout = 300) {
    for (uint64_t seed = 1; seed <= 6; seed++) run_seed(seed, 700);
}

Test(catalog_random, names_in_any_case_are_no_exception, .timeout = 300) {
    any_case = true;
    for (uint64_t seed = 1; seed <= 6; seed++) run_seed(seed, 700);
}

/* -- the same log elsewhere --------------------------------------------------------------------------------------- */

enum { LOG = 1500 };

static void apply_in_batches(struct fixture *fixture, struct buffer *log, size_t most, uint64_t seed) {
    struct rng cuts;
    rng_seed(&cuts, seed);
    for (size_t at = 0; at < LOG;) {
        struct machine_input inputs[64];
        size_t count = 1 + rng_below(&cuts, most);
        if (count > LOG - at) count = LOG - at;
        for (size_t i = 0; i < count; i++) {
            inputs[i] = (struct machine_input){.index = at + i + 1,
                                               .term = 1 + (at + i) / 100,
                                               .command = buffer_slice(&log[at + i]),
                                               .is_command = true};
        }
        cr_assert_eq(machine_apply(fixture->machine, inputs, count, NULL, NULL, NULL), CO_OK);
        at += count;
    }
}

Test(catalog_random, equal_logs_give_equal_sums_and_copies, .timeout = 300) {
    static struct buffer log[LOG];
    struct rng rng;
    rng_seed(&rng, 77);
    for (int i = 0; i < LOG; i++) {
        struct arena arena = {0};
        const ProtobufCMessage *message;
        uint8_t type = random_command(&rng, &arena, &message);
        machine_command(&log[i], type, message);
        arena_free(&arena);
    }
    struct fixture one, other;
    fixture_open(&one);
    fixture_open(&other);
    apply_in_batches(&one, log, 1, 1);
    apply_in_batches(&other, log, 64, 2);
    uint64_t sum = fixture_sum(&one);
    cr_assert_eq(fixture_sum(&other), sum);
    char path[2][128];
    struct buffer bytes[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        struct fixture *fixture = i ? &other : &one;
        uint64_t index, term;
        snprintf(path[i], sizeof path[i], "%s/copy", fixture->folder);
        int fd = open(path[i], O_RDWR | O_CREAT, 0600);
        cr_assert_eq(machine_copy(fixture->machine, fd, &index, &term), CO_OK);
        cr_assert_eq(index, LOG);
        off_t size = lseek(fd, 0, SEEK_END);
        buffer_reserve(&bytes[i], (size_t)size);
        bytes[i].size = (size_t)pread(fd, bytes[i].data, (size_t)size, 0);
        close(fd);
    }
    cr_assert(slice_equal(buffer_slice(&bytes[0]), buffer_slice(&bytes[1])), "copies of equal states have equal bytes");
    struct fixture third;
    fixture_open(&third);
    cr_assert(fixture_register(&third, "node=other service=x:y:1").yes);
    int fd = open(path[0], O_RDONLY);
    struct fault fault = {0};
    cr_assert_eq(machine_install(third.machine, fd, bytes[0].size, &fault), CO_OK, "%s", fault.text);
    close(fd);
    cr_assert_eq(fixture_sum(&third), sum);
    cr_assert_eq(machine_applied(third.machine), LOG);
    fixture_reopen(&third);
    cr_assert_eq(fixture_sum(&third), sum);
    struct fixture *all[] = {&one, &other, &third};
    for (int i = 0; i < 3; i++) {
        cr_assert(fixture_register(all[i], "node=after service=x:y:1").yes);
        cr_assert_eq(fixture_sum(all[i]), fixture_sum(&one));
    }
    for (int i = 0; i < 3; i++) fixture_close(all[i]);
    for (int i = 0; i < LOG; i++) buffer_free(&log[i]);
    for (int i = 0; i < 2; i++) buffer_free(&bytes[i]);
}
