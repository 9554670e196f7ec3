#include "consensus/requests.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"

#define DEPOSED_MS       1000
#define HANDOVER_WAIT_MS 2000

void requests_init(struct requests *r, const struct requests_callbacks *callbacks, uint64_t id,
                   uint64_t first_context) {
    CHECK(callbacks->has_room);
    *r = (struct requests){.callbacks = *callbacks,
                           .id = id,
                           .read_context = first_context,
                           .role = (enum raft_role) - 1,
                           .out_of_space_after = UINT64_MAX};
    r->waiting_last = &r->waiting, r->pending_last = &r->pending;
}

/* -- commands ----------------------------------------------------------------------------------------------------- */
void requests_end(struct node_proposal *proposal, int error) {
    CHECK(proposal->data && error != CO_OK); /* without data it was answered already */
    raft_data_unref(proposal->data);
    proposal->data = NULL;
    proposal->done(proposal, error, NULL);
}

void requests_answer(struct node_proposal *proposal, const void *result) {
    CHECK(proposal->data);
    raft_data_unref(proposal->data);
    proposal->data = NULL;
    proposal->done(proposal, CO_OK, result);
}

void requests_command(struct requests *r, struct node_proposal *proposal) {
    CHECK(proposal->data && proposal->done);
    CHECK(*r->waiting_last == NULL);
    proposal->next = NULL;
    *r->waiting_last = proposal;
    r->waiting_last = &proposal->next;
}

/* Another server leads: hands it the commands. Commands from a server that took us for the leader go back to that
 * server. */
static void forward_waiting(struct requests *r, struct raft *raft) {
    uint64_t leader = raft_leader(raft);
    struct node_proposal **at = &r->waiting, *p;
    while ((p = *at) != NULL) {
        if (!p->here_only) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        requests_end(p, CO_NOLEADER);
    }
    r->waiting_last = at;
    if (!r->waiting || !leader || leader == r->id || !r->callbacks.forward) return;
    if (!r->callbacks.forward(r->callbacks.data, leader, r->waiting)) return;
    r->waiting = NULL, r->waiting_last = &r->waiting;
}

static void waiting_fail(struct requests *r, int error) {
    struct node_proposal *proposal = r->waiting, *next;
    r->waiting = NULL, r->waiting_last = &r->waiting;
    for (; proposal; proposal = next) next = proposal->next, requests_end(proposal, error);
}

/* This server leads anew and begins to append at `first`. Another leader has cut off what it appended from there on in
 * an earlier term, so that will never be committed. These commands have to leave the list, which is in the order of
 * indexes. */
static void pending_overtaken(struct requests *r, uint64_t first, uint64_t term) {
    if (r->pending_term == term) return;
    r->pending_term = term;
    struct node_proposal **at = &r->pending, *p;
    while ((p = *at) != NULL) {
        if (p->index < first) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        requests_end(p, CO_UNKNOWN_OUTCOME);
    }
    r->pending_last = at;
}

/* Refuses commands of a fenced leader. While it hands over, commands that other servers sent wait for that; its own
 * clients ask elsewhere. */
static void refuse_fenced(struct requests *r, struct raft *raft, uint64_t now_ms) {
    bool patient = !r->refusing && now_ms - r->fenced_ms < HANDOVER_WAIT_MS;
    struct node_proposal **at = &r->waiting, *p;
    while ((p = *at) != NULL) {
        if (p->here_only && patient) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        requests_end(p, CO_FENCED);
    }
    r->waiting_last = at;
    if (r->waiting && raft_role(raft) != RAFT_LEADER) forward_waiting(r, raft);
}

/* All commands of this turn become one append. */
static void propose_allowed(struct requests *r, struct raft *raft, uint64_t now_ms) {
    if (!r->waiting) return;
    if (r->fenced || r->refusing) {
        refuse_fenced(r, raft, now_ms);
        return;
    }
    if (raft_role(raft) != RAFT_LEADER || raft_failed(raft)) {
        forward_waiting(r, raft);
        return;
    }
    size_t count = 0;
    uint64_t bytes = 0;
    for (struct node_proposal *p = r->waiting; p; p = p->next) count++, bytes += p->data->size + RAFT_ENTRY_OVERHEAD;
    if (!r->callbacks.has_room(r->callbacks.data, bytes) || !raft_quorum_has_room(raft)) {
        waiting_fail(r, CO_DISKFULL);
        return;
    }
    struct raft_entry *entries = mem_alloc(count * sizeof *entries);
    size_t i = 0;
    for (struct node_proposal *p = r->waiting; p; p = p->next)
        entries[i++] = (struct raft_entry){.type = RAFT_ENTRY_COMMAND, .data = raft_data_ref(p->data)};
    struct raft_event event = {.type = RAFT_PROPOSE, .now_ms = now_ms, .unix_ms = r->unix_ms};
    event.u.propose.entries = entries;
    event.u.propose.count = count;
    if (raft_step(raft, &event) == CO_OK) {
        uint64_t index = event.u.propose.first_index;
        pending_overtaken(r, index, event.u.propose.term);
        for (struct node_proposal *p = r->waiting; p; p = p->next) p->index = index++, p->term = event.u.propose.term;
        CHECK(*r->pending_last == NULL && (!r->pending || r->pending->index < event.u.propose.first_index));
        *r->pending_last = r->waiting;
        r->pending_last = r->waiting_last;
        r->waiting = NULL, r->waiting_last = &r->waiting;
    } else {
        for (i = 0; i < count; i++) raft_data_unref(entries[i].data);
    }
    free(entries);
}

/* Takes the commands out that may not go on: they are answered, or moved to `held`. */
static void refuse_waiting(struct requests *r, uint64_t leader, bool may_judge, struct node_proposal ***held) {
    struct node_proposal **at = &r->waiting, *p;
    while ((p = *at) != NULL) {
        const void *instead = r->callbacks.refuse(r->callbacks.data, leader, p);
        if (!instead) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->next = NULL;
        if (may_judge) requests_answer(p, instead);
        else **held = p, *held = &p->next;
    }
    r->waiting_last = at;
}

static void propose_waiting(struct requests *r, struct raft *raft, uint64_t now_ms) {
    uint64_t leader = raft_leader(raft);
    if (!r->waiting) return;
    if (!r->callbacks.refuse || !leader || raft_failed(raft)) {
        propose_allowed(r, raft, now_ms);
        return;
    }
    struct node_proposal *held = NULL, **held_last = &held;
    refuse_waiting(r, leader, leader != r->id || r->ready, &held_last);
    propose_allowed(r, raft, now_ms);
    *r->waiting_last = held;
    if (held) r->waiting_last = held_last;
}

static void expire_waiting(struct requests *r, uint64_t now_ms) {
    struct node_proposal **at = &r->waiting, *p;
    while ((p = *at) != NULL) {
        if (now_ms < p->deadline_ms) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        if (!*at) r->waiting_last = at;
        requests_end(p, CO_NOLEADER);
    }
}

/* The proposal whose entry this is. Older ones were overtaken by another leader's entries: their fate was settled
 * elsewhere. */
struct node_proposal *requests_committed(struct requests *r, uint64_t index, uint64_t term) {
    struct node_proposal *p;
    while ((p = r->pending) != NULL && p->index <= index) {
        r->pending = p->next;
        if (!r->pending) r->pending_last = &r->pending;
        if (p->index == index && p->term == term) return p;
        requests_end(p, CO_UNKNOWN_OUTCOME);
    }
    return NULL;
}

static void pending_fail(struct requests *r, int error) {
    struct node_proposal *p = r->pending, *next;
    r->pending = NULL, r->pending_last = &r->pending;
    for (; p; p = next) next = p->next, requests_end(p, error);
}

void requests_give_up(struct requests *r, struct raft *raft, uint64_t now_ms) {
    bool leads = raft_role(raft) == RAFT_LEADER;
    if (!leads || raft_quorum_has_room(raft)) r->room_ms = now_ms;
    bool wait = now_ms - (leads ? r->room_ms : r->deposed_ms) < DEPOSED_MS && (leads || !r->cut_off);
    if (!r->pending || wait) return;
    pending_fail(r, CO_UNKNOWN_OUTCOME);
}

void requests_fail(struct requests *r, int pending_error, int waiting_error) {
    pending_fail(r, pending_error);
    waiting_fail(r, waiting_error);
}

/* -- reads -------------------------------------------------------------------------------------------------------- */
void requests_read(struct requests *r, struct node_read *read) {
    CHECK(read->done);
    read->next = r->reads;
    r->reads = read;
}

static void reads_end(struct node_read **list, int error) {
    struct node_read *read = *list, *next;
    *list = NULL;
    for (; read; read = next) next = read->next, read->done(read, error);
}

void requests_end_reads(struct requests *r, int error) {
    reads_end(&r->reads, error), reads_end(&r->reads_round, error), reads_end(&r->reads_apply, error);
}

static void reads_refuse_foreign(struct requests *r) {
    struct node_read **at = &r->reads, *read;
    while ((read = *at) != NULL) {
        if (!read->here_only) {
            at = &read->next;
            continue;
        }
        *at = read->next;
        read->done(read, CO_NOTLEADER);
    }
}

/* Answers reads of other servers that need no round. The other server itself waits until it has applied the index. */
static void answer_vouched(struct requests *r, struct raft *raft) {
    struct node_read **at = &r->reads, *read;
    while ((read = *at) != NULL) {
        if (!read->from_term || !raft_vouched(raft, read->from, read->from_term, &read->index)) {
            at = &read->next;
            continue;
        }
        *at = read->next;
        read->done(read, CO_OK);
    }
}

/* One question to the core for all reads that came since the last one; the next when it is answered. */
static void ask_reads(struct requests *r, struct raft *raft, uint64_t now_ms) {
    answer_vouched(r, raft);
    if (!r->reads || r->reads_round) return;
    struct raft_event event = {.type = RAFT_READ, .now_ms = now_ms};
    event.u.read.context = ++r->read_context;
    if (raft_step(raft, &event) != CO_OK) {
        reads_refuse_foreign(r);
        if (!r->reads) return;
        uint64_t leader = raft_leader(raft);
        if (!leader || leader == r->id || !r->callbacks.ask_read) return;
        if (!r->callbacks.ask_read(r->callbacks.data, leader, event.u.read.context, raft_term(raft))) return;
    }
    CHECK(r->reads_round == NULL); /* one question at a time */
    r->reads_round = r->reads;
    r->reads = NULL;
}

static void expire_reads(struct node_read **at, uint64_t now_ms) {
    struct node_read *read;
    while ((read = *at) != NULL) {
        if (now_ms < read->deadline_ms) {
            at = &read->next;
            continue;
        }
        *at = read->next;
        read->done(read, CO_NOLEADER);
    }
}

void requests_read_answered(struct requests *r, uint64_t context, uint64_t index, int error) {
    if (context != r->read_context) return;
    struct node_read *read = r->reads_round, *next;
    r->reads_round = NULL;
    for (; read; read = next) {
        next = read->next;
        struct node_read **list = error == CO_OK ? &r->reads_apply : &r->reads; /* on an error they are asked again */
        read->index = index;
        read->next = *list;
        *list = read;
    }
}

void requests_out_of_space(struct requests *r, struct raft *raft) { r->out_of_space_after = raft_last_index(raft); }

void requests_out_of_space_applier(struct requests *r, bool starves) { r->applier_out_of_space = starves; }

void requests_serve(struct requests *r, uint64_t applied) {
    struct node_read **at = &r->reads_apply, *read;
    while ((read = *at) != NULL) {
        bool starved = read->index > applied && r->role != RAFT_LEADER &&
                       (read->index > r->out_of_space_after || r->applier_out_of_space);
        if (read->index > applied && !starved) {
            at = &read->next;
            continue;
        }
        *at = read->next;
        read->done(read, starved ? CO_DISKFULL : CO_OK);
    }
}

/* Another leader, or none: a question that is still with the old one may never be answered (its process stands
 * still, the network is cut). It is asked again, of the new one; an answer that comes late has another context. */
static void take_back_reads(struct requests *r) {
    for (struct node_read *read = r->reads_round, *next; read; read = next) {
        next = read->next;
        read->next = r->reads;
        r->reads = read;
    }
    r->reads_round = NULL;
}

/* -- the turn ----------------------------------------------------------------------------------------------------- */
void requests_turn(struct requests *r, struct raft *raft, uint64_t now_ms, uint64_t unix_ms) {
    r->unix_ms = unix_ms;
    if (raft_last_index(raft) != r->out_of_space_after) r->out_of_space_after = UINT64_MAX;
    propose_waiting(r, raft, now_ms);
    expire_waiting(r, now_ms);
    expire_reads(&r->reads, now_ms), expire_reads(&r->reads_round, now_ms), expire_reads(&r->reads_apply, now_ms);
    ask_reads(r, raft, now_ms);
}

void requests_fence(struct requests *r, bool fenced, uint64_t now_ms) {
    if (fenced && !r->fenced) r->fenced_ms = now_ms;
    r->fenced = fenced;
}

bool requests_ready(struct requests *r, struct raft *raft, uint64_t applied) {
    if (!raft_leader_ready(raft)) {
        r->ready_index = 0;
        return false;
    }
    if (r->ready_index == 0) r->ready_index = raft_commit_index(raft);
    return applied >= r->ready_index && !r->fenced;
}

/* A member that was removed can only have shown entries before the one that removed it, so this server has to have
 * applied that. */
bool requests_alone(struct requests *r, struct raft *raft, uint64_t applied) {
    return requests_ready(r, raft, applied) && raft_alone(raft) && applied >= raft_members_index(raft);
}

bool requests_role(struct requests *r, struct raft *raft, uint64_t applied, uint64_t now_ms) {
    bool ready = requests_ready(r, raft, applied);
    enum raft_role role = raft_role(raft);
    uint64_t term = raft_term(raft), leader = raft_leader(raft);
    if (role == r->role && term == r->term && ready == r->ready && leader == r->leader) return false;
    if (r->role == RAFT_LEADER && role != RAFT_LEADER) r->deposed_ms = now_ms;
    if (leader != r->leader || term != r->term) take_back_reads(r);
    r->role = role, r->term = term, r->ready = ready, r->leader = leader;
    return true;
}

uint64_t requests_deadline_ms(const struct requests *r) {
    uint64_t at = UINT64_MAX;
    for (struct node_proposal *p = r->waiting; p; p = p->next)
        if (p->deadline_ms < at) at = p->deadline_ms;
    struct node_read *lists[] = {r->reads, r->reads_round, r->reads_apply};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (struct node_read *read = lists[i]; read; read = read->next)
            if (read->deadline_ms < at) at = read->deadline_ms;
    return at;
}
