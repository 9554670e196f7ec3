/* Shared by the files of kv/barrier/ only. */
#ifndef COORD_KV_BARRIER_INTERNAL_H
#define COORD_KV_BARRIER_INTERNAL_H

#include "base/check.h"
#include "base/text.h"
#include "kv/barrier/barrier.h"
#include "kv/session/session.h"

enum barrier_table {
    BARRIER_TABLE = 29, /* 'b', name -> pb.BarrierRecord; 'p', name, NUL, round, index of its enter, session -> has it
                         * left? (1 byte); numbers big-endian */
    BARRIER_TABLE_SESSIONS = 30, /* session, name -> pb.BarrierPlace */
};
_Static_assert(BARRIER_ENTER >= 32 && BARRIER_LEAVE < 64, "commands of kv (registry/module.h)");
_Static_assert(BARRIER_TABLE >= 16 && BARRIER_TABLE_SESSIONS < 40, "tables of kv");
_Static_assert(SPACE_BARRIER >= 32 && SPACE_BARRIER_PLACE < 64, "spaces of kv");

extern const struct module_binding barrier_binding;
/* A session's place, in the arena. CO_NOTFOUND: it has none; CO_CORRUPT, or the store failed. */
int barrier_place_get(struct store_txn *txn, struct slice session, struct slice name, struct arena *arena,
                      Pb__BarrierPlace **place);
int barrier_place_decode(struct slice bytes, struct arena *arena, Pb__BarrierPlace **place);
/* The session has this standing from this entry on. */
void barrier_place_put(struct machine_tx *tx, struct slice session, struct slice name, Pb__BarrierPlace *place,
                       Pb__BarrierStanding standing);
void barrier_place_remove(struct machine_tx *tx, struct slice session, struct slice name);

/* CO_NOTFOUND, CO_CORRUPT. The record is in the arena. */
int barrier_get(struct store_txn *txn, struct slice name, struct arena *arena, Pb__BarrierRecord **record);
int barrier_decode(struct slice bytes, struct arena *arena, Pb__BarrierRecord **record);
/* After a change: writes the record, or removes it when no session is bound any more. */
void barrier_put(struct machine_tx *tx, Pb__BarrierRecord *record);

/* Keys. `room`: STORE_KEY_MAX bytes. */
struct slice barrier_key(struct slice name, char *room);
struct slice barrier_party_prefix(struct slice name, uint64_t round, char *room); /* the parties of a round */
struct slice barrier_party_key(struct slice name, uint64_t round, uint64_t index, struct slice session, char *room);
/* Is `key` the key of a party below this prefix? The two below read the party's session and the index of its enter. */
static inline bool barrier_is_party(struct slice key, struct slice prefix) {
    return key.size == prefix.size + 8 + UUID_TEXT_SIZE;
}
static inline struct slice barrier_party_session(struct slice key) {
    return slice_make(key.data + key.size - UUID_TEXT_SIZE, UUID_TEXT_SIZE);
}
static inline uint64_t barrier_party_index(struct slice key) {
    return get_be64(key.data + key.size - UUID_TEXT_SIZE - 8);
}

/* As module_command.apply, module_binding.ended. */
int barrier_enter_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int barrier_leave_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int barrier_ended(struct machine_tx *tx, const struct binding_end *end);

#endif
