/* The preparer thread: makes the log's next segment ready while the present one is written, so that no append waits for
 * these writes and syncs. It begins when half a segment is left, and then uses the disk for half of the time at most;
 * when a quarter is left it works without rest. */
#include "base/background.h"
#include "base/clock.h"
#include "consensus/node_internal.h"

#define LATE_QUARTERS 3
#define REST_NS_MOST  100000000u
/* after an error, a full disk mostly; an append that comes before makes its segment itself */
#define AGAIN_NS 1000000000u

/* Waits until a segment is asked for, or for `rest_ns` (0: no limit). False: the thread is to stop. */
static bool rest(struct preparer *preparer, uint64_t rest_ns) {
    uint64_t until = clock_mono_ns() + rest_ns;
    uv_mutex_lock(&preparer->lock);
    while (!preparer->stop && (rest_ns || !preparer->wanted)) {
        uint64_t now = clock_mono_ns();
        if (rest_ns == 0) uv_cond_wait(&preparer->more, &preparer->lock);
        else if (now >= until) break;
        else uv_cond_timedwait(&preparer->more, &preparer->lock, until - now);
    }
    if (rest_ns == 0) preparer->wanted = false;
    bool stop = preparer->stop;
    uv_mutex_unlock(&preparer->lock);
    return !stop;
}

static void preparer_main(void *arg) {
    struct node *node = arg;
    background_thread("log-spare");
    for (uint64_t rest_ns = 0; rest(&node->preparer, rest_ns);) {
        uint64_t begun = clock_mono_ns();
        int rv = wal_prepare(node->wal);
        uint64_t took = clock_mono_ns() - begun;
        rest_ns = rv == CO_OK                                 ? 0
                  : rv != CO_AGAIN                            ? AGAIN_NS
                  : wal_fuller_than(node->wal, LATE_QUARTERS) ? 1
                  : took < REST_NS_MOST                       ? took + 1
                                                              : REST_NS_MOST;
    }
}

void node_preparer_init(struct preparer *preparer) {
    CHECK(uv_mutex_init(&preparer->lock) == 0 && uv_cond_init(&preparer->more) == 0);
}

void node_preparer_free(struct preparer *preparer) {
    uv_cond_destroy(&preparer->more);
    uv_mutex_destroy(&preparer->lock);
}

void node_preparer_start(struct preparer *preparer, struct node *node) {
    preparer->wanted = preparer->stop = false;
    preparer->asked = 0;
    CHECK(uv_thread_create(&preparer->thread, preparer_main, node) == 0);
}

void node_preparer_stop(struct preparer *preparer) {
    uv_mutex_lock(&preparer->lock);
    preparer->stop = true;
    uv_mutex_unlock(&preparer->lock);
    uv_cond_signal(&preparer->more);
    uv_thread_join(&preparer->thread);
}

void node_preparer_ask(struct preparer *preparer, struct wal *wal) {
    uint64_t segment = wal_fuller_than(wal, WAL_PREPARE_QUARTERS);
    if (segment == 0 || segment == preparer->asked) return;
    preparer->asked = segment;
    uv_mutex_lock(&preparer->lock);
    preparer->wanted = true;
    uv_mutex_unlock(&preparer->lock);
    uv_cond_signal(&preparer->more);
}
