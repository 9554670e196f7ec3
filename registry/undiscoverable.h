/* What of a registration DNS cannot say: addresses that are neither an IP address nor a host name (base/host.h), or
 * the name in DNS that would be answered with them (web.service.coord as the address of an instance of web), and names
 * that are no labels of one. They are taken and shown as they were given; whoever registered them is told. */
#ifndef COORD_REGISTRY_UNDISCOVERABLE_H
#define COORD_REGISTRY_UNDISCOVERABLE_H

#include "base/buffer.h"
#include "registry/catalog.pb-c.h"

/* Of this process: where names in DNS end; `alt_domain` may be NULL. Before any thread asks. */
void undiscoverable_domains(const char *domain, const char *alt_domain, const char *datacenter);

/* Appends what is wrong as one line of printable ASCII, about 1 KiB at most; nothing: DNS can say all of it. Either
 * may be NULL. */
void undiscoverable_text(struct buffer *out, const Pb__Node *node, const Pb__Service *service);
/* Says it in the log, once for as long as it is among the last few hundred things said: clients register again every
 * few seconds. `name`: of the node, also where `node` is NULL. Any thread. */
void undiscoverable_log(const char *name, const Pb__Node *node, const Pb__Service *service);

#endif
