/* Credentials are asked of the kernel for the socket, and are those of the moment of connect(). The unit is that of the process
 * which connected; it is read as soon as the connection is accepted, and counts only if that process still lives then (the
 * kernel's handle of it says so, Linux 6.5), because another one may have its number by now. */
#include "http/proof.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acl/login_proof.h"
#include "base/message.h"
#include "http/impl.h"
#include "rpc/api/access_control.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define CERTIFICATES_MOST TLS_CHAIN_MOST

struct credentials {
    uint32_t uid, gid;
    char unit[256];
};

static bool lives(int process) {
    struct pollfd end = {.fd = process, .events = POLLIN};
    return poll(&end, 1, 0) == 0;
}

static void read_unit(int process, pid_t pid, char *unit, size_t room) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%ld/cgroup", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (fd >= 0) close(fd);
    if (size <= 0 || size == (ssize_t)sizeof text || !lives(process)) return;
    struct slice found = proof_unit(slice_make(text, (size_t)size));
    if (found.size < room) memcpy(unit, found.data, found.size);
}

struct credentials *credentials_read(struct worker *worker, int fd) {
    struct ucred who;
    socklen_t size = sizeof who;
    if (!rpc_access_controlled(worker->server->env.rpc)) return NULL;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return NULL;
    struct credentials *credentials = mem_zalloc(sizeof *credentials);
    credentials->uid = who.uid, credentials->gid = who.gid;
    int process;
    size = sizeof process;
    if (who.pid > 0 && getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &size) == 0) {
        read_unit(process, who.pid, credentials->unit, sizeof credentials->unit);
        close(process);
    }
    return credentials;
}

Pb__AclProof *http_proof(struct http_request *request) {
    const struct connection *connection = request->connection;
    const struct credentials *credentials = connection ? connection->credentials : NULL;
    struct arena *arena = http_arena(request);
    struct slice chain[CERTIFICATES_MOST];
    Pb__AclProof *proof = arena_alloc(arena, sizeof *proof);
    pb__acl_proof__init(proof);
    proof->host = arena_strndup(arena, http_env(request)->node_name, strlen(http_env(request)->node_name));
    if (credentials) {
        proof->local = true, proof->uid = credentials->uid, proof->gid = credentials->gid;
        proof->unit = arena_strndup(arena, credentials->unit, strlen(credentials->unit));
    }
    size_t count = connection ? secure_certificates(connection, chain, CERTIFICATES_MOST) : 0;
    proof->certificates = arena_alloc(arena, (count + 1) * sizeof *proof->certificates);
    for (size_t i = 0; i < count; i++)
        proof->certificates[proof->n_certificates++] = message_bytes(slice_copy(arena, chain[i]));
    return proof;
}
