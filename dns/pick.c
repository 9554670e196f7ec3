#include "dns/pick.h"

#include <stdlib.h>

#include "base/memory.h"
#include "lb/balance.h"

#define FOLLOW_NS (60 * UINT64_C(1000000000)) /* a client agent renews its wish to follow so often */

struct dns_pick {
    struct rpc *rpc;
    char *service;
    uint64_t begun, followed_ns; /* begun: hints_begun when `service` was last looked up */
    struct balance *balance;     /* NULL: the service does not report its load */
    uint32_t *records;           /* the record of each entry */
    size_t count;
};

struct dns_pick *dns_pick_new(struct rpc *rpc, Pb__ServiceEntry **entries, size_t count, uint64_t now_ns) {
    struct dns_pick *pick = mem_zalloc(sizeof *pick);
    struct hints *hints = rpc_hints(rpc);
    pick->rpc = rpc, pick->count = count, pick->followed_ns = now_ns;
    pick->service = mem_strdup(entries[0]->service->name);
    rpc_hints_follow(rpc, slice_text(pick->service));
    pick->begun = hints_begun(hints);
    if (!hints_known(hints, slice_text(pick->service))) return pick;
    Pb__ServiceEntriesResult all = PB__SERVICE_ENTRIES_RESULT__INIT;
    all.entries = entries, all.n_entries = count;
    pick->balance = balance_new(hints, &all, now_ns);
    pick->records = mem_alloc(count * sizeof *pick->records);
    memset(pick->records, 0xff, count * sizeof *pick->records);
    return pick;
}

void dns_pick_free(struct dns_pick *pick) {
    if (!pick) return;
    balance_free(pick->balance);
    free(pick->records);
    free(pick->service);
    free(pick);
}

size_t dns_pick_bytes(const struct dns_pick *pick) {
    if (!pick) return 0;
    size_t all = pick->balance ? balance_bytes(pick->balance) + pick->count * sizeof *pick->records : 0;
    return sizeof *pick + strlen(pick->service) + all;
}

void dns_pick_record(struct dns_pick *pick, size_t entry, uint32_t record) {
    if (pick->balance && entry < pick->count) pick->records[entry] = record;
}

bool dns_pick_current(struct dns_pick *pick, uint64_t now_ns) {
    struct hints *hints = rpc_hints(pick->rpc);
    if (now_ns - pick->followed_ns > FOLLOW_NS) {
        pick->followed_ns = now_ns;
        rpc_hints_follow(pick->rpc, slice_text(pick->service));
    }
    uint64_t begun = hints_begun(hints);
    if (pick->balance || pick->begun == begun) return true;
    pick->begun = begun;
    return !hints_known(hints, slice_text(pick->service));
}

uint32_t dns_pick_first(struct dns_pick *pick, struct rng *rng, uint64_t now_ns) {
    struct balance_ask ask = {.policy = PICK_P2C, .rng = rng, .now_ns = now_ns};
    struct balance_picked picked;
    if (!pick->balance || balance_pick(pick->balance, &ask, &picked) != CO_OK) return DNS_PICK_NONE;
    return pick->records[picked.picked];
}
