/* Groups the answers of a batch into messages. The kernel cuts a message with UDP_SEGMENT (udp(7); "GSO") into
 * datagrams of one size, of which the last may be shorter; it looks at route, headers and filters once for all of them.
 * Pure functions. */
#ifndef COORD_DNS_SEGMENTS_H
#define COORD_DNS_SEGMENTS_H

#include <stddef.h>
#include <stdint.h>

enum {
    SEGMENTS_MAX = 64,          /* the kernel's UDP_MAX_SEGMENTS before Linux 6.9 */
    SEGMENTS_BYTES_MAX = 65507, /* of one message: the longest IPv4 packet without its two headers */
};

struct segments_answer {
    const void *peer; /* socket address */
    const void
        *control; /* what the kernel said of the address that was asked (IP_PKTINFO); NULL when `control_size` is 0 */
    size_t peer_size, control_size;
    size_t size; /* 1..65,535 */
};

/* One message: answers order[first] .. order[first + count - 1], all but the last of the first's size. */
struct segments_group {
    uint16_t first, count;
};

/* Puts `count` answers in the order to send them in, and cuts it into messages; returns the number of messages. Answers
 * share a message only when peer and control are the same, and none is longer than `size_max` bytes. `order` and
 * `groups` have room for `count`. Answers of one size to one peer keep their order. `keys` is working space for
 * `count`. */
size_t segments_plan(const struct segments_answer *answers, size_t count, size_t size_max, uint64_t *keys,
                     uint16_t *order, struct segments_group *groups);

/* The largest segments to try from now on, after the kernel refused a message of segments of `size` with `error`
 * (errno). Smaller than `size` when these do not fit the path (EMSGSIZE; older kernels say EINVAL). 0, never again,
 * when the kernel cannot make segments (EIO: the device makes no checksums, or IPsec; or it does not know the option).
 * `size_max` unchanged when the error is not about segments. */
size_t segments_refused(size_t size_max, size_t size, int error);

#endif
