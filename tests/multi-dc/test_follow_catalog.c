/* The next step of the follower of a region's catalog, in each situation, and what all followers share. */
#include <criterion/criterion.h>

#include "base/message.h"
#include "multi-dc/follower.h"

static struct follower *follower;
static struct follower_effect effect;
static uint64_t now_ms;
static struct arena arena;

static void setup(void) {
    now_ms = 1000;
    follower = follow_catalog("far");
}
static void teardown(void) {
    follower_free(follower);
    arena_free(&arena);
}

static Pb__CatalogAt *at(uint64_t cluster_id, uint64_t restored, uint64_t index) {
    Pb__CatalogAt *moment = arena_alloc(&arena, sizeof *moment);
    pb__catalog_at__init(moment);
    moment->cluster_id = cluster_id, moment->restored = restored, moment->index = index;
    return moment;
}

static void told(uint64_t ticket, int error, const ProtobufCMessage *result, uint64_t index) {
    struct slice records = result ? message_pack(&arena, result) : slice_make("", 0);
    struct follower_answer answer = {.error = error, .records = records, .index = index, .as_of_ms = now_ms};
    follower_answered(follower, ticket, &answer, now_ms);
}

static const Pb__CatalogAt *asked_from(void) {
    cr_assert_eq(effect.query, &query_catalog_changes);
    return ((const Pb__CatalogChangesRequest *)effect.message)->from;
}
static bool reads_keys(void) {
    cr_assert(effect.query == &query_copy && effect.confirmed);
    return ((const Pb__CopyRequest *)effect.message)->keys;
}

static enum follower_wish next(void) {
    follower_next(follower, now_ms, &effect);
    return effect.wish;
}

/* Our copy is at this moment; NULL: there is none. */
static void read_copy(Pb__CatalogAt *moment, Pb__CopyState state) {
    Pb__CopyResult result = PB__COPY_RESULT__INIT;
    Pb__CopyRegion region = PB__COPY_REGION__INIT;
    Pb__CopyCounts counts = PB__COPY_COUNTS__INIT;
    counts.instances = 1;
    region.at = moment, region.counts = region.staged = &counts, region.state = state, region.stage = 77;
    if (moment) result.region = &region;
    cr_assert_eq(next(), FOLLOWER_READS);
    told(effect.ticket, CO_OK, &result.base, 0);
}

static void lead(Pb__CatalogAt *moment) {
    follower_leads(follower, true, now_ms);
    read_copy(moment, PB__COPY_STATE__COPY_SETTLED);
}

/* An answer with so many instances. */
static void answer(Pb__CatalogAt *to, size_t entries, bool complete, uint64_t index) {
    Pb__CatalogChangesResult result = PB__CATALOG_CHANGES_RESULT__INIT;
    result.to = to, result.complete = complete, result.n_entries = entries;
    result.entries = arena_alloc(&arena, (entries + 1) * sizeof *result.entries);
    for (size_t i = 0; i < entries; i++) {
        Pb__ServiceEntry entry = PB__SERVICE_ENTRY__INIT;
        Pb__Node node = PB__NODE__INIT;
        Pb__Service service = PB__SERVICE__INIT;
        service.name = service.id = (char *)(uintptr_t) "web";
        node.name = arena_printf(&arena, "n%zu", i);
        entry.node = &node, entry.service = &service;
        result.entries[i] = message_bytes(message_pack(&arena, &entry.base));
    }
    told(effect.ticket, CO_OK, &result.base, index);
}

static void proposed(void) { follower_proposed(follower, effect.ticket, CO_OK, CO_OK, true, 500, now_ms); }

static struct follower_state state(void) {
    struct follower_state now;
    follower_state(follower, &now);
    return now;
}

/* -- leading ------------------------------------------------------------------------------------------------------ */

Test(follow_catalog, rests_unless_its_server_leads, .init = setup, .fini = teardown) {
    cr_assert(next() == FOLLOWER_RESTS && effect.until_ms == UINT64_MAX);
    lead(at(7, 0, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    follower_leads(follower, false, now_ms);
    cr_assert_eq(next(), FOLLOWER_RESTS);
    answer(at(7, 0, 20), 1, false, 20);
    cr_assert_eq(next(), FOLLOWER_RESTS, "nobody heard that answer");
    follower_leads(follower, true, now_ms);
    cr_assert(next() == FOLLOWER_READS && !reads_keys(), "another may have led in between");
}

Test(follow_catalog, asks_from_where_the_copy_is, .init = setup, .fini = teardown) {
    lead(at(7, 3, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    cr_assert(asked_from()->cluster_id == 7 && asked_from()->restored == 3 && asked_from()->index == 10);
    cr_assert(effect.index == 10 && effect.wait_ms == FOLLOW_CATALOG_WAIT_MS && !effect.large);
    cr_assert_eq(next(), FOLLOWER_RESTS, "one thing at a time");
}

Test(follow_catalog, asks_for_all_where_there_is_no_copy, .init = setup, .fini = teardown) {
    lead(NULL);
    cr_assert_eq(next(), FOLLOWER_ASKS);
    cr_assert(!asked_from() && effect.index == 0 && effect.large);
    answer(at(7, 0, 20), 2, true, 20);
    cr_assert_eq(next(), FOLLOWER_PROPOSES, "there is nothing to compare it with");
    const Pb__CopyUpdateCommand *command = (const Pb__CopyUpdateCommand *)effect.message;
    cr_assert(effect.command == COPY_UPDATE && !command->from && command->to->index == 20 && command->n_entries == 2);
}

Test(follow_catalog, without_a_link_it_waits_for_one, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    follower_linked(follower, false, now_ms);
    cr_assert_eq(next(), FOLLOWER_RESTS);
    follower_linked(follower, true, now_ms);
    cr_assert_eq(next(), FOLLOWER_ASKS);
}

/* -- changes ------------------------------------------------------------------------------------------------------ */

Test(follow_catalog, a_change_is_proposed_at_once_and_the_next_question_comes_later, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(7, 0, 20), 1, false, 20);
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    const Pb__CopyUpdateCommand *command = (const Pb__CopyUpdateCommand *)effect.message;
    cr_assert(command->from->index == 10 && command->to->index == 20);
    proposed();
    cr_assert(next() == FOLLOWER_RESTS && effect.until_ms == now_ms + FOLLOWER_PACE_MS);
    now_ms += FOLLOWER_PACE_MS;
    cr_assert(next() == FOLLOWER_ASKS && effect.index == 20);
    cr_assert(state().taken == 1 && state().current && state().confirmed_ms == 1000);
}

Test(follow_catalog, no_news_moves_what_is_reached_and_not_the_copy, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(7, 0, 20), 0, false, 9);
    now_ms += FOLLOWER_PACE_MS;
    cr_assert(next() == FOLLOWER_ASKS && asked_from()->index == 20);
    answer(at(7, 0, 30), 0, true, 9);
    now_ms += FOLLOWER_PACE_MS;
    cr_assert(next() == FOLLOWER_ASKS && asked_from()->index == 30, "without history it is told what is there");
    answer(at(7, 0, 40), 1, false, 35);
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    cr_assert_eq(((const Pb__CopyUpdateCommand *)effect.message)->from->index, 10, "the copy's own position");
}

Test(follow_catalog, now_and_then_it_is_noted_how_far_the_copy_is, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    now_ms += FOLLOWER_MARK_MS;
    answer(at(7, 0, 10), 0, false, 9);
    now_ms += FOLLOWER_PACE_MS;
    cr_assert_eq(next(), FOLLOWER_ASKS, "it is where it was");
    answer(at(7, 0, 20), 0, false, 9);
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    const Pb__CopyUpdateCommand *command = (const Pb__CopyUpdateCommand *)effect.message;
    cr_assert(command->from->index == 10 && command->to->index == 20 && command->n_entries == 0);
}

Test(follow_catalog, an_answer_of_a_server_that_is_behind_is_ignored, .init = setup, .fini = teardown) {
    lead(at(7, 5, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(7, 0, 4), 3, true, 11);
    cr_assert(next() == FOLLOWER_RESTS && effect.until_ms == now_ms + FOLLOWER_AGAIN_LEAST_MS);
    now_ms = effect.until_ms;
    cr_assert(next() == FOLLOWER_ASKS && asked_from()->index == 10);
}

Test(follow_catalog, a_change_that_copies_do_not_have_is_noted_soon, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    cr_assert(next() == FOLLOWER_ASKS && effect.wait_ms == FOLLOW_CATALOG_WAIT_MS);
    answer(at(7, 0, 20), 0, false, 15);
    now_ms += FOLLOWER_PACE_MS;
    cr_assert(next() == FOLLOWER_ASKS && effect.wait_ms == FOLLOW_CATALOG_MARK_MS);
    now_ms += FOLLOW_CATALOG_MARK_MS;
    answer(at(7, 0, 20), 0, false, 15);
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    cr_assert_eq(((const Pb__CopyUpdateCommand *)effect.message)->to->index, 20);
    proposed();
    now_ms += FOLLOWER_PACE_MS;
    cr_assert(next() == FOLLOWER_ASKS && effect.wait_ms == FOLLOW_CATALOG_WAIT_MS);
    now_ms += FOLLOW_CATALOG_MARK_MS;
    answer(at(7, 0, 30), 0, false, 15);
    now_ms += FOLLOWER_PACE_MS;
    cr_assert(next() == FOLLOWER_ASKS && effect.wait_ms == FOLLOW_CATALOG_WAIT_MS,
              "the log goes on, the catalog does not");
}

/* -- looks -------------------------------------------------------------------------------------------------------- */

/* The region is asked where it is, as soon as that is due. */
static void look(void) {
    struct follower_effect wanted;
    follower_look(follower, now_ms, &wanted);
    while (wanted.wish == FOLLOWER_RESTS) follower_look(follower, ++now_ms, &wanted);
    cr_assert(wanted.wish == FOLLOWER_ASKS && wanted.query == &query_catalog_position);
    effect.ticket = wanted.ticket;
}
static void region_is_at(Pb__CatalogAt *position) {
    look();
    told(effect.ticket, CO_OK, &position->base, 0);
}

/* Then it looks into our own store; 0: it does not. */
static uint64_t look_at_copy(void) {
    struct follower_effect wanted;
    follower_look(follower, now_ms, &wanted);
    cr_assert(wanted.wish != FOLLOWER_ASKS && !wanted.confirmed);
    return wanted.ticket;
}
static void copy_is_at(uint64_t ticket, Pb__CatalogAt *position) {
    Pb__CopyResult result = PB__COPY_RESULT__INIT;
    Pb__CopyRegion region = PB__COPY_REGION__INIT;
    region.at = position;
    if (position) result.region = &region;
    cr_assert(ticket);
    told(ticket, CO_OK, &result.base, 0);
}

Test(follow_catalog, a_copy_that_was_set_back_is_read_again, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    region_is_at(at(7, 0, 9));
    cr_assert_eq(look_at_copy(), 0, "nothing is asked yet");
    cr_assert_eq(next(), FOLLOWER_ASKS);
    uint64_t before = effect.ticket;
    region_is_at(at(7, 0, 9));
    copy_is_at(look_at_copy(), at(7, 0, 10));
    cr_assert(state().set_backs == 0 && follower_awaits(follower, before));
    region_is_at(at(7, 0, 9));
    uint64_t earlier = look_at_copy();
    effect.ticket = before;
    answer(at(7, 0, 20), 1, false, 15);
    copy_is_at(earlier, at(7, 0, 5));
    cr_assert_eq(state().set_backs, 0, "what was seen before the answer says nothing");
    region_is_at(at(7, 0, 9));
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    cr_assert_eq(look_at_copy(), 0, "a proposal finds out by itself");
    proposed();
    now_ms += FOLLOWER_PACE_MS;
    cr_assert_eq(next(), FOLLOWER_ASKS);
    before = effect.ticket;
    region_is_at(at(7, 0, 9));
    copy_is_at(look_at_copy(), at(7, 0, 10));
    cr_assert(state().set_backs == 1 && !follower_awaits(follower, before));
    cr_assert_eq(state().confirmed_ms, 0, "it is not known how old it is");
    told(before, CO_IO, NULL, 0);
    read_copy(at(7, 0, 10), PB__COPY_STATE__COPY_SETTLED);
    cr_assert(next() == FOLLOWER_ASKS && asked_from()->index == 10);
    region_is_at(at(7, 0, 9));
    copy_is_at(look_at_copy(), NULL);
    cr_assert_eq(state().set_backs, 2, "gone");
}

Test(follow_catalog, a_look_says_that_nothing_has_changed, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    region_is_at(at(7, 0, 8));
    uint64_t confirmed_ms = now_ms;
    cr_assert_eq(state().confirmed_ms, confirmed_ms);
    copy_is_at(look_at_copy(), at(7, 0, 10));
    region_is_at(at(7, 0, 11));
    cr_assert(state().confirmed_ms == confirmed_ms && !state().current, "there is a change that we do not have");
    copy_is_at(look_at_copy(), at(7, 0, 10));
    region_is_at(at(8, 0, 8));
    cr_assert_eq(state().confirmed_ms, confirmed_ms, "another cluster");
}

Test(follow_catalog, who_does_not_lead_looks_into_its_own_store, .init = setup, .fini = teardown) {
    region_is_at(at(7, 0, 8));
    uint64_t asked_ms = now_ms;
    copy_is_at(look_at_copy(), at(7, 0, 7));
    cr_assert_eq(state().confirmed_ms, 0, "it is behind");
    region_is_at(at(7, 0, 20));
    copy_is_at(look_at_copy(), at(7, 0, 8));
    cr_assert(state().confirmed_ms == asked_ms && state().position == 8 && state().newest == 20);
    look();
    follower_linked(follower, false, now_ms);
    cr_assert_not(follower_awaits(follower, effect.ticket), "nobody is there to answer");
}

/* -- another life ------------------------------------------------------------------------------------------------- */

static void told_keys(const char *const *nodes, size_t count, Pb__CatalogAt *moment) {
    Pb__CopyResult result = PB__COPY_RESULT__INIT;
    Pb__CopyRegion region = PB__COPY_REGION__INIT;
    Pb__CopyCounts counts = PB__COPY_COUNTS__INIT;
    Pb__CatalogKey keys[4], *list[4];
    region.at = moment, region.counts = region.staged = &counts;
    for (size_t i = 0; i < count; i++) {
        pb__catalog_key__init(&keys[i]);
        keys[i].service = keys[i].id = (char *)(uintptr_t) "web", keys[i].node = (char *)(uintptr_t)nodes[i];
        list[i] = &keys[i];
    }
    result.region = &region, result.keys = list, result.n_keys = count;
    cr_assert(next() == FOLLOWER_READS && reads_keys());
    told(effect.ticket, CO_OK, &result.base, 0);
}

Test(follow_catalog, of_another_life_it_takes_all_and_removes_the_rest, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(8, 0, 4), 2, true, 11);
    told_keys((const char *[]){"N1", "old"}, 2, at(7, 0, 10));
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    const Pb__CopyUpdateCommand *command = (const Pb__CopyUpdateCommand *)effect.message;
    cr_assert(command->to->cluster_id == 8 && command->to->index == 4 && command->n_entries == 2);
    cr_assert_eq(command->n_removed, 1);
    cr_assert_str_eq(command->removed[0]->node, "old");
    proposed();
    now_ms += FOLLOWER_PACE_MS;
    cr_assert(next() == FOLLOWER_ASKS && asked_from()->cluster_id == 8);
}

Test(follow_catalog, a_copy_that_moved_meanwhile_is_read_again, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(8, 0, 4), 2, true, 11);
    told_keys((const char *[]){"old"}, 1, at(7, 0, 11));
    now_ms += FOLLOWER_AGAIN_LEAST_MS;
    cr_assert(next() == FOLLOWER_READS && !reads_keys());
}

/* -- stages ------------------------------------------------------------------------------------------------------- */

Test(follow_catalog, much_goes_in_parts, .init = setup, .fini = teardown) {
    follower_rows_most(follower, 2);
    lead(at(7, 0, 10));
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(7, 0, 20), 5, false, 20);
    for (uint32_t part = 0; part < 3; part++) {
        cr_assert(next() == FOLLOWER_PROPOSES && effect.command == COPY_STAGE);
        const Pb__CopyStageCommand *command = (const Pb__CopyStageCommand *)effect.message;
        cr_assert(command->part == part && command->stage == (part ? 500 : 0));
        cr_assert_eq(command->n_entries, part < 2 ? 2 : 1);
        proposed();
    }
    cr_assert(next() == FOLLOWER_PROPOSES && effect.command == COPY_COMMIT);
    cr_assert_eq(((const Pb__CopyCommitCommand *)effect.message)->parts, 3);
    cr_assert_not(state().current);
    proposed();
    cr_assert(state().current);
    cr_assert(next() == FOLLOWER_PROPOSES && effect.command == COPY_TIDY);
    follower_proposed(follower, effect.ticket, CO_OK, CO_OK, false, 501, now_ms);
    cr_assert(next() == FOLLOWER_PROPOSES && effect.command == COPY_TIDY);
    proposed();
    cr_assert(next() == FOLLOWER_ASKS && asked_from()->index == 20);
}

Test(follow_catalog, a_stage_of_a_former_leader_is_given_up, .init = setup, .fini = teardown) {
    follower_leads(follower, true, now_ms);
    read_copy(at(7, 0, 10), PB__COPY_STATE__COPY_STAGING);
    cr_assert(next() == FOLLOWER_PROPOSES && effect.command == COPY_TIDY);
    cr_assert_eq(((const Pb__CopyTidyCommand *)effect.message)->stage, 77);
    proposed();
    cr_assert_eq(next(), FOLLOWER_ASKS);
}

Test(follow_catalog, a_copy_that_is_being_forgotten_is_waited_for, .init = setup, .fini = teardown) {
    follower_leads(follower, true, now_ms);
    read_copy(at(7, 0, 10), PB__COPY_STATE__COPY_FORGETTING);
    cr_assert(next() == FOLLOWER_RESTS && effect.until_ms < UINT64_MAX);
    now_ms = effect.until_ms;
    read_copy(NULL, 0);
    cr_assert(next() == FOLLOWER_ASKS && !asked_from());
}

/* -- failures ----------------------------------------------------------------------------------------------------- */

Test(follow_catalog, who_does_not_answer_is_asked_less_and_less, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    for (uint64_t again = FOLLOWER_AGAIN_LEAST_MS, i = 0; i < 7; i++) {
        cr_assert_eq(next(), FOLLOWER_ASKS);
        told(effect.ticket, CO_TIMEOUT, NULL, 0);
        cr_assert_eq(next(), FOLLOWER_RESTS);
        cr_assert_eq(effect.until_ms - now_ms, again);
        cr_assert_eq(state().error, CO_TIMEOUT);
        again = 2 * again < FOLLOWER_AGAIN_MOST_MS ? 2 * again : FOLLOWER_AGAIN_MOST_MS;
        now_ms = effect.until_ms;
    }
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(7, 0, 20), 0, false, 9);
    cr_assert_eq(state().error, CO_OK);
}

Test(follow_catalog, junk_is_an_error, .init = setup, .fini = teardown) {
    lead(at(7, 0, 10));
    const char *const junk[] = {"junk", "", "\x12\x03xyz"};
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(next(), FOLLOWER_ASKS);
        follower_answered(follower, effect.ticket,
                          &(struct follower_answer){.records = slice_text(junk[i]), .index = 20}, now_ms);
        cr_assert_eq(state().error, CO_CORRUPT);
        (void)next();
        now_ms = effect.until_ms;
    }
}

Test(follow_catalog, what_came_of_a_proposal_is_read_when_nobody_says, .init = setup, .fini = teardown) {
    const int failures[][2] = {{CO_UNKNOWN_OUTCOME, CO_OK}, {CO_OK, CO_CONFLICT}};
    lead(at(7, 0, 10));
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(next(), FOLLOWER_ASKS);
        answer(at(7, 0, 20), 1, false, 20);
        cr_assert_eq(next(), FOLLOWER_PROPOSES);
        follower_proposed(follower, effect.ticket, failures[i][0], failures[i][1], false, 0, now_ms);
        cr_assert_eq(next(), FOLLOWER_RESTS);
        now_ms = effect.until_ms;
        read_copy(at(7, 0, 10), PB__COPY_STATE__COPY_SETTLED);
    }
}
