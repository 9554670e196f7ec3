/* coord barrier: waits for others, then runs a command, then perhaps waits for the others' ends. */
#include "agent/cmd_hold.h"
#include "base/check.h"

static int wrong(const char *usage, const char *what) {
    (void)cmd_wrong(usage, what);
    return HOLD_EXIT_ERROR;
}

int cmd_barrier(int argc, char **argv) {
    static const struct hold_kind kind = {.noun = "barrier",
                                          .path = "/v1/barrier/",
                                          .ask = "enter",
                                          .release = "leave",
                                          .held = "Released",
                                          .token = "Round",
                                          .standing = "inside",
                                          .exports = {"COORD_BARRIER_ROUND"},
                                          .late = "was not released in time: not all parties have entered",
                                          .not_free = "is not released: not all parties have entered"};
    struct hold_run run = {.kind = &kind, .rules.unbounded = true};
    bool twice = false;
    uint64_t parties = 0;
    const struct cmd_flag flags[] = {
        {"n", CMD_U64, &parties, "so many have to enter; all say the same"},
        {"double", CMD_BOOL, &twice, "at the end it leaves, and waits (as -wait says) until all have left"}};
    const struct cmd_hold words = {"coord barrier [FLAGS] -n PARTIES NAME [-- COMMAND [ARGS]]", flags,
                                   ARRAY_COUNT(flags), true};
    int code = cmd_hold_words(argc, argv, &words, &run);
    if (code >= 0) return code;
    if (!parties) return wrong(words.usage, "-n: the number of PARTIES is wanted");
    /* after=0: if the answer was lost, the next request is answered with the round that the session was released
     * from. */
    buffer_printf(&run.parameters, "&parties=%llu&after=0%s", (unsigned long long)parties, twice ? "&double" : "");
    if (twice) run.rules.leave_ms = run.rules.wait_ms;
    run.rules.watched = twice; /* after a single barrier is released nothing is held */
    code = hold_run(&run);
    buffer_free(&run.parameters);
    return code;
}
