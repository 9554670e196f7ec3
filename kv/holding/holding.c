#include "kv/holding/holding.h"

#include "base/check.h"
#include "base/message.h"
#include "kv/barrier/barrier.h"
#include "kv/election/election.h"
#include "kv/hazard/hazard.h"
#include "kv/keys/kv.h"
#include "kv/lock/lock.h"
#include "kv/phaser/phaser.h"
#include "kv/quota/quota.h"
#include "kv/session/session.h"

/* -- one thing ---------------------------------------------------------------------------------------------------- */

struct bound {
    struct store_txn *txn;
    struct arena *arena;
    struct slice session, key, value; /* the binding's row */
};

static int queue_describe(const struct bound *bound, const struct queue_family *family, const char *held,
                          Pb__Holding *holding) {
    Pb__QueueEntry *entry;
    int rv = queue_entry(bound->txn, family, bound->key, bound->session, bound->arena, &entry);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
    holding->standing = (char *)(uintptr_t)(entry->token ? held : "waiting");
    holding->token = entry->token;
    if (!entry->token) holding->position = queue_position(bound->txn, family, bound->key, entry);
    return CO_OK;
}
static int lock_describe(const struct bound *bound, Pb__Holding *holding) {
    return queue_describe(bound, &lock_family, "held", holding);
}
static int election_describe(const struct bound *bound, Pb__Holding *holding) {
    return queue_describe(bound, &election_family, "leading", holding);
}

/* The row's value is the whole key, when the key is long. */
static int key_describe(const struct bound *bound, Pb__Holding *holding) {
    if (bound->value.size) holding->name = message_bytes(slice_copy(bound->arena, bound->value));
    holding->standing = (char *)(uintptr_t) "held";
    return CO_OK;
}

static int barrier_describe(const struct bound *bound, Pb__Holding *holding) {
    static const char *const standings[] = {"waiting", "released", "inside", "left", "over"};
    Pb__BarrierPlaceRequest request = PB__BARRIER_PLACE_REQUEST__INIT;
    char room[BARRIER_WHO_MOST];
    struct query_result result;
    request.who = message_bytes(barrier_who(bound->key, bound->session, room));
    int rv = query_barrier_place.run(bound->txn, &request.base, bound->arena, &result);
    if (rv != CO_OK || !result.found) return rv == CO_OK ? CO_CORRUPT : rv;
    size_t standing = (size_t)((const Pb__BarrierSeat *)result.message)->standing;
    if (standing < ARRAY_COUNT(standings)) holding->standing = (char *)(uintptr_t)standings[standing];
    return CO_OK;
}

static int phaser_describe(const struct bound *bound, Pb__Holding *holding) {
    (void)bound;
    holding->standing = (char *)(uintptr_t) "registered";
    return CO_OK;
}
static int hazard_describe(const struct bound *bound, Pb__Holding *holding) {
    (void)bound;
    holding->standing = (char *)(uintptr_t) "protected";
    return CO_OK;
}

/* A budget's name, a NUL, and the lease. */
static int quota_describe(const struct bound *bound, Pb__Holding *holding) {
    const char *end = memchr(bound->key.data, '\0', bound->key.size);
    if (end) holding->name.len = (size_t)(end - bound->key.data);
    holding->standing = (char *)(uintptr_t) "leased";
    return CO_OK;
}

/* -- all of them -------------------------------------------------------------------------------------------------- */

/* In the order of the answer. Each module has one binding of sessions. */
static const struct kind {
    const char *name;
    const struct module *module;
    enum access_resource resource;
    int (*describe)(const struct bound *bound, Pb__Holding *holding);
} kinds[] = {{"lock", &lock_module, ACCESS_LOCK, lock_describe},
             {"election", &election_module, ACCESS_LOCK, election_describe},
             {"key", &kv_module, ACCESS_KEY, key_describe},
             {"barrier", &barrier_module, ACCESS_LOCK, barrier_describe},
             {"phaser", &phaser_module, ACCESS_LOCK, phaser_describe},
             {"hazard", &hazard_module, ACCESS_LOCK, hazard_describe},
             {"quota", &quota_module, ACCESS_QUOTA, quota_describe}};

/* `check`: NULL, or only what it shows; that much counts for HOLDINGS_SHOWN. */
static int add_kind(struct store_txn *txn, const struct kind *kind, struct slice session, struct arena *arena,
                    struct access_check *check, Pb__HoldingsResult *all) {
    const struct module_binding *binding = kind->module->session_bindings;
    struct store_cursor cursor;
    size_t count = 0;
    int rv = CO_OK;
    SESSION_EACH_BOUND(&cursor, txn, binding, session) {
        struct bound bound = {txn, arena, session, slice_copy(arena, session_bound_key(&cursor)), cursor.value};
        Pb__Holding *holding = arena_alloc(arena, sizeof *holding);
        pb__holding__init(holding);
        holding->kind = (char *)(uintptr_t)kind->name;
        holding->name = message_bytes(bound.key);
        rv = kind->describe(&bound, holding);
        if (rv != CO_OK) break;
        if (check && !access_shows(check, kind->resource, message_slice(holding->name))) continue;
        if (count++ == HOLDINGS_SHOWN) {
            all->more = true;
            break;
        }
        all->holdings[all->n_holdings++] = holding;
    }
    store_cursor_close(&cursor);
    return rv;
}

static struct slice request_id(const ProtobufCMessage *request) {
    return slice_text(((const Pb__HoldingsRequest *)request)->id);
}

static struct watch_key watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_SESSION, request_id(request)};
}

static int find_all(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct access_check *check, struct query_result *result) {
    Pb__HoldingsResult *all = arena_alloc(arena, sizeof *all);
    pb__holdings_result__init(all);
    *result = (struct query_result){0};
    int rv = session_get(txn, request_id(request), arena, &all->session);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    all->holdings = arena_alloc(arena, ARRAY_COUNT(kinds) * HOLDINGS_SHOWN * sizeof *all->holdings);
    for (size_t i = 0; i < ARRAY_COUNT(kinds) && rv == CO_OK; i++)
        rv = add_kind(txn, &kinds[i], request_id(request), arena, check, all);
    *result = (struct query_result){.index = all->session->modify_index, .found = true, .message = &all->base};
    return rv;
}

static int run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
               struct query_result *result) {
    return find_all(txn, request, arena, NULL, result);
}

/* As in query_session, a session that may not be read is not there. */
static int show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                struct query_result *result) {
    if (!result->found) return CO_OK;
    if (session_shows(check, ((const Pb__HoldingsResult *)result->message)->session))
        return find_all(txn, request, check->arena, check, result);
    *result = (struct query_result){0};
    return CO_OK;
}

const struct query_type query_holdings = {.number = 151,
                                          .name = "holdings",
                                          .request = &pb__holdings_request__descriptor,
                                          .result = &pb__holdings_result__descriptor,
                                          .watched = watched,
                                          .run = run,
                                          .show = show};

static const struct query_type *const queries[] = {&query_holdings, NULL};
const struct module holding_module = {.name = "holding", .queries = queries};
