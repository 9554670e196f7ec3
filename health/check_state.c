#include "health/check_state.h"

#include <stdlib.h>

#include "base/boot.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "registry/fold.h"

#define HEAD     "coord check states 1\n"
#define LONG_AGO (INT64_MIN / 4)

_Static_assert(sizeof(struct check_state) == CHECK_STATE_SIZE, "slots of the file");
_Static_assert(sizeof HEAD - 1 + BOOT_ID_SIZE > CHECK_STATE_SIZE, "the id is cut where the head ends");

struct check_states {
    char head[CHECK_STATE_SIZE];
    struct check_state
        *slots; /* as the file has them; those read first stand sorted by key until check_states_settle */
    size_t count, capacity, read;
    bool *claimed;  /* of those read */
    size_t *vacant; /* stack of slots without a check */
    size_t vacant_count, vacant_capacity;
    size_t dirty_first, dirty_end; /* slots; equal: none */
    bool urgent;
};

struct check_moment check_moment_now(void) {
    return (struct check_moment){clock_mono_ns(), clock_boot_ns(), clock_wall_ns()};
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
static uint64_t sum_of(const struct check_state *state) { return hash64(state, offsetof(struct check_state, sum)); }

static int by_key(const void *a, const void *b) {
    return memcmp(((const struct check_state *)a)->key, ((const struct check_state *)b)->key,
                  sizeof((struct check_state *)a)->key);
}

/* The state is from an earlier start of the machine, so the wall clock has to tell how old its report is. The time
 * since when the check is critical is dropped, because a service that was down with the machine gets its whole time
 * again before it is deregistered. */
static void convert(struct check_state *state, struct check_moment now) {
    int64_t passed = now.wall_ns - state->told_wall_ns, up = (int64_t)now.boot_ns;
    state->reported_ns = passed < 0 ? LONG_AGO : passed > up ? up - passed : 0;
    state->critical_ns = CHECK_STATE_NO_TIME;
    state->successes = state->failures = 0;
    state->sum = sum_of(state);
}

/* An agent that was killed while it started may have left two slots of one check; the one that was reported last
 * stays. */
static void keep_newest(struct check_states *states) {
    size_t kept = 0;
    for (size_t i = 0; i < states->count; i++) {
        const struct check_state *state = &states->slots[i];
        if (kept && by_key(state, &states->slots[kept - 1]) == 0) {
            if (state->reported_ns > states->slots[kept - 1].reported_ns) states->slots[kept - 1] = *state;
        } else states->slots[kept++] = *state;
    }
    states->count = kept;
}

static void read_slots(struct check_states *states, struct slice file, struct check_moment now) {
    bool same_boot = memcmp(file.data, states->head, CHECK_STATE_SIZE) == 0 && states->head[sizeof HEAD - 1];
    size_t most = file.size / CHECK_STATE_SIZE - 1;
    states->slots = mem_alloc((most + 1) * sizeof *states->slots);
    states->capacity = most + 1;
    for (size_t i = 1; i <= most; i++) {
        struct check_state state;
        memcpy(&state, file.data + i * CHECK_STATE_SIZE, sizeof state);
        if (state.sum != sum_of(&state) || state.status > PB__STATUS__CRITICAL) continue;
        if (!same_boot) convert(&state, now);
        states->slots[states->count++] = state;
    }
    if (states->count) qsort(states->slots, states->count, sizeof *states->slots, by_key);
    keep_newest(states);
    states->read = states->dirty_end = states->count; /* all are dirty, because their order differs from the file's */
    states->claimed = mem_zalloc((states->read + 1) * sizeof *states->claimed);
}

struct check_states *check_states_new(struct slice file, const char *boot_id, struct check_moment now) {
    struct check_states *states = mem_zalloc(sizeof *states);
    size_t size = sizeof HEAD - 1;
    memcpy(states->head, HEAD, size);
    memcpy(states->head + size, boot_id, strnlen(boot_id, sizeof states->head - size));
    if (file.size >= CHECK_STATE_SIZE && memcmp(file.data, HEAD, size) == 0) read_slots(states, file, now);
    return states;
}

void check_states_free(struct check_states *states) {
    if (!states) return;
    free(states->slots);
    free(states->claimed);
    free(states->vacant);
    free(states);
}

/* -- slots -------------------------------------------------------------------------------------------------------- */
static void touch(struct check_states *states, size_t slot) {
    bool none = states->dirty_first == states->dirty_end;
    if (none || slot < states->dirty_first) states->dirty_first = slot;
    if (none || slot >= states->dirty_end) states->dirty_end = slot + 1;
}

static void key_of(const char *check_id, uint8_t key[16]) {
    struct fold_name name;
    fold_name_of(&name, slice_text(check_id));
    hash128(name.folded.data, name.folded.size, key);
    fold_name_free(&name);
}

size_t check_states_claim(struct check_states *states, const char *check_id) {
    struct check_state wanted;
    if (!states->claimed || !states->read) return CHECK_STATE_NONE;
    key_of(check_id, wanted.key);
    struct check_state *found = bsearch(&wanted, states->slots, states->read, sizeof wanted, by_key);
    if (!found || states->claimed[found - states->slots]) return CHECK_STATE_NONE;
    states->claimed[found - states->slots] = true;
    return (size_t)(found - states->slots);
}

static void vacate(struct check_states *states, size_t slot) {
    if (states->vacant_count == states->vacant_capacity) {
        states->vacant_capacity = states->vacant_capacity ? states->vacant_capacity * 2 : 16;
        states->vacant = mem_realloc(states->vacant, states->vacant_capacity * sizeof *states->vacant);
    }
    states->vacant[states->vacant_count++] = slot;
    states->slots[slot] = (struct check_state){0};
    touch(states, slot);
}

void check_states_settle(struct check_states *states) {
    for (size_t i = 0; states->claimed && i < states->read; i++)
        if (!states->claimed[i]) vacate(states, i);
    free(states->claimed);
    states->claimed = NULL;
}

static size_t take(struct check_states *states) {
    if (states->vacant_count) return states->vacant[--states->vacant_count];
    if (states->count == states->capacity) {
        states->capacity = states->capacity ? states->capacity * 2 : 16;
        states->slots = mem_realloc(states->slots, states->capacity * sizeof *states->slots);
    }
    return states->count++;
}

void check_states_drop(struct check_states *states, size_t *slot) {
    if (*slot == CHECK_STATE_NONE) return;
    /* The slots that were read have to stay sorted by key until check_states_settle, which vacates this one. */
    if (states->claimed && *slot < states->read) states->claimed[*slot] = false;
    else vacate(states, *slot);
    *slot = CHECK_STATE_NONE;
}

/* -- states ------------------------------------------------------------------------------------------------------- */
static uint64_t age_of(int64_t then_ns, struct check_moment now) {
    int64_t age = (int64_t)now.boot_ns - then_ns;
    return age < 0 ? CHECK_AGE_UNKNOWN : (uint64_t)age;
}

void check_states_resume(const struct check_states *states, size_t slot, struct check *check,
                         const struct check_definition *definition, struct check_moment now) {
    const struct check_state *state = &states->slots[slot];
    if (definition->kind == CHECK_TTL)
        check_resume(check, definition, (Pb__Status)state->status, age_of(state->reported_ns, now), now.mono_ns);
    check->successes = state->successes;
    check->failures = state->failures;
    if (state->critical_ns != CHECK_STATE_NO_TIME && check->flap.said == PB__STATUS__CRITICAL)
        check_critical_since(check, definition, age_of(state->critical_ns, now), now.mono_ns);
}

static uint32_t at_most(uint64_t count, uint32_t most) { return count < most ? (uint32_t)count : most; }

/* The other checks need no slot, because their next result tells their whole state. */
static bool is_remembered(const struct check_definition *definition) {
    return definition->kind == CHECK_TTL || definition->success_before_passing > 1 ||
           definition->failures_before_critical > 1 || definition->deregister_after_ns > 0;
}

void check_states_note(struct check_states *states, size_t *slot, const char *check_id, const struct check *check,
                       const struct check_definition *definition, bool told, struct check_moment now) {
    if (!is_remembered(definition)) {
        check_states_drop(states, slot);
        return;
    }
    bool made = *slot == CHECK_STATE_NONE;
    if (made) *slot = take(states);
    struct check_state *state = &states->slots[*slot], before = *state;
    if (made) {
        before = *state = (struct check_state){.reported_ns = LONG_AGO};
        key_of(check_id, state->key);
    }
    if (told) {
        state->reported_ns = (int64_t)now.boot_ns;
        state->told_wall_ns = now.wall_ns;
    }
    state->status = (uint8_t)check->flap.said;
    state->successes = at_most(check->successes, definition->success_before_passing);
    state->failures = at_most(check->failures, definition->failures_before_critical);
    if (check->critical_since_ns == CHECK_NEVER) state->critical_ns = CHECK_STATE_NO_TIME;
    else if (made || before.critical_ns == CHECK_STATE_NO_TIME) state->critical_ns = (int64_t)now.boot_ns;
    if (!made && memcmp(state, &before, offsetof(struct check_state, sum)) == 0) return;
    state->sum = sum_of(state);
    states->urgent |= made || state->status != before.status;
    touch(states, *slot);
}

/* -- writing ------------------------------------------------------------------------------------------------------ */
bool check_states_dirty(const struct check_states *states, bool *urgent) {
    *urgent = states->urgent;
    return states->dirty_first != states->dirty_end;
}

bool check_states_gather(struct check_states *states, bool whole, struct buffer *bytes, uint64_t *at) {
    size_t first = whole ? 0 : states->dirty_first, end = whole ? states->count : states->dirty_end;
    *at = whole ? 0 : (first + 1) * CHECK_STATE_SIZE;
    if (end == first) return false;
    if (whole) buffer_append(bytes, states->head, sizeof states->head);
    buffer_append(bytes, (const char *)(states->slots + first), (end - first) * CHECK_STATE_SIZE);
    states->dirty_first = states->dirty_end = 0;
    states->urgent = false;
    return true;
}
