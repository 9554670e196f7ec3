/* When a store is trusted: clean closes, kills, other boots, other files. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "small_store.h"

/* The bytes of a marker; its inode and change time tell whether it was written. */
static void marker_look(const char *folder, char text[300], struct stat *info) {
    char *path = store_path(folder, "marker");
    int fd = open(path, O_RDONLY);
    cr_assert(fd >= 0);
    ssize_t got = read(fd, text, 299);
    cr_assert(got > 0);
    text[got] = '\0';
    cr_assert_eq(fstat(fd, info), 0);
    close(fd);
    free(path);
}

Test(store_trust, a_clean_close_is_trusted_and_says_so) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    put_committed(store, "k", "v");
    char text[300];
    struct stat before, after, data;
    marker_look(folder, text, &before);
    cr_assert(strstr(text, "\nboot ") && strstr(text, "\nfile "));
    store_close(store);
    char *path = store_path(folder, "data.mdb");
    cr_assert_eq(stat(path, &data), 0);
    cr_assert(data.st_size > 0 && data.st_size < 64 << 20, "the file is not as large as its map");
    marker_look(folder, text, &after);
    cr_assert(strstr(text, "\nclosed\n"));
    cr_assert(before.st_ino == after.st_ino && before.st_size == after.st_size && before.st_blocks == after.st_blocks,
              "no space is needed");
    store = open_at(folder, &trusted);
    cr_assert(trusted);
    cr_assert(has_text(store, 1, "k", "v"));
    marker_look(folder, text, &after);
    cr_assert(strstr(text, "\nboot "));
    cr_assert_eq(before.st_ino, after.st_ino);
    store_close(store);
    free(path);
    scratch_remove(folder);
}

static void overwrite(const char *folder, const char *name, const char *text) {
    char *path = store_path(folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    free(path);
}

/* A store without a marker, and one of a format in which records have no checksums, is none. */
Test(store_trust, stores_of_other_versions_are_put_aside) {
    static const char *const markers[] = {NULL, "coord store 0\nclosed\n", "coord store 2\nclosed\n"};
    for (size_t i = 0; i < 3; i++) {
        const char *folder = scratch_folder();
        bool trusted;
        struct store *store = open_at(folder, &trusted);
        put_committed(store, "k", "v");
        store_close(store);
        char *path = store_path(folder, "marker");
        cr_assert_eq(unlink(path), 0);
        if (markers[i]) overwrite(folder, "marker", markers[i]);
        store = open_at(folder, &trusted);
        cr_assert_not(trusted, "%zu", i);
        cr_assert_not(has_text(store, 1, "k", "v"));
        put_committed(store, "k", "w");
        store_close(store);
        store = open_at(folder, &trusted);
        cr_assert(trusted);
        cr_assert(has_text(store, 1, "k", "w"));
        store_close(store);
        free(path);
        scratch_remove(folder);
    }
}

Test(store_trust, what_fits_is_left_alone) {
    const char *folder = scratch_folder();
    pid_t child = fork();
    if (child == 0) {
        bool trusted;
        struct store *store = open_at(folder, &trusted);
        put_committed(store, "k", "v");
        _exit(0); /* as after a kill */
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    char text[300];
    struct stat before, after;
    marker_look(folder, text, &before);
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    cr_assert(trusted);
    cr_assert(has_text(store, 1, "k", "v"));
    marker_look(folder, text, &after);
    cr_assert(before.st_size == after.st_size && memcmp(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim) == 0);
    store_close(store);
    scratch_remove(folder);
}

/* A file that ends before the last page that its meta page names. */
Test(store_trust, a_shortened_file_is_put_aside) {
    for (int how = 0; how < 3; how++) {
        const char *folder = scratch_folder();
        bool trusted;
        struct store *store = open_at(folder, &trusted);
        char key[16], value[2001];
        memset(value, 'v', 2000);
        value[2000] = '\0';
        for (int i = 0; i < 200; i++) {
            snprintf(key, sizeof key, "key%d", i);
            put_committed(store, key, value);
        }
        off_t used = (off_t)store_bytes(store), cut = how == 0 ? 65536 : how == 1 ? used - 1 : used;
        store_close(store);
        char *path = store_path(folder, "data.mdb");
        cr_assert_eq(truncate(path, cut), 0);
        store = open_at(folder, &trusted);
        cr_assert_eq(trusted, how == 2, "cut to %lld of %lld", (long long)cut, (long long)used);
        cr_assert_eq(has_text(store, 1, "key0", value), how == 2);
        store_close(store);
        free(path);
        scratch_remove(folder);
    }
}

Test(store_trust, one_process_at_a_time) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted), *second = NULL;
    struct store_config config = scratch_config(folder, small_tables, 3);
    struct fault fault = {0};
    cr_assert_eq(store_open(&config, &second, &trusted, &fault), CO_BUSY);
    cr_assert(strstr(fault.text, folder) != NULL);
    store_close(store);
    scratch_remove(folder);
}

/* As after a power loss: a marker of another boot. */
Test(store_trust, another_boots_marker_is_not_trusted) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    put_committed(store, "k", "v");
    store_close(store);
    overwrite(folder, "marker", "coord store 1\nboot 00000000-0000-0000-0000-000000000000\nfile 1:1 1\n");
    store = open_at(folder, &trusted);
    cr_assert_not(trusted);
    cr_assert_not(has_text(store, 1, "k", "v"));
    char *aside = store_path(folder, "data.mdb.aside");
    cr_assert_eq(access(aside, F_OK), 0);
    store_close(store);
    cr_assert_neq(access(aside, F_OK), 0); /* it went with the clean close */
    free(aside);
    scratch_remove(folder);
}

Test(store_trust, another_file_under_the_name_is_not_trusted) {
    const char *folder = scratch_folder();
    pid_t child = fork();
    if (child == 0) { /* leaves its marker behind */
        bool trusted;
        struct store *store = open_at(folder, &trusted);
        put_committed(store, "k", "v");
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    char command[256];
    snprintf(command, sizeof command, "cd %s && cp --sparse=always data.mdb copy && mv copy data.mdb", folder);
    cr_assert_eq(system(command), 0);
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    cr_assert_not(trusted);
    store_close(store);
    scratch_remove(folder);
}

Test(store_trust, rubbish_is_put_aside) {
    const char *folder = scratch_folder();
    char rubbish[8193];
    memset(rubbish, 'r', sizeof rubbish - 1);
    rubbish[8192] = '\0';
    overwrite(folder, "data.mdb", rubbish);
    bool trusted = true;
    struct store *store = open_at(folder, &trusted);
    cr_assert_not(trusted);
    put_committed(store, "k", "v");
    store_close(store);
    scratch_remove(folder);
}
/* -- kills -------------------------------------------------------------------------------------------------------- */

/* Writes transactions of eighty records that say the same, telling the pipe of each that is committed. Never
 * returns. */
static _Noreturn void write_until_killed(const char *folder, uint64_t turn, bool fresh, int report) {
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    if (!trusted && !fresh) _exit(2);
    for (;; turn++) {
        struct store_txn *txn = store_write(store);
        char bytes[8], key[32];
        put_be64(bytes, turn);
        for (int i = 0; i < 40; i++) {
            snprintf(key, sizeof key, "k%d", (int)(turn % 500) * 40 + i);
            store_put(txn, 1, slice_text(key), slice_make(bytes, 8));
            snprintf(key, sizeof key, "all%d", i);
            store_put(txn, 40, slice_text(key), slice_make(bytes, 8));
        }
        if (store_commit(txn) != CO_OK || write(report, bytes, 8) != 8) _exit(3);
    }
}

/* Looks, in a process that leaves without closing: the next one finds its marker again. */
static _Noreturn void look_at_survivor(const char *folder, uint64_t last) {
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    if (!trusted) _exit(1);
    struct store_txn *txn = store_read(store_reader_new(store));
    if (store_sum(txn) != store_scrub(txn)) _exit(2);
    uint64_t first = 0;
    for (int i = 0; i < 40; i++) {
        char key[32];
        struct slice value;
        snprintf(key, sizeof key, "all%d", i);
        if (store_get(txn, 40, slice_text(key), &value) != CO_OK) _exit(3);
        if (i == 0) first = get_be64(value.data);
        if (get_be64(value.data) != first) _exit(4); /* a torn transaction */
    }
    _exit(first >= last ? 0 : 5); /* 5: a committed one is lost */
}

/* A writer killed anywhere in its commits: what it had reported is there, whole transactions only, and trusted. */
Test(store_trust, survives_being_killed, .timeout = 300) {
    const char *folder = scratch_folder();
    struct rng rng;
    rng_seed(&rng, 3);
    for (int round = 0; round < 15; round++) {
        int report[2], status;
        cr_assert_eq(pipe(report), 0);
        pid_t child = fork();
        if (child == 0) write_until_killed(folder, (uint64_t)round << 32, round == 0, report[1]);
        close(report[1]);
        char bytes[8];
        uint64_t last = 0;
        for (uint64_t turns = 1 + rng_below(&rng, 400); turns > 0; turns--) {
            cr_assert_eq(read(report[0], bytes, 8), 8, "round %d: the writer ended by itself", round);
            last = get_be64(bytes);
        }
        kill(child, SIGKILL);
        while (read(report[0], bytes, 8) == 8) last = get_be64(bytes);
        waitpid(child, NULL, 0);
        close(report[0]);
        child = fork();
        if (child == 0) look_at_survivor(folder, last);
        waitpid(child, &status, 0);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "round %d: status %x", round, status);
    }
    scratch_remove(folder);
}
