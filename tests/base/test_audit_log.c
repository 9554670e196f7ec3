/* The queue of the audit log: what waits, what is lost, and when requests are refused. */
#include <criterion/criterion.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/audit_log.h"
#include "base/audit_log_run.h"

static struct audit_log log_;
static struct buffer batch;

static void done(void) {
    buffer_free(&log_.lines);
    buffer_free(&batch);
}

TestSuite(audit_log, .fini = done);

static bool put(const char *line) { return audit_log_put(&log_, slice_text(line), 0); }
static void take(const char *wanted) {
    audit_log_take(&log_, &batch);
    cr_expect(slice_is(buffer_slice(&batch), wanted), "%.*s", (int)batch.size, batch.data);
}
/* The writer has written all of it, or failed at once. */
static void written(int error, uint64_t now_ms) {
    size_t size = error ? 0 : batch.size;
    if (!error) buffer_reset(&batch);
    audit_log_written(&log_, size, error, now_ms, 1700000000123);
}

Test(audit_log, lines_wait_and_those_beyond_the_room_are_lost_and_told) {
    log_ = (struct audit_log){.most = 10};
    cr_expect_eq(audit_log_wait_ms(&log_, 5), UINT64_MAX);
    cr_expect(put("one\n") && put("two\n"));
    cr_expect_not(put("four\n"), "3 bytes too many");
    cr_expect_eq(audit_log_wait_ms(&log_, 5), 0u);
    take("one\ntwo\n");
    cr_expect_not(put("four\n"), "what is being written counts");
    cr_expect(put("1\n"));
    take("one\ntwo\n"); /* not before that is written */
    written(0, 5);
    take("1\n{\"time\":\"2023-11-14T22:13:20.123Z\",\"kind\":\"missing\",\"lost\":2,\"refused\":0}\n");
    written(0, 6);
    cr_expect_eq(log_.lost, 0u);
    cr_expect_eq(audit_log_wait_ms(&log_, 6), UINT64_MAX, "told once");
    take("");
}

Test(audit_log, after_a_failure_it_is_tried_again_a_second_later_and_nothing_is_told_before) {
    log_ = (struct audit_log){.most = 4};
    cr_expect(put("one\n"));
    take("one\n");
    cr_expect_not(put("two\n"));
    written(ENOSPC, 1000);
    cr_expect_eq(audit_log_wait_ms(&log_, 1200), 800u);
    cr_expect_eq(audit_log_wait_ms(&log_, 2000), 0u);
    take("one\n");
    written(0, 2000);
    cr_expect_eq(log_.error, 0);
    audit_log_take(&log_, &batch);
    cr_expect(memmem(batch.data, batch.size, "\"lost\":1,", 9));
}

Test(audit_log, a_part_that_was_written_is_not_told_of_until_the_rest_is) {
    log_ = (struct audit_log){.most = 8};
    cr_expect(put("one\n") && put("two\n") && !put("six\n"));
    audit_log_take(&log_, &batch);
    audit_log_written(&log_, 4, 0, 1, 0);
    cr_expect_eq(log_.writing, 4u);
    cr_expect_eq(log_.lines.size, 0u);
    cr_expect_eq(log_.lost, 1u);
    cr_expect_eq(audit_log_wait_ms(&log_, 1), 0u);
    audit_log_written(&log_, 4, 0, 1, 0);
    cr_expect_eq(log_.lost, 0u);
    cr_expect_neq(log_.lines.size, 0u);
}

Test(audit_log, without_refuse_nothing_is_reserved) {
    size_t reserved = 7;
    log_ = (struct audit_log){.most = 1, .error = EIO};
    cr_expect(audit_log_reserve(&log_, 100, &reserved));
    cr_expect_eq(reserved, 0u);
}

Test(audit_log, with_refuse_there_is_room_for_each_line_before_its_request) {
    size_t one = 0, two = 0, three = 0;
    log_ = (struct audit_log){.most = 20, .refuse = true};
    cr_expect(audit_log_reserve(&log_, 8, &one) && audit_log_reserve(&log_, 8, &two));
    cr_expect_not(audit_log_reserve(&log_, 8, &three), "full");
    cr_expect_eq(log_.refused, 1u);
    audit_log_release(&log_, two); /* a request that was none */
    cr_expect(audit_log_reserve(&log_, 8, &two));
    cr_expect(audit_log_put(&log_, SLICE_LITERAL("a line that is much longer than was thought\n"), one), "it is taken");
    cr_expect_eq(log_.reserved, 8u);
    cr_expect_not(audit_log_reserve(&log_, 8, &three));
    audit_log_take(&log_, &batch);
    cr_expect(audit_log_put(&log_, SLICE_LITERAL("two\n"), two));
    written(0, 1);
    cr_expect(log_.lost == 0 && log_.refused == 0);
    cr_expect(memmem(log_.lines.data, log_.lines.size, "\"lost\":0,\"refused\":2}", 21));
}

Test(audit_log, with_refuse_a_failure_refuses_at_once_until_a_write_succeeds) {
    size_t one = 0, two = 0;
    log_ = (struct audit_log){.most = 1000, .refuse = true};
    cr_expect(audit_log_reserve(&log_, 8, &one) && audit_log_reserve(&log_, 8, &two));
    cr_expect(audit_log_put(&log_, SLICE_LITERAL("one\n"), one));
    take("one\n");
    written(EIO, 1);
    cr_expect_not(audit_log_reserve(&log_, 8, &one));
    cr_expect(audit_log_put(&log_, SLICE_LITERAL("two\n"), two), "a request that is under way is recorded");
    take("one\n");
    written(0, 1001);
    cr_expect(audit_log_reserve(&log_, 8, &one));
}

Test(audit_log, the_ordinary_log_hears_of_it_once_a_minute) {
    log_ = (struct audit_log){.most = 1000};
    cr_expect_not(audit_log_warns(&log_, 0, 0), "all is well");
    cr_expect(audit_log_warns(&log_, EIO, 0));
    cr_expect_not(audit_log_warns(&log_, EIO, 59000));
    cr_expect(audit_log_warns(&log_, EIO, 60001));
    log_.lost = 1;
    cr_expect_not(audit_log_warns(&log_, 0, 120000));
    cr_expect(audit_log_warns(&log_, 0, 120001));
}

Test(audit_log, chunks_are_whole_lines) {
    struct slice lines = SLICE_LITERAL("a\nbb\nccc\n");
    static const size_t chunks[] = {2, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9};
    for (size_t room = 0; room < sizeof chunks / sizeof *chunks; room++)
        cr_expect_eq(audit_log_chunk(lines, room), chunks[room], "%zu", room);
}

/* -- its file ----------------------------------------------------------------------------------------------------- */
static char folder[64], file[80];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/coord-audit-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/a.json", folder);
}
static void remove_folder(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}
TestSuite(audit_log_file, .init = make_folder, .fini = remove_folder);

static void must_refuse(const char *why) {
    struct audit_log_run *run;
    struct fault fault = {0};
    struct audit_log_config config = {.file = file, .buffer_bytes = 100};
    cr_expect_neq(audit_log_start(&config, &run, &fault), CO_OK);
    cr_expect(strstr(fault.text, why), "%s", fault.text);
}

Test(audit_log_file, places_where_others_could_write_or_read_are_refused) {
    struct stat status;
    cr_assert_eq(chmod(folder, 0703), 0);
    must_refuse("others may write its folder");
    cr_expect_neq(stat(file, &status), 0, "it is not made");
    cr_assert_eq(chmod(folder, 0700), 0);
    FILE *made = fopen(file, "w");
    fclose(made);
    cr_assert_eq(chmod(file, 0640), 0);
    must_refuse("others may read or write it: chmod 600 ");
    if (geteuid() == 0) {
        cr_assert_eq(chmod(file, 0600) | chown(folder, 12345, 12345), 0);
        must_refuse("another user's");
    }
}

/* Appends the file; its size. */
static size_t add_file(struct buffer *all, const char *path) {
    char text[4096];
    FILE *opened = fopen(path, "r");
    cr_assert_not_null(opened, "%s", path);
    size_t size = fread(text, 1, sizeof text, opened);
    fclose(opened);
    buffer_append(all, text, size);
    return size;
}

Test(audit_log_file, what_waits_at_the_end_is_written_and_files_are_rotated_between_lines) {
    struct audit_log_run *run;
    struct fault fault = {0};
    struct audit_log_config config = {.file = file, .rotate_bytes = 50, .buffer_bytes = 100000};
    struct buffer wanted = {0}, all = {0};
    struct stat status;
    char older[96];
    glob_t paths;
    cr_assert_eq(audit_log_start(&config, &run, &fault), CO_OK);
    for (int i = 100; i < 200; i++) {
        char line[16];
        snprintf(line, sizeof line, "line %d\n", i);
        buffer_append_text(&wanted, line);
        audit_log_run_put(run, slice_text(line), 0);
    }
    audit_log_stop(run);
    cr_assert_eq(stat(file, &status), 0);
    cr_expect_eq(status.st_mode & 0777, 0600u);
    snprintf(older, sizeof older, "%s/a-*.json", folder);
    cr_assert_eq(glob(older, 0, NULL, &paths), 0); /* sorted by time */
    cr_expect_geq(paths.gl_pathc, 900u / 54);
    for (size_t i = 0; i < paths.gl_pathc; i++) cr_expect_eq(add_file(&all, paths.gl_pathv[i]) % 9, 0u);
    for (size_t i = 0; i < paths.gl_pathc; i++)
        cr_expect(stat(paths.gl_pathv[i], &status) == 0 && status.st_size <= 54);
    add_file(&all, file);
    cr_expect(slice_equal(buffer_slice(&all), buffer_slice(&wanted)), "%.*s", (int)all.size, all.data);
    globfree(&paths);
    buffer_free(&all);
    buffer_free(&wanted);
}
