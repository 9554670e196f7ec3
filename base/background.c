#include "base/background.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#define STEPS 5 /* a quarter of a processor that one of the others wants as well (sched(7): 1.25 a step) */
#define MOST  19

void background_thread(const char *name) {
    pthread_setname_np(pthread_self(), name);
    /* Linux: the first thread's; a thread that was started by one of these is one of them */
    int nice = getpriority(PRIO_PROCESS, (id_t)getpid()) + STEPS;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), nice < MOST ? nice : MOST);
}
