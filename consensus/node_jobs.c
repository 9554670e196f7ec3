#include "consensus/node_internal.h"

void jobs_init(struct jobs *jobs) {
    CHECK(uv_mutex_init(&jobs->lock) == 0 && uv_cond_init(&jobs->more) == 0);
    jobs->first = NULL, jobs->last = &jobs->first, jobs->stop = false;
}

void jobs_free(struct jobs *jobs) {
    CHECK(jobs->first == NULL);
    uv_cond_destroy(&jobs->more);
    uv_mutex_destroy(&jobs->lock);
}

void jobs_put(struct jobs *jobs, struct job *job) {
    job->next = NULL;
    uv_mutex_lock(&jobs->lock);
    bool was_empty = jobs->first == NULL;
    CHECK(*jobs->last == NULL);
    *jobs->last = job;
    jobs->last = &job->next;
    uv_mutex_unlock(&jobs->lock);
    if (was_empty) uv_cond_signal(&jobs->more);
}

struct job *jobs_take_all(struct jobs *jobs) {
    uv_mutex_lock(&jobs->lock);
    while (!jobs->first && !jobs->stop) uv_cond_wait(&jobs->more, &jobs->lock);
    struct job *all = jobs->first;
    jobs->first = NULL, jobs->last = &jobs->first;
    uv_mutex_unlock(&jobs->lock);
    return all;
}

bool jobs_waiting(struct jobs *jobs) {
    uv_mutex_lock(&jobs->lock);
    bool waiting = jobs->first || jobs->stop;
    uv_mutex_unlock(&jobs->lock);
    return waiting;
}

bool jobs_stopped(struct jobs *jobs) {
    uv_mutex_lock(&jobs->lock);
    bool stopped = jobs->stop;
    uv_mutex_unlock(&jobs->lock);
    return stopped;
}

void jobs_stop(struct jobs *jobs) {
    uv_mutex_lock(&jobs->lock);
    jobs->stop = true;
    uv_mutex_unlock(&jobs->lock);
    uv_cond_signal(&jobs->more);
}
