/* Every rule of copies of other regions' catalogs, one by one. All rules together: test_copy_story.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/message.h"
#include "multi-dc/copy_internal.h"
#include "tests/lib/fixture.h"

static struct fixture f;
static struct arena arena;

static void setup(void) {
    fixture_open(&f);
    fixture_found(&f);
}
static void teardown(void) {
    (void)fixture_sum(&f);
    fixture_close(&f);
    arena_free(&arena);
}

/* -- what is said ------------------------------------------------------------------------------------------------- */

static Pb__CatalogAt *at(uint64_t cluster_id, uint64_t restored, uint64_t index) {
    Pb__CatalogAt *moment = arena_alloc(&arena, sizeof *moment);
    pb__catalog_at__init(moment);
    moment->cluster_id = cluster_id, moment->restored = restored, moment->index = index;
    return moment;
}

/* "web/n1/i1": passing, on port 80. "web/n1/i1/v2": with that tag. With '!' at the end: critical. */
static ProtobufCBinaryData entry(const char *spec) {
    Pb__ServiceEntry record = PB__SERVICE_ENTRY__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
    char *copy = arena_strndup(&arena, spec, strlen(spec)), *tag = NULL, *rest = copy;
    size_t size = strlen(copy);
    if (size && copy[size - 1] == '!') check.status = PB__STATUS__CRITICAL, copy[size - 1] = '\0';
    service.name = strsep(&rest, "/");
    node.name = strsep(&rest, "/");
    service.id = check.service_id = strsep(&rest, "/");
    if ((tag = strsep(&rest, "/"))) service.tags = &tag, service.n_tags = 1;
    node.address = (char *)(uintptr_t) "10.0.0.1", check.check_id = (char *)(uintptr_t) "c", service.port = 80;
    record.node = &node, record.service = &service, record.checks = checks, record.n_checks = 1;
    return message_bytes(message_pack(&arena, &record.base));
}

static Pb__CatalogKey *key(const char *spec) {
    Pb__CatalogKey *record = arena_alloc(&arena, sizeof *record);
    char *rest = arena_strndup(&arena, spec, strlen(spec));
    pb__catalog_key__init(record);
    record->service = strsep(&rest, "/"), record->node = strsep(&rest, "/"), record->id = strsep(&rest, "/");
    return record;
}

/* Specs apart by blanks; with '-' in front: it goes. */
static void rows(const char *specs, ProtobufCBinaryData **entries, size_t *n_entries, Pb__CatalogKey ***removed,
                 size_t *n_removed) {
    char *rest = arena_strndup(&arena, specs, strlen(specs)), *spec;
    *entries = arena_alloc(&arena, 600 * sizeof **entries);
    *removed = arena_alloc(&arena, 600 * sizeof **removed);
    *n_entries = *n_removed = 0;
    while ((spec = strsep(&rest, " "))) {
        if (spec[0] == '-') (*removed)[(*n_removed)++] = key(spec + 1);
        else if (spec[0]) (*entries)[(*n_entries)++] = entry(spec);
    }
}

static char *text(const char *constant) { return (char *)(uintptr_t)constant; }

static struct outcome update(const char *region, Pb__CatalogAt *from, Pb__CatalogAt *to, const char *specs) {
    Pb__CopyUpdateCommand command = PB__COPY_UPDATE_COMMAND__INIT;
    command.region = text(region), command.from = from, command.to = to;
    rows(specs, &command.entries, &command.n_entries, &command.removed, &command.n_removed);
    return fixture_apply(&f, COPY_UPDATE, &command.base);
}

static struct outcome stage(const char *region, uint64_t id, uint32_t part, Pb__CatalogAt *from, Pb__CatalogAt *to,
                            const char *specs) {
    Pb__CopyStageCommand command = PB__COPY_STAGE_COMMAND__INIT;
    command.region = text(region), command.stage = id, command.part = part, command.from = from, command.to = to;
    rows(specs, &command.entries, &command.n_entries, &command.removed, &command.n_removed);
    return fixture_apply(&f, COPY_STAGE, &command.base);
}

static struct outcome commit(const char *region, uint64_t id, uint32_t parts, Pb__CatalogAt *from, Pb__CatalogAt *to) {
    Pb__CopyCommitCommand command = PB__COPY_COMMIT_COMMAND__INIT;
    command.region = text(region), command.stage = id, command.parts = parts, command.from = from, command.to = to;
    return fixture_apply(&f, COPY_COMMIT, &command.base);
}

static struct outcome tidy(const char *region, uint64_t id) {
    Pb__CopyTidyCommand command = PB__COPY_TIDY_COMMAND__INIT;
    command.region = text(region), command.stage = id;
    return fixture_apply(&f, COPY_TIDY, &command.base);
}

static unsigned tidy_all(const char *region, uint64_t id) {
    unsigned steps = 1;
    for (struct outcome outcome; !(outcome = tidy(region, id)).yes; steps++)
        cr_assert_eq(outcome.error, CO_OK, "%s", outcome.text);
    return steps;
}

/* -- what is seen ------------------------------------------------------------------------------------------------- */

struct ask {
    const char *service, *tag, *regions;
    bool passing;
};
static uint64_t seen_index;

/* "far: web/n1/i1 web/n2/i2; near: " */
static const char *seen(struct ask ask) {
    static char line[2000];
    Pb__GlobalServiceRequest request = PB__GLOBAL_SERVICE_REQUEST__INIT;
    char *tag = text(ask.tag), *rest = ask.regions ? arena_strndup(&arena, ask.regions, strlen(ask.regions)) : NULL;
    char *regions[8], *region;
    request.service = text(ask.service), request.passing_only = ask.passing;
    if (tag) request.tags = &tag, request.n_tags = 1;
    request.regions = regions;
    while ((region = strsep(&rest, " "))) regions[request.n_regions++] = region;
    struct query_result result = fixture_ask(&f, &query_global_service, &request.base);
    const Pb__GlobalServiceResult *found = (const Pb__GlobalServiceResult *)result.message;
    struct buffer out = {0};
    seen_index = result.index;
    for (size_t i = 0; i < found->n_regions; i++) {
        buffer_printf(&out, "%s%s:", i ? "; " : "", found->regions[i]->region);
        for (size_t j = 0; j < found->regions[i]->n_entries; j++) {
            const Pb__ServiceEntry *one = found->regions[i]->entries[j];
            cr_assert_str_eq(one->service->node, one->node->name);
            cr_assert_str_eq(one->checks[0]->service_name, one->service->name);
            buffer_printf(&out, " %s/%s/%s", one->service->name, one->node->name, one->service->id);
        }
    }
    snprintf(line, sizeof line, "%.*s", (int)out.size, out.data ? out.data : "");
    buffer_free(&out);
    return line;
}
#define SEEN(name, ...) seen((struct ask){.service = (name), ##__VA_ARGS__})

/* "web[v1,v2] far=2 near=1; " */
static const char *names(void) {
    static char line[2000];
    Pb__GlobalServicesRequest request = PB__GLOBAL_SERVICES_REQUEST__INIT;
    struct query_result result = fixture_ask(&f, &query_global_services, &request.base);
    const Pb__GlobalServicesResult *found = (const Pb__GlobalServicesResult *)result.message;
    struct buffer out = {0};
    seen_index = result.index;
    for (size_t i = 0; i < found->n_services; i++) {
        const Pb__GlobalServiceName *name = found->services[i];
        buffer_printf(&out, "%s%s[", i ? "; " : "", name->name);
        for (size_t j = 0; j < name->n_tags; j++) buffer_printf(&out, "%s%s", j ? "," : "", name->tags[j]);
        buffer_append_text(&out, "]");
        for (size_t j = 0; j < name->n_regions; j++)
            buffer_printf(&out, " %s=%d", name->regions[j], (int)name->instances[j]);
    }
    snprintf(line, sizeof line, "%.*s", (int)out.size, out.data ? out.data : "");
    buffer_free(&out);
    return line;
}

static const Pb__CopyRegion *copy_of(const char *region) {
    Pb__CopyRequest request = PB__COPY_REQUEST__INIT;
    request.region = text(region);
    return ((const Pb__CopyResult *)fixture_ask(&f, &query_copy, &request.base).message)->region;
}

static uint64_t records(uint8_t table) {
    fixture_forget(&f);
    uint64_t count = store_count(store_read(f.reader), table);
    store_read_done(f.reader);
    return count;
}

/* -- updates ------------------------------------------------------------------------------------------------------ */

Test(copy, a_change_counts_once_and_from_where_it_was_made, .init = setup, .fini = teardown) {
    cr_assert(update("far", NULL, at(7, 0, 10), "web/n1/i1 web/n2/i2/v1").yes);
    cr_assert_str_eq(SEEN("web"), "far: web/n1/i1 web/n2/i2");
    cr_assert_eq(update("far", NULL, at(7, 0, 10), "web/n1/i1").error, CO_CONFLICT, "it has come before");
    cr_assert_eq(update("far", at(7, 0, 9), at(7, 0, 12), "").error, CO_CONFLICT, "from another index");
    cr_assert_eq(update("far", at(8, 0, 10), at(8, 0, 12), "").error, CO_CONFLICT, "from another cluster");
    cr_assert_eq(update("far", at(7, 0, 10), at(7, 0, 10), "").error, CO_CONFLICT, "to where it is");
    cr_assert_eq(update("far", at(7, 0, 10), at(7, 0, 9), "").error, CO_CONFLICT, "back");
    cr_assert_eq(update("far", at(7, 0, 10), NULL, "").error, CO_CONFLICT);
    cr_assert_eq(update("far", at(7, 0, 10), at(7, 9, 12), "").error, CO_CONFLICT, "restored before it was here");
    cr_assert(update("far", at(7, 0, 10), at(7, 0, 12), "web/n3/i3 -web/n1/i1 -web/n9/i9").yes);
    cr_assert_str_eq(SEEN("WEB"), "far: web/n2/i2 web/n3/i3");
    cr_assert(update("far", at(7, 0, 12), at(7, 13, 13), "").yes, "it was restored");
    cr_assert(update("far", at(7, 13, 13), at(9, 0, 2), "-web/n2/i2").yes, "it was founded anew");
    const Pb__CopyRegion *copy = copy_of("far");
    cr_assert(copy->at->cluster_id == 9 && copy->at->index == 2 && copy->counts->instances == 1);
    cr_assert_eq(update("far", at(9, 0, 2), at(0, 0, 3), "").error, CO_CONFLICT,
                 "a server without a cluster says nothing");
    cr_assert_eq(copy_of("far")->at->index, 2);
}

Test(copy, what_makes_no_sense_is_refused, .init = setup, .fini = teardown) {
    char longest[COPY_REGION_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[COPY_REGION_MAX + 1] = '\0';
    cr_assert_eq(update("", NULL, at(7, 0, 10), "").error, CO_INVALID);
    cr_assert_eq(update(longest, NULL, at(7, 0, 10), "").error, CO_INVALID);
    longest[COPY_REGION_MAX] = '\0';
    cr_assert(update(longest, NULL, at(7, 0, 10), "web/n/i").yes);
    const char *bad[] = {"/n/i", "web//i", "web/n/", "-/n/i", "-web//i", "-web/n/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(update("far", NULL, at(7, 0, 10), bad[i]).error, CO_INVALID, "%s", bad[i]);
    Pb__CopyUpdateCommand command = PB__COPY_UPDATE_COMMAND__INIT;
    ProtobufCBinaryData junk = message_bytes(slice_text("junk"));
    command.region = text("far"), command.to = at(7, 0, 10), command.entries = &junk, command.n_entries = 1;
    cr_assert_eq(fixture_apply(&f, COPY_UPDATE, &command.base).error, CO_INVALID);
    ProtobufCBinaryData many[COPY_ROWS_MOST + 1];
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) many[i] = entry("web/n/i");
    command.entries = many, command.n_entries = COPY_ROWS_MOST + 1;
    cr_assert_eq(fixture_apply(&f, COPY_UPDATE, &command.base).error, CO_TOOLARGE);
    cr_assert_null(copy_of("far"));
}

Test(copy, names_of_300_bytes_and_in_any_case, .init = setup, .fini = teardown) {
    char node[301], spec[2][340];
    memset(node, 'n', 300), node[300] = '\0';
    snprintf(spec[0], sizeof spec[0], "Web/%s/i1", node);
    node[299] = 'm';
    snprintf(spec[1], sizeof spec[1], "web/%s/i1", node);
    cr_assert(update("far", NULL, at(7, 0, 10), spec[0]).yes);
    cr_assert(update("far", at(7, 0, 10), at(7, 0, 11), spec[1]).yes);
    cr_assert_eq(copy_of("far")->counts->instances, 2);
    cr_assert_eq(copy_of("far")->counts->services, 1);
    for (char *letter = node; *letter; letter++) *letter = 'M';
    memset(node, 'N', 299);
    snprintf(spec[1], sizeof spec[1], "-wEB/%s/I1", node);
    cr_assert(update("far", at(7, 0, 11), at(7, 0, 12), spec[1]).yes);
    cr_assert_eq(copy_of("far")->counts->instances, 1);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

Test(copy, regions_tags_and_states_are_filtered, .init = setup, .fini = teardown) {
    update("near", NULL, at(1, 0, 5), "web/n1/i1/v1 web/n2/i2/v2! db/n1/d");
    update("far", NULL, at(2, 0, 5), "web/m1/i1/V1 WEB/m2/i2");
    cr_assert_str_eq(SEEN("web"), "far: web/m1/i1 WEB/m2/i2; near: web/n1/i1 web/n2/i2");
    cr_assert_str_eq(SEEN("web", .tag = "v1"), "far: web/m1/i1; near: web/n1/i1");
    cr_assert_str_eq(SEEN("web", .passing = true), "far: web/m1/i1 WEB/m2/i2; near: web/n1/i1");
    cr_assert_str_eq(SEEN("web", .tag = "v2", .passing = true), "far:; near:");
    cr_assert_str_eq(SEEN("web", .regions = "near other far"), "near: web/n1/i1 web/n2/i2; far: web/m1/i1 WEB/m2/i2");
    cr_assert_str_eq(SEEN("none"), "far:; near:");
    cr_assert_str_eq(names(), "db[] near=1; WEB[V1,v1,v2] far=2 near=2");
    update("near", at(1, 0, 5), at(1, 0, 6), "-web/n1/i1 -db/n1/d web/n2/i2");
    cr_assert_str_eq(names(), "WEB[V1] far=2 near=1");
}

static bool touched(struct watch_key watched, uint64_t *before) {
    uint64_t now = watch_generation(machine_watches(f.machine), watched);
    bool yes = now != *before;
    *before = now;
    return yes;
}

Test(copy, who_waits_for_a_service_hears_of_it_alone, .init = setup, .fini = teardown) {
    struct watch_key web = {SPACE_COPY_SERVICE, slice_text("web")}, table = {SPACE_COPY_SERVICES, slice_text("")};
    uint64_t webs = 0, tables = 0;
    update("far", NULL, at(7, 0, 10), "web/n1/i1 db/n1/d");
    touched(web, &webs), touched(table, &tables);
    (void)SEEN("web");
    uint64_t index = seen_index;
    update("far", at(7, 0, 10), at(7, 0, 11), "db/n1/d!");
    cr_assert(!touched(web, &webs) && !touched(table, &tables));
    (void)SEEN("web");
    cr_assert_eq(seen_index, index);
    update("far", at(7, 0, 11), at(7, 0, 12), "web/n1/i1");
    cr_assert(!touched(web, &webs), "it was so before");
    struct outcome outcome = update("far", at(7, 0, 12), at(7, 0, 13), "Web/n1/i1!");
    cr_assert(touched(web, &webs) && !touched(table, &tables));
    (void)SEEN("web");
    cr_assert_eq(seen_index, outcome.index);
    outcome = update("far", at(7, 0, 13), at(7, 0, 14), "-web/n1/i1");
    cr_assert(touched(web, &webs) && touched(table, &tables));
    (void)SEEN("web");
    cr_assert_eq(seen_index, outcome.index);
    (void)names();
    cr_assert_eq(seen_index, outcome.index);
}

/* -- stages ------------------------------------------------------------------------------------------------------- */

Test(copy, a_stage_is_seen_when_it_is_committed_and_not_before, .init = setup, .fini = teardown) {
    struct watch_key flip = {SPACE_COPY_FLIP, slice_text("")};
    uint64_t flips = 0;
    Pb__CatalogAt *from = at(7, 0, 10), *to = at(7, 0, 20);
    update("far", NULL, from, "web/n1/i1/v1 web/n2/i2 db/n1/d");
    uint64_t id = stage("far", 0, 0, from, to, "-db/n1/d web/n1/i1/v2 web/n3/i3").index;
    cr_assert(stage("far", id, 1, from, to, "-web/n3/i3 new/n1/x").yes);
    cr_assert_str_eq(SEEN("web"), "far: web/n1/i1 web/n2/i2");
    cr_assert_str_eq(names(), "db[] far=1; web[v1] far=2");
    cr_assert_eq(copy_of("far")->counts->instances, 3);
    uint64_t index = seen_index;
    touched(flip, &flips);
    cr_assert_eq(update("far", from, at(7, 0, 11), "").error, CO_CONFLICT, "a stage is under way");
    cr_assert_eq(commit("far", id, 1, from, to).error, CO_CONFLICT, "not all parts");
    cr_assert_eq(commit("far", id, 3, from, to).error, CO_CONFLICT);
    cr_assert_eq(commit("far", id + 1, 2, from, to).error, CO_CONFLICT, "another stage");
    cr_assert_eq(commit("far", id, 2, from, at(7, 0, 21)).error, CO_CONFLICT, "to somewhere else");
    cr_assert_eq(commit("far", id, 2, at(7, 0, 9), to).error, CO_CONFLICT, "from somewhere else");
    cr_assert(commit("far", id, 2, from, to).yes);
    cr_assert(touched(flip, &flips));
    for (int turn = 0; turn < 3; turn++) { /* not tidy, half, and all */
        cr_assert_str_eq(SEEN("web"), "far: web/n1/i1 web/n2/i2");
        cr_assert_str_eq(SEEN("web", .tag = "v2"), "far: web/n1/i1");
        cr_assert_str_eq(names(), "new[] far=1; web[v2] far=2");
        cr_assert_eq(copy_of("far")->counts->instances, 3);
        cr_assert_eq(copy_of("far")->counts->services, 2);
        if (turn < 2) cr_assert_eq(tidy("far", id).yes, turn == 1);
    }
    cr_assert_gt(seen_index, index);
    cr_assert_eq(records(COPY_TABLE_ROWS), 3);
    cr_assert_eq(records(COPY_TABLE_SERVICES), 2);
    cr_assert_eq(tidy("far", id).error, CO_CONFLICT);
    cr_assert(update("far", to, at(7, 0, 21), "-web/n1/i1").yes);
}

Test(copy, parts_come_in_their_order_and_once, .init = setup, .fini = teardown) {
    Pb__CatalogAt *to = at(7, 0, 20);
    cr_assert_eq(stage("far", 5, 0, NULL, to, "web/n/i").error, CO_CONFLICT, "nothing has begun");
    cr_assert_eq(stage("far", 0, 1, NULL, to, "web/n/i").error, CO_CONFLICT, "it begins with the first");
    cr_assert_eq(stage("far", 0, 0, at(7, 0, 3), to, "web/n/i").error, CO_CONFLICT, "from somewhere else");
    uint64_t id = stage("far", 0, 0, NULL, to, "web/n1/i").index;
    cr_assert_eq(stage("far", 0, 0, NULL, to, "web/n1/i").error, CO_CONFLICT, "another begins");
    cr_assert_eq(stage("far", id, 0, NULL, to, "web/n1/i").error, CO_CONFLICT, "it comes twice");
    cr_assert_eq(stage("far", id, 2, NULL, to, "web/n3/i").error, CO_CONFLICT, "one is missing");
    cr_assert_eq(stage("far", id + 1, 1, NULL, to, "web/n2/i").error, CO_CONFLICT, "of another stage");
    cr_assert_eq(stage("far", id, 1, NULL, at(7, 0, 21), "web/n2/i").error, CO_CONFLICT, "to somewhere else");
    cr_assert(stage("far", id, 1, NULL, to, "web/n2/i").yes);
    cr_assert_str_eq(SEEN("web"), "", "there is no copy yet");
    cr_assert(commit("far", id, 2, NULL, to).yes);
    cr_assert_str_eq(SEEN("web"), "far: web/n1/i web/n2/i");
}

Test(copy, a_stage_that_is_given_up_leaves_nothing, .init = setup, .fini = teardown) {
    Pb__CatalogAt *from = at(7, 0, 10), *to = at(7, 0, 20);
    update("far", NULL, from, "web/n1/i1/v1 db/n1/d");
    uint64_t id = stage("far", 0, 0, from, to, "-db/n1/d web/n1/i1/v2 web/n3/i3 new/n/i").index;
    cr_assert_eq(tidy("far", id + 1).error, CO_CONFLICT);
    cr_assert_not(tidy("far", id).yes);
    cr_assert_eq(commit("far", id, 1, from, to).error, CO_CONFLICT);
    cr_assert_eq(stage("far", 0, 0, from, to, "web/n4/i4").error, CO_CONFLICT, "it is not tidy");
    cr_assert(tidy("far", id).yes);
    cr_assert_str_eq(SEEN("web", .tag = "v1"), "far: web/n1/i1");
    cr_assert_str_eq(names(), "db[] far=1; web[v1] far=1");
    cr_assert_eq(records(COPY_TABLE_ROWS), 2);
    uint64_t other = stage("far", 0, 0, from, to, "web/n4/i4").index;
    cr_assert(other > id && commit("far", other, 1, from, to).yes);
    cr_assert_str_eq(SEEN("web"), "far: web/n1/i1 web/n4/i4");
}

/* Many rows: no step does all of it, and at each what readers see is the same. */
Test(copy, steps_are_bounded_and_nobody_sees_them, .init = setup, .fini = teardown) {
    enum { PARTS = 6, IN_PART = 250 };
    Pb__CatalogAt *to = at(7, 0, 20);
    uint64_t id = 0;
    for (unsigned part = 0; part < PARTS; part++) {
        struct buffer specs = {0};
        for (unsigned i = 0; i < IN_PART; i++) buffer_printf(&specs, "s%u/n%u/i%u/t%u ", i % 50, i, part, i % 3);
        buffer_append_byte(&specs, '\0');
        struct outcome outcome = stage("far", id, part, NULL, to, specs.data);
        cr_assert(outcome.yes, "%s", outcome.text);
        if (part == 0) id = outcome.index;
        buffer_free(&specs);
    }
    cr_assert(commit("far", id, PARTS, NULL, to).yes);
    unsigned steps = 0;
    for (bool over = false; !over; steps++) {
        const char *line = SEEN("s7", .tag = "t1");
        unsigned count = 0;
        for (; *line; line++) count += *line == '/';
        cr_assert_eq(count, 2 * PARTS * 2, "%u", count);
        cr_assert_eq(copy_of("far")->counts->instances, PARTS * IN_PART);
        over = tidy("far", id).yes;
    }
    cr_assert_gt(steps, PARTS * IN_PART / COPY_ROWS_MOST);
    unsigned tries = 1;
    Pb__CopyForgetCommand forget = PB__COPY_FORGET_COMMAND__INIT;
    forget.region = text("far");
    for (; !fixture_apply(&f, COPY_FORGET, &forget.base).yes; tries++) {
        cr_assert_str_eq(SEEN("s7"), "", "nobody sees it any more");
        cr_assert_str_eq(names(), "");
        cr_assert_eq(update("far", to, at(7, 0, 21), "").error, CO_CONFLICT);
    }
    cr_assert_geq(tries, PARTS * IN_PART / COPY_ROWS_MOST);
    cr_assert(records(COPY_TABLE_ROWS) == 0 && records(COPY_TABLE_SERVICES) == 0 && records(COPY_TABLE_REGIONS) == 0);
    cr_assert(fixture_apply(&f, COPY_FORGET, &forget.base).yes, "it is gone");
    cr_assert(update("far", NULL, at(7, 0, 3), "web/n/i").yes, "and may come again");
}

Test(copy, a_region_whose_name_begins_another_is_another, .init = setup, .fini = teardown) {
    update("eu", NULL, at(1, 0, 5), "web/n1/i1");
    update("eu-west", NULL, at(2, 0, 5), "web/m1/i1");
    Pb__CopyForgetCommand forget = PB__COPY_FORGET_COMMAND__INIT;
    forget.region = text("eu");
    while (!fixture_apply(&f, COPY_FORGET, &forget.base).yes) {}
    cr_assert_str_eq(SEEN("web"), "eu-west: web/m1/i1");
}

Test(copy, all_of_it_survives_a_restart, .init = setup, .fini = teardown) {
    Pb__CatalogAt *from = at(7, 0, 10), *to = at(7, 0, 20);
    update("far", NULL, from, "web/n1/i1");
    uint64_t id = stage("far", 0, 0, from, to, "web/n2/i2").index;
    fixture_reopen(&f);
    cr_assert_str_eq(SEEN("web"), "far: web/n1/i1");
    cr_assert(commit("far", id, 1, from, to).yes);
    fixture_reopen(&f);
    cr_assert_str_eq(SEEN("web"), "far: web/n1/i1 web/n2/i2");
    cr_assert_eq(tidy_all("far", id), 2);
}

Test(copy, cells_hold_two_values) {
    struct copy_value values[] = {{0}, {true, slice_text("a")}, {true, slice_text("longer")}, {true, slice_text("")}};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++)
            for (uint64_t id = 0; id < 2; id++) {
                struct copy_cell cell = {.now = values[i], .stage = id * 300, .then = values[j]}, read;
                if (!cell.stage && !cell.now.there) continue;
                cr_assert(copy_cell_read(copy_cell_pack(&arena, &cell), &read));
                cr_assert(read.now.there == cell.now.there && slice_equal(read.now.bytes, cell.now.bytes));
                cr_assert_eq(read.stage, cell.stage);
                if (cell.stage)
                    cr_assert(read.then.there == cell.then.there && slice_equal(read.then.bytes, cell.then.bytes));
            }
    struct copy_cell cell;
    cr_assert_not(copy_cell_read(slice_text(""), &cell));
    cr_assert_not(copy_cell_read(slice_make("\2", 1), &cell), "a stage without its number");
    cr_assert_not(copy_cell_read(slice_make("\3\1\5ab", 5), &cell), "a value that is cut");
    cr_assert_not(copy_cell_read(slice_make("\0abc", 4), &cell));
    arena_free(&arena);
}
