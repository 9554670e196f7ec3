/* The inside of local.h, shared by local*.c, store_files.c and anti_entropy*.c.
 *
 * Services and checks are *items*: an id, a place in a table sorted by id, and where they stand with the catalog. Ids
 * that differ only in case are the same id; the spelling of the last registration is kept. An item that was
 * deregistered stays, `removed`, until it is gone from the catalog as well.
 *
 *     dirty --gathered--> flying --delivered--> in sync (freed when removed)
 *       ^-----touched-------+---failed---> dirty again, in its old place
 *
 * `sequence` counts changes; each item carries that of its last one; the dirty list is in that order. So "everything up
 * to change N has been delivered" is a look at the first dirty item and at the items that are flying (local_on_synced).
 *
 * One lock guards tables, items and lists. A *watcher* is the loop's side of a check: its timer, and its attempt under
 * way. item -> watcher and watcher -> item are set by the loop only, under the lock. */
#ifndef COORD_HEALTH_LOCAL_INTERNAL_H
#define COORD_HEALTH_LOCAL_INTERNAL_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/random.h"
#include "health/check.h"
#include "health/check_runner.h"
#include "health/check_state.h"
#include "health/definition.h"

struct watcher;
struct anti_entropy_run;
struct liveness;
struct liveness_run;
struct store_files;
struct state_writer;
struct follows;

struct item {
    char *id;
    bool is_check, removed;
    bool persist;                    /* belongs into the data folder (not from a configuration file) */
    bool has_file;                   /* may have one of its own there */
    bool flying, alone;              /* alone: a batch with it was refused, so it travels by itself */
    unsigned lost;                   /* how many writes with it in a row had an unknown outcome (anti_entropy.h) */
    uint64_t lost_ms, lost_sequence; /* when it was set aside for that, and its sequence then; 0: it was not */
    char *file_id;                   /* an old spelling of `id`, under which it may have one there too; NULL: none */
    struct list dirty, save;         /* in local->dirty, local->saves; or by itself */
    uint64_t sequence;               /* of its last change */
    uint64_t flying_sequence;
    uint64_t hash;               /* of the record that the catalog is to hold, output apart */
    struct requester *requester; /* by the token that it was registered with; NULL: without one */
    /* How often in a row the servers denied it to its token, when they did so last, and its sequence then
     * (anti_entropy.h). */
    unsigned denied;
    uint64_t denied_ms, denied_sequence;
};
struct item_table {
    struct item **items; /* sorted by id, without case */
    size_t count, capacity;
};

struct local_service {
    struct item item;
    Pb__Service *record;
    uint64_t registered_ns; /* 0: before the agent was started */
    struct list checks;     /* of_service: those that are not removed */
};

struct local_check {
    struct item item;
    struct check_shared *shared;
    bool is_maintenance;
    bool restored; /* known before the agent was started, no result yet: it takes over the catalog's status */
    size_t state;  /* its slot in local->states */
    struct check core;
    struct buffer output;
    uint64_t output_due_ms; /* when changed output is to travel though the status is the same; 0: nothing to send */
    bool load_refused;      /* its last report of its service's load made no sense */
    bool held_shown;        /* the catalog's record shall say that damping holds it */
    struct list of_service;
    struct list of_aliases; /* in local->aliases, where it is one */
    struct list restart;    /* in local->restarts: the loop has to look at it */
    struct watcher *watcher;
};

/* Loop thread. Freed by its timer's close. */
struct watcher {
    uv_timer_t timer;
    struct local *local;
    struct local_check *check; /* NULL: the check is gone, and the watcher closes */
    struct run *run;
};

struct local {
    /* Set before start, constant afterwards. */
    struct local_config config;
    struct arena strings; /* of config */
    uv_loop_t *loop;
    struct rpc *rpc;
    struct hints *hints; /* rpc's; NULL: the table is without a loop (local_new), and keeps no load */
    uint64_t begun_ns;

    /* Any thread, under `lock`. */
    uv_mutex_t lock;
    struct item_table services, checks;
    struct list dirty, saves, restarts, waiters;
    struct list aliases;  /* alias checks that are not removed */
    bool aliases_changed; /* since the loop last looked which nodes they are of */
    struct list waiting;  /* struct waiting_check: saved checks of services from configuration files not seen yet */
    uint64_t sequence, generation;
    uint64_t flying_first;    /* lowest sequence of what flies; UINT64_MAX: nothing does */
    uint64_t saved_sequence;  /* changes up to here are durable, unless `unsaved` */
    bool unsaved;             /* a file of the last batch could not be written, and is tried again */
    uint64_t failed_sequence; /* changes up to here were tried at least once, and refused or not delivered */
    int failed_error;
    uint64_t output_next_ms;     /* no output is due before; UINT64_MAX: none at all */
    bool compared;               /* with the catalog, at least once */
    struct check_states *states; /* NULL: nothing is kept */
    struct rng rng;

    /* Loop thread only. */
    uv_async_t wake;
    uv_timer_t clock; /* waiters' deadlines */
    struct runners runners;
    struct follows *follows;   /* other nodes, for aliases of them */
    uint64_t alias_generation; /* what the aliases have seen */
    uint64_t told_generation;  /* what config.changed was called for */
    struct anti_entropy_run *anti_entropy_run;
    struct liveness *liveness; /* NULL: there is no node lease */
    struct liveness_run *liveness_run;
    struct store_files *files;         /* NULL: nothing is kept */
    struct state_writer *state_writer; /* likewise */
    bool stopping;
    unsigned closing; /* parts that have to report before the end */
    void (*closed)(void *data);
    void *closed_data;
};

static inline void local_lock(struct local *local) { uv_mutex_lock(&local->lock); }
static inline void local_unlock(struct local *local) { uv_mutex_unlock(&local->lock); }
static inline struct local_service *as_service(struct item *item) {
    return CONTAINER_OF(item, struct local_service, item);
}
static inline struct local_check *as_check(struct item *item) { return CONTAINER_OF(item, struct local_check, item); }

/* -- items (local_items.c); under the lock ------------------------------------------------------------------------ */
struct item *item_find(const struct item_table *table, struct slice id);  /* removed ones too */
struct local_service *live_service(struct local *local, struct slice id); /* NULL: none, or removed */
struct local_check *live_check(struct local *local, struct slice id);
/* Finds or makes the item, and spells its id this way from now on; a new one is neither removed nor dirty, and has no
 * record or definition. */
struct local_service *service_take(struct local *local, const char *id);
struct local_check *check_take(struct local *local, const char *id);
/* Frees a removed item that nothing holds any more. */
void item_release(struct local *local, struct item *item);
void items_free(struct local *local);

/* Makes the item dirty: it has to be written to the catalog. */
void item_touch(struct local *local, struct item *item);
/* The token that it was registered with, "": none. With another one it has to be written again. */
void item_token(struct local *local, struct item *item, const char *token);
const char *item_token_text(const struct item *item);
/* Touches it when its record is no longer the one that the catalog was given. */
void item_changed(struct local *local, struct item *item);
/* Its file has to be written or removed; `check`s of saved services: that of the service. */
void item_save(struct local *local, struct item *item);
bool check_has_own_file(struct local *local, const struct local_check *check);

/* Records as the catalog gets them: strings of check_record live as long as the item is not changed, lists in the
 * arena. */
/* Output as the catalog shows it -> the check's own; *status: its own where damping held another, else unchanged.
 * Borrows from `shown`. */
struct slice check_output_bare(struct slice shown, Pb__Status *status);
Pb__Check *check_record(struct local *local, const struct local_check *check, struct arena *arena);
/* Deep copies in the arena. */
Pb__Check *check_record_copy(struct local *local, const struct local_check *check, struct arena *arena);
Pb__Service *service_record_copy(const Pb__Service *service, struct arena *arena);

/* -- changes (local_changes.c); under the lock -------------------------------------------------------------------- */
void service_remove(struct local *local, struct local_service *service);
void check_remove(struct local *local, struct local_check *check);
/* The catalog refused a write because a lease is over, and its words name that (registry/lease.h): the services that
 * are bound to it go. False: none of these is. */
bool services_unleased(struct local *local, const char *refusal);
/* After a result: takes over its output, and marks the check for the catalog where its status, output or damping has
 * changed. `before`: the status it had. */
void check_publish(struct local *local, struct local_check *check, Pb__Status before, struct slice output,
                   uint64_t now_ms);
/* The output of a TTL check that has expired: it quotes the last report's output. */
void check_expired_text(struct buffer *text, struct slice last);
/* A change of output alone is written late, and at a random moment, so that agents do not all write at once. A dirty
 * check takes its output along anyway. */
void check_output_later(struct local *local, struct local_check *check, uint64_t now_ms);
/* The check was known before the agent was started: it takes over status and output of the catalog's record `stored`,
 * as far as its own saved state does not say otherwise. NULL: the catalog has no record. */
void check_recall(struct local_check *check, const Pb__Check *stored, uint64_t now_ns);
/* Takes over the definitions. `restored`: from the data folder. */
int service_put(struct local *local, struct service_definition *definition, bool replace, bool persist, bool restored);
int check_put(struct local *local, struct check_definition *definition, bool persist, bool restored,
              struct fault *fault);
int maintenance_put(struct local *local, struct slice service_id, struct slice reason, bool restored); /* CO_NOTFOUND */

/* A saved check that waits for its service. */
struct waiting_check {
    struct list link;
    struct check_definition *definition; /* owned; NULL: maintenance */
    char *service_id, *reason;
};

/* -- load (local_load.c); under the lock -------------------------------------------------------------------------- */
/* A check's result reports the load of its service. `said` NULL: the output of a script or TTL check may contain the
 * report. */
void check_load(struct local *local, struct local_check *check, const struct load_said *said, struct slice output);
void service_load_forget(struct local *local, const struct local_service *service);

/* -- watchers (local_watch.c); loop thread ------------------------------------------------------------------------ */
void watchers_refresh(struct local *local); /* looks at checks that were put, changed or removed since */
void watchers_close(struct local *local);   /* all; the runners are idle afterwards */

/* -- alias checks (local_alias.c); loop thread -------------------------------------------------------------------- */
/* False: nothing is known of the alias's target, because the servers have not answered yet; the alias runs as soon as
 * they do. With or without the lock. */
bool local_alias_known(struct local *local, const struct check_definition *alias);
/* As check_runner.h's alias_look; `data` is the struct local. */
int local_alias_look(void *data, const struct check_definition *definition, struct arena *arena,
                     struct alias_target *target, struct fault *fault);
/* before watchers_refresh: makes the aliases run whose targets may have changed */
void local_aliases_refresh(struct local *local);

/* -- the whole (local.c) ------------------------------------------------------------------------------------------ */
/* Any thread, with or without the lock. A table without a loop (local_new) has nothing to wake. */
void local_wake(struct local *local);
/* On whose behalf services and aliases without a token act, with access control: a reference, or NULL: the agent's own
 * work. */
struct requester *local_requester(struct rpc *rpc);
/* Makes the table alone, without a loop: nothing runs, waits or is written. The simulator's agents use it so. */
struct local *local_new(const struct local_config *config, uint64_t seed);
void local_free(struct local *local);
void local_waiters_look(struct local *local); /* loop thread, without the lock */
void local_part_closed(struct local *local);  /* loop thread: one of `closing` is done */

#endif
