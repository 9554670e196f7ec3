/* The main of tests/<folder>/units: all test_*.c of a folder in one program.
 *
 *     units                        every test
 *     units test_kv                those of test_kv.c
 *     units test_kv --filter ...   some of them; after the file come Criterion's own options
 *     units test_kv --apart       under sanitizers: each in a process of its own
 *     units --files              the file of each test, a line each: tests/tidy/check_units.sh compares */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/units_forked.h"

/* Of the linker: where all Test() of the program are listed. The sanitizers may leave gaps. */
extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];

/* The name of the file that defines it, without folder and ".c". */
static bool is_of(const struct criterion_test *test, const char *name) {
    const char *slash = strrchr(test->data->file_, '/'), *file = slash ? slash + 1 : test->data->file_;
    size_t size = strlen(name);
    return strncmp(file, name, size) == 0 && strcmp(file + size, ".c") == 0;
}

/* Leaves those of one file; how many these are. */
static int choose(const char *name) {
    int count = 0;
    for (struct criterion_test **i = __start_cr_tst; i < __stop_cr_tst; i++) {
        if (!*i) continue;
        if (is_of(*i, name)) count++;
        else (*i)->data->disabled = true;
    }
    return count;
}

static void print_files(void) {
    for (struct criterion_test **i = __start_cr_tst; i < __stop_cr_tst; i++)
        if (*i) puts((*i)->data->file_);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--files") == 0) {
        print_files();
        return 0;
    }
    if (argc > 1 && argv[1][0] != '-') {
        if (choose(argv[1]) == 0) {
            fprintf(stderr, "units: no tests of a file %s.c in this program\n", argv[1]);
            return 2;
        }
        argv[1] = argv[0];
        argv++, argc--;
    }
#ifdef UNITS_FORKED
    const char *pattern = NULL;
    bool apart = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--apart") == 0) {
            apart = true;
        } else if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc) {
            pattern = argv[++i];
        } else {
            fprintf(stderr, "units: under sanitizers the options are --apart and --filter PATTERN\n");
            return 2;
        }
    }
    return units_forked_run(pattern, apart) != 0;
#else
    struct criterion_test_set *tests = criterion_initialize();
    int result = 0;
    if (criterion_handle_args(argc, argv, true)) result = !criterion_run_all_tests(tests);
    criterion_finalize(tests);
    return result;
#endif
}
