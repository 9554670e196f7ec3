/* Instances of this host report their load to the API, in the answers to HTTP checks, and in the output of scripts and
 * TTL checks. The reports go to the process's hints (lb/hints.h), which pass them on. */
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "health/local_internal.h"

static struct load_instance instance_of(const struct local *local, const struct local_service *service) {
    return (struct load_instance){.node = slice_text(local->config.node),
                                  .service_id = slice_text(service->item.id),
                                  .service = slice_text(service->record->name)};
}

void service_load_forget(struct local *local, const struct local_service *service) {
    if (local->hints) hints_forget(local->hints, instance_of(local, service));
}

static int report(struct local *local, struct slice id, const struct load_hint *hint) {
    const struct local_service *service = live_service(local, id);
    if (!service) return CO_NOTFOUND;
    if (!local->hints) return CO_OK;
    return hints_report(local->hints, instance_of(local, service), hint, service->registered_ns, clock_mono_ns());
}

int local_service_load(struct local *local, struct slice id, const struct load_hint *hint) {
    local_lock(local);
    int rv = report(local, id, hint);
    local_unlock(local);
    return rv;
}

/* Logs once, until a report makes sense again. */
static void refused(struct local_check *check, const char *why) {
    if (!check->load_refused)
        log_warn("health", "the load that a check reports cannot be right and is not used check=%s reason=\"%s\"",
                 check->item.id, why);
    check->load_refused = true;
}

void check_load(struct local *local, struct local_check *check, const struct load_said *said, struct slice output) {
    const struct check_definition *definition = check->shared->definition;
    if (!*definition->service_id) return;
    struct load_said of_output = {.hint = load_unknown()};
    if (!said && (definition->kind == CHECK_SCRIPT || definition->kind == CHECK_TTL)) {
        if (load_parse_output(output, &of_output.hint, &of_output.fault) == CO_NOTFOUND) return;
        said = &of_output;
    }
    if (!said) return;
    if (said->fault.code != CO_OK) {
        refused(check, said->fault.text);
    } else if (!isnan(said->hint.load)) {
        check->load_refused = false;
        (void)report(local, slice_text(definition->service_id), &said->hint);
    }
}
