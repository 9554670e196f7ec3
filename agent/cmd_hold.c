#include "agent/cmd_hold.h"

#include "base/check.h"
#include "base/text.h"

#define OWN_FLAGS 8

/* Takes flags as cmd_flags, but returns HOLD_EXIT_ERROR for wrong ones. */
static int take_flags(int argc, char **argv, const struct cmd_hold *of, const char **wait, struct hold_run *run,
                      char ***rest) {
    struct cmd_flag flags[OWN_FLAGS + 2];
    CHECK(of->count <= OWN_FLAGS);
    memcpy(flags, of->flags, of->count * sizeof *flags);
    flags[of->count] =
        (struct cmd_flag){"wait", CMD_DURATION, wait, "how long it waits; 0: not at all (default: for ever)"};
    flags[of->count + 1] =
        (struct cmd_flag){"ttl", CMD_DURATION, &run->ttl,
                          "it passes on that long after this command is last heard of (default " CMD_HOLD_TTL ")"};
    int code = cmd_flags(argc, argv, flags, of->count + 2, &run->client, of->usage, rest);
    return code > 0 ? HOLD_EXIT_ERROR : code;
}

static int wrong(const struct cmd_hold *of, const char *what) {
    (void)cmd_wrong(of->usage, what);
    return HOLD_EXIT_ERROR;
}

static uint64_t whole_ms(int64_t ns) { return (uint64_t)(ns + 999999) / 1000000; }

static int take_times(const struct cmd_hold *of, const char *wait, struct hold_run *run) {
    int64_t wait_ns = 0, ttl_ns = 0;
    if (!run->ttl) run->ttl = CMD_HOLD_TTL;
    CHECK(duration_parse(slice_text(run->ttl), &ttl_ns) == CO_OK);
    CHECK(!wait || duration_parse(slice_text(wait), &wait_ns) == CO_OK);
    if (ttl_ns <= 0) return wrong(of, "-ttl: a time above 0 is wanted");
    if (wait_ns < 0) return wrong(of, "-wait: a time, or 0, is wanted");
    run->rules.ttl_ms = whole_ms(ttl_ns);
    run->rules.wait_ms = wait ? whole_ms(wait_ns) : HOLD_FOREVER;
    return -1;
}

static bool is_end(char *const *word) { return strcmp(*word, "--") == 0; }

int cmd_hold_words(int argc, char **argv, const struct cmd_hold *of, struct hold_run *run) {
    const char *wait = NULL;
    char **rest, **end = argv + argc;
    int code = take_flags(argc, argv, of, &wait, run, &rest);
    if (code >= 0) return code;
    if (rest == end || (rest > argv + 1 && is_end(rest - 1))) return wrong(of, "a NAME is wanted before --");
    run->name = *rest;
    char **after = rest;
    code = take_flags((int)(end - after), after, of, &wait, run, &rest);
    if (code >= 0) return code;
    bool ended = rest > after + 1 && is_end(rest - 1);
    if (!run->name[0]) return wrong(of, "the NAME is empty");
    if (!ended && (rest < end || !of->command_optional)) return wrong(of, "-- is wanted between NAME and COMMAND");
    if (ended && rest == end) return wrong(of, "a COMMAND is wanted after --");
    run->argv = ended ? rest : NULL;
    return take_times(of, wait, run);
}
