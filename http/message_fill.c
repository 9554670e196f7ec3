#include "http/message_fill.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "http/message_json.h"

/* -- which field -------------------------------------------------------------------------------------------------- */

const ProtobufCFieldDescriptor *message_field(const ProtobufCMessageDescriptor *type, const char *path) {
    for (;;) {
        const ProtobufCFieldDescriptor *field = message_first_field(type, path, &path);
        if (!field || !path) return field;
        if (field->type != PROTOBUF_C_TYPE_MESSAGE || field->label == PROTOBUF_C_LABEL_REPEATED) return NULL;
        type = field->descriptor;
    }
}

static bool is_integer(const ProtobufCFieldDescriptor *field) {
    switch (field->type) {
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_UINT64:
        case PROTOBUF_C_TYPE_FIXED32:
        case PROTOBUF_C_TYPE_FIXED64: return true;
        default: return false;
    }
}

static bool unit_is(const ProtobufCFieldDescriptor *field, const char *unit) {
    size_t size = strlen(field->name);
    return size > strlen(unit) && strcmp(field->name + size - strlen(unit), unit) == 0;
}

bool message_takes(const ProtobufCFieldDescriptor *field, int value_type) {
    switch (value_type) {
        case VALUE_BOOL: return field->type == PROTOBUF_C_TYPE_BOOL;
        case VALUE_U64: return is_integer(field);
        case VALUE_SIGNED: return field->type == PROTOBUF_C_TYPE_SINT32;
        case VALUE_DECIMAL: return field->type == PROTOBUF_C_TYPE_DOUBLE;
        case VALUE_NS:
            return (field->type == PROTOBUF_C_TYPE_INT64 || field->type == PROTOBUF_C_TYPE_UINT64) &&
                   (unit_is(field, "_ns") || unit_is(field, "_ms"));
        case VALUE_TEXT:
            return field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES ||
                   field->type == PROTOBUF_C_TYPE_ENUM;
        default: return false;
    }
}

/* -- where its value is ------------------------------------------------------------------------------------------- */

/* Laid over a field. It is packed because a field may have only 4 bytes, aligned to 4. */
union __attribute__((packed, aligned(4))) element {
    protobuf_c_boolean yes;
    int32_t i32;
    uint64_t u64;
    double decimal;
    char *string;
    ProtobufCBinaryData bytes;
    ProtobufCMessage *message;
};

size_t message_element_size(const ProtobufCFieldDescriptor *field) {
    switch (field->type) {
        case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
        case PROTOBUF_C_TYPE_BOOL:
        case PROTOBUF_C_TYPE_ENUM:
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_FIXED32: return 4;
        default: return 8;
    }
}
_Static_assert(sizeof(protobuf_c_boolean) == 4 && sizeof(int) == 4 && sizeof(void *) == 8,
               "as message_element_size says");

/* The place for a value: the field itself, or one more at the end of a list, which doubles when it is full. */
static union element *place(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, struct arena *arena) {
    char *value = (char *)message + field->offset;
    if (field->label != PROTOBUF_C_LABEL_REPEATED) return (union element *)(void *)value;
    size_t *count = (size_t *)(void *)((char *)message + field->quantifier_offset), size = message_element_size(field);
    char **items = (char **)(void *)value;
    if ((*count & (*count - 1)) == 0) { /* 0, or a power of two: full */
        char *more = arena_alloc(arena, (*count ? *count * 2 : 1) * size);
        if (*count) memcpy(more, *items, *count * size);
        *items = more;
    }
    return (union element *)(void *)(*items + (*count)++ * size);
}

/* -- setting ------------------------------------------------------------------------------------------------------ */

ProtobufCMessage *message_new(const ProtobufCMessageDescriptor *type, struct arena *arena) {
    ProtobufCMessage *message = arena_alloc(arena, type->sizeof_message);
    protobuf_c_message_init(type, message);
    return message;
}

/* The message that the last part of the path is a field of. */
static ProtobufCMessage *descend(ProtobufCMessage *message, const char *path, struct arena *arena,
                                 const ProtobufCFieldDescriptor **field) {
    for (;;) {
        *field = message_first_field(message->descriptor, path, &path);
        CHECK(*field);
        if (!path) return message;
        CHECK((*field)->type == PROTOBUF_C_TYPE_MESSAGE && (*field)->label != PROTOBUF_C_LABEL_REPEATED);
        union element *at = place(message, *field, arena);
        if (!at->message) at->message = message_new((*field)->descriptor, arena);
        message = at->message;
    }
}

ProtobufCMessage *message_sub(ProtobufCMessage *message, const char *path, struct arena *arena) {
    const ProtobufCFieldDescriptor *field;
    message = descend(message, path, arena, &field);
    CHECK(field->type == PROTOBUF_C_TYPE_MESSAGE);
    union element *at = place(message, field, arena);
    if (field->label == PROTOBUF_C_LABEL_REPEATED || !at->message) at->message = message_new(field->descriptor, arena);
    return at->message;
}

static void set_text(union element *at, const ProtobufCFieldDescriptor *field, struct slice text) {
    int number;
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        CHECK(text.data[text.size] == '\0');
        at->string = (char *)(uintptr_t)text.data;
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        at->bytes = message_bytes(text);
    } else {
        CHECK(message_enum_parse(field->descriptor, text, &number) == CO_OK);
        at->i32 = number;
    }
}

void message_set(ProtobufCMessage *message, const char *path, const struct message_value *value, struct arena *arena) {
    const ProtobufCFieldDescriptor *field;
    message = descend(message, path, arena, &field);
    CHECK(message_takes(field, value->type));
    union element *at = place(message, field, arena);
    uint64_t number = value->number;
    switch (value->type) {
        case VALUE_BOOL: at->yes = number != 0; break;
        case VALUE_SIGNED: at->i32 = (int32_t)number; break;
        case VALUE_DECIMAL: at->decimal = value->decimal; break;
        case VALUE_TEXT: set_text(at, field, value->text); break;
        case VALUE_NS:
            if (unit_is(field, "_ms")) number = (number + 999999) / 1000000;
            at->u64 = number;
            break;
        case VALUE_U64:
            if (message_element_size(field) == 8) at->u64 = number;
            else at->i32 = (int32_t)number; /* in range because of the row's bounds */
            break;
    }
}
