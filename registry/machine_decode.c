/* Decodes messages that arrive and become records. */
#include "base/check.h"
#include "base/message.h"
#include "registry/machine.h"

/* protobuf-c refuses a field of number 0, except one whose number was padded (85 00 instead of 05): that one it keeps
 * as an unknown field and packs without the padding, so that it would then refuse the record itself. */
static bool can_come_back(const ProtobufCMessage *message) {
    for (unsigned i = 0; i < message->n_unknown_fields; i++)
        if (message->unknown_fields[i].tag == 0) return false;
    const ProtobufCMessageDescriptor *type = message->descriptor;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (field->type != PROTOBUF_C_TYPE_MESSAGE) continue;
        CHECK(!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)); /* none in our schemas */
        const char *member = (const char *)message + field->offset;
        bool many = field->label == PROTOBUF_C_LABEL_REPEATED;
        size_t count = many ? *(const size_t *)((const char *)message + field->quantifier_offset) : 1;
        ProtobufCMessage *const *inner =
            many ? *(ProtobufCMessage *const *const *)member : (ProtobufCMessage *const *)member;
        for (size_t j = 0; j < count; j++)
            if (inner[j] && !can_come_back(inner[j])) return false;
    }
    return true;
}

void *machine_decode(const ProtobufCMessageDescriptor *type, struct slice bytes, struct arena *arena) {
    ProtobufCMessage *message = message_unpack(arena, type, bytes);
    return message && can_come_back(message) ? message : NULL;
}
