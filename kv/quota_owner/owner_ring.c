/* Notices: members, losses and splits; and the rings that follow from them. */
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "kv/quota_owner/owner_internal.h"

#define AGAIN_NS (1000 * OWNER_MS) /* after an error */
#define NONE_MS  2000              /* for how long a missing budget is remembered */

/* -- rings -------------------------------------------------------------------------------------------------------- */

void owner_ring_free(struct owner_ring *ring) {
    rendezvous_free(ring->set);
    *ring = (struct owner_ring){.mine = SIZE_MAX};
}

size_t owner_of_key(const struct owner_ring *ring, struct owner_id id) {
    if (!ring->set) return SIZE_MAX;
    if (id.slot == 0) return rendezvous_owner(ring->set, id.key);
    char room[QUOTA_KEY_MOST + 1 + 4];
    CHECK(id.key.size <= QUOTA_KEY_MOST);
    memcpy(room, id.key.data, id.key.size);
    room[id.key.size] = '\0';
    put_be32(room + id.key.size + 1, id.slot - 1);
    return rendezvous_owner(ring->set, slice_make(room, id.key.size + 1 + 4));
}

static struct rendezvous *set_of(char *const *nodes, size_t count) {
    struct rendezvous_member *members = mem_alloc((count + 1) * sizeof *members);
    for (size_t i = 0; i < count; i++) members[i] = (struct rendezvous_member){slice_text(nodes[i]), 1};
    struct rendezvous *set = count ? rendezvous_new(members, count) : NULL;
    free(members);
    return set;
}

static size_t mine_of(const struct owner *owner, const struct owner_budget *budget, const struct owner_ring *ring) {
    for (size_t i = 0; i < ring->count && budget->lease; i++)
        if (ring->leases[i] == budget->lease && strcmp(ring->nodes[i], owner->node) == 0) return i;
    return SIZE_MAX;
}

void owner_rings_mine(const struct owner *owner, struct owner_budget *budget) {
    budget->ring.mine = mine_of(owner, budget, &budget->ring);
    budget->live.mine = mine_of(owner, budget, &budget->live);
    budget->version++;
}

static void rings_make(struct owner *owner, struct owner_budget *budget) {
    Pb__QuotaNotice *notice = budget->notice;
    budget->ring.nodes = notice->members, budget->ring.leases = notice->member_leases;
    budget->ring.count = notice->n_members < notice->n_member_leases ? notice->n_members : notice->n_member_leases;
    budget->live.nodes = arena_alloc(&budget->arena, (notice->n_active_members + 1) * sizeof(char *));
    budget->live.leases = arena_alloc(&budget->arena, (notice->n_active_members + 1) * sizeof(uint64_t));
    budget->live.count = 0;
    for (size_t i = 0; i < notice->n_active_members && i < notice->n_active_leases; i++) {
        if (!notice->active_leases[i]) continue;
        budget->live.nodes[budget->live.count] = notice->active_members[i];
        budget->live.leases[budget->live.count++] = notice->active_leases[i];
    }
    rendezvous_free(budget->live.set);
    budget->live.set = set_of(budget->live.nodes, budget->live.count);
    budget->ring.set = set_of(budget->ring.nodes, budget->ring.count); /* the former set belongs to the passage */
    owner_rings_mine(owner, budget);
}

bool owner_alive(const struct owner *owner, const struct owner_budget *budget, uint64_t now_ns) {
    return budget->lease && (now_ns < budget->end_ns || owner->mutations & OWNER_MUTATE_OVERSTAYS);
}

bool owner_counts(const struct owner_budget *budget, struct owner_id id, unsigned mutations) {
    if (budget->known != OWNER_KNOWN || !budget->lease || budget->leave) return false;
    const struct owner_split *split = owner_split_find(budget, id.key);
    if (id.slot == 0 ? split != NULL : !split || id.slot > split->parts) return false;
    if (id.slot == 0 && budget->proposing && slice_equal(id.key, buffer_slice(&budget->splitting))) return false;
    if (mutations & OWNER_MUTATE_COUNTS_EARLY && owner_is_mine(&budget->ring, id)) return true;
    if (!owner_is_mine(&budget->live, id)) return false;
    return budget->hand.state < HAND_FROZEN || owner_is_mine(&budget->ring, id);
}

/* -- losses and splits -------------------------------------------------------------------------------------------- */

const struct owner_split *owner_split_find(const struct owner_budget *budget, struct slice key) {
    for (size_t i = 0; i < budget->split_count; i++)
        if (slice_equal(budget->splits[i].key, key)) return &budget->splits[i];
    return NULL;
}

static struct owner_step *step_find(const struct owner_budget *budget, uint64_t index) {
    for (size_t i = 0; i < budget->step_count; i++)
        if (budget->steps[i].index == index) return &budget->steps[i];
    return NULL;
}

static void step_apply(struct owner_budget *budget, const struct owner_step *step) {
    for (size_t i = 0; i < budget->loss_count; i++)
        if (budget->losses[i].index == step->index)
            budget->losses[i].seen_ns = step->seen_ns, budget->losses[i].window_s = step->window_s;
    for (size_t i = 0; i < budget->split_count; i++)
        if (budget->splits[i].index == step->index)
            budget->splits[i].seen_ns = step->seen_ns, budget->splits[i].window_s = step->window_s;
}

void owner_step_add(struct owner_budget *budget, uint64_t index, uint64_t seen_ns, int64_t window_s) {
    struct owner_step *step = step_find(budget, index);
    if (!step) {
        if (budget->step_count == OWNER_STEPS_MOST) { /* drops the oldest, which is learned of again if it still
                                                        * matters */
            memmove(budget->steps, budget->steps + 1, (OWNER_STEPS_MOST - 1) * sizeof *budget->steps);
            budget->step_count--;
        }
        budget->steps = mem_realloc(budget->steps, (budget->step_count + 1) * sizeof *budget->steps);
        step = &budget->steps[budget->step_count++];
        *step = (struct owner_step){index, seen_ns, window_s};
    }
    CHECK(budget->step_count <= OWNER_STEPS_MOST && step->index == index);
    if (seen_ns < step->seen_ns) step->seen_ns = seen_ns;
    if (window_s < step->window_s) step->window_s = window_s;
    step_apply(budget, step);
}

bool owner_loss_touches(const struct owner_budget *budget, struct owner_loss *loss, struct owner_id id) {
    if (!loss->node) return true;
    if (!loss->set) {
        const struct owner_ring *ring = &budget->ring;
        char **nodes = mem_alloc((ring->count + 1) * sizeof(char *));
        size_t count = 1;
        nodes[0] = loss->node;
        for (size_t i = 0; i < ring->count; i++)
            if (ring->leases[i] <= loss->active && strcmp(ring->nodes[i], loss->node) != 0)
                nodes[count++] = ring->nodes[i];
        loss->set = set_of(nodes, count);
        free(nodes);
    }
    struct owner_ring then = {.set = loss->set};
    return owner_of_key(&then, id) == 0;
}

static void loss_remove(struct owner_budget *budget, size_t i) {
    CHECK(i < budget->loss_count);
    free(budget->losses[i].node);
    rendezvous_free(budget->losses[i].set);
    budget->losses[i] = budget->losses[--budget->loss_count];
}

static bool is_listed(const struct owner_budget *budget, const struct owner_loss *loss) {
    if (loss->index == budget->notice->losses_before && !loss->node) return true;
    for (size_t i = 0; i < budget->notice->n_losses; i++)
        if (budget->notice->losses[i]->index == loss->index) return true;
    return false;
}

/* Would a key that the loss touched be full by now, if nothing was taken? So would a part. */
static bool is_over(const struct owner_budget *budget, const struct owner_loss *loss, struct owner_now now) {
    const Pb__QuotaDefinition *definition = budget->definition;
    if (definition->window) return loss->window_s < owner_window(definition, now.unix_s - OWNER_SKEW_S);
    unsigned __int128 full_ms = ((unsigned __int128)budget->capacity + 2 * QUOTA_PARTS_MOST) * definition->every_ms;
    CHECK(definition->tokens > 0);
    full_ms = full_ms / definition->tokens * 102 / 100 + 1;
    return now.ns > loss->seen_ns && (now.ns - loss->seen_ns) / OWNER_MS > full_ms;
}

uint64_t owner_losses_over(const struct owner_budget *budget, struct owner_now now) {
    uint64_t over = 0, least = UINT64_MAX; /* index of the oldest loss that still matters */
    for (size_t i = 0; i < budget->loss_count; i++) {
        const struct owner_loss *loss = &budget->losses[i];
        if (!is_over(budget, loss, now)) least = loss->index < least ? loss->index : least;
    }
    for (size_t i = 0; i < budget->loss_count; i++)
        if (budget->losses[i].index < least && budget->losses[i].index > over) over = budget->losses[i].index;
    return over;
}

static void loss_add(struct owner_budget *budget, const char *node, uint64_t index, uint64_t active,
                     struct owner_now now) {
    for (size_t i = 0; i < budget->loss_count; i++)
        if (budget->losses[i].index == index && !budget->losses[i].node == !node) return;
    if (budget->loss_count == OWNER_LOSSES_MOST) loss_remove(budget, 0); /* the notice no longer lists it */
    budget->losses = mem_realloc(budget->losses, (budget->loss_count + 1) * sizeof *budget->losses);
    budget->losses[budget->loss_count++] =
        (struct owner_loss){.node = node ? mem_strdup(node) : NULL, .index = index, .active = active};
    CHECK(budget->loss_count <= OWNER_LOSSES_MOST);
    owner_step_add(budget, index, now.ns, owner_window(budget->definition, now.unix_s + OWNER_SKEW_S));
}

/* Keeps losses that the notice no longer lists while they matter by this agent's clock. */
static void losses_set(struct owner_budget *budget, struct owner_now now) {
    const Pb__QuotaNotice *notice = budget->notice;
    for (size_t i = budget->loss_count; i-- > 0;) {
        struct owner_loss *loss = &budget->losses[i];
        rendezvous_free(loss->set); /* made of the former members */
        loss->set = NULL;
        if (!is_listed(budget, loss) && is_over(budget, loss, now)) loss_remove(budget, i);
    }
    for (size_t i = 0; i < notice->n_losses; i++)
        loss_add(budget, notice->losses[i]->node, notice->losses[i]->index, notice->losses[i]->active, now);
    if (notice->losses_before) loss_add(budget, NULL, notice->losses_before, 0, now);
}

static void splits_set(struct owner_budget *budget, struct owner_now now) {
    const Pb__QuotaNotice *notice = budget->notice;
    budget->split_count = 0;
    budget->splits = arena_alloc(&budget->arena, (notice->n_splits + 1) * sizeof *budget->splits);
    for (size_t i = 0; i < notice->n_splits; i++) {
        const Pb__QuotaSplit *split = notice->splits[i];
        if (split->parts < 2 || split->parts > QUOTA_PARTS_MOST || split->parts != split->n_amounts) continue;
        budget->splits[budget->split_count++] = (struct owner_split){
            .key = message_slice(split->key), .index = split->index, .amounts = split->amounts, .parts = split->parts};
        owner_step_add(budget, split->index, now.ns, owner_window(budget->definition, now.unix_s));
    }
}

/* -- a new notice ------------------------------------------------------------------------------------------------- */

static void losses_clear(struct owner_budget *budget) {
    while (budget->loss_count) loss_remove(budget, budget->loss_count - 1);
    budget->step_count = 0;
}

void owner_forget_notice(struct owner_budget *budget) {
    losses_clear(budget);
    owner_ring_free(&budget->ring);
    owner_ring_free(&budget->live);
    budget->notice = NULL, budget->definition = NULL;
    budget->splits = NULL, budget->split_count = 0;
    budget->epoch = budget->active = 0;
    budget->version++;
    arena_free(&budget->arena);
    budget->arena = (struct arena){0};
}

static void none(struct owner *owner, struct owner_budget *budget, uint64_t now_ns) {
    owner_lease_gone(owner, budget, now_ns);
    budget->known = OWNER_NONE;
    owner_forget_notice(budget);
}

/* The tokens that are spent of each key stay spent. */
static void define_anew(struct owner *owner, struct owner_budget *budget, const Pb__QuotaNotice *notice,
                        struct owner_now now) {
    uint64_t before = budget->capacity, after = quota_capacity(notice->definition);
    bool other_kind = budget->definition->window != notice->definition->window;
    int64_t window_s = owner_window(notice->definition, now.unix_s);
    OWNER_EACH_BUCKET(&budget->table, bucket) {
        owner_refill(owner, budget, bucket, now);
        if (bucket->slot == 0) {
            uint64_t spent = before > bucket->tokens ? before - bucket->tokens : 0;
            bucket->tokens = after > spent ? after - spent : 0;
        }
        bucket->rest = 0;
        bucket->at_ns = now.ns;
        if (other_kind) bucket->window_s = window_s;
    }
}

/* The state before a notice, for the buckets that it changes. */
struct passage {
    bool doubt; /* keys that were handed over may have been counted elsewhere, and have come back */
    uint64_t epoch;
    struct owner_ring ring; /* the former ring; owns only the set */
};

static void buckets_settle(struct owner *owner, struct owner_budget *budget, const struct passage *before,
                           struct owner_now now) {
    OWNER_EACH_BUCKET(&budget->table, bucket) {
        struct owner_id id = owner_bucket_id(bucket);
        bool gone = !owner_is_mine(&budget->live, id) || owner_capacity(budget, id) == 0;
        if (gone || (id.slot == 0 && owner_split_find(budget, id.key)))
            owner_bucket_remove(owner, &budget->table, bucket);
        else if (before->doubt && !owner_is_mine(&before->ring, id))
            owner_bucket_doubt(owner, budget, bucket, before->epoch, now);
    }
}

/* Is this member off the ring? When an epoch that is newer than its lease does not have it, its lease has ended, or a
 * newer lease of this node has replaced it. */
static bool is_off(const struct owner_budget *budget) {
    return budget->lease && budget->epoch >= budget->lease && budget->ring.mine == SIZE_MAX;
}

static void take_notice(struct owner *owner, struct owner_budget *budget, const Pb__QuotaNotice *notice,
                        struct owner_now now) {
    bool known = budget->known == OWNER_KNOWN;
    struct passage before = {.epoch = budget->epoch, .ring = budget->ring};
    before.doubt =
        known && budget->epoch > budget->active && budget->acked >= budget->epoch && notice->active != budget->active;
    if (known && budget->notice->defined_index != notice->defined_index) define_anew(owner, budget, notice, now);
    struct arena old = budget->arena;
    budget->arena = (struct arena){0};
    budget->notice = (Pb__QuotaNotice *)message_copy(&budget->arena, &notice->base);
    budget->definition = budget->notice->definition;
    budget->capacity = quota_capacity(budget->definition);
    budget->epoch = notice->epoch, budget->active = notice->active;
    budget->known = OWNER_KNOWN;
    budget->version++;
    rings_make(owner, budget);
    splits_set(budget, now);
    losses_set(budget, now);
    owner_leavers_forget(budget);
    if (budget->hand.epoch != budget->epoch || budget->active == budget->epoch) owner_hand_reset(owner, budget);
    if (is_off(budget)) owner_close(owner, budget, true, now.ns);
    owner_split_settle(owner, budget, now);
    buckets_settle(owner, budget, &before, now);
    owner_incoming_settle(owner, budget, now);
    if (budget->serving && !budget->lease && !owner->leaving && !budget->asked && budget->ask_ns == OWNER_NEVER)
        owner_ask_due(owner, budget, now.ns);
    rendezvous_free(before.ring.set);
    arena_free(&old);
}

/* -- following ---------------------------------------------------------------------------------------------------- */

void owner_follow_begin(struct owner *owner, struct owner_budget *budget, uint64_t now_ns) {
    budget->known = OWNER_UNKNOWN;
    budget->unreachable = false;
    budget->index = 0;
    budget->born_ns = now_ns;
    budget->follow_ns = OWNER_NEVER;
    if (!budget->following && list_empty(&budget->ready)) list_append(&owner->ready, &budget->ready);
    owner_due(owner, now_ns);
}

static bool is_idle(const struct owner_budget *budget, uint64_t now_ns) {
    uint64_t idle_ms = budget->known == OWNER_NONE ? NONE_MS : SPENDER_IDLE_MS;
    return !budget->asked && !budget->lease && !budget->serving && !budget->sending && list_empty(&budget->incoming) &&
           now_ns - budget->used_ns >= idle_ms * OWNER_MS &&
           !(budget->loss.cap.slot_ns && quota_cap_counts(&budget->loss.cap, now_ns));
}

bool owner_follow_tick(struct owner *owner, struct owner_budget *budget, uint64_t now_ns, uint64_t *next_ns) {
    if (budget->following || !list_empty(&budget->ready)) return false; /* the answer will look at it */
    if (is_idle(budget, now_ns)) return true;
    if (now_ns >= budget->follow_ns) {
        budget->follow_ns = OWNER_NEVER;
        list_append(&owner->ready, &budget->ready);
    } else if (budget->follow_ns < *next_ns) {
        *next_ns = budget->follow_ns;
    }
    return false;
}

bool owner_follow(struct owner *owner, const char **name, uint64_t *index) {
    if (list_empty(&owner->ready)) return false;
    struct owner_budget *budget = LIST_ENTRY(owner->ready.next, struct owner_budget, ready);
    list_remove(&budget->ready);
    CHECK(!budget->following);
    budget->following = true;
    *name = budget->name;
    *index = budget->index;
    return true;
}

/* An unknown definition of a newer version counts as none. */
static bool is_ours(Pb__QuotaDefinition *definition) {
    return definition && definition->mode == PB__QUOTA_MODE__QUOTA_OWNER &&
           quota_definition_check(definition, NULL) == CO_OK;
}

void owner_followed(struct owner *owner, const char *name, int error, const Pb__QuotaNotice *notice, uint64_t index,
                    struct owner_now now) {
    struct owner_budget *budget = owner_find(owner, slice_text(name));
    if (!budget || !budget->following) return;
    budget->following = false;
    budget->follow_ns = now.ns;
    if (error != CO_OK) {
        budget->unreachable = true;
        budget->follow_ns = now.ns + AGAIN_NS;
    } else {
        budget->unreachable = false;
        budget->index = index;
        if (!notice || !is_ours(notice->definition)) {
            none(owner, budget, now.ns);
            if (!notice) budget->index = 0, budget->follow_ns = now.ns + AGAIN_NS;
        } else if (budget->known != OWNER_KNOWN || notice->modify_index != budget->notice->modify_index) {
            take_notice(owner, budget, notice, now);
        }
    }
    owner_wake(owner);
    owner_due(owner, now.ns);
}
