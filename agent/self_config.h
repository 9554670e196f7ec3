/* The configuration as /v1/agent/self shows it. */
#ifndef COORD_AGENT_DESCRIBE_H
#define COORD_AGENT_DESCRIBE_H

#include "base/json_out.h"

/* Writes members of the "DebugConfig" object (`debug`), or those of "Config" that http/ does not know itself. `data`:
 * struct config. */
void self_config_write(void *data, struct json_out *json, bool debug);

#endif
