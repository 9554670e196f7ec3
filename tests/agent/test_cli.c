#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/cli.h"
#include "base/check.h"

static int ran, ran_argc;
static char ran_argv[4][32];

static int note(int number, int argc, char **argv) {
    ran = number;
    ran_argc = argc;
    for (int i = 0; i < argc && i < 4; i++) snprintf(ran_argv[i], sizeof ran_argv[i], "%s", argv[i]);
    return 10 + number;
}
static int one(int argc, char **argv) { return note(1, argc, argv); }
static int two(int argc, char **argv) { return note(2, argc, argv); }

static const struct cli_command commands[] = {{"agent", "first", one}, {"version", "second", two}};

static int run(const char *const *words) {
    char *argv[6] = {(char *)(uintptr_t) "coord"};
    int argc = 1;
    while (argc < 5 && words[argc - 1]) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
        argc++;
    }
    return cli_run(commands, ARRAY_COUNT(commands), argc, argv);
}

TestSuite(cli, .init = cr_redirect_stderr);

Test(cli, dispatch) {
    cr_expect_eq(run((const char *[]){"agent", "-dev", "x", NULL}), 11);
    cr_expect_eq(ran_argc, 3);
    cr_expect_str_eq(ran_argv[0], "agent");
    cr_expect_str_eq(ran_argv[2], "x");
    static const char *const versions[] = {"version", "-v", "-version", "--version"};
    for (size_t i = 0; i < ARRAY_COUNT(versions); i++) {
        ran = 0;
        cr_expect_eq(run((const char *[]){versions[i], NULL}), 12, "%s", versions[i]);
        cr_expect_eq(ran, 2);
    }
}

Test(cli, help) {
    cr_redirect_stdout();
    cr_expect_eq(run((const char *[]){"help", NULL}), 0);
    fflush(stdout);
    cr_expect_stdout_eq_str(
        "usage: coord COMMAND [ARGS]\n\n  agent        first\n  version      second\n\n"
        "`coord help COMMAND` tells more. Exit codes: 0 done, 1 refused (the answer is no), 2 a mistake, 3 nobody "
        "could say\n"
        "(no agent, no leader); of lock, elect and barrier that of the command they ran, else their own.\n");
    cr_expect_eq(run((const char *[]){"help", "agent", NULL}), 11);
    cr_expect_str_eq(ran_argv[1], "-h");
    cr_expect_eq(run((const char *[]){"help", "nonsense", NULL}), 2);
}

Test(cli, nothing) { cr_expect_eq(run((const char *[]){NULL}), 2); }

Test(cli, unknown_with_a_neighbour) {
    cr_expect_eq(run((const char *[]){"agnet", NULL}), 2);
    cr_expect_eq(ran, 0);
    fflush(stderr);
    cr_expect_stderr_eq_str("coord: unknown command \"agnet\", did you mean \"agent\"?\n");
}

Test(cli, unknown_is_a_beginning) {
    cr_expect_eq(run((const char *[]){"ver", NULL}), 2);
    fflush(stderr);
    cr_expect_stderr_eq_str("coord: unknown command \"ver\", did you mean \"version\"?\n");
}

Test(cli, unknown_is_consuls) {
    cr_expect_eq(run((const char *[]){"exec", NULL}), 2);
    fflush(stderr);
    cr_expect_stderr_eq_str(
        "coord: Consul's `exec`; coord does not have it: there is no remote execution; see docs/divergence.md\n");
}

/* Two of two letters are wrong: nothing is suggested. */
Test(cli, unknown_and_short) {
    cr_expect_eq(run((const char *[]){"lb", NULL}), 2);
    fflush(stderr);
    cr_expect_stderr_eq_str("coord: unknown command \"lb\", `coord help` lists them\n");
}

Test(cli, unknown_without) {
    cr_expect_eq(run((const char *[]){"frobnicate", NULL}), 2);
    fflush(stderr);
    cr_expect_stderr_eq_str("coord: unknown command \"frobnicate\", `coord help` lists them\n");
}

/* Also those that come from the routing table: the second of two would never run. */
Test(cli, has_each_command_once) {
    static char names[100][32];
    size_t count = 0;
    char *argv[] = {(char *)(uintptr_t) "coord", (char *)(uintptr_t) "help", NULL};
    cr_redirect_stdout();
    cr_expect_eq(cli_main(2, argv), 0);
    fflush(stdout);
    for (char line[256]; fgets(line, sizeof line, cr_get_redirected_stdout());) {
        if (sscanf(line, "  %31s", names[count]) != 1 || line[0] != ' ') continue;
        for (size_t i = 0; i < count; i++) cr_expect_str_neq(names[i], names[count]);
        cr_assert_lt(++count, ARRAY_COUNT(names));
    }
    cr_expect_gt(count, 15u);
}
