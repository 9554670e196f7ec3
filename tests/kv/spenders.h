/* One agent's spender, and servers that answer as a test says. Time stands still unless the test moves it. */
#ifndef COORD_TESTS_KV_SPENDERS_H
#define COORD_TESTS_KV_SPENDERS_H

#include <criterion/criterion.h>

#include "base/error.h"
#include "kv/quota/spender.h"

#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

struct spender_case {
    struct spender *spender;
    uint64_t now_ns;
    const Pb__QuotaAskCommand *command; /* the last one that was sent */
    struct spender_answer answer;       /* to the last take */
};
void spender_case_begin(struct spender_case *s);
void spender_case_end(struct spender_case *s);

/* 1000 tokens, and 100 more each second; one agent may hold all; a TTL of 10 s. */
Pb__QuotaDefinition budget_plain(const char *name, Pb__QuotaMode mode);
/* Its notice is fetched (a take has made it known), and comes. */
void budget_follow(struct spender_case *s, const Pb__QuotaDefinition *definition, bool starving);

int take(struct spender_case *s, const char *name, uint64_t n);       /* with a key */
int take_again(struct spender_case *s, const char *name, uint64_t n); /* that has waited */
int take_as(struct spender_case *s, const struct spender_take *takes, size_t count, bool waited, bool last_try);

/* The next ask that is due within so long; time goes on until then. NULL: none. */
const Pb__QuotaAskCommand *ask_within(struct spender_case *s, uint64_t ms);
/* The answer to a command of one ask. */
struct given {
    uint64_t granted, balance, level;
    int64_t available;
    bool starving, taken;
    uint64_t came, owed, leases, waited_ms, period;
    int64_t window_s; /* 0: the leader has not said which one it is */
    int error;
    uint64_t lease; /* 0: 77 */
};
void answer_given(struct spender_case *s, const struct given *given);
#define GIVE(s, ...) answer_given(s, &(const struct given){__VA_ARGS__})
void answer_error(struct spender_case *s, int error);
/* A notice of it. */
struct noticed {
    uint64_t came, leases, left, period;
    bool denied, starving;
    bool anew; /* it was defined anew */
};
void notice_heard(struct spender_case *s, const Pb__QuotaDefinition *definition, const struct noticed *noticed);
#define NOTICE(s, definition, ...) notice_heard(s, definition, &(const struct noticed){__VA_ARGS__})
/* A known budget, of which so much is held. */
void hold(struct spender_case *s, const Pb__QuotaDefinition *definition, uint64_t balance);

#endif
