/* Shared by check_http*.c. */
#ifndef COORD_HEALTH_CHECK_HTTP_H
#define COORD_HEALTH_CHECK_HTTP_H

#include <curl/curl.h>

#include "health/check_runner.h"

#define HTTP_REDIRECTS_MOST 10

struct http_run {
    struct run run;
    CURL *easy;
    struct curl_slist *headers, *connect_to;
    uv_timer_t soon; /* ends it when it could not even begin */
    bool begun;
    char *method, *url; /* the url as it may be shown */
    char *host;         /* with port, for messages */
    int64_t timeout_ms;
    char reason[128];      /* "200 OK" */
    struct load_said said; /* of the last answer's headers */
    bool own_load;         /* `said` is from X-Coord-Load */
    bool head_complete;    /* the blank line after the head has come, of the last answer */
    char *tail;            /* ring of the last `tail_max` bytes of the body */
    size_t tail_max, body_size;
    struct fault fault;
    char error[CURL_ERROR_SIZE];
};

/* Fills in method, url, host and headers, and the easy handle's options; a fault when that is no request. `tail`,
 * `tail_max`, `timeout_ms` and `easy` are set. */
void http_request_prepare(struct http_run *http, const struct check_definition *definition);

/* True: this libcurl lets us look at its TLS sessions. False: libcurl has to verify the server by itself. */
bool http_tls_can_verify(void);
/* `easy`: connected, nothing sent yet. As trust_verify (health/check_trust.h). Loop thread. */
bool http_tls_verify(CURL *easy, const char *host, struct fault *fault);

#endif
