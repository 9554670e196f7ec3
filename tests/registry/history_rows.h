/* A history under the tests' control: what makes rows, marks, and looking at both. */
#ifndef COORD_TESTS_REGISTRY_HISTORY_ROWS_H
#define COORD_TESTS_REGISTRY_HISTORY_ROWS_H

#include "kv/keys/kv.h"
#include "registry/history.h"
#include "tests/lib/fixture.h"

static inline ProtobufCBinaryData binary_text(const char *text) {
    return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

/* Each returns the index of its entry. */
uint64_t put(struct fixture *to, const char *key, const char *value);
uint64_t change(struct fixture *to); /* of a key "a": another value than it had, since the same again would be none */
uint64_t mark(struct fixture *to, int64_t now_unix_ms);
void limit(struct fixture *to, uint64_t changes, uint64_t bytes, uint64_t age_ms); /* with a mark, of 1000 */
struct outcome mark_limits(struct fixture *to, int64_t now_unix_ms, uint64_t changes, uint64_t bytes, uint64_t age_ms);

uint64_t floor_of(struct fixture *of, enum history_topic topic);
struct seen_rows {
    size_t count;
    uint64_t first, last, bytes;
};
/* All of them; each says which row was before it. */
struct seen_rows rows_of(struct fixture *of, enum history_topic topic);
/* The row at `index`: its command, "key" or "key was" for each note, "<space>name" for each touch; "-": there is none.
 * Valid until the next call. */
const char *row_text(struct fixture *of, enum history_topic topic, uint64_t index);

#endif
