/* The encrypted side of a link: its handshake, and the bytes between session and frames. */
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "rpc/wire/link_internal.h"

static void free_shaking(uv_handle_t *timer) { free(timer->data); }

static void shaking_end(struct link *link) {
    struct link_shaking *shaking = link->shaking;
    if (!shaking) return;
    link->shaking = NULL;
    if (shaking->security && shaking->security->handshakes)
        handshakes_run_leave(shaking->security->handshakes, &shaking->turn);
    buffer_free(&shaking->waiting);
    shaking->timer.data = shaking;
    uv_close((uv_handle_t *)&shaking->timer, free_shaking);
}

static void over_time(uv_timer_t *timer) {
    struct link *link = ((struct link_shaking *)timer->data)->link;
    if (handshake_waits(&link->shaking->turn)) { /* for us, not for the other side */
        uv_timer_start(timer, over_time, LINK_HANDSHAKE_MS, 0);
        return;
    }
    link->why = link->session ? "its handshake was not over in time" : "it did not begin a handshake in time";
    link_end(link, CO_TIMEOUT);
}

static void shaking_begin(struct link *link, const struct link_security *security, void (*go)(struct handshake *)) {
    struct link_shaking *shaking = link->shaking = mem_zalloc(sizeof *shaking);
    shaking->link = link, shaking->security = security;
    handshake_init(&shaking->turn, go);
    CHECK(uv_timer_init(link->tcp.loop, &shaking->timer) == 0);
    shaking->timer.data = shaking;
}

static void start_clock(struct link *link) {
    uv_update_time(link->tcp.loop); /* handshakes of others in this turn are not its time */
    uv_timer_start(&link->shaking->timer, over_time, LINK_HANDSHAKE_MS, 0);
}

/* False: there is none, and the link ends. */
static bool session_begin(struct link *link, const struct link_security *security, bool server) {
    struct tls_context *context = security->slot      ? tls_slot_get(security->slot)
                                  : security->context ? tls_context_ref(security->context)
                                                      : NULL;
    if (!context) {
        link->why = "this side has no certificate or key yet";
        link_end(link, CO_DENIED);
        return false;
    }
    struct tls_session_config config = security->session;
    config.server = server;
    link->session = tls_session_new(context, &config);
    tls_context_unref(context);
    return true;
}

/* Acts on what feeding the session has led to. */
static void settle(struct link *link, enum tls_state state) {
    bool opened = link->shaking && (state == TLS_OPEN || state == TLS_ENDED);
    if (opened) {
        shaking_end(link);
        link_go(link);
    } else if (link->connected) {
        link_take_frames(link);
    }
    if (state == TLS_FAILED) link_end(link, CO_DENIED);
    else if (state == TLS_ENDED) link_end_io(link, UV_EOF);
    else link_flush(link); /* the handshake's, and what the session answers by itself */
    /* An idle link holds no memory but its session's. */
    if (link->in.size == 0 && link->in.capacity <= LINK_READ_ROOM) buffer_free(&link->in);
    if (opened && !link->writing) buffer_free(&link->sending), buffer_free(tls_session_out(link->session));
}

static void feed(struct link *link, struct slice bytes) {
    if (link->connected && link->in.size >= 4) { /* of a large frame: room for the rest at once */
        size_t size = get_le32(link->in.data);
        if (size > LINK_READ_ROOM && size <= link->frame_max && size > link->in.size)
            buffer_reserve(&link->in, size - link->in.size + LINK_READ_ROOM);
    }
    settle(link, tls_session_feed(link->session, bytes, &link->in));
}

/* -- accepted ------------------------------------------------------------------------------------------------------- */
/* The other side sends frames without a handshake. */
static void plain(struct link *link) {
    const struct link_security *security = link->shaking->security;
    if (security->allow_plain) {
        buffer_append(&link->in, link->shaking->waiting.data, link->shaking->waiting.size);
        shaking_end(link);
        link_go(link);
        return;
    }
    link->why = "it does not encrypt, and encrypted connections only are taken here";
    if (security->refusal) {
        link_send(link, security->refusal_type, slice_text(security->refusal));
        shaking_end(link);
        link->connected = true;
        link_flush(link);
    }
    link_end(link, CO_DENIED);
}

static void go(struct handshake *turn) {
    struct link_shaking *shaking = CONTAINER_OF(turn, struct link_shaking, turn);
    struct link *link = shaking->link;
    if (!link->session && !session_begin(link, shaking->security, true)) return;
    struct buffer bytes = shaking->waiting;
    shaking->waiting = (struct buffer){0};
    feed(link, buffer_slice(&bytes));
    buffer_free(&bytes);
    if (!link->closing && link->paused) link_read(link, true);
}

static void arrived_early(struct link *link, struct slice bytes) {
    struct link_shaking *shaking = link->shaking;
    struct handshakes_run *handshakes = shaking->security->handshakes;
    struct buffer *waiting = &shaking->waiting;
    buffer_append(waiting, bytes.data, bytes.size);
    if (!link->session && !tls_looks_like(buffer_slice(waiting))) {
        plain(link);
        return;
    }
    /* A hello in small pieces is no work until it is whole. */
    if (!tls_record_whole(buffer_slice(waiting))) return;
    if (!handshakes || handshakes_run_ask(handshakes, &shaking->turn)) go(&shaking->turn);
    else if (waiting->size >= LINK_READ_ROOM) link_read(link, false);
}

void link_secure_arrived(struct link *link, struct slice bytes) {
    if (link->shaking && !link->dialled) arrived_early(link, bytes);
    else feed(link, bytes);
}

void link_secure_accept(struct link *link, const struct link_security *security) {
    shaking_begin(link, security, go);
    start_clock(link);
}

/* -- dialled -------------------------------------------------------------------------------------------------------- */
void link_secure_dial(struct link *link, const struct link_security *security) {
    shaking_begin(link, NULL, NULL);
    if (session_begin(link, security, false) && tls_session_state(link->session) == TLS_FAILED)
        link_end(link, CO_DENIED);
}

void link_secure_stands(struct link *link) {
    start_clock(link);
    link_flush(link);
}

/* -- the end -------------------------------------------------------------------------------------------------------- */
void link_secure_end(struct link *link) {
    if ((link->cause == UV_EOF || link->cause == UV_ECONNRESET) && link->shaking && link->stands && !link->why)
        link->why = link->dialled ? "it closed the connection in the handshake; it may take plain connections only"
                                  : "it closed the connection in the handshake";
    shaking_end(link);
    if (!link->stands || !link->session || link->writing) return;
    if (link->error == CO_CLOSED) tls_session_goodbye(link->session);
    struct buffer *last = tls_session_out(link->session); /* or the reason of a refusal */
    uv_buf_t bytes = uv_buf_init(last->data, (unsigned)last->size);
    if (last->size > 0) (void)uv_try_write((uv_stream_t *)&link->tcp, &bytes, 1);
}

const struct tls_certificate *link_peer(const struct link *link) {
    return link->session ? tls_session_peer(link->session) : NULL;
}
const char *link_protocol(const struct link *link) {
    return link->session ? tls_session_protocol(link->session) : NULL;
}
bool link_shakes(const struct link *link) { return link->shaking && link->stands && !link->connected; }
bool link_encrypted(const struct link *link) { return link->session && link->connected; }
struct tls_session *link_session(struct link *link) {
    return link->session;
}
const char *link_why(const struct link *link) {
    const char *why = link->session ? tls_session_why(link->session) : "";
    return why[0] ? why : link->why ? link->why : "";
}
