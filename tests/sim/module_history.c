/* The history of keys: clients read keys as they were at some index, and how they changed, on any server; the model is
 * that of the keys (module_kv.c), which has all their versions. How far back it goes is the servers' to say: the same
 * on each of them at an index, never less later on, and nothing while it is off. */
#include "registry/history.h"

#include <stdlib.h>
#include <string.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "kv/keys/kv.h"
#include "registry/lease.h"
#include "tests/lib/later.h"
#include "tests/sim/modules.h"

#define P PRIu64

struct history_own {
    uint8_t key, form; /* key: SIM_KEYS and more: one of the prefixes */
    bool by_time;      /* asks for a time around that of the entry that the client knows */
    bool off;          /* seen */
    uint8_t verdict;   /* seen */
    int16_t off_by_ms;
    uint32_t count;    /* seen */
    uint64_t back, at; /* so far before the index that the client knows; by_time: the time */
    /* The answer. meant: the index that a moment was taken for. */
    uint64_t floor, sum, told_ms, meant;
};
static const struct history_own *own_of(const struct op *op) { return OP_AS(const struct history_own, op); }

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct known {
    uint64_t index, change[SIM_KEYS]; /* up to where a server had applied; of a key's last change, as it was told */
    uint64_t unix_ms;                 /* of the entry at that index, as it was told */
};

static bool generate(struct sim_turn *turn, struct op *op) {
    struct history_own *own = OP_AS(struct history_own, op);
    if (turn_chance(turn, 40)) { /* a key that is none of the locks, or those below a prefix */
        static const uint32_t prefixes[] = {SIM_KEYS, SIM_KEYS + 1, SIM_KEYS + 4};
        uint32_t target = turn_chance(turn, 300) ? prefixes[turn_random(turn, 0, 2)]
                                                 : (uint32_t)turn_random(turn, 0, SIM_KEYS - SIM_LOCKS - 1);
        kv_back_op(op, target, turn_chance(turn, 500), turn_chance(turn, 200));
        return true;
    }
    op->module = &sim_history;
    op->way = OP_READ;
    op->stale = turn_chance(turn, 400);
    own->key = (uint8_t)turn_random(turn, 0, SIM_KEYS - 1);
    if (turn_chance(turn, 250)) {
        own->form = PB__KV_PAST_FORM__PAST_CHANGES;
        if (turn_chance(turn, 300)) op->wait_us = turn_random(turn, 50, 1000) * MS;
        return true;
    }
    bool many = turn_chance(turn, 400);
    own->form = many ? PB__KV_PAST_FORM__PAST_ENTRIES : PB__KV_PAST_FORM__PAST_ENTRY;
    if (many) own->key = (uint8_t)(SIM_KEYS + turn_random(turn, 0, SIM_PREFIXES - 1));
    own->back = turn_chance(turn, 500) ? turn_random(turn, 0, 30) : turn_random(turn, 0, 600);
    own->by_time = turn_chance(turn, 500);
    own->off_by_ms = turn_chance(turn, 400) ? 0 : (int16_t)((int)turn_random(turn, 0, 4000) - 3500);
    return true;
}

static bool complete(void *data, struct op *op) {
    const struct known *known = data;
    if (op->module == &sim_kv) {
        uint64_t back = op->id * 7 % 60; /* to what it was a while ago */
        bool by_time = op->id % 3 == 0 && known->unix_ms > 50 * back;
        kv_back_to(op, by_time ? 0 : known->index > back ? known->index - back : 1, known->unix_ms - 50 * back);
        return known->index > 0;
    }
    struct history_own *own = OP_AS(struct history_own, op);
    if (own->form == PB__KV_PAST_FORM__PAST_CHANGES) {
        op->known_index = known->change[own->key];
        if (op->known_index == 0) op->wait_us = 0;
    } else {
        own->at = known->index > own->back ? known->index - own->back : 1;
        int64_t unix_ms = (int64_t)known->unix_ms + own->off_by_ms;
        if (own->by_time) own->at = unix_ms > 0 ? (uint64_t)unix_ms : 0;
    }
    return true;
}

static void learn(void *data, const struct op *op) {
    struct known *known = data;
    const struct history_own *own = own_of(op);
    if (op->state != OP_DONE || op->module != &sim_history) return;
    if (op->index > known->index) known->index = op->index, known->unix_ms = own->told_ms;
    if (own->form == PB__KV_PAST_FORM__PAST_CHANGES) known->change[own->key] = own->off ? 0 : op->seen_index;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    const struct history_own *own = own_of(op);
    Pb__KvPastRequest *request = arena_alloc(arena, sizeof *request);
    char *key = arena_alloc(arena, 16);
    pb__kv_past_request__init(request);
    kv_target_name(own->key, key);
    request->key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
    request->form = (Pb__KvPastForm)own->form;
    request->at = arena_alloc(arena, sizeof *request->at);
    pb__kv_moment__init(request->at);
    if (own->by_time) request->at->unix_ms = own->at;
    else request->at->index = own->at;
    *type = &query_kv_past;
    return &request->base;
}

/* -- what is seen: entries in any order, changes in theirs ------------------------------------------------------------ */

static uint64_t change_sum(uint64_t sum, uint64_t index, Pb__KvChangeKind kind, uint64_t writer, uint64_t session) {
    uint64_t all[] = {sum, index, (uint64_t)kind, writer, session};
    return hash64(all, sizeof all);
}

static void seen(struct op *op, const struct query_result *result) {
    struct history_own *own = OP_AS(struct history_own, op);
    const Pb__KvPastResult *past = (const Pb__KvPastResult *)result->message;
    own->off = past->off, own->floor = past->floor, own->sum = 0;
    own->meant = past->at, own->verdict = (uint8_t)past->verdict, own->told_ms = past->unix_ms;
    own->count = (uint32_t)(past->n_entries + past->n_changes);
    for (size_t i = 0; i < past->n_entries; i++) own->sum += kv_entry_sum(past->entries[i]);
    for (size_t i = 0; i < past->n_changes; i++) {
        const Pb__KvChange *change = past->changes[i];
        own->sum = change_sum(own->sum, change->index, change->kind, change->flags, session_maker(change->session));
    }
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

struct model {
    uint64_t *floors; /* by index: what a server said that had applied up to there; 0: none did */
    size_t floor_room;
    struct turned { /* on or off, from that index on */
        uint64_t index;
        bool on;
    } * turns;
    size_t turn_count;
    struct history_settings settings[SIM_SERVERS_MAX];
    struct module_entry modules[SIM_SERVERS_MAX][SIM_MODULES_MAX + 1];
};
static struct model *model_of(struct sim *sim) { return sim_model(sim, &sim_history); }

static void end(struct sim *sim) { free(model_of(sim)->floors), free(model_of(sim)->turns); }

/* Small ones, so that much is removed. Now and then each server has its own: the leader's count. */
static void draw_settings(struct sim *sim, uint32_t slot, struct history_settings *settings) {
    struct rng rng;
    uint64_t seeds[] = {sim->options.seed, 0};
    rng_seed(&rng, hash64(seeds, sizeof seeds));
    if (rng_below(&rng, 4) == 0) {
        seeds[1] = slot + 1;
        rng_seed(&rng, hash64(seeds, sizeof seeds));
    }
    settings->changes = rng_below(&rng, 16) ? rng_between(&rng, 30, 200) : 0;
    settings->bytes = rng_between(&rng, 8000, 400000);
    settings->age_ms = rng_between(&rng, 300, 8000);
}

const struct module_entry *history_modules(struct sim *sim, uint32_t slot) {
    struct model *model = model_of(sim);
    struct module_entry *entries = model->modules[slot];
    draw_settings(sim, slot, &model->settings[slot]);
    size_t count = 0;
    for (; agent_modules[count].module; count++) {
        CHECK(count < SIM_MODULES_MAX);
        entries[count] = agent_modules[count];
        if (entries[count].module == &history_module) entries[count].settings = &model->settings[slot];
        if (entries[count].module == &lease_module) entries[count].settings = sim->lease_settings;
    }
    entries[count++] = (struct module_entry){.module = &later_module};
    entries[count] = (struct module_entry){0};
    return entries;
}

static void turn(struct sim *sim, uint64_t index, bool on) {
    struct model *model = model_of(sim);
    model->turns = mem_realloc(model->turns, (model->turn_count + 1) * sizeof *model->turns);
    model->turns[model->turn_count++] = (struct turned){index, on};
}

static bool on_at(struct sim *sim, uint64_t index) {
    const struct model *model = model_of(sim);
    bool on = false;
    for (size_t i = 0; i < model->turn_count && model->turns[i].index <= index; i++) on = model->turns[i].on;
    return on;
}

/* It begins when the cluster is founded. */
static void on_notice(struct sim *sim, const struct sim_notice *notice) {
    if (notice->type == SIM_FOUNDED) turn(sim, notice->index, true);
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    const Pb__HistoryMarkCommand *mark = (const Pb__HistoryMarkCommand *)applied->command;
    if (applied->result->yes && mark->limits) turn(sim, applied->index, mark->limits->changes > 0);
    return expect_any(applied);
}

/* -- judging ---------------------------------------------------------------------------------------------------------- */

static void note_floor(struct sim *sim, const struct op *op) {
    struct model *model = model_of(sim);
    uint64_t floor = own_of(op)->floor;
    if (op->index >= model->floor_room) {
        size_t room = op->index + 1024;
        model->floors = mem_realloc(model->floors, room * sizeof *model->floors);
        memset(model->floors + model->floor_room, 0, (room - model->floor_room) * sizeof *model->floors);
        model->floor_room = room;
    }
    uint64_t before = op->index, after = op->index;
    while (before > 0 && model->floors[before] == 0) before--;
    while (after + 1 < model->floor_room && model->floors[after] == 0) after++;
    if (floor < model->floors[before] || (model->floors[after] && floor > model->floors[after]))
        sim_violation(sim, RULE_MODEL,
                      "s%u, applied %" P ": the floor of the history is %" P ", it was %" P " at %" P " and is %" P
                      " at %" P,
                      op->server + 1, op->index, floor, model->floors[before], before, model->floors[after], after);
    model->floors[op->index] = floor;
}

/* The time of the state at an index: of its entries the highest. */
static uint64_t time_at(struct sim *sim, uint64_t index) {
    return index && index <= sim->chronicle->committed_count ? sim->chronicle->committed[index - 1].unix_ms : 0;
}

uint64_t history_meant(struct sim *sim, uint64_t index, uint64_t unix_ms, uint64_t floor, uint64_t present,
                       uint64_t present_ms) {
    if (index) return index >= floor && index <= present ? index : 0;
    if (unix_ms < time_at(sim, floor) || unix_ms > present_ms) return 0;
    for (index = present; index > floor && time_at(sim, index) > unix_ms;) index--;
    return index;
}

/* 0: it is not kept. */
static uint64_t meant(struct sim *sim, const struct op *op) {
    const struct history_own *own = own_of(op);
    return history_meant(sim, own->by_time ? 0 : own->at, own->at, own->floor, op->index, time_at(sim, op->index));
}

static void judge_time(struct sim *sim, const struct op *op, uint64_t at) {
    const struct history_own *own = own_of(op);
    bool kept = own->verdict == PB__KV_MOMENT_VERDICT__MOMENT_KEPT;
    if (kept != (at != 0) || own->told_ms != time_at(sim, op->index))
        sim_violation(sim, RULE_MODEL,
                      "read %" P " at s%u, applied %" P " of time %" P " (told: %" P "): time %" P
                      " is %s, expected index %" P "; the floor is %" P " of time %" P,
                      op->id, op->server + 1, op->index, time_at(sim, op->index), own->told_ms, own->at,
                      kept ? "kept" : "not kept", at, own->floor, time_at(sim, own->floor));
    else if (kept && (own->meant > at || own->meant < own->floor))
        sim_violation(sim, RULE_MODEL,
                      "read %" P " at s%u, applied %" P ": time %" P " is taken for index %" P ", expected %" P
                      " or the change before it",
                      op->id, op->server + 1, op->index, own->at, own->meant, at);
}

static void judge_past(struct sim *sim, const struct op *op) {
    const struct history_own *own = own_of(op);
    uint64_t sum = 0, at = meant(sim, op);
    uint32_t count = 0;
    if (own->by_time) judge_time(sim, op, at);
    for (uint32_t key = 0; at && key < SIM_KEYS; key++) {
        const struct key_version *version = kv_at(sim, key, at);
        if (!kv_is_target(own->key, key) || version->gone) continue;
        sum += kv_version_sum(key, version);
        count++;
    }
    if (own->count != count || op->found != (count > 0))
        sim_violation(sim, RULE_MODEL,
                      "read %" P " at s%u, applied %" P ": %u keys as of %" P ", expected %u; the floor is %" P, op->id,
                      op->server + 1, op->index, own->count, own->at, count, own->floor);
    else if (own->sum != sum)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": other keys as of %" P " than there were",
                      op->id, op->server + 1, op->index, own->at);
}

/* Did a client's command delete it? Otherwise it went with its session or its lease. */
static bool deleted_at(struct sim *sim, uint64_t index) {
    uint64_t id = sim->chronicle->committed[index - 1].seen->op;
    return id && op_get(sim, id)->module == &sim_kv;
}

static uint64_t judged_change(struct sim *sim, uint64_t sum, const struct key_version *before,
                              const struct key_version *now) {
    uint64_t was = before->gone ? 0 : before->holder, is = now->gone ? 0 : now->holder;
    Pb__KvChangeKind kind = PB__KV_CHANGE_KIND__CHANGE_SET;
    if (now->gone)
        kind = deleted_at(sim, now->index) ? PB__KV_CHANGE_KIND__CHANGE_DELETE : PB__KV_CHANGE_KIND__CHANGE_EXPIRE;
    else if (is && is != was) kind = PB__KV_CHANGE_KIND__CHANGE_LOCK;
    else if (was && !is) kind = PB__KV_CHANGE_KIND__CHANGE_UNLOCK;
    return change_sum(sum, now->index, kind, now->gone ? 0 : now->writer, is ? is : was);
}

static void judge_changes(struct sim *sim, const struct op *op) {
    const struct history_own *own = own_of(op);
    uint64_t sum = 0;
    uint32_t count = 0;
    const struct key_version *before = kv_at(sim, own->key, own->floor), *now;
    for (; (now = kv_after(sim, own->key, before->index)) != NULL && now->index <= op->index; before = now) {
        if (before->gone && now->gone) continue; /* it came and went in one entry */
        sum = judged_change(sim, sum, before, now);
        count++;
    }
    if (own->count != count || op->seen_index != before->index)
        sim_violation(sim, RULE_MODEL,
                      "read %" P " at s%u, applied %" P ": %u changes of key %u up to %" P ", expected %u up to %" P
                      "; the floor is %" P,
                      op->id, op->server + 1, op->index, own->count, own->key, op->seen_index, count, before->index,
                      own->floor);
    else if (own->sum != sum)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": other changes of key %u than there were",
                      op->id, op->server + 1, op->index, own->key);
}

static void judge_read(struct sim *sim, const struct op *op) {
    const struct history_own *own = own_of(op);
    bool on = on_at(sim, op->index);
    if (own->off == on)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": the history is %s", op->id, op->server + 1,
                      op->index, on ? "off" : "on");
    if (!on || own->off) return;
    note_floor(sim, op);
    if (own->form == PB__KV_PAST_FORM__PAST_CHANGES) judge_changes(sim, op);
    else judge_past(sim, op);
}

static void judge_end(struct sim *sim, struct server *server) {
    (void)sim;
    for (uint32_t target = 0; target < SIM_KEYS + SIM_PREFIXES; target++) {
        struct op op = {.module = &sim_history, .way = OP_READ};
        struct history_own *own = OP_AS(struct history_own, &op);
        own->key = (uint8_t)target;
        own->form = PB__KV_PAST_FORM__PAST_CHANGES;
        if (target < SIM_KEYS) op_judge(server, &op);
        own->form = target < SIM_KEYS ? PB__KV_PAST_FORM__PAST_ENTRY : PB__KV_PAST_FORM__PAST_ENTRIES;
        own->at = server->machine.applied > target * 7 ? server->machine.applied - target * 7 : 1;
        op_judge(server, &op);
    }
}

const struct sim_module sim_history = {
    .name = "history",
    .module = &history_module,
    .pace = {.clients_least = 1, .clients_most = 2, .think_least_ms = 10, .think_most_ms = 100, .open_most = 2},
    .known_size = sizeof(struct known),
    .model_size = sizeof(struct model),
    .end = end,
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .request = request,
    .seen = seen,
    .check_read = judge_read,
    .apply = apply,
    .on_notice = on_notice,
    .check_end = judge_end,
};
