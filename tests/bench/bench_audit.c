/* CPU of the self-audit: reading a store through, and what a write costs that is noted. MB as the first argument; 0:
 * 1024. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "registry/store.h"
#include "tests/bench/cpu.h"

static void fill(struct store *store, uint64_t bytes) {
    struct rng rng;
    rng_seed(&rng, 1);
    char key[40], value[500];
    for (size_t i = 0; i < sizeof value; i++) value[i] = (char)rng_next(&rng);
    for (uint64_t n = 0; store_bytes(store) < bytes;) {
        struct store_txn *txn = store_write(store);
        for (int i = 0; i < 1000; i++, n++) {
            int size = snprintf(key, sizeof key, "app/%016llx", (unsigned long long)rng_next(&rng));
            store_put(txn, 1, slice_make(key, (size_t)size), slice_make(value, 100 + rng_below(&rng, 400)));
        }
        store_put(txn, STORE_TABLE_META, SLICE_LITERAL("applied"), slice_make("0123456789abcdef", 16));
        CHECK(store_commit(txn) == CO_OK);
    }
}

int main(int argc, char **argv) {
    static const struct store_table tables[] = {{1, "records"}};
    uint64_t megabytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    char folder[] = "/tmp/coord-bench-audit-XXXXXX", command[64];
    CHECK(mkdtemp(folder));
    struct store_config config = {.folder = folder, .map_bytes = UINT64_C(8) << 30, .tables = tables, .table_count = 1};
    struct store *store;
    struct fault fault = {0};
    bool trusted;
    CHECK(store_open(&config, &store, &trusted, &fault) == CO_OK);
    fill(store, (megabytes ? megabytes : 1024) << 20);
    double gigabytes = (double)store_bytes(store) / (double)(1 << 30);
    for (int i = 0; i < 3; i++) {
        struct store_scrubbed seen;
        uint64_t cpu = cpu_ns(), begun = clock_mono_ns();
        CHECK(store_examine(store, NULL, NULL, &seen, &fault) == CO_OK);
        double spent = (double)(cpu_ns() - cpu) / 1e9, took = (double)(clock_mono_ns() - begun) / 1e9;
        printf("scrub: %.2f GiB, %llu records: %.2f s of CPU, %.2f s; CPU for each GiB %.2f s\n", gigabytes,
               (unsigned long long)seen.records, spent, took, spent / gigabytes);
    }
    enum { NOTES = 1000000 };
    struct store_txn *txn = store_write(store);
    uint64_t cpu = cpu_ns(), sum = 0;
    for (int i = 0; i < NOTES; i++) sum += store_sum(txn) - store_hash(txn, STORE_TABLE_META, SLICE_LITERAL("applied"));
    printf("a sum that is noted: %.3f us (%llu)\n", (double)(cpu_ns() - cpu) / NOTES / 1000,
           (unsigned long long)(sum % 10));
    store_abort(txn);
    store_close(store);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}
