/* H2 ping and gRPC checks against servers that others wrote: nghttpd (nghttp2-server) and gRPC's own server
 * (python3-grpcio). Skipped, with a word, where those are not installed. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attempt.h"
#include "base/check.h"
#include "base/clock.h"
#include "certificate.h"
#include "web.h"

#define PYTHON      "/usr/bin/python3"
#define PATIENCE_MS 60000

struct server {
    pid_t pid;
    int input, output;
    uint16_t port;
};

static char certificate_path[] = "/tmp/real-cert-XXXXXX", key_path[] = "/tmp/real-key-XXXXXX";

static void make_certificate(void) {
    struct certificate made = {0};
    close(mkstemp(certificate_path));
    close(mkstemp(key_path));
    certificate_make(&made);
    certificate_write(&made, certificate_path, key_path);
    certificate_free(&made);
}

static void remove_certificate(void) {
    unlink(certificate_path);
    unlink(key_path);
}

TestSuite(real, .init = make_certificate, .fini = remove_certificate);

static struct server start(const char *const *arguments) {
    struct server server = {0};
    int in[2], out[2];
    cr_assert(pipe(in) == 0 && pipe(out) == 0);
    server.pid = fork();
    if (server.pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        dup2(out[1], 2);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive a test that fails */
        close(in[1]);
        close(out[0]);
        execv(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    cr_assert(server.pid > 0);
    close(in[0]);
    close(out[1]);
    server.input = in[1];
    server.output = out[0];
    return server;
}

static void stop(struct server *server) {
    close(server->input);
    close(server->output);
    kill(server->pid, SIGTERM);
    waitpid(server->pid, NULL, 0);
}

static struct outcome look(enum check_kind kind, uint16_t port, const char *service, bool tls, const char *name) {
    char target[100];
    snprintf(target, sizeof target, "127.0.0.1:%u%s", port, service);
    struct check_definition *d = attempt_definition(kind, target, strcmp(service, "/slow") == 0 ? 500 : 30000);
    d->grpc_use_tls = d->h2ping_use_tls = tls;
    free(d->tls_server_name);
    d->tls_server_name = mem_strdup(name);
    return attempt(d);
}

static struct outcome look_until_up(uint16_t port, bool tls) {
    for (uint64_t begun_ms = clock_mono_ms();; usleep(20000)) {
        struct outcome outcome = look(CHECK_H2PING, port, "", tls, "check.test");
        bool refused = strstr(outcome.output, "connection refused") != NULL;
        if (!refused || clock_mono_ms() - begun_ms > PATIENCE_MS) return outcome;
    }
}

Test(real, nghttpd) {
    char port[12];
    if (access("/usr/sbin/nghttpd", X_OK) != 0) cr_skip_test("nghttpd is not installed (nghttp2-server)");
    setenv("SSL_CERT_FILE", certificate_path, 1);
    for (int tls = 0; tls < 2; tls++) {
        uint16_t number = web_free_port();
        snprintf(port, sizeof port, "%u", number);
        const char *const plain[] = {"/usr/sbin/nghttpd", "--no-tls", "-a", "127.0.0.1", port, NULL};
        const char *const secure[] = {"/usr/sbin/nghttpd", "-a", "127.0.0.1", port, key_path, certificate_path, NULL};
        struct server server = start(tls ? secure : plain);
        struct outcome outcome = look_until_up(number, tls);
        cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
        cr_assert_str_eq(outcome.output, "HTTP2 ping was successful");
        outcome = look(CHECK_GRPC, number, "/x", tls, "check.test"); /* speaks HTTP/2, but not gRPC */
        cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
        cr_assert_not_null(strstr(outcome.output,
                                  "rpc error: code = Unimplemented desc = Not Found: HTTP status code 404; "
                                  "transport: received the unexpected content-type \"text/html"),
                           "%s", outcome.output);
        outcome =
            look(CHECK_H2PING, number, "", !tls, "check.test"); /* TLS where none is spoken, and none where it is */
        cr_assert_eq(outcome.status, PB__STATUS__CRITICAL, "%s", outcome.output);
        stop(&server);
    }
}

Test(real, grpc) {
    static const struct {
        const char *service;
        Pb__Status status;
        const char *says;
    } rows[] = {
        {"", PB__STATUS__PASSING, ": success"},
        {"/", PB__STATUS__PASSING, "/: success"},
        {"/yes", PB__STATUS__PASSING, "/yes: success"},
        {"/not", PB__STATUS__CRITICAL, "/not serving status: NOT_SERVING"},
        {"/unknown", PB__STATUS__CRITICAL, "/unknown serving status: UNKNOWN"},
        {"/nobody", PB__STATUS__CRITICAL, "rpc error: code = NotFound desc = unknown service"},
        {"/denied", PB__STATUS__CRITICAL, "rpc error: code = PermissionDenied desc = no \xc3\xa9 way?here"},
        {"/slow", PB__STATUS__CRITICAL, "rpc error: code = DeadlineExceeded desc = "},
    };
    if (system(PYTHON " -c 'import grpc' 2>/dev/null") != 0) cr_skip_test("python3-grpcio is not installed");
    setenv("SSL_CERT_FILE", certificate_path, 1);
    for (int tls = 0; tls < 2; tls++) {
        const char *const arguments[] = {
            PYTHON, "-Wignore", HEALTH_TESTS "/grpc_server.py", tls ? certificate_path : NULL, key_path, NULL};
        struct server server = start(arguments);
        char line[20] = "";
        cr_assert(read(server.output, line, sizeof line - 1) > 0);
        server.port = (uint16_t)atoi(line);
        for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
            struct outcome outcome = look(CHECK_GRPC, server.port, rows[i].service, tls, "check.test");
            cr_assert_eq(outcome.status, rows[i].status, "%s: %s", rows[i].service, outcome.output);
            cr_assert_not_null(strstr(outcome.output, rows[i].says), "%s: %s", rows[i].service, outcome.output);
        }
        struct outcome outcome = look(CHECK_H2PING, server.port, "", tls, "check.test");
        cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
        if (tls) {
            outcome = look(CHECK_GRPC, server.port, "", true, "other.test");
            cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
            cr_assert_not_null(strstr(outcome.output, "x509: "), "%s", outcome.output);
        }
        stop(&server);
    }
}
