/* Runs Criterion's tests under sanitizers. Criterion starts the program anew for each test, and under AddressSanitizer that
 * start costs several times as much as most tests (docs/decisions/forked-units.md). Here the tests of a file run one after the
 * other in one process, a fork of this one, and leaks are looked for when it ends. After a test that failed, crashed or took
 * too long, the next ones run in another fork. With `apart` each test has a fork of its own, as separate from the others as
 * Criterion's. Test(), TestSuite() and the asserts are Criterion's. */
#ifndef COORD_TESTS_LIB_UNITS_FORKED_H
#define COORD_TESTS_LIB_UNITS_FORKED_H

#include <stdbool.h>

/* All tests that are not disabled and whose "suite/name" fits `pattern` (of fnmatch; NULL: all). How many did not pass. */
int units_forked_run(const char *pattern, bool apart);

#endif
