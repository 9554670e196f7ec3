/* DATA/joined.json keeps what `coord init` and `coord join` learned about this node. It is a configuration file like any
 * other, which `coord agent` reads before the files and flags that it is given, so those win. It is written last: without
 * it a folder has not joined. Blocking. */
#ifndef COORD_AGENT_JOINED_H
#define COORD_AGENT_JOINED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct joined {
    bool server;
    bool founder; /* its first server founds the cluster */
    const char *node, *datacenter;
    const char *bind;           /* NULL: all addresses */
    const char *default_policy; /* of access control; NULL: there is none */
    const char *const *servers; /* to join by; may be NULL */
    size_t server_count;
};

/* CO_EXISTS, with a line: the folder has joined, or holds a server's data. */
int joined_check(const char *data_dir, struct fault *fault);
int joined_write(const char *data_dir, const struct joined *joined, struct fault *fault);
/* The file's path, when it is there. */
bool joined_path(const char *data_dir, char path[4096]);

#endif
