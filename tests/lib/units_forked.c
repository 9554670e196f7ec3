#include "tests/lib/units_forked.h"

#include <criterion/criterion.h>
#include <criterion/event.h>
#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

enum { FAILED = 1, SKIPPED = 77 };

/* Of the linker: all Test() and TestSuite() of the program. The sanitizers may leave gaps. */
extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak)),
    *__stop_cr_sts[] __attribute__((weak)); /* none: NULL */

/* In the process of one test. */
static const struct criterion_test *current;
static bool failed;

static const struct criterion_test_extra_data *suite_of(const struct criterion_test *test) {
    for (struct criterion_suite **i = __start_cr_sts; i < __stop_cr_sts; i++)
        if (*i && strcmp((*i)->name, test->category) == 0) return (*i)->data;
    return NULL;
}

/* ---- what the macros of Criterion call, in place of its library ---- */

static void say(const char *kind, const char *text) {
    fprintf(stderr, "[%s] %s::%s: %s\n", kind, current->category, current->name, text);
}

void criterion_send_assert(struct criterion_assert_stats *stats) {
    if (stats->passed) return;
    fprintf(stderr, "[FAIL] %s::%s: %s:%u: %s\n", current->category, current->name, stats->file, stats->line,
            stats->message);
}
void cri_asserts_passed_incr(void) {}
void criterion_continue_test(void) { failed = true; }
void criterion_abort_test(void) {
    fflush(NULL);
    _exit(FAILED);
}
void criterion_skip_test(const char *format, ...) {
    char why[200];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    say("SKIP", why);
    fflush(NULL);
    _exit(SKIPPED);
}
void cr_log(enum criterion_severity severity, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\n", stderr);
    (void)severity;
}

void criterion_internal_test_setup(void) {
    const struct criterion_test_extra_data *suite = suite_of(current);
    if (suite && suite->init) suite->init();
    if (current->data->init) current->data->init();
}
void criterion_internal_test_main(void (*test)(void)) { test(); }
void criterion_internal_test_teardown(void) {
    const struct criterion_test_extra_data *suite = suite_of(current);
    if (current->data->fini) current->data->fini();
    if (suite && suite->fini) suite->fini();
}

/* ---- the run ---- */

static void run_here(const struct criterion_test *test) {
    const struct criterion_test_extra_data *suite = suite_of(test);
    double limit = test->data->timeout ? test->data->timeout : suite ? suite->timeout : 0;
    current = test;
    if (limit) alarm((unsigned)limit + 1);
    test->test();
    exit(failed ? FAILED : 0); /* looks for leaks */
}

static int run_apart(const struct criterion_test *test) {
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) run_here(test);
    int status;
    while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
    return status;
}

static bool is_chosen(const struct criterion_test *test, const char *pattern) {
    const struct criterion_test_extra_data *suite = suite_of(test);
    char name[256];
    if (test->data->disabled || (suite && suite->disabled)) return false;
    snprintf(name, sizeof name, "%s/%s", test->category, test->name);
    return !pattern || fnmatch(pattern, name, FNM_EXTMATCH) == 0;
}

int units_forked_run(const char *pattern) {
    int tested = 0, failing = 0, crashing = 0;
    for (struct criterion_test **i = __start_cr_tst; i < __stop_cr_tst; i++) {
        if (!*i || !is_chosen(*i, pattern)) continue;
        CHECK((*i)->data->kind_ == CR_TEST_NORMAL && !(*i)->data->signal && !(*i)->data->exit_code);
        int status = run_apart(*i);
        tested++;
        if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SKIPPED)) continue;
        failing++;
        current = *i;
        if (WIFEXITED(status) && WEXITSTATUS(status) == FAILED) continue;
        crashing++;
        say("----", WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
                                        : "it ended with another code, see the sanitizer's report");
    }
    printf("[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | Crashing: %d\n", tested, tested - failing,
           failing, crashing);
    return failing;
}
