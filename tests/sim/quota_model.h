/* Shared by module_quota.c (clients, bytes) and quota_model.c only. */
#ifndef COORD_TESTS_SIM_QUOTA_MODEL_H
#define COORD_TESTS_SIM_QUOTA_MODEL_H

#include "base/hash.h"
#include "kv/quota/quota.h"
#include "tests/sim/modules.h"
#include "tests/sim/versions.h"

#define QUOTAS         4 /* q0 ...: lease, bounded, owner, and lease with windows */
#define QUOTA_SLACK    1
#define QUOTA_OWNED    2
#define QUOTA_WINDOWED 3
#define QUOTA_TTL      1000 /* ms, of all leases */
#define QUOTA_EVERY    100  /* ms, of all refills */
#define QUOTA_SPLITS   3    /* keys */
#define QUOTA_LEASES   64

enum quota_kind {
    QUOTA_OP_ASK,
    QUOTA_OP_SETTLE,
    QUOTA_OP_DEFINE,
    QUOTA_OP_DELETE,
    QUOTA_OP_LOOK,
    QUOTA_OP_FOLLOW,
    QUOTA_OP_TRAIL
};
struct quota_own {
    uint8_t budget, priority;
    bool close, leaseless;
    uint8_t split;        /* a key, from 1, in want % 4 parts */
    uint8_t error;        /* what became of the ask */
    uint16_t spend, hold; /* permille: of the balance, and of what is left of it */
    uint32_t want, take;  /* of a definition: capacity, tokens */
    uint32_t spent, held;
    uint32_t balance;    /* granted */
    uint64_t lease, seq; /* lease: as it is said, then as it was granted */
    uint64_t epoch;      /* acknowledged, then as it was told */
    uint64_t sum;        /* of what a read saw */
};
static inline struct quota_own *quota_own(const struct op *op) {
    return OP_AS(struct quota_own, (struct op *)(uintptr_t)op);
}
static inline void quota_name(unsigned budget, char name[8]) { snprintf(name, 8, "q%u", budget); }

static inline uint64_t quota_on(uint64_t sum, uint64_t value) {
    uint64_t all[2] = {sum, value};
    return hash64(all, sizeof all);
}
/* The sums that reads see, made alike from the servers' records and from the model. */
struct quota_sums {
    uint64_t capacity, spent, stranded, balances, held, armed, epoch, active;
    bool starving;
};
static inline uint64_t quota_sum(const struct quota_sums *sums) {
    uint64_t all[] = {sums->capacity, sums->spent, sums->stranded, sums->balances, sums->held,
                      sums->armed,    sums->epoch, sums->active,   sums->starving};
    return hash64(all, sizeof all);
}

/* Of the last row of a trail; of one that does not add up another number. */
#define QUOTA_UNKNOWN UINT64_MAX /* it was not seen to its end */
static inline uint64_t quota_trail_sum(uint64_t spent, uint64_t stranded, uint64_t balances) {
    return quota_on(quota_on(spent, stranded), balances);
}

/* The model; as in struct sim_module. */
struct quota_lease {
    uint64_t id, session, seq, balance, want, renewed, acked;
    uint64_t asked_us; /* when the last ask of it was sent */
    bool reclaimed;    /* its session has ended */
    struct {
        uint64_t granted, balance;
        bool taken;
    } answer;
};
struct quota_budget {
    bool there, starving, noted, low;
    bool denied, denies; /* somebody got less than it asked for, and nothing came since; by this entry */
    uint64_t came, room; /* when something came after that; what could be taken at the last entry */
    uint64_t capacity, tokens, defined;
    uint64_t spent, stranded, armed, armed_us;
    int64_t window_s;
    uint64_t noticed; /* index of the last change of its notice */
    uint64_t epoch, active;
    uint8_t parts[QUOTA_SPLITS]; /* 0: not split */
    uint64_t highest;            /* capacity and drift were that at most */
    struct quota_lease leases[QUOTA_LEASES];
    size_t count;
};
struct quota_model {
    struct quota_budget budgets[QUOTAS];
    struct versions versions[QUOTAS];
};
void quota_model_end(struct sim *sim);
struct sim_expected quota_model_apply(struct sim *sim, const struct sim_applied *applied);
void quota_model_notice(struct sim *sim, const struct sim_notice *notice);
void quota_model_read(struct sim *sim, const struct op *op);
bool quota_model_over(struct sim *sim); /* no lease is left */

#endif
