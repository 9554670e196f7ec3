#include "lb/load_wire.h"

#include <math.h>

#include "base/varint.h"

#define MS UINT64_C(1000000)

enum { INFLIGHT = 1, LATENCY = 2, ERRORS = 4, SAME_NODE = 8, SERVICE_IS_ID = 16, KNOWN = 32, KEPT = 64, ALL = 127 };

/* -- writing ------------------------------------------------------------------------------------------------------ */
static uint64_t ms_up(uint64_t ns) { return ns / MS + (ns % MS != 0); }

static void number_write(struct buffer *out, double number) {
    uint64_t bits;
    char bytes[8];
    memcpy(&bits, &number, sizeof bits);
    put_le64(bytes, bits);
    buffer_append(out, bytes, sizeof bytes);
}

static bool same_node(const struct load_writer *writer, struct slice node) {
    return writer->node_at && slice_equal(slice_make(writer->out->data + writer->node_at, writer->node_size), node);
}

static unsigned flags_of(const struct load_writer *writer, const struct load_entry *entry) {
    const struct load_hint *hint = &entry->hint;
    return (isnan(hint->inflight) ? 0u : INFLIGHT) | (isnan(hint->latency_ms) ? 0u : LATENCY) |
           (isnan(hint->errors) ? 0u : ERRORS) | (same_node(writer, entry->instance.node) ? SAME_NODE : 0u) |
           (slice_equal(entry->instance.service, entry->instance.service_id) ? SERVICE_IS_ID : 0u) |
           (entry->known_ns < LOAD_KNOWN_LONG_NS ? KNOWN : 0u) | (entry->kept > 0 && entry->kept < 1 ? KEPT : 0u);
}

void load_write(struct load_writer *writer, const struct load_entry *entry) {
    struct buffer *out = writer->out;
    const struct load_hint *hint = &entry->hint;
    unsigned flags = flags_of(writer, entry);
    buffer_append_byte(out, (char)flags);
    varint_append(out, ms_up(entry->age_ns));
    varint_append(out, ms_up(entry->interval_ns));
    if (flags & KNOWN) varint_append(out, entry->known_ns / MS);
    if (!(flags & SAME_NODE)) {
        varint_append_slice(out, entry->instance.node);
        writer->node_size = entry->instance.node.size;
        writer->node_at = out->size - writer->node_size;
    }
    varint_append_slice(out, entry->instance.service_id);
    if (!(flags & SERVICE_IS_ID)) varint_append_slice(out, entry->instance.service);
    number_write(out, hint->load);
    if (flags & INFLIGHT) number_write(out, hint->inflight);
    if (flags & LATENCY) number_write(out, hint->latency_ms);
    if (flags & ERRORS) number_write(out, hint->errors);
    if (flags & KEPT) number_write(out, entry->kept);
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
static bool number_read(struct slice *rest, bool there, double *number) {
    *number = NAN;
    if (!there) return true;
    if (rest->size < 8) return false;
    uint64_t bits = get_le64(rest->data);
    memcpy(number, &bits, sizeof bits);
    *rest = slice_make(rest->data + 8, rest->size - 8);
    return true;
}

static bool ms_read(struct slice *rest, uint64_t *ns) {
    uint64_t ms;
    if (!varint_take(rest, &ms)) return false;
    *ns = ms < UINT64_MAX / 2 / MS ? ms * MS : UINT64_MAX / 2;
    return true;
}

static bool names_read(struct load_reader *reader, unsigned flags, struct load_instance *instance) {
    if (flags & SAME_NODE) {
        if (!reader->node.data) return false;
    } else if (!varint_slice(&reader->rest, &reader->node)) {
        return false;
    }
    instance->node = reader->node;
    if (!varint_slice(&reader->rest, &instance->service_id)) return false;
    instance->service = instance->service_id;
    return flags & SERVICE_IS_ID || varint_slice(&reader->rest, &instance->service);
}

int load_read(struct load_reader *reader, struct load_entry *entry) {
    struct slice *rest = &reader->rest;
    if (rest->size == 0) return CO_NOTFOUND;
    unsigned flags = (uint8_t)rest->data[0];
    *rest = slice_make(rest->data + 1, rest->size - 1);
    *entry = (struct load_entry){.known_ns = LOAD_KNOWN_LONG_NS};
    bool whole =
        flags <= ALL && ms_read(rest, &entry->age_ns) && ms_read(rest, &entry->interval_ns) &&
        (!(flags & KNOWN) || ms_read(rest, &entry->known_ns)) && names_read(reader, flags, &entry->instance) &&
        number_read(rest, true, &entry->hint.load) && number_read(rest, flags & INFLIGHT, &entry->hint.inflight) &&
        number_read(rest, flags & LATENCY, &entry->hint.latency_ms) &&
        number_read(rest, flags & ERRORS, &entry->hint.errors) && number_read(rest, flags & KEPT, &entry->kept);
    if (!(flags & KEPT)) entry->kept = 1;
    return whole ? CO_OK : CO_CORRUPT;
}
