/* The table of load hints: what each instance last said of its load, and when. Soft state: it is in no log, and a
 * process that begins anew has an empty one until reports come.
 *
 * An instance is a node and a service id. Its report interval is learned from its reports; after three that did not
 * come, nothing is known of it any more. Hints come directly (this process was told, or an agent that is connected to
 * it) or from elsewhere with their age; of two the later one counts. Changes are numbered, so that a process can ask for
 * all since the last time and pass them on. Between servers only direct ones are passed on: what came from elsewhere and
 * went on would come back, a little older each time.
 *
 * Times are nanoseconds of a monotonic clock, given as arguments. Between processes ages travel, never times. Bounded:
 * beyond `most` instances new ones are refused. Not thread-safe. */
#ifndef COORD_LB_LOAD_H
#define COORD_LB_LOAD_H

#include <stdbool.h>

#include "lb/load_hint.h"

#define LOAD_INSTANCES_MOST  100000                      /* what 0 means: about 25 MB */
#define LOAD_NAME_SIZE       1024                        /* longest node, and longest service id */
#define LOAD_INTERVAL_NS     (10 * UINT64_C(1000000000)) /* before the second report */
#define LOAD_INTERVAL_MIN_NS UINT64_C(1000000000)        /* who reports more often is still known for three seconds */
#define LOAD_INTERVAL_MAX_NS (60 * UINT64_C(1000000000))
#define LOAD_SLOW_START_NS   (30 * UINT64_C(1000000000))

struct load_table;
struct load_table *load_table_new(size_t most); /* 0: LOAD_INSTANCES_MOST */
void load_table_free(struct load_table *table);

struct load_instance {
    struct slice node, service_id; /* case counts; callers write the node as the catalog has it */
    struct slice service; /* its service's name, by which load_of_service finds it, without case. Empty: not known */
};
/* What is known of one, or what is passed on. */
struct load_entry {
    struct load_instance instance; /* from the table: until its next change */
    struct load_hint hint;         /* load NAN: none, or it has aged out */
    uint64_t age_ns;               /* of the hint */
    uint64_t interval_ns;          /* between its reports */
    uint64_t known_ns;             /* for how long the instance has been known (load_share) */
    double kept;                   /* the share of its keys that it keeps (lb/keep.h) */
    bool direct;                   /* load_merge: of an agent that is connected to this process, so it is passed on */
};

/* A report that came now. CO_INVALID: load_check says why. CO_TOOLARGE: a name is. CO_BUSY: the table is full. */
int load_report(struct load_table *table, struct load_instance instance, const struct load_hint *hint, uint64_t now_ns);
/* A hint from elsewhere. It is passed over (CO_OK) when it is older than the one that is there, or has aged out; if it is
 * direct, the one that is there is so from then on. An instance that was registered after the hint that is there begins
 * anew. Errors as above. */
int load_merge(struct load_table *table, const struct load_entry *entry, uint64_t now_ns);
/* Of an instance of this process: the share of its keys alone, as another process decided it. */
void load_merge_kept(struct load_table *table, const struct load_entry *entry, uint64_t now_ns);
/* Decides which share of its keys each instance keeps that is heard of directly, where the load of a service's instances
 * has changed. The mean is over all instances whose load is known; one whose requests fail counts for it in part. Shares are
 * parts of the greatest one: where all are decided here, that is 1. */
void load_decide(struct load_table *table, uint64_t now_ns);
/* The instance was registered then: it starts slowly although it may never report. The earliest time counts. */
int load_started(struct load_table *table, struct load_instance instance, uint64_t then_ns);
/* The catalog has it, registered by the change `created`. When it was registered by an earlier one before, as is known here
 * or by the caller (it saw that one at `before_ns`; 0: it saw none), it begins now: nothing that was known of it counts,
 * except for what it has said itself since it was registered by this one. */
int load_created(struct load_table *table, struct load_instance instance, uint64_t created, uint64_t before_ns,
                 uint64_t now_ns);
void load_forget(struct load_table *table, struct load_instance instance); /* it was deregistered */

/* False: nothing is known of it, not even since when it is there. */
bool load_get(const struct load_table *table, struct load_instance instance, uint64_t now_ns, struct load_entry *entry);
/* The part of its weight that an instance is to get so long after it began: grows linearly to 1 over `slow_start_ns`,
 * from a hundredth, so that a service whose instances are all new is served. slow_start_ns 0: 1. */
double load_share(uint64_t known_ns, uint64_t slow_start_ns);

/* The number of the last change. 0: there was none. */
uint64_t load_sequence(const struct load_table *table);
/* What changed after `since`: each instance once, with its present hint, in the order of the changes; at most `most`.
 * Returns the sequence to ask from the next time. What was forgotten or aged out is not in it: whoever follows has the
 * intervals, and the catalog. `each` may not change the table. */
enum load_which { LOAD_ALL, LOAD_DIRECT };
uint64_t load_changes(const struct load_table *table, uint64_t since, enum load_which which, size_t most,
                      uint64_t now_ns, void (*each)(void *data, const struct load_entry *entry), void *data);
/* What is known of the instances of a service, in no order; at most `most`. */
void load_of_service(const struct load_table *table, struct slice service, size_t most, uint64_t now_ns,
                     void (*each)(void *data, const struct load_entry *entry), void *data);
/* Has any of them ever said its load? (It may have aged out since.) */
bool load_service_known(const struct load_table *table, struct slice service);
/* Counts services of which it was not known before that they say their load. */
uint64_t load_services_begun(const struct load_table *table);

/* Frees what has long aged out. Cheap when there is nothing: to be called every few seconds. */
void load_tick(struct load_table *table, uint64_t now_ns);
size_t load_count(const struct load_table *table);
uint64_t load_refused(const struct load_table *table); /* instances for which there was no room */

#endif
