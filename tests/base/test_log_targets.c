/* The log's file: its name, its rotation, disks that are full; JSON; syslog. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log_file.h"

static char folder[64];

static void make_folder(void) {
    cr_redirect_stderr();
    snprintf(folder, sizeof folder, "/tmp/coord-log-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(log_targets, .init = make_folder, .fini = remove_folder);

static char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *text_of(const char *path) {
    static char text[65536];
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[size] = '\0';
    if (file) fclose(file);
    return text;
}

/* How many files begin so. */
static unsigned count(const char *prefix) {
    unsigned found = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        found += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(entries);
    return found;
}

Test(log_targets, the_path_of_the_file) {
    static const char *const rows[][2] = {{"/var/log/coord.log", "/var/log/coord.log"},
                                          {"/var/no/", "/var/no/coord.log"},
                                          {"/var/log/x", "/var/log/x.log"},
                                          {"/var/l.d/x", "/var/l.d/x.log"},
                                          {"/tmp", "/tmp/coord.log"},
                                          {"x.txt", "x.txt"}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer path = {0};
        log_file_path(rows[i][0], &path);
        cr_expect(slice_is(buffer_slice(&path), rows[i][1]), "%.*s", (int)path.size, path.data);
        buffer_free(&path);
    }
}

static void put(struct log_file *file, const char *line, int64_t now_ns) {
    cr_expect_eq(log_file_write(file, line, strlen(line), now_ns), 0);
}

Test(log_targets, a_file_is_rotated_by_size_and_some_are_kept) {
    struct log_file file = {.path = strdup(path_of("a.log")), .rotate_bytes = 10, .rotate_files = 2};
    int64_t now_ns = 1000;
    cr_assert_eq(log_file_open(&file, now_ns), 0);
    for (int i = 0; i < 5; i++) {
        char line[32];
        snprintf(line, sizeof line, "line %d.......\n", i);
        put(&file, line, now_ns++);
    }
    cr_expect_str_eq(text_of(path_of("a.log")), "line 4.......\n");
    cr_expect_eq(count("a-"), 2u);
    cr_expect_str_eq(text_of(path_of("a-1004.log")), "line 3.......\n", "the newest stay");
    cr_expect_str_eq(text_of(path_of("a-1003.log")), "line 2.......\n");
    FILE *other = fopen(path_of("a-b.log"), "w"); /* not one of its own */
    fclose(other);
    file.rotate_files = -1;
    put(&file, "last line\n", now_ns);
    cr_expect_eq(count("a-"), 1u, "none is kept");
    cr_expect_eq(access(path_of("a-b.log"), F_OK), 0);
    log_file_close(&file);
}

Test(log_targets, a_file_is_rotated_by_age) {
    struct log_file file = {.path = strdup(path_of("a")), .rotate_ns = 100};
    cr_assert_eq(log_file_open(&file, 1000), 0);
    put(&file, "one\n", 1050);
    put(&file, "two\n", 1099);
    cr_expect_eq(count("a"), 1u);
    put(&file, "three\n", 1100);
    cr_expect_str_eq(text_of(path_of("a")), "three\n");
    cr_expect_str_eq(text_of(path_of("a-1100")), "one\ntwo\n");
    log_file_close(&file);
}

/* Lines that the file has already are kept, and count. */
Test(log_targets, a_file_is_appended_to_and_opened_anew_by_its_name) {
    struct log_file file = {.path = strdup(path_of("a.log")), .rotate_bytes = 1000};
    FILE *before = fopen(path_of("a.log"), "w");
    fputs("before\n", before);
    fclose(before);
    cr_assert_eq(log_file_open(&file, 1), 0);
    cr_expect_eq(file.size, 7u);
    char moved[128];
    snprintf(moved, sizeof moved, "%s", path_of("moved"));
    cr_assert_eq(rename(path_of("a.log"), moved), 0);
    put(&file, "still\n", 2);
    cr_expect_eq(log_file_reopen(&file, 3), 0);
    put(&file, "anew\n", 4);
    cr_expect_str_eq(text_of(moved), "before\nstill\n");
    cr_expect_str_eq(text_of(path_of("a.log")), "anew\n");
    log_file_close(&file);
}

/* A rotation that cannot be is no reason to lose lines, and is not tried for every line. */
Test(log_targets, a_rotation_that_fails_loses_nothing) {
    struct log_file file = {.path = strdup(path_of("a.log")), .rotate_bytes = 1};
    cr_assert_eq(log_file_open(&file, 1), 0);
    put(&file, "one\n", 2);
    cr_assert_eq(unlink(path_of("a.log")), 0); /* nothing to rename */
    put(&file, "two\n", 3);
    cr_expect_gt(file.again_ns, 3);
    cr_expect_eq(count("a"), 0u);
    log_file_close(&file);
}

static void wait_for(const char *path, const char *text) {
    for (int i = 0; i < 20000 && !strstr(text_of(path), text); i++) usleep(500);
    cr_assert_not_null(strstr(text_of(path), text), "%s: %s", text, text_of(path));
}

Test(log_targets, lines_arrive_and_the_last_ones_too) {
    char path[128];
    struct log_targets_config config = {.file = path};
    struct fault fault = {0};
    snprintf(path, sizeof path, "%s", path_of("x"));
    cr_assert_eq(log_targets_open(&config, &fault), CO_OK, "%s", fault.text);
    log_warn("raft", "first");
    log_debug("raft", "not seen");
    wait_for(path_of("x.log"), "[WARN] raft: first\n");
    cr_assert_eq(unlink(path_of("x.log")), 0);
    log_targets_reopen();
    while (access(path_of("x.log"), F_OK) != 0) usleep(500);
    for (int i = 0; i < 100; i++) log_warn("raft", "number=%d", i);
    log_targets_close();
    cr_expect_not_null(strstr(text_of(path_of("x.log")), "number=0\n"));
    cr_expect_not_null(strstr(text_of(path_of("x.log")), "number=99\n"));
    log_warn("raft", "nobody listens");
    cr_expect_null(strstr(text_of(path_of("x.log")), "nobody"));
}

Test(log_targets, what_cannot_be_opened_is_refused_by_name) {
    struct fault fault = {0};
    struct log_targets_config config = {.file = path_of("none/x.log")};
    char wanted[200];
    snprintf(wanted, sizeof wanted, "log_file: %s/none/x.log: No such file or directory", folder);
    cr_expect_eq(log_targets_open(&config, &fault), CO_IO);
    cr_expect_str_eq(fault.text, wanted);
    fault = (struct fault){0};
    config = (struct log_targets_config){.syslog = true, .facility = "LOCAL0", .syslog_socket = path_of("none")};
    snprintf(wanted, sizeof wanted, "enable_syslog: %s/none: No such file or directory", folder);
    cr_expect_eq(log_targets_open(&config, &fault), CO_IO);
    cr_expect_str_eq(fault.text, wanted);
    log_targets_close();
}

/* Logging goes on at full speed; when there is room again, a line says what is missing. */
Test(log_targets, a_full_disk_stops_nobody) {
    char path[128];
    struct log_targets_config config = {.file = path};
    struct fault fault = {0};
    snprintf(path, sizeof path, "%s", path_of("full.log"));
    cr_assert_eq(symlink("/dev/full", path), 0);
    cr_assert_eq(log_targets_open(&config, &fault), CO_OK, "%s", fault.text);
    CHECK(freopen(path_of("said"), "w", stderr));
    for (int i = 0; i < 1000; i++) log_warn("raft", "number=%d", i);
    while (!strstr(text_of(path_of("said")), "lines are left out of the file"))
        usleep(500); /* else they were for the new file */
    unlink(path_of("full.log"));
    log_targets_reopen();
    while (access(path_of("full.log"), F_OK) != 0) usleep(500);
    log_warn("raft", "there is room");
    log_targets_close();
    const char *text = text_of(path_of("full.log"));
    cr_expect_not_null(strstr(text, "[WARN] log: "), "%s", text);
    cr_expect_not_null(strstr(text, " lines are missing here: No space left on device\n"), "%s", text);
    cr_expect_not_null(strstr(text, "raft: there is room\n"), "%s", text);
    cr_expect_null(strstr(text, "number=0\n"));
}

Test(log_targets, as_json) {
    static const struct {
        const char *line, *json;
    } rows[] = {
        {"2026-01-02T03:04:05.678Z [INFO] raft: became leader term=3 note=\"a b\"\n",
         "{\"@level\":\"info\",\"@message\":\"became "
         "leader\",\"@module\":\"raft\",\"@timestamp\":\"2026-01-02T03:04:05.678Z\","
         "\"term\":\"3\",\"note\":\"a b\"}\n"},
        {"2026-01-02T03:04:05.678Z [ERROR] config: web.json:1:2: unknown key \"a\\\" (nearest: \"b\")\n",
         "{\"@level\":\"error\",\"@message\":\"web.json:1:2: unknown key \\\"a\\\\\\\" (nearest: "
         "\\\"b\\\")\",\"@module\":\"config\","
         "\"@timestamp\":\"2026-01-02T03:04:05.678Z\"}\n"},
        {"2026-01-02T03:04:05.678Z [WARN] http: a=1 is not b=2 c\n",
         "{\"@level\":\"warn\",\"@message\":\"a=1 is not b=2 c\",\"@module\":\"http\",\"@timestamp\":"
         "\"2026-01-02T03:04:05.678Z\"}\n"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer out = {0};
        log_line_json(&out, slice_text(rows[i].line));
        cr_expect(slice_is(buffer_slice(&out), rows[i].json), "%.*s", (int)out.size, out.data);
        buffer_free(&out);
    }
}

Test(log_targets, to_syslog) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int server = socket(AF_UNIX, SOCK_DGRAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path_of("log"));
    cr_assert_eq(bind(server, (struct sockaddr *)&address, sizeof address), 0);
    struct log_targets_config config = {.syslog = true, .facility = "local3", .syslog_socket = path_of("log")};
    struct fault fault = {0};
    char text[300] = "", wanted[64];
    cr_assert_eq(log_targets_open(&config, &fault), CO_OK, "%s", fault.text);
    log_error("raft", "lost");
    cr_assert_gt(recv(server, text, sizeof text - 1, 0), 0);
    cr_expect_eq(strncmp(text, "<155>", 5), 0, "local3 is 19, an error 3: %s", text);
    snprintf(wanted, sizeof wanted, " coord[%d]: raft: lost", (int)getpid());
    cr_expect_not_null(strstr(text, wanted), "%s", text);
    /* Started anew: another socket of that name. */
    close(server);
    unlink(address.sun_path);
    log_error("raft", "to nobody");
    server = socket(AF_UNIX, SOCK_DGRAM, 0);
    cr_assert_eq(bind(server, (struct sockaddr *)&address, sizeof address), 0);
    for (bool came = false; !came; usleep(500)) {
        log_error("raft", "again");
        came = recv(server, text, sizeof text - 1, MSG_DONTWAIT) > 0;
    }
    cr_expect_not_null(strstr(text, "raft: "));
    log_targets_close();
    close(server);
}

Test(log_targets, facilities) {
    cr_expect_eq(log_facility("kern"), 0);
    cr_expect_eq(log_facility("DAEMON"), 3);
    cr_expect_eq(log_facility("LOCAL7"), 23);
    cr_expect_eq(log_facility("local8"), -1);
    cr_expect_eq(log_facility(""), -1);
}
