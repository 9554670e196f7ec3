/* The parts of a registration that DNS cannot answer with: addresses that are neither an IP address nor a host name
 * (base/host.h), or that are the very name in DNS that would be answered with them (web.service.coord as the address of
 * an instance of web), and names that cannot be a label of a host name. They are accepted and shown as they were given,
 * and the client that registered them gets a warning. */
#ifndef COORD_REGISTRY_UNDISCOVERABLE_H
#define COORD_REGISTRY_UNDISCOVERABLE_H

#include "base/buffer.h"
#include "registry/catalog.pb-c.h"

/* Sets the domains of this process, in which names in DNS end; `alt_domain` may be NULL. Call it before any thread
 * asks. */
void undiscoverable_domains(const char *domain, const char *alt_domain, const char *datacenter);

/* Appends the faults as one line of printable ASCII, about 1 KiB at most; nothing: DNS can answer with all of it.
 * Either may be NULL. */
void undiscoverable_text(struct buffer *out, const Pb__Node *node, const Pb__Service *service);
/* Logs it, but not again while it is among the last few hundred such lines, because clients register again every few
 * seconds. `name`: of the node, also where `node` is NULL. Any thread. */
void undiscoverable_log(const char *name, const Pb__Node *node, const Pb__Service *service);

#endif
