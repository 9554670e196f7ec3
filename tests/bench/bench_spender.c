/* CPU time of takes on an agent that holds enough: of one budget, of many in turn, and of several in one request. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/error.h"
#include "kv/quota/spender.h"

enum { TAKES = 5000000, TTL_MS = 600000 };

static double cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Every budget is known, and the servers have granted a lot of it. */
static void answer_all(struct spender *spender, uint64_t now_ns) {
    const Pb__QuotaAskCommand *command;
    while (spender_ask(spender, now_ns, &command)) {
        Pb__QuotaGrants grants = PB__QUOTA_GRANTS__INIT;
        Pb__QuotaGrant *rows = calloc(command->n_asks, sizeof *rows);
        Pb__QuotaGrant **pointers = calloc(command->n_asks, sizeof *pointers);
        CHECK(rows && pointers);
        for (size_t i = 0; i < command->n_asks; i++) {
            pb__quota_grant__init(&rows[i]);
            rows[i].name = command->asks[i]->name;
            rows[i].lease = i + 1;
            rows[i].granted = rows[i].balance = UINT64_C(100000000000);
            rows[i].ttl_ms = TTL_MS;
            rows[i].available = INT64_C(100000000000);
            pointers[i] = &rows[i];
        }
        grants.session = "00000000-0000-4000-8000-000000000000";
        grants.grants = pointers;
        grants.n_grants = command->n_asks;
        spender_asked(spender, CO_OK, &grants, now_ns);
        now_ns += 1000000;
        free(rows), free(pointers);
    }
}

static void define_all(struct spender *spender, uint64_t now_ns) {
    const char *name;
    uint64_t index;
    while (spender_follow(spender, &name, &index)) {
        if (index) continue; /* it waits for changes */
        Pb__QuotaDefinition definition = PB__QUOTA_DEFINITION__INIT;
        Pb__QuotaNotice notice = PB__QUOTA_NOTICE__INIT;
        definition.name = (char *)(uintptr_t)name;
        definition.budget = UINT64_C(1000000000000000);
        definition.tokens = 1000, definition.every_ms = 1000;
        definition.lease_ttl_ms = TTL_MS;
        definition.max_lease = QUOTA_WHOLE;
        notice.definition = &definition;
        notice.defined_index = 5;
        spender_followed(spender, name, CO_OK, &notice, 5, now_ns);
    }
}

static void bench(unsigned budgets, unsigned together) {
    struct spender *spender = spender_new(&(struct spender_config){.node = "bench", .seed = 1});
    char(*names)[64] = calloc(budgets, sizeof *names);
    struct spender_take takes[SPENDER_TAKES_MOST];
    struct spender_answer answer;
    uint64_t now_ns = UINT64_C(1000000000);
    CHECK(names);
    for (unsigned i = 0; i < budgets; i++) {
        snprintf(names[i], sizeof names[i], "tenants/%05u/requests", i);
        takes[0] = (struct spender_take){.name = slice_text(names[i]), .n = 1};
        CHECK(spender_take(spender, takes, 1, false, false, now_ns, &answer) == CO_AGAIN);
    }
    define_all(spender, now_ns);
    CHECK(spender_woken(spender));
    for (unsigned i = 0; i < budgets; i++) {
        takes[0] = (struct spender_take){.name = slice_text(names[i]), .n = 1};
        CHECK(spender_take(spender, takes, 1, true, false, now_ns, &answer) == CO_AGAIN);
    }
    for (int i = 0; i < 100; i++) answer_all(spender, now_ns += 100000000);
    double begin = cpu_ns();
    unsigned at = 0;
    for (unsigned n = 0; n < TAKES / together; n++) {
        for (unsigned i = 0; i < together; i++) {
            takes[i] =
                (struct spender_take){.name = slice_text(names[at]), .key = SLICE_LITERAL("203.0.113.7"), .n = 1};
            at = at + 1 < budgets ? at + 1 : 0;
        }
        now_ns += 1000;
        CHECK(spender_take(spender, takes, together, false, false, now_ns, &answer) == CO_OK);
    }
    printf("%6u budgets, %2u in a request   %7.1f ns a take\n", budgets, together, (cpu_ns() - begin) / TAKES);
    spender_free(spender);
    free(names);
}

int main(void) {
    bench(1, 1);
    bench(100, 1);
    bench(SPENDER_BUDGETS_MOST, 1);
    bench(100, 8);
    return 0;
}
