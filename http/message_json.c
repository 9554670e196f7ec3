#include "http/message_json.h"

#include <ctype.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "http/message_fill.h"

/* -- names -------------------------------------------------------------------------------------------------------- */

static bool ends(struct slice text, const char *end) {
    size_t size = strlen(end);
    return text.size > size && memcmp(text.data + text.size - size, end, size) == 0;
}

enum unit { UNIT_NONE, UNIT_NS, UNIT_MS };

/* Removes the unit from the end of the name. */
static enum unit take_unit(struct slice *name) {
    static const struct {
        const char *end;
        enum unit unit;
    } units[] = {{"_unix_ms", UNIT_NONE}, {"_ns", UNIT_NS}, {"_ms", UNIT_MS}};
    for (size_t i = 0; i < ARRAY_COUNT(units); i++) {
        if (!ends(*name, units[i].end)) continue;
        name->size -= strlen(units[i].end);
        return units[i].unit;
    }
    return UNIT_NONE;
}

/* The spelling of words that have more than one capital; NULL for others. */
static const char *acronym(struct slice word) {
    static const char *const words[][2] = {{"id", "ID"},     {"ids", "IDs"},   {"ttl", "TTL"}, {"url", "URL"},
                                           {"urls", "URLs"}, {"uuid", "UUID"}, {"rtt", "RTT"}, {"lb", "LB"}};
    for (size_t i = 0; i < ARRAY_COUNT(words); i++)
        if (slice_is(word, words[i][0])) return words[i][1];
    return NULL;
}

struct slice message_json_name(const char *field, char room[MESSAGE_NAME_MAX]) {
    struct slice name = slice_text(field);
    size_t size = 0;
    take_unit(&name);
    CHECK(name.size < MESSAGE_NAME_MAX);
    for (const char *at = name.data, *end = at + name.size, *stop; at < end; at = stop + 1) {
        for (stop = at; stop < end && *stop != '_';) stop++;
        struct slice word = slice_make(at, (size_t)(stop - at));
        const char *known = acronym(word);
        memcpy(room + size, known ? known : word.data, word.size);
        if (!known && word.size) room[size] = (char)toupper((unsigned char)*at);
        size += word.size;
    }
    return slice_make(room, size);
}

/* -- enums -------------------------------------------------------------------------------------------------------- */

/* The size of the prefix that the names of all values share, up to a '_': five for LOCK_EXCLUSIVE and LOCK_SHARED. */
static size_t shared_prefix(const ProtobufCEnumDescriptor *type) {
    const char *first = type->values[0].name;
    size_t same = strlen(first);
    for (unsigned i = 1; i < type->n_values; i++) {
        size_t at = 0;
        while (at < same && type->values[i].name[at] == first[at]) at++;
        same = at;
    }
    while (same && first[same - 1] != '_') same--;
    return same;
}

const char *message_enum_text(const ProtobufCEnumDescriptor *type, int value, char room[MESSAGE_NAME_MAX]) {
    const ProtobufCEnumValue *found = protobuf_c_enum_descriptor_get_value(type, value);
    if (!found) return NULL;
    const char *name = found->name + shared_prefix(type);
    size_t size = strlen(name);
    CHECK(size < MESSAGE_NAME_MAX);
    for (size_t i = 0; i <= size; i++) room[i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    return room;
}

int message_enum_parse(const ProtobufCEnumDescriptor *type, struct slice text, int *value) {
    char room[MESSAGE_NAME_MAX];
    for (unsigned i = 0; i < type->n_values; i++) {
        if (!slice_is(text, message_enum_text(type, type->values[i].value, room))) continue;
        *value = type->values[i].value;
        return CO_OK;
    }
    return CO_NOTFOUND;
}

/* -- values ------------------------------------------------------------------------------------------------------- */

struct writing {
    struct json_out *json;
    void *context;
};

static int64_t signed_of(const ProtobufCFieldDescriptor *field, const void *value) {
    switch (field->type) {
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_SINT64:
        case PROTOBUF_C_TYPE_SFIXED64: return *(const int64_t *)value;
        default: return *(const int32_t *)value;
    }
}

static bool is_signed(const ProtobufCFieldDescriptor *field) {
    switch (field->type) {
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_SINT64:
        case PROTOBUF_C_TYPE_SFIXED64:
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_SFIXED32: return true;
        default: return false;
    }
}

static uint64_t unsigned_of(const ProtobufCFieldDescriptor *field, const void *value) {
    if (field->type == PROTOBUF_C_TYPE_UINT64 || field->type == PROTOBUF_C_TYPE_FIXED64)
        return *(const uint64_t *)value;
    return *(const uint32_t *)value;
}

static void integer_write(struct json_out *json, const ProtobufCFieldDescriptor *field, unsigned flags,
                          const void *value) {
    struct slice name = slice_text(field->name);
    enum unit unit = flags & MEMBER_NUMBER ? UNIT_NONE : take_unit(&name);
    int64_t number = is_signed(field) ? signed_of(field, value) : 0;
    if (unit != UNIT_NONE) {
        struct buffer text = {0};
        if (!is_signed(field)) number = (int64_t)unsigned_of(field, value);
        duration_format(&text, unit == UNIT_MS ? number * 1000000 : number);
        json_slice(json, buffer_slice(&text));
        buffer_free(&text);
    } else if (is_signed(field)) {
        json_i64(json, number);
    } else {
        json_u64(json, unsigned_of(field, value));
    }
}

static void enum_write(struct json_out *json, const ProtobufCFieldDescriptor *field, int value) {
    char room[MESSAGE_NAME_MAX];
    const char *text = message_enum_text(field->descriptor, value, room);
    if (text) json_string(json, text);
    else json_i64(json, value); /* a value of a newer program */
}

static void object_write(const struct writing *writing, const ProtobufCMessage *message,
                         const struct message_member *members);

static void value_write(const struct writing *writing, const ProtobufCFieldDescriptor *field,
                        const struct message_member *member, const void *value) {
    struct json_out *json = writing->json;
    const ProtobufCBinaryData *bytes = value;
    switch (field->type) {
        case PROTOBUF_C_TYPE_BOOL: json_bool(json, *(const protobuf_c_boolean *)value != 0); break;
        case PROTOBUF_C_TYPE_STRING: json_string(json, *(char *const *)value); break;
        case PROTOBUF_C_TYPE_BYTES:
            if (member->flags & MEMBER_TEXT) json_slice(json, slice_make(bytes->data, bytes->len));
            else json_base64(json, slice_make(bytes->data, bytes->len));
            break;
        case PROTOBUF_C_TYPE_ENUM: enum_write(json, field, *(const int *)value); break;
        case PROTOBUF_C_TYPE_DOUBLE: json_double(json, *(const double *)value); break;
        case PROTOBUF_C_TYPE_FLOAT: json_double(json, (double)*(const float *)value); break;
        case PROTOBUF_C_TYPE_MESSAGE: object_write(writing, *(ProtobufCMessage *const *)value, member->members); break;
        default: integer_write(json, field, member->flags, value);
    }
}

static void list_write(const struct writing *writing, const ProtobufCFieldDescriptor *field,
                       const struct message_member *member, const ProtobufCMessage *message) {
    size_t count = *(const size_t *)((const char *)message + field->quantifier_offset);
    const char *items = *(char *const *)((const char *)message + field->offset);
    json_array(writing->json);
    for (size_t i = 0; i < count; i++) value_write(writing, field, member, items + i * message_element_size(field));
    json_array_end(writing->json);
}

/* -- objects ------------------------------------------------------------------------------------------------------ */

const ProtobufCFieldDescriptor *message_first_field(const ProtobufCMessageDescriptor *type, const char *path,
                                                    const char **rest) {
    const char *dot = strchr(path, '.');
    char name[MESSAGE_NAME_MAX];
    size_t size = dot ? (size_t)(dot - path) : strlen(path);
    CHECK(size < sizeof name);
    memcpy(name, path, size), name[size] = '\0';
    *rest = dot ? dot + 1 : NULL;
    return protobuf_c_message_descriptor_get_field_by_name(type, name);
}

/* Follows a path. Sets *message to the message that has the field, or to NULL when one on the way is missing. */
static const ProtobufCFieldDescriptor *follow(const ProtobufCMessage **message, const char *path) {
    for (const ProtobufCMessageDescriptor *type = (*message)->descriptor;;) {
        const ProtobufCFieldDescriptor *field = message_first_field(type, path, &path);
        CHECK(field);
        if (!path) return field;
        CHECK(field->type == PROTOBUF_C_TYPE_MESSAGE && field->label != PROTOBUF_C_LABEL_REPEATED);
        if (*message) *message = *(ProtobufCMessage *const *)((const char *)*message + field->offset);
        type = field->descriptor;
    }
}

static bool is_empty(const ProtobufCFieldDescriptor *field, const ProtobufCMessage *message) {
    static const char zeroes[16];
    const char *value = (const char *)message + field->offset;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)((const char *)message + field->quantifier_offset) == 0;
    if (field->type == PROTOBUF_C_TYPE_STRING) return !(*(char *const *)value)[0];
    if (field->type == PROTOBUF_C_TYPE_BYTES) return ((const ProtobufCBinaryData *)value)->len == 0;
    return memcmp(value, zeroes, message_element_size(field)) == 0;
}

static void member_write(const struct writing *writing, const ProtobufCMessage *message,
                         const struct message_member *member) {
    if (member->write) {
        member->write(writing->json, message, writing->context);
        return;
    }
    char room[MESSAGE_NAME_MAX];
    const ProtobufCFieldDescriptor *field = follow(&message, member->field);
    if (member->flags & MEMBER_OPTIONAL && (!message || is_empty(field, message))) return;
    struct slice name = member->name ? slice_text(member->name) : message_json_name(field->name, room);
    json_key_raw(writing->json, name.data, name.size);
    if (!message) json_null(writing->json);
    else if (field->label == PROTOBUF_C_LABEL_REPEATED) list_write(writing, field, member, message);
    else value_write(writing, field, member, (const char *)message + field->offset);
}

static void object_write(const struct writing *writing, const ProtobufCMessage *message,
                         const struct message_member *members) {
    if (!message) {
        json_null(writing->json);
        return;
    }
    json_object(writing->json);
    for (; members && (members->field || members->write); members++) member_write(writing, message, members);
    if (!members) {
        for (unsigned i = 0; i < message->descriptor->n_fields; i++)
            member_write(writing, message, &(struct message_member){.field = message->descriptor->fields[i].name});
    }
    json_object_end(writing->json);
}

void message_json(struct json_out *json, const ProtobufCMessage *message, const struct message_member *members,
                  void *context) {
    object_write(&(struct writing){json, context}, message, members);
}

void message_json_list(struct json_out *json, const ProtobufCMessage *message, const char *field,
                       const struct message_member *members, void *context) {
    if (!message) {
        json_array(json);
        json_array_end(json);
        return;
    }
    const ProtobufCFieldDescriptor *found = follow(&message, field);
    CHECK(message && found->label == PROTOBUF_C_LABEL_REPEATED);
    list_write(&(struct writing){json, context}, found, &(struct message_member){.members = members}, message);
}
