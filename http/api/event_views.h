/* Events as JSON, and which of them are for this agent. */
#ifndef COORD_HTTP_API_EVENT_VIEWS_H
#define COORD_HTTP_API_EVENT_VIEWS_H

#include "base/json_out.h"
#include "health/local.h"
#include "kv/event/event.h"

void view_event(struct json_out *json, const Pb__Event *event);
/* Do its filters take this node, and one of these services? A filter that is none (http/api/event_filter.h) takes
 * nobody. */
bool view_event_is_ours(const Pb__Event *event, const char *node, Pb__Service *const *services, size_t count);
/* CO_INVALID, and why: not a filter. */
int view_event_filter_check(const char *what, const char *filter, struct fault *fault);

#endif
