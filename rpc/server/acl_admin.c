#include "rpc/server/acl_admin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "acl/acl.h"
#include "acl/login.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "base/random.h"
#include "base/text.h"
#include "registry/trust.h"
#include "rpc/api/access_control.h"
#include "rpc/server/judge.h"
#include "rpc/server/server_internal.h"

/* One request. */
struct acl_work {
    struct rpc *rpc;
    struct rpc_acl *acl;
    struct arena arena;
    struct acl_key *key;
    Pb__AclTokenSetCommand *command;
    struct rpc_write write;
    struct loop_task written;
    uint8_t number; /* of the command that is under way */
    bool reset;     /* the file was looked for */
    int error;
    struct buffer record; /* of the result */
    char why[RPC_ACL_TEXT];
    /* of a login */
    Pb__AclAuthMethod *method;
    Pb__AclRulesResult *rules;
    uv_work_t pool;
    struct slice cluster_cas;
    struct proven proven;
    struct fault fault;
};

static void end(struct acl_work *work, int error, const char *text) {
    struct rpc_acl *acl = work->acl;
    struct rpc *rpc = work->rpc;
    snprintf(acl->text, sizeof acl->text, "%s", text ? text : "");
    acl_key_release(work->key);
    arena_free(&work->arena);
    buffer_free(&work->record);
    free(work);
    acl->done(acl, error);
    rpc_job_over(rpc);
}

/* -- the answer ---------------------------------------------------------------------------------------------------- */
/* The record has ids alone. A policy that this server does not have yet keeps its id without a name. */
static void fill_names(struct store_txn *txn, Pb__AclLink **links, size_t count, bool roles, struct arena *arena) {
    for (size_t i = 0; i < count; i++) {
        Pb__AclPolicy *policy = NULL;
        Pb__AclRole *role = NULL;
        struct slice id = slice_text(links[i]->id);
        int error = roles ? acl_role_read(txn, id, arena, &role) : acl_policy_read(txn, id, arena, &policy);
        if (error == CO_OK) links[i]->name = roles ? role->name : policy->name;
    }
}

static int answer(struct acl_work *work) {
    const struct module_command *row = modules_command(machine_modules(work->rpc->machine), work->number);
    Pb__AclToken *token = machine_decode(row->result, buffer_slice(&work->record), &work->arena);
    Pb__AclTokenResult result = PB__ACL_TOKEN_RESULT__INIT;
    struct buffer secret = {0};
    if (!token) return CO_UNKNOWN_OUTCOME;
    bool anonymous = strcmp(token->accessor, ACL_ANONYMOUS_ID) == 0;
    if (anonymous) buffer_append_text(&secret, ACL_ANONYMOUS);
    result.hidden = !anonymous && acl_key_open(work->key, slice_text(token->accessor),
                                               message_slice(token->secret_sealed), &secret) != CO_OK;
    buffer_append_byte(&secret, '\0');
    result.token = token, result.secret = secret.data;
    token->secret_hash.len = token->secret_sealed.len = 0;
    struct store_txn *txn = store_read(work->rpc->loop_reader);
    fill_names(txn, token->policies, token->n_policies, false, &work->arena);
    fill_names(txn, token->roles, token->n_roles, true, &work->arena);
    size_t size = protobuf_c_message_get_packed_size(&result.base);
    buffer_reserve(&work->acl->answer, size);
    work->acl->answer.size = protobuf_c_message_pack(&result.base, (uint8_t *)work->acl->answer.data);
    store_read_done(work->rpc->loop_reader);
    explicit_bzero(secret.data, secret.capacity);
    buffer_free(&secret);
    return CO_OK;
}

/* -- the write ----------------------------------------------------------------------------------------------------- */
static void bootstrap(struct acl_work *work);
static bool reset(struct acl_work *work);

static void written_taken(struct loop_task *task) {
    struct acl_work *work = CONTAINER_OF(task, struct acl_work, written);
    bool more = work->number == ACL_RESET && !work->error;
    bool may_reset = work->number == ACL_BOOTSTRAP && work->error == CO_DENIED && !work->reset;
    if (more) {
        log_warn("acl", "one more bootstrap is allowed, because of the file %s", ACL_RESET_FILE);
        bootstrap(work);
    } else if (!may_reset || !reset(work)) {
        if (!work->error) work->error = answer(work);
        end(work, work->error, work->error ? work->why : "");
    }
}

/* Another thread. */
static void written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct acl_work *work = CONTAINER_OF(write, struct acl_work, write);
    work->error = error ? error : result->error;
    const char *why = !error && result->text ? result->text : co_strerror(work->error);
    snprintf(work->why, sizeof work->why, "%s", work->error ? why : "");
    buffer_reset(&work->record);
    if (!work->error) buffer_append(&work->record, result->record.data, result->record.size);
    rpc_on_loop(work->rpc, &work->written, written_taken);
}

static void submit(struct acl_work *work, uint8_t number, const ProtobufCMessage *message) {
    work->number = number;
    work->write = (struct rpc_write){.done = written, .judged = work->write.judged};
    work->write.requester = number == ACL_TOKEN_SET ? work->acl->requester : NULL; /* the others are everybody's */
    work->write.client = number == ACL_TOKEN_SET || number == ACL_LOGIN;
    rpc_submit(work->rpc, &work->write, number, message);
}

/* -- secrets ------------------------------------------------------------------------------------------------------- */
static char *draw_uuid(struct acl_work *work) {
    char *text = arena_alloc(&work->arena, UUID_TEXT_SIZE + 1);
    random_uuid(text);
    return text;
}

/* Hashes and seals the secret of the request's token, or one that is drawn. */
static void seal(struct acl_work *work, struct slice secret) {
    Pb__AclToken *token = work->command->token;
    char *drawn = NULL;
    if (!secret.size && work->command->create) secret = slice_text(drawn = draw_uuid(work));
    if (secret.size) acl_token_secret(token, work->key, secret, &work->arena);
    work->command->key_id = message_bytes(acl_key_id(work->key));
    if (drawn) explicit_bzero(drawn, UUID_TEXT_SIZE);
}

static const char *secret_fault(struct acl_work *work) {
    struct slice secret = work->acl->secret;
    if (secret.size > ACL_SECRET_MAX) return "Invalid Token: the SecretID is too long";
    if (slice_is(secret, ACL_ANONYMOUS)) return "Invalid Token: SecretID is already in use";
    if (work->command->create && secret.size && acl_reserved(secret))
        return "Invalid Token: UUIDs with the prefix of zeroes are reserved";
    return NULL;
}

/* -- verbs --------------------------------------------------------------------------------------------------------- */
static void set_token(struct acl_work *work) {
    const char *fault = secret_fault(work);
    uint64_t judged = 0;
    int error = CO_OK;
    if (work->acl->requester) {
        struct rpc_reader *reader = judge_reader(work->rpc);
        error = rpc_may_write(reader, work->acl->requester, ACL_TOKEN_SET, &work->command->base, &work->arena, &judged);
        if (error) {
            end(work, error, rpc_denial(reader));
            return;
        }
    }
    if (fault) {
        end(work, CO_INVALID, fault);
        return;
    }
    if (work->command->create && !work->command->token->accessor[0]) work->command->token->accessor = draw_uuid(work);
    seal(work, work->acl->secret);
    work->write.judged = judged;
    submit(work, ACL_TOKEN_SET, &work->command->base);
}

static void bootstrap(struct acl_work *work) {
    struct slice secret = work->acl->secret;
    char *drawn = secret.size ? NULL : draw_uuid(work);
    const char *fault = secret_fault(work);
    acl_key_release(work->key);
    work->key = acl_key_used(); /* a reset may have changed it */
    if (fault || !work->key) {
        end(work, fault ? CO_INVALID : CO_NOTREADY,
            fault ? fault : "this server has no key of the tokens' secrets yet");
        return;
    }
    Pb__AclBootstrapCommand *command = acl_bootstrap(work->key, draw_uuid(work), "Bootstrap Token (Global Management)",
                                                     drawn ? slice_text(drawn) : secret, &work->arena);
    if (drawn) explicit_bzero(drawn, UUID_TEXT_SIZE);
    submit(work, ACL_BOOTSTRAP, &command->base);
}

/* -- logins --------------------------------------------------------------------------------------------------------- */
/* A role that is not there is left out. False: nothing is left. */
static bool keep_roles(struct acl_work *work) {
    Pb__AclToken *token = work->command->token;
    struct store_txn *txn = store_read(work->rpc->loop_reader);
    size_t kept = 0;
    for (size_t i = 0; i < token->n_roles; i++) {
        Pb__AclRoleRequest request = PB__ACL_ROLE_REQUEST__INIT;
        struct query_result result;
        request.name = token->roles[i]->name;
        if (query_acl_role.run(txn, &request.base, &work->arena, &result) == CO_OK && result.found)
            token->roles[kept++] = token->roles[i];
    }
    token->n_roles = kept;
    store_read_done(work->rpc->loop_reader);
    return kept || token->n_service_identities;
}

/* A node that was removed, or whose key is another one by now, is nobody any more. */
static int judge_removed(struct acl_work *work) {
    const struct tls_certificate *certificate = &work->proven.certificate;
    if (certificate->role == TLS_ROLE_NONE || !acl_login_of_cluster(work->method)) return CO_OK;
    const char *why = trust_refuses(store_read(work->rpc->loop_reader), certificate->role == TLS_ROLE_SERVER,
                                    certificate->node, slice_make(certificate->pin, TLS_PIN_SIZE));
    store_read_done(work->rpc->loop_reader);
    return why ? fault_set(&work->fault, CO_DENIED, "Permission denied: the client certificate is refused: %s", why)
               : CO_OK;
}

/* The token says who he is, before anything that he says himself. */
static void describe(struct acl_work *work) {
    Pb__AclToken *token = work->command->token;
    if (work->proven.who)
        token->description = arena_printf(&work->arena, "%s: %s", work->proven.who, token->description);
}

static void login_judged(struct acl_work *work) {
    Pb__AclToken *token = work->command->token;
    int error = work->fault.code;
    if (!error) error = judge_removed(work);
    if (!error)
        error = acl_login_bind(work->method, work->rules->rules, work->rules->n_rules, &work->proven.variables, token,
                               &work->arena, &work->fault);
    if (!error && !keep_roles(work))
        error = fault_set(&work->fault, CO_DENIED, "Permission denied: the roles of this login are not there");
    if (error) {
        end(work, error, work->fault.text);
        return;
    }
    token->accessor = draw_uuid(work), token->local = strcmp(work->method->token_locality, "global") != 0;
    work->command->create = true;
    describe(work);
    seal(work, slice_make("", 0));
    submit(work, ACL_LOGIN, &work->command->base);
}

static void verify(uv_work_t *pool) {
    struct acl_work *work = CONTAINER_OF(pool, struct acl_work, pool);
    struct login login = {.shown = work->acl->secret,
                          .proof = work->acl->proof,
                          .cluster_cas = work->cluster_cas,
                          .now_s = clock_wall_ns() / 1000000000};
    (void)acl_login_verify(work->method, &login, &work->arena, &work->proven, &work->fault);
}

static void verified(uv_work_t *pool, int status) {
    struct acl_work *work = CONTAINER_OF(pool, struct acl_work, pool);
    if (status) end(work, CO_CLOSED, "");
    else login_judged(work);
}

static struct slice cluster_cas(struct store_txn *txn, struct arena *arena) {
    const Pb__Trust *trust = trust_read(txn, arena);
    struct slice all = slice_make("", 0);
    for (size_t i = 0; trust && i < trust->n_cas; i++)
        all = slice_text(arena_printf(arena, "%s%s\n", all.data, trust->cas[i]->certificate));
    return all;
}

/* Of the token that is asked for nothing but its method and its description counts. False: what is said of it cannot be. */
static bool take_request(struct acl_work *work) {
    static const char beginning[] = "token created via login";
    const Pb__AclToken *asked = work->command->token;
    Pb__AclToken *token = arena_alloc(&work->arena, sizeof *token);
    pb__acl_token__init(token);
    token->auth_method = asked->auth_method, token->description = asked->description;
    pb__acl_token_set_command__init(work->command);
    work->command->token = token;
    return strncmp(token->description, beginning, sizeof beginning - 1) == 0;
}

static void login(struct acl_work *work) {
    if (!take_request(work)) {
        end(work, CO_INVALID, "a login's description does not begin as one");
        return;
    }
    Pb__AclRulesRequest request = PB__ACL_RULES_REQUEST__INIT;
    struct query_result result = {0};
    struct store_txn *txn = store_read(work->rpc->loop_reader);
    int error = acl_method_read(txn, slice_text(work->command->token->auth_method), &work->arena, &work->method);
    if (!error) {
        request.auth_method = work->method->name;
        error = query_acl_rules.run(txn, &request.base, &work->arena, &result);
    }
    if (!error) { /* texts may point into the store */
        work->method = (Pb__AclAuthMethod *)message_copy(&work->arena, &work->method->base);
        work->rules = (Pb__AclRulesResult *)message_copy(&work->arena, result.message);
        work->cluster_cas = cluster_cas(txn, &work->arena);
    }
    store_read_done(work->rpc->loop_reader);
    if (error)
        end(work, error == CO_NOTFOUND ? CO_NOTOKEN : error,
            error == CO_NOTFOUND ? "ACL not found" : co_strerror(error));
    else CHECK(uv_queue_work(work->rpc->loop, &work->pool, verify, verified) == 0);
}

/* -- the reset ------------------------------------------------------------------------------------------------------ */
/* Takes the file away and reads it. False: there is none, or somebody else's. */
static bool take_file(struct rpc *rpc, char text[64]) {
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", acl_keys_folder(rpc), ACL_RESET_FILE);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    bool own = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (info.st_uid == 0 || info.st_uid == geteuid());
    ssize_t size = own ? read(fd, text, 63) : -1;
    close(fd);
    if (own && unlink(path) != 0) own = false;
    if (!own)
        log_warn("acl", "%s counts only as a file of root or of this process's user, which this process may remove",
                 path);
    text[size > 0 ? size : 0] = '\0';
    return own && size > 0;
}

static bool parse_file(char *text, uint64_t *index, bool *new_key) {
    static const char blanks[] = " \r\n\t";
    char *rest, *word = strtok_r(text, blanks, &rest);
    if (!word || u64_parse(slice_text(word), UINT64_MAX, index) != CO_OK) return false;
    word = strtok_r(NULL, blanks, &rest);
    *new_key = word && strcmp(word, "new-key") == 0;
    return (!word || *new_key) && !strtok_r(NULL, blanks, &rest);
}

static bool reset(struct acl_work *work) {
    char text[64];
    Pb__AclResetCommand command = PB__ACL_RESET_COMMAND__INIT;
    bool new_key = false;
    work->reset = true;
    if (!take_file(work->rpc, text)) return false;
    if (!parse_file(text, &command.index, &new_key)) {
        log_warn("acl", "%s has neither an index nor \"INDEX new-key\": it was removed, and does nothing",
                 ACL_RESET_FILE);
        return false;
    }
    command.new_key = new_key;
    submit(work, ACL_RESET, &command.base);
    return true;
}

/* Without the key nothing can be bootstrapped, and the refusal has to tell the index that a reset needs. */
static void without_key(struct acl_work *work) {
    Pb__AclState *state = NULL;
    if (work->acl->verb == RPC_ACL_BOOTSTRAP && reset(work)) return;
    int error = acl_state_read(store_read(work->rpc->loop_reader), &work->arena, &state);
    uint64_t index = error == CO_OK ? state->bootstrap_index : 0;
    store_read_done(work->rpc->loop_reader);
    char text[160];
    if (work->acl->verb == RPC_ACL_BOOTSTRAP && index)
        snprintf(text, sizeof text, "this server does not have the key of the tokens' secrets (reset index: %llu)",
                 (unsigned long long)index);
    else snprintf(text, sizeof text, "this server does not have the key of the tokens' secrets yet; ask again");
    end(work, CO_NOTREADY, text);
}

/* -- beginning ------------------------------------------------------------------------------------------------------ */
void acl_admin_do(struct rpc *rpc, struct rpc_acl *acl) {
    struct acl_work *work = mem_zalloc(sizeof *work);
    work->rpc = rpc, work->acl = acl;
    rpc_job_begin(rpc);
    if (rpc->stopping) {
        end(work, CO_CLOSED, "");
        return;
    }
    work->command = message_unpack(&work->arena, &pb__acl_token_set_command__descriptor, acl->command);
    work->key = acl_key_used();
    if (!work->command || !work->command->token) end(work, CO_INVALID, "no token");
    else if (!rpc_access_controlled(rpc)) end(work, CO_UNSUPPORTED, "ACL support disabled");
    else if (!work->key) without_key(work);
    else if (acl->verb == RPC_ACL_TOKEN_SET) set_token(work);
    else if (acl->verb == RPC_ACL_BOOTSTRAP) bootstrap(work);
    else if (acl->verb == RPC_ACL_LOGIN) login(work);
    else end(work, CO_INVALID, "this server does not know what is asked of it");
}
