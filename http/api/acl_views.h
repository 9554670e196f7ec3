/* Bodies and answers of access control, as Consul has them: shared by its endpoints (http/api/acl_*.c). */
#ifndef COORD_HTTP_API_ACL_VIEWS_H
#define COORD_HTTP_API_ACL_VIEWS_H

#include "acl/acl.h"
#include "http/http.h"
#include "rpc/api/acl_admin.h"

/* False: there is no access control, and it has replied 401 in the words that clients look for. */
bool acl_is_on(struct http_request *request);

/* -- bodies --------------------------------------------------------------------------------------------------------- */
/* The first fault counts. Text lives as long as the body. */
struct acl_form {
    struct http_request *request;
    struct arena *arena;
    struct json_object *json; /* NULL: it has replied; nothing else may be called */
    struct fault fault;
};
/* `known`: the members that it may have. An empty body is `{}` with `optional`. */
struct acl_form acl_form_begin(struct http_request *request, const char *const *known, bool optional);
/* The value of the path; "": it has none. */
char *acl_path_value(struct http_request *request, const char *name);
char *acl_form_text(struct acl_form *form, const char *name);
/* An ID or name that stands in the path too: the body may leave it out, or has the same. */
char *acl_form_same(struct acl_form *form, const char *name, const char *in_path);
/* Nothing but the path may name it, because it is about to be made. */
void acl_form_none(struct acl_form *form, const char *name, const char *noun);
char **acl_form_texts(struct acl_form *form, struct json_object *object, const char *name, size_t *count);
Pb__AclLink **acl_form_links(struct acl_form *form, const char *name, size_t *count);
Pb__AclServiceIdentity **acl_form_services(struct acl_form *form, size_t *count);
Pb__AclNodeIdentity **acl_form_nodes(struct acl_form *form, size_t *count);
/* False: it has a fault, and it has replied 400. */
bool acl_form_end(struct acl_form *form);

#define ACL_TTL_LEAST_MS UINT64_C(60000) /* of a token, and of the tokens of an auth method */
#define ACL_TTL_MOST_MS  UINT64_C(86400000)

/* -- answers -------------------------------------------------------------------------------------------------------- */
/* `secret` NULL: a token of a list. */
void acl_write_token(struct json_out *json, const Pb__AclToken *token, const char *secret);
void acl_write_links(struct json_out *json, const char *key, Pb__AclLink *const *links, size_t count);
void acl_write_identities(struct json_out *json, Pb__AclServiceIdentity *const *services, size_t service_count,
                          Pb__AclNodeIdentity *const *nodes, size_t node_count);
void acl_write_texts(struct json_out *json, char *const *texts, size_t count);
void acl_write_hash(struct json_out *json, ProtobufCBinaryData hash);
void acl_write_indexes(struct json_out *json, uint64_t create_index, uint64_t modify_index);
void acl_write_time(struct json_out *json, uint64_t unix_ms);
/* The result of a command that was refused. */
void acl_reply_refusal(struct http_request *request, const struct machine_result *result);

/* -- commands on tokens ---------------------------------------------------------------------------------------------- */
/* Has a server carry it out, and replies the token with its secret, or why not. */
void acl_call_server(struct http_request *request, enum rpc_acl_verb verb, const Pb__AclTokenSetCommand *command,
                     struct slice secret);
/* The same for RPC_ACL_LOGIN, with what the connection proves. `shown`: may be empty. */
void acl_call_login(struct http_request *request, const Pb__AclTokenSetCommand *command, struct slice shown);

#endif
