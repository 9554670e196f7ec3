/* A disk in memory that behaves as badly as a real one may (consensus/disk.h), for unit tests and the simulator.
 * Everything that it decides comes from its seed and the calls made: same seed, same calls, same result.
 *
 * Kept apart, for each file and 512-byte sector: the bytes that a reader sees (the page cache) and those that the
 * medium holds.
 *   - write, allocate and truncate change the cache; sync brings the file's sectors and size to the medium.
 *   - Sectors that were never written read as zeros, also after a crash (no stale blocks of other files).
 *   - A sector that is written again before a sync may have reached the medium in between (a coin).
 *   - create, rename and remove change the cached folder; sync_folder brings them to the medium. After a
 * power loss some prefix of those not synced has happened.
 *   - A failed sync: each dirty sector reached the medium or did not (a coin), and none is dirty any more: a
 * later sync succeeds and writes nothing of them. Readers go on seeing the cached ones, until the crash
 * after.
 *
 * One thread at a time. */
#ifndef COORD_TESTS_LIB_FAKE_DISK_H
#define COORD_TESTS_LIB_FAKE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "consensus/disk.h"

#define FAKE_DISK_SECTOR 512

struct fake_disk;

struct fake_disk *fake_disk_new(uint64_t seed);
void fake_disk_free(struct fake_disk *fake);         /* accepts NULL */
struct disk *fake_disk_disk(struct fake_disk *fake); /* what the code under test gets; lives as long as `fake` */
/* A copy of everything (files, cache, medium, faults to come), going on with another seed. No file is open in it. */
struct fake_disk *fake_disk_clone(const struct fake_disk *fake, uint64_t seed);

/* -- crashes ------------------------------------------------------------------------------------------------------ */
enum fake_crash {
    /* the process dies: the cache stays, except sectors that a failed sync dropped (a coin each) */
    FAKE_KILL,
    /* the machine dies: of what is not synced any subset of sectors and a prefix of folder changes stays */
    FAKE_POWER_LOSS,
};
/* All handles are closed (using one still is CO_IO), pending faults are cleared, the disk works again (full stays
 * full). */
void fake_disk_crash(struct fake_disk *fake, enum fake_crash how);
/* From the n-th next operation on (1: the very next) every one fails with CO_IO, as if the process had died in it: a
 * write of that moment is a short one, a sync brought some of the sectors to the medium. 0: never. To be followed by
 * fake_disk_crash(). Opening, closing, reading, listing and sizes do not count. */
void fake_disk_halt_after(struct fake_disk *fake, uint64_t operations);
bool fake_disk_halted(const struct fake_disk *fake);

/* -- faults ------------------------------------------------------------------------------------------------------- */
enum fake_op { /* bits */
               FAKE_OPEN = 1,
               FAKE_READ = 2,
               FAKE_WRITE = 4,
               FAKE_SYNC = 8,
               FAKE_ALLOCATE = 16,
               FAKE_TRUNCATE = 32,
               FAKE_RENAME = 64,
               FAKE_REMOVE = 128,
               FAKE_SYNC_FOLDER = 256,
               FAKE_ANY_CHANGE = FAKE_WRITE | FAKE_SYNC | FAKE_ALLOCATE | FAKE_TRUNCATE | FAKE_RENAME | FAKE_REMOVE |
                                 FAKE_SYNC_FOLDER,
};
/* The n-th next operation of these kinds (1: the very next) fails with `error` (CO_IO, CO_DISKFULL), once. A failing
 * write is a short one: some of its sectors, from the first on, are changed. One such fault at a time; n 0 clears
 * it. */
void fake_disk_fail(struct fake_disk *fake, unsigned ops, uint64_t n, int error);
/* Capacity in bytes over all files (counted in blocks of 4096); 0: no limit (free_bytes says 1 TiB). Files that are
 * larger already stay; what would grow beyond gets CO_DISKFULL (a write: after a part of it). */
void fake_disk_set_capacity(struct fake_disk *fake, uint64_t bytes);
uint64_t fake_disk_used(const struct fake_disk *fake);

/* -- looking at and damaging files (cache and medium alike; not operations) --------------------------------------- */
bool fake_disk_exists(const struct fake_disk *fake, const char *name);
uint64_t fake_disk_size(const struct fake_disk *fake, const char *name); /* 0 when there is none */
size_t fake_disk_peek(const struct fake_disk *fake, const char *name, uint64_t offset, void *data, size_t size);
void fake_disk_poke(struct fake_disk *fake, const char *name, uint64_t offset, const void *data,
                    size_t size);                                                             /* grows */
void fake_disk_flip(struct fake_disk *fake, const char *name, uint64_t offset, uint8_t bits); /* byte ^= bits */
void fake_disk_cut(struct fake_disk *fake, const char *name, uint64_t size);                  /* shorten */
void fake_disk_delete(struct fake_disk *fake, const char *name);
/* Names in order of their bytes; `n` counts from 0. NULL: no more. */
const char *fake_disk_name(const struct fake_disk *fake, size_t n);

/* -- figures ------------------------------------------------------------------------------------------------------ */
struct fake_disk_stats {
    uint64_t operations; /* those that fake_disk_halt_after counts */
    uint64_t writes, written_bytes, syncs, folder_syncs, reads;
};
const struct fake_disk_stats *fake_disk_stats(const struct fake_disk *fake);

#endif
