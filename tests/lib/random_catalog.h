/* A catalog that changes at random, and what is in it by the plainest way there is. */
#ifndef COORD_TESTS_LIB_RANDOM_CATALOG_H
#define COORD_TESTS_LIB_RANDOM_CATALOG_H

#include "base/random.h"
#include "registry/catalog_changes.h"
#include "tests/lib/fixture.h"

/* A command of the catalog; few names, so that it meets what is there. `any_case`: names are written in any case. */
uint8_t random_catalog_command(struct rng *rng, bool any_case, struct arena *arena, const ProtobufCMessage **message);
/* The same, one that the catalog is told. */
void random_catalog_change(struct fixture *f, struct rng *rng, bool any_case);

/* Instances by their names: "service/node/id" in lower case, and the entry as copies have it. Sorted. */
struct catalog_picture {
    struct picture_row {
        char *key;
        struct buffer entry;
    } * rows;
    size_t count;
};
void picture_add(struct catalog_picture *picture, const Pb__ServiceEntry *entry); /* replaces */
void picture_remove(struct catalog_picture *picture, const char *service, const char *node, const char *id);
bool picture_has(const struct catalog_picture *picture, const char *service, const char *node, const char *id);
void picture_of(struct fixture *f, struct catalog_picture *picture); /* all of its catalog */
struct catalog_picture picture_copy(const struct catalog_picture *picture);
/* Takes what the source says. */
void picture_take(struct catalog_picture *picture, const Pb__CatalogChangesResult *changes);
bool picture_equal(const struct catalog_picture *a, const struct catalog_picture *b);
void picture_free(struct catalog_picture *picture);

#endif
