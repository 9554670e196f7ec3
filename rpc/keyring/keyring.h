/* The shared keys of all agents of the cluster: who has which, and changes of them. Each agent that lives is asked over
 * the connections that exist (rpc/api/ask.h), so keys are in no log, snapshot or backup. An agent that does not answer
 * is named, and the same change may be asked for again.
 *
 * An agent that takes or makes plain connections refuses, because a key could travel over one of them; a key is sent to
 * nobody before all that answer have said that they do not. Nodes that are down are not asked, as in Consul. */
#ifndef COORD_RPC_KEYRING_H
#define COORD_RPC_KEYRING_H

#include "base/buffer.h"
#include "rpc/api/rpc.h"

enum rpc_keyring_verb {
    RPC_KEYRING_LIST = 1,
    RPC_KEYRING_INSTALL,
    RPC_KEYRING_USE,
    RPC_KEYRING_REMOVE,
    RPC_KEYRING_VERBS
};

#define RPC_KEYRING_KEY_MAX 32 /* bytes */
struct rpc_keyring_key {
    uint8_t bytes[RPC_KEYRING_KEY_MAX];
    size_t size;
    unsigned nodes, primary_nodes; /* so many have it; use it */
};
struct rpc_keyring_node {
    const char *name, *refusal; /* refusal NULL: it did as it was asked */
};
struct rpc_keyring_result {
    struct rpc_keyring_key *keys;
    size_t key_count;
    struct rpc_keyring_node *nodes; /* all that were asked */
    size_t node_count, failed;      /* failed: those with a refusal */
    const char *why;                /* nobody was asked to change anything, because of this; NULL: all were */
};

struct rpc_keyring {
    enum rpc_keyring_verb verb; /* in, as the key */
    uint8_t key[RPC_KEYRING_KEY_MAX];
    size_t key_size; /* RPC_KEYRING_LIST: 0 */
    /* Once, on another thread; short. CO_OK: see `result`, which is valid during the call. Else nobody was asked: as of
     * rpc_fetch. */
    void (*done)(struct rpc_keyring *keyring, int error, const struct rpc_keyring_result *result);
};
/* Any thread. The caller keeps the struct until `done`. */
void rpc_keyring(struct rpc *rpc, struct rpc_keyring *keyring);

#endif
