/* A set of names with dots, by hashes, that also knows what they end with: with "v1.2" in it names that end with ".2"
 * are there. So "2" has no records, but is not missing either (RFC 8020). Without regard to case. */
#ifndef COORD_DNS_ENDINGS_H
#define COORD_DNS_ENDINGS_H

#include "base/buffer.h"

/* Collect: a buffer of hashes; then sort, once. Names beyond 255 bytes, which DNS cannot ask for, are left out. */
void endings_add(struct buffer *hashes, struct slice name);
void endings_sort(struct buffer *hashes);

enum endings_found { ENDINGS_NONE, ENDINGS_BELOW /* longer names end with it */, ENDINGS_NAME };
enum endings_found endings_find(const uint64_t *hashes, size_t count, struct slice name);

#endif
