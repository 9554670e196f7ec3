/* /v1/txn and /v1/txn/if: several operations, all or nothing. */
#include "http/api/kv_views.h"
#include "http/api/topics.h"
#include "http/api/txn_form.h"
#include "http/api/views.h"
#include "http/http.h"

/* -- answers ------------------------------------------------------------------------------------------------------ */

static void write_result(struct json_out *json, const Pb__TxnResult *result) {
    json_object(json);
    if (result->kv) json_key(json, "KV"), http_kv_entry(json, result->kv);
    if (result->node) json_key(json, "Node"), view_node(json, result->node);
    if (result->service) json_key(json, "Service"), view_txn_service(json, result->service);
    if (result->check) json_key(json, "Check"), view_txn_check(json, result->check);
    json_object_end(json);
}

static void write_errors(struct json_out *json, Pb__TxnError *const *errors, size_t count) {
    if (count) json_array(json);
    else json_null(json);
    for (size_t i = 0; i < count; i++) {
        json_object(json);
        json_key(json, "OpIndex"), json_u64(json, errors[i]->op);
        json_key(json, "What"), json_string(json, errors[i]->what);
        json_object_end(json);
    }
    if (count) json_array_end(json);
}

/* Consul's answers to transactions that only read have these members about the read. */
static void write_read(struct http_request *request, struct json_out *json) {
    struct rpc_status status;
    rpc_status(http_env(request)->rpc, &status);
    json_key(json, "Index"), json_u64(json, 0);
    json_key(json, "LastContact"), json_u64(json, http_has(request, "stale") ? status.last_contact_ms : 0);
    json_key(json, "KnownLeader"), json_bool(json, status.known_leader);
    json_key(json, "ConsistencyLevel"), json_string(json, "");
}

struct context {
    bool conditional, reads;
};

static void answer(struct http_request *request, const Pb__TxnAnswer *answer) {
    const struct context *context = http_context(request);
    struct json_out *json = http_out(request);
    json_object(json);
    if (context->conditional) json_key(json, "Succeeded"), json_bool(json, answer->succeeded);
    json_key(json, "Results");
    if (answer->n_errors) json_null(json);
    else json_array(json);
    for (size_t i = 0; i < answer->n_results && !answer->n_errors; i++) write_result(json, answer->results[i]);
    if (!answer->n_errors) json_array_end(json);
    json_key(json, "Errors");
    write_errors(json, answer->errors, answer->n_errors);
    if (context->reads && !context->conditional) write_read(request, json);
    json_object_end(json);
    http_reply_json(request, answer->n_errors ? 409 : 200);
}

static void written(struct http_request *request, const struct machine_result *result) {
    if (result->error || !result->message) http_reply_result(request, result);
    else answer(request, (const Pb__TxnAnswer *)result->message);
}

static void fetched(struct http_request *request, int error, const struct query_result *result) {
    if (error) {
        http_reply_error(request, error);
        return;
    }
    http_tell_hidden(request);
    answer(request, (const Pb__TxnAnswer *)result->message);
}

/* -- requests ----------------------------------------------------------------------------------------------------- */

/* Runs the parsed transaction, or refuses it when it has faults. */
static void run(struct txn_form *form) {
    struct http_request *request = form->request;
    struct context *context = arena_zalloc(http_arena(request), sizeof *context);
    context->conditional = form->command.conditional;
    context->reads = !txn_writes(&form->command);
    http_set_context(request, context);
    bool stale = http_has(request, "stale"), consistent = http_has(request, "consistent");
    if (form->status) {
        http_reply_text(request, form->status, "%s", form->text);
    } else if (stale && consistent) {
        http_reply_text(request, 400, "Cannot specify ?stale with ?consistent, conflicting semantics.");
    } else if (form->error_count) {
        Pb__TxnAnswer refused = PB__TXN_ANSWER__INIT;
        refused.errors = form->errors, refused.n_errors = form->error_count;
        answer(request, &refused);
    } else if (context->reads) {
        http_read_once(request, &query_txn, &form->command.base,
                       stale        ? RPC_STALE
                       : consistent ? RPC_CONSISTENT
                                    : RPC_DEFAULT,
                       fetched);
    } else {
        http_write(request, TXN_APPLY, &form->command.base, written);
    }
}

static struct txn_form *form_new(struct http_request *request) {
    struct txn_form *form = arena_zalloc(http_arena(request), sizeof *form);
    form->request = request;
    pb__txn_command__init(&form->command);
    return form;
}

static void txn(struct http_request *request) {
    struct json_object *list = http_json_of(request, json_type_array, "Failed to parse body");
    if (!list) return;
    struct txn_form *form = form_new(request);
    txn_form_count(form, json_object_array_length(list));
    txn_form_ops(form, list, "", &form->command.ops, &form->command.n_ops);
    run(form);
    txn_form_free(form);
}

static void txn_if(struct http_request *request) {
    static const char *const known[] = {"If", "Then", "Else", NULL};
    struct fault fault = {0};
    struct json_object *json = http_json_of(request, json_type_object, "Failed to parse body");
    if (!json) return;
    struct txn_form *form = form_new(request);
    form->command.conditional = true;
    json_only_known(json, known, &fault);
    struct json_object *compares = json_get_array(json, "If", &fault), *then = json_get_array(json, "Then", &fault),
                       *otherwise = json_get_array(json, "Else", &fault);
    if (fault.code) txn_form_fault(form, 400, "Failed to parse body: %s", fault.text);
    txn_form_count(form, (compares ? json_object_array_length(compares) : 0) +
                             (then ? json_object_array_length(then) : 0) +
                             (otherwise ? json_object_array_length(otherwise) : 0));
    txn_form_compares(form, compares);
    txn_form_ops(form, then, "Then", &form->command.ops, &form->command.n_ops);
    txn_form_ops(form, otherwise, "Else", &form->command.otherwise, &form->command.n_otherwise);
    run(form);
    txn_form_free(form);
}

#define READS                                                                                          \
    {"stale", HTTP_FLAG,                                                                               \
     .help = "for a transaction that only reads: from this server's own state, which may be behind"},  \
    {                                                                                                  \
        "consistent", HTTP_FLAG,                                                                       \
            .help = "for a transaction that only reads: confirmed by the leader, which is the default" \
    }
const struct http_route http_routes_txn[] = {
    {HTTP_PUT, "/v1/txn", txn, "none: each operation is judged by itself", HTTP_PARAMS(HTTP_DC, READS),
     "Does all operations of the list in one entry, or none (409). Each is an object with one of KV, Node, Service, "
     "Check, Session and Fence",
     HTTP_BODY_TXN,
     .example = {.body = "[{\"KV\":{\"Verb\":\"set\",\"Key\":\"txn/a\",\"Value\":\"MQ==\"}},"
                         "{\"KV\":{\"Verb\":\"get\",\"Key\":\"txn/a\"}}]",
                 .status = 200}},
    {HTTP_PUT, "/v1/txn/if", txn_if, "none: each operation is judged by itself", HTTP_PARAMS(HTTP_DC, READS),
     "The same with comparisons: the operations of Then when all of If hold, else those of Else",
     HTTP_OWN | HTTP_BODY_TXN,
     .example = {.body = "{\"If\":[{\"KV\":{\"Key\":\"txn/a\",\"Value\":\"MQ==\"}}],"
                         "\"Then\":[{\"KV\":{\"Verb\":\"set\",\"Key\":\"txn/a\",\"Value\":\"Mg==\"}}],"
                         "\"Else\":[{\"KV\":{\"Verb\":\"get\",\"Key\":\"txn/a\"}}]}",
                 .status = 200}},
    {0},
};
