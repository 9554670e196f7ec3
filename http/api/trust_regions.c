/* /v1/region/trust: other regions whose CAs are trusted between servers. Each side trusts the other by an operator's word. */
#include <string.h>

#include "base/message.h"
#include "http/api/topics.h"
#include "http/api/trust_views.h"
#include "http/declared.h"
#include "registry/operator_queries.h"
#include "registry/trust.h"

static void view_trusted(struct http_request *request, int error, const struct rpc_trust *trust, const void *context) {
    const Pb__RegionTrustAsk *ask = context;
    if (error) {
        http_refuse_trust(request, error, trust);
        return;
    }
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Region"), json_string(json, ask->region);
    json_key(json, "Fingerprint"), json_string(json, trust->text);
    json_key(json, "Trusted"), json_bool(json, trust->verb == RPC_REGION_TRUST);
    json_object_end(json);
    http_reply_json(request, 200);
}

static void put_region(struct http_request *request) {
    Pb__RegionTrustAsk *ask =
        (Pb__RegionTrustAsk *)(void *)declared_message(request, &pb__region_trust_ask__descriptor);
    if (!ask) return;
    struct slice name = http_path_value(request, "name");
    ask->region = arena_strndup(http_arena(request), name.data, name.size);
    struct rpc_trust trust = {.verb = ask->fingerprint[0] ? RPC_REGION_TRUST : RPC_REGION_LOOK,
                              .node = ask->region,
                              .address = ask->address,
                              .fingerprint = ask->fingerprint};
    http_ask_trust(request, &trust, view_trusted, ask);
}

static void view_forgotten(struct http_request *request, int error, const struct rpc_trust *trust,
                           const void *context) {
    (void)context;
    if (error) http_refuse_trust(request, error, trust);
    else http_reply_text(request, 200, "true");
}

static void delete_region(struct http_request *request) {
    struct slice name = http_path_value(request, "name");
    struct rpc_trust trust = {.verb = RPC_REGION_FORGET,
                              .node = arena_strndup(http_arena(request), name.data, name.size)};
    http_ask_trust(request, &trust, view_forgotten, NULL);
}

static void view_regions(struct http_request *request, int error, const struct query_result *result) {
    if (error) {
        http_reply_error(request, error);
        return;
    }
    const Pb__Trust *trust = result->found ? (const Pb__Trust *)result->message : NULL;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; trust && i < trust->n_regions; i++) {
        json_object(json);
        json_key(json, "Region"), json_string(json, trust->regions[i]->name);
        json_key(json, "Fingerprint");
        json_string(json, trust_pin_text(http_arena(request), message_slice(trust->regions[i]->pin)));
        json_object_end(json);
    }
    json_array_end(json);
    http_reply_json(request, 200);
}

static void get_regions(struct http_request *request) {
    Pb__TrustRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__trust_request__init(message);
    http_read_once(request, &query_trusted_regions, &message->base, RPC_DEFAULT, view_regions);
}

#define NAME \
    { ":name", HTTP_TEXT, .help = "the region's name", .least = 1, .most = TRUST_REGION_NAME_MAX }

static const struct http_param region_body[] = {
    {"Address", HTTP_TEXT, .help = "a server there: HOST or HOST:PORT", .least = 1, .most = 127, .required = true,
     .field = "address"},
    {"Fingerprint", HTTP_TEXT,
     .help = "of the CA there (`coord ca status`), 64 hexadecimal digits; without it the fingerprint is only shown",
     .most = 64, .field = "fingerprint"},
    {0},
};

const struct http_route http_routes_trust_regions[] = {
    {HTTP_PUT, "/v1/region/trust/:name", put_region, "operator:write", HTTP_PARAMS(NAME),
     "Trusts the CA of another region between servers; both regions have to trust each other", HTTP_OWN | HTTP_LOCAL,
     .no_example = "it needs another closed region",
     .endpoint = {.message = &pb__region_trust_ask__descriptor, .body = region_body}, .cli = {"region trust"}},
    {HTTP_DELETE, "/v1/region/trust/:name", delete_region, "operator:write", HTTP_PARAMS(NAME),
     "Trusts the CA of another region no longer; its connections end", HTTP_OWN | HTTP_LOCAL,
     .no_example = "it needs another closed region", .cli = {"region distrust"}},
    {HTTP_GET, "/v1/region/trust", get_regions, "operator:read", HTTP_PARAMS(HTTP_DC),
     "The other regions whose CAs are trusted", HTTP_OWN, .example = {.status = 200},
     .cli = {.command = "region trusted", .columns = "Region Fingerprint"}},
    {0},
};
