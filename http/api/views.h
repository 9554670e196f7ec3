/* Catalog records as Consul's JSON, for every endpoint that shows them. All append one value. */
#ifndef COORD_HTTP_API_VIEWS_H
#define COORD_HTTP_API_VIEWS_H

#include "http/http.h"
#include "lb/vivaldi.h"
#include "registry/catalog.h"

void view_node(struct json_out *json, const Pb__Node *node);          /* NULL: null */
void view_service(struct json_out *json, const Pb__Service *service); /* as in health and node answers */
void view_check(struct json_out *json, const Pb__Check *check);
/* as in answers of transactions, where missing tags are null */
void view_txn_service(struct json_out *json, const Pb__Service *service);
void view_txn_check(struct json_out *json, const Pb__Check *check);
void view_checks(struct json_out *json, Pb__Check *const *checks, size_t count);
void view_service_entry(struct json_out *json, const Pb__ServiceEntry *entry);
void view_service_entry_begin(struct json_out *json, const Pb__ServiceEntry *entry); /* more members may follow */
void view_catalog_service(struct json_out *json, const Pb__ServiceEntry *entry); /* the flat form of catalog/service */
void view_node_services(struct json_out *json, const Pb__NodeServicesResult *node); /* as catalog/node */
/* Vec, Error, Adjustment, Height */
void view_coordinate(struct json_out *json, const struct vivaldi_coordinate *coordinate);
void view_pairs(struct json_out *json, Pb__Pair *const *pairs, size_t count); /* an object, also when empty */
void view_strings(struct json_out *json, char *const *texts, size_t count);

/* Write members of an object that has begun. Several kinds of answers have them. */
void view_service_head(struct json_out *json, const Pb__Service *service); /* Kind, ID, Service, Tags */
/* only if there are some */
void view_service_addresses(struct json_out *json, const char *key, const Pb__Service *service);
void view_weights(struct json_out *json, const char *key, const Pb__Service *service);
void view_check_head(struct json_out *json, const Pb__Check *check); /* Node to ServiceName */
void view_indexes(struct json_out *json, uint64_t created, uint64_t modified);

/* Parameters that several endpoints have. */
#define VIEW_FILTER \
    { "filter", HTTP_TEXT, .help = "refused: expressions are not supported" }
#define VIEW_SERVICE \
    { "*service", HTTP_TEXT, .help = "the service's name" }
#define VIEW_TAG \
    { "tag", HTTP_TEXT, .repeats = true, .help = "only instances with this tag; all of them" }
#define VIEW_NEAR \
    { "near", HTTP_TEXT, .help = "a node, or _agent for this one: by the round trip from there" }
#define VIEW_NODE_META \
    { "node-meta", HTTP_TEXT, .repeats = true, .help = "key:value; only of nodes with this metadata" }

/* ?node-meta=key:value, repeated, as request records; in the arena. */
size_t view_node_meta(struct http_request *request, Pb__Pair ***pairs);
/* Refuses ?filter= and returns false, because filter expressions are not supported. */
bool view_no_filter(struct http_request *request);
/* The path value of this name; empty: replies 400 "Missing WHAT" and returns false. The text is NUL-terminated. */
bool view_path_text(struct http_request *request, const char *name, const char *what, char **text);

#endif
