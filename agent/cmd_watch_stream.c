/* coord watch -stream: follows /v1/watch for ever, and prints a line for each event. When the connection ends it goes
 * on at the next address with its position. When that position is no longer kept (410), or belongs to another cluster
 * (400, 409), it begins anew and prints a line of event "gap". */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/cmd.h"
#include "agent/stream_lines.h"
#include "base/check.h"
#include "base/json_out.h"
#include "base/memory.h"

#define PAUSE_MS       1000
#define CONNECT_MS     5000L
#define QUIET_S        30L /* without any byte for so long the connection is dead: a comment comes every 10 s */
#define ANSWER_MOST    4096
#define ADDRESSES_MOST 16

struct following {
    const struct client *client;
    char *addresses[ADDRESSES_MOST]; /* in `list` */
    char *list;
    size_t count, turn;
    struct buffer path; /* of the question; ends with a NUL */
    const char *from;   /* used until there is a position. May be NULL */
    struct stream_lines lines;
    struct buffer answer; /* of an answer that is no stream */
    CURL *curl;
    bool began;  /* there has been a stream */
    bool anew;   /* the next event comes after a gap */
    bool silent; /* the trouble has been told */
    int signals;
};

/* -- lines --------------------------------------------------------------------------------------------------------- */

static void print_line(struct slice position, const char *event, struct slice data) {
    struct buffer out = {0};
    struct json_out json;
    json_out_init(&json, &out, false);
    json_object(&json);
    json_key(&json, "Index");
    char index[24] = "0";
    snprintf(index, sizeof index, "%.*s", (int)strcspn(position.data, "."), position.data);
    json_u64(&json, strtoull(index, NULL, 10));
    json_key(&json, "Event");
    json_string(&json, event);
    json_object_end(&json);
    out.size--; /* the brace: the data is JSON already */
    printf("%.*s,\"Data\":%.*s}\n", (int)out.size, out.data, (int)data.size, data.data);
    fflush(stdout);
    buffer_free(&out);
}

static const char *text_of(struct buffer *buffer) {
    buffer_append_byte(buffer, '\0');
    buffer->size--;
    return buffer->data;
}

static void on_event(void *data, const struct stream_lines *lines) {
    struct following *following = data;
    struct buffer event = {0}, position = {0};
    buffer_append(&event, lines->event.data, lines->event.size);
    buffer_append(&position, lines->position.data, lines->position.size);
    text_of(&position);
    print_line(buffer_slice(&position), text_of(&event), buffer_slice(&lines->data));
    buffer_free(&event), buffer_free(&position);
    following->anew = false;
}

/* Prints the line of a gap, with the position from which the stream is complete again. */
static void tell_gap(struct following *following) {
    struct buffer data = {0};
    const char *index = text_of(&following->lines.position);
    buffer_printf(&data, "{\"Index\":%s}", index);
    print_line(buffer_slice(&following->lines.position), "gap", buffer_slice(&data));
    buffer_free(&data);
    following->anew = false;
}

static size_t on_body(char *data, size_t size, size_t count, void *context) {
    struct following *following = context;
    long status = 0;
    curl_easy_getinfo(following->curl, CURLINFO_RESPONSE_CODE, &status);
    size_t bytes = size * count;
    if (status != 200) {
        size_t room = ANSWER_MOST - following->answer.size;
        buffer_append(&following->answer, data, bytes < room ? bytes : room);
        return bytes;
    }
    following->began = true, following->silent = false;
    stream_lines_feed(&following->lines, slice_make(data, bytes), on_event, following);
    if (following->anew && following->lines.position.size) tell_gap(following);
    return bytes;
}

/* -- a connection -------------------------------------------------------------------------------------------------- */

static bool interrupted(const struct following *following, int wait_ms) {
    struct signalfd_siginfo info;
    struct curl_waitfd wait = {.fd = following->signals, .events = CURL_WAIT_POLLIN};
    CURLM *nothing = wait_ms ? curl_multi_init() : NULL;
    if (nothing) {
        curl_multi_poll(nothing, &wait, 1, wait_ms, NULL);
        curl_multi_cleanup(nothing);
    }
    return read(following->signals, &info, sizeof info) > 0;
}

/* False: it was interrupted. */
static bool carry(struct following *following, CURLcode *code) {
    CURLM *multi = curl_multi_init();
    CHECK(multi && curl_multi_add_handle(multi, following->curl) == CURLM_OK);
    struct curl_waitfd also = {.fd = following->signals, .events = CURL_WAIT_POLLIN};
    bool stopped = false;
    *code = CURLE_ABORTED_BY_CALLBACK;
    for (int running = 1; running && !stopped;) {
        CHECK(curl_multi_perform(multi, &running) == CURLM_OK);
        if (running) CHECK(curl_multi_poll(multi, &also, 1, 1000, NULL) == CURLM_OK);
        stopped = interrupted(following, 0);
    }
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(multi, &left)) != NULL;)
        if (message->msg == CURLMSG_DONE) *code = message->data.result;
    curl_multi_remove_handle(multi, following->curl);
    curl_multi_cleanup(multi);
    return !stopped;
}

static void append_header(struct curl_slist **headers, const char *name, const char *value) {
    struct buffer line = {0};
    buffer_printf(&line, "%s: %s", name, value);
    *headers = curl_slist_append(*headers, text_of(&line));
    buffer_free(&line);
}

static void trouble(struct following *following, const char *address, const char *reason) {
    if (!following->silent) fprintf(stderr, "coord watch: %s: %s; trying again\n", address, reason);
    following->silent = true;
}

/* Handles an answer that is no stream. -1: ask again; else the exit code. */
static int judge(struct following *following, const char *address, long status) {
    const char *words = text_of(&following->answer);
    bool lost = status == 410 || (following->began && (status == 400 || status == 409));
    if (lost) {
        fprintf(stderr, "coord watch: %s: %s\n", address, words);
        stream_lines_anew(&following->lines);
        following->from = NULL;
        following->anew = true;
        return -1;
    }
    if (status >= 400 && status < 500 && status != 429) {
        fprintf(stderr, "coord watch: %s: %s\n", address, words);
        return cmd_exit_of(&(struct fault){.code = client_answer_code(&(struct client_answer){.status = status})});
    }
    trouble(following, address, words);
    return -1;
}

/* One connection, from its beginning to its end. -1: go on; else the exit code. */
static int follow_once(struct following *following) {
    const char *address = following->addresses[following->turn++ % following->count];
    struct buffer path = {0}, url = {0};
    struct curl_slist *headers = NULL;
    char reason[CURL_ERROR_SIZE];
    long status = 0;
    CURLcode code;
    buffer_append_text(&path, following->path.data);
    if (following->lines.cluster.size) client_parameter(&path, "cluster", text_of(&following->lines.cluster));
    if (following->from && !following->lines.position.size) client_parameter(&path, "from", following->from);
    client_url(address, text_of(&path), &url);
    CURL *curl = following->curl = client_curl(text_of(&url), reason);
    struct curl_slist *to_server = client_tls(following->client, curl, url.data);
    if (following->lines.position.size) append_header(&headers, "Last-Event-ID", text_of(&following->lines.position));
    if (following->client->token) append_header(&headers, "X-Consul-Token", following->client->token);
    if (strncmp(address, "unix://", 7) == 0) curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, address + 7);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body), curl_easy_setopt(curl, CURLOPT_WRITEDATA, following);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L), curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, QUIET_S);
    buffer_reset(&following->answer);
    int exit_code = carry(following, &code) ? -1 : 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    stream_lines_cut(&following->lines);
    if (exit_code < 0 && status && status != 200) exit_code = judge(following, address, status);
    else if (exit_code < 0 && code != CURLE_OK)
        trouble(following, address, reason[0] ? reason : curl_easy_strerror(code));
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers), curl_slist_free_all(to_server);
    buffer_free(&path), buffer_free(&url);
    return exit_code;
}

/* -- the command --------------------------------------------------------------------------------------------------- */

struct wishes {
    struct cmd_list keys, prefixes, services, nodes, locks, quotas;
    const char *from;
    bool stream, delta;
};

static void append_all(struct buffer *path, const char *parameter, const struct cmd_list *list) {
    for (size_t i = 0; i < list->count; i++) client_parameter(path, parameter, list->items[i]);
}

static void question(const struct wishes *wishes, const struct client *client, struct buffer *path) {
    buffer_append_text(path, "/v1/watch");
    append_all(path, "key", &wishes->keys), append_all(path, "prefix", &wishes->prefixes);
    append_all(path, "service", &wishes->services), append_all(path, "node", &wishes->nodes);
    append_all(path, "lock", &wishes->locks), append_all(path, "quota", &wishes->quotas);
    if (wishes->delta) client_parameter(path, "delta", NULL);
    if (client->datacenter) client_parameter(path, "dc", client->datacenter);
    buffer_append_byte(path, '\0');
}

static void addresses(struct following *following) {
    following->list = mem_strdup(client_address(following->client));
    for (char *rest = following->list, *one; (one = strsep(&rest, ",")) != NULL;)
        if (*one && following->count < ADDRESSES_MOST) following->addresses[following->count++] = one;
}

static int signals_open(void) {
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT), sigaddset(&ours, SIGTERM);
    sigprocmask(SIG_BLOCK, &ours, NULL);
    int fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    CHECK(fd >= 0);
    return fd;
}

int cmd_watch_stream(int argc, char **argv) {
    static const char usage[] = "coord watch -stream [FLAGS]";
    struct client client = {0};
    struct wishes wishes = {0};
    const struct cmd_flag flags[] = {
        {"stream", CMD_BOOL, &wishes.stream, "follows, an event a line; several addresses apart by commas"},
        {"key", CMD_LIST, &wishes.keys, "this key; repeatable, as all of these"},
        {"prefix", CMD_LIST, &wishes.prefixes, "all keys that begin with this"},
        {"service", CMD_LIST, &wishes.services, "the instances of this service"},
        {"node", CMD_LIST, &wishes.nodes, "this node and what is on it"},
        {"lock", CMD_LIST, &wishes.locks, "this lock"},
        {"quota", CMD_LIST, &wishes.quotas, "this budget"},
        {"from", CMD_TEXT, &wishes.from, "changes after this index; else from now on"},
        {"delta", CMD_BOOL, &wishes.delta, "of services only the instances that changed"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no program is run for a stream");
    if (wishes.keys.count + wishes.prefixes.count + wishes.services.count + wishes.nodes.count + wishes.locks.count +
            wishes.quotas.count ==
        0)
        return cmd_wrong(usage, "nothing to follow: wanted: -key, -prefix, -service, -node, -lock or -quota");
    struct following following = {.client = &client, .signals = signals_open()};
    addresses(&following);
    if (following.count == 0) return cmd_wrong(usage, "-http-addr: no address");
    question(&wishes, &client, &following.path);
    following.from = wishes.from;
    if (following.count == 1) client_note_leader(&client);
    for (size_t round = 0; code < 0; round++) {
        bool tried_all = round && round % following.count == 0;
        if (tried_all && interrupted(&following, PAUSE_MS)) code = 0;
        else code = follow_once(&following);
    }
    stream_lines_free(&following.lines);
    buffer_free(&following.answer), buffer_free(&following.path);
    free(following.list);
    close(following.signals);
    return code;
}
