#include "base/file_out.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"

#define QUICK_NS     2000000 /* a wait that does not slow others down */
#define REST_NS_MOST 100000000

int file_out(int fd, uint64_t offset, uint64_t size) {
    uint64_t begun = clock_mono_ns();
    if (sync_file_range(fd, (off_t)offset, (off_t)size, SYNC_FILE_RANGE_WAIT_BEFORE) != 0) return co_from_errno(errno);
    uint64_t waited = clock_mono_ns() - begun;
    if (waited > REST_NS_MOST) waited = REST_NS_MOST;
    if (waited > QUICK_NS) nanosleep(&(struct timespec){0, (long)waited}, NULL);
    return sync_file_range(fd, (off_t)offset, (off_t)size, SYNC_FILE_RANGE_WRITE) == 0 ? CO_OK : co_from_errno(errno);
}
