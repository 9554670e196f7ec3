#include "registry/catalog_records.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"

/* -- keys --------------------------------------------------------------------------------------------------------- */

#define JOIN(...) \
    fold_key(room, sizeof((struct slice[]){__VA_ARGS__}) / sizeof(struct slice), (const struct slice[]){__VA_ARGS__})

struct slice key_node(char *room, struct slice node) {
    return JOIN(node);
}
struct slice key_service(char *room, struct slice node, struct slice id) {
    return JOIN(node, id);
}
struct slice key_check(char *room, struct slice node, struct slice service_id, struct slice check_id) {
    return JOIN(node, service_id, check_id);
}
struct slice key_check_id(char *room, struct slice node, struct slice check_id) {
    return JOIN(node, check_id);
}
struct slice key_instance(char *room, struct slice name, struct slice node, struct slice id) {
    return JOIN(name, node, id);
}
struct slice key_stray(char *room, struct slice name, struct slice node, struct slice check_id) {
    return JOIN(name, node, check_id);
}
struct slice key_name(char *room, struct slice name) {
    return JOIN(name);
}

struct slice key_count(char *room, struct slice name) {
    return store_key_join(room, 1, name);
}
struct slice key_tag(char *room, struct slice name, struct slice tag) {
    return store_key_join(room, 2, name, tag);
}

static struct slice join_spelling(char *room, enum spelling_kind kind, struct slice name, bool whole) {
    char head = (char)kind;
    struct fold_name small;
    fold_name_of(&small, name);
    struct slice first = slice_make(&head, 1);
    struct slice key =
        whole ? store_key_join(room, 3, first, small.folded, name) : store_key_join(room, 2, first, small.folded);
    fold_name_free(&small);
    return key;
}

struct slice key_spelling(char *room, enum spelling_kind kind, struct slice name) {
    return join_spelling(room, kind, name, true);
}
struct slice key_spellings(char *room, enum spelling_kind kind, struct slice name) {
    return join_spelling(room, kind, name, false);
}

struct slice key_node_id(char *room, struct slice id) {
    CHECK(id.size <= STORE_PART_MAX);
    if (id.size) memcpy(room, id.data, id.size);
    bytes_lower(room, id.size);
    return slice_make(room, id.size);
}

/* -- records ------------------------------------------------------------------------------------------------------ */

static ProtobufCMessage *unpack(struct store_txn *txn, struct arena *arena, const ProtobufCMessageDescriptor *type,
                                struct slice bytes) {
    ProtobufCMessage *message = message_unpack(arena, type, bytes);
    if (!message) store_fail(txn, CO_CORRUPT);
    return message;
}

Pb__Node *record_node(struct store_txn *txn, struct arena *arena, struct slice bytes) {
    return (Pb__Node *)unpack(txn, arena, &pb__node__descriptor, bytes);
}
Pb__Service *record_service(struct store_txn *txn, struct arena *arena, struct slice bytes) {
    return (Pb__Service *)unpack(txn, arena, &pb__service__descriptor, bytes);
}
Pb__Check *record_check(struct store_txn *txn, struct arena *arena, struct slice bytes) {
    return (Pb__Check *)unpack(txn, arena, &pb__check__descriptor, bytes);
}

static int below(struct store_txn *txn, struct arena *arena, uint8_t table, struct slice prefix,
                 const ProtobufCMessageDescriptor *type, struct pointers *records) {
    struct store_cursor cursor;
    int error = CO_OK;
    STORE_PREFIX(&cursor, txn, table, prefix) {
        ProtobufCMessage *record = unpack(txn, arena, type, cursor.value);
        if (record) pointers_add(records, arena, record);
        else error = CO_CORRUPT;
    }
    store_cursor_close(&cursor);
    return error;
}

int record_services_below(struct store_txn *txn, struct arena *arena, struct slice prefix, struct pointers *services) {
    return below(txn, arena, TABLE_SERVICES, prefix, &pb__service__descriptor, services);
}
int record_checks_below(struct store_txn *txn, struct arena *arena, struct slice prefix, struct pointers *checks) {
    return below(txn, arena, TABLE_CHECKS, prefix, &pb__check__descriptor, checks);
}

static bool read_varint(struct slice *bytes, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; bytes->size > 0 && shift < 64; shift += 7) {
        uint8_t byte = (uint8_t)*bytes->data;
        bytes->data++;
        bytes->size--;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

/* Walks to the field, which comes in order of its number. False: not there. */
static bool find_field(struct slice bytes, unsigned field, uint64_t *number, struct slice *text) {
    enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };
    for (uint64_t tag, value; read_varint(&bytes, &tag) && tag >> 3 <= field;) {
        if (!read_varint(&bytes, &value)) return false;
        struct slice content = slice_make(bytes.data, 0);
        if ((tag & 7) == WIRE_BYTES) {
            if (value > bytes.size) return false;
            content.size = (size_t)value;
            bytes = slice_make(bytes.data + value, bytes.size - (size_t)value);
        } else if ((tag & 7) != WIRE_VARINT) {
            return false; /* our records have no others */
        }
        if (tag >> 3 != field) continue;
        *number = value;
        *text = content;
        return true;
    }
    return false;
}

struct slice record_text(struct slice bytes, unsigned field) {
    uint64_t number;
    struct slice text;
    return find_field(bytes, field, &number, &text) ? text : slice_make("", 0);
}

uint64_t record_number(struct slice bytes, unsigned field) {
    uint64_t number;
    struct slice text;
    return find_field(bytes, field, &number, &text) ? number : 0;
}

void pointers_add(struct pointers *list, struct arena *arena, void *item) {
    CHECK(list->count <= list->room);
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 8;
        void **items = arena_alloc(arena, room * sizeof *items);
        if (list->count) memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = item;
}
