/* The file of definitions: what is read back after appending, removing, tearing and damaging. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "health/store_log.h"

static char folder[40];

static void make_folder(void) {
    strcpy(folder, "/tmp/coord-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[80];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(store_log, .init = make_folder, .fini = remove_folder);

struct reading {
    struct store_log log;
    struct buffer text;
    struct store_record *records;
    size_t count;
};

static void open_log(struct reading *reading) {
    struct fault fault = {0};
    *reading = (struct reading){0};
    cr_assert_eq(store_log_open(&reading->log, folder, &reading->text, &reading->records, &reading->count, &fault),
                 CO_OK, "%s", fault.text);
}

static void close_log(struct reading *reading) {
    store_log_free(&reading->log);
    buffer_free(&reading->text);
    free(reading->records);
}

/* The first write is always of everything. */
static void write_lines(struct store_log *log, struct buffer *lines) {
    int error =
        store_log_anew(log) ? store_log_rewrite(log, buffer_slice(lines)) : store_log_append(log, buffer_slice(lines));
    cr_assert_eq(error, 0, "%s", strerror(error));
    buffer_free(lines);
}

static void put(struct store_log *log, bool is_check, const char *id, const char *json) {
    struct buffer lines = {0};
    store_log_line(&lines, is_check, id, slice_text(json));
    write_lines(log, &lines);
}

static void expect(const char *jsons) {
    struct reading reading;
    struct buffer found = {0};
    open_log(&reading);
    for (size_t i = 0; i < reading.count; i++) {
        buffer_append(&found, reading.records[i].json.data, reading.records[i].json.size);
        buffer_append_byte(&found, ' ');
    }
    cr_assert(slice_is(buffer_slice(&found), jsons), "\"%.*s\" instead of \"%s\"", (int)found.size,
              found.size ? found.data : "", jsons);
    buffer_free(&found);
    close_log(&reading);
}

static void path_in(char path[80], const char *name) { snprintf(path, 80, "%s/local/%s", folder, name); }

static long size_of_file(void) {
    char path[80];
    struct stat info;
    path_in(path, "definitions");
    cr_assert_eq(stat(path, &info), 0);
    return (long)info.st_size;
}

static void set_byte(long at, char byte) {
    char path[80];
    path_in(path, "definitions");
    FILE *file = fopen(path, "r+");
    cr_assert(file && fseek(file, at, SEEK_SET) == 0);
    fputc(byte, file);
    fclose(file);
}

static bool is_left_out_kept(void) {
    char path[80];
    path_in(path, "definitions.left-out");
    return access(path, R_OK) == 0;
}

Test(store_log, the_last_word_on_each_counts) {
    struct reading reading;
    open_log(&reading);
    cr_assert_eq(reading.count, 0);
    put(&reading.log, true, "x", "{1}");
    put(&reading.log, false, "x", "{2}");
    put(&reading.log, false, "y", "{3}");
    put(&reading.log, false, "x", "{4}");
    put(&reading.log, false, "z", "{5}");
    put(&reading.log, false, "y", "");
    close_log(&reading);
    expect("{4} {5} {1} "); /* services first */
}

Test(store_log, a_torn_end_is_dropped_wherever_it_is_cut) {
    struct reading reading;
    open_log(&reading);
    put(&reading.log, false, "a", "{1}");
    long whole = size_of_file();
    put(&reading.log, false, "b", "{2}");
    close_log(&reading);
    char path[80];
    path_in(path, "definitions");
    for (long size = size_of_file() - 1; size > whole; size--) {
        cr_assert_eq(truncate(path, size), 0);
        expect("{1} ");
    }
    open_log(&reading);
    cr_assert(store_log_anew(&reading.log), "nothing is appended to what is torn");
    close_log(&reading);
    cr_assert_not(is_left_out_kept(), "nothing that was acknowledged is missing");
}

Test(store_log, a_damaged_line_is_left_out_and_kept) {
    struct reading reading;
    open_log(&reading);
    put(&reading.log, false, "a", "{1}");
    long damage = size_of_file() - 3;
    put(&reading.log, false, "b", "{2}");
    close_log(&reading);
    set_byte(damage, '7');
    expect("{2} ");
    cr_assert(is_left_out_kept());
    set_byte(0, 'X');
    expect("");
}

Test(store_log, it_does_not_grow_for_ever) {
    struct reading reading;
    static char json[50000];
    memset(json, 'x', sizeof json - 1);
    open_log(&reading);
    for (int i = 0; i < 100; i++) put(&reading.log, false, "same", json);
    cr_assert_lt(size_of_file(), 2 << 20);
    close_log(&reading);
    open_log(&reading);
    cr_assert_eq(reading.count, 1);
    close_log(&reading);
}

Test(store_log, after_a_failure_everything_is_written_anew) {
    struct reading reading;
    struct buffer lines = {0};
    char path[80], away[80];
    open_log(&reading);
    put(&reading.log, false, "a", "{1}");
    path_in(path, "");
    snprintf(away, sizeof away, "%s/away", folder);
    cr_assert_eq(rename(path, away), 0);
    store_log_line(&lines, false, "b", slice_text("{2}"));
    cr_assert_neq(store_log_append(&reading.log, buffer_slice(&lines)), 0);
    cr_assert(store_log_anew(&reading.log));
    cr_assert_neq(store_log_rewrite(&reading.log, buffer_slice(&lines)), 0);
    cr_assert(store_log_anew(&reading.log));
    cr_assert_eq(rename(away, path), 0);
    write_lines(&reading.log, &lines);
    close_log(&reading);
    expect("{2} ");
}
