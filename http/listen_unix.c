/* Unix sockets: the file, whose it is, and who may connect. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "http/impl.h"

/* Removes the file of a process that is gone. */
static int clear_place(const struct sockaddr_un *address, struct fault *fault) {
    struct stat info;
    const char *path = address->sun_path;
    if (lstat(path, &info) != 0) return CO_OK; /* bind() says what is wrong */
    if (!S_ISSOCK(info.st_mode)) return fault_set(fault, CO_EXISTS, "http: %s exists, and is no socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return fault_set(fault, CO_IO, "http: cannot open a socket for %s: %s", path, strerror(errno));
    int error = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
    close(fd);
    if (error == ENOENT) return CO_OK;
    if (error == ECONNREFUSED) {
        if (unlink(path) == 0 || errno == ENOENT) return CO_OK;
        return fault_set(fault, CO_IO, "http: cannot remove the old socket %s: %s", path, strerror(errno));
    }
    if (error && error != EAGAIN)
        return fault_set(fault, CO_IO, "http: cannot tell whether %s is used: %s", path, strerror(error));
    return fault_set(fault, CO_EXISTS, "http: another process listens on %s", path);
}

/* A name or a number; -1: nobody's. */
static int64_t user_of(const char *text) {
    const struct passwd *entry = getpwnam(text);
    uint64_t number;
    if (entry) return entry->pw_uid;
    return u64_parse(slice_text(text), UINT32_MAX - 1, &number) == CO_OK ? (int64_t)number : -1;
}

static int64_t group_of(const char *text) {
    const struct group *entry = getgrnam(text);
    uint64_t number;
    if (entry) return entry->gr_gid;
    return u64_parse(slice_text(text), UINT32_MAX - 1, &number) == CO_OK ? (int64_t)number : -1;
}

static int settle_file(const char *path, const struct http_socket_file *file, struct fault *fault) {
    int64_t user = file->user ? user_of(file->user) : -1, group = file->group ? group_of(file->group) : -1;
    if (file->user && user < 0) return fault_set(fault, CO_INVALID, "unix_sockets.user: no user \"%s\"", file->user);
    if (file->group && group < 0)
        return fault_set(fault, CO_INVALID, "unix_sockets.group: no group \"%s\"", file->group);
    if ((user >= 0 || group >= 0) && chown(path, (uid_t)user, (gid_t)group) != 0) {
        return fault_set(fault, CO_DENIED, "http: cannot give %s to %s%s%s: %s", path, file->user ? file->user : "",
                         file->user && file->group ? ":" : "", file->group ? file->group : "", strerror(errno));
    }
    if (chmod(path, file->mode ? file->mode : HTTP_SOCKET_MODE) != 0)
        return fault_set(fault, CO_IO, "http: cannot set the mode of %s: %s", path, strerror(errno));
    return CO_OK;
}

int listen_unix(struct listener *listener, const char *path, const struct http_socket_file *file, int backlog,
                struct fault *fault) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return fault_set(fault, CO_INVALID, "http: the path of a Unix socket may have %zu bytes: %s",
                         sizeof address.sun_path - 1, path);
    strcpy(address.sun_path, path);
    int error = clear_place(&address, fault);
    if (error) return error;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return fault_set(fault, CO_IO, "http: cannot open a socket for %s: %s", path, strerror(errno));
    /* Nobody can connect before listen(), so the file has its mode and owner by then. */
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        error = fault_set(fault, errno == EADDRINUSE ? CO_EXISTS : CO_IO, "http: cannot make the socket %s: %s", path,
                          strerror(errno));
        close(fd);
        return error;
    }
    struct stat info = {0};
    error = settle_file(path, file, fault);
    if (!error && (listen(fd, backlog) != 0 || lstat(path, &info) != 0))
        error = fault_set(fault, CO_IO, "http: cannot listen on %s: %s", path, strerror(errno));
    if (error) {
        unlink(path);
        close(fd);
        return error;
    }
    listener->fd = fd;
    listener->path = mem_strdup(path);
    listener->device = info.st_dev;
    listener->inode = info.st_ino;
    listener->made = info.st_mtim; /* a file that replaces it may get the same inode */
    return CO_OK;
}

void listen_unix_remove(const struct listener *listener) {
    struct stat info;
    if (!listener->path || lstat(listener->path, &info) != 0) return;
    bool ours = info.st_dev == listener->device && info.st_ino == listener->inode &&
                info.st_mtim.tv_sec == listener->made.tv_sec && info.st_mtim.tv_nsec == listener->made.tv_nsec;
    if (ours) unlink(listener->path);
}
