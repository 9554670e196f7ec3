/* The log lines of an agent that starts, about itself. */
#ifndef COORD_AGENT_ANNOUNCE_H
#define COORD_AGENT_ANNOUNCE_H

#include "agent/config.h"
#include "agent/identity.h"
#include "dns/dns.h"
#include "http/server.h"
#include "registry/catalog.pb-c.h"
#include "rpc/wire/security.h"

/* Logs the agent's name and addresses, and warnings about its configuration. `http` and `dns` may be NULL. */
void announce_agent(const struct config *config, struct security *security, const struct identity *identity,
                    const Pb__Node *node, const struct http_server *http, const struct dns_server *dns);
/* Writes one line about the listeners that TLS protects, and the others; without a line feed. Any thread. */
void announce_protection(const struct config *config, struct security *security, struct buffer *line);
/* The two parts of that line: "HTTPS on ...", "DNS on ..."; "nothing" where there is none. */
void announce_protected(const struct config *config, struct security *security, struct buffer *safe,
                        struct buffer *open);
/* The metric coord_build_info. Once. */
void announce_build(const struct config *config);

#endif
