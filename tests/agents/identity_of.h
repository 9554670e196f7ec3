/* Certificates of simulated agents in a closed cluster. The tool takes the CA's key from the data folder of a server, which
 * only a test may do; a real agent never sees it. All agents share one key pair, each has a certificate of its own. */
#ifndef COORD_TESTS_AGENTS_IDENTITY_OF_H
#define COORD_TESTS_AGENTS_IDENTITY_OF_H

#include "rpc/wire/security.h"

struct identities;
/* `data_dir`: of a server. Ends the program, with a line, when its files do not fit. */
struct identities *identities_open(const char *data_dir, const char *datacenter);
void identities_close(struct identities *identities); /* NULL: nothing */
/* The rules and the certificate of this node; the caller frees them (security_free). Any thread. */
struct security *identities_make(const struct identities *identities, const char *node);

#endif
