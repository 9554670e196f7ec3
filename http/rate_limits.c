#include "http/rate_limits.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/rate_bucket.h"

#define GROUPS 4096 /* each with a lock of its own */
#define PLACES 8    /* of a group: clients */

const char *const limit_names[LIMITS] = {
    [LIMIT_READS] = "limits.request_limits.read_rate", [LIMIT_WRITES] = "limits.request_limits.write_rate",
    [LIMIT_ADDRESS_READS] = "limits.client_read_rate", [LIMIT_ADDRESS_WRITES] = "limits.client_write_rate",
    [LIMIT_TOKEN_READS] = "limits.token_read_rate",    [LIMIT_TOKEN_WRITES] = "limits.token_write_rate",
};
const char *const limit_owners[LIMITS] = {
    [LIMIT_READS] = "all clients of this agent", [LIMIT_WRITES] = "all clients of this agent",
    [LIMIT_ADDRESS_READS] = "one address",       [LIMIT_ADDRESS_WRITES] = "one address",
    [LIMIT_TOKEN_READS] = "one token",           [LIMIT_TOKEN_WRITES] = "one token",
};

struct place {
    uint64_t key;     /* 0: free */
    uint64_t full_ns; /* when its bucket is full again */
};
struct group {
    pthread_mutex_t lock;
    struct place places[PLACES];
};
struct limits {
    struct limits_config config;
    struct group *groups;
};

struct limits *limits_new(const struct limits_config *config) {
    bool any = false;
    for (int i = 0; i < LIMITS; i++) any = any || config->rates[i];
    if (!any) return NULL;
    struct limits *limits = mem_zalloc(sizeof *limits);
    limits->config = *config;
    limits->groups = mem_zalloc(GROUPS * sizeof *limits->groups);
    for (int i = 0; i < GROUPS; i++) CHECK(pthread_mutex_init(&limits->groups[i].lock, NULL) == 0);
    return limits;
}

void limits_free(struct limits *limits) {
    if (!limits) return;
    for (int i = 0; i < GROUPS; i++) pthread_mutex_destroy(&limits->groups[i].lock);
    free(limits->groups);
    free(limits);
}

/* The place of a client, or the one that it gets: a free one, else the one whose bucket is next to being full. With the lock. */
static struct place *find(struct group *group, uint64_t key) {
    struct place *least = &group->places[0];
    for (int i = 0; i < PLACES; i++) {
        struct place *place = &group->places[i];
        if (place->key == key) return place;
        if (place->full_ns < least->full_ns) least = place;
    }
    *least = (struct place){.key = key};
    return least;
}

/* 0: there is a request in it, which is taken if `take`; else how long until there is one. */
static uint64_t look(struct limits *limits, enum limit limit, uint64_t client, bool take, uint64_t now_ns) {
    uint64_t key[2] = {client, limit}, hash = hash64(key, sizeof key) | 1;
    struct group *group = &limits->groups[hash >> 32 & (GROUPS - 1)];
    pthread_mutex_lock(&group->lock);
    struct place *place = find(group, hash);
    uint64_t after_ns, wait_ns = rate_bucket_wait(place->full_ns, limits->config.rates[limit], now_ns, &after_ns);
    if (take) place->full_ns = after_ns;
    pthread_mutex_unlock(&group->lock);
    return wait_ns;
}

uint64_t limits_take(struct limits *limits, const struct limit_client *client, bool write, uint64_t now_ns,
                     enum limit *over) {
    const uint64_t clients[LIMITS] = {[LIMIT_ADDRESS_READS] = client->address,
                                      [LIMIT_ADDRESS_WRITES] = client->address,
                                      [LIMIT_TOKEN_READS] = client->token,
                                      [LIMIT_TOKEN_WRITES] = client->token};
    uint64_t longest_ns = 0;
    for (int take = 0; take < 2 && !longest_ns; take++) {
        for (int i = write ? LIMIT_WRITES : LIMIT_READS; i < LIMITS; i += 2) {
            bool of_token = i == LIMIT_TOKEN_READS || i == LIMIT_TOKEN_WRITES;
            if (!limits->config.rates[i] || (of_token && !client->token)) continue;
            uint64_t wait_ns = look(limits, (enum limit)i, clients[i], take, now_ns);
            if (wait_ns <= longest_ns) continue;
            longest_ns = wait_ns, *over = (enum limit)i;
        }
    }
    return longest_ns;
}
