/* Records and keys of barriers. */
#include "kv/barrier/barrier_internal.h"

/* -- keys --------------------------------------------------------------------------------------------------------- */

struct slice barrier_key(struct slice name, char *room) {
    CHECK(name.size > 0 && name.size <= BARRIER_NAME_MOST);
    room[0] = 'b';
    memcpy(room + 1, name.data, name.size);
    return slice_make(room, 1 + name.size);
}

struct slice barrier_party_prefix(struct slice name, uint64_t round, char *room) {
    CHECK(name.size > 0 && name.size <= BARRIER_NAME_MOST);
    room[0] = 'p';
    memcpy(room + 1, name.data, name.size);
    room[1 + name.size] = '\0';
    put_be64(room + 2 + name.size, round);
    return slice_make(room, 2 + name.size + 8);
}

struct slice barrier_party_key(struct slice name, uint64_t round, uint64_t index, struct slice session, char *room) {
    _Static_assert(2 + BARRIER_NAME_MOST + 16 + UUID_TEXT_SIZE <= STORE_KEY_MAX, "it fits");
    struct slice prefix = barrier_party_prefix(name, round, room);
    CHECK(session.size == UUID_TEXT_SIZE);
    put_be64(room + prefix.size, index);
    memcpy(room + prefix.size + 8, session.data, session.size);
    return slice_make(room, prefix.size + 8 + session.size);
}

struct slice barrier_who(struct slice name, struct slice session, char *room) {
    CHECK(name.size <= BARRIER_NAME_MOST && session.size == UUID_TEXT_SIZE);
    memcpy(room, name.data, name.size);
    room[name.size] = '\0';
    memcpy(room + name.size + 1, session.data, session.size);
    return slice_make(room, name.size + 1 + session.size);
}

/* -- a session's place -------------------------------------------------------------------------------------------- */

int barrier_place_decode(struct slice bytes, struct arena *arena, Pb__BarrierPlace **place) {
    *place = machine_decode(&pb__barrier_place__descriptor, bytes, arena);
    return *place ? CO_OK : CO_CORRUPT;
}

int barrier_place_get(struct store_txn *txn, struct slice session, struct slice name, struct arena *arena,
                      Pb__BarrierPlace **place) {
    struct slice bytes;
    int rv = session_bound(txn, &barrier_binding, session, name, &bytes);
    return rv == CO_OK ? barrier_place_decode(bytes, arena, place) : rv;
}

void barrier_place_put(struct machine_tx *tx, struct slice session, struct slice name, Pb__BarrierPlace *place,
                       Pb__BarrierStanding standing) {
    char room[BARRIER_WHO_MOST];
    uint8_t bytes[64];
    place->standing = standing, place->since = tx->index;
    size_t size = pb__barrier_place__get_packed_size(place);
    CHECK(size <= sizeof bytes && place->base.n_unknown_fields == 0);
    pb__barrier_place__pack(place, bytes);
    session_bind(tx, &barrier_binding, session, name, slice_make(bytes, size));
    machine_touch(tx, SPACE_BARRIER_PLACE, barrier_who(name, session, room));
}

void barrier_place_remove(struct machine_tx *tx, struct slice session, struct slice name) {
    char room[BARRIER_WHO_MOST];
    session_unbind(tx, &barrier_binding, session, name);
    machine_changed(tx, SPACE_BARRIER_PLACE, barrier_who(name, session, room), true);
}

/* -- the record --------------------------------------------------------------------------------------------------- */

int barrier_decode(struct slice bytes, struct arena *arena, Pb__BarrierRecord **record) {
    *record = machine_decode(&pb__barrier_record__descriptor, bytes, arena);
    bool fits = *record && (*record)->name[0] && strlen((*record)->name) <= BARRIER_NAME_MOST;
    return fits ? CO_OK : CO_CORRUPT;
}

int barrier_get(struct store_txn *txn, struct slice name, struct arena *arena, Pb__BarrierRecord **record) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    if (name.size == 0 || name.size > BARRIER_NAME_MOST) return CO_NOTFOUND;
    int rv = store_get(txn, BARRIER_TABLE, barrier_key(name, room), &bytes);
    return rv == CO_OK ? barrier_decode(bytes, arena, record) : rv;
}

void barrier_put(struct machine_tx *tx, Pb__BarrierRecord *record) {
    char room[STORE_KEY_MAX];
    struct slice name = slice_text(record->name), key = barrier_key(name, room);
    if (record->sessions == 0) {
        (void)store_del(tx->store, BARRIER_TABLE, key);
        machine_changed(tx, SPACE_BARRIER, name, true);
        return;
    }
    record->modify_index = tx->index;
    size_t size = pb__barrier_record__get_packed_size(record);
    uint8_t *bytes = arena_alloc(tx->arena, size);
    pb__barrier_record__pack(record, bytes);
    store_put(tx->store, BARRIER_TABLE, key, slice_make(bytes, size));
    machine_touch(tx, SPACE_BARRIER, name);
}
