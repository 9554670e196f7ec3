/* The cost of an append: CPU per entry (the writer's thread, kernel included) and time per group, on a real disk; and
 * our own part alone, over a disk that does nothing.
 *
 *     bench_wal FOLDER [SECONDS]       FOLDER lies on the disk to be measured; a folder made in it is used
 * and removed */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "consensus/wal.h"

#define ENTRY_BYTES 150
#define GROUP_MAX   256

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* -- the real disk, and the same without writes and syncs -- */

static struct disk *real;
static struct disk_ops idle_ops;
static int idle_write(struct disk *disk, disk_file file, uint64_t offset, const void *data, size_t size) {
    (void)disk, (void)file, (void)offset, (void)data, (void)size;
    return CO_OK;
}
static int idle_sync(struct disk *disk, disk_file file) {
    (void)disk, (void)file;
    return CO_OK;
}

static void remove_folder(const char *folder) {
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.') unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir) closedir(dir);
    rmdir(folder);
}

/* -- one measurement -- */

struct figures {
    double cpu_ns, group_us; /* per entry; per group, median */
    uint64_t entries;
};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static struct figures measure(struct wal *wal, size_t group, double duration) {
    static double times[1 << 20];
    struct raft_data *data = raft_data_new(NULL, ENTRY_BYTES);
    memset(data->bytes, 'x', ENTRY_BYTES);
    struct raft_entry entries[GROUP_MAX];
    uint64_t next = wal_last_index(wal) + 1, count = 0;
    size_t groups = 0;
    double cpu = 0, end = seconds(CLOCK_MONOTONIC) + duration;
    while (seconds(CLOCK_MONOTONIC) < end && groups < ARRAY_COUNT(times)) {
        for (size_t i = 0; i < group; i++)
            entries[i] = (struct raft_entry){.index = next++, .term = 1, .type = RAFT_ENTRY_COMMAND, .data = data};
        struct wal_batch batch = {.entries = entries, .entry_count = group};
        struct fault fault = {0};
        double cpu_begin = seconds(CLOCK_THREAD_CPUTIME_ID), begin = seconds(CLOCK_MONOTONIC);
        int rv = wal_append(wal, &batch, 1, &fault);
        times[groups++] = seconds(CLOCK_MONOTONIC) - begin;
        cpu += seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_begin;
        if (rv != CO_OK) {
            fprintf(stderr, "bench_wal: %s\n", fault.text);
            exit(1);
        }
        count += group;
        wal_prepare(wal); /* not measured: done while nothing waits */
        if (groups % 1024 == 0) wal_drop(wal, next - 1);
    }
    qsort(times, groups, sizeof *times, by_value);
    raft_data_unref(data);
    return (struct figures){cpu / (double)count * 1e9, times[groups / 2] * 1e6, count};
}

static struct wal *open_log(struct disk *disk) {
    struct wal *wal;
    struct wal_config config = {0};
    struct wal_recovered recovered;
    struct fault fault = {0};
    if (wal_open(disk, &config, 0, &wal, &recovered, &fault) != CO_OK) {
        fprintf(stderr, "bench_wal: %s\n", fault.text);
        exit(1);
    }
    wal_recovered_free(&recovered);
    return wal;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_wal FOLDER [SECONDS]\n");
        return 2;
    }
    double duration = argc > 2 ? atof(argv[2]) : 3;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/bench-wal-%d", argv[1], (int)getpid());
    static const size_t groups[] = {1, 16, 64, 256};
    printf("%d-byte entries   group   CPU ns/entry   µs/group (median)   entries\n", ENTRY_BYTES);
    for (int idle = 0; idle < 2; idle++) {
        if (disk_posix_open(folder, &real) != CO_OK) {
            fprintf(stderr, "bench_wal: cannot use %s\n", folder);
            return 1;
        }
        if (idle) {
            idle_ops = *real->ops;
            idle_ops.write = idle_write;
            idle_ops.sync = idle_sync;
            real->ops = &idle_ops;
        }
        struct wal *wal = open_log(real);
        for (size_t i = 0; i < ARRAY_COUNT(groups); i++) {
            struct figures f = measure(wal, groups[i], idle ? duration / 10 : duration);
            printf("%-17s %5zu   %12.0f   %17.1f   %7llu\n", idle ? "no disk" : "real disk", groups[i], f.cpu_ns,
                   f.group_us, (unsigned long long)f.entries);
        }
        wal_close(wal);
        disk_posix_close(real);
        remove_folder(folder);
    }
    return 0;
}
