/* Writing the store's file out ahead of the kernel. */
#include <criterion/criterion.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "small_store.h"

#define MIB ((uint64_t)1 << 20)

static void pause_ms(long ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

/* Bytes of the file that are mapped here, changed, and not on their way to the disk. */
static uint64_t dirty_bytes(const char *path) {
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[512];
    bool ours = false;
    unsigned long kib, from, to;
    uint64_t dirty = 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) ours = strstr(line, path) != NULL;
        if (ours && (sscanf(line, "Shared_Dirty: %lu", &kib) == 1 || sscanf(line, "Private_Dirty: %lu", &kib) == 1))
            dirty += kib * 1024;
    }
    fclose(maps);
    return dirty;
}

static void put_large(struct store *store, unsigned count) {
    char *value = mem_zalloc(100000);
    for (unsigned i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "large-%u", i);
        value[0]++;
        struct store_txn *txn = store_write(store);
        store_put(txn, 1, slice_make(key, strlen(key)), slice_make(value, 100000));
        cr_assert_eq(store_commit(txn), CO_OK);
    }
    free(value);
}

/* On a disk; NULL: there is none. */
static const char *disk_folder(void) {
    static char folder[64];
    struct statfs info;
    if (statfs("/var/tmp", &info) != 0 || info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC) return NULL;
    snprintf(folder, sizeof folder, "/var/tmp/coord-test-XXXXXX");
    return mkdtemp(folder);
}

Test(store_flush, goes_round_faster_the_more_is_changed) {
    cr_expect_eq(store_flush_round_ms(1024 * MIB, 0), 20000);
    cr_expect_eq(store_flush_round_ms(1024 * MIB, MIB / 8), 16000);
    cr_expect_eq(store_flush_round_ms(1024 * MIB, MIB), 2000);
    cr_expect_eq(store_flush_round_ms(1024 * MIB, 8 * MIB), 250);
    cr_expect_eq(store_flush_round_ms(1024 * MIB, 100 * MIB), 125);
    cr_expect_eq(store_flush_round_ms(20 * MIB, 500 * MIB), 125, "a page is not written more often");
    cr_expect_eq(store_flush_round_ms(10240 * MIB, 500 * MIB), 40000, "no more than 256 MiB a second");
}

/* A call is worth it for 256 KiB to be written, which may lie far apart. */
Test(store_flush, looks_at_large_pieces_where_little_is_changed) {
    const uint64_t least = 256 << 10;
    cr_expect_eq(store_flush_piece(1024 * MIB, 0, 5 * MIB), least, "slowly, there is time");
    cr_expect_eq(store_flush_piece(1024 * MIB, 16 * MIB, 400 * MIB), 400 * MIB / 32,
                 "2 MiB of a gigabyte: 32 pieces a tick");
    cr_expect_eq(store_flush_piece(1024 * MIB, 200 * MIB, 400 * MIB), 40 * least, "25 MiB");
    cr_expect_eq(store_flush_piece(32 * MIB, 200 * MIB, 12 * MIB), least, "all of it");
}

Test(store_flush, a_small_store_is_left_to_the_kernel) {
    const char *folder = scratch_folder();
    struct store *store = open_at(folder, NULL);
    put_large(store, 20);
    put_large(store, 20);
    cr_expect_not(store->flush_runs);
    store_close(store);
    scratch_remove(folder);
}

/* Long before the kernel would: it begins after 30 s. */
Test(store_flush, a_large_one_is_written_out_and_then_it_sleeps, .timeout = 300) {
    const char *folder = disk_folder();
    if (!folder) cr_skip_test("temporary files are in memory here");
    struct store *store = open_at(folder, NULL);
    put_large(store, 250);
    cr_assert(store->flush_runs);
    uint64_t begun = clock_mono_ms();
    while (!store->flush_idle || dirty_bytes(store->file->path) > MIB / 2) {
        cr_assert(clock_mono_ms() - begun < 24000, "%llu bytes are waiting",
                  (unsigned long long)dirty_bytes(store->file->path));
        pause_ms(50);
    }
    put_committed(store, "a", "b");
    while (!store->flush_idle || store->changed_bytes > 0) pause_ms(20); /* it wakes up for that, and sleeps again */
    put_large(store, 10);
    store_close(store); /* under way */
    scratch_remove(folder);
}
