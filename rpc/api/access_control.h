/* Access control of a process: how the rules of a requester are found. The process hands one to the rpc at start; without
 * one everything is allowed.
 *
 * A reader (rpc_reader) remembers the rules of the requesters that it met, until the state of access control changes, or until
 * they end by themselves. */
#ifndef COORD_RPC_ACCESS_CONTROL_H
#define COORD_RPC_ACCESS_CONTROL_H

#include "registry/access.h"
#include "registry/watch.h"
#include "rpc/api/requester.h"
#include "rpc/api/rpc.h"

/* Lives as long as the rpc; any thread. */
struct rpc_access_control {
    void *data;
    struct watch_key changes; /* is touched by each change of tokens, policies and what else rules depend on */
    /* The rules of the requester in the state that `txn` reads. CO_OK: *access is a reference of the caller's, and they hold
     * until *until_unix_ms (INT64_MAX: without an end). CO_NOTOKEN: there is no such token. CO_NOTREADY: this server cannot
     * tell yet, because the key of the secrets is not here. */
    int (*resolve)(void *data, struct store_txn *txn, const struct requester *requester, int64_t now_unix_ms,
                   struct access **access, int64_t *until_unix_ms);
};
/* Before the first request; NULL: there is no access control. */
void rpc_access_control_set(struct rpc *rpc, const struct rpc_access_control *control);
bool rpc_access_controlled(const struct rpc *rpc);
struct watch_key rpc_access_changes(const struct rpc *rpc); /* `changes`; space 0: there is no access control */
uint64_t rpc_access_generation(struct rpc *rpc);            /* of `changes`; 0: there is no access control */

/* The requester of clients that send no token, as of the agent's configuration; and of DNS. NULL: there is no access control.
 * Any thread; the caller releases it. */
struct requester *rpc_default_requester(struct rpc *rpc);
/* Takes over the reference. NULL: requests without a token are anonymous. */
void rpc_default_requester_set(struct rpc *rpc, struct requester *requester);

/* Of client agents: the token of the agent's own work, as of its configuration. NULL, and always on servers: none; the server
 * then takes the certificate of the connection. Any thread; the caller releases it. */
struct requester *rpc_agent_requester(struct rpc *rpc);
void rpc_agent_requester_set(struct rpc *rpc, struct requester *requester); /* takes over the reference */
/* Of client agents, which have no state to tell it: access control has changed. Any thread. */
void rpc_access_changed(struct rpc *rpc);

/* -- with a reader, on its thread, where the state is here (rpc_has_copy) ------------------------------------------ */

/* The rules of the requester, as of the transaction of the reader that is under way, or as of now. Borrowed, until the next
 * call with this reader. Errors as `resolve`; those of the store. */
int rpc_access(struct rpc_reader *reader, const struct requester *requester, const struct access **access);

/* Takes out of the result of a query what the requester may not see (query_type.show), within the transaction that read it.
 * CO_DENIED, CO_NOTOKEN, CO_NOTREADY: nothing of it may be shown; rpc_denial says why. `hidden`: rows that were taken out. */
int rpc_show(struct rpc_reader *reader, const struct requester *requester, const struct query_type *type,
             const ProtobufCMessage *request, struct arena *arena, struct query_result *result, size_t *hidden);

/* May the requester send the command? In a transaction of its own. Errors as rpc_show. The request may be changed in place
 * (module_command.may). *judged: rpc_access_generation from before that. */
int rpc_may_write(struct rpc_reader *reader, const struct requester *requester, uint8_t command,
                  const ProtobufCMessage *request, struct arena *arena, uint64_t *judged);

/* The same, for a packed command. *bytes: the command afterwards, in the arena if it has changed. CO_INVALID: it does not
 * decode. */
int rpc_may_write_bytes(struct rpc_reader *reader, const struct requester *requester, struct slice *bytes,
                        struct arena *arena, uint64_t *judged);

/* May it renew the thing, or see how long it has left (expiry_kind.may)? Errors as rpc_show. */
int rpc_may_renew(struct rpc_reader *reader, const struct requester *requester, const struct expiry_kind *kind,
                  struct slice name, bool look);

/* Is the level there, for one name? CO_OK, or an error as rpc_show. */
int rpc_may(struct rpc_reader *reader, const struct requester *requester, enum access_resource resource,
            struct slice name, enum access_level least);

/* The line of a refusal, for what a process decides itself. */
void rpc_denial_print(const struct requester *requester, const struct access *access,
                      const struct access_missing *missing, struct buffer *out);
/* One line about the last refusal with this reader: "Permission denied: token 6c1f... ("web") of the request lacks
 * key:write on "a/b"". It tells no secret. Valid until the next call with this reader. */
const char *rpc_denial(const struct rpc_reader *reader);

#endif
