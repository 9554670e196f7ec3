/* Shared by the files of kv/rollout/ only. */
#ifndef COORD_KV_ROLLOUT_INTERNAL_H
#define COORD_KV_ROLLOUT_INTERNAL_H

#include "base/check.h"
#include "base/message.h"
#include "kv/keys/kv.h"
#include "kv/rollout/rollout.h"

enum rollout_table {
    ROLLOUT_TABLE = 38, /* the first byte of a key says the sort of the row (enum rollout_row) */
};
/* Numbers have 8 bytes, big-endian; nodes are in lower case. */
enum rollout_row {
    ROW_RECORD = 'r',   /* name -> RolloutRecord */
    ROW_HISTORY = 'h',  /* name, NUL, number -> RolloutChange */
    ROW_VERSION = 'v',  /* name, NUL, version -> RolloutPublished, for as long as the history has its publication */
    ROW_SCHEMA = 's',   /* name -> RolloutSchema */
    ROW_CRITICAL = 'i', /* name -> RolloutCritical, of a stage under way whose guard looks at a service */
    ROW_TALLY = 't',    /* name -> RolloutTally */
    ROW_ACK = 'a',      /* name, NUL, caller -> RolloutAck */
    ROW_AGE = 'o',      /* name, NUL, index of the acknowledgement, caller -> nothing */
    ROW_NODE = 'n',     /* name, NUL, node, NUL, caller -> epoch, and 1: it runs the version; or 0: it refused it */
    ROW_COUNT = 'c',    /* name, NUL, epoch, version -> RolloutCount */
};
_Static_assert(ROLLOUT_PUBLISH >= 128 && ROLLOUT_DELETE <= UINT8_MAX, "commands of kv (registry/module.h)");
_Static_assert(ROLLOUT_TABLE >= 33 && ROLLOUT_TABLE < 40, "a table of kv");
_Static_assert(SPACE_ROLLOUT >= 96 && SPACE_ROLLOUT_SCHEMA < 128, "spaces of kv");
_Static_assert(1 + ROLLOUT_NAME_MOST + 1 + ROLLOUT_NODE_MOST + 1 + ROLLOUT_ID_MOST <= STORE_KEY_MAX, "rows have keys");

/* -- rows (rollout_record.c): keys in `room`, of STORE_KEY_MAX bytes ---------------------------------------------- */
struct slice rollout_key(enum rollout_row row, struct slice name, char *room);
/* The beginning of the keys of one rollout's rows of a sort, for sorts whose keys go on after the name. */
struct slice rollout_rows(enum rollout_row row, struct slice name, char *room);
struct slice rollout_row_key(enum rollout_row row, struct slice name, struct slice rest, char *room);
struct slice rollout_number_key(enum rollout_row row, struct slice name, uint64_t number, struct slice rest,
                                char *room);
/* A row unpacked into the arena. CO_NOTFOUND, CO_CORRUPT. */
int rollout_row(struct store_txn *txn, struct slice key, const ProtobufCMessageDescriptor *type, struct arena *arena,
                void *record);
void rollout_row_put(struct machine_tx *tx, struct slice key, const ProtobufCMessage *record);

int rollout_get(struct store_txn *txn, struct slice name, struct arena *arena, Pb__RolloutRecord **record);
/* The record; a new one when there is none. False: refused (too many), or *rv is the store's error. */
bool rollout_open(struct machine_tx *tx, const char *name, Pb__RolloutRecord **record, struct machine_result *result,
                  int *rv);
void rollout_put(struct machine_tx *tx, Pb__RolloutRecord *record);
/* The author of a change, its comment, and the time. */
struct rollout_who {
    const char *by, *comment;
    int64_t unix_ms;
};
/* Adds a row to the history; the caller puts the record afterwards. */
void rollout_note(struct machine_tx *tx, Pb__RolloutRecord *record, const struct rollout_who *who, Pb__RolloutDid kind,
                  const char *from, const char *to, uint32_t buckets);

/* The key config/NAME/VERSION. */
struct slice rollout_document_key(struct arena *arena, struct slice name, struct slice version);
/* NULL in *entry: there is none. Slices of the map. */
int rollout_document(struct store_txn *txn, struct arena *arena, struct slice name, struct slice version,
                     const Pb__KvEntry **entry);
/* Writes a key as KV_APPLY does. result->error: it was refused. */
int rollout_key_put(struct machine_tx *tx, struct slice key, struct slice value, struct machine_result *result);

/* -- who gets what (rollout_layers.c) ----------------------------------------------------------------------------- */
bool rollout_in_stage(const Pb__RolloutStage *stage, const Pb__RolloutCaller *caller);
/* The index since which the caller has had its version. */
uint64_t rollout_seen_since(const Pb__RolloutRecord *record, const Pb__RolloutCaller *caller);
/* The stage and the current version before a change, which decide every caller's version. Borrows from the record,
 * whose stage a change replaces instead of writing into it. */
struct rollout_sides {
    const char *current;
    const Pb__RolloutStage *stage;
};
static inline struct rollout_sides rollout_sides(const Pb__RolloutRecord *record) {
    return (struct rollout_sides){record->current, record->stage};
}
/* Has the record room for the layers of a stage with this match and so many steps, until it ends? */
bool rollout_has_room(const Pb__RolloutRecord *record, const Pb__RolloutMatch *match, size_t steps);
/* To be called after a change of the record: notes the callers whose version has changed, and wakes them. */
void rollout_changed(struct machine_tx *tx, Pb__RolloutRecord *record, struct rollout_sides before);
static inline double rollout_percent(uint32_t buckets) { return (double)buckets / (ROLLOUT_BUCKETS / 100); }
/* 0 to 100. */
static inline uint32_t rollout_buckets(double percent) { return (uint32_t)(percent * (ROLLOUT_BUCKETS / 100) + 0.5); }

/* -- stages and guards (rollout_stage.c, rollout_guard.c) --------------------------------------------------------- */
/* Replaces the record's stage by a copy that may be written into. */
Pb__RolloutStage *rollout_stage_change(struct machine_tx *tx, Pb__RolloutRecord *record);
/* The hold of the step under way counts from now on, unless it has none or the stage is paused. */
void rollout_arm(struct machine_tx *tx, Pb__RolloutRecord *record, int64_t unix_ms);
/* The guard looks at the stage in a while, if there is one that is not spent. */
void rollout_arm_guard(struct machine_tx *tx, const Pb__RolloutRecord *record);
/* Ends the counting of both. */
void rollout_disarm(struct machine_tx *tx, const Pb__RolloutRecord *record);
/* Refuses (result->error) when the document of a version that callers are about to get was removed. */
int rollout_document_wanted(struct machine_tx *tx, const Pb__RolloutRecord *record, const char *version,
                            struct machine_result *result);
/* Makes `version` current, writes the pointer, and ends the stage. result->error: it was refused. */
int rollout_make_current(struct machine_tx *tx, Pb__RolloutRecord *record, const char *version, int64_t unix_ms,
                         struct machine_result *result);
/* Makes the stage's version current for all callers, and ends the stage. */
int rollout_promote(struct machine_tx *tx, Pb__RolloutRecord *record, const struct rollout_who *who,
                    struct machine_result *result);
/* Ends the stage, so that all of its callers get the current version. Refused as above. */
int rollout_cancel(struct machine_tx *tx, Pb__RolloutRecord *record, const struct rollout_who *who,
                   struct machine_result *result);
/* The stage begins: notes the instances that are critical already, because they do not count for the guard. */
int rollout_critical_begin(struct machine_tx *tx, const Pb__RolloutRecord *record);
/* Judges the stage: *what is the guard's finding, zeroes without a guard. Returns CO_OK, or the store's error. */
int rollout_judge(struct store_txn *txn, const Pb__RolloutRecord *record, Pb__RolloutJudgement *what);

/* -- acknowledgements (rollout_ack.c) ----------------------------------------------------------------------------- */
int rollout_count(struct store_txn *txn, struct slice name, uint64_t epoch, const char *version, Pb__RolloutCount *out);
/* *running: the number of callers on a node that run the version of this epoch. *any: some caller there has
 * acknowledged anything. Upper and lower case of the node's name are the same. */
int rollout_on_node(struct store_txn *txn, struct slice name, struct slice node, uint64_t epoch, uint64_t *running,
                    bool *any);

/* As module_command.apply. */
int rollout_publish_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int rollout_schema_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int rollout_set_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int rollout_promote_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int rollout_rollback_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int rollout_pause_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int rollout_resume_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int rollout_ack_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int rollout_advance_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int rollout_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int rollout_judge_apply(struct machine_tx *tx, void *request, struct machine_result *result);

/* The record as queries show it, without counts. */
Pb__RolloutState *rollout_state(const Pb__RolloutRecord *record, struct arena *arena);
/* Refuses when cas is given and is not the record's ModifyIndex (0 without a record, NULL). True: refused. */
bool rollout_cas_fails(const Pb__RolloutRecord *record, bool given, uint64_t cas, struct machine_tx *tx,
                       struct machine_result *result);
/* False: refused; the text is static. */
bool rollout_names_fit(const char *name, const char *version, struct machine_result *result);

#endif
