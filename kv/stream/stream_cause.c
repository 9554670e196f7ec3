/* Tells in a few words which change woke a blocking query: the index of the query's answer names a row of the history,
 * which has the change. */
#include <stdio.h>

#include "base/check.h"
#include "kv/keys/kv.h"
#include "kv/keys/kv_record.h"
#include "kv/stream/stream_internal.h"
#include "registry/catalog.h"
#include "registry/catalog_records.h"
#include "registry/tables.h"

#define NAME_SHOWN 100 /* bytes */
#define NOTES_READ 256 /* notes of a row that are looked at; an entry may wake many queries */

struct cause {
    struct store_txn *txn; /* the state after the entry */
    const struct access *access;
    struct arena *arena;
    struct watch_key watched;
    const struct stream_kind *kind;
    const char *what;      /* NULL: not found yet */
    struct slice name, id; /* of the thing that changed; id: of an instance */
};

static bool may_read(const struct cause *cause, enum access_resource resource, struct slice name) {
    return access_allows(cause->access, resource, name, ACCESS_READ);
}

static bool same_name(struct slice a, struct slice b) { return slice_equal_nocase(a, b); }

/* -- keys --------------------------------------------------------------------------------------------------------- */

static void key_cause(struct cause *cause, const struct store_before *before) {
    struct kv_record was = {0}, is = {0};
    struct slice bytes;
    struct slice head = cause->watched.name; /* the store key of a long key has only its beginning (kv_record.h) */
    if (head.size > STORE_KEY_PREFIX) head.size = STORE_KEY_PREFIX;
    if (!slice_starts(before->key, head)) return;
    bool now = store_get(cause->txn, before->table, before->key, &bytes) == CO_OK;
    if (now && kv_record_decode(before->key, bytes, &is) != CO_OK) return;
    if (before->existed && kv_record_decode(before->key, before->value, &was) != CO_OK) return;
    struct slice key = now ? is.key : was.key;
    bool mine = cause->watched.space & WATCH_PREFIX_BIT ? slice_starts(key, cause->watched.name)
                                                        : slice_equal(key, cause->watched.name);
    if (!mine || (!now && !before->existed) || !may_read(cause, ACCESS_KEY, key)) return;
    bool held = was.session.size, holds = is.session.size;
    cause->name = key;
    cause->what = !now                                                       ? "deleted"
                  : !before->existed                                         ? "created"
                  : holds && !(held && slice_equal(was.session, is.session)) ? "locked"
                  : held && !holds                                           ? "unlocked"
                                                                             : "set";
}

/* -- the catalog -------------------------------------------------------------------------------------------------- */

static bool about(const struct cause *cause, const char *node, const char *service) {
    bool by_node = cause->watched.space == SPACE_NODE;
    return same_name(slice_text(by_node ? node : service), cause->watched.name);
}

/* An instance or a check is for those who may read its node, and its service if it has one. */
static bool row_shown(const struct cause *cause, const char *node, const char *service) {
    return may_read(cause, ACCESS_NODE, slice_text(node)) &&
           (!service[0] || may_read(cause, ACCESS_SERVICE, slice_text(service)));
}

/* A check of the node concerns all services on it. */
static void check_cause(struct cause *cause, const struct store_before *before) {
    struct slice bytes;
    if (!before->existed || store_get(cause->txn, before->table, before->key, &bytes) != CO_OK) return;
    const Pb__Check *was = record_check(cause->txn, cause->arena, before->value);
    const Pb__Check *is = record_check(cause->txn, cause->arena, bytes);
    if (!was || !is || was->status == is->status || !row_shown(cause, is->node, is->service_name)) return;
    if (is->service_name[0] ? !about(cause, is->node, is->service_name)
                            : cause->watched.space == SPACE_NODE && !about(cause, is->node, ""))
        return;
    cause->what =
        arena_printf(cause->arena, "%s->%s", catalog_status_text(was->status), catalog_status_text(is->status));
}

static void service_cause(struct cause *cause, const struct store_before *before) {
    struct slice bytes;
    bool now = store_get(cause->txn, before->table, before->key, &bytes) == CO_OK;
    if (!now) bytes = before->value;
    if (!now && !before->existed) return;
    const Pb__Service *service = record_service(cause->txn, cause->arena, bytes);
    if (!service || !about(cause, service->node, service->name)) return;
    if (!row_shown(cause, service->node, service->name)) return;
    cause->id = slice_text(service->id);
    cause->what = !now ? "deregistered" : before->existed ? "changed" : "registered";
}

static void note_cause(struct cause *cause, const struct store_before *before) {
    if (cause->kind->topic == HISTORY_KEYS) key_cause(cause, before);
    else if (before->table == TABLE_CHECKS) check_cause(cause, before);
    else if (before->table == TABLE_SERVICES) service_cause(cause, before);
}

/* -- the text ----------------------------------------------------------------------------------------------------- */

static const struct stream_kind *kind_of(uint8_t space) {
    for (size_t i = 0; i < STREAM_KINDS; i++)
        if (stream_kinds[i].space == space) return &stream_kinds[i];
    return NULL;
}

/* Appends a name that clients have chosen: only printable ASCII may stand in a header. */
static void append_name(struct buffer *out, struct slice name) {
    for (size_t i = 0; i < name.size && i < NAME_SHOWN; i++)
        buffer_append_byte(out, name.data[i] > ' ' && name.data[i] < 0x7f ? name.data[i] : '?');
    if (name.size > NAME_SHOWN) buffer_append_text(out, "...");
}

static void look(struct cause *cause, const struct history_row *row) {
    struct slice rest = row->notes;
    struct store_before before;
    for (unsigned i = 0; i < NOTES_READ && !cause->what && store_journal_next(&rest, &before); i++)
        note_cause(cause, &before);
}

/* Without a change that may be told, the line has the watched name. */
static bool may_be_told(const struct cause *cause) {
    if (access_is_all(cause->access)) return true;
    bool prefix = cause->watched.space & WATCH_PREFIX_BIT;
    return prefix ? cause->what != NULL : may_read(cause, cause->kind->resource, cause->watched.name);
}

bool stream_cause(struct store_txn *txn, const struct access *access, struct watch_key watched, uint64_t index,
                  struct arena *arena, struct buffer *out) {
    struct cause cause = {.txn = txn,
                          .access = access,
                          .arena = arena,
                          .watched = watched,
                          .kind = kind_of(watched.space),
                          .name = watched.name};
    struct store_past *past;
    struct history_walk walk;
    if (!cause.kind || index == 0 || history_read_past(txn, cause.kind->topic, index, &past) != CO_OK) return false;
    history_walk_open(&walk, txn, cause.kind->topic, index - 1);
    bool found = walk.valid && walk.row.index == index;
    if (found) look(&cause, &walk.row);
    history_walk_close(&walk);
    history_past_end(txn, past);
    if (!found || store_txn_error(txn) || !may_be_told(&cause)) return false;
    buffer_append_text(out, stream_kinds[cause.kind->shown].parameter);
    buffer_append_byte(out, ' ');
    append_name(out, cause.name);
    buffer_printf(out, " %s", cause.what ? cause.what : "changed");
    if (cause.id.size) buffer_append_byte(out, ' ');
    append_name(out, cause.id);
    buffer_printf(out, " index %llu", (unsigned long long)index);
    return true;
}
