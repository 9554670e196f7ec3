#include "kv/election/election.h"

#include "base/check.h"

enum { ELECTION_TABLE = 25, ELECTION_TABLE_ASIDE = 26, ELECTION_TABLE_SESSIONS = 27 };
_Static_assert(ELECTION_TABLE >= 16 && ELECTION_TABLE_SESSIONS < 40, "tables of kv (registry/module.h)");
_Static_assert(ELECTION_CAMPAIGN >= 32 && ELECTION_DELAY_OVER < 64, "commands of kv");
_Static_assert(SPACE_ELECTION >= 32 && SPACE_ELECTION_LEADER < 64, "spaces of kv");
_Static_assert(ELECTION_SINCE > MACHINE_VERSION_OLDEST && ELECTION_SINCE <= MACHINE_VERSION_NEWEST,
               "a version that there is");

/* -- commands ----------------------------------------------------------------------------------------------------- */

static int campaign_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__ElectionCampaignCommand *command = request;
    Pb__LockAnswer *answer = arena_alloc(tx->arena, sizeof *answer);
    pb__lock_answer__init(answer);
    if (command->priority > ELECTION_PRIORITY_MAX) return machine_refuse(result, CO_INVALID, "priority: too high");
    const struct queue_wish wish = {.name = command->name,
                                    .use = command->session,
                                    .token = command->term,
                                    .mode = PB__QUEUE_MODE__QUEUE_EXCLUSIVE,
                                    .priority = tx->mutations & MUTATE_ELECTION_PRIORITY ? 0 : command->priority,
                                    .note = command->value,
                                    .enqueue = command->enqueue,
                                    .now_unix_ms = command->now_unix_ms,
                                    .limits = command->limits};
    int rv = queue_acquire(tx, &election_family, &wish, result, answer);
    if (rv != CO_OK || result->error) return rv;
    result->yes = answer->held;
    result->message = &answer->base;
    return CO_OK;
}

static int resign_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__ElectionResignCommand *command = request;
    return queue_release(tx, &election_family, command->name, slice_text(command->session), command->term,
                         command->now_unix_ms, result);
}

static int proclaim_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__ElectionProclaimCommand *command = request;
    return queue_set_note(tx, &election_family, command->name, command->term, command->value, result);
}

static int delay_over_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__ElectionDelayOverCommand *command = request;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    result->yes = true;
    return queue_delay_over(tx, &election_family, command->name, command->index, command->now_unix_ms);
}

static int session_ended(struct machine_tx *tx, const struct binding_end *end) {
    return queue_session_ended(tx, &election_family, end);
}

int election_holds(struct store_txn *txn, struct slice name, uint64_t term, struct arena *arena) {
    Pb__QueueEntry *entry;
    return queue_holder(txn, &election_family, name, term, arena, &entry, NULL);
}

/* -- lock-delays -------------------------------------------------------------------------------------------------- */

static int delays_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    return queue_delays_read(txn, &election_family, leader, expiry);
}

static void delay_propose_end(const struct expiry_due *due, const struct expiry_leader *leader,
                              void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message),
                              void *data) {
    Pb__ElectionDelayOverCommand command = PB__ELECTION_DELAY_OVER_COMMAND__INIT;
    command.name = (char *)(uintptr_t)due->name.data; /* as far as its NUL */
    command.index = due->index, command.term = leader->term;
    command.now_unix_ms = leader->unix_ms;
    propose(data, ELECTION_DELAY_OVER, &command.base);
}

static const struct expiry_kind delay_expiry = {
    .number = 6, .name = "delay of an election", .quiet = true, .read = delays_read, .end = delay_propose_end};

/* -- queries ------------------------------------------------------------------------------------------------------ */

static struct slice name_of(const ProtobufCMessage *request) {
    return slice_text(((const Pb__LockRequest *)request)->name);
}

static struct watch_key watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_ELECTION, name_of(request)};
}
static int run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
               struct query_result *result) {
    return queue_view_run(txn, &election_family, name_of(request), arena, result);
}
const struct query_type query_election = {.number = 42,
                                          .name = "election",
                                          .request = &pb__lock_request__descriptor,
                                          .result = &pb__lock_view__descriptor,
                                          .watched = watched,
                                          .run = run};

/* Candidates come and go without a change of this. */
static struct watch_key leader_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_ELECTION_LEADER, name_of(request)};
}
static int leader_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    Pb__LockView *view;
    int rv = queue_view(txn, &election_family, name_of(request), 0, arena, &view);
    if (rv != CO_OK) return rv;
    uint64_t index =
        view->queue->modify_index ? view->queue->holder_index : queue_index(txn, &election_family, name_of(request));
    *result = (struct query_result){.index = index, .found = true, .message = &view->base};
    view->queue->waiters = 0, view->queue->modify_index = 0;
    view->queue->transitions.len = 0, view->n_transitions = 0;
    return CO_OK;
}
const struct query_type query_election_leader = {.number = 57,
                                                 .name = "election-leader",
                                                 .request = &pb__lock_request__descriptor,
                                                 .result = &pb__lock_view__descriptor,
                                                 .watched = leader_watched,
                                                 .run = leader_run};

static struct watch_key entry_watched(const ProtobufCMessage *request) {
    const Pb__LockEntryRequest *entry = (const Pb__LockEntryRequest *)request;
    return (struct watch_key){SPACE_ELECTION_ENTRY, slice_make(entry->session_name.data, entry->session_name.len)};
}
static int entry_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    return queue_entry_run(txn, &election_family, entry_watched(request).name, arena, result);
}
const struct query_type query_election_entry = {.number = 43,
                                                .name = "election-entry",
                                                .request = &pb__lock_entry_request__descriptor,
                                                .result = &pb__lock_answer__descriptor,
                                                .watched = entry_watched,
                                                .run = entry_run};

static struct watch_key holder_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_ELECTION_LEADER, slice_text(((const Pb__LockHolderRequest *)request)->name)};
}
static int holder_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    return queue_holder_run(txn, &election_family, (const Pb__LockHolderRequest *)request, arena, result);
}
const struct query_type query_election_holder = {.number = 58,
                                                 .name = "election-holder",
                                                 .request = &pb__lock_holder_request__descriptor,
                                                 .result = &pb__lock_answer__descriptor,
                                                 .watched = holder_watched,
                                                 .run = holder_run};

static struct watch_key list_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_ELECTION | WATCH_PREFIX_BIT,
                              slice_text(((const Pb__LockListRequest *)request)->prefix)};
}
static int list_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    return queue_list_run(txn, &election_family, list_watched(request).name, arena, result);
}
const struct query_type query_elections = {.number = 44,
                                           .name = "elections",
                                           .request = &pb__lock_list_request__descriptor,
                                           .result = &pb__lock_list_result__descriptor,
                                           .watched = list_watched,
                                           .run = list_run};

/* -- the table ---------------------------------------------------------------------------------------------------- */

static const struct module_command commands[] = {
    {.number = ELECTION_CAMPAIGN,
     .since = ELECTION_SINCE,
     .name = "election-campaign",
     .request = &pb__election_campaign_command__descriptor,
     .result = &pb__lock_answer__descriptor,
     .apply = campaign_apply},
    {.number = ELECTION_RESIGN,
     .since = ELECTION_SINCE,
     .name = "election-resign",
     .request = &pb__election_resign_command__descriptor,
     .apply = resign_apply},
    {.number = ELECTION_PROCLAIM,
     .since = ELECTION_SINCE,
     .name = "election-proclaim",
     .request = &pb__election_proclaim_command__descriptor,
     .apply = proclaim_apply},
    {.number = ELECTION_DELAY_OVER,
     .since = ELECTION_SINCE,
     .servers_only = true,
     .name = "election-delay-over",
     .request = &pb__election_delay_over_command__descriptor,
     .apply = delay_over_apply},
    {0},
};
static const struct store_table tables[] = {{ELECTION_TABLE, "elections"},
                                            {ELECTION_TABLE_ASIDE, "elections-aside"},
                                            {ELECTION_TABLE_SESSIONS, "elections-sessions"},
                                            {0}};
static const struct module_space spaces[] = {{SPACE_ELECTION, "election"},
                                             {SPACE_ELECTION_ENTRY, "election-entry"},
                                             {SPACE_ELECTION_LEADER, "election-leader"},
                                             {0}};
static const struct query_type *const queries[] = {
    &query_election, &query_election_leader, &query_election_entry, &query_election_holder, &query_elections, NULL};
static const struct expiry_kind *const expiries[] = {&delay_expiry, NULL};
static const struct module_binding session_bindings[] = {{.number = ELECTION_TABLE_SESSIONS, .ended = session_ended},
                                                         {0}};

const struct queue_family election_family = {.noun = "election",
                                             .table = ELECTION_TABLE,
                                             .aside = ELECTION_TABLE_ASIDE,
                                             .space = SPACE_ELECTION,
                                             .entry_space = SPACE_ELECTION_ENTRY,
                                             .holder_space = SPACE_ELECTION_LEADER,
                                             .one = true,
                                             .binding = session_bindings,
                                             .delay = &delay_expiry};

const struct module election_module = {.name = "election",
                                       .commands = commands,
                                       .tables = tables,
                                       .spaces = spaces,
                                       .queries = queries,
                                       .expiries = expiries,
                                       .session_bindings = session_bindings};
