#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void check_failed(const char *file, int line, const char *what) {
    fprintf(stderr, "coord: internal error at %s:%d: %s\n", file, line, what);
    abort();
}
