/* coord explain: why something is as it is. One command a kind of thing. */
#include "agent/cmd_explain.h"
#include "agent/cmd.h"
#include "base/check.h"

int cmd_explain(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"check", "a check's status, its output, the agent that runs it, and the next change of its status",
         explain_check},
        {"election", "the leader of an election, why the first candidate still waits, and the last changes",
         explain_election},
        {"lock", "the holders of a lock, why the first waiter still waits, and the last changes", explain_lock},
        {"node", "the lease of a node's agent, its end, and all that ends with it", explain_node},
        {"quota", "the rest of a budget, its leases, and whether this agent could take of it now", explain_quota},
        {"service", "the region that answers for a service, and why", explain_service},
        {"session", "all that a session holds and waits for, its end, and the effect of that", explain_session},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "explain", argc, argv);
}
