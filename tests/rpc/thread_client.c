/* A client agent's rpc beside servers, used by many threads: reads for DNS that are kept current (dns_subscriptions.c),
 * more of them than it keeps, fetches that wait, are cancelled or meet the loss of their server, writes, backups,
 * and the end in the middle of it all. A plain main: runs under the sanitizers. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agents.h"
#include "asked.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "kv/keys/kv.h"
#include "registry/catalog.h"
#include "rpc/api/operator.h"
#include "rpc/cluster/peers.h"
#include "rpc/wire/hello.h"
#include "rpc/wire/link.h"
#include "rpc/wire/peer.pb-c.h"
#include "tests/lib/servers.h"

#define SERVERS  3
#define SERVICES 8
#define READERS  4

static struct server servers[SERVERS];

/* -- writes through it -------------------------------------------------------------------------------------------- */
struct put {
    struct rpc_write write;
    uv_sem_t done;
    int error;
};

static void on_written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct put *put = CONTAINER_OF(write, struct put, write);
    CHECK(error != CO_OK || result->error == CO_OK);
    put->error = error;
    uv_sem_post(&put->done);
}

static int set_port(struct rpc *rpc, unsigned number, uint32_t port) {
    char name[16];
    snprintf(name, sizeof name, "s%u", number);
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    node.name = (char *)"n", node.address = (char *)"10.0.0.1";
    service.id = service.name = name, service.port = port, service.weight_passing = service.weight_warning = 1;
    command.node = &node, command.service = &service;
    struct put put = {.write.done = on_written};
    CHECK(uv_sem_init(&put.done, 0) == 0);
    rpc_submit(rpc, &put.write, CATALOG_REGISTER, &command.base);
    uv_sem_wait(&put.done);
    uv_sem_destroy(&put.done);
    return put.error;
}

/* A server is looked for, or the servers elect a leader. */
static bool passing(int error) { return error == CO_NOLEADER || error == CO_TIMEOUT; }

/* Again and again, until it is acknowledged. */
static void set_port_surely(struct rpc *rpc, unsigned number, uint32_t port) {
    uint64_t deadline = clock_mono_ms() + 60000;
    int error;
    do error = set_port(rpc, number, port);
    while ((passing(error) || error == CO_UNKNOWN_OUTCOME) && clock_mono_ms() < deadline);
    if (error) fprintf(stderr, "write of s%u: %s\n", number, co_strerror(error));
    CHECK(error == CO_OK);
}

/* -- reads as DNS makes them -------------------------------------------------------------------------------------- */
/* Its port; 0: no such service; -1: no answer (`error`). The questions of different kinds (0-3) are kept apart. */
static int64_t port_as(struct rpc_reader *reader, unsigned number, unsigned kind, int *error) {
    char name[16];
    snprintf(name, sizeof name, "s%u", number);
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    request.service = name, request.held = kind & 1, request.passing_only = kind & 2;
    struct arena arena = {0};
    struct query_result result;
    *error = rpc_query(reader, &query_service_entries, &request.base, NULL, &arena, &result);
    int64_t port = -1;
    if (*error == CO_OK) {
        const Pb__ServiceEntriesResult *entries = (const void *)result.message;
        port = entries && entries->n_entries ? (int64_t)entries->entries[0]->service->port : 0;
    }
    arena_free(&arena);
    return port;
}

static int64_t port_of(struct rpc_reader *reader, unsigned number, int *error) {
    return port_as(reader, number, 0, error);
}

static struct agent agent;
static _Atomic uint32_t written[SERVICES]; /* acknowledged */
static _Atomic bool over;
static _Atomic uint64_t reads;

/* Ports only rise, so what is read does, too. */
static void *read_all(void *data) {
    struct rpc_reader *reader = rpc_reader_new(agent.rpc);
    int64_t last[SERVICES] = {0};
    struct rng rng;
    rng_seed(&rng, (uint64_t)(uintptr_t)data);
    while (!atomic_load(&over)) {
        unsigned number = (unsigned)rng_below(&rng, SERVICES + 2);
        int error;
        int64_t port = port_of(reader, number, &error);
        CHECK(error == CO_OK || error == CO_CLOSED || error == CO_NOLEADER || error == CO_TIMEOUT);
        if (error != CO_OK) continue;
        atomic_fetch_add(&reads, 1);
        CHECK(number < SERVICES || port == 0);
        if (number >= SERVICES) continue;
        CHECK(port >= last[number]);
        last[number] = port;
    }
    rpc_reader_free(reader);
    return NULL;
}

/* A fetch that waits for what may never come, and is cancelled at any moment. */
static void *cancel_some(void *data) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)(uintptr_t)data);
    while (!atomic_load(&over)) {
        Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
        request.node = (char *)"n";
        struct asked asked;
        asked_begin(&asked, agent.rpc, &query_node_services, &request.base,
                    (struct how){.stale = true, .index = UINT32_MAX, .wait_ms = 20000});
        usleep((useconds_t)rng_below(&rng, 3000));
        rpc_fetch_cancel(agent.rpc, &asked.fetch);
        asked_await(&asked);
        CHECK(asked.error == CO_CLOSED || asked.error == CO_OK || passing(asked.error));
        asked_end(&asked);
    }
    return NULL;
}

static void write_some(unsigned first, unsigned last) {
    for (unsigned port = first; port <= last; port++) {
        for (unsigned number = 0; number < SERVICES; number++) {
            set_port_surely(agent.rpc, number, port);
            atomic_store(&written[number], port);
        }
    }
}

static void until_current(struct rpc_reader *reader) {
    uint64_t deadline = clock_mono_ms() + 60000;
    for (unsigned number = 0; number < SERVICES; number++) {
        int error;
        while (port_of(reader, number, &error) != (int64_t)atomic_load(&written[number])) {
            CHECK(clock_mono_ms() < deadline);
            usleep(1000);
        }
    }
}

static void many_threads(void) {
    pthread_t threads[READERS + 1];
    struct rpc_reader *reader = rpc_reader_new(agent.rpc);
    for (uintptr_t i = 0; i < READERS; i++) CHECK(pthread_create(&threads[i], NULL, read_all, (void *)(i + 1)) == 0);
    CHECK(pthread_create(&threads[READERS], NULL, cancel_some, (void *)99) == 0);
    write_some(1, 10);
    until_current(reader);
    int error;
    int64_t port;
    while ((port = port_of(reader, SERVICES, &error)) < 0) CHECK(passing(error));
    CHECK(port == 0 && error == CO_OK);
    printf("%llu reads while %u writes went by\n", (unsigned long long)atomic_load(&reads), 10 * SERVICES);
    rpc_reader_free(reader);
    atomic_store(&over, true);
    for (unsigned i = 0; i <= READERS; i++) pthread_join(threads[i], NULL);
}

/* -- backups ------------------------------------------------------------------------------------------------------ */
struct backup {
    struct rpc_save save;
    struct rpc_restore restore;
    uv_sem_t done;
    int error;
};

static void on_saved(struct rpc_save *save, int error) {
    struct backup *backup = CONTAINER_OF(save, struct backup, save);
    backup->error = error;
    uv_sem_post(&backup->done);
}

static void on_restored(struct rpc_restore *restore, int error) {
    struct backup *backup = CONTAINER_OF(restore, struct backup, restore);
    backup->error = error;
    uv_sem_post(&backup->done);
}

/* `from` NULL: saves; else brings that one back. */
static void backup_begin(struct backup *backup, const struct backup *from) {
    *backup = (struct backup){.save = {.done = on_saved, .folder = "/tmp", .fd = -1},
                              .restore = {.done = on_restored, .folder = "/tmp"}};
    CHECK(uv_sem_init(&backup->done, 0) == 0);
    if (from) backup->restore.fd = from->save.fd, rpc_restore(agent.rpc, &backup->restore);
    else rpc_save(agent.rpc, &backup->save);
}

static int backup_end(struct backup *backup) {
    uv_sem_wait(&backup->done);
    uv_sem_destroy(&backup->done);
    if (backup->error) CHECK(backup->save.fd < 0);
    return backup->error;
}

/* Again, while the servers elect a leader. */
static void backup_surely(struct backup *backup, const struct backup *from) {
    uint64_t deadline = clock_mono_ms() + 60000;
    int error;
    do {
        backup_begin(backup, from);
        error = backup_end(backup);
    } while ((passing(error) || error == CO_UNKNOWN_OUTCOME) && clock_mono_ms() < deadline);
    if (error) fprintf(stderr, "%s: %s\n", from ? "restore" : "save", co_strerror(error));
    CHECK(error == CO_OK);
}

static struct backup whole;

/* Several at once: as many as a server takes. */
static void backups(void) {
    static struct backup several[6];
    char value[300000];
    for (unsigned i = 0; i < 8; i++) {
        for (size_t k = 0; k < sizeof value; k += 8) memcpy(value + k, &(uint64_t){random_u64()}, 8);
        char key[16];
        snprintf(key, sizeof key, "big/%u", i);
        server_put_bytes(&servers[i % SERVERS], key, slice_make(value, sizeof value));
    }
    backup_surely(&whole, NULL);
    CHECK(whole.save.size > 8 * sizeof value && (uint64_t)lseek(whole.save.fd, 0, SEEK_END) == whole.save.size &&
          whole.save.index > 0);
    for (unsigned i = 0; i < ARRAY_COUNT(several); i++) backup_begin(&several[i], NULL);
    unsigned saved = 0, passed = 0;
    for (unsigned i = 0; i < ARRAY_COUNT(several); i++) {
        int error = backup_end(&several[i]);
        CHECK(error == CO_OK || error == CO_BUSY || passing(error));
        passed += passing(error);
        if (error != CO_OK) continue;
        saved++;
        CHECK(close(several[i].save.fd) == 0);
    }
    CHECK(saved + passed >= 4);
    struct backup restored;
    backup_surely(&restored, &whole);
    CHECK(restored.restore.index > whole.save.index);
}

/* They end, whatever they are at. */
static void stop_in_the_middle(void (*stop)(void)) {
    struct backup two[2];
    backup_begin(&two[0], NULL);
    backup_begin(&two[1], &whole);
    usleep(random_u64() % 100000);
    stop();
    for (unsigned i = 0; i < 2; i++)
        if (backup_end(&two[i]) == CO_OK && i == 0) CHECK(close(two[0].save.fd) == 0);
}

static void stop_agent(void) {
    agent_begin_stop(&agent);
    agent_end(&agent);
}
static void stop_servers(void) { servers_stop(servers, SERVERS); }

/* Requests that wait when it stops end. */
static void stop_while_some_wait(void) {
    enum { COUNT = 100 };
    static struct asked asked[COUNT];
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = (char *)"n";
    for (unsigned i = 0; i < COUNT; i++)
        asked_begin(&asked[i], agent.rpc, &query_node_services, &request.base,
                    (struct how){.stale = true, .index = UINT32_MAX, .wait_ms = 60000});
    agent_begin_stop(&agent);
    for (unsigned i = 0; i < COUNT; i++) {
        asked_await(&asked[i]);
        CHECK(asked[i].error == CO_CLOSED);
        asked_end(&asked[i]);
    }
}

/* -- more questions than are kept current ------------------------------------------------------------------------- */
#define QUERIES 16

/* CO_OK: it is not there. */
static int made_up(struct rpc_reader *reader, unsigned number) {
    char name[32];
    snprintf(name, sizeof name, "nobody-%u", number);
    Pb__NameRequest request = PB__NAME_REQUEST__INIT;
    request.name = name;
    struct arena arena = {0};
    struct query_result result;
    int error = rpc_query(reader, &query_service_nocase, &request.base, NULL, &arena, &result);
    CHECK(error != CO_OK || !result.found);
    arena_free(&arena);
    return error;
}

/* Made-up names, and more of those that exist than there is room for. */
static void *ask_for_many(void *data) {
    struct rpc_reader *reader = rpc_reader_new(agent.rpc);
    unsigned own = (unsigned)(uintptr_t)data;
    for (unsigned i = 0; i < 300; i++) {
        int error;
        do error = made_up(reader, i % 2 ? i : own * 1000 + i);
        while (passing(error));
        CHECK(error == CO_OK);
        unsigned number = i % SERVICES;
        int64_t port = (int64_t)atomic_load(&written[number]);
        while (i % 5 == 0 && port_as(reader, number, (i / SERVICES + own) % 4, &error) != port) CHECK(passing(error));
    }
    rpc_reader_free(reader);
    return NULL;
}

/* All are answered; and when the servers go, what exists is still there, whatever was made up since. Ends with the
 * servers stopped. */
static void more_than_are_kept(const char *const *join) {
    pthread_t threads[READERS];
    int error;
    agent_start(&agent, "agent", join, QUERIES, NULL);
    struct rpc_reader *reader = rpc_reader_new(agent.rpc);
    uint64_t deadline = clock_mono_ms() + 90000;
    while (made_up(reader, 0) != CO_OK) CHECK(clock_mono_ms() < deadline);
    for (unsigned number = 0; number < SERVICES; number++)
        set_port_surely(agent.rpc, number, atomic_load(&written[number]));
    for (unsigned number = 0; number < SERVICES; number++) /* the agent's server may hear of them after the leader */
        while (port_of(reader, number, &error) != (int64_t)atomic_load(&written[number]))
            CHECK((error == CO_OK || passing(error)) && clock_mono_ms() < deadline);
    for (uintptr_t i = 0; i < READERS; i++)
        CHECK(pthread_create(&threads[i], NULL, ask_for_many, (void *)(i + 1)) == 0);
    for (unsigned i = 0; i < READERS; i++) pthread_join(threads[i], NULL);
    set_port_surely(agent.rpc, SERVICES, 77); /* new, registered here */
    while (port_of(reader, SERVICES, &error) != 77)
        CHECK((error == CO_OK || passing(error)) && clock_mono_ms() < deadline);
    for (unsigned number = 0; number < SERVICES; number++)
        while (port_of(reader, number, &error) <= 0) CHECK(passing(error));
    for (unsigned i = 0; i < 3 * QUERIES; i++)
        while ((error = made_up(reader, 100000 + i)) != CO_OK) CHECK(passing(error));
    servers_stop(servers, SERVERS);
    while (made_up(reader, 200000) != CO_NOLEADER) CHECK(clock_mono_ms() < deadline);
    for (unsigned i = 0; i < 3 * QUERIES; i++) CHECK(made_up(reader, 300000 + i) == CO_NOLEADER);
    for (unsigned number = 0; number <= SERVICES; number++)
        CHECK(port_of(reader, number, &error) == (number < SERVICES ? (int64_t)atomic_load(&written[number]) : 77));
    CHECK(made_up(reader, 100000 + 3 * QUERIES - 1) == CO_OK); /* that of the last one, too */
    rpc_reader_free(reader);
    agent_begin_stop(&agent);
    agent_end(&agent);
}

/* -- nobody there ------------------------------------------------------------------------------------------------- */
static void nobody_answers(void) {
    static const char *const join[] = {"127.0.0.1:1", "nowhere.invalid", "[::1]:1", NULL};
    int error;
    agent_start(&agent, "agent", join, 0, NULL);
    struct rpc_reader *reader = rpc_reader_new(agent.rpc);
    uint64_t begun, took;
    unsigned tries = 0;
    do { /* nobody to wait for; more than once only where the machine stands still */
        begun = clock_mono_ms();
        CHECK(port_of(reader, 1, &error) == -1 && error == CO_NOLEADER);
        took = clock_mono_ms() - begun;
    } while (took >= 1000 && ++tries < 10);
    CHECK(took < 1000);
    rpc_reader_free(reader);
    begun = clock_mono_ms();
    CHECK(set_port(agent.rpc, 1, 1) == CO_NOLEADER);
    took = clock_mono_ms() - begun;
    CHECK(took >= RPC_LEADER_WAIT_MS && took < RPC_LEADER_WAIT_MS + 15000);
    agent_begin_stop(&agent);
    agent_end(&agent);
}

/* -- large answers ------------------------------------------------------------------------------------------------ */
#define LARGE_VALUE (1u << 20)
#define LARGE_COUNT 12

static const Pb__KvRequest all_of_it = {.base = PROTOBUF_C_MESSAGE_INIT(&pb__kv_request__descriptor),
                                        .key = {5, (uint8_t *)(uintptr_t) "large"}};

/* Again, when a leader was deposed over it. */
static void write_large(void) {
    char *value = mem_zalloc(LARGE_VALUE), key[16];
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = PB__KV_VERB__KV_SET, command.value = (ProtobufCBinaryData){LARGE_VALUE, (uint8_t *)value};
    for (unsigned i = 0; i < LARGE_COUNT; i++) {
        snprintf(key, sizeof key, "large%02u", i);
        command.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
        struct put put;
        do {
            put = (struct put){.write.done = on_written};
            CHECK(uv_sem_init(&put.done, 0) == 0);
            rpc_submit(servers[0].rpc, &put.write, KV_APPLY, &command.base);
            uv_sem_wait(&put.done);
            uv_sem_destroy(&put.done);
        } while (put.error != CO_OK);
    }
    free(value);
}

static void a_large_answer_arrives_whole(void) {
    int error;
    do {
        struct asked asked;
        asked_begin(&asked, agent.rpc, &query_kv_list, &all_of_it.base, (struct how){0});
        asked_await(&asked);
        error = asked.error;
        CHECK(error != CO_OK || asked.records.size > (size_t)LARGE_VALUE * LARGE_COUNT);
        asked_end(&asked);
    } while (error == CO_NOLEADER || error == CO_TIMEOUT);
    CHECK(error == CO_OK);
}

static void say(int fd, uint8_t type, const ProtobufCMessage *message) {
    uint8_t frame[512];
    size_t size = message ? protobuf_c_message_get_packed_size(message) : 0;
    CHECK(size + 5 <= sizeof frame);
    put_le32((char *)frame, (uint32_t)size);
    frame[4] = type;
    if (message) protobuf_c_message_pack(message, frame + 5);
    CHECK(send(fd, frame, size + 5, 0) == (ssize_t)size + 5);
}

static size_t hear(int fd, uint8_t *type) {
    static char room[1 << 20];
    char head[5];
    CHECK(recv(fd, head, sizeof head, MSG_WAITALL) == sizeof head);
    size_t size = get_le32(head);
    CHECK(size <= sizeof room && (size == 0 || recv(fd, room, size, MSG_WAITALL) == (ssize_t)size));
    *type = (uint8_t)head[4];
    return size;
}

/* An agent that reads slowly is answered its ping in the middle of a large answer. */
static void a_ping_is_answered_between_two_pieces(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strchr(servers[0].address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 65536;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0 &&
          connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    hello.protocol = (char *)HELLO_PROTOCOL, hello.version_least = HELLO_VERSION_LEAST,
    hello.version_most = HELLO_VERSION_MOST;
    hello.cluster = (char *)"dc1", hello.id = 99, hello.address = (char *)"127.0.0.1", hello.node = (char *)"slow",
    hello.agent = true;
    say(fd, PEER_HELLO, &hello.base);
    uint8_t request[64], type = 0;
    Pb__PeerFetch ask = PB__PEER_FETCH__INIT;
    ask.number = 1, ask.query = query_kv_list.number;
    ask.request = (ProtobufCBinaryData){protobuf_c_message_pack(&all_of_it.base, request), request};
    say(fd, PEER_FETCH, &ask.base);
    while (type != PEER_FETCHED) hear(fd, &type);
    say(fd, PEER_PING, NULL);
    size_t before = 0;
    while (type != PEER_PING) before += hear(fd, &type);
    printf("a ping was answered after %zu KiB of a large answer\n", before >> 10);
    CHECK(before < (4u << 20));
    close(fd);
}

int main(void) {
    static const char *join[SERVERS + 1];
    signal(SIGPIPE, SIG_IGN); /* as the program does */
    nobody_answers();
    servers_start(servers, SERVERS, 1);
    for (unsigned i = 0; i < SERVERS; i++) join[i] = servers[i].address;
    agent_start(&agent, "agent", join, 0, NULL);
    many_threads();
    write_large();
    a_large_answer_arrives_whole();
    a_ping_is_answered_between_two_pieces();
    stop_while_some_wait();
    agent_end(&agent);
    agent_start(&agent, "agent", join, 0, NULL);
    backups();
    stop_in_the_middle(stop_agent);
    agent_start(&agent, "agent", join, 0, NULL);
    stop_in_the_middle(stop_servers);
    stop_agent();
    CHECK(close(whole.save.fd) == 0);
    servers_start(servers, SERVERS, 1);
    for (unsigned i = 0; i < SERVERS; i++) join[i] = servers[i].address;
    more_than_are_kept(join);
    return 0;
}
