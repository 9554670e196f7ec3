/* The lessor: the leader's handling of everything that ends by itself. It runs the table of registry/expiry.h: the
 * applier's updates fill the table, renewals ask it, and its decisions become commands. Kinds come from the modules.
 * The rules (docs/decisions/leases.md):
 *
 * (1) A renewal is acknowledged only after a leadership round that began after it arrived, and never while an end of
 *     its session or lease is proposed.
 * (2) An end is a command that carries the term of the leadership that decided it: in another term it is refused. A
 *     server that no longer leads forgets the table.
 * (3) A new leader judges once it is ready (its copy shows all that earlier ones acknowledged), and grants everything a
 *     full period; so does one whose loop stood still.
 * (4) An end is proposed again only when it is certainly not in the log.
 * (5) Renewals share rounds: one that comes within LESSOR_GATHER_MS of the last round waits until that time is over,
 *     and for others.
 *
 * Pure: time is an argument, everything else is reached through the callbacks (rpc/leader/leases_run.c is the program's). One
 * thread. */
#ifndef COORD_RPC_LEASES_H
#define COORD_RPC_LEASES_H

#include "registry/machine.h"
#include "rpc/api/rpc.h"

#define LESSOR_GATHER_MS 10 /* thousands of renewals a second cost a hundred rounds */

struct lessor_decision; /* one decision on its way into the log */
struct lessor_callbacks {
    void *data;
    const struct modules *modules;                /* whose expiry kinds are counted */
    struct expiry_update *(*updates)(void *data); /* new updates of the applier: expiry_updates_take */
    struct store_txn *(*read)(void *data);        /* the state as applied here, until read_done */
    void (*read_done)(void *data);
    /* Submit the command; then, on this thread, lessor_decided with its outcome, exactly once. */
    void (*propose)(void *data, struct lessor_decision *decision, uint8_t command, const ProtobufCMessage *message);
    /* takes it to the server that leads; false: there is none, or it is this one */
    bool (*elsewhere)(void *data, struct rpc_renew *renew);
    /* CO_OK: this server leads now. CO_AGAIN: lessor_confirmed will be called with this renewal, which stands for all
     * that wait with it. Else an error (CO_FENCED). */
    int (*confirm)(void *data, struct rpc_renew *renew);
    int64_t (*unix_ms)(void *data); /* the wall clock */
    /* A kind's `updated` was called: the modules' gauges have to be read again soon. NULL: `updated` is not called (the
     * simulator). */
    void (*updated)(void *data);
    unsigned mutations; /* enum lessor_mutation; 0 outside of the simulator */
};
/* For the simulator only: rules broken on purpose, to show that its checkers notice. */
enum lessor_mutation {
    LESSOR_MUTATE_DEPOSED_EXPIRES = 1, /* against (2) */
    LESSOR_MUTATE_RENEW_PROPOSED = 2,  /* against (1): acknowledged while the end is proposed */
};

struct lessor;
struct lessor *lessor_new(const struct lessor_callbacks *callbacks);
void lessor_stop(struct lessor *lessor); /* ends waiting and later renewals with CO_CLOSED */
void lessor_free(struct lessor *lessor); /* call it when it is stopped and all proposals are decided */

void lessor_role(struct lessor *lessor, uint64_t term, bool ready, uint64_t now_ms);
void lessor_updates(struct lessor *lessor, uint64_t now_ms);  /* there may be new updates */
void lessor_replaced(struct lessor *lessor, uint64_t now_ms); /* a snapshot or a backup replaced the state */
/* A renewal has arrived; `here`: it came from another server, and must not be taken elsewhere. `renew->done` is called
 * with CO_OK, CO_NOTFOUND, CO_NOLEADER, CO_CLOSED, CO_FENCED. */
void lessor_renew(struct lessor *lessor, struct rpc_renew *renew, bool here, uint64_t now_ms);
void lessor_confirmed(struct lessor *lessor, struct rpc_renew *renew, int error, uint64_t now_ms);
void lessor_decided(struct lessor *lessor, struct lessor_decision *decision, int error, uint64_t now_ms);
/* Call it at lessor_deadline_ms, after handling the renewals that had arrived by then, because renewals in time have to
 * count before anything is judged. */
void lessor_tick(struct lessor *lessor, uint64_t now_ms);
uint64_t lessor_deadline_ms(const struct lessor *lessor); /* UINT64_MAX: nothing */

#endif
