/* Damage to a store's file, page by page: what is opened is what was written, or it is put aside. And in a store that
 * is open: what is read is what was written, or an error. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "catalog_specs.h"
#include "small_store.h"

#define PAGE  ((size_t)4096)
#define KEYS  150
#define ROOM  12000
#define TURNS 2 /* with each kind of damage to each page: after a stop, and after a kill */
#define DATA  "data.mdb"
#if defined(COORD_ASAN) || defined(COORD_TSAN)
#define STRIDE 7
#else
#define STRIDE 1
#endif

/* -- what is in it ------------------------------------------------------------------------------------------------ */

static uint8_t table_of(int i) { return small_tables[i % 5 ? 0 : i % 2 + 1].number; }

/* Of all sizes, some with pages of their own; every seventh is gone again. */
static size_t value_of(int i, char value[ROOM]) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)i + 1);
    size_t size = i % 16 == 3 ? 2000 + rng_below(&rng, ROOM - 2000) : rng_below(&rng, i % 4 ? 100 : 1400);
    for (size_t at = 0; at < size; at++) value[at] = (char)rng_next(&rng);
    return size;
}

static bool is_gone(int i) { return i % 7 == 6; }

static struct slice key_of(int i, char key[32]) {
    return slice_make(key, (size_t)snprintf(key, 32, "some-key/%04d", i));
}

static void put_all(struct store_txn *txn, int from, int to, bool last) {
    char key[32];
    static char value[ROOM];
    for (int i = from; i < to; i++) {
        size_t size = value_of(i, value);
        if (!last) size = (size * 7 + 13) % 3000, memset(value, 'o', size);
        store_put(txn, table_of(i), key_of(i, key), slice_make(value, size));
    }
}

static void fill(struct store *store) {
    char key[32];
    for (int round = 0; round < 6; round++) { /* values that are replaced leave free pages */
        struct store_txn *txn = store_write(store);
        put_all(txn, round * KEYS / 6, (round + 1) * KEYS / 6, false);
        cr_assert_eq(store_commit(txn), CO_OK);
        txn = store_write(store);
        put_all(txn, round * KEYS / 6, (round + 1) * KEYS / 6, true);
        put_text(txn, STORE_TABLE_META, "applied", "0123456789abcdef");
        cr_assert_eq(store_commit(txn), CO_OK);
    }
    struct store_txn *txn = store_write(store);
    for (int i = 0; i < KEYS; i++)
        if (is_gone(i)) cr_assert(store_del(txn, table_of(i), key_of(i, key)));
    cr_assert_eq(store_commit(txn), CO_OK);
}

/* Why it is not what was written; NULL: it is. `open`: what cannot be read, with an error, is no matter. */
static const char *differs(struct store_txn *txn, bool open) {
    char key[32];
    static char value[ROOM];
    for (int i = 0; i < KEYS; i++) {
        struct slice found;
        int rv = store_get(txn, table_of(i), key_of(i, key), &found);
        if (open && store_txn_error(txn)) return NULL;
        if (rv == CO_NOTFOUND && is_gone(i)) continue;
        if (rv != CO_OK) return "a record cannot be read";
        if (is_gone(i)) return "a removed record is there";
        if (!slice_equal(found, slice_make(value, value_of(i, value)))) return "a value is another";
    }
    return NULL;
}

static const char *differs_in_order(struct store_txn *txn, bool open) {
    char key[32];
    static char value[ROOM];
    const char *why = NULL;
    for (size_t t = 0; t < ARRAY_COUNT(small_tables); t++) {
        struct store_cursor cursor;
        uint64_t count = 0;
        int i = -1;
        for (store_cursor_open(&cursor, txn, small_tables[t].number, slice_make("", 0)); cursor.valid;
             store_cursor_next(&cursor), count++) {
            do i++;
            while (i < KEYS && (is_gone(i) || table_of(i) != small_tables[t].number ||
                                (open && !slice_equal(cursor.key, key_of(i, key)))));
            if (i >= KEYS || !slice_equal(cursor.key, key_of(i, key))) why = "a key is another";
            else if (!slice_equal(cursor.value, slice_make(value, value_of(i, value)))) why = "a value is another";
        }
        store_cursor_close(&cursor);
        if (open && store_txn_error(txn)) return NULL; /* nothing of it is used */
        if (!open && count != store_count(txn, small_tables[t].number)) why = "records are missing";
    }
    return why;
}

static const char *read_all(struct store *store, bool open) {
    struct store_reader *reader = store_reader_new(store);
    struct store_txn *txn = store_read(reader);
    const char *why = differs(txn, open);
    if (!why) why = differs_in_order(txn, open);
    if (!why && !open && store_sum(txn) != store_scrub(txn)) why = "the sum is another";
    if (!why && !open && store_txn_error(txn)) why = "a read failed";
    store_read_done(reader);
    store_reader_free(reader);
    return why;
}

/* -- damage ------------------------------------------------------------------------------------------------------- */

enum damage { BITS, HEADER, PLACES, LAST_BYTES, FORTY_BYTES, ZEROES, NOISE, OTHER_PAGE, OTHER_NUMBERED, DAMAGES };

static char *whole; /* the file as it was closed */
static size_t whole_size, used_pages;

/* Of processes that are made for one damage each. */
static struct progress {
    char what[200];
    size_t trusted[DAMAGES], met;
} * progress;

/* Hides the store's messages about the damage. */
static void be_quiet(void) {
    int nowhere = open("/dev/null", O_WRONLY);
    CHECK(nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
}

static void flip(struct rng *rng, char *page, size_t from, size_t to, unsigned most) {
    for (uint64_t bits = 1 + rng_below(rng, most); bits > 0; bits--)
        page[from + rng_below(rng, to - from)] ^= (char)(1 << rng_below(rng, 8));
}

static void damage_page(struct rng *rng, size_t number, enum damage kind, char page[PAGE]) {
    const char *other = whole + rng_below(rng, used_pages) * PAGE;
    size_t at;
    memcpy(page, whole + number * PAGE, PAGE);
    switch (kind) {
        case BITS: flip(rng, page, 0, PAGE, 8); break;
        case HEADER: flip(rng, page, 0, 16, 2); break;
        case PLACES: flip(rng, page, 16, 64, 3); break;
        case LAST_BYTES: flip(rng, page, PAGE - 64, PAGE, 8); break;
        case FORTY_BYTES:
            at = rng_below(rng, PAGE - 40);
            for (size_t i = 0; i < 40; i++) page[at + i] ^= 0x55;
            break;
        case ZEROES: memset(page, 0, PAGE); break;
        case NOISE:
            for (size_t i = 0; i < PAGE; i++) page[i] = (char)rng_next(rng);
            break;
        case OTHER_PAGE: memcpy(page, other, PAGE); break;
        case OTHER_NUMBERED: memcpy(page + 8, other + 8, PAGE - 8); break;
        case DAMAGES: break;
    }
}

static void write_file(const char *path, const char *bytes, size_t size) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
    close(fd);
}

/* As a process leaves it that is stopped, or killed. */
static void leave(const char *folder, const char *bytes, size_t size, bool killed) {
    char *path = store_path(folder, DATA);
    write_file(path, bytes, size);
    struct stat info;
    CHECK(stat(path, &info) == 0);
    CHECK((killed ? store_marker_write(folder, &info, NULL) : store_marker_close(folder, NULL)) == CO_OK);
    free(path);
}

static const char *folder;

static void make(void) {
    folder = scratch_folder();
    progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(progress, MAP_FAILED);
    struct store *store = open_at(folder, NULL);
    fill(store);
    cr_assert_null(read_all(store, false));
    struct store_scrubbed seen;
    struct fault fault = {0};
    cr_assert_eq(store_examine(store, NULL, NULL, &seen, &fault), CO_OK, "%s", fault.text);
    used_pages = store_bytes(store) / PAGE;
    cr_assert(seen.pages + 2 < used_pages, "some pages are free");
    store_close(store);
    char *path = store_path(folder, DATA);
    struct stat info;
    cr_assert_eq(stat(path, &info), 0);
    whole_size = (size_t)info.st_size;
    whole = malloc(whole_size);
    int fd = open(path, O_RDONLY);
    cr_assert_eq(pread(fd, whole, whole_size, 0), (ssize_t)whole_size);
    close(fd);
    free(path);
}

static void unmake(void) {
    free(whole);
    munmap(progress, sizeof *progress);
    scratch_remove(folder);
}
TestSuite(store_damage, .init = make, .fini = unmake, .timeout = 300);

/* -- opening ------------------------------------------------------------------------------------------------------ */

/* Every page is written again, and free ones are used. */
static const char *change_all(struct store *store) {
    char key[32];
    for (int round = 0; round < 6; round++) { /* what is freed is used again by the second after it */
        struct store_txn *txn = store_write(store);
        put_all(txn, 0, KEYS, round % 2);
        for (int i = 0; i < KEYS; i++)
            if (is_gone(i)) (void)store_del(txn, table_of(i), key_of(i, key));
        if (store_commit(txn) != CO_OK) return "a change fails";
    }
    return read_all(store, false);
}

static bool is_empty(struct store *store) {
    struct store_reader *reader = store_reader_new(store);
    struct store_txn *txn = store_read(reader);
    uint64_t records = 0;
    for (size_t t = 0; t < ARRAY_COUNT(small_tables); t++) records += store_count(txn, small_tables[t].number);
    store_read_done(reader);
    store_reader_free(reader);
    return records == 0;
}

/* The result of the next start: 0: not trusted; 1: all of it is right, and it works. Ends the process otherwise. */
static int open_and_use(void) {
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    const char *why = NULL;
    if (trusted) why = read_all(store, false);
    else if (!is_empty(store)) why = "what is not trusted is not empty";
    if (trusted && !why) why = change_all(store);
    if (!why && store_damaged(store)) why = "damage is met";
    store_close(store);
    if (why) {
        size_t at = strlen(progress->what);
        snprintf(progress->what + at, sizeof progress->what - at, ": %s", why);
        _exit(2);
    }
    return trusted;
}

static void open_each(size_t number) {
    static const char *const names[] = {"bits",   "header", "places",     "last bytes",    "forty bytes",
                                        "zeroes", "noise",  "other page", "other numbered"};
    char *bytes = malloc(whole_size);
    struct rng rng;
    rng_seed(&rng, number);
    be_quiet();
    for (int turn = 0; turn < DAMAGES * TURNS; turn++) {
        enum damage kind = (enum damage)(turn % DAMAGES);
        bool same, killed = turn / DAMAGES % 2;
        memcpy(bytes, whole, whole_size);
        damage_page(&rng, number, kind, bytes + number * PAGE);
        same = memcmp(bytes, whole, whole_size) == 0;
        snprintf(progress->what, sizeof progress->what, "page %zu: %s, turn %d", number, names[kind], turn);
        leave(folder, bytes, whole_size, killed);
        int trusted = open_and_use();
        if (same && !trusted) _exit(3);
        progress->trusted[kind] += trusted && !same;
    }
    free(bytes);
}

Test(store_damage, of_each_page_is_found_before_lmdb_sees_it) {
    for (size_t number = 0; number < used_pages; number += STRIDE) {
        pid_t pid = fork();
        if (pid == 0) {
            open_each(number);
            _exit(0);
        }
        int status;
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %x", progress->what, status);
    }
    leave(folder, whole, whole_size, false);
    cr_assert_eq(open_and_use(), 1);
    /* Only bytes that nothing refers to may be anything. */
    struct store_scrubbed seen;
    struct fault fault = {0};
    leave(folder, whole, whole_size, false);
    struct store *store = open_at(folder, NULL);
    cr_assert_eq(store_examine(store, NULL, NULL, &seen, &fault), CO_OK);
    store_close(store);
    size_t free_pages = used_pages - 2 - seen.pages;
    cr_log_info("%zu pages, %zu of them free", used_pages, free_pages);
    if (STRIDE == 1) cr_assert_eq(progress->trusted[ZEROES], free_pages * TURNS);
    if (STRIDE == 1) cr_assert_eq(progress->trusted[NOISE], free_pages * TURNS);
    cr_assert_leq(progress->trusted[OTHER_PAGE], free_pages * TURNS);
    cr_assert_leq(progress->trusted[OTHER_NUMBERED], free_pages * TURNS);
}

Test(store_damage, of_a_file_that_is_shorter_or_of_its_marker) {
    for (size_t pages = 0; pages <= used_pages; pages++) {
        leave(folder, whole, pages * PAGE, pages % 2);
        cr_assert_eq(open_and_use(), pages == used_pages, "%zu of %zu pages", pages, used_pages);
    }
    char *path = store_path(folder, "marker"), bytes[256];
    for (int turn = 0; turn < 200; turn++) {
        struct rng rng;
        rng_seed(&rng, (uint64_t)turn);
        leave(folder, whole, whole_size, turn % 2);
        int fd = open(path, O_RDWR);
        cr_assert_eq(pread(fd, bytes, sizeof bytes, 0), (ssize_t)sizeof bytes);
        if (turn % 10 == 0) memset(bytes, 0, sizeof bytes);
        else if (turn % 10 == 1) cr_assert_eq(ftruncate(fd, turn), 0);
        else flip(&rng, bytes, 0, sizeof bytes, 8);
        if (turn % 10 != 1) cr_assert_eq(pwrite(fd, bytes, sizeof bytes, 0), (ssize_t)sizeof bytes);
        close(fd);
        (void)open_and_use();
    }
    free(path);
}

/* LMDB would overwrite a page in use because of such a list; the reader of that page finds it out. */
Test(store_damage, of_a_list_of_free_pages_that_names_one_in_use) {
    char *bytes = malloc(whole_size);
    size_t lists = 0;
    for (size_t number = 2; number < used_pages; number++) { /* any that looks like the leaf of such a list */
        const char *page = whole + number * PAGE;
        size_t place = (unsigned char)page[16] | (size_t)(unsigned char)page[17] << 8;
        if (page[10] != 2 || place + 32 > PAGE || get_le32(page + place) % 8 || page[place + 6] != 8) continue;
        uint64_t count = get_le64(page + place + 16);
        if (count == 0 || count > PAGE / 8 || place + 24 + count * 8 > PAGE) continue;
        uint64_t last = get_le64(page + place + 16 + 8 * count);
        if (last < 3 || last >= used_pages) continue;
        lists++;
        for (uint64_t in_use = last - 1; in_use > 1; in_use -= 1 + in_use / 8) {
            memcpy(bytes, whole, whole_size);
            put_le64(bytes + number * PAGE + place + 16 + 8 * count, in_use);
            snprintf(progress->what, sizeof progress->what, "list in page %zu, page %d", number, (int)in_use);
            leave(folder, bytes, whole_size, false);
            pid_t pid = fork();
            if (pid == 0) {
                be_quiet();
                open_and_use();
                _exit(0);
            }
            int status;
            cr_assert_eq(waitpid(pid, &status, 0), pid);
            cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %x", progress->what, status);
        }
    }
    cr_assert_gt(lists, 0);
    free(bytes);
}

/* -- while it is open --------------------------------------------------------------------------------------------- */

/* A page is damaged under a store that is open, and all is read. Signals are LMDB's answer to some of it. (Whole pages
 * in the places of others are left out: records that were once written are what is in them.) */
static _Noreturn void read_damaged(size_t number, int turn) {
    struct rng rng;
    rng_seed(&rng, number * 1000 + (uint64_t)turn);
    for (int i = 0; i < 2; i++) signal(i ? SIGABRT : SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    store_watch_crashes(folder);
    be_quiet();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    char *path = store_path(folder, DATA), page[PAGE];
    damage_page(&rng, number, (enum damage)turn, page);
    int fd = open(path, O_RDWR);
    CHECK(trusted && fd >= 0 && pwrite(fd, page, PAGE, (off_t)(number * PAGE)) == (ssize_t)PAGE);
    alarm(20); /* it does not come back */
    const char *why = read_all(store, true);
    snprintf(progress->what, sizeof progress->what, "%s", why ? why : "");
    progress->met += store_damaged(store);
    _exit(why ? 2 : 0);
}

Test(store_damage, in_an_open_store_gives_an_error_and_no_other_value) {
    size_t signals = 0;
    for (size_t number = 2; number < used_pages; number += STRIDE) {
        for (int turn = 0; turn < OTHER_PAGE; turn++) {
            leave(folder, whole, whole_size, turn % 2);
            pid_t pid = fork();
            if (pid == 0) read_damaged(number, turn);
            int status;
            cr_assert_eq(waitpid(pid, &status, 0), pid);
            cr_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "page %zu, turn %d: %s (%x)", number, turn,
                      progress->what, status);
            signals += WIFSIGNALED(status);
            (void)open_and_use();
        }
    }
    cr_log_info("%zu times LMDB ended the process, %zu times damage was met", signals, progress->met);
    cr_assert_gt(progress->met, used_pages / STRIDE);
}

/* -- crashes ------------------------------------------------------------------------------------------------------ */

static void die(bool while_opening) {
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        store_watch_crashes(folder);
        if (while_opening) {
            store_crash_opening(true);
            abort();
        }
        (void)open_at(folder, NULL);
        abort();
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%x", status);
}

/* Whatever it is that the examination does not see. */
Test(store_damage, that_nobody_sees_ends_no_more_than_two_processes) {
    leave(folder, whole, whole_size, true);
    die(false);
    cr_assert_eq(store_crashes(folder), 1);
    cr_assert_eq(open_and_use(), 1);
    cr_assert_eq(store_crashes(folder), 0, "closed cleanly");
    leave(folder, whole, whole_size, true);
    die(false);
    die(false);
    cr_assert_eq(open_and_use(), 0);
    cr_assert_eq(store_crashes(folder), 0, "it is another store");
    leave(folder, whole, whole_size, true);
    die(true);
    cr_assert_eq(open_and_use(), 0);
}

/* -- large ones --------------------------------------------------------------------------------------------------- */

static void flip_behind(const char *in, const char *text, size_t size) {
    char *path = store_path(in, DATA);
    int fd = open(path, O_RDWR);
    struct stat info;
    cr_assert(fd >= 0 && fstat(fd, &info) == 0);
    char *bytes = malloc((size_t)info.st_size), *at = bytes;
    cr_assert_eq(pread(fd, bytes, (size_t)info.st_size, 0), (ssize_t)info.st_size);
    size_t found = 0;
    for (; (at = memmem(at, (size_t)(bytes + info.st_size - at), text, size)); at += size, found++) at[size] ^= 1;
    cr_assert_gt(found, 0);
    cr_assert_eq(pwrite(fd, bytes, (size_t)info.st_size, 0), (ssize_t)info.st_size);
    close(fd);
    free(bytes);
    free(path);
}

/* One that is not read to its end before it is opened: what the machine learns from it first is right, or it is not
 * trusted; the rest is met by who reads it. */
Test(store_damage, in_a_store_that_was_not_read_to_its_end) {
    static const struct module_entry modules[] = {{.module = &catalog_module}, {0}};
    static const char applied[] = "\0applied";
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 3; i++) {
        fixture_register(&f, i ? "node=a addr=10.0.0.2 service=web:web:80" : "node=a addr=10.0.0.1");
        store_reader_free(f.reader);
        machine_close(f.machine);
        if (i == 1) flip_behind(f.folder, "10.0.0.", 7);
        if (i == 2) flip_behind(f.folder, applied, sizeof applied - 1);
        struct machine_config config = {.store = scratch_config(f.folder, NULL, 0), .modules = modules};
        config.store.examine_bytes = 1;
        struct fault fault = {0};
        cr_assert_eq(machine_open(&config, &f.machine, &fault), CO_OK, "%s", fault.text);
        f.reader = store_reader_new(machine_store(f.machine));
        cr_assert_eq(machine_applied(f.machine), i == 2 ? 0 : (uint64_t)i + 1);
        cr_assert_eq(store_examined(machine_store(f.machine)), i == 2, "it has to be looked at");
        Pb__NameRequest request = PB__NAME_REQUEST__INIT;
        request.name = "a";
        struct query_result result = {0};
        struct store_txn *txn = store_read(f.reader);
        int rv = query_node_services.run(txn, &request.base, &f.arena, &result);
        cr_assert_eq(store_txn_error(txn), i == 1 ? CO_CORRUPT : CO_OK);
        cr_assert_eq(rv == CO_OK && result.found, i == 0, "%d: %d", i, rv);
        store_read_done(f.reader);
        if (i == 1) { /* and the machine would have it rebuilt */
            cr_assert(store_damaged(machine_store(f.machine)));
            store_reader_free(f.reader);
            cr_assert_eq(machine_reset(f.machine, &fault), CO_OK, "%s", fault.text);
            cr_assert_not(store_damaged(machine_store(f.machine)));
            f.reader = store_reader_new(machine_store(f.machine));
        }
        fixture_forget(&f);
    }
    fixture_close(&f);
}
