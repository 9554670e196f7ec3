/* `-start` of coord init and coord join: starts the service coord of systemd, now and at each boot. */
#ifndef COORD_AGENT_START_UNIT_H
#define COORD_AGENT_START_UNIT_H

#include "base/error.h"

/* CO_UNSUPPORTED, with a line: systemd does not run here, or has no unit coord.service. Call it before anything else is
 * done. */
int start_unit_check(struct fault *fault);
int start_unit(struct fault *fault);

#endif
