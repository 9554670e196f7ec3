/* The table of budgets, and takes: here, of others, and what others answer. */
#include "kv/quota/owning.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/message.h"
#include "kv/quota/owning_internal.h"

/* -- life, and the table of budgets ------------------------------------------------------------------------------- */

struct owning *owning_new(const struct owning_config *config) {
    struct owning *owning = mem_zalloc(sizeof *owning);
    owning->node = mem_strdup(config->node);
    owning->seed = config->seed;
    owning->keys_most = config->keys_most ? config->keys_most : OWNING_KEYS_MOST;
    owning->mask = 63;
    owning->heads = mem_zalloc((owning->mask + 1) * sizeof(struct owning_budget *));
    owning->wake_ns = owning->due_ns = owning->ask_due_ns = OWNING_NEVER;
    rng_seed(&owning->rng, config->seed);
    list_init(&owning->ready);
    list_init(&owning->outbox);
    list_init(&owning->under_way);
    return owning;
}

static void budget_free(struct owning *owning, struct owning_budget *budget) {
    owning_out_drop(owning, budget);
    owning_incoming_clear(owning, budget);
    owning_table_clear(owning, &budget->table);
    owning_hot_clear(budget);
    owning_forget_notice(budget);
    buffer_free(&budget->splitting);
    list_remove(&budget->ready);
    free(budget->losses);
    free(budget->leavers);
    free(budget->steps);
    free(budget->name);
    free(budget);
}

static void listed_free(struct owning *owning) {
    for (size_t i = 0; i < owning->listed_count; i++) free(owning->listed[i]);
    free(owning->listed);
    owning->listed = NULL;
    owning->listed_count = 0;
}

void owning_free(struct owning *owning) {
    if (!owning) return;
    OWNING_EACH(owning, budget) budget_free(owning, budget);
    owning_out_free(owning);
    listed_free(owning);
    arena_free(&owning->arena);
    arena_free(&owning->request);
    free(owning->heads);
    free(owning->node);
    free(owning);
}

void owning_mutate(struct owning *owning, unsigned mutations) { owning->mutations = mutations; }

struct owning_budget *owning_find(const struct owning *owning, struct slice name) {
    uint64_t hash = hash64_seed(name.data, name.size, owning->seed);
    struct owning_budget *budget = owning->heads[hash & owning->mask];
    while (budget && (budget->hash != hash || !slice_equal(slice_make(budget->name, budget->name_size), name)))
        budget = budget->next;
    return budget;
}

static void grow(struct owning *owning) {
    size_t mask = 2 * owning->mask + 1;
    struct owning_budget **heads = mem_zalloc((mask + 1) * sizeof(struct owning_budget *));
    OWNING_EACH(owning, budget) {
        budget->next = heads[budget->hash & mask];
        heads[budget->hash & mask] = budget;
    }
    free(owning->heads);
    owning->heads = heads;
    owning->mask = mask;
}

/* NULL: the table is full. */
static struct owning_budget *budget_of(struct owning *owning, struct slice name, uint64_t now_ns) {
    struct owning_budget *budget = owning_find(owning, name);
    if (budget || owning->count >= SPENDER_BUDGETS_MOST) return budget;
    if (owning->count > owning->mask) grow(owning);
    budget = mem_zalloc(sizeof *budget);
    budget->hash = hash64_seed(name.data, name.size, owning->seed);
    budget->name = mem_strndup(name.data, name.size);
    budget->name_size = name.size;
    budget->ring.mine = budget->live.mine = SIZE_MAX;
    budget->version = 1;
    if (!owning->begun_ns) owning->begun_ns = now_ns;
    budget->cap.begun_ns = owning->begun_ns;
    budget->used_ns = now_ns;
    budget->ask_ns = OWNING_NEVER;
    list_init(&budget->ready);
    list_init(&budget->incoming);
    budget->next = owning->heads[budget->hash & owning->mask];
    owning->heads[budget->hash & owning->mask] = budget;
    owning->count++;
    owning_follow_begin(owning, budget, now_ns);
    return budget;
}

static void budget_drop(struct owning *owning, struct owning_budget *budget) {
    CHECK(!budget->asked && !budget->following && !budget->sending);
    struct owning_budget **at = &owning->heads[budget->hash & owning->mask];
    while (*at != budget) at = &(*at)->next;
    *at = budget->next;
    owning->count--;
    budget_free(owning, budget);
}

/* -- which budgets ------------------------------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

bool owning_knows(const struct owning *owning, struct slice name) {
    if (!owning->listed_count || name.size > QUOTA_NAME_MOST || memchr(name.data, '\0', name.size)) return false;
    char room[QUOTA_NAME_MOST + 1], *key = room;
    memcpy(room, name.data, name.size);
    room[name.size] = '\0';
    return bsearch(&key, owning->listed, owning->listed_count, sizeof(char *), compare_names) != NULL;
}

void owning_owned(struct owning *owning, const Pb__QuotaOwnedResult *list, struct owning_now now) {
    listed_free(owning);
    owning->listed = mem_alloc((list->n_budgets + 1) * sizeof(char *));
    for (size_t i = 0; i < list->n_budgets; i++) owning->listed[i] = mem_strdup(list->budgets[i]->name);
    owning->listed_count = list->n_budgets;
    if (list->n_budgets) qsort(owning->listed, owning->listed_count, sizeof(char *), compare_names);
    OWNING_EACH(owning, budget)
    if (!owning_knows(owning, slice_make(budget->name, budget->name_size))) budget->serving = false;
    owning_due(owning, now.ns);
}

void owning_serves(struct owning *owning, const char *name, bool passing, struct owning_now now) {
    struct owning_budget *budget =
        passing ? budget_of(owning, slice_text(name), now.ns) : owning_find(owning, slice_text(name));
    if (!budget || budget->serving == passing) return;
    budget->serving = passing;
    if (passing && !budget->lease) owning_ask_due(owning, budget, now.ns);
    owning_due(owning, now.ns);
}

bool owning_leave(struct owning *owning, struct owning_now now) {
    bool left = owning->command != NULL;
    owning->leaving = true;
    OWNING_EACH(owning, budget) left |= budget->lease != 0;
    owning_due(owning, now.ns);
    return left;
}

/* -- time --------------------------------------------------------------------------------------------------------- */

void owning_wake(struct owning *owning) { owning->woken = true; }

bool owning_woken(struct owning *owning) {
    bool woken = owning->woken;
    owning->woken = false;
    return woken;
}

void owning_due(struct owning *owning, uint64_t at_ns) {
    if (at_ns < owning->due_ns) owning->due_ns = at_ns;
}

uint64_t owning_deadline_ns(const struct owning *owning) {
    uint64_t ask_ns = owning_ask_deadline(owning),
             at_ns = owning->due_ns < owning->wake_ns ? owning->due_ns : owning->wake_ns;
    if (!list_empty(&owning->ready) || owning_out_ready(owning)) return 0;
    return ask_ns < at_ns ? ask_ns : at_ns;
}

void owning_tick(struct owning *owning, struct owning_now now) {
    if (now.ns >= owning->wake_ns) {
        owning->wake_ns = OWNING_NEVER;
        owning_wake(owning);
    }
    if (now.ns < owning->due_ns) return;
    owning->due_ns = OWNING_NEVER;
    OWNING_EACH(owning, budget) {
        uint64_t next_ns = OWNING_NEVER;
        owning_hand_tick(owning, budget, now, &next_ns);
        owning_hot_tick(owning, budget, now, &next_ns);
        if (owning_follow_tick(owning, budget, now.ns, &next_ns)) budget_drop(owning, budget);
        else owning_due(owning, next_ns);
    }
}

/* -- counting a take here ----------------------------------------------------------------------------------------- */

struct count {
    uint64_t remaining, retry_ms, round;
};

/* Counts the take. CO_OK, CO_BUSY; CO_AGAIN: this agent does not count the key now. */
static int count_here(struct owning *owning, struct owning_budget *budget, struct owning_id id, uint64_t n,
                      struct owning_now now, struct count *out) {
    struct owning_bucket *bucket = owning_bucket_find(&budget->table, id);
    bool counted =
        bucket && bucket->checked == budget->version ? bucket->counted : owning_counts(budget, id, owning->mutations);
    if (!counted || !owning_alive(owning, budget, now.ns)) return CO_AGAIN;
    if (!bucket) {
        if (!owning_room(owning, id.key.size, false, now)) return out->retry_ms = 1000, CO_BUSY;
        bucket = owning_bucket_default(owning, budget, id, now);
        owning_bucket_add(owning, &budget->table, bucket);
    }
    bucket->checked = budget->version;
    bucket->counted = true;
    owning_refill(owning, budget, bucket, now);
    if (n) owning_hot_count(budget, bucket);
    bool enough = n <= bucket->tokens;
    if (enough) bucket->tokens -= n, budget->admitted += n;
    else out->retry_ms = owning_bucket_retry_ms(budget, bucket, n, now);
    out->remaining = bucket->tokens;
    out->round = bucket->round;
    owning_decided(budget);
    return enough ? CO_OK : CO_BUSY;
}

static void back_here(struct owning *owning, struct owning_budget *budget, struct owning_id id, uint64_t n,
                      uint64_t round, struct owning_now now) {
    struct owning_bucket *bucket = owning_bucket_find(&budget->table, id);
    if (!bucket || !owning_counts(budget, id, 0) || !owning_alive(owning, budget, now.ns)) return;
    owning_refill(owning, budget, bucket, now);
    uint64_t capacity = owning_capacity(budget, id);
    if (bucket->round != round || bucket->tokens >= capacity) return; /* refilled since the take */
    bucket->tokens += n < capacity - bucket->tokens ? n : capacity - bucket->tokens;
    CHECK(bucket->tokens <= capacity);
}

/* -- takes -------------------------------------------------------------------------------------------------------- */

static int refuse(struct owning_answer *answer, int error, uint64_t retry_ms, const char *text) {
    answer->text = text;
    answer->retry_ms = retry_ms;
    return error;
}

/* `lease`: of the member that would decide the take; 0: none is known. */
static int wait(struct owning *owning, struct owning_budget *budget, const struct owning_take *take, uint64_t lease,
                struct owning_now now, struct owning_answer *answer) {
    bool lost = budget->lost_version == budget->version && budget->lost_lease == lease;
    uint64_t end_ns = take->since_ns + (lost ? OWNING_LOST_MS : OWNING_WAIT_MS) * OWNING_MS;
    uint64_t again_ns = now.ns + OWNING_AGAIN_MS * OWNING_MS;
    if (now.ns >= end_ns) {
        budget->lost_version = budget->version, budget->lost_lease = lease;
        return owning_judge_loss(budget, take, now, answer);
    }
    if (again_ns > end_ns) again_ns = end_ns;
    if (again_ns < owning->wake_ns) owning->wake_ns = again_ns;
    return CO_AGAIN;
}

static uint32_t part_of(const struct owning *owning, const struct owning_split *split, bool elsewhere) {
    uint64_t hash = hash64(owning->node, strlen(owning->node));
    CHECK(split->parts >= 2);
    return (uint32_t)((hash + elsewhere) % split->parts);
}

static int ask_owner(struct owning *owning, struct owning_budget *budget, struct owning_take *take,
                     struct owning_now now, struct owning_answer *answer) {
    const struct owning_ring *live = &budget->live;
    size_t owner = owning_owner(live, (struct owning_id){take->key, take->split ? take->part + 1 : 0});
    /* Is the member this agent, or an earlier lease of this node? */
    bool here = owner != SIZE_MAX && strcmp(live->nodes[owner], owning->node) == 0;
    if (owner == SIZE_MAX || here) return wait(owning, budget, take, here ? live->leases[owner] : 0, now, answer);
    Pb__QuotaPeer peer = PB__QUOTA_PEER__INIT;
    Pb__QuotaRouted routed = PB__QUOTA_ROUTED__INIT;
    peer.name = budget->name, peer.epoch = budget->epoch;
    peer.from_lease = budget->lease, peer.to_lease = live->leases[owner];
    routed.key = message_bytes(take->key);
    routed.split = take->split, routed.part = take->part;
    routed.n = take->n;
    peer.take = &routed;
    arena_reset(&owning->request);
    answer->request = message_pack(&owning->request, &peer.base);
    CHECK(owner < live->count);
    answer->node = live->nodes[owner];
    take->asked = true;
    take->lease = live->leases[owner];
    return CO_AGAIN;
}

static int take_known(struct owning *owning, struct owning_budget *budget, struct owning_take *take,
                      struct owning_now now, struct owning_answer *answer) {
    const struct owning_split *split = owning_split_find(budget, take->key);
    struct count count = {0};
    take->split = split ? split->index : 0;
    take->part = split ? part_of(owning, split, take->elsewhere) : 0;
    struct owning_id id = {take->key, split ? take->part + 1 : 0};
    if (take->n > budget->capacity) return refuse(answer, CO_TOOLARGE, 0, "more than the budget may ever have unspent");
    if (take->n > owning_capacity(budget, id))
        return refuse(answer, CO_TOOLARGE, 0, "the key is split, and this is more than a part of it may have");
    int rv = count_here(owning, budget, id, take->n, now, &count);
    if (rv == CO_BUSY && split && !take->elsewhere) {
        take->elsewhere = true;
        return take_known(owning, budget, take, now, answer);
    }
    if (rv == CO_AGAIN) return ask_owner(owning, budget, take, now, answer);
    take->asked = false;
    take->round = count.round;
    answer->source = SPENDER_LOCAL;
    answer->remaining = count.remaining;
    return rv == CO_OK ? CO_OK : refuse(answer, rv, count.retry_ms, "the budget is spent");
}

static bool name_fits(struct slice name) {
    char room[QUOTA_NAME_MOST + 1];
    if (name.size == 0 || name.size > QUOTA_NAME_MOST || memchr(name.data, '\0', name.size)) return false;
    memcpy(room, name.data, name.size);
    room[name.size] = '\0';
    return quota_name_fits(room);
}

int owning_take(struct owning *owning, struct owning_take *take, struct owning_now now, struct owning_answer *answer) {
    *answer = (struct owning_answer){.source = SPENDER_LOCAL};
    struct owning_budget *budget = owning_find(owning, take->name);
    if (take->key.size > QUOTA_KEY_MOST) return refuse(answer, CO_INVALID, 0, "a key has at most 8192 bytes");
    if (!budget && !name_fits(take->name))
        return refuse(answer, CO_INVALID, 0,
                      "a budget's name has 1 to 256 printable ASCII characters, none of them '\"' or '\\'");
    if (!budget) budget = budget_of(owning, take->name, now.ns);
    if (!budget) return refuse(answer, CO_BUSY, 1000, "this agent takes from too many budgets");
    budget->used_ns = now.ns;
    switch (budget->known) {
        case OWNING_KNOWN: return take_known(owning, budget, take, now, answer);
        case OWNING_NONE: return refuse(answer, CO_NOTFOUND, 0, "no such budget with owners");
        case OWNING_UNKNOWN: break;
    }
    if (budget->unreachable)
        return refuse(answer, CO_NOLEADER, 0, "no server answers, and this agent does not know it");
    return wait(owning, budget, take, 0, now, answer);
}

int owning_served(struct owning *owning, struct owning_take *take, enum owning_reach reach, struct slice reply,
                  struct owning_now now, struct owning_answer *answer) {
    *answer = (struct owning_answer){.source = SPENDER_OWNER};
    struct owning_budget *budget = owning_find(owning, take->name);
    if (!budget || budget->known != OWNING_KNOWN) return refuse(answer, CO_NOTFOUND, 0, "no such budget with owners");
    struct arena arena = {0};
    const Pb__QuotaPeerAnswer *said = NULL;
    if (reach == OWNING_ANSWERED) said = message_unpack(&arena, &pb__quota_peer_answer__descriptor, reply);
    bool unknown = !said && reach != OWNING_NOT_DELIVERED && take->n;
    Pb__QuotaPeerAnswer none = PB__QUOTA_PEER_ANSWER__INIT, known = said ? *said : none;
    arena_free(&arena);
    if (unknown) return owning_judge_loss(budget, take, now, answer);
    if (!said) return wait(owning, budget, take, take->lease, now, answer);
    switch (known.verdict) {
        case PB__QUOTA_VERDICT__QUOTA_DONE:
            owning_decided(budget);
            answer->remaining = known.remaining;
            take->round = known.round;
            return CO_OK;
        case PB__QUOTA_VERDICT__QUOTA_SPENT:
            owning_decided(budget);
            if (take->split && !take->elsewhere) {
                take->elsewhere = true;
                return owning_take(owning, take, now, answer);
            }
            answer->remaining = known.remaining;
            return refuse(answer, CO_BUSY, known.retry_ms, "the budget is spent");
        default: return wait(owning, budget, take, take->lease, now, answer); /* one has an older epoch */
    }
}

bool owning_back(struct owning *owning, const struct owning_take *take, struct owning_now now,
                 struct owning_answer *answer) {
    *answer = (struct owning_answer){.source = SPENDER_OWNER};
    struct owning_budget *budget = owning_find(owning, take->name);
    if (!budget || budget->known != OWNING_KNOWN || !take->n) return false;
    struct owning_id id = {take->key, take->split ? take->part + 1 : 0};
    if (!take->asked) {
        back_here(owning, budget, id, take->n, take->round, now);
        return false;
    }
    size_t owner = owning_owner(&budget->live, id);
    if (owner == SIZE_MAX || budget->live.leases[owner] != take->lease) return false; /* the member is gone */
    struct owning_take again = *take;
    if (ask_owner(owning, budget, &again, now, answer) != CO_AGAIN || !answer->node) return false;
    Pb__QuotaPeer *peer = message_unpack(&owning->request, &pb__quota_peer__descriptor, answer->request);
    CHECK(peer && peer->take);
    peer->take->back = true, peer->take->round = take->round;
    answer->request = message_pack(&owning->request, &peer->base);
    return true;
}

bool owning_rate(const struct owning *owning, struct slice name, uint64_t remaining, int64_t unix_s,
                 struct spender_rate *rate) {
    const struct owning_budget *budget = owning_find(owning, name);
    if (!budget || budget->known != OWNING_KNOWN) return false;
    quota_rate_fields(budget->definition, unix_s, rate);
    rate->remaining = remaining;
    return true;
}

/* -- takes of other agents ---------------------------------------------------------------------------------------- */

/* Compares the sender's epoch with this agent's. */
static Pb__QuotaVerdict compare(const struct owning_budget *budget, const Pb__QuotaPeer *peer) {
    const struct owning_split *split = owning_split_find(budget, message_slice(peer->take->key));
    uint64_t index = split ? split->index : 0;
    if (peer->epoch != budget->epoch)
        return peer->epoch < budget->epoch ? PB__QUOTA_VERDICT__QUOTA_STALE : PB__QUOTA_VERDICT__QUOTA_LATER;
    if (peer->take->split != index)
        return peer->take->split < index ? PB__QUOTA_VERDICT__QUOTA_STALE : PB__QUOTA_VERDICT__QUOTA_LATER;
    if (peer->to_lease != budget->lease) return PB__QUOTA_VERDICT__QUOTA_LATER;
    return PB__QUOTA_VERDICT__QUOTA_DONE;
}

static Pb__QuotaVerdict serve_take(struct owning *owning, struct owning_budget *budget, const Pb__QuotaPeer *peer,
                                   struct owning_now now, Pb__QuotaPeerAnswer *answer) {
    const Pb__QuotaRouted *take = peer->take;
    struct count count = {0};
    if (take->part >= QUOTA_PARTS_MOST || take->key.len > QUOTA_KEY_MOST) return PB__QUOTA_VERDICT__QUOTA_REFUSED;
    struct owning_id id = {message_slice(take->key), take->split ? take->part + 1 : 0};
    Pb__QuotaVerdict verdict = compare(budget, peer);
    if (verdict != PB__QUOTA_VERDICT__QUOTA_DONE) return verdict;
    if (take->back) {
        back_here(owning, budget, id, take->n, take->round, now);
        return PB__QUOTA_VERDICT__QUOTA_DONE;
    }
    int rv = count_here(owning, budget, id, take->n, now, &count);
    answer->remaining = count.remaining, answer->retry_ms = count.retry_ms, answer->round = count.round;
    return rv == CO_OK     ? PB__QUOTA_VERDICT__QUOTA_DONE
           : rv == CO_BUSY ? PB__QUOTA_VERDICT__QUOTA_SPENT
                           : PB__QUOTA_VERDICT__QUOTA_LATER;
}

static Pb__QuotaVerdict serve(struct owning *owning, const Pb__QuotaPeer *peer, struct owning_now now,
                              Pb__QuotaPeerAnswer *answer) {
    struct owning_budget *budget = owning_find(owning, slice_text(peer->name));
    if (!budget || budget->known != OWNING_KNOWN) return PB__QUOTA_VERDICT__QUOTA_LATER;
    answer->epoch = budget->epoch;
    if (peer->take) return serve_take(owning, budget, peer, now, answer);
    if (peer->hand_over) return owning_hand_serve(owning, budget, peer, now);
    return owning_share_serve(owning, budget, peer->share, now);
}

int owning_serve(struct owning *owning, struct slice payload, struct owning_now now, struct buffer *reply) {
    struct arena arena = {0};
    Pb__QuotaPeerAnswer answer = PB__QUOTA_PEER_ANSWER__INIT;
    const Pb__QuotaPeer *peer = message_unpack(&arena, &pb__quota_peer__descriptor, payload);
    bool good = peer && (peer->take || peer->hand_over || peer->share);
    if (good) {
        answer.verdict = serve(owning, peer, now, &answer);
        struct slice bytes = message_pack(&arena, &answer.base);
        buffer_append(reply, bytes.data, bytes.size);
    }
    arena_free(&arena);
    return good ? CO_OK : CO_INVALID;
}

/* -- looks -------------------------------------------------------------------------------------------------------- */

bool owning_look(struct owning *owning, struct slice name, struct slice key, uint32_t part, struct owning_now now,
                 struct owning_view *view) {
    struct owning_budget *budget = owning_find(owning, name);
    *view = (struct owning_view){0};
    if (!budget || budget->known != OWNING_KNOWN) return false;
    const struct owning_split *split = owning_split_find(budget, key);
    view->part = !split ? 0 : part == UINT32_MAX ? part_of(owning, split, false) : part;
    struct owning_id id = {key, split ? view->part + 1 : 0};
    size_t owner = owning_owner(&budget->live, id), next = owning_owner(&budget->ring, id);
    view->parts = split ? split->parts : 0;
    view->epoch = budget->epoch, view->active = budget->active;
    view->pending = budget->epoch != budget->active;
    view->owner = owner == SIZE_MAX ? NULL : budget->live.nodes[owner];
    view->moves = owner != SIZE_MAX && next != SIZE_MAX && budget->live.leases[owner] != budget->ring.leases[next];
    view->counts = owning_counts(budget, id, owning->mutations) && owning_alive(owning, budget, now.ns);
    if (!view->counts) return true;
    struct owning_bucket *bucket = owning_bucket_find(&budget->table, id), *begins = NULL;
    if (!bucket) bucket = begins = owning_bucket_default(owning, budget, id, now);
    owning_refill(owning, budget, bucket, now);
    view->left = bucket->tokens;
    view->window_s = bucket->window_s;
    free(begins);
    return true;
}
