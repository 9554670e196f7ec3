/* Shared by the files of `coord rollout` only. */
#ifndef COORD_AGENT_CMD_ROLLOUT_H
#define COORD_AGENT_CMD_ROLLOUT_H

#include "agent/cmd.h"

/* Who asks. */
struct rollout_identity {
    const char *id, *node, *region;
    struct cmd_list tags;
};
/* "/v1/rollout/NAME" and the rest. */
void rollout_path(struct buffer *path, const char *name, const char *rest);
/* "?id=...": nothing else of the query stands before it. */
void rollout_parameters(struct buffer *path, const struct rollout_identity *who);

int cmd_rollout_create(int argc, char **argv);
int cmd_rollout_get(int argc, char **argv);
int cmd_rollout_diff(int argc, char **argv);
int cmd_rollout_follow(int argc, char **argv);

#endif
