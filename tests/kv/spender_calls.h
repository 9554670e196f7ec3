/* For tests of an agent's spender (spenders.h): one of them, and the definition of a plain budget "calls". */
#ifndef COORD_TESTS_KV_SPENDER_CALLS_H
#define COORD_TESTS_KV_SPENDER_CALLS_H

#include "spenders.h"

static struct spender_case s;
static Pb__QuotaDefinition plain;

static inline void begin(void) {
    spender_case_begin(&s);
    plain = budget_plain("calls", PB__QUOTA_MODE__QUOTA_LEASE);
}
static inline void end(void) { spender_case_end(&s); }

static inline const Pb__QuotaAsk *asked(void) { return s.command->asks[0]; }
static inline void pass_ms(uint64_t ms) { s.now_ns += ms * MS; }

/* How many takes of 1 it admits now. */
static inline uint64_t admits(const char *name) {
    uint64_t count = 0;
    while (take(&s, name, 1) == CO_OK) count++;
    return count;
}

#endif
