/* Gives out certificates: the server's part of rpc/wire/enrol.h. Any server that has the CA's key signs. A renewal needs
 * no leader, because the node keeps its key: its record follows when there is a leader. To join, and to take part when an
 * open cluster is closed, changes the replicated state first (registry/trust.h), so that needs one.
 *
 * A certificate has the address that the question came from, and no other one that the joiner claims, because whoever
 * holds a join token could take the name of another host otherwise. Loop thread. */
#ifndef COORD_RPC_ENROLMENT_H
#define COORD_RPC_ENROLMENT_H

#include "rpc/core/rpc_internal.h"
#include "rpc/wire/enrol.h"
#include "rpc/wire/link.h"
#include "tls/authority.h"

struct enrolment_config {
    struct authority *authority; /* outlives it, as `security` */
    struct security *security;
    const char *datacenter, *dns_domain; /* outlive it */
    int64_t life_s;                      /* of a certificate */
    const char *acl_default_policy;      /* NULL: there is no access control; outlives it */
};

struct enrolment;
struct enrolment *enrolment_new(struct rpc *rpc, const struct enrolment_config *config);
/* Takes a connection that speaks one of the three protocols, with its first frame, and owns it from now on. */
void enrolment_take(struct enrolment *enrolment, struct link *link, uint8_t type, struct slice payload);
void enrolment_tick(struct enrolment *enrolment, uint64_t now_ms);
/* Ends all connections; `stopped` is called from the loop, or before this returns, when the last one and the last write
 * are over, and everything is freed. */
void enrolment_stop(struct enrolment *enrolment, void (*stopped)(void *data), void *data);

#endif
