/* Framed connections over real loopback sockets. */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "rpc/wire/link.h"

struct pair {
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_timer_t guard;
    uint16_t port;
    struct link *dialled, *accepted;
    struct buffer got;
    size_t frames, frames_wanted;
    int closed, error;
};

static void frame(void *data, struct link *link, uint8_t type, struct slice payload) {
    struct pair *pair = data;
    (void)link;
    cr_assert_eq(type, 7);
    buffer_append(&pair->got, payload.data, payload.size);
    if (++pair->frames == pair->frames_wanted) link_close(pair->accepted), link_close(pair->dialled);
}
static void closed(void *data, struct link *link, int error) {
    struct pair *pair = data;
    if (link == pair->accepted) pair->error = error;
    if (++pair->closed < 2) { /* the other side goes too */
        link_close(link == pair->accepted ? pair->dialled : pair->accepted);
        return;
    }
    uv_close((uv_handle_t *)&pair->listener, NULL);
    uv_close((uv_handle_t *)&pair->guard, NULL);
}
static const struct link_callbacks callbacks = {.frame = frame, .closed = closed};

static void connection(uv_stream_t *server, int status) {
    struct pair *pair = server->data;
    cr_assert_eq(status, 0);
    pair->accepted = link_accept(server, &callbacks, pair);
}
static void late(uv_timer_t *timer) {
    (void)timer;
    cr_assert_fail("not done within a minute");
}

static void pair_open(struct pair *pair) {
    uv_loop_init(&pair->loop);
    uv_tcp_init(&pair->loop, &pair->listener);
    uv_timer_init(&pair->loop, &pair->guard);
    uv_timer_start(&pair->guard, late, 60000, 0);
    pair->listener.data = pair;
    struct sockaddr_in at;
    uv_ip4_addr("127.0.0.1", 0, &at);
    cr_assert_eq(uv_tcp_bind(&pair->listener, (struct sockaddr *)&at, 0), 0);
    cr_assert_eq(uv_listen((uv_stream_t *)&pair->listener, 4, connection), 0);
    int size = sizeof at;
    uv_tcp_getsockname(&pair->listener, (struct sockaddr *)&at, &size);
    pair->dialled = link_dial(&pair->loop, (struct sockaddr *)&at, NULL, &callbacks, pair);
}
static void pair_run(struct pair *pair) {
    uv_run(&pair->loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&pair->loop), 0);
    buffer_free(&pair->got);
}

Test(link, frames_of_all_sizes_arrive_whole_and_in_order) {
    struct pair pair = {0};
    pair_open(&pair);
    struct buffer sent = {0};
    size_t sizes[] = {0, 1, 5, 65536, 3, 1000000, 17, 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *bytes = malloc(sizes[i] + 1);
        for (size_t k = 0; k < sizes[i]; k++) bytes[k] = (char)(i + k * 7);
        link_send(pair.dialled, 7, slice_make(bytes, sizes[i]));
        buffer_append(&sent, bytes, sizes[i]);
        free(bytes);
    }
    pair.frames_wanted = sizeof sizes / sizeof *sizes;
    link_flush(pair.dialled);
    uv_run(&pair.loop, UV_RUN_DEFAULT);
    cr_assert(slice_equal(buffer_slice(&pair.got), buffer_slice(&sent)));
    buffer_free(&sent);
    cr_assert_eq(uv_loop_close(&pair.loop), 0);
    buffer_free(&pair.got);
}

/* A length is looked at before memory is taken for it. */
Test(link, a_frame_that_claims_too_much_ends_the_connection) {
    struct pair pair = {0};
    pair_open(&pair);
    struct buffer *out = link_frame_begin(pair.dialled, 7);
    size_t at = out->size;
    buffer_append(out, "x", 1);
    link_frame_end(pair.dialled);
    put_le32(out->data + at - 5, 0xfffffff0u);
    link_flush(pair.dialled);
    pair_run(&pair);
    cr_assert_eq(pair.frames, 0);
    cr_assert_eq(pair.error, CO_TOOLARGE);
}

Test(link, a_peer_that_goes_away_is_noticed) {
    struct pair pair = {0};
    pair_open(&pair);
    link_send(pair.dialled, 7, slice_text("hello"));
    pair.frames_wanted = 1;
    link_flush(pair.dialled);
    pair_run(&pair);
    cr_assert_eq(pair.frames, 1);
    cr_assert_eq(pair.closed, 2);
}
