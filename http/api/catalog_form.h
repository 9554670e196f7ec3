/* Nodes, services and checks as clients write them in JSON, for /v1/catalog and /v1/txn. Reading checks types and
 * sizes; the judge functions then check the values, with Consul's texts. */
#ifndef COORD_HTTP_API_CATALOG_FORM_H
#define COORD_HTTP_API_CATALOG_FORM_H

#include "base/error.h"
#include "base/json_in.h"
#include "base/memory.h"
#include "registry/catalog.h"

/* The state of reading one request. The first fault stays; later ones are ignored. Texts point into the document, so
 * records live until the request is freed. */
struct catalog_form {
    struct arena *arena;
    struct fault fault;
};
char *catalog_form_text(struct catalog_form *form, struct json_object *object, const char *name);
/* Checks the length of a list; 0 and a fault when it is too long. */
size_t catalog_form_count(struct catalog_form *form, size_t count, const char *name);
/* `meta`: the member with the node's metadata, "NodeMeta" or "Meta" */
Pb__Node *catalog_form_node(struct catalog_form *form, struct json_object *json, const char *meta,
                            const char *datacenter);
Pb__Service *catalog_form_service(struct catalog_form *form, struct json_object *json, const char *node);
Pb__Check *catalog_form_check(struct catalog_form *form, struct json_object *json); /* without its status */

/* They also fill in members that may be left out. */
void catalog_judge_node(const Pb__Node *node, struct fault *fault);
void catalog_judge_service(Pb__Service *service, struct fault *fault);
void catalog_judge_check(struct json_object *json, Pb__Check *check, struct fault *fault); /* and its status */

#endif
