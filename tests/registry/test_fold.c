/* Names without regard to case: what is one thing then, and that nothing of it depends on how names happen to be
 * written. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/random.h"
#include "catalog_specs.h"
#include "registry/catalog_records.h"
#include "registry/catalog_write.h"

TestSuite(fold, .timeout = 300);

#define put(f, spec)                                         \
    do {                                                     \
        struct outcome put_ = fixture_register((f), (spec)); \
        cr_assert(put_.yes, "%s: %s", (spec), put_.text);    \
    } while (0)

/* -- what there is, as text --------------------------------------------------------------------------------------- */

/* Lines in one order, so that what is written in another case compares. */
struct lines {
    char *items[512];
    size_t count;
};

static void add_line(struct lines *lines, bool lower, const char *format, ...) {
    struct buffer text = {0};
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    cr_assert(size >= 0 && (size_t)size < sizeof line && lines->count < ARRAY_COUNT(lines->items));
    for (char *at = line; lower && *at; at++) *at = (char)tolower((unsigned char)*at);
    buffer_append(&text, line, (size_t)size + 1);
    lines->items[lines->count++] = text.data;
}

static int compare_lines(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static char *lines_text(struct lines *lines) {
    struct buffer text = {0};
    qsort(lines->items, lines->count, sizeof *lines->items, compare_lines);
    for (size_t i = 0; i < lines->count; i++) {
        if (i == 0 || strcmp(lines->items[i], lines->items[i - 1]) != 0) buffer_printf(&text, "%s; ", lines->items[i]);
    }
    for (size_t i = 0; i < lines->count; i++) free(lines->items[i]);
    lines->count = 0;
    buffer_append_byte(&text, '\0');
    return text.data;
}

static void add_check(struct lines *lines, bool lower, const Pb__Check *check) {
    add_line(lines, lower, "check %s/%s=%s of %s (%s)", check->node, check->check_id,
             catalog_status_text(check->status), check->service_id, check->service_name);
}

static void add_service(struct lines *lines, bool lower, const char *node, const Pb__Service *service) {
    char tags[256] = "";
    for (size_t i = 0; i < service->n_tags; i++)
        snprintf(tags + strlen(tags), sizeof tags - strlen(tags), "+%s", service->tags[i]);
    add_line(lines, lower, "service %s/%s=%s:%u%s", node, service->id, service->name, service->port, tags);
}

/* Everything, as the queries of the whole tables, of nodes and of services say it; both must say the same. Free it. */
static char *all_of(struct fixture *f, bool lower) {
    struct lines lines = {0}, tables = {0};
    struct query_result result = fixture_table(f, &query_nodes);
    const Pb__NodesResult *nodes = (const Pb__NodesResult *)result.message;
    for (size_t i = 0; i < nodes->n_nodes; i++) {
        const Pb__Node *node = nodes->nodes[i];
        add_line(&lines, lower, "node %s at %s %s", node->name, node->address, node->id);
        result = fixture_node(f, &query_node_services, node->name);
        cr_assert(result.found, "%s", node->name);
        const Pb__NodeServicesResult *services = (const Pb__NodeServicesResult *)result.message;
        for (size_t j = 0; j < services->n_services; j++) add_service(&lines, lower, node->name, services->services[j]);
        result = fixture_node(f, &query_node_checks, node->name);
        const Pb__ChecksResult *checks = (const Pb__ChecksResult *)result.message;
        for (size_t j = 0; j < checks->n_checks; j++) add_check(&lines, lower, checks->checks[j]);
    }
    result = fixture_table(f, &query_services);
    const Pb__ServicesResult *names = (const Pb__ServicesResult *)result.message;
    for (size_t i = 0; i < names->n_services; i++) {
        result = fixture_service(f, &query_service_entries, names->services[i]->name);
        const Pb__ServiceEntriesResult *entries = (const Pb__ServiceEntriesResult *)result.message;
        cr_assert_gt(entries->n_entries, 0, "%s", names->services[i]->name);
        for (size_t j = 0; j < entries->n_entries; j++) {
            const Pb__ServiceEntry *entry = entries->entries[j];
            add_service(&tables, lower, entry->node->name, entry->service);
            for (size_t k = 0; k < entry->n_checks; k++) add_check(&lines, lower, entry->checks[k]);
        }
    }
    free(lines_text(&tables));
    fixture_forget(f);
    return lines_text(&lines);
}

#define expect_all(f, wanted)                                                   \
    do {                                                                        \
        char *all_ = all_of((f), false);                                        \
        cr_expect_str_eq(all_, wanted, "\n  have %s\n  want %s", all_, wanted); \
        free(all_);                                                             \
    } while (0)

/* -- the store's tables agree with one another -------------------------------------------------------------------- */

struct counts {
    uint64_t nodes, services, checks, strays, node_names, service_names, node_ids, removed;
};

static void check_nodes(struct store_txn *txn, struct arena *arena, struct counts *counts) {
    struct store_cursor cursor;
    struct slice all = slice_make("", 0), found;
    char room[STORE_KEY_MAX];
    STORE_PREFIX(&cursor, txn, TABLE_NODES, all) {
        const Pb__Node *node = record_node(txn, arena, cursor.value);
        struct slice name = slice_text(node->name);
        counts->nodes++;
        cr_assert(slice_equal(cursor.key, key_node(room, name)), "%s", node->name);
        cr_assert(store_get(txn, TABLE_SPELLINGS, key_spelling(room, SPELLING_NODE, name), &found) == CO_OK &&
                  slice_equal(found, name));
        if (!node->id[0]) continue;
        counts->node_ids++;
        cr_assert(store_get(txn, TABLE_NODE_IDS, key_node_id(room, slice_text(node->id)), &found) == CO_OK &&
                      slice_equal(found, name),
                  "%s", node->name);
    }
    store_cursor_close(&cursor);
    cr_assert_eq(store_count(txn, TABLE_NODE_IDS), counts->node_ids);
}

static void check_services(struct store_txn *txn, struct arena *arena, struct counts *counts) {
    struct store_cursor cursor;
    struct slice all = slice_make("", 0), found;
    char room[STORE_KEY_MAX];
    STORE_PREFIX(&cursor, txn, TABLE_SERVICES, all) {
        const Pb__Service *service = record_service(txn, arena, cursor.value);
        struct slice node = slice_text(service->node), id = slice_text(service->id), name = slice_text(service->name);
        counts->services++;
        cr_assert(slice_equal(cursor.key, key_service(room, node, id)));
        cr_assert(catalog_node_exists(txn, node), "%s", service->node);
        cr_assert_eq(store_get(txn, TABLE_INSTANCES, key_instance(room, name, node, id), &found), CO_OK);
        cr_assert_eq(store_get(txn, TABLE_SPELLINGS, key_spelling(room, SPELLING_SERVICE, name), &found), CO_OK);
    }
    store_cursor_close(&cursor);
    cr_assert_eq(store_count(txn, TABLE_INSTANCES), counts->services);
}

static void check_checks(struct store_txn *txn, struct arena *arena, struct counts *counts) {
    struct store_cursor cursor;
    struct slice all = slice_make("", 0), found;
    char room[STORE_KEY_MAX];
    STORE_PREFIX(&cursor, txn, TABLE_CHECKS, all) {
        const Pb__Check *check = record_check(txn, arena, cursor.value);
        struct slice node = slice_text(check->node), id = slice_text(check->check_id),
                     service = slice_text(check->service_id), carried = slice_text(check->service_name);
        counts->checks++;
        cr_assert(slice_equal(cursor.key, key_check(room, node, service, id)));
        cr_assert(store_get(txn, TABLE_CHECK_IDS, key_check_id(room, node, id), &found) == CO_OK &&
                  slice_equal(found, service));
        if (!service.size) continue;
        cr_assert_eq(catalog_service_bytes(txn, node, service, &found), CO_OK, "%s", check->service_id);
        bool stray = !slice_equal_nocase(record_text(found, SERVICE_NAME_FIELD), carried);
        counts->strays += stray;
        cr_assert_eq(store_get(txn, TABLE_STRAYS, key_stray(room, carried, node, id), &found) == CO_OK, stray);
    }
    store_cursor_close(&cursor);
    cr_assert_eq(store_count(txn, TABLE_CHECK_IDS), counts->checks);
    cr_assert_eq(store_count(txn, TABLE_STRAYS), counts->strays);
}

static void check_names(struct store_txn *txn, struct counts *counts) {
    struct store_cursor cursor;
    struct slice all = slice_make("", 0);
    uint64_t instances = 0;
    STORE_PREFIX(&cursor, txn, TABLE_SPELLINGS, all) {
        char room[STORE_KEY_MAX];
        struct slice value;
        bool node = cursor.key.data[0] == SPELLING_NODE;
        *(node ? &counts->node_names : &counts->service_names) += 1;
        if (node) continue;
        cr_assert_eq(store_get(txn, TABLE_TAGS, key_count(room, cursor.value), &value), CO_OK);
        instances += get_be64(value.data);
    }
    store_cursor_close(&cursor);
    cr_assert_eq(counts->node_names, counts->nodes);
    cr_assert_eq(instances, counts->services);
}

static void check_marks(struct store_txn *txn, struct counts *counts) {
    enum { INDEX_BYTES = 8 };
    struct store_cursor cursor;
    struct slice all = slice_make("", 0);
    STORE_PREFIX(&cursor, txn, TABLE_CHANGES, all) {
        if (cursor.value.data[INDEX_BYTES]) counts->removed++;
        bool whole = cursor.key.size <= STORE_KEY_WHOLE; /* else it ends with a hash */
        if (whole && fold_space((uint8_t)cursor.key.data[0])) cr_assert_not(slice_has_upper(cursor.key));
    }
    store_cursor_close(&cursor);
    cr_assert_eq(store_count(txn, TABLE_TOMBSTONES), counts->removed);
    STORE_PREFIX(&cursor, txn, TABLE_TOMBSTONES, all) {
        struct slice mark = slice_make(cursor.key.data + INDEX_BYTES, cursor.key.size - INDEX_BYTES), value;
        if (cursor.value.size) mark = cursor.value;
        cr_assert_eq(store_get(txn, TABLE_CHANGES, mark, &value), CO_OK);
        cr_assert(memcmp(value.data, cursor.key.data, INDEX_BYTES) == 0 && value.data[INDEX_BYTES]);
    }
    store_cursor_close(&cursor);
}

static void check_store(struct fixture *f) {
    struct arena arena = {0};
    struct counts counts = {0};
    (void)fixture_sum(f);
    struct store_txn *txn = store_read(f->reader);
    check_nodes(txn, &arena, &counts);
    check_services(txn, &arena, &counts);
    check_checks(txn, &arena, &counts);
    check_names(txn, &counts);
    check_marks(txn, &counts);
    store_read_done(f->reader);
    arena_free(&arena);
}

/* -- one thing in any case ---------------------------------------------------------------------------------------- */

static bool names_node(struct fixture *f, const char *asked, const char *name) {
    struct query_result result = fixture_node(f, &query_node_services, asked);
    const Pb__NodeServicesResult *found = (const Pb__NodeServicesResult *)result.message;
    bool same = result.found && strcmp(found->node->name, name) == 0;
    fixture_forget(f);
    return same;
}

static size_t instances(struct fixture *f, const char *service) {
    struct query_result result = fixture_service(f, &query_service_entries, service);
    size_t count = ((const Pb__ServiceEntriesResult *)result.message)->n_entries;
    fixture_forget(f);
    return count;
}

static size_t checks_of(struct fixture *f, const struct query_type *type, const char *name) {
    struct query_result result =
        type == &query_node_checks ? fixture_node(f, type, name) : fixture_service(f, type, name);
    size_t count = ((const Pb__ChecksResult *)result.message)->n_checks;
    fixture_forget(f);
    return count;
}

Test(fold, nodes_services_and_checks_are_found_in_any_case) {
    struct fixture f;
    fixture_open(&f);
    put(&f, "node=carl service=W1:Web:80 tag=a check=C1:passing:W1 check=up:passing:");
    cr_expect(names_node(&f, "CARL", "carl"));
    cr_expect_eq(instances(&f, "WEB"), 1);
    cr_expect_eq(checks_of(&f, &query_service_checks, "web"), 1);
    cr_expect_eq(checks_of(&f, &query_node_checks, "Carl"), 2);
    put(&f, "node=CARL addr=10.0.0.2");
    cr_expect(names_node(&f, "carl", "CARL"), "as it was written last");
    put(&f, "node=carl skip service=w1:web:81 tag=b check=c1:warning:w1");
    expect_all(&f,
               "check carl/c1=warning of w1 (web); check carl/up=passing of  (); node CARL at 10.0.0.2 ; "
               "service CARL/w1=web:81+b; ");
    cr_expect_eq(fixture_deregister(&f, "cArl", "", "UP").error, CO_OK);
    cr_expect_eq(fixture_deregister(&f, "cArl", "W1", "").error, CO_OK);
    expect_all(&f, "node CARL at 10.0.0.2 ; ");
    check_store(&f);
    cr_expect_eq(fixture_deregister(&f, "carl", "", "").error, CO_OK);
    expect_all(&f, "");
    check_store(&f);
    fixture_close(&f);
}

Test(fold, names_of_services_stay_as_each_instance_has_them) {
    struct fixture f;
    fixture_open(&f);
    put(&f, "node=a service=x:Web:1 tag=t check=c:passing:x");
    put(&f, "node=b service=y:WEB:2");
    cr_expect_eq(instances(&f, "web"), 2);
    struct query_result result = fixture_table(&f, &query_services);
    const Pb__ServicesResult *names = (const Pb__ServicesResult *)result.message;
    cr_assert_eq(names->n_services, 2);
    cr_expect_str_eq(names->services[0]->name, "WEB");
    cr_expect_str_eq(names->services[1]->name, "Web");
    cr_expect_eq(names->services[1]->n_tags, 1);
    put(&f, "node=a service=x:web:1 tag=t");
    cr_expect_eq(checks_of(&f, &query_service_checks, "WEB"), 1, "the check still carries Web, which is no other name");
    check_store(&f);
    put(&f, "node=a service=x:api:1");
    cr_expect_eq(checks_of(&f, &query_service_checks, "wEB"), 1, "as a stray");
    cr_expect_eq(instances(&f, "weB"), 1);
    check_store(&f);
    fixture_close(&f);
}

#define ID       "11111111-aaaa-4aaa-8aaa-111111111111"
#define UPPER_ID "11111111-AAAA-4AAA-8AAA-111111111111"
#define OTHER_ID "22222222-aaaa-4aaa-8aaa-111111111111"

Test(fold, a_node_of_the_same_id_in_another_case_is_renamed_and_starts_anew) {
    struct fixture f;
    fixture_open(&f);
    put(&f, "node=carl id=" ID " service=w:web:1 check=serfHealth:passing:");
    put(&f, "node=carl addr=10.0.0.2 id=" UPPER_ID);
    cr_expect_eq(instances(&f, "web"), 1, "an ID has no case");
    cr_expect_eq(fixture_register(&f, "node=CARL id=" OTHER_ID).error, CO_INVALID, "carl lives");
    put(&f, "node=CARL id=" ID);
    expect_all(&f, "node CARL at 10.0.0.1 " ID "; ");
    check_store(&f);
    put(&f, "node=carl addr=10.0.0.3");
    expect_all(&f, "node carl at 10.0.0.3 ; ");
    check_store(&f);
    fixture_close(&f);
}

Test(fold, a_check_finds_its_service_in_any_case) {
    struct fixture f;
    fixture_open(&f);
    put(&f, "node=a service=Db:Db:1 check=one:passing:DB");
    put(&f, "node=a skip check=two:passing:db");
    cr_expect_eq(checks_of(&f, &query_service_checks, "db"), 2);
    cr_expect_eq(fixture_register(&f, "node=a skip check=three:passing:other").error, CO_INVALID);
    cr_expect_eq(fixture_deregister(&f, "A", "dB", "").error, CO_OK);
    cr_expect_eq(checks_of(&f, &query_node_checks, "a"), 0, "they go with it");
    check_store(&f);
    fixture_close(&f);
}

Test(fold, letters_beyond_ascii_are_themselves) {
    struct fixture f;
    fixture_open(&f);
    put(&f, "node=gr\xc3\x96sse service=x:\xc3\x96l:1");
    cr_expect(names_node(&f, "GR\xc3\x96SSE", "gr\xc3\x96sse"));
    cr_expect_not(fixture_node(&f, &query_node_services, "gr\xc3\xb6sse").found);
    cr_expect_eq(instances(&f, "\xc3\x96L"), 1);
    cr_expect_eq(instances(&f, "\xc3\xb6l"), 0);
    fixture_close(&f);
}

/* Parts of keys are shortened by their hash beyond 120 bytes, marks beyond 400. */
Test(fold, long_names_are_no_exception) {
    for (size_t size = 119; size < 600; size += size == 119 ? 1 : 160) {
        struct fixture f;
        char lower[600], upper[600];
        struct buffer spec = {0};
        memset(lower, 'x', size), memset(upper, 'X', size);
        lower[size] = upper[size] = '\0';
        fixture_open(&f);
        buffer_printf(&spec, "node=%s service=%s:%s:1 check=%s:passing:%s%c", upper, upper, upper, upper, upper, '\0');
        put(&f, spec.data);
        check_store(&f);
        cr_expect(names_node(&f, lower, upper), "%zu", size);
        cr_expect_eq(instances(&f, lower), 1);
        cr_expect_eq(checks_of(&f, &query_service_checks, lower), 1);
        cr_expect_eq(fixture_deregister(&f, lower, lower, "").error, CO_OK);
        cr_expect_eq(fixture_deregister(&f, lower, "", "").error, CO_OK);
        check_store(&f);
        expect_all(&f, "");
        buffer_free(&spec);
        fixture_close(&f);
    }
}

/* -- waiting ------------------------------------------------------------------------------------------------------ */

static void fired(struct watch_waiter *waiter) { (void)waiter; }

Test(fold, who_waits_in_another_case_is_woken) {
    struct fixture f;
    struct watch_waiter node = {0}, service = {0}, other = {0};
    fixture_open(&f);
    put(&f, "node=carl service=w:web:1");
    struct watch_table *table = machine_watches(f.machine);
    watch_add(table, &node, (struct watch_key){SPACE_NODE, slice_text("CARL")}, fired);
    watch_add(table, &service, (struct watch_key){SPACE_SERVICE, slice_text("Web")}, fired);
    watch_add(table, &other, (struct watch_key){SPACE_SERVICE, slice_text("we")}, fired);
    uint64_t before = watch_generation(table, (struct watch_key){SPACE_SERVICE, slice_text("WEB")});
    put(&f, "node=cArl skip service=w:wEb:2");
    cr_expect_not(atomic_load(&node.armed));
    cr_expect_not(atomic_load(&service.armed));
    cr_expect(atomic_load(&other.armed));
    cr_expect_neq(watch_generation(table, (struct watch_key){SPACE_SERVICE, slice_text("WEB")}), before,
                  "ready answers are written anew");
    watch_remove(table, &node), watch_remove(table, &service), watch_remove(table, &other);
    fixture_close(&f);
}

/* -- any case gives the same -------------------------------------------------------------------------------------- */

enum { NODES = 5, IDS = 4, NAMES = 4, CHECKS = 4 };

static int pick(struct rng *rng, int below) { return (int)rng_below(rng, (uint64_t)below); }

/* The name, each letter in a case of its own when `cases` says so. */
static const char *name(struct rng *cases, const char *word, int number) {
    static char rooms[8][32];
    static unsigned turn;
    char *to = rooms[turn++ % 8];
    snprintf(to, sizeof rooms[0], "%s-%c", word, 'a' + number);
    for (char *at = to; cases && *at; at++)
        if (pick(cases, 2)) *at = (char)toupper((unsigned char)*at);
    return to;
}

static void random_spec(struct rng *rng, struct rng *cases, struct buffer *spec) {
    buffer_reset(spec);
    buffer_printf(spec, "node=%s addr=10.0.0.%d", name(cases, "node", pick(rng, NODES)), pick(rng, 2));
    if (pick(rng, 3) == 0) buffer_append_text(spec, " skip");
    if (pick(rng, 2) == 0) {
        const char *id = name(cases, "id", pick(rng, IDS));
        buffer_printf(spec, " service=%s:%s:%d", id, name(cases, "svc", pick(rng, NAMES)), pick(rng, 2));
        for (int i = pick(rng, 3); i > 0; i--) buffer_printf(spec, " tag=%c", "aAb"[pick(rng, 3)]);
    }
    static const char *const statuses[] = {"passing", "warning", "critical"};
    for (int i = pick(rng, 3); i > 0; i--) {
        const char *check = name(cases, "check", 2 * pick(rng, CHECKS / 2) + i % 2), *status = statuses[pick(rng, 3)];
        bool own = pick(rng, 3) == 0;
        buffer_printf(spec, " check=%s:%s:%s", check, status, own ? "" : name(cases, "id", pick(rng, IDS)));
    }
    buffer_append_byte(spec, '\0');
}

static struct outcome random_command(struct fixture *f, struct rng *rng, struct rng *cases) {
    struct buffer spec = {0};
    struct outcome result;
    if (pick(rng, 3) > 0) {
        random_spec(rng, cases, &spec);
        result = fixture_register(f, spec.data);
    } else {
        const char *node = name(cases, "node", pick(rng, NODES));
        int what = pick(rng, 5);
        result = fixture_deregister(f, node, what < 2 ? name(cases, "id", pick(rng, IDS)) : "",
                                    what == 2 || what == 3 ? name(cases, "check", pick(rng, CHECKS)) : "");
    }
    buffer_free(&spec);
    return result;
}

Test(fold, names_in_random_case_do_what_folded_names_do) {
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct fixture plain, mixed;
        struct rng cases;
        fixture_open(&plain), fixture_open(&mixed);
        rng_seed(&cases, seed);
        for (uint64_t step = 0; step < 250; step++) {
            struct rng rng, same;
            rng_seed(&rng, seed * 1000 + step), rng_seed(&same, seed * 1000 + step);
            struct outcome one = random_command(&plain, &rng, NULL);
            struct outcome other = random_command(&mixed, &same, &cases);
            cr_assert_eq(one.error, other.error, "seed %d step %d: %s", (int)seed, (int)step, other.text);
            char *wanted = all_of(&plain, true), *have = all_of(&mixed, true);
            cr_assert_str_eq(have, wanted, "seed %d step %d:\n  have %s\n  want %s", (int)seed, (int)step, have,
                             wanted);
            free(wanted), free(have);
            if (step % 25 == 0) check_store(&mixed);
        }
        fixture_close(&plain), fixture_close(&mixed);
    }
}
