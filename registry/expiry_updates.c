/* Updates of things that end by themselves, from the applier to the loop. They are few (sessions come and go, keys do
 * not pass here), so a lock suffices. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/expiry.h"

struct update_list {
    struct expiry_update *first, **last;
};

struct expiry_updates {
    void (*wake)(void *data);
    void *data;
    struct update_list batch; /* the applier's: updates of the batch that is not committed yet */
    pthread_mutex_t lock;
    struct update_list committed;
};

static void list_clear(struct update_list *list) { list->first = NULL, list->last = &list->first; }

static void list_free(struct update_list *list) {
    for (struct expiry_update *update = list->first, *next; update; update = next) next = update->next, free(update);
    list_clear(list);
}

struct expiry_updates *expiry_updates_new(void (*wake)(void *data), void *data) {
    struct expiry_updates *updates = mem_zalloc(sizeof *updates);
    updates->wake = wake;
    updates->data = data;
    list_clear(&updates->batch);
    list_clear(&updates->committed);
    CHECK(pthread_mutex_init(&updates->lock, NULL) == 0);
    return updates;
}

struct expiry_update *expiry_updates_take(struct expiry_updates *updates) {
    pthread_mutex_lock(&updates->lock);
    struct expiry_update *update = updates->committed.first;
    list_clear(&updates->committed);
    pthread_mutex_unlock(&updates->lock);
    return update;
}

void expiry_updates_free(struct expiry_updates *updates) {
    if (!updates) return;
    list_free(&updates->batch);
    list_free(&updates->committed);
    pthread_mutex_destroy(&updates->lock);
    free(updates);
}

void expiry_updates_put(struct expiry_updates *updates, const struct expiry_kind *kind, bool ended, struct slice name,
                        uint64_t index, int64_t period_ns) {
    if (!updates) return;
    CHECK(kind && *updates->batch.last == NULL);
    struct expiry_update *update = mem_alloc(sizeof *update + name.size + 1);
    *update =
        (struct expiry_update){.kind = kind, .ended = ended, .period_ns = period_ns, .index = index, .size = name.size};
    memcpy(update->name, name.data, name.size);
    update->name[name.size] = '\0';
    *updates->batch.last = update;
    updates->batch.last = &update->next;
}

struct expiry_update **expiry_updates_mark(struct expiry_updates *updates) {
    return updates ? updates->batch.last : NULL;
}

void expiry_updates_back(struct expiry_updates *updates, struct expiry_update **mark) {
    if (!updates) return;
    for (struct expiry_update *update = *mark, *next; update; update = next) next = update->next, free(update);
    *mark = NULL;
    updates->batch.last = mark;
}

void expiry_updates_batch_end(struct expiry_updates *updates, bool committed) {
    if (!updates || !updates->batch.first) return;
    if (!committed) {
        list_free(&updates->batch);
        return;
    }
    pthread_mutex_lock(&updates->lock);
    bool was_empty = updates->committed.first == NULL;
    CHECK(*updates->committed.last == NULL && *updates->batch.last == NULL);
    *updates->committed.last = updates->batch.first;
    updates->committed.last = updates->batch.last;
    pthread_mutex_unlock(&updates->lock);
    list_clear(&updates->batch);
    if (was_empty && updates->wake) updates->wake(updates->data);
}
