/* Framed connections over real loopback sockets, each plain and encrypted. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "link_pair.h"

static struct link_world world;
static const struct link_security *dial, *accept_rules;

static void in_plain(void) { dial = accept_rules = NULL; }
static void encrypted(void) {
    link_world_make(&world);
    dial = &world.dial, accept_rules = &world.accept;
}
static void over(void) { link_world_free(&world); }

TestSuite(link, .init = in_plain);
TestSuite(link_encrypted, .init = encrypted, .fini = over);
static void frames_of_all_sizes_arrive_whole_and_in_order(void) {
    struct pair pair;
    pair_open(&pair, dial, accept_rules);
    struct buffer sent = {0};
    size_t sizes[] = {0, 1, 5, 65536, 3, 1000000, 17, 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *bytes = malloc(sizes[i] + 1);
        for (size_t k = 0; k < sizes[i]; k++) bytes[k] = (char)(i + k * 7);
        link_send(pair.dialled, PAIR_FRAME, slice_make(bytes, sizes[i]));
        buffer_append(&sent, bytes, sizes[i]);
        free(bytes);
    }
    pair.frames_wanted = sizeof sizes / sizeof *sizes;
    link_flush(pair.dialled);
    pair_run(&pair);
    cr_assert(slice_equal(buffer_slice(&pair.got), buffer_slice(&sent)));
    cr_assert_eq(pair.error, CO_CLOSED);
    buffer_free(&sent);
    pair_close(&pair);
}

/* A length is looked at before memory is taken for it. */
static void a_frame_that_claims_too_much_ends_the_connection(void) {
    struct pair pair;
    pair_open(&pair, dial, accept_rules);
    struct buffer *out = link_frame_begin(pair.dialled, PAIR_FRAME);
    size_t at = out->size;
    buffer_append(out, "x", 1);
    link_frame_end(pair.dialled);
    put_le32(out->data + at - 5, 0xfffffff0u);
    link_flush(pair.dialled);
    pair_run(&pair);
    cr_assert_eq(pair.frames, 0);
    cr_assert_eq(pair.error, CO_TOOLARGE);
    cr_assert_eq(pair.dialled_error, CO_IO);
    pair_close(&pair);
}

static void a_peer_that_goes_away_is_noticed(void) {
    struct pair pair;
    pair_open(&pair, dial, accept_rules);
    link_send(pair.dialled, PAIR_FRAME, slice_text("hello"));
    pair.frames_wanted = 1;
    link_flush(pair.dialled);
    pair_run(&pair);
    cr_assert_eq(pair.frames, 1);
    cr_assert_eq(pair.closed, 2);
    pair_close(&pair);
}

/* Flow control goes by these counts: bytes that wait, that were queued, and that the other side has. */
static void bytes_that_wait_and_that_are_delivered_are_counted(void) {
    struct pair pair;
    pair_open(&pair, dial, accept_rules);
    pair.keep = true, pair.frames_wanted = 1;
    while (!pair.told_dialled) uv_run(&pair.loop, UV_RUN_ONCE);
    uint64_t heard = 0, before = link_queued(pair.dialled);
    cr_assert_eq(link_backlog(pair.dialled), 0);
    static char bytes[100000];
    link_send(pair.dialled, PAIR_FRAME, slice_make(bytes, sizeof bytes));
    uint64_t queued = link_queued(pair.dialled);
    cr_assert_geq(queued, before + 5 + sizeof bytes);
    cr_assert_leq(queued, before + 5 + sizeof bytes + 7 * TLS_RECORD_OVERHEAD);
    cr_assert_geq(link_backlog(pair.dialled), sizeof bytes);
    cr_assert_lt(link_delivered(pair.dialled), queued);
    link_flush(pair.dialled);
    cr_assert_eq(link_queued(pair.dialled), queued);
    while (pair.frames < 1 || link_delivered(pair.dialled) < queued) uv_run(&pair.loop, UV_RUN_NOWAIT);
    cr_assert_eq(link_delivered(pair.dialled), queued);
    cr_assert_eq(link_queued(pair.dialled), queued);
    cr_assert_eq(link_backlog(pair.dialled), 0);
    cr_assert(link_heard(pair.accepted, &heard));
    cr_assert_eq(heard, queued, "it has heard what was queued");
    cr_assert(!link_heard(pair.accepted, &heard));
    link_close(pair.dialled);
    pair_run(&pair);
    pair_close(&pair);
}

/* More than the kernel takes: a part waits, and more comes to it meanwhile. */
static void a_long_queue_arrives_whole_and_in_order(void) {
    enum { FRAMES = 300, SIZE = 100001 };
    struct pair pair;
    pair_open(&pair, dial, accept_rules);
    pair.keep = true;
    char *bytes = malloc(SIZE);
    size_t most = 0;
    for (size_t i = 0; i < FRAMES; i++) {
        memset(bytes, (int)('a' + i % 23), SIZE);
        memcpy(bytes, &i, sizeof i);
        link_send(pair.dialled, PAIR_FRAME, slice_make(bytes, SIZE));
        if (link_backlog(pair.dialled) > most) most = link_backlog(pair.dialled);
        link_flush(pair.dialled);
        if (i > FRAMES / 2 && i % 10 == 0) uv_run(&pair.loop, UV_RUN_NOWAIT);
        /* A plain link gives libuv all it has, and counts it until the kernel has the last of it. */
        uint64_t on_its_way = link_queued(pair.dialled) - link_delivered(pair.dialled);
        if (dial && pair.told_dialled)
            cr_assert_leq(link_backlog(pair.dialled), on_its_way + (512 << 10), "frame %zu", i);
    }
    cr_assert_gt(most, FRAMES / 3 * SIZE);
    uint64_t queued = link_queued(pair.dialled);
    while (pair.frames < FRAMES) uv_run(&pair.loop, UV_RUN_ONCE);
    cr_assert_eq(link_queued(pair.dialled), queued, "the bytes that encryption adds were counted before");
    cr_assert_eq(link_backlog(pair.dialled), 0);
    cr_assert_eq(pair.got.size, (size_t)FRAMES * SIZE);
    for (size_t i = 0; i < FRAMES; i++) {
        const char *at = pair.got.data + i * SIZE;
        memset(bytes, (int)('a' + i % 23), SIZE);
        memcpy(bytes, &i, sizeof i);
        cr_assert_eq(memcmp(at, bytes, SIZE), 0, "frame %zu", i);
    }
    free(bytes);
    link_close(pair.dialled);
    pair_run(&pair);
    pair_close(&pair);
}

Test(link, frames_of_all_sizes_arrive_whole_and_in_order) { frames_of_all_sizes_arrive_whole_and_in_order(); }
Test(link_encrypted, frames_of_all_sizes_arrive_whole_and_in_order) { frames_of_all_sizes_arrive_whole_and_in_order(); }
Test(link, a_frame_that_claims_too_much_ends_the_connection) { a_frame_that_claims_too_much_ends_the_connection(); }
Test(link_encrypted, a_frame_that_claims_too_much_ends_the_connection) {
    a_frame_that_claims_too_much_ends_the_connection();
}
Test(link, a_peer_that_goes_away_is_noticed) { a_peer_that_goes_away_is_noticed(); }
Test(link_encrypted, a_peer_that_goes_away_is_noticed) { a_peer_that_goes_away_is_noticed(); }
Test(link, bytes_that_wait_and_that_are_delivered_are_counted) { bytes_that_wait_and_that_are_delivered_are_counted(); }
Test(link_encrypted, bytes_that_wait_and_that_are_delivered_are_counted) {
    bytes_that_wait_and_that_are_delivered_are_counted();
}
Test(link, a_long_queue_arrives_whole_and_in_order) { a_long_queue_arrives_whole_and_in_order(); }
Test(link_encrypted, a_long_queue_arrives_whole_and_in_order) { a_long_queue_arrives_whole_and_in_order(); }
