/* Intrusive doubly linked lists: a head and its members are `struct list`. A member that is in no list points to
 * itself (list_init), so that list_remove may be called twice. */
#ifndef COORD_BASE_LIST_H
#define COORD_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *list) { list->next = list->prev = list; }
static inline bool list_empty(const struct list *list) { return list->next == list; }
static inline void list_insert(struct list *before, struct list *item) {
    item->prev = before->prev;
    item->next = before;
    before->prev->next = item;
    before->prev = item;
}
static inline void list_append(struct list *head, struct list *item) { list_insert(head, item); }
static inline void list_remove(struct list *item) {
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}
/* Moves all of `from` to the end of `to`. */
static inline void list_splice(struct list *to, struct list *from) {
    if (list_empty(from)) return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}
#define LIST_ENTRY(item, type, member) CONTAINER_OF(item, type, member)
#define LIST_FOREACH(item, head)       for (struct list *item = (head)->next; item != (head); item = item->next)
#define LIST_FOREACH_SAFE(item, next_, head) \
    for (struct list *item = (head)->next, *next_ = item->next; item != (head); item = next_, next_ = item->next)

#endif
