/* Sets fields of protobuf messages by name. Paths are "ttl_ns", or "lease.ttl_ns": messages on the way are made. An
 * unknown field, or one of another type, is a bug (CHECK). Everything is in the arena; text is borrowed. */
#ifndef COORD_HTTP_MESSAGE_FILL_H
#define COORD_HTTP_MESSAGE_FILL_H

#include <protobuf-c/protobuf-c.h>

#include "base/buffer.h"
#include "base/memory.h"

struct message_value {
    enum { VALUE_BOOL, VALUE_U64, VALUE_SIGNED, VALUE_DECIMAL, VALUE_NS, VALUE_TEXT } type;
    /* also of a bool; VALUE_SIGNED: an int32_t; nanoseconds are converted to the field's unit, rounded up */
    uint64_t number;
    double decimal;
    struct slice text; /* NUL-terminated where the field is a string; an enum takes its name */
};

ProtobufCMessage *message_new(const ProtobufCMessageDescriptor *type, struct arena *arena);
/* Sets a field; adds to a repeated one. */
void message_set(ProtobufCMessage *message, const char *path, const struct message_value *value, struct arena *arena);
/* The message in this field, which is made when it is missing; in a repeated field always a new one. */
ProtobufCMessage *message_sub(ProtobufCMessage *message, const char *path, struct arena *arena);

/* The field that a path names; NULL: there is none. */
const ProtobufCFieldDescriptor *message_field(const ProtobufCMessageDescriptor *type, const char *path);
/* May a value of this type be set there? */
bool message_takes(const ProtobufCFieldDescriptor *field, int value_type);
/* Bytes of one value of the field, in the message or in a list. */
size_t message_element_size(const ProtobufCFieldDescriptor *field);

#endif
