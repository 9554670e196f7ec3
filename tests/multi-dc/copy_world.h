/* Two regions without a network of their own: a source, as two servers of which one is behind, and a region that copies
 * it, with several servers that believe in turn, and sometimes at once, that they lead. Their questions, proposals and
 * answers take time, get lost, come twice and overtake. All of it from one seed, in virtual time.
 *
 * After each command that the copying region applies it is checked that readers see one past state of the source, the
 * one that the copy says it is, and that it does not go back. */
#ifndef COORD_TESTS_MULTI_DC_COPY_WORLD_H
#define COORD_TESTS_MULTI_DC_COPY_WORLD_H

#include "multi-dc/follower.h"
#include "tests/lib/random_catalog.h"

#define WORLD_CORES 3

struct world_counts {
    size_t updates, stages, commits, tidied, refused, flips, lost, repeated, lives;
};
struct world;
struct world *world_new(uint64_t seed, unsigned mutations);
void world_run(struct world *world, size_t steps); /* with faults */
void world_heal(struct world *world);              /* until the copy equals the source; a violation when it does not */
const char *world_violation(const struct world *world); /* NULL: none */
struct world_counts world_counts(const struct world *world);
void world_free(struct world *world);

/* The picture that readers see of the copy. */
void picture_of_copy(struct fixture *f, const char *region, struct catalog_picture *picture);

#endif
