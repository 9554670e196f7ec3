/* Locks as a module: commands, queries, lock-delays. */
#include "kv/lock/lock.h"

#include "base/check.h"
#include "kv/lock/lock_queue_module.h"

enum { LOCK_TABLE = 22, LOCK_TABLE_ASIDE = 23, LOCK_TABLE_SESSIONS = 24 };
_Static_assert(LOCK_TABLE >= 16 && LOCK_TABLE_SESSIONS < 40, "tables of kv (registry/module.h)");
_Static_assert(LOCK_ACQUIRE >= 32 && LOCK_DELAY_OVER < 64, "commands of kv");
_Static_assert(SPACE_LOCK >= 32 && SPACE_LOCK_ENTRY < 64, "spaces of kv");

QUEUE_APPLY(lock_family, acquire)
QUEUE_APPLY(lock_family, release)
QUEUE_APPLY(lock_family, delay_over)
QUEUE_ENDS(lock_family)
static const struct expiry_kind delay_expiry = {
    .number = 5, .name = "delay of a lock", .quiet = true, .read = delays_read, .end = delay_end};

/* -- queries ------------------------------------------------------------------------------------------------------ */

QUEUE_WATCHED(lock, SPACE_LOCK)
QUEUE_WATCHED(entry, SPACE_LOCK_ENTRY)
QUEUE_RUN(lock_family, view)
QUEUE_RUN(lock_family, entry)
QUEUE_RUN(lock_family, holder)
QUEUE_RUN(lock_family, list)

const struct query_type query_lock = {.number = 38,
                                      .name = "lock",
                                      .request = &pb__queue_request__descriptor,
                                      .result = &pb__queue_view__descriptor,
                                      .watched = lock_watched,
                                      .run = view_run,
                                      .show = queue_view_show};
const struct query_type query_lock_entry = {.number = 39,
                                            .name = "lock-entry",
                                            .request = &pb__queue_entry_request__descriptor,
                                            .result = &pb__queue_answer__descriptor,
                                            .watched = entry_watched,
                                            .run = entry_run,
                                            .show = queue_answer_show};
const struct query_type query_lock_holder = {.number = 41,
                                             .name = "lock-holder",
                                             .request = &pb__queue_request__descriptor,
                                             .result = &pb__queue_answer__descriptor,
                                             .watched = lock_watched,
                                             .run = holder_run,
                                             .show = queue_answer_show};
const struct query_type query_locks = {.number = 40,
                                       .name = "locks",
                                       .request = &pb__queue_list_request__descriptor,
                                       .result = &pb__queue_list_result__descriptor,
                                       .watched = lock_watched,
                                       .run = list_run,
                                       .show = queue_list_show};

/* -- the table ---------------------------------------------------------------------------------------------------- */

static const struct module_command commands[] = {
    {.number = LOCK_ACQUIRE,
     .name = "lock-acquire",
     .request = &pb__queue_acquire_command__descriptor,
     .result = &pb__queue_answer__descriptor,
     .marks = true,
     .may = queue_acquire_may,
     .apply = acquire_apply},
    {.number = LOCK_RELEASE,
     .name = "lock-release",
     .request = &pb__queue_release_command__descriptor,
     .may = queue_release_may,
     .apply = release_apply},
    {.number = LOCK_DELAY_OVER,
     .servers_only = true,
     .name = "lock-delay-over",
     .request = &pb__queue_delay_over_command__descriptor,
     .apply = delay_over_apply},
    {0},
};
static const struct store_table tables[] = {
    {LOCK_TABLE, "locks"}, {LOCK_TABLE_ASIDE, "locks-aside"}, {LOCK_TABLE_SESSIONS, "locks-sessions"}, {0}};
static const uint8_t topic_tables[] = {LOCK_TABLE, LOCK_TABLE_ASIDE, 0}, topic_spaces[] = {SPACE_LOCK, 0};
static const struct module_space spaces[] = {{SPACE_LOCK, "lock"}, {SPACE_LOCK_ENTRY, "lock-entry"}, {0}};
static const struct query_type *const queries[] = {&query_lock, &query_lock_entry, &query_lock_holder, &query_locks,
                                                   NULL};
static const struct expiry_kind *const expiries[] = {&delay_expiry, NULL};
static const struct module_binding session_bindings[] = {{.number = LOCK_TABLE_SESSIONS, .ended = session_ended}, {0}};

const struct queue_family lock_family = {.noun = "lock",
                                         .table = LOCK_TABLE,
                                         .aside = LOCK_TABLE_ASIDE,
                                         .space = SPACE_LOCK,
                                         .entry_space = SPACE_LOCK_ENTRY,
                                         .delay_over = LOCK_DELAY_OVER,
                                         .binding = session_bindings,
                                         .delay = &delay_expiry};

const struct module lock_module = {.name = "lock",
                                   .commands = commands,
                                   .tables = tables,
                                   .spaces = spaces,
                                   .queries = queries,
                                   .expiries = expiries,
                                   .session_bindings = session_bindings,
                                   .topic = HISTORY_LOCKS,
                                   .topic_tables = topic_tables,
                                   .topic_spaces = topic_spaces};
