#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/wire/frame_unpack.h"
#include "rpc/wire/peer.pb-c.h"

/* `count` times `item`. The caller frees the bytes. */
static struct slice many(const char *item, size_t size, size_t count) {
    char *bytes = mem_alloc(size * count);
    for (size_t i = 0; i < count; i++) memcpy(bytes + i * size, item, size);
    return slice_make(bytes, size * count);
}

static bool unpacks(const ProtobufCMessageDescriptor *type, struct slice payload) {
    struct arena arena = {0};
    void *owned = frame_unpack(type, payload, NULL), *kept = frame_unpack(type, payload, &arena);
    cr_expect((owned != NULL) == (kept != NULL), "both kinds of memory alike");
    bool result = owned != NULL;
    frame_drop(owned);
    arena_free(&arena);
    return result;
}

static void expect_made_of(const char *item, size_t size, const ProtobufCMessageDescriptor *type, size_t fits,
                           size_t does_not) {
    struct slice few = many(item, size, fits), lots = many(item, size, does_not);
    cr_expect(unpacks(type, few), "%zu of them", fits);
    cr_expect_not(unpacks(type, lots), "%zu of them", does_not);
    free((char *)(uintptr_t)few.data);
    free((char *)(uintptr_t)lots.data);
}

/* As many of them as the largest frame (16 MiB) can hold would need 450 to 1,300 MiB. */
Test(frame_unpack, items_of_nothing) { expect_made_of("\x0a\x00", 2, &pb__peer_writes__descriptor, 10000, 100000); }
Test(frame_unpack, fields_that_are_not_known) {
    expect_made_of("\x78\x00", 2, &pb__peer_fetch_end__descriptor, 10000, 100000);
}
Test(frame_unpack, one_field_again_and_again) {
    expect_made_of("\x08\x01", 2, &pb__peer_fetch_end__descriptor, 10000, 200000);
}

/* An item that holds them: its own fields count as well. */
Test(frame_unpack, fields_within_an_item) {
    struct slice fields = many("\x78\x00", 2, 1 << 20);
    size_t size = fields.size + 5;
    char *bytes = mem_alloc(size);
    memcpy(bytes, "\x0a\x80\x80\x80\x01", 5); /* field 1, 2 MiB */
    memcpy(bytes + 5, fields.data, fields.size);
    cr_expect_not(unpacks(&pb__peer_writes__descriptor, slice_make(bytes, size)));
    free(bytes);
    free((char *)(uintptr_t)fields.data);
}

/* Bulk is what frames are for. */
Test(frame_unpack, one_large_command) {
    size_t size = 15u << 20;
    uint8_t *data = mem_zalloc(size);
    Pb__PeerWrite write = PB__PEER_WRITE__INIT, *list = &write;
    Pb__PeerWrites writes = PB__PEER_WRITES__INIT;
    write.number = 7, write.command = (ProtobufCBinaryData){size, data};
    writes.n_writes = 1, writes.writes = &list;
    struct buffer packed = {0};
    buffer_reserve(&packed, pb__peer_writes__get_packed_size(&writes));
    packed.size = pb__peer_writes__pack(&writes, (uint8_t *)packed.data);
    Pb__PeerWrites *back = frame_unpack(&pb__peer_writes__descriptor, buffer_slice(&packed), NULL);
    cr_assert(back);
    cr_expect_eq(back->writes[0]->number, 7);
    cr_expect_eq(back->writes[0]->command.len, size);
    frame_drop(back);
    buffer_free(&packed);
    free(data);
}

/* Whatever it has taken when the limit comes is given back (the address sanitizer looks), and more is never taken. */
Test(frame_unpack, each_limit) {
    Pb__PeerServer known[20], *list[20];
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    hello.protocol = "coord-peer", hello.cluster = "dc1", hello.address = "127.0.0.1:8300", hello.known = list,
    hello.n_known = 20;
    for (size_t i = 0; i < 20; i++) {
        list[i] = &known[i];
        known[i] = (Pb__PeerServer)PB__PEER_SERVER__INIT;
        known[i].id = i, known[i].address = "127.0.0.2:8300";
    }
    uint8_t bytes[1024];
    struct slice payload = slice_make((char *)bytes, pb__peer_hello__pack(&hello, bytes));
    size_t most = 0;
    for (;; most += 16) {
        struct arena arena = {0};
        void *owned = frame_unpack_within(&pb__peer_hello__descriptor, payload, NULL, most);
        void *kept = frame_unpack_within(&pb__peer_hello__descriptor, payload, &arena, most);
        cr_expect((owned != NULL) == (kept != NULL));
        bool done = owned != NULL;
        frame_drop(owned);
        arena_free(&arena);
        if (done) break;
        cr_assert(most < 65536);
    }
    cr_expect(most > 20 * (sizeof *known + 16), "each server and its address: %zu", most);
}

Test(frame_unpack, what_does_not_decode) {
    cr_expect(unpacks(&pb__peer_fetch_end__descriptor, slice_make("", 0)));
    cr_expect_not(unpacks(&pb__peer_fetch_end__descriptor, slice_make("\x08", 1)), "cut short");
    cr_expect_not(unpacks(&pb__peer_writes__descriptor, slice_make("\x0a\x02"
                                                                   "a",
                                                                   3)),
                  "longer than the frame");
    cr_expect_not(unpacks(&pb__peer_fetch_end__descriptor, slice_make("\x0f\x01", 2)), "no wire type");
}
