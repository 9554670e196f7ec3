/* The commands of `coord explain`: argv[0] is the command's name; they return the exit code. */
#ifndef COORD_AGENT_CMD_EXPLAIN_H
#define COORD_AGENT_CMD_EXPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

int explain_check(int argc, char **argv);
int explain_election(int argc, char **argv);
int explain_lock(int argc, char **argv);
int explain_node(int argc, char **argv);
int explain_quota(int argc, char **argv);
int explain_service(int argc, char **argv);
int explain_session(int argc, char **argv);

/* Appends half a sentence that says why the first waiter of a lock's queue waits. */
struct lock_standing {
    const char *mode, *holder; /* the mode of the holders; the session of the first holder */
    uint64_t holders, limit;   /* limit 0: none */
    uint64_t delays;           /* lock-delays that are under way */
    const char *wanted;        /* the mode that the first waiter wants */
};
void lock_reason(const struct lock_standing *of, struct buffer *out);

#endif
