#include "quota_servers.h"

#include <stdio.h>
#include <stdlib.h>

#include "answers.h"
#include "base/check.h"

#define NS_MS UINT64_C(1000000)

static struct expiry_leader leader_of(const struct quota_servers *servers) {
    return (struct expiry_leader){
        .term = servers->world.term,
        .now_ms = servers->now_ns / NS_MS,
        .unix_ms = QUOTA_SERVERS_UNIX_S * 1000 + (int64_t)(servers->now_ns / NS_MS),
    };
}

/* -- what ends by itself ------------------------------------------------------------------------------------------ */

/* Puts the deadlines that entries began and ended into the leader's table. */
static void take_updates(struct quota_servers *servers) {
    struct expiry_leader leader = leader_of(servers);
    for (struct expiry_update *at = expiry_updates_take(servers->world.updates), *next; at; at = next) {
        struct slice name = slice_make(at->name, at->size);
        next = at->next;
        int64_t period_ns = at->period_ns;
        if (servers->led && !at->ended && at->kind->period_ns) {
            store_read_done(servers->world.reader);
            period_ns = at->kind->period_ns(store_read(servers->world.reader), at, &leader);
            store_read_done(servers->world.reader);
        }
        if (at->ended) expiry_ended(servers->timers, at->kind, name, at->index);
        else expiry_began(servers->timers, at->kind, name, at->index, period_ns, leader.now_ms);
        free(at);
    }
}

struct due {
    const struct expiry_kind *kind;
    size_t size;
    uint64_t index;
    char name[600];
};
struct dues {
    struct due rows[256];
    size_t count;
};

static void keep_due(void *data, const struct expiry_due *item) {
    struct dues *dues = data;
    CHECK(dues->count < ARRAY_COUNT(dues->rows) && item->name.size < sizeof dues->rows[0].name);
    struct due *due = &dues->rows[dues->count++];
    *due = (struct due){.kind = item->kind, .size = item->name.size, .index = item->index};
    memcpy(due->name, item->name.data, item->name.size);
}

static uint64_t spent_of(struct quota_servers *servers, const char *name) {
    const Pb__QuotaState *state = quota_servers_look(servers, name);
    return state ? state->record->spent + state->record->stranded : 0;
}

static void apply_end(void *data, uint8_t command, const ProtobufCMessage *message) {
    struct quota_servers *servers = data;
    const char *name = command == QUOTA_REFILL ? ((const Pb__QuotaRefillCommand *)message)->name : NULL;
    uint64_t before = name ? spent_of(servers, name) : 0;
    struct outcome outcome = fixture_apply(&servers->world, command, message);
    if (name && outcome.error == CO_OK && servers->refilled)
        servers->refilled(servers->data, name, before - spent_of(servers, name));
}

void quota_servers_tick(struct quota_servers *servers, uint64_t now_ns) {
    servers->now_ns = now_ns;
    if (!servers->led || expiry_deadline_ms(servers->timers) > now_ns / NS_MS) return;
    static struct dues dues;
    dues.count = 0;
    expiry_tick(servers->timers, now_ns / NS_MS, keep_due, &dues);
    for (size_t i = 0; i < dues.count; i++) {
        struct due *due = &dues.rows[i];
        struct expiry_leader leader = leader_of(servers);
        struct expiry_due item = {due->kind, slice_make(due->name, due->size), due->index};
        due->kind->end(&item, &leader, apply_end, servers);
        take_updates(servers);
    }
}

void quota_servers_unled(struct quota_servers *servers) {
    servers->led = false;
    expiry_follow(servers->timers);
}

void quota_servers_lead(struct quota_servers *servers, uint64_t now_ns) {
    servers->now_ns = now_ns;
    take_updates(servers);
    servers->led = true;
    servers->world.term++;
    expiry_lead(servers->timers, servers->world.term, now_ns / NS_MS);
    struct expiry_leader leader = leader_of(servers);
    store_read_done(servers->world.reader);
    struct store_txn *txn = store_read(servers->world.reader);
    CHECK(quota_refill_expiry.read(txn, &leader, servers->timers) == CO_OK);
    CHECK(quota_lease_expiry.read(txn, &leader, servers->timers) == CO_OK);
    store_read_done(servers->world.reader);
}

/* -- life --------------------------------------------------------------------------------------------------------- */

void quota_servers_open(struct quota_servers *servers, unsigned nodes) {
    *servers = (struct quota_servers){0};
    fixture_open(&servers->world);
    fixture_found(&servers->world);
    servers->timers = expiry_new();
    expiry_stall_ms(servers->timers, UINT64_C(1000000000)); /* time goes on as the tests say, in large steps too */
    for (unsigned i = 0; i < nodes; i++) {
        char name[16];
        snprintf(name, sizeof name, "a%u", i);
        CHECK(node_register(&servers->world, name).error == CO_OK);
        quota_servers_node(servers, name, true);
    }
    quota_servers_lead(servers, 0);
}

void quota_servers_close(struct quota_servers *servers) {
    expiry_free(servers->timers);
    fixture_close(&servers->world);
}

void quota_servers_node(struct quota_servers *servers, const char *node, bool alive) {
    struct outcome outcome =
        check_register(&servers->world, node, "serfHealth", alive ? PB__STATUS__PASSING : PB__STATUS__CRITICAL);
    CHECK(outcome.error == CO_OK);
    take_updates(servers);
}

void quota_servers_instance(struct quota_servers *servers, const char *node, bool passing) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node record = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
    char api[] = "api", address[] = "10.0.0.1";
    record.name = (char *)(uintptr_t)node, record.address = address;
    service.id = service.name = check.check_id = check.name = check.service_id = api;
    check.status = passing ? PB__STATUS__PASSING : PB__STATUS__CRITICAL;
    command.node = &record, command.service = &service, command.checks = checks, command.n_checks = 1;
    struct outcome outcome = fixture_apply(&servers->world, CATALOG_REGISTER, &command.base);
    CHECK(outcome.error == CO_OK);
    take_updates(servers);
}

void quota_servers_define(struct quota_servers *servers, const Pb__QuotaDefinition *definition) {
    Pb__QuotaPutCommand command = PB__QUOTA_PUT_COMMAND__INIT;
    command.definition = (Pb__QuotaDefinition *)(uintptr_t)definition;
    struct outcome outcome = fixture_apply(&servers->world, QUOTA_PUT, &command.base);
    if (outcome.error != CO_OK) fprintf(stderr, "%s\n", outcome.text);
    CHECK(outcome.error == CO_OK);
    take_updates(servers);
}

void quota_servers_delete(struct quota_servers *servers, const char *name) {
    Pb__QuotaDeleteCommand command = PB__QUOTA_DELETE_COMMAND__INIT;
    command.name = (char *)(uintptr_t)name;
    CHECK(fixture_apply(&servers->world, QUOTA_DELETE, &command.base).error == CO_OK);
    take_updates(servers);
}

/* -- agents ------------------------------------------------------------------------------------------------------- */

int quota_servers_ask(struct quota_servers *servers, const Pb__QuotaAskCommand *command,
                      const Pb__QuotaGrants **grants) {
    const ProtobufCMessage *message = NULL;
    if (!servers->led) return CO_NOLEADER;
    servers->asks++;
    struct outcome outcome = answer_of(&servers->world, QUOTA_ASK, &command->base, &message);
    *grants = (const Pb__QuotaGrants *)message;
    take_updates(servers);
    return outcome.error;
}

const Pb__QuotaNotice *quota_servers_notice(struct quota_servers *servers, const char *name, uint64_t *index) {
    Pb__QuotaNoticeRequest request = PB__QUOTA_NOTICE_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name;
    struct query_result result = fixture_ask(&servers->world, &query_quota_notice, &request.base);
    *index = result.index;
    return result.found ? (const Pb__QuotaNotice *)result.message : NULL;
}

const Pb__QuotaState *quota_servers_look(struct quota_servers *servers, const char *name) {
    Pb__QuotaRequest request = PB__QUOTA_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name;
    struct query_result result = fixture_ask(&servers->world, &query_quota, &request.base);
    return result.found ? (const Pb__QuotaState *)result.message : NULL;
}
