/* Recognises files that are not backups of coord: tells what they are, and what to do. One sentence each, in one place,
 * for `coord snapshot inspect`, `coord snapshot restore` and PUT /v1/snapshot. */
#ifndef COORD_RPC_FOREIGN_H
#define COORD_RPC_FOREIGN_H

#include "base/buffer.h"
#include "base/error.h"

/* So many bytes at the beginning suffice. */
#define FOREIGN_BYTES 512

/* Sets `fault` (CO_CORRUPT) by the first bytes of a file: all of it when it is shorter than FOREIGN_BYTES. It is no gzip.
 * `packed`: they came out of one. */
int foreign_file(struct slice begin, bool packed, struct fault *fault);
/* The same by the first bytes of state.bin, for an archive that is otherwise like ours. CO_OK: it is not known as
 * another program's. */
int foreign_state(struct slice begin, struct fault *fault);

#endif
