/* One catalogue of errors, and `struct fault`: an error with the one line that a person reads.
 *
 * Functions return `int`: CO_OK (0) or one of these codes. Foreign codes (LMDB, libuv, errno, curl) are translated
 * in the adapter that meets them and nowhere else. */
#ifndef COORD_BASE_ERROR_H
#define COORD_BASE_ERROR_H

#define CO_ERRORS(X)                                                                     \
    X(CO_NOMEM, "out of memory")                                                         \
    X(CO_NOTFOUND, "no such record")                                                     \
    X(CO_EXISTS, "it exists already")                                                    \
    X(CO_INVALID, "invalid request")                                                     \
    X(CO_TOOLARGE, "too large")                                                          \
    X(CO_CONFLICT, "conflict")                                                           \
    X(CO_DENIED, "Permission denied")                                                    \
    X(CO_UNSUPPORTED, "not supported")                                                   \
    X(CO_NOTLEADER, "this server is not the leader")                                     \
    X(CO_NOLEADER, "No cluster leader")                                                  \
    X(CO_UNKNOWN_OUTCOME, "outcome unknown: the write may or may not have been applied") \
    X(CO_TIMEOUT, "timed out")                                                           \
    X(CO_AGAIN, "not yet")                                                               \
    X(CO_BUSY, "too many requests")                                                      \
    X(CO_CLOSED, "closed")                                                               \
    X(CO_CORRUPT, "damaged data")                                                        \
    X(CO_IO, "input/output error")                                                       \
    X(CO_DISKFULL, "disk full")                                                          \
    X(CO_FENCED, "this server is fenced")                                                \
    X(CO_PRECONDITION, "precondition failed")                                            \
    X(CO_GONE, "no longer kept")                                                         \
    X(CO_NOREGION, "No path to datacenter")                                              \
    X(CO_NOTOKEN, "ACL not found")                                                       \
    X(CO_NOTREADY, "not ready yet")                                                      \
    X(CO_LIMITED, "too many writes in the cluster")

#define CO_ENUM(code, text) code,
enum co_error { CO_OK = 0, CO_ERRORS(CO_ENUM) CO_ERROR_COUNT };
#undef CO_ENUM

/* Text of a code; "unknown error" for anything that is not one. Never NULL. */
const char *co_strerror(int code);

/* Translates an errno value: ENOMEM, ENOENT, EEXIST, ENOSPC/EDQUOT/EFBIG -> CO_DISKFULL, EAGAIN, else CO_IO. */
int co_from_errno(int errnum);

/* An error for people: one line, control characters in it become '?'. The first fault set sticks; later ones are
 * ignored. Zero-initialise. */
struct fault {
    int code;
    char text[256];
};

/* Sets `fault` (when it is non-NULL and still CO_OK) and returns `code`, so that one can `return fault_set(...)`. */
int fault_set(struct fault *fault, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
