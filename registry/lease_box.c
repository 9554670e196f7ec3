/* News from the applier to the loop. They are few (sessions come and go, keys do not pass here): a lock will do. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/lease_timers.h"

struct news_list {
    struct lease_news *first, **last;
};

struct lease_box {
    void (*wake)(void *data);
    void *data;
    struct news_list batch; /* the applier's: of the batch that is not committed yet */
    pthread_mutex_t lock;
    struct news_list news;
};

static void list_clear(struct news_list *list) { list->first = NULL, list->last = &list->first; }

static void list_free(struct news_list *list) {
    for (struct lease_news *news = list->first, *next; news; news = next) next = news->next, free(news);
    list_clear(list);
}

struct lease_box *lease_box_new(void (*wake)(void *data), void *data) {
    struct lease_box *box = mem_zalloc(sizeof *box);
    box->wake = wake;
    box->data = data;
    list_clear(&box->batch);
    list_clear(&box->news);
    CHECK(pthread_mutex_init(&box->lock, NULL) == 0);
    return box;
}

struct lease_news *lease_box_take(struct lease_box *box) {
    pthread_mutex_lock(&box->lock);
    struct lease_news *news = box->news.first;
    list_clear(&box->news);
    pthread_mutex_unlock(&box->lock);
    return news;
}

void lease_box_free(struct lease_box *box) {
    if (!box) return;
    list_free(&box->batch);
    list_free(&box->news);
    pthread_mutex_destroy(&box->lock);
    free(box);
}

void lease_box_put(struct lease_box *box, enum timed kind, bool ended, struct slice name, uint64_t index,
                   int64_t period_ns) {
    if (!box) return;
    struct lease_news *news = mem_alloc(sizeof *news + name.size + 1);
    *news =
        (struct lease_news){.kind = kind, .ended = ended, .period_ns = period_ns, .index = index, .size = name.size};
    memcpy(news->name, name.data, name.size);
    news->name[name.size] = '\0';
    *box->batch.last = news;
    box->batch.last = &news->next;
}

void lease_box_batch_end(void *data, bool committed) {
    struct lease_box *box = data;
    if (!box || !box->batch.first) return;
    if (!committed) {
        list_free(&box->batch);
        return;
    }
    pthread_mutex_lock(&box->lock);
    bool was_empty = box->news.first == NULL;
    *box->news.last = box->batch.first;
    box->news.last = box->batch.last;
    pthread_mutex_unlock(&box->lock);
    list_clear(&box->batch);
    if (was_empty && box->wake) box->wake(box->data);
}
