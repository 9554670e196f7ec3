/* Leases in the world of this folder, as commands and queries in one line. */
#ifndef COORD_TESTS_KV_LEASES_H
#define COORD_TESTS_KV_LEASES_H

#include "commands.h"
#include "registry/lease.h"

/* A cluster of the version that has leases. */
void leases_open(struct fixture *world);

void lease_uuid(unsigned number, char id[UUID_TEXT_SIZE + 1]);
/* node NULL: a free lease. node_id by number. */
struct outcome lease_grant(struct fixture *world, const char *id, const char *node, unsigned node_id);
/* As an agent of today asks for it. */
struct outcome lease_grant_to(struct fixture *world, const char *id, const char *node, unsigned node_id,
                              const char *address, uint64_t process);
struct outcome lease_revoke(struct fixture *world, const char *id);
struct outcome lease_expire(struct fixture *world, const char *id, uint64_t term);
struct outcome lease_leave(struct fixture *world, const char *id);
struct outcome node_leave(struct fixture *world, const char *node, bool dead, bool prune);
struct outcome lease_reap(struct fixture *world, const char *node, uint64_t index, uint64_t term);

/* lease, by: NULL: none. node_id 0: none. service NULL: the node alone. check: critical, or NULL */
struct registration {
    const char *node, *service, *check, *lease, *by;
    unsigned node_id;
    bool skip, alive; /* alive: with a serfHealth that passes */
};
struct outcome lease_register(struct fixture *world, const struct registration *plan);
struct outcome kv_put_leased(struct fixture *world, const char *key, const char *value, const char *lease);

/* The things that are bound to it: "key a; key b; service n1/web; node n1; ", or "gone". Valid until the next query. */
const char *lease_holds(struct fixture *world, const char *id);
const char *dead_nodes(struct fixture *world); /* "n1 n2 " */
/* "n1=alive n2=failed n3=left " */
const char *members_now(struct fixture *world);
/* "gone", or the statuses of its checks: "serfHealth=critical c1=passing " */
const char *node_state(struct fixture *world, const char *node);

#endif
