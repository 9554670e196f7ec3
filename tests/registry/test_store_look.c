/* Looking at a store: everything is found, nothing is changed, damage is named. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "small_store.h"

static const char *folder;
static char path[300];

static void begin(void) {
    folder = scratch_folder();
    snprintf(path, sizeof path, "%s/data.mdb", folder);
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    for (int i = 0; i < 500; i++) {
        char key[32];
        snprintf(key, sizeof key, "key%d", i);
        put_committed(store, key, "a value of some length, as a record has it");
    }
    store_close(store);
}
static void end(void) { scratch_remove(folder); }
TestSuite(store_look, .init = begin, .fini = end);

struct looked {
    int rv;
    bool there, trusted;
    uint64_t records, sum;
    struct fault fault;
};

static struct looked look_with(const struct store_table *tables, size_t count) {
    struct looked looked = {0};
    struct store_config config = scratch_config(folder, tables, count);
    struct store *store;
    looked.rv = store_look(&config, &store, &looked.there, &looked.trusted, &looked.fault);
    if (looked.rv != CO_OK) return looked;
    if (looked.there) looked.records = store_looked(store)->records, looked.sum = store_looked(store)->found;
    store_close(store);
    return looked;
}
static struct looked look(void) { return look_with(small_tables, 3); }

/* Names, sizes, inodes and times of all files. */
static void picture(char *room, size_t size) {
    char command[400];
    snprintf(command, sizeof command,
             "cd %s && find . -printf '%%p %%s %%i %%b %%T@ %%C@\\n' | sort && sha256sum * 2>/dev/null", folder);
    FILE *out = popen(command, "r");
    cr_assert_not_null(out);
    size_t got = fread(room, 1, size - 1, out);
    room[got] = '\0';
    pclose(out);
}

Test(store_look, finds_everything_and_changes_nothing) {
    char before[4096], after[4096];
    picture(before, sizeof before);
    struct looked looked = look();
    picture(after, sizeof after);
    cr_assert_eq(looked.rv, CO_OK, "%s", looked.fault.text);
    cr_assert_str_eq(before, after);
    cr_assert(looked.there && looked.trusted && looked.records == 500);
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    cr_assert(trusted);
    cr_assert_eq(sum_of(store), looked.sum);
    looked = look();
    cr_assert_eq(looked.rv, CO_BUSY);
    store_close(store);
}

Test(store_look, says_whether_it_is_trusted) {
    char marker[300];
    snprintf(marker, sizeof marker, "%s/marker", folder);
    FILE *file = fopen(marker, "w");
    fputs("coord store 1\nboot 00000000-0000-0000-0000-000000000000\nfile 1:1 1\n", file);
    fclose(file);
    struct looked looked = look();
    cr_assert(looked.rv == CO_OK && looked.there && !looked.trusted && looked.records == 500);
    file = fopen(marker, "w");
    fputs("coord store 0\nclosed\n", file);
    fclose(file);
    looked = look();
    cr_assert(looked.rv == CO_CORRUPT && !looked.trusted && strstr(looked.fault.text, "another version's format"));
}

Test(store_look, without_a_store) {
    cr_assert_eq(unlink(path), 0);
    struct looked looked = look();
    cr_assert(looked.rv == CO_OK && !looked.there && !looked.trusted);
    cr_assert_neq(access(path, F_OK), 0);
    close(open(path, O_RDWR | O_CREAT, 0600)); /* empty: as good as none */
    looked = look();
    cr_assert(looked.rv == CO_OK && !looked.there);
    struct store_config config = scratch_config(folder, small_tables, 3);
    config.folder = NULL;
    struct store *store;
    cr_assert_eq(store_look(&config, &store, &looked.there, &looked.trusted, NULL), CO_OK);
    cr_assert_not(looked.there);
    store_close(store);
}

Test(store_look, tables_of_other_versions) {
    struct looked looked = look_with(small_tables, 2);
    cr_assert_eq(looked.rv, CO_UNSUPPORTED);
    cr_assert(strstr(looked.fault.text, "newer version") && strstr(looked.fault.text, small_tables[2].name), "%s",
              looked.fault.text);
    struct store_table more[4];
    memcpy(more, small_tables, sizeof small_tables);
    more[3] = (struct store_table){50, "later"};
    looked = look_with(more, 4);
    cr_assert(looked.rv == CO_OK && looked.records == 500, "a table that is not there yet");
}

static void overwrite(off_t at, const char *bytes, size_t size) {
    int fd = open(path, O_RDWR);
    cr_assert_eq(pwrite(fd, bytes, size, at), (ssize_t)size);
    close(fd);
}

/* Where a text is in the file; 0: nowhere from `from` on. */
static off_t find(const char *text, off_t from) {
    static char data[8 << 20];
    int fd = open(path, O_RDONLY);
    ssize_t size = pread(fd, data, sizeof data, 0);
    close(fd);
    char *at = from < size ? memmem(data + from, (size_t)(size - from), text, strlen(text)) : NULL;
    return at ? at - data : 0;
}

Test(store_look, changed_bytes_are_found) {
    unsigned found = 0;
    for (off_t at = 0; (at = find("key77", at + 1)) > 0; found++)
        overwrite(at + 10, "?", 1); /* free pages have it too */
    cr_assert(found > 0);
    struct looked looked = look();
    cr_assert_eq(looked.rv, CO_CORRUPT);
    cr_assert(strstr(looked.fault.text, path) && strstr(looked.fault.text, "checksum"), "%s", looked.fault.text);
}

/* Records that are all as they were written, and have changed places. */
Test(store_look, keys_that_are_out_of_order_are_found) {
    for (off_t at = 0; (at = find("key77", at + 1)) > 0;) {
        char places[4], swapped[4];
        off_t first = at / 4096 * 4096 + 16;
        int fd = open(path, O_RDONLY);
        cr_assert_eq(pread(fd, places, sizeof places, first), (ssize_t)sizeof places);
        close(fd);
        memcpy(swapped, places + 2, 2);
        memcpy(swapped + 2, places, 2);
        overwrite(first, swapped, sizeof swapped);
    }
    struct looked looked = look();
    cr_assert_eq(looked.rv, CO_CORRUPT);
    cr_assert(strstr(looked.fault.text, " at offset ") && strstr(looked.fault.text, "not in order"), "%s",
              looked.fault.text);
}

/* Behind it the file holds nothing. */
static off_t last_page(void) {
    static char page[4096];
    int fd = open(path, O_RDONLY);
    off_t last = 0;
    for (off_t at = 0; pread(fd, page, sizeof page, at) == (ssize_t)sizeof page; at += (off_t)sizeof page)
        for (size_t i = 0; i < sizeof page; i++)
            if (page[i]) last = at;
    close(fd);
    return last;
}

/* LMDB walked such pages for ever, or died of them. */
Test(store_look, noise_is_found) {
    struct rng rng;
    rng_seed(&rng, 7);
    off_t last = last_page();
    static char kept[4096], noise[4096];
    unsigned found = 0;
    for (int round = 0; round < 400; round++) {
        off_t at = 4096 * (2 + (off_t)rng_below(&rng, (uint64_t)last / 4096 - 1));
        int fd = open(path, O_RDWR);
        cr_assert_eq(pread(fd, kept, sizeof kept, at), (ssize_t)sizeof kept);
        memcpy(noise, kept, sizeof noise);
        /* All of it, or some of its bytes: most numbers in it make sense then. */
        uint64_t bytes = round % 2 ? sizeof noise : 1 + rng_below(&rng, 8);
        for (uint64_t i = 0; i < bytes; i++)
            noise[bytes == sizeof noise ? i : rng_below(&rng, 64)] = (char)rng_next(&rng);
        cr_assert_eq(pwrite(fd, noise, sizeof noise, at), (ssize_t)sizeof noise);
        struct looked looked = look();
        cr_assert(looked.rv == CO_OK || looked.rv == CO_CORRUPT || looked.rv == CO_UNSUPPORTED, "%d %s", looked.rv,
                  looked.fault.text);
        found += looked.rv != CO_OK;
        cr_assert_eq(pwrite(fd, kept, sizeof kept, at), (ssize_t)sizeof kept);
        close(fd);
    }
    cr_assert(found > 20, "the others lie in pages that are free: %u", found);
    cr_assert_eq(look().rv, CO_OK);
}

Test(store_look, a_shortened_file_is_found) {
    static const off_t sizes[] = {1, 4096, 8192, 65536};
    for (size_t i = ARRAY_COUNT(sizes); i-- > 0;) {
        cr_assert_eq(truncate(path, sizes[i]), 0);
        struct looked looked = look();
        cr_assert_eq(looked.rv, CO_CORRUPT, "%lld: %s", (long long)sizes[i], looked.fault.text);
        cr_assert(strstr(looked.fault.text, path));
    }
}
