/* Rendezvous hashing (highest random weight; Thaler, Ravishankar 1998), weighted: chooses the owners of a key among
 * named members. Every process that knows the same names and weights finds the same owners, without a shared table.
 *
 * A member owns keys in proportion to its weight. Movement is minimal, exactly: when a member leaves, or its weight
 * falls, only keys that it owned change their owners; when one comes, or its weight rises, keys move to it alone. That
 * holds for the best k as well: of k owners the leaving one is replaced, the others stay.
 *
 * A set is prepared once; then a look-up is one multiplication or two for each member and a few logarithms: about two
 * microseconds among 1,000 members of one weight (tests/bench/bench_lb.c). Pure. A set is not changed by look-ups: any
 * number of threads may ask it. */
#ifndef COORD_BASE_RENDEZVOUS_H
#define COORD_BASE_RENDEZVOUS_H

#include <stdbool.h>

#include "base/buffer.h"

struct rendezvous_member {
    struct slice name; /* unique in a set; read by rendezvous_new only */
    double weight;     /* above 0 and finite; others own nothing */
};

struct rendezvous;
/* Members are known by their index in the array. Their order does not matter. */
struct rendezvous *rendezvous_new(const struct rendezvous_member *members, size_t count);
void rendezvous_free(struct rendezvous *set);

uint64_t rendezvous_mix(uint64_t a, uint64_t b); /* one number of two, each bit of it depends on all of both */
struct rendezvous_ask {
    struct slice key;
    size_t most; /* owners wanted */
    /* The part of its keys that each member keeps, by index; NULL: all of them. A second hash of key and member decides
     * whether the member keeps the key. A key that its owner does not keep goes to the next owner that keeps it. When a
     * part grows, some of these keys come back; when it shrinks, more of them leave; no others move. Members that do
     * not keep a key own it only when fewer than `most` others keep it. */
    const double *kept;
    /* Another hash of this key and a member, which is given by the hash of its name. For each key it has to be spread
     * evenly over all numbers, independently from member to member; it may be spread over several keys more evenly than
     * chance would (lb/subset.h). NULL: the usual one; otherwise `key` is not used. */
    uint64_t (*hash)(const void *data, uint64_t member);
    const void *data;
};
/* Writes the indexes of the owners, the first owner first: as many as were wanted, or all. Returns their number. */
size_t rendezvous_owners(const struct rendezvous *set, const struct rendezvous_ask *ask, size_t *owners);
/* The first owner; SIZE_MAX: there is no member of any weight. */
size_t rendezvous_owner(const struct rendezvous *set, struct slice key);

#endif
