/* Any header fields and bytes as a gRPC server's answer: bounded, one verdict, and health only for a whole answer.
 * Input: pieces of a byte that says what it is, a byte for its size, and as many bytes. */
#include <stdlib.h>

#include "base/check.h"
#include "health/grpc_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {NULL, ":status", "content-type", "grpc-status", "grpc-message", "other"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct grpc_answer *answer = calloc(1, sizeof *answer);
    struct buffer text = {0};
    while (size >= 2) {
        size_t part = data[1] < size - 2 ? data[1] : size - 2;
        const char *name = names[data[0] % ARRAY_COUNT(names)];
        char *exact = malloc(part ? part : 1);
        memcpy(exact, data + 2, part);
        if (name) {
            grpc_answer_header(answer, slice_text(name), slice_make(exact, part));
        } else {
            grpc_answer_data(answer, slice_make(exact, part));
        }
        free(exact);
        data += 2 + part;
        size -= 2 + part;
    }
    bool serves = grpc_answer_judge(answer, "host:1/service", &text);
    CHECK(text.size > 0 && text.size < 600 && !memchr(text.data, '\n', text.size) &&
          !memchr(text.data, '\0', text.size));
    if (serves) {
        CHECK(answer->http_status == 200 && answer->is_grpc && answer->has_status && answer->status == GRPC_OK);
        CHECK(answer->body_size >= GRPC_PREFIX_SIZE + 2 && answer->body[0] == 0);
        CHECK(slice_is(buffer_slice(&text), "gRPC check host:1/service: success"));
    }
    buffer_free(&text);
    free(answer);
    return 0;
}
