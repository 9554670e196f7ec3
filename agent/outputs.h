/* The files that the process writes besides its data: the targets of the log, and the pid file. */
#ifndef COORD_AGENT_OUTPUTS_H
#define COORD_AGENT_OUTPUTS_H

#include "agent/config.h"

/* Opens the log's targets and writes the pid file. With a fault, which names key and path, nothing stays open or
 * written. The pid file is locked for as long as the process lives: CO_BUSY when a running agent has it. */
int outputs_open(const struct config *config, struct fault *fault);
/* Can the log's file and the pid file be written? Creates neither. Adds an error to the config for each that cannot. */
int outputs_check(struct config *config, struct fault *fault);
/* At a clean end: removes the pid file, unless it has another number by now, and flushes the log. */
void outputs_close(const struct config *config);

#endif
