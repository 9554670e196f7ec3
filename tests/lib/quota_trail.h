/* Does a budget's audit trail add up (kv/quota/quota.h)? */
#ifndef COORD_TESTS_LIB_QUOTA_TRAIL_H
#define COORD_TESTS_LIB_QUOTA_TRAIL_H

#include <string.h>

#include "kv/quota/quota.h"

struct trail_sums {
    uint64_t spent, stranded, balances;
};
static inline struct trail_sums trail_sums_of(const Pb__QuotaAudit *row) {
    return (struct trail_sums){row->spent, row->stranded, row->leased + row->slack};
}

/* The sums of this row follow from those before it by its amount. */
static inline bool trail_follows(struct trail_sums before, const Pb__QuotaAudit *row) {
    struct trail_sums sums = before, shown = trail_sums_of(row);
    switch (row->kind) {
        case PB__QUOTA_KIND__QUOTA_GRANTED: sums.balances += row->amount; break;
        case PB__QUOTA_KIND__QUOTA_SETTLED:
            sums.balances -= row->amount + row->back;
            sums.spent += row->amount;
            break;
        case PB__QUOTA_KIND__QUOTA_RECLAIMED:
            sums.balances -= row->amount;
            sums.stranded += row->amount;
            break;
        case PB__QUOTA_KIND__QUOTA_TAKEN: sums.spent += row->amount; break;
        case PB__QUOTA_KIND__QUOTA_REFILLED: /* what was stranded counts as spent before, but for what is held back */
            if (row->stranded > before.stranded) return false;
            sums.spent += before.stranded - row->stranded - row->amount;
            sums.stranded = row->stranded;
            break;
        default: break;
    }
    return memcmp(&sums, &shown, sizeof sums) == 0;
}

#endif
