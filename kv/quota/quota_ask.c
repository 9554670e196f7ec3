/* Asks: the owners of leases report what they spent, give back, take and want, and are granted tokens.
 *
 * An ask is worked out in memory: record and lease stay in the arena until everything about the ask is decided, and
 * only then are written. So an ask that is refused leaves nothing, whatever became of those before it in its
 * command. */
#include <string.h>

#include "base/check.h"
#include "kv/quota/quota_internal.h"
#include "registry/catalog.h"

enum { LEASES_A_COUNT = 64 }; /* levels are counted once for so many leases and asks, which share its cost */

struct asking {
    struct quota_change change;
    const Pb__QuotaAsk *ask;
    const Pb__Session *session; /* NULL: no ask of the command is about a lease */
    char *node;
    Pb__QuotaLease *lease; /* NULL: the ask is about no lease */
    bool fresh;            /* this ask makes the lease */
    bool closed;           /* the ask has closed the lease */
    uint64_t back;         /* tokens that the lease gives back */
    Pb__QuotaGrant *grant;
};

static int refuse(struct asking *asking, int error, char *text) {
    pb__quota_grant__init(asking->grant); /* drops everything that was worked out before */
    asking->grant->name = asking->ask->name;
    asking->grant->error = (uint32_t)error, asking->grant->text = text;
    return CO_OK;
}
static bool is_refused(const struct asking *asking) { return asking->grant->error != 0; }

#define NUMBER(n) ((unsigned long long)(n))

/* -- the lease of an ask ------------------------------------------------------------------------------------------ */

static bool wants_lease(const Pb__QuotaAsk *ask) { return ask->lease || ask->seq || ask->want || ask->close; }

/* Finds the lease that the ask names, or the numbered one of its session. */
static int find_lease(struct asking *asking) {
    const struct quota_change *change = &asking->change;
    const Pb__QuotaAsk *ask = asking->ask;
    struct machine_tx *tx = change->tx;
    int rv = CO_NOTFOUND;
    if (ask->lease) rv = quota_lease_get(tx->store, change->name, ask->lease, tx->arena, &asking->lease);
    else if (ask->seq)
        rv = quota_lease_numbered(tx->store, slice_text(asking->session->id), change->name, tx->arena, &asking->lease);
    if (rv != CO_OK) asking->lease = NULL;
    else if (strcmp(asking->lease->session, asking->session->id) != 0) rv = CO_NOTFOUND;
    if (rv == CO_NOTFOUND && (ask->lease || ask->close))
        return refuse(asking, CO_NOTFOUND, quota_lease_unknown(tx->arena, ask->name, ask->lease));
    if (rv == CO_OK && asking->lease->token != ask->token)
        return refuse(asking, CO_DENIED, quota_lease_denied(tx->arena, ask->name, asking->lease->id));
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

static int new_lease_refused(struct asking *asking) {
    const struct quota_change *change = &asking->change;
    const Pb__QuotaRecord *record = change->record;
    struct machine_tx *tx = change->tx;
    uint64_t most = quota_owned(record) ? QUOTA_MEMBERS_MOST : QUOTA_LEASES_MOST, count;
    Pb__QuotaLease *other;
    int rv = quota_lease_get(tx->store, change->name, tx->index, tx->arena, &other);
    if (rv == CO_OK) return refuse(asking, CO_INVALID, (char *)"asks: a command makes one lease of a budget");
    if (rv != CO_NOTFOUND) return rv;
    if (record->leases >= most)
        return refuse(asking, CO_BUSY,
                      arena_printf(tx->arena, "budget \"%s\" has %llu leases: no more are granted", asking->ask->name,
                                   NUMBER(most)));
    rv = quota_session_leases(tx->store, slice_text(asking->session->id), &count);
    if (rv == CO_OK && count >= QUOTA_SESSION_MOST)
        return refuse(asking, CO_BUSY, (char *)"the session has 10000 leases: close some, or use another one");
    return rv;
}

static void new_lease(struct asking *asking) {
    Pb__QuotaLease *lease = arena_alloc(asking->change.tx->arena, sizeof *lease);
    pb__quota_lease__init(lease);
    lease->id = asking->change.tx->index;
    lease->session = asking->session->id, lease->node = asking->node;
    lease->numbered = asking->ask->seq != 0;
    lease->token = asking->ask->token;
    asking->lease = lease;
    asking->fresh = true;
}

/* Does the agent's node have a passing instance? */
static int instance_refused(struct asking *asking) {
    struct machine_tx *tx = asking->change.tx;
    const char *service = asking->change.record->definition->service;
    if (!quota_owned(asking->change.record) || asking->ask->close) return CO_OK;
    int rv = catalog_instance_passes(tx->store, slice_text(service), slice_text(asking->node), tx->arena);
    if (rv != CO_NOTFOUND) return rv;
    return refuse(
        asking, CO_CONFLICT,
        arena_printf(tx->arena, "node \"%.512s\" has no passing instance of service \"%s\"", asking->node, service));
}

/* -- checks ------------------------------------------------------------------------------------------------------- */

static const char *claims_fault(struct asking *asking) {
    const Pb__QuotaAsk *ask = asking->ask;
    struct arena *arena = asking->change.tx->arena;
    uint64_t balance = asking->lease ? asking->lease->balance : 0;
    bool both = !quota_bounded(asking->change.record);
    if (ask->spent > balance || ask->held > (both ? balance - ask->spent : balance))
        return arena_printf(arena, "spent %llu and held %llu: the lease holds %llu", NUMBER(ask->spent),
                            NUMBER(ask->held), NUMBER(balance));
    if (ask->close && (ask->held || ask->want)) return "close: with it, held and want are 0";
    if (ask->unsettled && !(ask->close && quota_owned(asking->change.record)))
        return "unsettled: only with close, and in owner mode";
    return NULL;
}

static const char *ask_fault(struct asking *asking) {
    const Pb__QuotaAsk *ask = asking->ask;
    if (ask->priority >= QUOTA_PRIORITIES) return "priority: from 0 to 9";
    if (ask->want > QUOTA_AMOUNT_MOST || ask->take > QUOTA_AMOUNT_MOST) return "want, take: at most 10^15";
    if (ask->take && quota_owned(asking->change.record)) return "take: in owner mode the owner of a key counts it";
    const char *fault = claims_fault(asking);
    return fault ? fault : quota_member_fault(&asking->change, ask);
}

/* -- grants ------------------------------------------------------------------------------------------------------- */

/* Settles the tokens that the lease spent and gives back. In bounded mode reported tokens stop to be slack until they
 * are granted again, so that spent and all slack together stay within the capacity and the drift. */
static void settle(struct asking *asking) {
    const Pb__QuotaAsk *ask = asking->ask;
    Pb__QuotaRecord *record = asking->change.record;
    Pb__QuotaLease *lease = asking->lease;
    uint64_t rest = lease->balance - ask->spent, keep = ask->held < rest ? ask->held : rest;
    CHECK(ask->spent <= lease->balance && keep <= rest);
    CHECK(*quota_balances(record) >= lease->balance - keep); /* the sum has each lease */
    asking->back = rest - keep;
    *quota_balances(record) -= lease->balance - keep;
    record->spent += ask->spent;
    lease->balance = keep;
    if (ask->spent || asking->back)
        quota_audit(&asking->change, PB__QUOTA_KIND__QUOTA_SETTLED, lease, ask->spent, asking->back);
}

static void take(struct asking *asking) {
    Pb__QuotaRecord *record = asking->change.record;
    Pb__QuotaLease nobody = PB__QUOTA_LEASE__INIT;
    uint64_t n = asking->ask->take;
    nobody.node = asking->node;
    asking->grant->taken = n && n <= quota_minus(quota_takeable(record), quota_kept(record, asking->lease));
    asking->change.denied |= n && !asking->grant->taken;
    if (!asking->grant->taken) return;
    CHECK(n <= quota_takeable(record));
    record->spent += n;
    quota_audit(&asking->change, PB__QUOTA_KIND__QUOTA_TAKEN, asking->lease ? asking->lease : &nobody, n, 0);
}

static uint64_t grant_of(const struct asking *asking, uint64_t wish, bool spare) {
    const Pb__QuotaRecord *record = asking->change.record;
    struct quota_level of_class = quota_level_of(record, asking->ask->priority);
    uint64_t level = spare ? of_class.most : quota_level_sure(of_class), goal = wish < level ? wish : level;
    uint64_t more = quota_minus(goal, asking->lease->balance), room = quota_grantable(record);
    room = quota_minus(room, quota_kept(record, asking->lease));
    return more < room ? more : room;
}

/* The ask got less than it wants: is a count of the levels due? When there are fewer tokens than leases, only a count
 * can give one out. */
static bool is_count_due(const struct asking *asking) {
    const Pb__QuotaRecord *record = asking->change.record;
    uint64_t sure = quota_level_sure(quota_level_of(record, asking->ask->priority));
    return record->asks > record->leases / LEASES_A_COUNT || (sure == 0 && quota_grantable(record) > 0);
}

static int grant(struct asking *asking) {
    struct quota_change *change = &asking->change;
    Pb__QuotaRecord *record = change->record;
    Pb__QuotaLease *lease = asking->lease;
    uint64_t most = quota_lease_most(record->definition);
    uint64_t wish = asking->ask->want < most ? asking->ask->want : most, more = 0;
    lease->wants = asking->ask->want, lease->priority = asking->ask->priority;
    record->asks++;
    if (quota_owned(record)) return CO_OK;
    more = grant_of(asking, wish, false);
    if (lease->balance + more < wish && is_count_due(asking)) {
        bool spare;
        int rv = quota_levels_count(change, lease, &spare);
        if (rv != CO_OK) return rv;
        more = grant_of(asking, wish, spare);
    }
    CHECK(more <= quota_grantable(record));
    lease->balance += more;
    *quota_balances(record) += more;
    asking->grant->granted = more;
    if (more) quota_audit(change, PB__QUOTA_KIND__QUOTA_GRANTED, lease, more, 0);
    bool starves = lease->balance < wish;
    if (starves && !record->starving) change->notice = true;
    change->denied |=
        starves && !quota_bounded(record); /* missing slack is no denial, because takes can ask the servers */
    if (starves || asking->back > more) record->starving = starves;
    if (starves && !lease->balance && !asking->grant->taken) quota_waits(record, lease, wish);
    else quota_waits_not(record, lease);
    return CO_OK;
}

static void answer(struct asking *asking) {
    const Pb__QuotaRecord *record = asking->change.record;
    Pb__QuotaGrant *grant = asking->grant;
    quota_news(&asking->change);
    grant->came = record->came;
    grant->window = record->window_start, grant->window_noted = record->window_noted;
    grant->waited_ms = record->waited_ms, grant->period_index = record->period_index;
    grant->owed = record->spent + record->stranded;
    grant->leases = record->leases;
    grant->available = quota_available(record);
    grant->available -= (int64_t)quota_kept(record, asking->lease);
    grant->capacity = quota_capacity(record->definition);
    grant->starving = record->starving;
    grant->level = quota_level_of(record, asking->ask->priority).most;
    grant->defined_index = record->defined_index;
    grant->epoch = record->epoch, grant->active = record->active;
    if (!asking->lease || asking->closed) return;
    grant->lease = asking->lease->id;
    grant->balance = asking->lease->balance;
    grant->ttl_ms = record->definition->lease_ttl_ms;
}

/* -- one ask ------------------------------------------------------------------------------------------------------ */

/* The answer to the ask was lost: repeats it. The lease's time counts anew, because its owner counts it from this ask
 * on. */
static int repeat(struct asking *asking) {
    struct quota_change *change = &asking->change;
    Pb__QuotaLease *lease = asking->lease;
    CHECK(lease->answer && lease->seq == asking->ask->seq);
    *asking->grant = *lease->answer;
    asking->grant->name = asking->ask->name;
    quota_lease_renew(change, lease);
    asking->grant->ttl_ms = lease->ttl_ms;
    quota_lease_put(change->tx, change->name, lease);
    quota_commit(change);
    return CO_OK;
}

/* Writes the lease with the grant. */
static int lease_write(struct asking *asking) {
    struct quota_change *change = &asking->change;
    Pb__QuotaLease *lease = asking->lease;
    bool owned = quota_owned(change->record), acked = asking->ask->acked > lease->acked;
    int rv = CO_OK;
    if (asking->fresh) quota_lease_bind(change, lease);
    quota_lease_renew(change, lease);
    if (owned) asking->grant->split = quota_member_says(change, lease, asking->ask);
    if (owned && asking->fresh) {
        quota_audit(change, PB__QUOTA_KIND__QUOTA_GRANTED, lease, 0, 0);
        rv = quota_member_came(change, lease);
    } else if (owned && acked) rv = quota_members_acked(change, lease);
    answer(asking);
    if (asking->ask->seq) {
        CHECK(asking->ask->seq >= lease->seq);
        lease->seq = asking->ask->seq;
        lease->answer = arena_alloc(change->tx->arena, sizeof *lease->answer);
        *lease->answer = *asking->grant;
        lease->answer->name = (char *)(uintptr_t) "";
    }
    quota_lease_put(change->tx, change->name, lease);
    return rv;
}

static int close_lease(struct asking *asking) {
    if (asking->ask->unsettled) quota_member_lost(&asking->change, asking->lease);
    int rv = quota_lease_settle(&asking->change, asking->lease, asking->ask->spent);
    asking->closed = true;
    take(asking);
    answer(asking);
    return rv;
}

static int renew_lease(struct asking *asking) {
    if (!asking->fresh) settle(asking);
    take(asking);
    int rv = grant(asking);
    if (rv != CO_OK) return rv;
    if (asking->ask->all && asking->lease->balance < asking->ask->want)
        return refuse(asking, CO_BUSY,
                      arena_printf(asking->change.tx->arena, "all: wanted are %llu, of which %llu can be had",
                                   NUMBER(asking->ask->want), NUMBER(asking->lease->balance)));
    return lease_write(asking);
}

/* Finds the lease of an ask, and checks its number. */
static int lease_ready(struct asking *asking) {
    const Pb__QuotaAsk *ask = asking->ask;
    if (!wants_lease(ask)) return CO_OK;
    int rv = find_lease(asking);
    if (rv != CO_OK || is_refused(asking)) return rv;
    const Pb__QuotaLease *lease = asking->lease;
    if (lease && ask->seq && ask->seq < lease->seq)
        return refuse(asking, CO_CONFLICT,
                      arena_printf(asking->change.tx->arena, "seq: %llu is older than %llu, which was answered last",
                                   NUMBER(ask->seq), NUMBER(lease->seq)));
    return CO_OK;
}

static int ask_one(struct asking *asking) {
    struct quota_change *change = &asking->change;
    const Pb__QuotaAsk *ask = asking->ask;
    if (ask->denied[0]) return refuse(asking, CO_DENIED, ask->denied);
    int rv = quota_begin(change->tx, ask->name, change);
    struct machine_thing thing = {SPACE_QUOTA, "budget", slice_text(ask->name)};
    const char *elsewhere = rv == CO_NOTFOUND ? machine_forbids(change->tx, &thing) : NULL;
    if (elsewhere) return refuse(asking, CO_DENIED, (char *)(uintptr_t)elsewhere);
    if (rv == CO_NOTFOUND) return refuse(asking, CO_NOTFOUND, quota_unknown(change->tx->arena, ask->name));
    if (rv == CO_OK) rv = lease_ready(asking);
    if (rv != CO_OK || is_refused(asking)) return rv;
    if (asking->lease && ask->seq && ask->seq == asking->lease->seq && asking->lease->answer) return repeat(asking);
    const char *fault = ask_fault(asking);
    if (fault) return refuse(asking, CO_INVALID, (char *)(uintptr_t)fault);
    if (wants_lease(ask)) rv = instance_refused(asking);
    if (rv != CO_OK || is_refused(asking)) return rv;
    if (wants_lease(ask) && !asking->lease) {
        rv = new_lease_refused(asking);
        if (rv != CO_OK || is_refused(asking)) return rv;
        new_lease(asking);
    }
    rv = ask->close ? close_lease(asking) : asking->lease ? renew_lease(asking) : (take(asking), answer(asking), CO_OK);
    bool changes = asking->lease || asking->grant->taken || change->notice; /* of a denied take: the first one */
    if (rv == CO_OK && !is_refused(asking) && changes) quota_commit(change);
    return rv;
}

/* -- the command -------------------------------------------------------------------------------------------------- */

/* A command that is to make the session may find it: an earlier one, whose answer was lost, has made it. */
static int session_of(struct machine_tx *tx, const Pb__QuotaAskCommand *command, struct machine_result *result,
                      Pb__Session **session, bool *made) {
    Pb__SessionUse there = PB__SESSION_USE__INIT;
    const Pb__SessionUse *use = command->session;
    bool needed = false;
    for (size_t i = 0; i < command->n_asks; i++)
        needed |= !command->asks[i]->denied[0] && wants_lease(command->asks[i]);
    *session = NULL, *made = false;
    if (!needed) return CO_OK;
    if (use && use->create) {
        int rv = session_exists(tx->store, slice_text(use->create->id));
        if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
        *made = rv == CO_NOTFOUND;
        there.id = use->create->id;
        if (!*made) use = &there;
    }
    return session_ensure(tx, use, result, session);
}

int quota_ask_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__QuotaAskCommand *command = request;
    Pb__Session *session;
    bool may_end = false;
    if (command->n_asks == 0 || command->n_asks > QUOTA_ASKS_MOST)
        return machine_refuse(result, CO_INVALID, "asks: from 1 to 256 in a command");
    if (strlen(command->node) > QUOTA_SERVICE_MOST)
        return machine_refuse(result, CO_INVALID, "node: at most 512 bytes");
    int rv = session_of(tx, command, result, &session, &may_end);
    if (rv != CO_OK || result->error) return rv;
    Pb__QuotaGrants *grants = arena_alloc(tx->arena, sizeof *grants);
    pb__quota_grants__init(grants);
    grants->grants = arena_alloc(tx->arena, command->n_asks * sizeof *grants->grants);
    for (size_t i = 0; i < command->n_asks && rv == CO_OK; i++) {
        Pb__QuotaGrant *grant = grants->grants[grants->n_grants++] = arena_alloc(tx->arena, sizeof *grant);
        pb__quota_grant__init(grant);
        grant->name = command->asks[i]->name;
        struct asking asking = {.ask = command->asks[i], .session = session, .grant = grant};
        asking.change.tx = tx;
        asking.node = command->node[0] || !session ? command->node : session->node;
        rv = ask_one(&asking);
        may_end |= asking.closed;
    }
    if (rv == CO_OK && session && may_end) rv = session_end_idle(tx, slice_text(session->id));
    if (rv != CO_OK) return rv;
    char *id = session ? session->id : command->session ? command->session->id : (char *)(uintptr_t) "";
    if ((session && !may_end) || session_exists(tx->store, slice_text(id)) == CO_OK) grants->session = id;
    grants->index = tx->index;
    result->yes = true;
    result->message = &grants->base;
    return CO_OK;
}
