/* UDP checks: an answer and silence are health, a refusal is not. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attempt.h"
#include "base/check.h"

struct echo {
    int fd;
    uint16_t port;
    pthread_t thread;
    ssize_t asked; /* bytes of the datagram that came */
    const char *answer;
    size_t answer_size;
};

static void *echo_main(void *data) {
    struct echo *echo = data;
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    char block[100];
    echo->asked = recvfrom(echo->fd, block, sizeof block, 0, (struct sockaddr *)&from, &size);
    if (echo->answer && echo->asked >= 0)
        (void)sendto(echo->fd, echo->answer, echo->answer_size, 0, (struct sockaddr *)&from, size);
    return NULL;
}

static int bind_anywhere(uint16_t *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct timeval patience = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    *port = ntohs(address.sin_port);
    return fd;
}

static struct outcome ask(struct echo *echo, const char *host, uint64_t timeout_ms) {
    char target[60];
    echo->fd = bind_anywhere(&echo->port);
    cr_assert_eq(pthread_create(&echo->thread, NULL, echo_main, echo), 0);
    snprintf(target, sizeof target, "%s:%u", host, echo->port);
    struct outcome outcome = attempt(attempt_definition(CHECK_UDP, target, timeout_ms));
    pthread_join(echo->thread, NULL);
    close(echo->fd);
    return outcome;
}

Test(udp, an_answer_is_health_at_once) {
    static const char big[3000] = "x";
    const struct {
        const char *answer;
        size_t size;
    } rows[] = {{"pong", 4}, {"", 0}, {big, sizeof big}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct echo echo = {.answer = rows[i].answer, .answer_size = rows[i].size};
        struct outcome outcome = ask(&echo, "127.0.0.1", 20000);
        char want[60];
        snprintf(want, sizeof want, "UDP connect 127.0.0.1:%u: Success", echo.port);
        cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
        cr_assert_str_eq(outcome.output, want);
        cr_assert_lt(outcome.took_ms, 10000);
        cr_assert_eq(echo.asked, 0, "an empty datagram, as Consul's");
    }
}

Test(udp, silence_is_health_after_the_timeout) {
    struct echo echo = {0};
    struct outcome outcome = ask(&echo, "127.0.0.1", 200);
    cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
    cr_assert_geq(outcome.took_ms, 195);
    cr_assert_eq(echo.asked, 0);
}

Test(udp, a_refusal_is_critical_at_once) {
    uint16_t port;
    char target[60], want[100];
    close(bind_anywhere(&port));
    snprintf(target, sizeof target, "127.0.0.1:%u", port);
    snprintf(want, sizeof want, "read udp %s: connection refused", target);
    struct outcome outcome = attempt(attempt_definition(CHECK_UDP, target, 20000));
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
    cr_assert_str_eq(outcome.output, want);
    cr_assert_lt(outcome.took_ms, 10000);
    snprintf(target, sizeof target, ":%u", port); /* each address of localhost refuses */
    outcome = attempt(attempt_definition(CHECK_UDP, target, 20000));
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL, "%s", outcome.output);
}

/* "localhost" may have [::1] first, where nobody is: the next address is asked. */
Test(udp, every_address_of_a_name) {
    struct echo echo = {.answer = "pong", .answer_size = 4};
    struct outcome outcome = ask(&echo, "localhost", 20000);
    cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
    cr_assert_lt(outcome.took_ms, 10000);
}

Test(udp, addresses_that_are_none) {
    static const struct {
        const char *target, *says;
    } rows[] = {
        {"127.0.0.1", "dial udp: address 127.0.0.1: missing port"},
        {"127.0.0.1:99999", "invalid port"},
        {"", "missing port"},
        {"nowhere.invalid:80", "dial udp: lookup nowhere.invalid: "},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct outcome outcome = attempt(attempt_definition(CHECK_UDP, rows[i].target, 20000));
        cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
        cr_assert_not_null(strstr(outcome.output, rows[i].says), "%s: %s", rows[i].target, outcome.output);
    }
}

Test(udp, given_up) {
    uint16_t port;
    char target[60];
    int fd = bind_anywhere(&port);
    snprintf(target, sizeof target, "127.0.0.1:%u", port);
    for (uint64_t after_ms = 0; after_ms < 4; after_ms++) {
        cr_assert_eq(attempt_given_up(attempt_definition(CHECK_UDP, target, 20000), after_ms).calls, 0);
        cr_assert_leq(attempt_given_up(attempt_definition(CHECK_UDP, "nowhere.invalid:1", 20000), after_ms).calls, 1);
    }
    close(fd);
}
