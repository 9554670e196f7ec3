#include "registry/access.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/random.h"

#define NAME(text) SLICE_LITERAL(text)

static void add(struct access *access, enum access_resource resource, bool prefix, const char *name,
                enum access_level level) {
    access_add(access, resource, prefix, slice_text(name), level);
}

static enum access_level level(const struct access *access, enum access_resource resource, const char *name) {
    return access_level_of(access, resource, slice_text(name));
}

/* ---- names of resources and levels ---- */

Test(access, words) {
    static const char *const resources[] = {"acl",      "agent", "event", "key",     "keyring", "lock",   "node",
                                            "operator", "query", "quota", "rollout", "service", "session"};
    static const char *const levels[] = {"deny", "read", "list", "write"};
    cr_assert_eq(ARRAY_COUNT(resources), ACCESS_RESOURCES);
    for (enum access_resource i = 0, parsed; i < ACCESS_RESOURCES; i++) {
        cr_expect_str_eq(access_resource_name(i), resources[i]);
        cr_expect(access_resource_parse(slice_text(resources[i]), &parsed) && parsed == i, "%s", resources[i]);
        bool named = i != ACCESS_ACL && i != ACCESS_KEYRING && i != ACCESS_OPERATOR;
        cr_expect_eq(access_resource_named(i), named, "%s", resources[i]);
        bool folds =
            i == ACCESS_AGENT || i == ACCESS_NODE || i == ACCESS_QUERY || i == ACCESS_SERVICE || i == ACCESS_SESSION;
        cr_expect_eq(access_resource_folds(i), folds, "%s", resources[i]);
    }
    for (enum access_level i = 0, parsed; i < ACCESS_LEVELS; i++) {
        cr_expect_str_eq(access_level_name(i), levels[i]);
        cr_expect(access_level_parse(slice_text(levels[i]), &parsed) && parsed == i, "%s", levels[i]);
    }
    enum access_resource resource;
    enum access_level parsed;
    cr_expect_not(access_resource_parse(NAME("keys"), &resource));
    cr_expect_not(access_resource_parse(NAME(""), &resource));
    cr_expect_not(access_level_parse(NAME("Read"), &parsed));
    cr_expect_not(access_level_parse(NAME(""), &parsed));
}

/* ---- the rules of the header ---- */

Test(access, an_exact_rule_counts_before_prefixes_and_the_longest_prefix_counts) {
    struct access *access = access_new(ACCESS_DENY);
    add(access, ACCESS_KEY, true, "", ACCESS_READ);
    add(access, ACCESS_KEY, true, "a/", ACCESS_WRITE);
    add(access, ACCESS_KEY, true, "a/b/", ACCESS_DENY);
    add(access, ACCESS_KEY, true, "a/b/c/d/", ACCESS_LIST);
    add(access, ACCESS_KEY, true, "a0", ACCESS_LIST);
    add(access, ACCESS_KEY, false, "a/b/x", ACCESS_WRITE);
    add(access, ACCESS_KEY, false, "a/", ACCESS_DENY);
    access_seal(access);
    static const struct {
        const char *name;
        enum access_level level;
    } rows[] = {
        {"", ACCESS_READ},       {"a", ACCESS_READ},       {"a/", ACCESS_DENY},        {"a/x", ACCESS_WRITE},
        {"a/b", ACCESS_WRITE},   {"a/b/", ACCESS_DENY},    {"a/b/x", ACCESS_WRITE},    {"a/b/xy", ACCESS_DENY},
        {"a/b/c/", ACCESS_DENY}, {"a/b/c/d", ACCESS_DENY}, {"a/b/c/d/e", ACCESS_LIST}, {"a/c", ACCESS_WRITE},
        {"a0", ACCESS_LIST},     {"a0/b", ACCESS_LIST},    {"a.", ACCESS_READ},        {"b", ACCESS_READ},
        {"\xff", ACCESS_READ},   {"A/x", ACCESS_READ},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        cr_expect_eq(level(access, ACCESS_KEY, rows[i].name), rows[i].level, "%s", rows[i].name);
    access_release(access);
}

Test(access, of_several_rules_for_one_name_counts_deny_then_write_then_list_then_read) {
    static const enum access_level order[] = {ACCESS_DENY, ACCESS_WRITE, ACCESS_LIST, ACCESS_READ};
    for (size_t first = 0; first < 4; first++) {
        for (size_t second = 0; second < 4; second++) {
            struct access *access = access_new(ACCESS_DENY);
            for (unsigned prefix = 0; prefix < 2; prefix++) {
                add(access, ACCESS_KEY, prefix, "a", order[first]);
                add(access, ACCESS_KEY, prefix, "a", order[second]);
            }
            add(access, ACCESS_OPERATOR, false, "", order[first]);
            add(access, ACCESS_OPERATOR, false, "", order[second]);
            access_seal(access);
            enum access_level wanted = order[first < second ? first : second];
            cr_expect_eq(level(access, ACCESS_KEY, "a"), wanted);
            cr_expect_eq(level(access, ACCESS_KEY, "ab"), wanted);
            cr_expect_eq(level(access, ACCESS_OPERATOR, ""), wanted);
            access_release(access);
        }
    }
}

Test(access, the_default_level_counts_where_no_rule_does) {
    for (enum access_level otherwise = ACCESS_DENY; otherwise < ACCESS_LEVELS; otherwise++) {
        struct access *access = access_new(otherwise);
        add(access, ACCESS_KEY, true, "a", ACCESS_READ);
        access_seal(access);
        for (enum access_resource i = 0; i < ACCESS_RESOURCES; i++) {
            enum access_level wanted = i == ACCESS_ACL ? ACCESS_DENY : otherwise;
            cr_expect_eq(level(access, i, ""), wanted, "%s", access_resource_name(i));
            cr_expect_eq(level(access, i, "b"), wanted, "%s", access_resource_name(i));
        }
        access_release(access);
    }
}

/* Rule (3): the one rule counts, whatever name a question has. */
Test(access, resources_without_names) {
    static const enum access_resource resources[] = {ACCESS_ACL, ACCESS_KEYRING, ACCESS_OPERATOR};
    for (enum access_level otherwise = ACCESS_DENY; otherwise < ACCESS_LEVELS; otherwise++) {
        for (enum access_level rule = ACCESS_DENY; rule < ACCESS_LEVELS; rule++) {
            struct access *access = access_new(otherwise);
            for (size_t i = 0; i < ARRAY_COUNT(resources); i++) add(access, resources[i], false, "", rule);
            access_seal(access);
            for (size_t i = 0; i < ARRAY_COUNT(resources); i++) {
                cr_expect_eq(level(access, resources[i], ""), rule);
                cr_expect_eq(level(access, resources[i], "x"), rule);
                for (enum access_level least = ACCESS_READ; least < ACCESS_LEVELS; least++) {
                    cr_expect_eq(access_allows_below(access, resources[i], NAME(""), least), rule >= least);
                    cr_expect_eq(access_allows_below(access, resources[i], NAME("x"), least), rule >= least);
                    cr_expect_eq(access_allows_some(access, resources[i], least), rule >= least);
                }
            }
            access_release(access);
        }
    }
}

Test(access, names_of_the_catalog_have_no_case) {
    struct access *access = access_new(ACCESS_DENY);
    char name[600], other[600];
    memset(name, 'N', sizeof name);
    memset(other, 'n', sizeof other);
    other[599] = 'm';
    for (enum access_resource i = 0; i < ACCESS_RESOURCES; i++) {
        if (!access_resource_named(i)) continue;
        add(access, i, false, "WeB", ACCESS_WRITE);
        add(access, i, true, "Api-", ACCESS_READ);
        access_add(access, i, false, slice_make(name, sizeof name), ACCESS_LIST);
    }
    access_seal(access);
    for (enum access_resource i = 0; i < ACCESS_RESOURCES; i++) {
        if (!access_resource_named(i)) continue;
        bool folds = access_resource_folds(i);
        cr_expect_eq(level(access, i, "WeB"), ACCESS_WRITE);
        cr_expect_eq(level(access, i, "web"), folds ? ACCESS_WRITE : ACCESS_DENY);
        cr_expect_eq(level(access, i, "WEB"), folds ? ACCESS_WRITE : ACCESS_DENY);
        cr_expect_eq(level(access, i, "aPI-1"), folds ? ACCESS_READ : ACCESS_DENY);
        cr_expect_eq(access_allows_below(access, i, NAME("API-"), ACCESS_READ), folds);
        cr_expect_eq(access_level_of(access, i, slice_make(name, sizeof name)), ACCESS_LIST);
        cr_expect_eq(access_level_of(access, i, slice_make(other, 599)), ACCESS_DENY);
        cr_expect_eq(access_level_of(access, i, slice_make(other, sizeof other)), ACCESS_DENY);
        other[599] = 'n';
        cr_expect_eq(access_level_of(access, i, slice_make(other, sizeof other)), folds ? ACCESS_LIST : ACCESS_DENY);
        other[599] = 'm';
    }
    access_release(access);
}

Test(access, all_allows_everything) {
    cr_expect(access_is_all(access_all));
    for (enum access_resource i = 0; i < ACCESS_RESOURCES; i++) {
        cr_expect_eq(level(access_all, i, "x"), ACCESS_WRITE);
        cr_expect(access_allows(access_all, i, NAME("x"), ACCESS_WRITE));
        cr_expect(access_allows_below(access_all, i, NAME(""), ACCESS_WRITE));
        cr_expect(access_allows_some(access_all, i, ACCESS_WRITE));
    }
    cr_expect_eq(access_view(access_all), 0);
    cr_expect_str_eq(access_accessor(access_all), "");
    cr_expect_str_eq(access_description(access_all), "");
    access_release(access_keep(access_all));
    access_release(NULL);
}

Test(access, has_a_name_and_lives_until_its_last_release) {
    struct access *access = access_new(ACCESS_DENY);
    access_name(access, "first", "");
    access_name(access, "6a1253d2", "web's token");
    access_seal(access);
    const struct access *kept = access_keep(access);
    access_release(access);
    cr_expect_str_eq(access_accessor(kept), "6a1253d2");
    cr_expect_str_eq(access_description(kept), "web's token");
    access_release(kept);
    access = access_new(ACCESS_DENY);
    access_seal(access);
    cr_expect_str_eq(access_accessor(access), "");
    cr_expect_str_eq(access_description(access), "");
    access_release(access);
}

/* ---- one check ---- */

Test(access, a_check_says_what_is_missing) {
    struct access *access = access_new(ACCESS_DENY);
    add(access, ACCESS_KEY, true, "a/", ACCESS_READ);
    add(access, ACCESS_KEY, true, "a/b/", ACCESS_DENY);
    access_seal(access);
    struct arena arena = {0};
    struct buffer said = {0};
    struct access_check check = {.access = access, .arena = &arena};
    cr_expect_eq(access_require(&check, ACCESS_KEY, NAME("a/x"), ACCESS_READ), CO_OK);
    cr_expect_eq(access_require_below(&check, ACCESS_KEY, NAME("a/c"), ACCESS_READ), CO_OK);
    char name[] = "a/\"x\\\x01\xff";
    cr_expect_eq(access_require(&check, ACCESS_KEY, slice_text(name), ACCESS_WRITE), CO_DENIED);
    memset(name, 'z', sizeof name - 1); /* the check has its own copy */
    access_missing_print(&check.missing, &said);
    cr_expect(slice_is(buffer_slice(&said), "key:write on \"a/\\x22x\\x5c\\x01\\xff\""), "%.*s", (int)said.size,
              said.data);
    cr_expect_eq(access_require_below(&check, ACCESS_KEY, NAME("a/"), ACCESS_READ), CO_DENIED);
    buffer_reset(&said);
    access_missing_print(&check.missing, &said);
    cr_expect(slice_is(buffer_slice(&said), "key:read on everything below \"a/\""));
    cr_expect_eq(access_require(&check, ACCESS_OPERATOR, NAME(""), ACCESS_READ), CO_DENIED);
    buffer_reset(&said);
    access_missing_print(&check.missing, &said);
    cr_expect(slice_is(buffer_slice(&said), "operator:read"));
    buffer_free(&said);
    arena_free(&arena);
    access_release(access);
}

Test(access, a_list_keeps_the_rows_that_show) {
    struct access *access = access_new(ACCESS_DENY);
    add(access, ACCESS_NODE, true, "n", ACCESS_READ);
    add(access, ACCESS_NODE, false, "n2", ACCESS_DENY);
    access_seal(access);
    struct access_check check = {.access = access};
    const char *names[] = {"n1", "n2", "N3", "m", "n2x"};
    size_t count = ARRAY_COUNT(names);
    ACCESS_KEEP_ROWS(count, names, access_shows(&check, ACCESS_NODE, slice_text(row)));
    cr_assert_eq(count, 3);
    cr_expect_str_eq(names[0], "n1");
    cr_expect_str_eq(names[1], "N3");
    cr_expect_str_eq(names[2], "n2x");
    cr_expect_eq(check.hidden, 2);
    access_release(access);
}

/* ---- random rules, against all names of a small alphabet ---- */

#define RULES_MOST 10
#define NAMES_MOST 400 /* of three or four letters, up to four of them */

struct model_rule {
    enum access_resource resource;
    bool prefix;
    enum access_level level;
    char name[8];
};
struct model {
    enum access_level otherwise;
    struct model_rule rules[RULES_MOST];
    size_t count;
};

/* Rules have names of `letters`; questions also have one letter more, which stands for all others. */
static void random_name(struct rng *rng, const char *letters, size_t most, char name[8]) {
    size_t size = rng_below(rng, most + 1);
    for (size_t i = 0; i < size; i++) name[i] = letters[rng_below(rng, strlen(letters))];
    name[size] = '\0';
}

static void random_model(struct rng *rng, struct model *model) {
    static const enum access_resource resources[] = {ACCESS_KEY, ACCESS_SERVICE, ACCESS_OPERATOR, ACCESS_ACL};
    *model = (struct model){.otherwise = rng_below(rng, 2) ? ACCESS_DENY : rng_below(rng, ACCESS_LEVELS)};
    model->count = rng_below(rng, RULES_MOST + 1);
    for (size_t i = 0; i < model->count; i++) {
        struct model_rule *rule = &model->rules[i];
        rule->resource = resources[rng_below(rng, rng_below(rng, 4) ? 2 : 4)];
        rule->level = rng_below(rng, ACCESS_LEVELS);
        if (!access_resource_named(rule->resource)) continue;
        rule->prefix = rng_below(rng, 3) > 0;
        random_name(rng, "abB", 3, rule->name);
    }
}

static struct access *made(const struct model *model, struct rng *rng) {
    size_t order[RULES_MOST];
    struct access *access = access_new(model->otherwise);
    for (size_t i = 0; i < model->count; i++) { /* the order of rules changes nothing */
        size_t j = rng_below(rng, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i < model->count; i++) {
        const struct model_rule *rule = &model->rules[order[i]];
        add(access, rule->resource, rule->prefix, rule->name, rule->level);
    }
    access_seal(access);
    return access;
}

static bool same_letters(bool folds, const char *a, const char *b, size_t size) {
    return folds ? strncasecmp(a, b, size) == 0 : strncmp(a, b, size) == 0;
}

/* As the header says it. `size` of the names of rules; of exact ones 1000, which is more than any prefix. */
static enum access_level model_level(const struct model *model, enum access_resource resource, const char *name) {
    static const enum access_level order[] = {ACCESS_DENY, ACCESS_WRITE, ACCESS_LIST, ACCESS_READ};
    bool folds = resource == ACCESS_SERVICE;
    int best = -1;
    enum access_level found = resource == ACCESS_ACL ? ACCESS_DENY : model->otherwise;
    for (size_t place = 0; place < 4; place++) { /* of those that are as near, the first in this order */
        for (size_t i = 0; i < model->count; i++) {
            const struct model_rule *rule = &model->rules[i];
            size_t size = strlen(rule->name);
            if (rule->resource != resource || rule->level != order[place]) continue;
            if (!same_letters(folds, rule->name, name, size) || (!rule->prefix && strlen(name) != size)) continue;
            int near = rule->prefix ? (int)size : 1000;
            if (near <= best) continue;
            best = near;
            found = rule->level;
        }
    }
    return found;
}

static size_t all_names(const char *letters, char names[NAMES_MOST][8]) {
    size_t count = 1, from = 0;
    names[0][0] = '\0';
    for (size_t size = 1; size <= 4; size++) {
        size_t to = count;
        for (size_t i = from; i < to; i++) {
            for (const char *letter = letters; *letter; letter++) {
                CHECK(count < NAMES_MOST);
                memcpy(names[count], names[i], size - 1);
                names[count][size - 1] = *letter;
                names[count++][size] = '\0';
            }
        }
        from = to;
    }
    return count;
}

static void check_levels(uint64_t seed, const struct model *model, const struct access *access,
                         enum access_resource resource, char names[][8], size_t count) {
    bool some[ACCESS_LEVELS] = {false};
    enum access_level levels[NAMES_MOST];
    for (size_t i = 0; i < count; i++) {
        levels[i] = model_level(model, resource, names[i]);
        cr_assert_eq(level(access, resource, names[i]), levels[i], "seed %lu: %s '%s'", seed,
                     access_resource_name(resource), names[i]);
        for (enum access_level least = 0; least <= levels[i]; least++) some[least] = true;
    }
    for (enum access_level least = 0; least < ACCESS_LEVELS; least++)
        cr_assert_eq(access_allows_some(access, resource, least), some[least], "seed %lu: some %s:%s", seed,
                     access_resource_name(resource), access_level_name(least));
    for (size_t i = 0; i < count && strlen(names[i]) < 4; i++) {
        enum access_level lowest = ACCESS_WRITE;
        for (size_t j = 0; j < count; j++) {
            bool below = same_letters(resource == ACCESS_SERVICE, names[i], names[j], strlen(names[i]));
            if (below && levels[j] < lowest) lowest = levels[j];
        }
        for (enum access_level least = 0; least < ACCESS_LEVELS; least++)
            cr_assert_eq(access_allows_below(access, resource, slice_text(names[i]), least), lowest >= least,
                         "seed %lu: %s:%s below '%s'", seed, access_resource_name(resource), access_level_name(least),
                         names[i]);
    }
}

Test(access, levels_of_all_names) {
    static char names[NAMES_MOST][8];
    size_t count = all_names("abBc", names);
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        struct rng rng;
        struct model model;
        rng_seed(&rng, seed);
        random_model(&rng, &model);
        struct access *access = made(&model, &rng);
        check_levels(seed, &model, access, ACCESS_KEY, names, count);
        check_levels(seed, &model, access, ACCESS_SERVICE, names, count);
        check_levels(seed, &model, access, ACCESS_OPERATOR, names, 1);
        check_levels(seed, &model, access, ACCESS_ACL, names, 1);
        access_release(access);
    }
}

/* The rules that count, one for each name, in an order: what a view stands for. */
static int by_rule(const void *a_, const void *b_) {
    const struct model_rule *a = a_, *b = b_;
    if (a->resource != b->resource) return a->resource < b->resource ? -1 : 1;
    if (a->prefix != b->prefix) return a->prefix ? 1 : -1;
    return strcmp(a->name, b->name);
}

static void reduce(const struct model *model, struct model *out) {
    static const enum access_level order[] = {ACCESS_DENY, ACCESS_WRITE, ACCESS_LIST, ACCESS_READ};
    *out = (struct model){.otherwise = model->otherwise};
    for (size_t place = 0; place < 4; place++) {
        for (size_t i = 0; i < model->count; i++) {
            struct model_rule rule = model->rules[i];
            bool there = false;
            if (rule.level != order[place]) continue;
            if (rule.resource == ACCESS_SERVICE) bytes_lower(rule.name, strlen(rule.name));
            for (size_t j = 0; j < out->count; j++) there = there || by_rule(&out->rules[j], &rule) == 0;
            if (!there) out->rules[out->count++] = rule;
        }
    }
    if (out->count) qsort(out->rules, out->count, sizeof out->rules[0], by_rule);
}

static bool same_rules(const struct model *a, const struct model *b) {
    struct model one, other;
    reduce(a, &one);
    reduce(b, &other);
    if (one.otherwise != other.otherwise || one.count != other.count) return false;
    for (size_t i = 0; i < one.count; i++) {
        if (by_rule(&one.rules[i], &other.rules[i]) || one.rules[i].level != other.rules[i].level) return false;
    }
    return true;
}

/* Another model, which often says the same: with rules twice, rules that do not count, names in another case. */
static void change(struct rng *rng, struct model *model) {
    size_t times = rng_below(rng, 3);
    for (size_t i = 0; i < times && model->count && model->count < RULES_MOST; i++) {
        struct model_rule *rule = &model->rules[rng_below(rng, model->count)];
        uint64_t what = rng_below(rng, 6);
        if (what == 0) model->otherwise = rng_below(rng, ACCESS_LEVELS);
        else if (what == 1) rule->level = rng_below(rng, ACCESS_LEVELS);
        else if (what == 2 && rule->name[0]) rule->name[0] ^= 0x20;
        else if (what == 3) *rule = model->rules[--model->count];
        else model->rules[model->count++] = *rule;
    }
    if (times && model->count && rng_below(rng, 2))
        model->rules[model->count - 1].level = rng_below(rng, ACCESS_LEVELS);
}

Test(access, views_are_equal_when_the_rules_that_count_are) {
    size_t equal = 0;
    for (uint64_t seed = 1; seed <= 8000; seed++) {
        struct rng rng;
        struct model model, other;
        rng_seed(&rng, seed);
        random_model(&rng, &model);
        other = model;
        change(&rng, &other);
        struct access *a = made(&model, &rng), *b = made(&other, &rng);
        bool same = same_rules(&model, &other);
        cr_assert_eq(access_view(a) == access_view(b), same, "seed %lu", seed);
        equal += same;
        access_release(a);
        access_release(b);
    }
    cr_expect(equal > 2000 && equal < 6000, "%zu pairs of 8000 are equal", equal);
}

/* A name may hold any bytes: also those that a view has between two rules. */
Test(access, views_tell_names_apart) {
    struct access *one = access_new(ACCESS_DENY), *other = access_new(ACCESS_DENY);
    char both[] = {'a', ACCESS_KEY, false, ACCESS_READ, 'b'};
    access_add(one, ACCESS_KEY, false, slice_make(both, sizeof both), ACCESS_READ);
    access_add(other, ACCESS_KEY, false, NAME("a"), ACCESS_READ);
    access_add(other, ACCESS_KEY, false, NAME("b"), ACCESS_READ);
    access_seal(one);
    access_seal(other);
    cr_expect_neq(access_view(one), access_view(other));
    access_release(one);
    access_release(other);
    one = access_new(ACCESS_DENY), other = access_new(ACCESS_DENY);
    access_add(one, ACCESS_KEY, false, NAME("a\0b"), ACCESS_READ);
    access_add(other, ACCESS_KEY, false, NAME("a"), ACCESS_READ);
    access_seal(one);
    access_seal(other);
    cr_expect_neq(access_view(one), access_view(other));
    cr_expect_eq(access_level_of(one, ACCESS_KEY, NAME("a")), ACCESS_DENY);
    cr_expect_eq(access_level_of(one, ACCESS_KEY, NAME("a\0b")), ACCESS_READ);
    access_release(one);
    access_release(other);
}

static void collect(void *data, enum access_resource resource, bool prefix, struct slice name,
                    enum access_level rule_level) {
    buffer_printf(data, "%s%s %.*s %s;", resource == ACCESS_RESOURCES ? "default" : access_resource_name(resource),
                  prefix ? "_prefix" : "", (int)name.size, name.data, access_level_name(rule_level));
}

Test(access, each_names_the_rules_that_count_in_order) {
    struct access *access = access_new(ACCESS_READ);
    struct buffer out = {0};
    add(access, ACCESS_SERVICE, true, "B", ACCESS_READ);
    add(access, ACCESS_KEY, true, "b", ACCESS_READ);
    add(access, ACCESS_KEY, true, "a", ACCESS_READ);
    add(access, ACCESS_KEY, true, "a", ACCESS_LIST);
    add(access, ACCESS_KEY, false, "c", ACCESS_WRITE);
    add(access, ACCESS_ACL, false, "", ACCESS_WRITE);
    access_seal(access);
    access_each(access, &out, collect);
    cr_expect(slice_is(buffer_slice(&out),
                       "default  read;acl  write;key c write;key_prefix a list;key_prefix b "
                       "read;service_prefix b read;"),
              "%.*s", (int)out.size, out.data);
    buffer_free(&out);
    access_release(access);
}
