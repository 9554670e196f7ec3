/* coord explain: why something is as it is. One command a kind of thing. */
#include "agent/cmd_explain.h"
#include "agent/cmd.h"
#include "base/check.h"

int cmd_explain(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"lock", "who holds a lock, why the first one still waits, and what happened last", explain_lock},
        {"quota", "what is left of a budget, who holds it, and whether this agent could take of it now", explain_quota},
        {"service", "which region answers for a service, and why", explain_service},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "explain", argc, argv);
}
