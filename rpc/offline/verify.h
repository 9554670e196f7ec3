/* Checks everything that a stopped server has on disk, and changes nothing: ids, snapshots, log, hard state and store,
 * each by itself and against the others (`coord verify`). */
#ifndef COORD_RPC_VERIFY_H
#define COORD_RPC_VERIFY_H

#include "base/error.h"
#include "registry/machine.h"

struct verify_config {
    const char *folder;                 /* DATA: holds raft/ and store/ */
    const struct module_entry *modules; /* registry/modules.h */
    /* Called once per part, in order, with its description or its fault. */
    void (*line)(void *data, const char *part, const char *text);
    void *data;
};

/* CO_OK: this binary can start from it, and everything that was acknowledged is there. Else the first thing that is
 * wrong, with its file and, if there is one, offset: CO_CORRUPT, CO_UNSUPPORTED (of a newer version), CO_NOTFOUND,
 * CO_IO, CO_BUSY (in use). Damage that heals by itself (a torn end of the log, a store that will be rebuilt) is
 * reported, but is no fault. Blocks; forks, so call it while there is one thread. */
int verify_run(const struct verify_config *config, struct fault *fault);

#endif
