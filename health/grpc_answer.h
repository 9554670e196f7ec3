/* Judges a gRPC server's answer to grpc.health.v1.Health/Check. Pure: header fields and bytes in, a verdict out.
 *
 * Formats: "gRPC over HTTP2" (PROTOCOL-HTTP2.md of gRPC): a message is a byte (compressed or not), its length in
 * four bytes (big-endian), and a protobuf message; the outcome is in the trailers grpc-status and grpc-message.
 * Texts are those of Consul. */
#ifndef COORD_HEALTH_GRPC_ANSWER_H
#define COORD_HEALTH_GRPC_ANSWER_H

#include "base/buffer.h"

#define GRPC_PREFIX_SIZE  5
#define GRPC_MESSAGE_MOST 4096
#define GRPC_TEXT_MOST    200

enum grpc_code {
    GRPC_OK,
    GRPC_CANCELLED,
    GRPC_UNKNOWN,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16
};

/* Zero-initialise. */
struct grpc_answer {
    unsigned http_status; /* 0: no head has come */
    bool has_content_type, is_grpc;
    char content_type[64];
    bool has_status, bad_status;
    uint32_t status;
    char status_text[32], message[GRPC_TEXT_MOST + 1]; /* as they came; cut */
    uint8_t body[GRPC_PREFIX_SIZE + GRPC_MESSAGE_MOST];
    size_t body_size;
    bool overflow; /* more of a body than fits */
};
void grpc_answer_header(struct grpc_answer *answer, struct slice name, struct slice value);
void grpc_answer_data(struct grpc_answer *answer, struct slice bytes);
/* True: the answer's message is larger than allowed, so the caller need not wait for its end. */
bool grpc_answer_is_hopeless(const struct grpc_answer *answer);
/* The answer has ended. True: `target` is serving. Appends the reason to `text`: at most GRPC_TEXT_MOST bytes of the
 * peer's, and some of ours. */
bool grpc_answer_judge(const struct grpc_answer *answer, const char *target, struct buffer *text);

/* "rpc error: code = Unavailable desc = "; `code` may be any number. */
void grpc_error_begin(struct buffer *text, uint32_t code);
/* The code for a stream that was reset with this HTTP/2 error code. */
uint32_t grpc_code_of_reset(uint32_t error_code);

#endif
