/* Shared by module_phaser.c (clients, bytes) and phaser_model.c only. */
#ifndef COORD_TESTS_SIM_PHASER_MODEL_H
#define COORD_TESTS_SIM_PHASER_MODEL_H

#include <stdlib.h>

#include "base/hash.h"
#include "kv/phaser/phaser.h"
#include "tests/sim/modules.h"

#define PHASERS   5  /* p0 ... p4 */
#define NO_PHASER 99 /* no name */

enum phaser_kind { REGISTER, ARRIVE, DEREGISTER, GET, AWAIT };
struct phaser_own {
    uint32_t name, parent, mode;
    bool has_phase, ahead;
    uint64_t phase; /* of an arrival; of a read: as it was seen */
    uint64_t seen;  /* hash of what a read saw */
};
static inline struct phaser_own *own_of(const struct op *op) {
    return OP_AS(struct phaser_own, (struct op *)(uintptr_t)op);
}

static inline void phaser_name(uint32_t name, char room[8]) {
    room[0] = '\0';
    if (name != NO_PHASER) snprintf(room, 8, "p%u", name);
}
static inline uint32_t phaser_number(const char *name) {
    return name[0] == 'p' ? (uint32_t)strtoul(name + 1, NULL, 10) : NO_PHASER;
}

/* -- hashes of what a read sees --------------------------------------------------------------------------------------- */

static inline uint64_t on(uint64_t sum, uint64_t value) {
    uint64_t all[2] = {sum, value};
    return hash64(all, sizeof all);
}

static inline uint64_t sum_phaser(uint64_t phase, uint32_t parent, uint64_t registered, uint64_t arrived,
                                  uint64_t descendants, uint64_t created) {
    return on(on(on(on(on(phase, parent), registered), arrived), descendants), created);
}
static inline uint64_t on_member(uint64_t sum, uint64_t session, unsigned mode, bool arrived, uint64_t created) {
    return on(on(on(on(sum, session), mode), arrived), created);
}
static inline uint64_t on_child(uint64_t sum, uint32_t name, bool signals, bool arrived) {
    return on(on(on(sum, name), signals), arrived);
}
static inline uint64_t sum_await(uint64_t phase, uint64_t registered, unsigned mode, uint64_t created) {
    return on(on(on(phase, registered), mode), created);
}

/* -- the model: as in struct sim_module ------------------------------------------------------------------------------- */

struct phaser_member {
    uint64_t session; /* the operation that made it */
    unsigned mode;
    bool arrived;
    uint64_t created;
};
struct phaser {
    bool there;
    uint32_t parent;
    uint64_t phase, created, began; /* began: the phase */
    size_t count;
    struct phaser_member *members; /* by session */
};
/* The state that a read sees, from `index` on. */
struct phaser_version {
    uint64_t index, sum, registered;
    struct phaser phaser;
};
struct phaser_model {
    struct phaser now[PHASERS];
    struct {
        struct phaser_version *all;
        size_t count;
    } versions[PHASERS];
    struct {
        uint32_t name;
        uint64_t session, index;
    } * left;
    size_t left_count;
};
void phaser_model_end(struct sim *sim);
struct sim_expected phaser_model_apply(struct sim *sim, const struct sim_applied *applied);
void phaser_model_notice(struct sim *sim, const struct sim_notice *notice);
void phaser_model_read(struct sim *sim, const struct op *op);

#endif
