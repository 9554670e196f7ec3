/* A tiny web server on a thread of its own, for checks to look at. The path names the answer:
 *
 *     /status/CODE      that status, body "hello"
 *     /redirect/N       N redirections, then /status/200
 *     /bytes/N          N bytes: 7 digits and a newline again and again
 *     /endless          a body without end
 *     /hang             nothing
 *     /hang-body        a head, a part of the body, then nothing
 *     /close            hangs up
 *     /half-head/hang   "HTTP/1.1 200 OK", a line's end, then nothing
 *     /half-head/close  the same, and hangs up
 *     /echo             the request as it came
 *     /set              the status set by web_set */
#ifndef COORD_TESTS_HEALTH_WEB_H
#define COORD_TESTS_HEALTH_WEB_H

#include <stdbool.h>
#include <stdint.h>

struct web;
struct web *web_start(bool tls); /* 127.0.0.1, any free port; TLS with its own certificate for "check.test" */
void web_write_certificate(const struct web *web, const char *path); /* PEM */
void web_stop(struct web *web);
uint16_t web_port(const struct web *web);
void web_set(struct web *web, int status);
unsigned web_requests(const struct web *web); /* answered or not */
uint16_t web_free_port(void);                 /* where nobody listens */

#endif
