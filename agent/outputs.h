/* What the process writes besides its data: the log's targets, and the file with its number. */
#ifndef COORD_AGENT_OUTPUTS_H
#define COORD_AGENT_OUTPUTS_H

#include "agent/config.h"

/* Opens the log's targets and writes the pid file. With a fault, which names key and path, nothing is left of it. The pid
 * file is locked for as long as the process lives: CO_BUSY where another agent that runs has it. */
int outputs_open(const struct config *config, struct fault *fault);
/* Can the log's file and the pid file be written? Makes neither. Each that cannot is one of the config's errors. */
int outputs_check(struct config *config, struct fault *fault);
/* At a clean end: the pid file goes, unless it has another number by now, and the log is written out. */
void outputs_close(const struct config *config);

#endif
