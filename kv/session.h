/* Sessions. The replicated part is in the module of kv/kv.h; here are its queries and the leader's side: the
 * lease table that counts TTLs and lock-delays. That table decides, it does not act: time comes in, proposals come out. */
#ifndef COORD_KV_SESSION_H
#define COORD_KV_SESSION_H

#include "kv/kv.h"

extern const struct query_type query_session;         /* SessionRequest -> Session; found=false */
extern const struct query_type query_sessions;        /* SessionListRequest -> SessionsResult */

/* -- lease table: loop thread only --------------------------------------------------------------------------- */
/* Bounds (design, decision 4): an end is proposed never before TTL after the last acknowledged renewal, at most 1 s
 * after it on a healthy cluster; a new leader (or one whose loop stood still longer than an election timeout) grants every lease a full period. */
struct session_timers;
struct session_timers *session_timers_new(void);
void session_timers_free(struct session_timers *timers);
/* A loop that stood still longer than this (an election timeout) has every lease granted a full period; 1 s unless set. */
void session_timers_stall_ms(struct session_timers *timers, uint64_t stall_ms);

/* This server leads `term` and has applied its first entry: every session with a TTL and every lock-delay in the
 * store starts a full period. Again in the same term: all get a full period, what is proposed stays so. */
void session_timers_lead(struct session_timers *timers, struct store_txn *txn, uint64_t term, uint64_t now_ms);
void session_timers_follow(struct session_timers *timers);          /* forgets everything */
/* What the applier reports (through the loop): a session came, went; a lock-delay began, ended. */
void session_timers_created(struct session_timers *timers, struct slice id, int64_t ttl_ns, uint64_t now_ms);
void session_timers_ended(struct session_timers *timers, struct slice id);
void session_timers_delay(struct session_timers *timers, struct slice key, uint64_t index, int64_t delay_ns, uint64_t now_ms);
void session_timers_delay_ended(struct session_timers *timers, struct slice key, uint64_t index);
/* CO_OK (sessions without TTL too); CO_NOTFOUND: not known, or its end is proposed already; CO_NOTLEADER. Call it when the leadership round is
 * confirmed, with the time when it is: the client counts from the answer on. */
int session_timers_renew(struct session_timers *timers, struct slice id, uint64_t now_ms);

struct session_due { bool is_session; struct slice id; struct slice key; uint64_t index; };    /* valid during the call */
/* Calls `due` for everything whose time is up (each is then marked as proposed; call session_timers_failed to try again, only
 * when the proposal is certainly not in the log). To be called at session_timers_deadline_ms (or earlier); that comes several times
 * before something ends, and a call that is late tells that the loop stood still. */
void session_timers_tick(struct session_timers *timers, uint64_t now_ms, void (*due)(void *data, const struct session_due *item), void *data);
void session_timers_failed(struct session_timers *timers, const struct session_due *item, uint64_t now_ms);
uint64_t session_timers_deadline_ms(const struct session_timers *timers);       /* UINT64_MAX: nothing */
uint64_t session_timers_term(const struct session_timers *timers);              /* 0: not leading */

/* What commands changed, for the table above: the module's apply puts news into the box that it was given as module data
 * (applier thread; none when NULL), the loop takes them. */
struct session_news {
    struct session_news *next;
    enum { SESSION_NEWS_CREATED, SESSION_NEWS_ENDED, SESSION_NEWS_DELAY, SESSION_NEWS_DELAY_ENDED } type;
    int64_t duration_ns;
    uint64_t index;
    size_t size;
    char name[];                  /* session id or key */
};
struct session_box;
/* `wake` is called (applier thread) when news came into an empty box. */
struct session_box *session_box_new(void (*wake)(void *data), void *data);
void session_box_free(struct session_box *box);
struct session_news *session_box_take(struct session_box *box);          /* oldest first; free() each. Loop thread */

#endif
