/* Durable definitions in the data folder:
 *
 *     services/<hash of id>.json   {"Version":1,"Service":{as the API takes it, "Checks":[...]}}
 *     checks/<hash of id>.json     {"Version":1,"Check":{...}}, node checks and checks on services from configuration files
 *                                  {"Version":1,"Maintenance":{"ServiceID":"...","Reason":"..."}}
 *
 * A file is written beside its place, synced and renamed; a folder is synced once per batch. Writing happens on libuv's
 * threads, one batch at a time. A file that does not read is named in the log and left alone. */
#ifndef COORD_HEALTH_STORE_FILES_H
#define COORD_HEALTH_STORE_FILES_H

#include "health/local_internal.h"

/* Makes the folders and loads what is there into `local` (before its loop part runs). CO_IO and the like with a fault
 * when the folders cannot be made or listed. */
int store_files_open(struct local *local, struct fault *fault);
/* Loop thread: writes what local->saves asks for, unless a batch is out. */
void store_files_kick(struct store_files *files);
/* Loop thread: writes the rest, then calls local_part_closed; the struct is gone. */
void store_files_close(struct store_files *files);

#endif
