/* Commands on barriers, and what the end of a session does to them. */
#include <inttypes.h>

#include "kv/barrier/barrier_internal.h"

/* -- rounds ------------------------------------------------------------------------------------------------------- */

/* Gives every session whose last round is `round` the standing `to`, and removes the round's rows when it is done. The
 * sessions are gathered first, because no cursor outlives a write. */
static void move_parties(struct machine_tx *tx, struct slice name, uint64_t round, Pb__BarrierStanding to, bool done) {
    char room[STORE_KEY_MAX];
    struct buffer sessions = {0};
    struct slice prefix = barrier_party_prefix(name, round, room);
    struct store_cursor cursor;
    store_cursor_open(&cursor, tx->store, BARRIER_TABLE, prefix);
    while (cursor.valid && slice_starts(cursor.key, prefix)) {
        if (!barrier_is_party(cursor.key, prefix)) {
            store_fail(tx->store, CO_CORRUPT);
            break;
        }
        buffer_append(&sessions, barrier_party_session(cursor.key).data, UUID_TEXT_SIZE);
        if (done) store_cursor_del(&cursor);
        else store_cursor_next(&cursor);
    }
    store_cursor_close(&cursor);
    CHECK(round && sessions.size % UUID_TEXT_SIZE == 0);
    for (size_t at = 0; at < sessions.size; at += UUID_TEXT_SIZE) {
        struct slice session = slice_make(sessions.data + at, UUID_TEXT_SIZE);
        Pb__BarrierPlace *place;
        int rv = barrier_place_get(tx->store, session, name, tx->arena, &place);
        if (rv == CO_OK && place->round == round) barrier_place_put(tx, session, name, place, to);
        else if (rv == CO_CORRUPT) store_fail(tx->store, rv);
    }
    buffer_free(&sessions);
}

static void release_when_complete(struct machine_tx *tx, Pb__BarrierRecord *record) {
    Pb__BarrierRound *round = record->gathering;
    unsigned missing = tx->mutations & MUTATE_BARRIER_EARLY ? 1 : 0;
    if (!round || record->working || round->inside + missing < round->parties) return;
    move_parties(tx, slice_text(record->name), round->round,
                 round->doubled ? PB__BARRIER_STANDING__BARRIER_INSIDE : PB__BARRIER_STANDING__BARRIER_RELEASED,
                 !round->doubled);
    CHECK(round->round > record->released_round); /* rounds only grow */
    record->released_round = round->round;
    record->working = round->doubled ? round : NULL;
    record->gathering = NULL;
}

/* Takes a session out of the round in which it waits or is inside. CO_CORRUPT: no round of the record is the one of its
 * place. */
static int take_out(struct machine_tx *tx, Pb__BarrierRecord *record, struct slice session,
                    const Pb__BarrierPlace *place) {
    char room[STORE_KEY_MAX];
    struct slice name = slice_text(record->name);
    struct slice key = barrier_party_key(name, place->round, place->index, session, room);
    bool waits = place->standing == PB__BARRIER_STANDING__BARRIER_WAITING;
    if (!waits && place->standing != PB__BARRIER_STANDING__BARRIER_INSIDE) return CO_OK;
    Pb__BarrierRound *round = waits ? record->gathering : record->working;
    if (!round || round->round != place->round || round->inside == 0) return CO_CORRUPT;
    round->inside--;
    if (waits) {
        (void)store_del(tx->store, BARRIER_TABLE, key);
        if (round->inside == 0) record->gathering = NULL;
        return CO_OK;
    }
    store_put(tx->store, BARRIER_TABLE, key, slice_make("\1", 1));
    if (round->inside != 0) return CO_OK;
    move_parties(tx, name, place->round, PB__BARRIER_STANDING__BARRIER_OVER, true);
    record->working = NULL;
    release_when_complete(tx, record);
    return CO_OK;
}

static int unbind(struct machine_tx *tx, Pb__BarrierRecord *record, struct slice session) {
    barrier_place_remove(tx, session, slice_text(record->name));
    if (record->sessions == 0) return CO_CORRUPT;
    record->sessions--;
    barrier_put(tx, record);
    return CO_OK;
}

int barrier_ended(struct machine_tx *tx, const struct binding_end *end) {
    Pb__BarrierPlace *place;
    Pb__BarrierRecord *record;
    int rv = barrier_place_decode(end->value, tx->arena, &place);
    if (rv == CO_OK) rv = barrier_get(tx->store, end->name, tx->arena, &record);
    if (rv == CO_OK) rv = take_out(tx, record, end->owner, place);
    if (rv == CO_OK) rv = unbind(tx, record, end->owner);
    return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

static int answer(struct machine_tx *tx, struct machine_result *result, const Pb__BarrierAnswer *answer) {
    Pb__BarrierAnswer *copy = arena_alloc(tx->arena, sizeof *copy);
    *copy = *answer;
    result->yes = true;
    result->message = &copy->base;
    return CO_OK;
}

static bool name_fits(const char *name, struct machine_result *result) {
    if (name[0] && strlen(name) <= BARRIER_NAME_MOST) return true;
    (void)machine_refuse(result, CO_INVALID, "a barrier's name has 1 to 256 bytes");
    return false;
}

/* -- enter -------------------------------------------------------------------------------------------------------- */

struct enter {
    const Pb__BarrierEnterCommand *command;
    Pb__BarrierRecord *record; /* empty, when the barrier is new */
    Pb__Session *session;      /* NULL: the command makes it */
    Pb__BarrierPlace *place;   /* NULL: the session has none */
    struct slice forget;       /* the barrier that makes room for this one; empty: none has to */
};

/* Reads the barrier, the session and its place. */
static int enter_look(struct machine_tx *tx, struct enter *enter, struct machine_result *result) {
    const Pb__BarrierEnterCommand *command = enter->command;
    struct slice name = slice_text(command->name);
    int rv = barrier_get(tx->store, name, tx->arena, &enter->record);
    if (rv == CO_NOTFOUND) {
        enter->record = arena_alloc(tx->arena, sizeof *enter->record);
        pb__barrier_record__init(enter->record);
        enter->record->name = command->name;
        rv = CO_OK;
    }
    if (rv != CO_OK || (command->session && command->session->create)) return rv;
    rv = session_ensure(tx, command->session, result, &enter->session);
    if (rv != CO_OK || result->error) return rv;
    rv = barrier_place_get(tx->store, slice_text(enter->session->id), name, tx->arena, &enter->place);
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

/* True: the session has its answer already, or it is refused. */
static bool enter_is_answered(struct machine_tx *tx, const struct enter *enter, struct machine_result *result) {
    const Pb__BarrierEnterCommand *command = enter->command;
    const Pb__BarrierPlace *place = enter->place;
    const Pb__BarrierRound *gathering = enter->record->gathering;
    bool waits = place && place->standing == PB__BARRIER_STANDING__BARRIER_WAITING;
    bool inside = place && place->standing == PB__BARRIER_STANDING__BARRIER_INSIDE;
    Pb__BarrierAnswer there = PB__BARRIER_ANSWER__INIT;
    if (place) {
        bool knows = command->after_given ? command->after >= place->round : !inside; /* that it was released */
        there.round = place->round, there.parties = there.entered = place->parties;
        there.session = enter->session->id;
        there.released = !waits && !knows;
    }
    if (there.released) return answer(tx, result, &there), true;
    if (inside)
        return machine_refuse(result, CO_CONFLICT,
                              arena_printf(tx->arena,
                                           "barrier \"%s\": the session has not left round %" PRIu64
                                           ": leave it before the next one",
                                           command->name, place->round)),
               true;
    if (gathering && (gathering->parties != command->parties || gathering->doubled != command->doubled))
        return machine_refuse(result, CO_CONFLICT,
                              arena_printf(tx->arena,
                                           "barrier \"%s\" waits for %u parties (%s), not for %u (%s): all of a round "
                                           "say the same",
                                           command->name, gathering->parties, gathering->doubled ? "double" : "single",
                                           command->parties, command->doubled ? "double" : "single")),
               true;
    if (waits && gathering) {
        there.entered = gathering->inside;
        return answer(tx, result, &there), true;
    }
    if (gathering && gathering->inside >= gathering->parties && enter->record->working)
        return machine_refuse(result, CO_CONFLICT,
                              arena_printf(tx->arena,
                                           "barrier \"%s\": the next round has its %u parties already; it waits for "
                                           "those who have not left round %" PRIu64,
                                           command->name, gathering->parties, enter->record->working->round)),
               true;
    return false;
}

/* When the session is bound to as many barriers as it may be, *forget becomes the one that released it first. CO_BUSY:
 * it waits or is inside at all of them. */
static int find_forgettable(struct machine_tx *tx, struct slice session, struct slice *forget) {
    struct store_cursor cursor;
    unsigned count = 0;
    uint64_t oldest = UINT64_MAX;
    int rv = CO_OK;
    SESSION_EACH_BOUND(&cursor, tx->store, &barrier_binding, session) { count++; }
    store_cursor_close(&cursor);
    if (count < BARRIER_SESSION_MOST) return CO_OK;
    SESSION_EACH_BOUND(&cursor, tx->store, &barrier_binding, session) {
        Pb__BarrierPlace *place;
        struct slice name = session_bound_key(&cursor);
        if ((rv = barrier_place_decode(cursor.value, tx->arena, &place)) != CO_OK) break;
        if (place->standing != PB__BARRIER_STANDING__BARRIER_RELEASED &&
            place->standing != PB__BARRIER_STANDING__BARRIER_OVER)
            continue;
        if (place->index >= oldest) continue;
        oldest = place->index;
        *forget = slice_copy(tx->arena, name);
    }
    store_cursor_close(&cursor);
    if (rv != CO_OK) return rv;
    return forget->size ? CO_OK : CO_BUSY;
}

static int forget(struct machine_tx *tx, struct slice session, struct slice name) {
    Pb__BarrierRecord *record;
    int rv = barrier_get(tx->store, name, tx->arena, &record);
    return rv == CO_OK ? unbind(tx, record, session) : rv == CO_NOTFOUND ? CO_CORRUPT : rv;
}

static void enter_put(struct machine_tx *tx, struct enter *enter, struct machine_result *result) {
    const Pb__BarrierEnterCommand *command = enter->command;
    Pb__BarrierRecord *record = enter->record;
    struct slice name = slice_text(command->name), session = slice_text(enter->session->id);
    char room[STORE_KEY_MAX];
    if (!record->gathering) {
        record->gathering = arena_alloc(tx->arena, sizeof *record->gathering);
        pb__barrier_round__init(record->gathering);
        record->gathering->round = tx->index;
        record->gathering->parties = command->parties, record->gathering->doubled = command->doubled;
    }
    CHECK(record->gathering->parties == command->parties && record->gathering->doubled == command->doubled);
    Pb__BarrierRound *round = record->gathering;
    Pb__BarrierPlace place = PB__BARRIER_PLACE__INIT;
    place.round = round->round, place.index = tx->index, place.parties = round->parties;
    round->inside++;
    CHECK(round->inside <= round->parties && round->round <= tx->index);
    if (!enter->place) record->sessions++;
    store_put(tx->store, BARRIER_TABLE, barrier_party_key(name, place.round, place.index, session, room),
              slice_make("\0", 1));
    barrier_place_put(tx, session, name, &place, PB__BARRIER_STANDING__BARRIER_WAITING);
    Pb__BarrierAnswer there = PB__BARRIER_ANSWER__INIT;
    there.round = round->round, there.parties = round->parties, there.entered = round->inside;
    there.session = enter->session->id;
    release_when_complete(tx, record);
    there.released = record->released_round == there.round;
    barrier_put(tx, record);
    (void)answer(tx, result, &there);
}

int barrier_enter_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__BarrierEnterCommand *command = request;
    struct enter enter = {.command = command, .forget = slice_make("", 0)};
    struct machine_thing thing = {SPACE_BARRIER, "barrier", slice_text(command->name)};
    if (!name_fits(command->name, result) || machine_refuses(tx, thing, result)) return CO_OK;
    if (command->parties == 0 || command->parties > BARRIER_PARTIES_MOST)
        return machine_refuse(result, CO_INVALID, "parties: from 1 to 10000");
    if (command->after >= tx->index)
        return machine_refuse(result, CO_INVALID, "after: there has been no such round: it is the Round of an answer");
    int rv = enter_look(tx, &enter, result);
    if (rv != CO_OK || result->error || enter_is_answered(tx, &enter, result)) return rv;
    if (enter.session && !enter.place) rv = find_forgettable(tx, slice_text(enter.session->id), &enter.forget);
    if (rv == CO_BUSY)
        return machine_refuse(result, CO_BUSY, "the session is inside of 256 barriers: leave some, or use another one");
    if (rv == CO_OK && !enter.session) rv = session_ensure(tx, command->session, result, &enter.session);
    if (rv != CO_OK || result->error) return rv;
    if (enter.forget.size) rv = forget(tx, slice_text(enter.session->id), enter.forget);
    if (rv != CO_OK) return rv;
    CHECK(enter.session && enter.record);
    enter_put(tx, &enter, result);
    return CO_OK;
}

/* -- leave -------------------------------------------------------------------------------------------------------- */

static int leave(struct machine_tx *tx, Pb__BarrierRecord *record, struct slice session, Pb__BarrierPlace *place,
                 struct machine_result *result) {
    bool inside = place->standing == PB__BARRIER_STANDING__BARRIER_INSIDE;
    bool unbinds = place->standing == PB__BARRIER_STANDING__BARRIER_WAITING ||
                   place->standing == PB__BARRIER_STANDING__BARRIER_RELEASED;
    Pb__BarrierAnswer there = PB__BARRIER_ANSWER__INIT;
    there.round = place->round, there.parties = place->parties;
    there.session = (char *)(uintptr_t)session.data;
    CHECK(!(inside && unbinds));
    Pb__BarrierPlace left = *place;
    if (inside) /* first, because the last one to leave moves all that have left */
        barrier_place_put(tx, session, slice_text(record->name), &left, PB__BARRIER_STANDING__BARRIER_LEFT);
    int rv = take_out(tx, record, session, place);
    if (rv == CO_OK && unbinds) rv = unbind(tx, record, session);
    if (rv == CO_OK && inside) barrier_put(tx, record);
    if (rv != CO_OK) return rv;
    there.released = !record->working || record->working->round != place->round;
    if (!there.released) there.entered = record->working->inside;
    (void)answer(tx, result, &there);
    return unbinds ? session_end_idle(tx, session) : CO_OK;
}

int barrier_leave_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__BarrierLeaveCommand *command = request;
    struct slice name = slice_text(command->name), session = slice_text(command->session);
    Pb__BarrierPlace *place;
    Pb__BarrierRecord *record;
    if (!name_fits(command->name, result)) return CO_OK;
    int rv = session_exists(tx->store, session);
    if (rv == CO_NOTFOUND)
        return machine_refuse(result, CO_NOTFOUND, arena_printf(tx->arena, "invalid session \"%.64s\"", session.data));
    if (rv == CO_OK) rv = barrier_place_get(tx->store, session, name, tx->arena, &place);
    if (rv == CO_NOTFOUND)
        return machine_refuse(
            result, CO_NOTFOUND,
            arena_printf(tx->arena, "the session is not in barrier \"%s\": it has not entered, or left",
                         command->name));
    if (rv == CO_OK) rv = barrier_get(tx->store, name, tx->arena, &record);
    if (rv == CO_OK) rv = leave(tx, record, session, place, result);
    return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
}
