/* CPU time of keys: a write through the state machine in batches, a read as record, and as JSON. Values of 100 bytes
 * over 10,000 keys, as the side-by-side benchmark has them. */
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/random.h"
#include "http/api/kv_views.h"
#include "kv/keys/kv.h"
#include "registry/catalog.h"
#include "registry/lease.h"

enum { KEYS = 10000, VALUE_BYTES = 100, BATCH_MAX = 256 };

static double cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static struct machine *machine;
static struct rng rng;
static char value[VALUE_BYTES];

static size_t key_name(char name[32], uint64_t number) {
    return (size_t)snprintf(name, 32, "bench/%06" PRIu64, number);
}

static void encode_set(struct buffer *out, uint64_t number) {
    char name[32];
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.key.len = key_name(name, number);
    command.key.data = (uint8_t *)name;
    put_le64(value, rng_next(&rng));
    command.value = (ProtobufCBinaryData){sizeof value, (uint8_t *)value};
    machine_command(out, KV_APPLY, &command.base);
}

static void done(void *data, void *origin, const struct machine_result *result) {
    (void)origin;
    CHECK(result->error == CO_OK && result->yes);
    ++*(size_t *)data;
}

static void apply(const struct buffer *commands, size_t count) {
    struct machine_input inputs[BATCH_MAX];
    size_t applied = 0;
    for (size_t i = 0; i < count; i++)
        inputs[i] = (struct machine_input){.index = machine_applied(machine) + 1 + i,
                                           .term = 1,
                                           .is_command = true,
                                           .command = buffer_slice(&commands[i])};
    CHECK(machine_apply(machine, inputs, count, done, &applied, NULL) == CO_OK && applied == count);
}

static void bench_set(size_t batch, size_t total) {
    static struct buffer commands[BATCH_MAX];
    double applying = 0, encoding = 0;
    for (size_t n = 0; n < total; n += batch) {
        double begin = cpu_us();
        for (size_t i = 0; i < batch; i++) {
            buffer_reset(&commands[i]);
            encode_set(&commands[i], rng_below(&rng, KEYS));
        }
        double middle = cpu_us();
        apply(commands, batch);
        encoding += middle - begin;
        applying += cpu_us() - middle;
    }
    printf("set, batches of %3zu     %7.2f us   (encoding %.2f)\n", batch, applying / (double)total,
           encoding / (double)total);
    for (size_t i = 0; i < batch; i++) buffer_free(&commands[i]);
}

static void fill(void) {
    struct buffer commands[BATCH_MAX] = {{0}};
    for (uint64_t n = 0; n < KEYS;) {
        size_t count = 0;
        for (; count < BATCH_MAX && n < KEYS; count++, n++) {
            buffer_reset(&commands[count]);
            encode_set(&commands[count], n);
        }
        apply(commands, count);
    }
    for (size_t i = 0; i < BATCH_MAX; i++) buffer_free(&commands[i]);
}

static void bench_get(size_t total, bool as_json) {
    struct store_reader *reader = store_reader_new(machine_store(machine));
    struct arena arena = {0};
    struct buffer out = {0};
    size_t bytes = 0;
    double begin = cpu_us();
    for (size_t n = 0; n < total; n++) {
        char name[32];
        Pb__KvRequest request = PB__KV_REQUEST__INIT;
        request.key.len = key_name(name, rng_below(&rng, KEYS));
        request.key.data = (uint8_t *)name;
        struct query_result result;
        CHECK(query_kv_get.run(store_read(reader), &request.base, &arena, &result) == CO_OK && result.found);
        if (as_json) {
            struct json_out json;
            buffer_reset(&out);
            json_out_init(&json, &out, false);
            json_array(&json);
            http_kv_entry(&json, (const Pb__KvEntry *)result.message);
            json_array_end(&json);
            bytes += out.size;
        }
        store_read_done(reader);
        arena_reset(&arena);
    }
    printf("get%-20s  %7.2f us   (%zu bytes)\n", as_json ? " and JSON" : "", (cpu_us() - begin) / (double)total,
           bytes / total);
    buffer_free(&out);
    arena_free(&arena);
    store_reader_free(reader);
}

static void bench_list(size_t total) {
    struct store_reader *reader = store_reader_new(machine_store(machine));
    struct arena arena = {0};
    size_t entries = 0;
    double begin = cpu_us();
    for (size_t n = 0; n < total; n++) {
        Pb__KvRequest request = PB__KV_REQUEST__INIT;
        struct query_result result;
        CHECK(query_kv_list.run(store_read(reader), &request.base, &arena, &result) == CO_OK && result.found);
        entries += ((const Pb__KvEntriesResult *)result.message)->n_entries;
        store_read_done(reader);
        arena_reset(&arena);
    }
    printf("list, per entry         %7.2f us\n", (cpu_us() - begin) / (double)entries);
    arena_free(&arena);
    store_reader_free(reader);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

int main(void) {
    const char *base = getenv("TMPDIR");
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/coord-bench-kv-XXXXXX", base ? base : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
    struct machine_config config = {.store = {.folder = folder}, .modules = agent_modules};
    struct fault fault = {0};
    if (machine_open(&config, &machine, &fault) != CO_OK) {
        fprintf(stderr, "%s\n", fault.text);
        return 1;
    }
    rng_seed(&rng, 1);
    fill();
    static const size_t batches[] = {1, 16, 64};
    for (size_t i = 0; i < ARRAY_COUNT(batches); i++) bench_set(batches[i], 192000);
    bench_get(1000000, false);
    bench_get(1000000, true);
    bench_list(20);
    machine_close(machine);
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : 1;
}
