/* A simulation of owners of keys whose loads follow their keys: servers that decide (lb/keep.h), an agent that follows,
 * hints that come late, and instances that report what they measured.
 *
 * Assumed: all keys are looked up equally often, a third each at two servers and at an agent. The load of an instance is
 * its slowness times its part of the look-ups, `busy` on average where all are equally fast; reports may be a mean over
 * time, and noisy. Each half of the instances reports to one of the servers. Time goes in steps of STEP_MS. */
#ifndef COORD_TESTS_BALANCE_KEYS_H
#define COORD_TESTS_BALANCE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEYS_INSTANCES_MOST = 64, KEYS_COUNT = 2000, KEYS_SECONDS_MOST = 600 };

enum keys_way {
    KEYS_SHARES,  /* lb/keep.h: a share of the keys is given up, by the key's hash */
    KEYS_WEIGHTS, /* the same shares, as weights of rendezvous hashing */
    KEYS_ALL,     /* who is beyond the bound is passed over, for all keys (by its last report) */
    KEYS_NOTHING, /* no bound */
    KEYS_WAYS
};
extern const char *const keys_way_names[KEYS_WAYS];

struct keys_run {
    enum keys_way way;
    size_t instances;
    size_t slow;               /* the first so many ... */
    double slowness;           /* ... have this times the load for a key */
    double report_s, delay_s;  /* between reports; on each way between processes */
    double mean_s;             /* reports are the mean over about so long; 0: of that moment */
    double noise;              /* they are wrong by up to this part */
    unsigned seconds, settled; /* how long it lasts; what is measured is after that second, and after ... */
    unsigned recovers, dies,
        comes; /* ... at this second the slow ones are as fast as the others; the last one is gone; is
                                       there again. 0: never */
    uint64_t seed;
};

struct keys_outcome {
    double most_moved, moved; /* part of the keys that has another owner than a second ago: the most, the mean */
    double most_load;         /* the greatest load over the mean load, its mean over the seconds */
    double within_s;          /* the last second at which it was above 1.05 times the bound; 0: never */
    double apart;             /* part of the keys that two of those who are asked name different owners for, the mean */
    double away;              /* part of the keys that are not at their first owner in the end */
    double loads[KEYS_SECONDS_MOST]; /* greatest load over the mean load, by second */
};
void keys_run(const struct keys_run *run, struct keys_outcome *outcome);

#endif
