/* The network coordinate of this host (lb/vivaldi.h). Echoes over the connection to its server measure the round trip,
 * and the host reports its coordinate to that server, which gathers those of many agents into few commands. One peer
 * gives only a distance, not a direction: the servers' coordinates, and the height of an agent's own one, tell agents
 * of different servers apart. */
#include <stdlib.h>

#include "base/clock.h"
#include "lb/coordinate_agent.h"
#include "rpc/client/client_internal.h"

#define ECHO_FIRST_MS 1000 /* while there are few samples */
#define ECHO_MS       10000
#define FEW           10

struct client_coordinates {
    struct client *client;
    struct coordinate_agent *agent;
    struct echo echo;
    uint64_t server, next_ms; /* the server that answers the echo under way */
    unsigned samples;
    struct vivaldi_coordinate here; /* under client->lock */
};

/* An update of another node's coordinate, from the HTTP API. */
struct carried {
    struct loop_task task;
    Pb__Coordinate *record;
};

static void tell(struct client *client, uint8_t type, const ProtobufCMessage *message) {
    link_tell(client->current->wire, type, message);
    link_flush(client->current->wire);
}

static void tell_coordinate(struct client *client, Pb__Coordinate *record) {
    Pb__PeerCoordinate report = PB__PEER_COORDINATE__INIT;
    report.coordinate = record, report.token = (char *)(uintptr_t)requester_token(client_requester(client, NULL));
    tell(client, PEER_COORDINATE, &report.base);
}

void client_coordinates_tick(struct client *client, uint64_t now_ms) {
    struct client_coordinates *c = client->coordinates;
    if (!c || !client->current) return;
    Pb__Coordinate record;
    if (now_ms >= coordinate_agent_deadline_ms(c->agent) && coordinate_report(c->agent, 0, now_ms, &record))
        tell_coordinate(client, &record);
    if (now_ms < c->next_ms || c->echo.call.peer) return;
    c->next_ms = now_ms + (c->samples < FEW ? ECHO_FIRST_MS : ECHO_MS);
    c->server = client->current->state.server_id;
    echo_begin(client->rpc, &c->echo, client->current->state.number);
}

static void heard(struct echo *echo, const Pb__Coordinate *said, double rtt_s) {
    struct client_coordinates *c = CONTAINER_OF(echo, struct client_coordinates, echo);
    if (!said || coordinate_check(said) != CO_OK) return;
    struct vivaldi_coordinate there = coordinate_read(said);
    c->samples += coordinate_observe(c->agent, slice_make(&c->server, sizeof c->server), &there, rtt_s) == CO_OK;
    uv_mutex_lock(&c->client->lock);
    c->here = *coordinate_here(c->agent);
    uv_mutex_unlock(&c->client->lock);
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
    if (client->current && !client->stopping) tell_coordinate(client, carried->record);
    pb__coordinate__free_unpacked(carried->record, NULL);
    free(carried);
}

int client_coordinate_put(struct client *client, const Pb__Coordinate *record) {
    int rv = coordinate_check(record);
    if (rv != CO_OK) return rv;
    if (!client->coordinates) return CO_NOTFOUND;
    if (!client->connections.connected) return CO_AGAIN;
    struct carried *carried = mem_zalloc(sizeof *carried);
    size_t size = pb__coordinate__get_packed_size(record);
    uint8_t *bytes = mem_alloc(size + 1);
    carried->record = pb__coordinate__unpack(NULL, pb__coordinate__pack(record, bytes), bytes);
    free(bytes);
    rpc_on_loop(client->rpc, &carried->task, carry);
    return CO_OK;
}

struct client_coordinates *client_coordinates_new(struct client *client, const char *node, uint64_t interval_ms) {
    struct client_coordinates *c = mem_zalloc(sizeof *c);
    struct coordinate_agent_config config = {.node = node, .interval_ms = interval_ms, .seed = random_u64()};
    c->client = client, c->echo.heard = heard;
    c->agent = coordinate_agent_new(&config, clock_mono_ms());
    c->here = vivaldi_origin();
    return c;
}

void client_coordinates_free(struct client_coordinates *c) {
    if (!c) return;
    coordinate_agent_free(c->agent);
    free(c);
}
