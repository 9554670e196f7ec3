#include "rpc/lease_keeper.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

struct lease_keeper {
    struct lease_keeper_edge edge;
    struct session_timers *timers;
    uint64_t term;                       /* of the leadership that the table counts for; 0: none */
    unsigned dues;
};

struct lease_due {
    bool is_session;
    uint64_t index;
    size_t size;
    char name[];
};

/* -- proposals -------------------------------------------------------------------------------------------------- */
static void propose_due(void *data, const struct session_due *item) {
    struct lease_keeper *keeper = data;
    struct slice name = item->is_session ? item->id : item->key;
    struct lease_due *due = mem_zalloc(sizeof *due + name.size + 1);
    due->is_session = item->is_session, due->index = item->index, due->size = name.size;
    memcpy(due->name, name.data, name.size);
    keeper->dues++;
    uint64_t term = keeper->edge.mutations & LEASE_KEEPER_MUTATE_DEPOSED_EXPIRES ? 0 : keeper->term;
    if (item->is_session) {
        Pb__SessionDestroyCommand command = PB__SESSION_DESTROY_COMMAND__INIT;
        command.id = due->name, command.term = term;
        log_info("session", "expired id=%s", due->name);
        keeper->edge.propose(keeper->edge.data, due, SESSION_DESTROY, &command.base);
    } else {
        Pb__LockDelayEndCommand command = PB__LOCK_DELAY_END_COMMAND__INIT;
        command.key = (ProtobufCBinaryData){due->size, (uint8_t *)due->name};
        command.index = due->index, command.term = keeper->term;
        keeper->edge.propose(keeper->edge.data, due, LOCK_DELAY_END, &command.base);
    }
}

void lease_keeper_decided(struct lease_keeper *keeper, struct lease_due *due, int error, uint64_t now_ms) {
    struct slice name = slice_make(due->name, due->size);
    struct session_due item = {.is_session = due->is_session, .index = due->index};
    if (due->is_session) item.id = name; else item.key = name;
    /* Only what is certainly not in the log may be proposed again, and renewed meanwhile. */
    bool never = error == CO_NOLEADER || error == CO_DISKFULL || error == CO_BUSY;
    if (never) session_timers_failed(keeper->timers, &item, now_ms);
    keeper->dues--;
    free(due);
}

/* -- news from the applier ----------------------------------------------------------------------------------------- */
void lease_keeper_news(struct lease_keeper *keeper, uint64_t now_ms) {
    struct session_timers *timers = keeper->timers;
    for (struct session_news *news = keeper->edge.news(keeper->edge.data), *next; news; news = next) {
        next = news->next;
        struct slice name = slice_make(news->name, news->size);
        switch (news->type) {
            case SESSION_NEWS_CREATED: session_timers_created(timers, name, news->duration_ns, now_ms); break;
            case SESSION_NEWS_ENDED: session_timers_ended(timers, name); break;
            case SESSION_NEWS_DELAY: session_timers_delay(timers, name, news->index, news->duration_ns, now_ms); break;
            case SESSION_NEWS_DELAY_ENDED: session_timers_delay_ended(timers, name, news->index); break;
        }
        free(news);
    }
}

/* -- renewals ------------------------------------------------------------------------------------------------------- */
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

void lease_keeper_confirmed(struct lease_keeper *keeper, struct rpc_renew *renew, int error, uint64_t now_ms) {
    if (error != CO_OK) { renew->done(renew, error); return; }
    lease_keeper_news(keeper, now_ms);
    int rv = session_timers_renew(keeper->timers, slice_text(renew->id), now_ms);
    if (rv == CO_NOTLEADER) rv = CO_NOLEADER;
    if (rv == CO_NOTFOUND) rv = without_ttl(keeper, renew->id);
    renew->done(renew, rv);
}

void lease_keeper_renew(struct lease_keeper *keeper, struct rpc_renew *renew, bool here, uint64_t now_ms) {
    if (!here && keeper->edge.elsewhere(keeper->edge.data, renew)) return;
    if (keeper->term == 0) renew->done(renew, CO_NOLEADER);
    else if (keeper->edge.confirm(keeper->edge.data, renew) == CO_OK) lease_keeper_confirmed(keeper, renew, CO_OK, now_ms);
}

/* -- leading ---------------------------------------------------------------------------------------------------------- */
static void grant_full_period(struct lease_keeper *keeper, uint64_t now_ms) {
    session_timers_lead(keeper->timers, keeper->edge.read(keeper->edge.data), keeper->term, now_ms);
    keeper->edge.read_done(keeper->edge.data);
}

void lease_keeper_role(struct lease_keeper *keeper, uint64_t term, bool ready, uint64_t now_ms) {
    if (ready && keeper->term == term) return;
    keeper->term = ready ? term : 0;
    lease_keeper_news(keeper, now_ms);
    if (ready) grant_full_period(keeper, now_ms);
    else if (!(keeper->edge.mutations & LEASE_KEEPER_MUTATE_DEPOSED_EXPIRES)) session_timers_follow(keeper->timers);
}

void lease_keeper_restored(struct lease_keeper *keeper, uint64_t now_ms) {
    if (keeper->term == 0) return;
    session_timers_follow(keeper->timers);
    grant_full_period(keeper, now_ms);
}

void lease_keeper_tick(struct lease_keeper *keeper, uint64_t now_ms) {
    lease_keeper_news(keeper, now_ms);
    session_timers_tick(keeper->timers, now_ms, propose_due, keeper);
}

uint64_t lease_keeper_deadline_ms(const struct lease_keeper *keeper) { return session_timers_deadline_ms(keeper->timers); }

/* -- life -------------------------------------------------------------------------------------------------------------- */
struct lease_keeper *lease_keeper_new(const struct lease_keeper_edge *edge) {
    struct lease_keeper *keeper = mem_zalloc(sizeof *keeper);
    keeper->edge = *edge;
    keeper->timers = session_timers_new();
    return keeper;
}

void lease_keeper_free(struct lease_keeper *keeper) {
    CHECK(keeper->dues == 0);
    for (struct session_news *news = keeper->edge.news(keeper->edge.data), *next; news; news = next) next = news->next, free(news);
    session_timers_free(keeper->timers);
    free(keeper);
}
