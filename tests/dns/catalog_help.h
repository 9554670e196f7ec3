/* Puts things into the catalog of a fake rpc. */
#ifndef COORD_TESTS_DNS_CATALOG_HELP_H
#define COORD_TESTS_DNS_CATALOG_HELP_H

#include "registry/catalog.h"
#include "tests/lib/fake_rpc.h"

/* `meta`: "k=v" texts, NULL-terminated; NULL: none. */
void help_node(struct rpc *rpc, const char *name, const char *address, const char *const *meta);
struct help_service {
    const char *node, *id, *name, *address; /* address NULL: the node's */
    unsigned port;
    const char *tags[4];
    unsigned passing, warning; /* weights; 0, 0: 1 and 1 */
    Pb__Status status;         /* of a check of its own, when not passing */
};
void help_service(struct rpc *rpc, struct help_service service);
void help_node_check(struct rpc *rpc, const char *node, Pb__Status status);
void help_drop_service(struct rpc *rpc, const char *node, const char *id);
void help_drop_node(struct rpc *rpc, const char *node);

#endif
