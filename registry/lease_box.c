/* News from the applier to the loop. They are few (sessions come and go, keys do not pass here): a lock will
 * do. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/lease_timers.h"

struct lease_box {
    void (*wake)(void *data);
    void *data;
    pthread_mutex_t lock;
    struct lease_news *first, **last;
};

struct lease_box *lease_box_new(void (*wake)(void *data), void *data) {
    struct lease_box *box = mem_zalloc(sizeof *box);
    box->wake = wake;
    box->data = data;
    box->last = &box->first;
    CHECK(pthread_mutex_init(&box->lock, NULL) == 0);
    return box;
}

struct lease_news *lease_box_take(struct lease_box *box) {
    pthread_mutex_lock(&box->lock);
    struct lease_news *news = box->first;
    box->first = NULL;
    box->last = &box->first;
    pthread_mutex_unlock(&box->lock);
    return news;
}

void lease_box_free(struct lease_box *box) {
    if (!box) return;
    struct lease_news *next;
    for (struct lease_news *news = lease_box_take(box); news; news = next) {
        next = news->next;
        free(news);
    }
    pthread_mutex_destroy(&box->lock);
    free(box);
}

void lease_box_put(struct lease_box *box, enum timed kind, bool ended, struct slice name, uint64_t index, int64_t period_ns) {
    if (!box) return;
    struct lease_news *news = mem_alloc(sizeof *news + name.size + 1);
    *news = (struct lease_news){.kind = kind, .ended = ended, .period_ns = period_ns, .index = index, .size = name.size};
    memcpy(news->name, name.data, name.size);
    news->name[name.size] = '\0';
    pthread_mutex_lock(&box->lock);
    bool was_empty = box->first == NULL;
    *box->last = news;
    box->last = &news->next;
    pthread_mutex_unlock(&box->lock);
    if (was_empty && box->wake) box->wake(box->data);
}
