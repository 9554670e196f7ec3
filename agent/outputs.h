/* What the process writes besides its data: the log's targets, and the file with its number. */
#ifndef COORD_AGENT_OUTPUTS_H
#define COORD_AGENT_OUTPUTS_H

#include "agent/config.h"

/* Opens the log's targets and writes the pid file. With a fault, which names key and path, nothing is left of it. After
 * the data folder is locked: another agent's pid file stays as it is. */
int outputs_open(const struct config *config, struct fault *fault);
/* At a clean end: the pid file goes, unless it has another number by now, and the log is written out. */
void outputs_close(const struct config *config);

#endif
