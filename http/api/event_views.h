/* Writes events as JSON, and selects those for this agent. */
#ifndef COORD_HTTP_API_EVENT_VIEWS_H
#define COORD_HTTP_API_EVENT_VIEWS_H

#include "base/json_out.h"
#include "health/local.h"
#include "kv/event/event.h"

void view_event(struct json_out *json, const Pb__Event *event);
/* Do the event's filters match this node, and one of these services? An invalid filter (http/api/event_filter.h) matches
 * nothing. */
bool view_event_is_ours(const Pb__Event *event, const char *node, Pb__Service *const *services, size_t count);
/* CO_INVALID and a fault: the text is no valid filter. */
int view_event_filter_check(const char *what, const char *filter, struct fault *fault);

#endif
