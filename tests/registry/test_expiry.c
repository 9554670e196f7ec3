/* The leader's lease table under a clock of the test's own: bounds, change of leader, a loop that stands still. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/random.h"
#include "registry/expiry.h"

#define SECOND 1000000000ll

static struct expiry *timers;
/* Of what the tests are about: kinds as modules declare them. */
static const struct expiry_kind a_session = {.number = 0, .name = "session", .renewed = true, .may_be_endless = true};
static const struct expiry_kind a_lease = {.number = 1, .name = "lease", .renewed = true};
static const struct expiry_kind a_lock_delay = {.number = 2, .name = "lock-delay"};
static const struct expiry_kind a_dead_node = {.number = 3, .name = "dead node"};
static const struct expiry_kind a_held_service = {.number = 4, .name = "held service", .no_second_period = true};
static const struct expiry_kind *kind = &a_session;
static uint64_t now_ms;
static int64_t ttl_ns; /* of what was renewed last */
static unsigned ticks;

/* The names that came due, in order. */
static struct end {
    char name[64];
    const struct expiry_kind *kind;
    uint64_t index, at_ms;
} ends[1000];
static unsigned end_count;

static void setup(void) {
    timers = expiry_new();
    now_ms = 1000000;
    expiry_lead(timers, 1, now_ms);
}
static void teardown(void) { expiry_free(timers); }

static void on_due(void *data, const struct expiry_due *item) {
    (void)data;
    cr_assert_lt(end_count, ARRAY_COUNT(ends));
    struct end *end = &ends[end_count++];
    struct slice name = item->name;
    *end = (struct end){.kind = item->kind, .index = item->index, .at_ms = now_ms};
    snprintf(end->name, sizeof end->name, "%.*s", (int)name.size, name.data);
}

static void tick(void) {
    ticks++;
    expiry_tick(timers, now_ms, on_due, NULL);
}

/* A loop at work: ticks when it is asked to. */
static void run_until(uint64_t until_ms) {
    for (uint64_t at_ms; (at_ms = expiry_deadline_ms(timers)) <= until_ms;) {
        if (at_ms > now_ms) now_ms = at_ms;
        tick();
    }
    now_ms = until_ms;
}

static int renew(const char *id) { return expiry_renew(timers, kind, slice_text(id), now_ms, &ttl_ns); }
static void create(const char *id, int64_t period_ns) {
    expiry_began(timers, kind, slice_text(id), 0, period_ns, now_ms);
}

static void delay(const char *key, uint64_t index, int64_t delay_ns) {
    expiry_began(timers, &a_lock_delay, slice_text(key), index, delay_ns, now_ms);
}

/* -- bounds ------------------------------------------------------------------------------------------------------- */

static const struct bound_row {
    const char *what;
    int64_t ttl_ns;
    int64_t renew_ms[5]; /* after the creation; 0: no more */
    int last_error;      /* of the last renewal */
    int64_t lives_ms;    /* the renewal (or creation) that its end counts from */
} bound_rows[] = {
    {"never renewed", 10 * SECOND, {0}, CO_OK, 0},
    {"once, at half time", 10 * SECOND, {5000}, CO_OK, 5000},
    {"every third of the TTL", 15 * SECOND, {5000, 10000, 15000, 20000, 25000}, CO_OK, 25000},
    {"in the last millisecond", 10 * SECOND, {9999}, CO_OK, 9999},
    {"at the TTL exactly", 10 * SECOND, {10000}, CO_OK, 10000},
    {"too late", 10 * SECOND, {11001}, CO_NOTFOUND, 0},
    {"late after it was in time", 10 * SECOND, {9000, 20001}, CO_NOTFOUND, 9000},
    {"twice in one moment", 10 * SECOND, {4000, 4000}, CO_OK, 4000},
    {"a TTL with a fraction", 10 * SECOND + 500 * 1000000, {5000}, CO_OK, 5000},
    {"a TTL of nanoseconds", 1, {0}, CO_OK, 0},
    {"a TTL just over a millisecond", 1000001, {0}, CO_OK, 0},
    {"the longest TTL", 86400 * SECOND, {80000000}, CO_OK, 80000000},
};

static void check_bounds(void) {
    for (unsigned i = 0; i < ARRAY_COUNT(bound_rows); i++) {
        const struct bound_row *row = &bound_rows[i];
        uint64_t begin_ms = now_ms;
        int error = CO_OK;
        end_count = 0;
        create("s", row->ttl_ns);
        for (unsigned r = 0; r < ARRAY_COUNT(row->renew_ms) && row->renew_ms[r]; r++) {
            run_until(begin_ms + (uint64_t)row->renew_ms[r]);
            error = renew("s");
        }
        run_until(now_ms + 100000000);
        cr_assert_eq(error, row->last_error, "%s: %s", row->what, co_strerror(error));
        cr_assert_eq(end_count, 1, "%s: %u ends", row->what, end_count);
        int64_t lived_ns = (int64_t)(ends[0].at_ms - begin_ms - (uint64_t)row->lives_ms) * 1000000;
        cr_expect(lived_ns > row->ttl_ns, "%s: ended before the TTL", row->what);
        cr_expect(lived_ns <= row->ttl_ns + SECOND, "%s: ended %ld ns after the TTL", row->what,
                  (long)(lived_ns - row->ttl_ns));
        expiry_ended(timers, kind, slice_text("s"), 0);
    }
}

Test(expiry, bounds, .init = setup, .fini = teardown) {
    const struct expiry_kind *const kinds[] = {&a_session, &a_lease};
    for (unsigned i = 0; i < ARRAY_COUNT(kinds); i++) {
        kind = kinds[i];
        check_bounds();
    }
}

/* Answers must not be wrong for longer because the loop stood still, or the same leader began anew. */
Test(expiry, what_is_held_is_granted_no_second_period, .init = setup, .fini = teardown) {
    expiry_began(timers, &a_held_service, slice_text("web"), 7, 60 * SECOND, now_ms);
    create("s", 60 * SECOND);
    uint64_t begun_ms = now_ms, left_ms;
    now_ms += 50000;
    expiry_lead(timers, expiry_term(timers), now_ms);
    cr_assert_eq(expiry_left(timers, &a_held_service, slice_text("web"), now_ms, &left_ms, &ttl_ns), CO_OK);
    cr_expect_eq(left_ms, 10000);
    run_until(begun_ms + 60500);
    cr_assert_eq(end_count, 1, "not the session");
    cr_expect(ends[0].kind == &a_held_service && ends[0].index == 7 && ends[0].at_ms <= begun_ms + 60002);
}

Test(expiry, what_a_renewal_and_a_look_tell, .init = setup, .fini = teardown) {
    uint64_t left_ms = 0;
    int64_t looked_ns = 0;
    kind = &a_lease;
    create("l", 10 * SECOND);
    run_until(now_ms + 4000);
    cr_expect_eq(expiry_left(timers, kind, slice_text("l"), now_ms, &left_ms, &looked_ns), CO_OK);
    cr_expect(left_ms == 6000 && looked_ns == 10 * SECOND, "%lu ms", left_ms);
    cr_expect_eq(expiry_left(timers, &a_session, slice_text("l"), now_ms, &left_ms, &looked_ns), CO_NOTFOUND);
    cr_expect_eq(renew("l"), CO_OK);
    cr_expect_eq(ttl_ns, 10 * SECOND);
    cr_expect_eq(expiry_left(timers, kind, slice_text("l"), now_ms, &left_ms, &looked_ns), CO_OK);
    cr_expect_eq(left_ms, 10000);
    run_until(now_ms + 10100); /* the grace: nothing is left, and it is not over */
    cr_expect_eq(expiry_left(timers, kind, slice_text("l"), now_ms, &left_ms, &looked_ns), CO_OK);
    cr_expect(left_ms == 0 && end_count == 0);
    run_until(now_ms + 1000);
    cr_expect_eq(expiry_left(timers, kind, slice_text("l"), now_ms, &left_ms, &looked_ns), CO_NOTFOUND);
    expiry_follow(timers);
    cr_expect_eq(expiry_left(timers, kind, slice_text("l"), now_ms, &left_ms, &looked_ns), CO_NOTLEADER);
}

/* It died, was granted a lease again, died again: only the last death counts. */
Test(expiry, dead_nodes, .init = setup, .fini = teardown) {
    struct slice node = slice_text("web1");
    expiry_began(timers, &a_dead_node, node, 20, 72 * 3600 * SECOND, now_ms);
    cr_expect_eq(expiry_renew(timers, &a_dead_node, node, now_ms, &ttl_ns), CO_NOTFOUND);
    run_until(now_ms + 72 * 3600 * 1000 - 1000);
    expiry_ended(timers, &a_dead_node, node, 20);
    expiry_began(timers, &a_dead_node, node, 30, 2 * SECOND, now_ms);
    expiry_ended(timers, &a_dead_node, node, 20); /* told late */
    run_until(now_ms + 1999);
    cr_expect_eq(end_count, 0);
    cr_expect_eq(expiry_count(timers, &a_dead_node), 1);
    run_until(now_ms + 100);
    cr_assert_eq(end_count, 1);
    cr_expect(ends[0].kind == &a_dead_node && ends[0].index == 30);
    expiry_ended(timers, &a_dead_node, node, 30);
    cr_expect_eq(expiry_count(timers, &a_dead_node), 0);
}

Test(expiry, while_its_end_is_proposed_it_is_not_renewed, .init = setup, .fini = teardown) {
    create("s", 10 * SECOND);
    run_until(now_ms + 11000);
    cr_assert_eq(end_count, 1);
    cr_expect_eq(renew("s"), CO_NOTFOUND);
    run_until(now_ms + 60000);
    cr_expect_eq(end_count, 1, "proposed once");
    expiry_ended(timers, kind, slice_text("s"), 0);
    cr_expect_eq(renew("s"), CO_NOTFOUND);
    cr_expect_eq(expiry_deadline_ms(timers), UINT64_MAX);
}

Test(expiry, a_failed_proposal_is_made_again_unless_renewed, .init = setup, .fini = teardown) {
    create("s", 10 * SECOND);
    struct expiry_due item = {.kind = kind, .name = slice_text("s")};
    run_until(now_ms + 11000);
    cr_assert_eq(end_count, 1);
    expiry_failed(timers, &item, now_ms);
    expiry_failed(timers, &item, now_ms); /* said twice: counts once */
    run_until(now_ms + 1000);
    cr_assert_eq(end_count, 2);
    expiry_failed(timers, &item, now_ms);
    cr_expect_eq(renew("s"), CO_OK);
    uint64_t renewed_ms = now_ms;
    run_until(now_ms + 20000);
    cr_assert_eq(end_count, 3);
    cr_expect(ends[2].at_ms > renewed_ms + 10000 && ends[2].at_ms <= renewed_ms + 11000);
}

Test(expiry, without_ttl_it_is_known_and_never_ends, .init = setup, .fini = teardown) {
    create("s", 0);
    cr_expect_eq(expiry_deadline_ms(timers), UINT64_MAX);
    cr_expect_eq(renew("s"), CO_OK);
    cr_expect_eq(renew("other"), CO_NOTFOUND);
    run_until(now_ms + 1000000000);
    cr_expect_eq(end_count, 0);
}

/* -- change of leader --------------------------------------------------------------------------------------------- */

static const struct {
    const char *what;
    uint64_t dies_ms, leads_ms;
} change_rows[] = {
    {"at once", 1, 2},
    {"in the middle", 5000, 6000},
    {"just before the end", 9999, 10900},
    {"just after the end, not committed", 10300, 11200},
};

/* Renewed at 0 with the old leader; the new one has applied its first entry at leads_ms. */
Test(expiry, over_a_change_of_leader, .init = setup, .fini = teardown) {
    for (unsigned i = 0; i < ARRAY_COUNT(change_rows); i++) {
        struct expiry *old = timers;
        uint64_t begin_ms = now_ms, ttl_ms = 10000;
        expiry_lead(old, 1 + 2 * i, now_ms);
        create("s", (int64_t)ttl_ms * 1000000);
        run_until(begin_ms + change_rows[i].dies_ms);
        end_count = 0; /* what it proposed last was not committed */
        expiry_follow(old);
        run_until(begin_ms + change_rows[i].leads_ms);
        cr_expect_eq(renew("s"), CO_NOTLEADER);
        cr_expect_eq(expiry_term(old), 0);
        expiry_lead(old, 2 + 2 * i, now_ms);
        cr_expect_eq(expiry_term(old), 2 + 2 * i);
        create("s", (int64_t)ttl_ms * 1000000); /* found in the store */
        run_until(begin_ms + 10 * ttl_ms);
        cr_assert_eq(end_count, 1, "%s", change_rows[i].what);
        cr_expect_gt(ends[0].at_ms, begin_ms + change_rows[i].leads_ms + ttl_ms, "%s: not a full period",
                     change_rows[i].what);
        if (change_rows[i].dies_ms <= ttl_ms)
            cr_expect_leq(ends[0].at_ms, begin_ms + 2 * ttl_ms + 2000, "%s: too late", change_rows[i].what);
        expiry_follow(old);
    }
}

Test(expiry, news_for_a_follower_are_forgotten, .init = setup, .fini = teardown) {
    expiry_follow(timers);
    create("s", SECOND);
    delay("k", 5, SECOND);
    cr_expect_eq(expiry_deadline_ms(timers), UINT64_MAX);
    tick();
    expiry_ended(timers, kind, slice_text("s"), 0);
    expiry_ended(timers, &a_lock_delay, slice_text("k"), 5);
    expiry_lead(timers, 2, now_ms);
    cr_expect_eq(renew("s"), CO_NOTFOUND);
}

/* The store is read when the news of the same entries are still in the box. */
Test(expiry, news_that_the_store_told_already, .init = setup, .fini = teardown) {
    create("s", 10 * SECOND);
    delay("k", 9, 10 * SECOND);
    run_until(now_ms + 5000);
    create("s", 10 * SECOND);   /* does not count as a renewal */
    delay("k", 5, 10 * SECOND); /* an older one: over already */
    expiry_ended(timers, &a_lock_delay, slice_text("k"), 5);
    delay("k", 9, 10 * SECOND);
    run_until(now_ms + 6500);
    cr_assert_eq(end_count, 2);
    cr_expect(ends[0].kind != ends[1].kind);
    cr_expect_eq(ends[ends[0].kind == kind].index, 9);
}

/* -- a loop that stands still ------------------------------------------------------------------------------------- */

static const struct stall_row {
    const char *what;
    uint64_t from_ms, to_ms; /* no tick in between; the TTL ends at 10000 */
    bool full_period;        /* granted at to_ms */
} stall_rows[] = {
    {"long before the end", 2000, 5000, false}, {"short, over the end", 9900, 10700, false},
    {"long, over the end", 9000, 12000, true},  {"long, from far before until after", 1000, 15000, true},
    {"a paused machine", 3000, 3600000, true},  {"long, until just before the end", 7000, 9990, true},
};

Test(expiry, a_loop_that_stood_still, .init = setup, .fini = teardown) {
    for (unsigned i = 0; i < ARRAY_COUNT(stall_rows); i++) {
        for (unsigned renews = 0; renews < 2; renews++) {
            const struct stall_row *row = &stall_rows[i];
            uint64_t begin_ms = now_ms;
            end_count = 0;
            create("s", 10 * SECOND);
            run_until(begin_ms + row->from_ms);
            now_ms = begin_ms + row->to_ms;
            tick();
            cr_assert_eq(end_count, 0, "%s: ended by a loop that has not read what waits for it", row->what);
            uint64_t lives_ms = row->full_period ? row->to_ms : 0;
            if (renews) { /* it was waiting in the socket */
                cr_assert_eq(renew("s"), CO_OK, "%s", row->what);
                lives_ms = row->to_ms;
            }
            run_until(now_ms + 100000);
            cr_assert_eq(end_count, 1, "%s", row->what);
            cr_expect_gt(ends[0].at_ms, begin_ms + lives_ms + 10000, "%s", row->what);
            cr_expect_leq(ends[0].at_ms, begin_ms + lives_ms + 11000, "%s: %lu ms", row->what,
                          ends[0].at_ms - begin_ms);
            expiry_ended(timers, kind, slice_text("s"), 0);
        }
    }
}

Test(expiry, leading_again_in_the_same_term_grants_a_period_but_renews_nothing_proposed, .init = setup,
     .fini = teardown) {
    create("a", 10 * SECOND);
    run_until(now_ms + 5000);
    create("b", 10 * SECOND);
    run_until(now_ms + 6000);
    cr_assert_eq(end_count, 1);
    expiry_lead(timers, 1, now_ms);
    uint64_t granted_ms = now_ms;
    cr_expect_eq(renew("a"), CO_NOTFOUND);
    run_until(now_ms + 20000);
    cr_assert_eq(end_count, 2);
    cr_expect_str_eq(ends[1].name, "b");
    cr_expect_gt(ends[1].at_ms, granted_ms + 10000);
}

Test(expiry, an_idle_lease_costs_few_ticks, .init = setup, .fini = teardown) {
    create("s", 3600 * SECOND);
    ticks = 0;
    run_until(now_ms + 3590000);
    cr_expect_leq(ticks, 1, "%u ticks", ticks);
    cr_expect_eq(renew("s"), CO_OK);
    run_until(now_ms + 3601000);
    cr_expect_eq(end_count, 1);
    cr_expect_leq(ticks, 20, "%u ticks", ticks);
}

/* -- lock-delays -------------------------------------------------------------------------------------------------- */

/* Milliseconds of a clock are cut: 3 - 0 may be little more than 2. */
Test(expiry, a_lock_delay_is_never_cut_short, .init = setup, .fini = teardown) {
    static const struct {
        int64_t delay_ns;
        uint64_t least_ms;
    } rows[] = {
        {1, 2}, {999999, 2}, {1000000, 2}, {1000001, 3}, {2000000, 3}, {15 * SECOND, 15001}, {15 * SECOND + 1, 15002}};
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        uint64_t begin_ms = now_ms;
        end_count = 0;
        delay("k", 1 + i, rows[i].delay_ns);
        run_until(now_ms + 30000);
        cr_assert_eq(end_count, 1);
        cr_expect_eq(ends[0].at_ms - begin_ms, rows[i].least_ms, "row %u: %lu ms", i, ends[0].at_ms - begin_ms);
        expiry_ended(timers, &a_lock_delay, slice_text("k"), 1 + i);
    }
}

Test(expiry, lock_delays, .init = setup, .fini = teardown) {
    uint64_t begin_ms = now_ms;
    delay("k", 7, 15 * SECOND);
    delay("soon", 8, 1);
    create("k", 15 * SECOND); /* a session of the same name is another thing */
    run_until(now_ms + 14999);
    cr_assert_eq(end_count, 1);
    cr_expect_str_eq(ends[0].name, "soon");
    run_until(now_ms + 1001);
    cr_assert_eq(end_count, 3);
    cr_expect(ends[1].kind == &a_lock_delay && ends[1].index == 7 && ends[2].kind == kind);
    cr_expect(ends[1].at_ms > begin_ms + 15000 && ends[1].at_ms <= begin_ms + 16000);
    struct expiry_due other = {&a_lock_delay, slice_text("k"), 6}, same = {&a_lock_delay, slice_text("k"), 7};
    expiry_failed(timers, &other, now_ms);
    run_until(now_ms + 5000);
    cr_expect_eq(end_count, 3);
    expiry_failed(timers, &same, now_ms);
    run_until(now_ms + 5000);
    cr_expect_eq(end_count, 4);
    expiry_ended(timers, &a_lock_delay, slice_text("k"), 7);
    delay("k", 12, 15 * SECOND); /* the next holder's */
    run_until(now_ms + 20000);
    cr_expect_eq(end_count, 5);
    cr_expect_eq(ends[4].index, 12);
}

/* -- many, against a plain list ----------------------------------------------------------------------------------- */

enum { MANY = 300 };

Test(expiry, many_random_leases, .init = setup, .fini = teardown) {
    struct {
        bool there, proposed;
        uint64_t granted_ms, ttl_ms;
    } model[MANY] = {{0}};
    struct rng rng;
    rng_seed(&rng, 42);
    unsigned expired = 0;
    for (unsigned step = 0; step < 50000; step++) {
        unsigned n = (unsigned)rng_below(&rng, MANY);
        char id[16];
        snprintf(id, sizeof id, "s%u", n);
        switch (rng_below(&rng, 4)) {
            case 0:
                if (model[n].there) break;
                model[n].there = true, model[n].proposed = false, model[n].granted_ms = now_ms;
                model[n].ttl_ms = rng_between(&rng, 1, 20000);
                create(id, (int64_t)model[n].ttl_ms * 1000000);
                break;
            case 1:
                if (rng_below(&rng, 4) != 0) break;
                model[n].there = false;
                expiry_ended(timers, kind, slice_text(id), 0);
                break;
            default: {
                int error = renew(id);
                cr_assert_eq(error, model[n].there && !model[n].proposed ? CO_OK : CO_NOTFOUND);
                if (error == CO_OK) model[n].granted_ms = now_ms;
            }
        }
        end_count = 0;
        run_until(now_ms + rng_below(&rng, 50));
        for (unsigned e = 0; e < end_count; e++) {
            n = (unsigned)atoi(ends[e].name + 1);
            cr_assert(model[n].there && !model[n].proposed);
            cr_assert(ends[e].at_ms > model[n].granted_ms + model[n].ttl_ms);
            model[n].proposed = true;
            expired++;
        }
        for (unsigned m = 0; m < MANY; m++)
            cr_assert(!model[m].there || model[m].proposed || now_ms <= model[m].granted_ms + model[m].ttl_ms + 1000);
    }
    cr_expect_gt(expired, 1000);
}
