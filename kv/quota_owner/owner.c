/* The table of budgets, and takes: here, of others, and what others answer. */
#include "kv/quota_owner/owner.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/message.h"
#include "kv/quota_owner/owner_internal.h"

/* -- life, and the table of budgets ------------------------------------------------------------------------------- */

struct owner *owner_new(const struct owner_config *config) {
    struct owner *owner = mem_zalloc(sizeof *owner);
    owner->node = mem_strdup(config->node);
    owner->seed = config->seed;
    owner->keys_most = config->keys_most ? config->keys_most : OWNER_KEYS_MOST;
    owner->mask = 63;
    owner->heads = mem_zalloc((owner->mask + 1) * sizeof(struct owner_budget *));
    owner->wake_ns = owner->due_ns = owner->ask_due_ns = OWNER_NEVER;
    rng_seed(&owner->rng, config->seed);
    list_init(&owner->ready);
    list_init(&owner->outbox);
    list_init(&owner->under_way);
    return owner;
}

static void budget_free(struct owner *owner, struct owner_budget *budget) {
    owner_out_drop(owner, budget);
    owner_incoming_clear(owner, budget);
    owner_table_clear(owner, &budget->table);
    owner_hot_clear(budget);
    owner_forget_notice(budget);
    buffer_free(&budget->splitting);
    list_remove(&budget->ready);
    free(budget->losses);
    free(budget->leavers);
    free(budget->steps);
    free(budget->name);
    free(budget);
}

static void listed_free(struct owner *owner) {
    for (size_t i = 0; i < owner->listed_count; i++) free(owner->listed[i]);
    free(owner->listed);
    owner->listed = NULL;
    owner->listed_count = 0;
}

void owner_free(struct owner *owner) {
    if (!owner) return;
    OWNER_EACH(owner, budget) budget_free(owner, budget);
    owner_out_free(owner);
    listed_free(owner);
    arena_free(&owner->arena);
    arena_free(&owner->request);
    free(owner->heads);
    free(owner->node);
    free(owner);
}

void owner_mutate(struct owner *owner, unsigned mutations) { owner->mutations = mutations; }

struct owner_budget *owner_find(const struct owner *owner, struct slice name) {
    uint64_t hash = hash64_seed(name.data, name.size, owner->seed);
    struct owner_budget *budget = owner->heads[hash & owner->mask];
    while (budget && (budget->hash != hash || !slice_equal(slice_make(budget->name, budget->name_size), name)))
        budget = budget->next;
    return budget;
}

static void grow(struct owner *owner) {
    size_t mask = 2 * owner->mask + 1;
    struct owner_budget **heads = mem_zalloc((mask + 1) * sizeof(struct owner_budget *));
    OWNER_EACH(owner, budget) {
        budget->next = heads[budget->hash & mask];
        heads[budget->hash & mask] = budget;
    }
    free(owner->heads);
    owner->heads = heads;
    owner->mask = mask;
}

/* NULL: the table is full. */
static struct owner_budget *budget_of(struct owner *owner, struct slice name, uint64_t now_ns) {
    struct owner_budget *budget = owner_find(owner, name);
    if (budget || owner->count >= SPENDER_BUDGETS_MOST) return budget;
    if (owner->count > owner->mask) grow(owner);
    budget = mem_zalloc(sizeof *budget);
    budget->hash = hash64_seed(name.data, name.size, owner->seed);
    budget->name = mem_strndup(name.data, name.size);
    budget->name_size = name.size;
    budget->ring.mine = budget->live.mine = SIZE_MAX;
    budget->version = 1;
    if (!owner->begun_ns) owner->begun_ns = now_ns;
    budget->loss.cap.begun_ns = owner->begun_ns;
    budget->used_ns = now_ns;
    budget->ask_ns = OWNER_NEVER;
    list_init(&budget->ready);
    list_init(&budget->incoming);
    budget->next = owner->heads[budget->hash & owner->mask];
    owner->heads[budget->hash & owner->mask] = budget;
    owner->count++;
    owner_follow_begin(owner, budget, now_ns);
    return budget;
}

static void budget_drop(struct owner *owner, struct owner_budget *budget) {
    CHECK(!budget->asked && !budget->following && !budget->sending);
    struct owner_budget **at = &owner->heads[budget->hash & owner->mask];
    while (*at != budget) at = &(*at)->next;
    *at = budget->next;
    owner->count--;
    budget_free(owner, budget);
}

/* -- which budgets ------------------------------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

bool owner_knows(const struct owner *owner, struct slice name) {
    if (!owner->listed_count || name.size > QUOTA_NAME_MOST || memchr(name.data, '\0', name.size)) return false;
    char room[QUOTA_NAME_MOST + 1], *key = room;
    memcpy(room, name.data, name.size);
    room[name.size] = '\0';
    return bsearch(&key, owner->listed, owner->listed_count, sizeof(char *), compare_names) != NULL;
}

void owner_listed(struct owner *owner, const Pb__QuotaOwnedResult *list, struct owner_now now) {
    listed_free(owner);
    owner->listed = mem_alloc((list->n_budgets + 1) * sizeof(char *));
    for (size_t i = 0; i < list->n_budgets; i++) owner->listed[i] = mem_strdup(list->budgets[i]->name);
    owner->listed_count = list->n_budgets;
    if (list->n_budgets) qsort(owner->listed, owner->listed_count, sizeof(char *), compare_names);
    OWNER_EACH(owner, budget)
    if (!owner_knows(owner, slice_make(budget->name, budget->name_size))) budget->serving = false;
    owner_due(owner, now.ns);
}

void owner_serves(struct owner *owner, const char *name, bool passing, struct owner_now now) {
    struct owner_budget *budget =
        passing ? budget_of(owner, slice_text(name), now.ns) : owner_find(owner, slice_text(name));
    if (!budget || budget->serving == passing) return;
    budget->serving = passing;
    if (passing && !budget->lease) owner_ask_due(owner, budget, now.ns);
    owner_due(owner, now.ns);
}

bool owner_leave(struct owner *owner, struct owner_now now) {
    bool left = owner->command != NULL;
    owner->leaving = true;
    OWNER_EACH(owner, budget) left |= budget->lease != 0;
    owner_due(owner, now.ns);
    return left;
}

/* -- time --------------------------------------------------------------------------------------------------------- */

void owner_wake(struct owner *owner) { owner->woken = true; }

bool owner_woken(struct owner *owner) {
    bool woken = owner->woken;
    owner->woken = false;
    return woken;
}

void owner_due(struct owner *owner, uint64_t at_ns) {
    if (at_ns < owner->due_ns) owner->due_ns = at_ns;
}

uint64_t owner_deadline_ns(const struct owner *owner) {
    uint64_t ask_ns = owner_ask_deadline(owner),
             at_ns = owner->due_ns < owner->wake_ns ? owner->due_ns : owner->wake_ns;
    if (!list_empty(&owner->ready) || owner_out_ready(owner)) return 0;
    return ask_ns < at_ns ? ask_ns : at_ns;
}

void owner_tick(struct owner *owner, struct owner_now now) {
    if (now.ns >= owner->wake_ns) {
        owner->wake_ns = OWNER_NEVER;
        owner_wake(owner);
    }
    if (now.ns < owner->due_ns) return;
    owner->due_ns = OWNER_NEVER;
    OWNER_EACH(owner, budget) {
        uint64_t next_ns = OWNER_NEVER;
        owner_hand_tick(owner, budget, now, &next_ns);
        owner_hot_tick(owner, budget, now, &next_ns);
        if (owner_follow_tick(owner, budget, now.ns, &next_ns)) budget_drop(owner, budget);
        else owner_due(owner, next_ns);
    }
}

/* -- counting a take here ----------------------------------------------------------------------------------------- */

struct count {
    uint64_t remaining, retry_ms, round;
};

/* Counts the take. CO_OK, CO_BUSY; CO_AGAIN: this agent does not count the key now. */
static int count_here(struct owner *owner, struct owner_budget *budget, struct owner_id id, uint64_t n,
                      struct owner_now now, struct count *out) {
    struct owner_bucket *bucket = owner_bucket_find(&budget->table, id);
    bool counted =
        bucket && bucket->checked == budget->version ? bucket->counted : owner_counts(budget, id, owner->mutations);
    if (!counted || !owner_alive(owner, budget, now.ns)) return CO_AGAIN;
    if (!bucket) {
        if (!owner_room(owner, id.key.size, false, now)) return out->retry_ms = 1000, CO_BUSY;
        bucket = owner_bucket_default(owner, budget, id, now);
        owner_bucket_add(owner, &budget->table, bucket);
    }
    bucket->checked = budget->version;
    bucket->counted = true;
    owner_refill(owner, budget, bucket, now);
    if (n) owner_hot_count(budget, bucket);
    bool enough = n <= bucket->tokens;
    if (enough) bucket->tokens -= n, budget->admitted += n;
    else out->retry_ms = owner_bucket_retry_ms(budget, bucket, n, now);
    out->remaining = bucket->tokens;
    out->round = bucket->round;
    owner_decided(budget);
    return enough ? CO_OK : CO_BUSY;
}

static void back_here(struct owner *owner, struct owner_budget *budget, struct owner_id id, uint64_t n, uint64_t round,
                      struct owner_now now) {
    struct owner_bucket *bucket = owner_bucket_find(&budget->table, id);
    if (!bucket || !owner_counts(budget, id, 0) || !owner_alive(owner, budget, now.ns)) return;
    owner_refill(owner, budget, bucket, now);
    uint64_t capacity = owner_capacity(budget, id);
    if (bucket->round != round || bucket->tokens >= capacity) return; /* refilled since the take */
    bucket->tokens += n < capacity - bucket->tokens ? n : capacity - bucket->tokens;
    CHECK(bucket->tokens <= capacity);
}

/* -- takes -------------------------------------------------------------------------------------------------------- */

static int refuse(struct owner_answer *answer, int error, uint64_t retry_ms, const char *text) {
    answer->text = text;
    answer->retry_ms = retry_ms;
    return error;
}

/* `lease`: of the member that would decide the take; 0: none is known. */
static int wait(struct owner *owner, struct owner_budget *budget, const struct owner_take *take, uint64_t lease,
                struct owner_now now, struct owner_answer *answer) {
    bool lost = budget->lost_version == budget->version && budget->lost_lease == lease;
    uint64_t end_ns = take->since_ns + (lost ? OWNER_LOST_MS : OWNER_WAIT_MS) * OWNER_MS;
    uint64_t again_ns = now.ns + OWNER_AGAIN_MS * OWNER_MS;
    if (now.ns >= end_ns) {
        budget->lost_version = budget->version, budget->lost_lease = lease;
        return owner_judge_loss(budget, take, now, answer);
    }
    if (again_ns > end_ns) again_ns = end_ns;
    if (again_ns < owner->wake_ns) owner->wake_ns = again_ns;
    return CO_AGAIN;
}

static uint32_t part_of(const struct owner *owner, const struct owner_split *split, bool elsewhere) {
    uint64_t hash = hash64(owner->node, strlen(owner->node));
    CHECK(split->parts >= 2);
    return (uint32_t)((hash + elsewhere) % split->parts);
}

static int ask_owner(struct owner *owner, struct owner_budget *budget, struct owner_take *take, struct owner_now now,
                     struct owner_answer *answer) {
    const struct owner_ring *live = &budget->live;
    size_t member = owner_of_key(live, (struct owner_id){take->key, take->split ? take->part + 1 : 0});
    /* Is the member this agent, or an earlier lease of this node? */
    bool here = member != SIZE_MAX && strcmp(live->nodes[member], owner->node) == 0;
    if (member == SIZE_MAX || here) return wait(owner, budget, take, here ? live->leases[member] : 0, now, answer);
    Pb__QuotaPeer peer = PB__QUOTA_PEER__INIT;
    Pb__QuotaRouted routed = PB__QUOTA_ROUTED__INIT;
    peer.name = budget->name, peer.epoch = budget->epoch;
    peer.from_lease = budget->lease, peer.to_lease = live->leases[member];
    routed.key = message_bytes(take->key);
    routed.split = take->split, routed.part = take->part;
    routed.n = take->n;
    peer.take = &routed;
    arena_reset(&owner->request);
    answer->request = message_pack(&owner->request, &peer.base);
    CHECK(member < live->count);
    answer->node = live->nodes[member];
    take->asked = true;
    take->lease = live->leases[member];
    return CO_AGAIN;
}

static int take_known(struct owner *owner, struct owner_budget *budget, struct owner_take *take, struct owner_now now,
                      struct owner_answer *answer) {
    const struct owner_split *split = owner_split_find(budget, take->key);
    struct count count = {0};
    take->split = split ? split->index : 0;
    take->part = split ? part_of(owner, split, take->elsewhere) : 0;
    struct owner_id id = {take->key, split ? take->part + 1 : 0};
    if (take->n > budget->capacity) return refuse(answer, CO_TOOLARGE, 0, "more than the budget may ever have unspent");
    if (take->n > owner_capacity(budget, id))
        return refuse(answer, CO_TOOLARGE, 0, "the key is split, and this is more than a part of it may have");
    int rv = count_here(owner, budget, id, take->n, now, &count);
    if (rv == CO_BUSY && split && !take->elsewhere) {
        take->elsewhere = true;
        return take_known(owner, budget, take, now, answer);
    }
    if (rv == CO_AGAIN) return ask_owner(owner, budget, take, now, answer);
    take->asked = false;
    take->round = count.round;
    answer->source = SPENDER_LOCAL;
    answer->remaining = count.remaining;
    return rv == CO_OK ? CO_OK : refuse(answer, rv, count.retry_ms, "the budget is spent");
}

int owner_take(struct owner *owner, struct owner_take *take, struct owner_now now, struct owner_answer *answer) {
    *answer = (struct owner_answer){.source = SPENDER_LOCAL};
    struct owner_budget *budget = owner_find(owner, take->name);
    if (take->key.size > QUOTA_KEY_MOST) return refuse(answer, CO_INVALID, 0, "a key has at most 8192 bytes");
    const char *text = budget ? NULL : quota_name_fault(take->name);
    if (text) return refuse(answer, CO_INVALID, 0, text);
    if (!budget) budget = budget_of(owner, take->name, now.ns);
    if (!budget) return refuse(answer, CO_BUSY, 1000, "this agent takes from too many budgets");
    budget->used_ns = now.ns;
    switch (budget->known) {
        case OWNER_KNOWN: return take_known(owner, budget, take, now, answer);
        case OWNER_NONE: return refuse(answer, CO_NOTFOUND, 0, "no such budget with owners");
        case OWNER_UNKNOWN: break;
    }
    if (budget->unreachable)
        return refuse(answer, CO_NOLEADER, 0, "no server answers, and this agent does not know it");
    return wait(owner, budget, take, 0, now, answer);
}

int owner_served(struct owner *owner, struct owner_take *take, enum owner_reach reach, struct slice reply,
                 struct owner_now now, struct owner_answer *answer) {
    *answer = (struct owner_answer){.source = SPENDER_OWNER};
    struct owner_budget *budget = owner_find(owner, take->name);
    if (!budget || budget->known != OWNER_KNOWN) return refuse(answer, CO_NOTFOUND, 0, "no such budget with owners");
    struct arena arena = {0};
    const Pb__QuotaPeerAnswer *said = NULL;
    if (reach == OWNER_ANSWERED) said = message_unpack(&arena, &pb__quota_peer_answer__descriptor, reply);
    bool unknown = !said && reach != OWNER_NOT_DELIVERED && take->n;
    Pb__QuotaPeerAnswer none = PB__QUOTA_PEER_ANSWER__INIT, known = said ? *said : none;
    arena_free(&arena);
    if (unknown) return owner_judge_loss(budget, take, now, answer);
    if (!said) return wait(owner, budget, take, take->lease, now, answer);
    switch (known.verdict) {
        case PB__QUOTA_VERDICT__QUOTA_DONE:
            owner_decided(budget);
            answer->remaining = known.remaining;
            take->round = known.round;
            return CO_OK;
        case PB__QUOTA_VERDICT__QUOTA_SPENT:
            owner_decided(budget);
            if (take->split && !take->elsewhere) {
                take->elsewhere = true;
                return owner_take(owner, take, now, answer);
            }
            answer->remaining = known.remaining;
            return refuse(answer, CO_BUSY, known.retry_ms, "the budget is spent");
        default: return wait(owner, budget, take, take->lease, now, answer); /* one has an older epoch */
    }
}

bool owner_back(struct owner *owner, const struct owner_take *take, struct owner_now now, struct owner_answer *answer) {
    *answer = (struct owner_answer){.source = SPENDER_OWNER};
    struct owner_budget *budget = owner_find(owner, take->name);
    if (!budget || budget->known != OWNER_KNOWN || !take->n) return false;
    struct owner_id id = {take->key, take->split ? take->part + 1 : 0};
    if (!take->asked) {
        back_here(owner, budget, id, take->n, take->round, now);
        return false;
    }
    size_t member = owner_of_key(&budget->live, id);
    if (member == SIZE_MAX || budget->live.leases[member] != take->lease) return false; /* the member is gone */
    struct owner_take again = *take;
    if (ask_owner(owner, budget, &again, now, answer) != CO_AGAIN || !answer->node) return false;
    Pb__QuotaPeer *peer = message_unpack(&owner->request, &pb__quota_peer__descriptor, answer->request);
    CHECK(peer && peer->take);
    peer->take->back = true, peer->take->round = take->round;
    answer->request = message_pack(&owner->request, &peer->base);
    return true;
}

bool owner_rate(const struct owner *owner, struct slice name, uint64_t remaining, int64_t unix_s,
                struct spender_rate *rate) {
    const struct owner_budget *budget = owner_find(owner, name);
    if (!budget || budget->known != OWNER_KNOWN) return false;
    quota_rate_fields(budget->definition, unix_s, rate);
    rate->remaining = remaining;
    return true;
}

/* -- takes of other agents ---------------------------------------------------------------------------------------- */

/* Compares the sender's epoch with this agent's. */
static Pb__QuotaVerdict compare(const struct owner_budget *budget, const Pb__QuotaPeer *peer) {
    const struct owner_split *split = owner_split_find(budget, message_slice(peer->take->key));
    uint64_t index = split ? split->index : 0;
    if (peer->epoch != budget->epoch)
        return peer->epoch < budget->epoch ? PB__QUOTA_VERDICT__QUOTA_STALE : PB__QUOTA_VERDICT__QUOTA_LATER;
    if (peer->take->split != index)
        return peer->take->split < index ? PB__QUOTA_VERDICT__QUOTA_STALE : PB__QUOTA_VERDICT__QUOTA_LATER;
    if (peer->to_lease != budget->lease) return PB__QUOTA_VERDICT__QUOTA_LATER;
    return PB__QUOTA_VERDICT__QUOTA_DONE;
}

static Pb__QuotaVerdict serve_take(struct owner *owner, struct owner_budget *budget, const Pb__QuotaPeer *peer,
                                   struct owner_now now, Pb__QuotaPeerAnswer *answer) {
    const Pb__QuotaRouted *take = peer->take;
    struct count count = {0};
    if (take->part >= QUOTA_PARTS_MOST || take->key.len > QUOTA_KEY_MOST) return PB__QUOTA_VERDICT__QUOTA_REFUSED;
    struct owner_id id = {message_slice(take->key), take->split ? take->part + 1 : 0};
    Pb__QuotaVerdict verdict = compare(budget, peer);
    if (verdict != PB__QUOTA_VERDICT__QUOTA_DONE) return verdict;
    if (take->back) {
        back_here(owner, budget, id, take->n, take->round, now);
        return PB__QUOTA_VERDICT__QUOTA_DONE;
    }
    int rv = count_here(owner, budget, id, take->n, now, &count);
    answer->remaining = count.remaining, answer->retry_ms = count.retry_ms, answer->round = count.round;
    return rv == CO_OK     ? PB__QUOTA_VERDICT__QUOTA_DONE
           : rv == CO_BUSY ? PB__QUOTA_VERDICT__QUOTA_SPENT
                           : PB__QUOTA_VERDICT__QUOTA_LATER;
}

static Pb__QuotaVerdict serve(struct owner *owner, const Pb__QuotaPeer *peer, struct owner_now now,
                              Pb__QuotaPeerAnswer *answer) {
    struct owner_budget *budget = owner_find(owner, slice_text(peer->name));
    if (!budget || budget->known != OWNER_KNOWN) return PB__QUOTA_VERDICT__QUOTA_LATER;
    answer->epoch = budget->epoch;
    if (peer->take) return serve_take(owner, budget, peer, now, answer);
    if (peer->hand_over) return owner_hand_serve(owner, budget, peer, now);
    return owner_share_serve(owner, budget, peer->share, now);
}

int owner_serve(struct owner *owner, struct slice payload, struct owner_now now, struct buffer *reply) {
    struct arena arena = {0};
    Pb__QuotaPeerAnswer answer = PB__QUOTA_PEER_ANSWER__INIT;
    const Pb__QuotaPeer *peer = message_unpack(&arena, &pb__quota_peer__descriptor, payload);
    bool good = peer && (peer->take || peer->hand_over || peer->share);
    if (good) {
        answer.verdict = serve(owner, peer, now, &answer);
        struct slice bytes = message_pack(&arena, &answer.base);
        buffer_append(reply, bytes.data, bytes.size);
    }
    arena_free(&arena);
    return good ? CO_OK : CO_INVALID;
}

/* -- looks -------------------------------------------------------------------------------------------------------- */

bool owner_look(struct owner *owner, struct slice name, struct slice key, uint32_t part, struct owner_now now,
                struct owner_view *view) {
    struct owner_budget *budget = owner_find(owner, name);
    *view = (struct owner_view){0};
    if (!budget || budget->known != OWNER_KNOWN) return false;
    const struct owner_split *split = owner_split_find(budget, key);
    view->part = !split ? 0 : part == UINT32_MAX ? part_of(owner, split, false) : part;
    struct owner_id id = {key, split ? view->part + 1 : 0};
    size_t member = owner_of_key(&budget->live, id), next = owner_of_key(&budget->ring, id);
    view->parts = split ? split->parts : 0;
    view->epoch = budget->epoch, view->active = budget->active;
    view->pending = budget->epoch != budget->active;
    view->owner = member == SIZE_MAX ? NULL : budget->live.nodes[member];
    view->moves = member != SIZE_MAX && next != SIZE_MAX && budget->live.leases[member] != budget->ring.leases[next];
    view->counts = owner_counts(budget, id, owner->mutations) && owner_alive(owner, budget, now.ns);
    if (!view->counts) return true;
    struct owner_bucket *bucket = owner_bucket_find(&budget->table, id), *begins = NULL;
    if (!bucket) bucket = begins = owner_bucket_default(owner, budget, id, now);
    owner_refill(owner, budget, bucket, now);
    view->left = bucket->tokens;
    view->window_s = bucket->window_s;
    free(begins);
    return true;
}
