/* Which run of this machine's kernel it is. */
#ifndef COORD_BASE_BOOT_H
#define COORD_BASE_BOOT_H

#include <stdbool.h>

#define BOOT_ID_SIZE 64

/* A text that differs after each start of the machine. False, and "": there is none to be had. Reads a file of the
 * kernel's. */
bool boot_id(char room[BOOT_ID_SIZE]);

#endif
