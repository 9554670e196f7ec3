#include "base/boot.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool boot_id(char room[BOOT_ID_SIZE]) {
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, room, BOOT_ID_SIZE - 1);
    if (fd >= 0) close(fd);
    room[got > 0 ? got : 0] = '\0';
    room[strcspn(room, "\n")] = '\0';
    return room[0] != '\0';
}
