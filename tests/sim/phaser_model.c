/* The model of phasers knows who is registered where, and derives all else anew after each entry. */
#include "tests/sim/phaser_model.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

#define P PRIu64

static struct phaser_model *model_of(struct sim *sim) { return sim_model(sim, &sim_phaser); }

static struct phaser phaser_copy(const struct phaser *phaser) {
    struct phaser copy = *phaser;
    copy.members = mem_alloc((phaser->count + 1) * sizeof *copy.members);
    if (phaser->count) memcpy(copy.members, phaser->members, phaser->count * sizeof *copy.members);
    return copy;
}

void phaser_model_end(struct sim *sim) {
    struct phaser_model *model = model_of(sim);
    for (uint32_t name = 0; name < PHASERS; name++) {
        for (size_t i = 0; i < model->versions[name].count; i++) free(model->versions[name].all[i].phaser.members);
        free(model->versions[name].all);
        free(model->now[name].members);
    }
    free(model->left);
}

static struct phaser_member *member_of(struct phaser *phaser, uint64_t session) {
    for (size_t i = 0; i < phaser->count; i++)
        if (phaser->members[i].session == session) return &phaser->members[i];
    return NULL;
}

/* Counts over the registered parties. */
struct tally {
    uint32_t registered, arrived, below;
};
static bool signals(const struct phaser_member *member) { return member->mode != PB__PHASER_MODE__PHASER_WAIT; }
static bool is_complete(struct tally tally) { return tally.registered && tally.registered == tally.arrived; }
static bool is_child(const struct phaser_model *model, uint32_t child, uint32_t name) {
    return model->now[child].there && model->now[child].parent == name;
}

static struct tally tally_of(const struct phaser_model *model, uint32_t name) {
    struct tally tally = {0};
    const struct phaser *phaser = &model->now[name];
    for (size_t i = 0; i < phaser->count; i++) {
        if (!signals(&phaser->members[i])) continue;
        tally.registered++;
        tally.arrived += phaser->members[i].arrived;
    }
    for (uint32_t child = 0; child < PHASERS; child++) {
        if (!is_child(model, child, name)) continue;
        struct tally its = tally_of(model, child);
        tally.registered += its.registered > 0;
        tally.arrived += is_complete(its);
        tally.below += 1 + its.below;
    }
    return tally;
}

static uint64_t sum_of(const struct phaser_model *model, uint32_t name) {
    const struct phaser *phaser = &model->now[name];
    struct tally tally = tally_of(model, name);
    uint64_t sum = sum_phaser(phaser->phase, phaser->parent, tally.registered, tally.arrived,
                              phaser->parent == NO_PHASER ? tally.below : 0, phaser->created);
    for (size_t i = 0; i < phaser->count; i++)
        sum = on_member(sum, phaser->members[i].session, phaser->members[i].mode,
                        phaser->members[i].arrived && signals(&phaser->members[i]), phaser->members[i].created);
    for (uint32_t child = 0; child < PHASERS; child++) {
        if (!is_child(model, child, name)) continue;
        struct tally its = tally_of(model, child);
        sum = on_child(sum, child, its.registered > 0, is_complete(its));
    }
    return sum;
}

/* After an entry, or one of its parts. */
static void commit(struct phaser_model *model, uint64_t index) {
    for (uint32_t name = 0; name < PHASERS; name++) {
        struct phaser *phaser = &model->now[name];
        size_t count = model->versions[name].count;
        struct phaser_version *last = count ? &model->versions[name].all[count - 1] : NULL;
        struct phaser_version next = {.index = index, .registered = tally_of(model, name).registered};
        next.sum = phaser->there ? sum_of(model, name) : 0;
        if (last ? last->phaser.there == phaser->there && last->sum == next.sum : !phaser->there) continue;
        next.phaser = phaser_copy(phaser);
        if (last && last->index == index) {
            free(last->phaser.members);
            *last = next;
            continue;
        }
        model->versions[name].all =
            mem_realloc(model->versions[name].all, (count + 1) * sizeof *model->versions[name].all);
        model->versions[name].all[model->versions[name].count++] = next;
    }
}

/* -- what commands do ------------------------------------------------------------------------------------------------- */

static uint32_t root_of(const struct phaser_model *model, uint32_t name) {
    while (model->now[name].parent != NO_PHASER) name = model->now[name].parent;
    return name;
}

static void advance(struct phaser_model *model, uint32_t name, uint64_t index) {
    struct phaser *phaser = &model->now[name];
    phaser->phase++, phaser->began = index;
    for (size_t i = 0; i < phaser->count; i++) phaser->members[i].arrived = false;
    for (uint32_t child = 0; child < PHASERS; child++)
        if (is_child(model, child, name)) advance(model, child, index);
}

/* `before`: parties of the root that signalled before this. */
static bool advance_if_over(struct phaser_model *model, uint32_t root, uint32_t before, uint64_t index) {
    struct tally tally = tally_of(model, root);
    if (!model->now[root].there || !(is_complete(tally) || (before && !tally.registered))) return false;
    advance(model, root, index);
    return true;
}

static void leave(struct phaser_model *model, uint32_t name, uint64_t session, uint64_t index) {
    struct phaser *phaser = &model->now[name];
    struct phaser_member *member = member_of(phaser, session);
    uint32_t root = root_of(model, name), before = tally_of(model, root).registered;
    size_t at = (size_t)(member - phaser->members);
    memmove(member, member + 1, (--phaser->count - at) * sizeof *member);
    model->left = mem_realloc(model->left, (model->left_count + 1) * sizeof *model->left);
    model->left[model->left_count].name = name;
    model->left[model->left_count].session = session;
    model->left[model->left_count++].index = index;
    while (name != NO_PHASER && !model->now[name].count && !tally_of(model, name).below) {
        model->now[name].there = false;
        name = model->now[name].parent;
    }
    advance_if_over(model, root, before, index);
}

static void begin(struct phaser_model *model, uint32_t name, uint32_t parent, uint64_t index) {
    struct phaser *phaser = &model->now[name];
    uint64_t phase = parent == NO_PHASER ? 0 : model->now[parent].phase;
    *phaser = (struct phaser){
        .there = true, .parent = parent, .phase = phase, .created = index, .began = index, .members = phaser->members};
}

static void join(struct phaser_model *model, const struct op *op, uint64_t index) {
    struct phaser *phaser = &model->now[own_of(op)->name];
    phaser->members = mem_realloc(phaser->members, (phaser->count + 1) * sizeof *phaser->members);
    size_t at = phaser->count++;
    for (; at > 0 && phaser->members[at - 1].session > op->owner; at--) phaser->members[at] = phaser->members[at - 1];
    phaser->members[at] = (struct phaser_member){.session = op->owner, .mode = own_of(op)->mode, .created = index};
}

static bool is_above(const struct phaser_model *model, uint32_t name, uint32_t from) {
    for (; from != NO_PHASER; from = model->now[from].there ? model->now[from].parent : NO_PHASER)
        if (from == name) return true;
    return false;
}

static struct sim_expected registered(struct sim *sim, const struct sim_applied *applied) {
    struct phaser_model *model = model_of(sim);
    const struct phaser_own *own = own_of(applied->op);
    struct phaser *phaser = &model->now[own->name];
    bool there = phaser->there;
    if (own->parent != NO_PHASER &&
        (is_above(model, own->name, own->parent) || (there && phaser->parent != own->parent)))
        return expect_error();
    struct phaser_member *member = there ? member_of(phaser, applied->op->owner) : NULL;
    if (member ? member->mode != own->mode : !expiring_alive(sim, applied->op->owner)) return expect_error();
    if (!there && own->parent != NO_PHASER && !model->now[own->parent].there)
        begin(model, own->parent, NO_PHASER, applied->index);
    if (!there) begin(model, own->name, own->parent, applied->index);
    if (!member) join(model, applied->op, applied->index);
    const Pb__PhaserRegistration *answer = (const Pb__PhaserRegistration *)applied->result->message;
    if (!answer || answer->phase != phaser->phase || answer->mode != own->mode ||
        session_maker(answer->session) != applied->op->owner)
        sim_violation(sim, RULE_MODEL, "registration %" P " at %" P " is answered with another one", applied->op->id,
                      applied->index);
    return expect_yes();
}

static void judge_arrival(struct sim *sim, const struct sim_applied *applied, const Pb__PhaserArrival *want) {
    const Pb__PhaserArrival *got = (const Pb__PhaserArrival *)applied->result->message;
    if (!got || got->phase != want->phase || got->now != want->now || got->arrived != want->arrived ||
        got->registered != want->registered || got->advanced != want->advanced)
        sim_violation(sim, RULE_MODEL,
                      "arrival %" P " at %" P " in phase %" P ": %u of %u%s, expected phase %" P ", %u of %u%s",
                      applied->op->id, applied->index, got ? got->phase : 0, got ? got->arrived : 0,
                      got ? got->registered : 0, got && got->advanced ? ", over" : "", want->phase, want->arrived,
                      want->registered, want->advanced ? ", over" : "");
}

static struct sim_expected arrived(struct sim *sim, const struct sim_applied *applied) {
    struct phaser_model *model = model_of(sim);
    const struct phaser_own *own = own_of(applied->op);
    const Pb__PhaserArriveCommand *command = (const Pb__PhaserArriveCommand *)applied->command;
    struct phaser *phaser = &model->now[own->name];
    struct phaser_member *member = phaser->there ? member_of(phaser, applied->op->owner) : NULL;
    if (!member || !signals(member) || (command->has_phase && command->phase > phaser->phase)) return expect_error();
    Pb__PhaserArrival want = PB__PHASER_ARRIVAL__INIT;
    bool late = command->has_phase && command->phase < phaser->phase;
    want.phase = late ? command->phase : phaser->phase;
    if (!late) member->arrived = true;
    struct tally tally = tally_of(model, own->name);
    want.registered = tally.registered;
    want.arrived = late ? tally.registered : tally.arrived;
    uint32_t root = root_of(model, own->name);
    want.advanced = late || advance_if_over(model, root, 0, applied->index);
    want.now = phaser->phase;
    judge_arrival(sim, applied, &want);
    return expect_yes();
}

static struct sim_expected deregistered(struct sim *sim, const struct sim_applied *applied) {
    struct phaser_model *model = model_of(sim);
    uint32_t name = own_of(applied->op)->name;
    if (!model->now[name].there || !member_of(&model->now[name], applied->op->owner)) return expect_no();
    leave(model, name, applied->op->owner, applied->index);
    return expect_yes();
}

struct sim_expected phaser_model_apply(struct sim *sim, const struct sim_applied *applied) {
    if (!applied->op) return expect_any(applied);
    struct sim_expected want = applied->number == PHASER_REGISTER ? registered(sim, applied)
                               : applied->number == PHASER_ARRIVE ? arrived(sim, applied)
                                                                  : deregistered(sim, applied);
    commit(model_of(sim), applied->index);
    return want;
}

void phaser_model_notice(struct sim *sim, const struct sim_notice *notice) {
    struct phaser_model *model = model_of(sim);
    if (notice->type != SIM_ENDED || notice->op->module != &sim_session) return;
    for (uint32_t name = 0; name < PHASERS; name++) {
        if (!model->now[name].there || !member_of(&model->now[name], notice->op->id)) continue;
        leave(model, name, notice->op->id, notice->index);
        commit(model, notice->index);
    }
}

/* -- reads ------------------------------------------------------------------------------------------------------------ */

static const struct phaser_version *version_at(const struct phaser_model *model, uint32_t name, uint64_t index) {
    for (size_t i = model->versions[name].count; i > 0; i--)
        if (model->versions[name].all[i - 1].index <= index) return &model->versions[name].all[i - 1];
    return NULL;
}

static void judge(struct sim *sim, const struct op *op, bool found, uint64_t index, uint64_t sum) {
    char name[8];
    phaser_name(own_of(op)->name, name);
    if (op->found != found || op->seen_index != index)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": %s%s as of %" P ", expected%s as of %" P,
                      op->id, op->server + 1, op->index, name, op->found ? "" : " not found", op->seen_index,
                      found ? "" : " not found", index);
    else if (found && own_of(op)->seen != sum)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": %s is not as it should be", op->id,
                      op->server + 1, op->index, name);
}

static uint64_t left_at(const struct phaser_model *model, uint32_t name, uint64_t session, uint64_t index) {
    for (size_t i = model->left_count; i > 0; i--)
        if (model->left[i - 1].name == name && model->left[i - 1].session == session &&
            model->left[i - 1].index <= index)
            return model->left[i - 1].index;
    return 0;
}

void phaser_model_read(struct sim *sim, const struct op *op) {
    struct phaser_model *model = model_of(sim);
    uint32_t name = own_of(op)->name;
    const struct phaser_version *version = version_at(model, name, op->index);
    bool there = version && version->phaser.there;
    if (op->kind == GET) {
        judge(sim, op, there, version ? version->index : 0, there ? version->sum : 0);
        return;
    }
    struct phaser phaser = there ? version->phaser : (struct phaser){0};
    const struct phaser_member *member = there ? member_of(&phaser, op->owner) : NULL;
    if (!member) judge(sim, op, false, left_at(model, name, op->owner, op->index), 0);
    else
        judge(sim, op, true, phaser.began > member->created ? phaser.began : member->created,
              sum_await(phaser.phase, version->registered, member->mode, member->created));
}
