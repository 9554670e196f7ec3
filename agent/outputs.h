/* Files that the process writes besides its data: the targets of the log, the audit log, and the pid file. */
#ifndef COORD_AGENT_OUTPUTS_H
#define COORD_AGENT_OUTPUTS_H

#include "agent/config.h"
#include "base/audit_log_run.h"

/* Opens the log's targets and the audit log, and writes the pid file. With a fault, which names key and path, nothing stays open or
 * written. The pid file is locked for as long as the process lives: CO_BUSY when a running agent has it. */
int outputs_open(const struct config *config, struct fault *fault);
/* Between outputs_open and outputs_close. NULL: there is none. */
struct audit_log_run *outputs_audit_log(void);
/* Any thread: files of logs may have been moved away. */
void outputs_reopen(void);
/* Can these files be written? Creates none. Adds an error to the config for each that cannot. */
int outputs_check(struct config *config, struct fault *fault);
/* At a clean end: removes the pid file, unless it has another number by now, and flushes the logs. */
void outputs_close(const struct config *config);

#endif
