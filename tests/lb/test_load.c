/* Load hints: what is read of what instances send, and the table of them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "lb/load.h"

#define SECOND UINT64_C(1000000000)

/* -- forms -------------------------------------------------------------------------------------------------------- */
static bool same(double a, double b) { return isnan(a) ? isnan(b) : fabs(a - b) < 1e-12; }

struct reading {
    const char *text;
    struct load_hint hint; /* when `error` is NULL */
    const char *error;     /* what its line begins with */
};

static void expect_read(int (*parse)(struct slice, struct load_hint *, struct fault *), const struct reading *row) {
    struct load_hint hint = {7, 7, 7, 7};
    struct fault fault = {0};
    int rc = parse(slice_text(row->text), &hint, &fault);
    if (row->error) {
        cr_expect_neq(rc, CO_OK, "\"%s\" was read", row->text);
        cr_expect_eq(rc, fault.code);
        cr_expect(strncmp(fault.text, row->error, strlen(row->error)) == 0, "\"%s\": \"%s\", not \"%s\"", row->text,
                  fault.text, row->error);
        cr_expect(hint.load == 7 && hint.errors == 7, "a hint that is refused is left as it was");
        cr_expect_null(strchr(fault.text, '\n'));
        return;
    }
    cr_assert_eq(rc, CO_OK, "\"%s\": %s", row->text, fault.text);
    cr_expect(same(hint.load, row->hint.load), "\"%s\": load %g", row->text, hint.load);
    cr_expect(same(hint.inflight, row->hint.inflight), "\"%s\": inflight %g", row->text, hint.inflight);
    cr_expect(same(hint.latency_ms, row->hint.latency_ms), "\"%s\": latency %g", row->text, hint.latency_ms);
    cr_expect(same(hint.errors, row->hint.errors), "\"%s\": errors %g", row->text, hint.errors);
}

Test(load_forms, line) {
    static const struct reading rows[] = {
        {"load=0.42 inflight=17 latency_ms=3.5 errors=0.01", {0.42, 17, 3.5, 0.01}, NULL},
        {" errors=1\tload=0 ", {0, NAN, NAN, 1}, NULL},
        {"load=1.7\r", {1.7, NAN, NAN, NAN}, NULL},
        {"0.42", {0.42, NAN, NAN, NAN}, NULL},
        {"0.42 inflight=3", {0.42, 3, NAN, NAN}, NULL},
        {"load=1e6", {1e6, NAN, NAN, NAN}, NULL},
        {"", {.load = 0}, "load: missing"},
        {"inflight=3", {.load = 0}, "load: missing"},
        {"inflight=3 0.42", {.load = 0}, "\"0.42\" is none of load, inflight, latency_ms, errors"},
        {"=0.42", {.load = 0}, "\"\" is none of load"},
        {"load=", {.load = 0}, "load: \"\" is not a decimal number"},
        {"load=0.4 load=0.4", {.load = 0}, "load: said twice"},
        {"0.4 load=0.4", {.load = 0}, "load: said twice"},
        {"load=nan", {.load = 0}, "load: \"nan\" is not a decimal number"},
        {"load=inf", {.load = 0}, "load: \"inf\" is not a decimal number"},
        {"load=-0.1", {.load = 0}, "load: -0.1 is not from 0 to 1e+06"},
        {"load=1e300", {.load = 0}, "load: 1e+300 is not from 0 to 1e+06"},
        {"load=0.4 errors=1.01", {.load = 0}, "errors: 1.01 is not from 0 to 1"},
        {"load=0.4 inflight=-1", {.load = 0}, "inflight: -1 is not from 0 to 1e+09"},
        {"load=0.4 latency_ms=1e9", {.load = 0}, "latency_ms: 1e+09 is not from 0 to 8.64e+07"},
        {"load=0.4, inflight=3", {.load = 0}, "load: \"0.4,\" is not a decimal number"},
        {"Load=0.4", {.load = 0}, "\"Load\" is none of"},
        {"load=0.4 inflight", {.load = 0}, "inflight: \"inflight\" is not"},
        {"load=0.4\x01x", {.load = 0}, "load: \"0.4?x\" is not"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) expect_read(load_parse_line, &rows[i]);
}

Test(load_forms, output) {
    static const struct reading rows[] = {
        {"all is well\nload=0.5 inflight=2\nmore\n", {0.5, 2, NAN, NAN}, NULL},
        {"load=0.5", {0.5, NAN, NAN, NAN}, NULL},
        {"load=0.5\nload=0.6", {0.5, NAN, NAN, NAN}, NULL},
        {"ok\nload=high\n", {.load = 0}, "load: \"high\" is not"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) expect_read(load_parse_output, &rows[i]);
    static const char *const none[] = {"", "\n\n", "ok", "the load=0.5", "Load=0.5", " load=0.5"};
    for (size_t i = 0; i < ARRAY_COUNT(none); i++) {
        struct load_hint hint;
        struct fault fault = {0};
        cr_expect_eq(load_parse_output(slice_text(none[i]), &hint, &fault), CO_NOTFOUND, "\"%s\"", none[i]);
        cr_expect_eq(fault.code, CO_OK);
    }
}

Test(load_forms, orca) {
    static const struct reading rows[] = {
        {"TEXT application_utilization=0.3, cpu_utilization=0.9", {0.3, NAN, NAN, NAN}, NULL},
        {"TEXT cpu_utilization=0.9,application_utilization=0", {0.9, NAN, NAN, NAN}, NULL},
        {"TEXT application_utilization=0", {0, NAN, NAN, NAN}, NULL},
        {"TEXT cpu_utilization:1.5", {1.5, NAN, NAN, NAN}, NULL},
        {"TEXT cpu_utilization=0.5,rps_fractional=200,eps=3,mem_utilization=0.8", {0.5, NAN, NAN, 0.015}, NULL},
        {"TEXT cpu_utilization=0.5,rps_fractional=0,eps=3", {0.5, NAN, NAN, NAN}, NULL},
        {"TEXT cpu_utilization=0.5,rps_fractional=1,eps=3", {0.5, NAN, NAN, 1}, NULL},
        {"TEXT cpu_utilization=0.5,named_metrics.inflight=4,named_metrics.latency_ms=20,named_metrics.queue=1",
         {0.5, 4, 20, NAN},
         NULL},
        {"JSON {\"cpu_utilization\": 0.3, \"named_metrics\": {\"inflight\": 4}}", {0.3, 4, NAN, NAN}, NULL},
        {"JSON {\"cpuUtilization\":0.3,\"applicationUtilization\":0.6,\"memUtilization\":0.1,\"rps\":\"12\"}",
         {0.6, NAN, NAN, NAN},
         NULL},
        {"JSON {\"application_utilization\":1,\"request_cost\":{\"x\":2},\"utilization\":{\"gpu\":0.5}}",
         {1, NAN, NAN, NAN},
         NULL},
        {"", {.load = 0}, "endpoint-load-metrics: it begins with \"\", not with TEXT or JSON"},
        {"cpu_utilization=0.3", {.load = 0}, "endpoint-load-metrics: it begins with \"cpu_utilization=0.3\", not"},
        {"text cpu_utilization=0.3", {.load = 0}, "endpoint-load-metrics: it begins with \"text\", not"},
        {"BIN aGVsbG8=", {.load = 0}, "endpoint-load-metrics: the form BIN is not read: send TEXT or JSON"},
        {"TEXT", {.load = 0}, "endpoint-load-metrics: neither application_utilization nor cpu_utilization"},
        {"TEXT mem_utilization=0.3", {.load = 0}, "endpoint-load-metrics: neither"},
        {"TEXT cpu=0.3", {.load = 0}, "endpoint-load-metrics: neither"},
        {"TEXT new_field=soon, cpu_utilization=0.3,named_metrics.=x,rps=-1", {0.3, NAN, NAN, NAN}, NULL},
        {"JSON {\"new\":{\"a\":[1]},\"cpu_utilization\":0.25,\"named_metrics\":{\"x\":null,\"inflight\":2}}",
         {0.25, 2, NAN, NAN},
         NULL},
        {"TEXT cpu_utilization",
         {.load = 0},
         "endpoint-load-metrics: \"cpu_utilization\" is not written as name=value"},
        {"TEXT cpu_utilization=0.1,,eps=1", {.load = 0}, "endpoint-load-metrics: \"\" is not written as name=value"},
        {"TEXT cpu_utilization=x",
         {.load = 0},
         "endpoint-load-metrics: cpu_utilization: \"x\" is not a decimal number"},
        {"TEXT cpu_utilization=NaN", {.load = 0}, "endpoint-load-metrics: cpu_utilization: \"NaN\" is not"},
        {"TEXT cpu_utilization=-0.1", {.load = 0}, "endpoint-load-metrics: cpu_utilization: -0.1 is negative"},
        {"TEXT cpu_utilization=1e300", {.load = 0}, "endpoint-load-metrics: load: 1e+300 is not from 0 to 1e+06"},
        {"TEXT cpu_utilization=1,cpu_utilization=1", {.load = 0}, "endpoint-load-metrics: cpu_utilization: said twice"},
        {"JSON", {.load = 0}, "endpoint-load-metrics: JSON: "},
        {"JSON 0.3", {.load = 0}, "endpoint-load-metrics: a number, not an object"},
        {"JSON {\"cpu\":0.3}", {.load = 0}, "endpoint-load-metrics: "},
        {"JSON {\"cpu_utilization\":\"0.3\"}",
         {.load = 0},
         "endpoint-load-metrics: cpu_utilization: a string, not a number"},
        {"JSON {\"cpu_utilization\":0.1,\"cpu_utilization\":0.2}", {.load = 0}, "endpoint-load-metrics: "},
        {"JSON {\"cpu_utilization\":0.1,\"named_metrics\":4}",
         {.load = 0},
         "endpoint-load-metrics: named_metrics: a number, not an object"},
        {"JSON {\"cpu_utilization\":0.1,\"named_metrics\":{\"inflight\":null}}",
         {.load = 0},
         "endpoint-load-metrics: named_metrics.inflight: null, not a number"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) expect_read(load_parse_orca, &rows[i]);
}

/* -- the table ---------------------------------------------------------------------------------------------------- */
static struct load_table *table;
static void setup(void) { table = load_table_new(0); }
static void teardown(void) { load_table_free(table); }

static struct load_instance named(const char *id) {
    return (struct load_instance){.node = SLICE_LITERAL("n1"), .service_id = slice_text(id)};
}
static void report(const char *id, double load, uint64_t now) {
    struct load_hint hint = load_unknown();
    hint.load = load;
    cr_assert_eq(load_report(table, named(id), &hint, now), CO_OK);
}
/* NAN: none, or nothing known */
static double load_of(const char *id, uint64_t now) {
    struct load_entry entry;
    return load_get(table, named(id), now, &entry) ? entry.hint.load : NAN;
}
static struct load_entry get(const char *id, uint64_t now) {
    struct load_entry entry = {.hint = load_unknown()};
    cr_assert(load_get(table, named(id), now, &entry));
    return entry;
}

Test(load_table, keeps_the_last_report, .init = setup, .fini = teardown) {
    cr_expect(isnan(load_of("a", 0)));
    report("a", 0.5, 0);
    cr_expect_eq(load_of("a", 0), 0.5);
    report("a", 0.7, SECOND), report("b", 0.1, SECOND);
    cr_expect_eq(load_of("a", SECOND), 0.7);
    cr_expect_eq(load_of("b", SECOND), 0.1);
    cr_expect_eq(get("a", 2 * SECOND).age_ns, SECOND);
    cr_expect_eq(get("a", 2 * SECOND).known_ns, 2 * SECOND);
    cr_expect_eq(load_count(table), 2);
    struct load_instance other = {.node = SLICE_LITERAL("n"),
                                  .service_id = SLICE_LITERAL("1a")}; /* the same bytes, cut elsewhere */
    struct load_entry entry;
    cr_expect_not(load_get(table, other, SECOND, &entry));
    load_forget(table, named("a")), load_forget(table, named("a"));
    cr_expect(isnan(load_of("a", SECOND)));
    cr_expect_eq(load_count(table), 1);
}

Test(load_table, ages_out_after_three_missed_reports, .init = setup, .fini = teardown) {
    for (uint64_t i = 0; i <= 10; i++) report("a", 0.5, i * 5 * SECOND); /* every 5 s, the last one at 50 s */
    cr_expect_eq(get("a", 50 * SECOND).interval_ns, 5 * SECOND);
    cr_expect_eq(load_of("a", 65 * SECOND), 0.5, "the third is just due");
    cr_expect_eq(load_of("a", 67 * SECOND), 0.5);
    cr_expect(isnan(load_of("a", 68 * SECOND)), "three were missed");
    cr_expect(get("a", 68 * SECOND).known_ns == 68 * SECOND, "it is not new, though");
    report("a", 0.6, 100 * SECOND);
    cr_expect_eq(load_of("a", 100 * SECOND), 0.6);
    report("b", 0.5, 0);
    cr_expect_eq(load_of("b", 35 * SECOND), 0.5, "one report: 10 s are assumed");
    cr_expect(isnan(load_of("b", 36 * SECOND)));
}

Test(load_table, learns_the_interval, .init = setup, .fini = teardown) {
    report("a", 0, 0), report("a", 0, 30 * SECOND);
    cr_expect_eq(get("a", 30 * SECOND).interval_ns, 30 * SECOND, "the first gap");
    uint64_t now = 30 * SECOND;
    for (int i = 0; i < 30; i++) report("a", 0, now += 2 * SECOND);
    cr_expect_lt(get("a", now).interval_ns, 2100 * SECOND / 1000, "a habit is learned");
    report("a", 0, now += 50 * SECOND);
    cr_expect_lt(get("a", now).interval_ns, 5 * SECOND, "a pause is none");
    for (int i = 0; i < 5; i++) report("a", 0, now += 40 * SECOND);
    cr_expect_eq(get("a", now).interval_ns, 40 * SECOND);
    for (int i = 0; i < 100; i++) report("b", 0, now += SECOND / 10);
    cr_expect_eq(get("b", now).interval_ns, LOAD_INTERVAL_MIN_NS);
    report("c", 0, 0), report("c", 0, 100 * SECOND);
    cr_expect_eq(get("c", 100 * SECOND).interval_ns, LOAD_INTERVAL_MAX_NS);
    report("c", 0, 99 * SECOND); /* a clock that is a little behind on another thread */
    cr_expect_eq(get("c", 100 * SECOND).age_ns, SECOND);
}

Test(load_table, a_new_instance_starts_slowly, .init = setup, .fini = teardown) {
    cr_expect_eq(load_share(0, LOAD_SLOW_START_NS), 0.01);
    cr_expect(same(load_share(15 * SECOND, LOAD_SLOW_START_NS), 0.5));
    cr_expect_eq(load_share(30 * SECOND, LOAD_SLOW_START_NS), 1);
    cr_expect_eq(load_share(UINT64_MAX, LOAD_SLOW_START_NS), 1);
    cr_expect_eq(load_share(0, 0), 1, "no slow start");
    cr_assert_eq(load_started(table, named("a"), 10 * SECOND), CO_OK);
    cr_expect(isnan(load_of("a", 12 * SECOND)));
    cr_expect_eq(get("a", 12 * SECOND).known_ns, 2 * SECOND);
    report("a", 0.5, 15 * SECOND);
    cr_assert_eq(load_started(table, named("a"), 20 * SECOND), CO_OK);
    cr_expect_eq(get("a", 20 * SECOND).known_ns, 10 * SECOND, "the first time counts");
    cr_expect_eq(get("a", 20 * SECOND).interval_ns, LOAD_INTERVAL_NS, "that it began was no report");
}

static int merge(const char *id, double load, uint64_t age, uint64_t known, uint64_t now) {
    struct load_entry entry = {
        .instance = named(id), .hint = load_unknown(), .age_ns = age, .interval_ns = 5 * SECOND, .known_ns = known};
    entry.hint.load = load;
    return load_merge(table, &entry, now);
}

Test(load_table, an_instance_that_comes_again_begins_anew, .init = setup, .fini = teardown) {
    uint64_t now = 100 * SECOND;
    cr_assert_eq(merge("a", 0.3, SECOND, 90 * SECOND, now), CO_OK);
    now += 5 * SECOND;
    cr_assert_eq(merge("a", 0.3, SECOND, 2 * SECOND, now), CO_OK); /* registered 3 s ago, reported since */
    cr_expect_eq(get("a", now).known_ns, 2 * SECOND);
    cr_assert_eq(merge("a", 0.3, 4 * SECOND, 90 * SECOND, now), CO_OK);
    cr_expect_eq(get("a", now).known_ns, 2 * SECOND, "what was said before that is over");
    cr_assert_eq(merge("a", 0.3, 0, 4 * SECOND, now + 2 * SECOND), CO_OK);
    cr_expect_eq(get("a", now + 2 * SECOND).known_ns, 4 * SECOND);
    /* as the catalog has it */
    cr_assert_eq(load_created(table, named("a"), 17, 0, now), CO_OK);
    cr_expect_eq(get("a", now).known_ns, 2 * SECOND, "it was there before this was known");
    cr_assert_eq(load_created(table, named("a"), 17, now, now), CO_OK);
    cr_expect_eq(load_of("a", now), 0.3, "known already");
    cr_assert_eq(load_created(table, named("a"), 19, 0, now), CO_OK);
    cr_expect(get("a", now).known_ns == 0 && isnan(load_of("a", now)), "registered anew");
}

/* Nobody asked for the service while it was registered anew, so its first report is here before the catalog's word. */
Test(load_table, what_it_says_before_the_catalog_is_looked_at_counts, .init = setup, .fini = teardown) {
    uint64_t now = 100 * SECOND;
    cr_assert_eq(merge("a", 0.9, SECOND, 90 * SECOND, now), CO_OK);
    cr_assert_eq(load_created(table, named("a"), 17, 0, now), CO_OK);
    now += 20 * SECOND;
    cr_assert_eq(merge("a", 0.2, SECOND, 5 * SECOND, now), CO_OK);
    cr_assert_eq(load_created(table, named("a"), 19, 0, now), CO_OK);
    cr_expect_eq(load_of("a", now), 0.2, "the report of the new one");
    cr_expect_eq(get("a", now).known_ns, 5 * SECOND, "and since when it is there");
    cr_assert_eq(load_created(table, named("a"), 23, 0, now), CO_OK);
    cr_expect(isnan(load_of("a", now)), "of a third one nothing is known");
    /* here the one before never reported, and only the caller has seen it */
    cr_assert_eq(load_started(table, named("b"), now), CO_OK);
    report("b", 0.3, now + SECOND);
    cr_assert_eq(load_created(table, named("b"), 19, now - 1, now + SECOND), CO_OK);
    cr_expect_eq(load_of("b", now + SECOND), 0.3);
    /* an age that came late is no new instance */
    cr_assert_eq(load_created(table, named("c"), 17, 0, now), CO_OK);
    cr_assert_eq(merge("c", 0.4, 0, 0, now + SECOND / 5), CO_OK);
    cr_assert_eq(load_created(table, named("c"), 19, 0, now + SECOND), CO_OK);
    cr_expect(isnan(load_of("c", now + SECOND)));
}

Test(load_table, the_later_hint_counts, .init = setup, .fini = teardown) {
    uint64_t now = 100 * SECOND;
    cr_assert_eq(merge("a", 0.3, 2 * SECOND, 50 * SECOND, now), CO_OK);
    struct load_entry entry = get("a", now);
    cr_expect(entry.hint.load == 0.3 && entry.age_ns == 2 * SECOND && entry.known_ns == 50 * SECOND);
    cr_expect_eq(entry.interval_ns, 5 * SECOND);
    cr_assert_eq(merge("a", 0.4, 3 * SECOND, 60 * SECOND, now), CO_OK);
    cr_expect_eq(load_of("a", now), 0.3, "an older one is passed over");
    cr_expect_eq(get("a", now).known_ns, 60 * SECOND, "but says that the instance is not as new as that");
    report("a", 0.5, now);
    cr_assert_eq(merge("a", 0.6, SECOND, 0, now), CO_OK);
    cr_expect_eq(load_of("a", now), 0.5);
    cr_assert_eq(merge("a", 0.7, 0, 0, now + SECOND), CO_OK);
    cr_expect_eq(load_of("a", now + SECOND), 0.7);
    cr_assert_eq(merge("b", 0.7, 18 * SECOND, 0, now), CO_OK);
    cr_expect(isnan(load_of("b", now)), "it has aged out on its way");
    cr_expect_eq(load_count(table), 1, "and is not kept");
    cr_expect_eq(merge("b", -1, 0, 0, now), CO_INVALID);
    cr_expect_eq(merge("b", NAN, 0, 0, now), CO_INVALID);
    cr_expect_eq(merge("c", 0.1, 2 * SECOND, UINT64_MAX, SECOND), CO_OK, "older than the clock");
}

struct seen {
    char text[200];
    double loads[8];
    size_t count;
};
static void note(void *data, const struct load_entry *entry) {
    struct seen *seen = data;
    size_t size = strlen(seen->text);
    snprintf(seen->text + size, sizeof seen->text - size, "%.*s ", (int)entry->instance.service_id.size,
             entry->instance.service_id.data);
    seen->loads[seen->count++] = entry->hint.load;
}
static uint64_t expect_changes(uint64_t since, enum load_which which, size_t most, uint64_t now, const char *expected) {
    struct seen seen = {0};
    uint64_t next = load_changes(table, since, which, most, now, note, &seen);
    cr_expect_str_eq(seen.text, expected);
    return next;
}

Test(load_table, tells_what_changed, .init = setup, .fini = teardown) {
    cr_expect_eq(expect_changes(0, LOAD_ALL, SIZE_MAX, 0, ""), 0);
    report("a", 0.1, 0), report("b", 0.2, 0), report("c", 0.3, 0);
    uint64_t at = expect_changes(0, LOAD_ALL, SIZE_MAX, 0, "a b c ");
    cr_expect_eq(at, load_sequence(table));
    cr_expect_eq(expect_changes(at, LOAD_ALL, SIZE_MAX, 0, ""), at);
    report("b", 0.4, SECOND), report("a", 0.5, SECOND), report("b", 0.6, SECOND);
    cr_assert_eq(load_started(table, named("d"), SECOND), CO_OK);
    cr_assert_eq(merge("e", 0.7, 0, 0, SECOND), CO_OK);
    expect_changes(at, LOAD_ALL, SIZE_MAX, SECOND, "a b e ");
    expect_changes(at, LOAD_DIRECT, SIZE_MAX, SECOND, "a b ");
    uint64_t next = expect_changes(at, LOAD_ALL, 1, SECOND, "a ");
    next = expect_changes(next, LOAD_ALL, 1, SECOND, "b ");
    next = expect_changes(next, LOAD_ALL, 1, SECOND, "e ");
    cr_expect_eq(expect_changes(next, LOAD_ALL, 1, SECOND, ""), load_sequence(table));
    expect_changes(0, LOAD_ALL, SIZE_MAX, SECOND, "c a b e ");
    expect_changes(0, LOAD_ALL, SIZE_MAX, 40 * SECOND, "");
    cr_assert_eq(merge("b", 0.1, 0, 0, 2 * SECOND), CO_OK);
    expect_changes(at, LOAD_DIRECT, SIZE_MAX, 2 * SECOND, "a "); /* b reports to somebody else by now */
    report("d", 0.8, 3 * SECOND);
    load_forget(table, named("a"));
    expect_changes(at, LOAD_DIRECT, SIZE_MAX, 3 * SECOND, "d ");
}

/* An agent that moves to another server says there what that one knows already from the first. */
Test(load_table, who_moves_is_passed_on_by_its_new_server) {
    struct load_table *server = load_table_new(0);
    struct load_entry entry = {.instance = named("a"), .hint = {0.5, NAN, NAN, NAN}, .interval_ns = 10 * SECOND};
    struct seen seen = {0};
    cr_assert_eq(load_merge(server, &entry, 2 * SECOND), CO_OK);
    uint64_t since = load_changes(server, 0, LOAD_DIRECT, SIZE_MAX, 2 * SECOND, note, &seen);
    cr_expect_eq(seen.count, 0);
    entry.direct = true, entry.age_ns = 3 * SECOND;
    cr_assert_eq(load_merge(server, &entry, 4 * SECOND), CO_OK);
    load_changes(server, since, LOAD_DIRECT, SIZE_MAX, 4 * SECOND, note, &seen);
    cr_expect_eq(seen.count, 1);
    cr_assert(load_get(server, named("a"), 4 * SECOND, &entry));
    cr_expect_eq(entry.age_ns, 2 * SECOND, "the newer one stays");
    load_table_free(server);
}

/* Two servers that pass on what they have been told directly, for a minute: no hint goes round. */
Test(load_table, hints_do_not_go_in_circles) {
    struct load_table *tables[2] = {load_table_new(0), load_table_new(0)};
    struct load_hint hint = {0.5, NAN, NAN, NAN};
    cr_assert_eq(load_report(tables[0], named("a"), &hint, SECOND), CO_OK);
    uint64_t since[2] = {0, 0}, sequence = load_sequence(tables[0]);
    for (uint64_t now = SECOND; now < 60 * SECOND; now += SECOND) {
        for (int from = 0; from < 2; from++) {
            struct seen seen = {0};
            since[from] = load_changes(tables[from], since[from], LOAD_DIRECT, SIZE_MAX, now, note, &seen);
            for (size_t i = 0; i < seen.count; i++) {
                struct load_entry entry;
                cr_assert(load_get(tables[from], named("a"), now, &entry));
                entry.direct = false;                                                       /* it comes from a server */
                cr_assert_eq(load_merge(tables[!from], &entry, now + SECOND / 100), CO_OK); /* 10 ms on the way */
            }
        }
    }
    cr_expect_eq(load_sequence(tables[0]), sequence);
    cr_expect_eq(load_sequence(tables[1]), sequence, "it came once");
    load_table_free(tables[0]), load_table_free(tables[1]);
}

Test(load_table, is_bounded) {
    struct load_table *small = load_table_new(100);
    struct load_hint hint = {0.5, NAN, NAN, NAN};
    char id[16];
    for (int i = 0; i < 150; i++) {
        snprintf(id, sizeof id, "i%d", i);
        cr_expect_eq(load_report(small, named(id), &hint, SECOND), i < 100 ? CO_OK : CO_BUSY);
    }
    cr_expect_eq(load_count(small), 100);
    cr_expect_eq(load_refused(small), 50);
    cr_expect_eq(load_report(small, named("i5"), &hint, 60 * SECOND), CO_OK, "those that are there may go on");
    cr_expect_eq(load_report(small, named("new"), &hint, 60 * SECOND), CO_OK, "i0 has aged out");
    struct load_entry entry;
    cr_expect_not(load_get(small, named("i0"), 60 * SECOND, &entry));
    load_tick(small, 60 * SECOND);
    cr_expect_eq(load_count(small), 100);
    load_tick(small, 212 * SECOND);
    cr_expect_eq(load_count(small), 2);
    load_tick(small, 3600 * SECOND);
    cr_expect_eq(load_count(small), 0);
    static char name[LOAD_NAME_SIZE + 1];
    struct load_instance large = {.node = slice_make(name, sizeof name), .service_id = SLICE_LITERAL("x")};
    cr_expect_eq(load_report(small, large, &hint, 0), CO_TOOLARGE);
    struct load_instance strange = {.node = slice_make(name, LOAD_NAME_SIZE), .service_id = slice_text("")};
    cr_expect_eq(load_report(small, strange, &hint, 0), CO_OK);
    hint.load = INFINITY;
    cr_expect_eq(load_report(small, strange, &hint, 0), CO_INVALID);
    load_table_free(small), load_table_free(NULL);
}
