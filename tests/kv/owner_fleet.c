#include "owner_fleet.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"

#define TIMEOUT_NS (OWNER_MESSAGE_MS * OWN_MS)

/* -- life --------------------------------------------------------------------------------------------------------- */

static uint64_t local_ns(const struct own_fleet *fleet, const struct own_agent *agent) {
    return agent->offset_ns + (uint64_t)((unsigned __int128)fleet->now_ns * agent->rate_ppm / 1000000);
}

struct owner_now own_now(const struct own_fleet *fleet, const struct own_agent *agent) {
    int64_t unix_ms = QUOTA_SERVERS_UNIX_S * 1000 + (int64_t)(fleet->now_ns / OWN_MS) + agent->skew_ms;
    return (struct owner_now){.ns = local_ns(fleet, agent), .unix_s = unix_ms / 1000};
}

static void trouble(struct own_fleet *fleet, uint64_t until_ns) {
    if (until_ns > fleet->trouble_ns) fleet->trouble_ns = until_ns;
}

static bool chance(struct own_fleet *fleet, unsigned permille) { return rng_below(&fleet->rng, 1000) < permille; }

static void agent_begin(struct own_fleet *fleet, struct own_agent *agent) {
    struct owner_config config = {.node = agent->node, .seed = rng_next(&fleet->rng)};
    Pb__QuotaOwned owned = PB__QUOTA_OWNED__INIT, *list[] = {&owned};
    Pb__QuotaOwnedResult all = PB__QUOTA_OWNED_RESULT__INIT;
    agent->owner = owner_new(&config);
    owner_mutate(agent->owner, fleet->plan.mutations);
    agent->life++;
    agent->waiting = 0;
    agent->following = agent->ending = agent->gone = false;
    owned.name = fleet->definition.name, owned.service = fleet->definition.service;
    all.budgets = list, all.n_budgets = 1;
    owner_listed(agent->owner, &all, own_now(fleet, agent));
    if (agent->passing) owner_serves(agent->owner, owned.name, true, own_now(fleet, agent));
}

struct own_fleet *own_open(const struct own_plan *plan) {
    struct own_fleet *fleet = mem_zalloc(sizeof *fleet);
    fleet->plan = *plan;
    rng_seed(&fleet->rng, plan->seed);
    quota_servers_open(&fleet->servers, plan->agents);
    if (plan->broken) {
        fleet->servers.world.mutations = plan->broken;
        fixture_reopen(&fleet->servers.world);
        quota_servers_lead(&fleet->servers, 0);
    }
    fleet->definition = *plan->definition;
    CHECK(quota_definition_check(&fleet->definition, NULL) == CO_OK);
    quota_servers_define(&fleet->servers, &fleet->definition);
    fleet->capacity = quota_capacity(&fleet->definition);
    fleet->now_ns = OWN_S;
    for (unsigned i = 0; i < plan->keys; i++) snprintf(fleet->keys[i].text, sizeof fleet->keys[i].text, "key %u", i);
    for (unsigned i = 0; i < plan->agents; i++) {
        struct own_agent *agent = &fleet->agents[i];
        agent->number = i;
        snprintf(agent->node, sizeof agent->node, "a%u", i);
        agent->rate_ppm = 1000000 - QUOTA_CLOCK_PPM + rng_below(&fleet->rng, 2 * QUOTA_CLOCK_PPM + 1);
        agent->offset_ns = rng_below(&fleet->rng, 1000 * OWN_S);
        agent->skew_ms = (int64_t)rng_below(&fleet->rng, plan->skew_most_ms + 1);
        agent->passing = i < plan->members;
        if (agent->passing) quota_servers_instance(&fleet->servers, agent->node, true);
        agent_begin(fleet, agent);
    }
    return fleet;
}

static void message_free(struct own_message *message) {
    buffer_free(&message->request);
    buffer_free(&message->reply);
    free(message);
}

void own_close(struct own_fleet *fleet) {
    for (unsigned i = 0; i < fleet->plan.agents; i++) owner_free(fleet->agents[i].owner);
    while (fleet->messages) {
        struct own_message *message = fleet->messages;
        fleet->messages = message->next;
        message_free(message);
    }
    arena_free(&fleet->arena);
    quota_servers_close(&fleet->servers);
    free(fleet);
}

/* -- messages ----------------------------------------------------------------------------------------------------- */

static uint64_t latency(struct own_fleet *fleet) {
    uint64_t most_ms = fleet->plan.latency_most_ms ? fleet->plan.latency_most_ms : 5;
    return rng_between(&fleet->rng, 1, most_ms) * OWN_MS;
}

static struct own_message *post(struct own_fleet *fleet, enum own_kind kind, const struct own_agent *from,
                                struct slice request, uint64_t gives_up_ns) {
    struct own_message *message = mem_zalloc(sizeof *message);
    message->kind = kind;
    message->from = from->number, message->from_life = from->life;
    buffer_append(&message->request, request.data, request.size);
    message->arrives_ns = fleet->now_ns + latency(fleet);
    message->answers_ns = UINT64_MAX;
    message->gives_up_ns = gives_up_ns;
    message->next = fleet->messages;
    fleet->messages = message;
    return message;
}

static void post_ask(struct own_fleet *fleet, struct own_agent *agent, const Pb__QuotaAskCommand *command) {
    struct arena arena = {0};
    struct own_message *message = post(fleet, OWN_ASK, agent, message_pack(&arena, &command->base), UINT64_MAX);
    arena_free(&arena);
    fleet->asks++;
    bool cut = agent->cut_ns > fleet->now_ns;
    if (!cut && !chance(fleet, fleet->plan.lost_permille)) return;
    message->gives_up_ns = fleet->now_ns + rng_between(&fleet->rng, 200, 3000) * OWN_MS;
    message->error = CO_UNKNOWN_OUTCOME;
    trouble(fleet, message->gives_up_ns);
    unsigned what = (unsigned)rng_below(&fleet->rng, cut ? 3 : 4);
    if (what == 0) message->arrives_ns = UINT64_MAX, message->error = CO_NOLEADER;
    else if (what == 1) message->arrives_ns = UINT64_MAX;
    else if (what == 2) message->arrives_ns = fleet->now_ns + rng_between(&fleet->rng, 100, 5000) * OWN_MS;
}

static bool are_cut(const struct own_fleet *fleet, unsigned from, unsigned to) {
    return fleet->cut[from][to] || fleet->agents[from].cut_ns > fleet->now_ns ||
           fleet->agents[to].cut_ns > fleet->now_ns;
}

static void post_peer(struct own_fleet *fleet, enum own_kind kind, struct own_agent *agent, const char *node,
                      struct slice request, uint64_t number) {
    struct own_message *message = post(fleet, kind, agent, request, fleet->now_ns + TIMEOUT_NS);
    unsigned to = 0;
    while (to < fleet->plan.agents && strcmp(fleet->agents[to].node, node) != 0) to++;
    CHECK(to < fleet->plan.agents && to != agent->number);
    message->to = to;
    message->number = number;
    message->error = OWNER_MAYBE_DELIVERED;
    if (fleet->agents[to].gone || are_cut(fleet, agent->number, to)) {
        message->arrives_ns = UINT64_MAX;
        if (chance(fleet, 500)) message->error = OWNER_NOT_DELIVERED, message->gives_up_ns = message->arrives_ns - 1;
        if (message->error == OWNER_NOT_DELIVERED) message->gives_up_ns = fleet->now_ns + latency(fleet);
    } else if (chance(fleet, fleet->plan.lost_permille)) {
        unsigned what = (unsigned)rng_below(&fleet->rng, 3);
        if (what == 0) message->arrives_ns = UINT64_MAX;
        else if (what == 1) message->arrives_ns = fleet->now_ns + rng_between(&fleet->rng, 100, 1500) * OWN_MS;
        else message->answered = true; /* the answer is lost */
    }
}

static void arrive_ask(struct own_fleet *fleet, struct own_message *message) {
    struct arena arena = {0};
    bool deaf = message->gives_up_ns != UINT64_MAX;
    if (!fleet->servers.led) { /* they wait for one for a while */
        if (deaf || fleet->now_ns < message->arrives_ns + 2 * OWN_S) return;
        message->error = CO_NOLEADER;
    } else {
        const Pb__QuotaGrants *grants = NULL;
        Pb__QuotaAskCommand *command =
            message_unpack(&arena, &pb__quota_ask_command__descriptor, buffer_slice(&message->request));
        CHECK(command);
        int error = quota_servers_ask(&fleet->servers, command, &grants);
        if (!deaf) message->error = error;
        if (grants) {
            struct slice bytes = message_pack(&arena, &grants->base);
            buffer_append(&message->reply, bytes.data, bytes.size);
        }
    }
    message->arrived = true;
    if (!deaf) message->answers_ns = fleet->now_ns + latency(fleet);
    arena_free(&arena);
}

static struct own_key *key_of(struct own_fleet *fleet, struct slice text) {
    for (unsigned i = 0; i < fleet->plan.keys; i++)
        if (slice_is(text, fleet->keys[i].text)) return &fleet->keys[i];
    UNREACHABLE();
}

/* The owner's answer tells how much it counted, also when the answer is lost. */
static void judge_reply(struct own_fleet *fleet, struct own_agent *owner, const struct own_message *message,
                        uint64_t left) {
    struct arena arena = {0};
    const Pb__QuotaPeer *peer = message_unpack(&arena, &pb__quota_peer__descriptor, buffer_slice(&message->request));
    const Pb__QuotaPeerAnswer *answer =
        message_unpack(&arena, &pb__quota_peer_answer__descriptor, buffer_slice(&message->reply));
    CHECK(peer && answer);
    if (peer->hand_over)
        OWN_SAY(fleet, "a%u to a%u: hand-over %lu for %lu%s of %zu: %u\n", message->from, message->to,
                peer->hand_over->attempt, peer->epoch, peer->hand_over->leaving ? ", leaving" : "",
                peer->hand_over->n_buckets, answer->verdict);
    for (size_t i = 0; peer->hand_over && i < peer->hand_over->n_buckets; i++)
        OWN_SAY(fleet, "    %.*s: %lu\n", (int)peer->hand_over->buckets[i]->key.len,
                peer->hand_over->buckets[i]->key.data, peer->hand_over->buckets[i]->tokens);
    if (peer->take && !peer->take->back && answer->verdict == PB__QUOTA_VERDICT__QUOTA_DONE)
        own_counted(fleet, owner, key_of(fleet, message_slice(peer->take->key)), peer->take->part, peer->take->n);
    if (peer->take && peer->take->back) {
        struct own_key *key = key_of(fleet, message_slice(peer->take->key));
        own_came_back(fleet, owner, key, peer->take->part, own_left(fleet, owner, key) - left);
    }
    arena_free(&arena);
}

/* Of the key that is given back. */
static uint64_t left_before(struct own_fleet *fleet, struct own_agent *owner, const struct own_message *message) {
    struct arena arena = {0};
    const Pb__QuotaPeer *peer = message_unpack(&arena, &pb__quota_peer__descriptor, buffer_slice(&message->request));
    uint64_t left = own_left(fleet, owner, key_of(fleet, message_slice(peer->take->key)));
    arena_free(&arena);
    return left;
}

static void arrive_peer(struct own_fleet *fleet, struct own_message *message) {
    struct own_agent *to = &fleet->agents[message->to];
    if (!to->gone && to->paused_ns > fleet->now_ns) return; /* it waits in the socket */
    message->arrived = true;
    if (to->gone || are_cut(fleet, message->from, message->to)) return;
    uint64_t left = message->kind == OWN_PEER_BACK ? left_before(fleet, to, message) : 0;
    cr_assert_eq(owner_serve(to->owner, buffer_slice(&message->request), own_now(fleet, to), &message->reply), CO_OK);
    judge_reply(fleet, to, message, left);
    if (!message->answered) message->answers_ns = fleet->now_ns + latency(fleet);
}

static bool judge(struct own_fleet *fleet, struct own_agent *agent, struct own_waiter *waiter, int rv,
                  const struct owner_answer *answer);

static void hear(struct own_fleet *fleet, struct own_message *message, bool given_up) {
    struct own_agent *agent = &fleet->agents[message->from];
    if (agent->gone || agent->life != message->from_life) return;
    struct owner_now now = own_now(fleet, agent);
    enum owner_reach reach = given_up ? (enum owner_reach)message->error : OWNER_ANSWERED;
    if (message->kind == OWN_ASK) {
        struct arena arena = {0};
        Pb__QuotaGrants *grants = NULL;
        if (message->error == CO_OK)
            grants = message_unpack(&arena, &pb__quota_grants__descriptor, buffer_slice(&message->reply));
        owner_asked(agent->owner, message->error, grants, now);
        arena_free(&arena);
    } else if (message->kind == OWN_PEER_MESSAGE) {
        owner_sent(agent->owner, message->number, reach, buffer_slice(&message->reply), now);
    } else if (message->kind == OWN_PEER_TAKE) {
        struct own_waiter *waiter = agent->waiters;
        while (waiter < agent->waiters + agent->waiting && waiter->asked != message->number) waiter++;
        CHECK(waiter < agent->waiters + agent->waiting);
        struct owner_answer answer;
        waiter->asked = 0;
        int rv = owner_served(agent->owner, &waiter->take, reach, buffer_slice(&message->reply), now, &answer);
        if (judge(fleet, agent, waiter, rv, &answer)) *waiter = agent->waiters[--agent->waiting];
    }
}

static void messages_go(struct own_fleet *fleet) {
    struct own_message *all = fleet->messages;
    fleet->messages = NULL; /* new ones come while these go */
    struct own_message *kept = NULL;
    while (all) {
        struct own_message *message = all;
        all = message->next;
        struct own_agent *from = &fleet->agents[message->from];
        bool paused = !from->gone && from->paused_ns > fleet->now_ns;
        if (!message->arrived && fleet->now_ns >= message->arrives_ns) {
            if (message->kind == OWN_ASK) arrive_ask(fleet, message);
            else arrive_peer(fleet, message);
        }
        bool answers = message->arrived && fleet->now_ns >= message->answers_ns;
        bool gives_up = fleet->now_ns >= message->gives_up_ns;
        if (!message->heard && !paused && (answers || gives_up)) {
            message->heard = true;
            hear(fleet, message, !answers);
        }
        bool over = message->arrived || message->arrives_ns == UINT64_MAX;
        if (message->heard && over) {
            message_free(message);
        } else {
            message->next = kept;
            kept = message;
        }
    }
    struct own_message **end = &kept;
    while (*end) end = &(*end)->next;
    *end = fleet->messages;
    fleet->messages = kept;
}

/* -- takes -------------------------------------------------------------------------------------------------------- */

/* Tokens that are given back at once are not admitted; those that come back later, or never, are the budget's loss, not
 * its gain. */
static void give_back(struct own_fleet *fleet, struct own_agent *agent, struct own_waiter *waiter) {
    struct owner_answer answer;
    struct own_key *key = &fleet->keys[waiter->key];
    key->admitted -= waiter->take.n;
    uint64_t left = own_left(fleet, agent, key);
    if (owner_back(agent->owner, &waiter->take, own_now(fleet, agent), &answer))
        post_peer(fleet, OWN_PEER_BACK, agent, answer.node, answer.request, 0);
    else own_came_back(fleet, agent, key, waiter->take.part, own_left(fleet, agent, key) - left);
}

/* False: it goes on. */
static bool judge(struct own_fleet *fleet, struct own_agent *agent, struct own_waiter *waiter, int rv,
                  const struct owner_answer *answer) {
    struct own_key *key = &fleet->keys[waiter->key];
    switch (rv) {
        case CO_OK:
            if (answer->source == SPENDER_LOCAL) own_counted(fleet, agent, key, waiter->take.part, waiter->take.n);
            if (answer->source == SPENDER_FALLBACK) {
                key->fallback += waiter->take.n, agent->fallbacks += waiter->take.n;
                return true;
            }
            own_decided(key);
            key->admitted += waiter->take.n;
            if (chance(fleet, fleet->plan.back_permille)) give_back(fleet, agent, waiter);
            return true;
        case CO_AGAIN:
            if (!answer->node) return false;
            waiter->asked = ++fleet->numbers;
            post_peer(fleet, OWN_PEER_TAKE, agent, answer->node, answer->request, waiter->asked);
            return false;
        case CO_BUSY:
            own_decided(key);
            key->refused++;
            return true;
        case CO_NOLEADER:
            if (agent->cut_ns <= fleet->now_ns) own_undecided(fleet, key);
            return true;
        default: cr_assert_fail("%s: %s", co_strerror(rv), answer->text); return true;
    }
}

static void retry_all(struct own_fleet *fleet, struct own_agent *agent) {
    size_t kept = 0, count = agent->waiting;
    for (size_t i = 0; i < count; i++) {
        struct own_waiter *waiter = &agent->waiters[i];
        struct owner_answer answer;
        bool over = false;
        if (!waiter->asked)
            over = judge(fleet, agent, waiter, owner_take(agent->owner, &waiter->take, own_now(fleet, agent), &answer),
                         &answer);
        if (!over) agent->waiters[kept++] = *waiter;
    }
    agent->waiting = kept;
}

static void take_one(struct own_fleet *fleet, struct own_agent *agent, unsigned key) {
    if (agent->waiting == OWN_WAITERS) return;
    struct own_waiter *waiter = &agent->waiters[agent->waiting++];
    struct owner_answer answer;
    *waiter = (struct own_waiter){.key = key};
    waiter->take.name = slice_text(fleet->definition.name);
    waiter->take.key = slice_text(fleet->keys[key].text);
    waiter->take.n = fleet->plan.take_most ? rng_between(&fleet->rng, 1, fleet->plan.take_most) : 1;
    waiter->take.since_ns = local_ns(fleet, agent);
    int rv = owner_take(agent->owner, &waiter->take, own_now(fleet, agent), &answer);
    if (judge(fleet, agent, waiter, rv, &answer)) agent->waiting--;
}

static void takes(struct own_fleet *fleet, struct own_agent *agent) {
    for (unsigned i = 0; i < fleet->plan.keys; i++) {
        double rate = fleet->plan.rate(fleet->plan.data, agent->number, i, fleet->now_ns);
        agent->due[i] += rate / 1000 * ((double)rng_below(&fleet->rng, 2000001) / 1e6);
        for (; agent->due[i] >= 1; agent->due[i]--) take_one(fleet, agent, i);
    }
}

/* -- notices ------------------------------------------------------------------------------------------------------ */

static void look(struct own_fleet *fleet) {
    uint64_t applied = machine_applied(fleet->servers.world.machine), index;
    if (fleet->seen == applied) return;
    const Pb__QuotaNotice *notice = quota_servers_notice(&fleet->servers, fleet->definition.name, &index);
    arena_reset(&fleet->arena);
    fleet->notice = notice ? (Pb__QuotaNotice *)message_copy(&fleet->arena, &notice->base) : NULL;
    if (notice && index != fleet->notice_index) {
        OWN_SAY(fleet, "epoch %lu:", notice->epoch);
        for (size_t i = 0; i < notice->n_members && getenv("COORD_VERBOSE"); i++)
            fprintf(stderr, " %s/%lu", notice->members[i], notice->member_leases[i]);
        OWN_SAY(fleet, " active %lu:", notice->active);
        for (size_t i = 0; i < notice->n_active_members && getenv("COORD_VERBOSE"); i++)
            fprintf(stderr, " %s/%lu", notice->active_members[i], notice->active_leases[i]);
        OWN_SAY(fleet, " losses %zu, splits %zu\n", notice->n_losses, notice->n_splits);
    }
    fleet->notice_index = index;
    fleet->seen = applied;
}

static void follow(struct own_fleet *fleet, struct own_agent *agent) {
    const char *name;
    if (!agent->following && owner_follow(agent->owner, &name, &agent->follow_index)) {
        agent->following = true;
        agent->follow_ns = fleet->now_ns + latency(fleet);
    }
    if (!agent->following || fleet->now_ns < agent->follow_ns) return;
    bool cut = agent->cut_ns > fleet->now_ns, long_ago = fleet->now_ns > agent->follow_ns + 3 * OWN_S;
    if (cut ? !long_ago : agent->follow_index && fleet->notice_index <= agent->follow_index && !long_ago) return;
    agent->following = false;
    owner_followed(agent->owner, fleet->definition.name, cut ? CO_NOLEADER : CO_OK, cut ? NULL : fleet->notice,
                   fleet->notice_index, own_now(fleet, agent));
}

size_t own_members(struct own_fleet *fleet) {
    look(fleet);
    return fleet->notice && fleet->notice->epoch == fleet->notice->active ? fleet->notice->n_active_members : 0;
}

/* -- time goes on ------------------------------------------------------------------------------------------------- */

static void drive(struct own_fleet *fleet, struct own_agent *agent) {
    const Pb__QuotaAskCommand *command;
    struct owner_message message;
    for (unsigned turn = 0;; turn++) {
        struct owner_now now = own_now(fleet, agent);
        cr_assert_lt(turn, 1000, "it has something to do for ever");
        if (owner_woken(agent->owner)) retry_all(fleet, agent);
        if (owner_deadline_ns(agent->owner) > now.ns) return;
        owner_tick(agent->owner, now);
        follow(fleet, agent);
        if (owner_ask(agent->owner, now, &command)) post_ask(fleet, agent, command);
        while (owner_send(agent->owner, now, &message))
            post_peer(fleet, OWN_PEER_MESSAGE, agent, message.node, message.payload, message.id);
    }
}

static void ended(struct own_agent *agent) {
    owner_free(agent->owner);
    agent->owner = NULL;
    agent->gone = true;
    agent->life++;
    agent->waiting = 0;
}

static bool is_up(const struct own_fleet *fleet, const struct own_agent *agent) {
    return !agent->gone && agent->paused_ns <= fleet->now_ns;
}

/* Somebody can be an owner, and everybody can ask it. */
static bool may_count(const struct own_fleet *fleet) {
    bool any = false;
    for (unsigned i = 0; i < fleet->plan.agents; i++) {
        any |= !fleet->agents[i].gone && !fleet->agents[i].ending && fleet->agents[i].passing;
        for (unsigned j = 0; j < fleet->plan.agents; j++)
            if (fleet->cut[i][j]) return false;
    }
    return any;
}

static void step(struct own_fleet *fleet) {
    if (!fleet->servers.led && fleet->now_ns >= fleet->unled_ns) quota_servers_lead(&fleet->servers, fleet->now_ns);
    if (!fleet->servers.led || !may_count(fleet)) trouble(fleet, fleet->now_ns);
    quota_servers_tick(&fleet->servers, fleet->now_ns);
    messages_go(fleet);
    look(fleet);
    for (unsigned i = 0; i < fleet->plan.agents; i++) {
        struct own_agent *agent = &fleet->agents[i];
        if (!agent->gone && (agent->paused_ns > fleet->now_ns || agent->cut_ns > fleet->now_ns))
            trouble(fleet, fleet->now_ns);
        if (!is_up(fleet, agent)) continue;
        follow(fleet, agent);
        drive(fleet, agent);
        if (!agent->ending) takes(fleet, agent);
        drive(fleet, agent);
        if (agent->ending && !owner_leave(agent->owner, own_now(fleet, agent))) ended(agent);
    }
    if (fleet->now_ns / OWN_MS % 3 == 0) own_look_beside(fleet);
}

void own_run(struct own_fleet *fleet, uint64_t until_ns) {
    for (; fleet->now_ns < until_ns; fleet->now_ns += OWN_MS) step(fleet);
}

/* -- weather ------------------------------------------------------------------------------------------------------ */

void own_define(struct own_fleet *fleet, const Pb__QuotaDefinition *definition) {
    char *name = fleet->definition.name;
    fleet->definition = *definition;
    fleet->definition.name = name;
    CHECK(quota_definition_check(&fleet->definition, NULL) == CO_OK);
    quota_servers_define(&fleet->servers, &fleet->definition);
    fleet->capacity = quota_capacity(&fleet->definition);
}

void own_passes(struct own_fleet *fleet, unsigned agent, bool passing) {
    struct own_agent *at = &fleet->agents[agent];
    if (at->passing == passing) return;
    OWN_SAY(fleet, "a%u passes: %d\n", agent, passing);
    at->passing = passing;
    quota_servers_instance(&fleet->servers, at->node, passing);
    if (!at->gone) owner_serves(at->owner, fleet->definition.name, passing, own_now(fleet, at));
    trouble(fleet, fleet->now_ns);
}

void own_crash(struct own_fleet *fleet, unsigned agent, bool noticed) {
    struct own_agent *at = &fleet->agents[agent];
    if (at->gone) return;
    OWN_SAY(fleet, "a%u crashes, noticed %d\n", agent, noticed);
    ended(at);
    trouble(fleet, fleet->now_ns);
    if (!noticed) return;
    quota_servers_node(&fleet->servers, at->node, false);
    quota_servers_node(&fleet->servers, at->node, true);
}

void own_begin(struct own_fleet *fleet, unsigned agent) {
    if (!fleet->agents[agent].gone) return;
    OWN_SAY(fleet, "a%u begins\n", agent);
    fleet->agents[agent].paused_ns = 0;
    agent_begin(fleet, &fleet->agents[agent]);
    trouble(fleet, fleet->now_ns);
}

void own_end(struct own_fleet *fleet, unsigned agent) {
    OWN_SAY(fleet, "a%u is to end\n", agent);
    fleet->agents[agent].ending = true;
    trouble(fleet, fleet->now_ns);
}

void own_pause(struct own_fleet *fleet, unsigned agent, uint64_t for_ns) {
    OWN_SAY(fleet, "a%u pauses for %lu ms\n", agent, for_ns / OWN_MS);
    fleet->agents[agent].paused_ns = fleet->now_ns + for_ns;
}
void own_cut_off(struct own_fleet *fleet, unsigned agent, uint64_t for_ns) {
    OWN_SAY(fleet, "a%u is cut off for %lu ms\n", agent, for_ns / OWN_MS);
    fleet->agents[agent].cut_ns = fleet->now_ns + for_ns;
}
void own_cut(struct own_fleet *fleet, unsigned a, unsigned b, bool cut) { fleet->cut[a][b] = fleet->cut[b][a] = cut; }

void own_new_leader(struct own_fleet *fleet, uint64_t after_ns) {
    quota_servers_unled(&fleet->servers);
    fleet->unled_ns = fleet->now_ns + after_ns;
}

static void orderly_event(struct own_fleet *fleet, unsigned agent) {
    const struct own_agent *at = &fleet->agents[agent];
    if (at->gone) own_begin(fleet, agent);
    else if (chance(fleet, 500)) own_end(fleet, agent);
    else own_passes(fleet, agent, !at->passing);
}

void own_chaos(struct own_fleet *fleet, uint64_t until_ns, bool orderly) {
    while (fleet->now_ns < until_ns) {
        own_run(fleet, fleet->now_ns + rng_between(&fleet->rng, 20, chance(fleet, 500) ? 300 : 3000) * OWN_MS);
        unsigned agent = (unsigned)rng_below(&fleet->rng, fleet->plan.agents);
        unsigned other = (unsigned)rng_below(&fleet->rng, fleet->plan.agents);
        uint64_t for_ns = rng_between(&fleet->rng, 100, chance(fleet, 300) ? 10000 : 1500) * OWN_MS;
        switch (orderly ? 9 : rng_below(&fleet->rng, 9)) {
            case 0: own_cut_off(fleet, agent, for_ns); break;
            case 1: own_pause(fleet, agent, for_ns); break;
            case 2: own_crash(fleet, agent, chance(fleet, 500)); break;
            case 3: own_new_leader(fleet, rng_between(&fleet->rng, 100, 2500) * OWN_MS); break;
            case 4: own_cut(fleet, agent, other, true); break;
            case 5:
                memset(fleet->cut, 0, sizeof fleet->cut);
                own_begin(fleet, agent);
                break;
            default: orderly_event(fleet, agent); break;
        }
    }
}
