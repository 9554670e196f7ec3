#include "rpc/leader/leases.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "registry/lease.h"

struct lessor {
    struct lessor_callbacks callbacks;
    struct expiry *expiry;
    uint64_t term; /* of the leadership that the table counts for; 0: none */
    unsigned decisions;
    struct rpc_renew *gathered; /* renewals that wait for a round to begin */
    uint64_t round_ms;          /* when the last round began */
    uint64_t restored;          /* machine_restored when the table was read */
    uint64_t tick_ms;           /* of the present tick */
    bool stopped;
};

struct lessor_decision {
    const struct expiry_kind *kind;
    uint64_t index;
    struct buffer described; /* the kind's description, for the log; no NUL */
    size_t size;
    char name[];
};

/* This server as the leader that decides about things of a kind. */
static struct expiry_leader leader_for(struct lessor *lessor, const struct expiry_kind *kind, uint64_t now_ms) {
    return (struct expiry_leader){.term = lessor->term,
                                  .now_ms = now_ms,
                                  .unix_ms = lessor->callbacks.unix_ms(lessor->callbacks.data),
                                  .settings = modules_expiry_settings(lessor->callbacks.modules, kind)};
}

/* -- proposals ---------------------------------------------------------------------------------------------------- */
struct proposing {
    struct lessor *lessor;
    struct lessor_decision *decision;
};

static void propose(void *data, uint8_t command, const ProtobufCMessage *message) {
    const struct proposing *proposing = data;
    const struct lessor_callbacks *callbacks = &proposing->lessor->callbacks;
    callbacks->propose(callbacks->data, proposing->decision, command, message);
}

static void propose_due(void *data, const struct expiry_due *item) {
    struct lessor *lessor = data;
    struct lessor_decision *decision = mem_zalloc(sizeof *decision + item->name.size + 1);
    decision->kind = item->kind, decision->index = item->index, decision->size = item->name.size;
    memcpy(decision->name, item->name.data, item->name.size);
    lessor->decisions++;
    if (item->kind->describe && !item->kind->quiet) {
        item->kind->describe(lessor->callbacks.read(lessor->callbacks.data), item->name, &decision->described);
        lessor->callbacks.read_done(lessor->callbacks.data);
    }
    struct expiry_leader leader = leader_for(lessor, item->kind, lessor->tick_ms);
    if (item->kind->renewed && lessor->callbacks.mutations & LESSOR_MUTATE_DEPOSED_EXPIRES) leader.term = 0;
    struct proposing proposing = {lessor, decision};
    item->kind->end(item, &leader, propose, &proposing);
}

void lessor_decided(struct lessor *lessor, struct lessor_decision *decision, int error, uint64_t now_ms) {
    struct expiry_due item = {decision->kind, slice_make(decision->name, decision->size), decision->index};
    /* Only an end that is certainly not in the log may be proposed again, and its thing renewed meanwhile. */
    bool never = error == CO_NOLEADER || error == CO_DISKFULL || error == CO_BUSY || error == CO_FENCED ||
                 error == CO_UNSUPPORTED;
    if (never) expiry_failed(lessor->expiry, &item, now_ms);
    if (error == CO_OK && !item.kind->quiet)
        log_info("lease", "expired kind=\"%s\"%.*s id=%s", item.kind->name, (int)decision->described.size,
                 decision->described.data ? decision->described.data : "", decision->name);
    lessor->decisions--;
    buffer_free(&decision->described);
    free(decision);
}

/* -- updates from the applier ------------------------------------------------------------------------------------- */
static int64_t period_ns(struct lessor *lessor, const struct expiry_update *update, uint64_t now_ms) {
    if (!update->kind->period_ns || lessor->term == 0) return update->period_ns;
    struct expiry_leader leader = leader_for(lessor, update->kind, now_ms);
    int64_t period = update->kind->period_ns(lessor->callbacks.read(lessor->callbacks.data), update, &leader);
    lessor->callbacks.read_done(lessor->callbacks.data);
    return period;
}

static void take_update(struct lessor *lessor, const struct expiry_update *update, uint64_t now_ms) {
    struct slice name = slice_make(update->name, update->size);
    if (update->kind->updated && lessor->callbacks.updated) {
        update->kind->updated(update);
        lessor->callbacks.updated(lessor->callbacks.data);
    }
    if (update->ended) expiry_ended(lessor->expiry, update->kind, name, update->index);
    else expiry_began(lessor->expiry, update->kind, name, update->index, period_ns(lessor, update, now_ms), now_ms);
}

void lessor_updates(struct lessor *lessor, uint64_t now_ms) {
    for (struct expiry_update *update = lessor->callbacks.updates(lessor->callbacks.data), *next; update;
         update = next) {
        next = update->next;
        take_update(lessor, update, now_ms);
        free(update);
    }
}

/* -- renewals ----------------------------------------------------------------------------------------------------- */
struct looking {
    struct arena arena;
    Pb__LeasesLeft list;
};

static void look_at(void *data, struct slice name, uint64_t left_ms) {
    struct looking *looking = data;
    Pb__LeaseLeft *left = arena_alloc(&looking->arena, sizeof *left);
    pb__lease_left__init(left);
    left->id = arena_strndup(&looking->arena, name.data, name.size);
    left->left_ms = (int64_t)left_ms;
    looking->list.leases[looking->list.n_leases++] = left;
}

static int look_at_all(struct lessor *lessor, const struct expiry_kind *kind, struct rpc_renew *renew,
                       uint64_t now_ms) {
    size_t count = expiry_count(lessor->expiry, kind);
    if (expiry_term(lessor->expiry) == 0) return CO_NOTLEADER;
    if (count > RPC_LOOK_MAX) return CO_TOOLARGE;
    struct looking looking = {.list = PB__LEASES_LEFT__INIT};
    looking.list.leases = arena_alloc(&looking.arena, (count + 1) * sizeof *looking.list.leases);
    expiry_each(lessor->expiry, kind, now_ms, look_at, &looking);
    buffer_reserve(&renew->all, pb__leases_left__get_packed_size(&looking.list) + 1);
    renew->all.size = pb__leases_left__pack(&looking.list, (uint8_t *)renew->all.data);
    arena_free(&looking.arena);
    return CO_OK;
}

static int look_or_renew(struct lessor *lessor, struct rpc_renew *renew, uint64_t now_ms) {
    const struct expiry_kind *kind = modules_expiry(lessor->callbacks.modules, renew->kind);
    struct slice id = slice_text(renew->id);
    if (!kind || !kind->renewed) return CO_NOTFOUND;
    if (renew->look && id.size == 0) return look_at_all(lessor, kind, renew, now_ms);
    uint64_t left_ms = 0;
    int rv = CO_OK;
    if (!renew->look) rv = expiry_renew(lessor->expiry, kind, id, now_ms, &renew->ttl_ns);
    if (rv == CO_OK) rv = expiry_left(lessor->expiry, kind, id, now_ms, &left_ms, &renew->ttl_ns);
    renew->left_ms = left_ms == UINT64_MAX ? 0 : (int64_t)left_ms;
    return rv;
}

static int judge(struct lessor *lessor, struct rpc_renew *renew, uint64_t now_ms) {
    int rv = look_or_renew(lessor, renew, now_ms);
    if (rv == CO_NOTLEADER) rv = CO_NOLEADER;
    if (rv == CO_NOTFOUND && !renew->look && lessor->callbacks.mutations & LESSOR_MUTATE_RENEW_PROPOSED) rv = CO_OK;
    return rv;
}

/* `renew` and those behind it. */
void lessor_confirmed(struct lessor *lessor, struct rpc_renew *renew, int error, uint64_t now_ms) {
    if (error == CO_OK) lessor_updates(lessor, now_ms);
    for (struct rpc_renew *next; renew; renew = next) {
        next = renew->next;
        renew->restored = lessor->restored;
        renew->done(renew, error == CO_OK ? judge(lessor, renew, now_ms) : error);
    }
}

static void begin_round(struct lessor *lessor, uint64_t now_ms) {
    struct rpc_renew *first = lessor->gathered;
    lessor->gathered = NULL;
    lessor->round_ms = now_ms;
    int rv = lessor->callbacks.confirm(lessor->callbacks.data, first);
    if (rv != CO_AGAIN) lessor_confirmed(lessor, first, rv, now_ms);
}

/* UINT64_MAX: none waits. */
static uint64_t gather_end_ms(const struct lessor *lessor) {
    return lessor->gathered ? lessor->round_ms + LESSOR_GATHER_MS : UINT64_MAX;
}

static void drop_gathered(struct lessor *lessor, int error) {
    struct rpc_renew *first = lessor->gathered;
    lessor->gathered = NULL;
    if (first) lessor_confirmed(lessor, first, error, 0);
}

void lessor_renew(struct lessor *lessor, struct rpc_renew *renew, bool here, uint64_t now_ms) {
    if (!here && lessor->callbacks.elsewhere(lessor->callbacks.data, renew)) return;
    if (lessor->stopped || lessor->term == 0) {
        renew->done(renew, lessor->stopped ? CO_CLOSED : CO_NOLEADER);
        return;
    }
    renew->next = lessor->gathered;
    lessor->gathered = renew;
    if (gather_end_ms(lessor) <= now_ms) begin_round(lessor, now_ms);
}

/* -- leading ------------------------------------------------------------------------------------------------------ */
static int read_module(struct lessor *lessor, const struct module *module, struct store_txn *txn, uint64_t now_ms) {
    int rv = CO_OK;
    for (size_t i = 0; module->expiries && module->expiries[i]; i++) {
        struct expiry_leader leader = leader_for(lessor, module->expiries[i], now_ms);
        int error = module->expiries[i]->read(txn, &leader, lessor->expiry);
        if (rv == CO_OK) rv = error;
    }
    return rv;
}

static void grant_full_period(struct lessor *lessor, uint64_t now_ms) {
    const struct modules *modules = lessor->callbacks.modules;
    struct store_txn *txn = lessor->callbacks.read(lessor->callbacks.data);
    expiry_lead(lessor->expiry, lessor->term, now_ms);
    int rv = CO_OK;
    for (size_t i = 0; i < modules_count(modules); i++) {
        int error = read_module(lessor, modules_at(modules, i), txn, now_ms);
        if (rv == CO_OK) rv = error;
    }
    lessor->restored = machine_restored(txn);
    if (rv != CO_OK) log_error("lease", "what ends by itself cannot be read from the store: %s", co_strerror(rv));
    lessor->callbacks.read_done(lessor->callbacks.data);
}

void lessor_role(struct lessor *lessor, uint64_t term, bool ready, uint64_t now_ms) {
    if (ready && lessor->term == term) return;
    lessor->term = ready ? term : 0;
    if (!ready) drop_gathered(lessor, CO_NOLEADER);
    lessor_updates(lessor, now_ms);
    if (ready) grant_full_period(lessor, now_ms);
    else if (!(lessor->callbacks.mutations & LESSOR_MUTATE_DEPOSED_EXPIRES)) expiry_follow(lessor->expiry);
}

void lessor_replaced(struct lessor *lessor, uint64_t now_ms) {
    if (lessor->term == 0) return;
    expiry_follow(lessor->expiry);
    grant_full_period(lessor, now_ms);
}

void lessor_tick(struct lessor *lessor, uint64_t now_ms) {
    if (gather_end_ms(lessor) <= now_ms) begin_round(lessor, now_ms);
    lessor_updates(lessor, now_ms);
    lessor->tick_ms = now_ms;
    if (expiry_deadline_ms(lessor->expiry) <= now_ms) expiry_tick(lessor->expiry, now_ms, propose_due, lessor);
}

uint64_t lessor_deadline_ms(const struct lessor *lessor) {
    uint64_t table_ms = expiry_deadline_ms(lessor->expiry), gather_ms = gather_end_ms(lessor);
    return gather_ms < table_ms ? gather_ms : table_ms;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct lessor *lessor_new(const struct lessor_callbacks *callbacks) {
    struct lessor *lessor = mem_zalloc(sizeof *lessor);
    lessor->callbacks = *callbacks;
    lessor->expiry = expiry_new();
    return lessor;
}

void lessor_stop(struct lessor *lessor) {
    lessor->stopped = true;
    drop_gathered(lessor, CO_CLOSED);
}

void lessor_free(struct lessor *lessor) {
    CHECK(lessor->decisions == 0 && !lessor->gathered);
    for (struct expiry_update *update = lessor->callbacks.updates(lessor->callbacks.data), *next; update; update = next)
        next = update->next, free(update);
    expiry_free(lessor->expiry);
    free(lessor);
}
