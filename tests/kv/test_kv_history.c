/* Keys as they were, and how they changed, against what the queries of the present said at each index. A failure names
 * its seed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/random.h"
#include "leases.h"
#include "registry/history.h"
#include "tests/lib/open_to_all.h"

enum { KEYS = 22, PREFIXES = 6, STEPS = 240, SESSIONS = 4, LEASES = 3, SEEDS = 8, INDEXES = 1200 };

/* A command that writes a key and deletes it again: one entry may hold several of other modules. */
enum { COME_AND_GO = 200 };
static int come_and_go(struct machine_tx *tx, struct slice payload, struct machine_result *result) {
    char *name = arena_strndup(tx->arena, payload.data, payload.size);
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    struct buffer bytes = {0};
    command.key = (ProtobufCBinaryData){payload.size, (uint8_t *)name};
    int rv = CO_OK;
    for (unsigned i = 0; i < 2 && rv == CO_OK; i++) {
        command.verb = i ? PB__KV_VERB__KV_DELETE : PB__KV_VERB__KV_SET;
        buffer_reset(&bytes);
        machine_command(&bytes, KV_APPLY, &command.base);
        rv = machine_apply_command(tx, buffer_slice(&bytes), result);
    }
    buffer_free(&bytes);
    return rv;
}
static const struct module_command more_commands[] = {
    {.number = COME_AND_GO, .name = "come-and-go", .may = open_may, .apply_bytes = come_and_go}, {0}};
static const struct module more = {.name = "more", .commands = more_commands};

static struct fixture world;
static struct rng rng;
static uint64_t seed;
static char *key_names[KEYS], *prefixes[PREFIXES];
static char session_ids[SESSIONS][UUID_TEXT_SIZE + 1], lease_ids[LEASES][UUID_TEXT_SIZE + 1];

/* -- the model: what was there at each index ---------------------------------------------------------------------- */

struct state {
    struct was {
        bool there;
        char value[24], session[UUID_TEXT_SIZE + 1];
        uint64_t flags, modify;
    } keys[KEYS];
    struct buffer lists[PREFIXES], names[PREFIXES]; /* results, packed */
    bool found[PREFIXES];
    uint8_t command;  /* by which it became so */
    uint64_t unix_ms; /* of the entry: the highest clock of a leader so far */
};
static struct state *states; /* by index */
static uint64_t began;       /* the first index that the model knows */

static char *repeated(const char *head, size_t size, const char *tail) {
    char *text = mem_alloc(size + 1);
    memset(text, 'x', size);
    memcpy(text, head, strlen(head)), memcpy(text + size - strlen(tail), tail, strlen(tail));
    text[size] = '\0';
    return text;
}

/* Long ones share their beginnings, of 400 bytes and more. */
static void name_keys(void) {
    static const char *const plain[] = {"a", "a/", "a/b", "a/b/c", "a/c", "ab", "b", "l", "\x01", "\xff\xfe", "m/1/2"};
    static const size_t sizes[] = {399, 400, 401, 416, 700, 8192};
    unsigned n = 0;
    for (; n < ARRAY_COUNT(plain); n++) key_names[n] = mem_strdup(plain[n]);
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++) key_names[n++] = repeated("l", sizes[i], "");
    for (unsigned i = 0; n < KEYS; i++) key_names[n++] = repeated("l/", 500 + i, i % 2 ? "/b" : "c");
    static const char *const heads[PREFIXES] = {"", "a/", "l", "none"};
    for (unsigned i = 0; i < 4; i++) prefixes[i] = mem_strdup(heads[i]);
    prefixes[4] = repeated("l", 430, ""), prefixes[5] = repeated("l/", 405, "");
}

static void pack_on(struct buffer *out, const ProtobufCMessage *message) {
    buffer_reset(out);
    size_t size = message ? protobuf_c_message_get_packed_size(message) : 0;
    buffer_reserve(out, size + 1);
    if (message) protobuf_c_message_pack(message, (uint8_t *)out->data);
    out->size = size;
}

static unsigned key_number(ProtobufCBinaryData name) {
    for (unsigned i = 0; i < KEYS; i++)
        if (bytes_are(name, key_names[i])) return i;
    UNREACHABLE();
}

/* Reads the present state by the queries of the present. */
static void look(uint8_t command) {
    uint64_t index = machine_index(world.machine);
    struct state *state = &states[index];
    cr_assert_lt(index, INDEXES);
    state->command = command;
    state->unix_ms = index > began ? states[index - 1].unix_ms : 0;
    if (state->unix_ms < world.unix_ms) state->unix_ms = world.unix_ms;
    memset(state->keys, 0, sizeof state->keys);
    struct query_result result = kv_list(&world, "");
    const Pb__KvEntriesResult *list = (const Pb__KvEntriesResult *)result.message;
    for (size_t i = 0; list && i < list->n_entries; i++) {
        const Pb__KvEntry *entry = list->entries[i];
        struct was *was = &state->keys[key_number(entry->key)];
        *was = (struct was){.there = true, .flags = entry->flags, .modify = entry->modify_index};
        snprintf(was->value, sizeof was->value, "%.*s", (int)entry->value.len, (const char *)entry->value.data);
        snprintf(was->session, sizeof was->session, "%s", entry->session);
    }
    for (unsigned i = 0; i < PREFIXES; i++) {
        result = kv_list(&world, prefixes[i]);
        state->found[i] = result.found;
        pack_on(&state->lists[i], result.found ? result.message : NULL);
        result = kv_keys(&world, prefixes[i], "/");
        pack_on(&state->names[i], result.found ? result.message : NULL);
    }
}

/* -- random commands ---------------------------------------------------------------------------------------------- */

static uint64_t number_below(uint64_t limit) { return rng_below(&rng, limit); }

static void kv_random(void) {
    static unsigned turn;
    const char *key = key_names[number_below(KEYS)], *session = session_ids[number_below(SESSIONS)];
    char value[24];
    snprintf(value, sizeof value, "%s%u", number_below(5) ? "v" : "", turn++);
    if (number_below(6) == 0) value[0] = '\0';
    switch (number_below(12)) {
        case 0: kv_del(&world, key); break;
        case 1: kv_del_tree(&world, prefixes[1 + number_below(PREFIXES - 1)]); break;
        case 2: {
            struct query_result now = kv_get(&world, key);
            kv_cas(&world, key, value, now.found ? entry_of(&now)->modify_index - number_below(2) : 0);
            break;
        }
        case 3: kv_del_cas(&world, key, number_below(2)); break;
        case 4:
        case 5:
        case 6: kv_acquire(&world, key, value, session); break;
        case 7: kv_release(&world, key, value, session); break;
        case 8: kv_put_leased(&world, key, value, lease_ids[number_below(LEASES)]); break;
        default: kv_do(&world, PB__KV_VERB__KV_SET, key, value, number_below(3), NULL);
    }
    look(KV_APPLY);
}

static void owner_random(void) {
    unsigned session = (unsigned)number_below(SESSIONS), lease = (unsigned)number_below(LEASES);
    switch (number_below(4)) {
        case 0: session_drop(&world, session_ids[session]); break;
        case 1: {
            struct session_plan plan = {.node = "n1", .delete_keys = session % 2};
            session_make(&world, session_ids[session], &plan);
            break;
        }
        case 2: lease_revoke(&world, lease_ids[lease]); break;
        default: lease_grant(&world, lease_ids[lease], NULL, 0);
    }
    look(SESSION_CREATE);
}

static void nested_random(void) {
    struct buffer bytes = {0};
    const char *key = key_names[number_below(KEYS)];
    buffer_printf(&bytes, "%c\x01%s", COME_AND_GO, key);
    cr_assert(fixture_apply_bytes(&world, buffer_slice(&bytes)).yes);
    buffer_free(&bytes);
    look(COME_AND_GO);
}

static void limit_to(uint64_t changes) {
    Pb__HistoryMarkCommand command = PB__HISTORY_MARK_COMMAND__INIT;
    Pb__HistoryLimits limits = PB__HISTORY_LIMITS__INIT;
    command.term = world.term, command.now_unix_ms = 1000, command.limits = &limits;
    limits.changes = changes, limits.bytes = 1 << 30, limits.age_ms = 1000000;
    cr_assert(fixture_apply(&world, HISTORY_MARK, &command.base).yes);
    look(HISTORY_MARK);
}

/* -- asking the past ---------------------------------------------------------------------------------------------- */

static const Pb__KvPastResult *ask_moment(const char *key, Pb__KvPastForm form, Pb__KvMoment moment, bool *found) {
    Pb__KvPastRequest request = PB__KV_PAST_REQUEST__INIT;
    request.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)(uintptr_t)key};
    request.form = form, request.at = &moment;
    if (form == PB__KV_PAST_FORM__PAST_KEYS) request.separator = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t) "/"};
    struct query_result result = fixture_ask(&world, &query_kv_past, &request.base);
    *found = result.found;
    return (const Pb__KvPastResult *)result.message;
}

static const Pb__KvPastResult *ask(const char *key, Pb__KvPastForm form, uint64_t at, bool *found) {
    Pb__KvMoment moment = PB__KV_MOMENT__INIT;
    moment.index = at;
    return ask_moment(key, form, moment, found);
}

/* The state as of a time is that of the newest entry not after it. */
static void check_time(uint64_t floor, uint64_t unix_ms) {
    bool found;
    uint64_t last = machine_index(world.machine), at = last;
    Pb__KvMoment moment = PB__KV_MOMENT__INIT;
    moment.unix_ms = unix_ms, moment.now_unix_ms = number_below(2) ? unix_ms : 0;
    while (at > floor && states[at].unix_ms > unix_ms) at--;
    for (unsigned key = 0; key < KEYS; key += 5) {
        const Pb__KvPastResult *past = ask_moment(key_names[key], PB__KV_PAST_FORM__PAST_ENTRY, moment, &found);
        bool gone = unix_ms < states[floor].unix_ms;
        bool to_come = unix_ms > states[last].unix_ms && moment.now_unix_ms < unix_ms;
        cr_assert_eq(past->verdict,
                     gone      ? PB__KV_MOMENT_VERDICT__MOMENT_GONE
                     : to_come ? PB__KV_MOMENT_VERDICT__MOMENT_TO_COME
                               : PB__KV_MOMENT_VERDICT__MOMENT_KEPT,
                     "seed %lu: time %lu, floor %lu, last %lu", seed, unix_ms, states[floor].unix_ms,
                     states[last].unix_ms);
        cr_assert(past->floor == floor && past->floor_unix_ms == states[floor].unix_ms);
        cr_assert(past->index == last && past->unix_ms == states[last].unix_ms);
        if (gone || to_come) continue;
        cr_assert(past->at >= floor && past->at <= at && states[past->at].unix_ms <= unix_ms,
                  "seed %lu: time %lu is index %lu", seed, unix_ms, past->at);
        cr_assert_eq(found, states[at].keys[key].there, "seed %lu: key %u at time %lu", seed, key, unix_ms);
        if (found) cr_assert_eq(past->entries[0]->modify_index, states[at].keys[key].modify);
    }
}

static void check_entry(unsigned key, uint64_t at) {
    const struct was *was = &states[at].keys[key];
    bool found;
    const Pb__KvPastResult *past = ask(key_names[key], PB__KV_PAST_FORM__PAST_ENTRY, at, &found);
    cr_assert_eq(found, was->there, "seed %lu: key %u at %lu", seed, key, at);
    cr_assert_eq(past->n_entries, found);
    if (!found) return;
    const Pb__KvEntry *entry = past->entries[0];
    cr_assert(bytes_are(entry->key, key_names[key]) && bytes_are(entry->value, was->value));
    cr_assert(entry->flags == was->flags && entry->modify_index == was->modify);
    cr_assert_str_eq(entry->session, was->session, "seed %lu: key %u at %lu", seed, key, at);
}

static void check_lists(uint64_t at) {
    struct buffer packed = {0};
    for (unsigned i = 0; i < PREFIXES; i++) {
        bool found;
        const Pb__KvPastResult *past = ask(prefixes[i], PB__KV_PAST_FORM__PAST_ENTRIES, at, &found);
        Pb__KvEntriesResult list = PB__KV_ENTRIES_RESULT__INIT;
        list.n_entries = past->n_entries, list.entries = past->entries;
        pack_on(&packed, &list.base);
        cr_assert_eq(found, states[at].found[i], "seed %lu: prefix %u at %lu", seed, i, at);
        cr_assert(slice_equal(buffer_slice(&packed), buffer_slice(&states[at].lists[i])), "seed %lu: prefix %u at %lu",
                  seed, i, at);
        past = ask(prefixes[i], PB__KV_PAST_FORM__PAST_KEYS, at, &found);
        Pb__KvKeysResult names = PB__KV_KEYS_RESULT__INIT;
        names.n_keys = past->n_keys, names.keys = past->keys;
        pack_on(&packed, &names.base);
        cr_assert(slice_equal(buffer_slice(&packed), buffer_slice(&states[at].names[i])), "seed %lu: prefix %u at %lu",
                  seed, i, at);
    }
    buffer_free(&packed);
}

/* By what stood there before and after. False: nothing changed. */
static bool change_at(unsigned key, uint64_t index, struct was *shown, Pb__KvChangeKind *kind) {
    const struct was *before = &states[index - 1].keys[key], *after = &states[index].keys[key];
    bool gone = before->there && !after->there;
    if (!gone && !(after->there && after->modify == index)) return false;
    *shown = *after;
    if (gone) {
        *kind =
            states[index].command == KV_APPLY ? PB__KV_CHANGE_KIND__CHANGE_DELETE : PB__KV_CHANGE_KIND__CHANGE_EXPIRE;
        *shown = *before;
        shown->value[0] = '\0', shown->flags = 0;
    } else if (after->session[0] && strcmp(before->session, after->session) != 0) {
        *kind = PB__KV_CHANGE_KIND__CHANGE_LOCK;
    } else if (before->session[0] && !after->session[0]) {
        *kind = PB__KV_CHANGE_KIND__CHANGE_UNLOCK;
        memcpy(shown->session, before->session, sizeof shown->session);
    } else {
        *kind = PB__KV_CHANGE_KIND__CHANGE_SET;
    }
    return true;
}

static unsigned kinds_seen[5];

static void check_changes(unsigned key) {
    bool found;
    const Pb__KvPastResult *past = ask(key_names[key], PB__KV_PAST_FORM__PAST_CHANGES, 0, &found);
    size_t count = 0;
    uint64_t last = machine_index(world.machine);
    for (uint64_t index = past->floor + 1; index <= last; index++) {
        struct was shown;
        Pb__KvChangeKind kind;
        if (!change_at(key, index, &shown, &kind)) continue;
        cr_assert_lt(count, past->n_changes, "seed %lu: key %u: the change at %lu is missing", seed, key, index);
        const Pb__KvChange *change = past->changes[count++];
        cr_assert_eq(change->unix_ms, states[index].unix_ms, "seed %lu: key %u: at %lu", seed, key, index);
        cr_assert_eq(change->index, index, "seed %lu: key %u: %lu, not %lu", seed, key, change->index, index);
        cr_assert_eq(change->kind, kind, "seed %lu: key %u at %lu: kind %d, not %d", seed, key, index,
                     (int)change->kind, (int)kind);
        cr_assert(bytes_are(change->value, shown.value) && change->flags == shown.flags);
        cr_assert_str_eq(change->session, shown.session, "seed %lu: key %u at %lu", seed, key, index);
        kinds_seen[kind]++;
    }
    cr_assert_eq(count, past->n_changes, "seed %lu: key %u: %zu changes, not %zu", seed, key, past->n_changes, count);
    cr_assert_eq(found, count > 0 || states[last].keys[key].there);
}

static void check_all(void) {
    bool found;
    uint64_t floor = ask("a", PB__KV_PAST_FORM__PAST_CHANGES, 0, &found)->floor, last = machine_index(world.machine);
    cr_assert(floor >= began && floor <= last);
    for (uint64_t at = floor; at <= last; at += 1 + number_below(5)) {
        for (unsigned key = 0; key < KEYS; key++) check_entry(key, at);
        check_lists(at);
    }
    for (unsigned key = 0; key < KEYS; key++) check_changes(key);
    check_time(floor, states[last].unix_ms + 1);
    for (uint64_t at = floor; at <= last; at += 1 + number_below(9))
        check_time(floor, states[at].unix_ms + number_below(3) - 1);
    for (uint64_t at = floor ? floor - 1 : 0; at > 0 && at + 3 > floor; at--) {
        const Pb__KvPastResult *past = ask("a", PB__KV_PAST_FORM__PAST_ENTRY, at, &found);
        cr_assert(!found && past->n_entries == 0 && past->floor == floor && past->index == last);
    }
    const Pb__KvPastResult *past = ask("a", PB__KV_PAST_FORM__PAST_ENTRY, last + 1, &found);
    cr_assert(!found && past->n_entries == 0 && past->index == last);
}

static void one_world(void) {
    rng_seed(&rng, seed);
    fixture_open_with(&world, &more);
    node_register(&world, "n1");
    fixture_found(&world);
    began = machine_index(world.machine);
    look(0);
    uint64_t clock = 5000;
    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t dice = number_below(20);
        clock += number_below(4) ? 0 : number_below(50);
        if (number_below(10) == 0) clock = clock < 2000 ? clock : clock + number_below(600) - 400; /* another leader */
        world.unix_ms = clock;
        if (dice == 0) nested_random();
        else if (dice < 4) owner_random();
        else kv_random();
        if (step == STEPS / 2 && seed % 2) limit_to(40); /* from here on there is a floor */
        if (step % 80 == 79) check_all();
    }
    fixture_close(&world);
}

Test(kv_past, is_what_it_was, .timeout = 300) {
    states = mem_zalloc(INDEXES * sizeof *states);
    name_keys();
    for (unsigned i = 0; i < SESSIONS; i++) session_id(i + 1, session_ids[i]);
    for (unsigned i = 0; i < LEASES; i++) lease_uuid(i + 1, lease_ids[i]);
    for (seed = 1; seed <= SEEDS; seed++) one_world();
    for (size_t i = 0; i < ARRAY_COUNT(kinds_seen); i++) cr_assert_gt(kinds_seen[i], 20, "kind %zu", i);
    for (size_t i = 0; i < INDEXES; i++)
        for (unsigned p = 0; p < PREFIXES; p++) buffer_free(&states[i].lists[p]), buffer_free(&states[i].names[p]);
    for (unsigned i = 0; i < KEYS; i++) free(key_names[i]);
    for (unsigned i = 0; i < PREFIXES; i++) free(prefixes[i]);
    free(states);
}

/* -- what one can say at a glance --------------------------------------------------------------------------------- */

static const char *changes_of(const char *key) {
    static const char *const kinds[] = {"set", "delete", "lock", "unlock", "expire"};
    static char text[1024];
    bool found;
    const Pb__KvPastResult *past = ask(key, PB__KV_PAST_FORM__PAST_CHANGES, 0, &found);
    size_t size = (size_t)snprintf(text, sizeof text, "%s", found ? "" : "-");
    for (size_t i = 0; i < past->n_changes; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%s%s=%.*s", size ? " " : "",
                                 kinds[past->changes[i]->kind], past->changes[i]->session[0] ? "*" : "",
                                 (int)past->changes[i]->value.len, (const char *)past->changes[i]->value.data);
    return text;
}

static void open_with_sessions(void) {
    fixture_open_with(&world, &more);
    node_register(&world, "n1");
    fixture_found(&world);
    for (unsigned i = 0; i < SESSIONS; i++) {
        struct session_plan plan = {.node = "n1", .delete_keys = i % 2};
        session_id(i + 1, session_ids[i]);
        cr_assert(session_make(&world, session_ids[i], &plan).yes);
    }
    for (unsigned i = 0; i < LEASES; i++) {
        lease_uuid(i + 1, lease_ids[i]);
        cr_assert(lease_grant(&world, lease_ids[i], NULL, 0).yes);
    }
}
static void close_it(void) { fixture_close(&world); }

Test(kv_past, kinds_of_changes, .init = open_with_sessions, .fini = close_it) {
    cr_assert_str_eq(changes_of("a"), "-");
    kv_put(&world, "a", "1"), kv_put(&world, "a", "1"), kv_put(&world, "a", "2");
    cr_assert_str_eq(changes_of("a"), "set=1 set=2", "the same again is no change");
    kv_acquire(&world, "a", "3", session_ids[0]);
    kv_acquire(&world, "a", "3", session_ids[2]); /* refused */
    kv_put(&world, "a", "4");
    kv_release(&world, "a", "5", session_ids[0]);
    cr_assert_str_eq(changes_of("a"), "set=1 set=2 lock*=3 set*=4 unlock*=5");
    kv_del(&world, "a");
    cr_assert_str_eq(changes_of("a"), "set=1 set=2 lock*=3 set*=4 unlock*=5 delete=");
    kv_acquire(&world, "b", "1", session_ids[0]), session_drop(&world, session_ids[0]);
    cr_assert_str_eq(changes_of("b"), "lock*=1 unlock*=1", "the end of a session that releases");
    kv_acquire(&world, "c", "1", session_ids[1]), session_drop(&world, session_ids[1]);
    cr_assert_str_eq(changes_of("c"), "lock*=1 expire*=", "and of one that deletes");
    kv_put_leased(&world, "d", "1", lease_ids[0]), lease_revoke(&world, lease_ids[0]);
    cr_assert_str_eq(changes_of("d"), "set=1 expire=");
    kv_put(&world, "t/1", ""), kv_put(&world, "t/2", ""), kv_del_tree(&world, "t/");
    cr_assert_str_eq(changes_of("t/1"), "set= delete=");
    cr_assert_str_eq(changes_of("t/2"), "set= delete=");
}

/* Of an entry the state before and the state after count, and nothing in between. */
Test(kv_past, what_comes_and_goes_in_one_entry, .init = open_with_sessions, .fini = close_it) {
    cr_assert(fixture_apply_bytes(&world, SLICE_LITERAL("\xc8\x01new")).yes);
    cr_assert_str_eq(changes_of("new"), "-", "it never was there");
    kv_put(&world, "new", "1");
    cr_assert(fixture_apply_bytes(&world, SLICE_LITERAL("\xc8\x01new")).yes);
    cr_assert_str_eq(changes_of("new"), "set=1 expire=");
}

Test(kv_past, a_cluster_without_a_history_says_so) {
    fixture_open(&world);
    kv_put(&world, "a", "1");
    bool found;
    const Pb__KvPastResult *past = ask("a", PB__KV_PAST_FORM__PAST_ENTRY, 1, &found);
    cr_assert(past->off && !found && past->floor == 0 && past->n_entries == 0);
    past = ask("a", PB__KV_PAST_FORM__PAST_CHANGES, 0, &found);
    cr_assert(past->off && !found && past->n_changes == 0);
    fixture_close(&world);
}
