/* The rules that hold always. The checkers look at all that servers write, send, commit and apply, and at the answers
 * to clients; they know nothing of faults and scenarios. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "tests/sim/module.h"

#define NAME(server) (server)->id
#define P            PRIu64

/* -- what a server's log holds -- */

static unsigned members_differ(const struct raft_members *a, const struct raft_members *b) {
    unsigned differ = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct raft_member *other = raft_members_find(b, a->member[i].id);
        if (!other || other->voter != a->member[i].voter) differ++;
    }
    for (uint32_t i = 0; i < b->count; i++)
        if (!raft_members_find(a, b->member[i].id)) differ++;
    return differ;
}

static void check_change(struct server *server, uint64_t index, uint64_t term, const struct seen *seen) {
    struct sim *sim = server->sim;
    uint64_t before_at = 0;
    const struct raft_members *before = chronicle_members(sim->chronicle, &server->memory, index - 1, &before_at);
    if (before && members_differ(before, seen->members) > 1)
        sim_violation(sim, RULE_MEMBERS, "s%" P ": the configuration at %" P " changes more than one server",
                      NAME(server), index);
    if (!server_leads(server) || raft_term(server->raft) != term) return;
    uint64_t commit = raft_commit_index(server->raft);
    if (before_at > commit)
        sim_violation(sim, RULE_MEMBERS,
                      "s%" P ": a change at %" P " while the one at %" P " has not committed (%" P ")", NAME(server),
                      index, before_at, commit);
    if (log_terms_at(&server->memory, commit) != term)
        sim_violation(sim, RULE_MEMBERS, "s%" P ": a change at %" P " before an entry of term %" P " has committed",
                      NAME(server), index, term);
}

static void persist_entry(struct server *server, const struct raft_entry *entry) {
    struct sim *sim = server->sim;
    struct log_terms *log = &server->memory;
    if (entry->index != log_terms_last(log) + 1) {
        sim_violation(sim, RULE_LOG, "s%" P " appends %" P " after %" P, NAME(server), entry->index,
                      log_terms_last(log));
        return;
    }
    uint64_t prev_term = log_terms_at(log, entry->index - 1);
    if (entry->term < prev_term || entry->term > raft_term(server->raft))
        sim_violation(sim, RULE_LOG, "s%" P " appends %" P " of term %" P " after term %" P, NAME(server), entry->index,
                      entry->term, prev_term);
    struct seen *seen = chronicle_note(sim->chronicle, entry, prev_term);
    if (!seen) {
        sim_violation(sim, RULE_LOG,
                      "s%" P ": entry %" P " of term %" P " is another one elsewhere, or follows another one",
                      NAME(server), entry->index, entry->term);
        return;
    }
    if (seen->members) check_change(server, entry->index, entry->term, seen);
    log_terms_append(log, entry->term);
    if (seen->members) server->members_index = entry->index;
}

void check_persist(struct server *server, const struct raft_persist *op) {
    struct sim *sim = server->sim;
    uint64_t commit =
        server->seen_commit; /* as of the turn before: in one turn an end may go and its successor commit */
    if (op->hard_state && op->term < server->durable_term)
        sim_violation(sim, RULE_FORWARD, "s%" P " writes term %" P " after %" P, NAME(server), op->term,
                      server->durable_term);
    if (op->install_snapshot) {
        if (op->snapshot.index < commit)
            sim_violation(sim, RULE_FORWARD, "s%" P " installs a snapshot at %" P " over its commit index %" P,
                          NAME(server), op->snapshot.index, commit);
        log_terms_reset(&server->memory, op->snapshot.index, op->snapshot.term);
        server->members_index = op->snapshot.members_index;
    }
    if (op->truncate_from) {
        if (op->truncate_from <= commit)
            sim_violation(sim, RULE_COMPLETE, "s%" P " cuts its log from %" P " on, has committed up to %" P,
                          NAME(server), op->truncate_from, commit);
        log_terms_cut(&server->memory, op->truncate_from);
        if (server->members_index >= op->truncate_from) {
            server->members_index = 0;
            chronicle_members(sim->chronicle, &server->memory, op->truncate_from - 1, &server->members_index);
        }
    }
    for (size_t i = 0; i < op->entry_count; i++) persist_entry(server, &op->entries[i]);
}

/* -- what its disk holds -- */

struct disk_picture {
    uint64_t term, vote;
    struct log_terms log;
};

static void picture_hard_state(struct disk_picture *picture, const struct raft_persist *op) {
    if (!op->hard_state) return;
    picture->term = op->term;
    picture->vote = op->vote;
}

static void picture_log(struct disk_picture *picture, const struct raft_persist *op) {
    if (op->install_snapshot) log_terms_reset(&picture->log, op->snapshot.index, op->snapshot.term);
    if (op->truncate_from) log_terms_cut(&picture->log, op->truncate_from);
    for (size_t i = 0; i < op->entry_count; i++) log_terms_append(&picture->log, op->entries[i].term);
}

void check_durable(struct server *server, const struct raft_persist *op) {
    if (op->hard_state && op->term == server->durable_term && server->durable_vote != 0 &&
        op->vote != server->durable_vote)
        sim_violation(server->sim, RULE_FORWARD, "s%" P " changes its vote in term %" P " from %" P " to %" P,
                      NAME(server), op->term, server->durable_vote, op->vote);
    struct disk_picture picture = {server->durable_term, server->durable_vote, server->durable};
    picture_hard_state(&picture, op);
    picture_log(&picture, op);
    server->durable_term = picture.term;
    server->durable_vote = picture.vote;
    server->durable = picture.log;
}

static bool picture_fits(const struct disk_picture *picture, const struct raft_start *start,
                         const struct log_terms *found) {
    struct log_terms wanted = {0};
    log_terms_copy(&wanted, &picture->log);
    log_terms_rebase(&wanted, found->base, found->base_term);
    bool fits = picture->term == start->term && picture->vote == start->vote && log_terms_equal(&wanted, found);
    free(wanted.terms);
    return fits;
}

/* A server has to find all that was durable, plus a beginning of the write that was under way. */
static bool recovery_fits(struct server *server, const struct raft_start *start, const struct log_terms *found) {
    struct disk_picture picture = {server->durable_term, server->durable_vote, {0}};
    log_terms_copy(&picture.log, &server->durable);
    bool fits = picture_fits(&picture, start, found);
    for (struct persist *p = server->group; p && !fits; p = p->next) {
        picture_hard_state(&picture, &p->op);
        fits = p->op.install_snapshot && picture_fits(&picture, start, found);
        picture_log(&picture, &p->op);
        fits = fits || picture_fits(&picture, start, found);
    }
    free(picture.log.terms);
    return fits;
}

void check_recovered(struct server *server, const struct raft_start *start) {
    struct sim *sim = server->sim;
    struct log_terms found = {.base = start->snapshot.index, .base_term = start->snapshot.term};
    for (size_t i = 0; i < start->entry_count; i++) {
        const struct raft_entry *entry = &start->entries[i];
        if (entry->index != log_terms_last(&found) + 1)
            sim_violation(sim, RULE_RECOVERY, "s%" P " finds entry %" P " after %" P, NAME(server), entry->index,
                          log_terms_last(&found));
        if (!chronicle_note(sim->chronicle, entry, log_terms_at(&found, entry->index - 1)))
            sim_violation(sim, RULE_RECOVERY, "s%" P " finds another entry %" P " of term %" P " than was written",
                          NAME(server), entry->index, entry->term);
        log_terms_append(&found, entry->term);
    }
    if (!recovery_fits(server, start, &found))
        sim_violation(sim, RULE_RECOVERY,
                      "s%" P " finds term %" P " vote %" P " and entries %" P "..%" P "; durable were term %" P
                      " vote %" P " and %" P "..%" P,
                      NAME(server), start->term, start->vote, found.base + 1, log_terms_last(&found),
                      server->durable_term, server->durable_vote, server->durable.base + 1,
                      log_terms_last(&server->durable));
    server->durable_term = start->term;
    server->durable_vote = start->vote;
    log_terms_copy(&server->durable, &found);
    log_terms_copy(&server->memory, &found);
    server->members_index = start->snapshot.members_index;
    chronicle_members(sim->chronicle, &server->memory, log_terms_last(&server->memory), &server->members_index);
    free(found.terms);
}

void check_started(struct server *server) {
    uint64_t at = 0;
    const struct raft_members *members = raft_members_at(server->raft, server->machine.applied, &at);
    if (at != server->machine.members_index || members_differ(members, &server->machine.members) > 0)
        sim_violation(server->sim, RULE_MEMBERS,
                      "s%" P " starts with the configuration of %" P " at %" P ", it had applied that of %" P,
                      NAME(server), at, server->machine.applied, server->machine.members_index);
}

/* -- what it says -- */

static void check_vote_reply(struct server *server, const struct raft_message *m) {
    struct sim *sim = server->sim;
    if (server->durable_term != m->term || server->durable_vote != m->to)
        sim_violation(sim, RULE_PROMISE, "s%" P " votes for s%" P " in term %" P ", its disk says term %" P " vote %" P,
                      NAME(server), m->to, m->term, server->durable_term, server->durable_vote);
    chronicle_terms(sim->chronicle, m->term);
    uint64_t *vote = &sim->chronicle->votes[server->slot][m->term];
    if (*vote != 0 && *vote != m->to)
        sim_violation(sim, RULE_FORWARD, "s%" P " votes twice in term %" P ": for s%" P " and s%" P, NAME(server),
                      m->term, *vote, m->to);
    *vote = m->to;
}

static void check_append_reply(struct server *server, const struct raft_message *m) {
    struct sim *sim = server->sim;
    if (server->durable_term < m->term)
        sim_violation(sim, RULE_PROMISE, "s%" P " answers in term %" P ", its disk says %" P, NAME(server), m->term,
                      server->durable_term);
    if (m->match > log_terms_last(&server->durable)) {
        sim_violation(sim, RULE_PROMISE, "s%" P " says it has %" P ", its disk has %" P, NAME(server), m->match,
                      log_terms_last(&server->durable));
        return;
    }
    struct server *leader = sim->servers[m->to - 1];
    if (!server_leads(leader) || raft_term(leader->raft) != m->term) return;
    uint64_t here = log_terms_at(&server->durable, m->match), there = log_terms_at(&leader->memory, m->match);
    if (here && there && here != there)
        sim_violation(sim, RULE_PROMISE,
                      "s%" P " says it has %" P " as its leader s%" P " has, but of term %" P " and not %" P,
                      NAME(server), m->match, NAME(leader), here, there);
}

static void check_append(struct server *server, const struct raft_message *m) {
    struct sim *sim = server->sim;
    uint64_t bytes = 0, prev = log_terms_at(&server->memory, m->last_index);
    for (size_t i = 0; i < m->entry_count; i++) {
        bytes += raft_entry_bytes(&m->entries[i]).size;
        uint64_t term = log_terms_at(&server->memory, m->entries[i].index);
        if (term && term != m->entries[i].term)
            sim_violation(sim, RULE_LOG, "s%" P " sends entry %" P " of term %" P ", its log has term %" P,
                          NAME(server), m->entries[i].index, m->entries[i].term, term);
    }
    if (m->entry_count > 1 && bytes > sim->raft.append_bytes_max)
        sim_violation(sim, RULE_CAP, "s%" P " sends %zu entries of %" P " bytes in one message", NAME(server),
                      m->entry_count, bytes);
    if (prev && prev != m->last_term)
        sim_violation(sim, RULE_LOG, "s%" P " says entry %" P " is of term %" P ", its log has term %" P, NAME(server),
                      m->last_index, m->last_term, prev);
    if (m->commit > raft_commit_index(server->raft))
        sim_violation(sim, RULE_QUORUM, "s%" P " says %" P " is committed, knows %" P, NAME(server), m->commit,
                      raft_commit_index(server->raft));
}

void check_message(struct server *server, const struct raft_message *m) {
    struct chronicle *chronicle = server->sim->chronicle;
    switch (m->type) {
        case RAFT_MSG_VOTE:
            chronicle_terms(chronicle, m->term);
            if (chronicle->votes[server->slot][m->term] != 0 && chronicle->votes[server->slot][m->term] != server->id)
                sim_violation(server->sim, RULE_FORWARD, "s%" P " campaigns in term %" P " after it voted for s%" P,
                              NAME(server), m->term, chronicle->votes[server->slot][m->term]);
            break;
        case RAFT_MSG_VOTE_REPLY:
            if (m->granted) check_vote_reply(server, m);
            break;
        case RAFT_MSG_APPEND_REPLY:
            if (!m->rejected) check_append_reply(server, m);
            break;
        case RAFT_MSG_APPEND: check_append(server, m); break;
        case RAFT_MSG_SNAPSHOT:
            if (m->data.size > server->sim->raft.snapshot_chunk_bytes)
                sim_violation(server->sim, RULE_CAP, "s%" P " sends a chunk of %zu bytes", NAME(server), m->data.size);
            break;
        default: break;
    }
}

/* -- what it decides -- */

static void observe_leader(struct server *server) {
    struct sim *sim = server->sim;
    struct chronicle *chronicle = sim->chronicle;
    uint64_t term = raft_term(server->raft);
    server->seen_leader_term = term;
    chronicle->leaders_elected++;
    chronicle_terms(chronicle, term);
    if (chronicle->leaders[term] != 0 && chronicle->leaders[term] != server->id)
        sim_violation(sim, RULE_LEADER, "s%" P " leads term %" P ", and s%" P " did", NAME(server), term,
                      chronicle->leaders[term]);
    chronicle->leaders[term] = server->id;

    uint64_t last = chronicle->committed_count;
    while (last > 0 && chronicle->committed[last - 1].commit_term >= term) last--;
    if (last <= server->memory.base) return;
    const struct truth *truth = &chronicle->committed[last - 1];
    if (log_terms_at(&server->memory, last) != truth->term)
        sim_violation(sim, RULE_COMPLETE,
                      "s%" P " leads term %" P " without entry %" P " of term %" P ", committed in term %" P,
                      NAME(server), term, last, truth->term, truth->commit_term);
}

static bool server_has_durable(const struct server *server, uint64_t index, uint64_t term) {
    return index < server->durable.base || log_terms_at(&server->durable, index) == term;
}

static void check_quorum(struct server *server, uint64_t index, uint64_t term) {
    struct sim *sim = server->sim;
    const struct raft_members *members = raft_members(server->raft);
    unsigned have = 0, voters = raft_members_voters(members);
    for (uint32_t i = 0; i < members->count; i++) {
        uint64_t id = members->member[i].id;
        if (!members->member[i].voter || id > sim->server_count) continue;
        have += server_has_durable(sim->servers[id - 1], index, term);
    }
    if (have < voters / 2 + 1)
        sim_violation(sim, RULE_QUORUM, "s%" P " commits %" P " of term %" P ", on disk at %u of %u voters",
                      NAME(server), index, term, have, voters);
}

static void commit_truth(struct server *server, uint64_t index, uint64_t term) {
    struct sim *sim = server->sim;
    struct chronicle *chronicle = sim->chronicle;
    if (index <= chronicle->committed_count) {
        if (chronicle->committed[index - 1].term != term)
            sim_violation(sim, RULE_MACHINE,
                          "s%" P " commits %" P " of term %" P ", but that of term %" P " has been committed",
                          NAME(server), index, term, chronicle->committed[index - 1].term);
        return;
    }
    CHECK(index == chronicle->committed_count + 1);
    if (chronicle->committed_count == chronicle->committed_capacity) {
        chronicle->committed_capacity = chronicle->committed_capacity ? 2 * chronicle->committed_capacity : 256;
        chronicle->committed =
            mem_realloc(chronicle->committed, chronicle->committed_capacity * sizeof *chronicle->committed);
    }
    struct seen *seen = chronicle_seen(chronicle, index, term);
    CHECK(seen != NULL);
    uint64_t before_ms = index > 1 ? chronicle->committed[index - 2].unix_ms : 0;
    chronicle->committed[chronicle->committed_count++] =
        (struct truth){.term = term,
                       .commit_term = raft_term(server->raft),
                       .seen = seen,
                       .unix_ms = seen->unix_ms > before_ms ? seen->unix_ms : before_ms};
}

static void observe_commit(struct server *server) {
    struct sim *sim = server->sim;
    uint64_t commit = raft_commit_index(server->raft), known = sim->chronicle->committed_count;
    const struct log_terms *log = &server->memory;
    if (commit < server->seen_commit)
        sim_violation(sim, RULE_FORWARD, "s%" P ": commit index %" P " after %" P, NAME(server), commit,
                      server->seen_commit);
    if (commit > log_terms_last(log)) {
        sim_violation(sim, RULE_FORWARD, "s%" P " commits %" P ", its log ends at %" P, NAME(server), commit,
                      log_terms_last(log));
        return;
    }
    if (commit > known) check_quorum(server, commit, log_terms_at(log, commit));
    uint64_t from = server->seen_commit > log->base ? server->seen_commit + 1 : log->base ? log->base : 1;
    for (uint64_t i = from; i <= commit && !sim->failed; i++) commit_truth(server, i, log_terms_at(log, i));
    server->seen_commit = commit;
}

static void observe_members(struct server *server) {
    struct sim *sim = server->sim;
    if (raft_members_index(server->raft) != server->members_index)
        sim_violation(sim, RULE_MEMBERS, "s%" P " goes by the configuration at %" P ", the newest in its log is at %" P,
                      NAME(server), raft_members_index(server->raft), server->members_index);
}

void check_observe(struct server *server) {
    struct sim *sim = server->sim;
    if (sim->failed || raft_failed(server->raft)) return;
    uint64_t term = raft_term(server->raft), vote = raft_vote(server->raft), applied = raft_applied_index(server->raft);
    if (term < server->seen_term || (term == server->seen_term && server->seen_vote != 0 && vote != server->seen_vote))
        sim_violation(sim, RULE_FORWARD, "s%" P ": term %" P " vote %" P " after term %" P " vote %" P, NAME(server),
                      term, vote, server->seen_term, server->seen_vote);
    if (applied < server->seen_applied || applied > raft_commit_index(server->raft))
        sim_violation(sim, RULE_FORWARD, "s%" P ": applied %" P " after %" P ", commit index %" P, NAME(server),
                      applied, server->seen_applied, raft_commit_index(server->raft));
    server->seen_term = term;
    server->seen_vote = vote;
    server->seen_applied = applied;
    uint64_t last = log_terms_last(&server->memory), last_term = log_terms_at(&server->memory, last);
    if (raft_last_index(server->raft) != last || raft_last_term(server->raft) != last_term)
        sim_violation(sim, RULE_LOG,
                      "s%" P ": its log ends at %" P " of term %" P ", what it has written at %" P " of term %" P,
                      NAME(server), raft_last_index(server->raft), raft_last_term(server->raft), last, last_term);
    observe_members(server);
    if (server_leads(server) && term != server->seen_leader_term) observe_leader(server);
    observe_commit(server);
}

/* -- what it applies -- */

void check_committed(struct server *server, const struct raft_entry *entry) {
    uint64_t before =
        server->apply_count > 0 ? server->applies[server->apply_count - 1].index : server->machine.applied;
    if (entry->index != before + 1)
        sim_violation(server->sim, RULE_MACHINE, "s%" P " is to apply %" P " after %" P, NAME(server), entry->index,
                      before);
    if (entry->index > raft_commit_index(server->raft))
        sim_violation(server->sim, RULE_MACHINE, "s%" P " is to apply %" P ", commit index is %" P, NAME(server),
                      entry->index, raft_commit_index(server->raft));
    if (log_terms_at(&server->durable, entry->index) != entry->term)
        sim_violation(server->sim, RULE_PROMISE, "s%" P " is to apply %" P " of term %" P ", which is not on its disk",
                      NAME(server), entry->index, entry->term);
}

void check_applied(struct server *server, const struct raft_entry *entry, const struct machine_result *result) {
    struct sim *sim = server->sim;
    struct chronicle *chronicle = sim->chronicle;
    if (entry->index > chronicle->committed_count) {
        sim_violation(sim, RULE_MACHINE, "s%" P " applies %" P ", committed are %zu", NAME(server), entry->index,
                      chronicle->committed_count);
        return;
    }
    struct truth *truth = &chronicle->committed[entry->index - 1];
    if (truth->term != entry->term || truth->seen->sum != command_sum(entry))
        sim_violation(sim, RULE_MACHINE,
                      "s%" P " applies another entry %" P " (term %" P ") than was committed (term %" P ")",
                      NAME(server), entry->index, entry->term, truth->term);
    else model_applied(server, entry, result);
}

void check_state(struct server *server) {
    struct sim *sim = server->sim;
    uint64_t index = server->machine.applied;
    if (index == 0 || index > sim->chronicle->committed_count) return;
    struct truth *truth = &sim->chronicle->committed[index - 1];
    if (truth->state_sum == 0) truth->state_sum = server->machine.sum;
    if (truth->state_sum != server->machine.sum)
        sim_violation(sim, RULE_STATE, "s%" P ": the sum of its store at %" P " is not that of others", NAME(server),
                      index);
}

void check_installed(struct server *server, const struct raft_snapshot_meta *meta) {
    struct sim *sim = server->sim;
    struct chronicle *chronicle = sim->chronicle;
    if (meta->index > chronicle->committed_count || chronicle->committed[meta->index - 1].term != meta->term ||
        chronicle->committed[meta->index - 1].state_sum != server->machine.sum) {
        sim_violation(sim, RULE_MACHINE, "s%" P ": the state in its snapshot at %" P " is not the one that was applied",
                      NAME(server), meta->index);
        return;
    }
    uint64_t at = 0;
    struct log_terms none = {.base = meta->index};
    const struct raft_members *members = chronicle_members(chronicle, &none, meta->index, &at);
    if (at != meta->members_index || (members && members_differ(members, &meta->members) > 0))
        sim_violation(sim, RULE_MEMBERS,
                      "s%" P ": its snapshot at %" P " names the configuration at %" P ", it was that at %" P,
                      NAME(server), meta->index, meta->members_index, at);
}

/* -- what clients were told -- */

void check_acked(struct sim *sim, const struct op *op) {
    struct chronicle *chronicle = sim->chronicle;
    const struct truth *truth = op->index <= chronicle->committed_count ? &chronicle->committed[op->index - 1] : NULL;
    if (!truth || truth->seen->op != op->id)
        sim_violation(sim, RULE_ACKED, "command %" P " is acknowledged at %" P ", where it is not", op->id, op->index);
    else if (!truth->applied || truth->yes != op->yes || truth->error != op->error)
        sim_violation(sim, RULE_ACKED, "command %" P " at %" P " is answered with another one's result", op->id,
                      op->index);
    if (op->index <= op->floor)
        sim_violation(sim, RULE_ACKED, "command %" P " is at %" P ", but %" P " was finished before it began", op->id,
                      op->index, op->floor);
    if (op->index > chronicle->floor) chronicle->floor = op->index;
}

/* The first entries of leaders change nothing: a state without them shows as much as one with them. */
static uint64_t shows_up_to(const struct chronicle *chronicle, uint64_t index) {
    while (index < chronicle->committed_count && chronicle->committed[index].seen->type == RAFT_ENTRY_EMPTY) index++;
    return index;
}

void check_read(struct sim *sim, const struct op *op) {
    if (op->module->check_read) op->module->check_read(sim, op);
    if (op->stale) return;
    if (shows_up_to(sim->chronicle, op->index) < op->floor)
        sim_violation(sim, RULE_READ, "read %" P " at s%u sees up to %" P ", but %" P " was finished before it began",
                      op->id, op->server + 1, op->index, op->floor);
    if (op->index > sim->chronicle->floor) sim->chronicle->floor = op->index;
}

/* -- after convergence -- */

void check_at_end(struct sim *sim) {
    struct chronicle *chronicle = sim->chronicle;
    unsigned char *times = mem_zalloc(sim->op_count + 1);
    for (size_t i = 0; i < chronicle->committed_count; i++) {
        uint64_t op = chronicle->committed[i].seen->op;
        if (op == 0) continue;
        CHECK(op <= sim->op_count);
        if (++times[op] > 1) sim_violation(sim, RULE_ACKED, "command %" P " was applied twice", op);
    }
    for (size_t i = 0; i < sim->op_count; i++) {
        const struct op *op = &sim->ops[i];
        if (op->way == OP_WRITE && op->state == OP_DONE && times[op->id] != 1)
            sim_violation(sim, RULE_ACKED, "command %" P " was acknowledged at %" P " and is gone", op->id, op->index);
        if (op->way == OP_WRITE && op->state == OP_REFUSED && times[op->id] != 0)
            sim_violation(sim, RULE_ACKED, "command %" P " was refused, and applied", op->id);
    }
    free(times);
    struct server *leader = sim_leader(sim);
    for (size_t i = 0; leader && sim_modules[i]; i++)
        if (sim_modules[i]->check_end) sim_modules[i]->check_end(sim, leader);
}
