#include "ends.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"

/* -- two sessions --------------------------------------------------------------------------------------------------- */
void ends_open(struct ends *ends, struct tls_context *client, struct tls_session_config client_config,
               struct tls_context *server, struct tls_session_config server_config) {
    *ends = (struct ends){0};
    server_config.server = true;
    ends->client = tls_session_new(client, &client_config);
    ends->server = tls_session_new(server, &server_config);
}

static void move(struct tls_session *from, struct tls_session *to, struct buffer *got, size_t step, size_t *count) {
    size_t size;
    char *bytes = buffer_take(tls_session_out(from), &size);
    for (size_t at = 0, part; at < size; at += part) {
        part = step && step < size - at ? step : size - at;
        tls_session_feed(to, slice_make(bytes + at, part), got);
    }
    *count += size;
    free(bytes);
}

void ends_move(struct ends *ends, size_t step) {
    while (tls_session_out(ends->client)->size + tls_session_out(ends->server)->size > 0) {
        move(ends->client, ends->server, &ends->server_got, step, &ends->to_server);
        move(ends->server, ends->client, &ends->client_got, step, &ends->to_client);
    }
}

bool ends_are_open(const struct ends *ends) {
    return tls_session_state(ends->client) == TLS_OPEN && tls_session_state(ends->server) == TLS_OPEN;
}

void ends_close(struct ends *ends) {
    tls_session_free(ends->client);
    tls_session_free(ends->server);
    buffer_free(&ends->client_got);
    buffer_free(&ends->server_got);
}

/* -- a client of GnuTLS ---------------------------------------------------------------------------------------------- */
static ssize_t push(gnutls_transport_ptr_t transport, const void *data, size_t size) {
    struct bare *bare = transport;
    buffer_append(&bare->out, data, size);
    return (ssize_t)size;
}

static ssize_t pull(gnutls_transport_ptr_t transport, void *data, size_t size) {
    struct bare *bare = transport;
    size_t left = bare->in.size - bare->taken;
    if (left == 0) {
        gnutls_transport_set_errno(bare->tls, EAGAIN);
        return -1;
    }
    if (size > left) size = left;
    memcpy(data, bare->in.data + bare->taken, size);
    bare->taken += size;
    return (ssize_t)size;
}

static int pull_ready(gnutls_transport_ptr_t transport, unsigned ms) {
    const struct bare *bare = transport;
    (void)ms;
    return bare->in.size > bare->taken;
}

void bare_open(struct bare *bare, const char *priorities) {
    *bare = (struct bare){0};
    CHECK(gnutls_init(&bare->tls, GNUTLS_CLIENT | GNUTLS_NONBLOCK) == 0);
    CHECK(gnutls_priority_set_direct(bare->tls, priorities, NULL) == 0);
    CHECK(gnutls_certificate_allocate_credentials(&bare->credentials) == 0);
    CHECK(gnutls_credentials_set(bare->tls, GNUTLS_CRD_CERTIFICATE, bare->credentials) == 0);
    gnutls_transport_set_ptr(bare->tls, bare);
    gnutls_transport_set_push_function(bare->tls, push);
    gnutls_transport_set_pull_function(bare->tls, pull);
    gnutls_transport_set_pull_timeout_function(bare->tls, pull_ready);
    gnutls_handshake_set_timeout(bare->tls, GNUTLS_INDEFINITE_TIMEOUT);
}

int bare_shake(struct bare *bare, struct tls_session *server, struct buffer *got) {
    int error = gnutls_handshake(bare->tls);
    size_t size;
    char *bytes = buffer_take(&bare->out, &size);
    tls_session_feed(server, slice_make(bytes, size), got);
    free(bytes);
    buffer_append(&bare->in, tls_session_out(server)->data, tls_session_out(server)->size);
    buffer_reset(tls_session_out(server));
    return error;
}

void bare_close(struct bare *bare) {
    gnutls_deinit(bare->tls);
    gnutls_certificate_free_credentials(bare->credentials);
    buffer_free(&bare->in);
    buffer_free(&bare->out);
}
