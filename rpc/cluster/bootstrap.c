#include "rpc/cluster/bootstrap.h"

static bool promised(const struct bootstrap *bootstrap, uint64_t now_ms) {
    return bootstrap->promised_to != 0 && now_ms - bootstrap->promised_ms <= BOOTSTRAP_PROMISE_MS;
}

bool bootstrap_asked(struct bootstrap *bootstrap, uint64_t from, bool release, bool fresh, uint64_t now_ms) {
    if (release) {
        if (bootstrap->promised_to == from) bootstrap->promised_to = 0;
        return false;
    }
    if (!fresh || (promised(bootstrap, now_ms) && bootstrap->promised_to != from)) return false;
    bootstrap->promised_to = from, bootstrap->promised_ms = now_ms;
    return true;
}

void bootstrap_answered(struct bootstrap *bootstrap, uint64_t from, uint64_t attempt, bool yes) {
    if (attempt != bootstrap->attempt) return;
    for (uint32_t i = 0; i < bootstrap->members.count; i++)
        if (bootstrap->members.member[i].id == from) bootstrap->yes[i] = yes;
    if (!yes) bootstrap->refused = true;
}

void bootstrap_lost(struct bootstrap *bootstrap, uint64_t peer) {
    bootstrap_answered(bootstrap, peer, bootstrap->attempt, false);
}

void bootstrap_released(struct bootstrap *bootstrap) {
    bootstrap->members.count = 0;
    bootstrap->attempt++; /* answers that are on their way do not count any more */
}

static bool same(const struct raft_members *a, const struct raft_members *b) {
    if (a->count != b->count) return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (a->member[i].id != b->member[i].id) return false;
    return true;
}

static bool all_promised(const struct bootstrap *bootstrap, uint64_t self) {
    for (uint32_t i = 0; i < bootstrap->members.count; i++)
        if (bootstrap->members.member[i].id != self && !bootstrap->yes[i]) return false;
    return true;
}

enum bootstrap_step bootstrap_next(struct bootstrap *bootstrap, const struct raft_members *members, uint64_t now_ms,
                                   uint64_t self) {
    if (promised(bootstrap, now_ms)) members = NULL; /* promised to another founder, so this server may not found now */
    bool asking = bootstrap->members.count > 0;
    bool over = asking && (bootstrap->refused || now_ms - bootstrap->asked_ms > BOOTSTRAP_TRUST_MS);
    if (asking && (over || !members || !same(members, &bootstrap->members))) return BOOTSTRAP_RELEASE;
    if (!members) return BOOTSTRAP_WAIT;
    if (asking) return all_promised(bootstrap, self) ? BOOTSTRAP_DONE : BOOTSTRAP_WAIT;
    *bootstrap = (struct bootstrap){.attempt = bootstrap->attempt + 1,
                                    .asked_ms = now_ms,
                                    .members = *members,
                                    .promised_to = bootstrap->promised_to,
                                    .promised_ms = bootstrap->promised_ms};
    return BOOTSTRAP_ASK;
}
