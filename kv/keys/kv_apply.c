/* Commands on keys, as Consul applies them:
 * - a write that changes nothing changes no index;
 * - a write without acquire or release keeps Session and sets LockIndex to 0;
 * - acquiring again with the same session keeps LockIndex, a new holder raises it (after the restore of a backup, above
 *   the index of that);
 * - release and the end of a session keep it.
 *
 * Beside LockIndex, which Consul's clients know, a held key has a fencing token: the index of the entry by which its
 * session took it. The token grows from holder to holder for ever, although nothing is kept for a free key. */
#include <stdio.h>

#include "base/message.h"
#include "kv/keys/kv_command.h"
#include "kv/keys/kv_copied.h"
#include "kv/keys/kv_internal.h"
#include "kv/lock/lock.h"
#include "kv/lock/lock_delay.h"
#include "registry/lease.h"

static const struct slice no_lease = SLICE_LITERAL("");

/* The key that a command is about, and its present record. Slices of `now` end with the next write to the store. */
struct target {
    struct slice key, store_key;
    bool exists;
    struct kv_record now;
    char room[KV_STORE_KEY_MAX];
};

/* The row of the lock: the session's id and the store key; the full key is kept beside it when it is long. */
static void lock_row_put(struct machine_tx *tx, struct slice session, const struct target *target) {
    struct slice full = kv_is_long(target->store_key) ? target->key : slice_make("", 0);
    session_bind(tx, &key_lock_binding, session, target->store_key, full);
}

static void lock_row_del(struct machine_tx *tx, struct slice session, struct slice store_key) {
    session_unbind(tx, &key_lock_binding, session, store_key);
}

/* Binds the key to the lease `after` in place of `before`. The slices are ids of leases; empty: none. */
static void rebind(struct machine_tx *tx, struct slice key, struct slice before, struct slice after) {
    if (slice_equal(before, after)) return;
    char room[UUID_TEXT_SIZE];
    if (before.size != 0) { /* it points into the map, and would not outlive the first write */
        CHECK(before.size == sizeof room);
        memcpy(room, before.data, sizeof room);
        lease_unbind(tx, slice_make(room, sizeof room), LEASE_BINDS_KEY, key);
    }
    if (after.size != 0) lease_bind(tx, after, LEASE_BINDS_KEY, key);
}

/* Stores `next` unless it equals the present record. Does not touch lock rows. */
static void record_put(struct machine_tx *tx, struct target *target, struct kv_record *next) {
    const struct kv_record *now = &target->now;
    if (target->exists && now->flags == next->flags && now->lock_index == next->lock_index &&
        now->token == next->token && slice_equal(now->session, next->session) && slice_equal(now->lease, next->lease) &&
        slice_equal(now->value, next->value))
        return;
    CHECK(target->key.size <= KV_KEY_MAX && target->store_key.size <= KV_STORE_KEY_MAX);
    next->key = target->key;
    next->create_index = target->exists ? now->create_index : tx->index;
    next->modify_index = tx->index;
    struct slice bytes = kv_record_encode(next, tx->arena);
    if (next->lease.size != 0 || (target->exists && now->lease.size != 0))
        rebind(tx, target->key, target->exists ? now->lease : no_lease, next->lease);
    store_put(tx->store, KV_TABLE_KEYS, target->store_key, bytes);
    machine_touch(tx, SPACE_KEY, target->key);
}

static void record_remove(struct machine_tx *tx, const struct target *target) {
    char room[UUID_TEXT_SIZE];
    struct slice lease = target->now.lease;
    CHECK(target->exists && (lease.size == 0 || lease.size == sizeof room));
    if (lease.size != 0) memcpy(room, lease.data, sizeof room), lease.data = room;
    if (target->now.session.size != 0) lock_row_del(tx, target->now.session, target->store_key);
    if (lease.size != 0) lease_unbind(tx, lease, LEASE_BINDS_KEY, target->key);
    store_del(tx->store, KV_TABLE_KEYS, target->store_key);
    machine_changed(tx, SPACE_KEY, target->key, true);
}

/* -- verbs: each answers yes or no, or refuses -------------------------------------------------------------------- */

static int verb_set(struct machine_tx *tx, const struct kv_command_view *command, struct target *target,
                    struct machine_result *result) {
    struct kv_record next = {.flags = command->flags, .value = command->value, .lease = command->lease};
    if (target->exists) next.session = target->now.session, next.token = target->now.token;
    record_put(tx, target, &next);
    result->yes = true;
    return CO_OK;
}

static int verb_cas(struct machine_tx *tx, const struct kv_command_view *command, struct target *target,
                    struct machine_result *result) {
    bool matches = command->index == 0 ? !target->exists : target->exists && target->now.modify_index == command->index;
    if (matches) return verb_set(tx, command, target, result);
    result->yes = false;
    return CO_OK;
}

/* A restored backup brings older values of LockIndex back, and holders since then know higher ones. None of these is
 * above the index of the restore, because each acquisition took an index of its own (except in a transaction that takes
 * the same lock several times). */
static uint64_t above_restored(struct machine_tx *tx, uint64_t lock_index) {
    uint64_t restored = machine_restored(tx->store);
    return lock_index < restored ? restored : lock_index;
}

static void answer_token(struct machine_tx *tx, const struct kv_command_view *command, uint64_t token,
                         struct machine_result *result) {
    result->yes = true;
    if (!command->want_token || !token) return;
    Pb__KvLockAnswer *answer = arena_alloc(tx->arena, sizeof *answer);
    pb__kv_lock_answer__init(answer);
    answer->token = token;
    result->message = &answer->base;
}

/* The token of a session that takes the lock, or holds it. A holder keeps its token, except a holder that a
 * restored backup brought back: others may have had higher tokens since, so it gets a new one when it acquires the lock
 * again. */
static uint64_t token_of(struct machine_tx *tx, const struct target *target, bool held) {
    const struct kv_record *now = &target->now;
    return held && now->token >= machine_restored(tx->store) ? now->token : tx->index;
}

static int verb_lock(struct machine_tx *tx, const struct kv_command_view *command, struct target *target,
                     struct machine_result *result) {
    struct slice ignored;
    if (command->session.size == 0) return machine_refuse(result, CO_INVALID, "missing session");
    int rv = store_get(tx->store, KV_TABLE_DELAYS, target->store_key, &ignored);
    if (rv == CO_OK) { /* a lock-delay is under way: nobody gets the lock */
        result->yes = false;
        return CO_OK;
    }
    if (rv != CO_NOTFOUND) return rv;
    rv = session_exists(tx->store, command->session);
    if (rv == CO_NOTFOUND)
        return machine_refuse(
            result, CO_INVALID,
            arena_printf(tx->arena, "invalid session \"%.*s\"",
                         command->session.size < 100 ? (int)command->session.size : 100, command->session.data));
    if (rv != CO_OK) return rv;

    bool held = target->exists && target->now.session.size != 0;
    if (held && !slice_equal(target->now.session, command->session)) {
        result->yes = false;
        return CO_OK;
    }
    uint64_t before = target->exists ? target->now.lock_index : 0;
    if (!held) before = above_restored(tx, before);
    struct kv_record next = {.flags = command->flags,
                             .value = command->value,
                             .session = command->session,
                             .lease = command->lease,
                             .lock_index = held ? before : before + 1,
                             .token = token_of(tx, target, held)};
    record_put(tx, target, &next);
    if (!held) lock_row_put(tx, command->session, target);
    answer_token(tx, command, next.token, result);
    return CO_OK;
}

static int verb_unlock(struct machine_tx *tx, const struct kv_command_view *command, struct target *target,
                       struct machine_result *result) {
    if (command->session.size == 0) return machine_refuse(result, CO_INVALID, "missing session");
    if (!target->exists || !slice_equal(target->now.session, command->session)) {
        result->yes = false;
        return CO_OK;
    }
    struct kv_record next = {.flags = command->flags,
                             .value = command->value,
                             .lease = command->lease,
                             .lock_index = target->now.lock_index};
    record_put(tx, target, &next);
    lock_row_del(tx, command->session, target->store_key);
    answer_token(tx, command, target->now.token, result);
    return CO_OK;
}

static int verb_delete(struct machine_tx *tx, const struct kv_command_view *command, struct target *target,
                       struct machine_result *result) {
    (void)command;
    if (target->exists) record_remove(tx, target);
    result->yes = true;
    return CO_OK;
}

static int verb_delete_cas(struct machine_tx *tx, const struct kv_command_view *command, struct target *target,
                           struct machine_result *result) {
    result->yes = !target->exists || target->now.modify_index == command->index;
    if (target->exists && result->yes) record_remove(tx, target);
    return CO_OK;
}

/* Removes one key at a time, because a cursor does not outlive a write. `from` continues at the last key, so that long
 * keys which only share their first bytes with the prefix are passed once. */
static int delete_tree(struct machine_tx *tx, struct slice prefix) {
    struct slice head = kv_prefix_head(prefix);
    char from_room[KV_STORE_KEY_MAX], key_room[KV_KEY_MAX];
    struct slice from = head;
    for (;;) {
        struct store_cursor cursor;
        struct target target = {.exists = false};
        int rv = CO_OK;
        for (store_cursor_open(&cursor, tx->store, KV_TABLE_KEYS, from); cursor.valid && slice_starts(cursor.key, head);
             store_cursor_next(&cursor)) {
            rv = kv_record_decode(cursor.key, cursor.value, &target.now);
            target.exists = rv == CO_OK && slice_starts(target.now.key, prefix);
            if (rv != CO_OK || target.exists) break;
        }
        if (target.exists) {
            CHECK(cursor.key.size <= sizeof from_room && target.now.key.size <= sizeof key_room);
            memcpy(from_room, cursor.key.data, cursor.key.size);
            memcpy(key_room, target.now.key.data, target.now.key.size);
            from = target.store_key = slice_make(from_room, cursor.key.size);
            target.key = slice_make(key_room, target.now.key.size);
        }
        store_cursor_close(&cursor);
        if (rv != CO_OK || !target.exists) return rv;
        record_remove(tx, &target);
    }
}

static int (*const verbs[])(struct machine_tx *, const struct kv_command_view *, struct target *,
                            struct machine_result *) = {
    [PB__KV_VERB__KV_SET] = verb_set,       [PB__KV_VERB__KV_CAS] = verb_cas,
    [PB__KV_VERB__KV_LOCK] = verb_lock,     [PB__KV_VERB__KV_UNLOCK] = verb_unlock,
    [PB__KV_VERB__KV_DELETE] = verb_delete, [PB__KV_VERB__KV_DELETE_CAS] = verb_delete_cas,
};
_Static_assert(ARRAY_COUNT(verbs) == 6 && PB__KV_VERB__KV_DELETE_TREE == 6, "each verb below has its function");

/* Looks the key up; false: refused, or *rv says that the store failed. */
static bool target_find(struct machine_tx *tx, struct slice key, struct target *target, struct machine_result *result,
                        int *rv) {
    bool taken;
    target->key = key;
    target->store_key = kv_store_key(key, target->room);
    *rv = kv_record_get(tx->store, target->store_key, key, &target->now, &taken);
    target->exists = *rv == CO_OK;
    if (*rv == CO_NOTFOUND) *rv = CO_OK;
    if (taken)
        machine_refuse(result, CO_CONFLICT, "another key of the same beginning and hash stands in this key's place");
    return *rv == CO_OK && !taken;
}

static int command_run(struct machine_tx *tx, struct kv_command_view *command, struct machine_result *result) {
    if (command->key.size > KV_KEY_MAX) return machine_refuse(result, CO_TOOLARGE, "Key too long, at most 8192 bytes");
    if (memchr(command->key.data, 0, command->key.size))
        return machine_refuse(result, CO_INVALID, "Key holds a NUL byte");
    bool tree = command->verb == PB__KV_VERB__KV_DELETE_TREE;
    struct machine_thing thing = {tree ? SPACE_KEY | WATCH_PREFIX_BIT : SPACE_KEY, "key", command->key};
    if (machine_refuses(tx, thing, result)) return CO_OK;
    if (tree) {
        result->yes = true;
        return delete_tree(tx, command->key);
    }
    if (command->key.size == 0) return machine_refuse(result, CO_INVALID, "Must provide key");
    if (command->verb >= ARRAY_COUNT(verbs))
        return CO_UNSUPPORTED; /* a newer server's verb: stop here, as for unknown types */
    if (command->lease.size != 0 && !lease_known(tx, command->lease, result)) return CO_OK;
    struct target target;
    int rv;
    if (!target_find(tx, command->key, &target, result, &rv)) return rv;
    return verbs[command->verb](tx, command, &target, result);
}

int kv_command_apply(struct machine_tx *tx, struct slice payload, struct machine_result *result) {
    struct kv_command_view command;
    if (!kv_command_decode(payload, &command)) return machine_refuse(result, CO_INVALID, "the command does not decode");
    return command_run(tx, &command, result);
}

/* Refuses unless the token holds the lock; the refusal says who holds it instead. */
static int check_fence(struct machine_tx *tx, const struct kv_command_view *command, struct machine_result *result) {
    const char *text;
    int rv = queue_holds(tx->store, &lock_family, command->fence, command->token, tx->arena);
    if (rv != CO_NOTFOUND) return rv;
    rv = queue_not_held_text(tx->store, &lock_family, command->fence, command->token, tx->arena, &text);
    if (rv != CO_OK) return rv;
    return machine_refuse(result, CO_PRECONDITION, arena_printf(tx->arena, "fence: %s; nothing was written", text));
}

int kv_fenced_apply(struct machine_tx *tx, struct slice payload, struct machine_result *result) {
    struct kv_command_view command;
    if (!kv_command_decode(payload, &command)) return machine_refuse(result, CO_INVALID, "the command does not decode");
    if (!queue_name_fits(command.fence)) return machine_refuse(result, CO_INVALID, "fence: no lock has such a name");
    int rv = check_fence(tx, &command, result);
    return rv != CO_OK || result->error ? rv : command_run(tx, &command, result);
}

/* -- restores of keys --------------------------------------------------------------------------------------------- */

int kv_restore_set(struct machine_tx *tx, struct slice key, struct slice value, uint64_t flags,
                   struct machine_result *result) {
    struct kv_command_view set = {
        .verb = PB__KV_VERB__KV_SET, .key = key, .value = value, .flags = flags, .lease = no_lease};
    return command_run(tx, &set, result);
}

int kv_restore_remove(struct machine_tx *tx, struct slice key, struct machine_result *result) {
    struct kv_command_view remove = {.verb = PB__KV_VERB__KV_DELETE, .key = key, .lease = no_lease};
    return command_run(tx, &remove, result);
}

/* -- copies of keys ----------------------------------------------------------------------------------------------- */

/* Finds the key that is copied. False: another long key has its place, or *rv is the store's error. */
static bool copied_find(struct machine_tx *tx, struct slice key, struct target *target, int *rv) {
    struct machine_result refused = {0};
    return target_find(tx, key, target, &refused, rv);
}

int kv_copied_set(struct machine_tx *tx, struct slice key, struct slice value, uint64_t flags, bool *made) {
    struct target target;
    int rv;
    *made = false;
    if (!copied_find(tx, key, &target, &rv)) return rv;
    *made = !target.exists;
    struct kv_record next = {.flags = flags, .value = value};
    char session[UUID_TEXT_SIZE];
    bool held = target.exists && target.now.session.size == sizeof session;
    if (held) memcpy(session, target.now.session.data, sizeof session); /* a slice ends with the first write */
    record_put(tx, &target, &next);
    if (held) lock_row_del(tx, slice_make(session, sizeof session), target.store_key);
    return CO_OK;
}

int kv_copied_remove(struct machine_tx *tx, struct slice key, bool *removed) {
    struct target target;
    int rv;
    *removed = false;
    if (!copied_find(tx, key, &target, &rv)) return rv;
    if (target.exists) record_remove(tx, &target);
    *removed = target.exists;
    return CO_OK;
}

/* -- the end of a lease ------------------------------------------------------------------------------------------- */

int key_lease_ended(struct machine_tx *tx, const struct binding_end *end) {
    CHECK(end->owner.size == UUID_TEXT_SIZE && !end->session);
    struct machine_result ignored = {0};
    struct target target;
    int rv;
    if (!target_find(tx, end->name, &target, &ignored, &rv)) return rv != CO_OK ? rv : CO_CORRUPT;
    if (!target.exists || !slice_equal(target.now.lease, end->owner))
        return CO_CORRUPT; /* the binding's row does not match the key */
    record_remove(tx, &target);
    return CO_OK;
}

/* -- the end of a session ----------------------------------------------------------------------------------------- */

/* Releases or deletes the key, as the session says, and begins its lock-delay. */
int key_lock_ended(struct machine_tx *tx, const struct binding_end *end) {
    struct slice key = end->value.size ? end->value : end->name; /* as lock_row_put has it */
    CHECK(end->session && end->session->descriptor == &pb__session__descriptor);
    const Pb__Session *session = (const Pb__Session *)end->session;
    int64_t delay_ns = lock_delay_ns(session);
    struct machine_result ignored = {0};
    struct target target;
    int rv;
    if (key.size > KV_KEY_MAX) return CO_CORRUPT;
    if (!target_find(tx, key, &target, &ignored, &rv)) return rv != CO_OK ? rv : CO_CORRUPT;
    if (!target.exists || !slice_equal(target.now.session, end->owner)) return CO_CORRUPT;
    if (session->delete_behavior) {
        record_remove(tx, &target);
    } else {
        struct kv_record next = target.now;
        next.session = slice_make(NULL, 0), next.token = 0;
        record_put(tx, &target, &next);
        lock_row_del(tx, end->owner, target.store_key);
    }
    if (delay_ns > 0) (void)lock_delay_begin(tx, &key_lock_delays, target.store_key, target.key, delay_ns);
    return CO_OK;
}

int lock_delay_end_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__LockDelayEndCommand *command = request;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    struct slice key = message_slice(command->key);
    char room[KV_STORE_KEY_MAX];
    struct slice store_key = kv_store_key(key, room);
    return lock_delay_remove(tx, &key_lock_delays, store_key, key, command->index, &result->yes);
}
