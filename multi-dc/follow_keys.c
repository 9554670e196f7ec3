/* The follower of keys (multi-dc/keys.h): its table, and the functions in it. It has one answer of its source in memory: a step
 * (KEYS_BYTES_MOST, or one row). A page is followed by the next one, divided changes by the rest of them. A step without
 * rows is also proposed when the copy becomes whole by it. A listing that began in another life of the source begins
 * anew. */
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/keys/kv_record.h"
#include "multi-dc/follower_kind.h"

METRIC steps_metric = {
    .name = "coord_region_keys_steps_total",
    .help = "pages and changes of copied keys that this server proposed as leader and that were taken",
    .type = METRIC_COUNTER};

struct keys {
    struct follower base;
    char prefix[KEYS_PREFIX_MAX];
    size_t prefix_size;
    uint64_t create_index;
    /* Our rule, as it was read or proposed last. */
    uint64_t revision, whole;
    bool lists;
    Pb__CatalogAt listing;        /* valid with `lists`: the position at which the listing began, */
    char after[KV_STORE_KEY_MAX]; /* and the place that it has reached */
    size_t after_size;
    bool begins; /* the answer is the first page of a listing */
    /* Our rule as it is in this server's store. */
    Pb__CatalogAt at; /* index 0: the copy is nowhere yet */
    bool is_whole;
    uint64_t look_ms; /* time of the next look */
};

static struct keys *keys_of(struct follower *follower) { return CONTAINER_OF(follower, struct keys, base); }
static ProtobufCBinaryData prefix_of(const struct keys *keys) {
    return message_bytes(slice_make(keys->prefix, keys->prefix_size));
}
static const Pb__KeysChangesResult *answer_of(const struct keys *keys) {
    return (const Pb__KeysChangesResult *)keys->base.answer;
}

struct follower *follow_keys(struct slice prefix, uint64_t create_index) {
    struct keys *keys = mem_zalloc(sizeof *keys);
    CHECK(prefix.size <= KEYS_PREFIX_MAX);
    memcpy(keys->prefix, prefix.data, prefix.size);
    keys->prefix_size = prefix.size, keys->create_index = create_index;
    pb__catalog_at__init(&keys->at);
    follower_begin(&keys->base, &follow_kind_keys);
    return &keys->base;
}

/* -- our rule ----------------------------------------------------------------------------------------------------- */

static const ProtobufCMessage *read(struct follower *follower) {
    return &FOLLOW_MESSAGE(&follower->message, Pb__KeysRulesRequest, pb__keys_rules_request__init)->base;
}

static const Pb__KeysRule *rule_of(const struct keys *keys, const Pb__KeysRulesResult *rules) {
    for (size_t i = 0; i < rules->n_rules; i++)
        if (rules->rules[i]->create_index == keys->create_index &&
            slice_equal(message_slice(rules->rules[i]->prefix), message_slice(prefix_of(keys))))
            return rules->rules[i];
    return NULL;
}

static void reach(struct keys *keys, ProtobufCBinaryData after) {
    CHECK(after.len <= sizeof keys->after);
    keys->after_size = after.len;
    if (after.len) memcpy(keys->after, after.data, after.len);
}

static int was_read(struct follower *follower, const ProtobufCMessage *own, enum follow_step *next) {
    struct keys *keys = keys_of(follower);
    const Pb__KeysRule *rule = rule_of(keys, (const Pb__KeysRulesResult *)own);
    if (!rule) return CO_NOTFOUND; /* it was removed */
    if (rule->after.len > sizeof keys->after) return CO_CORRUPT;
    keys->revision = rule->revision, keys->whole = rule->whole;
    follower->has = false, follower->marked_ms = follower->now_ms;
    if (rule->at) follower_moved(follower, rule->at);
    keys->lists = rule->listing;
    if (rule->listing) keys->listing = follow_at(rule->listing);
    reach(keys, rule->after);
    *next = FOLLOW_ASK;
    return CO_OK;
}

/* -- the source --------------------------------------------------------------------------------------------------- */

static void ask(struct follower *follower, struct follower_effect *effect) {
    struct keys *keys = keys_of(follower);
    Pb__KeysChangesRequest *request =
        FOLLOW_MESSAGE(&follower->message, Pb__KeysChangesRequest, pb__keys_changes_request__init);
    request->prefix = prefix_of(keys), request->rows_most = follower->rows_most, request->listing = keys->lists;
    if (follower->has) request->from = &follower->reached;
    if (keys->lists) request->after = message_bytes(slice_make(keys->after, keys->after_size));
    else if (follower->has) effect->index = follower->reached.index, effect->wait_ms = FOLLOW_KEYS_WAIT_MS;
    effect->message = &request->base;
}

static int take(struct follower *follower) {
    struct keys *keys = keys_of(follower);
    const Pb__KeysChangesResult *answer = answer_of(keys);
    if (!answer->to || answer->upto.len > sizeof keys->after) return CO_CORRUPT;
    follower->to = answer->to, follower->more = answer->more;
    return keys->lists && follow_is_behind(answer->to, &keys->listing) ? CO_AGAIN : CO_OK;
}

static int judge(struct follower *follower, uint64_t index, enum follow_step *next) {
    struct keys *keys = keys_of(follower);
    const Pb__KeysChangesResult *answer = answer_of(keys);
    (void)index;
    *next = FOLLOW_PROPOSE;
    if (answer->page) {
        bool other = keys->lists && !copy_same_life(answer->to, &keys->listing);
        keys->begins = !keys->lists;
        if (!other) return CO_OK;
        keys->lists = false, keys->after_size = 0; /* the source has begun another life */
        *next = FOLLOW_ASK;
        return CO_OK;
    }
    if (!follower->has || keys->lists || !copy_same_life(answer->to, &follower->reached))
        return CO_CORRUPT; /* it does not answer the question */
    if (answer->n_entries + answer->n_removed == 0) *next = FOLLOW_SAME;
    return CO_OK;
}

/* At once when the copy becomes whole. */
static uint64_t mark_ms(const struct follower *follower) {
    uint64_t whole = CONTAINER_OF(follower, const struct keys, base)->whole;
    return follower->copied.index < whole && follower->reached.index >= whole ? 0 : FOLLOWER_MARK_MS;
}

/* -- steps -------------------------------------------------------------------------------------------------------- */

static void propose(struct follower *follower, struct follower_effect *effect) {
    struct keys *keys = keys_of(follower);
    const Pb__KeysChangesResult *answer = answer_of(keys);
    Pb__KeysTakeCommand *command = FOLLOW_MESSAGE(&follower->message, Pb__KeysTakeCommand, pb__keys_take_command__init);
    CHECK(answer && answer->to);
    command->prefix = prefix_of(keys), command->revision = keys->revision;
    command->to = answer->to;
    command->entries = answer->entries, command->n_entries = answer->n_entries;
    command->removed = answer->removed, command->n_removed = answer->n_removed;
    command->page = answer->page, command->upto = answer->upto, command->last = answer->last;
    command->begin = keys->begins && answer->page;
    effect->command = KEYS_TAKE, effect->message = &command->base;
}

static enum follow_step page_taken(struct keys *keys, bool yes) {
    const Pb__KeysChangesResult *answer = answer_of(keys);
    if (keys->begins) keys->listing = follow_at(answer->to), keys->lists = true;
    keys->begins = false;
    if (!yes) return FOLLOW_PROPOSE; /* the page has more keys of ours to remove than one entry may */
    reach(keys, answer->last ? (ProtobufCBinaryData){0} : answer->upto);
    if (answer->last) {
        follower_moved(&keys->base, &keys->listing);
        keys->whole = answer->to->index, keys->lists = false;
    }
    return FOLLOW_ASK;
}

static enum follow_step proposed(struct follower *follower, bool yes, uint64_t index) {
    struct keys *keys = keys_of(follower);
    keys->revision = index, follower->taken++;
    if (answer_of(keys)->page) return page_taken(keys, yes);
    CHECK(follower->has && !keys->lists);
    follower_moved(follower, follower->to);
    follower->current = !follower->more;
    if (follower->more) return FOLLOW_ASK;
    follower_confirm(follower, follower->as_of_ms);
    return FOLLOW_ASK_LATER;
}

/* -- looks: where this server does not lead ----------------------------------------------------------------------- */

void follow_keys_know(struct follower *follower, const Pb__KeysRule *rule) {
    struct keys *keys = keys_of(follower);
    CHECK(follower->kind == &follow_kind_keys);
    pb__catalog_at__init(&keys->at);
    if (rule->at) keys->at = follow_at(rule->at);
    keys->is_whole = keys_whole(rule);
}

static bool look(struct follower *follower, struct follower_effect *effect) {
    struct keys *keys = keys_of(follower);
    if (follower->leads || !keys->at.index || follower->now_ms < keys->look_ms) return false;
    Pb__KeysChangesRequest *request =
        FOLLOW_MESSAGE(&follower->look_message, Pb__KeysChangesRequest, pb__keys_changes_request__init);
    request->prefix = prefix_of(keys), request->from = &keys->at, request->look = true;
    keys->look_ms = follower->now_ms + FOLLOW_KEYS_LOOK_MS;
    effect->wish = FOLLOWER_ASKS, effect->query = &query_keys_changes, effect->message = &request->base;
    return true;
}

static void looked(struct follower *follower, const ProtobufCMessage *result, const struct follower_answer *answer) {
    const struct keys *keys = keys_of(follower);
    const Pb__KeysChangesResult *seen = (const Pb__KeysChangesResult *)result;
    if (!seen->to) return;
    follower->newest = seen->to->index;
    bool same = copy_same_life(seen->to, &keys->at) && seen->to->index >= keys->at.index;
    if (same && keys->is_whole && !seen->more) follower_confirm(follower, answer->as_of_ms);
}

const struct follow_kind follow_kind_keys = {.name = "keys",
                                             .taken = &steps_metric,
                                             .background = true,
                                             .own = &query_keys_rules,
                                             .source = &query_keys_changes,
                                             .read = read,
                                             .was_read = was_read,
                                             .ask = ask,
                                             .take = take,
                                             .judge = judge,
                                             .propose = propose,
                                             .proposed = proposed,
                                             .mark_ms = mark_ms,
                                             .look = look,
                                             .looked = looked};
