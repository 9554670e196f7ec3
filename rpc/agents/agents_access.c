/* On whose behalf an agent's requests are, and what they may do. An agent says which token a client sent it; the verdict is
 * this server's. Without a token a request is the agent's own work: then a certificate of the cluster's own CA counts, and
 * without one nothing does, so that it is anonymous. Loop thread. */
#include <stdio.h>
#include <stdlib.h>

#include "base/message.h"
#include "rpc/agents/agents_internal.h"
#include "rpc/api/access_control.h"
#include "rpc/core/rpc_internal.h"

/* Only the cluster's own CA says which node somebody is (rpc/wire/security.h): certificates of a company's CA name whom they
 * like, and the hello's name is then only said. */
static bool is_proven(struct agent *agent) {
    const struct tls_certificate *certificate = link_peer(agent->wire);
    struct rpc_self self = agent->agents->rpc->role->self(agent->agents->rpc);
    struct security_rules rules = {.kind = SECURITY_OPEN};
    if (self.security) security_get(self.security, &rules);
    return rules.kind == SECURITY_CLUSTER && certificate && certificate->role != TLS_ROLE_NONE &&
           (agent->is_link || slice_equal_nocase(slice_text(certificate->node), slice_text(agent->node)));
}

static struct requester *self_of(struct agent *agent) {
    if (agent->self) return requester_keep(agent->self);
    bool proven = is_proven(agent);
    enum requester_slot slot = !proven ? REQUESTER_ANONYMOUS : agent->is_link ? REQUESTER_REGION : REQUESTER_NODE;
    struct slice text = !proven          ? SLICE_LITERAL(REQUESTER_ANONYMOUS_SECRET)
                        : agent->is_link ? slice_text(agent->region)
                                         : slice_text(agent->node);
    agent->self = requester_new(slot, text);
    return requester_keep(agent->self);
}

int agent_requester(struct agent *agent, const char *token, uint32_t slot, struct requester **requester) {
    size_t size = strlen(token);
    *requester = NULL;
    if (!rpc_access_controlled(agent->agents->rpc)) return CO_OK;
    if (size > REQUESTER_TOKEN_MOST) return CO_NOTOKEN;
    *requester =
        size == 0 ? self_of(agent)
                  : requester_new(slot == REQUESTER_DEFAULT || slot == REQUESTER_ANONYMOUS ? (enum requester_slot)slot
                                                                                           : REQUESTER_REQUEST,
                                  slice_make(token, size));
    return CO_OK;
}

/* Of the callbacks of forwarding.h. */
int agents_may_write(void *data, uint64_t from, Pb__PeerWrite *write, struct arena *arena, struct judged *judged,
                     char *why, size_t room) {
    struct agents *agents = data;
    struct agent *agent = *agent_find(agents, from);
    struct requester *requester = NULL;
    int error = agent ? agent_requester(agent, write->token, write->slot, &requester) : CO_CLOSED;
    judged->requester = requester;
    if (error || !requester || !region_is_here(agents->rpc, write->region)) return error;
    struct slice bytes = message_slice(write->command);
    error = rpc_may_write_bytes(agents->reader, requester, &bytes, arena, &judged->generation);
    write->command = (ProtobufCBinaryData){bytes.size, (uint8_t *)(uintptr_t)bytes.data};
    if (error) snprintf(why, room, "%s", error == CO_INVALID ? co_strerror(error) : rpc_denial(agents->reader));
    return error;
}

int agents_may_renew(void *data, uint64_t from, const Pb__PeerRenew *renew, struct requester **requester) {
    struct agents *agents = data;
    struct agent *agent = *agent_find(agents, from);
    int error = agent ? agent_requester(agent, renew->token, renew->slot, requester) : CO_CLOSED;
    if (error || !*requester || !region_is_here(agents->rpc, renew->region)) return error;
    const struct expiry_kind *kind = modules_expiry(machine_modules(agents->rpc->machine), renew->kind);
    return kind ? rpc_may_renew(agents->reader, *requester, kind, slice_text(renew->session), renew->look)
                : CO_NOTFOUND;
}

int agent_may(struct agent *agent, const char *token, const struct access_want *want, struct requester **requester) {
    int error = agent_requester(agent, token, REQUESTER_REQUEST, requester);
    if (error || !*requester || !want) return error;
    return rpc_may(agent->agents->reader, *requester, want->resource, want->name, want->least);
}

int agents_may(const struct caller *caller, const char *token, const struct access_want *want,
               struct requester **requester) {
    struct agent *agent = *agent_find(caller->rpc->agents, caller->id);
    return agent ? agent_may(agent, token, want, requester) : CO_CLOSED;
}

/* A region's certificate says nothing of that region's nodes. */
const char *agents_proven(const struct caller *caller) {
    struct agent *agent = *agent_find(caller->rpc->agents, caller->id);
    return agent && !agent->is_link && is_proven(agent) ? agent->node : NULL;
}
