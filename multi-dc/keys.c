#include "multi-dc/keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/keys/kv_copied.h"
#include "multi-dc/copy.h"
#include "multi-dc/region.h"
#include "registry/access_operator.h"

enum { KEYS_TABLE = 42 }; /* prefix -> KeysRule */
_Static_assert(KEYS_SET >= 208 && KEYS_TAKE < 224, "commands of multi-dc (registry/module.h)");
_Static_assert(SPACE_KEYS >= 112 && SPACE_KEYS < 120, "a space of multi-dc");
_Static_assert(KEYS_TAKE == KV_BY_COPY, "the history of keys names it");

static const struct slice everything = SLICE_LITERAL("");

/* -- records ------------------------------------------------------------------------------------------------------ */
/* CO_NOTFOUND; CO_CORRUPT. In the arena. */
static int rule_get(struct store_txn *txn, struct slice prefix, struct arena *arena, Pb__KeysRule **rule) {
    struct slice bytes;
    if (!prefix.size || prefix.size > KEYS_PREFIX_MAX) return CO_NOTFOUND;
    int rv = store_get(txn, KEYS_TABLE, prefix, &bytes);
    if (rv != CO_OK) return rv;
    *rule = message_unpack(arena, &pb__keys_rule__descriptor, bytes);
    return *rule ? CO_OK : CO_CORRUPT;
}

static void rule_put(struct machine_tx *tx, Pb__KeysRule *rule) {
    rule->revision = tx->index;
    store_put(tx->store, KEYS_TABLE, message_slice(rule->prefix), message_pack(tx->arena, &rule->base));
    machine_changed(tx, SPACE_KEYS, everything, false);
}

/* The rule whose prefix this name begins with; for a prefix also a rule whose prefix begins with it. NULL: none. */
static Pb__KeysRule *rule_of(struct machine_tx *tx, struct slice name, bool prefix) {
    struct store_cursor cursor;
    Pb__KeysRule *rule = NULL;
    bool found = false;
    if (!store_count(tx->store, KEYS_TABLE)) return NULL;
    STORE_PREFIX(&cursor, tx->store, KEYS_TABLE, everything) {
        found = slice_starts(name, cursor.key) || (prefix && slice_starts(cursor.key, name));
        if (!found) continue;
        rule = message_unpack(tx->arena, &pb__keys_rule__descriptor, cursor.value);
        if (!rule) store_fail(tx->store, CO_CORRUPT);
        break;
    }
    store_cursor_close(&cursor);
    return rule;
}

/* -- owners of keys ----------------------------------------------------------------------------------------------- */
static const char *forbids(struct machine_tx *tx, const struct machine_thing *thing) {
    if ((thing->space & ~WATCH_PREFIX_BIT) != SPACE_KEY) return NULL;
    const Pb__KeysRule *rule = rule_of(tx, thing->name, thing->space & WATCH_PREFIX_BIT);
    if (!rule) return NULL;
    return arena_printf(tx->arena, "keys below \"%.*s\" are copied from region %s: write them there, or with ?dc=%s",
                        (int)rule->prefix.len, (const char *)rule->prefix.data, rule->region, rule->region);
}

static bool keys_are_here(struct store_txn *txn, struct slice prefix) {
    struct kv_walk walk;
    kv_walk_open(&walk, txn, prefix, everything);
    bool found = walk.valid;
    if (walk.error) store_fail(txn, walk.error);
    kv_walk_close(&walk);
    return found;
}

static const char *prefix_fault(struct slice prefix) {
    if (!prefix.size || prefix.size > KEYS_PREFIX_MAX) return "prefix: 1 to 256 bytes are wanted";
    return memchr(prefix.data, 0, prefix.size) ? "prefix: it holds a NUL byte" : NULL;
}

static int refuse_overlap(struct machine_tx *tx, const Pb__KeysRule *rule, struct machine_result *result) {
    return machine_refuse(result, CO_CONFLICT,
                          arena_printf(tx->arena, "keys below \"%.*s\" are copied from region %s already",
                                       (int)rule->prefix.len, (const char *)rule->prefix.data, rule->region));
}

static int set(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__KeysSetCommand *command = request;
    struct slice prefix = message_slice(command->prefix);
    const char *fault = prefix_fault(prefix);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    if (!region_known(tx->store, slice_text(command->region)))
        return machine_refuse(result, CO_INVALID, "from: the name of another region that is known here is wanted");
    const Pb__KeysRule *other = rule_of(tx, prefix, true);
    bool same = other && slice_equal(message_slice(other->prefix), prefix);
    result->yes = true;
    if (same && strcmp(other->region, command->region) == 0) return CO_OK;
    if (other) return refuse_overlap(tx, other, result);
    if (store_count(tx->store, KEYS_TABLE) >= KEYS_RULES_MAX)
        return machine_refuse(result, CO_TOOLARGE, "there are 64 prefixes already");
    if (!command->replace && keys_are_here(tx->store, prefix))
        return machine_refuse(
            result, CO_CONFLICT,
            "there are keys below this prefix here: with ?replace they go, unless the region has them");
    Pb__KeysRule rule = PB__KEYS_RULE__INIT;
    rule.prefix = command->prefix, rule.region = command->region, rule.create_index = tx->index;
    CHECK(rule.prefix.len > 0 && rule.region[0] && !rule.at && !rule.listing);
    rule_put(tx, &rule);
    return CO_OK;
}

static int unset(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__KeysUnsetCommand *command = request;
    Pb__KeysRule *rule;
    int rv = rule_get(tx->store, message_slice(command->prefix), tx->arena, &rule);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_NOTFOUND, "no region's keys are copied below this prefix");
    if (rv != CO_OK) return rv;
    (void)store_del(tx->store, KEYS_TABLE, message_slice(rule->prefix));
    machine_changed(tx, SPACE_KEYS, everything, false);
    result->yes = true;
    return CO_OK;
}

/* -- a page ------------------------------------------------------------------------------------------------------- */
/* Keys here that the source does not have, in the first part of the page, up to `reached`. */
struct leftover {
    struct slice keys[KEYS_STEP_ROWS]; /* in the tx arena */
    size_t count;
    struct slice reached;
    bool all; /* the page's end was reached */
};

static struct slice place_of(const Pb__KeysEntry *entry, char room[KV_STORE_KEY_MAX]) {
    return kv_store_key(message_slice(entry->key), room);
}

/* Finds them by walking the page and the keys here side by side; both are in the order of their places. */
static int find_leftover(struct machine_tx *tx, const Pb__KeysRule *rule, const Pb__KeysTakeCommand *command,
                         struct leftover *left) {
    struct kv_walk walk;
    char room[KV_STORE_KEY_MAX];
    size_t passed = 0, at = 0;
    CHECK(command->begin || rule->listing);
    left->all = true, left->count = 0;
    struct slice after = command->begin ? everything : message_slice(rule->after);
    for (kv_walk_open(&walk, tx->store, message_slice(rule->prefix), after); walk.valid; kv_walk_next(&walk)) {
        if (!command->last && slice_compare(walk.place, message_slice(command->upto)) > 0) break;
        int order = -1;
        while (at < command->n_entries && (order = slice_compare(place_of(command->entries[at], room), walk.place)) < 0)
            at++;
        if (at == command->n_entries || order > 0) left->keys[left->count++] = slice_copy(tx->arena, walk.record.key);
        CHECK(left->count <= passed + 1 && at <= command->n_entries);
        if (++passed < KEYS_STEP_ROWS) continue;
        left->all = false, left->reached = slice_copy(tx->arena, walk.place);
        break;
    }
    int error = walk.error;
    kv_walk_close(&walk);
    return error;
}

static int take_page(struct machine_tx *tx, Pb__KeysRule *rule, const Pb__KeysTakeCommand *command,
                     struct machine_result *result) {
    struct leftover left;
    char room[KV_STORE_KEY_MAX];
    bool changed;
    if (!command->begin && (!rule->listing || !copy_same_life(rule->listing, command->to)))
        return machine_refuse(result, CO_CONFLICT, "no such listing is under way");
    int error = find_leftover(tx, rule, command, &left);
    if (command->begin) rule->listing = command->to, rule->listed = 0;
    for (size_t i = 0; i < left.count && !error; i++) error = kv_copied_remove(tx, left.keys[i], &changed);
    struct slice after = command->begin ? everything : message_slice(rule->after);
    for (size_t i = 0; i < command->n_entries && !error; i++) {
        const Pb__KeysEntry *entry = command->entries[i];
        struct slice place = place_of(entry, room);
        if (slice_compare(place, after) <= 0) continue; /* an earlier step has taken it */
        if (!left.all && slice_compare(place, left.reached) > 0) break;
        rule->listed++;
        if (!entry->same)
            error = kv_copied_set(tx, message_slice(entry->key), message_slice(entry->value), entry->flags, &changed);
    }
    if (error) return error;
    CHECK(rule->listing && (left.all || left.reached.size > 0));
    result->yes = left.all;
    rule->after = left.all ? command->upto : message_bytes(left.reached);
    if (left.all && command->last) {
        rule->at = rule->listing, rule->whole = command->to->index, rule->keys = rule->listed;
        rule->listing = NULL, rule->after = (ProtobufCBinaryData){0}, rule->listed = 0;
    }
    rule_put(tx, rule);
    return CO_OK;
}

/* -- changes ------------------------------------------------------------------------------------------------------ */
static int take_changes(struct machine_tx *tx, Pb__KeysRule *rule, const Pb__KeysTakeCommand *command,
                        struct machine_result *result) {
    if (rule->listing || !copy_same_life(rule->at, command->to) || command->to->index < rule->at->index)
        return machine_refuse(result, CO_CONFLICT, "the copy is not where these changes begin");
    CHECK(rule->at && !rule->listing);
    int error = CO_OK;
    bool changed;
    for (size_t i = 0; i < command->n_removed && !error; i++) {
        error = kv_copied_remove(tx, message_slice(command->removed[i]), &changed);
        if (changed && rule->keys) rule->keys--;
    }
    for (size_t i = 0; i < command->n_entries && !error; i++) {
        const Pb__KeysEntry *entry = command->entries[i];
        error = kv_copied_set(tx, message_slice(entry->key), message_slice(entry->value), entry->flags, &changed);
        rule->keys += changed;
    }
    if (error) return error;
    rule->at = command->to;
    rule_put(tx, rule);
    result->yes = true;
    return CO_OK;
}

static bool key_good(const Pb__KeysRule *rule, ProtobufCBinaryData key) {
    struct slice name = message_slice(key);
    return name.size && name.size <= KV_KEY_MAX && slice_starts(name, message_slice(rule->prefix)) &&
           !memchr(name.data, 0, name.size);
}

static bool step_good(const Pb__KeysRule *rule, const Pb__KeysTakeCommand *command) {
    if (!command->to || command->n_entries + command->n_removed > KEYS_ROWS_MOST) return false;
    if (command->upto.len > KV_STORE_KEY_MAX || (command->page && command->n_removed)) return false;
    for (size_t i = 0; i < command->n_entries; i++)
        if (!key_good(rule, command->entries[i]->key)) return false;
    for (size_t i = 0; i < command->n_removed; i++)
        if (!key_good(rule, command->removed[i])) return false;
    return true;
}

static int take(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__KeysTakeCommand *command = request;
    Pb__KeysRule *rule;
    int rv = rule_get(tx->store, message_slice(command->prefix), tx->arena, &rule);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_NOTFOUND, "there is no such rule any more");
    if (rv != CO_OK) return rv;
    if (rule->revision != command->revision && !(tx->mutations & MUTATE_KEYS_REPEATS))
        return machine_refuse(result, CO_CONFLICT, "another step came before");
    if (!step_good(rule, command)) return machine_refuse(result, CO_INVALID, "no step of a copy");
    return command->page ? take_page(tx, rule, command, result) : take_changes(tx, rule, command, result);
}

/* -- the query ---------------------------------------------------------------------------------------------------- */
static struct watch_key watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_KEYS, everything};
}

static int run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
               struct query_result *result) {
    (void)request;
    Pb__KeysRulesResult *records = arena_alloc(arena, sizeof *records);
    pb__keys_rules_result__init(records);
    records->own = catalog_at_now(txn, arena);
    records->own->index = 0; /* the source's index, which changes of other things raise too */
    records->rules = arena_alloc(arena, KEYS_RULES_MAX * sizeof *records->rules);
    struct store_cursor cursor;
    int error = CO_OK;
    store_cursor_open(&cursor, txn, KEYS_TABLE, everything);
    for (; cursor.valid && error == CO_OK && records->n_rules < KEYS_RULES_MAX; store_cursor_next(&cursor)) {
        Pb__KeysRule *rule = message_unpack(arena, &pb__keys_rule__descriptor, cursor.value);
        if (rule) records->rules[records->n_rules++] = rule;
        else error = CO_CORRUPT;
    }
    store_cursor_close(&cursor);
    *result = (struct query_result){
        .index = machine_change_index(txn, SPACE_KEYS, everything), .found = true, .message = &records->base};
    return error;
}

const struct query_type query_keys_rules = {.number = 213,
                                            .name = "keys-rules",
                                            .request = &pb__keys_rules_request__descriptor,
                                            .result = &pb__keys_rules_result__descriptor,
                                            .watched = watched,
                                            .run = run,
                                            .show = access_operator_show};

/* By operator:write. With `replace` keys that are here may go, which needs write on all of them. */
static int set_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__KeysSetCommand *command = (const Pb__KeysSetCommand *)request;
    int error = access_operator_may(check, txn, request);
    if (error || !command->replace) return error;
    return access_require_below(check, ACCESS_KEY, message_slice(command->prefix), ACCESS_WRITE);
}

/* -- the table ---------------------------------------------------------------------------------------------------- */
static const struct module_command commands[] = {
    {.number = KEYS_SET,
     .name = "keys-set",
     .request = &pb__keys_set_command__descriptor,
     .may = set_may,
     .apply = set},
    {.number = KEYS_UNSET,
     .name = "keys-unset",
     .request = &pb__keys_unset_command__descriptor,
     .may = access_operator_may,
     .apply = unset},
    {.number = KEYS_TAKE,
     .servers_only = true,
     .name = "keys-take",
     .request = &pb__keys_take_command__descriptor,
     .apply = take},
    {0},
};
static const struct store_table tables[] = {{KEYS_TABLE, "keys-rules"}, {0}};
static const struct module_space spaces[] = {{SPACE_KEYS, "keys-rules"}, {0}};
static const struct query_type *const queries[] = {&query_keys_rules, &query_keys_changes, NULL};

const struct module keys_module = {
    .name = "keys", .commands = commands, .tables = tables, .spaces = spaces, .queries = queries, .forbids = forbids};
