#include "fake_server.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "rpc/wire/hello.h"

#define CLUSTER_MOST 8

/* -- out ---------------------------------------------------------------------------------------------------------- */
struct sent {
    uv_write_t write;
    char bytes[];
};
static void on_written(uv_write_t *write, int status) { (void)status, free(CONTAINER_OF(write, struct sent, write)); }

void fake_send(struct fake_session *session, const char *bytes, size_t size) {
    struct sent *sent = malloc(sizeof *sent + size);
    memcpy(sent->bytes, bytes, size);
    uv_buf_t room = uv_buf_init(sent->bytes, (unsigned)size);
    if (uv_write(&sent->write, (uv_stream_t *)&session->tcp, &room, 1, on_written) != 0) free(sent);
}

struct buffer fake_frame(uint8_t type, const ProtobufCMessage *message) {
    struct buffer frame = {0};
    size_t size = message ? protobuf_c_message_get_packed_size(message) : 0;
    buffer_reserve(&frame, size + 5);
    put_le32(frame.data, (uint32_t)size);
    frame.data[4] = (char)type;
    if (message) protobuf_c_message_pack(message, (uint8_t *)frame.data + 5);
    frame.size = size + 5;
    return frame;
}

static void say(struct fake_session *session, uint8_t type, const ProtobufCMessage *message) {
    struct buffer frame = fake_frame(type, message);
    fake_send(session, frame.data, frame.size);
    buffer_free(&frame);
}

static void say_hello(struct fake_session *session) {
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    hello.protocol = (char *)HELLO_PROTOCOL, hello.version_least = HELLO_VERSION_LEAST,
    hello.version_most = HELLO_VERSION_MOST;
    hello.cluster = (char *)(uintptr_t)session->fake->datacenter, hello.cluster_id = session->fake->cluster_id,
    hello.id = session->fake->id;
    hello.address = session->fake->address, hello.node = (char *)"s", hello.has_log = true;
    hello.cluster_version_least = 1, hello.cluster_version_most = hello.cluster_version = 1;
    say(session, PEER_HELLO, &hello.base);
}

static void say_servers(struct fake_session *session) {
    const struct fake_server *fake = session->fake;
    Pb__PeerServers servers = PB__PEER_SERVERS__INIT;
    Pb__PeerServer server[CLUSTER_MOST], *pointers[CLUSTER_MOST];
    CHECK(fake->cluster_count <= CLUSTER_MOST);
    for (unsigned i = 0; i < fake->cluster_count; i++) {
        pointers[i] = &server[i];
        server[i] = (Pb__PeerServer)PB__PEER_SERVER__INIT;
        server[i].id = fake->cluster[i].id, server[i].address = (char *)(uintptr_t)fake->cluster[i].address;
    }
    servers.servers = pointers, servers.n_servers = fake->cluster_count,
    servers.leader = fake->leads && fake->cluster_count > 1 ? fake->cluster[1].id : 0;
    servers.cut_off = fake->cut_off;
    say(session, PEER_SERVERS, &servers.base);
}

void fake_leads(struct fake_server *fake, bool yes) {
    fake->leads = yes;
    for (struct fake_session *session = fake->sessions; session; session = session->next)
        if (session->greeted) say_servers(session);
}

void fake_cut_off(struct fake_server *fake) {
    fake->cut_off = true;
    fake_leads(fake, false);
}

void fake_answer(struct fake_server *fake, const char *text, bool more) {
    Pb__PeerFetched answer = PB__PEER_FETCHED__INIT;
    answer.number = fake->fetch, answer.index = 7, answer.found = true, answer.more = more;
    answer.records = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
    fake_say(fake, PEER_FETCHED, &answer.base);
}

void fake_say(struct fake_server *fake, uint8_t type, const ProtobufCMessage *message) {
    for (struct fake_session *session = fake->sessions; session; session = session->next) say(session, type, message);
}

/* -- sessions ----------------------------------------------------------------------------------------------------- */
static void session_closed(uv_handle_t *handle) {
    struct fake_session *session = handle->data;
    buffer_free(&session->in);
    free(session);
}
static void forget(struct fake_session *session) {
    struct fake_session **at = &session->fake->sessions;
    while (*at != session) at = &(*at)->next;
    *at = session->next;
    if (session->greeted) session->fake->agents--;
}
void fake_end(struct fake_session *session) {
    forget(session);
    uv_close((uv_handle_t *)&session->tcp, session_closed);
}

static void refuse(struct fake_session *session, const char *why) {
    struct buffer frame = fake_frame(PEER_REFUSED, NULL);
    buffer_append(&frame, why, strlen(why));
    put_le32(frame.data, (uint32_t)strlen(why));
    fake_send(session, frame.data, frame.size);
    buffer_free(&frame);
}

static void answer_hello(struct fake_session *session, const Pb__PeerHello *hello) {
    struct fake_server *fake = session->fake;
    if (fake->refuses) {
        refuse(session, fake->refuses);
        return;
    }
    if (!fake->silent) say_hello(session);
    if (hello->cluster_id && hello->cluster_id != fake->cluster_id) {
        refuse(session, "");
    } else if (!fake->silent) {
        say_servers(session);
        session->greeted = true, fake->agents++;
    }
}

/* False: the session is over. */
static bool take_hello(struct fake_session *session, const uint8_t *payload, size_t size) {
    Pb__PeerHello *hello = pb__peer_hello__unpack(NULL, size, payload);
    CHECK(hello && hello->agent);
    session->fake->hellos++;
    bool ends = session->fake->ends;
    if (ends) fake_end(session);
    else answer_hello(session, hello);
    pb__peer_hello__free_unpacked(hello, NULL);
    return !ends;
}

static bool take_frame(struct fake_session *session, uint8_t type, const uint8_t *payload, size_t size) {
    struct fake_server *fake = session->fake;
    if (type == PEER_HELLO) {
        return take_hello(session, payload, size);
    } else if (type == PEER_PING) {
        fake->pings++;
        if (!fake->mute) say(session, PEER_PING, NULL);
    } else if (type == PEER_FETCH) {
        Pb__PeerFetch *ask = pb__peer_fetch__unpack(NULL, size, payload);
        CHECK(ask);
        fake->fetches++, fake->fetch = ask->number, fake->fetch_index = ask->index;
        pb__peer_fetch__free_unpacked(ask, NULL);
    } else if (type == PEER_FETCH_END) {
        fake->fetch_ends++;
    } else if (type == PEER_CHANGE) {
        Pb__PeerChange *ask = pb__peer_change__unpack(NULL, size, payload);
        CHECK(ask);
        fake->changes++, fake->change = ask->number;
        pb__peer_change__free_unpacked(ask, NULL);
    } else if (type == PEER_BACKUP) {
        fake->backups++;
    } else if (type == PEER_ASK) {
        Pb__PeerAsk *ask = pb__peer_ask__unpack(NULL, size, payload);
        CHECK(ask);
        fake->asks++, fake->ask = ask->number;
        pb__peer_ask__free_unpacked(ask, NULL);
    } else if (type == PEER_ASK_ANSWER) {
        Pb__PeerAskAnswer *answer = pb__peer_ask_answer__unpack(NULL, size, payload);
        CHECK(answer);
        fake->answers++;
        snprintf(fake->answer, sizeof fake->answer, "%u %.*s", answer->outcome, (int)answer->data.len,
                 answer->data.data);
        pb__peer_ask_answer__free_unpacked(answer, NULL);
    }
    return true;
}

static void allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *room) {
    struct fake_session *session = handle->data;
    buffer_reserve(&session->in, suggested);
    *room = uv_buf_init(session->in.data + session->in.size, (unsigned)(session->in.capacity - session->in.size));
}
static void arrived(uv_stream_t *stream, ssize_t size, const uv_buf_t *room) {
    struct fake_session *session = stream->data;
    (void)room;
    if (size < 0) {
        fake_end(session);
        return;
    }
    session->in.size += (size_t)size;
    size_t at = 0;
    while (session->in.size - at >= 5 && session->in.size - at >= 5 + (size_t)get_le32(session->in.data + at)) {
        uint32_t length = get_le32(session->in.data + at);
        if (!take_frame(session, (uint8_t)session->in.data[at + 4], (uint8_t *)session->in.data + at + 5, length))
            return;
        at += 5 + length;
    }
    memmove(session->in.data, session->in.data + at, session->in.size - at);
    session->in.size -= at;
}
void fake_read(struct fake_session *session) { uv_read_start((uv_stream_t *)&session->tcp, allocate, arrived); }

static void connection(uv_stream_t *server, int status) {
    struct fake_server *fake = server->data;
    CHECK(status == 0);
    struct fake_session *session = calloc(1, sizeof *session);
    session->fake = fake, session->tcp.data = session, session->next = fake->sessions;
    fake->sessions = session;
    fake->connections++;
    uv_tcp_init(server->loop, &session->tcp);
    CHECK(uv_accept(server, (uv_stream_t *)&session->tcp) == 0);
    if (fake->resets) {
        forget(session);
        CHECK(uv_tcp_close_reset(&session->tcp, session_closed) == 0);
        return;
    }
    fake_read(session);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
void fake_open(struct fake_server *fake, uv_loop_t *loop, uint64_t id) {
    *fake = (struct fake_server){.id = id, .cluster_id = 77, .datacenter = "dc1", .leads = true};
    struct sockaddr_in at;
    int size = sizeof at;
    uv_tcp_init(loop, &fake->listener);
    fake->listener.data = fake;
    uv_ip4_addr("127.0.0.1", 0, &at);
    CHECK(uv_tcp_bind(&fake->listener, (struct sockaddr *)&at, 0) == 0);
    CHECK(uv_listen((uv_stream_t *)&fake->listener, 16, connection) == 0);
    uv_tcp_getsockname(&fake->listener, (struct sockaddr *)&at, &size);
    snprintf(fake->address, sizeof fake->address, "127.0.0.1:%u", ntohs(at.sin_port));
}

void fake_close(struct fake_server *fake) {
    CHECK(!fake->sessions);
    uv_close((uv_handle_t *)&fake->listener, NULL);
}
