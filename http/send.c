/* send(), sendmsg() and recv() for the whole program, in place of the C library's: straight to the kernel, unless the
 * calling thread has set send_instead_here, which then may take them over, or received_here, where what came is counted. That is how
 * library_faults.c gets between libmicrohttpd and the client. A file of its own, which needs nothing else: whichever program of
 * ours is linked with our libraries and sends gets it, also those without an HTTP server. */
#undef _FORTIFY_SOURCE /* it makes recv() an inline function */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "http/impl.h"

__thread bool (*send_instead_here)(int fd, const struct iovec *parts, size_t count, ssize_t *sent);

ssize_t send(int fd, const void *data, size_t size, int flags) {
    ssize_t sent;
    struct iovec part = {(void *)(uintptr_t)data, size};
    if (send_instead_here && send_instead_here(fd, &part, 1, &sent)) return sent;
    return syscall(SYS_sendto, fd, data, size, flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    ssize_t sent;
    if (send_instead_here && send_instead_here(fd, message->msg_iov, message->msg_iovlen, &sent)) return sent;
    return syscall(SYS_sendmsg, fd, message, flags);
}

__thread uint64_t *received_here;

ssize_t recv(int fd, void *data, size_t size, int flags) {
    ssize_t got = syscall(SYS_recvfrom, fd, data, size, flags, NULL, NULL);
    if (got > 0 && received_here) ++*received_here;
    return got;
}

ssize_t plain_send(int fd, const char *data, size_t size) {
    return syscall(SYS_sendto, fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
}
