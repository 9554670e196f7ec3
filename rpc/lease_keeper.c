#include "rpc/lease_keeper.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "kv/session.h"
#include "registry/brake.h"
#include "registry/lease.h"

struct lease_keeper {
    struct lease_keeper_edge edge;
    struct lease_timers *timers;
    uint64_t term; /* of the leadership that the table counts for; 0: none */
    unsigned decisions;
    struct rpc_renew *gathered; /* they wait for a round to begin */
    uint64_t round_ms;          /* the last one began */
    uint64_t restored;          /* machine_restored, when the table was read */
    uint64_t tick_ms;           /* the present one */
    bool stopped;
};

struct lease_decision {
    enum timed kind;
    uint64_t index;
    size_t size;
    char name[];
};

/* -- proposals ---------------------------------------------------------------------------------------------------- */
static void propose_session(struct lease_keeper *keeper, struct lease_decision *decision, uint64_t term) {
    Pb__SessionDestroyCommand command = PB__SESSION_DESTROY_COMMAND__INIT;
    command.id = decision->name, command.term = term;
    keeper->edge.propose(keeper->edge.data, decision, SESSION_DESTROY, &command.base);
}

static void propose_lease(struct lease_keeper *keeper, struct lease_decision *decision, uint64_t term) {
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    Pb__BrakeOrder brake = PB__BRAKE_ORDER__INIT;
    const struct rpc_brake *settings = &keeper->edge.brake;
    command.id = decision->name, command.term = term;
    brake.at_ms = keeper->tick_ms, brake.unix_ms = keeper->edge.unix_ms(keeper->edge.data);
    brake.percent = settings->percent, brake.instances = settings->instances, brake.nodes = settings->nodes;
    brake.window_ms = settings->window_ms, brake.hold_ms = settings->hold_ms;
    if (settings->hold_ms) command.brake = &brake;
    keeper->edge.propose(keeper->edge.data, decision, LEASE_END, &command.base);
}

static void propose_lock_delay(struct lease_keeper *keeper, struct lease_decision *decision, uint64_t term) {
    Pb__LockDelayEndCommand command = PB__LOCK_DELAY_END_COMMAND__INIT;
    command.key = (ProtobufCBinaryData){decision->size, (uint8_t *)decision->name};
    command.index = decision->index, command.term = term;
    keeper->edge.propose(keeper->edge.data, decision, LOCK_DELAY_END, &command.base);
}

static void propose_reap(struct lease_keeper *keeper, struct lease_decision *decision, uint64_t term) {
    Pb__LeaseReapCommand command = PB__LEASE_REAP_COMMAND__INIT;
    command.node = decision->name, command.index = decision->index, command.term = term;
    keeper->edge.propose(keeper->edge.data, decision, LEASE_REAP, &command.base);
}

static void propose_release(struct lease_keeper *keeper, struct lease_decision *decision, uint64_t term) {
    Pb__BrakeReleaseCommand command = PB__BRAKE_RELEASE_COMMAND__INIT;
    command.service = decision->name, command.index = decision->index, command.term = term;
    keeper->edge.propose(keeper->edge.data, decision, BRAKE_RELEASE, &command.base);
}

static void propose_due(void *data, const struct lease_due *item) {
    static void (*const propose[TIMED_KINDS])(struct lease_keeper *, struct lease_decision *, uint64_t) = {
        propose_session, propose_lease, propose_lock_delay, propose_reap, propose_release};
    struct lease_keeper *keeper = data;
    struct lease_decision *decision = mem_zalloc(sizeof *decision + item->name.size + 1);
    decision->kind = item->kind, decision->index = item->index, decision->size = item->name.size;
    memcpy(decision->name, item->name.data, item->name.size);
    keeper->decisions++;
    bool ends_by_name = item->kind == TIMED_SESSION || item->kind == TIMED_LEASE;
    bool mutated = ends_by_name && keeper->edge.mutations & LEASE_KEEPER_MUTATE_DEPOSED_EXPIRES;
    propose[item->kind](keeper, decision, mutated ? 0 : keeper->term);
}

void lease_keeper_decided(struct lease_keeper *keeper, struct lease_decision *decision, int error, uint64_t now_ms) {
    struct lease_due item = {decision->kind, slice_make(decision->name, decision->size), decision->index};
    /* Only what is certainly not in the log may be proposed again, and renewed meanwhile. */
    bool never = error == CO_NOLEADER || error == CO_DISKFULL || error == CO_BUSY || error == CO_FENCED;
    if (never) lease_timers_failed(keeper->timers, &item, now_ms);
    bool told = error == CO_OK && item.kind != TIMED_LOCK_DELAY && item.kind != TIMED_HELD;
    if (told) log_info("lease", "expired kind=\"%s\" id=%s", timed_text(item.kind), decision->name);
    keeper->decisions--;
    free(decision);
}

/* -- news from the applier ---------------------------------------------------------------------------------------- */
/* The applier knows only what the agent said; what is set for the node counts before that. */
static int64_t period_of(struct lease_keeper *keeper, const struct lease_news *news) {
    if (news->kind != TIMED_DEAD_NODE || keeper->term == 0) return news->period_ns;
    struct store_txn *txn = keeper->edge.read(keeper->edge.data);
    int64_t period_ns =
        reconnect_timeout(txn, slice_make(news->name, news->size), &keeper->edge.reconnect, news->period_ns);
    keeper->edge.read_done(keeper->edge.data);
    return period_ns;
}

void lease_keeper_news(struct lease_keeper *keeper, uint64_t now_ms) {
    for (struct lease_news *news = keeper->edge.news(keeper->edge.data), *next; news; news = next) {
        next = news->next;
        struct slice name = slice_make(news->name, news->size);
        if (news->kind == TIMED_HELD && keeper->edge.held) keeper->edge.held(keeper->edge.data, news);
        if (news->ended) lease_timers_ended(keeper->timers, news->kind, name, news->index);
        else lease_timers_began(keeper->timers, news->kind, name, news->index, period_of(keeper, news), now_ms);
        free(news);
    }
}

/* -- renewals ----------------------------------------------------------------------------------------------------- */
/* A session without TTL needs no renewal; one that the table does not know may be such. */
static int without_ttl(struct lease_keeper *keeper, const char *id) {
    struct arena arena = {0};
    Pb__SessionRequest request = PB__SESSION_REQUEST__INIT;
    request.id = (char *)(uintptr_t)id;
    struct query_result result = {0};
    int rv = query_session.run(keeper->edge.read(keeper->edge.data), &request.base, &arena, &result);
    if (rv == CO_OK) rv = result.found && ((const Pb__Session *)result.message)->ttl_ns == 0 ? CO_OK : CO_NOTFOUND;
    keeper->edge.read_done(keeper->edge.data);
    arena_free(&arena);
    return rv;
}

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

static int look_at_all(struct lease_keeper *keeper, struct rpc_renew *renew, uint64_t now_ms) {
    size_t count = lease_timers_count(keeper->timers, TIMED_LEASE);
    if (lease_timers_term(keeper->timers) == 0) return CO_NOTLEADER;
    if (count > RPC_LOOK_MAX) return CO_TOOLARGE;
    struct looking looking = {.list = PB__LEASES_LEFT__INIT};
    looking.list.leases = arena_alloc(&looking.arena, (count + 1) * sizeof *looking.list.leases);
    lease_timers_each(keeper->timers, TIMED_LEASE, now_ms, look_at, &looking);
    buffer_reserve(&renew->all, pb__leases_left__get_packed_size(&looking.list) + 1);
    renew->all.size = pb__leases_left__pack(&looking.list, (uint8_t *)renew->all.data);
    arena_free(&looking.arena);
    return CO_OK;
}

static int look_or_renew(struct lease_keeper *keeper, struct rpc_renew *renew, uint64_t now_ms) {
    struct slice id = slice_text(renew->id);
    if (renew->look && id.size == 0) return look_at_all(keeper, renew, now_ms);
    uint64_t left_ms = 0;
    int rv = CO_OK;
    if (!renew->look) rv = lease_timers_renew(keeper->timers, renew->kind, id, now_ms, &renew->ttl_ns);
    if (rv == CO_OK) rv = lease_timers_left(keeper->timers, renew->kind, id, now_ms, &left_ms, &renew->ttl_ns);
    renew->left_ms = left_ms == UINT64_MAX ? 0 : (int64_t)left_ms;
    return rv;
}

static int judge(struct lease_keeper *keeper, struct rpc_renew *renew, uint64_t now_ms) {
    int rv = look_or_renew(keeper, renew, now_ms);
    if (rv == CO_NOTLEADER) rv = CO_NOLEADER;
    if (rv == CO_NOTFOUND && renew->kind == TIMED_SESSION) rv = without_ttl(keeper, renew->id);
    if (rv == CO_NOTFOUND && !renew->look && keeper->edge.mutations & LEASE_KEEPER_MUTATE_RENEW_PROPOSED) rv = CO_OK;
    return rv;
}

/* `renew` and those behind it. */
void lease_keeper_confirmed(struct lease_keeper *keeper, struct rpc_renew *renew, int error, uint64_t now_ms) {
    if (error == CO_OK) lease_keeper_news(keeper, now_ms);
    for (struct rpc_renew *next; renew; renew = next) {
        next = renew->next;
        renew->restored = keeper->restored;
        renew->done(renew, error == CO_OK ? judge(keeper, renew, now_ms) : error);
    }
}

static void begin_round(struct lease_keeper *keeper, uint64_t now_ms) {
    struct rpc_renew *first = keeper->gathered;
    keeper->gathered = NULL;
    keeper->round_ms = now_ms;
    int rv = keeper->edge.confirm(keeper->edge.data, first);
    if (rv != CO_AGAIN) lease_keeper_confirmed(keeper, first, rv, now_ms);
}

/* UINT64_MAX: none waits. */
static uint64_t gather_end_ms(const struct lease_keeper *keeper) {
    return keeper->gathered ? keeper->round_ms + LEASE_KEEPER_GATHER_MS : UINT64_MAX;
}

static void drop_gathered(struct lease_keeper *keeper, int error) {
    struct rpc_renew *first = keeper->gathered;
    keeper->gathered = NULL;
    if (first) lease_keeper_confirmed(keeper, first, error, 0);
}

void lease_keeper_renew(struct lease_keeper *keeper, struct rpc_renew *renew, bool here, uint64_t now_ms) {
    if (!here && keeper->edge.elsewhere(keeper->edge.data, renew)) return;
    if (keeper->stopped || keeper->term == 0) {
        renew->done(renew, keeper->stopped ? CO_CLOSED : CO_NOLEADER);
        return;
    }
    renew->next = keeper->gathered;
    keeper->gathered = renew;
    if (gather_end_ms(keeper) <= now_ms) begin_round(keeper, now_ms);
}

/* -- leading ------------------------------------------------------------------------------------------------------ */
static void grant_full_period(struct lease_keeper *keeper, uint64_t now_ms) {
    struct store_txn *txn = keeper->edge.read(keeper->edge.data);
    lease_timers_lead(keeper->timers, keeper->term, now_ms);
    int rv = session_timers_read(keeper->timers, txn, now_ms),
        error = lease_timers_read(keeper->timers, txn, now_ms, &keeper->edge.reconnect);
    if (rv == CO_OK) rv = error;
    keeper->restored = machine_restored(txn);
    if (rv == CO_OK) rv = brake_timers_read(keeper->timers, txn, now_ms, keeper->edge.unix_ms(keeper->edge.data));
    if (rv != CO_OK) log_error("lease", "what ends by itself cannot be read from the store: %s", co_strerror(rv));
    keeper->edge.read_done(keeper->edge.data);
}

void lease_keeper_role(struct lease_keeper *keeper, uint64_t term, bool ready, uint64_t now_ms) {
    if (ready && keeper->term == term) return;
    keeper->term = ready ? term : 0;
    if (!ready) drop_gathered(keeper, CO_NOLEADER);
    lease_keeper_news(keeper, now_ms);
    if (ready) grant_full_period(keeper, now_ms);
    else if (!(keeper->edge.mutations & LEASE_KEEPER_MUTATE_DEPOSED_EXPIRES)) lease_timers_follow(keeper->timers);
}

void lease_keeper_restored(struct lease_keeper *keeper, uint64_t now_ms) {
    if (keeper->term == 0) return;
    lease_timers_follow(keeper->timers);
    grant_full_period(keeper, now_ms);
}

void lease_keeper_tick(struct lease_keeper *keeper, uint64_t now_ms) {
    if (gather_end_ms(keeper) <= now_ms) begin_round(keeper, now_ms);
    lease_keeper_news(keeper, now_ms);
    keeper->tick_ms = now_ms;
    if (lease_timers_deadline_ms(keeper->timers) <= now_ms)
        lease_timers_tick(keeper->timers, now_ms, propose_due, keeper);
}

uint64_t lease_keeper_deadline_ms(const struct lease_keeper *keeper) {
    uint64_t table_ms = lease_timers_deadline_ms(keeper->timers), gather_ms = gather_end_ms(keeper);
    return gather_ms < table_ms ? gather_ms : table_ms;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct lease_keeper *lease_keeper_new(const struct lease_keeper_edge *edge) {
    struct lease_keeper *keeper = mem_zalloc(sizeof *keeper);
    keeper->edge = *edge;
    keeper->timers = lease_timers_new();
    return keeper;
}

void lease_keeper_stop(struct lease_keeper *keeper) {
    keeper->stopped = true;
    drop_gathered(keeper, CO_CLOSED);
}

void lease_keeper_free(struct lease_keeper *keeper) {
    CHECK(keeper->decisions == 0 && !keeper->gathered);
    for (struct lease_news *news = keeper->edge.news(keeper->edge.data), *next; news; news = next)
        next = news->next, free(news);
    lease_timers_free(keeper->timers);
    free(keeper);
}
