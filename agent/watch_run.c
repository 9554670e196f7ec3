#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/config.h"
#include "agent/watch.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#define PAUSE_LEAST_MS 1000
#define PAUSE_MOST_MS  60000
#define ANSWER_MAX     ((size_t)64 << 20)

extern char **environ;

/* -- stopping ----------------------------------------------------------------------------------------------------- */
struct watch_stop {
    int fd, soon;
}; /* fd: stops all of it; soon: all but a running handler */

struct watch_stop *watch_stop_new(void) {
    struct watch_stop *stop = mem_zalloc(sizeof *stop);
    stop->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), stop->soon = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(stop->fd >= 0 && stop->soon >= 0);
    return stop;
}

static void raise_fd(int fd) {
    uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof one);
    (void)ignored;
}

void watch_stop_soon(struct watch_stop *stop) { raise_fd(stop->soon); }

void watch_stop_now(struct watch_stop *stop) { raise_fd(stop->soon), raise_fd(stop->fd); }

void watch_stop_free(struct watch_stop *stop) {
    close(stop->fd), close(stop->soon);
    free(stop);
}

/* Is the descriptor readable, now or within that time? */
static bool raised(int fd, int wait_ms) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, wait_ms) > 0;
}

static bool stopped(const struct watch_stop *stop, int wait_ms) { return raised(stop->soon, wait_ms); }

/* -- asking ------------------------------------------------------------------------------------------------------- */
static size_t on_body(char *data, size_t size, size_t count, void *context) {
    struct client_answer *answer = context;
    if (answer->body.size + size * count > ANSWER_MAX) return 0;
    buffer_append(&answer->body, data, size * count);
    return size * count;
}

static size_t on_header(char *data, size_t size, size_t count, void *context) {
    struct client_answer *answer = context;
    struct slice line = slice_make(data, size * count), name = SLICE_LITERAL("X-Consul-Index:");
    if (line.size > name.size && slice_equal_nocase(slice_make(data, name.size), name))
        answer->index = strtoull(data + name.size, NULL, 10);
    return line.size;
}

/* Performs the request. Ends early when `fd` is readable (CURLE_ABORTED_BY_CALLBACK). */
static CURLcode perform(CURL *curl, int fd) {
    CURLM *multi = curl_multi_init();
    CURLcode code = CURLE_ABORTED_BY_CALLBACK;
    CHECK(multi && curl_multi_add_handle(multi, curl) == CURLM_OK);
    struct curl_waitfd also = {.fd = fd, .events = CURL_WAIT_POLLIN};
    for (int running = 1; running && !raised(fd, 0);) {
        CHECK(curl_multi_perform(multi, &running) == CURLM_OK);
        if (running) CHECK(curl_multi_poll(multi, &also, 1, 1000, NULL) == CURLM_OK);
    }
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(multi, &left)) != NULL;)
        if (message->msg == CURLMSG_DONE) code = message->data.result;
    curl_multi_remove_handle(multi, curl);
    curl_multi_cleanup(multi);
    return code;
}

static struct curl_slist *header_list(const char *token, char *const *headers, uint64_t index) {
    struct buffer line = {0};
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");
    if (token)
        buffer_printf(&line, "X-Consul-Token: %s", token), buffer_append_byte(&line, '\0'),
            list = curl_slist_append(list, line.data);
    buffer_reset(&line);
    if (index)
        buffer_printf(&line, "X-Consul-Index: %llu", (unsigned long long)index), buffer_append_byte(&line, '\0'),
            list = curl_slist_append(list, line.data);
    for (size_t i = 0; headers && headers[i]; i++) list = curl_slist_append(list, headers[i]);
    buffer_free(&line);
    return list;
}

static void url_of(const struct watch *watch, const struct client *client, uint64_t index, struct buffer *url) {
    struct buffer path = {0};
    char number[24];
    const char *datacenter = watch->datacenter ? watch->datacenter : client->datacenter;
    buffer_append_text(&path, watch->path);
    snprintf(number, sizeof number, "%llu", (unsigned long long)index);
    if (index) client_parameter(&path, "index", number);
    if (datacenter) client_parameter(&path, "dc", datacenter);
    if (watch->stale || client->stale) client_parameter(&path, "stale", NULL);
    buffer_append_byte(&path, '\0');
    bool local = strncmp(client->address, "unix://", 7) == 0, whole = strstr(client->address, "://") != NULL;
    buffer_printf(url, "%s%s%s", whole ? "" : "http://", local ? "http://localhost" : client->address, path.data);
    buffer_append_byte(url, '\0');
    buffer_free(&path);
}

static int ask(const struct watch *watch, const struct client *client, const struct watch_stop *stop, uint64_t index,
               struct client_answer *answer, struct fault *fault) {
    struct buffer url = {0};
    char reason[CURL_ERROR_SIZE];
    url_of(watch, client, index, &url);
    CURL *curl = client_curl(url.data, reason);
    struct curl_slist *to_server = client_tls(client, curl, url.data);
    if (strncmp(client->address, "unix://", 7) == 0)
        CHECK(curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, client->address + 7) == CURLE_OK);
    struct curl_slist *headers = header_list(watch->token ? watch->token : client->token, NULL, 0);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body), curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header), curl_easy_setopt(curl, CURLOPT_HEADERDATA, answer);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    CURLcode code = perform(curl, stop->soon);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer->status);
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    curl_slist_free_all(to_server);
    buffer_free(&url);
    if (code != CURLE_OK) return fault_set(fault, CO_IO, "%s", reason[0] ? reason : curl_easy_strerror(code));
    if (answer->status == 200 || answer->status == 404) return CO_OK;
    int shown = answer->body.size < 150 ? (int)answer->body.size : 150;
    return fault_set(fault, CO_INVALID, "Unexpected response code: %ld (%.*s)", answer->status, shown,
                     answer->body.size ? answer->body.data : "");
}

/* -- handlers: a request ------------------------------------------------------------------------------------------ */
static size_t ignore_body(char *data, size_t size, size_t count, void *context) {
    (void)data, (void)context;
    return size * count;
}

static void send_result(const struct watch *watch, const struct watch_stop *stop, struct slice result, uint64_t index) {
    char reason[CURL_ERROR_SIZE];
    long status = 0;
    CURL *curl = client_curl(watch->url, reason);
    struct curl_slist *headers =
        curl_slist_append(header_list(NULL, watch->headers, index), "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, result.data),
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)result.size);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, watch->method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore_body);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(watch->timeout_ns / 1000000 + 1));
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, watch->tls_skip_verify ? 0L : 1L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, watch->tls_skip_verify ? 0L : 2L);
    CURLcode code = perform(curl, stop->fd);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK && code != CURLE_ABORTED_BY_CALLBACK)
        log_warn("watch", "a handler was not reached watch=\"%s\" reason=\"%s\"", watch->what,
                 reason[0] ? reason : curl_easy_strerror(code));
    else if (code == CURLE_OK && status / 100 != 2)
        log_warn("watch", "a handler refuses watch=\"%s\" status=%ld", watch->what, status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
}

/* -- handlers: a program ------------------------------------------------------------------------------------------ */
struct program {
    pid_t pid;
    int pidfd, output;
    struct buffer text;
    uint64_t total;
};

static char **environment(uint64_t index, const char *address, char *line, size_t room, char *line_address,
                          size_t room_address) {
    size_t count = 0, kept = 0;
    while (environ[count]) count++;
    char **list = mem_zalloc((count + 3) * sizeof *list);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "CONSUL_INDEX=", 13) != 0 && strncmp(environ[i], "CONSUL_HTTP_ADDR=", 17) != 0)
            list[kept++] = environ[i];
    snprintf(line, room, "CONSUL_INDEX=%llu", (unsigned long long)index);
    snprintf(line_address, room_address, "CONSUL_HTTP_ADDR=%s", address);
    list[kept++] = line, list[kept++] = line_address;
    return list;
}

/* Puts the answer into a file, so that a program that does not read it cannot block this one. */
static int input_of(struct slice result) {
    int fd = memfd_create("watch", MFD_CLOEXEC);
    CHECK(fd >= 0);
    for (size_t done = 0; done < result.size;) {
        ssize_t written = write(fd, result.data + done, result.size - done);
        if (written <= 0) break;
        done += (size_t)written;
    }
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static int spawn(const struct watch *watch, struct slice result, char **env, bool inherit, struct program *program) {
    int pipes[2] = {-1, -1}, input = input_of(result);
    sigset_t none, defaults;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigemptyset(&none), sigemptyset(&defaults), sigaddset(&defaults, SIGPIPE);
    CHECK(posix_spawn_file_actions_init(&files) == 0 && posix_spawnattr_init(&attributes) == 0);
    if (!inherit) CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    if (!inherit)
        posix_spawn_file_actions_adddup2(&files, pipes[1], STDOUT_FILENO),
            posix_spawn_file_actions_adddup2(&files, pipes[1], STDERR_FILENO);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none), posix_spawnattr_setsigdefault(&attributes, &defaults);
    int rv = posix_spawnp(&program->pid, watch->argv[0], &files, &attributes, watch->argv, env);
    posix_spawn_file_actions_destroy(&files), posix_spawnattr_destroy(&attributes);
    close(input);
    if (pipes[1] >= 0) close(pipes[1]);
    program->output = pipes[0];
    program->pidfd = rv == 0 ? (int)syscall(SYS_pidfd_open, program->pid, 0) : -1;
    return rv;
}

/* Reads some output. False: at its end. */
static bool read_output(struct program *program) {
    char block[4096];
    ssize_t size = read(program->output, block, sizeof block);
    if (size <= 0) return size < 0 && (errno == EAGAIN || errno == EINTR);
    size_t room = program->text.size < WATCH_OUTPUT_MAX ? WATCH_OUTPUT_MAX - program->text.size : 0;
    buffer_append(&program->text, block, (size_t)size < room ? (size_t)size : room);
    program->total += (uint64_t)size;
    return true;
}

/* Waits until the program has ended, its time is over, or the watch is stopped. True: it ended by itself. */
static bool await(struct program *program, const struct watch_stop *stop) {
    uint64_t last_ms = clock_mono_ms() + WATCH_HANDLER_MS;
    for (;;) {
        struct pollfd fds[] = {{.fd = stop->fd, .events = POLLIN},
                               {.fd = program->pidfd, .events = POLLIN},
                               {.fd = program->output, .events = POLLIN}};
        uint64_t now_ms = clock_mono_ms();
        if (now_ms >= last_ms) return false;
        if (poll(fds, ARRAY_COUNT(fds), (int)(last_ms - now_ms)) < 0) continue;
        if (fds[0].revents) return false;
        if (program->output >= 0 && fds[2].revents && !read_output(program))
            close(program->output), program->output = -1;
        if (fds[1].revents) return true;
    }
}

static void log_output(const struct watch *watch, const struct program *program) {
    for (size_t at = 0; at < program->text.size;) {
        const char *line = program->text.data + at, *stop = memchr(line, '\n', program->text.size - at);
        size_t size = stop ? (size_t)(stop - line) : program->text.size - at;
        if (size) log_info("watch", "output watch=\"%s\": %.*s", watch->what, (int)size, line);
        at += size + 1;
    }
    uint64_t more = program->total - program->text.size;
    if (more) log_info("watch", "output watch=\"%s\": ... %llu bytes more", watch->what, (unsigned long long)more);
}

static void log_end(const struct watch *watch, bool expected, bool ended, int status) {
    if (!expected)
        log_warn("watch", "a handler took too long and was killed watch=\"%s\" seconds=%d", watch->what,
                 WATCH_HANDLER_MS / 1000);
    else if (ended && WIFSIGNALED(status))
        log_warn("watch", "a handler failed watch=\"%s\" signal=%d", watch->what, WTERMSIG(status));
    else if (ended && WEXITSTATUS(status) != 0)
        log_warn("watch", "a handler failed watch=\"%s\" exit=%d", watch->what, WEXITSTATUS(status));
}

static void run_program(const struct watch *watch, const struct client *client, const struct watch_stop *stop,
                        struct slice result, uint64_t index, bool inherit) {
    struct program program = {.output = -1, .pidfd = -1};
    char line[40], address[256];
    char **env = environment(index, client->address, line, sizeof line, address, sizeof address);
    int rv = spawn(watch, result, env, inherit, &program), status = 0;
    free(env);
    if (rv != 0) {
        log_error("watch", "a handler cannot be started watch=\"%s\" program=%s reason=\"%s\"", watch->what,
                  watch->argv[0], strerror(rv));
        if (program.output >= 0) close(program.output);
        return;
    }
    bool ended = await(&program, stop);
    (void)kill(-program.pid, SIGKILL); /* before it is reaped, so the number is not reused */
    while (waitpid(program.pid, &status, 0) < 0 && errno == EINTR) {}
    if (program.output >= 0) fcntl(program.output, F_SETFL, O_NONBLOCK);
    struct pollfd rest = {.fd = program.output, .events = POLLIN};
    while (program.output >= 0 && program.total < 2 * WATCH_OUTPUT_MAX && poll(&rest, 1, 0) > 0 &&
           read_output(&program)) {}
    log_output(watch, &program);
    log_end(watch, ended || raised(stop->fd, 0), ended, status);
    if (program.output >= 0) close(program.output);
    if (program.pidfd >= 0) close(program.pidfd);
    buffer_free(&program.text);
}

/* -- the loop ----------------------------------------------------------------------------------------------------- */
static void hand_over(const struct watch *watch, const struct client *client, const struct watch_stop *stop,
                      struct slice result, uint64_t index, bool inherit) {
    if (watch->url) send_result(watch, stop, result, index);
    else if (watch->argv) run_program(watch, client, stop, result, index, inherit);
}

void watch_run(const struct watch *watch, const struct client *client, struct watch_stop *stop, bool inherit,
               bool baseline) {
    uint64_t index = 0, since = 0;
    struct buffer last = {0}, now = {0};
    int pause_ms = 0;
    bool first = true;
    while (!stopped(stop, pause_ms)) {
        struct client_answer answer = {0};
        struct fault fault = {0};
        if (ask(watch, client, stop, index, &answer, &fault) != CO_OK) {
            pause_ms = pause_ms ? (pause_ms * 2 < PAUSE_MOST_MS ? pause_ms * 2 : PAUSE_MOST_MS) : PAUSE_LEAST_MS;
            if (!stopped(stop, 0)) log_warn("watch", "no answer watch=\"%s\" reason=\"%s\"", watch->what, fault.text);
            client_answer_free(&answer);
            continue;
        }
        pause_ms = answer.index ? 0 : PAUSE_LEAST_MS;
        index = answer.index < index ? 0 : answer.index; /* the index went back, so the watch begins anew */
        if (since > answer.index) since = answer.index;
        buffer_reset(&now);
        watch_result(watch, &answer, &since, &now);
        bool event = watch->type == WATCH_EVENT, none = event && slice_is(buffer_slice(&now), "[]");
        bool same = !first && (event ? none : slice_equal(buffer_slice(&now), buffer_slice(&last)));
        if (!same && !(event && first && (baseline || none)))
            hand_over(watch, client, stop, buffer_slice(&now), answer.index, inherit);
        first = false;
        buffer_reset(&last);
        buffer_append(&last, now.data, now.size);
        client_answer_free(&answer);
    }
    buffer_free(&last);
    buffer_free(&now);
}

/* -- the watches of an agent -------------------------------------------------------------------------------------- */
struct watcher {
    struct watch *watch;
    struct json_object *block; /* that defines it */
    struct watch_stop *stop;
    struct client client;
    char *address;
    pthread_t thread;
};
struct watches {
    struct watcher **items;
    size_t count;
};

static void *watcher_main(void *data) {
    const struct watcher *watcher = data;
    watch_run(watcher->watch, &watcher->client, watcher->stop, false, true);
    return NULL;
}

static struct watcher *watcher_start(struct json_object *block, const char *address, const char *token) {
    struct watcher *watcher = mem_zalloc(sizeof *watcher);
    struct fault fault = {0};
    sigset_t all, before;
    watcher->stop = watch_stop_new();
    watcher->address = mem_strdup(address);
    watcher->client = (struct client){.address = watcher->address, .token = token};
    CHECK(json_object_deep_copy(block, &watcher->block, NULL) ==
          0); /* a copy, because counts of references are not atomic */
    watcher->watch = watch_parse(block, true, &fault);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    CHECK(watcher->watch && pthread_create(&watcher->thread, NULL, watcher_main, watcher) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return watcher;
}

static void watcher_free(struct watcher *watcher) {
    pthread_join(watcher->thread, NULL);
    watch_free(watcher->watch);
    watch_stop_free(watcher->stop);
    json_object_put(watcher->block);
    free(watcher->address), free(watcher);
}

static struct watcher *take_equal(struct watches *watches, struct json_object *block) {
    for (size_t i = 0; watches && i < watches->count; i++) {
        struct watcher *watcher = watches->items[i];
        if (!json_object_equal(watcher->block, block)) continue;
        watches->items[i] = watches->items[--watches->count];
        return watcher;
    }
    return NULL;
}

struct watches *watches_start(const struct config_blocks *blocks, const char *address, const char *token,
                              struct watches *before) {
    struct watches *watches = mem_zalloc(sizeof *watches);
    watches->items = mem_zalloc((blocks->count + 1) * sizeof(struct watcher *));
    for (; watches->count < blocks->count; watches->count++) {
        struct json_object *block = blocks->items[watches->count].json;
        struct watcher *kept = take_equal(before, block);
        watches->items[watches->count] = kept ? kept : watcher_start(block, address, token);
    }
    return watches;
}

void watches_soon(struct watches *watches) {
    for (size_t i = 0; watches && i < watches->count; i++) watch_stop_soon(watches->items[i]->stop);
}

void watches_hurry(struct watches *watches) {
    for (size_t i = 0; watches && i < watches->count; i++) watch_stop_now(watches->items[i]->stop);
}

void watches_stop(struct watches *watches) {
    if (!watches) return;
    watches_hurry(watches);
    for (size_t i = 0; i < watches->count; i++) watcher_free(watches->items[i]);
    free(watches->items), free(watches);
}
