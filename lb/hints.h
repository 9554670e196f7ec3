/* A process's table of load hints (lb/load.h) and of hot keys (lb/hot.h), shared by all its threads: the ones that
 * report, pass hints on (rpc/), or pick (lb/balance.h). Soft state: a process that starts begins with an empty one.
 *
 * Any thread; one lock, held for microseconds, or for some hundred microseconds when a whole service is read. Times are
 * nanoseconds of the monotonic clock. */
#ifndef COORD_LB_HINTS_H
#define COORD_LB_HINTS_H

#include "lb/hot.h"
#include "lb/load.h"

struct hints;
struct hints *hints_new(uint64_t slow_start_ns); /* 0: new instances get their whole share at once */
void hints_free(struct hints *hints);            /* NULL allowed */
/* This process decides the share of keys (lb/keep.h) of the instances that it hears of directly. Servers do. */
void hints_decides(struct hints *hints);
uint64_t hints_slow_start(const struct hints *hints);

/* -- reports ------------------------------------------------------------------------------------------------------ */
/* An instance of this host reports its load. `registered_ns`: when it was registered; 0: long ago. Returns as
 * load_report. */
int hints_report(struct hints *hints, struct load_instance instance, const struct load_hint *hint,
                 uint64_t registered_ns, uint64_t now_ns);
void hints_created(struct hints *hints, struct load_instance instance, uint64_t created, uint64_t before_ns,
                   uint64_t now_ns); /* load_created */
void hints_forget(struct hints *hints, struct load_instance instance);

/* -- between processes -------------------------------------------------------------------------------------------- */
/* Takes in a frame of hints (lb/load_wire.h). `direct`: it came from an agent that is connected here. `but_node`: hints
 * of this node are left out ("": none), except for the share of keys that another process decided, because the node
 * itself knows its load better. CO_CORRUPT: the rest of the frame did not decode, and was left out. Invalid hints, and
 * those for which there is no room, are left out too. */
int hints_take(struct hints *hints, struct slice frame, bool direct, struct slice but_node, uint64_t now_ns);
/* Appends the changes after `since` (0: everything), as load_changes; returns the sequence from which to go on. */
uint64_t hints_changes(struct hints *hints, uint64_t since, enum load_which which, size_t most, uint64_t now_ns,
                       struct buffer *out);
/* The same, one by one; `each` may not call anything here. */
uint64_t hints_each_change(struct hints *hints, uint64_t since, enum load_which which, size_t most, uint64_t now_ns,
                           void (*each)(void *data, const struct load_entry *entry), void *data);
/* Appends all hints of a service's instances. Whenever `out` is a frame of good size it goes to `full`, and is emptied.
 * `full` may not call anything here. */
void hints_of_service(struct hints *hints, struct slice service, uint64_t now_ns, struct buffer *out,
                      void (*full)(void *data, struct slice frame), void *data);
#define HINTS_FRAME_MOST 4096         /* hints in a frame that is made at once: below 16 MiB whatever their names */
#define HINTS_FRAME_SIZE (256u << 10) /* a frame of good size */
void hints_tick(struct hints *hints, uint64_t now_ns); /* every few seconds */

/* -- queries ------------------------------------------------------------------------------------------------------ */
/* Cheap. The number of the last change; 0: nobody has ever reported anything. */
uint64_t hints_sequence(const struct hints *hints);
/* Cheap. When the number is another one, instances of services report their load now that did not before
 * (hints_known). */
uint64_t hints_begun(const struct hints *hints);
bool hints_known(struct hints *hints, struct slice service); /* does any of its instances report its load? */
/* Looks up many instances at once: `at` names the i-th, `see` gets its hint (false: there is none). */
void hints_look(struct hints *hints, size_t count, uint64_t now_ns, struct load_instance (*at)(void *data, size_t i),
                void (*see)(void *data, size_t i, bool known, const struct load_entry *entry), void *data);
size_t hints_count(struct hints *hints);

/* -- keys --------------------------------------------------------------------------------------------------------- */
void hints_key(struct hints *hints, struct slice service, struct slice key,
               uint64_t now_ns); /* this process has looked the key up */
/* As hot_take, hot_merge. */
void hints_keys_take(struct hints *hints, struct buffer *out);
int hints_keys_merge(struct hints *hints, struct slice frame, bool onward, uint64_t now_ns);
/* As hot_look. Calls `see` with the result, or NULL, while the lock is held. */
void hints_hot(struct hints *hints, struct slice service, uint64_t now_ns,
               void (*see)(void *data, const struct hot_service *found), void *data);

#endif
