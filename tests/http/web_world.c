#include "web_world.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "kv/kv.h"
#include "lb/coordinate.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "rpc/coordinates.h"
#include "rpc/fetch.h"

#define PATIENCE_MS 5000

/* ---- the cluster ---- */

struct rpc {
    struct machine *machine;
    struct fetches *fetches;
    pthread_t thread; /* applier and loop in one */
    pthread_mutex_t lock;
    pthread_cond_t news;
    /* Under the lock. */
    struct list writes, gates, renewals;
    pthread_cond_t applied;
    bool applying, stand_still; /* stand_still: whoever writes waits until it is applied */
    bool quit, hold_writes, hold_gates, alone, leader;
    int fail;
    unsigned rounds, full; /* full: confirmations that end so */
    _Atomic uint64_t floor;
    uint64_t last_index; /* the thread's */
};

struct pending_write {
    struct list link;
    struct rpc_write *write;
    struct buffer command;
};
struct pending_gate {
    struct list link;
    struct rpc_gate *gate;
};
struct pending_renewal {
    struct list link;
    struct rpc_renew *renew;
};

static void applied(void *data, void *origin, const struct machine_result *result) {
    (void)data;
    struct rpc_write *write = origin;
    write->done(write, CO_OK, result);
}

static void apply(struct rpc *rpc, struct list *writes, int fail) {
    while (!list_empty(writes)) {
        struct pending_write *pending = LIST_ENTRY(writes->next, struct pending_write, link);
        list_remove(&pending->link);
        if (fail) {
            pending->write->done(pending->write, fail, NULL);
        } else {
            struct machine_input input = {.index = ++rpc->last_index,
                                          .term = 1,
                                          .command = buffer_slice(&pending->command),
                                          .is_command = true,
                                          .origin = pending->write};
            uint64_t stopped_at;
            CHECK(machine_apply(rpc->machine, &input, 1, applied, NULL, &stopped_at) == CO_OK);
        }
        buffer_free(&pending->command);
        free(pending);
    }
}

static void answer_rest(struct list *gates, struct list *renewals, int confirmed) {
    while (!list_empty(gates)) {
        struct pending_gate *pending = LIST_ENTRY(gates->next, struct pending_gate, link);
        list_remove(&pending->link);
        pending->gate->done(pending->gate, confirmed);
        free(pending);
    }
    while (!list_empty(renewals)) {
        struct pending_renewal *pending = LIST_ENTRY(renewals->next, struct pending_renewal, link);
        list_remove(&pending->link);
        pending->renew->done(pending->renew, strcmp(pending->renew->id, "other") == 0 ? CO_NOTFOUND : CO_OK);
        free(pending);
    }
}

static void *cluster_main(void *data) {
    struct rpc *rpc = data;
    pthread_mutex_lock(&rpc->lock);
    for (;;) {
        bool writes_now = !rpc->hold_writes && !list_empty(&rpc->writes);
        bool gates_now = !rpc->hold_gates && !list_empty(&rpc->gates);
        if (!writes_now && !gates_now && list_empty(&rpc->renewals)) {
            if (rpc->quit) break;
            pthread_cond_wait(&rpc->news, &rpc->lock);
            continue;
        }
        struct list writes, gates, renewals;
        list_init(&writes), list_init(&gates), list_init(&renewals);
        if (writes_now) list_splice(&writes, &rpc->writes);
        if (gates_now) list_splice(&gates, &rpc->gates);
        rpc->rounds += gates_now;
        list_splice(&renewals, &rpc->renewals);
        int confirmed = !rpc->leader ? CO_NOLEADER : gates_now && rpc->full ? CO_DISKFULL : CO_OK;
        rpc->full -= confirmed == CO_DISKFULL;
        int fail = rpc->fail;
        rpc->applying = true;
        pthread_mutex_unlock(&rpc->lock);
        apply(rpc, &writes, fail);
        answer_rest(&gates, &renewals, confirmed);
        pthread_mutex_lock(&rpc->lock);
        rpc->applying = false;
        pthread_cond_broadcast(&rpc->applied);
    }
    pthread_mutex_unlock(&rpc->lock);
    return NULL;
}

static void append(struct rpc *rpc, struct list *list, struct list *item) {
    pthread_mutex_lock(&rpc->lock);
    list_append(list, item);
    pthread_cond_signal(&rpc->news);
    pthread_mutex_unlock(&rpc->lock);
}

void rpc_submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message) {
    struct pending_write *pending = mem_zalloc(sizeof *pending);
    pending->write = write;
    machine_command(&pending->command, command, message);
    append(rpc, &rpc->writes, &pending->link);
    pthread_mutex_lock(&rpc->lock);
    while (rpc->stand_still && !rpc->hold_writes && (rpc->applying || !list_empty(&rpc->writes)))
        pthread_cond_wait(&rpc->applied, &rpc->lock);
    pthread_mutex_unlock(&rpc->lock);
}

int rpc_confirm(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_gate *gate) {
    pthread_mutex_lock(&rpc->lock);
    bool at_once = freshness == RPC_STALE || rpc->alone;
    pthread_mutex_unlock(&rpc->lock);
    if (at_once) return CO_OK;
    struct pending_gate *pending = mem_zalloc(sizeof *pending);
    pending->gate = gate;
    append(rpc, &rpc->gates, &pending->link);
    return CO_AGAIN;
}

void rpc_renew(struct rpc *rpc, struct rpc_renew *renew) {
    struct pending_renewal *pending = mem_zalloc(sizeof *pending);
    pending->renew = renew;
    append(rpc, &rpc->renewals, &pending->link);
}

void rpc_fetch(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    fetches_take(rpc->fetches, fetch, request);
}
void rpc_fetch_cancel(struct rpc *rpc, struct rpc_fetch *fetch) { fetches_cancel(rpc->fetches, fetch); }
const struct modules *rpc_modules(const struct rpc *rpc) { return machine_modules(rpc->machine); }
bool rpc_has_copy(const struct rpc *rpc) {
    (void)rpc;
    return true;
}

struct rpc_reader {
    struct store_reader *reader;
};

struct rpc_reader *rpc_reader_new(struct rpc *rpc) {
    struct rpc_reader *reader = mem_alloc(sizeof *reader);
    reader->reader = store_reader_new(machine_store(rpc->machine));
    return reader;
}
void rpc_reader_free(struct rpc_reader *reader) {
    store_reader_free(reader->reader);
    free(reader);
}
struct store_txn *rpc_read_begin(struct rpc_reader *reader) {
    return store_read(reader->reader);
}
void rpc_read_end(struct rpc_reader *reader) { store_read_done(reader->reader); }
uint64_t rpc_generation(struct rpc *rpc, struct watch_thing thing) {
    return watch_generation(machine_watches(rpc->machine), thing);
}
struct watch_table *rpc_watches(struct rpc *rpc) {
    return machine_watches(rpc->machine);
}
uint64_t rpc_applied(struct rpc *rpc) { return machine_applied(rpc->machine); }
void rpc_met_damage(struct rpc *rpc) { (void)rpc; }
int rpc_serves(struct rpc *rpc) {
    (void)rpc;
    return CO_OK;
}
void rpc_fenced_why(struct rpc *rpc, char line[160]) {
    (void)rpc;
    line[0] = 0;
}
uint64_t rpc_floor(struct rpc *rpc) { return rpc->floor; }

struct waited_write {
    struct rpc_write write;
    _Atomic bool done;
};
static void waited_done(struct rpc_write *write, int error, const struct machine_result *result) {
    (void)error, (void)result;
    atomic_store(&CONTAINER_OF(write, struct waited_write, write)->done, true);
}

bool rpc_known_leader(struct rpc *rpc) {
    pthread_mutex_lock(&rpc->lock);
    bool leader = rpc->leader;
    pthread_mutex_unlock(&rpc->lock);
    return leader;
}
void rpc_status(struct rpc *rpc, struct rpc_status *status) {
    *status = (struct rpc_status){
        .is_server = true, .is_leader = rpc_known_leader(rpc), .known_leader = rpc_known_leader(rpc)};
    if (status->known_leader) strcpy(status->leader_address, "127.0.0.1:8300");
}
/* Without a batch: applied before it returns. */
int rpc_coordinate_put(struct rpc *rpc, const Pb__Coordinate *record) {
    int rv = coordinate_check(record);
    if (rv != CO_OK) return rv;
    Pb__CoordinateUpdateCommand command = PB__COORDINATE_UPDATE_COMMAND__INIT;
    Pb__Coordinate *updates[] = {(Pb__Coordinate *)(uintptr_t)record};
    command.updates = updates, command.n_updates = 1;
    struct waited_write waited = {.write.done = waited_done};
    rpc_submit(rpc, &waited.write, COORDINATE_UPDATE, &command.base);
    while (!atomic_load(&waited.done)) usleep(100);
    return CO_OK;
}
struct vivaldi_coordinate rpc_coordinate_here(struct rpc *rpc) {
    (void)rpc;
    return vivaldi_origin();
}
size_t rpc_peers(struct rpc *rpc, struct arena *arena, const char ***addresses) {
    *addresses = arena_alloc(arena, sizeof **addresses);
    (*addresses)[0] = "127.0.0.1:8300";
    return rpc_known_leader(rpc);
}

static void cluster_start(struct rpc *rpc, const char *folder, const struct module *more) {
    struct module_entry entries[32] = {{0}};
    size_t count = 0;
    for (; agent_modules[count].module; count++) entries[count] = agent_modules[count];
    CHECK(count + 1 < ARRAY_COUNT(entries));
    entries[count].module = more;
    struct machine_config config = {.store = {.folder = folder, .map_bytes = (uint64_t)1 << 30}, .modules = entries};
    struct fault fault = {0};
    cr_assert(machine_open(&config, &rpc->machine, &fault) == CO_OK, "%s", fault.text);
    list_init(&rpc->writes), list_init(&rpc->gates), list_init(&rpc->renewals);
    pthread_mutex_init(&rpc->lock, NULL);
    pthread_cond_init(&rpc->news, NULL);
    pthread_cond_init(&rpc->applied, NULL);
    rpc->alone = rpc->leader = true;
    cr_assert(pthread_create(&rpc->thread, NULL, cluster_main, rpc) == 0);
    rpc->fetches = fetches_new(rpc);
}

static void cluster_stop(struct rpc *rpc) {
    fetches_stop(rpc->fetches);
    pthread_mutex_lock(&rpc->lock);
    rpc->quit = true;
    rpc->hold_writes = rpc->hold_gates = false;
    pthread_cond_signal(&rpc->news);
    pthread_mutex_unlock(&rpc->lock);
    pthread_join(rpc->thread, NULL);
    fetches_free(rpc->fetches);
    machine_close(rpc->machine);
}

/* ---- the world ---- */

struct world {
    char folder[64];
    struct rpc rpc;
    struct http_server *server;
    uint16_t port;
};

struct world *world_start(const struct http_config *given) {
    return world_start_with(given, NULL);
}

struct world *world_start_with(const struct http_config *given, const struct module *module) {
    static const char *const addresses[] = {"127.0.0.1", NULL};
    struct world *world = mem_zalloc(sizeof *world);
    signal(SIGPIPE, SIG_IGN);
    log_level_now = LOG_ERROR;
    strcpy(world->folder, "/tmp/test-http-XXXXXX");
    cr_assert(mkdtemp(world->folder) != NULL);
    cluster_start(&world->rpc, world->folder, module);
    struct http_config config = given ? *given : (struct http_config){0};
    config.addresses = addresses;
    if (!config.connections_per_address_max) config.connections_per_address_max = 5000;
    struct http_env env = {.rpc = &world->rpc,
                           .datacenter = "dc1",
                           .node_name = "n1",
                           .address = "127.0.0.1",
                           .version = "0",
                           .consul_version = "1.8.7",
                           .node_id = "00000000-0000-0000-0000-000000000001",
                           .is_server = true};
    struct fault fault = {0};
    cr_assert(http_start(&config, &env, &world->server, &fault) == CO_OK, "%s", fault.text);
    world->port = http_port(world->server);
    return world;
}

void world_stop_http(struct world *world) {
    http_stop(world->server);
    world->server = NULL;
}

static int remove_one(const char *path, const struct stat *status, int flag, struct FTW *at) {
    (void)status, (void)flag, (void)at;
    return remove(path);
}

void world_stop(struct world *world) {
    world_stop_http(world);
    cluster_stop(&world->rpc);
    nftw(world->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(world);
}

uint16_t world_port(const struct world *world) { return world->port; }
struct rpc *world_rpc(struct world *world) {
    return &world->rpc;
}

#define CHANGE(world, what)                       \
    do {                                          \
        pthread_mutex_lock(&(world)->rpc.lock);   \
        what;                                     \
        pthread_cond_signal(&(world)->rpc.news);  \
        pthread_mutex_unlock(&(world)->rpc.lock); \
    } while (0)

void world_leader(struct world *world, bool known) { CHANGE(world, world->rpc.leader = known); }
void world_stand_still(struct world *world) { CHANGE(world, world->rpc.stand_still = true); }
void world_hold_writes(struct world *world, bool hold) { CHANGE(world, world->rpc.hold_writes = hold); }
void world_alone(struct world *world, bool alone) { CHANGE(world, world->rpc.alone = alone); }
void world_fail_writes(struct world *world, int error) { CHANGE(world, world->rpc.fail = error); }
void world_floor(struct world *world, uint64_t floor) { world->rpc.floor = floor; }
void world_hold_confirms(struct world *world, bool hold) {
    CHANGE(world, world->rpc.hold_gates = hold; if (hold) world->rpc.alone = false);
}
void world_disk_full(struct world *world, unsigned rounds) { CHANGE(world, world->rpc.full = rounds); }
unsigned world_rounds(struct world *world) {
    unsigned rounds;
    CHANGE(world, rounds = world->rpc.rounds);
    return rounds;
}

/* ---- clients ---- */

int web_dial(const struct world *world) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(world->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    cr_assert(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "%s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

void web_send(int fd, const char *bytes, size_t size) {
    while (size) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0) return; /* the server may have closed: web_hear tells */
        bytes += sent;
        size -= (size_t)sent;
    }
}

void web_say(int fd, const char *format, ...) {
    char *text;
    va_list arguments;
    va_start(arguments, format);
    int size = vasprintf(&text, format, arguments);
    va_end(arguments);
    cr_assert(size >= 0);
    web_send(fd, text, (size_t)size);
    free(text);
}

static bool readable(int fd, uint64_t until_ms) {
    uint64_t now = clock_mono_ms();
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, until_ms > now ? (int)(until_ms - now) : 0) == 1;
}

bool web_silent(int fd, int milliseconds) { return !readable(fd, clock_mono_ms() + (uint64_t)milliseconds); }

bool web_closed(int fd) {
    uint64_t until = clock_mono_ms() + PATIENCE_MS;
    char away[4096];
    while (readable(fd, until)) {
        if (recv(fd, away, sizeof away, 0) <= 0) return true;
    }
    return false;
}

static const char *header_of(const char *head, const char *name, char *value, size_t room) {
    size_t size = strlen(name);
    *value = '\0';
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, size) != 0 || line[2 + size] != ':') continue;
        const char *at = line + 3 + size;
        at += strspn(at, " ");
        snprintf(value, room, "%.*s", (int)strcspn(at, "\r"), at);
        break;
    }
    return value;
}

const char *web_header(const struct web_answer *answer, const char *name) {
    static char value[1024];
    return header_of(answer->head ? answer->head : "", name, value, sizeof value);
}

uint64_t web_index(const struct web_answer *answer) { return strtoull(web_header(answer, "X-Consul-Index"), NULL, 10); }

/* One byte after the other: nothing of the next answer is taken. */
static struct web_answer hear(int fd, bool with_body) {
    struct web_answer answer = {0};
    struct buffer head = {0};
    uint64_t until = clock_mono_ms() + PATIENCE_MS;
    while (head.size < 4 || memcmp(head.data + head.size - 4, "\r\n\r\n", 4) != 0) {
        char c;
        cr_assert(readable(fd, until), "no answer within %d ms", PATIENCE_MS);
        if (recv(fd, &c, 1, 0) <= 0) {
            buffer_free(&head);
            return answer;
        }
        buffer_append_byte(&head, c);
    }
    buffer_append_byte(&head, '\0');
    answer.head = buffer_take(&head, NULL);
    answer.status = atoi(answer.head + 9);
    char length[32];
    size_t wanted = strtoull(header_of(answer.head, "Content-Length", length, sizeof length), NULL, 10);
    bool until_close = !*length;
    answer.body = mem_zalloc((until_close ? 4096 : wanted) + 1);
    if (until_close) wanted = 4096;
    while (with_body && answer.size < wanted) {
        cr_assert(readable(fd, until), "no body within %d ms", PATIENCE_MS);
        ssize_t got = recv(fd, answer.body + answer.size, wanted - answer.size, 0);
        if (got <= 0) break;
        answer.size += (size_t)got;
    }
    return answer;
}

struct web_answer web_hear(int fd) {
    return hear(fd, true);
}
struct web_answer web_hear_head(int fd) {
    return hear(fd, false);
}

void web_free(struct web_answer *answer) {
    free(answer->head);
    free(answer->body);
    *answer = (struct web_answer){0};
}

struct web_answer web_ask(const struct world *world, const char *method_and_target, const char *body) {
    int fd = web_dial(world);
    size_t size = body ? strlen(body) : 0;
    web_say(fd, "%s HTTP/1.1\r\nHost: test\r\nContent-Length: %zu\r\n\r\n%s", method_and_target, size,
            body ? body : "");
    struct web_answer answer = web_hear(fd);
    close(fd);
    return answer;
}

char *web_want(const struct world *world, int status, const char *method_and_target, const char *body) {
    struct web_answer answer = web_ask(world, method_and_target, body);
    cr_assert(answer.status == status, "%s: status %d, wanted %d: %s", method_and_target, answer.status, status,
              answer.body);
    free(answer.head);
    return answer.body;
}

uint64_t web_metric(const struct world *world, const char *name) {
    char *text = web_want(world, 200, "GET /v1/agent/metrics?format=prometheus", NULL);
    char line[160];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text, line);
    uint64_t value = at ? strtoull(at + strlen(line), NULL, 10) : 0;
    free(text);
    return value;
}

int rpc_query(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
              struct arena *arena, struct query_result *result) {
    return type->run(rpc_read_begin(reader), request, arena, result);
}
