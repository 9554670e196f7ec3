/* A protobuf message as JSON, by its descriptor. Names are the field's in PascalCase without its unit: ttl_ns is
 * "TTL", create_index "CreateIndex". By unit and type:
 *
 *     ..._ns, ..._ms        a duration, "10s"      ..._unix_ms    a number
 *     64 bits               exact                  enum           its name, in lower case, without the common prefix
 *     string                text                   bytes          base64
 *     message               an object              repeated       a list; empty: [] */
#ifndef COORD_HTTP_MESSAGE_JSON_H
#define COORD_HTTP_MESSAGE_JSON_H

#include <protobuf-c/protobuf-c.h>

#include "base/json_out.h"

enum message_member_flags {
    MEMBER_TEXT = 1,     /* its bytes are text */
    MEMBER_OPTIONAL = 2, /* left out when it is empty, 0 or false */
    MEMBER_NUMBER = 4,   /* a duration is written as a number */
};

/* A member of an object that is written. A list ends with an entry of zeroes. */
struct message_member {
    const char *name;  /* NULL: made from the field's name */
    const char *field; /* "ttl_ns"; through a message that is there: "lease.ttl_ns" */
    unsigned flags;
    const struct message_member *members; /* of a field of messages; NULL: all of their fields */
    /* If set, it writes key and value, or nothing, instead of the above. `context`: that of message_json. */
    void (*write)(struct json_out *json, const ProtobufCMessage *message, void *context);
};

/* Writes one object. `members` NULL: all fields, in the order of the schema. A member that the message does not have is
 * a bug (CHECK). */
void message_json(struct json_out *json, const ProtobufCMessage *message, const struct message_member *members,
                  void *context);
/* Writes the records of a repeated field as a list. `message` NULL: an empty list. */
void message_json_list(struct json_out *json, const ProtobufCMessage *message, const char *field,
                       const struct message_member *members, void *context);
/* The field that the first part of a path ("lease.ttl_ns") names; NULL: there is none. *rest: the part after the dot,
 * or NULL. */
const ProtobufCFieldDescriptor *message_first_field(const ProtobufCMessageDescriptor *type, const char *path,
                                                    const char **rest);
/* The member's name for a field. `room` is large enough for all our fields. */
#define MESSAGE_NAME_MAX 80
struct slice message_json_name(const char *field, char room[MESSAGE_NAME_MAX]);

/* An enum's value as text ("signal-wait"), and back; NULL, CO_NOTFOUND: there is none. `room` as above. */
const char *message_enum_text(const ProtobufCEnumDescriptor *type, int value, char room[MESSAGE_NAME_MAX]);
int message_enum_parse(const ProtobufCEnumDescriptor *type, struct slice text, int *value);

#endif
