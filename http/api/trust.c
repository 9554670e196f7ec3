/* /v1/join-token, /v1/certificates: join tokens, and the certificates of the cluster's nodes. For the CAs and for closing
 * an open cluster see http/api/trust_ca.c. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/message.h"
#include "base/text.h"
#include "http/api/topics.h"
#include "http/api/trust_views.h"
#include "http/declared.h"
#include "registry/trust.h"
#include "tls/join_token.h"

/* -- a token is made ------------------------------------------------------------------------------------------------ */
static void write_id(struct json_out *json, const uint8_t id[JOIN_TOKEN_ID_SIZE]) {
    char text[JOIN_TOKEN_ID_TEXT + 1];
    join_token_id_write(id, text);
    json_key(json, "ID"), json_string(json, text);
}

/* null: it lives for ever */
static void write_end(struct json_out *json, struct arena *arena, int64_t began_ms, int64_t ttl_ns) {
    json_key(json, "ExpiresAt");
    if (ttl_ns) json_string(json, trust_time_text(arena, (began_ms + ttl_ns / 1000000) / 1000));
    else json_null(json);
}

static void view_made(struct http_request *request, int error, const struct rpc_trust *trust, const void *context) {
    const Pb__JoinTokenAsk *ask = context;
    struct join_token token;
    struct fault fault = {0};
    if (!error) error = join_token_read(slice_text(trust->text), &token, &fault);
    if (error) {
        http_refuse_trust(request, error, trust);
        return;
    }
    struct json_out *json = http_out(request);
    struct buffer ttl = {0};
    duration_format(&ttl, ask->ttl_ns);
    json_object(json);
    write_id(json, token.id);
    json_key(json, "Token"), json_string(json, trust->text);
    json_key(json, "Role"), json_string(json, ask->role);
    json_key(json, "Node"), json_string(json, ask->node);
    json_key(json, "Uses"), json_u64(json, ask->uses);
    json_key(json, "TTL"), json_slice(json, buffer_slice(&ttl));
    write_end(json, http_arena(request), (int64_t)time(NULL) * 1000, ask->ttl_ns);
    json_object_end(json);
    buffer_free(&ttl);
    explicit_bzero(&token, sizeof token);
    http_reply_json(request, 200);
}

static void put_token(struct http_request *request) {
    Pb__JoinTokenAsk *ask = (Pb__JoinTokenAsk *)(void *)declared_message(request, &pb__join_token_ask__descriptor);
    if (!ask) return;
    struct rpc_trust trust = {.verb = RPC_JOIN_TOKEN,
                              .server = strcmp(ask->role, "server") == 0,
                              .node = ask->node,
                              .uses = ask->uses,
                              .ttl_ns = ask->ttl_ns};
    http_ask_trust(request, &trust, view_made, ask);
}

/* -- tokens are listed, and one is revoked ---------------------------------------------------------------------------- */
static void token_id(struct json_out *json, const ProtobufCMessage *message, void *request) {
    const Pb__JoinToken *token = (const Pb__JoinToken *)message;
    (void)request;
    if (token->id.len == JOIN_TOKEN_ID_SIZE) write_id(json, token->id.data);
}

static void token_role(struct json_out *json, const ProtobufCMessage *message, void *request) {
    (void)request;
    json_key(json, "Role"), json_string(json, ((const Pb__JoinToken *)message)->server ? "server" : "agent");
}

static void token_times(struct json_out *json, const ProtobufCMessage *message, void *request) {
    const Pb__JoinToken *token = (const Pb__JoinToken *)message;
    json_key(json, "CreatedAt");
    json_string(json, trust_time_text(http_arena(request), (int64_t)(token->created_ms / 1000)));
    write_end(json, http_arena(request), (int64_t)token->created_ms, token->ttl_ns);
}

/* Names each member, so that what is added to the record is not shown by itself. */
static const struct message_member token_members[] = {
    {.write = token_id},       {.write = token_role},
    {.field = "node"},         {.field = "uses"},
    {.field = "used"},         {.field = "ttl_ns"},
    {.write = token_times},    {.field = "create_index"},
    {.field = "modify_index"}, {0},
};

static bool token_end_prepare(struct http_request *request, ProtobufCMessage *message) {
    Pb__JoinTokenEndCommand *command = (Pb__JoinTokenEndCommand *)(void *)message;
    uint8_t *id = arena_alloc(http_arena(request), JOIN_TOKEN_ID_SIZE);
    if (!join_token_id_read(http_path_value(request, "id"), id)) {
        http_reply_text(request, 400, "id: not the id of a join token: GET /v1/join-tokens lists them");
        return false;
    }
    command->id = (ProtobufCBinaryData){JOIN_TOKEN_ID_SIZE, id};
    return true;
}

/* -- certificates ----------------------------------------------------------------------------------------------------- */
static void write_time(struct json_out *json, struct arena *arena, bool known, int64_t unix_s) {
    if (known) json_string(json, trust_time_text(arena, unix_s));
    else json_null(json);
}

static void certificate_write(struct json_out *json, const ProtobufCMessage *message, void *request) {
    const Pb__NodeCertificate *record = (const Pb__NodeCertificate *)message;
    const Pb__CertificateInfo *info = record->now;
    struct arena *arena = http_arena(request);
    bool known = info->serial[0]; /* a node may be removed that never had one of the cluster */
    json_key(json, "Node"), json_string(json, info->node);
    json_key(json, "Role"), json_string(json, info->server ? "server" : "agent");
    json_key(json, "Serial"), json_string(json, info->serial);
    json_key(json, "NotBefore"), write_time(json, arena, known, info->from_s);
    json_key(json, "NotAfter"), write_time(json, arena, known, info->to_s);
    json_key(json, "RenewAt"), write_time(json, arena, known && !record->removed, trust_renews_s(info));
    json_key(json, "State"), json_string(json, trust_state(record, (int64_t)time(NULL)));
    json_key(json, "CA"), json_string(json, trust_pin_text(arena, message_slice(info->ca_pin)));
}

static const struct message_member certificate_members[] = {
    {.write = certificate_write}, {.field = "create_index"}, {.field = "modify_index"}, {0}};

/* -- rows --------------------------------------------------------------------------------------------------------------- */
static const struct http_param token_body[] = {
    {"Role", HTTP_CHOICE, .choices = "server|agent", .help = "what the token makes of a host", .otherwise = "agent",
     .field = "role"},
    {"TTL", HTTP_DURATION, .help = "how long it counts", .least = 1000000000, .most = JOIN_TOKEN_TTL_MOST_NS,
     .otherwise = "1h", .field = "ttl_ns"},
    {"Uses", HTTP_U64, .help = "how many nodes it takes; 0: any number", .most = 1000000, .otherwise = "1",
     .field = "uses"},
    {"Node", HTTP_TEXT, .help = "only nodes of such names: a pattern with * and ?; empty: any", .most = TRUST_GLOB_MAX,
     .field = "node"},
    {0},
};

const struct http_route http_routes_trust[] = {
    {HTTP_PUT, "/v1/join-token", put_token, "operator:write", NULL,
     "Makes a join token, which brings a host into a closed cluster; nothing shows its secret again",
     HTTP_OWN | HTTP_LOCAL, .no_example = "it needs a closed cluster",
     .endpoint = {.message = &pb__join_token_ask__descriptor, .body = token_body}},
    {HTTP_GET, "/v1/join-tokens", http_declared, "operator:read", HTTP_PARAMS(HTTP_READS),
     "The join tokens that still count, without their secrets", HTTP_OWN, .example = {.status = 200},
     .endpoint = {.query = &query_join_tokens, .list = "tokens", .answer = token_members}},
    {HTTP_DELETE, "/v1/join-token/:id", http_declared, "operator:write",
     HTTP_PARAMS({":id", HTTP_TEXT, .help = "the token's ID, which is its third part"}, HTTP_DC),
     "Revokes a join token; nodes that came by it stay", HTTP_OWN, .no_example = "it needs a join token",
     .endpoint = {.command = JOIN_TOKEN_END, .prepare = token_end_prepare}},
    {HTTP_GET, "/v1/certificates", http_declared, "operator:read", HTTP_PARAMS(HTTP_READS),
     "The certificates that the cluster gave its nodes: until when, renewed when, by which CA", HTTP_OWN,
     .example = {.status = 200},
     .endpoint = {.query = &query_certificates, .list = "certificates", .answer = certificate_members, .fresh = true}},
    {0},
};
