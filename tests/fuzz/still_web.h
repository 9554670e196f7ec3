/* The HTTP server without sockets and threads: requests go into http/request.c as libmicrohttpd hands them over, and
 * what is queued comes back. Below is the machine of still_machine.h; nothing that a request does stays.
 *
 * Asserts what holds for any request: it is answered once, with a status of ours; an error with one line of text;
 * JSON is JSON; nothing is left behind. Requests that only an agent's own services could answer are routed and not
 * handled. */
#ifndef COORD_TESTS_FUZZ_STILL_WEB_H
#define COORD_TESTS_FUZZ_STILL_WEB_H

#include "http/impl.h"

struct still_header {
    struct slice name, value;
};

struct still_request {
    struct slice method, target; /* no blanks at their ends; may hold NULs */
    bool old_version;            /* HTTP/1.0 */
    const struct still_header *headers;
    size_t header_count;
    struct slice body;                            /* as much of it is sent as the headers announce */
    bool shared_rounds;                           /* reads wait for a round of the leader */
    void (*parsed)(struct http_request *request); /* NULL, or called when it has been routed */
};

struct still_reply {
    int status;            /* 0: not answered, since its body never came */
    bool is_json, is_read; /* is_read: of the replicated state, with X-Consul-Index */
    uint64_t index;
    struct slice body; /* unpacked; valid until the next request */
};

struct still_reply still_ask(const struct still_request *request);
/* The same with a whole body, and Content-Length and Host that fit. */
struct still_reply still_put(const char *method, const char *target, struct slice body);

#endif
