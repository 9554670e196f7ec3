#include "base/file_lock.h"

#include <sys/file.h>
#include <unistd.h>

#define TRIES    40
#define PAUSE_US 50000

bool file_lock(int fd) {
    bool locked = false;
    for (int tries = 0; !(locked = flock(fd, LOCK_EX | LOCK_NB) == 0) && tries < TRIES; tries++) usleep(PAUSE_US);
    return locked;
}
