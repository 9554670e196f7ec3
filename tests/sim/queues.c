#include "tests/sim/queues.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"

#define P PRIu64

static struct queue_own *own_of(struct op *op) { return OP_AS(struct queue_own, op); }
static const struct queue_own *own_of_const(const struct op *op) { return OP_AS(const struct queue_own, op); }

void queue_op(struct op *op, const struct sim_module *module, enum queue_kind kind, uint32_t queue) {
    op->module = module;
    op->kind = kind;
    op->way = kind >= QUEUE_ENTRY ? OP_READ : OP_WRITE;
    own_of(op)->queue = (uint8_t)queue;
}

void queue_op_wishes(struct op *op, bool shared, bool asks, uint32_t limit, uint32_t priority) {
    struct queue_own *own = own_of(op);
    own->shared = shared, own->asks = asks, own->limit = (uint8_t)limit, own->priority = priority;
}

void queue_op_makes(struct op *op, uint32_t node, uint64_t ttl_ms, uint64_t delay_ms) {
    op->ttl_ms = ttl_ms;
    own_of(op)->session = (struct session_wish){node, delay_ms};
}

void queue_op_token(struct op *op, uint64_t token) { own_of(op)->by_token = true, own_of(op)->token = token; }

bool queue_makes_session(const struct op *op) {
    return (op->module == &sim_lock || op->module == &sim_election) && op->way == OP_WRITE && op->ttl_ms;
}

/* -- clients ---------------------------------------------------------------------------------------------------------- */

/* Mostly the same as before in the life of a session, so that asking again gives the same. */
static bool wish_next(struct sim_turn *turn, struct op *op, const struct sim_module *module, uint32_t queue) {
    struct queue_plan *plan = turn->plan;
    bool lock = module == &sim_lock, other = turn_chance(turn, 30);
    uint32_t limit = lock && queue == SIM_QUEUES - 1 ? 2 : lock && other ? 1 : 0;
    queue_op(op, module, QUEUE_ACQUIRE, queue);
    queue_op_wishes(op, lock && plan->shared != other, turn_chance(turn, 150), limit, lock ? 0 : plan->priority);
    plan->wished |= 1u << queue;
    return true;
}

static bool use_next(struct sim_turn *turn, struct op *op, const struct sim_module *module) {
    struct queue_plan *plan = turn->plan;
    uint32_t queue = turn_chance(turn, 850) ? plan->queue : (uint32_t)turn_random(turn, 0, SIM_QUEUES - 1);
    uint64_t dice = turn_random(turn, 1, 1000);
    if (dice <= 80 || !(plan->wished & 1u << queue)) return wish_next(turn, op, module, queue);
    if (dice <= 250) {
        queue_op(op, module, QUEUE_RELEASE, queue);
        own_of(op)->by_token = turn_chance(turn, 400);
        plan->wished &= ~(1u << queue);
    } else if (dice <= 290 && module == &sim_election) {
        queue_op(op, module, QUEUE_PROCLAIM, queue);
    } else if (dice <= 800) {
        queue_op(op, module, QUEUE_ENTRY, queue);
    } else {
        queue_op(op, module, module == &sim_lock || turn_chance(turn, 500) ? QUEUE_VIEW : QUEUE_LEADER, queue);
    }
    if (op->way == OP_READ && turn_chance(turn, 700)) op->wait_us = turn_random(turn, 50, 1000) * MS;
    if (op->way == OP_READ) op->stale = turn_chance(turn, 250);
    return true;
}

bool queue_generate(struct sim_turn *turn, struct op *op, const struct sim_module *module) {
    static const uint32_t delays_ms[] = {0, 0, 0, 100, 600};
    struct queue_plan *plan = turn->plan;
    uint32_t node = 1 + turn->client % SIM_NODES;
    if (catalog_next(turn, &plan->registered, op)) return true;
    enum keep_step step = keep_step(turn, &plan->keep, 600, 700);
    if (step == KEEP_RENEW) renew_op(op, &sim_session);
    if (step == KEEP_USE) return use_next(turn, op, module);
    if (step != KEEP_MAKE) return step == KEEP_RENEW;
    uint64_t delay_ms = delays_ms[turn_random(turn, 0, ARRAY_COUNT(delays_ms) - 1)];
    plan->queue = turn_chance(turn, 500) ? 0 : (uint32_t)turn_random(turn, 1, SIM_QUEUES - 1);
    plan->shared = turn_chance(turn, 500), plan->wished = 0;
    plan->priority = turn_chance(turn, 400) ? 0 : (uint32_t)turn_random(turn, 1, 3);
    if (turn_chance(turn, 500)) {
        session_op(op, node_spelled(turn, node), plan->keep.ttl_ms, delay_ms);
        return true;
    }
    (void)wish_next(turn, op, module, plan->queue);
    queue_op_makes(op, node_spelled(turn, node), plan->keep.ttl_ms, delay_ms);
    return true;
}

bool queue_complete(void *data, struct op *op) {
    struct queue_known *known = data;
    if (op->module == &sim_catalog) return true;
    if (op->ttl_ms) *known = (struct queue_known){0};
    if (op->module != &sim_lock && op->module != &sim_election) return keep_complete(known, op);
    struct queue_own *own = own_of(op);
    if (op->kind == QUEUE_PROCLAIM || own->by_token) {
        own->token = known->token[own->queue];
        return own->token != 0;
    }
    if (op->way == OP_WRITE) return keep_complete(known, op);
    if (op->kind == QUEUE_ENTRY) op->owner = known->keep.op;
    op->known_index = known->seen[op->kind - QUEUE_ENTRY][own->queue];
    if (op->known_index == 0) op->wait_us = 0;
    return op->kind != QUEUE_ENTRY || op->owner;
}

void queue_learn(void *data, const struct op *op) {
    struct queue_known *known = data;
    bool ours = op->module == &sim_lock || op->module == &sim_election;
    if (!ours || op->error != CO_CONFLICT) keep_learn(&known->keep, op);
    if (!ours || op->state != OP_DONE || op->error || op->way == OP_RENEW) return;
    const struct queue_own *own = own_of_const(op);
    if (op->way == OP_READ && (op->kind != QUEUE_ENTRY || op->owner == known->keep.op))
        known->seen[op->kind - QUEUE_ENTRY][own->queue] = op->found ? op->seen_index : 0; /* else nobody waits for it */
    if (op->kind == QUEUE_ACQUIRE && op->yes && !known->token[own->queue]) known->token[own->queue] = op->index;
    if (op->kind == QUEUE_ENTRY && op->owner == known->keep.op && op->found && own->token)
        known->token[own->queue] = own->token;
}

/* -- what is read ----------------------------------------------------------------------------------------------------- */

static uint64_t sum_of(const struct model_queue *q, bool all) {
    uint64_t sum = q->delay_count;
    if (!all) sum = 0;
    for (unsigned i = 0; i < q->count && (all || q->in[i].token); i++) {
        const struct model_entry *entry = &q->in[i];
        uint64_t what[] = {sum, entry->who, entry->shared, entry->priority, entry->note, entry->token, entry->place};
        sum = hash64(what, sizeof what);
    }
    return sum;
}

static struct model_entry entry_seen(const Pb__QueueEntry *entry) {
    char note[24] = "";
    if (entry->note.len < sizeof note) memcpy(note, entry->note.data, entry->note.len);
    return (struct model_entry){.who = session_maker(entry->session),
                                .shared = entry->mode == PB__QUEUE_MODE__QUEUE_SHARED,
                                .priority = entry->priority,
                                .note = (uint32_t)strtoul(note, NULL, 10),
                                .token = entry->token,
                                .place = entry->place};
}

/* The rules that any queue keeps: an exclusive holder is alone, its token is the newest and tells when it was granted,
 * waiters stand in turn, and nobody waits for a free place. */
static bool is_sound(const struct model_queue *q) {
    unsigned held = model_holders(q);
    for (unsigned i = 0; i < q->count; i++) {
        const struct model_entry *entry = &q->in[i], *before = &q->in[i ? i - 1 : 0];
        if (i < held && held > 1 && !entry->shared) return false;
        if (i < held && (entry->token < entry->place || entry->token > q->newest)) return false;
        if (i < held && i && entry->token < before->token) return false;
        if (i >= held && entry->token) return false;
        if (i > held && entry->priority > before->priority) return false;
        if (i > held && entry->priority == before->priority && entry->place <= before->place) return false;
    }
    bool all_shared = held && held < q->count && q->in[0].shared && q->in[held].shared;
    bool room = !q->delay_count && (!held || (all_shared && (!q->limit || held < q->limit)));
    return held == q->count || !room;
}

static void view_seen(struct op *op, const Pb__QueueView *view) {
    struct model_queue seen = {
        .delay_count = view->queue->delays, .newest = view->queue->token, .limit = view->queue->limit};
    CHECK(view->n_holders + view->n_waiters <= MODEL_ENTRIES);
    for (size_t i = 0; i < view->n_holders; i++) seen.in[seen.count++] = entry_seen(view->holders[i]);
    for (size_t i = 0; i < view->n_waiters; i++) seen.in[seen.count++] = entry_seen(view->waiters[i]);
    own_of(op)->sum = sum_of(&seen, op->kind == QUEUE_VIEW);
    own_of(op)->broken = !is_sound(&seen) || view->queue->holders != view->n_holders;
}

void queue_seen(struct op *op, const struct query_result *result) {
    struct queue_own *own = own_of(op);
    if (op->kind != QUEUE_ENTRY) return view_seen(op, (const Pb__QueueView *)result->message);
    own->token = own->position = own->waiters = 0;
    if (!result->found) return;
    const Pb__QueueAnswer *answer = (const Pb__QueueAnswer *)result->message;
    own->token = answer->token, own->position = answer->position, own->waiters = answer->waiters;
    own->broken = answer->held != (answer->token != 0) || session_maker(answer->session) != op->owner;
}

static struct queues_model *model_of(struct sim *sim, const struct sim_module *module) {
    return sim_model(sim, module);
}

static struct model_queue *version_at(struct sim *sim, const struct sim_module *module, uint32_t queue,
                                      uint64_t index) {
    static struct model_queue none;
    struct queue_history *chronicle = &model_of(sim, module)->histories[queue];
    for (size_t i = chronicle->count; i > 0; i--)
        if (chronicle->versions[i - 1].index <= index) return &chronicle->versions[i - 1].queue;
    none = (struct model_queue){0};
    return &none;
}

static void check_entry(struct sim *sim, const struct op *op, struct model_queue *q) {
    const struct queue_own *own = own_of_const(op);
    const struct model_entry *entry = model_find(q, op->owner);
    uint64_t index = !entry ? q->changed : entry->token ? entry->token : entry->place;
    if (op->found != (entry != NULL) || op->seen_index != index)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": index %" P "%s, the entry's is %" P "%s",
                      op->id, op->server + 1, op->index, op->seen_index, op->found ? "" : " (gone)", index,
                      entry ? "" : " (gone)");
    else if (entry && own->token != entry->token)
        sim_violation(sim, RULE_FENCE, "read %" P " at s%u: session %" P " has token %" P ", not %" P, op->id,
                      op->server + 1, op->owner, own->token, entry->token);
    else if (entry && (own->position != model_position(q, entry) || own->waiters != model_waiters(q)))
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u: position %u of %u, not %u of %u", op->id, op->server + 1,
                      own->position, own->waiters, model_position(q, entry), model_waiters(q));
}

void queue_check_read(struct sim *sim, const struct op *op) {
    const struct queue_own *own = own_of_const(op);
    struct model_queue *q = version_at(sim, op->module, own->queue, op->index);
    uint64_t index = op->kind == QUEUE_LEADER ? q->holder_changed : q->changed;
    if (own->broken)
        sim_violation(sim, RULE_QUEUE, "read %" P " at s%u, applied %" P ": q%u contradicts itself", op->id,
                      op->server + 1, op->index, own->queue);
    if (op->kind == QUEUE_ENTRY) return check_entry(sim, op, q);
    if (op->seen_index != index || own->sum != sum_of(q, op->kind == QUEUE_VIEW))
        sim_violation(sim, RULE_MODEL,
                      "read %" P " at s%u, applied %" P ": q%u at %" P " is not what it should be at %" P, op->id,
                      op->server + 1, op->index, own->queue, op->seen_index, index);
}

void queue_check_end(struct sim *sim, struct server *server, const struct sim_module *module) {
    (void)sim;
    for (uint32_t queue = 0; queue < SIM_QUEUES; queue++)
        for (enum queue_kind kind = QUEUE_VIEW; kind <= (module == &sim_election ? QUEUE_LEADER : QUEUE_VIEW); kind++) {
            struct op op = {0};
            queue_op(&op, module, kind, queue);
            op_judge(server, &op);
        }
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

static void keep_version(struct sim *sim, const struct sim_module *module, uint32_t queue, uint64_t index) {
    struct queue_history *chronicle = &model_of(sim, module)->histories[queue];
    if (chronicle->count && chronicle->versions[chronicle->count - 1].index == index) chronicle->count--;
    if (chronicle->count == chronicle->capacity) {
        chronicle->capacity = chronicle->capacity ? 2 * chronicle->capacity : 16;
        chronicle->versions = mem_realloc(chronicle->versions, chronicle->capacity * sizeof *chronicle->versions);
    }
    struct queue_version *version = &chronicle->versions[chronicle->count++];
    version->index = index;
    version->queue = model_of(sim, module)->queues[queue];
    if (!is_sound(&version->queue))
        sim_violation(sim, RULE_QUEUE, "q%u at %" P ": the model is not sound", queue, index);
}

void queue_end(struct sim *sim, const struct sim_module *module) {
    for (uint32_t queue = 0; queue < SIM_QUEUES; queue++) free(model_of(sim, module)->histories[queue].versions);
}

bool queue_over(struct sim *sim, const struct sim_module *module) {
    for (uint32_t queue = 0; queue < SIM_QUEUES; queue++)
        if (model_of(sim, module)->queues[queue].delay_count) return false;
    return true;
}

uint64_t queue_token(const struct op *entry_read) { return own_of_const(entry_read)->token; }

uint64_t queue_token_now(struct sim *sim, const struct sim_module *module, uint32_t queue, uint64_t session) {
    const struct model_entry *entry = model_find(&model_of(sim, module)->queues[queue], session);
    return entry ? entry->token : 0;
}

bool queue_waits_now(struct sim *sim, const struct sim_module *module, uint32_t queue, uint64_t session) {
    const struct model_entry *entry = model_find(&model_of(sim, module)->queues[queue], session);
    return entry && !entry->token;
}

static bool is_in_one(struct sim *sim, uint64_t who) {
    static const struct sim_module *const modules[] = {&sim_lock, &sim_election};
    for (size_t i = 0; i < ARRAY_COUNT(modules); i++)
        for (uint32_t queue = 0; queue < SIM_QUEUES; queue++)
            if (model_find(&model_of(sim, modules[i])->queues[queue], who)) return true;
    return false;
}

/* The answer has to be what it has there now. */
static struct sim_expected expect_entry(struct sim *sim, const struct sim_applied *applied, const struct model_queue *q,
                                        const struct model_entry *entry) {
    const Pb__QueueAnswer *answer = (const Pb__QueueAnswer *)applied->result->message;
    if (!answer || answer->token != entry->token || answer->position != model_position(q, entry) ||
        answer->waiters != model_waiters(q) || session_maker(answer->session) != entry->who)
        sim_violation(sim, RULE_MODEL, "acquire %" P " at %" P " is answered with token %" P ", position %u",
                      applied->op->id, applied->index, answer ? answer->token : 0, answer ? answer->position : 0);
    return entry->token ? expect_yes() : expect_no();
}

static struct sim_expected acquired(struct sim *sim, const struct sim_applied *applied) {
    struct op *op = applied->op;
    const struct queue_own *own = own_of_const(op);
    struct queues_model *model = model_of(sim, op->module);
    struct model_queue *q = &model->queues[own->queue];
    struct model_entry *entry;
    bool several, made = op->ttl_ms != 0;
    if (own->by_token) {
        entry = model_holder(q, own->token, &several);
        return entry && !several ? expect_entry(sim, applied, q, entry) : expect_error();
    }
    const struct model_family family = {model->queues, SIM_QUEUES, op->module == &sim_election};
    const struct model_wish wish = {
        .who = made ? op->id : op->owner,
        .made = made,
        .there = made ? catalog_registered(sim, own->session.node) : expiring_alive(sim, op->owner),
        .shared = own->shared,
        .asks = own->asks,
        .limit = own->limit,
        .priority = own->priority,
        .note = (uint32_t)op->id};
    switch (model_acquire(&family, q, &wish, applied->index, &entry)) {
        case MODEL_HELD:
        case MODEL_WAITS:
            if (made) expiring_began(op, applied->index);
            keep_version(sim, op->module, own->queue, applied->index);
            return expect_entry(sim, applied, q, entry);
        case MODEL_AGAIN:
            if (q->changed == applied->index) keep_version(sim, op->module, own->queue, applied->index);
            return expect_entry(sim, applied, q, entry);
        case MODEL_ASKED: return expect_no();
        case MODEL_DIFFERS:
        case MODEL_FULL:
        case MODEL_CIRCLE:
        case MODEL_NO_SESSION: return expect_error();
    }
    UNREACHABLE();
}

/* Of a session that had a delay: as long as the longest of those that began it in this entry. */
static void delay_began(struct sim *sim, struct queues_model *model, uint32_t queue, uint64_t index, uint64_t ms) {
    struct queue_delay *delay = model->delays[queue];
    while (delay->index && delay->index != index) CHECK(++delay < model->delays[queue] + MODEL_DELAYS);
    if (delay->index == index && delay->ms >= ms) return;
    *delay = (struct queue_delay){index, sim->now_us, ms};
}

static void leave(struct sim *sim, const struct sim_module *module, uint32_t queue, uint64_t who, uint64_t index,
                  uint64_t delay_ms) {
    struct queues_model *model = model_of(sim, module);
    struct model_queue *q = &model->queues[queue];
    uint64_t token = model_find(q, who)->token;
    (void)model_leave(q, who, index, delay_ms != 0);
    if (delay_ms && token && token != index) delay_began(sim, model, queue, index, delay_ms);
    keep_version(sim, module, queue, index);
}

static struct sim_expected released(struct sim *sim, const struct op *op, uint64_t index) {
    const struct queue_own *own = own_of_const(op);
    struct model_queue *q = &model_of(sim, op->module)->queues[own->queue];
    bool several = false;
    const struct model_entry *entry = own->by_token ? model_holder(q, own->token, &several) : model_find(q, op->owner);
    if (!entry || several) return expect_error();
    uint64_t who = entry->who;
    leave(sim, op->module, own->queue, who, index, 0);
    if (queue_makes_session(op_get(sim, who)) && !is_in_one(sim, who))
        expiring_ended(sim, op_get(sim, who), index, true);
    return expect_yes();
}

static struct sim_expected proclaimed(struct sim *sim, const struct op *op, uint64_t index) {
    const struct queue_own *own = own_of_const(op);
    struct model_queue *q = &model_of(sim, op->module)->queues[own->queue];
    if (!q->count || !q->in[0].token || q->in[0].token != own->token) return expect_error();
    q->in[0].note = (uint32_t)op->id;
    q->changed = q->holder_changed = index;
    keep_version(sim, op->module, own->queue, index);
    return expect_yes();
}

static uint32_t queue_number(const char *name) {
    CHECK(name[0] == 'q' && name[1] >= '0' && name[1] < '0' + SIM_QUEUES && !name[2]);
    return (uint32_t)(name[1] - '0');
}

/* The leader says that a delay is over. */
static struct sim_expected delay_over(struct sim *sim, const struct sim_applied *applied,
                                      const struct sim_module *module) {
    const Pb__QueueDelayOverCommand *command = (const Pb__QueueDelayOverCommand *)applied->command;
    uint32_t queue = queue_number(command->name);
    struct queues_model *model = model_of(sim, module);
    struct queue_delay *delay = model->delays[queue];
    if (!applied->result->yes || !model_delay_over(&model->queues[queue], command->index, applied->index))
        return expect_any(applied);
    while (delay->index != command->index) CHECK(++delay < model->delays[queue] + MODEL_DELAYS);
    if (delay->began_us + period_us(sim, delay->ms) > sim->now_us)
        sim_violation(sim, RULE_LEASE, "the delay of %s ends %" P " ms after it began, of %" P " ms", command->name,
                      (sim->now_us - delay->began_us) / MS, delay->ms);
    memmove(delay, delay + 1, (size_t)((char *)&model->delays[queue][MODEL_DELAYS - 1] - (char *)delay));
    model->delays[queue][MODEL_DELAYS - 1] = (struct queue_delay){0};
    keep_version(sim, module, queue, applied->index);
    return expect_yes();
}

struct sim_expected queue_apply(struct sim *sim, const struct sim_applied *applied, const struct sim_module *module) {
    if (applied->command->descriptor == &pb__queue_delay_over_command__descriptor)
        return delay_over(sim, applied, module);
    if (!applied->op) return expect_any(applied);
    switch ((enum queue_kind)applied->op->kind) {
        case QUEUE_ACQUIRE: return acquired(sim, applied);
        case QUEUE_RELEASE: return released(sim, applied->op, applied->index);
        case QUEUE_PROCLAIM: return proclaimed(sim, applied->op, applied->index);
        default: UNREACHABLE();
    }
}

void queue_on_notice(struct sim *sim, const struct sim_notice *notice, const struct sim_module *module) {
    if (notice->type != SIM_ENDED) return;
    for (uint32_t queue = 0; queue < SIM_QUEUES; queue++)
        if (model_find(&model_of(sim, module)->queues[queue], notice->op->id))
            leave(sim, module, queue, notice->op->id, notice->index, session_delay_ms(notice->op));
}
