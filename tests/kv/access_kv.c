#include "access_kv.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/barrier/barrier.h"
#include "kv/event/event.h"
#include "kv/fence/fence.h"
#include "kv/hazard/hazard.h"
#include "kv/holding/holding.h"
#include "kv/phaser/phaser.h"
#include "kv/rollout/rollout.h"
#include "queues.h"
#include "quotas.h"
#include "rollouts.h"

/* -- names -------------------------------------------------------------------------------------------------------- */

static const char *new_name(struct known_things *known, enum access_resource resource, const char *tail) {
    size_t i = known->count[resource]++;
    CHECK(i < KNOWN_MOST);
    static const char groups[] = "ghi";
    char group = groups[rng_below(&known->rng, 3)];
    unsigned number = (unsigned)rng_below(&known->rng, UINT32_MAX);
    if (resource == ACCESS_KEY) /* in one of nine folders */
        return known->names[resource][i] = arena_printf(&known->arena, "%c/%u/k%08x%s", group,
                                                        (unsigned)rng_below(&known->rng, 3), number, tail);
    return known->names[resource][i] =
               arena_printf(&known->arena, "%c%.2s%08x", group, access_resource_name(resource), number);
}
static const char *fresh(struct known_things *known, enum access_resource resource) {
    return new_name(known, resource, "");
}

const char *known_any(struct known_things *known, enum access_resource resource) {
    return known->names[resource][rng_below(&known->rng, known->count[resource])];
}

static const enum access_resource of_names[] = {ACCESS_KEY,   ACCESS_LOCK,    ACCESS_EVENT,  ACCESS_NODE,
                                                ACCESS_QUOTA, ACCESS_ROLLOUT, ACCESS_SESSION};

struct access *known_access(struct known_things *known) {
    static const char *const prefixes[] = {"", "g", "h", "i", "g/1/", "h/2/k", "i/0", "glo", "hlo"};
    struct rng *rng = &known->rng;
    struct access *access = access_new(rng_below(rng, 3) ? ACCESS_DENY : ACCESS_READ);
    for (size_t i = 0; i < ARRAY_COUNT(of_names); i++) {
        enum access_resource of = of_names[i], from = of == ACCESS_SESSION ? ACCESS_NODE : of;
        for (size_t j = 0; j < ARRAY_COUNT(prefixes); j++)
            if (rng_below(rng, 4) == 0)
                access_add(access, of, true, slice_text(prefixes[j]), rng_below(rng, 2) ? ACCESS_READ : ACCESS_DENY);
        for (size_t j = 0; j < known->count[from]; j++)
            if (rng_below(rng, 3) == 0)
                access_add(access, of, false, slice_text(known->names[from][j]),
                           rng_below(rng, 3) ? ACCESS_READ : ACCESS_DENY);
    }
    access_seal(access);
    return access;
}

/* -- the state ---------------------------------------------------------------------------------------------------- */

static char *any_session(struct known_things *known) { return known->sessions[rng_below(&known->rng, KNOWN_SESSIONS)]; }

static void apply(struct known_things *known, uint8_t type, const ProtobufCMessage *message) {
    struct outcome outcome = fixture_apply(known->world, type, message);
    cr_assert(outcome.error == CO_OK, "%u: %s", type, outcome.text);
}

/* Some keys are long, and begin alike. */
static void make_keys(struct known_things *known) {
    char tail[STORE_KEY_PREFIX + 1];
    memset(tail, 'l', sizeof tail - 1);
    tail[sizeof tail - 1] = '\0';
    for (unsigned i = 0; i < 18; i++) {
        const char *key = new_name(known, ACCESS_KEY, i % 9 == 8 ? tail : "");
        cr_assert(i % 3 ? kv_put(known->world, key, "v").yes
                        : kv_acquire(known->world, key, "v", any_session(known)).yes);
    }
    for (unsigned i = 0; i < 4; i++) (void)kv_del(known->world, known_any(known, ACCESS_KEY));
}

static void make_queues(struct known_things *known) {
    for (unsigned i = 0; i < 5; i++) {
        const char *name = fresh(known, ACCESS_LOCK), *other = fresh(known, ACCESS_LOCK);
        Pb__QueueAcquireCommand command = PB__QUEUE_ACQUIRE_COMMAND__INIT;
        Pb__SessionUse use = PB__SESSION_USE__INIT;
        for (unsigned j = 0; j < 3; j++) {
            use.id = known->sessions[(i + j) % KNOWN_SESSIONS];
            command.name = text(name), command.session = &use, command.enqueue = true;
            (void)fixture_apply(known->world, LOCK_ACQUIRE, &command.base); /* a circle is refused */
            command.name = text(other);
            apply(known, ELECTION_CAMPAIGN, &command.base);
        }
    }
}

static void make_parties(struct known_things *known) {
    const char *parent = "";
    for (unsigned i = 0; i < 4; i++) {
        Pb__SessionUse use = PB__SESSION_USE__INIT;
        Pb__BarrierEnterCommand enter = PB__BARRIER_ENTER_COMMAND__INIT;
        Pb__HazardProtectCommand protect = PB__HAZARD_PROTECT_COMMAND__INIT;
        Pb__PhaserRegisterCommand join = PB__PHASER_REGISTER_COMMAND__INIT;
        Pb__FenceCheckCommand fence = PB__FENCE_CHECK_COMMAND__INIT;
        use.id = any_session(known);
        enter.session = protect.session = join.session = &use;
        enter.name = text(fresh(known, ACCESS_LOCK)), enter.parties = 3;
        protect.object = text(fresh(known, ACCESS_LOCK));
        join.name = text(fresh(known, ACCESS_LOCK)), join.parent = text(parent);
        fence.resource = text(fresh(known, ACCESS_LOCK)), fence.token = 1;
        apply(known, BARRIER_ENTER, &enter.base), apply(known, HAZARD_PROTECT, &protect.base);
        apply(known, PHASER_REGISTER, &join.base), apply(known, FENCE_CHECK, &fence.base);
        if (i % 2 == 0) parent = join.name;
    }
}

static void make_budgets(struct known_things *known) {
    for (unsigned i = 0; i < 5; i++) {
        const char *name = fresh(known, ACCESS_QUOTA);
        quota_define(known->world, name, i % 2 ? PB__QUOTA_MODE__QUOTA_OWNER : PB__QUOTA_MODE__QUOTA_LEASE);
        if (i % 2 == 0) (void)quota_ask(known->world, any_session(known), ASK(.name = text(name), .want = 10));
    }
}

static void make_rest(struct known_things *known) {
    for (unsigned i = 0; i < 6; i++) {
        const char *name = fresh(known, ACCESS_ROLLOUT);
        cr_assert(rollout_publish(known->world, name, "v1", "{}").yes);
        cr_assert(rollout_flip(known->world, name, "v1").yes);
        Pb__EventFireCommand fire = PB__EVENT_FIRE_COMMAND__INIT;
        Pb__Event event = PB__EVENT__INIT;
        event.name = text(fresh(known, ACCESS_EVENT)), fire.event = &event;
        apply(known, EVENT_FIRE, &fire.base);
    }
}

void known_open(struct known_things *known, struct fixture *world, uint64_t seed) {
    *known = (struct known_things){.world = world};
    rng_seed(&known->rng, seed);
    fixture_open(world);
    fixture_found(world);
    for (unsigned i = 0; i < 5; i++) cr_assert(node_register(world, fresh(known, ACCESS_NODE)).yes);
    for (unsigned i = 0; i < KNOWN_SESSIONS; i++) {
        session_id(i, known->sessions[i]);
        const struct session_plan plan = {.node = i ? known_any(known, ACCESS_NODE) : "", .ttl_ns = 15000000000};
        cr_assert(session_make(world, known->sessions[i], &plan).yes);
    }
    make_keys(known);
    known->middle = machine_index(world->machine) - 10;
    make_queues(known), make_parties(known), make_budgets(known), make_rest(known);
}

void known_close(struct known_things *known) {
    fixture_close(known->world);
    arena_free(&known->arena);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static void *new_message(struct known_things *known, const ProtobufCMessageDescriptor *type) {
    void *message = arena_alloc(&known->arena, type->sizeof_message);
    type->message_init(message);
    return message;
}
/* Its only member is the name, as text. */
#define BY_NAME(function, type, message, member)                                      \
    static ProtobufCMessage *function(struct known_things *known, const char *name) { \
        type *request = new_message(known, &message##__descriptor);                   \
        request->member = text(name);                                                 \
        return &request->base;                                                        \
    }
BY_NAME(ask_sessions, Pb__SessionListRequest, pb__session_list_request, node)
BY_NAME(ask_queue, Pb__QueueRequest, pb__queue_request, name)
BY_NAME(ask_queues, Pb__QueueListRequest, pb__queue_list_request, prefix)
BY_NAME(ask_barrier, Pb__BarrierRequest, pb__barrier_request, name)
BY_NAME(ask_barriers, Pb__BarrierListRequest, pb__barrier_list_request, prefix)
BY_NAME(ask_hazard, Pb__HazardRequest, pb__hazard_request, object)
BY_NAME(ask_retire, Pb__HazardRetireRequest, pb__hazard_retire_request, object)
BY_NAME(ask_hazards, Pb__HazardListRequest, pb__hazard_list_request, prefix)
BY_NAME(ask_phaser, Pb__PhaserRequest, pb__phaser_request, name)
BY_NAME(ask_phasers, Pb__PhaserListRequest, pb__phaser_list_request, prefix)
BY_NAME(ask_await, Pb__PhaserAwaitRequest, pb__phaser_await_request, name)
BY_NAME(ask_fence, Pb__FenceRequest, pb__fence_request, resource)
BY_NAME(ask_quota, Pb__QuotaRequest, pb__quota_request, name)
BY_NAME(ask_quotas, Pb__QuotaListRequest, pb__quota_list_request, prefix)
BY_NAME(ask_notice, Pb__QuotaNoticeRequest, pb__quota_notice_request, name)
BY_NAME(ask_audit, Pb__QuotaAuditRequest, pb__quota_audit_request, name)
BY_NAME(ask_rollout, Pb__RolloutRequest, pb__rollout_request, name)
BY_NAME(ask_rollouts, Pb__RolloutListRequest, pb__rollout_list_request, prefix)
BY_NAME(ask_changes, Pb__RolloutHistoryRequest, pb__rollout_history_request, name)

static ProtobufCMessage *ask_caller(struct known_things *known, const char *name) {
    Pb__RolloutCaller *caller = new_message(known, &pb__rollout_caller__descriptor);
    caller->name = text(name), caller->id = text("me");
    return &caller->base;
}
static ProtobufCMessage *ask_all_rollouts(struct known_things *known, const char *name) {
    (void)name;
    return ask_caller(known, "");
}
static ProtobufCMessage *ask_events(struct known_things *known, const char *name) {
    (void)name;
    return new_message(known, &pb__events_request__descriptor);
}
static ProtobufCMessage *ask_owned(struct known_things *known, const char *name) {
    (void)name;
    return new_message(known, &pb__quota_owned_request__descriptor);
}
static ProtobufCMessage *ask_session(struct known_things *known, const char *name) {
    Pb__SessionRequest *request = new_message(known, &pb__session_request__descriptor);
    (void)name;
    request->id = any_session(known);
    return &request->base;
}
static ProtobufCMessage *ask_holdings(struct known_things *known, const char *name) {
    Pb__HoldingsRequest *request = new_message(known, &pb__holdings_request__descriptor);
    (void)name;
    request->id = any_session(known);
    return &request->base;
}
static ProtobufCMessage *ask_entry(struct known_things *known, const char *name) {
    Pb__QueueEntryRequest *request = new_message(known, &pb__queue_entry_request__descriptor);
    char *room = arena_alloc(&known->arena, QUEUE_ENTRY_NAME_MAX);
    request->session_name = message_bytes(queue_entry_name(slice_text(name), slice_text(any_session(known)), room));
    return &request->base;
}
static ProtobufCBinaryData who(struct known_things *known, const char *name) {
    char *room = arena_alloc(&known->arena, BARRIER_WHO_MOST);
    return message_bytes(barrier_who(slice_text(name), slice_text(any_session(known)), room));
}
static ProtobufCMessage *ask_wait(struct known_things *known, const char *name) {
    Pb__BarrierWaitRequest *request = new_message(known, &pb__barrier_wait_request__descriptor);
    request->who = who(known, name);
    return &request->base;
}
static ProtobufCMessage *ask_place(struct known_things *known, const char *name) {
    Pb__BarrierPlaceRequest *request = new_message(known, &pb__barrier_place_request__descriptor);
    request->who = who(known, name);
    return &request->base;
}
static ProtobufCMessage *ask_keys(struct known_things *known, const char *name) {
    static const char *const separators[] = {"", "/", "k"};
    Pb__KvRequest *request = new_message(known, &pb__kv_request__descriptor);
    request->key = message_bytes(slice_text(name));
    request->separator = message_bytes(slice_text(separators[rng_below(&known->rng, 3)]));
    return &request->base;
}
static ProtobufCMessage *ask_past(struct known_things *known, const char *name, Pb__KvPastForm form) {
    const Pb__KvRequest *present = (const Pb__KvRequest *)ask_keys(known, name);
    Pb__KvPastRequest *request = new_message(known, &pb__kv_past_request__descriptor);
    request->at = new_message(known, &pb__kv_moment__descriptor);
    request->at->index = known->middle;
    request->key = present->key, request->separator = present->separator, request->form = form;
    return &request->base;
}
static ProtobufCMessage *ask_past_entry(struct known_things *known, const char *name) {
    return ask_past(known, name, PB__KV_PAST_FORM__PAST_ENTRY);
}
static ProtobufCMessage *ask_past_changes(struct known_things *known, const char *name) {
    return ask_past(known, name, PB__KV_PAST_FORM__PAST_CHANGES);
}
static ProtobufCMessage *ask_past_entries(struct known_things *known, const char *name) {
    return ask_past(known, name, PB__KV_PAST_FORM__PAST_ENTRIES);
}
static ProtobufCMessage *ask_past_keys(struct known_things *known, const char *name) {
    return ask_past(known, name, PB__KV_PAST_FORM__PAST_KEYS);
}

#define LIST(query, request, of, rows, name) \
    { &query, request, ACCESS_##of, rows, name, ACCESS_RESOURCES }
#define ONE(query, request, of) \
    { &query, request, ACCESS_##of, NULL, NULL, ACCESS_##of }
const struct known_query known_queries[] = {
    ONE(query_kv_get, ask_keys, KEY),
    LIST(query_kv_list, ask_keys, KEY, "entries", "key"),
    LIST(query_kv_keys, ask_keys, KEY, "keys", NULL),
    ONE(query_kv_past, ask_past_entry, KEY),
    ONE(query_kv_past, ask_past_changes, KEY),
    LIST(query_kv_past, ask_past_entries, KEY, "entries", "key"),
    LIST(query_kv_past, ask_past_keys, KEY, "keys", NULL),
    LIST(query_sessions, ask_sessions, SESSION, "sessions", "node"),
    LIST(query_session, ask_session, SESSION, "", "node"),
    LIST(query_holdings, ask_holdings, SESSION, "holdings", "name"),
    LIST(query_events, ask_events, EVENT, "events", "name"),
    ONE(query_lock, ask_queue, LOCK),
    ONE(query_lock_holder, ask_queue, LOCK),
    ONE(query_lock_entry, ask_entry, LOCK),
    LIST(query_locks, ask_queues, LOCK, "queues", "name"),
    ONE(query_election, ask_queue, LOCK),
    ONE(query_election_leader, ask_queue, LOCK),
    ONE(query_election_holder, ask_queue, LOCK),
    ONE(query_election_entry, ask_entry, LOCK),
    LIST(query_elections, ask_queues, LOCK, "queues", "name"),
    ONE(query_fence, ask_fence, LOCK),
    ONE(query_barrier, ask_barrier, LOCK),
    ONE(query_barrier_wait, ask_wait, LOCK),
    ONE(query_barrier_place, ask_place, LOCK),
    LIST(query_barriers, ask_barriers, LOCK, "barriers", "name"),
    ONE(query_hazard, ask_hazard, LOCK),
    ONE(query_hazard_retire, ask_retire, LOCK),
    LIST(query_hazards, ask_hazards, LOCK, "hazards", "object"),
    {&query_phaser, ask_phaser, ACCESS_LOCK, "children", "name", ACCESS_LOCK},
    ONE(query_phaser_await, ask_await, LOCK),
    LIST(query_phasers, ask_phasers, LOCK, "phasers", "name"),
    ONE(query_quota, ask_quota, QUOTA),
    ONE(query_quota_notice, ask_notice, QUOTA),
    ONE(query_quota_audit, ask_audit, QUOTA),
    LIST(query_quotas, ask_quotas, QUOTA, "quotas", "record.definition.name"),
    LIST(query_quota_owned, ask_owned, QUOTA, "budgets", "name"),
    ONE(query_rollout, ask_caller, ROLLOUT),
    ONE(query_rollout_state, ask_rollout, ROLLOUT),
    ONE(query_rollout_history, ask_changes, ROLLOUT),
    ONE(query_rollout_schema, ask_rollout, ROLLOUT),
    LIST(query_rollout_all, ask_all_rollouts, ROLLOUT, "rollouts", "name"),
    LIST(query_rollouts, ask_rollouts, ROLLOUT, "rollouts", "name"),
};
const size_t known_queries_count = ARRAY_COUNT(known_queries);
