/* Any bytes as frames of hints and of counts of keys from another process: they are taken or refused, what is taken is
 * within bounds, and what is passed on of it decodes. The first byte says which. */
#include <stdlib.h>

#include "base/check.h"
#include "lb/hints.h"
#include "lb/load_wire.h"

#define NOW (1000 * UINT64_C(1000000000))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_hints(struct hints *hints, struct buffer *frame) {
    struct load_entry entry;
    hints_changes(hints, 0, LOAD_ALL, HINTS_FRAME_MOST, NOW, frame);
    struct load_reader reader = {.rest = buffer_slice(frame)};
    int rv;
    while ((rv = load_read(&reader, &entry)) == CO_OK) {
        CHECK(load_check(&entry.hint, NULL) == CO_OK && entry.instance.node.size <= LOAD_NAME_SIZE);
        CHECK(entry.interval_ns >= LOAD_INTERVAL_MIN_NS && entry.interval_ns <= LOAD_INTERVAL_MAX_NS);
    }
    CHECK(rv == CO_NOTFOUND);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    char *exact = malloc(size);
    memcpy(exact, data + 1, size - 1);
    struct slice payload = slice_make(exact, size - 1);
    struct hints *hints = hints_new(0);
    struct buffer frame = {0};
    if (data[0] & 1) {
        (void)hints_take(hints, payload, data[0] & 2, slice_text(data[0] & 4 ? "n1" : ""), NOW);
        check_hints(hints, &frame);
    } else {
        (void)hints_keys_merge(hints, payload, true, NOW);
        hints_keys_take(hints, &frame);
        CHECK(hints_keys_merge(hints, buffer_slice(&frame), false, NOW) == CO_OK);
    }
    buffer_free(&frame);
    hints_free(hints);
    free(exact);
    return 0;
}
