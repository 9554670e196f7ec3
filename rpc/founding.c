#include "rpc/founding.h"

static bool promised(const struct founding *founding, uint64_t now_ms) {
    return founding->promised_to != 0 && now_ms - founding->promised_ms <= FOUNDING_PROMISE_MS;
}

bool founding_asked(struct founding *founding, uint64_t from, bool release, bool fresh, uint64_t now_ms) {
    if (release) {
        if (founding->promised_to == from) founding->promised_to = 0;
        return false;
    }
    if (!fresh || (promised(founding, now_ms) && founding->promised_to != from)) return false;
    founding->promised_to = from, founding->promised_ms = now_ms;
    return true;
}

void founding_answered(struct founding *founding, uint64_t from, uint64_t attempt, bool yes) {
    if (attempt != founding->attempt) return;
    for (uint32_t i = 0; i < founding->members.count; i++)
        if (founding->members.member[i].id == from) founding->yes[i] = yes;
    if (!yes) founding->refused = true;
}

void founding_lost(struct founding *founding, uint64_t peer) {
    founding_answered(founding, peer, founding->attempt, false);
}

void founding_released(struct founding *founding) {
    founding->members.count = 0;
    founding->attempt++; /* what is on its way counts no more */
}

static bool same(const struct raft_members *a, const struct raft_members *b) {
    if (a->count != b->count) return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (a->member[i].id != b->member[i].id) return false;
    return true;
}

static bool all_promised(const struct founding *founding, uint64_t self) {
    for (uint32_t i = 0; i < founding->members.count; i++)
        if (founding->members.member[i].id != self && !founding->yes[i]) return false;
    return true;
}

enum founding_step founding_next(struct founding *founding, const struct raft_members *members, uint64_t now_ms,
                                 uint64_t self) {
    if (promised(founding, now_ms)) members = NULL; /* to another: not a founder meanwhile */
    bool asking = founding->members.count > 0;
    bool over = asking && (founding->refused || now_ms - founding->asked_ms > FOUNDING_TRUST_MS);
    if (asking && (over || !members || !same(members, &founding->members))) return FOUNDING_RELEASE;
    if (!members) return FOUNDING_WAIT;
    if (asking) return all_promised(founding, self) ? FOUNDING_DONE : FOUNDING_WAIT;
    *founding = (struct founding){.attempt = founding->attempt + 1,
                                  .asked_ms = now_ms,
                                  .members = *members,
                                  .promised_to = founding->promised_to,
                                  .promised_ms = founding->promised_ms};
    return FOUNDING_ASK;
}
