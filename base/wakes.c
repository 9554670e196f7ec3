#include "base/wakes.h"

#include <stddef.h>

#include "base/check.h"

struct held {
    void (*wake)(void *target);
    void *target;
};
static _Thread_local struct {
    unsigned depth, count;
    struct held list[16];
} own;

void wakes_now(void) {
    for (unsigned i = 0; i < own.count; i++) own.list[i].wake(own.list[i].target);
    own.count = 0;
}

void wakes_hold(void) { own.depth++; }

void wakes_release(void) {
    CHECK(own.depth > 0);
    if (--own.depth == 0) wakes_now();
}

void wakes_send(void (*wake)(void *target), void *target) {
    if (own.depth == 0) {
        wake(target);
        return;
    }
    if (own.count == sizeof own.list / sizeof own.list[0]) wakes_now();
    own.list[own.count++] = (struct held){wake, target};
}
