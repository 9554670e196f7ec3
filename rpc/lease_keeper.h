/* What the leader does with all that ends by itself, sessions, leases, lock-delays, dead nodes and held services:
 * the table of registry/lease_timers.h at work. It is fed by the applier's news, asked by renewals, and its
 * decisions become commands. The rules (design, decision 4):
 *
 * (1) A renewal is acknowledged only after a leadership round that began after it arrived, and never while an end of its session or lease
 *     is proposed.
 * (2) An end is a command that carries the term of the leadership that decided it: in another term it is refused. Who no longer leads
 *     forgets the table.
 * (3) A new leader judges once it is ready (its copy shows all that earlier ones acknowledged), and grants everything a full period;
 *     so does one whose loop stood still.
 * (4) What is proposed is proposed again only when it is certainly not in the log.
 * (5) Renewals share rounds: one that comes within LEASE_KEEPER_GATHER_MS of the last round waits until that is over, and for others.
 *
 * Pure: time is an argument, everything else is reached through the edge (rpc/leases.c is the program's). One thread. */
#ifndef COORD_RPC_LEASE_KEEPER_H
#define COORD_RPC_LEASE_KEEPER_H

#include "registry/lease.h"
#include "registry/machine.h"
#include "registry/reconnect.h"
#include "rpc/rpc.h"

#define LEASE_KEEPER_GATHER_MS 10 /* thousands of renewals a second cost a hundred rounds */

struct lease_decision; /* one decision on its way into the log */
struct lease_keeper_edge {
    void *data;
    struct lease_news *(*news)(void *data); /* what the applier has reported since: lease_box_take */
    struct store_txn *(*read)(void *data);  /* the state as applied here, until read_done */
    void (*read_done)(void *data);
    /* Submit the command; then, on this thread, lease_keeper_decided with its outcome, exactly once. */
    void (*propose)(void *data, struct lease_decision *decision, uint8_t command, const ProtobufCMessage *message);
    /* taken to the server that leads; false: none, or this one */
    bool (*elsewhere)(void *data, struct rpc_renew *renew);
    /* CO_OK: this server leads, now. CO_AGAIN: lease_keeper_confirmed comes, with this renewal, which stands for all
     * that wait with it. Else an error (CO_FENCED), now. */
    int (*confirm)(void *data, struct rpc_renew *renew);
    int64_t (*unix_ms)(void *data); /* the wall clock, for the brake (registry/brake.h) */
    /* a service is held, or no longer; on every server. May be NULL */
    void (*held)(void *data, const struct lease_news *news);
    struct rpc_brake brake;
    struct reconnect_classes reconnect; /* borrowed */
    unsigned mutations;                 /* enum lease_keeper_mutation; 0 outside of the simulator */
};
/* For the simulator only: rules broken on purpose, to show that its checkers notice. */
enum lease_keeper_mutation {
    LEASE_KEEPER_MUTATE_DEPOSED_EXPIRES = 1, /* against (2) */
    LEASE_KEEPER_MUTATE_RENEW_PROPOSED = 2,  /* against (1): acknowledged while the end is proposed */
};

struct lease_keeper;
struct lease_keeper *lease_keeper_new(const struct lease_keeper_edge *edge);
void lease_keeper_stop(struct lease_keeper *keeper); /* renewals that wait, and all that come, end with CO_CLOSED */
void lease_keeper_free(struct lease_keeper *keeper); /* all that was proposed is decided; stopped */

void lease_keeper_role(struct lease_keeper *keeper, uint64_t term, bool ready, uint64_t now_ms);
void lease_keeper_news(struct lease_keeper *keeper, uint64_t now_ms);     /* there may be some */
void lease_keeper_restored(struct lease_keeper *keeper, uint64_t now_ms); /* a backup took the place of the state */
/* A renewal has arrived; from another server: `here`, it must not be taken elsewhere. `renew->done` is called with CO_OK, CO_NOTFOUND,
 * CO_NOLEADER, CO_CLOSED, CO_FENCED. */
void lease_keeper_renew(struct lease_keeper *keeper, struct rpc_renew *renew, bool here, uint64_t now_ms);
void lease_keeper_confirmed(struct lease_keeper *keeper, struct rpc_renew *renew, int error, uint64_t now_ms);
void lease_keeper_decided(struct lease_keeper *keeper, struct lease_decision *decision, int error, uint64_t now_ms);
/* At lease_keeper_deadline_ms, after the renewals that had arrived by then: what came in time counts before anything
 * is judged. */
void lease_keeper_tick(struct lease_keeper *keeper, uint64_t now_ms);
uint64_t lease_keeper_deadline_ms(const struct lease_keeper *keeper); /* UINT64_MAX: nothing */

#endif
