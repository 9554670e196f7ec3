#include "multi-dc/keys_follower.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/keys/kv_record.h"
#include "multi-dc/copy.h"

enum phase { PHASE_READ, PHASE_ASK, PHASE_TAKE };

struct keys_follower {
    char prefix[KEYS_PREFIX_MAX];
    size_t prefix_size;
    uint32_t rows_most; /* 0: the most that a step may have */
    bool leads, linked, under_way;
    enum phase phase;
    uint64_t ticket, not_before_ms, again_ms;
    /* Our rule, as it was read or proposed last. */
    uint64_t revision, whole;
    bool has, lists;
    Pb__CatalogAt copied, reached; /* valid with `has`: the rule's position; the position that the copy is known to
                                    * equal, in the same life */
    Pb__CatalogAt listing;         /* valid with `lists`: the position at which the listing began, */
    char after[KV_STORE_KEY_MAX];  /* and the place that it has reached */
    size_t after_size;
    /* The last answer of the source. */
    struct arena arena;
    Pb__KeysChangesResult *answer;
    bool begins; /* the answer is the first page of a listing */
    uint64_t as_of_ms, marked_ms, confirmed_ms, newest, taken;
    int error;
};

static struct slice prefix_of(const struct keys_follower *follower) {
    return slice_make(follower->prefix, follower->prefix_size);
}

static Pb__CatalogAt at_copy(const Pb__CatalogAt *at) {
    Pb__CatalogAt copy = PB__CATALOG_AT__INIT;
    copy.cluster_id = at->cluster_id, copy.restored = at->restored, copy.index = at->index;
    return copy;
}

struct keys_follower *keys_follower_new(struct slice prefix) {
    struct keys_follower *follower = mem_zalloc(sizeof *follower);
    CHECK(prefix.size <= KEYS_PREFIX_MAX);
    memcpy(follower->prefix, prefix.data, prefix.size);
    follower->prefix_size = prefix.size;
    return follower;
}

static void answer_drop(struct keys_follower *follower) {
    arena_free(&follower->arena);
    follower->arena = (struct arena){0}, follower->answer = NULL;
}

void keys_follower_free(struct keys_follower *follower) {
    if (!follower) return;
    answer_drop(follower);
    free(follower);
}

void keys_follower_rows_most(struct keys_follower *follower, uint32_t rows) { follower->rows_most = rows; }

/* -- phases ------------------------------------------------------------------------------------------------------- */
static void enter(struct keys_follower *follower, enum phase phase, uint64_t not_before_ms) {
    if (phase != PHASE_TAKE) answer_drop(follower);
    CHECK(phase != PHASE_TAKE || follower->answer);
    follower->phase = phase, follower->under_way = false;
    follower->not_before_ms = not_before_ms;
}

static void went_well(struct keys_follower *follower) { follower->error = CO_OK, follower->again_ms = 0; }

static void failed(struct keys_follower *follower, enum phase phase, int error, uint64_t now_ms) {
    uint64_t again = 2 * follower->again_ms;
    if (again < KEYS_AGAIN_LEAST_MS) again = KEYS_AGAIN_LEAST_MS;
    follower->again_ms = again < KEYS_AGAIN_MOST_MS ? again : KEYS_AGAIN_MOST_MS;
    CHECK(error && phase != PHASE_TAKE);
    follower->error = error;
    enter(follower, phase, now_ms + follower->again_ms);
}

void keys_follower_leads(struct keys_follower *follower, bool leads, uint64_t now_ms) {
    if (leads == follower->leads) return;
    follower->leads = leads;
    went_well(follower);
    enter(follower, PHASE_READ, now_ms);
}

void keys_follower_linked(struct keys_follower *follower, bool linked, uint64_t now_ms) {
    if (linked == follower->linked) return;
    follower->linked = linked;
    if (!linked && follower->phase == PHASE_ASK) enter(follower, PHASE_ASK, now_ms);
}

/* -- the next step ------------------------------------------------------------------------------------------------ */
static void ask(struct keys_follower *follower, struct keys_effect *effect) {
    effect->wish = KEYS_ASKS;
    pb__keys_changes_request__init(&effect->ask);
    effect->ask.prefix = message_bytes(prefix_of(follower));
    if (follower->has) effect->ask.from = &follower->reached;
    effect->ask.rows_most = follower->rows_most;
    effect->ask.listing = follower->lists;
    if (follower->lists) effect->ask.after = message_bytes(slice_make(follower->after, follower->after_size));
    else if (follower->has) effect->index = follower->reached.index, effect->wait_ms = KEYS_WAIT_MS;
}

static void propose(struct keys_follower *follower, struct keys_effect *effect) {
    Pb__KeysChangesResult *answer = follower->answer;
    CHECK(answer && answer->to);
    effect->wish = KEYS_PROPOSES;
    Pb__KeysTakeCommand *take = &effect->take;
    pb__keys_take_command__init(take);
    take->prefix = message_bytes(prefix_of(follower)), take->revision = follower->revision;
    take->to = answer->to;
    take->entries = answer->entries, take->n_entries = answer->n_entries;
    take->removed = answer->removed, take->n_removed = answer->n_removed;
    take->page = answer->page, take->upto = answer->upto, take->last = answer->last;
    take->begin = follower->begins;
}

void keys_follower_next(struct keys_follower *follower, uint64_t now_ms, struct keys_effect *effect) {
    *effect = (struct keys_effect){.wish = KEYS_RESTS, .until_ms = UINT64_MAX};
    if (!follower->leads || follower->under_way || (follower->phase == PHASE_ASK && !follower->linked)) return;
    if (now_ms < follower->not_before_ms) {
        effect->until_ms = follower->not_before_ms;
        return;
    }
    if (follower->phase == PHASE_READ) effect->wish = KEYS_READS;
    else if (follower->phase == PHASE_ASK) ask(follower, effect);
    else propose(follower, effect);
    effect->ticket = ++follower->ticket;
    follower->under_way = true;
}

static bool is_present(const struct keys_follower *follower, uint64_t ticket) {
    return follower->under_way && follower->ticket == ticket;
}

/* -- our rule ----------------------------------------------------------------------------------------------------- */
void keys_follower_read(struct keys_follower *follower, uint64_t ticket, int error, const Pb__KeysRule *rule,
                        uint64_t now_ms) {
    if (!is_present(follower, ticket)) return;
    if (!error && !rule) error = CO_NOTFOUND;
    if (!error && rule->after.len > sizeof follower->after) error = CO_CORRUPT;
    if (error) {
        failed(follower, PHASE_READ, error, now_ms);
        return;
    }
    follower->revision = rule->revision, follower->whole = rule->whole;
    follower->has = rule->at, follower->lists = rule->listing;
    if (rule->at) follower->copied = follower->reached = at_copy(rule->at);
    if (rule->listing) follower->listing = at_copy(rule->listing);
    follower->after_size = rule->after.len;
    if (rule->after.len) memcpy(follower->after, rule->after.data, rule->after.len);
    follower->marked_ms = now_ms;
    enter(follower, PHASE_ASK, now_ms);
}

/* -- the source --------------------------------------------------------------------------------------------------- */
static void confirm(struct keys_follower *follower) {
    if (follower->as_of_ms > follower->confirmed_ms) follower->confirmed_ms = follower->as_of_ms;
}

/* Is the answer's position older than the known one? */
static bool is_behind(const Pb__CatalogAt *to, const Pb__CatalogAt *known) {
    return to->cluster_id == known->cluster_id && to->index < known->index;
}

static void no_news(struct keys_follower *follower, uint64_t now_ms) {
    CHECK(follower->has && follower->answer->to->index >= follower->reached.index);
    follower->reached.index = follower->answer->to->index;
    if (!follower->answer->more) confirm(follower);
    went_well(follower);
    bool due = now_ms - follower->marked_ms >= KEYS_MARK_MS && follower->reached.index > follower->copied.index;
    bool whole = follower->copied.index < follower->whole && follower->reached.index >= follower->whole;
    if (due || whole) enter(follower, PHASE_TAKE, now_ms);
    else enter(follower, PHASE_ASK, now_ms + KEYS_PACE_MS);
}

static bool answer_take(struct keys_follower *follower, struct slice records) {
    answer_drop(follower);
    Pb__KeysChangesResult *answer = message_unpack(&follower->arena, &pb__keys_changes_result__descriptor, records);
    bool good = answer && answer->to && answer->upto.len <= sizeof follower->after;
    if (good) follower->answer = answer;
    else answer_drop(follower);
    return good;
}

static void page_came(struct keys_follower *follower, uint64_t now_ms) {
    const Pb__CatalogAt *to = follower->answer->to;
    if (follower->lists && !copy_same_life(to, &follower->listing)) { /* the source has begun another life */
        follower->lists = false, follower->after_size = 0;
        enter(follower, PHASE_ASK, now_ms);
        return;
    }
    CHECK(follower->answer->page);
    follower->begins = !follower->lists;
    went_well(follower);
    enter(follower, PHASE_TAKE, now_ms);
}

void keys_follower_answered(struct keys_follower *follower, uint64_t ticket, int error, struct slice records,
                            uint64_t as_of_ms, uint64_t now_ms) {
    if (!is_present(follower, ticket)) return;
    CHECK(follower->phase == PHASE_ASK);
    if (!error && !answer_take(follower, records)) error = CO_CORRUPT;
    if (error) {
        failed(follower, PHASE_ASK, error, now_ms);
        return;
    }
    const Pb__KeysChangesResult *answer = follower->answer;
    bool behind = !answer->to->cluster_id || /* the source's server does not know its cluster yet */
                  (follower->has && is_behind(answer->to, &follower->reached)) ||
                  (follower->lists && is_behind(answer->to, &follower->listing));
    if (behind) {
        enter(follower, PHASE_ASK, now_ms + KEYS_AGAIN_LEAST_MS);
        return;
    }
    follower->as_of_ms = as_of_ms, follower->newest = answer->to->index;
    bool of_copy = follower->has && !follower->lists && copy_same_life(answer->to, &follower->reached);
    if (answer->page) page_came(follower, now_ms);
    else if (!of_copy) failed(follower, PHASE_READ, CO_CORRUPT, now_ms); /* it does not answer the question */
    else if (answer->n_entries + answer->n_removed == 0) no_news(follower, now_ms);
    else enter(follower, PHASE_TAKE, now_ms);
}

/* -- steps -------------------------------------------------------------------------------------------------------- */
static void page_taken(struct keys_follower *follower, bool yes, uint64_t now_ms) {
    const Pb__KeysChangesResult *answer = follower->answer;
    if (follower->begins) follower->listing = at_copy(answer->to), follower->lists = true;
    follower->begins = false;
    if (!yes) { /* the page has more keys of ours to remove than one entry may */
        enter(follower, PHASE_TAKE, now_ms);
        return;
    }
    follower->after_size = answer->last ? 0 : answer->upto.len;
    CHECK(follower->after_size <= sizeof follower->after);
    if (follower->after_size) memcpy(follower->after, answer->upto.data, answer->upto.len);
    if (answer->last) {
        follower->copied = follower->reached = follower->listing;
        follower->whole = answer->to->index;
        follower->has = true, follower->lists = false, follower->marked_ms = now_ms;
    }
    enter(follower, PHASE_ASK, now_ms);
}

static void changes_taken(struct keys_follower *follower, uint64_t now_ms) {
    CHECK(follower->has && !follower->lists);
    bool more = follower->answer->more;
    follower->copied = follower->reached = at_copy(follower->answer->to);
    follower->marked_ms = now_ms;
    if (!more) confirm(follower);
    enter(follower, PHASE_ASK, more ? now_ms : now_ms + KEYS_PACE_MS);
}

void keys_follower_proposed(struct keys_follower *follower, uint64_t ticket, int error, int refused, bool yes,
                            uint64_t index, uint64_t now_ms) {
    if (!is_present(follower, ticket)) return;
    CHECK(follower->phase == PHASE_TAKE);
    if (error || refused) {
        failed(follower, PHASE_READ, error ? error : refused, now_ms);
        return;
    }
    went_well(follower);
    follower->revision = index, follower->taken++;
    if (follower->answer->page) page_taken(follower, yes, now_ms);
    else changes_taken(follower, now_ms);
}

void keys_follower_state(const struct keys_follower *follower, struct keys_follower_state *state) {
    *state =
        (struct keys_follower_state){.follows = follower->leads && follower->linked && follower->phase != PHASE_READ,
                                     .lists = follower->lists,
                                     .confirmed_ms = follower->confirmed_ms,
                                     .newest = follower->newest,
                                     .taken = follower->taken,
                                     .error = follower->error};
}
