/* Keys: a list of versions for each, so that a read at any index can be judged. The last SIM_LOCKS keys are locks: their
 * LockIndex grows from holder to holder. Tokens of locks do with every key, as soon as there are any. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "kv/keys/kv.h"
#include "tests/sim/modules.h"
#include "tests/sim/versions.h"

#define P PRIu64

struct kv_own {
    uint32_t key, size;
    uint64_t cas; /* the index that a CAS expects; that a key goes back to */
    bool remove, dry_run;
    /* The record that a read saw: its writer, and its own numbers. */
    uint64_t writer, lock_index, holder, lease;
};
static const struct kv_own *own_of(const struct op *op) { return OP_AS(const struct kv_own, op); }

void kv_op(struct op *op, enum kv_kind kind, uint32_t key, uint32_t size) {
    op->module = &sim_kv;
    op->kind = kind;
    op->way = kind == KV_GET ? OP_READ : OP_WRITE;
    *OP_AS(struct kv_own, op) = (struct kv_own){.key = key, .size = size};
}

void kv_back_op(struct op *op, uint32_t target, bool remove, bool dry_run) {
    kv_op(op, KV_BACK, target, 0);
    OP_AS(struct kv_own, op)->remove = remove, OP_AS(struct kv_own, op)->dry_run = dry_run;
}

void kv_back_to(struct op *op, uint64_t index, uint64_t unix_ms) {
    OP_AS(struct kv_own, op)->cas = index, OP_AS(struct kv_own, op)->writer = unix_ms;
}

uint32_t kv_key(const struct op *op) { return own_of(op)->key; }

void kv_key_name(uint32_t key, char name[16]) {
    CHECK(key < SIM_KEYS);
    snprintf(name, 16, key < SIM_KEYS - SIM_LOCKS ? "k%u" : "lock%u", key);
}

uint32_t kv_key_number(struct slice name) {
    char text[16];
    for (uint32_t key = 0; key < SIM_KEYS; key++) {
        kv_key_name(key, text);
        if (slice_is(name, text)) return key;
    }
    return SIM_KEYS;
}

void kv_target_name(uint32_t target, char name[16]) {
    static const char *const prefixes[SIM_PREFIXES] = {"k", "k1", "lock", "lock1", "none"};
    CHECK(target < SIM_KEYS + SIM_PREFIXES);
    if (target < SIM_KEYS) kv_key_name(target, name);
    else snprintf(name, 16, "%s", prefixes[target - SIM_KEYS]);
}

bool kv_is_target(uint32_t target, uint32_t key) {
    char name[16], prefix[16];
    if (target < SIM_KEYS) return target == key;
    kv_target_name(target, prefix), kv_key_name(key, name);
    return slice_starts(slice_text(name), slice_text(prefix));
}

uint64_t kv_version_sum(uint32_t key, const struct key_version *version) {
    uint64_t all[] = {key, version->index, version->writer, version->lock_index, version->holder, version->lease};
    return hash64(all, sizeof all);
}

uint64_t kv_entry_sum(const Pb__KvEntry *entry) {
    struct key_version version = {.index = entry->modify_index,
                                  .writer = entry->flags,
                                  .lock_index = entry->lock_index,
                                  .holder = session_maker(entry->session),
                                  .lease = lease_maker(entry->lease)};
    return kv_version_sum(kv_key_number(slice_make(entry->key.data, entry->key.len)), &version);
}

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct plan {
    uint32_t looked_at; /* the key that it read last */
};
struct known {
    uint64_t index[SIM_KEYS]; /* as it was read last; 0: it was not there */
};

static uint32_t value_size(struct sim_turn *turn) {
    return (uint32_t)(turn_chance(turn, 30) ? turn_random(turn, 1000, 6000) : turn_random(turn, 8, 200));
}

static bool generate(struct sim_turn *turn, struct op *op) {
    struct plan *plan = turn->plan;
    uint64_t dice = turn_random(turn, 1, 1000);
    uint32_t key = (uint32_t)turn_random(turn, 0, SIM_KEYS - SIM_LOCKS - 1);
    if (dice <= 250) {
        kv_op(op, KV_GET, plan->looked_at = key, 0);
    } else if (dice <= 300) {
        kv_op(op, KV_GET, plan->looked_at = key, 0);
        op->stale = true;
    } else if (dice <= 410) {
        kv_op(op, KV_GET, plan->looked_at, 0);
        op->stale = turn_chance(turn, 500);
        op->wait_us = turn_random(turn, 50, 1000) * MS;
    } else if (dice <= 540) {
        kv_op(op, KV_CAS, plan->looked_at, 20);
    } else if (dice <= 590) {
        kv_op(op, KV_DELETE, key, 0);
    } else {
        kv_op(op, KV_PUT, key, value_size(turn));
    }
    return true;
}

static bool complete(void *data, struct op *op) {
    const struct known *known = data;
    uint64_t index = known->index[kv_key(op)];
    if (op->kind == KV_CAS) OP_AS(struct kv_own, op)->cas = index;
    op->known_index = index;
    if (index == 0) op->wait_us = 0;
    return true;
}

static void learn(void *data, const struct op *op) {
    struct known *known = data;
    if (op->way == OP_READ && op->state == OP_DONE)
        known->index[kv_key(op)] = op->found || op->wait_us ? op->seen_index : 0;
}

/* -- bytes: the flags of a key say which operation wrote it ----------------------------------------------------------- */

static const ProtobufCMessage *back_command(const struct op *op, struct arena *arena) {
    const struct kv_own *own = own_of(op);
    Pb__KvRestoreCommand *command = arena_alloc(arena, sizeof *command);
    Pb__KvMoment *moment = arena_alloc(arena, sizeof *moment);
    char *key = arena_alloc(arena, 16);
    pb__kv_restore_command__init(command);
    pb__kv_moment__init(moment);
    kv_target_name(own->key, key);
    command->key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
    command->recurse = own->key >= SIM_KEYS;
    command->remove = own->remove, command->dry_run = own->dry_run;
    if (own->cas) moment->index = own->cas;
    else moment->unix_ms = own->writer;
    command->at = moment;
    op_label(&command->base, op->id, arena);
    return &command->base;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    static const Pb__KvVerb verbs[] = {
        [KV_PUT] = PB__KV_VERB__KV_SET,   [KV_CAS] = PB__KV_VERB__KV_CAS,       [KV_DELETE] = PB__KV_VERB__KV_DELETE,
        [KV_LOCK] = PB__KV_VERB__KV_LOCK, [KV_UNLOCK] = PB__KV_VERB__KV_UNLOCK, [KV_LEASED] = PB__KV_VERB__KV_SET,
    };
    if (op->kind == KV_BACK) {
        *number = KV_RESTORE;
        return back_command(op, arena);
    }
    const struct kv_own *own = own_of(op);
    char *key = arena_alloc(arena, 16), *id = arena_alloc(arena, 40);
    uint8_t *value = arena_alloc(arena, own->size + 1);
    Pb__KvCommand *command = arena_alloc(arena, sizeof *command);
    pb__kv_command__init(command);
    kv_key_name(own->key, key);
    command->verb = verbs[op->kind];
    command->key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
    command->flags = op->id;
    command->index = own->cas;
    if (op->kind == KV_LEASED) lease_name(op->owner, command->lease = id);
    else if (op->kind == KV_LOCK || op->kind == KV_UNLOCK) session_name(op->owner, command->session = id);
    command->want_token = 1;
    for (uint32_t i = 0; i < own->size; i++) value[i] = (uint8_t)(op->id * 131 + i);
    command->value = (ProtobufCBinaryData){own->size, value};
    *number = KV_APPLY;
    return &command->base;
}

static uint64_t made_by(uint8_t number, const ProtobufCMessage *command) {
    if (number == KV_RESTORE) return op_labelled(number, command);
    return number == KV_APPLY ? ((const Pb__KvCommand *)command)->flags : 0;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    Pb__KvRequest *request = arena_alloc(arena, sizeof *request);
    char *key = arena_alloc(arena, 16);
    pb__kv_request__init(request);
    kv_key_name(kv_key(op), key);
    request->key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
    *type = &query_kv_get;
    return &request->base;
}

static void seen(struct op *op, const struct query_result *result) {
    struct kv_own *own = OP_AS(struct kv_own, op);
    own->writer = own->lock_index = own->holder = own->lease = 0;
    if (!result->found) return;
    const Pb__KvEntry *entry = (const Pb__KvEntry *)result->message;
    own->writer = entry->flags;
    own->lock_index = entry->lock_index;
    own->lease = lease_maker(entry->lease);
    own->holder = session_maker(entry->session);
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

struct model {
    struct story_of_key {
        struct versions versions;
        uint64_t delay_index, delay_us, delay_ms; /* a lock-delay is under way since; 0: none */
        uint64_t lock_index, token;               /* the highest that a holder was given */
    } keys[SIM_KEYS];
};
static struct story_of_key *story_of(struct sim *sim, uint32_t key) {
    return &((struct model *)sim_model(sim, &sim_kv))->keys[key];
}
static const struct key_version none = {.gone = true};

static void end(struct sim *sim) {
    for (uint32_t key = 0; key < SIM_KEYS; key++) versions_free(&story_of(sim, key)->versions);
}

const struct key_version *kv_now(struct sim *sim, uint32_t key) {
    return versions_at(&story_of(sim, key)->versions, sizeof none, UINT64_MAX, &none);
}

const struct key_version *kv_at(struct sim *sim, uint32_t key, uint64_t index) {
    return versions_at(&story_of(sim, key)->versions, sizeof none, index, &none);
}

const struct key_version *kv_after(struct sim *sim, uint32_t key, uint64_t index) {
    const struct versions *versions = &story_of(sim, key)->versions;
    size_t count = versions_until(versions, sizeof none, index);
    if (count == versions->count) return NULL;
    const struct key_version *next = versions_item(versions, sizeof none, count);
    return kv_at(sim, key, next->index);
}

static void change(struct sim *sim, uint32_t key, struct key_version version) {
    versions_add(&story_of(sim, key)->versions, sizeof version, &version);
}

static struct sim_expected set(struct sim *sim, const struct op *op, uint64_t index) {
    const struct key_version *now = kv_now(sim, kv_key(op));
    change(sim, kv_key(op),
           (struct key_version){.index = index,
                                .writer = op->id,
                                .holder = now->gone ? 0 : now->holder,
                                .token = now->gone ? 0 : now->token,
                                .lease = op->kind == KV_LEASED ? op->owner : 0});
    return expect_yes();
}

static struct sim_expected cas(struct sim *sim, const struct op *op, uint64_t index) {
    const struct key_version *now = kv_now(sim, kv_key(op));
    uint64_t wanted = own_of(op)->cas;
    bool fits = wanted == 0 ? now->gone : !now->gone && now->index == wanted;
    return fits ? set(sim, op, index) : expect_no();
}

static struct sim_expected delete (struct sim *sim, const struct op *op, uint64_t index) {
    if (!kv_now(sim, kv_key(op))->gone) change(sim, kv_key(op), (struct key_version){.index = index, .gone = true});
    return expect_yes();
}

/* The answer's token. */
static void judge_token(struct sim *sim, const struct sim_applied *applied, uint64_t token) {
    const Pb__KvLockAnswer *answer = (const Pb__KvLockAnswer *)applied->result->message;
    uint64_t told = answer ? answer->token : 0;
    if (told != token)
        sim_violation(sim, RULE_FENCE, "the answer of lock command %" P " at %" P " has token %" P ", not %" P,
                      applied->op->id, applied->index, told, token);
}

/* LockIndex and token are above those of all holders before. */
static void judge_growth(struct sim *sim, uint32_t key, uint64_t lock_index, uint64_t token) {
    struct story_of_key *story = story_of(sim, key);
    bool is_lock = key >= SIM_KEYS - SIM_LOCKS;
    if ((is_lock && lock_index <= story->lock_index) || (token && token <= story->token))
        sim_violation(sim, RULE_FENCE,
                      "a holder is given LockIndex %" P " and token %" P " of key %u, %" P " and %" P
                      " were given before",
                      lock_index, token, key, story->lock_index, story->token);
    story->lock_index = lock_index;
    if (token) story->token = token;
}

static struct sim_expected lock(struct sim *sim, const struct sim_applied *applied) {
    const struct op *op = applied->op;
    struct key_version now = *kv_now(sim, kv_key(op));
    if (story_of(sim, kv_key(op))->delay_index) return expect_no();
    if (!expiring_alive(sim, op->owner)) return expect_error();
    bool held = !now.gone && now.holder != 0;
    if (held && now.holder != op->owner) return expect_no();
    uint64_t lock_index = (now.gone ? 0 : now.lock_index) + !held;
    uint64_t token = held ? now.token : applied->index;
    if (!held) judge_growth(sim, kv_key(op), lock_index, token);
    judge_token(sim, applied, token);
    change(
        sim, kv_key(op),
        (struct key_version){
            .index = applied->index, .writer = op->id, .holder = op->owner, .lock_index = lock_index, .token = token});
    return expect_yes();
}

static struct sim_expected unlock(struct sim *sim, const struct sim_applied *applied) {
    const struct op *op = applied->op;
    struct key_version now = *kv_now(sim, kv_key(op));
    if (now.gone || now.holder != op->owner) return expect_no();
    judge_token(sim, applied, now.token);
    change(sim, kv_key(op),
           (struct key_version){.index = applied->index, .writer = op->id, .lock_index = now.lock_index});
    return expect_yes();
}

/* One key becomes what it was. False: it is so already. */
static bool back_one(struct sim *sim, const struct op *op, uint32_t key, uint64_t at, uint64_t index, bool *removed) {
    const struct kv_own *own = own_of(op);
    const struct key_version was = *kv_at(sim, key, at), now = *kv_now(sim, key);
    struct key_version next = {.index = index, .gone = was.gone, .writer = was.writer};
    *removed = was.gone;
    if (was.gone ? now.gone || (own->key < SIM_KEYS && !own->remove) : !now.gone && now.writer == was.writer)
        return false;
    if (!was.gone && !now.gone) next.holder = now.holder, next.token = now.token;
    if (!own->dry_run) change(sim, key, next);
    return true;
}

/* All of them in one entry, as of one moment, which is before it. */
static struct sim_expected back(struct sim *sim, const struct sim_applied *applied) {
    const struct kv_own *own = own_of(applied->op);
    const Pb__KvRestoreAnswer *answer = (const Pb__KvRestoreAnswer *)applied->result->message;
    if (!answer || answer->off) return expect_no(); /* whether there is a history: see module_history.c */
    uint64_t present_ms = sim->chronicle->committed[applied->index - 1].unix_ms, set = 0, gone = 0;
    uint64_t at = history_meant(sim, own->cas, own->writer, answer->floor, applied->index - 1, present_ms);
    for (uint32_t key = 0; at && key < SIM_KEYS; key++) {
        bool removed;
        if (!kv_is_target(own->key, key) || !back_one(sim, applied->op, key, at, applied->index, &removed)) continue;
        *(removed ? &gone : &set) += 1;
    }
    if (answer->set != set || answer->removed != gone ||
        (answer->verdict == PB__KV_MOMENT_VERDICT__MOMENT_KEPT) != !!at)
        sim_violation(sim, RULE_MODEL,
                      "%" P " at %" P " takes keys back to %" P ": %" P " set, %" P " deleted, expected %" P " and %" P
                      "; the floor is %" P,
                      applied->op->id, applied->index, at, answer->set, answer->removed, set, gone, answer->floor);
    return set + gone ? expect_yes() : expect_no();
}

static void delay_ended(struct sim *sim, const Pb__LockDelayEndCommand *command) {
    for (uint32_t key = 0; key < SIM_KEYS; key++) {
        struct story_of_key *story = story_of(sim, key);
        char name[16];
        kv_key_name(key, name);
        if (!slice_is(slice_make(command->key.data, command->key.len), name)) continue;
        if (story->delay_index != command->index) continue;
        story->delay_index = 0;
        if (story->delay_us + period_us(sim, story->delay_ms) > sim->now_us)
            sim_violation(sim, RULE_LEASE, "the lock-delay of lock %u ends %" P " ms after it began, of %" P " ms", key,
                          (sim->now_us - story->delay_us) / MS, story->delay_ms);
    }
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    struct op *op = applied->op;
    if (applied->number == LOCK_DELAY_END && applied->result->yes)
        delay_ended(sim, (const Pb__LockDelayEndCommand *)applied->command);
    if (!op) return expect_any(applied);
    switch ((enum kv_kind)op->kind) {
        case KV_PUT: return set(sim, op, applied->index);
        case KV_CAS: return cas(sim, op, applied->index);
        case KV_DELETE: return delete (sim, op, applied->index);
        case KV_LOCK: return lock(sim, applied);
        case KV_UNLOCK: return unlock(sim, applied);
        case KV_LEASED:
            if (!expiring_alive(sim, op->owner)) return expect_error();
            return set(sim, op, applied->index);
        case KV_BACK: return back(sim, applied);
        case KV_GET: break;
    }
    UNREACHABLE();
}

/* With its session a lock is free, and with its lease a key is gone, all at that index and nothing before. */
static void on_notice(struct sim *sim, const struct sim_notice *notice) {
    if (notice->type != SIM_ENDED) return;
    for (uint32_t key = 0; key < SIM_KEYS; key++) {
        struct key_version now = *kv_now(sim, key);
        if (now.gone) continue;
        if (now.lease == notice->op->id) {
            change(sim, key, (struct key_version){.index = notice->index, .gone = true});
        } else if (now.holder == notice->op->id) {
            now.index = notice->index;
            now.holder = now.token = 0;
            change(sim, key, now);
            struct story_of_key *story = story_of(sim, key);
            story->delay_ms = session_delay_ms(notice->op);
            if (story->delay_ms) story->delay_index = notice->index, story->delay_us = sim->now_us;
        }
    }
}

static bool over(struct sim *sim) {
    for (uint32_t key = 0; key < SIM_KEYS; key++)
        if (story_of(sim, key)->delay_index) return false;
    return true;
}

/* -- what is read ----------------------------------------------------------------------------------------------------- */

/* At any index a key has one version: what was read at it is that one. */
static void judge_read(struct sim *sim, const struct op *op) {
    const struct kv_own *own = own_of(op);
    const struct key_version *version = kv_at(sim, own->key, op->index);
    if (op->found != !version->gone || op->seen_index != version->index)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": index %" P "%s, the key's is %" P "%s",
                      op->id, op->server + 1, op->index, op->seen_index, op->found ? "" : " (gone)", version->index,
                      version->gone ? " (gone)" : "");
    else if (op->found && (own->writer != version->writer || own->holder != version->holder))
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u sees %" P " held by %" P ", not %" P " held by %" P, op->id,
                      op->server + 1, own->writer, own->holder, version->writer, version->holder);
    else if (op->found && own->lease != version->lease)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u: the key hangs on lease %" P ", not %" P, op->id,
                      op->server + 1, own->lease, version->lease);
    else if (op->found && own->lock_index != version->lock_index)
        sim_violation(sim, RULE_FENCE, "read %" P " at s%u: the key's LockIndex is %" P ", not %" P, op->id,
                      op->server + 1, own->lock_index, version->lock_index);
}

static void judge_end(struct sim *sim, struct server *server) {
    (void)sim;
    for (uint32_t key = 0; key < SIM_KEYS; key++) {
        struct op op = {0};
        kv_op(&op, KV_GET, key, 0);
        op_judge(server, &op);
    }
}

const struct sim_module sim_kv = {
    .name = "kv",
    .module = &kv_module,
    .pace = {.clients_least = 1, .clients_most = 4, .think_least_ms = 1, .think_most_ms = 60, .open_most = 1},
    .plan_size = sizeof(struct plan),
    .known_size = sizeof(struct known),
    .model_size = sizeof(struct model),
    .end = end,
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .command = command,
    .made_by = made_by,
    .request = request,
    .seen = seen,
    .check_read = judge_read,
    .apply = apply,
    .on_notice = on_notice,
    .over = over,
    .over_ms = 600,
    .check_end = judge_end,
};
