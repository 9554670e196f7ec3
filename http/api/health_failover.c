#include "http/api/health_failover.h"

#include <string.h>

#include "base/check.h"
#include "http/api/views.h"

char *failover_own(struct http_request *request) {
    const char *other = http_region(request);
    return (char *)(uintptr_t)(other[0] ? other : http_env(request)->datacenter);
}

/* Escapes the name, because names may have any byte, but headers may not. */
static void name_header(struct http_request *request, const char *header, const char *name) {
    static const char digits[] = "0123456789ABCDEF";
    char *value = arena_alloc(http_arena(request), 3 * strlen(name) + 1), *at = value;
    for (const char *from = name; *from; from++) {
        unsigned char byte = (unsigned char)*from;
        bool plain = byte > ' ' && byte < 127 && byte != '%';
        if (plain) *at++ = *from;
        else *at++ = '%', *at++ = digits[byte >> 4], *at++ = digits[byte & 15];
    }
    *at = '\0';
    http_header(request, header, value);
}

static int view(struct http_request *request, const struct query_result *result) {
    const Pb__AnswerResult *answer = (const Pb__AnswerResult *)result->message;
    struct json_out *json = http_out(request);
    name_header(request, "X-Coord-Region", answer->from->region);
    if (!slice_is(http_path_value(request, "service"), answer->service))
        name_header(request, "X-Coord-Service", answer->service);
    json_array(json);
    for (size_t i = 0; i < answer->from->n_entries; i++) view_service_entry(json, answer->from->entries[i]);
    json_array_end(json);
    return 200;
}

/* Adds the other services that the order names, so that the read waits for their changes too. A change of the order
 * itself wakes the read. */
static void order_known(struct http_request *request, int error, const struct query_result *result) {
    Pb__AnswerRequest *message = (Pb__AnswerRequest *)(uintptr_t)http_context(request);
    if (error) {
        http_reply_error(request, error);
        return;
    }
    const Pb__FailoverResult *found = (const Pb__FailoverResult *)result->message;
    const Pb__Failover *record = found && found->state ? found->state->record : NULL;
    message->others = arena_alloc(http_arena(request), FAILOVER_TARGETS_MAX * sizeof(char *));
    for (size_t i = 0; record && i < record->n_targets && i < FAILOVER_TARGETS_MAX; i++)
        if (record->targets[i]->service[0]) message->others[message->n_others++] = record->targets[i]->service;
    http_read(request, &query_answer, &message->base, view);
}

bool health_failover_read(struct http_request *request, const Pb__ServiceRequest *message) {
    static const char *const other_ways[] = {"near", "lb", "subset", "node-meta"};
    if (!http_has(request, "failover")) return false;
    for (size_t i = 0; i < ARRAY_COUNT(other_ways); i++) {
        if (!http_has(request, other_ways[i])) continue;
        http_reply_text(request, 400, "failover: it does not go together with %s", other_ways[i]);
        return true;
    }
    Pb__AnswerRequest *answer = arena_alloc(http_arena(request), sizeof *answer);
    Pb__FailoverRequest *ask = arena_alloc(http_arena(request), sizeof *ask);
    pb__answer_request__init(answer);
    pb__failover_request__init(ask);
    answer->service = ask->service = message->service;
    answer->tags = message->tags, answer->n_tags = message->n_tags;
    answer->passing_only = message->passing_only, answer->own = failover_own(request);
    http_set_context(request, answer);
    http_read_once(request, &query_failover, &ask->base, RPC_STALE, order_known);
    return true;
}
