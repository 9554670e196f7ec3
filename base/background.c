#include "base/background.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#define NICE 10 /* a tenth of a processor that somebody else wants as well (sched(7): weights of 1.25 a step) */

void background_thread(const char *name) {
    pthread_setname_np(pthread_self(), name);
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* Linux: of the thread */
}
