/* Kinds of checks that can be defined, and whose runners are not built yet: they are refused where they are registered.
 * This file, and the lines that name it, go as soon as the runners are there. */
#include "base/check.h"
#include "health/definition.h"
#include "health/runner.h"

bool runner_pending_refuses(enum check_kind kind, struct fault *fault) {
    if (kind != CHECK_UDP && kind != CHECK_GRPC && kind != CHECK_H2PING) return false;
    fault_set(fault, CO_INVALID, "Invalid check: %s checks are not supported by this version",
              check_kind_text(kind));
    return true;
}

struct run *run_udp_start(struct runners *runners, const struct check_definition *definition) {
    (void)runners, (void)definition;
    UNREACHABLE();
}
struct run *run_grpc_start(struct runners *runners, const struct check_definition *definition) {
    (void)runners, (void)definition;
    UNREACHABLE();
}
struct run *run_h2ping_start(struct runners *runners, const struct check_definition *definition) {
    (void)runners, (void)definition;
    UNREACHABLE();
}
