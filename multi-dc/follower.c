/* The decisions that all followers share. */
#include "multi-dc/follower.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "multi-dc/follower_kind.h"

void follower_begin(struct follower *follower, const struct follow_kind *kind) {
    follower->kind = kind;
    follower->linked = true, follower->phase = FOLLOWER_READS;
    pb__catalog_at__init(&follower->copied);
    follower->reached = follower->copied;
}

void follower_free(struct follower *follower) {
    if (!follower) return;
    follower_drop_answer(follower);
    arena_free(&follower->message);
    arena_free(&follower->look_message);
    free(follower);
}

void follower_rows_most(struct follower *follower, uint32_t rows) { follower->rows_most = rows; }

/* -- state -------------------------------------------------------------------------------------------------------- */

void follower_drop_answer(struct follower *follower) {
    arena_free(&follower->arena);
    follower->arena = (struct arena){0};
    follower->answer = NULL, follower->to = NULL, follower->more = false;
}

static void enter(struct follower *follower, enum follower_wish phase, uint64_t not_before_ms) {
    follower->phase = phase, follower->awaited = 0;
    follower->not_before_ms = not_before_ms;
}

static void enter_anew(struct follower *follower, enum follower_wish phase, uint64_t not_before_ms) {
    follower_drop_answer(follower);
    enter(follower, phase, not_before_ms);
}

static void went_well(struct follower *follower) { follower->error = CO_OK, follower->again_ms = 0; }

static void failed(struct follower *follower, enum follower_wish phase, int error) {
    uint64_t again_ms = follower->again_ms ? 2 * follower->again_ms : FOLLOWER_AGAIN_LEAST_MS;
    follower->again_ms = again_ms < FOLLOWER_AGAIN_MOST_MS ? again_ms : FOLLOWER_AGAIN_MOST_MS;
    CHECK(error && follower->again_ms >= FOLLOWER_AGAIN_LEAST_MS);
    follower->error = error;
    enter_anew(follower, phase, follower->now_ms + follower->again_ms);
}

void follower_leads(struct follower *follower, bool leads, uint64_t now_ms) {
    if (follower->leads == leads) return;
    follower->leads = leads, follower->current = false, follower->looking = 0;
    went_well(follower);
    enter_anew(follower, FOLLOWER_READS, now_ms);
}

void follower_linked(struct follower *follower, bool linked, uint64_t now_ms) {
    if (follower->linked == linked) return;
    follower->linked = linked;
    if (!linked) follower->looking = 0;
    if (follower->phase != FOLLOWER_ASKS) return; /* the other phases only need our own region */
    follower->again_ms = 0;
    enter(follower, FOLLOWER_ASKS, now_ms);
}

void follower_set_back(struct follower *follower, uint64_t now_ms) {
    follower->confirmed_ms = 0, follower->current = false, follower->looking = 0;
    follower->set_backs++;
    enter_anew(follower, FOLLOWER_READS, now_ms);
}

void follower_confirm(struct follower *follower, uint64_t as_of_ms) {
    if (as_of_ms > follower->confirmed_ms) follower->confirmed_ms = as_of_ms;
}

void follower_moved(struct follower *follower, const Pb__CatalogAt *at) {
    follower->has = true;
    follower->copied = follower->reached = follow_at(at);
    follower->marked_ms = follower->now_ms;
}

bool follower_awaits(const struct follower *follower, uint64_t ticket) {
    return ticket && (ticket == follower->awaited || ticket == follower->looking);
}

/* -- the next step ------------------------------------------------------------------------------------------------ */

static void begin(struct follower *follower, struct follower_effect *effect) {
    arena_reset(&follower->message);
    effect->wish = follower->phase;
    switch (follower->phase) {
        case FOLLOWER_READS:
            effect->query = follower->kind->own, effect->confirmed = true;
            effect->message = follower->kind->read(follower);
            break;
        case FOLLOWER_ASKS:
            effect->query = follower->kind->source;
            follower->kind->ask(follower, effect);
            break;
        case FOLLOWER_PROPOSES: follower->kind->propose(follower, effect); break;
        case FOLLOWER_RESTS: CHECK(!"a phase"); break;
    }
    CHECK(effect->message);
    effect->ticket = follower->awaited = ++follower->ticket;
}

void follower_next(struct follower *follower, uint64_t now_ms, struct follower_effect *effect) {
    *effect = (struct follower_effect){.wish = FOLLOWER_RESTS, .until_ms = UINT64_MAX};
    follower->now_ms = now_ms;
    bool unlinked = follower->phase == FOLLOWER_ASKS && !follower->linked;
    if (!follower->leads || follower->awaited || unlinked) return;
    if (now_ms < follower->not_before_ms) effect->until_ms = follower->not_before_ms;
    else begin(follower, effect);
}

static void no_news(struct follower *follower) {
    CHECK(follower->has && follower->to->index >= follower->reached.index); /* is_behind() was asked before */
    follower->reached.index = follower->to->index;
    if (!follower->more) follower_confirm(follower, follower->as_of_ms);
    follower->current = !follower->more;
    went_well(follower);
    bool ahead = follower->reached.index > follower->copied.index;
    bool mark = ahead && follower->now_ms - follower->marked_ms >= follower->kind->mark_ms(follower);
    if (mark) enter(follower, FOLLOWER_PROPOSES, follower->now_ms);
    else enter_anew(follower, FOLLOWER_ASKS, follower->now_ms + FOLLOWER_PACE_MS);
}

static void go_on(struct follower *follower, enum follow_step step) {
    uint64_t now_ms = follower->now_ms;
    switch (step) {
        case FOLLOW_ASK: enter_anew(follower, FOLLOWER_ASKS, now_ms); break;
        case FOLLOW_ASK_LATER: enter_anew(follower, FOLLOWER_ASKS, now_ms + FOLLOWER_PACE_MS); break;
        case FOLLOW_COMPARE: enter(follower, FOLLOWER_READS, now_ms); break;
        case FOLLOW_PROPOSE: enter(follower, FOLLOWER_PROPOSES, now_ms); break;
        case FOLLOW_SAME: no_news(follower); break;
    }
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

static void was_read(struct follower *follower, const struct follower_answer *answer) {
    struct arena arena = {0};
    int error = answer->error;
    enum follow_step next = FOLLOW_ASK;
    const ProtobufCMessage *own = error ? NULL : message_unpack(&arena, follower->kind->own->result, answer->records);
    if (!error && !own) error = CO_CORRUPT;
    if (!error) error = follower->kind->was_read(follower, own, &next);
    if (error) failed(follower, FOLLOWER_READS, error);
    else go_on(follower, next);
    arena_free(&arena);
}

static bool is_behind(const struct follower *follower) {
    return !follower->to->cluster_id || /* the source's server does not know its cluster yet */
           (follower->has && follow_is_behind(follower->to, &follower->reached));
}

static void was_asked(struct follower *follower, const struct follower_answer *answer) {
    const struct follow_kind *kind = follower->kind;
    enum follow_step next = FOLLOW_PROPOSE;
    int error = answer->error;
    bool behind = false;
    follower_drop_answer(follower);
    if (!error) {
        follower->answer = message_unpack(&follower->arena, kind->source->result, answer->records);
        error = follower->answer ? kind->take(follower) : CO_CORRUPT;
        CHECK(error || follower->to);
        behind = error == CO_AGAIN || (!error && is_behind(follower));
    }
    if (behind) {
        enter_anew(follower, FOLLOWER_ASKS, follower->now_ms + FOLLOWER_AGAIN_LEAST_MS);
        return;
    }
    if (error) {
        failed(follower, FOLLOWER_ASKS, error);
        return;
    }
    follower->as_of_ms = answer->as_of_ms, follower->newest = follower->to->index;
    error = kind->judge(follower, answer->index, &next);
    if (next != FOLLOW_SAME) follower->current = false;
    if (error) failed(follower, FOLLOWER_READS, error);
    else go_on(follower, next);
}

static void looked(struct follower *follower, const struct follower_answer *answer) {
    struct arena arena = {0};
    const ProtobufCMessage *result =
        answer->error ? NULL : message_unpack(&arena, follower->looked_by->result, answer->records);
    follower->looking = 0;
    if (result) follower->kind->looked(follower, result, answer);
    arena_free(&arena);
}

void follower_answered(struct follower *follower, uint64_t ticket, const struct follower_answer *answer,
                       uint64_t now_ms) {
    if (!follower_awaits(follower, ticket)) return;
    follower->now_ms = now_ms;
    if (ticket == follower->looking) {
        looked(follower, answer);
        return;
    }
    CHECK(follower->phase == FOLLOWER_READS || follower->phase == FOLLOWER_ASKS);
    if (follower->phase == FOLLOWER_READS) was_read(follower, answer);
    else was_asked(follower, answer);
}

void follower_proposed(struct follower *follower, uint64_t ticket, int error, int refused, bool yes, uint64_t index,
                       uint64_t now_ms) {
    if (!follower_awaits(follower, ticket)) return;
    CHECK(follower->phase == FOLLOWER_PROPOSES);
    follower->now_ms = now_ms;
    if (error || refused) {
        failed(follower, FOLLOWER_READS, error ? error : refused);
        return;
    }
    went_well(follower);
    go_on(follower, follower->kind->proposed(follower, yes, index));
}

/* -- looks -------------------------------------------------------------------------------------------------------- */

void follower_look(struct follower *follower, uint64_t now_ms, struct follower_effect *effect) {
    *effect = (struct follower_effect){.wish = FOLLOWER_RESTS, .until_ms = UINT64_MAX};
    follower->now_ms = now_ms;
    if (follower->looking || !follower->linked) return;
    arena_reset(&follower->look_message);
    if (!follower->kind->look(follower, effect)) return;
    CHECK(effect->message && (effect->wish == FOLLOWER_READS || effect->wish == FOLLOWER_ASKS));
    follower->looked_by = effect->query;
    effect->ticket = follower->looking = ++follower->ticket;
}

/* -- for people --------------------------------------------------------------------------------------------------- */

static const char *doing(const struct follower *follower) {
    if (!follower->leads) return "resting";
    if (follower->phase == FOLLOWER_ASKS) return "asking";
    if (follower->phase == FOLLOWER_READS) return follower->to ? "comparing" : "reading";
    return follower->to ? "taking" : "tidying";
}

void follower_state(const struct follower *follower, struct follower_state *state) {
    *state = (struct follower_state){.leads = follower->leads,
                                     .current = follower->current,
                                     .reached = follower->reached,
                                     .confirmed_ms = follower->confirmed_ms,
                                     .newest = follower->newest,
                                     .taken = follower->taken,
                                     .set_backs = follower->set_backs,
                                     .error = follower->error,
                                     .doing = doing(follower)};
    if (follower->kind->state) follower->kind->state(follower, state);
}
