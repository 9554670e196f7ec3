#include "tests/lib/later.h"

#include "base/check.h"
#include "tests/lib/open_to_all.h"

static int apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    (void)request;
    CHECK(machine_tx_version(tx) >= LATER_VERSION); /* no leader has appended it before */
    result->yes = true;
    return CO_OK;
}

static const struct module_command commands[] = {{.number = LATER,
                                                  .since = LATER_VERSION,
                                                  .name = "later",
                                                  .request = &pb__cluster_version_command__descriptor,
                                                  .may = open_may,
                                                  .apply = apply},
                                                 {0}};
const struct module later_module = {.name = "later", .commands = commands};
