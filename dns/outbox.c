#include "dns/outbox.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "dns/responder.h"

enum {
    BYTES = 256 * 1024, /* answers, one behind the other */
    ALIGNMENT = 16,
    SEGMENT_CONTROL = CMSG_SPACE(sizeof(uint16_t)),
};

struct dns_outbox {
    int fd;
    dns_sendmmsg *send;
    size_t segment_max; /* sizes that the kernel refused are not tried again */
    size_t count, size;
    struct segments_answer answers[OUTBOX_ANSWERS];
    struct iovec places[OUTBOX_ANSWERS]; /* of the answers */

    /* While sending. */
    uint64_t keys[OUTBOX_ANSWERS];
    uint16_t order[OUTBOX_ANSWERS];
    struct segments_group groups[OUTBOX_ANSWERS];
    struct iovec vectors[OUTBOX_ANSWERS]; /* the places in that order */
    struct mmsghdr messages[OUTBOX_ANSWERS];
    _Alignas(struct cmsghdr) uint8_t controls[OUTBOX_ANSWERS][OUTBOX_CONTROL + SEGMENT_CONTROL];
    uint8_t bytes[BYTES];
};

struct dns_outbox *dns_outbox_new(int fd, bool segments, dns_sendmmsg *send) {
    struct dns_outbox *outbox = mem_zalloc(sizeof(*outbox));
    outbox->fd = fd;
    outbox->send = send;
    outbox->segment_max = segments ? SEGMENTS_BYTES_MAX : 0;
    return outbox;
}

void dns_outbox_free(struct dns_outbox *outbox) { free(outbox); }

uint8_t *dns_outbox_room(struct dns_outbox *outbox) {
    if (outbox->count == OUTBOX_ANSWERS || outbox->size + DNS_UDP_ROOM > BYTES) dns_outbox_flush(outbox);
    return outbox->bytes + outbox->size;
}

void dns_outbox_add(struct dns_outbox *outbox, const struct msghdr *query, size_t size) {
    CHECK(outbox->count < OUTBOX_ANSWERS && size > 0 && size <= BYTES - outbox->size);
    CHECK(query->msg_controllen <= OUTBOX_CONTROL);
    outbox->places[outbox->count] = (struct iovec){outbox->bytes + outbox->size, size};
    outbox->answers[outbox->count++] = (struct segments_answer){.peer = query->msg_name,
                                                                .peer_size = query->msg_namelen,
                                                                .control = query->msg_control,
                                                                .control_size = query->msg_controllen,
                                                                .size = size};
    outbox->size += (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

/* Writes the control data of a message: the destination of the query as it was received, which the kernel takes as the
 * source of the answer, and after it the size of the segments. */
static void control_make(struct dns_outbox *outbox, struct msghdr *message, size_t group,
                         const struct segments_answer *head) {
    uint8_t *control = outbox->controls[group];
    size_t size = CMSG_ALIGN(head->control_size);
    memset(control, 0, size);
    if (head->control_size) memcpy(control, head->control, head->control_size);
    struct cmsghdr segment = {
        .cmsg_len = CMSG_LEN(sizeof(uint16_t)), .cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT};
    uint16_t segment_size = (uint16_t)head->size;
    memset(control + size, 0, SEGMENT_CONTROL);
    memcpy(control + size, &segment, sizeof(segment));
    memcpy(control + size + CMSG_LEN(0), &segment_size, sizeof(segment_size));
    message->msg_control = control;
    message->msg_controllen = size + SEGMENT_CONTROL;
}

static struct mmsghdr message_of(struct dns_outbox *outbox, size_t first, size_t count) {
    const struct segments_answer *head = &outbox->answers[outbox->order[first]];
    return (struct mmsghdr){.msg_hdr = {.msg_name = (void *)head->peer,
                                        .msg_namelen = (socklen_t)head->peer_size,
                                        .msg_iov = &outbox->vectors[first],
                                        .msg_iovlen = count,
                                        .msg_control = (void *)head->control,
                                        .msg_controllen = head->control_size}};
}

/* Makes one call; returns the number of messages sent. `error`: 0, or why the first of the rest is refused. */
static size_t send_some(struct dns_outbox *outbox, struct mmsghdr *messages, size_t count, int *error) {
    *error = 0;
    int n = outbox->send(outbox->fd, messages, (unsigned)count, 0);
    if (n > 0) return (size_t)n;
    if (n < 0 && errno != EINTR) *error = errno;
    return 0;
}

static void send_singly(struct dns_outbox *outbox, struct segments_group group) {
    struct mmsghdr messages[SEGMENTS_MAX];
    for (size_t i = 0; i < group.count; i++) messages[i] = message_of(outbox, group.first + i, 1);
    int error;
    for (size_t sent = 0; sent < group.count;) {
        sent += send_some(outbox, messages + sent, group.count - sent, &error);
        if (error) sent++;
    }
}

static void refused(struct dns_outbox *outbox, struct segments_group group, int error) {
    size_t size = outbox->answers[outbox->order[group.first]].size, before = outbox->segment_max;
    outbox->segment_max = segments_refused(before, size, error);
    if (outbox->segment_max < before) {
        log_debug("dns", "answers of %zu bytes cannot leave together error=\"%s\"", size, strerror(error));
    }
}

static size_t pack(struct dns_outbox *outbox) {
    size_t groups =
        segments_plan(outbox->answers, outbox->count, outbox->segment_max, outbox->keys, outbox->order, outbox->groups);
    for (size_t i = 0; i < outbox->count; i++) outbox->vectors[i] = outbox->places[outbox->order[i]];
    for (size_t i = 0; i < groups; i++) {
        struct segments_group group = outbox->groups[i];
        outbox->messages[i] = message_of(outbox, group.first, group.count);
        if (group.count > 1)
            control_make(outbox, &outbox->messages[i].msg_hdr, i, &outbox->answers[outbox->order[group.first]]);
    }
    return groups;
}

void dns_outbox_flush(struct dns_outbox *outbox) {
    size_t groups = pack(outbox);
    int error;
    for (size_t sent = 0; sent < groups;) {
        sent += send_some(outbox, outbox->messages + sent, groups - sent, &error);
        if (!error) continue;
        struct segments_group group = outbox->groups[sent++];
        if (group.count == 1) continue;
        refused(outbox, group, error);
        send_singly(outbox, group);
    }
    outbox->count = outbox->size = 0;
}
