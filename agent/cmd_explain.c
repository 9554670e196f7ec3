/* coord explain: why something is as it is. One command a kind of thing. */
#include "agent/cmd_explain.h"
#include "agent/cmd.h"
#include "base/check.h"

int cmd_explain(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"check", "the status of a check, its output, who runs it, and when its status changes", explain_check},
        {"election", "who leads an election, why the first candidate still waits, and what happened last",
         explain_election},
        {"lock", "who holds a lock, why the first one still waits, and what happened last", explain_lock},
        {"node", "whether a node's agent is heard of, until when, and what ends with it", explain_node},
        {"quota", "what is left of a budget, who holds it, and whether this agent could take of it now", explain_quota},
        {"service", "which region answers for a service, and why", explain_service},
        {"session", "what a session holds and waits for, when it ends, and what happens then", explain_session},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "explain", argc, argv);
}
