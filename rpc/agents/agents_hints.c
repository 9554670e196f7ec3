/* Hints of load and counts of keys between this server and its client agents. Reports of agents are noted (lb/hints.h),
 * and rpc/server/server_hints.c passes them on to the other servers. An agent that follows a service gets all known
 * hints of its instances at once, and from then on the changes, a few times a second. The frame of a service is written
 * once for all its followers. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/varint.h"
#include "lb/load_wire.h"
#include "rpc/agents/agents_internal.h"
#include "rpc/core/rpc_internal.h"

#define BUCKETS      1024
#define CHANGES_MOST 20000      /* at most so many in one turn */
#define BACKLOG_MOST (4u << 20) /* no hints to an agent with such a backlog: they would arrive old */

struct followed { /* a service */
    struct followed *chain;
    struct list follows;
    struct list changed; /* in hints->changed, or alone */
    struct buffer frame;
    struct load_writer writer;
    uint64_t hash;
    size_t size;
    char name[]; /* in lower case */
};

struct follow { /* of a service by an agent */
    struct list of_service, of_agent;
    struct followed *followed;
    struct agent *agent;
};

struct agents_hints {
    struct agents *agents;
    struct followed *buckets[BUCKETS];
    struct list changed;
    size_t count; /* of follows */
    uint64_t since;
};

/* -- who follows what --------------------------------------------------------------------------------------------- */
static struct followed **followed_find(struct agents_hints *hints, struct slice name, uint64_t hash) {
    struct followed **at = &hints->buckets[hash % BUCKETS];
    while (*at && !((*at)->hash == hash && slice_equal(slice_make((*at)->name, (*at)->size), name))) at = &(*at)->chain;
    return at;
}

/* `room`: LOAD_NAME_SIZE bytes. */
static struct slice lower(struct slice name, char *room) {
    memcpy(room, name.data, name.size);
    bytes_lower(room, name.size);
    return slice_make(room, name.size);
}

static struct follow *follow_find(struct agent *agent, const struct followed *followed) {
    LIST_FOREACH(item, &agent->follows) {
        struct follow *follow = LIST_ENTRY(item, struct follow, of_agent);
        if (follow->followed == followed) return follow;
    }
    return NULL;
}

static void follow_end(struct agents_hints *hints, struct follow *follow) {
    struct followed *followed = follow->followed;
    list_remove(&follow->of_service);
    list_remove(&follow->of_agent);
    follow->agent->follow_count--;
    hints->count--;
    free(follow);
    if (!list_empty(&followed->follows)) return;
    struct followed **at = followed_find(hints, slice_make(followed->name, followed->size), followed->hash);
    *at = followed->chain;
    list_remove(&followed->changed);
    buffer_free(&followed->frame);
    free(followed);
}

static void send_hints(void *data, struct slice frame) {
    struct agent *agent = data;
    agent_send(agent, PEER_HINTS, frame);
}

static void follow_begin(struct agents_hints *hints, struct agent *agent, struct slice name) {
    uint64_t hash = hash64(name.data, name.size);
    struct followed **at = followed_find(hints, name, hash);
    if (agent->follow_count >= AGENTS_FOLLOWS_MAX || (*at && follow_find(agent, *at))) return;
    if (!*at) {
        struct followed *followed = *at = mem_zalloc(sizeof *followed + name.size);
        followed->hash = hash, followed->size = name.size;
        memcpy(followed->name, name.data, name.size);
        list_init(&followed->follows);
        list_init(&followed->changed);
    }
    struct follow *follow = mem_zalloc(sizeof *follow);
    follow->followed = *at, follow->agent = agent;
    list_append(&(*at)->follows, &follow->of_service);
    list_append(&agent->follows, &follow->of_agent);
    agent->follow_count++;
    if (hints->count++ == 0) hints->since = hints_sequence(hints->agents->rpc->hints);
    struct buffer frame = {0};
    hints_of_service(hints->agents->rpc->hints, name, clock_mono_ns(), &frame, send_hints, agent);
    if (frame.size) agent_send(agent, PEER_HINTS, buffer_slice(&frame));
    buffer_free(&frame);
}

/* False: it does not decode. */
static bool take_follow(struct agent *agent, struct slice payload) {
    struct agents_hints *hints = agent->agents->hints;
    char room[LOAD_NAME_SIZE];
    while (payload.size) {
        bool begins = payload.data[0] == 1;
        struct slice name;
        payload = slice_make(payload.data + 1, payload.size - 1);
        if (!varint_slice(&payload, &name) || name.size > LOAD_NAME_SIZE) return false;
        name = lower(name, room);
        if (begins) {
            follow_begin(hints, agent, name);
            continue;
        }
        struct followed *followed = *followed_find(hints, name, hash64(name.data, name.size));
        struct follow *follow = followed ? follow_find(agent, followed) : NULL;
        if (follow) follow_end(hints, follow);
    }
    return true;
}

bool agents_hints_frame(struct agent *agent, uint8_t type, struct slice payload) {
    struct hints *hints = agent->agents->rpc->hints;
    if (type == PEER_HINTS) return hints_take(hints, payload, true, slice_text(""), clock_mono_ns()) == CO_OK;
    if (type == PEER_KEYS) return hints_keys_merge(hints, payload, true, clock_mono_ns()) == CO_OK;
    return take_follow(agent, payload);
}

void agents_hints_down(struct agent *agent) {
    LIST_FOREACH_SAFE(item, next, &agent->follows)
        follow_end(agent->agents->hints, LIST_ENTRY(item, struct follow, of_agent));
}

/* -- what changed ------------------------------------------------------------------------------------------------- */
static void send_changes(struct followed *followed) {
    LIST_FOREACH(item, &followed->follows) {
        struct agent *agent = LIST_ENTRY(item, struct follow, of_service)->agent;
        if (link_backlog(agent->wire) < BACKLOG_MOST) agent_send(agent, PEER_HINTS, buffer_slice(&followed->frame));
    }
    buffer_reset(&followed->frame);
    followed->writer = (struct load_writer){.out = &followed->frame};
}

static void see_change(void *data, const struct load_entry *entry) {
    struct agents_hints *hints = data;
    char room[LOAD_NAME_SIZE];
    struct slice name = lower(entry->instance.service, room);
    struct followed *followed = *followed_find(hints, name, hash64(name.data, name.size));
    if (!followed) return;
    if (list_empty(&followed->changed)) {
        list_append(&hints->changed, &followed->changed);
        followed->writer = (struct load_writer){.out = &followed->frame};
    }
    load_write(&followed->writer, entry);
    if (followed->frame.size >= HINTS_FRAME_SIZE) send_changes(followed);
}

void agents_hints_tick(struct agents *agents, uint64_t now_ns) {
    struct agents_hints *hints = agents->hints;
    if (hints->count == 0) return;
    hints->since =
        hints_each_change(agents->rpc->hints, hints->since, LOAD_ALL, CHANGES_MOST, now_ns, see_change, hints);
    LIST_FOREACH_SAFE(item, next, &hints->changed) {
        struct followed *followed = LIST_ENTRY(item, struct followed, changed);
        list_remove(&followed->changed);
        if (followed->frame.size) send_changes(followed);
    }
    agents_flush(agents);
}

struct agents_hints *agents_hints_new(struct agents *agents) {
    struct agents_hints *hints = mem_zalloc(sizeof *hints);
    hints->agents = agents;
    list_init(&hints->changed);
    return hints;
}

void agents_hints_free(struct agents_hints *hints) { free(hints); }
