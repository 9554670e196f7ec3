/* Tokens: their clients make some that live for a while, change and delete them, and read them by accessor or by secret. */
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "base/check.h"
#include "base/message.h"
#include "tests/sim/modules.h"

#define P PRIu64

enum kind { BEGIN, MAKE, CHANGE, DELETE, READ, READ_SELF };
struct token_own {
    uint64_t seen_made, seen_changed; /* of a read */
};

static const char kind_name[] = "ac1acce5";
static void accessor_name(uint64_t op, char id[40]) { expiring_name(kind_name, op, id); }
static void secret_name(uint64_t op, char secret[40]) { expiring_name("5ec5e75e", op, secret); }

/* One for all servers. Released with the process. */
static struct acl_key *key_of_all(void) {
    static struct acl_key *key;
    if (!key) {
        CHECK(acl_key_take(SLICE_LITERAL("the key of all simulated servers"), &key, NULL) == CO_OK);
        acl_key_use(acl_key_keep(key));
    }
    return key;
}

static bool makes(const struct op *op) { return op->module == &sim_acl && op->way == OP_WRITE && op->kind == MAKE; }

/* -- clients ---------------------------------------------------------------------------------------------------------- */
struct plan {
    bool begun;
};
struct known {
    uint64_t op;    /* the token that was made last */
    uint64_t index; /* of it, as it was read last */
};

static bool generate(struct sim_turn *turn, struct op *op) {
    static const uint32_t ttls_ms[] = {300, 800, 2000};
    struct plan *plan = turn->plan;
    op->module = &sim_acl;
    if (!plan->begun) {
        plan->begun = true, op->kind = BEGIN;
    } else if (turn_chance(turn, 250)) {
        op->kind = MAKE, op->ttl_ms = ttls_ms[turn_random(turn, 0, ARRAY_COUNT(ttls_ms) - 1)];
    } else if (turn_chance(turn, 300)) {
        op->kind = CHANGE;
    } else if (turn_chance(turn, 100)) {
        op->kind = DELETE;
    } else {
        op->kind = turn_chance(turn, 500) ? READ : READ_SELF;
        op->way = OP_READ, op->stale = turn_chance(turn, 300);
        if (op->kind == READ && turn_chance(turn, 400)) op->wait_us = turn_random(turn, 50, 2000) * MS;
    }
    return true;
}

static bool complete(void *data, struct op *op) {
    struct known *known = data;
    if (op->kind == BEGIN) return true;
    if (op->kind == MAKE) {
        *known = (struct known){.op = op->id};
        return true;
    }
    op->owner = known->op, op->known_index = known->index;
    if (op->known_index == 0) op->wait_us = 0;
    return known->op != 0;
}

static void learn(void *data, const struct op *op) {
    struct known *known = data;
    if (op->way == OP_READ && op->state == OP_DONE && op->owner == known->op) known->index = op->seen_index;
}

/* -- bytes: each command is marked with its operation ---------------------------------------------------------------- */
static Pb__AclToken *token_of(uint64_t op, struct arena *arena) {
    Pb__AclToken *token = arena_alloc(arena, sizeof *token);
    pb__acl_token__init(token);
    accessor_name(op, token->accessor = arena_alloc(arena, 40));
    return token;
}

/* A real seal has a random nonce, and a seed would not replay. */
static void secret_set(Pb__AclToken *token, uint64_t op, struct arena *arena) {
    char secret[40];
    uint8_t *hash = arena_alloc(arena, ACL_HASH_SIZE);
    secret_name(op, secret);
    acl_key_hash(key_of_all(), slice_text(secret), hash);
    token->secret_hash = (ProtobufCBinaryData){ACL_HASH_SIZE, hash};
    token->secret_sealed = (ProtobufCBinaryData){ACL_SEALED_MORE, arena_zalloc(arena, ACL_SEALED_MORE)};
}

static const ProtobufCMessage *set_command(const struct op *op, struct arena *arena) {
    Pb__AclTokenSetCommand *command = arena_alloc(arena, sizeof *command);
    pb__acl_token_set_command__init(command);
    command->create = op->kind == MAKE, command->ttl_ms = (int64_t)op->ttl_ms;
    command->token = token_of(command->create ? op->id : op->owner, arena);
    command->token->description = arena_printf(arena, "by %" P, op->id);
    if (command->create) secret_set(command->token, op->id, arena);
    command->key_id = message_bytes(acl_key_id(key_of_all()));
    return &command->base;
}

static const ProtobufCMessage *delete_command(const struct op *op, struct arena *arena) {
    Pb__AclTokenDeleteCommand *command = arena_alloc(arena, sizeof *command);
    pb__acl_token_delete_command__init(command);
    command->accessor = token_of(op->owner, arena)->accessor;
    return &command->base;
}

static const ProtobufCMessage *key_command(struct arena *arena) {
    Pb__AclKeyCommand *command = arena_alloc(arena, sizeof *command);
    pb__acl_key_command__init(command);
    command->id = message_bytes(acl_key_id(key_of_all()));
    return &command->base;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    const ProtobufCMessage *message = op->kind == BEGIN    ? key_command(arena)
                                      : op->kind == DELETE ? delete_command(op, arena)
                                                           : set_command(op, arena);
    *number = op->kind == BEGIN ? ACL_KEY : op->kind == DELETE ? ACL_TOKEN_DELETE : ACL_TOKEN_SET;
    op_label((ProtobufCMessage *)(uintptr_t)message, op->id, arena);
    return message;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    if (op->kind == READ) {
        Pb__AclTokenRequest *request = arena_alloc(arena, sizeof *request);
        pb__acl_token_request__init(request);
        request->accessor = token_of(op->owner, arena)->accessor;
        *type = &query_acl_token;
        return &request->base;
    }
    Pb__AclTokenSelfRequest *request = arena_alloc(arena, sizeof *request);
    char *secret = arena_alloc(arena, 40);
    pb__acl_token_self_request__init(request);
    secret_name(op->owner, secret);
    request->secret = message_bytes(slice_text(secret));
    (void)key_of_all();
    *type = &query_acl_token_self;
    return &request->base;
}

static void seen(struct op *op, const struct query_result *result) {
    struct token_own *own = OP_AS(struct token_own, op);
    const Pb__AclTokenResult *read = (const Pb__AclTokenResult *)result->message;
    own->seen_made = result->found ? read->token->create_index : 0;
    own->seen_changed = result->found ? read->token->modify_index : 0;
}

/* -- the model -------------------------------------------------------------------------------------------------------- */
struct change {
    uint64_t op, index; /* the token; when it was made or changed */
};
struct model {
    bool begun;
    struct change *changes;
    size_t count, capacity;
};
static struct model *model_of(struct sim *sim) { return sim_model(sim, &sim_acl); }

static void end(struct sim *sim) { free(model_of(sim)->changes); }

static void note(struct sim *sim, uint64_t op, uint64_t index) {
    struct model *model = model_of(sim);
    if (model->count == model->capacity) {
        model->capacity = model->capacity ? 2 * model->capacity : 32;
        model->changes = mem_realloc(model->changes, model->capacity * sizeof *model->changes);
    }
    model->changes[model->count++] = (struct change){op, index};
}

/* Its last change up to this index. */
static uint64_t changed_at(const struct model *model, uint64_t op, uint64_t index) {
    for (size_t i = model->count; i-- > 0;)
        if (model->changes[i].op == op && model->changes[i].index <= index) return model->changes[i].index;
    return 0;
}

static struct sim_expected made(struct sim *sim, struct op *op, uint64_t index) {
    if (!model_of(sim)->begun) return expect_error();
    expiring_began(op, index);
    note(sim, op->id, index);
    return expect_yes();
}

static struct sim_expected changed(struct sim *sim, uint64_t token, uint64_t index) {
    if (!expiring_alive(sim, token)) return expect_error();
    note(sim, token, index);
    return expect_yes();
}

static struct sim_expected deleted(struct sim *sim, uint64_t token, uint64_t index) {
    if (expiring_alive(sim, token)) expiring_ended(sim, op_get(sim, token), index, true);
    return expect_yes();
}

/* The wall clocks of servers differ, and a leader counts by another clock, which may be fast. By one of them its time is up. */
static void check_over(struct sim *sim, const struct op *op, uint64_t index) {
    const struct truth *began = &sim->chronicle->committed[op->created_index - 1];
    uint64_t latest_ms = 0;
    for (uint32_t i = 0; i < sim->server_count; i++) {
        uint64_t wall_ms = server_wall_ms(sim->servers[i]);
        if (wall_ms > latest_ms) latest_ms = wall_ms;
    }
    uint64_t end_ms = began->unix_ms + period_us(sim, op->ttl_ms) / MS;
    if (latest_ms < end_ms)
        sim_violation(sim, RULE_LEASE, "token %" P " of %" P " ms ends at %" P ", %" P " ms too early", op->id,
                      op->ttl_ms, index, end_ms - latest_ms);
}

/* By the leader. */
static struct sim_expected expired(struct sim *sim, const struct sim_applied *applied) {
    const Pb__AclTokenEndCommand *command = (const Pb__AclTokenEndCommand *)applied->command;
    uint64_t token = expiring_maker(kind_name, command->accessor);
    if (applied->result->error == CO_CONFLICT) return expect_any(applied); /* of another term */
    if (!expiring_alive(sim, token) || op_get(sim, token)->created_index != command->index) return expect_error();
    check_over(sim, op_get(sim, token), applied->index);
    expiring_ended(sim, op_get(sim, token), applied->index, true); /* as the clocks differ, it is judged above */
    return expect_yes();
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    struct op *op = applied->op;
    if (!op) return applied->number == ACL_TOKEN_END ? expired(sim, applied) : expect_any(applied);
    switch (op->kind) {
        case BEGIN: model_of(sim)->begun = true; return expect_yes();
        case MAKE: return made(sim, op, applied->index);
        case CHANGE: return changed(sim, op->owner, applied->index);
        default: return deleted(sim, op->owner, applied->index);
    }
}

static void judge_read(struct sim *sim, const struct op *op) {
    const struct token_own *own = OP_AS(const struct token_own, op);
    const struct op *token = op_get(sim, op->owner);
    bool there = token->created_index && token->created_index <= op->index &&
                 (!token->ended_index || token->ended_index > op->index);
    uint64_t made_at = there ? token->created_index : 0;
    uint64_t changed = there ? changed_at(model_of(sim), token->id, op->index) : 0;
    if (own->seen_made != made_at || own->seen_changed != changed)
        sim_violation(sim, RULE_MODEL,
                      "read %" P " at s%u, applied %" P ": token %" P " made at %" P " and changed at %" P
                      ", expected %" P " and %" P,
                      op->id, op->server + 1, op->index, token->id, own->seen_made, own->seen_changed, made_at,
                      changed);
}

static void tokens_seen(void *data, const struct query_result *result) {
    struct sim *sim = data;
    const Pb__AclTokensResult *all = (const Pb__AclTokensResult *)result->message;
    bool known = true;
    size_t count = 0;
    for (size_t i = 0; i < all->n_tokens; i++) {
        if (strcmp(all->tokens[i]->accessor, ACL_ANONYMOUS_ID) == 0) continue;
        known = known && expiring_alive(sim, expiring_maker(kind_name, all->tokens[i]->accessor));
        count++;
    }
    expiring_judge(sim, &sim_acl, makes, count, known);
}

static void judge_end(struct sim *sim, struct server *server) {
    Pb__AclTokensRequest all = PB__ACL_TOKENS_REQUEST__INIT;
    sim_query(server, &query_acl_tokens, &all.base, tokens_seen, sim);
}

const struct sim_module sim_acl = {
    .name = "acl",
    .module = &acl_module,
    .pace = {.clients_least = 0, .clients_most = 2, .think_least_ms = 20, .think_most_ms = 150, .open_most = 2},
    .plan_size = sizeof(struct plan),
    .known_size = sizeof(struct known),
    .model_size = sizeof(struct model),
    .end = end,
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .command = command,
    .made_by = op_labelled,
    .request = request,
    .seen = seen,
    .check_read = judge_read,
    .apply = apply,
    .over_ms = 5000, /* so far the wall clocks of servers are apart */
    .check_end = judge_end,
};
