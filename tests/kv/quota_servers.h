/* The servers of a cluster, as agents that spend see them: the state machine with its budgets, and a leader that ends what
 * ends by itself. Time is an argument, in ns; it is also that of the leader's wall clock, which began at
 * QUOTA_SERVERS_UNIX_S. One thread. */
#ifndef COORD_TESTS_KV_QUOTA_SERVERS_H
#define COORD_TESTS_KV_QUOTA_SERVERS_H

#include "kv/quota/quota.h"
#include "tests/lib/fixture.h"

#define QUOTA_SERVERS_UNIX_S INT64_C(1699999980) /* a minute begins */

struct quota_servers {
    struct fixture world;
    struct expiry *timers;
    uint64_t now_ns;
    bool led;
    uint64_t asks; /* entries of asks */
    /* Told of each refill, and how much is no longer spent. May be NULL. */
    void (*refilled)(void *data, const char *name, uint64_t amount);
    void *data;
};
/* Nodes are called a0, a1, ...; all are healthy. */
void quota_servers_open(struct quota_servers *servers, unsigned nodes);
void quota_servers_close(struct quota_servers *servers);
void quota_servers_define(struct quota_servers *servers, const Pb__QuotaDefinition *definition);
void quota_servers_delete(struct quota_servers *servers, const char *name);

/* The leader is gone; and another one leads. */
void quota_servers_unled(struct quota_servers *servers);
void quota_servers_lead(struct quota_servers *servers, uint64_t now_ns);
/* Ends all that is due by now. To be called as time goes on. */
void quota_servers_tick(struct quota_servers *servers, uint64_t now_ns);

/* As the command's result; the grants are valid until the next call of anything here. CO_NOLEADER without a leader. */
int quota_servers_ask(struct quota_servers *servers, const Pb__QuotaAskCommand *command,
                      const Pb__QuotaGrants **grants);
/* The node's sessions end, its agent is not heard of; or it is well again. */
void quota_servers_node(struct quota_servers *servers, const char *node, bool alive);
/* The node has an instance of the service "api", which passes or not. */
void quota_servers_instance(struct quota_servers *servers, const char *node, bool passing);
/* NULL: there is no such budget. Valid until the next call. */
const Pb__QuotaNotice *quota_servers_notice(struct quota_servers *servers, const char *name, uint64_t *index);
const Pb__QuotaState *quota_servers_look(struct quota_servers *servers, const char *name);

#endif
