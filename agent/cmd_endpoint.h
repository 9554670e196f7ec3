/* Commands that come from the routing table: `coord lease grant` is a row's `cli` (http/route.h). */
#ifndef COORD_AGENT_CMD_ENDPOINT_H
#define COORD_AGENT_CMD_ENDPOINT_H

#include "agent/cli.h"
#include "base/buffer.h"
#include "base/memory.h"

struct json_object;

/* Appends a command for each group ("lease"); returns their number. Names and help are in the arena. */
size_t cmd_endpoint_groups(struct cli_command *commands, size_t most, struct arena *names);

/* A function that appends the text of a column, for columns that are no member of the record; else NULL. */
typedef void (*cmd_cell_write)(struct json_object *record, struct buffer *out);
cmd_cell_write cmd_endpoint_cell(const char *command, const char *column);

/* A function that prints an answer in a form of its own; NULL: the answer is printed as it came. `arguments`: those of
 * the path. */
typedef void (*cmd_answer_print)(struct json_object *answer, const char *const *arguments);
cmd_answer_print cmd_rollout_answer(const char *command);
cmd_cell_write cmd_rollout_cell(const char *command, const char *column);

/* Commands of a group that are more than a row of the routing table; each list ends with an entry of zeroes.
 * cmd_endpoint.c has the table. */
extern const struct cli_command cmd_election_commands[], cmd_failover_commands[], cmd_quota_commands[],
    cmd_region_commands[], cmd_rollout_commands[];

#endif
