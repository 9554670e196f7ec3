/* Commands that are rows of the routing table: what is asked, and what is printed. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/cli.h"
#include "http/api/topics.h"
#include "http/http.h"

/* -- rows of our own, in place of /v1/status ---------------------------------------------------------------------- */

static const struct http_param body[] = {{"Budget", HTTP_U64, .help = "how much", .field = "x"},
                                         {"LeaseTTL", HTTP_DURATION, .help = "how long", .field = "x"},
                                         {"Tags", HTTP_TEXT, .help = "tags", .repeats = true, .field = "x"},
                                         {"Open", HTTP_FLAG, .help = "open", .field = "x"},
                                         {0}};
static const struct http_param note = {"note", HTTP_TEXT, .help = "what others see", .field = "x"};

const struct http_route http_routes_status[] = {
    {HTTP_PUT, "/v1/toy/:name/take", http_declared, "toy:write",
     HTTP_PARAMS({":name", HTTP_TEXT, .help = "its name"}, HTTP_DC, HTTP_SESSION_USE("session"),
                 {"limit", HTTP_U64, .help = "how many"}, {"enqueue", HTTP_FLAG, .help = "waits"},
                 {"color", HTTP_TEXT, .help = "colors", .repeats = true}),
     "Takes a toy", HTTP_OWN | HTTP_BODY_RAW, .endpoint = {.command = 200, .raw = &note}, .cli = {"toy take"}},
    {HTTP_PUT, "/v1/toy/:name", http_declared, "toy:write",
     HTTP_PARAMS({":name", HTTP_TEXT, .help = "its name"}, HTTP_DC), "Defines a toy", HTTP_OWN,
     .endpoint = {.command = 200, .body = body}, .cli = {"toy define", .defaults = "lease-ttl=10s", .show = "Name"}},
    {HTTP_GET, "/v1/toys", http_declared, "toy:read", HTTP_PARAMS(HTTP_READS), "All toys", HTTP_OWN,
     .cli = {"toy list"}},
    {0},
};

/* -- an agent that answers once what it is told, and remembers what it was asked ---------------------------------- */

static struct {
    int listener;
    char address[40], asked[4000];
    const char *answer;
} agent;

static void *serve(void *data) {
    int fd = accept(agent.listener, NULL, NULL);
    size_t size = 0;
    (void)data;
    for (;;) {
        ssize_t got = recv(fd, agent.asked + size, sizeof agent.asked - 1 - size, 0);
        if (got <= 0) break;
        size += (size_t)got;
        agent.asked[size] = '\0';
        const char *end = strstr(agent.asked, "\r\n\r\n"), *length = strstr(agent.asked, "Content-Length: ");
        if (end && size >= (size_t)(end + 4 - agent.asked) + (length ? strtoul(length + 16, NULL, 10) : 0)) break;
    }
    dprintf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", strlen(agent.answer),
            agent.answer);
    close(fd);
    return NULL;
}

static void setup(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    agent.listener = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(bind(agent.listener, (struct sockaddr *)&address, size) == 0 && listen(agent.listener, 4) == 0);
    getsockname(agent.listener, (struct sockaddr *)&address, &size);
    snprintf(agent.address, sizeof agent.address, "127.0.0.1:%u", ntohs(address.sin_port));
    setenv("COORD_HTTP_ADDR", agent.address, 1);
    cr_redirect_stdout();
    cr_redirect_stderr();
}
TestSuite(cmd_endpoint, .init = setup);

/* Runs `coord WORD ...`, which asks once and is answered; what it was asked is in agent.asked. */
static int coord(const char *answer, const char *const *words) {
    char *argv[16] = {(char *)(uintptr_t) "coord"};
    int argc = 1;
    pthread_t thread;
    for (; words[argc - 1]; argc++) argv[argc] = (char *)(uintptr_t)words[argc - 1];
    agent.answer = answer;
    if (answer) cr_assert(pthread_create(&thread, NULL, serve, NULL) == 0);
    int code = cli_main(argc, argv);
    if (answer) pthread_join(thread, NULL);
    fflush(stdout);
    return code;
}
#define COORD(answer, ...) coord(answer, (const char *[]){__VA_ARGS__, NULL})

static void expect_asked(const char *line, const char *sent) {
    cr_expect(strncmp(agent.asked, line, strlen(line)) == 0, "%s\nwanted %s", agent.asked, line);
    const char *end = strstr(agent.asked, "\r\n\r\n");
    cr_expect_str_eq(end ? end + 4 : "", sent);
}

Test(cmd_endpoint, flags_may_stand_behind_arguments_and_become_parameters) {
    cr_expect_eq(COORD("{\"Name\":\"a/b\",\"Held\":true,\"Colors\":[\"red\",\"blue\"],\"FencingToken\":17}", "toy",
                       "take", "a/b", "-ttl=10s", "--limit", "3", "-color=red", "-color=x&y", "-enqueue", "a note"),
                 0);
    expect_asked("PUT /v1/toy/a%2Fb/take?ttl=10s&limit=3&enqueue&color=red&color=x%26y HTTP/1.1\r\n", "a note");
    cr_expect_stdout_eq_str("Name          a/b\nHeld          true\nColors        red, blue\nFencingToken  17\n");
}

Test(cmd_endpoint, body_members_become_json_with_defaults) {
    cr_expect_eq(COORD("{\"Name\":\"x\",\"Budget\":5}", "toy", "define", "-budget=5", "-tags=a", "-tags=\"b", "-open",
                       "--", "-x"),
                 0);
    expect_asked("PUT /v1/toy/-x HTTP/1.1\r\n",
                 "{\"Budget\":5,\"LeaseTTL\":\"10s\",\"Tags\":[\"a\",\"\\\"b\"],\"Open\":true}");
    cr_expect_stdout_eq_str("x\n");
}

Test(cmd_endpoint, lists_are_tables) {
    cr_expect_eq(COORD("[{\"Name\":\"a\",\"N\":1},{\"Name\":\"bcd\",\"By\":[{\"Node\":\"n\",\"ID\":\"i\"}]}]", "toy",
                       "list", "-stale"),
                 0);
    expect_asked("GET /v1/toys?stale HTTP/1.1\r\n", "");
    cr_expect_stdout_eq_str("Name  N\na     1\nbcd   -\n");
}

Test(cmd_endpoint, json_is_the_answer_as_it_came) {
    cr_expect_eq(COORD("[{\"Name\": \"a\"}]", "toy", "list", "-json", "-index=4", "-wait=1s"), 0);
    expect_asked("GET /v1/toys?index=4&wait=1s HTTP/1.1\r\n", "");
    cr_expect_stdout_eq_str("[{\"Name\": \"a\"}]\n");
}

Test(cmd_endpoint, what_is_wrong_is_said_before_anybody_is_asked) {
    cr_expect_eq(COORD(NULL, "toy", "take"), 2);
    cr_expect_eq(COORD(NULL, "toy", "take", "a", "note", "more"), 2);
    cr_expect_eq(COORD(NULL, "toy", "take", "a", "-limit=many"), 2);
    cr_expect_eq(COORD(NULL, "toy", "take", "a", "-ttl=soon"), 2);
    cr_expect_eq(COORD(NULL, "toy", "take", "a", "-limt=1"), 2);
    cr_expect_eq(COORD(NULL, "toy", "tkae", "a"), 2);
    fflush(stderr);
    cr_expect_stderr_eq_str(
        "coord: NAME is wanted\nusage: coord toy take [FLAGS] NAME [NOTE | @FILE | -]\n"
        "coord: too many arguments\nusage: coord toy take [FLAGS] NAME [NOTE | @FILE | -]\n"
        "coord: -limit: \"many\" is not a number\n"
        "coord: -ttl: \"soon\" is not a duration (10s, 200ms)\n"
        "coord: unknown flag -limt, did you mean -limit?\n"
        "coord: unknown command \"toy tkae\", did you mean \"take\"?\n");
}

Test(cmd_endpoint, help_is_of_the_rows) {
    cr_expect_eq(COORD(NULL, "toy", "-h"), 0);
    cr_expect_eq(COORD(NULL, "toy", "define", "-h"), 0);
    char text[4000];
    fflush(stdout);
    FILE *out = cr_get_redirected_stdout();
    size_t size = fread(text, 1, sizeof text - 1, out);
    text[size] = '\0';
    cr_expect(strstr(text, "  define           Defines a toy\n  list             All toys\n"), "%s", text);
    cr_expect(strstr(text, "usage: coord toy define [FLAGS] NAME [JSON | @FILE | -]\n"), "%s", text);
    cr_expect(strstr(text, "  -lease-ttl=VALUE\n      how long: a duration (default 10s)\n"), "%s", text);
}
