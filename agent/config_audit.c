/* Keys of the audit log that belong together. */
#include "agent/config_internal.h"

int config_check_audit(struct config *config, struct fault *fault) {
    bool file = config->audit_file != NULL, socket = config->audit_socket != NULL;
    if (!config->audit_enabled || file != socket) return CO_OK;
    return config_wrong(
        config, fault, CO_INVALID, "audit.enabled: %s",
        file ? "audit.file and audit.socket are given, and only one may be" : "it needs audit.file or audit.socket");
}
