#include "lb/hints.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "lb/load_wire.h"

METRIC known = {.name = "coord_load_instances",
                .type = METRIC_GAUGE,
                .help = "Instances of which something is known of their load"};
METRIC reports_total = {
    .name = "coord_load_reports_total", .type = METRIC_COUNTER, .help = "Reports of load by instances of this host"};
METRIC taken_total = {
    .name = "coord_load_hints_total", .type = METRIC_COUNTER, .help = "Hints of load taken from other processes"};
METRIC refused_total = {.name = "coord_load_refused_total",
                        .type = METRIC_COUNTER,
                        .help = "Reports and hints of load that make no sense, or that there was no room for"};

struct hints {
    uint64_t slow_start_ns;
    bool decides;
    pthread_mutex_t lock;
    struct load_table *table;
    struct hot *hot;
    _Atomic uint64_t sequence, begun; /* the table's */
};

struct hints *hints_new(uint64_t slow_start_ns) {
    static struct metric *const metrics[] = {&known, &reports_total, &taken_total, &refused_total};
    for (size_t i = 0; i < ARRAY_COUNT(metrics); i++) metric_register(metrics[i]);
    struct hints *hints = mem_zalloc(sizeof *hints);
    hints->slow_start_ns = slow_start_ns;
    CHECK(pthread_mutex_init(&hints->lock, NULL) == 0);
    hints->table = load_table_new(0);
    hints->hot = hot_new();
    return hints;
}

void hints_free(struct hints *hints) {
    if (!hints) return;
    load_table_free(hints->table);
    hot_free(hints->hot);
    pthread_mutex_destroy(&hints->lock);
    free(hints);
}

void hints_decides(struct hints *hints) { hints->decides = true; }

uint64_t hints_slow_start(const struct hints *hints) { return hints->slow_start_ns; }

static void lock(struct hints *hints) { pthread_mutex_lock(&hints->lock); }

static void unlock(struct hints *hints) {
    atomic_store_explicit(&hints->begun, load_services_begun(hints->table), memory_order_relaxed);
    atomic_store_explicit(&hints->sequence, load_sequence(hints->table), memory_order_release);
    pthread_mutex_unlock(&hints->lock);
}

/* -- reports ------------------------------------------------------------------------------------------------------ */
int hints_report(struct hints *hints, struct load_instance instance, const struct load_hint *hint,
                 uint64_t registered_ns, uint64_t now_ns) {
    int rv = load_check(hint, NULL);
    lock(hints);
    if (rv == CO_OK) rv = load_started(hints->table, instance, registered_ns);
    if (rv == CO_OK) rv = load_report(hints->table, instance, hint, now_ns);
    unlock(hints);
    metric_add(rv == CO_OK ? &reports_total : &refused_total, 1);
    return rv;
}

void hints_created(struct hints *hints, struct load_instance instance, uint64_t created, uint64_t before_ns,
                   uint64_t now_ns) {
    lock(hints);
    (void)load_created(hints->table, instance, created, before_ns, now_ns);
    unlock(hints);
}

void hints_forget(struct hints *hints, struct load_instance instance) {
    lock(hints);
    load_forget(hints->table, instance);
    unlock(hints);
}

/* -- between processes -------------------------------------------------------------------------------------------- */
int hints_take(struct hints *hints, struct slice frame, bool direct, struct slice but_node, uint64_t now_ns) {
    struct load_reader reader = {.rest = frame};
    struct load_entry entry;
    unsigned taken = 0, refused = 0;
    int rv;
    lock(hints);
    while ((rv = load_read(&reader, &entry)) == CO_OK) {
        if (but_node.size && slice_equal(entry.instance.node, but_node)) {
            load_merge_kept(hints->table, &entry, now_ns);
            continue;
        }
        entry.direct = direct;
        taken++;
        refused += load_merge(hints->table, &entry, now_ns) != CO_OK;
    }
    unlock(hints);
    metric_add(&taken_total, taken);
    if (refused) metric_add(&refused_total, refused);
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

uint64_t hints_each_change(struct hints *hints, uint64_t since, enum load_which which, size_t most, uint64_t now_ns,
                           void (*each)(void *data, const struct load_entry *entry), void *data) {
    if (hints_sequence(hints) == since) return since;
    lock(hints);
    if (hints->decides) load_decide(hints->table, now_ns);
    uint64_t next = load_changes(hints->table, since, which, most, now_ns, each, data);
    unlock(hints);
    return next;
}

static void write_one(void *data, const struct load_entry *entry) { load_write(data, entry); }

uint64_t hints_changes(struct hints *hints, uint64_t since, enum load_which which, size_t most, uint64_t now_ns,
                       struct buffer *out) {
    struct load_writer writer = {.out = out};
    return hints_each_change(hints, since, which, most, now_ns, write_one, &writer);
}

struct pieces {
    struct load_writer writer;
    void (*full)(void *data, struct slice frame);
    void *data;
};

static void write_piece(void *data, const struct load_entry *entry) {
    struct pieces *pieces = data;
    struct buffer *out = pieces->writer.out;
    load_write(&pieces->writer, entry);
    if (out->size < HINTS_FRAME_SIZE) return;
    pieces->full(pieces->data, buffer_slice(out));
    buffer_reset(out);
    pieces->writer = (struct load_writer){.out = out};
}

void hints_of_service(struct hints *hints, struct slice service, uint64_t now_ns, struct buffer *out,
                      void (*full)(void *data, struct slice frame), void *data) {
    struct pieces pieces = {.writer = {.out = out}, .full = full, .data = data};
    lock(hints);
    load_of_service(hints->table, service, SIZE_MAX, now_ns, write_piece, &pieces);
    unlock(hints);
}

void hints_tick(struct hints *hints, uint64_t now_ns) {
    lock(hints);
    load_tick(hints->table, now_ns);
    metric_set(&known, load_count(hints->table));
    unlock(hints);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */
uint64_t hints_sequence(const struct hints *hints) {
    return atomic_load_explicit(&hints->sequence, memory_order_acquire);
}

uint64_t hints_begun(const struct hints *hints) { return atomic_load_explicit(&hints->begun, memory_order_relaxed); }

bool hints_known(struct hints *hints, struct slice service) {
    if (hints_sequence(hints) == 0) return false;
    lock(hints);
    bool speaks = load_service_known(hints->table, service);
    unlock(hints);
    return speaks;
}

void hints_look(struct hints *hints, size_t count, uint64_t now_ns, struct load_instance (*at)(void *data, size_t i),
                void (*see)(void *data, size_t i, bool known, const struct load_entry *entry), void *data) {
    lock(hints);
    if (hints->decides) load_decide(hints->table, now_ns);
    for (size_t i = 0; i < count; i++) {
        struct load_entry entry;
        bool found = load_get(hints->table, at(data, i), now_ns, &entry);
        see(data, i, found, found ? &entry : NULL);
    }
    unlock(hints);
}

size_t hints_count(struct hints *hints) {
    lock(hints);
    size_t count = load_count(hints->table);
    unlock(hints);
    return count;
}

/* -- keys --------------------------------------------------------------------------------------------------------- */
void hints_key(struct hints *hints, struct slice service, struct slice key, uint64_t now_ns) {
    lock(hints);
    hot_count(hints->hot, service, key, now_ns);
    unlock(hints);
}

void hints_keys_take(struct hints *hints, struct buffer *out) {
    lock(hints);
    hot_take(hints->hot, out);
    unlock(hints);
}

int hints_keys_merge(struct hints *hints, struct slice frame, bool onward, uint64_t now_ns) {
    lock(hints);
    int rv = hot_merge(hints->hot, frame, onward, now_ns);
    unlock(hints);
    return rv;
}

void hints_hot(struct hints *hints, struct slice service, uint64_t now_ns,
               void (*see)(void *data, const struct hot_service *found), void *data) {
    struct hot_service found;
    lock(hints);
    bool there = hot_look(hints->hot, service, now_ns, &found);
    see(data, there ? &found : NULL);
    unlock(hints);
}
