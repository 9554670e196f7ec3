/* Commands on tokens (rpc/api/acl_admin.h), carried out here with the key of this process. There are no logins. */
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "base/message.h"
#include "base/random.h"
#include "base/text.h"
#include "rpc/api/access_control.h"
#include "rpc/api/acl_admin.h"
#include "tests/lib/fake_rpc.h"

struct work {
    struct rpc_acl *acl;
    struct acl_key *key;
    struct rpc_write write;
    struct arena arena;
};

static void end(struct work *work, int error, const char *text) {
    struct rpc_acl *acl = work->acl;
    snprintf(acl->text, sizeof acl->text, "%s", text ? text : "");
    acl_key_release(work->key);
    arena_free(&work->arena);
    free(work);
    acl->done(acl, error);
}

static void answer(struct work *work, struct slice record) {
    Pb__AclToken *token = message_unpack(&work->arena, &pb__acl_token__descriptor, record);
    Pb__AclTokenResult result = PB__ACL_TOKEN_RESULT__INIT;
    struct buffer secret = {0};
    int error = acl_key_open(work->key, slice_text(token->accessor), message_slice(token->secret_sealed), &secret);
    result.token = token, result.secret = arena_strndup(&work->arena, secret.data ? secret.data : "", secret.size);
    struct slice packed = message_pack(&work->arena, &result.base);
    buffer_append(&work->acl->answer, packed.data, packed.size);
    buffer_free(&secret);
    end(work, error, "");
}

static void written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct work *work = CONTAINER_OF(write, struct work, write);
    if (error || result->error) end(work, error ? error : result->error, error ? "" : result->text);
    else answer(work, result->record);
}

static char *draw(struct work *work) {
    uint8_t bytes[16];
    char *text = arena_zalloc(&work->arena, UUID_TEXT_SIZE + 1);
    random_bytes(bytes, sizeof bytes);
    uuid_format(bytes, text);
    return text;
}

static int may(struct rpc *rpc, struct work *work, const Pb__AclTokenSetCommand *command) {
    struct rpc_reader *reader = rpc_reader_new(rpc);
    uint64_t judged;
    int error = rpc_may_write(reader, work->acl->requester, ACL_TOKEN_SET, &command->base, &work->arena, &judged);
    if (error) end(work, error, rpc_denial(reader));
    rpc_reader_free(reader);
    return error;
}

void rpc_acl(struct rpc *rpc, struct rpc_acl *acl) {
    struct work *work = mem_zalloc(sizeof *work);
    work->acl = acl, work->key = acl_key_used(), work->write.done = written;
    acl->text[0] = '\0', acl->answer = (struct buffer){0};
    Pb__AclTokenSetCommand *command =
        message_unpack(&work->arena, &pb__acl_token_set_command__descriptor, acl->command);
    struct slice secret = acl->secret.size ? acl->secret : slice_text(draw(work));
    if (!work->key || acl->verb == RPC_ACL_LOGIN) {
        end(work, work->key ? CO_NOTOKEN : CO_NOTREADY, "");
    } else if (acl->verb == RPC_ACL_BOOTSTRAP) {
        Pb__AclBootstrapCommand *first = acl_bootstrap(work->key, draw(work), "first", secret, &work->arena);
        rpc_submit(rpc, &work->write, ACL_BOOTSTRAP, &first->base);
    } else if (may(rpc, work, command) == CO_OK) {
        if (!command->token->accessor[0]) command->token->accessor = draw(work);
        if (command->create || acl->secret.size) acl_token_secret(command->token, work->key, secret, &work->arena);
        command->key_id = message_bytes(acl_key_id(work->key));
        rpc_submit(rpc, &work->write, ACL_TOKEN_SET, &command->base);
    }
}
