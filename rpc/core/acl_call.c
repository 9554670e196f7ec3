/* Commands on tokens, on their way to a server that has the key of the secrets: a client agent, or a server for another
 * region, calls one; a server carries them out. The proof of a login (acl/login_proof.h) goes along. A server takes its node
 * from the certificate of the agent that sends it, and from nothing else. */
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/message.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/frame_unpack.h"

#define ANSWER_MS 20000 /* longer than a write waits for a leader, and a login for keys */

#define NAME_ROOM 256

struct acl_call {
    struct loop_task task;
    struct call call;
    uv_work_t names;
    struct rpc *rpc;
    char user[NAME_ROOM], group[NAME_ROOM];
};
_Static_assert(sizeof(struct acl_call) <= sizeof(((struct rpc_acl *)0)->impl), "rpc_acl.impl is too small");

static struct rpc_acl *acl_of(struct acl_call *asking) { return CONTAINER_OF((char *)asking, struct rpc_acl, impl); }

static ProtobufCBinaryData bytes_of(struct slice slice) {
    return (ProtobufCBinaryData){slice.size, (uint8_t *)(uintptr_t)slice.data};
}

static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    struct rpc_acl *acl = acl_of(CONTAINER_OF(call, struct acl_call, call));
    Pb__PeerAcl *message = arena_alloc(arena, sizeof *message);
    pb__peer_acl__init(message);
    message->verb = acl->verb;
    message->command = bytes_of(acl->command), message->secret = bytes_of(acl->secret);
    if (acl->proof) message->proof = message_bytes(message_pack(arena, &acl->proof->base));
    message->region = acl->region;
    message->token = (char *)(uintptr_t)requester_token(acl->requester);
    return &message->base;
}

const struct call_method acl_method = {.name = "acl",
                                       .request_frame = PEER_ACL,
                                       .answer_frame = PEER_ACL_ANSWER,
                                       .request = &pb__peer_acl__descriptor,
                                       .answer = &pb__peer_acl_answer__descriptor,
                                       .answer_ms = ANSWER_MS,
                                       .build = build};

static void answered(struct call *call, int error, const ProtobufCMessage *message) {
    struct rpc_acl *acl = acl_of(CONTAINER_OF(call, struct acl_call, call));
    const Pb__PeerAclAnswer *answer = (const Pb__PeerAclAnswer *)message;
    if (error == CO_OK) {
        error = (int)answer->outcome;
        snprintf(acl->text, sizeof acl->text, "%s", answer->text);
        if (error == CO_OK) buffer_append(&acl->answer, answer->result.data, answer->result.len);
        if (answer->result.len) explicit_bzero(answer->result.data, answer->result.len);
    }
    acl->done(acl, error);
}

void acl_ask(struct rpc *rpc, struct rpc_acl *acl) {
    struct acl_call *asking = (struct acl_call *)(void *)acl->impl;
    uint64_t wait_ms = rpc->role->call_wait_ms ? rpc->role->call_wait_ms(rpc) : RPC_LEADER_WAIT_MS;
    asking->call.done = answered;
    calls_begin(rpc->calls, &asking->call, &acl_method, wait_ms, clock_mono_ms());
    if (rpc->role->calls_begun && !calls_idle(rpc->calls)) rpc->role->calls_begun(rpc);
}

static void go_on(struct rpc *rpc, struct rpc_acl *acl) {
    struct rpc *there = acl->region[0] && rpc->machine ? region_find(rpc, acl->region) : rpc;
    if (there) there->role->acl(there, acl);
    else acl->done(acl, CO_NOREGION);
}

/* Another thread: a name service may take its time. */
static void look_up(uv_work_t *work) {
    struct acl_call *asking = CONTAINER_OF(work, struct acl_call, names);
    const Pb__AclProof *proof = acl_of(asking)->proof;
    char text[16384];
    struct passwd user, *found_user = NULL;
    struct group group, *found_group = NULL;
    if (getpwuid_r(proof->uid, &user, text, sizeof text, &found_user) == 0 && found_user &&
        strlen(found_user->pw_name) < NAME_ROOM)
        strcpy(asking->user, found_user->pw_name);
    if (getgrgid_r(proof->gid, &group, text, sizeof text, &found_group) == 0 && found_group &&
        strlen(found_group->gr_name) < NAME_ROOM)
        strcpy(asking->group, found_group->gr_name);
}

static void looked_up(uv_work_t *work, int status) {
    struct acl_call *asking = CONTAINER_OF(work, struct acl_call, names);
    struct rpc_acl *acl = acl_of(asking);
    struct rpc *rpc = asking->rpc;
    acl->proof->user = asking->user, acl->proof->group = asking->group;
    if (status) acl->done(acl, CO_CLOSED);
    else go_on(rpc, acl);
    rpc_job_over(rpc);
}

static void begin(struct loop_task *task) {
    struct acl_call *asking = CONTAINER_OF(task, struct acl_call, task);
    struct rpc_acl *acl = acl_of(asking);
    asking->rpc = task->rpc;
    if (acl->foreign || !acl->proof || !acl->proof->local) {
        go_on(task->rpc, acl);
        return;
    }
    rpc_job_begin(task->rpc);
    CHECK(uv_queue_work(task->rpc->role->self(task->rpc).loop, &asking->names, look_up, looked_up) == 0);
}

void rpc_acl(struct rpc *rpc, struct rpc_acl *acl) {
    struct acl_call *asking = (struct acl_call *)(void *)acl->impl;
    *asking = (struct acl_call){0};
    acl->text[0] = 0, acl->answer = (struct buffer){0};
    rpc_on_loop(rpc, &asking->task, begin);
}

/* -- serving ------------------------------------------------------------------------------------------------------- */
struct served {
    struct caller caller;
    uint64_t number;
    struct rpc_acl acl;
    Pb__PeerAcl *asked;
    struct requester *requester;
    struct arena arena;
};

static void served_done(struct rpc_acl *acl, int error) {
    struct served *served = CONTAINER_OF(acl, struct served, acl);
    Pb__PeerAclAnswer answer = PB__PEER_ACL_ANSWER__INIT;
    answer.number = served->number, answer.outcome = (uint32_t)error, answer.text = acl->text;
    if (!error) answer.result = bytes_of(buffer_slice(&acl->answer));
    served->caller.tell(&served->caller, PEER_ACL_ANSWER, &answer.base);
    if (acl->answer.data) explicit_bzero(acl->answer.data, acl->answer.size);
    buffer_free(&acl->answer);
    requester_release(served->requester);
    if (served->asked->secret.len) explicit_bzero(served->asked->secret.data, served->asked->secret.len);
    frame_drop(served->asked);
    arena_free(&served->arena);
    free(served);
}

/* The word of an agent about programs counts for the node of its certificate. False: it does not decode. */
static bool take_proof(struct served *served) {
    const ProtobufCBinaryData *bytes = &served->asked->proof;
    if (!bytes->len) return true;
    Pb__AclProof *proof =
        message_unpack(&served->arena, &pb__acl_proof__descriptor, slice_make(bytes->data, bytes->len));
    if (!proof) return false;
    const char *node = served->caller.proven ? served->caller.proven(&served->caller) : NULL;
    proof->host = arena_strndup(&served->arena, node ? node : "", node ? strlen(node) : 0);
    served->acl.proof = proof, served->acl.foreign = true;
    return true;
}

bool acl_serve(const struct caller *caller, struct slice payload) {
    Pb__PeerAcl *asked = frame_unpack(&pb__peer_acl__descriptor, payload, NULL);
    if (!asked) return false;
    struct served *served = mem_zalloc(sizeof *served);
    served->caller = *caller, served->number = asked->number, served->asked = asked;
    served->acl = (struct rpc_acl){.done = served_done,
                                   .verb = asked->verb,
                                   .command = slice_make(asked->command.data, asked->command.len),
                                   .secret = slice_make(asked->secret.data, asked->secret.len)};
    bool named = strlen(asked->region) <= RPC_REGION_MAX;
    if (named) memcpy(served->acl.region, asked->region, strlen(asked->region) + 1);
    int denied = caller->may ? caller->may(caller, asked->token, NULL, &served->requester) : CO_OK;
    served->acl.requester = served->requester;
    if (!denied && !take_proof(served)) denied = CO_INVALID;
    if (denied || !named) served_done(&served->acl, denied ? denied : CO_NOREGION);
    else rpc_acl(caller->rpc, &served->acl);
    return true;
}
