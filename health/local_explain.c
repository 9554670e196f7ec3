/* How a check stands, for people. */
#include "base/clock.h"
#include "health/local_internal.h"

static const char *program_of(const struct check_definition *definition, struct arena *arena) {
    const char *text = definition->arg_count ? definition->args[0] : "";
    for (size_t i = 1; i < definition->arg_count; i++) text = arena_printf(arena, "%s %s", text, definition->args[i]);
    return text;
}

static const char *target_of(const struct check_definition *definition, struct arena *arena) {
    const char *text = "";
    switch (definition->kind) {
        case CHECK_NONE:
        case CHECK_TTL: break;
        case CHECK_HTTP: text = definition->http; break;
        case CHECK_TCP: text = definition->tcp; break;
        case CHECK_UDP: text = definition->udp; break;
        case CHECK_GRPC: text = definition->grpc; break;
        case CHECK_H2PING: text = definition->h2ping; break;
        case CHECK_OS_SERVICE: text = definition->os_service; break;
        case CHECK_SCRIPT: return program_of(definition, arena);
        case CHECK_ALIAS:
            text = definition->alias_service && definition->alias_service[0] ? definition->alias_service
                                                                             : definition->alias_node;
            break;
    }
    return text ? arena_strndup(arena, text, strlen(text)) : "";
}

static int64_t age(uint64_t at_ns, uint64_t now_ns) { return now_ns > at_ns ? (int64_t)(now_ns - at_ns) : 0; }

static void thresholds(const struct check_definition *definition, struct local_check_standing *out) {
    out->to_passing = definition->success_before_passing;
    out->to_warning = definition->failures_before_warning;
    out->to_critical = definition->failures_before_critical;
}

static void describe(const struct check *check, const struct check_definition *definition, uint64_t now_ns,
                     struct local_check_standing *out) {
    bool critical = check->status == PB__STATUS__CRITICAL && check->critical_since_ns != CHECK_NEVER;
    out->told = definition->kind == CHECK_TTL;
    out->runs = definition->kind != CHECK_NONE && !out->told;
    out->interval_ns = definition->interval_ns, out->timeout_ns = out->runs ? definition->timeout_ns : 0;
    out->ttl_ns = out->told ? definition->ttl_ns : 0;
    if (out->runs && definition->kind != CHECK_ALIAS) thresholds(definition, out);
    out->successes = check->successes, out->failures = check->failures;
    out->held = check_held(check);
    out->since_ns = age(critical ? check->critical_since_ns : check->changed_ns, now_ns);
    if (check->has_result)
        out->last_ns = out->told ? (int64_t)now_ns - check->reported_ns : age(check->ended_ns, now_ns);
    if (check->due_ns != CHECK_NEVER) out->next_ns = check->due_ns > now_ns ? (int64_t)(check->due_ns - now_ns) : 0;
    if (definition->deregister_after_ns > 0 && definition->service_id[0])
        out->deregister_ns = definition->deregister_after_ns;
}

bool local_check_explain(struct local *local, struct slice id, struct arena *arena,
                         struct local_check_standing *standing) {
    local_lock(local);
    struct local_check *check = live_check(local, id);
    if (check) {
        const struct check_definition *definition = check->shared->definition;
        *standing = (struct local_check_standing){.record = check_record_copy(local, check, arena),
                                                  .kind = check_kind_text(definition->kind),
                                                  .target = target_of(definition, arena),
                                                  .deregister_ns = LOCAL_NO_TIME,
                                                  .since_ns = LOCAL_NO_TIME,
                                                  .last_ns = LOCAL_NO_TIME,
                                                  .next_ns = LOCAL_NO_TIME,
                                                  .maintenance = check->is_maintenance};
        describe(&check->core, definition, clock_mono_ns(), standing);
    }
    local_unlock(local);
    return check != NULL;
}
