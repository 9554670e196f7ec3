/* Durable definitions in the data folder, in one file (health/store_log.h):
 *
 *     a service       {"Version":1,"Service":{as the API takes it, "Checks":[...]}}
 *     a check         {"Version":1,"Check":{...}}: node checks, and checks on services from configuration files
 *                     {"Version":1,"Maintenance":{"ServiceID":"...","Reason":"..."}}
 *
 * Writing happens on libuv's threads, one batch at a time: whatever was registered while one was out shares the sync
 * of the next. One that does not read is named in the log and left out. After a batch that could not be written
 * everything is written anew. */
#ifndef COORD_HEALTH_STORE_FILES_H
#define COORD_HEALTH_STORE_FILES_H

#include "health/local_internal.h"

/* Makes the folders and loads what is there into `local` (before its loop part runs). CO_IO and the like with a
 * fault when the folder cannot be made or the file not be read. */
int store_files_open(struct local *local, struct fault *fault);
/* Loop thread: writes the items of local->saves, unless a batch is under way. */
void store_files_kick(struct store_files *files);
/* Loop thread: writes the rest, then calls local_part_closed; the struct is gone. */
void store_files_close(struct store_files *files);

#endif
