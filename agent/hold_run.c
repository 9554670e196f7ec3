#include "agent/hold_run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/cmd_json.h"
#include "agent/hold_notice.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/memory.h"

#define DESTROY_MS 1000

struct act {
    const struct hold_run *run;
    struct client confirmed, stale; /* for HOLD_LOOK and HOLD_PEEK, whatever -stale says */
    struct hold hold;
    CURLM *calls;
    struct client_call *call[HOLD_LINES];
    struct supervisor supervisor;
    bool started;
    int signals;
    sigset_t mask;              /* before ours */
    struct slice session, note; /* bodies */
};

static uint64_t now_ms(void) { return clock_boot_ns() / 1000000; }

static void print_line(struct hold *hold) {
    if (hold->say[0]) fprintf(stderr, "coord: %s\n", hold->say);
    hold->say[0] = '\0';
}

/* -- requests ----------------------------------------------------------------------------------------------------- */

static void look_path(const struct act *act, const struct hold_order *order, struct buffer *path) {
    if (order->act == HOLD_PEEK && act->hold.state == HOLD_ASKING) {
        buffer_append_text(path, CLIENT_LEADER); /* it waits for a session: is that because there is no leader? */
        buffer_append_byte(path, '\0');
        return;
    }
    buffer_append_text(path, act->run->kind->path);
    client_encode(path, act->run->name, true);
    if (order->act == HOLD_LOOK)
        buffer_printf(path, "?consistent&session=%s&index=%llu&wait=%llums", act->hold.session,
                      (unsigned long long)order->index, (unsigned long long)order->wait_ms);
    buffer_append_byte(path, '\0');
}

static void drop_look(struct act *act) {
    client_call_free(act->calls, act->call[HOLD_LOOKING]);
    act->call[HOLD_LOOKING] = NULL;
}

static void send_look(struct act *act, const struct hold_order *order) {
    struct buffer path = {0};
    drop_look(act);
    look_path(act, order, &path);
    act->call[HOLD_LOOKING] = client_call_begin(act->calls, order->act == HOLD_LOOK ? &act->confirmed : &act->stale,
                                                "GET", path.data, NULL, order->timeout_ms);
    buffer_free(&path);
}

static void path_of(const struct act *act, const struct hold_order *order, struct buffer *path) {
    const struct hold_run *run = act->run;
    if (order->act == HOLD_ASK) {
        buffer_append_text(path, "/v1/session/create");
    } else if (order->act == HOLD_RENEW_SESSION) {
        buffer_printf(path, "/v1/session/renew/%s", act->hold.session);
    } else {
        buffer_append_text(path, run->kind->path);
        client_encode(path, run->name, true);
        buffer_printf(path, "/%s?session=%s",
                      order->act == HOLD_RENEW     ? "renew"
                      : order->act == HOLD_RELEASE ? run->kind->release
                                                   : run->kind->ask,
                      act->hold.session);
        if (order->wait_ms) buffer_printf(path, "&wait=%llums", (unsigned long long)order->wait_ms);
        if (order->act == HOLD_WAIT) buffer_append(path, run->parameters.data, run->parameters.size);
    }
    buffer_append_byte(path, '\0');
}

static void send_request(struct act *act, enum hold_line line, const struct hold_order *order) {
    struct buffer path = {0};
    const struct slice *body = order->act == HOLD_ASK ? &act->session : order->act == HOLD_WAIT ? &act->note : NULL;
    client_call_free(act->calls, act->call[line]);
    path_of(act, order, &path);
    act->call[line] = client_call_begin(act->calls, &act->run->client, "PUT", path.data, body, order->timeout_ms);
    buffer_free(&path);
}

/* A malformed answer counts as none (status 0). */
static void read_answer(const struct act *act, const struct client_answer *from, struct hold_answer *answer,
                        struct json_object **json, struct fault *fault) {
    const struct hold_kind *kind = act->run->kind;
    *json = json_parse(buffer_slice(&from->body), fault);
    if (!*json) answer->status = 0, answer->text = fault->text;
    if (!json_object_is_type(*json, json_type_object)) return; /* "true"; a list of sessions */
    json_get_bool(*json, kind->held, &answer->held, NULL);
    json_get_string(*json, "ID", &answer->session, NULL);
    json_get_u64(*json, kind->token, UINT64_MAX, &answer->token, NULL);
    json_get_u64(*json, "NotBefore", INT64_MAX, &answer->not_before_ms, NULL);
}

/* Reads whether this session holds the name. An answer that does not say so is not `told`. */
static void read_look(const struct act *act, struct json_object *json, struct hold_answer *answer) {
    const struct hold_kind *kind = act->run->kind;
    const char *session = cmd_json_text(json, "Session"), *standing = cmd_json_text(json, "Standing");
    bool says = kind->standing ? standing[0] : json_object_is_type(json_get(json, kind->held), json_type_boolean);
    if (kind->standing) answer->held = strcmp(standing, kind->standing) == 0;
    else json_get_bool(json, kind->held, &answer->held, NULL);
    answer->shared = strcmp(cmd_json_text(json, "Mode"), "shared") == 0;
    answer->told = says && strcmp(session, act->hold.session) == 0;
}

static void take_look(struct act *act) {
    const struct fault *failed;
    struct client_call *call = act->call[HOLD_LOOKING];
    const struct client_answer *from = call ? client_call_answer(call, &failed) : NULL;
    if (!from) return;
    bool looks = act->hold.requests[HOLD_LOOKING].act == HOLD_LOOK;
    struct fault fault = {0};
    struct buffer words = {0};
    struct hold_answer answer = {.status = failed->code ? 0 : from->status, .index = from->index};
    struct json_object *json = answer.status == 200 ? json_parse(buffer_slice(&from->body), &fault) : NULL;
    bool object = json_object_is_type(json, json_type_object);
    if (object) json_get_u64(json, act->run->kind->token, UINT64_MAX, &answer.token, NULL);
    if (object && looks) read_look(act, json, &answer);
    const char *why = failed->code || looks ? NULL : from->leaderless ? CLIENT_LEADERLESS : NULL;
    if (!failed->code && !looks && client_leaderless(from)) why = client_leaderless(from);
    answer.leaderless = why != NULL;
    if (why) buffer_printf(&words, "waits: %s", why);
    else if (object && !looks)
        hold_notice(json, act->hold.session, act->hold.state == HOLD_RELEASING, clock_wall_ns() / 1000000, &words);
    buffer_append_byte(&words, '\0');
    answer.text = words.data;
    hold_answered(&act->hold, HOLD_LOOKING, &answer, now_ms());
    if (json) json_object_put(json);
    buffer_free(&words);
    drop_look(act);
}

static void take_answer(struct act *act, enum hold_line line) {
    const struct fault *failed;
    const struct client_answer *from = act->call[line] ? client_call_answer(act->call[line], &failed) : NULL;
    if (!from) return;
    struct json_object *json = NULL;
    struct fault fault = {0};
    struct hold_answer answer = {.status = failed->code ? 0 : from->status, .unreachable = from->unreachable};
    if (failed->code) answer.text = failed->text;
    else if (from->status == 200) read_answer(act, from, &answer, &json, &fault);
    else fault_set(&fault, CO_INVALID, "%.*s", (int)from->body.size, from->body.size ? from->body.data : "");
    if (!answer.text) answer.text = fault.text;
    /* A TTL out of bounds is a 500 in Consul's API; asking again would not help. */
    if (act->hold.requests[line].act == HOLD_ASK && strstr(answer.text, "Session TTL")) answer.status = 400;
    hold_answered(&act->hold, line, &answer, now_ms());
    if (json) json_object_put(json);
    client_call_free(act->calls, act->call[line]);
    act->call[line] = NULL;
}

/* The answer does not matter, because the TTL ends the session too. */
static void destroy_session(struct act *act) {
    struct buffer path = {0};
    const struct fault *failed;
    uint64_t end_ms = now_ms() + DESTROY_MS;
    buffer_printf(&path, "/v1/session/destroy/%s", act->hold.session);
    buffer_append_byte(&path, '\0');
    struct client_call *call = client_call_begin(act->calls, &act->run->client, "PUT", path.data, NULL, DESTROY_MS);
    while (!client_call_answer(call, &failed) && now_ms() < end_ms) client_calls_step(act->calls, NULL, 0, DESTROY_MS);
    client_call_free(act->calls, call);
    buffer_free(&path);
}

/* -- the command -------------------------------------------------------------------------------------------------- */

static void start(struct act *act) {
    char token[24];
    snprintf(token, sizeof token, "%llu", (unsigned long long)act->hold.token);
    for (const char *const *name = act->run->kind->exports; *name; name++) setenv(*name, token, 1);
    setenv("COORD_SESSION", act->hold.session, 1);
    if (!act->run->argv) {
        hold_ended(&act->hold, &(struct supervisor_end){0}, now_ms());
        return;
    }
    act->supervisor = supervisor_start(act->run->argv, &act->mask, act->hold.sent_ms, act->hold.not_before_ms);
    act->started = true;
}

static void take_end(struct act *act) {
    struct supervisor_end end;
    if (!act->started || !supervisor_ended(&act->supervisor, &end)) return;
    act->started = false;
    if (end.exec_errno) fprintf(stderr, "coord: %s: %s\n", act->run->argv[0], strerror(end.exec_errno));
    hold_ended(&act->hold, &end, now_ms());
}

/* -- the loop ----------------------------------------------------------------------------------------------------- */

static void take_signals(struct act *act) {
    struct signalfd_siginfo info;
    while (read(act->signals, &info, sizeof info) == sizeof info)
        hold_signalled(&act->hold, (int)info.ssi_signo, now_ms());
}

static void await(struct act *act, uint64_t until_ms) {
    struct curl_waitfd fds[] = {{.fd = act->signals, .events = CURL_WAIT_POLLIN},
                                {.fd = act->supervisor.fd, .events = CURL_WAIT_POLLIN}};
    uint64_t now = now_ms(), left = until_ms > now ? until_ms - now : 0;
    client_calls_step(act->calls, fds, act->started ? 2 : 1, left < 60000 ? (int)left : 60000);
    take_signals(act);
    take_end(act);
    take_answer(act, HOLD_GRANT);
    take_answer(act, HOLD_RENEWAL);
    take_look(act);
}

static int carry_out(struct act *act) {
    for (;;) {
        struct hold_order order = hold_next(&act->hold, now_ms());
        print_line(&act->hold);
        if (!act->hold.requests[HOLD_LOOKING].under_way) drop_look(act); /* a renewal replaces the look */
        switch (order.act) {
            case HOLD_NOTHING: await(act, order.until_ms); break;
            case HOLD_ASK:
            case HOLD_WAIT:
            case HOLD_RELEASE: send_request(act, HOLD_GRANT, &order); break;
            case HOLD_RENEW_SESSION:
            case HOLD_RENEW: send_request(act, HOLD_RENEWAL, &order); break;
            case HOLD_LOOK:
            case HOLD_PEEK: send_look(act, &order); break;
            case HOLD_START: start(act); break;
            case HOLD_TELL: supervisor_tell(&act->supervisor, act->hold.sent_ms, act->hold.not_before_ms); break;
            case HOLD_KILL: supervisor_kill(&act->supervisor); break;
            case HOLD_FORWARD: supervisor_signal(&act->supervisor, order.number); break;
            case HOLD_EXIT: return order.number;
        }
    }
}

/* The name of the session tells people which process it is: "coord lock, process 4711 on web1". */
static void session_body(const struct hold_run *run, struct buffer *body) {
    struct json_out json;
    char host[256] = "", name[400];
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "coord %s, process %d on %.64s", run->kind->noun, (int)getpid(), host);
    json_out_init(&json, body, false);
    json_object(&json);
    json_key(&json, "Name"), json_string(&json, name);
    json_key(&json, "TTL"), json_string(&json, run->ttl);
    json_key(&json, "NodeChecks"), json_array(&json), json_array_end(&json);
    json_key(&json, "LockDelay"), json_string(&json, "0s");
    json_object_end(&json);
}

int hold_run(const struct hold_run *run) {
    struct act act = {.run = run,
                      .confirmed = run->client,
                      .stale = run->client,
                      .calls = curl_multi_init(),
                      .note = slice_text(run->note)};
    struct buffer what = {0}, session = {0};
    act.confirmed.stale = false, act.stale.stale = true;
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM), sigaddset(&ours, SIGINT), sigaddset(&ours, SIGHUP), sigaddset(&ours, SIGQUIT);
    sigprocmask(SIG_BLOCK, &ours, &act.mask);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* a parent may have ignored it, and then waitpid could not report ends */
    act.signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    CHECK(act.calls && act.signals >= 0);
    buffer_printf(&what, "%s \"%.256s\"", run->kind->noun, run->name);
    buffer_append_byte(&what, '\0');
    session_body(run, &session);
    act.session = buffer_slice(&session);
    struct hold_rules rules = run->rules;
    rules.what = what.data, rules.late = run->kind->late, rules.not_free = run->kind->not_free;
    hold_begin(&act.hold, &rules, now_ms());
    int code = carry_out(&act);
    if (act.hold.session[0]) destroy_session(&act);
    for (int line = 0; line < HOLD_LINES; line++) client_call_free(act.calls, act.call[line]);
    curl_multi_cleanup(act.calls);
    close(act.signals);
    buffer_free(&what);
    buffer_free(&session);
    return code;
}
