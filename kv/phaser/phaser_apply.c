/* Commands on phasers, and the end of a session that is in some. */
#include "kv/phaser/phaser_internal.h"

static int name_refused(const char *name, struct machine_result *result) {
    if (!name[0]) return machine_refuse(result, CO_INVALID, "the phaser has no name");
    if (strlen(name) > PHASER_NAME_MAX)
        return machine_refuse(result, CO_INVALID, "a phaser's name has at most 256 bytes");
    return CO_OK;
}

/* "a < b < a", names shortened. */
static int refuse_circle(struct machine_tx *tx, const Pb__PhaserRegisterCommand *command,
                         const struct phaser_chain *above, struct machine_result *result) {
    const char *name = command->name, *text = arena_printf(tx->arena, "%.64s", name);
    if (command->nameless) return machine_refuse(result, CO_CONFLICT, "parent: the phaser would be its own ancestor");
    for (unsigned i = 0; i < above->count; i++) {
        text = arena_printf(tx->arena, "%s < %.64s", text, above->at[i]->name);
        if (strcmp(above->at[i]->name, name) == 0) break;
    }
    return machine_refuse(result, CO_CONFLICT,
                          arena_printf(tx->arena, "parent: the phaser would be its own ancestor: %s", text));
}

/* -- register ----------------------------------------------------------------------------------------------------- */

/* A new phaser. */
static Pb__Phaser *fresh(struct machine_tx *tx, const char *name) {
    Pb__Phaser *phaser = arena_alloc(tx->arena, sizeof *phaser);
    pb__phaser__init(phaser);
    phaser->name = (char *)(uintptr_t)name;
    phaser->create_index = phaser->phase_index = tx->index;
    return phaser;
}

static bool is_fresh(const struct machine_tx *tx, const Pb__Phaser *phaser) {
    return phaser->create_index == tx->index && phaser->modify_index == 0;
}

/* Loads `parent` and its ancestors; makes the parent when there is none. */
static int load_parent(struct machine_tx *tx, const char *parent, struct phaser_chain *above) {
    int rv = phaser_chain_load(tx, slice_text(parent), above);
    if (rv != CO_NOTFOUND) return rv;
    *above = (struct phaser_chain){.count = 1, .at = {fresh(tx, parent)}};
    return CO_OK;
}

/* The phaser exists: its parent has to be the one that the command names. */
static int parent_refused(struct machine_tx *tx, const Pb__Phaser *phaser, const Pb__PhaserRegisterCommand *command,
                          struct machine_result *result) {
    const char *parent = command->parent;
    struct phaser_chain above;
    int rv = load_parent(tx, parent, &above);
    if (rv != CO_OK) return rv;
    for (unsigned i = 0; i < above.count; i++)
        if (strcmp(above.at[i]->name, phaser->name) == 0) return refuse_circle(tx, command, &above, result);
    if (strcmp(phaser->parent, parent) == 0) return CO_OK;
    if (command->nameless) return machine_refuse(result, CO_CONFLICT, "parent: the phaser has another parent, or none");
    return machine_refuse(
        result, CO_CONFLICT,
        phaser->parent[0]
            ? arena_printf(tx->arena, "parent: phaser \"%.64s\" has the parent \"%.64s\"", phaser->name, phaser->parent)
            : arena_printf(tx->arena, "parent: phaser \"%.64s\" has none", phaser->name));
}

/* A phaser that begins, below a parent that may begin as well. */
static int begin(struct machine_tx *tx, const Pb__PhaserRegisterCommand *command, struct phaser_chain *chain,
                 struct machine_result *result) {
    struct phaser_chain above = {0};
    int rv = command->parent[0] ? load_parent(tx, command->parent, &above) : CO_OK;
    if (rv != CO_OK) return rv;
    if (strcmp(command->parent, command->name) == 0) return refuse_circle(tx, command, &above, result);
    if (above.count == PHASER_DEPTH_MAX)
        return machine_refuse(
            result, CO_INVALID,
            arena_printf(tx->arena, "parent: a tree of phasers has at most %d levels", PHASER_DEPTH_MAX));
    if (above.count && above.at[above.count - 1]->descendants >= PHASER_TREE_MAX)
        return machine_refuse(
            result, CO_BUSY,
            arena_printf(tx->arena, "parent: a tree has at most %d phasers below its root%s%.64s%s", PHASER_TREE_MAX,
                         command->nameless ? "" : " \"", command->nameless ? "" : above.at[above.count - 1]->name,
                         command->nameless ? "" : "\""));
    *chain =
        (struct phaser_chain){.count = 1 + above.count, .at = {fresh(tx, command->name)}, .signalled = above.signalled};
    memcpy(chain->at + 1, above.at, above.count * sizeof *above.at);
    return CO_OK;
}

/* Writes the child's row of a new phaser. phaser_tree_commit writes the records. */
static void begun(struct machine_tx *tx, struct phaser_chain *chain) {
    Pb__Phaser *phaser = chain->at[0], *root = chain->at[chain->count - 1];
    for (unsigned i = 0; i < chain->count && i < 2; i++)
        if (is_fresh(tx, chain->at[i])) machine_changed(tx, SPACE_PHASER, slice_text(chain->at[i]->name), false);
    CHECK(chain->count >= 1 && chain->count <= PHASER_DEPTH_MAX);
    if (chain->count == 1) return;
    phaser->phase = chain->at[1]->phase;
    phaser->parent = chain->at[1]->name;
    phaser_child_put(tx, chain->at[1], phaser);
    chain->at[1]->children++, root->descendants++;
    chain->changed[1] = chain->changed[chain->count - 1] = true;
}

/* Only a session that exists already can be in phasers. */
static unsigned phasers_of(struct machine_tx *tx, struct slice session) {
    struct store_cursor cursor;
    unsigned count = 0;
    if (session.size != UUID_TEXT_SIZE) return 0;
    SESSION_EACH_BOUND(&cursor, tx->store, phaser_bindings, session) count++;
    store_cursor_close(&cursor);
    return count;
}

static int registered(struct machine_tx *tx, const Pb__Phaser *phaser, const Pb__PhaserMember *member,
                      struct machine_result *result) {
    Pb__PhaserRegistration *answer = arena_alloc(tx->arena, sizeof *answer);
    pb__phaser_registration__init(answer);
    answer->phase = phaser->phase;
    answer->mode = member->mode;
    answer->session = member->session;
    result->message = &answer->base;
    result->yes = true;
    return CO_OK;
}

static int join(struct machine_tx *tx, struct phaser_chain *chain, const Pb__Session *session, Pb__PhaserMode mode,
                struct machine_result *result) {
    Pb__Phaser *phaser = chain->at[0];
    Pb__PhaserMember member = PB__PHASER_MEMBER__INIT;
    bool ignored;
    struct slice name = slice_text(phaser->name);
    member.session = session->id, member.mode = mode, member.create_index = tx->index;
    if (is_fresh(tx, phaser)) begun(tx, chain);
    phaser->members++;
    chain->changed[0] = true;
    int rv = phaser_chain_count(chain, phaser_signals(mode), 0);
    if (rv != CO_OK) return rv;
    phaser_member_put(tx, phaser, &member);
    session_bind(tx, phaser_bindings, slice_text(session->id), name, slice_make("", 0));
    machine_touch(tx, SPACE_PHASER_PHASE, phaser_member_key(name, slice_text(session->id), tx->arena));
    rv = phaser_chain_settle(tx, chain, &ignored);
    return rv == CO_OK ? registered(tx, phaser, &member, result) : rv;
}

int phaser_register_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__PhaserRegisterCommand *command = request;
    struct slice name = slice_text(command->name), known = slice_text(command->session ? command->session->id : "");
    struct phaser_chain chain;
    Pb__PhaserMember *member;
    Pb__Session *session;
    int rv = name_refused(command->name, result);
    if (rv == CO_OK && !result->error && command->parent[0]) rv = name_refused(command->parent, result);
    if (rv != CO_OK || result->error) return rv;
    struct machine_thing thing = {SPACE_PHASER, "phaser", name},
                         above = {SPACE_PHASER, "phaser", slice_text(command->parent)};
    if (machine_refuses(tx, thing, result) || machine_refuses(tx, above, result)) return CO_OK;
    if (!protobuf_c_enum_descriptor_get_value(&pb__phaser_mode__descriptor, (int)command->mode))
        return machine_refuse(result, CO_INVALID, "mode: signal-wait, signal or wait is wanted");
    rv = phaser_chain_load(tx, name, &chain);
    if (rv == CO_NOTFOUND) rv = begin(tx, command, &chain, result);
    else if (rv == CO_OK && command->parent[0]) rv = parent_refused(tx, chain.at[0], command, result);
    if (rv != CO_OK || result->error) return rv;
    rv = phaser_member_get(tx->store, name, known, tx->arena, &member);
    if (rv == CO_OK && member->mode == command->mode) return registered(tx, chain.at[0], member, result);
    if (rv == CO_OK)
        return machine_refuse(result, CO_CONFLICT, "mode: the session is registered in another one: deregister first");
    if (rv != CO_NOTFOUND) return rv;
    if (chain.at[0]->members >= PHASER_MEMBERS_MAX)
        return machine_refuse(
            result, CO_BUSY,
            arena_printf(tx->arena, "a phaser has at most %d members: use children", PHASER_MEMBERS_MAX));
    if (phasers_of(tx, known) >= PHASER_SESSION_MAX)
        return machine_refuse(result, CO_BUSY,
                              arena_printf(tx->arena, "a session is in at most %d phasers", PHASER_SESSION_MAX));
    rv = session_ensure(tx, command->session, result, &session);
    if (rv != CO_OK || result->error) return rv;
    return join(tx, &chain, session, command->mode, result);
}

/* -- arrive ------------------------------------------------------------------------------------------------------- */

static int no_member(struct machine_tx *tx, const char *name, const char *session, struct machine_result *result) {
    return machine_refuse(result, CO_NOTFOUND,
                          arena_printf(tx->arena,
                                       "session \"%.64s\" is not registered with phaser \"%.64s\": it has ended, "
                                       "has deregistered or never registered",
                                       session, name));
}

/* CO_OK: *member is the phaser's first, or `result` refuses. */
static int load_member(struct machine_tx *tx, const char *name, const char *session, struct phaser_chain *chain,
                       Pb__PhaserMember **member, struct machine_result *result) {
    int rv = phaser_chain_load(tx, slice_text(name), chain);
    if (rv == CO_OK) rv = phaser_member_get(tx->store, slice_text(name), slice_text(session), tx->arena, member);
    return rv == CO_NOTFOUND ? no_member(tx, name, session, result) : rv;
}

static int arrive_refused(struct machine_tx *tx, const Pb__PhaserArriveCommand *command, const Pb__Phaser *phaser,
                          const Pb__PhaserMember *member, struct machine_result *result) {
    if (!phaser_signals(member->mode))
        return machine_refuse(result, CO_CONFLICT, "the session is registered to wait only: it cannot arrive");
    if (command->waits && member->mode == PB__PHASER_MODE__PHASER_SIGNAL)
        return machine_refuse(result, CO_CONFLICT, "the session is registered to signal only: it cannot wait");
    if (command->has_phase && command->phase > phaser->phase)
        return machine_refuse(result, CO_CONFLICT,
                              arena_printf(tx->arena, "phase: %llu is ahead, the phaser is in phase %llu",
                                           (unsigned long long)command->phase, (unsigned long long)phaser->phase));
    return CO_OK;
}

int phaser_arrive_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__PhaserArriveCommand *command = request;
    struct phaser_chain chain;
    Pb__PhaserMember *member = NULL;
    int rv = load_member(tx, command->name, command->session, &chain, &member, result);
    if (rv == CO_OK && !result->error) rv = arrive_refused(tx, command, chain.at[0], member, result);
    if (rv != CO_OK || result->error) return rv;
    Pb__Phaser *phaser = chain.at[0];
    Pb__PhaserArrival *answer = arena_alloc(tx->arena, sizeof *answer);
    pb__phaser_arrival__init(answer);
    bool over = command->has_phase && command->phase < phaser->phase, advanced = over;
    answer->phase = over ? command->phase : phaser->phase;
    answer->now = phaser->phase;
    if (!over && member->arrived_before != phaser->phase + 1) { /* else it has arrived already, and was counted */
        member->arrived_before = phaser->phase + 1;
        rv = phaser_chain_count(&chain, 0, 1);
        if (rv != CO_OK) return rv;
        phaser_member_put(tx, phaser, member);
        rv = phaser_chain_settle(tx, &chain, &advanced);
        answer->now += advanced;
    }
    answer->arrived = over ? phaser->registered : phaser->arrived;
    answer->registered = phaser->registered;
    answer->advanced = advanced;
    answer->create_index = member->create_index;
    result->message = &answer->base;
    result->yes = true;
    return rv;
}

/* -- leaving ------------------------------------------------------------------------------------------------------ */

/* `counted`: the phase no longer waits for the member. */
static int leave(struct machine_tx *tx, struct phaser_chain *chain, const Pb__PhaserMember *member, bool counted) {
    Pb__Phaser *phaser = chain->at[0];
    struct slice name = slice_text(phaser->name), session = slice_text(member->session);
    bool signals = phaser_signals(member->mode), arrived = signals && member->arrived_before == phaser->phase + 1,
         ignored;
    if (phaser->members == 0) return CO_CORRUPT;
    phaser->members--;
    chain->changed[0] = true;
    int rv = counted ? phaser_chain_count(chain, -signals, -arrived) : CO_OK;
    if (rv != CO_OK) return rv;
    phaser_member_del(tx, name, session);
    session_unbind(tx, phaser_bindings, session, name);
    machine_changed(tx, SPACE_PHASER_PHASE, phaser_member_key(name, session, tx->arena), true);
    return phaser_chain_settle(tx, chain, &ignored);
}

int phaser_deregister_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__PhaserDeregisterCommand *command = request;
    struct phaser_chain chain;
    Pb__PhaserMember *member = NULL;
    int rv = name_refused(command->name, result);
    if (rv != CO_OK || result->error) return rv;
    rv = load_member(tx, command->name, command->session, &chain, &member, result);
    if (rv == CO_OK && result->error == CO_NOTFOUND) return machine_refuse(result, CO_OK, NULL); /* no member */
    if (rv == CO_OK) rv = leave(tx, &chain, member, true);
    if (rv == CO_OK) rv = session_end_idle(tx, slice_text(command->session));
    result->yes = true;
    return rv;
}

/* A session ends that is a member. */
static int member_ended(struct machine_tx *tx, const struct binding_end *end) {
    struct phaser_chain chain;
    Pb__PhaserMember *member;
    int rv = phaser_chain_load(tx, end->name, &chain);
    if (rv == CO_OK) rv = phaser_member_get(tx->store, end->name, end->owner, tx->arena, &member);
    if (rv == CO_OK) rv = leave(tx, &chain, member, !(tx->mutations & MUTATE_PHASER_KEEPS_DEAD));
    return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
}

const struct module_binding phaser_bindings[] = {{.number = PHASER_TABLE_SESSIONS, .ended = member_ended}, {0}};
