/* Any bytes as a load report, in each of its forms: what is read is within bounds, what is refused has one line. The
 * first byte says which form. */
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "lb/load_hint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int (*const forms[])(struct slice, struct load_hint *, struct fault *) = {load_parse_line, load_parse_output,
                                                                                     load_parse_orca};
    if (size == 0) return 0;
    size_t form = data[0] % ARRAY_COUNT(forms);
    char *exact = malloc(size);
    memcpy(exact, data + 1, size - 1);
    struct load_hint hint = {7, 7, 7, 7};
    struct fault fault = {0};
    int rc = forms[form](slice_make(exact, size - 1), &hint, &fault);
    free(exact);
    if (rc == CO_OK) {
        CHECK(load_check(&hint, NULL) == CO_OK && fault.code == CO_OK);
    } else if (rc == CO_NOTFOUND) {
        CHECK(forms[form] == load_parse_output && fault.code == CO_OK);
    } else {
        CHECK(fault.code == rc && fault.text[0] && !strchr(fault.text, '\n') && hint.load == 7 && hint.errors == 7);
    }
    return 0;
}
