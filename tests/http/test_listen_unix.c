/* Unix sockets: whose file it is, and when it is replaced. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "http/impl.h"

static char folder[] = "/tmp/coord-unix-XXXXXX", path[64];
static struct listener listener;
static struct fault fault;

static void begin(void) {
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
}
static void end(void) {
    unlink(path);
    rmdir(folder);
}
TestSuite(listen_unix, .init = begin, .fini = end);

static int make(const struct http_socket_file *file) {
    static const struct http_socket_file none;
    listener = (struct listener){0};
    fault = (struct fault){0};
    return listen_unix(&listener, path, file ? file : &none, 16, &fault);
}

static void leave(void) {
    close(listener.fd);
    free(listener.path);
}

static bool reached(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool there = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return there;
}

Test(listen_unix, mode_and_owner) {
    struct stat info;
    mode_t before = umask(0777); /* does not count */
    cr_assert_eq(make(NULL), CO_OK, "%s", fault.text);
    umask(before);
    cr_assert_eq(stat(path, &info), 0);
    cr_expect_eq(info.st_mode, (mode_t)(S_IFSOCK | HTTP_SOCKET_MODE));
    cr_expect(reached());
    listen_unix_remove(&listener);
    cr_expect_neq(access(path, F_OK), 0, "it is removed");
    leave();
    char user[16], group[16];
    snprintf(user, sizeof user, "%u", getuid());
    snprintf(group, sizeof group, "%u", getgid());
    cr_assert_eq(make(&(struct http_socket_file){.user = user, .group = group, .mode = 0600}), CO_OK, "%s", fault.text);
    cr_assert_eq(stat(path, &info), 0);
    cr_expect_eq(info.st_mode, (mode_t)(S_IFSOCK | 0600));
    leave();
}

Test(listen_unix, names_that_nobody_has) {
    cr_expect_eq(make(&(struct http_socket_file){.user = "nobody-has-this"}), CO_INVALID);
    cr_expect_str_eq(fault.text, "unix_sockets.user: no user \"nobody-has-this\"");
    cr_expect_neq(access(path, F_OK), 0, "no file is left");
    cr_expect_eq(make(&(struct http_socket_file){.group = "4294967295"}), CO_INVALID);
    cr_expect_str_eq(fault.text, "unix_sockets.group: no group \"4294967295\"");
}

Test(listen_unix, a_living_one_is_left_alone) {
    cr_assert_eq(make(NULL), CO_OK);
    struct listener first = listener;
    cr_expect_eq(make(NULL), CO_EXISTS);
    char wanted[128];
    snprintf(wanted, sizeof wanted, "http: another process listens on %s", path);
    cr_expect_str_eq(fault.text, wanted);
    cr_expect(reached());
    close(first.fd); /* as if its process were killed */
    cr_expect_not(reached());
    struct timespec now; /* file systems write the time of the last tick, so two files of one tick look alike */
    do clock_gettime(CLOCK_REALTIME_COARSE, &now);
    while (now.tv_sec == first.made.tv_sec && now.tv_nsec <= first.made.tv_nsec);
    cr_assert_eq(make(NULL), CO_OK, "the file of a dead process is replaced: %s", fault.text);
    cr_expect(reached());
    listen_unix_remove(&first); /* has the old inode */
    free(first.path);
    cr_expect(reached(), "it is another's file by now");
    leave();
}

Test(listen_unix, what_is_no_socket_stays) {
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    cr_expect_eq(make(NULL), CO_EXISTS);
    cr_expect_not_null(strstr(fault.text, "exists, and is no socket"));
    cr_expect_eq(access(path, F_OK), 0);
    unlink(path);
    cr_assert_eq(symlink("/nowhere/at/all", path), 0);
    cr_expect_eq(make(NULL), CO_EXISTS);
    struct stat info;
    cr_expect_eq(lstat(path, &info), 0, "the link stays");
}

Test(listen_unix, a_path_that_is_too_long) {
    static const struct http_socket_file none;
    char long_path[200];
    memset(long_path, 'x', sizeof long_path);
    long_path[0] = '/', long_path[108] = '\0';
    cr_expect_eq(listen_unix(&listener, long_path, &none, 16, &fault), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "107 bytes"));
}
