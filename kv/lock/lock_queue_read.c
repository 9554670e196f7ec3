/* Reads of queues. */
#include "base/message.h"
#include "kv/lock/lock_queue_internal.h"
#include "kv/lock/lock_transitions.h"

int queue_entry(struct store_txn *txn, const struct queue_family *family, struct slice name, struct slice session,
                struct arena *arena, Pb__QueueEntry **entry) {
    struct position position;
    struct slice bytes;
    if (!queue_name_fits(name)) return CO_NOTFOUND;
    int rv = session_bound(txn, family->binding, session, name, &bytes);
    if (rv != CO_OK) return rv;
    rv = position_get(bytes, &position);
    if (rv == CO_OK) rv = queue_entry_at(txn, family, name, position, arena, entry);
    return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
}

int queue_shared_holder(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                        struct arena *arena, Pb__QueueEntry **entry, bool *several) {
    char room[QUEUE_KEY_MAX];
    struct store_cursor cursor;
    struct slice rows = queue_rows(name, room);
    size_t count = 0;
    int rv = CO_NOTFOUND;
    put_be64(room + rows.size, token);
    rows.size += 8;
    STORE_PREFIX(&cursor, txn, family->table, rows) {
        if (++count > 1) break;
        *entry = message_unpack(arena, &pb__queue_entry__descriptor, cursor.value);
        rv = *entry ? CO_OK : CO_CORRUPT;
    }
    store_cursor_close(&cursor);
    if (several) *several = rv == CO_OK && (count > 1 || (*entry)->common);
    return rv;
}

int queue_holder(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                 struct arena *arena, Pb__QueueEntry **entry, bool *several) {
    Pb__Queue *queue;
    if (several) *several = false;
    if (!token || token == QUEUE_WAITS || token < machine_restored(txn)) return CO_NOTFOUND;
    int rv = queue_get(txn, family, name, arena, &queue);
    if (rv != CO_OK) return rv;
    if (!queue->holder) return queue_shared_holder(txn, family, name, token, arena, entry, several);
    *entry = queue->holder;
    return queue->holder->token == token ? CO_OK : CO_NOTFOUND;
}

int queue_holds(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                struct arena *arena) {
    Pb__QueueEntry *entry;
    bool several;
    int rv = queue_holder(txn, family, name, token, arena, &entry, &several);
    return rv == CO_OK && several ? CO_NOTFOUND : rv; /* one of them may have lost it */
}

int queue_not_held_text(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                        struct arena *arena, const char **text) {
    Pb__Queue *queue;
    Pb__QueueEntry *entry;
    bool several = false;
    int rv = queue_get(txn, family, name, arena, &queue);
    if (rv == CO_OK) rv = queue_shared_holder(txn, family, name, token, arena, &entry, &several);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    uint32_t holders = queue_get(txn, family, name, arena, &queue) == CO_OK ? queue->holders : 0;
    const char *head = arena_printf(arena, "token %llu does not hold %s \"%.*s\":", (unsigned long long)token,
                                    family->noun, (int)name.size, name.data);
    if (!holders) *text = arena_printf(arena, "%s nobody does", head);
    else if (token < machine_restored(txn))
        *text = arena_printf(arena, "%s it is of before a backup was restored: acquire again", head);
    else if (several)
        *text =
            arena_printf(arena, "%s several were granted together with it: acquire again, for one of your own", head);
    else if (!queue->holder) *text = arena_printf(arena, "%s it is shared by %u others", head, holders);
    else *text = arena_printf(arena, "%s it is held with token %llu", head, (unsigned long long)queue->holder->token);
    return CO_OK;
}

uint32_t queue_position(struct store_txn *txn, const struct queue_family *family, struct slice name,
                        const Pb__QueueEntry *entry) {
    char room[QUEUE_KEY_MAX], own[POSITION_SIZE];
    struct store_cursor cursor;
    struct slice rows = queue_waiting_rows(name, room);
    uint32_t count = 0;
    position_put(own, position_of(entry));
    STORE_PREFIX(&cursor, txn, family->table, rows) {
        count++;
        if (memcmp(cursor.key.data + name.size + 1, own, POSITION_SIZE) == 0) break;
    }
    store_cursor_close(&cursor);
    return count;
}

uint64_t queue_index(struct store_txn *txn, const struct queue_family *family, struct slice name) {
    struct arena arena = {0};
    Pb__Queue *queue;
    uint64_t index = queue_get(txn, family, name, &arena, &queue) == CO_OK
                         ? queue->modify_index
                         : machine_change_index(txn, family->space, name);
    arena_free(&arena);
    return index;
}

/* -- views -------------------------------------------------------------------------------------------------------- */

struct entries {
    Pb__QueueEntry **items;
    size_t count, room;
};

static void entries_add(struct entries *entries, struct arena *arena, Pb__QueueEntry *entry) {
    if (entries->count == entries->room) {
        entries->room = entries->room ? 2 * entries->room : 8;
        Pb__QueueEntry **wider = arena_alloc(arena, entries->room * sizeof(Pb__QueueEntry *));
        if (entries->count) memcpy(wider, entries->items, entries->count * sizeof(Pb__QueueEntry *));
        entries->items = wider;
    }
    entries->items[entries->count++] = entry;
}

static int fill(struct store_txn *txn, const struct queue_family *family, struct slice name, size_t most,
                struct arena *arena, Pb__QueueView *view) {
    char room[QUEUE_KEY_MAX];
    struct store_cursor cursor;
    struct entries holders = {0}, waiters = {0};
    struct slice rows = queue_rows(name, room);
    int rv = CO_OK;
    if (view->queue->holder) entries_add(&holders, arena, view->queue->holder);
    STORE_PREFIX(&cursor, txn, family->table, rows) {
        Pb__QueueEntry *entry = message_unpack(arena, &pb__queue_entry__descriptor, cursor.value);
        if (!entry) rv = CO_CORRUPT;
        if (!entry || (!entry->token && waiters.count >= most)) break;
        entries_add(entry->token ? &holders : &waiters, arena, entry);
    }
    store_cursor_close(&cursor);
    view->holders = holders.items, view->n_holders = holders.count;
    view->waiters = waiters.items, view->n_waiters = waiters.count;
    return rv;
}

static Pb__QueueView *view_new(struct arena *arena, struct slice name, Pb__Queue *queue) {
    Pb__QueueView *view = arena_alloc(arena, sizeof *view);
    pb__queue_view__init(view);
    view->name = arena_strndup(arena, name.data, name.size);
    view->queue = queue;
    return view;
}

int queue_view(struct store_txn *txn, const struct queue_family *family, struct slice name, size_t most,
               struct arena *arena, Pb__QueueView **view) {
    Pb__Queue *queue;
    int rv = queue_get(txn, family, name, arena, &queue);
    if (rv == CO_NOTFOUND) {
        queue = arena_alloc(arena, sizeof *queue);
        pb__queue__init(queue);
        rv = CO_OK;
    }
    if (rv != CO_OK) return rv;
    *view = view_new(arena, name, queue);
    if (!queue->modify_index) return CO_OK;
    rv = fill(txn, family, name, most, arena, *view);
    return rv == CO_OK ? transitions_unpack(queue, arena, *view) : rv;
}

/* -- lists -------------------------------------------------------------------------------------------------------- */

static void list_add(Pb__QueueListResult *list, size_t *room, struct arena *arena, Pb__QueueView *view) {
    if (list->n_queues == *room) {
        *room = *room ? 2 * *room : 16;
        Pb__QueueView **wider = arena_alloc(arena, *room * sizeof(Pb__QueueView *));
        if (list->n_queues) memcpy(wider, list->queues, list->n_queues * sizeof(Pb__QueueView *));
        list->queues = wider;
    }
    list->queues[list->n_queues++] = view;
}

/* Is the record under the cursor that of a name? The keys of a name's rows have a NUL. */
static bool is_name(struct slice key) { return !memchr(key.data, '\0', key.size); }

int queue_list(struct store_txn *txn, const struct queue_family *family, struct slice prefix, size_t most,
               struct arena *arena, Pb__QueueListResult *list, uint64_t *index) {
    struct store_cursor cursor;
    size_t room = 0;
    int rv = CO_OK;
    *index = 0;
    if (prefix.size > QUEUE_NAME_MAX) return CO_OK; /* no name has such a beginning */
    *index = machine_removed_below(txn, family->space, prefix);
    STORE_PREFIX(&cursor, txn, family->table, prefix) {
        if (!is_name(cursor.key)) continue;
        Pb__Queue *queue = message_unpack(arena, &pb__queue__descriptor, cursor.value);
        if (!queue) rv = CO_CORRUPT;
        if (!queue) break;
        if (queue->modify_index > *index) *index = queue->modify_index;
        if (queue->holders || queue->waiters || queue->delays)
            list_add(list, &room, arena, view_new(arena, cursor.key, queue));
    }
    store_cursor_close(&cursor);
    for (size_t i = 0; i < list->n_queues && rv == CO_OK; i++)
        rv = fill(txn, family, slice_text(list->queues[i]->name), most, arena, list->queues[i]);
    return rv;
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

#define SHOWN_MOST 1000 /* waiters in a view */

static void answer_fill(struct arena *arena, struct slice name, const Pb__QueueEntry *entry, uint32_t position,
                        uint32_t waiters, struct query_result *result) {
    Pb__QueueAnswer *answer = arena_alloc(arena, sizeof *answer);
    pb__queue_answer__init(answer);
    answer->name = arena_strndup(arena, name.data, name.size);
    answer->held = entry->token != 0;
    answer->mode = entry->mode, answer->token = entry->token, answer->session = entry->session;
    answer->position = position, answer->waiters = waiters;
    *result = (struct query_result){
        .index = entry->token ? entry->token : entry->place, .found = true, .message = &answer->base};
}

static struct slice name_of(const ProtobufCMessage *request) {
    CHECK(request->descriptor == &pb__queue_request__descriptor);
    return slice_text(((const Pb__QueueRequest *)request)->name);
}
static struct slice session_name_of(const ProtobufCMessage *request) {
    CHECK(request->descriptor == &pb__queue_entry_request__descriptor);
    const ProtobufCBinaryData *bytes = &((const Pb__QueueEntryRequest *)request)->session_name;
    return slice_make(bytes->data, bytes->len);
}
static struct slice prefix_of(const ProtobufCMessage *request) {
    CHECK(request->descriptor == &pb__queue_list_request__descriptor);
    return slice_text(((const Pb__QueueListRequest *)request)->prefix);
}

struct slice queue_request_name(const ProtobufCMessage *request) {
    if (request->descriptor == &pb__queue_request__descriptor) return name_of(request);
    struct slice both = session_name_of(request);
    if (both.size <= UUID_TEXT_SIZE) return slice_make("", 0);
    return slice_make(both.data + UUID_TEXT_SIZE, both.size - UUID_TEXT_SIZE);
}

struct watch_key queue_watched(uint8_t space, const ProtobufCMessage *request) {
    if (request->descriptor == &pb__queue_list_request__descriptor)
        return (struct watch_key){space | WATCH_PREFIX_BIT, prefix_of(request)};
    if (request->descriptor == &pb__queue_entry_request__descriptor)
        return (struct watch_key){space, session_name_of(request)};
    return (struct watch_key){space, name_of(request)};
}

int queue_entry_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                    struct arena *arena, struct query_result *result) {
    struct slice session_name = session_name_of(request);
    *result = (struct query_result){0};
    if (session_name.size <= UUID_TEXT_SIZE) return CO_OK;
    struct slice session = slice_make(session_name.data, UUID_TEXT_SIZE), name = queue_request_name(request);
    Pb__QueueEntry *entry;
    Pb__Queue *queue;
    int rv = queue_entry(txn, family, name, session, arena, &entry);
    if (rv == CO_NOTFOUND) {
        result->index = queue_index(txn, family, name);
        return CO_OK;
    }
    if (rv == CO_OK) rv = queue_get(txn, family, name, arena, &queue);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
    bool old = entry->token && entry->token < machine_restored(txn); /* the holder has to acquire again */
    if (old) entry->token = 0;
    uint32_t position = entry->token || old ? 0 : queue_position(txn, family, name, entry);
    answer_fill(arena, name, entry, position, queue->waiters, result);
    return CO_OK;
}

int queue_holder_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                     struct arena *arena, struct query_result *result) {
    struct slice name = name_of(request);
    Pb__QueueEntry *entry;
    bool several;
    int rv = queue_holder(txn, family, name, ((const Pb__QueueRequest *)request)->token, arena, &entry, &several);
    *result = (struct query_result){.index = queue_index(txn, family, name)};
    if (rv == CO_OK && several) entry->session = (char *)(uintptr_t) "";
    if (rv == CO_OK) answer_fill(arena, name, entry, 0, 0, result);
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

int queue_view_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                   struct arena *arena, struct query_result *result) {
    struct slice name = name_of(request);
    Pb__QueueView *view;
    int rv = queue_view(txn, family, name, SHOWN_MOST, arena, &view);
    if (rv == CO_OK)
        *result = (struct query_result){.index = queue_index(txn, family, name), .found = true, .message = &view->base};
    return rv;
}

int queue_list_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                   struct arena *arena, struct query_result *result) {
    Pb__QueueListResult *list = arena_alloc(arena, sizeof *list);
    uint64_t index;
    pb__queue_list_result__init(list);
    int rv = queue_list(txn, family, prefix_of(request), SHOWN_MOST, arena, list, &index);
    *result = (struct query_result){.index = index, .found = true, .message = &list->base};
    return rv;
}
