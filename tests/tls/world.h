/* A CA, two nodes of it, and a stranger with a CA of its own, with contexts between processes of coord. */
#ifndef COORD_TESTS_TLS_WORLD_H
#define COORD_TESTS_TLS_WORLD_H

#include "ends.h"

struct world {
    struct test_ca authority, other;
    struct identity server, agent, stranger;
    struct tls_context *server_context, *agent_context, *stranger_context;
};
void world_make(struct world *world);
void world_free(struct world *world);

extern const struct tls_context_config inner; /* TLS 1.3 only */
extern const char *const peers_protocol[];
extern const struct tls_session_config mutual; /* both have to show a certificate */
/* The agent with the server; it has to work. */
void open_mutual(const struct world *world, struct ends *ends);
void expect_server_refuses(const struct ends *ends, const char *why);
void expect_client_refuses(const struct ends *ends, const char *why);
void say(struct ends *ends, const char *to_server, const char *to_client); /* and it arrives */

#endif
