#include <criterion/criterion.h>

#include "kv/quota/quota.h"
#include "kv/quota/quota_loss.h"

#define S UINT64_C(1000000000)

/* 100 tokens a second, leases of 10 s and at most a tenth of the budget; losses count 30 s. */
static Pb__QuotaDefinition definition_of(Pb__QuotaLoss on_loss) {
    Pb__QuotaDefinition definition = PB__QUOTA_DEFINITION__INIT;
    definition.tokens = 100, definition.every_ms = 1000, definition.burst = 1000;
    definition.lease_ttl_ms = 10000, definition.last_for_ms = 30000, definition.local_cap = 7;
    definition.max_lease = 100000;
    definition.on_loss = on_loss;
    return definition;
}

static uint64_t left_at(struct quota_loss *loss, const Pb__QuotaDefinition *definition, bool by_takes, uint64_t now_ns,
                        uint64_t *more_ns) {
    struct quota_loss_rule rule = {.begin_ns = now_ns, .amount = 5, .turns_by_takes = by_takes};
    return quota_loss_left(loss, definition, &rule, now_ns, more_ns);
}

Test(quota_loss, closed_admits_nothing_and_open_its_cap_in_a_period) {
    struct quota_loss loss = {0};
    uint64_t more_ns;
    Pb__QuotaDefinition definition = definition_of(PB__QUOTA_LOSS__QUOTA_CLOSED);
    cr_expect_eq(left_at(&loss, &definition, false, 100 * S, &more_ns), 0);
    cr_expect_eq(more_ns, QUOTA_LOSS_NEVER);

    definition.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN;
    cr_expect_eq(left_at(&loss, &definition, false, 100 * S, &more_ns), 7);
    quota_loss_spend(&loss, 6);
    cr_expect_eq(left_at(&loss, &definition, false, 100 * S, &more_ns), 1);
    cr_expect(more_ns > 100 * S && more_ns < 101 * S);
    cr_expect_eq(left_at(&loss, &definition, false, 102 * S, &more_ns), 7, "the period is over");
    cr_expect_eq(loss.begin_ns, 0, "only `last` has a beginning");
}

Test(quota_loss, last_admits_an_amount_in_each_lease_ttl_for_a_time) {
    struct quota_loss loss = {0};
    uint64_t more_ns, ttl_ns = quota_slowed_ns(10000);
    Pb__QuotaDefinition definition = definition_of(PB__QUOTA_LOSS__QUOTA_LAST);
    cr_expect_eq(left_at(&loss, &definition, false, 100 * S, &more_ns), 5);
    cr_expect_eq(more_ns, 100 * S + ttl_ns);
    quota_loss_spend(&loss, 5);
    cr_expect_eq(left_at(&loss, &definition, false, 109 * S, &more_ns), 0);
    cr_expect_eq(more_ns, 100 * S + ttl_ns);
    cr_expect_eq(left_at(&loss, &definition, false, 115 * S, &more_ns), 5);
    cr_expect_eq(more_ns, 100 * S + 2 * ttl_ns, "the TTLs follow each other from the beginning");
    cr_expect_eq(left_at(&loss, &definition, false, 130 * S, &more_ns), 0, "last_for is over");
    cr_expect_eq(more_ns, QUOTA_LOSS_NEVER);
}

Test(quota_loss, a_second_loss_begins_a_ttl_unless_takes_begin_them) {
    for (int by_takes = 0; by_takes < 2; by_takes++) {
        struct quota_loss loss = {0};
        uint64_t more_ns;
        Pb__QuotaDefinition definition = definition_of(PB__QUOTA_LOSS__QUOTA_LAST);
        cr_expect_eq(left_at(&loss, &definition, by_takes, 100 * S, &more_ns), 5);
        quota_loss_spend(&loss, 5);
        loss.begin_ns = 0; /* it is over, and another begins */
        cr_expect_eq(left_at(&loss, &definition, by_takes, 104 * S, &more_ns), by_takes ? 0 : 5);
        uint64_t begun_ns = by_takes ? 100 * S : 104 * S;
        cr_expect_eq(more_ns, begun_ns + quota_slowed_ns(10000));
        cr_expect_eq(left_at(&loss, &definition, by_takes, 117 * S, &more_ns), 5);
        cr_expect_eq(more_ns, (by_takes ? 117 * S : begun_ns + quota_slowed_ns(10000)) + quota_slowed_ns(10000));
    }
}

Test(quota_loss, last_admits_no_more_in_a_period_than_the_largest_leases) {
    struct quota_loss loss = {0};
    uint64_t more_ns;
    Pb__QuotaDefinition definition = definition_of(PB__QUOTA_LOSS__QUOTA_LAST);
    struct quota_loss_rule rule = {.begin_ns = 100 * S, .amount = UINT64_MAX};
    uint64_t most = 3 * quota_lease_most(&definition);
    cr_expect_eq(quota_loss_left(&loss, &definition, &rule, 100 * S, &more_ns), most);
    quota_loss_spend(&loss, most);
    cr_expect_eq(quota_loss_left(&loss, &definition, &rule, 100 * S, &more_ns), 0);
    cr_expect_neq(more_ns, QUOTA_LOSS_NEVER);
}
