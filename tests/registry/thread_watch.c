/* No lost wake-up. A "store" of one number per thing: the writer changes some, bumps, publishes, wakes, as the
 * applier does; waiters arm, read, and sleep until they are fired. At the end every waiter must have seen the last
 * value of its thing, having slept on nothing but firings. Other threads add and remove waiters all the while. A
 * plain main: runs under tsan. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "registry/watch.h"

enum { THINGS = 20, WAITERS = 6, CHURNERS = 2, BATCHES = 20000, KEYS = 32 };

static _Atomic uint64_t values[THINGS];
static _Atomic uint64_t applied;
static atomic_bool stopping;
static struct watch_table *table;

static struct watch_key thing_of(unsigned number, bool prefix, char *room) {
    int size = snprintf(room, 32, "some/key/%02u", number);
    if (prefix) return (struct watch_key){KEYS | WATCH_PREFIX_BIT, slice_make(room, (size_t)size - number % 3)};
    return (struct watch_key){KEYS, slice_make(room, (size_t)size)};
}

struct sleeper {
    struct watch_waiter waiter;
    pthread_mutex_t lock;
    pthread_cond_t fired;
    bool woken;
    unsigned number;
    uint64_t seen, wakes;
};

static void wake(struct watch_waiter *waiter) {
    struct sleeper *sleeper = CONTAINER_OF(waiter, struct sleeper, waiter);
    pthread_mutex_lock(&sleeper->lock);
    sleeper->woken = true;
    pthread_cond_signal(&sleeper->fired);
    pthread_mutex_unlock(&sleeper->lock);
}

/* Only a lost wake-up makes this run into its deadline. */
static void sleep_until_fired(struct sleeper *sleeper) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 60;
    pthread_mutex_lock(&sleeper->lock);
    while (!sleeper->woken) CHECK(pthread_cond_timedwait(&sleeper->fired, &sleeper->lock, &deadline) == 0);
    sleeper->woken = false;
    pthread_mutex_unlock(&sleeper->lock);
}

/* Waits for one thing until its value is the last one. */
static void *wait_thread(void *argument) {
    struct sleeper *sleeper = argument;
    char room[32];
    watch_add(table, &sleeper->waiter, thing_of(sleeper->number, sleeper->number % 2, room), wake);
    for (;;) {
        uint64_t now = atomic_load(&values[sleeper->number]);
        CHECK(now >= sleeper->seen);
        sleeper->seen = now;
        if (now == BATCHES) break;
        sleep_until_fired(sleeper);
        sleeper->wakes++;
        watch_arm(&sleeper->waiter);
    }
    watch_remove(table, &sleeper->waiter);
    return NULL;
}

static void count_only(struct watch_waiter *waiter) { CHECK(!atomic_load(&waiter->armed)); }

/* Adds and removes; memory is gone right after watch_remove, so a late firing is a use after free. */
static void *churn_thread(void *argument) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)(uintptr_t)argument);
    while (!atomic_load(&stopping)) {
        struct watch_waiter *waiters[16];
        char room[32];
        for (int i = 0; i < 16; i++) {
            waiters[i] = malloc(sizeof *waiters[i]);
            CHECK(waiters[i]);
            watch_add(table, waiters[i], thing_of((unsigned)rng_below(&rng, THINGS), rng_below(&rng, 2), room),
                      count_only);
        }
        (void)watch_generation(table, thing_of(1, false, room));
        for (int i = 0; i < 16; i++) {
            watch_remove(table, waiters[i]);
            free(waiters[i]);
        }
    }
    return NULL;
}

static void write_batches(void) {
    struct watch_touched touched = {0};
    struct rng rng;
    rng_seed(&rng, 42);
    for (uint64_t batch = 1; batch <= BATCHES; batch++) {
        for (unsigned i = 0; i < THINGS; i++) {
            char room[32];
            if (batch < BATCHES && rng_below(&rng, 4) != 0) continue;
            atomic_store(&values[i], batch); /* commit */
            watch_touch(&touched, thing_of(i, false, room));
        }
        watch_bump(table, &touched);
        atomic_store(&applied, batch);
        watch_wake(table, &touched);
        watch_touched_reset(&touched);
    }
    watch_touched_free(&touched);
}

int main(void) {
    table = watch_table_new();
    pthread_t threads[WAITERS], churners[CHURNERS];
    static struct sleeper sleepers[WAITERS];
    for (unsigned i = 0; i < WAITERS; i++) {
        sleepers[i].number = i * 3 % THINGS;
        pthread_mutex_init(&sleepers[i].lock, NULL);
        pthread_cond_init(&sleepers[i].fired, NULL);
        CHECK(pthread_create(&threads[i], NULL, wait_thread, &sleepers[i]) == 0);
    }
    for (uintptr_t i = 0; i < CHURNERS; i++)
        CHECK(pthread_create(&churners[i], NULL, churn_thread, (void *)(i + 1)) == 0);
    write_batches();
    uint64_t wakes = 0;
    for (unsigned i = 0; i < WAITERS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(sleepers[i].seen == BATCHES);
        wakes += sleepers[i].wakes;
    }
    atomic_store(&stopping, true);
    for (unsigned i = 0; i < CHURNERS; i++) CHECK(pthread_join(churners[i], NULL) == 0);
    CHECK(watch_count(table) == 0);
    watch_table_free(table);
    printf("%llu wake-ups, none lost\n", (unsigned long long)wakes);
    return 0;
}
