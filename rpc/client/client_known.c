/* The file of the servers known last (rpc_client_config.known): their addresses, one a line. It is only a hint: the
 * file is not synced, and lines that make no sense are left out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "rpc/client/client_internal.h"

#define FILE_MOST 16384

bool client_known_read(struct client *client) {
    char text[FILE_MOST + 1], name[ADDRESS_MAX], *rest = text;
    int fd = client->known ? open(client->known, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return false;
    ssize_t size = read(fd, text, FILE_MOST);
    close(fd);
    text[size > 0 ? size : 0] = 0;
    bool found = false;
    for (char *line; (line = strsep(&rest, "\n")) && rest;) /* a last one without an end is torn */
        if (address_complete(line, client->port, name) && connections_know(&client->connections, name)) found = true;
    return found;
}

static int write_file(const char *path, struct slice text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    ssize_t size = write(fd, text.data, text.size);
    int error = size < 0 ? errno : (size_t)size < text.size ? ENOSPC : 0;
    close(fd);
    return error;
}

static int replace(const char *path, struct slice text) {
    struct buffer aside = {0};
    buffer_printf(&aside, "%s.new", path);
    buffer_append_byte(&aside, 0);
    int error = write_file(aside.data, text);
    if (error == 0 && rename(aside.data, path) != 0) error = errno;
    buffer_free(&aside);
    return error;
}

void client_known_write(struct client *client) {
    if (!client->known) return;
    struct buffer text = {0};
    LIST_FOREACH(item, &client->connections.servers) {
        const struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (server->listed) buffer_printf(&text, "%s\n", server->address);
    }
    if (slice_equal(buffer_slice(&text), buffer_slice(&client->known_text))) {
        buffer_free(&text);
        return;
    }
    buffer_free(&client->known_text);
    client->known_text = text;
    int error = replace(client->known, buffer_slice(&text));
    if (error)
        log_warn("client", "the servers known cannot be kept for a restart path=%s error=\"%s\"", client->known,
                 strerror(error));
}
