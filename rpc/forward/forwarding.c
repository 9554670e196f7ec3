#include "rpc/forward/forwarding.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "rpc/cluster/peers.h"
#include "rpc/wire/calls.h"
#include "rpc/wire/frame_unpack.h"

#define FRAME_ITEMS_MAX 512
#define WRITING_MOST    131072 /* writes being served, answered or not; more: CO_BUSY */
/* ours have at most 8 MiB and a little; a command goes on in other frames, which add to it */
#define COMMAND_MOST    (12u << 20)
#define FRAME_BYTES_MAX (8u << 20) /* of commands, or results, in one frame; one that is larger goes alone */
/* bytes of a refusal's text, which may quote the request; clients are shown less than that */
#define TEXT_MOST      1024
#define RESULT_BYTES   128 /* of a frame, besides text and message: numbers, the message's type */
#define SPARES_MOST    512
#define ONWARD_WAIT_MS 1000 /* the wait for a leader: after CO_NOLEADER a client agent may try another server */

/* A request of this process on its way to a leader. */
struct sent {
    struct call call;
    struct forwarding *owner;
    struct node_proposal *proposal; /* a command, or */
    struct rpc_renew *renew;        /* a renewal */
};

/* A request of another process that is being served here. */
struct served {
    struct mail mail;
    struct forwarding *owner;
    uint64_t from, number;
    int outcome;
    uint64_t index;
    bool yes;
    int refused;
    char *text;
    char *message_type; /* of the result's record; NULL: there is none */
    uint8_t *message;
    size_t message_size;
    struct judged judged; /* its requester is ours; NULL: there is no access control */
    enum { SERVED_WRITE, SERVED_READ, SERVED_RENEW } type;
    union {
        struct node_proposal proposal;
        struct node_read read;
        struct rpc_renew renew;
    } u;
};

struct forwarding {
    struct forwarding_callbacks callbacks;
    struct calls *sent;
    struct mailbox done;              /* served ones, from any thread */
    unsigned serving, writing;        /* of all kinds; writes */
    uint64_t leader, leader_since_ms; /* the leader, as forwarding_leader was told */
    bool swept;                       /* no request is with an earlier leader */
    bool cut_off;
    struct call read;      /* the question that is with the leader */
    uint64_t read_context; /* the node's number of it */
    bool stopping;
    struct arena frame; /* the frame being handled, decoded */
    struct mail *spare; /* served ones, SPARES_MOST at most, for the next */
    unsigned spares;
};

static void say(struct forwarding *f, uint64_t to, uint8_t type, const ProtobufCMessage *message) {
    f->callbacks.send(f->callbacks.data, to, type, message);
}

/* -- asking ------------------------------------------------------------------------------------------------------- */
static const struct call_method write_method = {.name = "write"}, renew_method = {.name = "renew"},
                                read_method = {.name = "read"};

static void sent_lost(struct call *call, int error, const ProtobufCMessage *answer);

static struct sent *sent_new(struct forwarding *f, const struct call_method *method, uint64_t leader,
                             uint64_t *number) {
    struct sent *sent = mem_zalloc(sizeof *sent);
    sent->owner = f, sent->call.done = sent_lost;
    *number = calls_enter(f->sent, &sent->call, method, leader);
    return sent;
}

static struct sent *sent_take(struct forwarding *f, const struct call_method *method, uint64_t number, uint64_t from) {
    struct call *call = calls_take(f->sent, method, number, from);
    return call ? CONTAINER_OF(call, struct sent, call) : NULL;
}

static void proposal_answer(struct node_proposal *proposal, int error, const struct machine_result *result) {
    raft_data_unref(proposal->data);
    proposal->data = NULL;
    proposal->done(proposal, error, result);
}

/* (1), (2) */
static void sent_lost(struct call *call, int error, const ProtobufCMessage *answer) {
    struct sent *sent = CONTAINER_OF(call, struct sent, call);
    struct forwarding *f = sent->owner;
    (void)error, (void)answer;
    bool again = (f->callbacks.mutations & FORWARDING_MUTATE_SEND_AGAIN) && sent->proposal && !f->stopping;
    if (again) f->callbacks.command(f->callbacks.data, sent->proposal);
    else if (sent->proposal) proposal_answer(sent->proposal, CO_UNKNOWN_OUTCOME, NULL);
    else sent->renew->done(sent->renew, CO_NOLEADER);
    free(sent);
}

static const struct requester *requester_of(struct forwarding *f, const struct requester *noted) {
    return f->callbacks.requester_of ? f->callbacks.requester_of(f->callbacks.data, noted) : NULL;
}

bool forwarding_writes(struct forwarding *f, uint64_t leader, struct node_proposal *list) {
    if (f->stopping || !f->callbacks.reach(f->callbacks.data, leader)) return false;
    while (list) {
        Pb__PeerWrites frame = PB__PEER_WRITES__INIT;
        Pb__PeerWrite writes[FRAME_ITEMS_MAX], *pointers[FRAME_ITEMS_MAX];
        size_t bytes = 0;
        for (; list && frame.n_writes < ARRAY_COUNT(writes) &&
               (bytes == 0 || bytes + list->data->size <= FRAME_BYTES_MAX);
             list = list->next) {
            Pb__PeerWrite *write = pointers[frame.n_writes] = &writes[frame.n_writes];
            *write = (Pb__PeerWrite)PB__PEER_WRITE__INIT;
            sent_new(f, &write_method, leader, &write->number)->proposal = list;
            write->command = (ProtobufCBinaryData){list->data->size, (uint8_t *)list->data->bytes};
            if (f->callbacks.region_of)
                write->region = (char *)(uintptr_t)f->callbacks.region_of(f->callbacks.data, list);
            const struct judged *judged = list->tag;
            const struct requester *requester = requester_of(f, judged ? judged->requester : NULL);
            write->token = (char *)(uintptr_t)requester_token(requester);
            if (requester) write->slot = requester->slot;
            write->client = judged && judged->client;
            bytes += list->data->size;
            frame.n_writes++;
        }
        frame.writes = pointers;
        say(f, leader, PEER_WRITES, &frame.base);
    }
    return true;
}

static void write_answered(struct node_proposal *proposal, const Pb__PeerResult *answer) {
    struct machine_result result = {.error = (int)answer->refused,
                                    .index = answer->index,
                                    .yes = answer->yes,
                                    .text = answer->text[0] ? answer->text : NULL};
    if (answer->message_type[0]) {
        result.record_type = answer->message_type;
        result.record = slice_make((const char *)answer->message.data, answer->message.len);
    }
    proposal_answer(proposal, CO_OK, &result);
}

/* Does the command name a region? Then the server has waited for the region already, as long as one should. */
static bool names_region(const struct forwarding *f, const struct node_proposal *proposal) {
    return f->callbacks.region_of && f->callbacks.region_of(f->callbacks.data, proposal)[0];
}

static bool take_results(struct forwarding *f, uint64_t from, struct slice payload) {
    Pb__PeerResults *results = frame_unpack(&pb__peer_results__descriptor, payload, &f->frame);
    for (size_t i = 0; results && i < results->n_results; i++) {
        const Pb__PeerResult *answer = results->results[i];
        struct sent *sent = sent_take(f, &write_method, answer->number, from);
        if (!sent) continue;
        if (answer->outcome == CO_OK) write_answered(sent->proposal, answer);
        else if (answer->outcome == CO_NOLEADER && !names_region(f, sent->proposal))
            f->callbacks.command(f->callbacks.data, sent->proposal);
        else proposal_answer(sent->proposal, (int)answer->outcome, NULL);
        free(sent);
    }
    arena_reset(&f->frame);
    return results != NULL;
}

static void read_lost(struct call *call, int error, const ProtobufCMessage *answer) {
    struct forwarding *f = CONTAINER_OF(call, struct forwarding, read);
    (void)error, (void)answer;
    if (!f->stopping) f->callbacks.read_answer(f->callbacks.data, f->read_context, 0, CO_NOTLEADER);
}

/* The node only asks a newer question when the one before is of no use any more, so that is cancelled. */
bool forwarding_read(struct forwarding *f, uint64_t leader, uint64_t context, uint64_t term) {
    if (f->stopping || !f->callbacks.reach(f->callbacks.data, leader)) return false;
    if (f->read.peer) calls_cancel(f->sent, &f->read);
    f->read.done = read_lost, f->read_context = context;
    Pb__PeerRead read = PB__PEER_READ__INIT;
    read.context = calls_enter(f->sent, &f->read, &read_method, leader), read.term = term;
    say(f, leader, PEER_READ, &read.base);
    return true;
}

static bool take_read_answer(struct forwarding *f, uint64_t from, struct slice payload) {
    Pb__PeerReadAnswer *answer = frame_unpack(&pb__peer_read_answer__descriptor, payload, NULL);
    if (!answer) return false;
    if (calls_take(f->sent, &read_method, answer->context, from))
        f->callbacks.read_answer(f->callbacks.data, f->read_context, answer->index,
                                 answer->outcome == CO_OK ? CO_OK : CO_NOTLEADER);
    frame_drop(answer);
    return true;
}

bool forwarding_renew(struct forwarding *f, uint64_t leader, struct rpc_renew *renew) {
    if (f->stopping || !f->callbacks.reach(f->callbacks.data, leader)) return false;
    Pb__PeerRenew message = PB__PEER_RENEW__INIT;
    sent_new(f, &renew_method, leader, &message.number)->renew = renew;
    const struct requester *requester = requester_of(f, renew->requester);
    message.token = (char *)(uintptr_t)requester_token(requester);
    if (requester) message.slot = requester->slot;
    message.session = renew->id, message.kind = renew->kind, message.look = renew->look, message.region = renew->region;
    say(f, leader, PEER_RENEW, &message.base);
    return true;
}

static bool take_renew_answer(struct forwarding *f, uint64_t from, struct slice payload) {
    Pb__PeerRenewAnswer *answer = frame_unpack(&pb__peer_renew_answer__descriptor, payload, NULL);
    if (!answer) return false;
    struct sent *sent = sent_take(f, &renew_method, answer->number, from);
    if (sent) {
        sent->renew->ttl_ns = answer->ttl_ns, sent->renew->left_ms = answer->left_ms;
        sent->renew->restored = answer->restored;
        if (answer->all.len) buffer_append(&sent->renew->all, answer->all.data, answer->all.len);
        sent->renew->done(sent->renew, (int)answer->outcome);
    }
    free(sent);
    frame_drop(answer);
    return true;
}

/* -- serving ------------------------------------------------------------------------------------------------------ */
static struct served *served_new(struct forwarding *f, uint64_t from, uint64_t number, int type) {
    struct served *served = f->spare ? CONTAINER_OF(f->spare, struct served, mail) : mem_alloc(sizeof *served);
    if (f->spare) f->spare = f->spare->next, f->spares--;
    memset(served, 0, sizeof *served);
    served->owner = f, served->from = from, served->number = number, served->type = type;
    f->serving++, f->writing += type == SERVED_WRITE;
    return served;
}

static void served_done(struct served *served) {
    struct forwarding *f = served->owner;
    if (mailbox_put(&f->done, &served->mail)) f->callbacks.wake(f->callbacks.data);
}

/* Applier or loop thread. */
static void write_done(struct node_proposal *proposal, int error, const void *data) {
    struct served *served = CONTAINER_OF(proposal, struct served, u.proposal);
    const struct machine_result *result = data;
    served->outcome = error;
    if (error == CO_OK) {
        served->index = result->index, served->yes = result->yes, served->refused = result->error;
        served->text = result->text ? mem_strndup(result->text, strnlen(result->text, TEXT_MOST)) : NULL;
        if (result->record_type) {
            served->message_type = mem_strdup(result->record_type);
            served->message_size = result->record.size;
            served->message = mem_alloc(result->record.size + 1);
            if (result->record.size) memcpy(served->message, result->record.data, result->record.size);
        }
    }
    served_done(served);
}

/* A command that is not allowed is answered as the machine answers one that it refuses. */
static void judge_write(struct forwarding *f, struct served *served, Pb__PeerWrite *write) {
    char why[TEXT_MOST] = "";
    int error =
        f->callbacks.may_write(f->callbacks.data, served->from, write, &f->frame, &served->judged, why, sizeof why);
    if (error == CO_OK) return;
    served->refused = error;
    if (why[0]) served->text = mem_strdup(why);
}

static bool take_writes(struct forwarding *f, uint64_t from, struct slice payload, uint64_t now_ms) {
    uint64_t deadline_ms = !f->callbacks.onward ? UINT64_MAX : f->cut_off ? now_ms : now_ms + ONWARD_WAIT_MS;
    Pb__PeerWrites *writes = frame_unpack(&pb__peer_writes__descriptor, payload, &f->frame);
    for (size_t i = 0; writes && i < writes->n_writes; i++) {
        Pb__PeerWrite *write = writes->writes[i];
        struct served *served = served_new(f, from, write->number, SERVED_WRITE);
        served->judged.client = write->client;
        if (f->writing > WRITING_MOST) served->outcome = CO_BUSY;
        else if (write->command.len < 2) served->outcome = CO_INVALID;
        else if (write->command.len > COMMAND_MOST) served->outcome = CO_TOOLARGE;
        else if (!f->callbacks.knows(f->callbacks.data,
                                     slice_make((const char *)write->command.data, write->command.len)))
            served->outcome = CO_UNSUPPORTED; /* of a newer server */
        else if (write->region[0] && !f->callbacks.command_in) served->outcome = CO_NOREGION;
        else if (f->callbacks.may_write) judge_write(f, served, write);
        if (served->outcome != CO_OK || served->refused != CO_OK) {
            served_done(served);
            continue;
        }
        served->u.proposal = (struct node_proposal){.done = write_done,
                                                    .deadline_ms = deadline_ms,
                                                    .here_only = !f->callbacks.onward,
                                                    .tag = &served->judged,
                                                    .data = raft_data_new(write->command.data, write->command.len)};
        if (write->region[0]) served->u.proposal.deadline_ms = now_ms + RPC_LEADER_WAIT_MS;
        if (write->region[0]) f->callbacks.command_in(f->callbacks.data, write->region, &served->u.proposal);
        else f->callbacks.command(f->callbacks.data, &served->u.proposal);
    }
    arena_reset(&f->frame);
    if (f->writing > WRITING_MOST) forwarding_woken(f);
    return writes != NULL;
}

static void read_done(struct node_read *read, int error) {
    struct served *served = CONTAINER_OF(read, struct served, u.read);
    served->outcome = error, served->index = read->index;
    served_done(served);
}

static bool take_read(struct forwarding *f, uint64_t from, struct slice payload, uint64_t now_ms) {
    Pb__PeerRead *ask = frame_unpack(&pb__peer_read__descriptor, payload, NULL);
    if (!ask) return false;
    struct served *served = served_new(f, from, ask->context, SERVED_READ);
    served->u.read = (struct node_read){.done = read_done,
                                        .deadline_ms = now_ms + 2000,
                                        .here_only = true,
                                        .from = from,
                                        .from_term = f->callbacks.onward ? 0 : ask->term};
    f->callbacks.read(f->callbacks.data, &served->u.read);
    frame_drop(ask);
    return true;
}

static void renew_done(struct rpc_renew *renew, int error) {
    struct served *served = CONTAINER_OF(renew, struct served, u.renew);
    served->outcome = error;
    served_done(served);
}

static bool take_renew(struct forwarding *f, uint64_t from, struct slice payload) {
    Pb__PeerRenew *ask = frame_unpack(&pb__peer_renew__descriptor, payload, NULL);
    if (!ask) return false;
    struct served *served = served_new(f, from, ask->number, SERVED_RENEW);
    served->u.renew.done = renew_done;
    served->u.renew.kind = (uint8_t)ask->kind, served->u.renew.look = ask->look;
    bool fits = strlen(ask->session) < sizeof served->u.renew.id && strlen(ask->region) <= RPC_REGION_MAX;
    struct requester *requester = NULL;
    int denied = f->callbacks.may_renew ? f->callbacks.may_renew(f->callbacks.data, from, ask, &requester) : CO_OK;
    served->judged.requester = served->u.renew.requester = requester;
    if (denied) {
        renew_done(&served->u.renew, denied);
    } else if (ask->kind <= UINT8_MAX && fits) {
        memcpy(served->u.renew.region, ask->region, strlen(ask->region) + 1);
        memcpy(served->u.renew.id, ask->session, strlen(ask->session) + 1);
        f->callbacks.renew(f->callbacks.data, &served->u.renew);
    } else {
        renew_done(&served->u.renew, CO_NOTFOUND);
    }
    frame_drop(ask);
    return true;
}

/* -- answers to others -------------------------------------------------------------------------------------------- */
static void answer_small(struct forwarding *f, const struct served *served) {
    if (served->type == SERVED_READ) {
        Pb__PeerReadAnswer answer = PB__PEER_READ_ANSWER__INIT;
        answer.context = served->number, answer.index = served->index, answer.outcome = (uint32_t)served->outcome;
        say(f, served->from, PEER_READ_ANSWER, &answer.base);
    } else {
        Pb__PeerRenewAnswer answer = PB__PEER_RENEW_ANSWER__INIT;
        answer.number = served->number, answer.outcome = (uint32_t)served->outcome;
        answer.ttl_ns = served->u.renew.ttl_ns, answer.left_ms = served->u.renew.left_ms;
        answer.restored = served->u.renew.restored;
        answer.all = (ProtobufCBinaryData){served->u.renew.all.size, (uint8_t *)served->u.renew.all.data};
        say(f, served->from, PEER_RENEW_ANSWER, &answer.base);
    }
}

static void fill_result(Pb__PeerResult *result, const struct served *served) {
    *result = (Pb__PeerResult)PB__PEER_RESULT__INIT;
    result->number = served->number, result->outcome = (uint32_t)served->outcome, result->index = served->index;
    result->yes = served->yes, result->refused = (uint32_t)served->refused;
    if (served->text) result->text = served->text;
    if (!served->message_type) return;
    result->message_type = served->message_type;
    result->message = (ProtobufCBinaryData){served->message_size, served->message};
}

/* The largest size of a result in a frame. */
static size_t result_bytes(const struct served *served) {
    return RESULT_BYTES + (served->text ? strlen(served->text) : 0) + served->message_size;
}

static void served_free(struct served *served) {
    struct forwarding *f = served->owner;
    f->serving--, f->writing -= served->type == SERVED_WRITE;
    free(served->text), free(served->message_type), free(served->message);
    requester_release(served->judged.requester);
    if (served->type == SERVED_RENEW) buffer_free(&served->u.renew.all);
    if (f->spares == SPARES_MOST) {
        free(served);
        return;
    }
    served->mail.next = f->spare, f->spare = &served->mail, f->spares++;
}

/* Results of one turn for one server share a frame. */
static struct mail *answer_results(struct forwarding *f, struct mail *mail) {
    Pb__PeerResults frame = PB__PEER_RESULTS__INIT;
    Pb__PeerResult results[256], *pointers[256];
    struct served *group[256];
    uint64_t to = CONTAINER_OF(mail, struct served, mail)->from;
    for (size_t bytes = 0; mail && frame.n_results < ARRAY_COUNT(results);) {
        struct served *served = CONTAINER_OF(mail, struct served, mail);
        size_t size = result_bytes(served);
        if (served->from != to || served->type != SERVED_WRITE || (bytes && bytes + size > FRAME_BYTES_MAX)) break;
        pointers[frame.n_results] = &results[frame.n_results];
        fill_result(&results[frame.n_results], served);
        group[frame.n_results++] = served;
        bytes += size;
        mail = mail->next;
    }
    frame.results = pointers;
    say(f, to, PEER_RESULTS, &frame.base);
    for (size_t i = 0; i < frame.n_results; i++) served_free(group[i]);
    return mail;
}

void forwarding_woken(struct forwarding *f) {
    struct mail *mail = mailbox_take(&f->done);
    while (mail) {
        struct served *served = CONTAINER_OF(mail, struct served, mail);
        if (served->type == SERVED_WRITE) {
            mail = answer_results(f, mail);
            continue;
        }
        mail = mail->next;
        answer_small(f, served);
        served_free(served);
    }
}

/* -- events ------------------------------------------------------------------------------------------------------- */
bool forwarding_frame(struct forwarding *f, uint64_t from, uint8_t type, struct slice payload, uint64_t now_ms) {
    switch (type) {
        case PEER_WRITES: return take_writes(f, from, payload, now_ms);
        case PEER_RESULTS: return take_results(f, from, payload);
        case PEER_READ: return take_read(f, from, payload, now_ms);
        case PEER_READ_ANSWER: return take_read_answer(f, from, payload);
        case PEER_RENEW: return take_renew(f, from, payload);
        case PEER_RENEW_ANSWER: return take_renew_answer(f, from, payload);
        default: return false;
    }
}

bool forwarding_waits(const struct forwarding *f, uint64_t peer) { return calls_with(f->sent, peer); }

void forwarding_down(struct forwarding *f, uint64_t peer) { calls_lose(f->sent, peer, 0); }

#define DEPOSED_MS 500 /* so long answers of a leader that handed over in order may still come */
void forwarding_leader(struct forwarding *f, uint64_t leader, bool cut_off, uint64_t now_ms) {
    f->cut_off = cut_off;
    if (cut_off) calls_lose(f->sent, 0, 0);
    if (leader != f->leader) f->leader = leader, f->leader_since_ms = now_ms, f->swept = false;
    if (!leader || f->swept || now_ms - f->leader_since_ms < DEPOSED_MS) return;
    f->swept = true; /* from now on requests go only to this leader */
    calls_lose(f->sent, 0, leader);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct forwarding *forwarding_new(const struct forwarding_callbacks *callbacks, uint64_t first_number) {
    struct forwarding *f = mem_zalloc(sizeof *f);
    f->callbacks = *callbacks;
    f->sent = calls_new(&(struct calls_callbacks){0}, NULL, first_number);
    return f;
}

void forwarding_stop(struct forwarding *f) {
    f->stopping = true;
    calls_stop(f->sent);
}

void forwarding_free(struct forwarding *f) {
    for (struct mail *mail = mailbox_take(&f->done), *next; mail; mail = next) {
        next = mail->next;
        served_free(CONTAINER_OF(mail, struct served, mail));
    }
    CHECK(f->serving == 0);
    for (struct mail *spare; (spare = f->spare) != NULL; free(CONTAINER_OF(spare, struct served, mail)))
        f->spare = spare->next;
    calls_free(f->sent);
    arena_free(&f->frame);
    free(f);
}
