#include "queues.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static char *mutable(const char *text) { return (char *)(uintptr_t)text; }

static ProtobufCBinaryData bytes_of(const char *text, size_t size) {
    return (ProtobufCBinaryData){size ? size : text ? strlen(text) : 0, (uint8_t *)mutable(text)};
}

/* -- sessions ----------------------------------------------------------------------------------------------------- */

const char *session_of(char who) {
    static char rooms[16][UUID_TEXT_SIZE + 1];
    static unsigned next;
    char *id = rooms[next++ % ARRAY_COUNT(rooms)];
    session_id((unsigned)(who - 'a'), id);
    return id;
}

char letter_of(const char *session) { return session[0] ? (char)('a' + strtoul(session, NULL, 16)) : '-'; }

struct outcome session_on(struct fixture *world, char who, const char *node, int64_t delay_ns) {
    return session_make(world, session_of(who), &(struct session_plan){.node = node, .lock_delay_ns = delay_ns});
}

void queues_open(struct fixture *world, unsigned sessions) {
    fixture_open(world);
    fixture_found(world);
    CHECK(node_register(world, "n1").yes);
    for (unsigned i = 0; i < sessions; i++) CHECK(session_on(world, (char)('a' + i), "n1", 0).yes);
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

static void take(struct answer *answer, const Pb__QueueAnswer *message) {
    answer->held = message->held, answer->token = message->token, answer->mode = message->mode;
    answer->position = message->position, answer->waiters = message->waiters;
    answer->who = letter_of(message->session);
}

struct answer queues_apply(struct fixture *world, uint8_t type, const ProtobufCMessage *command) {
    const ProtobufCMessage *message;
    struct outcome outcome = answer_of(world, type, command, &message);
    struct answer answer = {.error = outcome.error, .yes = outcome.yes, .index = outcome.index, .who = '-'};
    memcpy(answer.text, outcome.text, sizeof answer.text);
    if (message && message->descriptor == &pb__queue_answer__descriptor)
        take(&answer, (const Pb__QueueAnswer *)message);
    return answer;
}

/* Whom it acts for; both messages live as long as the caller's. */
static Pb__SessionUse *use_of(const struct acquire *wish, Pb__SessionUse *use, Pb__Session *made) {
    pb__session_use__init(use);
    pb__session__init(made);
    if (wish->who) use->id = mutable(session_of(wish->who));
    made->id = mutable(session_of(wish->made)), made->node = mutable("n1");
    made->ttl_ns = 10000000000, made->lock_delay_ns = wish->made_delay_ns;
    if (wish->made) use->create = made;
    return wish->who || wish->made ? use : NULL;
}

static struct answer acquire(struct fixture *world, uint8_t type, const struct acquire *wish) {
    Pb__QueueAcquireCommand command = PB__QUEUE_ACQUIRE_COMMAND__INIT;
    Pb__QueueLimits limits = {PROTOBUF_C_MESSAGE_INIT(&pb__queue_limits__descriptor), wish->waiters_max,
                              wish->of_session_max};
    Pb__SessionUse use;
    Pb__Session made;
    command.name = mutable(wish->name);
    command.session = use_of(wish, &use, &made);
    command.token = wish->token;
    command.mode = wish->shared ? PB__QUEUE_MODE__QUEUE_SHARED : PB__QUEUE_MODE__QUEUE_EXCLUSIVE;
    command.limit = wish->limit, command.priority = wish->priority, command.enqueue = !wish->asks;
    command.note = bytes_of(wish->note, wish->note_size);
    command.now_unix_ms = 1000;
    if (wish->waiters_max || wish->of_session_max) command.limits = &limits;
    return queues_apply(world, type, &command.base);
}
struct answer lock_acquire(struct fixture *world, const struct acquire *wish) {
    return acquire(world, LOCK_ACQUIRE, wish);
}
struct answer election_campaign(struct fixture *world, const struct acquire *wish) {
    return acquire(world, ELECTION_CAMPAIGN, wish);
}

static struct answer release(struct fixture *world, uint8_t type, const char *name, const char *session,
                             uint64_t token) {
    Pb__QueueReleaseCommand command = PB__QUEUE_RELEASE_COMMAND__INIT;
    command.name = mutable(name), command.token = token, command.now_unix_ms = 2000;
    if (session) command.session = mutable(session);
    return queues_apply(world, type, &command.base);
}
struct answer lock_release(struct fixture *world, const char *name, char who) {
    return release(world, LOCK_RELEASE, name, session_of(who), 0);
}
struct answer lock_release_by(struct fixture *world, const char *name, uint64_t token) {
    return release(world, LOCK_RELEASE, name, NULL, token);
}
struct answer election_resign(struct fixture *world, const char *name, char who, uint64_t term) {
    return release(world, ELECTION_RESIGN, name, who ? session_of(who) : NULL, term);
}

static struct answer delay_over(struct fixture *world, uint8_t type, const char *name, uint64_t index, uint64_t term) {
    Pb__QueueDelayOverCommand command = PB__QUEUE_DELAY_OVER_COMMAND__INIT;
    command.name = mutable(name), command.index = index, command.term = term;
    return queues_apply(world, type, &command.base);
}
struct answer lock_delay_over(struct fixture *world, const char *name, uint64_t index, uint64_t term) {
    return delay_over(world, LOCK_DELAY_OVER, name, index, term);
}
struct answer election_delay_over(struct fixture *world, const char *name, uint64_t index) {
    return delay_over(world, ELECTION_DELAY_OVER, name, index, world->term);
}

struct answer election_proclaim(struct fixture *world, const char *name, uint64_t term, const char *value) {
    Pb__QueueNoteCommand command = PB__QUEUE_NOTE_COMMAND__INIT;
    command.name = mutable(name), command.token = term, command.note = bytes_of(value, 0);
    return queues_apply(world, ELECTION_PROCLAIM, &command.base);
}

/* -- reads -------------------------------------------------------------------------------------------------------- */

static struct buffer text;

static const Pb__QueueView *view_of(struct fixture *world, const struct query_type *type, const char *name) {
    Pb__QueueRequest request = PB__QUEUE_REQUEST__INIT;
    request.name = mutable(name);
    struct query_result result = fixture_ask(world, type, &request.base);
    CHECK(result.found);
    return (const Pb__QueueView *)result.message;
}

static void entry_append(const Pb__QueueEntry *entry) {
    bool exclusive = entry->mode == PB__QUEUE_MODE__QUEUE_EXCLUSIVE;
    buffer_append_byte(&text, (char)(letter_of(entry->session) - (exclusive ? 'a' - 'A' : 0)));
}

const char *queue_state(struct fixture *world, const struct query_type *type, const char *name) {
    const Pb__QueueView *view = view_of(world, type, name);
    CHECK(view->queue->holders == view->n_holders);
    CHECK(view->queue->waiters == view->n_waiters || view->n_waiters == 1000);
    buffer_reset(&text);
    for (size_t i = 0; i < view->n_holders; i++) entry_append(view->holders[i]);
    buffer_append_byte(&text, '|');
    for (size_t i = 0; i < view->n_waiters; i++) entry_append(view->waiters[i]);
    for (uint32_t i = 0; i < view->queue->delays; i++) buffer_append_byte(&text, '~');
    buffer_append_byte(&text, '\0');
    return text.data;
}

const char *lock_transitions(struct fixture *world, const char *name) {
    static const char *const causes[] = {"none",  "taken",          "queued",       "passed-on", "released",
                                         "ended", "left-the-queue", "waiter-ended", "delay-over"};
    const Pb__QueueView *view = view_of(world, &query_lock, name);
    buffer_reset(&text);
    for (size_t i = 0; i < view->n_transitions; i++) {
        const Pb__QueueTransition *transition = view->transitions[i];
        CHECK(transition->cause < ARRAY_COUNT(causes));
        CHECK(i == 0 || view->transitions[i - 1]->index <= transition->index);
        buffer_printf(&text, "%s%s %c", i ? ", " : "", causes[transition->cause], letter_of(transition->session));
    }
    buffer_append_byte(&text, '\0');
    return text.data;
}

struct answer queue_entry_of(struct fixture *world, const struct query_type *type, const char *name, char who) {
    Pb__QueueEntryRequest request = PB__QUEUE_ENTRY_REQUEST__INIT;
    char room[QUEUE_ENTRY_NAME_MAX];
    struct slice key = queue_entry_name(slice_text(name), slice_text(session_of(who)), room);
    request.session_name = bytes_of(key.data, key.size);
    struct query_result result = fixture_ask(world, type, &request.base);
    struct answer answer = {.index = result.index, .yes = result.found, .who = '-'};
    if (result.found) take(&answer, (const Pb__QueueAnswer *)result.message);
    return answer;
}

/* -- watches ------------------------------------------------------------------------------------------------------ */

void watcher_begin_entry(struct watcher *watcher, struct fixture *world, uint8_t space, const char *name, char who) {
    char room[QUEUE_ENTRY_NAME_MAX];
    struct slice key = queue_entry_name(slice_text(name), slice_text(session_of(who)), room);
    watcher_begin_at(watcher, world, (struct watch_key){space, key});
}

unsigned watcher_woken(struct watcher *watcher) {
    unsigned woken = watcher->woken;
    watcher->woken = 0;
    return woken;
}
