/* Ports of 127.0.0.1 on which nobody listens. */
#ifndef COORD_TESTS_LIB_FREE_PORTS_H
#define COORD_TESTS_LIB_FREE_PORTS_H

#include <stdint.h>

#define FREE_PORTS_MOST 16

/* Different ones, free at this moment, and below those that the kernel gives to whoever dials: so they most likely stay
 * free. */
void free_ports(unsigned count, uint16_t *ports);

#endif
