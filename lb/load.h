/* The table of load hints: the last report of each instance's load, and its time. Soft state: it is in no log, and a
 * process that starts has an empty table until reports come.
 *
 * An instance is a node and a service id. The table learns an instance's interval from its reports; after three missing
 * reports the hint no longer counts. A hint comes directly (to this process, or to an agent that is connected to it) or
 * from elsewhere with its age; the later one of two counts. Changes are numbered, so that a process can pass on all
 * changes since the last time. Servers pass only direct hints on to each other, because others would come back, a
 * little older each time.
 *
 * Times are nanoseconds of a monotonic clock, given as arguments. Between processes ages travel, never times. Bounded:
 * beyond `most` instances new ones are refused. Not thread-safe. */
#ifndef COORD_LB_LOAD_H
#define COORD_LB_LOAD_H

#include <stdbool.h>

#include "lb/load_hint.h"

#define LOAD_INSTANCES_MOST  100000                      /* the value for 0: about 25 MB */
#define LOAD_NAME_SIZE       1024                        /* longest node, and longest service id */
#define LOAD_INTERVAL_NS     (10 * UINT64_C(1000000000)) /* before the second report */
#define LOAD_INTERVAL_MIN_NS UINT64_C(1000000000)        /* so a hint counts for three seconds at least */
#define LOAD_INTERVAL_MAX_NS (60 * UINT64_C(1000000000))
#define LOAD_SLOW_START_NS   (30 * UINT64_C(1000000000))

struct load_table;
struct load_table *load_table_new(size_t most); /* 0: LOAD_INSTANCES_MOST */
void load_table_free(struct load_table *table);

struct load_instance {
    struct slice node, service_id; /* upper and lower case differ; callers write the node as the catalog has it */
    struct slice service;          /* its service's name in any case, for load_of_service. Empty: not known */
};
/* A hint of an instance, in the table or on its way. */
struct load_entry {
    struct load_instance instance; /* in hints from the table: valid until its next change */
    struct load_hint hint;         /* load NAN: no report, or it has aged out */
    uint64_t age_ns;               /* of the hint */
    uint64_t interval_ns;          /* between its reports */
    uint64_t known_ns;             /* the time since the instance became known (load_share) */
    double kept;                   /* the share of its keys that it keeps (lb/keep.h) */
    bool direct;                   /* load_merge: from an agent that is connected to this process, so it is passed on */
};

/* A report came now. CO_INVALID: load_check has the reason. CO_TOOLARGE: a name is too long. CO_BUSY: the table is
 * full. */
int load_report(struct load_table *table, struct load_instance instance, const struct load_hint *hint, uint64_t now_ns);
/* Takes in a hint from elsewhere. A hint that has aged out, or is older than the table's, is left out (CO_OK); if it is
 * direct, the table's hint counts as direct from then on. An instance that was registered after the table's hint begins
 * anew. Errors as above. */
int load_merge(struct load_table *table, const struct load_entry *entry, uint64_t now_ns);
/* Takes over only the share of keys, as another process decided it, of an instance of this process. */
void load_merge_kept(struct load_table *table, const struct load_entry *entry, uint64_t now_ns);
/* For services whose load has changed: decides the share of keys of each instance that is heard of directly. The mean
 * is over all instances whose load is known; an instance whose requests fail counts in part. Shares are relative to the
 * greatest one, which is 1 when all are decided here. */
void load_decide(struct load_table *table, uint64_t now_ns);
/* The instance was registered at that time, so it starts slowly even if it never reports. The earliest time counts. */
int load_started(struct load_table *table, struct load_instance instance, uint64_t then_ns);
/* The catalog has the instance, registered by the change `created`. When the table, or the caller (it saw an earlier
 * registration at `before_ns`; 0: it saw none), knows an earlier one, the instance begins anew now: its former hint no
 * longer counts, except a hint that it has said since this registration. */
int load_created(struct load_table *table, struct load_instance instance, uint64_t created, uint64_t before_ns,
                 uint64_t now_ns);
void load_forget(struct load_table *table, struct load_instance instance); /* it was deregistered */

/* False: the table does not have the instance. */
bool load_get(const struct load_table *table, struct load_instance instance, uint64_t now_ns, struct load_entry *entry);
/* The part of its weight that an instance gets this long after it began: it grows linearly from a hundredth to 1 over
 * `slow_start_ns`. It is never 0, so that a service with only new instances is served. slow_start_ns 0: 1. */
double load_share(uint64_t known_ns, uint64_t slow_start_ns);

/* The number of the last change; 0: there was none. */
uint64_t load_sequence(const struct load_table *table);
/* Calls `each` for the instances that changed after `since`: each once, with its present hint, in the order of the
 * changes; at most `most`. Returns the sequence for the next call. Forgotten and aged-out hints are left out, because
 * followers have the intervals, and the catalog. `each` may not change the table. */
enum load_which { LOAD_ALL, LOAD_DIRECT };
uint64_t load_changes(const struct load_table *table, uint64_t since, enum load_which which, size_t most,
                      uint64_t now_ns, void (*each)(void *data, const struct load_entry *entry), void *data);
/* Calls `each` for the hints of a service's instances, in no order; at most `most`. */
void load_of_service(const struct load_table *table, struct slice service, size_t most, uint64_t now_ns,
                     void (*each)(void *data, const struct load_entry *entry), void *data);
/* Has any instance of the service ever reported its load? (The report may have aged out since.) */
bool load_service_known(const struct load_table *table, struct slice service);
/* Changes when an instance of a service reports its load for the first time. */
uint64_t load_services_begun(const struct load_table *table);

/* Frees entries that have long aged out. Cheap when there are none; to be called every few seconds. */
void load_tick(struct load_table *table, uint64_t now_ns);
size_t load_count(const struct load_table *table);
uint64_t load_refused(const struct load_table *table); /* instances for which there was no room */

#endif
