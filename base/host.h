/* Parses the address of a registration: an IP address or a host name. People write anything there. HTTP shows it as it
 * was given, DNS only answers with addresses and host names. Pure. */
#ifndef COORD_BASE_HOST_H
#define COORD_BASE_HOST_H

#include "base/buffer.h"

struct host {
    uint8_t address[16], size; /* 4: IPv4, also one that is written as IPv6 (::ffff:10.0.0.1); 16: IPv6; 0: neither */
    struct slice name;         /* then: `text`, when it is a host name; empty: it is neither */
};
/* Takes the text as it stands: with blanks, brackets, a port, a zone (%eth0) or numbers with leading zeros it is
 * neither. */
struct host host_parse(const char *text);

/* Labels joined by dots, 253 bytes at most, as RFC 952 and 1123 have them in host names: letters, digits, hyphens
 * but at the ends, 1 to 63 of them. Underscores too, because names of containers and of Windows hosts have them, and
 * resolvers (glibc's res_hnok) take them. */
bool host_labels_valid(struct slice text);
/* The same as a whole name, with or without a dot at its end. Its last label is no number, decimal or hexadecimal,
 * because clients would take that for an IPv4 address (RFC 1123, 2.1; inet_aton): 10.0.0.256 is no host name. */
bool host_name_valid(struct slice text);

#endif
