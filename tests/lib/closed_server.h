/* A server's port of a closed cluster, over a real loopback socket: peers, hellos, enrolments, on a real machine without Raft.
 * Everything is on the caller's loop. Whatever goes wrong here ends the test. */
#ifndef COORD_TESTS_LIB_CLOSED_SERVER_H
#define COORD_TESTS_LIB_CLOSED_SERVER_H

#include "registry/trust.pb-c.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/server/enrolment.h"
#include "rpc/wire/security.h"
#include "tests/lib/fixture.h"
#include "tests/lib/identity.h"
#include "tls/join_token.h"

struct closed_server {
    struct fixture f;
    struct test_ca ca;
    struct identity identity; /* of server s1 */
    struct authority *authority;
    struct security *security;
    struct rpc_role role;
    struct rpc rpc;
    struct enrolment *enrolment;
    struct peers *peers;
    uv_async_t posted;
    struct list tasks; /* of struct posted */
    char address[32], folder[128];
    int write_error;                      /* writes end so, not done; CO_OK: they are done */
    unsigned writes, frames, agents, ups; /* so often; frames: of servers, and of agents after their hello */
    unsigned going;                       /* handles and parts that closed_server_stop waits for */
};

/* It trusts s1, who it is, and a1. */
void closed_server_start(struct closed_server *server, uv_loop_t *loop);
/* Begins to end; run the loop until closed_server_stopped. */
void closed_server_stop(struct closed_server *server);
bool closed_server_stopped(const struct closed_server *server);
void closed_server_free(struct closed_server *server); /* when it has stopped */

/* The record of a node's certificate, in the server's arena of queries; NULL: none. */
const Pb__NodeCertificate *closed_server_record(struct closed_server *server, bool is_server, const char *node);
void closed_server_mode(struct closed_server *server, unsigned mode); /* enum trust_mode */
/* A node's certificate is known, as if it had joined. */
void closed_server_note(struct closed_server *server, const struct identity *identity);
/* It takes this join token; `glob`: of names, `uses`: 0: any number. */
void closed_server_admit(struct closed_server *server, const struct join_token *token, const char *glob, unsigned uses);
/* The same for one that it draws. */
struct join_token closed_server_token(struct closed_server *server, enum tls_role role, const char *glob,
                                      unsigned uses);

#endif
