/* For how long no agent ran on this data folder. The time of change of `local/definitions` is a running agent's sign
 * of life by the wall clock, its time of access the same by the time that the machine is up, which does not jump;
 * `local/boot` says of which start of the machine that is. Where it is of another one, or not known, the wall clock
 * alone tells, and again at the next start if no sign of life was written in between. */
#ifndef COORD_HEALTH_AWAY_H
#define COORD_HEALTH_AWAY_H

#include <stdint.h>

/* Before `local/definitions` is read (which may change its time of access). Nanoseconds; 0: not known. */
int64_t away_ns(const char *folder);

/* After it, with the folder there. CO_IO and the like: the next away_ns goes by the wall clock alone. Not synced:
 * what a crash of the machine leaves of it is of another start anyway. */
int away_note_boot(const char *folder);

/* What the sign of life is, in seconds as uv_fs_utime takes them. */
void away_now(double *access, double *change);

#endif
