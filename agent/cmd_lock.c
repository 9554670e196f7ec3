/* coord lock, coord elect: run a command while a lock is held, or while this process leads. */
#include "agent/cmd_hold.h"
#include "base/check.h"

/* The default note is the name of the program: "backup.sh". The session tells node and process. */
static void default_note(char *const *argv, struct buffer *note) {
    const char *slash = strrchr(argv[0], '/');
    buffer_printf(note, "%.64s", slash ? slash + 1 : argv[0]);
}

static int run_it(struct hold_run *run) {
    struct buffer note = {0};
    default_note(run->argv, &note);
    buffer_append_byte(&note, '\0');
    if (!run->note) run->note = note.data;
    int code = hold_run(run);
    buffer_free(&note);
    buffer_free(&run->parameters);
    return code;
}

static void number_parameter(struct hold_run *run, const char *name, uint64_t value) {
    buffer_printf(&run->parameters, "&%s=%llu", name, (unsigned long long)value);
}

int cmd_lock(int argc, char **argv) {
    static const struct hold_kind kind = {.noun = "lock",
                                          .path = "/v1/lock/",
                                          .ask = "acquire",
                                          .release = "release",
                                          .held = "Held",
                                          .token = "FencingToken",
                                          .exports = {"COORD_FENCING_TOKEN"},
                                          .late = "was not obtained in time",
                                          .not_free = "was not obtained: it is taken"};
    struct hold_run run = {.kind = &kind, .rules.watched = true};
    bool shared = false;
    uint64_t limit = 0;
    const struct cmd_flag flags[] = {
        {"shared", CMD_BOOL, &shared, "together with other shared holders"},
        {"n", CMD_U64, &limit, "so many shared holders at most: a semaphore"},
        {"note", CMD_TEXT, &run.note, "a note for others about the holder (default: COMMAND's program)"}};
    const struct cmd_hold words = {"coord lock [FLAGS] NAME -- COMMAND [ARGS]", flags, ARRAY_COUNT(flags), false};
    int code = cmd_hold_words(argc, argv, &words, &run);
    if (code >= 0) return code;
    if (shared || limit) buffer_append_text(&run.parameters, "&mode=shared");
    if (limit) number_parameter(&run, "limit", limit);
    return run_it(&run);
}

int cmd_elect(int argc, char **argv) {
    static const struct hold_kind kind = {.noun = "election",
                                          .path = "/v1/election/",
                                          .ask = "campaign",
                                          .release = "resign",
                                          .held = "Leader",
                                          .token = "Term",
                                          .exports = {"COORD_FENCING_TOKEN", "COORD_TERM"},
                                          .late = "was not won in time",
                                          .not_free = "was not won: another one leads"};
    struct hold_run run = {.kind = &kind, .rules.watched = true};
    uint64_t priority = 0;
    const struct cmd_flag flags[] = {
        {"priority", CMD_U64, &priority, "of those that wait the highest leads first (default 0)"},
        {"value", CMD_TEXT, &run.note, "the value that the leader advertises (default: COMMAND's program)"}};
    const struct cmd_hold words = {"coord elect [FLAGS] NAME -- COMMAND [ARGS]", flags, ARRAY_COUNT(flags), false};
    int code = cmd_hold_words(argc, argv, &words, &run);
    if (code >= 0) return code;
    if (priority) number_parameter(&run, "priority", priority);
    return run_it(&run);
}
