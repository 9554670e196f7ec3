#include "base/background.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#define STEPS 5 /* a quarter of a processor that one of the others wants as well (sched(7): 1.25 a step) */
#define MOST  19

void background_thread(const char *name) {
    pthread_setname_np(pthread_self(), name);
    /* on Linux, the priority of the process's first thread: a thread that a background thread started is not lowered
     * twice */
    int nice = getpriority(PRIO_PROCESS, (id_t)getpid()) + STEPS;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), nice < MOST ? nice : MOST);
}
