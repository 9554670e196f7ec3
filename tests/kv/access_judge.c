/* The judge of access_kv.h. It knows the answers by the names of their members, and decides each row by itself. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "access_kv.h"
#include "base/check.h"
#include "base/message.h"
#include "kv/holding/holding.h"
#include "kv/keys/kv.h"
#include "kv/lock/lock.h"
#include "kv/phaser/phaser.h"

static bool reads(const struct access *access, enum access_resource resource, struct slice name) {
    return access_allows(access, resource, name, ACCESS_READ);
}

/* -- members by name ---------------------------------------------------------------------------------------------- */

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessage *message, struct slice name) {
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)name.size, name.data);
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(message->descriptor, text);
    cr_assert(field, "%s has no %s", message->descriptor->name, text);
    return field;
}

/* "record.definition.name": a text or bytes. */
static struct slice text_at(const ProtobufCMessage *message, const char *path) {
    const char *dot = strchr(path, '.');
    const ProtobufCFieldDescriptor *field =
        field_of(message, slice_make(path, dot ? (size_t)(dot - path) : strlen(path)));
    const void *at = (const char *)message + field->offset;
    if (dot) return text_at(*(ProtobufCMessage *const *)at, dot + 1);
    if (field->type == PROTOBUF_C_TYPE_BYTES) return message_slice(*(const ProtobufCBinaryData *)at);
    return slice_text(*(char *const *)at);
}

struct rows {
    size_t count;
    struct slice names[256], bytes[256];
};

/* The resource of what a session holds. */
static enum access_resource held_resource(const Pb__Holding *holding) {
    if (strcmp(holding->kind, "key") == 0) return ACCESS_KEY;
    return strcmp(holding->kind, "quota") == 0 ? ACCESS_QUOTA : ACCESS_LOCK;
}

/* Empties the names within a row that are not its own, and that the token may not read. */
static void blank(const struct access *access, ProtobufCMessage *row) {
    if (row->descriptor == &pb__phaser__descriptor) {
        Pb__Phaser *phaser = (Pb__Phaser *)row;
        if (!reads(access, ACCESS_LOCK, slice_text(phaser->parent))) phaser->parent = (char *)"";
    } else if (row->descriptor == &pb__queue_view__descriptor) {
        Pb__QueueView *view = (Pb__QueueView *)row;
        Pb__QueueEntry *first = view->queue->holder;
        if (first && !reads(access, ACCESS_SESSION, slice_text(first->node))) first->node = (char *)"";
        for (size_t i = 0; i < view->n_holders + view->n_waiters; i++) {
            Pb__QueueEntry *entry = i < view->n_holders ? view->holders[i] : view->waiters[i - view->n_holders];
            if (!reads(access, ACCESS_SESSION, slice_text(entry->node))) entry->node = (char *)"";
        }
    }
}

static void add(struct rows *rows, struct slice name, struct slice bytes) {
    cr_assert_lt(rows->count, ARRAY_COUNT(rows->names));
    rows->names[rows->count] = name, rows->bytes[rows->count++] = bytes;
}

/* The rows of an answer; `access`: only those that it may read, as it may see them. */
static struct rows *rows_of(struct known_things *known, const struct known_query *query, const struct access *access,
                            const ProtobufCMessage *answer) {
    struct rows *rows = arena_zalloc(&known->arena, sizeof *rows);
    if (!answer) return rows;
    if (!query->rows[0]) { /* the answer is the only one */
        struct slice name = text_at(answer, query->name);
        if (!access || reads(access, query->resource, name)) add(rows, name, message_pack(&known->arena, answer));
        return rows;
    }
    if (query->type == &query_holdings && access &&
        !reads(access, ACCESS_SESSION, slice_text(((const Pb__HoldingsResult *)answer)->session->node)))
        return rows;
    const ProtobufCFieldDescriptor *field = field_of(answer, slice_text(query->rows));
    size_t count = *(const size_t *)(const void *)((const char *)answer + field->quantifier_offset);
    const void *list = *(const void *const *)(const void *)((const char *)answer + field->offset);
    for (size_t i = 0; i < count; i++) {
        if (!query->name) {
            struct slice name = message_slice(((const ProtobufCBinaryData *)list)[i]);
            add(rows, name, name);
            continue;
        }
        ProtobufCMessage *row = message_copy(&known->arena, ((ProtobufCMessage *const *)list)[i]);
        struct slice name = text_at(row, query->name);
        enum access_resource of =
            query->type == &query_holdings ? held_resource((const Pb__Holding *)row) : query->resource;
        if (access && !reads(access, of, name)) continue;
        if (access) blank(access, row);
        add(rows, name, message_pack(&known->arena, row));
    }
    return rows;
}

/* Keys that are cut at a separator: made anew of the whole keys that may be read. */
static struct rows *cut_rows(struct known_things *known, const struct access *access, struct slice separator,
                             size_t prefix, const struct rows *whole) {
    struct rows *rows = arena_zalloc(&known->arena, sizeof *rows);
    for (size_t i = 0; i < whole->count; i++) {
        struct slice key = whole->names[i];
        if (!reads(access, ACCESS_KEY, key)) continue;
        const char *at =
            separator.size ? memmem(key.data + prefix, key.size - prefix, separator.data, separator.size) : NULL;
        if (at) key.size = (size_t)(at - key.data) + separator.size;
        bool again = rows->count && slice_equal(rows->names[rows->count - 1], key);
        if (!again || !separator.size) add(rows, key, key);
    }
    return rows;
}

/* -- the judge ---------------------------------------------------------------------------------------------------- */

static const ProtobufCMessage *for_all(struct known_things *known, const struct query_type *type,
                                       const ProtobufCMessage *request) {
    struct query_result result = fixture_ask(known->world, type, request);
    return result.found ? message_copy(&known->arena, result.message) : NULL;
}

static struct rows *expected_rows(struct known_things *known, const struct known_query *query,
                                  const struct access *access, const ProtobufCMessage *request,
                                  const ProtobufCMessage *everything) {
    if (query->name) return rows_of(known, query, access, everything);
    const ProtobufCFieldDescriptor *field = field_of(request, slice_text("separator"));
    ProtobufCBinaryData *separator = (void *)((char *)(uintptr_t)request + field->offset), kept = *separator;
    struct slice prefix = text_at(request, "key");
    separator->len = 0;
    const ProtobufCMessage *whole = for_all(known, query->type, request);
    *separator = kept;
    return cut_rows(known, access, message_slice(kept), prefix.size, rows_of(known, query, NULL, whole));
}

static const char *rows_differ(struct known_things *known, const struct rows *expected, const struct rows *shown) {
    for (size_t i = 0; i < expected->count; i++) {
        if (i == shown->count)
            return arena_printf(&known->arena, "%.*s is missing", (int)expected->names[i].size,
                                expected->names[i].data);
        if (!slice_equal(expected->bytes[i], shown->bytes[i]))
            return arena_printf(&known->arena, "row %zu is \"%.*s\", not \"%.*s\"", i, (int)shown->names[i].size,
                                shown->names[i].data, (int)expected->names[i].size, expected->names[i].data);
    }
    return shown->count == expected->count ? NULL : "rows are too many";
}

static bool holds(struct slice bytes, const char *name) {
    return bytes.size && memmem(bytes.data, bytes.size, name, strlen(name));
}

/* A name of any kind that the answer must not have. A session tells its node, and the keys of a rollout its name. */
static const char *told(struct known_things *known, const struct access *access, const struct known_query *query,
                        const ProtobufCMessage *request, const ProtobufCMessage *answer) {
    struct slice asked = message_pack(&known->arena, request), bytes = message_pack(&known->arena, answer);
    for (enum access_resource of = 0; of < ACCESS_RESOURCES; of++)
        for (size_t i = 0; i < known->count[of]; i++) {
            const char *name = known->names[of][i];
            bool may = reads(access, of, slice_text(name)) ||
                       (of == ACCESS_NODE && reads(access, ACCESS_SESSION, slice_text(name))) ||
                       (of == ACCESS_ROLLOUT && query->resource == ACCESS_KEY);
            if (!may && holds(bytes, name) && !holds(asked, name)) return name;
        }
    return NULL;
}

const char *known_fault(struct known_things *known, const struct access *access, const struct known_query *query,
                        const char *name, bool open) {
    const ProtobufCMessage *request = query->request(known, name);
    const ProtobufCMessage *everything = for_all(known, query->type, request), *shown = everything;
    bool denied = query->one != ACCESS_RESOURCES && !reads(access, query->one, slice_text(name));
    if (!open) {
        struct query_result result;
        struct access_check check;
        int error = fixture_ask_as(known->world, access, query->type, request, &result, &check);
        if (denied) return error == CO_DENIED ? NULL : "it is not denied";
        if (error) return arena_printf(&known->arena, "error %d", error);
        shown = result.found ? message_copy(&known->arena, result.message) : NULL;
        fixture_forget(known->world);
    } else if (denied) {
        return "it is not denied";
    }
    const char *hidden = shown ? told(known, access, query, request, shown) : NULL;
    if (hidden) return arena_printf(&known->arena, "it tells of %s", hidden);
    if (!query->rows) return NULL;
    return rows_differ(known, expected_rows(known, query, access, request, everything),
                       rows_of(known, query, NULL, shown));
}
