/* CPU time of the leader's table: renewals and ticks with many leases. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/random.h"
#include "registry/expiry.h"
#include "registry/lease.h"

static double cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void on_due(void *data, const struct expiry_due *item) {
    (void)item;
    ++*(uint64_t *)data;
}

static struct slice id_of(char room[40], uint64_t number) {
    return slice_make(room, (size_t)snprintf(room, 40, "%08" PRIx64 "-1ea5-4000-8000-000000000000", number));
}

/* Each is renewed every third of its 10 s, for a virtual minute. */
static void bench(uint64_t leases) {
    struct expiry *timers = expiry_new();
    uint64_t now_ms = 1000, ended = 0, renewals = 0, ticks = 0, rounds = 60000 / 3333;
    char(*ids)[40] = malloc(leases * sizeof *ids);
    struct rng rng;
    CHECK(ids);
    rng_seed(&rng, 1);
    expiry_lead(timers, 1, now_ms);
    for (uint64_t i = 0; i < leases; i++)
        expiry_began(timers, &lease_expiry, id_of(ids[i], rng_next(&rng) >> 32), 0, 10000000000, now_ms);
    double begin = cpu_us();
    for (uint64_t n = 0; n < rounds * leases; n++) {
        int64_t ttl_ns;
        now_ms = 1000 + n * 3333 / leases;
        if (expiry_deadline_ms(timers) <= now_ms) {
            expiry_tick(timers, now_ms, on_due, &ended);
            ticks++;
        }
        CHECK(expiry_renew(timers, &lease_expiry, slice_make(ids[n % leases], 36), now_ms, &ttl_ns) == CO_OK);
        renewals++;
    }
    printf("%7" PRIu64 " leases   %5.3f us a renewal   (%" PRIu64 " ticks)\n", leases,
           (cpu_us() - begin) / (double)renewals, ticks);
    CHECK(ended == 0);
    expiry_free(timers);
    free(ids);
}

int main(void) {
    static const uint64_t counts[] = {100, 2000, 20000, 200000};
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) bench(counts[i]);
    return 0;
}
