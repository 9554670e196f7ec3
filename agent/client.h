/* The command line's side of the HTTP API. One process, one thread. */
#ifndef COORD_AGENT_CLIENT_H
#define COORD_AGENT_CLIENT_H

#include <curl/curl.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/error.h"

/* The flags of every command that talks to an agent (-http-addr, -token, -datacenter, -stale, and those of TLS). */
struct client {
    /* NULL: $COORD_HTTP_ADDR, $CONSUL_HTTP_ADDR, 127.0.0.1:8500. "host:port", "host" (port 8500),
     * "http://..." and "https://..." (URLs: port 80 and 443 where they have none), "unix:///path".
     * With $COORD_HTTP_SSL=true, $CONSUL_HTTP_SSL=true HTTP is HTTPS. */
    const char *address;
    const char *token, *token_file, *datacenter; /* token: after cmd_flags that which counts, or NULL */
    /* NULL: the environment's (client_tls) */
    const char *ca_file, *ca_path, *certificate, *key, *server_name;
    bool stale;
};

/* The value of COORD_NAME, or else of CONSUL_NAME; NULL: neither is set, or they are empty. */
const char *client_variable(const char *name);

/* The address of the agent: the client's or, when that is NULL or empty, that of the environment or the default. */
const char *client_address(const struct client *client);

struct client_answer {
    long status;
    struct buffer body; /* at most 1 GiB */
    uint64_t index;     /* X-Consul-Index; 0: none */
    bool unreachable;   /* there is no answer, because nobody listens at the address */
    bool leaderless;    /* the agent knows of no leader: it says so, or refused the request because of that */
};

/* Texts for people: the cluster has no leader; the agent reaches no server. */
#define CLIENT_LEADERLESS "no leader; see: coord operator raft list-peers -stale"
#define CLIENT_SERVERLESS "the agent reaches no server; see its log: coord monitor"

/* `path` begins with '/', parameters included and encoded. Body NULL: none. `from`: the body comes from a file instead.
 * `to`: the body of a 200 goes there and not into answer->body. CO_OK: there was an answer, of any status. Else a
 * fault: nobody answers. When nothing has come for a second, the agent is asked once whether there is a leader; if
 * there is none, stderr says so (client_leaderless), once in a process. */
int client_ask(const struct client *client, const char *method, const char *path, const struct slice *body, FILE *from,
               FILE *to, struct client_answer *answer, struct fault *fault);
void client_answer_free(struct client_answer *answer);

/* The meaning of an answer that is not 200. CO_INVALID: the request is wrong; CO_NOTFOUND: 404; CO_DENIED: refused, but
 * the same request may succeed later; CO_NOLEADER: no server could answer, which is also the meaning of a fault of
 * client_ask. */
int client_answer_code(const struct client_answer *answer);

/* As client_ask, for commands: an answer that is not 200 is a fault ("Unexpected response code: 500 (...)") too, except
 * 404 when `or_404`. Without a leader it is CO_NOLEADER, with a text for people. */
int client_want(const struct client *client, const char *method, const char *path, const struct slice *body,
                bool or_404, struct client_answer *answer, struct fault *fault);

/* Sets the fault for an answer that is not 200, as above; returns its code. */
int client_refused(const struct client_answer *answer, struct fault *fault);

/* From an answer to GET CLIENT_LEADER: the reason, for people, why requests are not answered; NULL: there is a
 * leader. */
#define CLIENT_LEADER "/v1/status/leader"
const char *client_leaderless(const struct client_answer *answer);
/* For commands that do not use client_ask: asks for the leader, and prints it to stderr when there is none, as
 * client_ask does. Takes up to 3 s. */
void client_note_leader(const struct client *client);

/* -- several questions at a time, without blocking ---------------------------------------------------------------- */
struct client_call;
/* Begins a request; client_calls_step carries it on. `path` is copied; `client` and the bytes of the body must stay
 * until the call is freed. No answer within `timeout_ms` is a fault. */
struct client_call *client_call_begin(CURLM *calls, const struct client *client, const char *method, const char *path,
                                      const struct slice *body, uint64_t timeout_ms);
/* Waits until a call can go on, one of `fds` is ready, or the time is up; then carries all calls on. */
void client_calls_step(CURLM *calls, struct curl_waitfd *fds, unsigned count, int wait_ms);
/* NULL: not done yet. Else the answer or fault, as of client_ask, valid until the call is freed. */
const struct client_answer *client_call_answer(const struct client_call *call, const struct fault **fault);
void client_call_free(CURLM *calls, struct client_call *call); /* ends one that is under way; NULL: nothing */

/* A new handle for a request to `url`, with the options of every request: the path is sent as it is written, since "."
 * and ".." in it may be a user's key or name; only HTTP and HTTPS; no signals; no proxy to loopback. `reason` gets
 * libcurl's words for a failure. The caller frees the handle with curl_easy_cleanup; `reason` outlives it. */
CURL *client_curl(const char *url, char reason[CURL_ERROR_SIZE]);

/* Appends the URL of `path` at an address as above, in HTTPS where $COORD_HTTP_SSL or $CONSUL_HTTP_SSL asks for that. */
void client_url(const char *address, const char *path, struct buffer *url);
/* Applies the client's settings of TLS to a handle of client_curl for an HTTPS `url`; does nothing for HTTP. A setting
 * that the client leaves out is taken from the environment, COORD_X before CONSUL_X: CACERT or CAPATH, CLIENT_CERT, CLIENT_KEY,
 * TLS_SERVER_NAME; HTTP_SSL_VERIFY=false. The caller frees what it returns, which may be NULL, with curl_slist_free_all
 * after the handle. */
struct curl_slist *client_tls(const struct client *client, CURL *curl, const char *url);

/* Appends `text` encoded for a path ('/' stays) or a parameter's value. */
void client_encode(struct buffer *out, const char *text, bool path);
/* Appends "?name=value" or "&name=value"; value NULL: "?name". */
void client_parameter(struct buffer *out, const char *name, const char *value);

#endif
