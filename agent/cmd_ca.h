/* Parts of `coord ca`. */
#ifndef COORD_AGENT_CMD_CA_H
#define COORD_AGENT_CMD_CA_H

#include "agent/client.h"

int cmd_ca_import(int argc, char **argv);
/* Asks for another CA, prints what the answer warns of, and then `done`. */
int cmd_ca_change(const struct client *client, const char *path, const struct slice *body, const char *done,
                  struct fault *fault);

#endif
