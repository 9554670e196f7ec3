/* What an agent says of itself when it starts. */
#ifndef COORD_AGENT_ANNOUNCE_H
#define COORD_AGENT_ANNOUNCE_H

#include "agent/config.h"
#include "agent/identity.h"
#include "dns/dns.h"
#include "http/server.h"
#include "registry/catalog.pb-c.h"

/* Into the log: who it is, where it listens, and what of its configuration deserves a warning. `http` and `dns` may be
 * NULL. */
void announce_agent(const struct config *config, const struct identity *identity, const Pb__Node *node,
                    const struct http_server *http, const struct dns_server *dns);
/* The metric coord_build_info. Once. */
void announce_build(const struct config *config);

#endif
