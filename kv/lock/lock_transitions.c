#include "kv/lock/lock_transitions.h"

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

enum { TRANSITION_SIZE = 8 + 1 + 16 };

void transition_add(Pb__Queue *queue, struct arena *arena, uint64_t index, Pb__QueueCause cause, struct slice session) {
    size_t kept = queue->transitions.len, most = (TRANSITIONS_MOST - 1) * TRANSITION_SIZE;
    size_t skipped = kept > most ? kept - most : 0;
    uint8_t *bytes = arena_alloc(arena, kept - skipped + TRANSITION_SIZE), *at = bytes + kept - skipped;
    if (kept > skipped) memcpy(bytes, queue->transitions.data + skipped, kept - skipped);
    put_be64(at, index);
    at[8] = (uint8_t)cause;
    if (session.size) uuid_parse(session, at + 9);
    else memset(at + 9, 0, 16);
    queue->transitions = (ProtobufCBinaryData){kept - skipped + TRANSITION_SIZE, bytes};
}

int transitions_unpack(const Pb__Queue *queue, struct arena *arena, Pb__QueueView *view) {
    static const uint8_t none[16];
    size_t count = queue->transitions.len / TRANSITION_SIZE;
    if (queue->transitions.len % TRANSITION_SIZE || count > TRANSITIONS_MOST) return CO_CORRUPT;
    view->transitions = arena_alloc(arena, (count + 1) * sizeof *view->transitions);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *at = queue->transitions.data + i * TRANSITION_SIZE;
        Pb__QueueTransition *transition = arena_alloc(arena, sizeof *transition);
        pb__queue_transition__init(transition);
        transition->index = get_be64(at);
        transition->cause = at[8];
        if (memcmp(at + 9, none, sizeof none) != 0) {
            transition->session = arena_zalloc(arena, UUID_TEXT_SIZE + 1);
            uuid_format(at + 9, transition->session);
        }
        view->transitions[view->n_transitions++] = transition;
    }
    return CO_OK;
}
