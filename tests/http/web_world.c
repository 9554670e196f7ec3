#include "web_world.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "rpc/quota/spender_run.h"

#define PATIENCE_MS 30000

/* ---- the world ---- */

struct world {
    struct rpc *rpc;
    struct http_server *server;
    uint16_t port;
    struct spender_run *spender_run; /* NULL: none */
    uv_loop_t loop;
    uv_thread_t thread;
    uv_async_t hurry, end;
};

static void loop_run(void *data) { uv_run(&((struct world *)data)->loop, UV_RUN_DEFAULT); }

static void spender_run_stopped(void *data) {
    struct world *world = data;
    uv_close((uv_handle_t *)&world->end, NULL);
    uv_close((uv_handle_t *)&world->hurry, NULL);
}

static void loop_hurry(uv_async_t *async) { spender_run_hurry(CONTAINER_OF(async, struct world, hurry)->spender_run); }
void world_hurry_spender(struct world *world) { uv_async_send(&world->hurry); }

static void loop_end(uv_async_t *async) {
    struct world *world = CONTAINER_OF(async, struct world, end);
    spender_run_stop(world->spender_run, spender_run_stopped, world);
}

static bool passes(void *data, const char *service) {
    (void)data;
    return strcmp(service, "gw") == 0;
}

static void spender_run_begin(struct world *world) {
    struct spender_run_config config = {.node = "n1", .priority = 5, .passes = passes};
    cr_assert(uv_loop_init(&world->loop) == 0 && uv_async_init(&world->loop, &world->end, loop_end) == 0);
    cr_assert(uv_async_init(&world->loop, &world->hurry, loop_hurry) == 0);
    world->spender_run = spender_run_start(&world->loop, world->rpc, &config);
    cr_assert(uv_thread_create(&world->thread, loop_run, world) == 0);
}

static void spender_run_end(struct world *world) {
    if (!world->spender_run) return;
    uv_async_send(&world->end);
    uv_thread_join(&world->thread);
    cr_assert(uv_loop_close(&world->loop) == 0);
}

static struct world *start(const struct http_config *given, const struct module *module, bool spends) {
    static const char *const addresses[] = {"127.0.0.1", NULL};
    struct world *world = mem_zalloc(sizeof *world);
    signal(SIGPIPE, SIG_IGN);
    log_level_now = LOG_ERROR;
    world->rpc = fake_rpc_start(&(struct fake_rpc_options){.more = module});
    if (spends) spender_run_begin(world);
    struct http_config config = given ? *given : (struct http_config){0};
    config.addresses = addresses;
    if (!config.connections_per_address_max) config.connections_per_address_max = 5000;
    struct http_env env = {.rpc = world->rpc,
                           .spender_run = world->spender_run,
                           .quota_priority = QUOTA_PRIORITY,
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

struct world *world_start(const struct http_config *given) {
    return start(given, NULL, false);
}
struct world *world_start_with(const struct http_config *given, const struct module *module) {
    return start(given, module, false);
}
struct world *world_start_spending(const struct http_config *given) {
    return start(given, NULL, true);
}

void world_stop_http(struct world *world) {
    http_stop(world->server);
    world->server = NULL;
}

void world_stop(struct world *world) {
    world_stop_http(world);
    spender_run_end(world);
    fake_rpc_stop(world->rpc);
    free(world);
}

uint16_t world_port(const struct world *world) { return world->port; }
struct http_server *world_server(const struct world *world) {
    return world->server;
}
struct rpc *world_rpc(const struct world *world) {
    return world->rpc;
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

int web_get(const struct world *world, const char *target) {
    int fd = web_dial(world);
    web_say(fd, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target);
    return fd;
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
