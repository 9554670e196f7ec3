/* The log with its threads: one appends and truncates and drops, one makes segments ready, two read. A plain main,
 * so that it runs under the thread sanitizer. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/random.h"
#include "consensus/wal.h"

#define ENTRIES 12000u
#define KEPT    3000u

static struct wal *wal;
static atomic_bool writing = true;
static _Atomic uint64_t stable; /* entries up to here are never truncated */
static atomic_uint read_count, segments_made;

static void fill(uint64_t index, char *bytes, uint32_t size) {
    for (uint32_t i = 0; i < size; i++) bytes[i] = (char)(index * 31 + i);
}

static uint32_t size_of(uint64_t index) { return (uint32_t)(index * 7919 % 300); }

static struct raft_entry entry_of(uint64_t index) {
    struct raft_data *data = raft_data_new(NULL, size_of(index));
    fill(index, data->bytes, data->size);
    return (struct raft_entry){.index = index, .term = 1, .type = RAFT_ENTRY_COMMAND, .data = data};
}

static void *write_all(void *arg) {
    (void)arg;
    struct rng rng;
    rng_seed(&rng, 1);
    for (uint64_t next = 1; next <= ENTRIES;) {
        struct raft_entry entries[32];
        struct wal_batch batch = {.entries = entries, .entry_count = rng_between(&rng, 1, 32)};
        if (rng_below(&rng, 8) == 0) {
            batch.truncate_from = rng_between(&rng, atomic_load(&stable) + 1, next);
            next = batch.truncate_from;
        }
        for (size_t i = 0; i < batch.entry_count; i++) entries[i] = entry_of(next++);
        struct fault fault = {0};
        CHECK(wal_append(wal, &batch, 1, &fault) == CO_OK);
        for (size_t i = 0; i < batch.entry_count; i++) raft_data_unref(entries[i].data);
        if (next > 100 && next - 100 > atomic_load(&stable)) atomic_store(&stable, next - 100);
        while (rng_below(&rng, 16) == 0 && next > KEPT) {
            int rv = wal_drop(wal, next - KEPT);
            CHECK(rv == CO_OK || rv == CO_AGAIN);
        }
    }
    atomic_store(&writing, false);
    return NULL;
}

static void *prepare_all(void *arg) {
    (void)arg;
    while (atomic_load(&writing)) {
        int rv = wal_prepare(wal);
        CHECK(rv == CO_OK || rv == CO_AGAIN);
        if (rv == CO_AGAIN) atomic_fetch_add(&segments_made, 1);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return NULL;
}

static void check_entry(const struct raft_entry *entry, uint64_t index) {
    char bytes[512];
    uint32_t size = size_of(index);
    fill(index, bytes, size);
    CHECK(entry->index == index && entry->term == 1);
    CHECK(slice_equal(raft_entry_bytes(entry), slice_make(bytes, size)));
}

static void *read_all(void *arg) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)(uintptr_t)arg);
    while (atomic_load(&writing)) {
        uint64_t last = atomic_load(&stable), first = wal_first_index(wal);
        CHECK(wal_has_room(wal, 1000));
        if (first > last) continue;
        uint64_t from = rng_between(&rng, first, last);
        struct raft_entry *entries;
        size_t count;
        int rv = wal_read(wal, from, last, 5000, &entries, &count);
        if (rv == CO_NOTFOUND) continue; /* dropped meanwhile */
        CHECK(rv == CO_OK && count > 0);
        for (size_t i = 0; i < count; i++) {
            check_entry(&entries[i], from + i);
            raft_data_unref(entries[i].data);
        }
        free(entries);
        atomic_fetch_add(&read_count, 1);
    }
    return NULL;
}

int main(void) {
    char folder[] = "/tmp/coord-wal-XXXXXX", command[64];
    CHECK(mkdtemp(folder));
    struct disk *disk;
    CHECK(disk_posix_open(folder, &disk) == CO_OK);
    struct wal_config config = {.first_segment_bytes = 65536, .segment_bytes = 512 << 10};
    struct wal_recovered recovered;
    struct fault fault = {0};
    CHECK(wal_open(disk, &config, 0, &wal, &recovered, &fault) == CO_OK);
    wal_recovered_free(&recovered);

    pthread_t threads[4];
    CHECK(pthread_create(&threads[0], NULL, write_all, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, prepare_all, NULL) == 0);
    CHECK(pthread_create(&threads[2], NULL, read_all, (void *)1) == 0);
    CHECK(pthread_create(&threads[3], NULL, read_all, (void *)2) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    uint64_t last = wal_last_index(wal), first = wal_first_index(wal);
    CHECK(last >= ENTRIES && first > 1 && atomic_load(&read_count) > 0 && atomic_load(&segments_made) > 0);
    wal_close(wal);

    CHECK(wal_open(disk, &config, first - 1, &wal, &recovered, &fault) == CO_OK);
    CHECK(recovered.last_index == last && recovered.entry_count == last - first + 1);
    for (size_t i = 0; i < recovered.entry_count; i++) check_entry(&recovered.entries[i], first + i);
    wal_recovered_free(&recovered);
    wal_close(wal);
    disk_posix_close(disk);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    printf("%u reads while %llu entries were written\n", atomic_load(&read_count), (unsigned long long)last);
    return 0;
}
