/* The outbox against a kernel that is played: which messages it is handed, and what becomes of refusals. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "dns/outbox.h"

enum { CALLS = 200, IDS = 256 };

/* The kernel's behaviour in its next calls: it takes at most `take` messages a call (0: all); refuses the next `times`
 * ones with `error`; refuses those with segments above a size with `segment_error`. */
static struct {
    unsigned take;
    int error, times;
    int segment_error;
    size_t segment_error_above;
    unsigned calls, messages, segmented;
    unsigned delivered[IDS]; /* by the answer's first byte */
    uint16_t port[IDS];      /* where to */
    size_t size[IDS];
    in_addr_t source[IDS];
} kernel;
static struct dns_outbox *outbox;

static size_t bytes_of(const struct msghdr *message) {
    size_t bytes = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) bytes += message->msg_iov[i].iov_len;
    return bytes;
}

/* The size to cut at, 0: not to be cut; and the source to use, by the rules of cmsg(3). */
static size_t segment_size_of(struct msghdr *message, in_addr_t *source) {
    size_t segment = 0;
    *source = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_SEGMENT) {
            uint16_t size;
            cr_assert(eq(sz, c->cmsg_len, CMSG_LEN(sizeof(size))));
            memcpy(&size, CMSG_DATA(c), sizeof(size));
            segment = size;
        } else {
            struct in_pktinfo info;
            cr_assert(c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO);
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            *source = info.ipi_spec_dst.s_addr;
        }
    }
    return segment;
}

/* Cuts it where the kernel would: the vectors' borders do not count. */
static void deliver(struct msghdr *message, size_t segment, in_addr_t source) {
    uint8_t all[SEGMENTS_BYTES_MAX];
    size_t size = 0, total = bytes_of(message);
    cr_assert(total <= sizeof(all));
    for (size_t i = 0; i < message->msg_iovlen; size += message->msg_iov[i++].iov_len)
        memcpy(all + size, message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
    if (segment == 0) segment = total;
    for (size_t at = 0; at < total; at += segment) {
        uint8_t id = all[at];
        size_t length = total - at < segment ? total - at : segment;
        for (size_t i = 0; i < length; i++) cr_assert(eq(u8, all[at + i], id));
        kernel.delivered[id]++;
        kernel.size[id] = length;
        kernel.port[id] = ntohs(((struct sockaddr_in *)message->msg_name)->sin_port);
        kernel.source[id] = source;
    }
}

static int played(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    cr_assert(fd == 77 && flags == 0 && count > 0);
    kernel.calls++;
    cr_assert(kernel.calls < CALLS);
    unsigned done = 0;
    for (; done < count && (kernel.take == 0 || done < kernel.take); done++) {
        struct msghdr *message = &messages[done].msg_hdr;
        in_addr_t source;
        size_t segment = segment_size_of(message, &source);
        int error = 0;
        if (kernel.times > 0 && kernel.error) {
            kernel.times--;
            error = kernel.error;
        } else if (segment && kernel.segment_error && segment > kernel.segment_error_above) {
            error = kernel.segment_error;
        }
        if (error) { /* said when it is the first; else the next call meets it again */
            if (done == 0) return errno = error, -1;
            if (kernel.error) kernel.times++;
            return (int)done;
        }
        cr_assert(segment != 0 || message->msg_iovlen == 1);
        kernel.messages++;
        kernel.segmented += segment != 0;
        deliver(message, segment, source);
    }
    return (int)done;
}

static struct sockaddr_in peers[IDS];
static _Alignas(struct cmsghdr) uint8_t controls[IDS][OUTBOX_CONTROL];

/* An answer of `size` bytes of `id`, to a port, from 127.0.0.`source` (0: not a wildcard). */
static void add(uint8_t id, uint16_t port, size_t size, uint8_t source) {
    peers[id] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    struct msghdr query = {.msg_name = &peers[id], .msg_namelen = sizeof(peers[id])};
    if (source) {
        struct in_pktinfo info = {.ipi_spec_dst.s_addr = htonl(0x7f000000u + source)};
        struct cmsghdr head = {.cmsg_len = CMSG_LEN(sizeof(info)), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO};
        memcpy(controls[id], &head, sizeof(head));
        memcpy(controls[id] + CMSG_LEN(0), &info, sizeof(info));
        query.msg_control = controls[id];
        query.msg_controllen = CMSG_SPACE(sizeof(info));
    }
    memset(dns_outbox_room(outbox), id, size);
    dns_outbox_add(outbox, &query, size);
}

static void open_box(bool segments) {
    memset(&kernel, 0, sizeof(kernel));
    outbox = dns_outbox_new(77, segments, played);
}
static void tear_down(void) { dns_outbox_free(outbox); }
TestSuite(outbox, .fini = tear_down, .timeout = 300);

static void expect_once(uint8_t first, uint8_t count) {
    for (unsigned id = first; id < first + count; id++) cr_expect(eq(uint, kernel.delivered[id], 1), "answer %u", id);
}

Test(outbox, one_message_a_peer) {
    open_box(true);
    for (uint8_t i = 0; i < 64; i++) add(i, 1000 + i % 8, 77, 0);
    dns_outbox_flush(outbox);
    expect_once(0, 64);
    for (uint8_t i = 0; i < 64; i++) cr_expect(kernel.port[i] == 1000 + i % 8 && kernel.size[i] == 77);
    cr_expect(kernel.calls == 1 && kernel.messages == 8 && kernel.segmented == 8);
    dns_outbox_flush(outbox); /* nothing is left */
    cr_expect(eq(uint, kernel.calls, 1));
}

Test(outbox, a_single_answer_is_not_cut) {
    open_box(true);
    add(9, 1000, 300, 2);
    dns_outbox_flush(outbox);
    cr_expect(kernel.delivered[9] == 1 && kernel.segmented == 0 && kernel.source[9] == htonl(0x7f000002));
}

/* The source goes along with the size to cut at; other sources are other messages; the last may be shorter. */
Test(outbox, sources_and_sizes) {
    open_box(true);
    for (uint8_t i = 0; i < 60; i++) add(i, 1000, i % 6 == 5 ? 50 + i : 99, 1 + i % 3);
    dns_outbox_flush(outbox);
    expect_once(0, 60);
    for (uint8_t i = 0; i < 60; i++) {
        cr_expect(eq(sz, kernel.size[i], i % 6 == 5 ? 50 + i : 99));
        cr_expect(eq(u32, kernel.source[i], htonl(0x7f000001u + i % 3)));
    }
    cr_expect(kernel.segmented >= 3 && kernel.messages < 20);
}

Test(outbox, a_kernel_without_it) {
    open_box(false);
    for (uint8_t i = 0; i < 20; i++) add(i, 1000, 77, 0);
    dns_outbox_flush(outbox);
    expect_once(0, 20);
    cr_expect(kernel.segmented == 0 && kernel.messages == 20 && kernel.calls == 1);
}

/* Refused for good: singly, in order, and not tried again. */
Test(outbox, refused_for_good) {
    static const int errors[] = {EIO, ENOPROTOOPT, EOPNOTSUPP};
    for (size_t e = 0; e < ARRAY_COUNT(errors); e++) {
        open_box(true);
        kernel.segment_error = errors[e];
        for (uint8_t i = 0; i < 30; i++) add(i, 1000 + i % 3, 77, 4);
        dns_outbox_flush(outbox);
        expect_once(0, 30);
        for (uint8_t i = 0; i < 30; i++) cr_expect(eq(u32, kernel.source[i], htonl(0x7f000004)));
        cr_expect(eq(uint, kernel.messages, 30));
        unsigned calls = kernel.calls;
        for (uint8_t i = 100; i < 130; i++) add(i, 1000, 77, 0);
        dns_outbox_flush(outbox);
        expect_once(100, 30);
        cr_expect(eq(uint, kernel.calls, calls + 1));
        tear_down();
    }
    open_box(true);
}

/* Above what fits the path: those singly, smaller ones together still. */
Test(outbox, above_the_mtu) {
    static const int errors[] = {EMSGSIZE, EINVAL};
    for (size_t e = 0; e < ARRAY_COUNT(errors); e++) {
        open_box(true);
        kernel.segment_error = errors[e];
        kernel.segment_error_above = 1252;
        for (uint8_t i = 0; i < 40; i++) add(i, 1000 + i % 2, i % 4 < 2 ? 1600 : 1232, 0);
        dns_outbox_flush(outbox);
        expect_once(0, 40);
        for (uint8_t i = 0; i < 40; i++) cr_expect(eq(sz, kernel.size[i], i % 4 < 2 ? 1600 : 1232));
        unsigned calls = kernel.calls, messages = kernel.messages;
        for (uint8_t i = 100; i < 140; i++) add(i, 1000, i % 2 ? 1600 : 1232, 0);
        dns_outbox_flush(outbox);
        expect_once(100, 40);
        cr_expect(eq(uint, kernel.calls, calls + 1), "what was refused is known");
        cr_expect(eq(uint, kernel.messages, messages + 21), "20 long ones, and one message");
        tear_down();
    }
    open_box(true);
}

/* The kernel takes some of the messages, and is asked again for the rest. */
Test(outbox, part_of_the_messages) {
    for (unsigned take = 1; take < 6; take++) {
        open_box(true);
        kernel.take = take;
        for (uint8_t i = 0; i < 64; i++) add(i, 1000 + i % 11, 60 + i % 2, 0);
        dns_outbox_flush(outbox);
        expect_once(0, 64);
        tear_down();
        open_box(true);
        kernel.take = take; /* and refuses to cut, so that what is single comes in parts too */
        kernel.segment_error = EIO;
        for (uint8_t i = 0; i < 64; i++) add(i, 1000 + i % 11, 60, 0);
        dns_outbox_flush(outbox);
        expect_once(0, 64);
        tear_down();
    }
    open_box(true);
}

/* An error that is not about cutting: once more singly, and what fails then is lost, alone. */
Test(outbox, other_errors) {
    open_box(true);
    kernel.error = EPERM;
    kernel.times = 2; /* the message of 10, then the first of them alone */
    for (uint8_t i = 0; i < 10; i++) add(i, 1000, 77, 0);
    dns_outbox_flush(outbox);
    unsigned delivered = 0;
    for (unsigned id = 0; id < 10; id++) delivered += kernel.delivered[id];
    cr_expect(delivered == 9 && kernel.delivered[0] == 0);
    for (uint8_t i = 100; i < 110; i++) add(i, 1000, 77, 0);
    dns_outbox_flush(outbox);
    expect_once(100, 10);
    cr_expect(eq(uint, kernel.segmented, 1), "the next ones leave together");
    kernel.error = EINTR;
    kernel.times = 3;
    for (uint8_t i = 200; i < 210; i++) add(i, 1000 + i % 2, 77, 0);
    dns_outbox_flush(outbox);
    expect_once(200, 10);
    cr_expect(eq(uint, kernel.segmented, 3));
}

/* More than there is room for: in bytes, in answers. */
Test(outbox, full) {
    open_box(true);
    for (uint8_t i = 0; i < 64; i++) add(i, 1000, 8192, 0);
    for (unsigned i = 64; i < 200; i++) add((uint8_t)i, 1000, 20, 0);
    dns_outbox_flush(outbox);
    expect_once(0, 200);
}
