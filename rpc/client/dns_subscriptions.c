/* The results from which DNS on a client agent answers: those of recent queries, each kept current by a blocking fetch
 * of its own. A thread that asks a new query waits for the result, MIRROR_WAIT_MS at most. From then on the result is
 * here, and a change at the servers bumps the generation of its thing, as the applier does on a server. While no server
 * can be reached, results stay as they were.
 *
 *     asked --fetch--> ready --changed--> generation + 1, ready
 *                        '--not asked for IDLE_MS, or pushed out by another--> gone
 *
 * Their number is bounded, and made-up names must not push out those that exist. When the table is full, a new entry
 * replaces the one that was asked for least recently; entries that do not exist (or are not known yet) go before those
 * that do. An entry for which a thread waits stays. Without a server nothing is pushed out, because nothing new would
 * come.
 *
 * Entries, the table and the lists: under the lock. Fetches end on the loop. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/message.h"
#include "rpc/client/client_internal.h"

#define BUCKETS        1024
#define MIRROR_WAIT_MS 1500
#define FOLLOW_MS      300000
#define RETRY_MS       1000
#define IDLE_MS        600000

struct dns_subscription {
    struct dns_subscription *chain;
    /* subscriptions->there or subscriptions->missing, the least recently asked first; alone while somebody waits for
     * it, or when it is dropped */
    struct list use;
    struct list retry; /* subscriptions->retries, or alone */
    struct dns_subscriptions *subscriptions;
    const struct query_type *type;
    uint64_t hash, since_ms, used_ms, retry_ms;
    unsigned waiters; /* threads that wait */
    bool ready, found, none;
    bool fetching, dropped; /* dropped: nobody finds it any more; freed when its fetch has ended and nobody waits */
    uint64_t index, view;   /* of the answer (rpc_fetched); index 0: the next one comes at once */
    struct requester *requester; /* it has what this one may see */
    struct slice request;        /* packed, ours */
    ProtobufCMessage *message;   /* the same */
    char *records;
    size_t records_size;
    struct rpc_fetch fetch;
};

struct dns_subscriptions {
    struct rpc *rpc;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct dns_subscription *buckets[BUCKETS];
    size_t count, most, out; /* in the table, at most; fetches under way */
    struct list there, missing, retries;
    struct watch_table *watches;
    struct watch_touched touched;
    bool stopping;
};

/* -- fetches; loop thread, but for the first of an entry ---------------------------------------------------------- */
static void follow(struct dns_subscription *entry, uint64_t index);

static bool connected(const struct dns_subscriptions *subscriptions) {
    return subscriptions->rpc->client->connections.connected;
}

static void touch(struct dns_subscriptions *subscriptions, const struct dns_subscription *entry) {
    watch_touch(&subscriptions->touched, entry->type->watched(entry->message));
    watch_bump(subscriptions->watches, &subscriptions->touched);
    watch_wake(subscriptions->watches, &subscriptions->touched);
    watch_touched_reset(&subscriptions->touched);
}

static void entry_free(struct dns_subscription *entry) {
    if (entry->fetching || entry->waiters) return; /* the last of these frees it */
    protobuf_c_message_free_unpacked(entry->message, NULL);
    requester_release(entry->requester);
    free((char *)(uintptr_t)entry->request.data);
    free(entry->records);
    free(entry);
}

static void entry_drop(struct dns_subscriptions *subscriptions, struct dns_subscription *entry) {
    struct dns_subscription **at = &subscriptions->buckets[entry->hash % BUCKETS];
    while (*at != entry) at = &(*at)->chain;
    *at = entry->chain;
    subscriptions->count--;
    list_remove(&entry->use);
    list_remove(&entry->retry);
    entry->dropped = true;
    touch(subscriptions, entry); /* no changes will be reported any more */
    if (entry->fetching) rpc_fetch_cancel(subscriptions->rpc, &entry->fetch);
    entry_free(entry);
}

static bool is_there(const struct dns_subscription *entry) { return entry->ready && entry->found && !entry->none; }

/* Moves the entry to the end of its list. */
static void entry_used(struct dns_subscriptions *subscriptions, struct dns_subscription *entry) {
    list_remove(&entry->use);
    if (!entry->waiters) list_append(is_there(entry) ? &subscriptions->there : &subscriptions->missing, &entry->use);
}

static bool same(const struct dns_subscription *entry, const struct rpc_fetched *fetched) {
    return entry->ready && entry->found == fetched->found && entry->none == fetched->none &&
           slice_equal(slice_make(entry->records, entry->records_size), fetched->records);
}

static void take(struct dns_subscription *entry, const struct rpc_fetched *fetched) {
    bool changed = !same(entry, fetched), was_there = is_there(entry);
    entry->index = fetched->index, entry->view = fetched->view;
    if (!changed) return;
    free(entry->records);
    entry->records = mem_alloc(fetched->records.size + 1);
    if (fetched->records.size) memcpy(entry->records, fetched->records.data, fetched->records.size);
    entry->records_size = fetched->records.size;
    entry->found = fetched->found, entry->none = fetched->none, entry->ready = true;
    if (is_there(entry) != was_there) entry_used(entry->subscriptions, entry);
    touch(entry->subscriptions, entry);
}

static void fetched_here(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct dns_subscription *entry = CONTAINER_OF(fetch, struct dns_subscription, fetch);
    struct dns_subscriptions *subscriptions = entry->subscriptions;
    uint64_t now_ms = clock_mono_ms();
    pthread_mutex_lock(&subscriptions->lock);
    subscriptions->out--;
    entry->fetching = false;
    bool refused = error == CO_DENIED || error == CO_NOTOKEN;
    if (error == CO_OK && !entry->dropped) take(entry, fetched);
    if (refused && !entry->dropped) take(entry, &(struct rpc_fetched){.none = true});
    if (entry->dropped) {
        entry_free(entry);
    } else if (subscriptions->stopping || !entry->ready ||
               (now_ms - entry->used_ms > IDLE_MS && connected(subscriptions))) {
        entry_drop(subscriptions, entry);
    } else if (error == CO_OK) {
        follow(entry, entry->index);
    } else {
        entry->retry_ms = now_ms + RETRY_MS;
        list_append(&subscriptions->retries, &entry->retry);
    }
    pthread_cond_broadcast(&subscriptions->news);
    pthread_mutex_unlock(&subscriptions->lock);
}

static void follow(struct dns_subscription *entry, uint64_t index) {
    entry->fetch = (struct rpc_fetch){.type = entry->type,
                                      .freshness = RPC_STALE,
                                      .no_cache = true,
                                      .index = index,
                                      .view = entry->view,
                                      .wait_ms = FOLLOW_MS,
                                      .requester = entry->requester,
                                      .done = fetched_here};
    entry->subscriptions->out++;
    entry->fetching = true;
    rpc_fetch(entry->subscriptions->rpc, &entry->fetch, entry->message);
}

void dns_subscriptions_tick(struct dns_subscriptions *subscriptions, uint64_t now_ms) {
    pthread_mutex_lock(&subscriptions->lock);
    LIST_FOREACH_SAFE(item, next, &subscriptions->retries) {
        struct dns_subscription *entry = LIST_ENTRY(item, struct dns_subscription, retry);
        if (now_ms < entry->retry_ms) continue;
        list_remove(&entry->retry);
        follow(entry, entry->index);
    }
    pthread_mutex_unlock(&subscriptions->lock);
}

/* -- asking; any thread ------------------------------------------------------------------------------------------- */
static struct dns_subscription *find(struct dns_subscriptions *subscriptions, const struct query_type *type,
                                     struct slice request, const struct requester *requester, uint64_t hash) {
    struct dns_subscription *entry = subscriptions->buckets[hash % BUCKETS];
    while (entry && (entry->hash != hash || entry->type != type || !slice_equal(entry->request, request) ||
                     !requester_equal(entry->requester, requester)))
        entry = entry->chain;
    return entry;
}

static struct dns_subscription *entry_new(struct dns_subscriptions *subscriptions, const struct query_type *type,
                                          struct slice request, const struct requester *requester, uint64_t hash) {
    struct dns_subscription *entry = mem_zalloc(sizeof *entry);
    entry->requester = requester_keep(requester);
    entry->subscriptions = subscriptions, entry->type = type, entry->hash = hash,
    entry->since_ms = entry->used_ms = clock_mono_ms();
    entry->request = slice_make(mem_strndup(request.data, request.size), request.size);
    entry->message = protobuf_c_message_unpack(type->request, NULL, request.size, (const uint8_t *)request.data);
    CHECK(entry->message);
    list_init(&entry->use);
    list_init(&entry->retry);
    entry->chain = subscriptions->buckets[hash % BUCKETS];
    subscriptions->buckets[hash % BUCKETS] = entry;
    subscriptions->count++;
    entry_used(subscriptions, entry);
    follow(entry, 0);
    return entry;
}

/* Makes room for one more entry. */
static int make_room(struct dns_subscriptions *subscriptions) {
    if (subscriptions->count < subscriptions->most) return CO_OK;
    if (!connected(subscriptions)) return CO_NOLEADER;
    struct list *from = list_empty(&subscriptions->missing) ? &subscriptions->there : &subscriptions->missing;
    if (list_empty(from)) return CO_BUSY; /* somebody waits for each entry */
    entry_drop(subscriptions, LIST_ENTRY(from->next, struct dns_subscription, use));
    return CO_OK;
}

static int copy_out(const struct dns_subscription *entry, struct arena *arena, struct query_result *result) {
    result->index = entry->index, result->found = entry->found;
    if (entry->none) return CO_OK;
    result->message = message_unpack(arena, query_result_type(entry->type, entry->message),
                                     slice_make(entry->records, entry->records_size));
    return result->message ? CO_OK : CO_CORRUPT;
}

static struct timespec monotonic(uint64_t ms) {
    return (struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000l};
}

/* Waits until MIRROR_WAIT_MS after the first question, also for a thread that comes later, because names that a server
 * does not answer must not hold up all others. */
static int wait_ready(struct dns_subscriptions *subscriptions, struct dns_subscription *entry) {
    struct timespec until = monotonic(entry->since_ms + MIRROR_WAIT_MS);
    int rv = CO_OK;
    entry->waiters++;
    list_remove(&entry->use);
    while (rv == CO_OK && !entry->ready && !entry->dropped) {
        if (!connected(subscriptions)) rv = CO_NOLEADER;
        else if (pthread_cond_timedwait(&subscriptions->news, &subscriptions->lock, &until) == ETIMEDOUT)
            rv = CO_TIMEOUT;
    }
    entry->waiters--;
    if (entry->ready) return CO_OK;
    return rv == CO_OK ? CO_NOLEADER : rv;
}

/* Not ready yet: CO_NOLEADER without a server, CO_AGAIN until MIRROR_WAIT_MS after the first question, then
 * CO_TIMEOUT. */
static int not_ready(struct dns_subscriptions *subscriptions, const struct dns_subscription *entry) {
    if (!connected(subscriptions)) return CO_NOLEADER;
    return clock_mono_ms() < entry->since_ms + MIRROR_WAIT_MS ? CO_AGAIN : CO_TIMEOUT;
}

int dns_subscriptions_query(struct dns_subscriptions *subscriptions, const struct query_type *type,
                            const ProtobufCMessage *request, const struct requester *requester, struct arena *arena,
                            struct query_result *result, bool wait) {
    struct slice wanted = message_pack(arena, request);
    uint64_t hash = hash64_seed(wanted.data, wanted.size, type->number + (requester ? requester->hash : 0));
    *result = (struct query_result){0};
    pthread_mutex_lock(&subscriptions->lock);
    struct dns_subscription *entry = find(subscriptions, type, wanted, requester, hash);
    int rv = subscriptions->stopping ? CO_CLOSED : entry ? CO_OK : make_room(subscriptions);
    if (rv == CO_OK && !entry) entry = entry_new(subscriptions, type, wanted, requester, hash);
    if (rv == CO_OK) {
        if (!entry->ready) rv = wait ? wait_ready(subscriptions, entry) : not_ready(subscriptions, entry);
        if (rv == CO_OK) rv = copy_out(entry, arena, result);
        if (entry->dropped) entry_free(entry);
        else entry->used_ms = clock_mono_ms(), entry_used(subscriptions, entry);
    }
    pthread_mutex_unlock(&subscriptions->lock);
    return rv;
}

struct watch_table *dns_subscriptions_watches(struct dns_subscriptions *subscriptions) {
    return subscriptions->watches;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct dns_subscriptions *dns_subscriptions_new(struct rpc *rpc, size_t most) {
    struct dns_subscriptions *subscriptions = mem_zalloc(sizeof *subscriptions);
    subscriptions->rpc = rpc, subscriptions->most = most;
    subscriptions->watches = watch_table_new();
    list_init(&subscriptions->there);
    list_init(&subscriptions->missing);
    list_init(&subscriptions->retries);
    pthread_condattr_t monotonic;
    CHECK(pthread_mutex_init(&subscriptions->lock, NULL) == 0 && pthread_condattr_init(&monotonic) == 0);
    CHECK(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
          pthread_cond_init(&subscriptions->news, &monotonic) == 0);
    pthread_condattr_destroy(&monotonic);
    return subscriptions;
}

void dns_subscriptions_stop(struct dns_subscriptions *subscriptions) {
    pthread_mutex_lock(&subscriptions->lock);
    subscriptions->stopping = true;
    LIST_FOREACH_SAFE(item, next, &subscriptions->retries)
        entry_drop(subscriptions, LIST_ENTRY(item, struct dns_subscription, retry));
    pthread_cond_broadcast(&subscriptions->news);
    pthread_mutex_unlock(&subscriptions->lock);
}

void dns_subscriptions_free(struct dns_subscriptions *subscriptions) {
    CHECK(subscriptions->out == 0 && subscriptions->count == 0);
    watch_table_free(subscriptions->watches);
    watch_touched_free(&subscriptions->touched);
    pthread_cond_destroy(&subscriptions->news);
    pthread_mutex_destroy(&subscriptions->lock);
    free(subscriptions);
}
