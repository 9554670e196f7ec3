/* Notices: members, losses and splits; and the rings that follow from them. */
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "kv/quota/owning_internal.h"

#define AGAIN_NS (1000 * OWNING_MS) /* after an error */
#define NONE_MS  2000               /* for how long a missing budget is remembered */

/* -- rings -------------------------------------------------------------------------------------------------------- */

void owning_ring_free(struct owning_ring *ring) {
    rendezvous_free(ring->set);
    *ring = (struct owning_ring){.mine = SIZE_MAX};
}

size_t owning_owner(const struct owning_ring *ring, struct owning_id id) {
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

static size_t mine_of(const struct owning *owning, const struct owning_budget *budget, const struct owning_ring *ring) {
    for (size_t i = 0; i < ring->count && budget->lease; i++)
        if (ring->leases[i] == budget->lease && strcmp(ring->nodes[i], owning->node) == 0) return i;
    return SIZE_MAX;
}

void owning_rings_mine(const struct owning *owning, struct owning_budget *budget) {
    budget->ring.mine = mine_of(owning, budget, &budget->ring);
    budget->live.mine = mine_of(owning, budget, &budget->live);
    budget->version++;
}

static void rings_make(struct owning *owning, struct owning_budget *budget) {
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
    owning_rings_mine(owning, budget);
}

bool owning_alive(const struct owning *owning, const struct owning_budget *budget, uint64_t now_ns) {
    return budget->lease && (now_ns < budget->end_ns || owning->mutations & OWNING_MUTATE_OVERSTAYS);
}

bool owning_counts(const struct owning_budget *budget, struct owning_id id, unsigned mutations) {
    if (budget->known != OWNING_KNOWN || !budget->lease || budget->leave) return false;
    const struct owning_split *split = owning_split_find(budget, id.key);
    if (id.slot == 0 ? split != NULL : !split || id.slot > split->parts) return false;
    if (id.slot == 0 && budget->proposing && slice_equal(id.key, buffer_slice(&budget->splitting))) return false;
    if (mutations & OWNING_MUTATE_COUNTS_EARLY && owning_is_mine(&budget->ring, id)) return true;
    if (!owning_is_mine(&budget->live, id)) return false;
    return budget->hand.state < HAND_FROZEN || owning_is_mine(&budget->ring, id);
}

/* -- losses and splits -------------------------------------------------------------------------------------------- */

const struct owning_split *owning_split_find(const struct owning_budget *budget, struct slice key) {
    for (size_t i = 0; i < budget->split_count; i++)
        if (slice_equal(budget->splits[i].key, key)) return &budget->splits[i];
    return NULL;
}

static struct owning_step *step_find(const struct owning_budget *budget, uint64_t index) {
    for (size_t i = 0; i < budget->step_count; i++)
        if (budget->steps[i].index == index) return &budget->steps[i];
    return NULL;
}

static void step_apply(struct owning_budget *budget, const struct owning_step *step) {
    for (size_t i = 0; i < budget->loss_count; i++)
        if (budget->losses[i].index == step->index)
            budget->losses[i].seen_ns = step->seen_ns, budget->losses[i].window_s = step->window_s;
    for (size_t i = 0; i < budget->split_count; i++)
        if (budget->splits[i].index == step->index)
            budget->splits[i].seen_ns = step->seen_ns, budget->splits[i].window_s = step->window_s;
}

void owning_step_add(struct owning_budget *budget, uint64_t index, uint64_t seen_ns, int64_t window_s) {
    struct owning_step *step = step_find(budget, index);
    if (!step) {
        if (budget->step_count == OWNING_STEPS_MOST) { /* drops the oldest, which is learned of again if it still
                                                        * matters */
            memmove(budget->steps, budget->steps + 1, (OWNING_STEPS_MOST - 1) * sizeof *budget->steps);
            budget->step_count--;
        }
        budget->steps = mem_realloc(budget->steps, (budget->step_count + 1) * sizeof *budget->steps);
        step = &budget->steps[budget->step_count++];
        *step = (struct owning_step){index, seen_ns, window_s};
    }
    CHECK(budget->step_count <= OWNING_STEPS_MOST && step->index == index);
    if (seen_ns < step->seen_ns) step->seen_ns = seen_ns;
    if (window_s < step->window_s) step->window_s = window_s;
    step_apply(budget, step);
}

bool owning_loss_touches(const struct owning_budget *budget, struct owning_loss *loss, struct owning_id id) {
    if (!loss->node) return true;
    if (!loss->set) {
        const struct owning_ring *ring = &budget->ring;
        char **nodes = mem_alloc((ring->count + 1) * sizeof(char *));
        size_t count = 1;
        nodes[0] = loss->node;
        for (size_t i = 0; i < ring->count; i++)
            if (ring->leases[i] <= loss->active && strcmp(ring->nodes[i], loss->node) != 0)
                nodes[count++] = ring->nodes[i];
        loss->set = set_of(nodes, count);
        free(nodes);
    }
    struct owning_ring then = {.set = loss->set};
    return owning_owner(&then, id) == 0;
}

static void loss_remove(struct owning_budget *budget, size_t i) {
    CHECK(i < budget->loss_count);
    free(budget->losses[i].node);
    rendezvous_free(budget->losses[i].set);
    budget->losses[i] = budget->losses[--budget->loss_count];
}

static bool is_listed(const struct owning_budget *budget, const struct owning_loss *loss) {
    if (loss->index == budget->notice->losses_before && !loss->node) return true;
    for (size_t i = 0; i < budget->notice->n_losses; i++)
        if (budget->notice->losses[i]->index == loss->index) return true;
    return false;
}

/* Would a key that the loss touched be full by now, if nothing was taken? So would a part. */
static bool is_over(const struct owning_budget *budget, const struct owning_loss *loss, struct owning_now now) {
    const Pb__QuotaDefinition *definition = budget->definition;
    if (definition->window) return loss->window_s < owning_window(definition, now.unix_s - OWNING_SKEW_S);
    unsigned __int128 full_ms = ((unsigned __int128)budget->capacity + 2 * QUOTA_PARTS_MOST) * definition->every_ms;
    CHECK(definition->tokens > 0);
    full_ms = full_ms / definition->tokens * 102 / 100 + 1;
    return now.ns > loss->seen_ns && (now.ns - loss->seen_ns) / OWNING_MS > full_ms;
}

uint64_t owning_losses_over(const struct owning_budget *budget, struct owning_now now) {
    uint64_t over = 0, least = UINT64_MAX; /* index of the oldest loss that still matters */
    for (size_t i = 0; i < budget->loss_count; i++) {
        const struct owning_loss *loss = &budget->losses[i];
        if (!is_over(budget, loss, now)) least = loss->index < least ? loss->index : least;
    }
    for (size_t i = 0; i < budget->loss_count; i++)
        if (budget->losses[i].index < least && budget->losses[i].index > over) over = budget->losses[i].index;
    return over;
}

static void loss_add(struct owning_budget *budget, const char *node, uint64_t index, uint64_t active,
                     struct owning_now now) {
    for (size_t i = 0; i < budget->loss_count; i++)
        if (budget->losses[i].index == index && !budget->losses[i].node == !node) return;
    if (budget->loss_count == OWNING_LOSSES_MOST) loss_remove(budget, 0); /* the notice no longer lists it */
    budget->losses = mem_realloc(budget->losses, (budget->loss_count + 1) * sizeof *budget->losses);
    budget->losses[budget->loss_count++] =
        (struct owning_loss){.node = node ? mem_strdup(node) : NULL, .index = index, .active = active};
    CHECK(budget->loss_count <= OWNING_LOSSES_MOST);
    owning_step_add(budget, index, now.ns, owning_window(budget->definition, now.unix_s + OWNING_SKEW_S));
}

/* Keeps losses that the notice no longer lists while they matter by this agent's clock. */
static void losses_set(struct owning_budget *budget, struct owning_now now) {
    const Pb__QuotaNotice *notice = budget->notice;
    for (size_t i = budget->loss_count; i-- > 0;) {
        struct owning_loss *loss = &budget->losses[i];
        rendezvous_free(loss->set); /* made of the former members */
        loss->set = NULL;
        if (!is_listed(budget, loss) && is_over(budget, loss, now)) loss_remove(budget, i);
    }
    for (size_t i = 0; i < notice->n_losses; i++)
        loss_add(budget, notice->losses[i]->node, notice->losses[i]->index, notice->losses[i]->active, now);
    if (notice->losses_before) loss_add(budget, NULL, notice->losses_before, 0, now);
}

static void splits_set(struct owning_budget *budget, struct owning_now now) {
    const Pb__QuotaNotice *notice = budget->notice;
    budget->split_count = 0;
    budget->splits = arena_alloc(&budget->arena, (notice->n_splits + 1) * sizeof *budget->splits);
    for (size_t i = 0; i < notice->n_splits; i++) {
        const Pb__QuotaSplit *split = notice->splits[i];
        if (split->parts < 2 || split->parts > QUOTA_PARTS_MOST || split->parts != split->n_amounts) continue;
        budget->splits[budget->split_count++] = (struct owning_split){
            .key = message_slice(split->key), .index = split->index, .amounts = split->amounts, .parts = split->parts};
        owning_step_add(budget, split->index, now.ns, owning_window(budget->definition, now.unix_s));
    }
}

/* -- a new notice ------------------------------------------------------------------------------------------------- */

static void losses_clear(struct owning_budget *budget) {
    while (budget->loss_count) loss_remove(budget, budget->loss_count - 1);
    budget->step_count = 0;
}

void owning_forget_notice(struct owning_budget *budget) {
    losses_clear(budget);
    owning_ring_free(&budget->ring);
    owning_ring_free(&budget->live);
    budget->notice = NULL, budget->definition = NULL;
    budget->splits = NULL, budget->split_count = 0;
    budget->epoch = budget->active = 0;
    budget->version++;
    arena_free(&budget->arena);
    budget->arena = (struct arena){0};
}

static void none(struct owning *owning, struct owning_budget *budget, uint64_t now_ns) {
    owning_lease_gone(owning, budget, now_ns);
    budget->known = OWNING_NONE;
    owning_forget_notice(budget);
}

/* The tokens that are spent of each key stay spent. */
static void define_anew(struct owning *owning, struct owning_budget *budget, const Pb__QuotaNotice *notice,
                        struct owning_now now) {
    uint64_t before = budget->capacity, after = quota_capacity(notice->definition);
    bool other_kind = budget->definition->window != notice->definition->window;
    int64_t window_s = owning_window(notice->definition, now.unix_s);
    OWNING_EACH_BUCKET(&budget->table, bucket) {
        owning_refill(owning, budget, bucket, now);
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
    struct owning_ring ring; /* the former ring; owns only the set */
};

static void buckets_settle(struct owning *owning, struct owning_budget *budget, const struct passage *before,
                           struct owning_now now) {
    OWNING_EACH_BUCKET(&budget->table, bucket) {
        struct owning_id id = owning_bucket_id(bucket);
        bool gone = !owning_is_mine(&budget->live, id) || owning_capacity(budget, id) == 0;
        if (gone || (id.slot == 0 && owning_split_find(budget, id.key)))
            owning_bucket_remove(owning, &budget->table, bucket);
        else if (before->doubt && !owning_is_mine(&before->ring, id))
            owning_bucket_doubt(owning, budget, bucket, before->epoch, now);
    }
}

/* Is this member off the ring? When an epoch that is newer than its lease does not have it, its lease has ended, or a
 * newer lease of this node has replaced it. */
static bool is_off(const struct owning_budget *budget) {
    return budget->lease && budget->epoch >= budget->lease && budget->ring.mine == SIZE_MAX;
}

static void take_notice(struct owning *owning, struct owning_budget *budget, const Pb__QuotaNotice *notice,
                        struct owning_now now) {
    bool known = budget->known == OWNING_KNOWN;
    struct passage before = {.epoch = budget->epoch, .ring = budget->ring};
    before.doubt =
        known && budget->epoch > budget->active && budget->acked >= budget->epoch && notice->active != budget->active;
    if (known && budget->notice->defined_index != notice->defined_index) define_anew(owning, budget, notice, now);
    struct arena old = budget->arena;
    budget->arena = (struct arena){0};
    budget->notice = (Pb__QuotaNotice *)message_copy(&budget->arena, &notice->base);
    budget->definition = budget->notice->definition;
    budget->capacity = quota_capacity(budget->definition);
    budget->epoch = notice->epoch, budget->active = notice->active;
    budget->known = OWNING_KNOWN;
    budget->version++;
    rings_make(owning, budget);
    splits_set(budget, now);
    losses_set(budget, now);
    owning_leavers_forget(budget);
    if (budget->hand.epoch != budget->epoch || budget->active == budget->epoch) owning_hand_reset(owning, budget);
    if (is_off(budget)) owning_close(owning, budget, true, now.ns);
    owning_split_settle(owning, budget, now);
    buckets_settle(owning, budget, &before, now);
    owning_incoming_settle(owning, budget, now);
    if (budget->serving && !budget->lease && !owning->leaving && !budget->asked && budget->ask_ns == OWNING_NEVER)
        owning_ask_due(owning, budget, now.ns);
    rendezvous_free(before.ring.set);
    arena_free(&old);
}

/* -- following ---------------------------------------------------------------------------------------------------- */

void owning_follow_begin(struct owning *owning, struct owning_budget *budget, uint64_t now_ns) {
    budget->known = OWNING_UNKNOWN;
    budget->unreachable = false;
    budget->index = 0;
    budget->born_ns = now_ns;
    budget->follow_ns = OWNING_NEVER;
    if (!budget->following && list_empty(&budget->ready)) list_append(&owning->ready, &budget->ready);
    owning_due(owning, now_ns);
}

static bool is_idle(const struct owning_budget *budget, uint64_t now_ns) {
    uint64_t idle_ms = budget->known == OWNING_NONE ? NONE_MS : SPENDER_IDLE_MS;
    return !budget->asked && !budget->lease && !budget->serving && !budget->sending && list_empty(&budget->incoming) &&
           now_ns - budget->used_ns >= idle_ms * OWNING_MS &&
           !(budget->cap.slot_ns && quota_cap_counts(&budget->cap, now_ns));
}

bool owning_follow_tick(struct owning *owning, struct owning_budget *budget, uint64_t now_ns, uint64_t *next_ns) {
    if (budget->following || !list_empty(&budget->ready)) return false; /* the answer will look at it */
    if (is_idle(budget, now_ns)) return true;
    if (now_ns >= budget->follow_ns) {
        budget->follow_ns = OWNING_NEVER;
        list_append(&owning->ready, &budget->ready);
    } else if (budget->follow_ns < *next_ns) {
        *next_ns = budget->follow_ns;
    }
    return false;
}

bool owning_follow(struct owning *owning, const char **name, uint64_t *index) {
    if (list_empty(&owning->ready)) return false;
    struct owning_budget *budget = LIST_ENTRY(owning->ready.next, struct owning_budget, ready);
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

void owning_followed(struct owning *owning, const char *name, int error, const Pb__QuotaNotice *notice, uint64_t index,
                     struct owning_now now) {
    struct owning_budget *budget = owning_find(owning, slice_text(name));
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
            none(owning, budget, now.ns);
            if (!notice) budget->index = 0, budget->follow_ns = now.ns + AGAIN_NS;
        } else if (budget->known != OWNING_KNOWN || notice->modify_index != budget->notice->modify_index) {
            take_notice(owning, budget, notice, now);
        }
    }
    owning_wake(owning);
    owning_due(owning, now.ns);
}
