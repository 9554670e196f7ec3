/* Hints as they go between processes, and the table that all threads share. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "lb/hints.h"
#include "lb/load_wire.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)

static struct load_entry entry_of(const char *node, const char *id, const char *service, double load) {
    return (struct load_entry){.instance = {slice_text(node), slice_text(id), slice_text(service)},
                               .hint = {load, NAN, NAN, NAN},
                               .age_ns = 1500 * MS + 1,
                               .interval_ns = 2 * SECOND,
                               .known_ns = 7 * SECOND};
}

Test(load_wire, what_is_written_is_read) {
    struct buffer frame = {0};
    struct load_writer writer = {.out = &frame};
    struct load_entry all = entry_of("n1", "api-1", "api", 0.42), same = entry_of("n1", "db", "db", 7),
                      other = entry_of("n2", "db", "DB", 0);
    all.hint = (struct load_hint){0.42, 17, 3.5, 0.01};
    other.known_ns = UINT64_MAX;
    load_write(&writer, &all);
    size_t first = frame.size;
    load_write(&writer, &same);
    cr_expect_lt(frame.size - first, 20, "node and service are not said again, nor what is not known");
    load_write(&writer, &other);

    struct load_reader reader = {.rest = buffer_slice(&frame)};
    struct load_entry read;
    cr_assert_eq(load_read(&reader, &read), CO_OK);
    cr_expect(slice_is(read.instance.node, "n1") && slice_is(read.instance.service_id, "api-1") &&
              slice_is(read.instance.service, "api"));
    cr_expect(read.hint.load == 0.42 && read.hint.inflight == 17 && read.hint.latency_ms == 3.5 &&
              read.hint.errors == 0.01);
    cr_expect_eq(read.age_ns, 1501 * MS, "rounded up");
    cr_expect(read.interval_ns == 2 * SECOND && read.known_ns == 7 * SECOND);
    cr_assert_eq(load_read(&reader, &read), CO_OK);
    cr_expect(slice_is(read.instance.node, "n1") && slice_is(read.instance.service, "db") && read.hint.load == 7);
    cr_expect(isnan(read.hint.inflight) && isnan(read.hint.latency_ms) && isnan(read.hint.errors));
    cr_assert_eq(load_read(&reader, &read), CO_OK);
    cr_expect(slice_is(read.instance.node, "n2") && slice_is(read.instance.service, "DB"));
    cr_expect_eq(read.known_ns, LOAD_KNOWN_LONG_NS);
    cr_expect_eq(load_read(&reader, &read), CO_NOTFOUND);

    for (size_t cut = 1; cut < frame.size; cut++) { /* in memory of its own, so that a sanitizer sees what is beyond */
        char *part = malloc(cut);
        memcpy(part, frame.data, cut);
        reader = (struct load_reader){.rest = slice_make(part, cut)};
        int rv;
        while ((rv = load_read(&reader, &read)) == CO_OK) continue;
        cr_expect(rv == CO_CORRUPT || cut == first || rv == CO_NOTFOUND);
        free(part);
    }
    buffer_free(&frame);
}

Test(load_wire, nonsense_is_refused) {
    struct load_reader reader = {.rest = SLICE_LITERAL("\x08\x01\x01")};
    struct load_entry read;
    cr_expect_eq(load_read(&reader, &read), CO_CORRUPT, "the node of a hint before, where there is none");
    reader = (struct load_reader){.rest = SLICE_LITERAL("\xff\x01\x01")};
    cr_expect_eq(load_read(&reader, &read), CO_CORRUPT, "flags that nobody knows");
    reader = (struct load_reader){.rest = SLICE_LITERAL("\x10\x01\x01\xff\xff\xff\xff\x0f")};
    cr_expect_eq(load_read(&reader, &read), CO_CORRUPT, "a name beyond the frame");
}

/* -- the shared table --------------------------------------------------------------------------------------------- */
static void see_load(void *data, size_t i, bool known, const struct load_entry *entry) {
    ((double *)data)[i] = known ? entry->hint.load : -1;
}

static struct load_instance api_1(void *data, size_t i) {
    (void)data, (void)i;
    return entry_of("n1", "api-1", "api", 0).instance;
}

static double seen(struct hints *hints, uint64_t now_ns) {
    double load;
    hints_look(hints, 1, now_ns, api_1, see_load, &load);
    return load;
}

static void see_kept(void *data, size_t i, bool known, const struct load_entry *entry) {
    ((double *)data)[i] = known ? entry->kept : -1;
}

static double kept(struct hints *hints, uint64_t now_ns) {
    double share;
    hints_look(hints, 1, now_ns, api_1, see_kept, &share);
    return share;
}

static void pass_on(struct hints *from, struct hints *to, bool direct, const char *but_node, uint64_t now) {
    struct buffer frame = {0};
    hints_changes(from, 0, direct ? LOAD_DIRECT : LOAD_ALL, 100, now, &frame);
    cr_expect_eq(hints_take(to, buffer_slice(&frame), direct, slice_text(but_node), now), CO_OK);
    buffer_free(&frame);
}

/* The server that hears of an instance directly decides; the others, and the agent whose instance it is, are told. */
Test(hints, the_share_of_keys_is_decided_once) {
    struct hints *agent = hints_new(0), *server = hints_new(0), *other = hints_new(0);
    struct load_hint hint = load_unknown();
    uint64_t now = 1000 * SECOND;
    hints_decides(server), hints_decides(other);
    hint.load = 2;
    cr_assert_eq(hints_report(agent, api_1(NULL, 0), &hint, 0, now), CO_OK);
    hint.load = 0.1;
    cr_assert_eq(hints_report(other, entry_of("n2", "api-2", "api", 0).instance, &hint, 0, now), CO_OK);
    pass_on(agent, server, true, "", now);
    pass_on(server, other, false, "", now);
    cr_expect_eq(kept(other, now), 1, "whoever does not hear of it directly decides nothing");
    pass_on(other, server, false, "", now);
    double decided = kept(server, now);
    cr_expect(decided < 1 && decided > 0.5, "%g", decided);
    now += SECOND / 10;
    pass_on(server, other, false, "", now);
    cr_expect_eq(kept(other, now), decided);
    pass_on(server, agent, false, "n1", now);
    cr_expect_eq(kept(agent, now), decided, "also what is said of its own node");
    cr_expect_eq(seen(agent, now), 2, "and that alone");
    now += SECOND;
    hint.load = 1.5;
    cr_assert_eq(hints_report(agent, api_1(NULL, 0), &hint, 0, now), CO_OK);
    pass_on(agent, other, true, "", now); /* it is connected to the other server now */
    cr_expect_eq(kept(other, now), decided, "who decides from now on begins there");
    hints_free(other);
    other = hints_new(0); /* a server that has just started learns it of the agent */
    pass_on(agent, other, true, "", now);
    cr_expect_eq(kept(other, now), decided);
    hints_created(other, api_1(NULL, 0), 5, now, now);
    cr_expect_eq(kept(other, now), 1, "one that is registered anew begins with all of them");
    hints_free(agent), hints_free(server), hints_free(other);
}

Test(hints, from_an_agent_over_its_server_to_another) {
    struct hints *agent = hints_new(0), *server = hints_new(0), *other = hints_new(0);
    struct buffer frame = {0};
    struct load_hint hint = load_unknown();
    uint64_t now = 1000 * SECOND;
    hint.load = 0.5;
    cr_expect_eq(hints_sequence(agent), 0);
    cr_expect_not(hints_known(agent, SLICE_LITERAL("api")));
    cr_assert_eq(hints_report(agent, api_1(NULL, 0), &hint, 0, now), CO_OK);
    cr_expect(hints_known(agent, SLICE_LITERAL("API")), "names have no case");

    uint64_t next = hints_changes(agent, 0, LOAD_DIRECT, 100, now, &frame);
    cr_expect_eq(next, hints_sequence(agent));
    cr_expect_eq(hints_take(server, buffer_slice(&frame), true, slice_text(""), now), CO_OK);
    cr_expect_eq(seen(server, now), 0.5);
    buffer_reset(&frame);
    hints_changes(server, 0, LOAD_DIRECT, 100, now, &frame);
    cr_expect_gt(frame.size, 0, "what agents of this server say is passed on");
    cr_expect_eq(hints_take(other, buffer_slice(&frame), false, slice_text(""), now), CO_OK);
    cr_expect_eq(seen(other, now), 0.5);
    buffer_reset(&frame);
    hints_changes(other, 0, LOAD_DIRECT, 100, now, &frame);
    cr_expect_eq(frame.size, 0, "and no further");
    hints_of_service(other, SLICE_LITERAL("Api"), now, &frame, NULL, NULL);
    cr_expect_gt(frame.size, 0);
    cr_expect_eq(hints_take(agent, buffer_slice(&frame), false, SLICE_LITERAL("n1"), now + SECOND), CO_OK);
    next = hints_changes(agent, next, LOAD_ALL, 100, now, &frame);
    cr_expect_eq(next, hints_sequence(agent), "what is said of this node is not news here");
    hints_forget(server, api_1(NULL, 0));
    cr_expect_eq(seen(server, now), -1);
    cr_expect_not(hints_known(server, SLICE_LITERAL("api")));
    buffer_free(&frame);
    hints_free(agent), hints_free(server), hints_free(other);
}

Test(hints, broken_frames_and_mad_numbers_change_nothing) {
    struct hints *hints = hints_new(0);
    struct buffer frame = {0};
    struct load_writer writer = {.out = &frame};
    static const double mad[] = {-1, NAN, INFINITY, 1e300};
    for (size_t i = 0; i < 4; i++) {
        struct load_entry entry = entry_of("n1", "api-1", "api", mad[i]);
        load_write(&writer, &entry);
    }
    cr_expect_eq(hints_take(hints, buffer_slice(&frame), true, slice_text(""), SECOND), CO_OK);
    cr_expect_eq(hints_count(hints), 0);
    cr_expect_eq(hints_take(hints, slice_make(frame.data, frame.size - 1), true, slice_text(""), SECOND), CO_CORRUPT);
    buffer_free(&frame);
    hints_free(hints);
}

Test(hints, services_have_their_instances) {
    struct hints *hints = hints_new(0);
    struct load_hint hint = load_unknown();
    char id[16];
    hint.load = 1;
    for (int i = 0; i < 1000; i++) { /* the table grows, and the services with it */
        snprintf(id, sizeof id, "i%d", i);
        struct load_instance instance = {SLICE_LITERAL("n"), slice_text(id), slice_text(i % 3 ? "api" : "db")};
        cr_assert_eq(hints_report(hints, instance, &hint, 0, SECOND), CO_OK);
    }
    struct buffer frame = {0};
    struct load_entry entry;
    hints_of_service(hints, SLICE_LITERAL("db"), SECOND, &frame, NULL, NULL);
    struct load_reader reader = {.rest = buffer_slice(&frame)};
    size_t count = 0;
    for (; load_read(&reader, &entry) == CO_OK; count++) cr_expect(slice_is(entry.instance.service, "db"));
    cr_expect_eq(count, 334);
    uint64_t begun = hints_begun(hints);
    cr_expect_eq(begun, 2);
    /* one moves to another service */
    cr_assert_eq(
        hints_report(hints, (struct load_instance){SLICE_LITERAL("n"), SLICE_LITERAL("i0"), SLICE_LITERAL("x")}, &hint,
                     0, SECOND),
        CO_OK);
    cr_expect_eq(hints_begun(hints), begun + 1);
    buffer_reset(&frame);
    hints_of_service(hints, SLICE_LITERAL("db"), SECOND, &frame, NULL, NULL);
    reader = (struct load_reader){.rest = buffer_slice(&frame)};
    for (count = 0; load_read(&reader, &entry) == CO_OK; count++) continue;
    cr_expect_eq(count, 333);
    buffer_free(&frame);
    hints_free(hints);
}
