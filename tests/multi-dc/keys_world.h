/* Two regions without a network of their own: a source, as two servers of which one is behind, and a region that copies
 * its keys below a prefix, with several servers that believe in turn, and sometimes at once, that they lead. Their
 * questions, proposals and answers take time, get lost, come twice and overtake. All of it from one seed, in virtual
 * time.
 *
 * After each command that the copying region applies it is checked that its keys, when its rule says that they are whole,
 * are as the source's were at the rule's position; that this does not go back; and that keys outside are left alone. */
#ifndef COORD_TESTS_MULTI_DC_KEYS_WORLD_H
#define COORD_TESTS_MULTI_DC_KEYS_WORLD_H

#include "base/random.h"
#include "multi-dc/follower.h"
#include "tests/lib/fixture.h"

#define KEYS_WORLD_CORES 3

struct keys_world_counts {
    size_t listings, changes, refused, lost, repeated, lives, whole;
};
struct keys_world;
struct keys_world *keys_world_new(uint64_t seed, unsigned mutations);
void keys_world_run(struct keys_world *world, size_t steps); /* with faults */
void keys_world_heal(struct keys_world *world); /* until the copy equals the source; a violation when it does not */
const char *keys_world_violation(const struct keys_world *world); /* NULL: none */
struct keys_world_counts keys_world_counts(const struct keys_world *world);
void keys_world_free(struct keys_world *world);

/* In a fixture: a region becomes known. */
void region_becomes_known(struct fixture *f, const char *name);
struct outcome key_put(struct fixture *f, const char *key, const char *value);
/* Of all keys with this prefix: names, values, flags. */
uint64_t keys_hash(struct fixture *f, const char *prefix, size_t *count);

#endif
