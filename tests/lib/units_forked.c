#include "tests/lib/units_forked.h"

#include <criterion/criterion.h>
#include <criterion/event.h>
#include <errno.h>
#include <fnmatch.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

enum { FAILED = 1 };

/* Of the linker: all Test() and TestSuite() of the program. The sanitizers may leave gaps. */
extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak)),
    *__stop_cr_sts[] __attribute__((weak)); /* none: NULL */

/* In the process that runs tests. */
static const struct criterion_test *current;
static bool failed; /* the test that runs */
static jmp_buf before;
static bool skipped;

/* Shared with the process that counts. */
static struct progress {
    size_t at; /* the test that runs */
    size_t tested, failing;
    bool ended; /* all were run; then leaks are looked for */
} * progress;

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
    longjmp(before, 1);
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
void criterion_internal_test_main(void (*test)(void)) {
    skipped = setjmp(before) != 0;
    if (!skipped) test();
}
void criterion_internal_test_teardown(void) {
    if (skipped) return;
    const struct criterion_test_extra_data *suite = suite_of(current);
    if (current->data->fini) current->data->fini();
    if (suite && suite->fini) suite->fini();
}

/* ---- the run ---- */

static size_t test_count(void) { return (size_t)(__stop_cr_tst - __start_cr_tst); }

static bool is_chosen(const struct criterion_test *test, const char *pattern) {
    if (!test) return false;
    const struct criterion_test_extra_data *suite = suite_of(test);
    char name[256];
    if (test->data->disabled || (suite && suite->disabled)) return false;
    snprintf(name, sizeof name, "%s/%s", test->category, test->name);
    return !pattern || fnmatch(pattern, name, FNM_EXTMATCH) == 0;
}

static void run_one(const struct criterion_test *test) {
    const struct criterion_test_extra_data *suite = suite_of(test);
    double limit = test->data->timeout ? test->data->timeout : suite ? suite->timeout : 0;
    CHECK(test->data->kind_ == CR_TEST_NORMAL && !test->data->signal && !test->data->exit_code);
    current = test, failed = false;
    alarm(limit ? (unsigned)limit + 1 : 0);
    test->test();
    alarm(0);
    progress->failing += failed;
}

/* A process that runs the tests from `from` up to `to`. Its end by exit looks for leaks. */
static int run_apart(size_t from, size_t to, const char *pattern) {
    fflush(NULL);
    progress->ended = false;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (size_t at = from; at < to; at++) {
            if (!is_chosen(__start_cr_tst[at], pattern)) continue;
            progress->at = at, progress->tested++;
            run_one(__start_cr_tst[at]);
        }
        progress->ended = true;
        exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
    return status;
}

/* Some of these tests leaked: each is run again by itself to tell which. */
static size_t tell_leaks(size_t from, size_t to, const char *pattern) {
    size_t leaking = 0;
    for (size_t at = from; at < to; at++) {
        if (!is_chosen(__start_cr_tst[at], pattern) || run_apart(at, at + 1, pattern) == 0) continue;
        current = __start_cr_tst[at];
        say("----", "it leaks, see the sanitizer's report");
        leaking++;
    }
    if (leaking == 0) fprintf(stderr, "[----] these tests leak only one after the other, see the sanitizer's report\n");
    return leaking ? leaking : 1;
}

int units_forked_run(const char *pattern, bool apart) {
    size_t crashing = 0, leaking = 0, from = 0;
    progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(progress != MAP_FAILED);
    while (from < test_count()) {
        if (!is_chosen(__start_cr_tst[from], pattern)) {
            from++;
            continue;
        }
        size_t to = apart ? from + 1 : test_count();
        int status = run_apart(from, to, pattern);
        if (status == 0 || progress->ended) {
            struct progress counted = *progress;
            if (status) leaking += tell_leaks(from, to, pattern);
            *progress = counted;
            from = to;
            continue;
        }
        current = __start_cr_tst[progress->at];
        progress->failing++;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != FAILED) {
            crashing++;
            say("----", WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
                                            : "it ended with another code, see the sanitizer's report");
        }
        from = progress->at + 1;
    }
    size_t failing = progress->failing + leaking;
    printf("[====] Synthesis: Tested: %zu | Passing: %zu | Failing: %zu | Crashing: %zu\n", progress->tested,
           progress->tested - failing, failing, crashing + leaking);
    return (int)failing;
}
