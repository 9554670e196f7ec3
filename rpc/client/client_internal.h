/* Inside the client agent's rpc: client.c (life, writes, the functions of rpc.h), connections.h (which connections
 * there are) and connections_run.c (the connections), client_known.c (after a restart), client_reads.c (reads),
 * client_cache.c (answers that are kept), client_backup.c (backups: backup_transfer.h). Loop thread, where nothing else
 * is said. */
#ifndef COORD_RPC_CLIENT_INTERNAL_H
#define COORD_RPC_CLIENT_INTERNAL_H

#include "base/list.h"
#include "base/mailbox.h"
#include "rpc/client/client.h"
#include "rpc/client/connections.h"
#include "rpc/cluster/peers.h"
#include "rpc/core/asks_run.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/forward/forwarding.h"
#include "rpc/wire/link.h"
#include "rpc/wire/security.h"

struct client_conn {
    struct connection state; /* connections.h */
    struct client *client;
    struct link *wire;
    struct asks_run_link *asks; /* since it is greeted */
    uint64_t received;          /* as link_heard counts */
};

struct client {
    struct requester *own; /* client_requester */
    struct rpc *rpc;
    uv_loop_t *loop;
    struct modules *modules;
    char *cluster, *node_name, *address;
    char *region; /* of a link: the server's own; NULL: a client agent */
    uint64_t region_cluster_id;
    char *known;              /* a path, or NULL */
    struct buffer known_text; /* the text that was written last */
    uint64_t id;              /* of this life */
    uint16_t port;
    struct security *security; /* NULL: all is plain */
    uint64_t secured;          /* security_generation of the last look at it */
    char denied[192];          /* the last line about an encrypted connection that did not come about */

    /* Any thread. */
    struct mailbox box;
    uv_async_t wake;
    uv_mutex_t lock; /* for: */
    char leader_address[128];
    char (*peers)[128];
    size_t peer_count;

    uv_timer_t timer;
    struct connections connections;
    struct client_conn *current; /* the connection in use; NULL: none */
    struct sockaddr_storage from;
    bool has_from;
    unsigned resolving;

    struct forwarding *forwarding;
    struct node_proposal *waiting, **waiting_last; /* writes for a connection */
    struct list renewals;                          /* likewise: struct client_renewal */

    struct list fetches; /* client_reads.c */
    size_t fetch_count;  /* of `fetches`, without those of the background */
    struct client_cache *cache;
    struct dns_subscriptions *subscriptions;
    struct client_coordinates *coordinates; /* NULL: disabled */
    struct client_hints *hints;

    bool stopping;
    unsigned closing;
    void (*closed)(void *data);
    void *closed_data;
};

extern const struct rpc_role client_role;                        /* role.c */
void client_post(struct client *client, struct loop_task *task); /* any thread: rpc_on_loop's */
/* Call it after a question whose answer is due soon. */
void client_asked(struct client *client);
/* A call that begins now waits so long for a server. */
uint64_t client_wait_ms(struct client *client);
void client_join(struct client *client, const char *const *join);
void client_finish_stop(struct client *client);

/* -- client_known.c ----------------------------------------------------------------------------------------------- */
bool client_known_read(struct client *client);  /* true: there are some */
void client_known_write(struct client *client); /* call it when they may have changed */

/* -- connections_run.c -------------------------------------------------------------------------------------------- */
void connections_run_tick(struct client *client, uint64_t now_ms);
void connections_run_stop(struct client *client);
struct client_conn *client_conn_of(struct client *client, uint64_t number);
void client_leave(struct client *client, uint64_t number, const char *why); /* leaves a server that is of no use now */
/* client.c, from there */
void client_up(struct client *client); /* there is a current connection, another one than before */
void client_down(struct client *client, struct client_conn *conn);
void client_drained(struct client *client); /* the current connection has room */
void client_frame(struct client *client, struct client_conn *conn, uint8_t type, struct slice payload);

/* -- client_reads.c ----------------------------------------------------------------------------------------------- */
/* any thread */
void client_read_begin(struct client *client, struct rpc_fetch *fetch, const ProtobufCMessage *request);
void client_read_cancel(struct client *client, struct rpc_fetch *fetch); /* any thread */
extern const struct call_method fetch_method;
void client_read_anew(struct client *client); /* without a connection: earlier indexes mean nothing any more */
void client_read_tick(struct client *client, uint64_t now_ms);

/* -- client_cache.c ----------------------------------------------------------------------------------------------- */
struct client_cache;
struct client_cache *client_cache_new(size_t bytes);
void client_cache_free(struct client_cache *cache);
struct client_kept {
    struct rpc_fetched fetched; /* records stay valid until the next put */
    uint64_t at_ms;
};
/* The requester whose token a frame carries: this one, or (NULL) that of the agent's own work. Loop thread; valid until the
 * next call. */
const struct requester *client_requester(struct client *client, const struct requester *requester);

void client_cache_put(struct client_cache *cache, uint16_t query, struct slice request,
                      const struct requester *requester, const struct rpc_fetched *fetched, uint64_t now_ms);
const struct client_kept *client_cache_get(struct client_cache *cache, uint16_t query, struct slice request,
                                           const struct requester *requester);

/* -- dns_subscriptions.c ------------------------------------------------------------------------------------------ */
/* Of at most so many queries. */
struct dns_subscriptions *dns_subscriptions_new(struct rpc *rpc, size_t most);
/* Any thread but the loop. The records are copied into the arena. CO_OK, CO_NOLEADER, CO_TIMEOUT, CO_CLOSED; CO_BUSY: a
 * thread waits for each entry, so there is no room. Without `wait`: CO_AGAIN: not here yet. */
int dns_subscriptions_query(struct dns_subscriptions *subscriptions, const struct query_type *type,
                            const ProtobufCMessage *request, const struct requester *requester, struct arena *arena,
                            struct query_result *result, bool wait);
struct watch_table *dns_subscriptions_watches(struct dns_subscriptions *subscriptions);
void dns_subscriptions_tick(struct dns_subscriptions *subscriptions, uint64_t now_ms);
void dns_subscriptions_stop(struct dns_subscriptions *subscriptions); /* before the fetches are ended */
void dns_subscriptions_free(struct dns_subscriptions *subscriptions); /* after that, and after all readers */

/* -- client_backup.c ---------------------------------------------------------------------------------------------- */
extern const struct call_method backup_method;
void client_save(struct client *client, struct rpc_save *save); /* any thread: as rpc_save, rpc_restore */
void client_restore(struct client *client, struct rpc_restore *restore);

/* -- client_coordinates.c ----------------------------------------------------------------------------------------- */
struct client_coordinates *client_coordinates_new(struct client *client, const char *node, uint64_t interval_ms);
void client_coordinates_free(struct client_coordinates *coordinates); /* NULL allowed */
void client_coordinates_tick(struct client *client, uint64_t now_ms);
struct vivaldi_coordinate client_coordinate_here(struct client *client);        /* any thread */
int client_coordinate_put(struct client *client, const Pb__Coordinate *record); /* any thread; as rpc_coordinate_put */

/* -- client_hints.c ----------------------------------------------------------------------------------------------- */
struct client_hints *client_hints_new(void);
void client_hints_free(struct client_hints *hints);
void client_hints_tick(struct client *client, uint64_t now_ms);
bool client_hints_frame(struct client *client, struct slice payload);  /* PEER_HINTS. False: it does not decode */
void client_hints_follow(struct client *client, struct slice service); /* any thread: as rpc_hints_follow */

/* -- the functions of rpc.h (client.c) ---------------------------------------------------------------------------- */
void client_propose(struct client *client, struct node_proposal *proposal); /* loop thread */
void client_submit(struct client *client, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message);
void client_renew(struct client *client, struct rpc_renew *renew);
void client_status(struct client *client, struct rpc_status *status);
size_t client_peers(struct client *client, struct arena *arena, const char ***addresses);

#endif
