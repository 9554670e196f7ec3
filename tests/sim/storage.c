/* A server's disk side: the log writer (one group at a time, completed in order after a delay, or failed), the
 * reader of old entries and chunks, the snapshot copier, and what a start finds. The log and snapshot code is the
 * real one. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "tests/sim/sim.h"

static struct disk *disk_of(struct server *server) { return fake_disk_disk(server->disk); }

bool storage_died(struct server *server) {
    if (!fake_disk_halted(server->disk)) return false;
    struct sim *sim = server->sim;
    server_crash(server, sim_chance(sim, 500) ? CRASH_KILL : CRASH_POWER);
    server_restart_after(server, sim_random(sim, 10, 500) * MS);
    return true;
}

/* -- persist operations -- */

static void persist_free(struct persist *persist) {
    for (size_t i = 0; i < persist->op.entry_count; i++) raft_data_unref(persist->op.entries[i].data);
    free(persist->op.entries);
    free(persist);
}

static void persists_free(struct persist **list) {
    while (*list) {
        struct persist *next = (*list)->next;
        persist_free(*list);
        *list = next;
    }
}

void storage_drop_group(struct server *server) { persists_free(&server->group); }

void storage_persist(struct server *server, const struct raft_persist *op) {
    struct persist *persist = mem_zalloc(sizeof *persist);
    persist->op = *op;
    persist->op.entries = op->entry_count ? mem_alloc(op->entry_count * sizeof *op->entries) : NULL;
    for (size_t i = 0; i < op->entry_count; i++) {
        persist->op.entries[i] = op->entries[i];
        raft_data_ref(op->entries[i].data);
    }
    *server->queue_end = persist;
    server->queue_end = &persist->next;
}

static uint64_t persists_bytes(const struct persist *list) {
    uint64_t bytes = 0;
    for (; list; list = list->next)
        for (size_t i = 0; i < list->op.entry_count; i++)
            bytes += raft_entry_bytes(&list->op.entries[i]).size + RAFT_ENTRY_OVERHEAD;
    return bytes;
}

uint64_t storage_waiting(const struct server *server) {
    return persists_bytes(server->queue) + persists_bytes(server->group) + server->taken_bytes;
}

/* The next group: an installation alone, else what follows each other up to one. */
void storage_kick(struct server *server) {
    if (server->group || !server->queue || server->mood.held) return;
    struct sim *sim = server->sim;
    uint64_t most = sim_random(sim, 1, 16);
    struct persist **end = &server->queue;
    do {
        bool install = (*end)->op.install_snapshot;
        end = &(*end)->next;
        if (install) break;
    } while (--most > 0 && *end && !(*end)->op.install_snapshot);
    server->group = server->queue;
    server->queue = *end;
    if (!server->queue) server->queue_end = &server->queue;
    *end = NULL;
    server->group_begun = false;
    server->write_begun_ms = server_now_ms(server);
    uint64_t delay =
        server->mood.delay_us + (server->mood.delay_span_us ? sim_random(sim, 0, server->mood.delay_span_us) : 0);
    server->group_done_us = sim->now_us + delay;
    sim_schedule(sim, sim_random(sim, 0, delay), EVENT_LOG_WRITE, server->slot, 0, NULL);
}

static struct wal_batch batch_of(const struct raft_persist *op) {
    return (struct wal_batch){.hard_state = op->hard_state,
                              .term = op->term,
                              .vote = op->vote,
                              .truncate_from = op->truncate_from,
                              .entries = op->entries,
                              .entry_count = op->entry_count};
}

static int install(struct server *server, const struct raft_persist *op, struct fault *fault) {
    struct wal_batch batch = batch_of(op);
    int rv = op->hard_state ? wal_append(server->wal, &batch, 1, fault) : CO_OK;
    return rv == CO_OK ? wal_reset(server->wal, op->snapshot.index, fault) : rv;
}

static int group_write(struct server *server) {
    struct fault fault = {0};
    if (server->group->op.install_snapshot) return install(server, &server->group->op, &fault);
    struct wal_batch batches[16];
    size_t count = 0;
    for (struct persist *p = server->group; p; p = p->next) {
        CHECK(count < ARRAY_COUNT(batches));
        batches[count++] = batch_of(&p->op);
    }
    return wal_append(server->wal, batches, count, &fault);
}

void storage_write(struct server *server) {
    struct sim *sim = server->sim;
    server->group_begun = true;
    server->group_error = group_write(server);
    if (server->group_error == CO_OK)
        for (struct persist *p = server->group; p; p = p->next) check_durable(server, &p->op);
    if (storage_died(server)) return;
    if (server->group_error == CO_OK && sim_chance(sim, 250)) {
        wal_prepare(server->wal);
        if (storage_died(server)) return;
    }
    uint64_t left = server->group_done_us > sim->now_us ? server->group_done_us - sim->now_us : 0;
    sim_schedule(sim, left, EVENT_LOG_DONE, server->slot, 0, NULL);
}

static int snapshot_read_all(struct server *server, uint64_t index, struct raft_snapshot_meta *meta,
                             struct buffer *out) {
    struct snapshot_reader *reader = NULL;
    struct fault fault = {0};
    int rv = snapshot_open(disk_of(server), index, &reader, meta, &fault);
    if (rv != CO_OK) return rv;
    buffer_reserve(out, meta->size);
    size_t got = 0;
    rv = snapshot_read(reader, 0, out->data, meta->size, &got, &fault);
    out->size = got;
    snapshot_close(reader);
    return rv == CO_OK && got != meta->size ? CO_CORRUPT : rv;
}

/* The state machine becomes what the snapshot holds. */
static int load_snapshot(struct server *server, uint64_t index) {
    struct raft_snapshot_meta meta;
    struct buffer bytes = {0};
    int rv = snapshot_read_all(server, index, &meta, &bytes);
    if (rv == CO_OK) {
        if (!replica_load(&server->machine, &meta, buffer_slice(&bytes)))
            sim_violation(server->sim, RULE_MACHINE, "s%u: the snapshot at %" PRIu64 " is not what was saved",
                          server->slot + 1, index);
        else check_installed(server, &meta);
    }
    buffer_free(&bytes);
    return rv;
}

static void installed(struct server *server, const struct raft_persist *op) {
    server_drop_applies(server);
    server->snapshots_installed++;
    TRACE(server->sim, "s%u installs the snapshot at %" PRIu64, server->slot + 1, op->snapshot.index);
    int rv = load_snapshot(server, op->snapshot.index);
    if (rv != CO_OK)
        sim_violation(server->sim, RULE_RECOVERY, "s%u: its snapshot at %" PRIu64 " does not open: %s",
                      server->slot + 1, op->snapshot.index, co_strerror(rv));
    server->applied_seen = server->machine.applied;
    server->installed = true;
    edge_poke(server);
}

void storage_written(struct server *server) {
    struct persist *last = server->group;
    while (last->next) last = last->next;
    if (server->group_error != CO_OK || server_now_ms(server) - server->write_begun_ms >= DISK_SLOW_MS)
        server->bad_ms = server_now_ms(server);
    server->write_begun_ms = 0;
    struct raft_event event = {.type = RAFT_PERSISTED, .u.persisted.seq = last->op.seq};
    if (server->group_error != CO_OK) {
        TRACE(server->sim, "s%u: writing failed: %s", server->slot + 1, co_strerror(server->group_error));
        event.type = RAFT_PERSIST_FAILED;
        server_step(server, &event);
        if (!raft_failed(server->raft)) storage_drop_group(server); /* that rule is switched off */
        server_flush(server);
        return;
    }
    bool snapshot = last->op.install_snapshot;
    if (snapshot) installed(server, &last->op);
    storage_drop_group(server);
    server_step(server, &event);
    if (snapshot) {
        struct raft_event applied = {.type = RAFT_APPLIED, .u.applied.index = server->machine.applied};
        server_step(server, &applied);
    }
    storage_kick(server);
}

/* -- jobs of the reader: in order, each after a delay -- */

enum job_kind { JOB_LOAD, JOB_CHUNK_READ, JOB_CHUNK_WRITE };
struct job {
    enum job_kind kind;
    union {
        struct raft_load load;
        struct raft_chunk_read read;
        struct raft_chunk_write write;
    } u;
    char data[]; /* JOB_CHUNK_WRITE */
};

static struct job *job_new(enum job_kind kind, const void *data, size_t size) {
    struct job *job = mem_zalloc(sizeof *job + size);
    job->kind = kind;
    if (size) memcpy(job->data, data, size);
    return job;
}

static void job_schedule(struct server *server, struct job *job) {
    struct sim *sim = server->sim;
    uint64_t at = server->jobs_free_us > sim->now_us ? server->jobs_free_us : sim->now_us;
    at += sim_random(sim, 20, 20 + server->mood.delay_us + server->mood.delay_span_us / 2);
    server->jobs_free_us = at;
    sim_schedule(sim, at - sim->now_us, EVENT_JOB, server->slot, 0, job);
}

void storage_load(struct server *server, const struct raft_load *load) {
    struct job *job = job_new(JOB_LOAD, NULL, 0);
    job->u.load = *load;
    job_schedule(server, job);
}

void storage_chunk_read(struct server *server, const struct raft_chunk_read *read) {
    struct job *job = job_new(JOB_CHUNK_READ, NULL, 0);
    job->u.read = *read;
    job_schedule(server, job);
}

void storage_chunk_write(struct server *server, const struct raft_chunk_write *write) {
    struct job *job = job_new(JOB_CHUNK_WRITE, write->data, write->size);
    job->u.write = *write;
    job_schedule(server, job);
}

static void job_load(struct server *server, const struct raft_load *load) {
    struct raft_event event = {.type = RAFT_ENTRIES_LOADED};
    event.u.loaded.peer = load->peer;
    event.u.loaded.from = load->from;
    event.u.loaded.error =
        wal_read(server->wal, load->from, load->to, load->bytes_max, &event.u.loaded.entries, &event.u.loaded.count);
    if (event.u.loaded.error != CO_OK) event.u.loaded.entries = NULL, event.u.loaded.count = 0;
    struct raft_entry *entries = event.u.loaded.entries;
    server_step(server, &event);
    free(entries);
}

static int chunk_read(struct server *server, const struct raft_chunk_read *read, char *data, struct raft_event *event) {
    struct fault fault = {0};
    if (server->reader && server->reader_meta.index != read->snapshot_index) {
        snapshot_close(server->reader);
        server->reader = NULL;
    }
    int rv = CO_OK;
    if (!server->reader)
        rv = snapshot_open(disk_of(server), read->snapshot_index, &server->reader, &server->reader_meta, &fault);
    if (rv != CO_OK) {
        server->reader = NULL;
        return rv;
    }
    rv = snapshot_read(server->reader, read->offset, data, read->size_max, &event->u.chunk_read.size, &fault);
    event->u.chunk_read.data = data;
    event->u.chunk_read.last = read->offset + event->u.chunk_read.size >= server->reader_meta.size;
    return rv;
}

static void job_chunk_read(struct server *server, const struct raft_chunk_read *read) {
    struct raft_event event = {.type = RAFT_CHUNK_READ};
    char *data = mem_alloc(read->size_max);
    event.u.chunk_read.peer = read->peer;
    event.u.chunk_read.snapshot_index = read->snapshot_index;
    event.u.chunk_read.offset = read->offset;
    event.u.chunk_read.error = chunk_read(server, read, data, &event);
    if (event.u.chunk_read.error != CO_OK) event.u.chunk_read.size = 0;
    server_step(server, &event);
    free(data);
}

static void receiver_drop(struct server *server) {
    if (server->receiver) snapshot_abort(server->receiver, sim_chance(server->sim, 500));
    server->receiver = NULL;
}

static int chunk_write(struct server *server, const struct raft_chunk_write *write, const char *data,
                       uint64_t *stored) {
    *stored = 0;
    if (write->first) {
        receiver_drop(server);
        int rv = snapshot_create(disk_of(server), &write->meta, sim_chance(server->sim, 700), &server->receiver);
        if (rv != CO_OK) {
            server->receiver = NULL;
            return rv;
        }
        server->receiver_index = write->meta.index;
    }
    if (!server->receiver || server->receiver_index != write->meta.index) return CO_NOTFOUND;
    int rv = CO_OK;
    if (snapshot_written(server->receiver) == write->offset) rv = snapshot_write(server->receiver, data, write->size);
    *stored = snapshot_written(server->receiver);
    if (rv != CO_OK || !write->last || *stored != write->offset + write->size) return rv;
    struct raft_snapshot_meta meta = write->meta;
    rv = snapshot_commit(server->receiver, &meta);
    server->receiver = NULL;
    if (rv == CO_OK) server->snapshot_index = meta.index;
    return rv;
}

static void job_chunk_write(struct server *server, const struct raft_chunk_write *write, const char *data) {
    struct raft_event event = {.type = RAFT_CHUNK_WRITTEN};
    event.u.chunk_written.from = write->from;
    event.u.chunk_written.snapshot_index = write->meta.index;
    event.u.chunk_written.error = chunk_write(server, write, data, &event.u.chunk_written.offset);
    if (storage_died(server)) return;
    if (event.u.chunk_written.error != CO_OK) receiver_drop(server);
    server_step(server, &event);
}

void storage_job(struct server *server, void *payload) {
    struct job *job = payload;
    switch (job->kind) {
        case JOB_LOAD: job_load(server, &job->u.load); break;
        case JOB_CHUNK_READ: job_chunk_read(server, &job->u.read); break;
        case JOB_CHUNK_WRITE: job_chunk_write(server, &job->u.write, job->data); break;
    }
}

/* -- snapshots of its own state -- */

void storage_copy_begin(struct server *server) {
    struct sim *sim = server->sim;
    if (!server->up || server->copy || server->machine.applied <= raft_snapshot_index(server->raft)) return;
    if (raft_sending_snapshot(server->raft) || server->machine.applied != raft_applied_index(server->raft)) return;
    struct copy *copy = mem_zalloc(sizeof *copy);
    copy->meta.index = server->machine.applied;
    copy->meta.term = server->machine.applied_term;
    copy->meta.members = server->machine.members;
    copy->meta.members_index = server->machine.members_index;
    replica_save(&server->machine, sim->snapshot_filler, &copy->bytes);
    if (snapshot_create(disk_of(server), &copy->meta, false, &copy->writer) != CO_OK) {
        buffer_free(&copy->bytes);
        free(copy);
        storage_died(server);
        return;
    }
    server->copy = copy;
    sim_schedule(sim, sim_random(sim, 100, 5 * MS), EVENT_COPY, server->slot, 0, NULL);
}

static void copy_end(struct server *server, bool abort) {
    if (abort) snapshot_abort(server->copy->writer, false);
    buffer_free(&server->copy->bytes);
    free(server->copy);
    server->copy = NULL;
}

static void copy_commit(struct server *server) {
    struct raft_snapshot_meta meta = server->copy->meta;
    int rv = snapshot_commit(server->copy->writer, &meta);
    copy_end(server, false);
    if (storage_died(server) || rv != CO_OK) return;
    TRACE(server->sim, "s%u has a snapshot at %" PRIu64 " of %" PRIu64 " bytes", server->slot + 1, meta.index,
          meta.size);
    server->snapshots_taken++;
    if (meta.index > server->snapshot_index) server->snapshot_index = meta.index;
    struct raft_event event = {.type = RAFT_SNAPSHOT_TAKEN, .u.snapshot.meta = meta};
    server_step(server, &event);
    uint64_t keep = server->sim->keep_entries;
    while (meta.index > keep && wal_drop(server->wal, meta.index - keep) == CO_AGAIN) continue;
    storage_died(server);
}

void storage_copy_go_on(struct server *server) {
    struct copy *copy = server->copy;
    if (!copy) return;
    size_t left = copy->bytes.size - copy->written;
    if (left == 0) {
        copy_commit(server);
        return;
    }
    size_t size = left > 6000 ? 6000 : left;
    int rv = snapshot_write(copy->writer, copy->bytes.data + copy->written, size);
    copy->written += size;
    if (storage_died(server)) return;
    if (rv != CO_OK) copy_end(server, true);
    else sim_schedule(server->sim, sim_random(server->sim, 100, 5 * MS), EVENT_COPY, server->slot, 0, NULL);
}

/* -- start and stop -- */

struct wal_config storage_config(const struct server *server, uint64_t start_term) {
    struct wal_config config = server->sim->wal;
    config.start_term = start_term;
    config.log_id = server->sim->options.seed * SIM_SERVERS_MAX + server->id;
    return config;
}

static int open_machine(struct server *server, const struct raft_snapshot_meta *meta, struct raft_start *start) {
    struct replica *replica = &server->machine;
    if (!server->machine_kept) {
        replica->members = (struct raft_members){0};
        replica->members_index = 0;
    }
    /* Opening is dear: what was kept is mostly left open. */
    if (!replica->machine || !server->machine_kept || sim_chance(server->sim, 100)) {
        replica_close(replica);
        replica_open(replica, server->slot, server->machine_kept, history_modules(server->sim, server->slot),
                     server->sim->options.module_mutations, server_expiry_wake, server);
    }
    if (server->machine_kept) check_state(server);
    if (replica->applied < meta->index) {
        int rv = meta->index ? load_snapshot(server, meta->index) : CO_OK;
        if (rv != CO_OK) return rv;
    }
    server->machine_kept = false;
    start->applied = server->machine.applied;
    return CO_OK;
}

static void open_violation(struct server *server, int rv, const struct fault *fault) {
    if (rv != CO_OK) TRACE(server->sim, "s%u does not start: %s (%s)", server->slot + 1, co_strerror(rv), fault->text);
    if (rv == CO_CORRUPT)
        sim_violation(server->sim, RULE_RECOVERY, "s%u does not start, nobody damaged its disk: %s", server->slot + 1,
                      fault->text);
}

int storage_open(struct server *server, struct raft_start *start, struct wal_recovered *recovered) {
    struct fault fault = {0};
    struct raft_snapshot_meta meta = {0};
    int rv = snapshot_open(disk_of(server), 0, &server->reader, &meta, &fault);
    if (rv == CO_NOTFOUND) {
        fault = (struct fault){0};
        server->reader = NULL;
        memset(&meta, 0, sizeof meta);
        rv = CO_OK;
    }
    if (rv == CO_OK) {
        server->reader_meta = meta;
        server->snapshot_index = meta.index;
        struct wal_config config = storage_config(server, meta.term);
        rv = wal_open(disk_of(server), &config, meta.index, &server->wal, recovered, &fault);
        if (rv != CO_OK) server->wal = NULL;
    } else {
        server->reader = NULL;
    }
    open_violation(server, rv, &fault);
    if (rv == CO_OK) rv = open_machine(server, &meta, start);
    if (rv != CO_OK) return rv;
    start->term = recovered->term;
    start->vote = recovered->vote;
    start->snapshot = meta;
    start->entries = recovered->entries;
    start->entry_count = recovered->entry_count;
    return CO_OK;
}

void storage_close(struct server *server) {
    if (server->receiver) snapshot_abort(server->receiver, true);
    if (server->reader) snapshot_close(server->reader);
    if (server->copy) copy_end(server, true);
    if (server->wal) wal_close(server->wal);
    server->receiver = NULL;
    server->reader = NULL;
    server->wal = NULL;
    server->jobs_free_us = 0;
    persists_free(&server->queue);
    server->queue_end = &server->queue;
    if (!server->group_begun) storage_drop_group(server);
}
