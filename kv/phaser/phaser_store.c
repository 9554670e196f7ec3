/* Records of phasers, of their members and of their children. */
#include "base/message.h"
#include "kv/phaser/phaser_internal.h"

static struct slice pack(struct machine_tx *tx, const ProtobufCMessage *message) {
    return message_pack(tx->arena, message);
}

/* -- phasers ------------------------------------------------------------------------------------------------------ */

int phaser_get(struct store_txn *txn, struct slice name, struct arena *arena, Pb__Phaser **phaser) {
    struct slice bytes;
    if (name.size == 0 || name.size > PHASER_NAME_MAX) return CO_NOTFOUND; /* no phaser has such a name */
    int rv = store_get(txn, PHASER_TABLE, name, &bytes);
    if (rv != CO_OK) return rv;
    *phaser = machine_decode(&pb__phaser__descriptor, bytes, arena);
    return *phaser && slice_is(name, (*phaser)->name) && strlen((*phaser)->parent) <= PHASER_NAME_MAX ? CO_OK
                                                                                                      : CO_CORRUPT;
}

void phaser_put(struct machine_tx *tx, Pb__Phaser *phaser) {
    phaser->modify_index = tx->index;
    CHECK(phaser->name[0] && phaser->arrived <= phaser->registered);
    store_put(tx->store, PHASER_TABLE, slice_text(phaser->name), pack(tx, &phaser->base));
    machine_touch(tx, SPACE_PHASER, slice_text(phaser->name));
}

/* -- members and children ----------------------------------------------------------------------------------------- */

struct slice phaser_rows(struct slice name, enum phaser_row row, char *room) {
    CHECK(name.size <= PHASER_NAME_MAX);
    memcpy(room, name.data, name.size);
    room[name.size] = '\0', room[name.size + 1] = (char)row;
    return slice_make(room, name.size + 2);
}

static struct slice row_key(struct slice name, enum phaser_row row, struct slice what, char room[STORE_KEY_MAX]) {
    char whole[2 * PHASER_NAME_MAX + 2];
    CHECK(what.size <= PHASER_NAME_MAX);
    struct slice rows = phaser_rows(name, row, whole);
    memcpy(whole + rows.size, what.data, what.size);
    struct slice key = store_key_long(slice_make(whole, rows.size + what.size), room);
    if (key.data == whole) memcpy(room, whole, key.size); /* the key is short enough to be whole */
    return slice_make(room, key.size);
}

int phaser_member_get(struct store_txn *txn, struct slice name, struct slice session, struct arena *arena,
                      Pb__PhaserMember **member) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    if (session.size != UUID_TEXT_SIZE) return CO_NOTFOUND;
    int rv = store_get(txn, PHASER_TABLE_MEMBERS, row_key(name, PHASER_ROW_MEMBER, session, room), &bytes);
    if (rv != CO_OK) return rv;
    *member = machine_decode(&pb__phaser_member__descriptor, bytes, arena);
    return *member && slice_is(session, (*member)->session) ? CO_OK : CO_CORRUPT;
}

void phaser_member_put(struct machine_tx *tx, const Pb__Phaser *phaser, const Pb__PhaserMember *member) {
    char room[STORE_KEY_MAX];
    struct slice key = row_key(slice_text(phaser->name), PHASER_ROW_MEMBER, slice_text(member->session), room);
    CHECK(strlen(member->session) == UUID_TEXT_SIZE);
    store_put(tx->store, PHASER_TABLE_MEMBERS, key, pack(tx, &member->base));
}

void phaser_member_del(struct machine_tx *tx, struct slice name, struct slice session) {
    char room[STORE_KEY_MAX];
    (void)store_del(tx->store, PHASER_TABLE_MEMBERS, row_key(name, PHASER_ROW_MEMBER, session, room));
}

void phaser_child_put(struct machine_tx *tx, const Pb__Phaser *parent, const Pb__Phaser *child) {
    char room[STORE_KEY_MAX];
    struct slice key = row_key(slice_text(parent->name), PHASER_ROW_CHILD, slice_text(child->name), room);
    Pb__PhaserChild record = PB__PHASER_CHILD__INIT;
    record.name = child->name; /* a long key has no room for the name */
    store_put(tx->store, PHASER_TABLE_MEMBERS, key, pack(tx, &record.base));
}

void phaser_child_del(struct machine_tx *tx, const Pb__Phaser *parent, const Pb__Phaser *child) {
    char room[STORE_KEY_MAX];
    struct slice key = row_key(slice_text(parent->name), PHASER_ROW_CHILD, slice_text(child->name), room);
    (void)store_del(tx->store, PHASER_TABLE_MEMBERS, key);
}

int phaser_children(struct store_txn *txn, struct slice name, struct arena *arena, const char **names, size_t most,
                    size_t *count) {
    char room[STORE_KEY_MAX];
    struct slice rows = phaser_rows(name, PHASER_ROW_CHILD, room);
    struct store_cursor cursor;
    int rv = CO_OK;
    *count = 0;
    STORE_PREFIX(&cursor, txn, PHASER_TABLE_MEMBERS, rows) {
        const Pb__PhaserChild *child = machine_decode(&pb__phaser_child__descriptor, cursor.value, arena);
        if (!child || *count == most) {
            rv = CO_CORRUPT;
            break;
        }
        names[(*count)++] = child->name;
    }
    store_cursor_close(&cursor);
    return rv;
}

struct slice phaser_member_key(struct slice name, struct slice session, struct arena *arena) {
    char *text = arena_alloc(arena, name.size + 1 + session.size);
    if (name.size) memcpy(text, name.data, name.size);
    text[name.size] = '\0';
    if (session.size) memcpy(text + name.size + 1, session.data, session.size);
    return slice_make(text, name.size + 1 + session.size);
}
