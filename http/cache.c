/* Ready answers: the final bytes of a read, with their headers, kept until something that they depend on changes.
 *
 * The rule (docs/decisions): an answer is kept only if the generation of the thing was read before the transaction was
 * opened, and was the same after it was closed. It is used only while the generation is still the same. Each worker has
 * its own cache, so there are no locks, and one thread counts the references of responses. A key enters with its second
 * miss, so that reads of a million different keys do not push out the keys that are read again and again. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "http/impl.h"

#define CHAINS   4096
#define SEEN     16384
#define OVERHEAD 1400 /* of one answer besides body and key: the structs, libmicrohttpd's header entries */

struct cache {
    struct answer *chains[CHAINS];
    uint16_t seen[SEEN]; /* traces of the keys that missed */
    struct list used;    /* least recently used first */
    size_t bytes, bytes_most;
};

struct cache *cache_new(size_t bytes) {
    struct cache *cache = mem_zalloc(sizeof *cache);
    list_init(&cache->used);
    cache->bytes_most = bytes;
    return cache;
}

struct answer *answer_new(void) {
    struct answer *answer = mem_zalloc(sizeof *answer);
    list_init(&answer->link);
    return answer;
}

void ready_answer_free(struct answer *answer) {
    for (size_t i = 0; i < ARRAY_COUNT(answer->ready); i++) {
        if (answer->ready[i].response) MHD_destroy_response(answer->ready[i].response);
    }
    bytes_release(answer->plain);
    bytes_release(answer->gzip);
    if (answer->kept) {
        free((char *)answer->key.data);
        free((char *)answer->depends.watched.name.data);
        for (struct header *header = answer->headers, *next; header; header = next) {
            next = header->next;
            free(header);
        }
    }
    free(answer->cause);
    free(answer);
}

static struct answer **chain_of(struct cache *cache, uint64_t hash) { return &cache->chains[hash % CHAINS]; }

void cache_drop(struct cache *cache, struct answer *answer) {
    struct answer **at = chain_of(cache, answer->key_hash);
    while (*at != answer) at = &(*at)->chain;
    *at = answer->chain;
    list_remove(&answer->link);
    cache->bytes -= answer->cost;
    ready_answer_free(answer);
}

void cache_free(struct cache *cache) {
    if (!cache) return;
    while (!list_empty(&cache->used)) cache_drop(cache, LIST_ENTRY(cache->used.next, struct answer, link));
    free(cache);
}

struct answer *cache_find(struct cache *cache, struct slice key, uint64_t hash, uint64_t view) {
    struct answer *answer = *chain_of(cache, hash);
    while (answer && !(answer->key_hash == hash && answer->read.view == view && slice_equal(answer->key, key)))
        answer = answer->chain;
    if (!answer) return NULL;
    list_remove(&answer->link);
    list_append(&cache->used, &answer->link);
    return answer;
}

static void make_room(struct cache *cache, const struct answer *but) {
    while (cache->bytes > cache->bytes_most && !list_empty(&cache->used)) {
        struct answer *oldest = LIST_ENTRY(cache->used.next, struct answer, link);
        if (oldest == but) return;
        cache_drop(cache, oldest);
    }
}

void cache_charge(struct cache *cache, struct answer *answer, size_t more) {
    if (!answer->kept) return;
    answer->cost += more;
    cache->bytes += more;
    make_room(cache, answer);
}

static bool asked_before(struct cache *cache, uint64_t hash) {
    uint16_t *seen = &cache->seen[hash % SEEN], trace = (uint16_t)(hash >> 48);
    if (*seen == trace) return true;
    *seen = trace;
    return false;
}

static struct header *headers_copy(const struct header *from) {
    struct header *first = NULL, **end = &first;
    for (; from; from = from->next) {
        size_t name = strlen(from->name) + 1, value = strlen(from->value) + 1;
        struct header *copy = mem_alloc(sizeof *copy + name + value);
        char *text = (char *)(copy + 1);
        *copy = (struct header){NULL, memcpy(text, from->name, name), memcpy(text + name, from->value, value)};
        *end = copy;
        end = &copy->next;
    }
    return first;
}

void cache_offer(struct cache *cache, struct answer *answer) {
    if (answer->depends.type->own || !asked_before(cache, answer->key_hash)) return;
    size_t cost = answer->plain->size + answer->key.size + answer->depends.watched.name.size + OVERHEAD;
    if (cost > cache->bytes_most / 4) return;
    answer->kept = true;
    answer->key.data = mem_strndup(answer->key.data, answer->key.size);
    struct slice *name = &answer->depends.watched.name;
    name->data = mem_strndup(name->data, name->size);
    answer->headers = headers_copy(answer->headers);
    answer->cost = cost;
    cache->bytes += cost;
    struct answer **chain = chain_of(cache, answer->key_hash);
    answer->chain = *chain;
    *chain = answer;
    list_append(&cache->used, &answer->link);
    make_room(cache, answer);
}

/* ---- sending ---- */

static const char *const consistency_names[] = {"leader", "stale", "consistent"};

static struct bytes *packed(struct worker *worker, struct answer *answer) {
    if (!answer->gzip_tried) {
        answer->gzip_tried = true;
        answer->gzip = gzip_bytes(worker, answer->plain);
        if (answer->gzip) cache_charge(worker->cache, answer, answer->gzip->size);
    }
    return answer->gzip;
}

static const char *cause_of(struct worker *worker, const struct requester *requester, struct answer *answer) {
    if (answer->cause) return answer->cause;
    answer->cause = mem_alloc(RPC_CAUSE_MAX);
    read_cause(worker->reader, requester, &answer->depends, answer->read.index, answer->cause);
    cache_charge(worker->cache, answer, RPC_CAUSE_MAX);
    return answer->cause;
}

static struct MHD_Response *build(const struct answer *answer, struct bytes *body, bool gzip, uint64_t index,
                                  bool known_leader, uint64_t last_contact_ms, const char *cause) {
    struct MHD_Response *response = response_new(body, answer->content_type);
    if (gzip) response_header(response, "Content-Encoding", "gzip");
    if (answer->cached_asked) response_header(response, "X-Cache", "MISS");
    response_header(response, "X-Consul-Effective-Consistency", consistency_names[answer->consistency]);
    response_header_u64(response, "X-Consul-Index", index);
    response_header(response, "X-Consul-KnownLeader", known_leader ? "true" : "false");
    response_header_u64(response, "X-Consul-LastContact", last_contact_ms);
    if (cause && cause[0]) response_header(response, "X-Coord-Cause", cause);
    response_hidden(response, answer->read.hidden);
    response_extra(response, answer->headers);
    return response;
}

void answer_send(struct http_request *request, struct answer *answer, uint64_t least, bool woken) {
    struct worker *worker = request->worker;
    struct bytes *body = request->gzip ? packed(worker, answer) : NULL;
    bool gzip = body != NULL;
    if (!body) body = answer->plain;
    uint64_t last_contact_ms, index = answer->read.index > least ? answer->read.index : least;
    bool known_leader = worker_known_leader(worker, &last_contact_ms);
    /* Some headers change without a change of the result; then the response is built again around the same bytes. */
    typeof(&answer->ready[0]) ready = &answer->ready[gzip + 2 * woken];
    if (!ready->response || ready->index != index || ready->known_leader != known_leader ||
        ready->last_contact_ms != last_contact_ms) {
        if (ready->response) MHD_destroy_response(ready->response);
        ready->response = build(answer, body, gzip, index, known_leader, last_contact_ms,
                                woken ? cause_of(worker, request->requester, answer) : NULL);
        ready->index = index;
        ready->known_leader = known_leader;
        ready->last_contact_ms = last_contact_ms;
    }
    request_answer(request, (int)answer->read.tag, ready->response, body->size);
}
