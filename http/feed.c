#include "http/feed.h"

#include <stdlib.h>

#include "base/wakeup_batch.h"
#include "http/impl.h"
#include "http/permission.h"

#define JUDGE_MS 500

struct http_feed {
    struct operation operation;
    struct post post;
    struct worker *worker;
    struct http_request *request; /* NULL: it has ended */
    bool response, finish;        /* libmicrohttpd still has the response; no more bytes are to come */
    void (*ended)(void *data);
    void *data;
    struct timer judge;   /* may its client still have it? */
    uint64_t generation;  /* of access control at the beginning */
    pthread_mutex_t lock; /* protects the following members */
    bool parked, posted;
    size_t first, size, room;
    char ring[];
};

static void release(struct http_feed *feed) {
    if (feed->request || feed->posted || feed->response) return;
    pthread_mutex_destroy(&feed->lock);
    free(feed);
}

/* -- bytes come --------------------------------------------------------------------------------------------------- */
static void ring_put(struct http_feed *feed, struct slice bytes) {
    size_t at = (feed->first + feed->size) % feed->room, head = feed->room - at;
    if (head > bytes.size) head = bytes.size;
    if (bytes.size == 0) return;
    memcpy(feed->ring + at, bytes.data, head);
    memcpy(feed->ring, bytes.data + head, bytes.size - head);
    feed->size += bytes.size;
}

bool http_feed_put(struct http_feed *feed, struct slice first, struct slice second) {
    pthread_mutex_lock(&feed->lock);
    bool fits = feed->size + first.size + second.size <= feed->room;
    if (fits) ring_put(feed, first), ring_put(feed, second);
    bool wake = feed->parked && !feed->posted;
    if (wake) feed->posted = true;
    pthread_mutex_unlock(&feed->lock);
    if (!wake) return fits;
    worker_post(feed->worker, &feed->post);
    wakeup_batch_flush(); /* this thread may be in a long task */
    return fits;
}

/* -- and go ------------------------------------------------------------------------------------------------------- */
static void resume(struct http_feed *feed) {
    struct http_request *request = feed->request;
    pthread_mutex_lock(&feed->lock);
    feed->parked = false;
    pthread_mutex_unlock(&feed->lock);
    if (!request || !request->suspended) return;
    request->suspended = false;
    MHD_resume_connection(request->connection->mhd);
    shard_wake(request->connection->shard);
}

static void taken(void *taker, struct post *post) {
    struct worker *worker = taker;
    struct http_feed *feed = CONTAINER_OF(post, struct http_feed, post);
    pthread_mutex_lock(&feed->lock);
    feed->posted = false;
    pthread_mutex_unlock(&feed->lock);
    if (!feed->request) worker->tickets--;
    resume(feed);
    release(feed);
}

static ssize_t read_ring(void *data, uint64_t position, char *out, size_t room) {
    struct http_feed *feed = data;
    struct http_request *request = feed->request;
    (void)position;
    if (!request) return MHD_CONTENT_READER_END_WITH_ERROR;
    pthread_mutex_lock(&feed->lock);
    size_t size = feed->size < room ? feed->size : room,
           head = feed->room - feed->first < size ? feed->room - feed->first : size;
    memcpy(out, feed->ring + feed->first, head);
    memcpy(out + head, feed->ring, size - head);
    feed->first = (feed->first + size) % feed->room, feed->size -= size;
    bool wait = size == 0 && !feed->finish;
    feed->parked = wait;
    pthread_mutex_unlock(&feed->lock);
    if (size) return (ssize_t)size;
    if (!wait) return MHD_CONTENT_READER_END_OF_STREAM;
    request->suspended = true;
    MHD_suspend_connection(request->connection->mhd);
    return 0;
}

/* -- permission --------------------------------------------------------------------------------------------------- */
static void judge(struct worker *worker, struct timer *timer) {
    struct http_feed *feed = CONTAINER_OF(timer, struct http_feed, judge);
    if (permission_holds(feed->request, feed->generation)) {
        timer_set(worker, timer, worker->now_ms + JUDGE_MS, judge);
        return;
    }
    pthread_mutex_lock(&feed->lock);
    feed->size = 0, feed->finish = true;
    pthread_mutex_unlock(&feed->lock);
    resume(feed);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
static void feed_end(struct http_request *request) {
    struct http_feed *feed = CONTAINER_OF(request->operation, struct http_feed, operation);
    request->operation = NULL;
    watch_leave(request);
    feed->ended(feed->data); /* nothing is posted any more */
    timer_clear(feed->worker, &feed->judge);
    feed->request = NULL;
    if (!feed->posted) feed->worker->tickets--;
    release(feed);
}

static void feed_hurry(struct http_request *request) {
    struct http_feed *feed = CONTAINER_OF(request->operation, struct http_feed, operation);
    feed->finish = true;
    resume(feed);
}

static void response_gone(void *data) {
    struct http_feed *feed = data;
    feed->response = false;
    release(feed);
}

struct http_feed *http_feed_new(struct http_request *request, size_t ring_bytes, void (*ended)(void *data),
                                void *data) {
    CHECK(ring_bytes > 0 && !request->operation);
    struct http_feed *feed = mem_zalloc(sizeof *feed + ring_bytes);
    feed->operation = (struct operation){feed_end, feed_hurry};
    feed->post.taken = taken;
    feed->worker = request->worker, feed->request = request;
    feed->ended = ended, feed->data = data, feed->room = ring_bytes;
    CHECK(pthread_mutex_init(&feed->lock, NULL) == 0);
    request->operation = &feed->operation;
    request->worker->tickets++;
    feed->generation = rpc_access_generation(http_env(request)->rpc);
    if (request->requester) timer_set(feed->worker, &feed->judge, feed->worker->now_ms + JUDGE_MS, judge);
    return feed;
}

void http_feed_answer(struct http_feed *feed, const char *content_type) {
    struct http_request *request = feed->request;
    struct connection *connection = request->connection;
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_ring, feed, response_gone);
    CHECK(response);
    feed->response = true;
    response_header(response, "Content-Type", content_type);
    request_answer(request, 200, response, 0);
    connection->stage = CONNECTION_WORK; /* so that no time limit of answers applies */
    MHD_destroy_response(response);
    connection_watch(connection);
}
