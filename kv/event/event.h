/* Events: short messages from users to all agents. The replicated state keeps the newest EVENTS_MAX; agents follow them
 * with a blocking read, and each picks the events that are addressed to it. A module of the state machine with one
 * command and one query. */
#ifndef COORD_KV_EVENT_H
#define COORD_KV_EVENT_H

#include "kv/event/event.pb-c.h"
#include "registry/machine.h"

enum event_command { EVENT_FIRE = 36 };
enum event_space { SPACE_EVENTS = 36 }; /* name "" */
#define EVENTS_MAX       256
#define EVENT_SIZE_MAX   512 /* name and payload, as Consul has it */
#define EVENT_FILTER_MAX 128 /* bytes of each filter */

extern const struct module event_module;
extern const struct query_type query_events; /* EventsRequest -> EventsResult */

/* May this event be fired? CO_INVALID: it has no name, or a tag filter without a service filter. CO_TOOLARGE. */
int event_check(const Pb__Event *event);

#endif
