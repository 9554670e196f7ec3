/* Hints of load and counts of keys on a client agent (lb/hints.h). Reports of this host's instances go to the agent's
 * server, HINTS_MS apart. A new server gets all of them at once, because servers only pass on hints that they got
 * directly. The agent asks its server for the hints of the services from which somebody picks here; that ends IDLE_MS
 * after the last pick. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/varint.h"
#include "rpc/agents/agents.h"
#include "rpc/client/client_internal.h"

/* The first report after a pause goes at the next tick. A frame costs a server more than the hints in it: 2,000 agents
 * send 5,000 a second. */
#define HINTS_MS     400
#define KEYS_MS      1000
#define TIDY_MS      5000
#define IDLE_MS      600000
#define BUCKETS      256
#define BACKLOG_MOST (1u << 20) /* a server with such a backlog gets the newest ones later */

struct wanted { /* a service that is followed */
    struct wanted *chain;
    uint64_t hash, used_ms, conn; /* conn: conn: the connection whose server was asked; 0: none */
    size_t size;
    char name[]; /* in lower case */
};

struct client_hints {
    uint64_t conn, since; /* up to here the server of `conn` has the hints */
    uint64_t sent_ms, keys_ms, tidied_ms;
    /* Any thread, under the lock. */
    uv_mutex_t lock;
    struct wanted *buckets[BUCKETS];
    size_t count;
    bool news; /* some have not been asked for */
};

/* -- followed services -------------------------------------------------------------------------------------------- */
void client_hints_follow(struct client *client, struct slice service) {
    struct client_hints *hints = client->hints;
    char room[LOAD_NAME_SIZE];
    if (service.size == 0 || service.size > sizeof room) return;
    memcpy(room, service.data, service.size);
    bytes_lower(room, service.size);
    struct slice name = slice_make(room, service.size);
    uint64_t hash = hash64(name.data, name.size), now_ms = clock_mono_ms();
    uv_mutex_lock(&hints->lock);
    struct wanted *wanted = hints->buckets[hash % BUCKETS];
    while (wanted && !(wanted->hash == hash && slice_equal(slice_make(wanted->name, wanted->size), name)))
        wanted = wanted->chain;
    if (wanted) {
        wanted->used_ms = now_ms;
    } else if (hints->count < AGENTS_FOLLOWS_MAX) {
        wanted = mem_zalloc(sizeof *wanted + name.size);
        wanted->hash = hash, wanted->used_ms = now_ms, wanted->size = name.size;
        memcpy(wanted->name, name.data, name.size);
        wanted->chain = hints->buckets[hash % BUCKETS];
        hints->buckets[hash % BUCKETS] = wanted;
        hints->count++;
        hints->news = true;
    }
    uv_mutex_unlock(&hints->lock);
}

static void follow_write(struct buffer *frame, bool begins, const struct wanted *wanted) {
    buffer_append_byte(frame, begins);
    varint_append_slice(frame, slice_make(wanted->name, wanted->size));
}

/* Under the lock. Writes the changes for this connection's server; removes services from which nobody picks any
 * more. */
static void follows_write(struct client_hints *hints, uint64_t conn, uint64_t now_ms, struct buffer *frame) {
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct wanted **at = &hints->buckets[i], *wanted; (wanted = *at);) {
            bool idle = now_ms - wanted->used_ms > IDLE_MS && now_ms > wanted->used_ms, told = wanted->conn == conn;
            if (idle == told) follow_write(frame, !idle, wanted);
            wanted->conn = conn;
            if (!idle) {
                at = &wanted->chain;
                continue;
            }
            *at = wanted->chain;
            hints->count--;
            free(wanted);
        }
    }
    hints->news = false;
}

static void send_frame(struct client *client, uint8_t type, struct buffer *frame) {
    if (frame->size) {
        link_send(client->current->wire, type, buffer_slice(frame));
        link_flush(client->current->wire);
    }
    buffer_free(frame);
}

static void send_follows(struct client *client, bool all, uint64_t now_ms) {
    struct client_hints *hints = client->hints;
    struct buffer frame = {0};
    uv_mutex_lock(&hints->lock);
    if (all || hints->news) follows_write(hints, client->current->state.number, now_ms, &frame);
    uv_mutex_unlock(&hints->lock);
    send_frame(client, PEER_HINTS_FOLLOW, &frame);
}

/* -- reports ------------------------------------------------------------------------------------------------------ */
static void send_hints(struct client *client, uint64_t now_ms) {
    struct client_hints *hints = client->hints;
    struct hints *known = client->rpc->hints;
    if (now_ms - hints->sent_ms < HINTS_MS || hints->since == hints_sequence(known)) return;
    if (link_backlog(client->current->wire) > BACKLOG_MOST) return;
    struct buffer frame = {0};
    hints->since = hints_changes(known, hints->since, LOAD_DIRECT, HINTS_FRAME_MOST, clock_mono_ns(), &frame);
    if (frame.size) hints->sent_ms = now_ms;
    send_frame(client, PEER_HINTS, &frame);
}

static void send_keys(struct client *client, uint64_t now_ms) {
    struct buffer frame = {0};
    if (now_ms - client->hints->keys_ms < KEYS_MS) return;
    client->hints->keys_ms = now_ms;
    hints_keys_take(client->rpc->hints, &frame);
    send_frame(client, PEER_KEYS, &frame);
}

void client_hints_tick(struct client *client, uint64_t now_ms) {
    struct client_hints *hints = client->hints;
    bool tidies = now_ms - hints->tidied_ms >= TIDY_MS;
    if (tidies) {
        hints->tidied_ms = now_ms;
        hints_tick(client->rpc->hints, clock_mono_ns());
    }
    if (!client->current) return;
    bool anew = hints->conn != client->current->state.number;
    if (anew) hints->conn = client->current->state.number, hints->since = 0;
    send_follows(client, anew || tidies, now_ms);
    send_hints(client, now_ms);
    send_keys(client, now_ms);
}

bool client_hints_frame(struct client *client, struct slice payload) {
    return hints_take(client->rpc->hints, payload, false, slice_text(client->node_name), clock_mono_ns()) == CO_OK;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct client_hints *client_hints_new(void) {
    struct client_hints *hints = mem_zalloc(sizeof *hints);
    CHECK(uv_mutex_init(&hints->lock) == 0);
    return hints;
}

void client_hints_free(struct client_hints *hints) {
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct wanted *wanted = hints->buckets[i], *next; wanted; wanted = next) {
            next = wanted->chain;
            free(wanted);
        }
    uv_mutex_destroy(&hints->lock);
    free(hints);
}
