/* Quotas: owners ask for leases of budgets, spend, give back, ask again when an answer was lost, and vanish; others define
 * budgets, delete them, and look. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/session/session.h"
#include "tests/lib/quota_trail.h"
#include "tests/sim/quota_model.h"

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct plan {
    unsigned registered, defined; /* times */
    struct keep_plan keep;
};

static struct quota_own *quota_op(struct op *op, enum quota_kind kind, unsigned budget) {
    op->module = &sim_quota;
    op->kind = kind;
    if (kind >= QUOTA_OP_LOOK) op->way = OP_READ;
    struct quota_own *own = OP_AS(struct quota_own, op);
    own->budget = (uint8_t)budget;
    return own;
}

static void define_next(struct sim_turn *turn, struct op *op, unsigned budget) {
    static const uint32_t capacities[] = {10, 40, 41, 100};
    struct quota_own *own = quota_op(op, QUOTA_OP_DEFINE, budget);
    own->want = capacities[turn_random(turn, 0, 3)], own->take = (uint32_t)turn_random(turn, 2, 9);
}

static void ask_next(struct sim_turn *turn, struct op *op, unsigned budget, bool leaseless) {
    struct quota_own *own = quota_op(op, QUOTA_OP_ASK, budget);
    own->leaseless = leaseless || turn_chance(turn, 100);
    own->spend = turn_chance(turn, 200) ? 1000 : (uint16_t)turn_random(turn, 0, 1000);
    own->hold = turn_chance(turn, 300) ? 1000 : (uint16_t)turn_random(turn, 0, 1000);
    own->want = (uint32_t)turn_random(turn, 0, turn_chance(turn, 300) ? 100 : 15);
    own->close = !own->leaseless && turn_chance(turn, 100);
    own->priority = turn_chance(turn, 300) ? (uint8_t)turn_random(turn, 0, 9) : 4;
    if (turn_chance(turn, own->leaseless ? 900 : 200)) own->take = (uint32_t)turn_random(turn, 1, 12);
    if (budget != QUOTA_OWNED) return;
    own->take = turn_chance(turn, 30);
    if (turn_chance(turn, 500)) own->split = (uint8_t)turn_random(turn, 1, QUOTA_SPLITS);
}

static bool use_next(struct sim_turn *turn, struct op *op, bool has_session) {
    struct plan *plan = turn->plan;
    unsigned budget = (unsigned)turn_random(turn, 0, QUOTAS - 1);
    if (plan->defined < QUOTAS) {
        define_next(turn, op, plan->defined++);
        return true;
    }
    uint64_t what = turn_random(turn, 0, 99);
    if (what < 4) define_next(turn, op, budget);
    else if (what < 5) quota_op(op, QUOTA_OP_DELETE, budget);
    else if (what < 10 && has_session)
        quota_op(op, QUOTA_OP_SETTLE, budget)->spend = (uint16_t)turn_random(turn, 0, 1000);
    else if (what < 75) ask_next(turn, op, budget, !has_session);
    else {
        static const enum quota_kind reads[] = {QUOTA_OP_LOOK, QUOTA_OP_LOOK, QUOTA_OP_FOLLOW, QUOTA_OP_TRAIL};
        quota_op(op, reads[turn_random(turn, 0, 3)], budget);
        op->stale = turn_chance(turn, 300);
        if (turn_chance(turn, 500)) op->wait_us = turn_random(turn, 50, 500) * MS;
    }
    return true;
}

static bool generate(struct sim_turn *turn, struct op *op) {
    struct plan *plan = turn->plan;
    uint32_t node = 1 + turn->client % SIM_NODES;
    if (catalog_next(turn, &plan->registered, op)) return true;
    switch (keep_step(turn, &plan->keep, 300, 800)) {
        case KEEP_MAKE: session_op(op, node_spelled(turn, node), plan->keep.ttl_ms, 0); return true;
        case KEEP_RENEW: renew_op(op, &sim_session); return true;
        case KEEP_USE: return use_next(turn, op, true);
        case KEEP_NOTHING: break;
    }
    return turn_chance(turn, 300) && use_next(turn, op, false);
}

/* A client's knowledge of a budget. */
struct purse {
    uint64_t session, lease, seq, epoch;
    uint32_t balance;
    bool asking; /* nobody has said what became of `last` */
    struct quota_own last;
    uint64_t look_index, follow_index, trail_index, trail_next;
};
struct known {
    struct keep_known keep;
    struct purse purses[QUOTAS];
};

/* With a new session it has nothing. */
static struct purse *purse_of(struct known *known, const struct op *op) {
    struct purse *purse = &known->purses[quota_own(op)->budget];
    if (purse->session == known->keep.op) return purse;
    purse->session = known->keep.op;
    purse->lease = purse->balance = purse->asking = 0;
    return purse;
}

static void ask_complete(struct purse *purse, struct quota_own *own) {
    if (purse->asking && own->spend % 4) { /* the same again */
        *own = purse->last;
        return;
    }
    if (own->close && !purse->lease) own->close = false;
    own->seq = ++purse->seq;
    own->lease = own->hold % 2 ? 0 : purse->lease;
    own->spent = purse->balance * own->spend / 1000;
    own->held = own->close ? 0 : (purse->balance - own->spent) * own->hold / 1000;
    if (own->close) own->want = 0;
    if (own->spend % 64 == 1) own->held++; /* now and then it claims too much */
    own->epoch = own->budget == QUOTA_OWNED ? purse->epoch : 0;
    purse->balance = own->held;
    purse->last = *own;
}

static bool complete(void *data, struct op *op) {
    struct known *known = data;
    if (op->module == &sim_catalog) return true;
    if (op->module != &sim_quota) return keep_complete(&known->keep, op);
    struct quota_own *own = quota_own(op);
    struct purse *purse = purse_of(known, op);
    bool uses = (op->kind == QUOTA_OP_ASK && !own->leaseless) || op->kind == QUOTA_OP_SETTLE;
    if (uses && !keep_complete(&known->keep, op)) return false;
    if (uses && op->kind == QUOTA_OP_ASK) ask_complete(purse, own);
    if (op->kind == QUOTA_OP_SETTLE) own->lease = purse->lease, own->spent = purse->balance * own->spend / 900;
    if (op->kind == QUOTA_OP_LOOK) op->known_index = purse->look_index;
    if (op->kind == QUOTA_OP_FOLLOW) op->known_index = purse->follow_index;
    if (op->kind == QUOTA_OP_TRAIL) op->known_index = purse->trail_index, own->lease = purse->trail_next;
    if (op->known_index == 0) op->wait_us = 0;
    return op->kind != QUOTA_OP_SETTLE || own->lease;
}

static void ask_learn(struct purse *purse, const struct op *op) {
    const struct quota_own *own = quota_own(op);
    if (own->leaseless) return;
    purse->asking = op->state != OP_DONE;
    if (op->state != OP_DONE) return;
    if (op->error || own->error) {
        if (own->error != CO_CONFLICT) purse->lease = purse->balance = 0;
        return;
    }
    purse->lease = own->lease, purse->balance = own->balance;
    purse->epoch = own->epoch;
}

static void learn(void *data, const struct op *op) {
    struct known *known = data;
    if (op->module != &sim_quota || (op->owner && op->error == CO_NOTFOUND && op->kind == QUOTA_OP_ASK))
        keep_learn(&known->keep, op);
    if (op->module != &sim_quota) return;
    const struct quota_own *own = quota_own(op);
    struct purse *purse = purse_of(known, op);
    if (op->kind == QUOTA_OP_ASK) ask_learn(purse, op);
    if (op->state != OP_DONE) return;
    if (op->kind == QUOTA_OP_SETTLE && !op->error) purse->lease = purse->balance = 0;
    if (op->kind == QUOTA_OP_LOOK) purse->look_index = op->seen_index;
    if (op->kind == QUOTA_OP_FOLLOW) purse->follow_index = op->seen_index, purse->epoch = own->epoch;
    if (op->kind == QUOTA_OP_TRAIL) purse->trail_index = op->seen_index, purse->trail_next = own->seq;
}

/* -- bytes ------------------------------------------------------------------------------------------------------------ */

static const ProtobufCMessage *define_command(const struct quota_own *own, struct arena *arena, char *name) {
    Pb__QuotaPutCommand *command = arena_alloc(arena, sizeof *command);
    Pb__QuotaDefinition *definition = arena_alloc(arena, sizeof *definition);
    pb__quota_put_command__init(command);
    pb__quota_definition__init(definition);
    command->definition = definition;
    definition->name = name, definition->budget = own->want;
    definition->lease_ttl_ms = QUOTA_TTL;
    definition->max_lease = QUOTA_WHOLE / 2, definition->drift = QUOTA_WHOLE / 5;
    if (own->budget == QUOTA_WINDOWED) definition->window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    else definition->tokens = own->take, definition->every_ms = QUOTA_EVERY;
    if (own->budget == QUOTA_SLACK) definition->mode = PB__QUOTA_MODE__QUOTA_BOUNDED;
    if (own->budget != QUOTA_OWNED) return &command->base;
    definition->mode = PB__QUOTA_MODE__QUOTA_OWNER;
    definition->service = (char *)(uintptr_t) "web", definition->split = QUOTA_SPLITS;
    return &command->base;
}

static Pb__QuotaSplit **split_list(const struct quota_own *own, struct arena *arena) {
    static const char keys[] = "abc";
    Pb__QuotaSplit *split = arena_alloc(arena, sizeof *split), **list = arena_alloc(arena, sizeof *list);
    _Static_assert(sizeof keys == QUOTA_SPLITS + 1, "one letter each");
    pb__quota_split__init(list[0] = split);
    split->key = message_bytes(slice_make(keys + own->split - 1, 1));
    split->parts = own->want % 4;
    return list;
}

static const ProtobufCMessage *ask_command(const struct op *op, struct arena *arena, char *name) {
    const struct quota_own *own = quota_own(op);
    Pb__QuotaAskCommand *command = arena_alloc(arena, sizeof *command);
    Pb__SessionUse *use = arena_alloc(arena, sizeof *use);
    Pb__QuotaAsk *ask = arena_alloc(arena, sizeof *ask);
    pb__quota_ask_command__init(command);
    pb__session_use__init(use);
    pb__quota_ask__init(ask);
    command->asks = arena_alloc(arena, sizeof *command->asks);
    command->asks[command->n_asks++] = ask;
    ask->name = name, ask->take = own->take;
    if (own->leaseless) return &command->base;
    session_name(op->owner, use->id = arena_alloc(arena, 40));
    command->session = use;
    ask->lease = own->lease, ask->seq = own->seq, ask->spent = own->spent, ask->held = own->held;
    ask->want = own->want, ask->priority = own->priority, ask->close = own->close, ask->acked = own->epoch;
    if (own->split) ask->split = split_list(own, arena), ask->n_split = 1;
    return &command->base;
}

static const ProtobufCMessage *settle_command(const struct quota_own *own, struct arena *arena, char *name) {
    Pb__QuotaSettleCommand *command = arena_alloc(arena, sizeof *command);
    pb__quota_settle_command__init(command);
    command->name = name, command->lease = own->lease, command->spent = own->spent;
    return &command->base;
}

static const ProtobufCMessage *delete_command(struct arena *arena, char *name) {
    Pb__QuotaDeleteCommand *command = arena_alloc(arena, sizeof *command);
    pb__quota_delete_command__init(command);
    command->name = name;
    return &command->base;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    static const uint8_t numbers[] = {QUOTA_ASK, QUOTA_SETTLE, QUOTA_PUT, QUOTA_DELETE};
    const struct quota_own *own = quota_own(op);
    char *name = arena_alloc(arena, 8);
    quota_name(own->budget, name);
    *number = numbers[op->kind];
    const ProtobufCMessage *message = op->kind == QUOTA_OP_ASK      ? ask_command(op, arena, name)
                                      : op->kind == QUOTA_OP_SETTLE ? settle_command(own, arena, name)
                                      : op->kind == QUOTA_OP_DEFINE ? define_command(own, arena, name)
                                                                    : delete_command(arena, name);
    op_label((ProtobufCMessage *)(uintptr_t)message, op->id, arena);
    return message;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    char *name = arena_alloc(arena, 8);
    quota_name(quota_own(op)->budget, name);
    if (op->kind == QUOTA_OP_LOOK) {
        Pb__QuotaRequest *look = arena_alloc(arena, sizeof *look);
        pb__quota_request__init(look);
        look->name = name;
        *type = &query_quota;
        return &look->base;
    }
    if (op->kind == QUOTA_OP_FOLLOW) {
        Pb__QuotaNoticeRequest *follow = arena_alloc(arena, sizeof *follow);
        pb__quota_notice_request__init(follow);
        follow->name = name;
        *type = &query_quota_notice;
        return &follow->base;
    }
    Pb__QuotaAuditRequest *trail = arena_alloc(arena, sizeof *trail);
    pb__quota_audit_request__init(trail);
    trail->name = name, trail->from = quota_own(op)->lease;
    *type = &query_quota_audit;
    return &trail->base;
}

/* -- what reads see --------------------------------------------------------------------------------------------------- */

static uint64_t look_sum(const Pb__QuotaState *state) {
    const Pb__QuotaRecord *record = state->record;
    uint64_t of_leases = 0;
    for (size_t i = 0; i < state->n_leases; i++) of_leases += state->leases[i]->balance;
    struct quota_sums sums = {.capacity = state->capacity,
                              .spent = record->spent,
                              .stranded = record->stranded,
                              .balances = record->leased + record->slack,
                              .held = record->held,
                              .armed = record->refill_index,
                              .epoch = record->epoch,
                              .active = record->active,
                              .starving = record->starving};
    return of_leases == sums.balances ? quota_sum(&sums) : 0;
}

/* The parts of a key that is split add up to the budget; else it is no sum that the model has. */
static uint64_t follow_sum(const Pb__QuotaNotice *notice) {
    uint64_t sum = quota_on(quota_on(notice->defined_index, notice->epoch), notice->active);
    uint64_t parts[QUOTA_SPLITS] = {0};
    for (size_t i = 0; i < notice->n_splits; i++) {
        const Pb__QuotaSplit *split = notice->splits[i];
        uint64_t whole = 0;
        for (size_t j = 0; j < split->n_amounts; j++) whole += split->amounts[j];
        if (whole != quota_capacity(notice->definition)) return QUOTA_UNKNOWN;
        parts[split->key.data[0] - 'a'] = split->n_amounts;
    }
    for (unsigned i = 0; i < QUOTA_SPLITS; i++) sum = quota_on(sum, parts[i]);
    return quota_on(quota_on(sum, notice->came), notice->denied);
}

static uint64_t trail_sum(const Pb__QuotaAuditResult *page) {
    for (size_t i = 1; i < page->n_entries; i++)
        if (!trail_follows(trail_sums_of(page->entries[i - 1]), page->entries[i])) return 0;
    if (page->n_entries == 0 || page->n_entries == QUOTA_AUDIT_PAGE) return QUOTA_UNKNOWN;
    struct trail_sums last = trail_sums_of(page->entries[page->n_entries - 1]);
    return quota_trail_sum(last.spent, last.stranded, last.balances);
}

static void seen(struct op *op, const struct query_result *result) {
    struct quota_own *own = quota_own(op);
    own->sum = own->epoch = own->seq = 0;
    if (!result->found) return;
    if (op->kind == QUOTA_OP_LOOK) own->sum = look_sum((const Pb__QuotaState *)result->message);
    if (op->kind == QUOTA_OP_FOLLOW) {
        own->sum = follow_sum((const Pb__QuotaNotice *)result->message);
        own->epoch = ((const Pb__QuotaNotice *)result->message)->epoch;
    }
    if (op->kind != QUOTA_OP_TRAIL) return;
    const Pb__QuotaAuditResult *page = (const Pb__QuotaAuditResult *)result->message;
    own->sum = trail_sum(page);
    own->seq = page->n_entries ? page->entries[page->n_entries - 1]->number : 0; /* the next page begins with it */
}

static void judge_end(struct sim *sim, struct server *server) {
    (void)sim;
    for (unsigned i = 0; i < QUOTAS; i++)
        for (enum quota_kind kind = QUOTA_OP_LOOK; kind <= QUOTA_OP_TRAIL; kind++) {
            struct op op = {0};
            quota_op(&op, kind, i);
            op_judge(server, &op);
        }
}

const struct sim_module sim_quota = {
    .name = "quota",
    .module = &quota_module,
    .pace = {.clients_least = 2, .clients_most = 4, .think_least_ms = 10, .think_most_ms = 60, .open_most = 1},
    .plan_size = sizeof(struct plan),
    .known_size = sizeof(struct known),
    .model_size = sizeof(struct quota_model),
    .end = quota_model_end,
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .command = command,
    .made_by = op_labelled,
    .request = request,
    .seen = seen,
    .check_read = quota_model_read,
    .apply = quota_model_apply,
    .on_notice = quota_model_notice,
    .over = quota_model_over,
    .over_ms = 3 * QUOTA_TTL,
    .check_end = judge_end,
};
