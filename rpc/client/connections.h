/* The connections of a client agent with its servers, and of a server with the servers of another region: which server to
 * dial and when, which connection is used, when one is given up. Decides only: what happened and the time are its
 * arguments, what is to be done its result. The acting part is rpc/client/connections_run.c.
 *
 *     no connection --dial the best--> trying --hello--> current
 *     current, a better one is there, or it knows no leader --dial another--> trying --hello, SERVERS with a leader-->
 *     current; the other drains
 *                                                                                '--SERVERS without--> closed, tried
 *                                                                                again later
 *
 * (1) A server has a rank, made of its address and a seed of the agent: members of the cluster come first, among them the
 *     one of the highest rank. An agent elsewhere goes back there after REBALANCE_MS.
 * (2) A server that failed is not dialled for a while that doubles from CONNECTIONS_BACKOFF_LEAST_MS to
 *     CONNECTIONS_BACKOFF_MOST_MS; its hello sets that back. A part of it is random, so that agents that lost their
 *     server at one moment do not come back at one moment. Servers that failed less are tried first, because each that
 *     hangs takes a while: all are tried once before one is tried twice. The addresses of one name are tried one after
 *     the other before the name has failed.
 * (3) A connection that is silent is asked whether somebody is there (a ping), and given up when nothing comes back: soon
 *     where an answer is due or somebody waits for a change, later where nobody does.
 * (4) A server that knows no leader is left for one that knows one, after the time that an election takes. One that is cut
 *     off from the other servers is left at once, also for one that waits for an election.
 * (5) A server of another cluster is not used. Only when all members have said, since the last connection was lost, that
 *     they belong to one other cluster, which was founded anew, the agent belongs to that one, CONNECTIONS_OTHER_CLUSTER_MS
 *     after the loss at the earliest.
 * (6) A region without a connection is waited for during `hold_ms` from the loss of the last one on. A later request
 *     ends at once.
 * (7) While an open cluster is being closed, an encrypted connection is tried first, and a plain one where that fails. A
 *     plain current connection is replaced by an encrypted one to the same server, as in (1), as soon as that can be made.
 *
 * Times are milliseconds of any monotonic clock. One thread; others may read the atomic fields. */
#ifndef COORD_RPC_CONNECTIONS_H
#define COORD_RPC_CONNECTIONS_H

#include "base/buffer.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/random.h"
#include "rpc/wire/address.h"
#include "rpc/wire/peer.pb-c.h"
#include "rpc/wire/reach.h"

/* So long another server is looked for before what is of before is given out, or said to be unknown */
#define CONNECTIONS_REACH_MS         1000
#define CONNECTIONS_BACKOFF_LEAST_MS 100
#define CONNECTIONS_BACKOFF_MOST_MS  5000
#define CONNECTIONS_OTHER_CLUSTER_MS 3000 /* without a server of its own for so long: is it another cluster now? */
#define CONNECTIONS_SILENT_MS        600  /* no answer to a ping for so long, while an answer is late */

struct client_server {
    struct list link;             /* connections->servers */
    char address[128];            /* "IP:port", or a name to join by */
    uint64_t id;                  /* 0: not known yet */
    uint64_t rank;                /* the highest is preferred */
    uint64_t next_ms, backoff_ms; /* not dialled before */
    uint64_t other_cluster;       /* the id of another cluster, as it said last; 0: none */
    struct address_turn turn;     /* of a name's addresses */
    struct reach reach;           /* what came of its last attempt */
    bool listed;                  /* a member of the cluster, as the servers say; else only an address to join by */
    bool plain;                   /* (7): the next attempt is plain, because the last encrypted one failed */
    bool resolving;
};

/* The caller's memory, from connections_dialled to connection_closed. */
struct connection {
    struct list link;             /* connections->all */
    struct client_server *server; /* NULL: gone from the list */
    char at[128], node[256];      /* the address that was dialled, and who answered there ("": nobody yet) */
    uint64_t number;              /* never given twice */
    uint64_t server_id;
    uint64_t since_ms, last_seen_ms;
    uint64_t asked_ms, pinged_ms; /* the oldest question whose answer is due soon; the ping under way; 0: none */
    uint64_t delivered, ping_at;  /* bytes that the other side's kernel acknowledged; where the ping ends */
    bool cut_off;                 /* it hears of no other server; left at once */
    uint64_t leave_ms;            /* it knows no leader, and is left from then on if another does; 0: it knows one */
    bool greeted, draining, encrypted;
    bool stood, judged; /* the connection came about; the server's `reach` says what came of it */
    bool to_ping, to_close, closing;
};

struct connections_config {
    const char *cluster;      /* datacenter; outlives it */
    uint64_t cluster_id;      /* that is to be there; 0: of the first server that is met */
    bool region;              /* a link to another region */
    uint64_t hold_ms;         /* (6) */
    uint64_t rank_seed, seed; /* (1); of its random numbers */
    uint16_t port;            /* of servers whose address names none */
};

struct connections {
    struct connections_config config;
    struct list servers, all;
    struct connection *current, *trying;
    _Atomic bool connected, known_leader;
    _Atomic uint64_t lost_ms;       /* without a connection since; 0: with one */
    _Atomic uint64_t contact_ms;    /* when something was heard last over the last connection that ended; 0: none did */
    _Atomic uint64_t leaderless_ms; /* while no leader is known: since when */
    _Atomic uint64_t cluster_id;
    /* Its own. */
    struct rng rng;
    uint64_t last_number, ticked_ms, rebalance_ms;
    uint64_t told_lost_ms;       /* in the log; 0: not yet, since it is lost */
    uint64_t told_leaderless_ms; /* likewise, since the servers know no leader */
    struct connection *before;   /* of CONNECTIONS_USE */
    struct client_server *to_dial;
    bool to_use, to_begin_anew, paused, stopping;
    bool mixed;          /* (7) */
    uint64_t upgrade_ms; /* (7): the next attempt */
    unsigned mutations;
};

enum connections_act {
    CONNECTIONS_NOTHING,
    CONNECTIONS_DIAL,  /* `server`; what came of it is said by connections_dialled, _resolving or _unusable */
    CONNECTIONS_CLOSE, /* `connection` */
    CONNECTIONS_PING,  /* `connection`; connection_pinged follows at once */
    CONNECTIONS_USE,   /* `connection` is the current one; what is under way on `before` (may be NULL) goes along */
    CONNECTIONS_ANEW,  /* it is another cluster now: indexes of before mean nothing */
};
struct connections_order {
    enum connections_act act;
    struct client_server *server;
    struct connection *connection, *before;
};

void connections_begin(struct connections *c, const struct connections_config *config, uint64_t now_ms);
void connections_end(struct connections *c); /* there is no connection any more */
/* The next thing to do now. After each event, ask until it is CONNECTIONS_NOTHING. An order counts as done. */
struct connections_order connections_next(struct connections *c);

/* -- servers (connections_servers.c) -- */
struct client_server *connections_know(struct connections *c, const char *address); /* NULL: too many, or too long */
/* The one to belong to, by (1), of those that may be dialled by then. NULL: none. */
struct client_server *connections_home(struct connections *c, uint64_t when_ms);
/* The one to try now, by (1) and (2): `but` (may be NULL) is not; `listed`: only members are. NULL: none. */
struct client_server *connections_best(struct connections *c, uint64_t now_ms, const struct client_server *but,
                                       bool listed);
/* It is not dialled for that long at least; (2). */
void connections_failed(struct connections *c, struct client_server *server, uint64_t least_ms, uint64_t now_ms);
void connections_learn(struct connections *c, const Pb__PeerServers *servers);
/* All that are known, members first. Copies in the arena. */
size_t connections_addresses(const struct connections *c, struct arena *arena, const char ***addresses);
/* Each server with what came of its last attempt, in a line (no NUL). */
void connections_say(const struct connections *c, struct buffer *out);
/* The other cluster that all the servers belong to now, as they said themselves: those that the agent was told of by its
 * cluster, or, without any, those to join by. 0: none. */
uint64_t connections_elsewhere(struct connections *c);

/* -- events: dialling -- */
void connections_dialled(struct connections *c, struct connection *connection, struct client_server *server,
                         uint64_t now_ms);
void connections_resolving(struct client_server *server); /* its address is a name, which is looked up; then: */
/* `status`: libuv's; `count`: addresses that were found. The index of the one to dial; less than 0: none. */
int connections_resolved(struct connections *c, struct client_server *server, int status, unsigned count,
                         uint64_t now_ms);
void connections_unusable(struct connections *c, struct client_server *server, uint64_t now_ms); /* no address */

/* -- events: a connection -- */
/* Frames can go: an encrypted one has shaken hands. The other side has its time to say hello from now on. */
void connection_stands(struct connection *connection, bool encrypted, uint64_t now_ms);
void connection_heard(struct connection *connection, uint64_t now_ms); /* bytes arrived */
/* NULL: it does not decode. */
void connection_hello(struct connections *c, struct connection *connection, const Pb__PeerHello *hello,
                      uint64_t now_ms);
/* It is not encrypted as it has to be, or the other end is not who it has to be; nothing is logged. */
void connection_denied(struct connection *connection, const char *why);
void connection_refused(struct connections *c, struct connection *connection, struct slice why, uint64_t now_ms);
void connection_strange(struct connection *connection); /* something else came before a hello */
void connection_servers(struct connections *c, struct connection *connection, const Pb__PeerServers *servers,
                        uint64_t now_ms);
void connection_asked(struct connection *connection, uint64_t now_ms); /* something whose answer is due soon */
/* `queued`: bytes up to the ping's end; `delivered`: of those before it, what was acknowledged. */
void connection_pinged(struct connection *connection, uint64_t queued, uint64_t delivered, uint64_t now_ms);
void connection_leave(struct connections *c, struct connection *connection, const char *why,
                      uint64_t now_ms); /* that server is of no use now */
/* `error`, `cause`: as link.h says why it ended. It is in no list any more. */
void connection_closed(struct connections *c, struct connection *connection, int error, int cause, uint64_t now_ms);

/* -- events: time, every 100 ms or sooner: each connection, then all -- */
struct connection_seen {
    bool heard;         /* bytes arrived since the last time */
    bool shakes;        /* the other side is there, and the handshake of TLS is under way */
    uint64_t delivered; /* where a ping is under way: bytes that were acknowledged */
    bool awaited;       /* somebody waits for a change */
    bool calls, sent;   /* a call is under way there; something else is, which is waited for only so long */
};
void connection_tick(struct connections *c, struct connection *connection, const struct connection_seen *seen,
                     uint64_t now_ms);
void connections_tick(struct connections *c, uint64_t now_ms);

/* -- events: wishes -- */
void connections_hurry(struct connections *c); /* servers can be reached: without a connection all are tried now */
void connections_mixed(struct connections *c, bool mixed);  /* (7): an open cluster is being closed, or no more */
void connections_pause(struct connections *c, bool paused); /* no connection until that is taken back */
void connections_stop(struct connections *c);               /* none any more */

/* -- what others may expect of it -- */
bool connections_unreachable(const struct connections *c,
                             uint64_t now_ms); /* any thread: no server, for CONNECTIONS_REACH_MS */
/* A region that was waited for already: (6). */
bool connections_away(const struct connections *c, uint64_t now_ms);
/* A request that begins now waits so long for a server, `most_ms` at most. */
uint64_t connections_wait_ms(const struct connections *c, uint64_t most_ms, uint64_t now_ms);
/* A read without a connection, begun at begun_ms: is it to be given up? One that waits for a change (`blocking`) until
 * `until_ms` is not given up before, except by a region. */
bool connections_gives_up(const struct connections *c, uint64_t begun_ms, bool blocking, uint64_t until_ms,
                          uint64_t now_ms);

/* For the simulator only: rules broken on purpose, to show that its checkers notice. */
enum connections_mutation {
    CONNECTIONS_MUTATE_NO_PING = 1,            /* against (3) */
    CONNECTIONS_MUTATE_KEEPS_LEADERLESS = 2,   /* against (4) */
    CONNECTIONS_MUTATE_NO_BACKOFF = 4,         /* against (2): it does not grow */
    CONNECTIONS_MUTATE_BACKOFF_STAYS = 8,      /* against (2): a hello does not set it back */
    CONNECTIONS_MUTATE_NO_RANK = 16,           /* against (1) */
    CONNECTIONS_MUTATE_DIALS_STRANGERS = 32,   /* against (2): those of another cluster are dialled again at once */
    CONNECTIONS_MUTATE_FOLLOWS_STRANGERS = 64, /* against (5): any server that says so is enough */
    CONNECTIONS_MUTATE_HOLDS_ON = 128,         /* against (6): each question waits for hold_ms again */
};
void connections_mutate(struct connections *c, unsigned mutations);

#endif
