/* Identifies the running boot of this machine. */
#ifndef COORD_BASE_BOOT_H
#define COORD_BASE_BOOT_H

#include <stdbool.h>

#define BOOT_ID_SIZE 64

/* A text that differs after each start of the machine. False, and "": the kernel gives none. Reads a file of /proc. */
bool boot_id(char room[BOOT_ID_SIZE]);

#endif
