/* Budgets as streams: each change once, with the sums that the audit trail has for it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "base/random.h"
#include "quotas.h"
#include "registry/history.h"
#include "streams.h"

enum { STEPS = 400, OWNERS = 3 };

static struct fixture world;
static char id[OWNERS][UUID_TEXT_SIZE + 1];
static void setup(void) {
    quotas_open(&world);
    for (unsigned i = 0; i < OWNERS; i++) {
        session_id(i, id[i]);
        cr_assert(session_make(&world, id[i], &(struct session_plan){.node = "n1"}).yes);
    }
}
static void teardown(void) { fixture_close(&world); }
TestSuite(quota_stream, .init = setup, .fini = teardown);

/* The sums as one text, for each index at which the budget changed; by the present query, right then. */
static struct seen {
    uint64_t index;
    char sums[200];
} seen[4 * STEPS];
static size_t seen_count;

static void note(const char *name) {
    const Pb__QuotaState *state = quota_look(&world, name);
    uint64_t index = state ? state->modify_index : 0;
    if (seen_count && seen[seen_count - 1].index == index) return;
    if (!state) index = machine_index(world.machine);
    seen[seen_count].index = index;
    snprintf(seen[seen_count++].sums, sizeof seen[0].sums, "%s", quota_sums(&world, name));
}

/* One action of an owner: it has a numbered lease, and makes now this request, now that. */
static void act(struct rng *rng, const char *name) {
    static uint64_t seq;
    const char *session = id[rng_below(rng, OWNERS)];
    const Pb__QuotaState *state = quota_look(&world, name);
    uint64_t balance = 0, lease = 0, what = rng_below(rng, 10);
    for (size_t i = 0; state && i < state->n_leases; i++)
        if (strcmp(state->leases[i]->session, session) == 0)
            lease = state->leases[i]->id, balance = state->leases[i]->balance;
    if (what == 0 && state->record->refill_index) (void)quota_refill(&world, name, 0);
    else if (what == 1 && lease) (void)quota_end(&world, name, lease);
    else if (what == 2)
        (void)quota_ask(&world, NULL, ASK(.name = (char *)(uintptr_t)name, .take = 1 + rng_below(rng, 200)));
    else if (what == 3 && lease) (void)quota_settle(&world, name, lease, rng_below(rng, balance + 1));
    else {
        uint64_t spent = rng_below(rng, balance + 1), held = rng_below(rng, balance - spent + 1);
        (void)quota_ask(&world, session,
                        ASK(.name = (char *)(uintptr_t)name, .lease = lease, .seq = ++seq, .spent = spent, .held = held,
                            .want = rng_below(rng, 600)));
    }
}

static const char *sums_of(const Pb__StreamEvent *event) {
    static char line[200];
    if (event->gone) return "none";
    const Pb__QuotaState *state =
        message_unpack(&world.arena, &pb__quota_state__descriptor, message_slice(event->record));
    cr_assert(state && state->record && state->modify_index == event->position->index);
    const Pb__QuotaRecord *record = state->record;
    uint64_t leased = 0;
    for (size_t i = 0; i < state->n_leases; i++) leased += state->leases[i]->balance;
    cr_assert_eq(leased, record->leased, "its leases are those of then");
    snprintf(line, sizeof line, "spent %lu stranded %lu leased %lu slack %lu: %ld of %lu", record->spent,
             record->stranded, record->leased, record->slack, state->available, state->capacity);
    return line;
}

Test(quota_stream, each_change_is_an_event_with_the_sums_of_then) {
    struct rng rng;
    struct stream_ask ask;
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    rng_seed(&rng, 5);
    uint64_t from = machine_index(world.machine);
    cr_assert(quota_put(&world, &definition).yes);
    note("b");
    for (unsigned i = 0; i < STEPS; i++) {
        act(&rng, "b");
        note("b");
    }
    quota_trail_check(&world, "b");
    /* The trail's rows, by the index of the last of each entry. */
    uint64_t next = 0;
    size_t at = 0, matched = 0;
    do {
        const Pb__QuotaAuditResult *page = quota_trail(&world, "b", next);
        next = page->n_entries ? page->next : 0;
        for (size_t i = 0; i < page->n_entries; i++) {
            const Pb__QuotaAudit *row = page->entries[i];
            bool last = i + 1 == page->n_entries || page->entries[i + 1]->index != row->index;
            char line[100];
            while (at < seen_count && seen[at].index < row->index) at++;
            if (!last) continue;
            snprintf(line, sizeof line, "spent %lu stranded %lu leased %lu slack %lu:", row->spent, row->stranded,
                     row->leased, row->slack);
            cr_assert(at < seen_count && seen[at].index == row->index && strstr(seen[at].sums, line) == seen[at].sums);
            matched++;
        }
    } while (next);
    cr_assert_gt(matched, STEPS / 2);
    cr_assert(quota_delete(&world, "b").yes);
    note("b");
    /* The same from the stream. */
    stream_ask_init(&ask);
    stream_ask_add(&ask, PB__STREAM_KIND__STREAM_QUOTA, "b");
    stream_ask_from(&ask, from, 0, 0);
    for (at = 0;;) {
        const Pb__StreamResult *result = stream_answer(&world, &ask, NULL);
        cr_assert(result && !result->gap);
        for (size_t i = 0; i < result->n_events; i++, at++) {
            const Pb__StreamEvent *event = result->events[i];
            cr_assert(at < seen_count && event->position->index == seen[at].index, "%lu", event->position->index);
            cr_assert_str_eq(sums_of(event), seen[at].sums);
        }
        if (result->n_events == 0) break;
        stream_ask_from(&ask, result->position->index, result->position->topic, result->position->place);
    }
    cr_expect_eq(at, seen_count);
}

Test(quota_stream, what_woke_a_query_of_a_budget_is_said) {
    struct buffer cause = {0};
    struct arena arena = {0};
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t index = quota_put(&world, &definition).index;
    store_read_done(world.reader);
    struct watch_key watched = {SPACE_QUOTA, slice_text("b")};
    cr_assert(stream_cause(store_read(world.reader), access_all, watched, index, &arena, &cause));
    store_read_done(world.reader);
    buffer_append_byte(&cause, '\0');
    char expected[60];
    snprintf(expected, sizeof expected, "quota b changed index %lu", index);
    cr_expect_str_eq(cause.data, expected);
    buffer_free(&cause), arena_free(&arena);
}
