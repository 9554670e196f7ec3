/* DATA/management.token: the secret of the first token of a cluster that `coord init` made, which may do everything. Only its
 * owner reads the file. The server of the folder makes the token when it leads for the first time (rpc/server/acl_keys.h), and
 * from then on the file is the operator's: it may be moved or removed. Blocking. */
#ifndef COORD_AGENT_FIRST_TOKEN_H
#define COORD_AGENT_FIRST_TOKEN_H

#include "base/buffer.h"
#include "base/error.h"

void first_token_path(const char *data_dir, char path[4096]);
/* Draws one and writes it. One that is there already stays, whoever put it there; CO_INVALID: it is none. */
int first_token_make(const char *data_dir, struct fault *fault);
/* *secret is NUL-terminated, and for tls_wipe. CO_NOTFOUND without a fault's text: there is none. CO_INVALID: others may read or
 * write the file, or it has no token. */
int first_token_read(const char *data_dir, struct buffer *secret, struct fault *fault);

#endif
