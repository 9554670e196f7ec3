/* Tells people who wait for a lock, an election or a barrier which others they wait for. */
#ifndef COORD_AGENT_HOLD_NOTICE_H
#define COORD_AGENT_HOLD_NOTICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

struct json_object;

/* From the answer to GET /v1/lock/NAME, /v1/election/NAME or /v1/barrier/NAME; appends the text after the name: `is
 * held by web1 (backup.sh) for 5m2s, 2 before you`. Appends nothing when it waits for nobody. `session` waits ("": none
 * yet), or, with `leaves`, has left and waits for the others. The words of others are cut, and cannot steer a
 * terminal. */
void hold_notice(struct json_object *view, const char *session, bool leaves, int64_t now_unix_ms, struct buffer *out);

#endif
