/* `coord join TOKEN ADDRESS...` and `coord join ADDRESS...` are one word: the first brings a host into a closed cluster,
 * the second gives a running agent one more address. */
#ifndef COORD_AGENT_CMD_JOIN_CLUSTER_H
#define COORD_AGENT_CMD_JOIN_CLUSTER_H

#include <stdbool.h>

bool cmd_is_join_token(const char *argument); /* it looks like one, maybe a damaged one */
int cmd_join_cluster(int argc, char **argv);

#endif
