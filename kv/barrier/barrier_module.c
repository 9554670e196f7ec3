/* Queries on barriers, and the module's table. */
#include "base/message.h"
#include "kv/barrier/barrier_internal.h"
#include "registry/module_access.h"

/* -- a barrier's state -------------------------------------------------------------------------------------------- */

static int round_read(struct store_txn *txn, struct slice name, const Pb__BarrierRound *round, struct arena *arena,
                      size_t *count, Pb__BarrierParty ***parties) {
    char room[STORE_KEY_MAX];
    struct store_cursor cursor;
    struct slice prefix = barrier_party_prefix(name, round->round, room);
    *parties = arena_alloc(arena, (round->inside + 1) * sizeof **parties);
    STORE_PREFIX(&cursor, txn, BARRIER_TABLE, prefix) {
        if (cursor.value.size == 1 && cursor.value.data[0]) continue; /* the party has left */
        if (*count == round->inside || !barrier_is_party(cursor.key, prefix)) break;
        struct slice session = barrier_party_session(cursor.key);
        Pb__BarrierParty *party = arena_alloc(arena, sizeof *party);
        pb__barrier_party__init(party);
        party->session = arena_strndup(arena, session.data, session.size);
        party->index = barrier_party_index(cursor.key);
        (*parties)[(*count)++] = party;
    }
    bool all = *count == round->inside && !(cursor.valid && slice_starts(cursor.key, prefix));
    store_cursor_close(&cursor);
    return all || store_read_limit_hit(txn) ? CO_OK : CO_CORRUPT;
}

static int state_read(struct store_txn *txn, const Pb__BarrierRecord *record, struct arena *arena,
                      Pb__BarrierState **out) {
    Pb__BarrierState *state = *out = arena_alloc(arena, sizeof *state);
    struct slice name = slice_text(record->name);
    int rv = CO_OK;
    pb__barrier_state__init(state);
    state->name = record->name;
    state->released_round = record->released_round, state->modify_index = record->modify_index;
    if (record->gathering) {
        state->round = record->gathering->round, state->parties = record->gathering->parties;
        state->doubled = record->gathering->doubled;
        rv = round_read(txn, name, record->gathering, arena, &state->n_entered, &state->entered);
    }
    if (rv == CO_OK && record->working) {
        state->working_round = record->working->round;
        rv = round_read(txn, name, record->working, arena, &state->n_working, &state->working);
    }
    return rv;
}

static struct slice request_name(const ProtobufCMessage *request) {
    return slice_text(((const Pb__BarrierRequest *)request)->name);
}

static struct watch_key barrier_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_BARRIER, request_name(request)};
}

static int barrier_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                       struct query_result *result) {
    Pb__BarrierRecord *record;
    Pb__BarrierState *state;
    *result = (struct query_result){0};
    int rv = barrier_get(txn, request_name(request), arena, &record);
    if (rv == CO_NOTFOUND && request_name(request).size <= BARRIER_NAME_MOST)
        result->index = machine_change_index(txn, SPACE_BARRIER, request_name(request));
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    rv = state_read(txn, record, arena, &state);
    *result = (struct query_result){.index = record->modify_index, .found = true, .message = &state->base};
    return rv;
}

ACCESS_SHOW_ONE(barrier_show, LOCK, Pb__BarrierRequest, name)

const struct query_type query_barrier = {.number = 46,
                                         .name = "barrier",
                                         .request = &pb__barrier_request__descriptor,
                                         .result = &pb__barrier_state__descriptor,
                                         .watched = barrier_watched,
                                         .run = barrier_run,
                                         .show = barrier_show};

/* -- waiting of a session ----------------------------------------------------------------------------------------- */

static struct slice wait_who(const ProtobufCMessage *request) {
    const Pb__BarrierWaitRequest *wait = (const Pb__BarrierWaitRequest *)request;
    return message_slice(wait->who);
}

/* The request may come from another process. */
static bool who_split(struct slice who, struct slice *name, struct slice *session) {
    if (who.size <= UUID_TEXT_SIZE + 1 || who.size > BARRIER_WHO_MOST) return false;
    *name = slice_make(who.data, who.size - UUID_TEXT_SIZE - 1);
    *session = slice_make(who.data + name->size + 1, UUID_TEXT_SIZE);
    return who.data[name->size] == '\0';
}

static int who_show(struct access_check *check, struct slice who) {
    struct slice name = slice_make("", 0), session;
    (void)who_split(who, &name, &session);
    return access_require(check, ACCESS_LOCK, name, ACCESS_READ);
}

static struct watch_key wait_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_BARRIER_PLACE, wait_who(request)};
}

/* The answer shows how many have entered when the time is up; a session that enters wakes nobody. */
static struct watch_key wait_also(const ProtobufCMessage *request) {
    struct slice name = slice_make("", 0), session;
    (void)who_split(wait_who(request), &name, &session);
    return (struct watch_key){SPACE_BARRIER, name};
}

static int wait_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    const Pb__BarrierWaitRequest *wait = (const Pb__BarrierWaitRequest *)request;
    struct slice name, session;
    Pb__BarrierPlace *place;
    Pb__BarrierRecord *record;
    Pb__BarrierAnswer *answer = arena_alloc(arena, sizeof *answer);
    *result = (struct query_result){0};
    if (!who_split(wait_who(request), &name, &session)) return CO_OK; /* there can be none */
    pb__barrier_answer__init(answer);
    answer->round = wait->round, answer->parties = wait->parties;
    answer->session = arena_strndup(arena, session.data, session.size);
    result->found = true, result->message = &answer->base;
    int rv = barrier_place_get(txn, session, name, arena, &place);
    answer->gone = rv == CO_NOTFOUND;
    if (answer->gone) result->index = machine_change_index(txn, SPACE_BARRIER_PLACE, wait_who(request));
    if (rv == CO_OK) rv = barrier_get(txn, name, arena, &record);
    else return answer->gone ? CO_OK : rv;
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
    const Pb__BarrierRound *round = wait->leave ? record->working : record->gathering;
    bool through = wait->leave ? place->standing == PB__BARRIER_STANDING__BARRIER_OVER
                               : place->standing != PB__BARRIER_STANDING__BARRIER_WAITING;
    answer->released = place->round > wait->round || (place->round == wait->round && through);
    answer->entered = answer->released                       ? (wait->leave ? 0 : answer->parties)
                      : round && round->round == wait->round ? round->inside
                                                             : 0;
    result->index = place->since;
    return CO_OK;
}

static int wait_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                     struct query_result *result) {
    (void)txn, (void)result;
    return who_show(check, wait_who(request));
}

const struct query_type query_barrier_wait = {.number = 47,
                                              .name = "barrier-wait",
                                              .request = &pb__barrier_wait_request__descriptor,
                                              .result = &pb__barrier_answer__descriptor,
                                              .watched = wait_watched,
                                              .also = wait_also,
                                              .run = wait_run,
                                              .show = wait_show};

/* -- the place of a session --------------------------------------------------------------------------------------- */

static struct slice place_who(const ProtobufCMessage *request) {
    return message_slice(((const Pb__BarrierPlaceRequest *)request)->who);
}

static struct watch_key place_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_BARRIER_PLACE, place_who(request)};
}

static int place_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    struct slice name, session;
    Pb__BarrierPlace *place;
    *result = (struct query_result){0};
    if (!who_split(place_who(request), &name, &session)) return CO_OK; /* there can be none */
    int rv = barrier_place_get(txn, session, name, arena, &place);
    if (rv == CO_NOTFOUND) result->index = machine_change_index(txn, SPACE_BARRIER_PLACE, place_who(request));
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    Pb__BarrierSeat *seat = arena_alloc(arena, sizeof *seat);
    pb__barrier_seat__init(seat);
    seat->name = arena_strndup(arena, name.data, name.size);
    seat->session = arena_strndup(arena, session.data, session.size);
    seat->round = place->round, seat->parties = place->parties, seat->standing = place->standing;
    *result = (struct query_result){.index = place->since, .found = true, .message = &seat->base};
    return CO_OK;
}

static int place_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                      struct query_result *result) {
    (void)txn, (void)result;
    return who_show(check, place_who(request));
}

const struct query_type query_barrier_place = {.number = 150,
                                               .name = "barrier-place",
                                               .request = &pb__barrier_place_request__descriptor,
                                               .result = &pb__barrier_seat__descriptor,
                                               .watched = place_watched,
                                               .run = place_run,
                                               .show = place_show};

/* -- all of them -------------------------------------------------------------------------------------------------- */

static struct slice list_prefix(const ProtobufCMessage *request) {
    return slice_text(((const Pb__BarrierListRequest *)request)->prefix);
}

static struct watch_key list_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_BARRIER | WATCH_PREFIX_BIT, list_prefix(request)};
}

static int list_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    struct slice prefix = list_prefix(request);
    char room[1 + BARRIER_NAME_MOST] = "b";
    Pb__BarriersResult *all = arena_alloc(arena, sizeof *all);
    size_t capacity = 0;
    struct store_cursor cursor;
    int rv = CO_OK;
    pb__barriers_result__init(all);
    *result = (struct query_result){.found = true, .message = &all->base};
    if (prefix.size > BARRIER_NAME_MOST) return CO_OK;
    memcpy(room + 1, prefix.data, prefix.size);
    STORE_PREFIX(&cursor, txn, BARRIER_TABLE, slice_make(room, 1 + prefix.size)) {
        Pb__BarrierRecord *record;
        Pb__BarrierState *state;
        rv = barrier_decode(cursor.value, arena, &record);
        if (rv == CO_OK) rv = state_read(txn, record, arena, &state);
        if (rv != CO_OK) break;
        if (all->n_barriers == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            Pb__BarrierState **wider = arena_alloc(arena, capacity * sizeof *wider);
            if (all->n_barriers) memcpy(wider, all->barriers, all->n_barriers * sizeof *wider);
            all->barriers = wider;
        }
        all->barriers[all->n_barriers++] = state;
        if (record->modify_index > result->index) result->index = record->modify_index;
    }
    store_cursor_close(&cursor);
    uint64_t removed = machine_removed_below(txn, SPACE_BARRIER, prefix);
    if (removed > result->index) result->index = removed;
    return rv;
}

ACCESS_SHOW_LIST(list_show, LOCK, Pb__BarriersResult, barriers, name)

const struct query_type query_barriers = {.number = 54,
                                          .name = "barriers",
                                          .request = &pb__barrier_list_request__descriptor,
                                          .result = &pb__barriers_result__descriptor,
                                          .watched = list_watched,
                                          .run = list_run,
                                          .show = list_show};

/* -- access: by the rules `lock` for the barrier's name ------------------------------------------------------------ */

static int enter_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__BarrierEnterCommand *command = (const Pb__BarrierEnterCommand *)request;
    (void)txn;
    int rv = access_require(check, ACCESS_LOCK, slice_text(command->name), ACCESS_WRITE);
    return rv == CO_OK ? session_may_use(check, command->session) : rv;
}

ACCESS_MAY(leave_may, LOCK, WRITE, Pb__BarrierLeaveCommand, name)

/* -- the table ---------------------------------------------------------------------------------------------------- */

static const struct module_command commands[] = {
    {.number = BARRIER_ENTER,
     .name = "barrier-enter",
     .request = &pb__barrier_enter_command__descriptor,
     .result = &pb__barrier_answer__descriptor,
     .may = enter_may,
     .apply = barrier_enter_apply},
    {.number = BARRIER_LEAVE,
     .name = "barrier-leave",
     .request = &pb__barrier_leave_command__descriptor,
     .result = &pb__barrier_answer__descriptor,
     .may = leave_may,
     .apply = barrier_leave_apply},
    {0},
};
static const struct store_table tables[] = {
    {BARRIER_TABLE, "barriers"}, {BARRIER_TABLE_SESSIONS, "barrier-sessions"}, {0}};
static const struct module_space spaces[] = {{SPACE_BARRIER, "barrier"}, {SPACE_BARRIER_PLACE, "barrier-place"}, {0}};
static const struct query_type *const queries[] = {&query_barrier, &query_barrier_wait, &query_barrier_place,
                                                   &query_barriers, NULL};

const struct module_binding barrier_binding = {.number = BARRIER_TABLE_SESSIONS, .ended = barrier_ended};
static const struct module_binding session_bindings[] = {{.number = BARRIER_TABLE_SESSIONS, .ended = barrier_ended},
                                                         {0}};

const struct module barrier_module = {.name = "barrier",
                                      .commands = commands,
                                      .tables = tables,
                                      .spaces = spaces,
                                      .queries = queries,
                                      .session_bindings = session_bindings};
