/* The agent's own records as Consul's JSON: they differ from the catalog's (http/api/views.h). */
#ifndef COORD_HTTP_API_AGENT_VIEWS_H
#define COORD_HTTP_API_AGENT_VIEWS_H

#include "http/http.h"
#include "registry/catalog.h"

/* Writes one value. `hash` 0: none is shown. */
void agent_view_service(struct json_out *json, const Pb__Service *service, uint64_t hash);
/* {"AggregatedStatus", "Service", "Checks"}; service NULL: unknown. */
void agent_view_health(struct json_out *json, const char *status, const Pb__Service *service, Pb__Check *const *checks,
                       size_t count);
/* "passing", "warning", "critical" or "maintenance": the worst of the checks. */
const char *agent_worst_status(Pb__Check *const *checks, size_t count);
/* The content hash as text, for JSON and header. */
const char *agent_hash_text(struct arena *arena, uint64_t hash);

/* Answers 200 without a body, when all changes so far have been delivered to the servers. Also when that failed or took
 * too long, because the registration with this agent is done. */
void agent_reply_synced(struct http_request *request);
/* ?enable as Consul reads it; otherwise it has replied 400 and returns false. */
bool agent_parameter_enable(struct http_request *request, bool *enable);
#define AGENT_ENABLE \
    { "enable", HTTP_CHOICE, .choices = "true|false", .required = true, .help = "on or off" }
#define AGENT_REASON \
    { "reason", HTTP_TEXT, .help = "for people: what the maintenance is for" }

#endif
