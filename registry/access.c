#include "registry/access.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"

static const struct {
    const char *name;
    bool named;
    bool folds; /* names count without regard to case, as in the catalog */
} resources[ACCESS_RESOURCES] = {
    [ACCESS_ACL] = {"acl", false, false},         [ACCESS_AGENT] = {"agent", true, true},
    [ACCESS_EVENT] = {"event", true, false},      [ACCESS_KEY] = {"key", true, false},
    [ACCESS_KEYRING] = {"keyring", false, false}, [ACCESS_LOCK] = {"lock", true, false},
    [ACCESS_NODE] = {"node", true, true},         [ACCESS_OPERATOR] = {"operator", false, false},
    [ACCESS_QUERY] = {"query", true, true},       [ACCESS_QUOTA] = {"quota", true, false},
    [ACCESS_ROLLOUT] = {"rollout", true, false},  [ACCESS_SERVICE] = {"service", true, true},
    [ACCESS_SESSION] = {"session", true, true},
};
static const char *const levels[ACCESS_LEVELS] = {"deny", "read", "list", "write"};

const char *access_resource_name(enum access_resource resource) {
    CHECK(resource < ACCESS_RESOURCES);
    return resources[resource].name;
}
const char *access_level_name(enum access_level level) {
    CHECK(level < ACCESS_LEVELS);
    return levels[level];
}
bool access_resource_named(enum access_resource resource) {
    CHECK(resource < ACCESS_RESOURCES);
    return resources[resource].named;
}
bool access_resource_folds(enum access_resource resource) {
    CHECK(resource < ACCESS_RESOURCES);
    return resources[resource].folds;
}
bool access_resource_parse(struct slice text, enum access_resource *resource) {
    for (*resource = 0; *resource < ACCESS_RESOURCES; ++*resource) {
        if (slice_is(text, resources[*resource].name)) return true;
    }
    return false;
}
bool access_level_parse(struct slice text, enum access_level *level) {
    for (*level = 0; *level < ACCESS_LEVELS; ++*level) {
        if (slice_is(text, levels[*level])) return true;
    }
    return false;
}

/* -- the rules ---------------------------------------------------------------------------------------------------- */

#define NO_PARENT UINT32_MAX
struct rule {
    struct slice name;
    enum access_level level;
    uint32_t parent; /* of prefixes: the longest other prefix that it begins with */
};
struct rules {
    struct rule *items;
    size_t count;
};

struct access {
    _Atomic unsigned references;
    bool sealed;
    enum access_level otherwise;
    struct rules exact[ACCESS_RESOURCES], prefix[ACCESS_RESOURCES]; /* sealed: in order of their names */
    char *accessor, *description;
    uint64_t view;
};

static const struct access all = {.sealed = true, .otherwise = ACCESS_WRITE, .accessor = "", .description = ""};
const struct access *const access_all = &all;

struct access *access_new(enum access_level otherwise) {
    CHECK(otherwise < ACCESS_LEVELS);
    struct access *access = mem_zalloc(sizeof *access);
    atomic_init(&access->references, 1);
    access->otherwise = otherwise;
    return access;
}

void access_add(struct access *access, enum access_resource resource, bool prefix, struct slice name,
                enum access_level level) {
    CHECK(!access->sealed && resource < ACCESS_RESOURCES && level < ACCESS_LEVELS);
    CHECK(resources[resource].named || (!prefix && name.size == 0));
    struct rules *rules = &(prefix ? access->prefix : access->exact)[resource];
    rules->items = mem_realloc(rules->items, (rules->count + 1) * sizeof *rules->items);
    char *copy = mem_strndup(name.size ? name.data : "", name.size);
    if (resources[resource].folds) bytes_lower(copy, name.size);
    rules->items[rules->count++] = (struct rule){slice_make(copy, name.size), level, NO_PARENT};
}

void access_name(struct access *access, const char *accessor, const char *description) {
    CHECK(!access->sealed);
    free(access->accessor);
    free(access->description);
    access->accessor = mem_strdup(accessor);
    access->description = mem_strdup(description);
}

/* Rule (2): the first counts. */
static unsigned rank(enum access_level level) {
    static const unsigned ranks[ACCESS_LEVELS] = {
        [ACCESS_DENY] = 0, [ACCESS_WRITE] = 1, [ACCESS_LIST] = 2, [ACCESS_READ] = 3};
    return ranks[level];
}

static int by_name(const void *a_, const void *b_) {
    const struct rule *a = a_, *b = b_;
    int order = slice_compare(a->name, b->name);
    return order ? order : (int)rank(a->level) - (int)rank(b->level);
}

static void sort(struct rules *rules) {
    if (rules->count == 0) return;
    qsort(rules->items, rules->count, sizeof *rules->items, by_name);
    size_t kept = 1;
    for (size_t i = 1; i < rules->count; i++) {
        if (slice_equal(rules->items[i].name, rules->items[kept - 1].name)) free((char *)rules->items[i].name.data);
        else rules->items[kept++] = rules->items[i];
    }
    rules->count = kept;
}

/* A prefix sorts behind its parent, and between them are only other prefixes that begin with the parent. */
static void find_parents(struct rules *rules) {
    for (size_t i = 1; i < rules->count; i++) {
        uint32_t parent = (uint32_t)i - 1;
        while (parent != NO_PARENT && !slice_starts(rules->items[i].name, rules->items[parent].name))
            parent = rules->items[parent].parent;
        rules->items[i].parent = parent;
    }
}

static void note(void *data, enum access_resource resource, bool prefix, struct slice name, enum access_level level) {
    struct buffer *out = data;
    char head[3] = {(char)resource, (char)prefix, (char)level};
    buffer_append(out, head, sizeof head);
    buffer_append(out, &name.size, sizeof name.size);
    buffer_append(out, name.data, name.size);
}

void access_seal(struct access *access) {
    CHECK(!access->sealed);
    for (size_t i = 0; i < ACCESS_RESOURCES; i++) {
        sort(&access->exact[i]);
        sort(&access->prefix[i]);
        find_parents(&access->prefix[i]);
    }
    if (!access->accessor) access->accessor = mem_strdup("");
    if (!access->description) access->description = mem_strdup("");
    access->sealed = true;
    /* The seed keeps others from choosing rules whose hashes are equal. */
    static _Atomic uint64_t seed;
    uint64_t expected = 0;
    if (!atomic_load(&seed)) atomic_compare_exchange_strong(&seed, &expected, random_u64() | 1);
    struct buffer bytes = {0};
    access_each(access, &bytes, note);
    access->view = hash64_seed(bytes.data, bytes.size, atomic_load(&seed));
    if (access->view == 0) access->view = 1;
    buffer_free(&bytes);
}

struct access *access_keep(const struct access *access) {
    struct access *kept = (struct access *)(uintptr_t)access;
    if (!access_is_all(access)) atomic_fetch_add(&kept->references, 1);
    return kept;
}

void access_release(const struct access *access) {
    struct access *released = (struct access *)(uintptr_t)access;
    if (!access || access_is_all(access) || atomic_fetch_sub(&released->references, 1) != 1) return;
    for (size_t i = 0; i < ACCESS_RESOURCES; i++) {
        for (size_t j = 0; j < released->exact[i].count; j++) free((char *)released->exact[i].items[j].name.data);
        for (size_t j = 0; j < released->prefix[i].count; j++) free((char *)released->prefix[i].items[j].name.data);
        free(released->exact[i].items);
        free(released->prefix[i].items);
    }
    free(released->accessor);
    free(released->description);
    free(released);
}

/* -- asking ------------------------------------------------------------------------------------------------------- */

/* The number of rules whose names sort before `name` or equal it. */
static size_t place(const struct rules *rules, struct slice name) {
    size_t low = 0, high = rules->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (slice_compare(rules->items[middle].name, name) <= 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static enum access_level default_of(const struct access *access, enum access_resource resource) {
    return resource == ACCESS_ACL && !access_is_all(access) ? ACCESS_DENY : access->otherwise;
}

static const struct rule *exact_rule(const struct rules *rules, struct slice name) {
    size_t at = place(rules, name);
    return at && slice_equal(rules->items[at - 1].name, name) ? &rules->items[at - 1] : NULL;
}

static const struct rule *longest_prefix(const struct rules *rules, struct slice name) {
    size_t at = place(rules, name);
    uint32_t found = at ? (uint32_t)at - 1 : NO_PARENT;
    while (found != NO_PARENT && !slice_starts(name, rules->items[found].name)) found = rules->items[found].parent;
    return found == NO_PARENT ? NULL : &rules->items[found];
}

static enum access_level level_of(const struct access *access, enum access_resource resource, struct slice name) {
    const struct rule *rule = access->exact[resource].count ? exact_rule(&access->exact[resource], name) : NULL;
    if (!rule && access->prefix[resource].count) rule = longest_prefix(&access->prefix[resource], name);
    return rule ? rule->level : default_of(access, resource);
}

/* The name as rules have it. `room`: for names that are not too long; longer ones are copied. */
struct folded {
    struct slice name;
    char *copy;
    char room[256];
};

static struct slice fold(struct folded *folded, enum access_resource resource, struct slice name) {
    folded->copy = NULL;
    folded->name = name;
    if (!resources[resource].folds || !slice_has_upper(name)) return name;
    char *bytes = name.size <= sizeof folded->room ? folded->room : (folded->copy = mem_alloc(name.size));
    memcpy(bytes, name.data, name.size);
    bytes_lower(bytes, name.size);
    return folded->name = slice_make(bytes, name.size);
}

enum access_level access_level_of(const struct access *access, enum access_resource resource, struct slice name) {
    CHECK(access->sealed && resource < ACCESS_RESOURCES);
    struct folded folded;
    enum access_level level = level_of(access, resource, fold(&folded, resource, name));
    free(folded.copy);
    return level;
}

/* Do all rules for names that begin with the prefix give this level? */
static bool all_below(const struct rules *rules, struct slice prefix, enum access_level least) {
    size_t at = place(rules, prefix);
    if (at && slice_equal(rules->items[at - 1].name, prefix)) at--;
    for (; at < rules->count && slice_starts(rules->items[at].name, prefix); at++) {
        if (rules->items[at].level < least) return false;
    }
    return true;
}

bool access_allows_below(const struct access *access, enum access_resource resource, struct slice prefix_,
                         enum access_level least) {
    if (access_is_all(access)) return true;
    CHECK(access->sealed && resource < ACCESS_RESOURCES);
    struct folded folded;
    struct slice prefix = fold(&folded, resource, prefix_);
    const struct rule *rule = longest_prefix(&access->prefix[resource], prefix);
    bool allowed = (rule ? rule->level : default_of(access, resource)) >= least &&
                   all_below(&access->prefix[resource], prefix, least) &&
                   all_below(&access->exact[resource], prefix, least);
    free(folded.copy);
    return allowed;
}

bool access_allows_some(const struct access *access, enum access_resource resource, enum access_level least) {
    if (access_is_all(access)) return true;
    CHECK(access->sealed && resource < ACCESS_RESOURCES);
    const struct rules *exact = &access->exact[resource], *prefix = &access->prefix[resource];
    for (size_t i = 0; i < exact->count; i++) {
        if (exact->items[i].level >= least) return true;
    }
    for (size_t i = 0; i < prefix->count; i++) {
        if (prefix->items[i].level >= least) return true;
    }
    bool covered = prefix->count && prefix->items[0].name.size == 0;
    return !covered && default_of(access, resource) >= least;
}

const char *access_accessor(const struct access *access) { return access->accessor; }
const char *access_description(const struct access *access) { return access->description; }
uint64_t access_view(const struct access *access) { return access->view; }

void access_each(const struct access *access, void *data,
                 void (*each)(void *data, enum access_resource resource, bool prefix, struct slice name,
                              enum access_level level)) {
    each(data, ACCESS_RESOURCES, false, slice_make("", 0), access->otherwise);
    for (enum access_resource resource = 0; resource < ACCESS_RESOURCES; resource++) {
        for (unsigned prefix = 0; prefix < 2; prefix++) {
            const struct rules *rules = &(prefix ? access->prefix : access->exact)[resource];
            for (size_t i = 0; i < rules->count; i++)
                each(data, resource, prefix, rules->items[i].name, rules->items[i].level);
        }
    }
}

/* -- one check ---------------------------------------------------------------------------------------------------- */

static int missing(struct access_check *check, enum access_resource resource, struct slice name,
                   enum access_level least, bool below) {
    check->missing = (struct access_missing){resource, least, below, slice_copy(check->arena, name)};
    return CO_DENIED;
}

int access_require(struct access_check *check, enum access_resource resource, struct slice name,
                   enum access_level least) {
    if (access_allows(check->access, resource, name, least)) return CO_OK;
    return missing(check, resource, name, least, false);
}

int access_require_below(struct access_check *check, enum access_resource resource, struct slice prefix,
                         enum access_level least) {
    if (access_allows_below(check->access, resource, prefix, least)) return CO_OK;
    return missing(check, resource, prefix, least, true);
}

void access_missing_print(const struct access_missing *missing, struct buffer *out) {
    buffer_printf(out, "%s:%s", access_resource_name(missing->resource), access_level_name(missing->level));
    if (!access_resource_named(missing->resource)) return;
    buffer_append_text(out, missing->below ? " on everything below \"" : " on \"");
    for (size_t i = 0; i < missing->name.size; i++) {
        unsigned char byte = (unsigned char)missing->name.data[i];
        if (byte < 0x20 || byte == '"' || byte == '\\' || byte >= 0x7f) buffer_printf(out, "\\x%02x", byte);
        else buffer_append_byte(out, (char)byte);
    }
    buffer_append_byte(out, '"');
}
