#include "quotas.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "tests/lib/quota_trail.h"

static char *or_empty(const char *constant) { return text(constant ? constant : ""); }

void quotas_open(struct fixture *world) {
    fixture_open(world);
    fixture_found(world);
    cr_assert(node_register(world, "n1").yes && node_register(world, "n2").yes && node_register(world, "n3").yes);
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

Pb__QuotaDefinition quota_plain(const char *name, Pb__QuotaMode mode) {
    Pb__QuotaDefinition definition = PB__QUOTA_DEFINITION__INIT;
    definition.name = text(name), definition.mode = mode;
    definition.budget = 1000, definition.tokens = 100, definition.every_ms = 1000;
    definition.max_lease = QUOTA_WHOLE;
    if (mode == PB__QUOTA_MODE__QUOTA_OWNER) definition.service = text("api");
    return definition;
}

struct outcome quota_put(struct fixture *world, const Pb__QuotaDefinition *definition) {
    Pb__QuotaPutCommand command = PB__QUOTA_PUT_COMMAND__INIT;
    command.definition = (Pb__QuotaDefinition *)(uintptr_t)definition;
    return fixture_apply(world, QUOTA_PUT, &command.base);
}

void quota_define(struct fixture *world, const char *name, Pb__QuotaMode mode) {
    Pb__QuotaDefinition definition = quota_plain(name, mode);
    struct outcome outcome = quota_put(world, &definition);
    cr_assert(outcome.yes, "%s", outcome.text);
}

struct outcome quota_delete(struct fixture *world, const char *name) {
    Pb__QuotaDeleteCommand command = PB__QUOTA_DELETE_COMMAND__INIT;
    command.name = text(name);
    return fixture_apply(world, QUOTA_DELETE, &command.base);
}

const Pb__QuotaGrants *quota_asks(struct fixture *world, const struct asks *by, const Pb__QuotaAsk *const *asks,
                                  size_t count, struct outcome *outcome) {
    Pb__QuotaAskCommand command = PB__QUOTA_ASK_COMMAND__INIT;
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    Pb__Session create = PB__SESSION__INIT;
    Pb__QuotaAsk *list[QUOTA_ASKS_MOST + 2], copies[QUOTA_ASKS_MOST + 2];
    const ProtobufCMessage *message;
    cr_assert(count < ARRAY_COUNT(list));
    for (size_t i = 0; i < count; i++) {
        copies[i] = *asks[i];
        copies[i].name = or_empty(asks[i]->name);
        list[i] = &copies[i];
    }
    if (!by->make) use.id = or_empty(by->session);
    create.id = or_empty(by->session), create.node = text("n1"), create.ttl_ns = 15000000000, create.ttl = text("15s");
    if (by->make) use.create = &create;
    if (by->session) command.session = &use;
    command.node = or_empty(by->node), command.asks = list, command.n_asks = count;
    struct outcome all = answer_of(world, QUOTA_ASK, &command.base, &message);
    if (outcome) *outcome = all;
    return (const Pb__QuotaGrants *)message;
}

const Pb__QuotaGrant *quota_ask(struct fixture *world, const char *session, const Pb__QuotaAsk *ask) {
    const struct asks by = {.session = session, .node = session ? NULL : "n1"};
    struct outcome outcome;
    const Pb__QuotaGrants *grants = quota_asks(world, &by, &ask, 1, &outcome);
    cr_assert(grants && outcome.yes && grants->n_grants == 1, "%s", outcome.text);
    cr_assert_str_eq(grants->grants[0]->name, or_empty(ask->name));
    return grants->grants[0];
}

uint64_t quota_granted(struct fixture *world, const char *session, const Pb__QuotaAsk *ask, uint64_t expected) {
    const Pb__QuotaGrant *grant = quota_ask(world, session, ask);
    cr_expect(grant->error == 0 && grant->granted == expected, "granted %lu, expected %lu: %s", grant->granted,
              expected, grant->text);
    return grant->lease;
}

void quota_refused(struct fixture *world, const char *session, const Pb__QuotaAsk *ask, int error, const char *part) {
    const Pb__QuotaGrant *grant = quota_ask(world, session, ask);
    cr_expect(grant->error == (uint32_t)error && strstr(grant->text, part), "%u \"%s\", expected: %s", grant->error,
              grant->text, part);
    cr_expect(!grant->granted && !grant->lease && !grant->taken && !grant->balance);
}

struct outcome quota_settle(struct fixture *world, const char *name, uint64_t lease, uint64_t spent) {
    Pb__QuotaSettleCommand command = PB__QUOTA_SETTLE_COMMAND__INIT;
    command.name = text(name), command.lease = lease, command.spent = spent;
    return fixture_apply(world, QUOTA_SETTLE, &command.base);
}

struct outcome quota_refill_as(struct fixture *world, const char *name, uint64_t index, uint64_t term, int64_t now_s) {
    Pb__QuotaRefillCommand command = PB__QUOTA_REFILL_COMMAND__INIT;
    command.name = text(name), command.index = index, command.term = term, command.now_unix_ms = now_s * 1000;
    return fixture_apply(world, QUOTA_REFILL, &command.base);
}

struct outcome quota_refill(struct fixture *world, const char *name, int64_t now_s) {
    return quota_refill_as(world, name, quota_look(world, name)->record->refill_index, world->term, now_s);
}

struct outcome quota_end_as(struct fixture *world, const char *name, uint64_t lease, uint64_t index, uint64_t term) {
    Pb__QuotaLeaseEndCommand command = PB__QUOTA_LEASE_END_COMMAND__INIT;
    command.name = text(name), command.lease = lease, command.index = index, command.term = term;
    return fixture_apply(world, QUOTA_LEASE_END, &command.base);
}

struct outcome quota_end(struct fixture *world, const char *name, uint64_t lease) {
    const Pb__QuotaLease *record = quota_lease_of(quota_look(world, name), lease);
    cr_assert(record, "there is no lease %lu", lease);
    return quota_end_as(world, name, lease, record->renew_index, world->term);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

const Pb__QuotaState *quota_look(struct fixture *world, const char *name) {
    Pb__QuotaRequest request = PB__QUOTA_REQUEST__INIT;
    request.name = text(name);
    struct query_result result = fixture_ask(world, &query_quota, &request.base);
    return result.found ? (const Pb__QuotaState *)result.message : NULL;
}

const Pb__QuotaLease *quota_lease_of(const Pb__QuotaState *state, uint64_t id) {
    for (size_t i = 0; state && i < state->n_leases; i++)
        if (state->leases[i]->id == id) return state->leases[i];
    return NULL;
}

const char *quota_sums(struct fixture *world, const char *name) {
    static char line[200];
    const Pb__QuotaState *state = quota_look(world, name);
    if (!state) return "none";
    const Pb__QuotaRecord *record = state->record;
    snprintf(line, sizeof line, "spent %lu stranded %lu leased %lu slack %lu: %ld of %lu", record->spent,
             record->stranded, record->leased, record->slack, state->available, state->capacity);
    return line;
}

const Pb__QuotaNotice *quota_notice(struct fixture *world, const char *name, uint64_t *index) {
    Pb__QuotaNoticeRequest request = PB__QUOTA_NOTICE_REQUEST__INIT;
    request.name = text(name);
    struct query_result result = fixture_ask(world, &query_quota_notice, &request.base);
    if (index) *index = result.index;
    return result.found ? (const Pb__QuotaNotice *)result.message : NULL;
}

const Pb__QuotaAuditResult *quota_trail(struct fixture *world, const char *name, uint64_t from) {
    Pb__QuotaAuditRequest request = PB__QUOTA_AUDIT_REQUEST__INIT;
    request.name = text(name), request.from = from;
    struct query_result result = fixture_ask(world, &query_quota_audit, &request.base);
    return result.found ? (const Pb__QuotaAuditResult *)result.message : NULL;
}

/* -- does the trail add up? --------------------------------------------------------------------------------------- */

static void row_check(struct trail_sums *sums, const Pb__QuotaAudit *row, bool first) {
    cr_assert(first || trail_follows(*sums, row), "row %lu, kind %u, amount %lu, back %lu", row->number, row->kind,
              row->amount, row->back);
    *sums = trail_sums_of(row);
}

void quota_trail_check(struct fixture *world, const char *name) {
    struct trail_sums sums = {0};
    uint64_t next = 0, index = 0;
    bool first = true;
    for (;;) {
        const Pb__QuotaAuditResult *page = quota_trail(world, name, next);
        cr_assert(page);
        for (size_t i = 0; i < page->n_entries; i++) {
            cr_assert(first || page->entries[i]->number == next);
            cr_assert_geq(page->entries[i]->index, index);
            row_check(&sums, page->entries[i], first && page->first > 1);
            next = page->entries[i]->number + 1, index = page->entries[i]->index;
            first = false;
        }
        cr_assert_eq(page->next, next);
        if (page->n_entries < QUOTA_AUDIT_PAGE) break;
    }
    const Pb__QuotaRecord *record = quota_look(world, name)->record;
    cr_assert(record->spent == sums.spent && record->stranded == sums.stranded &&
              record->leased + record->slack == sums.balances);
}
