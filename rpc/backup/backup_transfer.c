#include "rpc/backup/backup_transfer.h"

#include <errno.h>
#include <unistd.h>

int backup_file_write(int fd, const char *data, size_t size, uint64_t offset) {
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(fd, data + done, size - done, (off_t)(offset + done));
        if (n > 0) done += (size_t)n;
        else if (n == 0) return CO_IO;
        else if (errno != EINTR) return co_from_errno(errno) == CO_DISKFULL ? CO_DISKFULL : CO_IO;
    }
    return CO_OK;
}
