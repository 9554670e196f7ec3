/* One input may burn 2 s of CPU time; then the run fails like a crash, and the input is saved. The wall clock, which
 * libFuzzer looks at, also runs while the machine is busy with other things. Every target is linked with
 * --wrap=LLVMFuzzerTestOneInput. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

#define TICK_NS   (250 * 1000000l) /* of the process's CPU time: no system call per input is needed */
#define TICKS_MAX 8

int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __real_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t input;       /* number of the one that runs; 0: none */
static uint64_t input_at_tick, ticks; /* the handler's */

static void on_tick(int number) {
    (void)number;
    ticks = input && input == input_at_tick ? ticks + 1 : 0;
    input_at_tick = input;
    if (ticks < TICKS_MAX) return;
    static const char text[] = "coord: one input took 2 s of CPU time\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    abort();
}

static void start_ticking(void) {
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGXCPU};
    struct itimerspec every = {{0, TICK_NS}, {0, TICK_NS}};
    timer_t timer;
    CHECK(sigaction(SIGXCPU, &action, NULL) == 0);
    CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &every, NULL) == 0);
}

int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint64_t count;
    if (count++ == 0) start_ticking();
    input = count;
    int rv = __real_LLVMFuzzerTestOneInput(data, size);
    input = 0;
    return rv;
}
