/* What a process knows of the load of instances (lb/load.h) and of hot keys (lb/hot.h), for all its threads: those who
 * report, those who pass it on (rpc/), those who pick (lb/balance.h). Soft state, made anew with the process.
 *
 * Any thread; one lock, held for microseconds, or for some hundreds of them where a whole service is looked at. Times
 * are nanoseconds of the monotonic clock. */
#ifndef COORD_LB_HINTS_H
#define COORD_LB_HINTS_H

#include "lb/hot.h"
#include "lb/load.h"

struct hints;
struct hints *hints_new(uint64_t slow_start_ns); /* 0: new instances get their whole share at once */
void hints_free(struct hints *hints);            /* NULL allowed */
/* This process decides which share of their keys the instances keep that it hears of directly (lb/keep.h): servers do. */
void hints_decides(struct hints *hints);
uint64_t hints_slow_start(const struct hints *hints);

/* -- reports ------------------------------------------------------------------------------------------------------ */
/* An instance of this host says its load. `registered_ns`: when it was registered; 0: long ago. As load_report. */
int hints_report(struct hints *hints, struct load_instance instance, const struct load_hint *hint,
                 uint64_t registered_ns, uint64_t now_ns);
void hints_created(struct hints *hints, struct load_instance instance, uint64_t created, uint64_t before_ns,
                   uint64_t now_ns); /* load_created */
void hints_forget(struct hints *hints, struct load_instance instance);

/* -- between processes -------------------------------------------------------------------------------------------- */
/* A frame of hints (lb/load_wire.h). `direct`: it is of an agent that is connected here. `but_node`: what it says of this
 * node is passed over ("": nothing is), because who gets it back from others knows better, but for the share of keys that
 * was decided there. CO_CORRUPT: what did not
 * decode has been left out. What there is no room for, or makes no sense, is passed over. */
int hints_take(struct hints *hints, struct slice frame, bool direct, struct slice but_node, uint64_t now_ns);
/* Appends what changed after `since` (0: everything), as load_changes; returns from where to go on. */
uint64_t hints_changes(struct hints *hints, uint64_t since, enum load_which which, size_t most, uint64_t now_ns,
                       struct buffer *out);
/* The same, one by one; `each` may not call anything here. */
uint64_t hints_each_change(struct hints *hints, uint64_t since, enum load_which which, size_t most, uint64_t now_ns,
                           void (*each)(void *data, const struct load_entry *entry), void *data);
/* Appends all that is known of a service's instances; what there is so far goes to `full` whenever it is a frame of good
 * size, and `out` is emptied. `full` may not call anything here. */
void hints_of_service(struct hints *hints, struct slice service, uint64_t now_ns, struct buffer *out,
                      void (*full)(void *data, struct slice frame), void *data);
#define HINTS_FRAME_MOST 4096         /* hints in a frame that is made at once: below 16 MiB whatever their names */
#define HINTS_FRAME_SIZE (256u << 10) /* a frame of good size */
void hints_tick(struct hints *hints, uint64_t now_ns); /* every few seconds */

/* -- what is asked ------------------------------------------------------------------------------------------------ */
/* Cheap. The number of the last change; 0: nobody has ever reported anything. */
uint64_t hints_sequence(const struct hints *hints);
/* Cheap. Another one: services say their load now that did not when it was looked at (hints_known). */
uint64_t hints_begun(const struct hints *hints);
bool hints_known(struct hints *hints, struct slice service); /* does it say its load? */
/* Of many instances, in one go: `at` says which the i-th is, `see` gets what is known of it (false: nothing). */
void hints_look(struct hints *hints, size_t count, uint64_t now_ns, struct load_instance (*at)(void *data, size_t i),
                void (*see)(void *data, size_t i, bool known, const struct load_entry *entry), void *data);
size_t hints_count(struct hints *hints);

/* -- keys --------------------------------------------------------------------------------------------------------- */
void hints_key(struct hints *hints, struct slice service, struct slice key,
               uint64_t now_ns); /* it was looked up here */
/* As hot_take, hot_merge. */
void hints_keys_take(struct hints *hints, struct buffer *out);
int hints_keys_merge(struct hints *hints, struct slice frame, bool onward, uint64_t now_ns);
/* As hot_look, while it is locked: `see` is called with what there is, or NULL. */
void hints_hot(struct hints *hints, struct slice service, uint64_t now_ns,
               void (*see)(void *data, const struct hot_service *found), void *data);

#endif
