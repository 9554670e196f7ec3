/* News from the applier to the loop. They are few (sessions come and go, keys do not pass here): a lock will
 * do. */
#include <pthread.h>
#include <stdlib.h>

#include "kv/kv_internal.h"

struct session_box {
    void (*wake)(void *data);
    void *data;
    pthread_mutex_t lock;
    struct session_news *first, **last;
};

struct session_box *session_box_new(void (*wake)(void *data), void *data) {
    struct session_box *box = mem_zalloc(sizeof *box);
    box->wake = wake;
    box->data = data;
    box->last = &box->first;
    CHECK(pthread_mutex_init(&box->lock, NULL) == 0);
    return box;
}

struct session_news *session_box_take(struct session_box *box) {
    pthread_mutex_lock(&box->lock);
    struct session_news *news = box->first;
    box->first = NULL;
    box->last = &box->first;
    pthread_mutex_unlock(&box->lock);
    return news;
}

void session_box_free(struct session_box *box) {
    if (!box) return;
    struct session_news *next;
    for (struct session_news *news = session_box_take(box); news; news = next) {
        next = news->next;
        free(news);
    }
    pthread_mutex_destroy(&box->lock);
    free(box);
}

void session_box_put(struct session_box *box, int type, struct slice name, uint64_t index,
                     int64_t duration_ns) {
    if (!box) return;
    struct session_news *news = mem_alloc(sizeof *news + name.size + 1);
    *news =
        (struct session_news){.type = type, .duration_ns = duration_ns, .index = index, .size = name.size};
    memcpy(news->name, name.data, name.size);
    news->name[name.size] = '\0';
    pthread_mutex_lock(&box->lock);
    bool was_empty = box->first == NULL;
    *box->last = news;
    box->last = &news->next;
    pthread_mutex_unlock(&box->lock);
    if (was_empty && box->wake) box->wake(box->data);
}
