/* Thousands of random lives of a log on a disk that loses, tears and fails: whatever was acknowledged is there
 * afterwards, and what was on its way is there in part, in order, or not at all. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "tests/consensus/wal_help.h"
#include "tests/lib/fake_disk.h"

#define STATES_MAX 16

struct life {
    uint64_t seed;
    struct rng rng;
    struct fake_disk *fake;
    struct wal_config config;
    struct wal *wal;
    struct model *model;              /* what was acknowledged */
    struct model *states[STATES_MAX]; /* what may be found after an operation that failed: each step of it */
    size_t state_count;
    uint64_t snapshot; /* entries up to here are in it */
    unsigned crashes, appended;
};

static void life_begin(struct life *life, uint64_t seed) {
    *life = (struct life){.seed = seed};
    rng_seed(&life->rng, seed);
    life->fake = fake_disk_new(rng_next(&life->rng));
    life->config.first_segment_bytes = 1024u << rng_below(&life->rng, 4);
    life->config.segment_bytes = 4096u << rng_below(&life->rng, 4);
    life->config.reserve_bytes = 4096;
    life->config.log_id = seed + 1;
    life->model = mem_alloc(sizeof *life->model);
    model_init(life->model);
    for (size_t i = 0; i < STATES_MAX; i++) life->states[i] = mem_alloc(sizeof *life->states[i]);
    if (rng_below(&life->rng, 4) == 0) fake_disk_set_capacity(life->fake, 65536 + rng_below(&life->rng, 131072));
}

static void life_end(struct life *life) {
    wal_close(life->wal);
    fake_disk_free(life->fake);
    free(life->model);
    for (size_t i = 0; i < STATES_MAX; i++) free(life->states[i]);
}

#define life_assert(life, condition, ...)                                                  \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "seed %llu: ", (unsigned long long)(life)->seed);              \
            fprintf(stderr, __VA_ARGS__);                                                  \
            fputc('\n', stderr);                                                           \
            cr_assert_fail("seed %llu: %s", (unsigned long long)(life)->seed, #condition); \
        }                                                                                  \
    } while (0)

static struct model *state_add(struct life *life, const struct model *before) {
    CHECK(life->state_count < STATES_MAX);
    struct model *state = life->states[life->state_count++];
    *state = *before;
    return state;
}

static void check_reads(struct life *life) {
    const struct model *model = life->model;
    life_assert(life, wal_last_index(life->wal) == model->last, "last index");
    uint64_t first = wal_first_index(life->wal);
    life_assert(life, first <= model->last + 1 && first <= life->snapshot + 1, "first index %llu, snapshot %llu",
                (unsigned long long)first, (unsigned long long)life->snapshot);
    if (first > model->last) return;
    uint64_t from = rng_between(&life->rng, first, model->last), to = rng_between(&life->rng, from, model->last);
    struct raft_entry *entries;
    size_t count, bytes = 0, bytes_max = rng_below(&life->rng, 20000);
    int rv = wal_read(life->wal, from, to, bytes_max, &entries, &count);
    life_assert(life, rv == CO_OK && count >= 1, "read %llu to %llu: %s", (unsigned long long)from,
                (unsigned long long)to, co_strerror(rv));
    for (size_t i = 0; i < count; i++) {
        struct raft_entry wanted = model_entry(model, from + i);
        life_assert(life, entry_same(&wanted, &entries[i]), "entry %llu read again", (unsigned long long)(from + i));
        raft_data_unref(wanted.data);
        bytes += raft_entry_bytes(&entries[i]).size;
    }
    life_assert(life, count <= to - from + 1 && (count == 1 || bytes <= bytes_max), "read too much");
    bool full = count < to - from + 1;
    life_assert(life, !full || bytes >= bytes_max || bytes + model->entries[from + count - 1].size > bytes_max,
                "read too little");
    entries_free(entries, count);
}

/* -- operations: each returns what the log said, with the states that it may have left in `states` -- */

static int do_append(struct life *life) {
    struct wal_batch batches[4] = {{0}};
    size_t count = rng_between(&life->rng, 1, 4);
    const struct model *before = life->model;
    for (size_t i = 0; i < count; i++) {
        struct wal_batch *batch = &batches[i];
        struct model *state = state_add(life, before);
        if (rng_below(&life->rng, 3) == 0) {
            batch->hard_state = true;
            batch->term = state->term += rng_below(&life->rng, 3);
            batch->vote = state->vote = rng_below(&life->rng, 5);
            state = state_add(life, state);
        }
        if (rng_below(&life->rng, 5) == 0) {
            batch->truncate_from = rng_between(&life->rng, life->snapshot + 1, state->last + 1);
            model_truncate(state, batch->truncate_from);
            state = state_add(life, state);
        }
        uint64_t term = state->last > life->snapshot ? state->entries[state->last - 1].term : 1;
        if (term < state->term) term = state->term;
        uint32_t size_max = rng_below(&life->rng, 10) == 0 ? 6000 : 300;
        struct raft_entry *entries;
        batch->entry_count = rng_below(&life->rng, 6);
        model_append(state, batch->entry_count, term, size_max, &life->rng, &entries);
        batch->entries = entries;
        before = state;
    }
    int rv = wal_append(life->wal, batches, count, NULL);
    for (size_t i = 0; i < count; i++) entries_free((struct raft_entry *)batches[i].entries, batches[i].entry_count);
    if (rv == CO_OK) *life->model = *before;
    return rv;
}

static int do_reset(struct life *life) {
    uint64_t index = rng_between(&life->rng, life->snapshot, life->model->last + 5);
    if (index == 0 || index > MODEL_ENTRIES_MAX) return CO_OK;
    model_reset(state_add(life, life->model), index);
    uint64_t before = life->snapshot;
    life->snapshot = index; /* the snapshot is there first */
    int rv = wal_reset(life->wal, index, NULL);
    if (rv == CO_OK) *life->model = *life->states[0];
    if (rv == CO_DISKFULL) life->snapshot = before; /* given up */
    return rv;
}

static int do_drop(struct life *life) {
    if (life->model->last > life->snapshot) life->snapshot = rng_between(&life->rng, life->snapshot, life->model->last);
    int rv;
    do rv = wal_drop(life->wal, life->snapshot);
    while (rv == CO_AGAIN);
    return rv;
}

static int do_something(struct life *life) {
    life->state_count = 0;
    uint64_t what = rng_below(&life->rng, 100);
    if (what < 70) {
        life->appended++;
        return do_append(life);
    }
    if (what < 85) {
        int rv = wal_prepare(life->wal);
        return rv == CO_AGAIN || rv == CO_DISKFULL ? CO_OK : rv;
    }
    return what < 97 ? do_drop(life) : do_reset(life);
}

/* -- crashes -- */

static bool is_a_state(struct life *life, const struct wal_recovered *recovered) {
    if (model_recovered(life->model, life->snapshot, recovered)) return true;
    for (size_t i = 0; i < life->state_count; i++) {
        if (!model_recovered(life->states[i], life->snapshot, recovered)) continue;
        *life->model = *life->states[i];
        return true;
    }
    return false;
}

static void reopen(struct life *life, bool power_loss) {
    struct wal_recovered recovered;
    struct fault fault = {0};
    for (int tries = 0;; tries++) {
        if (rng_below(&life->rng, 4) == 0) fake_disk_halt_after(life->fake, rng_between(&life->rng, 1, 8));
        int rv = wal_open(fake_disk_disk(life->fake), &life->config, life->snapshot, &life->wal, &recovered, &fault);
        if (rv == CO_OK) break;
        life_assert(life, (rv == CO_DISKFULL || rv == CO_IO) && tries < 100, "opening: %s", fault.text);
        if (rv == CO_DISKFULL) fake_disk_set_capacity(life->fake, fake_disk_used(life->fake) + 65536);
        if (fake_disk_halted(life->fake) || rng_below(&life->rng, 2) == 0)
            fake_disk_crash(life->fake, power_loss ? FAKE_POWER_LOSS : FAKE_KILL);
        fault = (struct fault){0};
    }
    fake_disk_halt_after(life->fake, 0);
    life_assert(life, is_a_state(life, &recovered),
                "recovered term %llu vote %llu entries %llu to %llu (%zu), acknowledged term %llu vote %llu "
                "last %llu",
                (unsigned long long)recovered.term, (unsigned long long)recovered.vote,
                (unsigned long long)recovered.first_index, (unsigned long long)recovered.last_index,
                recovered.entry_count, (unsigned long long)life->model->term, (unsigned long long)life->model->vote,
                (unsigned long long)life->model->last);
    wal_recovered_free(&recovered);
    life->state_count = 0;
    check_reads(life);
}

/* The log failed, or the power goes while all is well. */
static void crash(struct life *life) {
    life->crashes++;
    bool power_loss = rng_below(&life->rng, 3) > 0, stays = !power_loss && rng_below(&life->rng, 2) == 0;
    if (stays && !fake_disk_halted(life->fake)) {
        wal_close(life->wal); /* the process only opens it again */
    } else {
        struct wal *dead = life->wal;
        fake_disk_crash(life->fake, power_loss ? FAKE_POWER_LOSS : FAKE_KILL);
        fake_disk_halt_after(life->fake, 1); /* what closing does is not to reach the disk */
        wal_close(dead);
        fake_disk_crash(life->fake, FAKE_KILL);
    }
    life->wal = NULL;
    reopen(life, power_loss);
}

static void set_a_trap(struct life *life) {
    static const int errors[] = {CO_IO, CO_DISKFULL};
    static const unsigned ops[] = {FAKE_WRITE,  FAKE_SYNC,        FAKE_ALLOCATE,  FAKE_RENAME,
                                   FAKE_REMOVE, FAKE_SYNC_FOLDER, FAKE_ANY_CHANGE};
    if (rng_below(&life->rng, 3) > 0) fake_disk_halt_after(life->fake, rng_between(&life->rng, 1, 60));
    else
        fake_disk_fail(life->fake, ops[rng_below(&life->rng, ARRAY_COUNT(ops))], rng_between(&life->rng, 1, 20),
                       errors[rng_below(&life->rng, 2)]);
}

static void live(uint64_t seed, unsigned *crashes, unsigned *appended) {
    struct life life;
    life_begin(&life, seed);
    reopen(&life, true);
    for (int round = 0; round < 6 && life.model->last < MODEL_ENTRIES_MAX - 400; round++) {
        set_a_trap(&life);
        for (int i = 0; i < 40 && life.model->last < MODEL_ENTRIES_MAX - 100; i++) {
            int rv = do_something(&life);
            if (rv == CO_DISKFULL && !fake_disk_halted(life.fake)) { /* usable, and nothing has changed */
                life.state_count = 0;
                check_reads(&life);
                if (rng_below(&life.rng, 2) == 0)
                    fake_disk_set_capacity(life.fake, fake_disk_used(life.fake) + rng_below(&life.rng, 100000));
            } else if (rv != CO_OK) {
                break;
            } else if (rng_below(&life.rng, 8) == 0 && !fake_disk_halted(life.fake)) {
                check_reads(&life);
            }
        }
        crash(&life);
    }
    *crashes += life.crashes;
    *appended += life.appended;
    life_end(&life);
}

static void lives(uint64_t from, uint64_t count) {
    unsigned crashes = 0, appended = 0;
    const char *one = getenv("WAL_SEED"), *many = getenv("WAL_LIVES"); /* to see one again; to look for more */
    if (many) count = strtoull(many, NULL, 10);
    if (one) from = strtoull(one, NULL, 10), count = 1;
    for (uint64_t i = 0; i < count; i++) live(from + i, &crashes, &appended);
    cr_assert(crashes >= count * 3 && appended >= count * 20);
    fprintf(stderr, "%llu lives: %u crashes, %u appends\n", (unsigned long long)count, crashes, appended);
}

Test(wal_random, whatever_was_acknowledged_is_there) { lives(1, 3000); }
