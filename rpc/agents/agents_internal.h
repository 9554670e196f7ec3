/* Inside agents.h: agents.c (connections and frames), agents_reads.c (reads), agents_servers.c (other servers'),
 * agents_hints.c (load balancing), agents_backup.c (backups through agents). Loop thread. */
#ifndef COORD_RPC_AGENTS_INTERNAL_H
#define COORD_RPC_AGENTS_INTERNAL_H

#include "base/list.h"
#include "base/mailbox.h"
#include "rpc/agents/agents.h"
#include "rpc/core/asks_run.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/hello.h"
#include "rpc/wire/link.h"

#define AGENTS_BUCKETS       4096
#define AGENTS_ASKED_BUCKETS 16384

/* A remote client of reads: a client agent, or another server. */
struct remote_reader {
    struct agents *agents;
    struct list fetches; /* struct pending_fetch */
    struct list held;    /* those whose answer goes out piece by piece, each in turn */
    size_t fetch_count, held_bytes;
    uint64_t number;   /* of its connection; never given twice */
    uint64_t server;   /* its id; 0: a client agent */
    uint64_t taken_ms; /* when it last took some of the held answers */
};

struct agent {
    struct remote_reader reader;
    struct agents *agents;
    struct agent *chain; /* in its bucket */
    struct list link;    /* in agents->all */
    struct list unsent;  /* in agents->unsent, or alone */
    struct link *wire;
    struct asks_run_link *asks;
    struct requester *self; /* of its own work; NULL: not needed yet */
    uint64_t last_seen_ms;
    uint64_t received, delivered; /* link.h's counters at the last look */
    bool asks_only; /* a server of another region that only asks for this region's identity, again and again */
    bool is_link;   /* a server of another region: */
    char region[RPC_REGION_MAX + 1];
    struct list follows; /* agents_hints.c */
    size_t follow_count;
    char node[HELLO_NODE_MAX + 1];
};

struct agents {
    struct rpc *rpc;
    struct rpc_reader *reader; /* for what agents may do */
    struct forwarding *forwarding;
    struct agent *buckets[AGENTS_BUCKETS];
    struct pending_fetch *pending[AGENTS_ASKED_BUCKETS];
    struct list all, unsent;
    struct list peer_readers;
    struct agents_hints *hints;
    struct agent_backup *backups; /* agents_backup.c */
    char *folder;                 /* of this server: its temporary files */
    size_t held_max;              /* AGENTS_HELD_MAX */
    size_t count, asked_count;
    uint64_t last_number, ticked_ms;
    uv_async_t wake;
    uv_timer_t timer, room_timer;
    struct mailbox answered; /* struct pending_fetch; from any thread */
    struct buffer servers;   /* the last list that agents were told, packed */
    bool stopping, done_in_frame;
    unsigned closing;
    void (*closed)(void *data);
    void *closed_data;
};

void agent_tell(struct agent *agent, uint8_t type, const ProtobufCMessage *message); /* with the next flush */

void agent_send(struct agent *agent, uint8_t type, struct slice payload); /* likewise */
void agents_flush(struct agents *agents);

struct agent **agent_find(struct agents *agents, uint64_t number);

/* agents_access.c. The requester of a request with this token, a reference; NULL: there is no access control. CO_OK;
 * CO_NOTOKEN, CO_CLOSED. */
int agent_requester(struct agent *agent, const char *token, uint32_t slot, struct requester **requester);
int agents_may_write(void *data, uint64_t from, Pb__PeerWrite *write, struct arena *arena, struct judged *judged,
                     char *why, size_t room);
int agents_may_renew(void *data, uint64_t from, const Pb__PeerRenew *renew, struct requester **requester);
/* CO_OK, or an error as rpc_may. *requester: a reference, or NULL. `want` NULL: nothing is asked for. */
int agent_may(struct agent *agent, const char *token, const struct access_want *want, struct requester **requester);
int agents_may(const struct caller *caller, const char *token, const struct access_want *want,
               struct requester **requester); /* of struct caller */
const char *agents_proven(const struct caller *caller);

struct agents_hints *agents_hints_new(struct agents *agents);
void agents_hints_free(struct agents_hints *hints); /* nobody follows anything any more */
/* PEER_HINTS, PEER_HINTS_FOLLOW, PEER_KEYS. False: it does not decode. */
bool agents_hints_frame(struct agent *agent, uint8_t type, struct slice payload);
void agents_hints_down(struct agent *agent);

/* PEER_BACKUP of a client agent (rpc/backup/backup_transfer.h). False: another frame, or one that does not decode. */
bool agents_backup_frame(struct agent *agent, uint8_t type, struct slice payload);
void agents_backup_down(struct agent *agent);
void agents_backup_tick(struct agents *agents, uint64_t now_ms);

void agents_read_init(void);
void remote_reader_init(struct remote_reader *reader, struct agents *agents);
void agents_read(struct remote_reader *reader, const Pb__PeerFetch *ask);
void agents_read_end(struct remote_reader *reader, uint64_t number); /* its answer is not wanted any more */
void agents_read_answered(struct agents *agents);                    /* takes what other threads have answered */
void agents_read_pieces(struct remote_reader *reader); /* sends more pieces of held answers, while there is room */
void agents_read_down(struct remote_reader *reader);

bool peer_reader_has_room(const struct remote_reader *reader);
void peer_reader_waits(struct agents *agents); /* one of them has held answers */
void peer_readers_stop(struct agents *agents);

#endif
