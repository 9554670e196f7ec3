#include "consensus/raft_internal.h"

#include <stdlib.h>

uint64_t log_last_index(const struct raft *raft) { return raft->log.first + raft->log.count - 1; }

struct raft_entry *log_at(const struct raft *raft, uint64_t index) {
    const struct window *log = &raft->log;
    if (index < log->first || index >= log->first + log->count) return NULL;
    return &log->entries[log->head + (index - log->first)];
}

bool log_term_at(const struct raft *raft, uint64_t index, uint64_t *term) {
    const struct raft_entry *entry = log_at(raft, index);
    if (entry) *term = entry->term;
    else if (index + 1 == raft->log.first) *term = raft->log.base_term;
    else if (index == 0) *term = 0;
    else if (index == raft->snapshot.index) *term = raft->snapshot.term;
    else return false;
    return true;
}

/* Terms never fall along a log: entries that are no longer in memory have at most the term of the first one that is. */
bool log_contradicts(struct raft *raft, uint64_t index, uint64_t term) {
    if (index > raft->commit) return false;
    uint64_t here;
    if (!log_term_at(raft, index, &here)) here = term < raft->log.base_term ? term : raft->log.base_term;
    if (here == term) return false;
    raft->contradiction = (struct raft_contradiction){.index = index, .term_here = here, .term_there = term};
    return true;
}

/* Raft guarantees that an entry that a leader lacks was never committed. That does not hold when one of the two logs
 * knows of a recovery and the other does not. */
bool log_forsaken(struct raft *raft, const struct raft_recoveries *theirs) {
    uint64_t last = log_last_index(raft), last_term = log_last_term(raft);
    const struct raft_recovery *recovery = raft_recovery_ahead(members_now(raft), last, last_term, theirs);
    bool behind = !recovery && raft_recovery_behind(members_now(raft), last_term, theirs);
    if (!recovery && !behind) return false;
    raft->contradiction = (struct raft_contradiction){
        .index = last, .term_here = last_term, .term_there = behind ? raft->term : recovery->term};
    return true;
}

uint64_t log_last_term(const struct raft *raft) {
    uint64_t term = 0;
    CHECK(log_term_at(raft, log_last_index(raft), &term));
    return term;
}

uint64_t log_bytes_of(const struct raft_entry *entry) { return sizeof *entry + (entry->data ? entry->data->size : 0); }

void log_append(struct raft *raft, const struct raft_entry *entry) {
    struct window *log = &raft->log;
    CHECK(entry->index == log_last_index(raft) + 1);
    CHECK(entry->term >= log_last_term(raft));
    if (log->head + log->count == log->capacity) {
        if (log->head > log->count) { /* slide down: at most as much as was trimmed */
            memmove(log->entries, log->entries + log->head, log->count * sizeof *log->entries);
            log->head = 0;
        } else {
            log->capacity = log->capacity ? log->capacity * 2 : 64;
            log->entries = mem_realloc(log->entries, log->capacity * sizeof *log->entries);
        }
    }
    CHECK(log->head + log->count < log->capacity);
    log->entries[log->head + log->count++] = *entry;
    log->bytes += log_bytes_of(entry);
    if (entry->type == RAFT_ENTRY_MEMBERS) members_note(raft, entry);
}

static void window_drop(struct window *log, struct raft_entry *entry) {
    CHECK(log->bytes >= log_bytes_of(entry));
    log->bytes -= log_bytes_of(entry);
    raft_data_unref(entry->data);
}

void log_truncate(struct raft *raft, uint64_t from) {
    struct window *log = &raft->log;
    CHECK(from > raft->commit); /* committed entries are never removed */
    CHECK(from >= log->first);
    while (log->count > 0 && log_last_index(raft) >= from)
        window_drop(log, log_at(raft, log_last_index(raft))), log->count--;
    if (raft->handed >= from) {
        raft->handed = from - 1;
        if (raft->truncate_pending == 0 || from < raft->truncate_pending) raft->truncate_pending = from;
    }
    if (raft->stable >= from) raft->stable = from - 1;
    for (size_t i = 0; i < raft->ops.count; i++)
        if (raft->ops.items[i].last_index >= from) raft->ops.items[i].last_index = from - 1;
    members_cut(raft, from);
}

void log_reset(struct raft *raft, uint64_t index, uint64_t term) {
    struct window *log = &raft->log;
    CHECK(index > raft->commit);
    for (size_t i = 0; i < log->count; i++) window_drop(log, &log->entries[log->head + i]);
    log->head = log->count = 0;
    log->first = index + 1;
    log->base_term = term;
    raft->applying_bytes = 0;
    /* operations that are still on their way are about entries that are gone */
    for (size_t i = 0; i < raft->ops.count; i++) raft->ops.items[i].last_index = 0;
    raft->handed = index;
    raft->truncate_pending = 0;
    if (raft->stable > raft->commit) raft->stable = raft->commit;
}

/* Keeps a bounded number of applied entries, for peers that lag a little. */
void log_trim(struct raft *raft) {
    struct window *log = &raft->log;
    uint64_t keep_from = raft->applied < raft->stable ? raft->applied : raft->stable;
    while (log->count > 1 && log->bytes > raft->config.cache_bytes_max && log->first <= keep_from) {
        struct raft_entry *entry = &log->entries[log->head];
        log->base_term = entry->term;
        window_drop(log, entry);
        log->head++, log->first++, log->count--;
    }
    if (log->capacity > 4096 && log->count < log->capacity / 8) { /* after a burst, give the room back */
        memmove(log->entries, log->entries + log->head, log->count * sizeof *log->entries);
        log->head = 0;
        log->capacity /= 4;
        log->entries = mem_realloc(log->entries, log->capacity * sizeof *log->entries);
    }
}

void log_free(struct raft *raft) {
    for (size_t i = 0; i < raft->log.count; i++) raft_data_unref(raft->log.entries[raft->log.head + i].data);
    free(raft->log.entries);
}

static bool log_has_pending(const struct raft *raft) {
    return raft->hard_state_pending || raft->truncate_pending || raft->install_pending ||
           raft->handed < log_last_index(raft);
}

/* Operations are handed over in pairs of numbers: an installation of a snapshot first, then one batch. A message that
 * waits for durability waits for the second number, even if there is only one operation. */
bool log_hard_state_durable(const struct raft *raft) {
    return !raft->hard_state_pending && raft->hard_state_seq <= raft->seq_done;
}

uint64_t log_durable_seq(const struct raft *raft) { return log_has_pending(raft) ? raft->seq + 2 : raft->seq; }

static void hand_over_install(struct raft *raft, struct raft_persist *p) {
    CHECK(raft->receiving.complete);
    p->install_snapshot = true;
    p->snapshot = raft->receiving.meta;
    *vector_push(&raft->ops) = (struct persist_op){.seq = p->seq, .last_index = p->snapshot.index, .snapshot = true};
    raft->install_pending = false;
}

static void hand_over_batch(struct raft *raft, struct raft_persist *p) {
    uint64_t last = log_last_index(raft);
    p->hard_state = raft->hard_state_pending;
    if (p->hard_state) raft->hard_state_seq = p->seq;
    p->term = raft->term, p->vote = raft->vote;
    p->truncate_from = raft->truncate_pending;
    p->entry_count = last - raft->handed;
    if (p->entry_count > 0) p->entries = log_at(raft, raft->handed + 1);
    CHECK(p->entry_count == 0 || p->entries); /* entries that are not durable are never trimmed */
    *vector_push(&raft->ops) = (struct persist_op){.seq = p->seq, .last_index = last};
    raft->handed = last;
    raft->hard_state_pending = false;
    raft->truncate_pending = 0;
}

void log_hand_over(struct raft *raft) {
    if (!log_has_pending(raft) || raft->failed) return;
    CHECK(raft->effects.persist_count == 0);
    struct raft_persist *persists = arena_zalloc(&raft->arena, 2 * sizeof *persists);
    size_t count = 0;
    bool batch = raft->hard_state_pending || raft->truncate_pending || raft->handed < log_last_index(raft);
    uint64_t seq = raft->seq + 2;
    if (raft->install_pending) {
        persists[count].seq = batch ? seq - 1 : seq;
        hand_over_install(raft, &persists[count++]);
    }
    if (batch) {
        persists[count].seq = seq;
        hand_over_batch(raft, &persists[count++]);
    }
    raft->seq = seq;
    raft->effects.persists = persists;
    raft->effects.persist_count = count;
}

void log_persisted(struct raft *raft, uint64_t seq) {
    CHECK(seq <= raft->seq);
    size_t done = 0;
    bool installed = false;
    while (done < raft->ops.count && raft->ops.items[done].seq <= seq) {
        struct persist_op *op = &raft->ops.items[done++];
        if (op->last_index > raft->stable) raft->stable = op->last_index;
        installed |= op->snapshot;
    }
    CHECK(raft->stable <= raft->handed);
    raft->ops.count -= done;
    memmove(raft->ops.items, raft->ops.items + done, raft->ops.count * sizeof *raft->ops.items);
    if (seq > raft->seq_done) raft->seq_done = seq;
    if (installed) snapshot_installed(raft);
}
