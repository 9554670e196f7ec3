#include "spenders.h"

void spender_case_begin(struct spender_case *s) {
    *s = (struct spender_case){.now_ns = 5 * S};
    s->spender = spender_new(&(struct spender_config){.node = "n1", .seed = 7, .priority = 3});
}

void spender_case_end(struct spender_case *s) { spender_free(s->spender); }

Pb__QuotaDefinition budget_plain(const char *name, Pb__QuotaMode mode) {
    Pb__QuotaDefinition definition = PB__QUOTA_DEFINITION__INIT;
    definition.name = (char *)(uintptr_t)name;
    definition.budget = 1000;
    definition.tokens = 100;
    definition.every_ms = 1000;
    definition.mode = mode;
    definition.max_lease = QUOTA_WHOLE;
    if (mode == PB__QUOTA_MODE__QUOTA_BOUNDED) definition.drift = 100000;
    return definition;
}

static uint64_t defined;

void notice_heard(struct spender_case *s, const Pb__QuotaDefinition *definition, const struct noticed *noticed) {
    Pb__QuotaNotice notice = PB__QUOTA_NOTICE__INIT;
    const char *name;
    uint64_t index;
    while (spender_follow(s->spender, &name, &index)) cr_assert_str_eq(name, definition->name);
    notice.definition = (Pb__QuotaDefinition *)(uintptr_t)definition;
    notice.defined_index = defined += noticed->anew;
    notice.came = noticed->came, notice.leases = noticed->leases, notice.left = noticed->left;
    notice.denied = noticed->denied, notice.starving = noticed->starving;
    notice.period_index = noticed->period;
    spender_followed(s->spender, definition->name, CO_OK, &notice, ++defined, s->now_ns);
    defined = notice.defined_index;
    while (spender_follow(s->spender, &name, &index)) continue;
}

void budget_follow(struct spender_case *s, const Pb__QuotaDefinition *definition, bool starving) {
    Pb__QuotaNotice notice = PB__QUOTA_NOTICE__INIT;
    const char *name;
    uint64_t index;
    while (spender_follow(s->spender, &name, &index)) cr_assert_str_eq(name, definition->name);
    notice.definition = (Pb__QuotaDefinition *)(uintptr_t)definition;
    notice.defined_index = ++defined;
    notice.starving = starving;
    spender_followed(s->spender, definition->name, CO_OK, &notice, defined, s->now_ns);
    while (spender_follow(s->spender, &name, &index))
        cr_assert_eq(index, defined); /* the next one waits for a change */
}

int take_as(struct spender_case *s, const struct spender_take *takes, size_t count, bool waited, bool last_try) {
    return spender_take(s->spender, takes, count, waited, last_try, s->now_ns, &s->answer);
}

int take(struct spender_case *s, const char *name, uint64_t n) {
    struct spender_take one = {.name = slice_text(name), .key = SLICE_LITERAL("k"), .n = n};
    return take_as(s, &one, 1, false, false);
}

int take_again(struct spender_case *s, const char *name, uint64_t n) {
    struct spender_take one = {.name = slice_text(name), .key = SLICE_LITERAL("k"), .n = n};
    return take_as(s, &one, 1, true, false);
}

const Pb__QuotaAskCommand *ask_within(struct spender_case *s, uint64_t ms) {
    uint64_t end_ns = s->now_ns + ms * MS;
    for (;;) {
        if (spender_ask(s->spender, s->now_ns, &s->command)) return s->command;
        uint64_t next_ns = spender_deadline_ns(s->spender);
        if (next_ns > end_ns) break;
        if (next_ns > s->now_ns) s->now_ns = next_ns;
        spender_tick(s->spender, s->now_ns);
        const char *name;
        uint64_t index;
        while (spender_follow(s->spender, &name, &index)) continue; /* they wait */
    }
    s->now_ns = end_ns;
    return NULL;
}

void answer_given(struct spender_case *s, const struct given *given) {
    Pb__QuotaGrants grants = PB__QUOTA_GRANTS__INIT;
    Pb__QuotaGrant grant = PB__QUOTA_GRANT__INIT, *rows[] = {&grant};
    const Pb__QuotaAsk *ask = s->command->asks[0];
    cr_assert_eq(s->command->n_asks, 1);
    char name[QUOTA_NAME_MOST + 1];
    strcpy(name, ask->name);
    grant.name = name;
    grant.error = (uint32_t)given->error;
    grant.lease = given->lease ? given->lease : 77;
    grant.granted = given->granted;
    grant.balance = given->balance;
    grant.ttl_ms = 10000;
    grant.available = given->available;
    grant.capacity = 1000;
    grant.starving = given->starving;
    grant.level = given->level ? given->level : 1000;
    grant.taken = given->taken;
    grant.came = given->came, grant.owed = given->owed, grant.leases = given->leases;
    grant.waited_ms = given->waited_ms, grant.period_index = given->period;
    grant.window = given->window_s, grant.window_noted = given->window_s != 0;
    grants.session = "11111111-1111-4111-8111-111111111111";
    grants.grants = rows;
    grants.n_grants = 1;
    spender_asked(s->spender, CO_OK, &grants, s->now_ns);
}

void answer_error(struct spender_case *s, int error) { spender_asked(s->spender, error, NULL, s->now_ns); }

void hold(struct spender_case *s, const Pb__QuotaDefinition *definition, uint64_t balance) {
    cr_assert_eq(take(s, definition->name, 1), CO_AGAIN);
    budget_follow(s, definition, false);
    cr_assert(spender_woken(s->spender));
    cr_assert_eq(take_again(s, definition->name, 1), CO_AGAIN);
    cr_assert(ask_within(s, 0));
    GIVE(s, .granted = balance + 1, .balance = balance + 1, .available = (int64_t)(1000 - balance - 1));
    cr_assert(spender_woken(s->spender));
    cr_assert_eq(take_again(s, definition->name, 1), CO_OK);
    cr_assert_eq(s->answer.source, SPENDER_RENEWED);
}
