/* Which answers of a batch leave as one message. The kernel cuts a message with UDP_SEGMENT (udp(7); "GSO") into
 * datagrams of one size, the last may be shorter; it looks at route, headers and filters once for all of them. Pure. */
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

/* Puts `count` answers in the order to send them in, and cuts it into messages; returns how many. Answers share one
 * only with the same peer and control, and of at most `size_max` bytes each. `order` and `groups` have room for
 * `count`. Answers of one size to one peer keep their order. `keys` is working space for `count`. */
size_t segments_plan(const struct segments_answer *answers, size_t count, size_t size_max, uint64_t *keys,
                     uint16_t *order, struct segments_group *groups);

/* The largest segments to try from now on, after the kernel refused a message of segments of `size` with `error`
 * (errno): smaller ones when these do not fit the path (EMSGSIZE; older kernels say EINVAL); 0, never again, when
 * they cannot be made (EIO: the device makes no checksums, or IPsec; option unknown); `size_max` as it was when the
 * error is not about segments. */
size_t segments_refused(size_t size_max, size_t size, int error);

#endif
