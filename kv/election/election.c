#include "kv/election/election.h"

#include "base/check.h"
#include "kv/lock/lock_queue_module.h"

enum { ELECTION_TABLE = 25, ELECTION_TABLE_ASIDE = 26, ELECTION_TABLE_SESSIONS = 27 };
_Static_assert(ELECTION_TABLE >= 16 && ELECTION_TABLE_SESSIONS < 40, "tables of kv (registry/module.h)");
_Static_assert(ELECTION_CAMPAIGN >= 32 && ELECTION_DELAY_OVER < 64, "commands of kv");
_Static_assert(SPACE_ELECTION >= 32 && SPACE_ELECTION_LEADER < 64, "spaces of kv");

QUEUE_APPLY(election_family, acquire)
QUEUE_APPLY(election_family, release)
QUEUE_APPLY(election_family, set_note)
QUEUE_APPLY(election_family, delay_over)
QUEUE_ENDS(election_family)
static const struct expiry_kind delay_expiry = {
    .number = 6, .name = "delay of an election", .quiet = true, .read = delays_read, .end = delay_end};

/* -- queries ------------------------------------------------------------------------------------------------------ */

QUEUE_WATCHED(election, SPACE_ELECTION)
QUEUE_WATCHED(leader, SPACE_ELECTION_LEADER) /* a candidate that comes or goes does not change this */
QUEUE_WATCHED(entry, SPACE_ELECTION_ENTRY)
QUEUE_RUN(election_family, view)
QUEUE_RUN(election_family, entry)
QUEUE_RUN(election_family, holder)
QUEUE_RUN(election_family, list)

static int leader_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    struct slice name = leader_watched(request).name;
    Pb__QueueView *view;
    int rv = queue_view(txn, &election_family, name, 0, arena, &view);
    if (rv != CO_OK) return rv;
    uint64_t index = view->queue->modify_index ? view->queue->holder_index : queue_index(txn, &election_family, name);
    *result = (struct query_result){.index = index, .found = true, .message = &view->base};
    view->queue->waiters = 0, view->queue->modify_index = 0;
    view->queue->transitions.len = 0, view->n_transitions = 0;
    return CO_OK;
}
const struct query_type query_election = {.number = 42,
                                          .name = "election",
                                          .request = &pb__queue_request__descriptor,
                                          .result = &pb__queue_view__descriptor,
                                          .watched = election_watched,
                                          .run = view_run,
                                          .show = queue_view_show};
const struct query_type query_election_leader = {.number = 57,
                                                 .name = "election-leader",
                                                 .request = &pb__queue_request__descriptor,
                                                 .result = &pb__queue_view__descriptor,
                                                 .watched = leader_watched,
                                                 .run = leader_run,
                                                 .show = queue_view_show};
const struct query_type query_election_entry = {.number = 43,
                                                .name = "election-entry",
                                                .request = &pb__queue_entry_request__descriptor,
                                                .result = &pb__queue_answer__descriptor,
                                                .watched = entry_watched,
                                                .run = entry_run,
                                                .show = queue_answer_show};
const struct query_type query_election_holder = {.number = 58,
                                                 .name = "election-holder",
                                                 .request = &pb__queue_request__descriptor,
                                                 .result = &pb__queue_answer__descriptor,
                                                 .watched = leader_watched,
                                                 .run = holder_run,
                                                 .show = queue_answer_show};
const struct query_type query_elections = {.number = 44,
                                           .name = "elections",
                                           .request = &pb__queue_list_request__descriptor,
                                           .result = &pb__queue_list_result__descriptor,
                                           .watched = election_watched,
                                           .run = list_run,
                                           .show = queue_list_show};

/* -- the table ---------------------------------------------------------------------------------------------------- */

static const struct module_command commands[] = {
    {.number = ELECTION_CAMPAIGN,
     .name = "election-campaign",
     .request = &pb__queue_acquire_command__descriptor,
     .result = &pb__queue_answer__descriptor,
     .marks = true,
     .may = queue_acquire_may,
     .apply = acquire_apply},
    {.number = ELECTION_RESIGN,
     .name = "election-resign",
     .request = &pb__queue_release_command__descriptor,
     .may = queue_release_may,
     .apply = release_apply},
    {.number = ELECTION_PROCLAIM,
     .name = "election-proclaim",
     .request = &pb__queue_note_command__descriptor,
     .may = queue_note_may,
     .apply = set_note_apply},
    {.number = ELECTION_DELAY_OVER,
     .servers_only = true,
     .name = "election-delay-over",
     .request = &pb__queue_delay_over_command__descriptor,
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
                                             .is_election = true,
                                             .delay_over = ELECTION_DELAY_OVER,
                                             .binding = session_bindings,
                                             .delay = &delay_expiry};

const struct module election_module = {.name = "election",
                                       .commands = commands,
                                       .tables = tables,
                                       .spaces = spaces,
                                       .queries = queries,
                                       .expiries = expiries,
                                       .session_bindings = session_bindings};
