#include "kv/keys/kv_command.h"

#include "base/check.h"

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

enum { SHORT_BYTES = 5, LONG_BYTES = 10 }; /* the most bytes of a tag or size; of a number */

/* Both move `from` behind the field that they read, or return false. */
static bool read_varint(struct slice *from, unsigned most, uint64_t *value) {
    CHECK(most <= LONG_BYTES);
    uint64_t sum = 0;
    for (unsigned shift = 0; shift < 7 * most; shift += 7) {
        if (from->size == 0) return false;
        uint8_t byte = (uint8_t)*from->data;
        from->data++;
        from->size--;
        if (shift < 64) sum |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = sum;
            return true;
        }
    }
    return false;
}

static bool read_bytes(struct slice *from, uint64_t size, struct slice *bytes) {
    if (size > from->size) return false;
    *bytes = slice_make(from->data, (size_t)size);
    from->data += size;
    from->size -= (size_t)size;
    return true;
}

/* The content of one field: a number or bytes. */
static bool read_field(struct slice *from, unsigned wire, uint64_t *number, struct slice *bytes) {
    switch (wire) {
        case WIRE_VARINT: return read_varint(from, LONG_BYTES, number);
        case WIRE_FIXED64: return read_bytes(from, 8, bytes);
        case WIRE_FIXED32: return read_bytes(from, 4, bytes);
        case WIRE_BYTES: return read_varint(from, SHORT_BYTES, number) && read_bytes(from, *number, bytes);
        default: return false;
    }
}

static const uint8_t field_wire[] = {
    [1] = WIRE_VARINT, [2] = WIRE_BYTES, [3] = WIRE_BYTES,  [4] = WIRE_VARINT, [5] = WIRE_VARINT,
    [6] = WIRE_BYTES,  [7] = WIRE_BYTES, [8] = WIRE_VARINT, [9] = WIRE_BYTES,  [10] = WIRE_VARINT,
};
_Static_assert(sizeof field_wire == 1 + 10, "each field has its case below");

bool kv_command_decode(struct slice payload, struct kv_command_view *command) {
    *command = (struct kv_command_view){
        .key = {"", 0}, .value = {"", 0}, .session = {"", 0}, .lease = {"", 0}, .fence = {"", 0}};
    while (payload.size != 0) {
        uint64_t tag, number = 0;
        struct slice bytes = {"", 0};
        if (!read_varint(&payload, SHORT_BYTES, &tag) || tag >> 3 == 0 || tag >> 35 != 0) return false;
        uint32_t field = (uint32_t)(tag >> 3);
        unsigned wire = (unsigned)(tag & 7);
        if (!read_field(&payload, wire, &number, &bytes)) return false;
        if (field >= ARRAY_COUNT(field_wire)) continue;
        if (wire != field_wire[field]) return false;
        switch (field) {
            case 1: command->verb = (uint32_t)number; break;
            case 2: command->key = bytes; break;
            case 3: command->value = bytes; break;
            case 4: command->flags = number; break;
            case 5: command->index = number; break;
            case 6: command->session = bytes; break;
            case 7: command->lease = bytes; break;
            case 8: command->want_token = (uint32_t)number != 0; break;
            case 9: command->fence = bytes; break;
            case 10: command->token = number; break;
            default: UNREACHABLE();
        }
    }
    return true;
}
