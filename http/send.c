/* send(), sendmsg(), recv() and sendfile64() for the whole program, in place of the C library's: they call the kernel
 * directly, unless the calling thread has set send_instead_here, send_file_here or receive_here, which may replace the
 * call; moved_here counts the calls that moved bytes. So mhd_errors.c, long_headers.c and secure.c get between
 * libmicrohttpd and the client. This
 * file depends on no other, because every program that is linked with our libraries and sends gets it, also those
 * without an HTTP server. */
#undef _FORTIFY_SOURCE /* it makes recv() an inline function */
#include <sys/sendfile.h>
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

/* AddressSanitizer and ThreadSanitizer do not see bytes that come this way. Cancellation is not handled, because no
 * thread of ours is cancelled. */
__thread uint64_t *moved_here;
__thread ssize_t (*receive_here)(int fd, void *data, size_t size, int flags);

ssize_t plain_receive(int fd, void *data, size_t size, int flags) {
    return syscall(SYS_recvfrom, fd, data, size, flags, NULL, NULL);
}

ssize_t recv(int fd, void *data, size_t size, int flags) {
    ssize_t got = receive_here ? receive_here(fd, data, size, flags) : plain_receive(fd, data, size, flags);
    if (got > 0 && moved_here) ++*moved_here;
    return got;
}

__thread bool (*send_file_here)(int to, int from, off64_t *offset, size_t size, ssize_t *sent);

ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    ssize_t sent;
    if (!send_file_here || !send_file_here(to, from, offset, size, &sent))
        sent = syscall(SYS_sendfile, to, from, offset, size);
    if (sent > 0 && moved_here) ++*moved_here;
    return sent;
}

ssize_t plain_send(int fd, const char *data, size_t size) {
    return syscall(SYS_sendto, fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
}
