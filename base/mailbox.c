#include "base/mailbox.h"

#include <stddef.h>

bool mailbox_put(struct mailbox *box, struct mail *item) {
    struct mail *top = atomic_load_explicit(&box->top, memory_order_relaxed);
    do {
        item->next = top;
    } while (!atomic_compare_exchange_weak_explicit(&box->top, &top, item, memory_order_release, memory_order_relaxed));
    return top == NULL;
}

struct mail *mailbox_take(struct mailbox *box) {
    if (!atomic_load_explicit(&box->top, memory_order_relaxed)) return NULL;
    struct mail *item = atomic_exchange_explicit(&box->top, NULL, memory_order_acquire);
    struct mail *oldest_first = NULL;
    while (item) {
        struct mail *older = item->next;
        item->next = oldest_first;
        oldest_first = item;
        item = older;
    }
    return oldest_first;
}
