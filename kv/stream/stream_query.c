/* The query of streams: all changes of the followed things after a position.
 *
 * First the query passes all rows of the history behind the position once. It notes each touch of a followed thing, and
 * the before-images of these rows make up the past. It may leave out all other rows, because an entry touches every
 * thing whose queries read what it changed. Services are the exception (stream_kind.wide): an instance that has another
 * name today is read under its old name when the past is asked, and later entries touched the new name only. Then each
 * noted touch becomes an event, by the query of its thing as of its index, until there is enough for one answer. */
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/message.h"
#include "kv/stream/stream_internal.h"
#include "registry/catalog.h"
#include "registry/version.h"

unsigned stream_mutations;

/* A touch that becomes an event. */
struct found {
    uint64_t index;
    uint8_t topic;
    uint32_t place; /* number in its row, from 1 */
    const struct stream_kind *kind;
    struct slice name; /* points into the map */
};

/* Names below followed prefixes that were found in the present row. */
struct names {
    struct name {
        uint64_t row; /* of an earlier row: the slot is free */
        struct slice name;
    } * slots;
    size_t count, room; /* room: a power of two, more than twice the count */
};

struct replay {
    struct store_txn *txn;
    const Pb__StreamRequest *request;
    struct arena *arena;
    struct access_check *check; /* NULL: everything is shown */
    struct stream_match match;
    Pb__StreamPosition from;
    struct found *found;
    size_t count, room;
    uint64_t row; /* counts the touches that were passed */
    struct names names;
    struct store_past *past;
    Pb__StreamResult *result;
    size_t bytes;
};

/* The stream's client has everything up to this index. Positions come from other processes: 0 is before everything,
 * whatever its other fields are. */
static uint64_t known_index(const Pb__StreamPosition *from) {
    return from->topic != 0 && from->index > 0 ? from->index - 1 : from->index;
}

/* -- passing the history ------------------------------------------------------------------------------------------ */

static bool behind(const Pb__StreamPosition *from, uint64_t index, uint8_t topic, uint32_t place) {
    if (index != from->index) return index > from->index;
    if (from->topic == 0) return false;
    return topic != from->topic ? topic > from->topic : place > from->place;
}

static struct name *name_slot(const struct replay *replay, struct slice name) {
    const struct names *names = &replay->names;
    CHECK(names->room && (names->room & (names->room - 1)) == 0);
    size_t i = hash64(name.data, name.size) & (names->room - 1);
    while (names->slots[i].row == replay->row && !slice_equal(names->slots[i].name, name))
        i = (i + 1) & (names->room - 1);
    return &names->slots[i];
}

static void names_widen(struct replay *replay) {
    struct names old = replay->names, *names = &replay->names;
    names->room = old.room ? 4 * old.room : 16;
    names->slots = arena_alloc(replay->arena, names->room * sizeof *names->slots);
    memset(names->slots, 0, names->room * sizeof *names->slots);
    for (size_t i = 0; i < old.room; i++)
        if (old.slots[i].row == replay->row) *name_slot(replay, old.slots[i].name) = old.slots[i];
}

/* Was the name found earlier in this row, sent or not? An entry that touches a thing twice is one event. */
static bool found_before(struct replay *replay, struct stream_wanted *wanted, struct slice name) {
    struct names *names = &replay->names;
    if (!(wanted->space & WATCH_PREFIX_BIT)) {
        bool before = wanted->row == replay->row;
        wanted->row = replay->row;
        return before;
    }
    if (2 * (names->count + 1) >= names->room) names_widen(replay);
    struct name *slot = name_slot(replay, name);
    if (slot->row == replay->row) return true;
    *slot = (struct name){replay->row, name};
    CHECK(2 * (names->count + 1) < names->room);
    names->count++;
    return false;
}

static void note_found(struct replay *replay, const struct found *found) {
    if (replay->count == replay->room) {
        size_t room = replay->room ? 2 * replay->room : 16;
        struct found *wider = arena_alloc(replay->arena, room * sizeof *wider);
        if (replay->count) memcpy(wider, replay->found, replay->count * sizeof *wider);
        replay->found = wider, replay->room = room;
    }
    CHECK(replay->count <= STREAM_EVENTS_MAX && found->place > 0);
    replay->found[replay->count++] = *found;
}

static void keep_notes(struct replay *replay, const struct history_row *row) {
    struct slice rest = row->notes;
    struct store_before before;
    while (store_journal_next(&rest, &before)) store_past_add(replay->past, row->index, &before);
    if (rest.size) store_fail(replay->txn, CO_CORRUPT);
}

static bool is_hidden(const struct replay *replay, const struct stream_wanted *wanted, struct slice name) {
    bool checks = replay->check && wanted->space & WATCH_PREFIX_BIT; /* the others were checked before */
    return checks && !access_shows(replay->check, wanted->kind->resource, name);
}

/* Touches beyond one answer are not noted, except the next one, which tells whether the last event is the last of its
 * index. The before-images of their rows count all the same. */
static void pass_row(struct replay *replay, const struct history_row *row, uint8_t topic) {
    struct slice rest = row->touches;
    struct history_touch touch;
    bool followed = false;
    replay->row++;
    replay->names.count = 0;
    for (uint32_t place = 1; history_touch_next(&rest, &touch); place++) {
        struct stream_wanted *wanted = stream_match_find(&replay->match, &touch);
        if (!wanted || is_hidden(replay, wanted, touch.name)) continue;
        followed = true;
        if (replay->count > STREAM_EVENTS_MAX) break;
        if (found_before(replay, wanted, touch.name) || !behind(&replay->from, row->index, topic, place)) continue;
        note_found(replay, &(struct found){row->index, topic, place, wanted->kind, touch.name});
    }
    if (followed || (replay->count && replay->match.wide[topic])) keep_notes(replay, row);
}

/* Passes the topics' rows, merged by their indexes. The row of the position's own index counts when some of its events
 * are not sent yet. */
static void pass_history(struct replay *replay) {
    struct history_walk walks[HISTORY_TOPICS] = {0};
    uint64_t after = known_index(&replay->from) + (stream_mutations & MUTATE_STREAM_SKIPS ? 1 : 0);
    for (uint8_t topic = 1; topic < HISTORY_TOPICS; topic++)
        if (replay->match.topics[topic]) history_walk_open(&walks[topic], replay->txn, topic, after);
    for (;;) {
        uint8_t next = 0;
        for (uint8_t topic = 1; topic < HISTORY_TOPICS; topic++)
            if (walks[topic].valid && (!next || walks[topic].row.index < walks[next].row.index)) next = topic;
        if (!next) break;
        pass_row(replay, &walks[next].row, next);
        history_walk_next(&walks[next]);
    }
    for (uint8_t topic = 1; topic < HISTORY_TOPICS; topic++)
        if (replay->match.topics[topic]) history_walk_close(&walks[topic]);
}

/* -- events ------------------------------------------------------------------------------------------------------- */

/* A thing that may not be read is as one that is not there. */
static int ask(struct replay *replay, const struct found *found, uint64_t at, struct query_result *result) {
    store_read_past(replay->txn, replay->past, at);
    const ProtobufCMessage *request = found->kind->request(found->name, replay->arena);
    const struct query_type *query = stream_kinds[found->kind->shown].query;
    int rv = query->run(replay->txn, request, replay->arena, result);
    if (rv == CO_OK && replay->check) rv = query->show(replay->check, replay->txn, request, result);
    if (rv == CO_DENIED) *result = (struct query_result){0}, rv = CO_OK;
    if (rv == CO_OK) rv = store_txn_error(replay->txn);
    return rv;
}

static int compare_entries(const void *a, const void *b) {
    const Pb__ServiceEntry *one = *(Pb__ServiceEntry *const *)a, *other = *(Pb__ServiceEntry *const *)b;
    int order = strcmp(one->node->name, other->node->name);
    return order ? order : strcmp(one->service->id, other->service->id);
}

static Pb__ServiceEntry **sorted(const Pb__ServiceEntriesResult *list, struct arena *arena) {
    Pb__ServiceEntry **entries = arena_alloc(arena, (list->n_entries + 1) * sizeof *entries);
    if (list->n_entries) memcpy(entries, list->entries, list->n_entries * sizeof *entries);
    qsort(entries, list->n_entries, sizeof *entries, compare_entries);
    return entries;
}

/* Describes the change: entries that are new or different, and entries that are gone. */
static void reduce_to_delta(struct replay *replay, const Pb__ServiceEntriesResult *before,
                            Pb__ServiceEntriesResult *now, Pb__StreamEvent *event) {
    struct arena *arena = replay->arena;
    Pb__ServiceEntry **old = sorted(before, arena), **fresh = sorted(now, arena), **changed;
    changed = arena_alloc(arena, (now->n_entries + 1) * sizeof *changed);
    event->removed = arena_alloc(arena, (before->n_entries + 1) * sizeof *event->removed);
    size_t count = 0;
    for (size_t i = 0, j = 0; i < before->n_entries || j < now->n_entries;) {
        int order = i == before->n_entries ? 1 : j == now->n_entries ? -1 : compare_entries(&old[i], &fresh[j]);
        if (order < 0) {
            Pb__StreamRemoved *removed = arena_alloc(arena, sizeof *removed);
            pb__stream_removed__init(removed);
            removed->node = old[i]->node->name, removed->id = old[i]->service->id;
            event->removed[event->n_removed++] = removed;
        } else if (order > 0 ||
                   !slice_equal(message_pack(arena, &old[i]->base), message_pack(arena, &fresh[j]->base))) {
            changed[count++] = fresh[j];
        }
        i += order <= 0, j += order >= 0;
    }
    CHECK(count <= now->n_entries && event->n_removed <= before->n_entries);
    now->entries = changed, now->n_entries = count;
}

static bool is_gone(const struct found *found, const struct query_result *result) {
    bool service = found->kind->shown == PB__STREAM_KIND__STREAM_SERVICE;
    return !result->found || (service && ((const Pb__ServiceEntriesResult *)result->message)->n_entries == 0);
}

static struct slice record_of(struct replay *replay, const struct found *found, const struct query_result *result) {
    return is_gone(found, result) ? slice_make("", 0) : message_pack(replay->arena, result->message);
}

/* *same: the token sees no change. */
static int fill_event(struct replay *replay, const struct found *found, Pb__StreamEvent *event, bool *same) {
    struct query_result result = {0}, before = {0};
    bool delta = replay->request->delta && found->kind->shown == PB__STREAM_KIND__STREAM_SERVICE,
         compares = replay->check && found->kind->in_part;
    int rv = delta || compares ? ask(replay, found, found->index - 1, &before) : CO_OK;
    struct slice was = rv == CO_OK && compares ? record_of(replay, found, &before) : slice_make("", 0);
    if (rv == CO_OK) rv = ask(replay, found, found->index, &result);
    if (rv != CO_OK) return rv;
    struct slice is = delta && !compares ? slice_make("", 0) : record_of(replay, found, &result);
    event->gone = is_gone(found, &result);
    *same = compares && slice_equal(was, is);
    if (*same) return CO_OK;
    if (delta) {
        static const Pb__ServiceEntriesResult none = PB__SERVICE_ENTRIES_RESULT__INIT;
        Pb__ServiceEntriesResult now = result.message ? *(const Pb__ServiceEntriesResult *)result.message : none;
        reduce_to_delta(replay, before.message ? (const Pb__ServiceEntriesResult *)before.message : &none, &now, event);
        is = message_pack(replay->arena, &now.base);
    }
    event->record = message_bytes(is);
    return CO_OK;
}

/* The event before this one was the last of its index after all. */
static void end_index(Pb__StreamResult *result, uint64_t index) {
    Pb__StreamEvent *last = result->n_events ? result->events[result->n_events - 1] : NULL;
    if (!last || last->position->index != index) return;
    last->last = true;
    last->position->topic = last->position->place = 0;
}

static int add_event(struct replay *replay, size_t number) {
    const struct found *found = &replay->found[number];
    Pb__StreamResult *result = replay->result;
    Pb__StreamEvent *event = arena_alloc(replay->arena, sizeof *event);
    Pb__StreamPosition *position = arena_alloc(replay->arena, sizeof *position);
    bool same = false;
    CHECK(number < replay->count && found->index > known_index(&replay->from));
    pb__stream_event__init(event);
    pb__stream_position__init(position);
    event->kind = found->kind->shown;
    event->name = message_bytes(slice_copy(replay->arena, found->name));
    event->last = number + 1 == replay->count || replay->found[number + 1].index != found->index;
    position->index = found->index;
    if (!event->last) position->topic = found->topic, position->place = found->place;
    event->position = position;
    int rv = fill_event(replay, found, event, &same);
    if (rv != CO_OK) return rv;
    result->position = position;
    if (same) {
        replay->check->hidden++;
        if (event->last) end_index(result, found->index);
        return CO_OK;
    }
    result->events[result->n_events++] = event;
    replay->bytes += event->record.len + event->name.len + 64 * event->n_removed;
    return CO_OK;
}

/* The position when no event is left: everything up to the present. *more: some are left. */
static int add_events(struct replay *replay, bool *more) {
    Pb__StreamResult *result = replay->result;
    size_t most = replay->request->bytes_most ? replay->request->bytes_most : STREAM_BYTES;
    size_t count = replay->count < STREAM_EVENTS_MAX ? replay->count : STREAM_EVENTS_MAX;
    result->events = arena_alloc(replay->arena, (count + 1) * sizeof(Pb__StreamEvent *));
    size_t i = 0;
    for (; i < count && (i == 0 || replay->bytes < most); i++) {
        int rv = add_event(replay, i);
        if (rv != CO_OK) return rv;
    }
    *more = i < replay->count;
    if (!*more) {
        result->position = arena_alloc(replay->arena, sizeof *result->position);
        pb__stream_position__init(result->position);
        result->position->index = result->index;
        /* This server is behind: it will have the remaining events of the position's own entry later. */
        if (result->index < replay->from.index)
            *result->position = (Pb__StreamPosition){.base = result->position->base,
                                                     .index = replay->from.index,
                                                     .topic = replay->from.topic,
                                                     .place = replay->from.place};
    }
    return CO_OK;
}

/* -- the beginning ------------------------------------------------------------------------------------------------ */

/* The position is below the floor: has any followed thing changed after it? */
static int changed_since(struct replay *replay, uint64_t index, bool *changed) {
    *changed = false;
    for (size_t i = 0; i < replay->request->n_subscriptions && !*changed; i++) {
        const Pb__StreamSubscription *subscription = replay->request->subscriptions[i];
        const struct stream_kind *kind = &stream_kinds[subscription->kind];
        struct slice name = message_slice(subscription->name);
        struct query_result result = {0};
        int rv = kind->all->run(replay->txn, kind->request(name, replay->arena), replay->arena, &result);
        if (rv != CO_OK) return rv;
        *changed = result.index > index || machine_floor(replay->txn) > index;
    }
    return store_txn_error(replay->txn);
}

static int begin(struct replay *replay, bool *follow) {
    Pb__StreamResult *result = replay->result;
    uint64_t floor = history_floor_of(replay->txn, replay->match.topics, &result->window),
             restored = machine_restored(replay->txn);
    const Pb__StreamPosition *from = replay->request->from;
    *follow = false;
    result->position = arena_alloc(replay->arena, sizeof *result->position);
    pb__stream_position__init(result->position);
    result->position->index = result->index;
    result->off = floor == UINT64_MAX;
    if (result->off || !from) return store_txn_error(replay->txn);
    result->reset = from->index < restored;
    if (result->reset) return store_txn_error(replay->txn);
    uint64_t needed = known_index(from);
    bool changed = false;
    int rv = needed < floor ? changed_since(replay, needed, &changed) : CO_OK;
    result->gap = changed;
    replay->from = *from;
    if (needed < floor) replay->from.index = floor, replay->from.topic = replay->from.place = 0;
    *follow = !changed;
    return rv;
}

/* -- the query ---------------------------------------------------------------------------------------------------- */

/* All events after the position, until there is enough for one answer. When none of so many is shown, it goes on. */
static int follow(struct replay *replay) {
    bool more = true;
    int rv = CO_OK;
    while (rv == CO_OK && more && replay->result->n_events == 0) {
        replay->count = 0;
        replay->past = store_past_new();
        pass_history(replay);
        rv = store_txn_error(replay->txn);
        if (rv == CO_OK) rv = add_events(replay, &more);
        history_past_end(replay->txn, replay->past);
        replay->from = *replay->result->position;
    }
    return rv;
}

static int answer(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                  struct access_check *check, struct query_result *out) {
    struct replay replay = {.txn = txn, .request = (const Pb__StreamRequest *)message, .arena = arena, .check = check};
    *out = (struct query_result){0};
    if (!stream_match_init(&replay.match, replay.request, arena))
        return CO_OK; /* the caller sees that there is no event */
    Pb__StreamResult *result = replay.result = arena_alloc(arena, sizeof *result);
    pb__stream_result__init(result);
    result->index = machine_index_in(txn);
    struct version_now now;
    bool follows;
    int rv = version_read(txn, &now);
    result->cluster = now.cluster_id;
    if (rv == CO_OK) rv = begin(&replay, &follows);
    if (rv == CO_OK && follows) rv = follow(&replay);
    bool news = result->n_events || result->gap || result->reset || result->off;
    uint64_t had = replay.request->from ? replay.request->from->index : 0;
    bool waits = !news && had && had <= result->index; /* else this server is behind, and its answer changes as it
                                                        * catches up */
    *out = (struct query_result){.index = waits ? had : result->index, .found = true, .message = &result->base};
    return rv;
}

static int stream_run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                      struct query_result *out) {
    return answer(txn, message, arena, NULL, out);
}

/* -- access ------------------------------------------------------------------------------------------------------- */

/* CO_DENIED: nothing of it may be followed. *whole: all of it may be. Of a prefix the query's rows do not matter. */
static int follow_may(struct access_check *check, struct store_txn *txn, const Pb__StreamSubscription *subscription,
                      bool *whole) {
    const struct stream_kind *kind = &stream_kinds[subscription->kind];
    struct slice name = message_slice(subscription->name);
    const ProtobufCMessage *request = kind->request(name, check->arena);
    struct query_result result = {0};
    bool prefix = kind->space & WATCH_PREFIX_BIT;
    *whole = !kind->in_part && (!prefix || access_allows_below(check->access, kind->resource, name, ACCESS_READ));
    int rv = prefix ? CO_OK : kind->all->run(txn, request, check->arena, &result);
    return rv == CO_OK ? kind->all->show(check, txn, request, &result) : rv;
}

/* Replays anew, with an eye on the token, unless it may see everything. */
static int stream_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                       struct query_result *out) {
    const Pb__StreamRequest *request = (const Pb__StreamRequest *)message;
    bool whole = true;
    if (!out->found) return CO_OK; /* a subscription is invalid */
    for (size_t i = 0; i < request->n_subscriptions; i++) {
        bool each;
        int rv = follow_may(check, txn, request->subscriptions[i], &each);
        if (rv != CO_OK) return rv;
        whole &= each;
    }
    return whole ? CO_OK : answer(txn, message, check->arena, check, out);
}

/* -- watch keys --------------------------------------------------------------------------------------------------- */

/* Space 0: no such subscription. Requests come from other processes, and running them checks them. */
static struct watch_key watched_at(const Pb__StreamRequest *request, size_t i) {
    if (i >= request->n_subscriptions || i >= STREAM_SUBSCRIPTIONS_MAX) return (struct watch_key){0};
    const Pb__StreamSubscription *subscription = request->subscriptions[i];
    if ((size_t)subscription->kind >= STREAM_KINDS) return (struct watch_key){0};
    return (struct watch_key){stream_kinds[subscription->kind].space, message_slice(subscription->name)};
}

static struct watch_key watched(const ProtobufCMessage *message) {
    struct watch_key first = watched_at((const Pb__StreamRequest *)message, 0);
    return first.space ? first : (struct watch_key){SPACE_HISTORY, slice_make("", 0)};
}

static struct watch_key own(const ProtobufCMessage *message, size_t i) {
    return watched_at((const Pb__StreamRequest *)message, i + 1);
}

const struct query_type query_stream = {.number = 129,
                                        .name = "stream",
                                        .request = &pb__stream_request__descriptor,
                                        .result = &pb__stream_result__descriptor,
                                        .watched = watched,
                                        .own = own,
                                        .run = stream_run,
                                        .show = stream_show};
