/* Commands and requests of queues. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/sim/queues.h"

static const struct queue_own *own_of(const struct op *op) { return OP_AS(const struct queue_own, op); }

static char *queue_name(const struct op *op, struct arena *arena) {
    return arena_printf(arena, "q%u", own_of(op)->queue);
}

static Pb__SessionUse *session_use(const struct op *op, struct arena *arena) {
    const struct session_wish *wish = &own_of(op)->session;
    Pb__SessionUse *use = arena_alloc(arena, sizeof *use);
    pb__session_use__init(use);
    if (!op->ttl_ms) {
        session_name(op->owner, use->id = arena_alloc(arena, 40));
        return use;
    }
    use->create = arena_alloc(arena, sizeof *use->create);
    pb__session__init(use->create);
    session_name(op->id, use->create->id = arena_alloc(arena, 40));
    node_name(wish->node, use->create->node = arena_alloc(arena, 8));
    use->create->ttl_ns = (int64_t)op->ttl_ms * 1000000;
    use->create->lock_delay_ns = (int64_t)wish->delay_ms * 1000000;
    return use;
}

static char *session_to_leave(const struct op *op, struct arena *arena) {
    char *id = arena_zalloc(arena, 40);
    if (!own_of(op)->by_token) session_name(op->owner, id);
    return id;
}

static ProtobufCBinaryData note_of(const struct op *op, struct arena *arena) {
    char *note = arena_printf(arena, "%llu", (unsigned long long)op->id);
    return (ProtobufCBinaryData){strlen(note), (uint8_t *)note};
}

static const ProtobufCMessage *acquire(const struct op *op, struct arena *arena) {
    const struct queue_own *own = own_of(op);
    Pb__QueueAcquireCommand *command = arena_alloc(arena, sizeof *command);
    pb__queue_acquire_command__init(command);
    command->name = queue_name(op, arena);
    command->mode = own->shared ? PB__QUEUE_MODE__QUEUE_SHARED : PB__QUEUE_MODE__QUEUE_EXCLUSIVE;
    command->limit = own->limit, command->priority = own->priority, command->enqueue = !own->asks;
    command->note = note_of(op, arena);
    command->now_unix_ms = (int64_t)op->id;
    if (own->by_token) command->token = own->token;
    else command->session = session_use(op, arena);
    return &command->base;
}

static const ProtobufCMessage *release(const struct op *op, struct arena *arena) {
    Pb__QueueReleaseCommand *command = arena_alloc(arena, sizeof *command);
    pb__queue_release_command__init(command);
    command->name = queue_name(op, arena);
    command->session = session_to_leave(op, arena);
    command->token = own_of(op)->token;
    command->now_unix_ms = (int64_t)op->id;
    return &command->base;
}

static const ProtobufCMessage *proclaim(const struct op *op, struct arena *arena) {
    Pb__QueueNoteCommand *command = arena_alloc(arena, sizeof *command);
    pb__queue_note_command__init(command);
    command->name = queue_name(op, arena);
    command->token = own_of(op)->token;
    command->note = note_of(op, arena);
    return &command->base;
}

const ProtobufCMessage *queue_command(const struct op *op, struct arena *arena) {
    return op->kind == QUEUE_ACQUIRE   ? acquire(op, arena)
           : op->kind == QUEUE_RELEASE ? release(op, arena)
                                       : proclaim(op, arena);
}

uint64_t queue_made_by(uint8_t number, const ProtobufCMessage *command) {
    char text[24] = "";
    (void)number;
    if (command->descriptor == &pb__queue_acquire_command__descriptor)
        return (uint64_t)((const Pb__QueueAcquireCommand *)command)->now_unix_ms;
    if (command->descriptor == &pb__queue_release_command__descriptor)
        return (uint64_t)((const Pb__QueueReleaseCommand *)command)->now_unix_ms;
    if (command->descriptor != &pb__queue_note_command__descriptor) return 0;
    const ProtobufCBinaryData *note = &((const Pb__QueueNoteCommand *)command)->note;
    if (note->len < sizeof text) memcpy(text, note->data, note->len);
    return strtoull(text, NULL, 10);
}

const ProtobufCMessage *queue_request(const struct op *op, struct arena *arena) {
    if (op->kind == QUEUE_ENTRY) {
        Pb__QueueEntryRequest *entry = arena_alloc(arena, sizeof *entry);
        char id[40], *room = arena_alloc(arena, QUEUE_ENTRY_NAME_MAX);
        pb__queue_entry_request__init(entry);
        session_name(op->owner, id);
        struct slice key = queue_entry_name(slice_text(queue_name(op, arena)), slice_text(id), room);
        entry->session_name = (ProtobufCBinaryData){key.size, (uint8_t *)room};
        return &entry->base;
    }
    Pb__QueueRequest *request = arena_alloc(arena, sizeof *request);
    pb__queue_request__init(request);
    request->name = queue_name(op, arena);
    return &request->base;
}
