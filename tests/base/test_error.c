#include <criterion/criterion.h>
#include <errno.h>

#include "base/check.h"
#include "base/error.h"

Test(error, every_code_has_a_text) {
    for (int code = 0; code < CO_ERROR_COUNT; code++) {
        cr_expect_str_neq(co_strerror(code), "", "code %d", code);
        cr_expect_str_neq(co_strerror(code), "unknown error", "code %d", code);
    }
    cr_expect_str_eq(co_strerror(CO_NOLEADER), "No cluster leader");
    cr_expect_str_eq(co_strerror(-1), "unknown error");
    cr_expect_str_eq(co_strerror(CO_ERROR_COUNT), "unknown error");
}

Test(error, from_errno) {
    static const struct {
        int errnum, code;
    } rows[] = {
        {0, CO_OK},           {ENOMEM, CO_NOMEM},    {ENOENT, CO_NOTFOUND},
        {EEXIST, CO_EXISTS},  {ENOSPC, CO_DISKFULL}, {EDQUOT, CO_DISKFULL},
        {EFBIG, CO_DISKFULL}, {EAGAIN, CO_AGAIN},    {EIO, CO_IO},
        {EPERM, CO_IO},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        cr_expect_eq(co_from_errno(rows[i].errnum), rows[i].code, "errno %d", rows[i].errnum);
    }
}

Test(error, first_fault_sticks) {
    struct fault fault = {0};
    cr_expect_eq(fault_set(&fault, CO_INVALID, "line %d", 7), CO_INVALID);
    cr_expect_eq(fault_set(&fault, CO_IO, "later"), CO_IO);
    cr_expect_eq(fault.code, CO_INVALID);
    cr_expect_str_eq(fault.text, "line 7");
    cr_expect_eq(fault_set(NULL, CO_IO, "nobody listens"), CO_IO);
}

Test(error, a_fault_is_one_line) {
    struct fault fault = {0};
    fault_set(&fault, CO_INVALID, "unknown key \"%s\"", "a\r\nb\x7f\t\u00e4");
    cr_expect_str_eq(fault.text, "unknown key \"a??b??\u00e4\"");
}

Test(error, long_faults_are_cut) {
    struct fault fault = {0};
    fault_set(&fault, CO_INVALID, "%0400d", 1);
    cr_expect_eq(strlen(fault.text), sizeof fault.text - 1);
}
