#include "http/parked_limits.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"

#define CHAINS 1024

const char *const parked_limit_names[PARKED_LIMITS] = {
    [PARKED_ADDRESS] = "limits.client_parked", [PARKED_TOKEN] = "limits.token_parked"};
const char *const parked_limit_owners[PARKED_LIMITS] = {[PARKED_ADDRESS] = "one address", [PARKED_TOKEN] = "one token"};

struct client {
    struct client *next;
    uint64_t key[2]; /* hash, kind */
    uint64_t places; /* never 0 */
};
struct parked_limits {
    struct parked_config config;
    pthread_mutex_t lock;
    size_t known;
    struct client *chains[CHAINS];
};

struct parked_limits *parked_limits_new(const struct parked_config *config) {
    bool any = false;
    for (int i = 0; i < PARKED_LIMITS; i++) any = any || config->most[i];
    if (!any) return NULL;
    struct parked_limits *limits = mem_zalloc(sizeof *limits);
    limits->config = *config;
    CHECK(pthread_mutex_init(&limits->lock, NULL) == 0);
    return limits;
}

void parked_limits_free(struct parked_limits *limits) {
    if (!limits) return;
    CHECK(limits->known == 0);
    pthread_mutex_destroy(&limits->lock);
    free(limits);
}

/* Where it is, or NULL at the end of its chain. With the lock. */
static struct client **find(struct parked_limits *limits, enum parked_limit kind, uint64_t hash) {
    uint64_t key[2] = {hash, kind};
    struct client **at = &limits->chains[hash64(key, sizeof key) % CHAINS];
    while (*at && ((*at)->key[0] != hash || (*at)->key[1] != kind)) at = &(*at)->next;
    return at;
}

static void add(struct parked_limits *limits, enum parked_limit kind, uint64_t hash) {
    struct client **at = find(limits, kind, hash);
    if (!*at) {
        *at = mem_zalloc(sizeof **at);
        (*at)->key[0] = hash, (*at)->key[1] = kind;
        limits->known++;
    }
    (*at)->places++;
}

static void subtract(struct parked_limits *limits, enum parked_limit kind, uint64_t hash) {
    struct client **at = find(limits, kind, hash), *client = *at;
    CHECK(client && client->places > 0);
    if (--client->places > 0) return;
    *at = client->next;
    free(client);
    limits->known--;
}

/* The limit that one more place would be above. */
static enum parked_limit above(struct parked_limits *limits, const uint64_t clients[PARKED_LIMITS]) {
    int i = 0;
    for (; i < PARKED_LIMITS; i++) {
        const struct client *client = clients[i] ? *find(limits, (enum parked_limit)i, clients[i]) : NULL;
        if (limits->config.most[i] && client && client->places >= limits->config.most[i]) break;
    }
    return (enum parked_limit)i;
}

bool parked_limits_take(struct parked_limits *limits, const uint64_t clients[PARKED_LIMITS], struct parked_place *place,
                        enum parked_limit *over) {
    *over = PARKED_LIMITS;
    if (!limits) return true;
    CHECK(!place->taken);
    pthread_mutex_lock(&limits->lock);
    *over = above(limits, clients);
    place->taken = *over == PARKED_LIMITS || limits->config.permissive;
    for (int i = 0; i < PARKED_LIMITS && place->taken; i++) {
        place->clients[i] = limits->config.most[i] ? clients[i] : 0;
        if (place->clients[i]) add(limits, (enum parked_limit)i, place->clients[i]);
    }
    pthread_mutex_unlock(&limits->lock);
    return place->taken;
}

void parked_limits_give(struct parked_limits *limits, struct parked_place *place) {
    if (!place->taken) return;
    pthread_mutex_lock(&limits->lock);
    for (int i = 0; i < PARKED_LIMITS; i++)
        if (place->clients[i]) subtract(limits, (enum parked_limit)i, place->clients[i]);
    pthread_mutex_unlock(&limits->lock);
    *place = (struct parked_place){0};
}

size_t parked_limits_known(struct parked_limits *limits) {
    pthread_mutex_lock(&limits->lock);
    size_t known = limits->known;
    pthread_mutex_unlock(&limits->lock);
    return known;
}
