/* A lock on an open file that ends with the process, however that ends (flock). */
#ifndef COORD_BASE_FILE_LOCK_H
#define COORD_BASE_FILE_LOCK_H

#include <stdbool.h>

/* False: another process has it. Tries for two seconds, because the kernel lets go a moment after the process that
 * held it is gone: a restart at once is not to fail for that. */
bool file_lock(int fd);

#endif
