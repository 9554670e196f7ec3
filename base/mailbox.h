/* Mailbox: many threads put, one thread takes everything at once. The link is embedded in the item, so that putting
 * allocates nothing. A wake-up (eventfd or uv_async) is needed only when `mailbox_put` returned true: the box was
 * empty, the taker may be asleep. */
#ifndef COORD_BASE_MAILBOX_H
#define COORD_BASE_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>

struct mail {
    struct mail *next;
};
struct mailbox {
    _Atomic(struct mail *) top;
}; /* zero-initialise */

/* Mail with the function that its taker calls for it. */
struct post {
    struct mail mail;
    bool bulk; /* one of many alike: may wait behind others */
    void (*taken)(void *taker, struct post *post);
};

/* Any thread. The item belongs to the box until taken. True when the box was empty before. */
bool mailbox_put(struct mailbox *box, struct mail *item);
/* The taker's thread. All items, oldest first, linked by `next`; NULL when there are none. */
struct mail *mailbox_take(struct mailbox *box);

#endif
