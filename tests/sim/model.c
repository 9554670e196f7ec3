/* What the committed commands make of keys, locks and sessions, as a person would say it: a list of versions for
 * each key. The first server that applies an entry writes it down; results, and what reads see anywhere and at any
 * time, are held against it. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "kv/kv.h"
#include "kv/session.h"
#include "registry/lease.h"
#include "registry/machine.h"
#include "tests/sim/sim.h"

#define P PRIu64

const struct key_version *model_at(const struct history *history, uint32_t key, uint64_t index) {
    const struct story_of_key *story = &history->keys[key];
    for (size_t i = story->count; i > 0; i--)
        if (story->versions[i - 1].index <= index) return &story->versions[i - 1];
    return NULL;
}

static const struct key_version *now_at(const struct history *history, uint32_t key) {
    static const struct key_version none = {.gone = true};
    const struct story_of_key *story = &history->keys[key];
    return story->count ? &story->versions[story->count - 1] : &none;
}

static void change(struct history *history, uint32_t key, struct key_version version) {
    struct story_of_key *story = &history->keys[key];
    if (story->count == story->capacity) {
        story->capacity = story->capacity ? 2 * story->capacity : 32;
        story->versions = mem_realloc(story->versions, story->capacity * sizeof *story->versions);
    }
    story->versions[story->count++] = version;
}

static bool alive(struct sim *sim, uint64_t session) {
    if (session == 0 || session > sim->op_count) return false;
    const struct op *op = op_get(sim, session);
    return op->created_index != 0 && op->ended_index == 0;
}

/* -- commands: each says what its result has to be -- */

struct expected {
    bool yes, error;
};

static struct expected do_set(struct sim *sim, const struct op *op, uint64_t index) {
    const struct key_version *now = now_at(sim->history, op->key);
    change(sim->history, op->key,
           (struct key_version){.index = index,
                                .writer = op->id,
                                .holder = now->gone ? 0 : now->holder,
                                .lease = op->kind == OP_LEASED && sim->history->raised ? op->session : 0});
    return (struct expected){.yes = true};
}

static struct expected do_leased(struct sim *sim, const struct op *op, uint64_t index) {
    if (sim->history->raised && !alive(sim, op->session)) return (struct expected){.error = true};
    return do_set(sim, op, index);
}

static struct expected do_cas(struct sim *sim, const struct op *op, uint64_t index) {
    const struct key_version *now = now_at(sim->history, op->key);
    bool fits = op->cas == 0 ? now->gone : !now->gone && now->index == op->cas;
    return fits ? do_set(sim, op, index) : (struct expected){0};
}

static struct expected do_delete(struct sim *sim, const struct op *op, uint64_t index) {
    if (!now_at(sim->history, op->key)->gone)
        change(sim->history, op->key, (struct key_version){.index = index, .gone = true});
    return (struct expected){.yes = true};
}

static struct expected do_lock(struct sim *sim, const struct op *op, uint64_t index) {
    struct story_of_key *story = &sim->history->keys[op->key];
    struct key_version now = *now_at(sim->history, op->key);
    if (story->delay_index) return (struct expected){0};
    if (!alive(sim, op->session)) return (struct expected){.error = true};
    bool held = !now.gone && now.holder != 0;
    if (held && now.holder != op->session) return (struct expected){0};
    uint64_t before = now.gone ? 0 : now.lock_index;
    if (!held && op->key >= SIM_KEYS - SIM_LOCKS) {
        if (before + 1 <= story->token)
            sim_violation(sim, RULE_FENCE, "a holder is given token %" P " of lock %u, %" P " was given before",
                          before + 1, op->key, story->token);
        story->token = before + 1;
    }
    change(sim->history, op->key,
           (struct key_version){
               .index = index, .writer = op->id, .holder = op->session, .lock_index = held ? before : before + 1});
    return (struct expected){.yes = true};
}

static struct expected do_unlock(struct sim *sim, const struct op *op, uint64_t index) {
    struct key_version now = *now_at(sim->history, op->key);
    if (now.gone || now.holder != op->session) return (struct expected){0};
    change(sim->history, op->key, (struct key_version){.index = index, .writer = op->id, .lock_index = now.lock_index});
    return (struct expected){.yes = true};
}

/* All that hangs on it is gone at that index, and nothing of it before. */
static void end_lease(struct sim *sim, struct op *lease, uint64_t index) {
    lease->ended_index = index;
    lease->ended_us = sim->now_us;
    for (uint32_t key = 0; key < SIM_KEYS; key++) {
        const struct key_version *now = now_at(sim->history, key);
        if (!now->gone && now->lease == lease->id)
            change(sim->history, key, (struct key_version){.index = index, .gone = true});
    }
}

/* A node's name has one owner at a time; who has it may take it anew. */
static struct expected do_grant(struct sim *sim, struct op *op, uint64_t index) {
    uint64_t holder = op->node ? sim->history->nodes[op->node].holder : 0;
    if (alive(sim, holder)) {
        struct op *other = op_get(sim, holder);
        if (other->owner != op->owner) return (struct expected){.error = true};
        other->cut_short = true;
        end_lease(sim, other, index);
    }
    if (op->node) {
        sim->history->nodes[op->node].holder = op->id;
        sim->history->nodes[op->node].dead_index = 0;
    }
    op->created_index = index;
    return (struct expected){.yes = true};
}

static void end_session(struct sim *sim, uint64_t session, uint64_t index);

static uint32_t node_of(const struct op *op) { return 1 + op->key % SIM_NODES; }

static struct expected do_register(struct sim *sim, const struct op *op, uint64_t index) {
    typeof(&sim->history->nodes[0]) node = &sim->history->nodes[node_of(op)];
    typeof(&node->spelled[0]) spelled = &node->spelled[command_in_capitals(op)];
    unsigned address = (unsigned)(op->id % 200);
    if (!spelled->registered || spelled->address != address) spelled->modified = index;
    spelled->registered = node->registered = true;
    spelled->address = address;
    return (struct expected){.yes = true};
}

static struct expected do_session(struct sim *sim, struct op *op, uint64_t index) {
    typeof(&sim->history->nodes[0]) node = &sim->history->nodes[node_of(op)];
    bool there = sim->history->raised ? node->registered : node->spelled[command_in_capitals(op)].registered;
    if (there) op->created_index = index;
    return (struct expected){.yes = there, .error = !there};
}

/* Of two nodes that are one from now on that stays which was changed last (none has an agent yet); the other's sessions end. */
static void fold_nodes(struct sim *sim, uint64_t index) {
    for (size_t i = 0; i < sim->op_count; i++) {
        struct op *op = &sim->ops[i];
        if (op->kind != OP_SESSION || !alive(sim, op->id)) continue;
        typeof(&sim->history->nodes[0].spelled[0]) spelled = sim->history->nodes[node_of(op)].spelled;
        bool capitals = spelled[1].registered && (!spelled[0].registered || spelled[1].modified > spelled[0].modified);
        if (command_in_capitals(op) == capitals) continue;
        op->cut_short = true;
        end_session(sim, op->id, index);
    }
}

static struct expected do_op(struct sim *sim, struct op *op, uint64_t index, bool yes) {
    switch (op->kind) {
        case OP_PUT: return do_set(sim, op, index);
        case OP_CAS: return do_cas(sim, op, index);
        case OP_DELETE: return do_delete(sim, op, index);
        case OP_LOCK: return do_lock(sim, op, index);
        case OP_UNLOCK: return do_unlock(sim, op, index);
        case OP_LEASED: return do_leased(sim, op, index);
        case OP_GRANT: return do_grant(sim, op, index);
        case OP_RAISE:
            if (yes) fold_nodes(sim, index);
            if (yes) sim->history->raised = index;
            return (struct expected){.yes = yes, .error = !yes};
        case OP_REGISTER: return do_register(sim, op, index);
        case OP_SESSION: return do_session(sim, op, index); /* its node may not be registered yet */
        default: return (struct expected){.yes = yes, .error = !yes};
    }
}

/* -- the end of sessions and of lock-delays: the leader's own commands -- */

static void end_session(struct sim *sim, uint64_t session, uint64_t index) {
    struct op *op = op_get(sim, session);
    op->ended_index = index;
    op->ended_us = sim->now_us;
    if (!op->cut_short) check_lease_end(sim, op);
    for (uint32_t key = 0; key < SIM_KEYS; key++) {
        struct key_version now = *now_at(sim->history, key);
        if (now.gone || now.holder != session) continue;
        now.index = index;
        now.holder = 0;
        change(sim->history, key, now);
        if (op->delay_ms) sim->history->keys[key].delay_index = index;
    }
}

static void destroyed(struct sim *sim, struct slice payload, uint64_t index, bool yes) {
    Pb__SessionDestroyCommand *command =
        pb__session_destroy_command__unpack(NULL, payload.size, (const uint8_t *)payload.data);
    CHECK(command);
    uint64_t session = command_session_op(command->id);
    if (yes && alive(sim, session)) end_session(sim, session, index);
    pb__session_destroy_command__free_unpacked(command, NULL);
}

static void lease_ended(struct sim *sim, struct slice payload, uint64_t index, bool yes) {
    Pb__LeaseEndCommand *command = pb__lease_end_command__unpack(NULL, payload.size, (const uint8_t *)payload.data);
    CHECK(command);
    uint64_t lease = command_lease_op(command->id);
    if (yes && alive(sim, lease)) {
        const struct op *op = op_get(sim, lease);
        end_lease(sim, op_get(sim, lease), index);
        check_lease_end(sim, op);
        if (op->node && sim->history->nodes[op->node].registered) {
            sim->history->nodes[op->node].dead_index = index;
            sim->history->nodes[op->node].dead_us = sim->now_us;
        }
    }
    pb__lease_end_command__free_unpacked(command, NULL);
}

/* A node that has been dead for so long goes, and its sessions with it. */
static void reaped(struct sim *sim, struct slice payload, uint64_t index, bool yes) {
    Pb__LeaseReapCommand *command = pb__lease_reap_command__unpack(NULL, payload.size, (const uint8_t *)payload.data);
    CHECK(command && (command->node[0] == 'n' || command->node[0] == 'N'));
    uint32_t node = (uint32_t)(command->node[1] - '0') + 1;
    bool due = sim->history->nodes[node].dead_index == command->index;
    if (yes && !due)
        sim_violation(sim, RULE_MODEL, "node n%u is removed at %" P ": it has not been dead since %" P, node - 1, index,
                      command->index);
    if (yes) check_reap(sim, node);
    for (size_t i = 0; yes && i < sim->op_count; i++) {
        struct op *op = &sim->ops[i];
        if (op->kind != OP_SESSION || node_of(op) != node || !alive(sim, op->id)) continue;
        op->cut_short = true;
        end_session(sim, op->id, index);
    }
    if (yes) {
        sim->history->nodes[node].registered = false;
        sim->history->nodes[node].dead_index = 0;
    }
    pb__lease_reap_command__free_unpacked(command, NULL);
}

static void delay_ended(struct sim *sim, struct slice payload, bool yes) {
    Pb__LockDelayEndCommand *command =
        pb__lock_delay_end_command__unpack(NULL, payload.size, (const uint8_t *)payload.data);
    CHECK(command);
    for (uint32_t key = 0; key < SIM_KEYS; key++) {
        struct story_of_key *story = &sim->history->keys[key];
        char name[16];
        command_key(key, name);
        if (!slice_is(slice_make(command->key.data, command->key.len), name)) continue;
        if (yes && story->delay_index == command->index) story->delay_index = 0;
    }
    pb__lock_delay_end_command__free_unpacked(command, NULL);
}

/* -- the first time -- */

static void applied_first(struct sim *sim, const struct raft_entry *entry, const struct machine_result *result) {
    struct slice bytes = raft_entry_bytes(entry), payload = slice_make(bytes.data + 2, bytes.size - 2);
    uint64_t id = command_op(entry);
    if (id != 0) {
        struct expected want = do_op(sim, op_get(sim, id), entry->index, result->yes);
        if (want.yes != result->yes || want.error != (result->error != CO_OK))
            sim_violation(sim, RULE_MODEL, "command %" P " at %" P ": %s%s, expected %s%s", id, entry->index,
                          result->yes ? "yes" : "no", result->error ? ", refused" : "", want.yes ? "yes" : "no",
                          want.error ? ", refused" : "");
        return;
    }
    bool yes = result->yes && result->error == CO_OK;
    if ((uint8_t)bytes.data[0] == SESSION_DESTROY) destroyed(sim, payload, entry->index, yes);
    if ((uint8_t)bytes.data[0] == LEASE_END) lease_ended(sim, payload, entry->index, yes);
    if ((uint8_t)bytes.data[0] == LEASE_REAP) reaped(sim, payload, entry->index, yes);
    if ((uint8_t)bytes.data[0] == LOCK_DELAY_END) delay_ended(sim, payload, yes);
}

void model_applied(struct server *server, const struct raft_entry *entry, const struct machine_result *result) {
    struct sim *sim = server->sim;
    struct truth *truth = &sim->history->committed[entry->index - 1];
    if (result->index != entry->index)
        sim_violation(sim, RULE_STATE, "s%" P ": the result of %" P " says %" P, server->id, entry->index,
                      result->index);
    if (!truth->applied) {
        truth->applied = true;
        truth->yes = result->yes;
        truth->error = result->error;
        if (entry->type == RAFT_ENTRY_COMMAND) applied_first(sim, entry, result);
    } else if (truth->yes != result->yes || truth->error != result->error) {
        sim_violation(sim, RULE_STATE, "s%" P ": the result of %" P " is %s, elsewhere it was %s", server->id,
                      entry->index,
                      result->error ? co_strerror(result->error)
                      : result->yes ? "yes"
                                    : "no",
                      truth->error ? co_strerror(truth->error)
                      : truth->yes ? "yes"
                                   : "no");
    }
}
