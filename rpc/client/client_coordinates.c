/* Where this host is on the network (lb/vivaldi.h): the round trip to the server that it speaks with is measured by
 * echoes over their connection, and the own coordinate reported through it, which gathers those of many agents into
 * few commands. One peer gives a distance, not a direction: agents of one server are told apart from others by their
 * servers' coordinates, and by the height of their own. */
#include <stdlib.h>

#include "base/clock.h"
#include "lb/coordinate_agent.h"
#include "rpc/client/client_internal.h"
#include "rpc/server/coordinates.h"
#include "rpc/wire/frame_unpack.h"

#define ECHO_FIRST_MS 1000 /* while there are few samples */
#define ECHO_MS       10000
#define FEW           10
#define LOST_MS       3000

struct client_coordinates {
    struct coordinate_agent *agent;
    uint64_t conn, server, number, at_ns; /* the echo under way; conn 0: none */
    uint64_t next_ms;
    unsigned samples;
    struct vivaldi_coordinate here; /* under client->lock */
};

/* An update of somebody else's, from the HTTP API. */
struct carried {
    struct loop_task task;
    Pb__Coordinate *record;
};

static void tell(struct client *client, uint8_t type, const ProtobufCMessage *message) {
    link_tell(client->current->wire, type, message);
    link_flush(client->current->wire);
}

void client_coordinates_tick(struct client *client, uint64_t now_ms) {
    struct client_coordinates *c = client->coordinates;
    if (!c || !client->current) return;
    uint64_t now_ns = clock_mono_ns();
    Pb__Coordinate record;
    if (now_ms >= coordinate_agent_deadline_ms(c->agent) && coordinate_report(c->agent, 0, now_ms, &record))
        tell(client, PEER_COORDINATE, &record.base);
    if (now_ms < c->next_ms || (c->conn && now_ns - c->at_ns < LOST_MS * UINT64_C(1000000))) return;
    c->next_ms = now_ms + (c->samples < FEW ? ECHO_FIRST_MS : ECHO_MS);
    c->conn = client->current->number, c->server = client->current->server_id, c->at_ns = now_ns;
    Pb__PeerEcho echo = PB__PEER_ECHO__INIT;
    echo.number = ++c->number;
    tell(client, PEER_ECHO, &echo.base);
}

bool client_coordinates_answered(struct client *client, uint64_t conn, struct slice payload) {
    struct client_coordinates *c = client->coordinates;
    uint64_t now_ns = clock_mono_ns();
    Pb__PeerEchoAnswer *answer = frame_unpack(&pb__peer_echo_answer__descriptor, payload, NULL);
    if (!answer) return false;
    if (c && conn == c->conn && answer->number == c->number && answer->coordinate &&
        coordinate_check(answer->coordinate) == CO_OK) {
        struct vivaldi_coordinate there = coordinate_read(answer->coordinate);
        c->conn = 0;
        c->samples += coordinate_observe(c->agent, slice_make(&c->server, sizeof c->server), &there,
                                         (double)(now_ns - c->at_ns) / 1e9) == CO_OK;
        uv_mutex_lock(&client->lock);
        c->here = *coordinate_here(c->agent);
        uv_mutex_unlock(&client->lock);
    }
    frame_drop(answer);
    return true;
}

struct vivaldi_coordinate client_coordinate_here(struct client *client) {
    if (!client->coordinates) return vivaldi_origin();
    uv_mutex_lock(&client->lock);
    struct vivaldi_coordinate here = client->coordinates->here;
    uv_mutex_unlock(&client->lock);
    return here;
}

static void carry(struct loop_task *task) {
    struct client *client = task->rpc->client;
    struct carried *carried = CONTAINER_OF(task, struct carried, task);
    if (client->current && !client->stopping) tell(client, PEER_COORDINATE, &carried->record->base);
    pb__coordinate__free_unpacked(carried->record, NULL);
    free(carried);
}

int client_coordinate_put(struct client *client, const Pb__Coordinate *record) {
    int rv = coordinate_check(record);
    if (rv != CO_OK) return rv;
    if (!client->coordinates) return CO_NOTFOUND;
    if (!atomic_load(&client->connected)) return CO_AGAIN;
    struct carried *carried = mem_zalloc(sizeof *carried);
    size_t size = pb__coordinate__get_packed_size(record);
    uint8_t *bytes = mem_alloc(size + 1);
    carried->record = pb__coordinate__unpack(NULL, pb__coordinate__pack(record, bytes), bytes);
    free(bytes);
    rpc_on_loop(client->rpc, &carried->task, carry);
    return CO_OK;
}

struct client_coordinates *client_coordinates_new(const char *node, uint64_t interval_ms) {
    struct client_coordinates *c = mem_zalloc(sizeof *c);
    struct coordinate_agent_config config = {.node = node, .interval_ms = interval_ms, .seed = random_u64()};
    c->agent = coordinate_agent_new(&config, clock_mono_ms());
    c->here = vivaldi_origin();
    return c;
}

void client_coordinates_free(struct client_coordinates *c) {
    if (!c) return;
    coordinate_agent_free(c->agent);
    free(c);
}
