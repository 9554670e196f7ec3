/* One agent of a budget in owner mode, driven by hand: buckets, takes, what others send. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "base/random.h"
#include "kv/quota_owner/owner.h"

#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

static char *text(const char *constant) { return (char *)(uintptr_t)constant; }

/* The agent "me", its clock, and what the servers would say. */
static struct owner *me;
static struct owner_now now;
static Pb__QuotaDefinition definition;
static Pb__QuotaNotice notice;
static char *members[2], *active_members[2];
static uint64_t leases[2], active_leases[2], following;
static struct owner_answer answer;

static void follow(void) {
    const char *name;
    uint64_t index;
    if (owner_follow(me, &name, &index)) following++;
}

/* It hears what the notice says now. */
static void tell(void) {
    owner_tick(me, now), follow();
    cr_assert(following, "it does not follow");
    following--;
    notice.modify_index++;
    owner_followed(me, "b", CO_OK, &notice, notice.modify_index, now);
    owner_tick(me, now), follow();
}

static Pb__QuotaAsk last;
/* Its ask is answered: with this lease. NULL: it asks for nothing. */
static const Pb__QuotaAsk *granted(uint64_t lease, bool split) {
    const Pb__QuotaAskCommand *command;
    if (!owner_ask(me, now, &command)) return NULL;
    cr_assert_eq(command->n_asks, 1);
    Pb__QuotaGrants grants = PB__QUOTA_GRANTS__INIT;
    Pb__QuotaGrant grant = PB__QUOTA_GRANT__INIT, *list[] = {&grant};
    last = *command->asks[0];
    grants.session = command->session->create ? command->session->create->id : command->session->id;
    grants.grants = list, grants.n_grants = 1, grants.index = notice.modify_index + 1;
    grant.name = text("b"), grant.lease = lease, grant.ttl_ms = 10000, grant.split = split;
    owner_asked(me, CO_OK, &grants, now);
    owner_tick(me, now);
    return &last;
}

static void member_of(unsigned count) {
    notice.definition = &definition;
    notice.members = members, notice.n_members = notice.n_member_leases = count;
    notice.member_leases = leases;
    notice.active_members = active_members, notice.n_active_members = notice.n_active_leases = count;
    notice.active_leases = active_leases;
}

static void setup(void) {
    pb__quota_definition__init(&definition);
    pb__quota_notice__init(&notice);
    definition.name = text("b"), definition.service = text("api"), definition.mode = PB__QUOTA_MODE__QUOTA_OWNER;
    definition.budget = 10, definition.tokens = 3, definition.every_ms = 1000, definition.lease_ttl_ms = 10000;
    cr_assert_eq(quota_definition_check(&definition, NULL), CO_OK);
    now = (struct owner_now){.ns = 1000 * S, .unix_s = 1700000000};
    members[0] = active_members[0] = text("me"), leases[0] = active_leases[0] = 7;
    members[1] = active_members[1] = text("you"), leases[1] = active_leases[1] = 9;
    notice.epoch = notice.active = 7, notice.defined_index = 5, notice.modify_index = 7;
    following = 0;
    me = owner_new(&(struct owner_config){.node = "me", .seed = 1, .keys_most = 50});
    owner_serves(me, "b", true, now);
    cr_assert(granted(7, false));
    member_of(1);
    tell();
}
static void teardown(void) { owner_free(me); }
TestSuite(owner, .init = setup, .fini = teardown);

static struct owner_take take;
static int takes(const char *key, uint64_t n) {
    take = (struct owner_take){.name = slice_text("b"), .key = slice_text(key), .n = n, .since_ns = now.ns};
    return owner_take(me, &take, now, &answer);
}

/* -- counting ------------------------------------------------------------------------------------------------------ */

Test(owner, a_key_refills_exactly_by_a_clock_that_is_slowed) {
    cr_expect(takes("k", 10) == CO_OK && answer.remaining == 0 && answer.source == SPENDER_LOCAL);
    cr_expect(takes("k", 1) == CO_BUSY && answer.retry_ms == 337, "%lu", answer.retry_ms);
    now.ns += 336 * MS; /* 1000 / 3 * 1.01 = 336.67 */
    cr_expect_eq(takes("k", 1), CO_BUSY);
    now.ns += 1 * MS;
    cr_expect_eq(takes("k", 1), CO_OK);
    for (unsigned i = 0; i < 1000; i++) { /* what is looked at often is not rounded away */
        now.ns += 1010 * MS / 1000;
        (void)takes("k", 0);
    }
    cr_expect_eq(answer.remaining, 3);
    cr_expect(takes("other", 0) == CO_OK && answer.remaining == 10);
    now.ns += 100 * S;
    cr_assert(granted(7, false));
    cr_expect(!takes("k", 0) && answer.remaining == 10 && takes("k", 11) == CO_TOOLARGE);
    cr_expect_eq(takes("", 10), CO_OK, "takes without a key share one");
    cr_expect_eq(takes("", 1), CO_BUSY);
    struct spender_rate rate;
    cr_expect(owner_rate(me, slice_text("b"), 4, now.unix_s, &rate) && rate.quota == 3 && rate.window_s == 1 &&
              rate.remaining == 4);
}

Test(owner, takes_that_cannot_be_are_refused_with_one_line) {
    static char large[QUOTA_KEY_MOST + 2];
    memset(large, 'k', sizeof large - 1);
    cr_expect(takes(large, 1) == CO_INVALID && strstr(answer.text, "8192"));
    large[QUOTA_KEY_MOST] = '\0';
    cr_expect_eq(takes(large, 1), CO_OK);
    cr_expect_eq(takes("k", UINT64_MAX), CO_TOOLARGE);
    take = (struct owner_take){.name = slice_text("\"b\""), .since_ns = now.ns};
    cr_expect_eq(owner_take(me, &take, now, &answer), CO_INVALID);
    take = (struct owner_take){.name = slice_text("c"), .n = 1, .since_ns = now.ns};
    cr_expect(owner_take(me, &take, now, &answer) == CO_AGAIN && !answer.node);
    follow();
    owner_followed(me, "c", CO_OK, NULL, 1, now);
    cr_expect_eq(owner_take(me, &take, now, &answer), CO_NOTFOUND);
    definition.mode = PB__QUOTA_MODE__QUOTA_LEASE, definition.service = text("");
    tell();
    cr_expect_eq(takes("k", 1), CO_NOTFOUND, "it is in another mode");
}

Test(owner, windows_begin_by_the_wall_clock_and_never_go_back) {
    definition.tokens = definition.every_ms = definition.burst = 0, definition.window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    notice.defined_index++;
    tell();
    now.unix_s = 1700000040;
    cr_expect(takes("k", 8) == CO_OK && takes("k", 3) == CO_BUSY);
    cr_expect_eq(answer.retry_ms, 60000);
    now.unix_s = 1700000100;
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 10 && takes("k", 4) == CO_OK);
    now.unix_s = 1700000099;
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 6);
}

Test(owner, defined_anew_what_is_spent_stays_spent) {
    cr_expect_eq(takes("k", 4), CO_OK);
    definition.budget = definition.burst = 20, notice.defined_index++;
    tell();
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 16);
    definition.budget = definition.burst = 5, notice.defined_index++;
    tell();
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 1);
}

Test(owner, what_is_given_back_comes_back_once_at_most) {
    cr_expect_eq(takes("k", 6), CO_OK);
    cr_expect(!owner_back(me, &take, now, &answer));
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 10);
    cr_expect_eq(takes("k", 6), CO_OK);
    struct owner_take former = take;
    now.ns += 8 * S;
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 10);
    cr_expect_eq(takes("k", 7), CO_OK);
    (void)owner_back(me, &former, now, &answer);
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 3, "it was full since");
}

Test(owner, it_counts_until_its_lease_ends_by_its_own_clock) {
    now.ns += 9849 * MS; /* 10 s less 1 % and a margin of 50 ms */
    cr_expect_eq(takes("k", 1), CO_OK);
    now.ns += 2 * MS;
    cr_expect(takes("k", 1) == CO_AGAIN && !answer.node);
    now.ns += 1000 * MS;
    cr_expect_eq(owner_take(me, &take, now, &answer), CO_NOLEADER);
    cr_assert(granted(7, false), "it asks on");
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 10);
}

Test(owner, only_so_many_keys_are_counted_and_full_ones_are_forgotten) {
    char key[16];
    for (unsigned i = 0; i < 50; i++) {
        snprintf(key, sizeof key, "%u", i);
        cr_expect_eq(takes(key, 1), CO_OK);
    }
    cr_expect(takes("one more", 1) == CO_BUSY && answer.retry_ms == 1000);
    now.ns += 2 * S;
    cr_expect_eq(takes("one more", 1), CO_OK);
}

/* -- others --------------------------------------------------------------------------------------------------------- */

static struct buffer reply;
static Pb__QuotaPeerAnswer said;
static Pb__QuotaVerdict serve(const Pb__QuotaPeer *peer) {
    struct arena arena = {0};
    buffer_reset(&reply);
    cr_assert_eq(owner_serve(me, message_pack(&arena, &peer->base), now, &reply), CO_OK);
    const Pb__QuotaPeerAnswer *at = message_unpack(&arena, &pb__quota_peer_answer__descriptor, buffer_slice(&reply));
    cr_assert(at);
    said = *at;
    arena_free(&arena);
    return said.verdict;
}

#define VERDICT(expected, peer) cr_expect_eq(serve(peer), PB__QUOTA_VERDICT__QUOTA_##expected)

Test(owner, a_take_of_another_epoch_or_for_another_member_is_refused) {
    Pb__QuotaPeer peer = PB__QUOTA_PEER__INIT;
    Pb__QuotaRouted routed = PB__QUOTA_ROUTED__INIT;
    peer.name = text("b"), peer.epoch = 7, peer.to_lease = 7, peer.take = &routed;
    routed.key = message_bytes(slice_text("k")), routed.n = 4;
    VERDICT(DONE, &peer);
    cr_expect(said.remaining == 6 && said.epoch == 7);
    peer.epoch = 6;
    VERDICT(STALE, &peer);
    peer.epoch = 8;
    VERDICT(LATER, &peer);
    peer.epoch = 7, peer.to_lease = 6;
    VERDICT(LATER, &peer);
    peer.to_lease = 7, routed.split = 5;
    VERDICT(LATER, &peer);
    routed.split = 0, peer.name = text("x");
    VERDICT(LATER, &peer);
    peer.name = text("b"), routed.part = 99;
    VERDICT(REFUSED, &peer);
    routed.part = 0, routed.n = 7;
    VERDICT(SPENT, &peer);
    cr_expect(said.remaining == 6 && said.retry_ms > 0);
    routed.n = 4, routed.back = true, routed.round = said.round;
    VERDICT(DONE, &peer);
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 10);
}

/* A key that the other one owns. */
static const char *of_other(void) {
    static char key[16];
    struct owner_view view;
    for (unsigned i = 0;; i++) {
        snprintf(key, sizeof key, "%u", i);
        cr_assert(owner_look(me, slice_text("b"), slice_text(key), 0, now, &view) && view.owner);
        if (strcmp(view.owner, "you") == 0) return key;
    }
}

static int served(enum owner_reach reach, Pb__QuotaVerdict verdict) {
    struct arena arena = {0};
    Pb__QuotaPeerAnswer of = PB__QUOTA_PEER_ANSWER__INIT;
    of.verdict = verdict, of.remaining = 5, of.retry_ms = 77;
    int rv = owner_served(me, &take, reach, message_pack(&arena, &of.base), now, &answer);
    arena_free(&arena);
    return rv;
}

Test(owner, a_key_of_another_is_asked_of_it_and_what_is_unknown_is_not_admitted) {
    notice.epoch = notice.active = 9, member_of(2);
    tell();
    const char *key = of_other();
    cr_assert(takes(key, 2) == CO_AGAIN && strcmp(answer.node, "you") == 0);
    cr_expect(served(OWNER_ANSWERED, PB__QUOTA_VERDICT__QUOTA_DONE) == CO_OK && answer.remaining == 5 &&
              answer.source == SPENDER_OWNER);
    cr_expect(takes(key, 2) == CO_AGAIN && served(OWNER_ANSWERED, PB__QUOTA_VERDICT__QUOTA_SPENT) == CO_BUSY &&
              answer.retry_ms == 77);
    cr_expect(takes(key, 2) == CO_AGAIN && served(OWNER_ANSWERED, PB__QUOTA_VERDICT__QUOTA_STALE) == CO_AGAIN &&
              !answer.node);
    cr_expect_eq(served(OWNER_MAYBE_DELIVERED, 0), CO_NOLEADER);
    cr_expect(takes(key, 2) == CO_AGAIN && served(OWNER_NOT_DELIVERED, 0) == CO_AGAIN);
    cr_expect(owner_deadline_ns(me) <= now.ns + OWNER_AGAIN_MS * MS);
    now.ns += 1000 * MS;
    owner_tick(me, now);
    cr_expect(owner_woken(me) && served(OWNER_NOT_DELIVERED, 0) == CO_NOLEADER);
    cr_expect_eq(owner_served(me, &take, OWNER_ANSWERED, slice_text("\xff\xff"), now, &answer), CO_NOLEADER);
    cr_expect(takes(key, 2) == CO_AGAIN && served(OWNER_NOT_DELIVERED, 0) == CO_AGAIN);
    now.ns += OWNER_LOST_MS * MS;
    cr_expect_eq(served(OWNER_NOT_DELIVERED, 0), CO_NOLEADER, "the next one does not wait for so long");
    cr_expect(takes(key, 2) == CO_AGAIN && served(OWNER_ANSWERED, PB__QUOTA_VERDICT__QUOTA_DONE) == CO_OK);
    cr_expect(takes(key, 2) == CO_AGAIN && served(OWNER_NOT_DELIVERED, 0) == CO_AGAIN);
    now.ns += OWNER_LOST_MS * MS;
    cr_expect(served(OWNER_NOT_DELIVERED, 0) == CO_AGAIN && !answer.node, "it was there meanwhile");
    definition.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN, definition.local_cap = 3, notice.defined_index++;
    now.ns += 100 * MS; /* it began a refill period ago */
    tell();
    cr_expect(takes(key, 2) == CO_AGAIN && served(OWNER_MAYBE_DELIVERED, 0) == CO_OK &&
              answer.source == SPENDER_FALLBACK);
    cr_expect(takes(key, 2) == CO_AGAIN && served(OWNER_MAYBE_DELIVERED, 0) == CO_BUSY && answer.retry_ms > 0);
}

Test(owner, on_loss_last_admits_what_a_lease_would_hold_for_a_while) {
    definition.on_loss = PB__QUOTA_LOSS__QUOTA_LAST, definition.max_lease = 300000, definition.last_for_ms = 25000;
    definition.every_ms = 60000; /* of 25 s one refill period */
    notice.epoch = notice.active = 9, notice.defined_index++, member_of(2);
    tell();
    const char *key = of_other();
    cr_assert(takes(key, 1) == CO_AGAIN && served(OWNER_MAYBE_DELIVERED, 0) == CO_NOLEADER, "no owner ever decided");
    cr_assert(takes(key, 1) == CO_AGAIN && served(OWNER_ANSWERED, PB__QUOTA_VERDICT__QUOTA_DONE) == CO_OK);
    cr_expect(takes(key, 1) == CO_AGAIN && served(OWNER_MAYBE_DELIVERED, 0) == CO_BUSY, "its first refill period");
    now.ns += 61 * S;
    cr_assert(takes(key, 1) == CO_AGAIN && served(OWNER_ANSWERED, PB__QUOTA_VERDICT__QUOTA_DONE) == CO_OK);
    unsigned admitted = 0;
    for (unsigned s = 0; s < 60; s++, now.ns += S) {
        int rv = takes(key, 1);
        cr_assert_eq(rv, CO_AGAIN);
        rv = served(OWNER_MAYBE_DELIVERED, 0);
        cr_expect(rv == (s >= 25 ? CO_NOLEADER : s % 11 < 3 ? CO_OK : CO_BUSY), "at %u: %d", s, rv);
        if (rv == CO_OK) admitted++;
    }
    cr_expect_eq(admitted, 3 * 3);
    cr_assert(takes(key, 1) == CO_AGAIN && served(OWNER_ANSWERED, PB__QUOTA_VERDICT__QUOTA_SPENT) == CO_BUSY);
    cr_expect(takes(key, 1) == CO_AGAIN && served(OWNER_MAYBE_DELIVERED, 0) == CO_BUSY, "within the same period");
    now.ns += 70 * S;
    cr_expect(takes(key, 3) == CO_NOLEADER || served(OWNER_MAYBE_DELIVERED, 0) == CO_NOLEADER, "its time is over");
    cr_assert(takes(key, 1) == CO_AGAIN && served(OWNER_ANSWERED, PB__QUOTA_VERDICT__QUOTA_DONE) == CO_OK);
    cr_expect(takes(key, 3) == CO_AGAIN && served(OWNER_MAYBE_DELIVERED, 0) == CO_OK, "another loss");
    cr_expect(takes(key, 1) == CO_AGAIN && served(OWNER_MAYBE_DELIVERED, 0) == CO_BUSY, "once a TTL");
}

/* -- losses --------------------------------------------------------------------------------------------------------- */

static void lose(unsigned count) {
    static Pb__QuotaLostOwner losses[2], *list[2];
    for (unsigned i = 0; i < count; i++) {
        pb__quota_lost_owner__init(list[i] = &losses[i]);
        losses[i].node = text(i ? "third" : "you"), losses[i].index = 12 + i, losses[i].active = 9;
    }
    notice.losses = list, notice.n_losses = count;
    notice.epoch = notice.active = 11 + count;
    member_of(1);
    tell();
}

Test(owner, keys_of_an_owner_that_is_lost_begin_empty) {
    notice.epoch = notice.active = 9, member_of(2);
    tell();
    char key[16];
    snprintf(key, sizeof key, "%s", of_other());
    lose(1);
    cr_expect(takes(key, 0) == CO_OK && answer.remaining == 0);
    now.ns += 1010 * MS;
    cr_expect(takes(key, 0) == CO_OK && answer.remaining == 3);
    /* Those of this agent are not touched by it: it was there then. */
    struct owner_view view;
    for (unsigned i = 0, whole = 0, part = 0; i < 40; i++) {
        snprintf(key, sizeof key, "k%u", i);
        cr_assert(owner_look(me, slice_text("b"), slice_text(key), 0, now, &view));
        if (view.left == 10) whole++;
        else part++;
        cr_assert(i < 39 || (whole > 5 && part > 5));
    }
    /* When all would be full nobody needs to know of it. */
    now.ns += 60 * S;
    const Pb__QuotaAsk *ask = granted(7, false);
    cr_assert(ask && ask->losses_over == 12);
}

Test(owner, windows_begin_whole_after_one_loss_and_empty_after_two) {
    definition.tokens = definition.every_ms = definition.burst = 0, definition.window = PB__QUOTA_WINDOW__QUOTA_HOUR;
    notice.defined_index++;
    notice.epoch = notice.active = 9, member_of(2);
    tell();
    char key[16];
    snprintf(key, sizeof key, "%s", of_other());
    lose(1);
    cr_expect(takes(key, 10) == CO_OK && takes(key, 1) == CO_BUSY);
    lose(2);
    struct owner_view view;
    unsigned empty = 0, full = 0;
    for (unsigned i = 0; i < 60; i++) {
        snprintf(key, sizeof key, "w%u", i);
        cr_assert(owner_look(me, slice_text("b"), slice_text(key), 0, now, &view));
        empty += view.left == 0, full += view.left == 10;
    }
    cr_expect(empty + full == 60 && empty > 3 && full > 20, "%u empty, %u full", empty, full);
    now.unix_s += 3600;
    cr_expect(takes("w1", 0) == CO_OK && answer.remaining == 10);
}

/* -- what is handed over -------------------------------------------------------------------------------------------- */

/* One bucket of the key "k", from the other member. */
static Pb__QuotaVerdict hand_over(uint64_t attempt, bool leaving, uint64_t tokens) {
    Pb__QuotaPeer peer = PB__QUOTA_PEER__INIT;
    Pb__QuotaHandOver hand = PB__QUOTA_HAND_OVER__INIT;
    Pb__QuotaBucket bucket = PB__QUOTA_BUCKET__INIT, *buckets[] = {&bucket};
    peer.name = text("b"), peer.epoch = notice.epoch, peer.from_lease = 9, peer.to_lease = 20;
    peer.hand_over = &hand;
    hand.attempt = attempt, hand.leaving = leaving, hand.defined_index = notice.defined_index;
    bucket.key = message_bytes(slice_text("k")), bucket.tokens = tokens;
    hand.buckets = buckets, hand.n_buckets = tokens < 10;
    return serve(&peer);
}

/* This agent comes with lease 20, while the other one counts. */
static void come(void) {
    owner_free(me);
    following = 0;
    me = owner_new(&(struct owner_config){.node = "me", .seed = 1});
    owner_serves(me, "b", true, now);
    cr_assert(granted(20, false));
    notice.epoch = 20, notice.active = 9, member_of(2);
    leases[0] = 20;
    active_members[0] = text("you"), active_leases[0] = 9;
    notice.n_active_members = notice.n_active_leases = 1;
    tell();
}

static void other_goes(void) {
    notice.epoch = notice.active = 21;
    notice.members[0] = text("me"), notice.n_members = notice.n_member_leases = 1;
    active_members[0] = text("me"), active_leases[0] = 20;
    tell();
}

Test(owner, what_a_newcomer_was_given_counts_when_its_epoch_is_active) {
    come();
    cr_expect_eq(hand_over(1, false, 2), PB__QUOTA_VERDICT__QUOTA_DONE);
    cr_expect_eq(hand_over(3, false, 4), PB__QUOTA_VERDICT__QUOTA_DONE, "a newer attempt makes the former void");
    cr_expect_eq(hand_over(2, false, 1), PB__QUOTA_VERDICT__QUOTA_STALE);
    cr_expect_eq(takes("k", 0), CO_AGAIN);
    other_goes();
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 4);
    cr_expect_eq(hand_over(4, false, 0), PB__QUOTA_VERDICT__QUOTA_LATER, "it is a newcomer no more");
    buffer_free(&reply);
}

/* An agent that gave counts to a newcomer goes before the newcomer hears that it is none any more. The newcomer keeps
 * what both hand-overs gave it. */
Test(owner, what_a_newcomer_was_given_stays_when_the_giver_goes) {
    come();
    cr_expect_eq(hand_over(1, false, 4), PB__QUOTA_VERDICT__QUOTA_DONE);
    cr_expect_eq(hand_over(2, true, 10), PB__QUOTA_VERDICT__QUOTA_DONE);
    other_goes();
    cr_expect(takes("k", 0) == CO_OK && answer.remaining == 4);
    buffer_free(&reply);
}

/* -- nonsense ------------------------------------------------------------------------------------------------------- */

Test(owner, whatever_others_send_does_no_harm) {
    struct rng rng;
    rng_seed(&rng, 4711);
    notice.epoch = notice.active = 9, member_of(2);
    tell();
    char bytes[300];
    for (unsigned i = 0; i < 20000; i++) {
        size_t size = rng_below(&rng, sizeof bytes);
        for (size_t j = 0; j < size; j++) bytes[j] = (char)rng_next(&rng);
        buffer_reset(&reply);
        int rv = owner_serve(me, slice_make(bytes, size), now, &reply);
        cr_assert(rv == CO_OK || (rv == CO_INVALID && reply.size == 0));
    }
    /* Messages that are well-formed, with whatever in them. */
    for (unsigned i = 0; i < 20000; i++) {
        Pb__QuotaPeer peer = PB__QUOTA_PEER__INIT;
        Pb__QuotaHandOver hand = PB__QUOTA_HAND_OVER__INIT;
        Pb__QuotaShare share = PB__QUOTA_SHARE__INIT;
        Pb__QuotaRouted routed = PB__QUOTA_ROUTED__INIT;
        Pb__QuotaBucket bucket = PB__QUOTA_BUCKET__INIT, *buckets[] = {&bucket};
        Pb__QuotaStep step = PB__QUOTA_STEP__INIT, *steps[] = {&step};
        static const uint64_t odd[] = {0, 1, 7, 8, 9, 63, 64, 1000, INT64_MAX, UINT64_MAX};
#define ODD odd[rng_below(&rng, sizeof odd / sizeof odd[0])]
        snprintf(bytes, sizeof bytes, "%lu", rng_below(&rng, 200));
        ProtobufCBinaryData key = message_bytes(slice_make(bytes, rng_below(&rng, 4)));
        peer.name = text("b"), peer.epoch = 9 + rng_below(&rng, 3), peer.from_lease = ODD, peer.to_lease = 7;
        bucket.key = share.key = routed.key = key;
        bucket.split = ODD, bucket.part = (uint32_t)ODD, bucket.tokens = ODD, bucket.rest = ODD;
        bucket.window = (int64_t)ODD, step.index = ODD, step.age_ns = ODD, step.window = (int64_t)ODD;
        hand.attempt = i, hand.leaving = rng_below(&rng, 4) > 0, hand.defined_index = ODD;
        hand.buckets = buckets, hand.n_buckets = 1, hand.steps = steps, hand.n_steps = 1;
        share.split = ODD, share.part = (uint32_t)ODD, share.tokens = ODD, share.window = (int64_t)ODD;
        routed.split = ODD, routed.part = (uint32_t)ODD, routed.n = ODD, routed.back = i & 1, routed.round = ODD;
        uint64_t kind = rng_below(&rng, 3);
        if (kind == 0) peer.hand_over = &hand;
        else if (kind == 1) peer.share = &share;
        else peer.take = &routed;
        (void)serve(&peer);
    }
    notice.epoch = notice.active = 20, member_of(1); /* the other one has gone: what it gave counts */
    tell();
    cr_expect_eq(takes("k", 1), CO_OK);
    buffer_free(&reply);
}
