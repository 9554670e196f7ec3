/* Runs Criterion's tests under sanitizers. Criterion starts the program anew for each test, and under AddressSanitizer that
 * start costs several times as much as most tests (docs/decisions/forked-units.md). Here each test is a fork of a process
 * that has started: as separate from the others, and the leaks of each are looked for when it ends. Test(), TestSuite() and
 * the asserts are Criterion's. */
#ifndef COORD_TESTS_LIB_UNITS_FORKED_H
#define COORD_TESTS_LIB_UNITS_FORKED_H

/* All tests that are not disabled and whose "suite/name" fits `pattern` (of fnmatch; NULL: all). How many did not pass. */
int units_forked_run(const char *pattern);

#endif
