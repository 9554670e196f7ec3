/* Queries on phasers, and the module's table. */
#include "base/message.h"
#include "kv/phaser/phaser_internal.h"
#include "registry/module_access.h"

/* -- one phaser --------------------------------------------------------------------------------------------------- */

static struct slice request_name(const ProtobufCMessage *request) {
    return slice_text(((const Pb__PhaserRequest *)request)->name);
}

static struct watch_key state_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_PHASER, request_name(request)};
}

static int members_read(struct store_txn *txn, struct arena *arena, Pb__PhaserState *state) {
    char room[STORE_KEY_MAX];
    const Pb__Phaser *phaser = state->phaser;
    struct slice rows = phaser_rows(slice_text(phaser->name), PHASER_ROW_MEMBER, room);
    struct store_cursor cursor;
    int rv = CO_OK;
    if (phaser->members > PHASER_MEMBERS_MAX) return CO_CORRUPT;
    state->members = arena_alloc(arena, (phaser->members + 1) * sizeof *state->members);
    STORE_PREFIX(&cursor, txn, PHASER_TABLE_MEMBERS, rows) {
        Pb__PhaserMember *member = machine_decode(&pb__phaser_member__descriptor, cursor.value, arena);
        if (!member || state->n_members == phaser->members) {
            rv = CO_CORRUPT;
            break;
        }
        member->arrived = phaser_signals(member->mode) && member->arrived_before == phaser->phase + 1;
        state->members[state->n_members++] = member;
    }
    store_cursor_close(&cursor);
    return rv;
}

static int children_read(struct store_txn *txn, struct arena *arena, Pb__PhaserState *state) {
    size_t most = state->phaser->children, count = 0;
    if (most > PHASER_TREE_MAX) return CO_CORRUPT;
    const char **names = arena_alloc(arena, (most + 1) * sizeof *names);
    int rv = phaser_children(txn, slice_text(state->phaser->name), arena, names, most, &count);
    state->children = arena_alloc(arena, (most + 1) * sizeof *state->children);
    for (size_t i = 0; i < count && rv == CO_OK; i++) {
        Pb__Phaser *phaser;
        Pb__PhaserChild *child = arena_alloc(arena, sizeof *child);
        rv = phaser_get(txn, slice_text(names[i]), arena, &phaser);
        if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
        pb__phaser_child__init(child);
        child->name = phaser->name;
        child->signals = phaser->registered > 0;
        child->arrived = phaser_is_complete(phaser);
        state->children[state->n_children++] = child;
    }
    return rv;
}

static int state_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    Pb__PhaserState *state = arena_alloc(arena, sizeof *state);
    pb__phaser_state__init(state);
    *result = (struct query_result){0};
    int rv = phaser_get(txn, request_name(request), arena, &state->phaser);
    if (rv == CO_NOTFOUND) {
        result->index = machine_change_index(txn, SPACE_PHASER, request_name(request));
        return CO_OK;
    }
    if (rv == CO_OK) rv = members_read(txn, arena, state);
    if (rv == CO_OK) rv = children_read(txn, arena, state);
    if (rv != CO_OK) return rv;
    *result = (struct query_result){.index = state->phaser->modify_index, .found = true, .message = &state->base};
    return CO_OK;
}

/* The counts of a phaser, also those of its children, are its own; its parent's and children's names are not. */
static void parent_show(struct access_check *check, Pb__Phaser *phaser) {
    if (!access_allows(check->access, ACCESS_LOCK, slice_text(phaser->parent), ACCESS_READ))
        phaser->parent = (char *)(uintptr_t) "";
}

static int state_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                      struct query_result *result) {
    Pb__PhaserState *state = (Pb__PhaserState *)result->message;
    (void)txn;
    int rv = access_require(check, ACCESS_LOCK, request_name(request), ACCESS_READ);
    if (rv != CO_OK || !state) return rv;
    parent_show(check, state->phaser);
    ACCESS_KEEP_ROWS(state->n_children, state->children, access_shows(check, ACCESS_LOCK, slice_text(row->name)));
    return CO_OK;
}

const struct query_type query_phaser = {.number = 48,
                                        .name = "phaser",
                                        .request = &pb__phaser_request__descriptor,
                                        .result = &pb__phaser_state__descriptor,
                                        .watched = state_watched,
                                        .run = state_run,
                                        .show = state_show};

/* -- all of them -------------------------------------------------------------------------------------------------- */

static struct slice request_prefix(const ProtobufCMessage *request) {
    return slice_text(((const Pb__PhaserListRequest *)request)->prefix);
}

static struct watch_key list_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_PHASER | WATCH_PREFIX_BIT, request_prefix(request)};
}

static int list_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    Pb__PhasersResult *list = arena_alloc(arena, sizeof *list);
    struct slice prefix = request_prefix(request);
    struct store_cursor cursor;
    size_t room = 0;
    int rv = CO_OK;
    pb__phasers_result__init(list);
    *result = (struct query_result){.index = machine_removed_below(txn, SPACE_PHASER, prefix), .found = true};
    result->message = &list->base;
    if (prefix.size > PHASER_NAME_MAX) return CO_OK; /* no phaser has such a name */
    STORE_PREFIX(&cursor, txn, PHASER_TABLE, prefix) {
        if (list->n_phasers == room) {
            room = room ? 2 * room : 16;
            Pb__Phaser **wider = arena_alloc(arena, room * sizeof *wider);
            if (list->n_phasers) memcpy(wider, list->phasers, list->n_phasers * sizeof *wider);
            list->phasers = wider;
        }
        Pb__Phaser *phaser = machine_decode(&pb__phaser__descriptor, cursor.value, arena);
        if (!phaser) {
            rv = CO_CORRUPT;
            break;
        }
        list->phasers[list->n_phasers++] = phaser;
        if (phaser->modify_index > result->index) result->index = phaser->modify_index;
    }
    store_cursor_close(&cursor);
    return rv;
}

static int list_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                     struct query_result *result) {
    Pb__PhasersResult *list = (Pb__PhasersResult *)result->message;
    (void)txn, (void)request;
    ACCESS_KEEP_ROWS(list->n_phasers, list->phasers, access_shows(check, ACCESS_LOCK, slice_text(row->name)));
    for (size_t i = 0; i < list->n_phasers; i++) parent_show(check, list->phasers[i]);
    return CO_OK;
}

const struct query_type query_phasers = {.number = 49,
                                         .name = "phasers",
                                         .request = &pb__phaser_list_request__descriptor,
                                         .result = &pb__phasers_result__descriptor,
                                         .watched = list_watched,
                                         .run = list_run,
                                         .show = list_show};

/* -- waiting for the advance -------------------------------------------------------------------------------------- */

static const Pb__PhaserAwaitRequest *awaits(const ProtobufCMessage *request) {
    return (const Pb__PhaserAwaitRequest *)request;
}

static struct watch_key phase_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_PHASER_PHASE, slice_text(awaits(request)->name)};
}

/* The answer shows the phaser's counts too. */
static struct watch_key phase_also(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_PHASER, slice_text(awaits(request)->name)};
}

static struct watch_key phase_own(const ProtobufCMessage *request, size_t i) {
    if (i > 0) return (struct watch_key){0};
    return (struct watch_key){SPACE_PHASER_PHASE,
                              slice_make(awaits(request)->member.data, awaits(request)->member.len)};
}

void phaser_await_key(Pb__PhaserAwaitRequest *request, struct arena *arena) {
    struct slice key = phaser_member_key(slice_text(request->name), slice_text(request->session), arena);
    request->member = message_bytes(key);
}

static int await_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    Pb__Phaser *phaser;
    Pb__PhaserMember *member = NULL;
    Pb__PhaserAwait *answer = arena_alloc(arena, sizeof *answer);
    struct slice name = slice_text(awaits(request)->name), session = slice_text(awaits(request)->session);
    pb__phaser_await__init(answer);
    *result = (struct query_result){0};
    int rv = phaser_get(txn, name, arena, &phaser);
    if (rv == CO_OK) rv = phaser_member_get(txn, name, session, arena, &member);
    if (rv == CO_NOTFOUND) {
        struct watch_key gone = phase_own(request, 0);
        result->index = machine_change_index(txn, gone.space, gone.name);
        return CO_OK;
    }
    if (rv != CO_OK) return rv;
    answer->phase = phaser->phase;
    answer->registered = phaser->registered;
    answer->mode = member->mode;
    answer->create_index = member->create_index;
    uint64_t phase_index = phaser->phase_index, member_index = member->create_index;
    result->index = phase_index > member_index ? phase_index : member_index;
    result->found = true;
    result->message = &answer->base;
    return CO_OK;
}

ACCESS_SHOW_ONE(await_show, LOCK, Pb__PhaserAwaitRequest, name)

const struct query_type query_phaser_await = {.number = 56,
                                              .name = "phaser-await",
                                              .request = &pb__phaser_await_request__descriptor,
                                              .result = &pb__phaser_await__descriptor,
                                              .watched = phase_watched,
                                              .run = await_run,
                                              .show = await_show,
                                              .also = phase_also,
                                              .own = phase_own};

/* -- commands: who may send them ---------------------------------------------------------------------------------- */

/* A phaser that comes below a parent is one more party there, so it needs a rule for the parent too. Later its arrivals
 * count there without one. */
static int register_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    Pb__PhaserRegisterCommand *command = (Pb__PhaserRegisterCommand *)(uintptr_t)request;
    (void)txn;
    int rv = access_require(check, ACCESS_LOCK, slice_text(command->name), ACCESS_WRITE);
    command->nameless = !access_allows_below(check->access, ACCESS_LOCK, slice_make("", 0), ACCESS_READ);
    if (rv == CO_OK && command->parent[0])
        rv = access_require(check, ACCESS_LOCK, slice_text(command->parent), ACCESS_WRITE);
    return rv == CO_OK ? session_may_use(check, command->session) : rv;
}

ACCESS_MAY(arrive_may, LOCK, WRITE, Pb__PhaserArriveCommand, name)
ACCESS_MAY(deregister_may, LOCK, WRITE, Pb__PhaserDeregisterCommand, name)

/* -- the table ---------------------------------------------------------------------------------------------------- */

static const struct module_command commands[] = {
    {.number = PHASER_REGISTER,
     .name = "phaser-register",
     .request = &pb__phaser_register_command__descriptor,
     .result = &pb__phaser_registration__descriptor,
     .marks = true,
     .may = register_may,
     .apply = phaser_register_apply},
    {.number = PHASER_ARRIVE,
     .name = "phaser-arrive",
     .request = &pb__phaser_arrive_command__descriptor,
     .result = &pb__phaser_arrival__descriptor,
     .may = arrive_may,
     .apply = phaser_arrive_apply},
    {.number = PHASER_DEREGISTER,
     .name = "phaser-deregister",
     .request = &pb__phaser_deregister_command__descriptor,
     .may = deregister_may,
     .apply = phaser_deregister_apply},
    {0},
};
static const struct store_table tables[] = {{PHASER_TABLE, "phasers"},
                                            {PHASER_TABLE_MEMBERS, "phaser-members"},
                                            {PHASER_TABLE_SESSIONS, "phaser-sessions"},
                                            {0}};
static const struct module_space spaces[] = {{SPACE_PHASER, "phaser"}, {SPACE_PHASER_PHASE, "phaser-phase"}, {0}};
static const struct query_type *const queries[] = {&query_phaser, &query_phasers, &query_phaser_await, NULL};

const struct module phaser_module = {.name = "phaser",
                                     .commands = commands,
                                     .tables = tables,
                                     .spaces = spaces,
                                     .queries = queries,
                                     .session_bindings = phaser_bindings};
