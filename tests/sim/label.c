/* Whose a command is, where none of its fields can say it: a field that its schema does not know, which programs keep
 * and pass on. */
#include "base/check.h"
#include "tests/sim/module.h"

#define TAG 1000

void op_label(ProtobufCMessage *message, uint64_t op, struct arena *arena) {
    ProtobufCMessageUnknownField *field = arena_zalloc(arena, sizeof *field);
    field->tag = TAG, field->wire_type = PROTOBUF_C_WIRE_TYPE_64BIT;
    field->len = 8, field->data = arena_alloc(arena, 8);
    put_le64(field->data, op);
    message->unknown_fields = field, message->n_unknown_fields = 1;
}

uint64_t op_labelled(uint8_t number, const ProtobufCMessage *message) {
    (void)number;
    for (unsigned i = 0; i < message->n_unknown_fields; i++)
        if (message->unknown_fields[i].tag == TAG && message->unknown_fields[i].len == 8)
            return get_le64(message->unknown_fields[i].data);
    return 0;
}
