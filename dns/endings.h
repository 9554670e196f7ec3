/* A set of names with dots, as hashes, that also knows their endings: when "v1.2" is in the set, some name ends with
 * ".2". So "2" has no records, but it exists, because a name below it does (RFC 8020). Case does not matter. */
#ifndef COORD_DNS_ENDINGS_H
#define COORD_DNS_ENDINGS_H

#include "base/buffer.h"

/* Add all names to a buffer of hashes, then sort it once. Names longer than 255 bytes are left out, because DNS cannot
 * ask for them. */
void endings_add(struct buffer *hashes, struct slice name);
void endings_sort(struct buffer *hashes);

enum endings_found { ENDINGS_NONE, ENDINGS_BELOW /* longer names end with it */, ENDINGS_NAME };
enum endings_found endings_find(const uint64_t *hashes, size_t count, struct slice name);

#endif
