/* The beginning of access control, and commands on tokens. */
#include <string.h>

#include "acl/acl_internal.h"
#include "base/check.h"
#include "base/text.h"

/* -- records ------------------------------------------------------------------------------------------------------ */
static void links_set(struct machine_tx *tx, const Pb__AclToken *token, bool there) {
    for (size_t i = 0; i < token->n_policies; i++)
        acl_link_set(tx, ACL_LINK_TOKEN_POLICY, token->policies[i]->id, token->accessor, there);
    for (size_t i = 0; i < token->n_roles; i++)
        acl_link_set(tx, ACL_LINK_TOKEN_ROLE, token->roles[i]->id, token->accessor, there);
    if (token->auth_method[0]) acl_link_set(tx, ACL_LINK_TOKEN_METHOD, token->auth_method, token->accessor, there);
}

/* Of what a client may change. */
static ProtobufCBinaryData digest(struct machine_tx *tx, const Pb__AclToken *token) {
    Pb__AclToken content = *token;
    content.secret_hash.len = content.secret_sealed.len = content.hash.len = 0;
    content.create_index = content.modify_index = content.created_ms = content.expiration_ms = 0;
    return acl_digest(tx->arena, &content.base);
}

static void token_changed(struct machine_tx *tx, const char *accessor, bool removed) {
    machine_changed(tx, SPACE_ACL_TOKEN, slice_text(accessor), removed);
    acl_changed(tx, SPACE_ACL_TOKENS);
}

void acl_token_put(struct machine_tx *tx, Pb__AclToken *token, const Pb__AclToken *old) {
    if (old) links_set(tx, old, false);
    links_set(tx, token, true);
    token->hash = digest(tx, token);
    token->create_index = old ? old->create_index : tx->index, token->modify_index = tx->index;
    store_put(tx->store, ACL_TOKEN_TABLE, slice_text(token->accessor), message_pack(tx->arena, &token->base));
    if (!old && token->secret_hash.len)
        store_put(tx->store, ACL_SECRET_TABLE, message_slice(token->secret_hash), slice_text(token->accessor));
    token_changed(tx, token->accessor, false);
}

void acl_token_remove(struct machine_tx *tx, const Pb__AclToken *token) {
    links_set(tx, token, false);
    if (token->secret_hash.len) (void)store_del(tx->store, ACL_SECRET_TABLE, message_slice(token->secret_hash));
    (void)store_del(tx->store, ACL_TOKEN_TABLE, slice_text(token->accessor));
    if (token->expiration_ms) expiry_ended_in(tx, &acl_token_expiry, slice_text(token->accessor), token->create_index);
    token_changed(tx, token->accessor, true);
}

/* -- the state's own record --------------------------------------------------------------------------------------- */
static void state_put(struct machine_tx *tx, Pb__AclState *state) {
    state->modify_index = tx->index;
    acl_put(tx, ACL_ROW_STATE, acl_everything, &state->base);
    machine_changed(tx, SPACE_ACL_ALL, acl_everything, false);
}

int acl_begun(struct machine_tx *tx, Pb__AclState **state, struct machine_result *result) {
    int rv = acl_state_read(tx->store, tx->arena, state);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_AGAIN, "access control has not begun in this cluster");
    return rv;
}

/* Secrets that were hashed and sealed with a key that is lost are worth nothing. */
static void tokens_drop(struct machine_tx *tx) {
    struct store_cursor cursor;
    struct acl_ids all = {0};
    store_cursor_open(&cursor, tx->store, ACL_TOKEN_TABLE, acl_everything);
    for (; cursor.valid; store_cursor_next(&cursor))
        ACL_APPEND(tx->arena, all.items, all.count, slice_copy(tx->arena, cursor.key));
    store_cursor_close(&cursor);
    for (size_t i = 0; i < all.count; i++) {
        Pb__AclToken *token;
        int rv = acl_token_read(tx->store, all.items[i], tx->arena, &token);
        if (rv != CO_OK) store_fail(tx->store, CO_CORRUPT);
        else if (token->secret_hash.len) acl_token_remove(tx, token);
    }
}

static void anonymous_put(struct machine_tx *tx) {
    Pb__AclToken token = PB__ACL_TOKEN__INIT;
    token.accessor = ACL_ANONYMOUS_ID, token.description = "Anonymous Token", token.created_ms = tx->unix_ms;
    acl_token_put(tx, &token, NULL);
}

int acl_key_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclKeyCommand *command = request;
    Pb__AclState *state, first = PB__ACL_STATE__INIT;
    if (command->id.len != ACL_KEY_ID_SIZE) return machine_refuse(result, CO_INVALID, "no id of a key");
    int rv = acl_state_read(tx->store, tx->arena, &state);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (state) first = *state;
    result->yes = true;
    if (slice_equal(message_slice(command->id), message_slice(first.key_id))) return CO_OK;
    if (first.key_id.len) return machine_refuse(result, CO_CONFLICT, "the servers use another key");
    if (!state) {
        first.create_index = tx->index;
        acl_policy_builtin(tx);
        anonymous_put(tx);
    }
    first.key_id = command->id;
    state_put(tx, &first);
    return CO_OK;
}

/* -- setting a token ---------------------------------------------------------------------------------------------- */
static bool id_fits(const char *id) { return uuid_valid(slice_text(id)) && !slice_has_upper(slice_text(id)); }

static const char *token_fault(const Pb__AclToken *token) {
    if (!token || !id_fits(token->accessor)) return "Invalid Token: the AccessorID is no UUID in lower case";
    if (strlen(token->description) > ACL_TEXT_MAX) return "Invalid Token: the Description is too long";
    bool secret = token->secret_hash.len || token->secret_sealed.len;
    bool fits = token->secret_hash.len == ACL_HASH_SIZE && token->secret_sealed.len >= ACL_SEALED_MORE &&
                token->secret_sealed.len <= ACL_SEALED_MORE + ACL_SECRET_MAX;
    if (secret && !fits) return "Invalid Token: its secret is not hashed and sealed";
    return NULL;
}

/* Refuses here, before the first write, what a token that is to be made cannot be. */
static int create_refused(struct machine_tx *tx, const Pb__AclToken *token, const Pb__AclToken *there,
                          struct machine_result *result) {
    struct slice ignored;
    if (acl_reserved(slice_text(token->accessor)))
        return machine_refuse(result, CO_INVALID, "Invalid Token: UUIDs with the prefix of zeroes are reserved");
    if (there) return machine_refuse(result, CO_EXISTS, "Invalid Token: AccessorID is already in use");
    if (!token->secret_hash.len) return machine_refuse(result, CO_INVALID, "Invalid Token: it has no secret");
    if (store_get(tx->store, ACL_SECRET_TABLE, message_slice(token->secret_hash), &ignored) == CO_OK)
        return machine_refuse(result, CO_EXISTS, "Invalid Token: SecretID is already in use");
    if (store_count(tx->store, ACL_TOKEN_TABLE) >= ACL_TOKENS_MAX)
        return machine_refuse(result, CO_TOOLARGE, "there are too many tokens; delete some");
    return store_txn_error(tx->store);
}

/* When a new token ends. The method of a login bounds its life. */
static int set_end(struct machine_tx *tx, Pb__AclToken *token, int64_t ttl_ms, const Pb__AclAuthMethod *method,
                   struct machine_result *result) {
    if (ttl_ms < 0 || (ttl_ms && token->expiration_ms))
        return machine_refuse(result, CO_INVALID, "Token Expiration TTL and Expiration Time cannot both be set");
    if ((uint64_t)ttl_ms > ACL_TIME_MOST_MS || token->expiration_ms > ACL_TIME_MOST_MS)
        return machine_refuse(result, CO_INVALID, "ExpirationTime is too far away");
    if (ttl_ms) token->expiration_ms = tx->unix_ms + (uint64_t)ttl_ms;
    uint64_t most = method && method->max_token_ttl_ms ? tx->unix_ms + (uint64_t)method->max_token_ttl_ms : 0;
    if (most && (!token->expiration_ms || token->expiration_ms > most)) token->expiration_ms = most;
    if (token->expiration_ms && token->expiration_ms <= tx->unix_ms)
        return machine_refuse(result, CO_INVALID, "ExpirationTime cannot be in the past");
    return CO_OK;
}

static void begin(struct machine_tx *tx, const Pb__AclToken *token) {
    if (!token->expiration_ms) return;
    uint64_t left_ms = token->expiration_ms - tx->unix_ms;
    expiry_began_in(tx, &acl_token_expiry, slice_text(token->accessor), tx->index, acl_period_ns((int64_t)left_ms));
}

static int create(struct machine_tx *tx, const Pb__AclTokenSetCommand *command, const Pb__AclToken *there,
                  const Pb__AclAuthMethod *method, struct machine_result *result) {
    Pb__AclToken *token = command->token;
    const char *fault = NULL;
    int rv = create_refused(tx, token, there, result);
    if (rv == CO_OK && !result->error) rv = set_end(tx, token, command->ttl_ms, method, result);
    if (rv != CO_OK || result->error) return rv;
    const struct acl_grants grants = acl_token_grants(token);
    rv = acl_grants_settle(tx, &grants, "token", &fault);
    if (rv != CO_OK) return rv;
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    token->created_ms = tx->unix_ms;
    acl_token_put(tx, token, NULL);
    begin(tx, token);
    result->yes = true, result->message = &token->base;
    return CO_OK;
}

/* Rule (3). */
static const char *change_fault(struct arena *arena, const Pb__AclToken *token, const Pb__AclToken *old,
                                int64_t ttl_ms) {
    if (token->secret_hash.len && !slice_equal(message_slice(token->secret_hash), message_slice(old->secret_hash)))
        return arena_printf(arena, "Changing a token's SecretID is not permitted");
    if (token->local != old->local) return arena_printf(arena, "cannot toggle local mode of %s", old->accessor);
    if (token->auth_method[0] && strcmp(token->auth_method, old->auth_method) != 0)
        return arena_printf(arena, "Cannot change AuthMethod of %s", old->accessor);
    if (ttl_ms || (token->expiration_ms && token->expiration_ms != old->expiration_ms))
        return arena_printf(arena, "Cannot change expiration time of %s", old->accessor);
    return NULL;
}

static int change(struct machine_tx *tx, const Pb__AclTokenSetCommand *command, const Pb__AclToken *old,
                  struct machine_result *result) {
    Pb__AclToken *token = command->token;
    if (!old)
        return machine_refuse(result, CO_NOTFOUND,
                              arena_printf(tx->arena, "Cannot find token \"%s\"", token->accessor));
    const char *fault = change_fault(tx->arena, token, old, command->ttl_ms);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    const struct acl_grants grants = acl_token_grants(token);
    int rv = acl_grants_settle(tx, &grants, "token", &fault);
    if (rv != CO_OK) return rv;
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    token->secret_hash = old->secret_hash, token->secret_sealed = old->secret_sealed;
    token->auth_method = old->auth_method;
    token->created_ms = old->created_ms, token->expiration_ms = old->expiration_ms;
    acl_token_put(tx, token, old);
    result->yes = true, result->message = &token->base;
    return CO_OK;
}

static int key_refused(struct machine_tx *tx, ProtobufCBinaryData key_id, struct machine_result *result,
                       Pb__AclState **state) {
    int rv = acl_begun(tx, state, result);
    if (rv != CO_OK || result->error) return rv;
    if (!slice_equal(message_slice((*state)->key_id), message_slice(key_id)))
        return machine_refuse(result, CO_CONFLICT, "the token's secret was hashed with another key");
    return CO_OK;
}

static int set(struct machine_tx *tx, const Pb__AclTokenSetCommand *command, const Pb__AclAuthMethod *method,
               struct machine_result *result) {
    Pb__AclState *state;
    Pb__AclToken *there;
    const char *fault = token_fault(command->token);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    int rv;
    if (command->token->secret_hash.len) rv = key_refused(tx, command->key_id, result, &state);
    else rv = acl_begun(tx, &state, result);
    if (rv != CO_OK || result->error) return rv;
    rv = acl_token_read(tx->store, slice_text(command->token->accessor), tx->arena, &there);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    return command->create ? create(tx, command, there, method, result) : change(tx, command, there, result);
}

int acl_token_set_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclTokenSetCommand *command = request;
    if (command->token && command->create && command->token->auth_method[0])
        return machine_refuse(result, CO_INVALID, "AuthMethod field is disallowed outside of Login");
    return set(tx, command, NULL, result);
}

int acl_login_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclTokenSetCommand *command = request;
    Pb__AclAuthMethod *method;
    if (!command->token || !command->create) return machine_refuse(result, CO_INVALID, "a login makes a token");
    int rv = acl_method_read(tx->store, slice_text(command->token->auth_method), tx->arena, &method);
    if (rv == CO_NOTFOUND)
        return machine_refuse(result, CO_NOTFOUND,
                              arena_printf(tx->arena, "auth method \"%.128s\" not found", command->token->auth_method));
    if (rv != CO_OK) return rv;
    command->token->auth_method = method->name;
    return set(tx, command, method, result);
}

/* -- bootstrap ---------------------------------------------------------------------------------------------------- */
int acl_bootstrap_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclBootstrapCommand *command = request;
    Pb__AclLink management = PB__ACL_LINK__INIT, *links[] = {&management};
    Pb__AclTokenSetCommand first = PB__ACL_TOKEN_SET_COMMAND__INIT;
    Pb__AclState *state;
    if (!command->token) return machine_refuse(result, CO_INVALID, "a bootstrap makes a token");
    int rv = key_refused(tx, command->key_id, result, &state);
    if (rv != CO_OK || result->error) return rv;
    if (state->bootstrap_index && !state->open)
        return machine_refuse(result, CO_DENIED,
                              arena_printf(tx->arena, "ACL bootstrap no longer allowed (reset index: %llu)",
                                           (unsigned long long)state->bootstrap_index));
    management.id = ACL_MANAGEMENT_ID;
    Pb__AclToken token = PB__ACL_TOKEN__INIT;
    token.accessor = command->token->accessor, token.description = command->token->description;
    token.secret_hash = command->token->secret_hash, token.secret_sealed = command->token->secret_sealed;
    token.policies = links, token.n_policies = 1;
    first.token = (Pb__AclToken *)message_copy(tx->arena, &token.base), first.key_id = command->key_id;
    first.create = true;
    rv = set(tx, &first, NULL, result);
    if (rv != CO_OK || result->error) return rv;
    state->bootstrap_index = tx->index, state->open = false;
    state_put(tx, state);
    return CO_OK;
}

int acl_reset_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclResetCommand *command = request;
    Pb__AclState *state;
    int rv = acl_begun(tx, &state, result);
    if (rv != CO_OK || result->error) return rv;
    if (command->index != state->bootstrap_index)
        return machine_refuse(
            result, CO_CONFLICT,
            arena_printf(tx->arena, "the last bootstrap was at %llu", (unsigned long long)state->bootstrap_index));
    state->open = true;
    if (command->new_key) {
        tokens_drop(tx);
        state->key_id.len = 0;
    }
    state_put(tx, state);
    result->yes = true;
    return CO_OK;
}

/* -- the end of tokens -------------------------------------------------------------------------------------------- */
/* Consul answers yes also when there is none. */
static int remove_one(struct machine_tx *tx, const char *accessor, bool logout, struct machine_result *result) {
    Pb__AclToken *token;
    if (strcmp(accessor, ACL_ANONYMOUS_ID) == 0)
        return machine_refuse(result, CO_INVALID, "Delete operation not permitted on the anonymous token");
    int rv = acl_token_read(tx->store, slice_text(accessor), tx->arena, &token);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (logout && !token) return machine_refuse(result, CO_NOTFOUND, "ACL not found");
    if (logout && !token->auth_method[0])
        return machine_refuse(result, CO_DENIED, "Permission denied: the token was not made by a login");
    if (token) acl_token_remove(tx, token);
    result->yes = true;
    return CO_OK;
}

int acl_token_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    return remove_one(tx, ((const Pb__AclTokenDeleteCommand *)request)->accessor, false, result);
}

int acl_logout_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    return remove_one(tx, ((const Pb__AclTokenDeleteCommand *)request)->accessor, true, result);
}

int acl_token_end_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclTokenEndCommand *command = request;
    Pb__AclToken *token;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    int rv = acl_token_read(tx->store, slice_text(command->accessor), tx->arena, &token);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_NOTFOUND, "no such token");
    if (rv != CO_OK) return rv;
    uint64_t made = tx->mutations & MUTATE_TOKEN_OUTLIVES ? token->modify_index : token->create_index;
    if (made != command->index || !token->expiration_ms)
        return machine_refuse(result, CO_NOTFOUND, "another token has this accessor by now");
    acl_token_remove(tx, token);
    result->yes = true;
    return CO_OK;
}
