/* The memory of the checkers: every entry that any log has held, the committed entries, leaders and votes by term, and
 * the logs of the servers as they should be, in memory and on disk. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "tests/sim/module.h"

/* -- logs by their terms -- */

uint64_t log_terms_last(const struct log_terms *log) { return log->base + log->count; }

uint64_t log_terms_at(const struct log_terms *log, uint64_t index) {
    if (index == log->base) return log->base_term;
    if (index < log->base || index > log_terms_last(log)) return 0;
    return log->terms[index - log->base - 1];
}

void log_terms_append(struct log_terms *log, uint64_t term) {
    if (log->count == log->capacity) {
        log->capacity = log->capacity ? log->capacity * 2 : 64;
        log->terms = mem_realloc(log->terms, log->capacity * sizeof *log->terms);
    }
    log->terms[log->count++] = term;
}

void log_terms_cut(struct log_terms *log, uint64_t from) {
    if (from <= log->base) log->count = 0;
    else if (from <= log_terms_last(log)) log->count = from - log->base - 1;
}

void log_terms_reset(struct log_terms *log, uint64_t base, uint64_t base_term) {
    log->base = base;
    log->base_term = base_term;
    log->count = 0;
}

void log_terms_rebase(struct log_terms *log, uint64_t base, uint64_t base_term) {
    if (base <= log->base) return;
    if (log_terms_at(log, base) != base_term) {
        log_terms_reset(log, base, base_term);
        return;
    }
    size_t gone = base - log->base;
    memmove(log->terms, log->terms + gone, (log->count - gone) * sizeof *log->terms);
    log->count -= gone;
    log->base = base;
    log->base_term = base_term;
}

void log_terms_copy(struct log_terms *to, const struct log_terms *from) {
    log_terms_reset(to, from->base, from->base_term);
    for (size_t i = 0; i < from->count; i++) log_terms_append(to, from->terms[i]);
}

bool log_terms_equal(const struct log_terms *a, const struct log_terms *b) {
    return a->base == b->base && a->base_term == b->base_term && a->count == b->count &&
           (a->count == 0 || memcmp(a->terms, b->terms, a->count * sizeof *a->terms) == 0);
}

/* -- chronicle -- */

struct chronicle *chronicle_new(void) {
    return mem_zalloc(sizeof(struct chronicle));
}

void chronicle_free(struct chronicle *chronicle) {
    for (size_t i = 0; i < chronicle->seen_capacity; i++) {
        for (struct seen *seen = chronicle->seen[i], *next; seen; seen = next) {
            next = seen->next;
            free(seen->members);
            free(seen);
        }
    }
    free(chronicle->seen);
    free(chronicle->committed);
    free(chronicle->leaders);
    for (int i = 0; i < SIM_SERVERS_MAX; i++) free(chronicle->votes[i]);
    free(chronicle);
}

uint64_t command_sum(const struct raft_entry *entry) {
    struct slice bytes = raft_entry_bytes(entry);
    uint64_t sum = bytes.size ? hash64_seed(bytes.data, bytes.size, entry->type) : (uint64_t)entry->type + 1;
    uint64_t timed[] = {sum, entry->unix_ms};
    sum = hash64(timed, sizeof timed);
    return sum ? sum : 1;
}

struct seen *chronicle_seen(struct chronicle *chronicle, uint64_t index, uint64_t term) {
    if (index >= chronicle->seen_capacity) return NULL;
    struct seen *seen = chronicle->seen[index];
    while (seen && seen->term != term) seen = seen->next;
    return seen;
}

static void *grown(void *array, size_t *capacity, size_t wanted, size_t item) {
    size_t more = *capacity ? *capacity : 256;
    while (more <= wanted) more *= 2;
    char *bytes = mem_realloc(array, more * item);
    memset(bytes + *capacity * item, 0, (more - *capacity) * item);
    *capacity = more;
    return bytes;
}

struct seen *chronicle_note(struct chronicle *chronicle, const struct raft_entry *entry, uint64_t prev_term) {
    uint64_t sum = command_sum(entry);
    struct seen *seen = chronicle_seen(chronicle, entry->index, entry->term);
    if (seen) return seen->sum == sum && seen->type == entry->type && seen->prev_term == prev_term ? seen : NULL;
    if (entry->index >= chronicle->seen_capacity)
        chronicle->seen = grown(chronicle->seen, &chronicle->seen_capacity, entry->index, sizeof *chronicle->seen);
    seen = mem_zalloc(sizeof *seen);
    seen->term = entry->term;
    seen->prev_term = prev_term;
    seen->sum = sum;
    seen->type = entry->type;
    seen->unix_ms = entry->unix_ms;
    seen->op = command_op(entry);
    if (entry->type == RAFT_ENTRY_MEMBERS) {
        seen->members = mem_zalloc(sizeof *seen->members);
        if (raft_members_decode(raft_entry_bytes(entry), seen->members) != CO_OK) seen->members->count = 0;
    }
    seen->next = chronicle->seen[entry->index];
    chronicle->seen[entry->index] = seen;
    return seen;
}

void chronicle_terms(struct chronicle *chronicle, uint64_t term) {
    if (term < chronicle->term_capacity) return;
    size_t capacity = chronicle->term_capacity;
    for (int i = 0; i < SIM_SERVERS_MAX; i++) {
        capacity = chronicle->term_capacity;
        chronicle->votes[i] = grown(chronicle->votes[i], &capacity, term, sizeof *chronicle->votes[i]);
    }
    capacity = chronicle->term_capacity;
    chronicle->leaders = grown(chronicle->leaders, &capacity, term, sizeof *chronicle->leaders);
    chronicle->term_capacity = capacity;
}

const struct raft_members *chronicle_members(struct chronicle *chronicle, const struct log_terms *log, uint64_t index,
                                             uint64_t *at) {
    /* Configurations are rare: those before the base are looked up among the committed entries. */
    for (uint64_t i = index; i > 0; i--) {
        uint64_t term = i > log->base                     ? log_terms_at(log, i)
                        : i <= chronicle->committed_count ? chronicle->committed[i - 1].term
                                                          : 0;
        struct seen *seen = term ? chronicle_seen(chronicle, i, term) : NULL;
        if (!seen || !seen->members) continue;
        *at = i;
        return seen->members;
    }
    return NULL;
}
