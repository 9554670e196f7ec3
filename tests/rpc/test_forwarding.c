/* Answers of a server to those for whom it makes writes: frames of a size that a link takes, whatever the answers
 * are. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kv/keys/kv.pb-c.h"
#include "registry/machine.h"
#include "rpc/cluster/peers.h"
#include "rpc/forward/forwarding.h"
#include "rpc/wire/link.h"
#include "rpc/wire/peer.pb-c.h"

#define WRITES 300

/* A leader that refuses every command with the same text, or answers with a record. */
struct leader {
    struct forwarding *forwarding;
    char *text;
    struct slice record;
    size_t frames, results, largest, longest;
};

static bool knows(void *data, struct slice command) {
    (void)data, (void)command;
    return true;
}

static void refuse(void *data, struct node_proposal *proposal) {
    struct leader *leader = data;
    struct machine_result result = {.index = 7, .error = leader->text ? CO_INVALID : CO_OK, .text = leader->text};
    if (leader->record.size) result.record = leader->record, result.record_type = "pb.Session";
    raft_data_unref(proposal->data);
    proposal->done(proposal, CO_OK, &result);
}

static void sent(void *data, uint64_t peer, uint8_t type, const ProtobufCMessage *message) {
    struct leader *leader = data;
    cr_assert_eq(peer, 2);
    cr_assert_eq(type, PEER_RESULTS);
    const Pb__PeerResults *results = (const Pb__PeerResults *)message;
    size_t size = protobuf_c_message_get_packed_size(message);
    if (size > leader->largest) leader->largest = size;
    leader->frames++, leader->results += results->n_results;
    for (size_t i = 0; i < results->n_results; i++) {
        const Pb__PeerResult *result = results->results[i];
        cr_assert_eq(result->refused, leader->text ? CO_INVALID : CO_OK);
        if (strlen(result->text) > leader->longest) leader->longest = strlen(result->text);
    }
}

static void woken(void *data) { (void)data; }

static void write_all(struct leader *leader) {
    struct forwarding_callbacks callbacks = {
        .data = leader, .send = sent, .wake = woken, .knows = knows, .command = refuse};
    leader->forwarding = forwarding_new(&callbacks, 1);
    Pb__PeerWrites frame = PB__PEER_WRITES__INIT;
    Pb__PeerWrite writes[WRITES], *pointers[WRITES];
    for (size_t i = 0; i < WRITES; i++) {
        pointers[i] = &writes[i];
        writes[i] = (Pb__PeerWrite)PB__PEER_WRITE__INIT;
        writes[i].number = i + 1, writes[i].command = (ProtobufCBinaryData){3, (uint8_t *)"abc"};
    }
    frame.n_writes = WRITES, frame.writes = pointers;
    size_t size = protobuf_c_message_get_packed_size(&frame.base);
    uint8_t *bytes = mem_alloc(size);
    protobuf_c_message_pack(&frame.base, bytes);
    cr_assert(forwarding_frame(leader->forwarding, 2, PEER_WRITES, slice_make((const char *)bytes, size), 1000));
    free(bytes);
    forwarding_woken(leader->forwarding);
    forwarding_stop(leader->forwarding);
    forwarding_free(leader->forwarding);
    cr_assert_eq(leader->results, WRITES);
}

static char *as(size_t size) {
    char *text = mem_alloc(size + 1);
    memset(text, 'a', size), text[size] = '\0';
    return text;
}

/* A refusal may quote a name of a megabyte: three hundred at once were a frame that no link takes, and the leader
 * ended. */
Test(forwarding, long_refusals_fit_a_frame) {
    struct leader leader = {.text = as(1 << 20)};
    write_all(&leader);
    cr_expect_leq(leader.largest, LINK_FRAME_MAX);
    cr_expect_geq(leader.longest, 1000, "what is shown of it");
    cr_expect_leq(leader.longest, 1024);
    free(leader.text);
}

Test(forwarding, short_refusals_arrive_as_they_are) {
    struct leader leader = {.text = as(60)};
    write_all(&leader);
    cr_expect_eq(leader.longest, 60);
    cr_expect_eq(leader.frames, 2, "256 each at most");
    free(leader.text);
}

Test(forwarding, large_records_fit_a_frame) {
    char *bytes = as(1 << 20);
    struct leader leader = {.record = slice_make(bytes, 1 << 20)};
    write_all(&leader);
    cr_expect_leq(leader.largest, LINK_FRAME_MAX);
    cr_expect_geq(leader.frames, WRITES / 8);
    free(bytes);
}

/* -- whose write it is ---------------------------------------------------------------------------------------------- */
struct wire {
    uint8_t frame[256];
    size_t size;
    unsigned clients, own;
};

static bool reaches(void *data, uint64_t peer) {
    (void)data, (void)peer;
    return true;
}

static void keep(void *data, uint64_t peer, uint8_t type, const ProtobufCMessage *message) {
    struct wire *wire = data;
    (void)peer;
    if (type != PEER_WRITES) return;
    cr_assert(protobuf_c_message_get_packed_size(message) <= sizeof wire->frame);
    wire->size = protobuf_c_message_pack(message, wire->frame);
}

static void count(void *data, struct node_proposal *proposal) {
    struct wire *wire = data;
    const struct judged *judged = proposal->tag;
    if (judged->client) wire->clients++;
    else wire->own++;
    cr_expect_not(judged->counted, "it has counted nowhere yet");
    raft_data_unref(proposal->data);
    proposal->done(proposal, CO_OK, &(struct machine_result){.index = 1});
}

static void unknown(struct node_proposal *proposal, int error, const void *result) {
    (void)proposal, (void)result;
    cr_expect_eq(error, CO_UNKNOWN_OUTCOME);
}

Test(forwarding, the_leader_hears_which_writes_clients_want) {
    struct wire wire = {0};
    struct forwarding_callbacks callbacks = {
        .data = &wire, .reach = reaches, .send = keep, .wake = woken, .knows = knows, .command = count};
    struct forwarding *follower = forwarding_new(&callbacks, 1), *leader = forwarding_new(&callbacks, 1);
    struct judged judged[4] = {{.client = true, .counted = true}, {.client = false}, {.client = true}};
    struct node_proposal proposals[4] = {{.deadline_ms = 0}};
    for (size_t i = 0; i < 4; i++)
        proposals[i] = (struct node_proposal){.data = raft_data_new("abc", 3),
                                              .done = unknown,
                                              .tag = i < 3 ? &judged[i] : NULL,
                                              .next = i < 3 ? &proposals[i + 1] : NULL};
    cr_assert(forwarding_writes(follower, 2, proposals));
    cr_assert(forwarding_frame(leader, 2, PEER_WRITES, slice_make((const char *)wire.frame, wire.size), 1000));
    cr_expect(wire.clients == 2 && wire.own == 2, "%u, %u", wire.clients, wire.own);
    forwarding_woken(leader);
    forwarding_stop(leader), forwarding_stop(follower);
    forwarding_free(leader), forwarding_free(follower);
}
