/* Rollouts as a module: the table of commands and queries, and what of them ends by itself. */
#include <stdlib.h>
#include <string.h>

#include "kv/rollout/rollout_internal.h"
#include "registry/module_access.h"

/* -- ends by time ------------------------------------------------------------------------------------------------- */

/* Calls `begin` for each record with a stage. */
static int read_stages(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry,
                       void (*begin)(const Pb__RolloutRecord *record, const struct expiry_leader *leader,
                                     struct expiry *expiry)) {
    struct slice head = SLICE_LITERAL("r");
    struct store_cursor cursor;
    struct arena arena = {0};
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, ROLLOUT_TABLE, head) {
        const Pb__RolloutRecord *record = machine_decode(&pb__rollout_record__descriptor, cursor.value, &arena);
        if (!record) rv = CO_CORRUPT;
        else if (record->stage) begin(record, leader, expiry);
        arena_reset(&arena);
    }
    store_cursor_close(&cursor);
    arena_free(&arena);
    return rv;
}

static void begin_hold(const Pb__RolloutRecord *record, const struct expiry_leader *leader, struct expiry *expiry) {
    const Pb__RolloutStage *stage = record->stage;
    if (!stage->armed || stage->position >= stage->n_steps) return;
    expiry_began(expiry, &rollout_hold_expiry, slice_text(record->name), stage->armed,
                 stage->steps[stage->position]->hold_ns, leader->now_ms);
}

static int holds_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    return read_stages(txn, leader, expiry, begin_hold);
}

static void begin_judge(const Pb__RolloutRecord *record, const struct expiry_leader *leader, struct expiry *expiry) {
    if (!record->stage->guard || record->stage->guard_spent) return;
    expiry_began(expiry, &rollout_judge_expiry, slice_text(record->name), record->stage->began, ROLLOUT_JUDGE_NS,
                 leader->now_ms);
}

static int judges_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    return read_stages(txn, leader, expiry, begin_judge);
}

static void propose_due(const struct expiry_due *due, const struct expiry_leader *leader, uint8_t number,
                        void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) {
    Pb__RolloutDueCommand command = PB__ROLLOUT_DUE_COMMAND__INIT;
    char name[ROLLOUT_NAME_MOST + 1];
    CHECK(due->name.size < sizeof name);
    memcpy(name, due->name.data, due->name.size), name[due->name.size] = '\0';
    command.name = name, command.index = due->index, command.term = leader->term, command.now_unix_ms = leader->unix_ms;
    propose(data, number, &command.base);
}

static void hold_end(const struct expiry_due *due, const struct expiry_leader *leader,
                     void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) {
    propose_due(due, leader, ROLLOUT_ADVANCE, propose, data);
}

static void judge_end(const struct expiry_due *due, const struct expiry_leader *leader,
                      void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) {
    propose_due(due, leader, ROLLOUT_JUDGE, propose, data);
}

const struct expiry_kind rollout_hold_expiry = {
    .number = 24, .name = "rollout hold", .read = holds_read, .end = hold_end};
const struct expiry_kind rollout_judge_expiry = {
    .number = 25, .name = "rollout guard", .quiet = true, .read = judges_read, .end = judge_end};

/* -- access: by the rules `rollout` for the rollout's name --------------------------------------------------------- */
/* Its documents and its pointer are keys, but they are the rollout's: who writes and reads these needs no rule `key`. */

/* A guard tells how the instances of its service are. */
static int set_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__RolloutSetCommand *command = (const Pb__RolloutSetCommand *)request;
    (void)txn;
    int rv = access_require(check, ACCESS_ROLLOUT, slice_text(command->name), ACCESS_WRITE);
    if (rv != CO_OK || !command->guard || !command->guard->service[0]) return rv;
    return access_require(check, ACCESS_SERVICE, slice_text(command->guard->service), ACCESS_READ);
}

/* With the keys all go that lie there, also those of others. */
static int delete_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__RolloutDeleteCommand *command = (const Pb__RolloutDeleteCommand *)request;
    struct slice name = slice_text(command->name);
    (void)txn;
    int rv = access_require(check, ACCESS_ROLLOUT, name, ACCESS_WRITE);
    if (rv != CO_OK || !command->with_keys) return rv;
    struct slice keys = rollout_document_key(check->arena, name, slice_make("", 0));
    return access_require_below(check, ACCESS_KEY, keys, ACCESS_WRITE);
}

/* Callers acknowledge what they read. */
ACCESS_MAY(ack_may, ROLLOUT, READ, Pb__RolloutAckCommand, name)
ACCESS_MAY(publish_may, ROLLOUT, WRITE, Pb__RolloutPublishCommand, name)
ACCESS_MAY(schema_may, ROLLOUT, WRITE, Pb__RolloutSchemaCommand, name)
ACCESS_MAY(change_may, ROLLOUT, WRITE, Pb__RolloutChangeCommand, name)

/* -- the table ---------------------------------------------------------------------------------------------------- */

#define CHANGE(number_, name_, apply_)                                                            \
    {                                                                                             \
        .number = (number_), .name = (name_), .request = &pb__rollout_change_command__descriptor, \
        .result = &pb__rollout_state__descriptor, .may = change_may, .apply = (apply_)            \
    }
static const struct module_command commands[] = {
    {.number = ROLLOUT_PUBLISH,
     .name = "rollout-publish",
     .request = &pb__rollout_publish_command__descriptor,
     .may = publish_may,
     .apply = rollout_publish_apply},
    {.number = ROLLOUT_SET,
     .name = "rollout-set",
     .request = &pb__rollout_set_command__descriptor,
     .result = &pb__rollout_state__descriptor,
     .may = set_may,
     .apply = rollout_set_apply},
    CHANGE(ROLLOUT_PROMOTE, "rollout-promote", rollout_promote_apply),
    CHANGE(ROLLOUT_ROLLBACK, "rollout-rollback", rollout_rollback_apply),
    CHANGE(ROLLOUT_PAUSE, "rollout-pause", rollout_pause_apply),
    CHANGE(ROLLOUT_RESUME, "rollout-resume", rollout_resume_apply),
    {.number = ROLLOUT_ACK,
     .name = "rollout-ack",
     .request = &pb__rollout_ack_command__descriptor,
     .may = ack_may,
     .apply = rollout_ack_apply},
    {.number = ROLLOUT_SCHEMA,
     .name = "rollout-schema",
     .request = &pb__rollout_schema_command__descriptor,
     .may = schema_may,
     .apply = rollout_schema_apply},
    {.number = ROLLOUT_ADVANCE,
     .servers_only = true,
     .name = "rollout-advance",
     .request = &pb__rollout_due_command__descriptor,
     .apply = rollout_advance_apply},
    {.number = ROLLOUT_JUDGE,
     .servers_only = true,
     .name = "rollout-judge",
     .request = &pb__rollout_due_command__descriptor,
     .apply = rollout_judge_apply},
    {.number = ROLLOUT_DELETE,
     .name = "rollout-delete",
     .request = &pb__rollout_delete_command__descriptor,
     .may = delete_may,
     .apply = rollout_delete_apply},
    {0},
};
static const struct store_table tables[] = {{ROLLOUT_TABLE, "rollouts"}, {0}};
static const struct module_space spaces[] = {{SPACE_ROLLOUT, "rollout"},
                                             {SPACE_ROLLOUT_CALLER, "rollout-caller"},
                                             {SPACE_ROLLOUT_MATCH, "rollout-match"},
                                             {SPACE_ROLLOUT_ACKS, "rollout-acks"},
                                             {SPACE_ROLLOUT_HISTORY, "rollout-history"},
                                             {SPACE_ROLLOUT_SCHEMA, "rollout-schema"},
                                             {0}};
static const struct query_type *const queries[] = {&query_rollout,
                                                   &query_rollout_all,
                                                   &query_rollout_state,
                                                   &query_rollouts,
                                                   &query_rollout_history,
                                                   &query_rollout_schema,
                                                   NULL};
static const struct expiry_kind *const expiries[] = {&rollout_hold_expiry, &rollout_judge_expiry, NULL};

const struct module rollout_module = {.name = "rollout",
                                      .commands = commands,
                                      .tables = tables,
                                      .spaces = spaces,
                                      .queries = queries,
                                      .expiries = expiries};
