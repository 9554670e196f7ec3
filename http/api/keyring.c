/* /v1/operator/keyring: the keys of `encrypt`, of all living agents of this region (rpc/keyring/keyring.h). Bodies and
 * answers are Consul's; there is one ring, that of the region, so one row. */
#include "rpc/keyring/keyring.h"

#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "http/api/topics.h"
#include "http/http.h"

struct asking {
    struct http_call call;
    struct rpc_keyring keyring;
    /* what became of it, copied */
    struct rpc_keyring_key keys[64];
    size_t key_count, node_count, failed;
    struct buffer refusals; /* a line for each node that refused */
    bool more_keys;
};

static void forget(struct asking *asking) {
    explicit_bzero(asking->keys, sizeof asking->keys);
    explicit_bzero(&asking->keyring.key, sizeof asking->keyring.key);
    buffer_free(&asking->refusals);
}

/* Another thread. */
static void done(struct rpc_keyring *keyring, int error, const struct rpc_keyring_result *result) {
    struct asking *asking = CONTAINER_OF(keyring, struct asking, keyring);
    if (error == CO_OK) {
        asking->more_keys = result->key_count > ARRAY_COUNT(asking->keys);
        asking->key_count = asking->more_keys ? ARRAY_COUNT(asking->keys) : result->key_count;
        if (asking->key_count) memcpy(asking->keys, result->keys, asking->key_count * sizeof *asking->keys);
        asking->node_count = result->node_count, asking->failed = result->failed;
        if (result->why) buffer_append_text(&asking->refusals, result->why);
        for (size_t i = 0; i < result->node_count; i++)
            if (result->nodes[i].refusal)
                buffer_printf(&asking->refusals, "%s%s: %s", asking->refusals.size ? "; " : "", result->nodes[i].name,
                              result->nodes[i].refusal);
    }
    http_called(&asking->call, error);
}

static void counts(struct json_out *json, const struct asking *asking, bool primary) {
    json_object(json);
    for (size_t i = 0; i < asking->key_count; i++) {
        const struct rpc_keyring_key *key = &asking->keys[i];
        unsigned nodes = primary ? key->primary_nodes : key->nodes;
        struct buffer text = {0};
        if (!nodes) continue;
        base64_encode(&text, key->bytes, key->size);
        json_key_raw(json, text.data, text.size);
        json_u64(json, nodes);
        explicit_bzero(text.data, text.size);
        buffer_free(&text);
    }
    json_object_end(json);
}

static void write_list(struct http_request *request, const struct asking *asking) {
    struct json_out *json = http_out(request);
    json_array(json);
    json_object(json);
    json_key(json, "WAN"), json_bool(json, false);
    json_key(json, "Datacenter"), json_string(json, http_env(request)->datacenter);
    json_key(json, "Segment"), json_string(json, "");
    json_key(json, "Keys"), counts(json, asking, false);
    json_key(json, "PrimaryKeys"), counts(json, asking, true);
    json_key(json, "NumNodes"), json_u64(json, asking->node_count);
    json_object_end(json);
    json_array_end(json);
    http_reply_json(request, 200);
}

static void view(struct http_request *request, struct http_call *call, int error) {
    struct asking *asking = CONTAINER_OF(call, struct asking, call);
    if (error) {
        http_reply_error(request, error);
    } else if (asking->failed) {
        http_reply_text(request, 500, "%s (LAN) error: %zu/%zu nodes reported failure; %.*s",
                        http_env(request)->datacenter, asking->failed, asking->node_count, (int)asking->refusals.size,
                        asking->refusals.data);
    } else if (asking->more_keys) {
        http_reply_text(request, 500, "the nodes have more than %zu keys", ARRAY_COUNT(asking->keys));
    } else if (asking->keyring.verb == RPC_KEYRING_LIST) {
        write_list(request, asking);
    } else {
        http_reply_text(request, 200, "%s", "");
    }
    forget(asking);
}

static void drop(struct http_call *call, int error) {
    (void)error;
    forget(CONTAINER_OF(call, struct asking, call));
}

/* Parameters of Consul's: nothing is relayed, and nothing is local only. */
static bool take_parameters(struct http_request *request, bool list) {
    uint64_t relays = 0;
    if (!http_parameter_u64(request, "relay-factor", &relays)) return false;
    if (relays <= 5 && (list || !http_has(request, "local-only"))) return true;
    http_reply_text(request, 400, "%s",
                    relays > 5 ? "relay-factor: must be in range 0 to 5" : "local-only: only a list takes it");
    return false;
}

/* False: it has replied. */
static bool take_key(struct http_request *request, struct rpc_keyring *keyring) {
    struct json_object *body = http_json(request);
    struct fault fault = {0};
    const char *text = NULL;
    struct buffer bytes = {0};
    if (!body) return false;
    json_get_string(body, "Key", &text, &fault);
    bool base64 = text && base64_decode(&bytes, slice_text(text)) == CO_OK;
    bool fits = base64 && (bytes.size == 16 || bytes.size == 24 || bytes.size == 32);
    if (fault.code) http_reply_fault(request, &fault);
    else if (!fits) http_reply_text(request, 400, "Key: a key of 16, 24 or 32 bytes in base64 is wanted");
    else memcpy(keyring->key, bytes.data, keyring->key_size = bytes.size);
    if (bytes.data) explicit_bzero(bytes.data, bytes.capacity);
    buffer_free(&bytes);
    return fits && !fault.code;
}

static void ask(struct http_request *request, enum rpc_keyring_verb verb) {
    struct asking *asking = arena_zalloc(http_arena(request), sizeof *asking);
    asking->keyring.verb = verb, asking->keyring.done = done;
    asking->call.view = view, asking->call.drop = drop;
    if (!take_parameters(request, verb == RPC_KEYRING_LIST)) return;
    if (verb != RPC_KEYRING_LIST && !take_key(request, &asking->keyring)) return;
    http_call(request, &asking->call);
    rpc_keyring(http_env(request)->rpc, &asking->keyring);
}

static void keyring(struct http_request *request) {
    switch (http_method(request)) {
        case HTTP_POST: ask(request, RPC_KEYRING_INSTALL); return;
        case HTTP_PUT: ask(request, RPC_KEYRING_USE); return;
        case HTTP_DELETE: ask(request, RPC_KEYRING_REMOVE); return;
        default: ask(request, RPC_KEYRING_LIST); return;
    }
}

#define PARAMS                                                                               \
    HTTP_PARAMS({"relay-factor", HTTP_U64, .help = "0 to 5; nothing is relayed", .most = 5}, \
                {"local-only", HTTP_FLAG, .help = "of a list; it always is of this region alone"})
#define NEEDS_KEY "it needs a cluster with a key"

const struct http_route http_routes_keyring[] = {
    {HTTP_GET, "/v1/operator/keyring", keyring, "keyring:read", PARAMS,
     "The keys of `encrypt`: how many of the living agents have each, and which one they use", HTTP_LOCAL,
     .no_example = NEEDS_KEY},
    {HTTP_POST, "/v1/operator/keyring", keyring, "keyring:write", PARAMS,
     "Installs the Key of the body on all agents, which accept it from then on", HTTP_LOCAL, .no_example = NEEDS_KEY},
    {HTTP_PUT, "/v1/operator/keyring", keyring, "keyring:write", PARAMS,
     "Has all agents use the Key of the body for new connections; it must be installed", HTTP_LOCAL,
     .no_example = NEEDS_KEY},
    {HTTP_DELETE, "/v1/operator/keyring", keyring, "keyring:write", PARAMS,
     "Removes the Key of the body from all agents; the one in use is not removed", HTTP_LOCAL, .no_example = NEEDS_KEY},
    {0},
};
