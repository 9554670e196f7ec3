#include "base/wakeup_batch.h"

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

void wakeup_batch_flush(void) {
    for (unsigned i = 0; i < own.count; i++) own.list[i].wake(own.list[i].target);
    own.count = 0;
}

void wakeup_batch_begin(void) { own.depth++; }

void wakeup_batch_end(void) {
    CHECK(own.depth > 0);
    if (--own.depth == 0) wakeup_batch_flush();
}

void wakeup_batch_send(void (*wake)(void *target), void *target) {
    if (own.depth == 0) {
        wake(target);
        return;
    }
    if (own.count == sizeof own.list / sizeof own.list[0]) wakeup_batch_flush();
    own.list[own.count++] = (struct held){wake, target};
}
