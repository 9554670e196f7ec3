/* Locks and elections against a model (tests/lib/queue_model.h). Random commands; every answer, every queue, every index
 * and every wake-up is compared. A failure names its seed: COORD_SEED=N runs that one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/random.h"
#include "queues.h"
#include "tests/lib/queue_model.h"

enum {
    LOCKS = 3,
    ELECTIONS = 2,
    QUEUES = LOCKS + ELECTIONS,
    SESSIONS = 9,
    STEPS = 4000,
    SEEDS = 30,
    SECOND = 1000000000
};

static struct fixture world;
static struct rng rng;
static uint64_t seed;

/* -- the model ---------------------------------------------------------------------------------------------------- */

static struct model_queue queues[QUEUES]; /* locks, then elections */
static const struct model_family locks = {.queues = queues, .count = LOCKS},
                                 elections = {.queues = queues + LOCKS, .count = ELECTIONS, .is_election = true};
static const char *const names[QUEUES] = {"l", "l/2", "m", "l", "e"};
static struct session {
    bool there, made, on_check;
    unsigned node;
    int64_t delay_ns;
} sessions[SESSIONS];
static struct { bool there, critical; } nodes[2];
static const char *const node_names[2] = {"n1", "n2"};

static bool one_in(unsigned n) { return rng_below(&rng, n) == 0; }
static unsigned below(unsigned n) { return (unsigned)rng_below(&rng, n); }

/* Sessions are letters, and the model's numbers their places in the alphabet. */
static struct session *session_at(uint64_t who) { return &sessions[who - 1]; }
static char letter(uint64_t who) { return (char)('a' + who - 1); }

static bool is_election(const struct model_queue *q) { return q >= queues + LOCKS; }
static const char *name_of(const struct model_queue *q) { return names[q - queues]; }

static void session_ends(uint64_t who, uint64_t index) {
    struct session *session = session_at(who);
    if (!session->there) return;
    for (unsigned i = 0; i < QUEUES; i++)
        if (model_find(&queues[i], who)) model_leave(&queues[i], who, index, session->delay_ns != 0);
    session->there = false;
}

/* -- commands: told to the model, which says what the answer will be ------------------------------------------------ */

#define EXPECT(condition, ...) cr_assert(condition, "seed %lu: " #condition " " __VA_ARGS__)

static unsigned verdicts[MODEL_NO_SESSION + 1], shared_tokens, releases[2], delays_over; /* so that none is forgotten */
static struct answer expected;

static void expect_entry(const struct model_queue *q, const struct model_entry *entry) {
    expected.held = expected.yes = entry->token != 0, expected.token = entry->token;
    expected.mode = entry->shared ? PB__QUEUE_MODE__QUEUE_SHARED : PB__QUEUE_MODE__QUEUE_EXCLUSIVE;
    expected.position = model_position(q, entry), expected.waiters = model_waiters(q);
    expected.who = letter(entry->who);
}

static void expect_by_token(struct model_queue *q, uint64_t token) {
    bool several;
    const struct model_entry *holder = model_holder(q, token, &several);
    if (!holder || several) expected.error = several ? CO_CONFLICT : CO_NOTFOUND;
    else expect_entry(q, holder);
    shared_tokens += several;
}

static void expect_acquire(struct model_queue *q, const struct acquire *plan, uint32_t note, uint64_t index) {
    static const int errors[] = {[MODEL_DIFFERS] = CO_CONFLICT,
                                 [MODEL_FULL] = CO_BUSY,
                                 [MODEL_CIRCLE] = CO_CONFLICT,
                                 [MODEL_NO_SESSION] = CO_NOTFOUND};
    if (plan->token) return expect_by_token(q, plan->token);
    struct model_wish wish = {.who = (uint64_t)((plan->made ? plan->made : plan->who) - 'a') + 1,
                              .made = plan->made != 0,
                              .shared = plan->shared,
                              .asks = plan->asks,
                              .limit = plan->limit,
                              .priority = plan->priority,
                              .note = note,
                              .waiters_max = plan->waiters_max,
                              .of_session_max = plan->of_session_max};
    struct session *session = session_at(wish.who);
    struct model_entry *entry;
    wish.there = wish.made ? !session->there && nodes[0].there : session->there;
    enum model_verdict verdict = model_acquire(is_election(q) ? &elections : &locks, q, &wish, index, &entry);
    verdicts[verdict]++;
    expected.error = verdict < ARRAY_COUNT(errors) ? errors[verdict] : CO_OK;
    if (verdict == MODEL_NO_SESSION && wish.made) expected.error = session->there ? CO_EXISTS : CO_INVALID;
    if (expected.error) return;
    if (verdict == MODEL_ASKED) {
        expected.mode = wish.shared ? PB__QUEUE_MODE__QUEUE_SHARED : PB__QUEUE_MODE__QUEUE_EXCLUSIVE;
        expected.waiters = model_waiters(q);
        return;
    }
    if (wish.made) *session = (struct session){.there = true, .made = true, .delay_ns = plan->made_delay_ns};
    expect_entry(q, entry);
}

static struct answer do_acquire(struct model_queue *q, uint64_t index) {
    static const char *const notes[] = {"", "one", "two"};
    uint32_t note = below(3);
    struct acquire wish = {
        .name = name_of(q), .asks = one_in(4), .note = notes[note], .made_delay_ns = one_in(3) ? SECOND : 0};
    unsigned who = below(SESSIONS);
    if (one_in(8)) wish.token = one_in(2) && q->newest ? q->newest : index - below(2);
    else if (one_in(5)) wish.made = (char)(letter(who + 1));
    else wish.who = (char)(letter(who + 1));
    if (is_election(q)) {
        wish.priority = one_in(2) ? 0 : below(3);
    } else {
        wish.shared = one_in(2);
        wish.limit = q == &queues[2] ? 2 : one_in(30) ? 1 : 0;
        wish.waiters_max = one_in(5) ? 3 : 0, wish.of_session_max = one_in(5) ? 2 : 0;
    }
    expect_acquire(q, &wish, note, index);
    return is_election(q) ? election_campaign(&world, &wish) : lock_acquire(&world, &wish);
}

static struct answer do_release(struct model_queue *q, uint64_t index) {
    bool several = false, tokens = one_in(3);
    uint64_t who = q->count && !one_in(6) ? q->in[below(q->count)].who : 1 + below(SESSIONS);
    uint64_t token = q->count && !one_in(4) ? q->in[0].token : q->newest - below(3);
    struct model_entry *entry = tokens ? model_holder(q, token, &several) : model_find(q, who);
    shared_tokens += several;
    if (!entry || several) {
        expected.error = CO_CONFLICT;
    } else {
        uint64_t leaver = entry->who;
        releases[entry->token != 0]++;
        model_leave(q, leaver, index, false);
        if (session_at(leaver)->made && !model_queues_of(&locks, leaver) && !model_queues_of(&elections, leaver))
            session_at(leaver)->there = false;
        expected.yes = true;
    }
    if (is_election(q)) return election_resign(&world, name_of(q), tokens ? 0 : letter(who), token);
    return tokens ? lock_release_by(&world, name_of(q), token) : lock_release(&world, name_of(q), letter(who));
}

static struct answer do_delay_over(struct model_queue *q, uint64_t index) {
    unsigned number = q->delay_count ? below(q->delay_count) : 0;
    uint64_t delay = q->delay_count && !one_in(5) ? q->delays[number] : index - below(20);
    delays_over += model_delay_over(q, delay, index);
    expected.yes = true;
    return is_election(q) ? election_delay_over(&world, name_of(q), delay)
                          : lock_delay_over(&world, name_of(q), delay, world.term);
}

static struct answer do_proclaim(struct model_queue *q, uint64_t index) {
    uint64_t term = q->count ? q->in[0].token : q->newest;
    if (q->count && q->in[0].token && term == q->in[0].token) {
        q->in[0].note = 2;
        q->changed = q->holder_changed = index;
        expected.yes = true;
    } else {
        expected.error = CO_CONFLICT;
    }
    return election_proclaim(&world, name_of(q), term, "two");
}

/* Those that hang on its check first, then the others. */
static void node_ends(unsigned node, bool with_node, uint64_t index) {
    for (uint64_t who = 1; who <= SESSIONS; who++)
        if (session_at(who)->node == node && session_at(who)->on_check) session_ends(who, index);
    for (uint64_t who = 1; who <= SESSIONS && with_node; who++)
        if (session_at(who)->node == node) session_ends(who, index);
}

static void do_session(uint64_t index) {
    uint64_t who = 1 + below(SESSIONS);
    unsigned node = below(2);
    for (unsigned i = 0; i < SESSIONS && session_at(who)->there && !one_in(6); i++) who = 1 + who % SESSIONS;
    struct session new = {.there = true, .on_check = one_in(2), .node = node, .delay_ns = one_in(2) ? SECOND : 0};
    struct session_plan plan = {
        .node = node_names[node], .node_check = new.on_check ? "c" : NULL, .lock_delay_ns = new.delay_ns};
    if (session_at(who)->there) {
        session_ends(who, index);
        session_drop(&world, session_of(letter(who)));
        return;
    }
    bool made = session_make(&world, session_of(letter(who)), &plan).yes;
    EXPECT(made == (nodes[node].there && !(new.on_check &&nodes[node].critical)), "session %c", seed, letter(who));
    if (made) *session_at(who) = new;
}

/* A node comes, with its check passing or critical, or goes. */
static void do_node(uint64_t index) {
    unsigned node = below(2);
    bool goes = nodes[node].there && one_in(3), critical = !goes && one_in(2);
    if (goes || critical) node_ends(node, goes, index);
    nodes[node].there = !goes, nodes[node].critical = critical;
    if (goes) node_remove(&world, node_names[node]);
    else check_register(&world, node_names[node], "c", critical ? PB__STATUS__CRITICAL : PB__STATUS__PASSING);
}

static void step(void) {
    uint64_t index = machine_index(world.machine) + 1;
    struct model_queue *q = &queues[below(QUEUES)];
    struct answer got;
    expected = (struct answer){.who = '-', .index = index};
    switch (below(40)) {
        case 0:
        case 1:
        case 2:
        case 3: one_in(nodes[0].there && nodes[1].there ? 12 : 2) ? do_node(index) : do_session(index); return;
        case 4:
        case 5:
        case 6: got = do_delay_over(q, index); break;
        case 7:
            q = &queues[LOCKS + below(QUEUES - LOCKS)];
            got = do_proclaim(q, index);
            break;
        case 8:
        case 9:
        case 10:
        case 11:
        case 12:
        case 13: got = do_release(q, index); break;
        default: got = do_acquire(q, index);
    }
    EXPECT(got.error == expected.error, "%s, expected %s: %s", seed, co_strerror(got.error),
           co_strerror(expected.error), got.text);
    EXPECT(got.yes == expected.yes && got.held == expected.held && got.token == expected.token, "%s", seed, name_of(q));
    EXPECT(got.position == expected.position && got.waiters == expected.waiters, "%s: %u of %u, not %u of %u", seed,
           name_of(q), got.position, got.waiters, expected.position, expected.waiters);
    EXPECT(got.who == expected.who && got.mode == expected.mode && got.index == index, "%s", seed, name_of(q));
}

/* -- comparing ---------------------------------------------------------------------------------------------------- */

static struct watcher entry_watchers[QUEUES][SESSIONS];
static struct watcher name_watchers[QUEUES], leader_watchers[QUEUES];
struct place {
    bool there;
    uint64_t token, place;
};
static struct place before[QUEUES][SESSIONS];
static uint64_t changed_before[QUEUES], holder_before[QUEUES];

static const struct query_type *one_of(const struct model_queue *q, const struct query_type *lock,
                                       const struct query_type *election) {
    return is_election(q) ? election : lock;
}

static void watchers_add(void) {
    for (unsigned n = 0; n < QUEUES; n++) {
        bool election = n >= LOCKS;
        for (unsigned who = 0; who < SESSIONS; who++)
            watcher_begin_entry(&entry_watchers[n][who], &world, election ? SPACE_ELECTION_ENTRY : SPACE_LOCK_ENTRY,
                                names[n], letter(who + 1));
        watcher_begin_at(&name_watchers[n], &world,
                         (struct watch_key){election ? SPACE_ELECTION : SPACE_LOCK, slice_text(names[n])});
        watcher_begin_at(&leader_watchers[n], &world,
                         (struct watch_key){SPACE_ELECTION_LEADER, slice_text(election ? names[n] : "none")});
    }
}

static void watchers_remove(void) {
    for (unsigned n = 0; n < QUEUES; n++) {
        for (unsigned who = 0; who < SESSIONS; who++) watcher_end(&entry_watchers[n][who], &world);
        watcher_end(&name_watchers[n], &world);
        watcher_end(&leader_watchers[n], &world);
    }
}

/* Each change of a thing wakes those who wait for it, and nothing else does. */
static void compare_woken(void) {
    for (unsigned n = 0; n < QUEUES; n++) {
        struct model_queue *q = &queues[n];
        EXPECT(watcher_woken(&name_watchers[n]) == (q->changed != changed_before[n]), "%s", seed, name_of(q));
        EXPECT(watcher_woken(&leader_watchers[n]) == (is_election(q) && q->holder_changed != holder_before[n]), "%s",
               seed, name_of(q));
        changed_before[n] = q->changed, holder_before[n] = q->holder_changed;
        for (unsigned who = 0; who < SESSIONS; who++) {
            const struct model_entry *entry = model_find(q, who + 1);
            struct place now = entry ? (struct place){true, entry->token, entry->place} : (struct place){0};
            struct place *was = &before[n][who];
            bool changed = now.there != was->there || now.token != was->token || now.place != was->place;
            EXPECT(watcher_woken(&entry_watchers[n][who]) == changed, "%s, session %c", seed, name_of(q),
                   letter(who + 1));
            *was = now;
        }
    }
}

static void compare_record(const Pb__QueueEntry *got, const struct model_entry *entry) {
    static const char *const notes[] = {"", "one", "two"};
    EXPECT(letter_of(got->session) == letter(entry->who) && got->token == entry->token, "%c", seed, letter(entry->who));
    EXPECT((got->mode == PB__QUEUE_MODE__QUEUE_SHARED) == entry->shared && got->place == entry->place, "%c", seed,
           letter(entry->who));
    EXPECT(got->priority == entry->priority && bytes_are(got->note, notes[entry->note]), "%c", seed,
           letter(entry->who));
}

static void compare_queue(struct model_queue *q) {
    Pb__QueueRequest request = PB__QUEUE_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name_of(q);
    struct query_result result = fixture_ask(&world, one_of(q, &query_lock, &query_election), &request.base);
    const Pb__QueueView *view = (const Pb__QueueView *)result.message;
    EXPECT(result.index == q->changed, "%s: %lu, not %lu", seed, name_of(q), result.index, q->changed);
    EXPECT(view->n_holders == model_holders(q) && view->n_waiters == model_waiters(q), "%s", seed, name_of(q));
    EXPECT(view->queue->holders == view->n_holders && view->queue->waiters == view->n_waiters, "%s", seed, name_of(q));
    EXPECT(view->queue->delays == q->delay_count && view->queue->limit == (q->count ? q->limit : view->queue->limit),
           "%s", seed, name_of(q));
    for (unsigned i = 0; i < q->count; i++)
        compare_record(i < view->n_holders ? view->holders[i] : view->waiters[i - view->n_holders], &q->in[i]);
    EXPECT(!view->n_waiters || view->n_holders || view->queue->delays, "%s: somebody waits for what is free", seed,
           name_of(q));
    if (!is_election(q)) return;
    result = fixture_ask(&world, &query_election_leader, &request.base);
    view = (const Pb__QueueView *)result.message;
    EXPECT(result.index == q->holder_changed && view->n_holders == model_holders(q) && view->n_waiters == 0,
           "%s: %lu, not %lu", seed, name_of(q), result.index, q->holder_changed);
}

static void compare_entry(struct model_queue *q, uint64_t who) {
    const struct model_entry *entry = model_find(q, who);
    struct answer got =
        queue_entry_of(&world, one_of(q, &query_lock_entry, &query_election_entry), name_of(q), letter(who));
    EXPECT(got.yes == (entry != NULL), "%s, session %c", seed, name_of(q), letter(who));
    EXPECT(got.index == (!entry         ? q->changed
                         : entry->token ? entry->token
                                        : entry->place),
           "%s, session %c", seed, name_of(q), letter(who));
    if (entry)
        EXPECT(got.token == entry->token && got.position == model_position(q, entry), "%s, session %c", seed,
               name_of(q), letter(who));
}

static void compare_lists(void) {
    static const char *const prefixes[] = {"", "l", "l/", "x"};
    for (unsigned i = 0; i < 2 * ARRAY_COUNT(prefixes); i++) {
        const char *prefix = prefixes[i / 2];
        bool election = i % 2;
        uint64_t index = 0;
        size_t count = 0;
        for (unsigned n = 0; n < QUEUES; n++) {
            const struct model_queue *q = &queues[n];
            if (is_election(q) != election || strncmp(name_of(q), prefix, strlen(prefix)) != 0) continue;
            if (q->changed > index) index = q->changed;
            count += q->count || q->delay_count;
        }
        Pb__QueueListRequest request = PB__QUEUE_LIST_REQUEST__INIT;
        request.prefix = (char *)(uintptr_t)prefix;
        struct query_result result = fixture_ask(&world, election ? &query_elections : &query_locks, &request.base);
        EXPECT(result.index == index && ((const Pb__QueueListResult *)result.message)->n_queues == count, "\"%s\"",
               seed, prefix);
    }
}

static void run(uint64_t number) {
    seed = number;
    rng_seed(&rng, seed);
    memset(queues, 0, sizeof queues);
    memset(sessions, 0, sizeof sessions), memset(nodes, 0, sizeof nodes);
    memset(before, 0, sizeof before);
    memset(changed_before, 0, sizeof changed_before), memset(holder_before, 0, sizeof holder_before);
    fixture_open(&world);
    fixture_found(&world);
    watchers_add();
    for (unsigned i = 0; i < STEPS; i++) {
        step();
        compare_woken();
        for (unsigned n = 0; n < 2; n++) compare_queue(&queues[below(QUEUES)]);
        compare_entry(&queues[below(QUEUES)], 1 + below(SESSIONS));
        if (i % 50 == 0) compare_lists();
        if (i % 1000 != 999) continue;
        for (unsigned n = 0; n < QUEUES; n++) compare_queue(&queues[n]);
        (void)fixture_sum(&world);
        watchers_remove();
        fixture_reopen(&world);
        watchers_add();
    }
    watchers_remove();
    fixture_close(&world);
}

Test(lock_model, random_commands, .timeout = 300) {
    const char *chosen = getenv("COORD_SEED");
    if (chosen) {
        run(strtoull(chosen, NULL, 10));
        return;
    }
    for (uint64_t i = 1; i <= SEEDS; i++) run(i);
    for (unsigned i = 0; i < ARRAY_COUNT(verdicts); i++)
        cr_expect_gt(verdicts[i], 100, "verdict %u is rare: %u", i, verdicts[i]);
    cr_expect(shared_tokens > 100 && releases[0] > 100 && releases[1] > 100 && delays_over > 100, "%u %u %u %u",
              shared_tokens, releases[0], releases[1], delays_over);
}
