/* The identity of this agent: name, id, address, and the data folder. Blocking; at start only. */
#ifndef COORD_AGENT_IDENTITY_H
#define COORD_AGENT_IDENTITY_H

#include "agent/config.h"

struct identity {
    char *data_dir;
    bool temporary; /* the folder is removed at the end (-dev without a folder) */
    int lock_fd;    /* held while the process lives: two agents on one folder would destroy each other's log */
    char node_name[256];
    char node_id[40]; /* UUID, kept in the folder */
    char address[64]; /* advertised, an IP */
};

/* The lock of a data folder: CO_BUSY while an agent runs on it. `make`: creates the lock file if needed; without it
 * CO_NOTFOUND when no agent has ever run on the folder. Close *fd to unlock. */
int identity_lock(const char *folder, bool make, int *fd, struct fault *fault);

int identity_folder_make(const char *path, struct fault *fault); /* 0700, and the folders above it */
void identity_host_name(char name[256]);                         /* the name of a node that was given none */
void identity_host_address(char address[64]);                    /* the address of one that binds to all */

/* Faults name the folder or address. */
int identity_open(const struct config *config, struct identity *identity, struct fault *fault);
void identity_close(struct identity *identity); /* releases the folder, removes a temporary one */

#endif
