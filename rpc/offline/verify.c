#include "rpc/offline/verify.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "consensus/node.h"
#include "consensus/snapshot.h"
#include "consensus/wal.h"
#include "rpc/offline/verify_store.h"

struct verify {
    const struct verify_config *config;
    struct fault *fault;                /* the first fault */
    struct disk *disk;                  /* raft/ */
    struct machine *machine;            /* without a store */
    uint64_t id;                        /* 0: none */
    struct raft_snapshot_meta snapshot; /* the newest; index 0: none */
    bool has_log;
    struct wal_recovered log;
    struct raft_members members; /* count 0: not known */
};

/* -- reporting ---------------------------------------------------------------------------------------------------- */
static void __attribute__((format(printf, 3, 4))) say(struct verify *v, const char *part, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    v->config->line(v->config->data, part, text);
}

/* Reports a part that is wrong; `where`: the folder of the fault's file, when the fault does not name it. */
static void wrong(struct verify *v, const char *part, const char *where, const struct fault *fault) {
    struct fault whole = {0};
    fault_set(&whole, fault->code, "%s%s", where, fault->text);
    say(v, part, "%s", whole.text);
    fault_set(v->fault, whole.code, "%s", whole.text);
}

static void __attribute__((format(printf, 4, 5)))
fail(struct verify *v, const char *part, int code, const char *format, ...) {
    struct fault fault = {0};
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fault_set(&fault, code, "%s", text);
    wrong(v, part, "", &fault);
}

/* -- snapshots: every block's checksum, and the content ----------------------------------------------------------- */
struct feeder {
    struct snapshot_reader *reader;
    int fd;
    struct fault fault;
};

static void *feed(void *arg) {
    struct feeder *feeder = arg;
    size_t room = 64 * 1024, got = 0;
    char *block = mem_alloc(room);
    for (uint64_t offset = 0;; offset += got) {
        if (snapshot_read(feeder->reader, offset, block, room, &got, &feeder->fault) != CO_OK || got == 0) break;
        size_t done = 0;
        for (ssize_t n; done < got && (n = write(feeder->fd, block + done, got - done)) > 0;) done += (size_t)n;
        if (done < got) break; /* the checker has seen enough */
    }
    close(feeder->fd);
    free(block);
    return NULL;
}

static int check_content(struct verify *v, struct snapshot_reader *reader, const struct raft_snapshot_meta *meta,
                         struct fault *fault) {
    int ends[2];
    if (pipe(ends) != 0) return fault_set(fault, CO_IO, "no pipe for a snapshot");
    struct feeder feeder = {.reader = reader, .fd = ends[1]};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, feed, &feeder) == 0);
    uint64_t applied = 0;
    struct fault inner = {0};
    int rv = machine_copy_look(v->machine, ends[0], meta->size, &applied, &inner);
    close(ends[0]);
    pthread_join(thread, NULL);
    if (feeder.fault.code) return fault_set(fault, feeder.fault.code, "%s", feeder.fault.text);
    if (rv == CO_OK && applied != meta->index)
        rv = fault_set(&inner, CO_CORRUPT, "it holds the state as of entry %" PRIu64, applied);
    return rv == CO_OK ? rv : fault_set(fault, rv, "snap-%016" PRIx64 ": %s", meta->index, inner.text);
}

static void verify_snapshot(struct verify *v, uint64_t index) {
    struct fault fault = {0};
    struct snapshot_reader *reader = NULL;
    struct raft_snapshot_meta meta;
    int rv = snapshot_open(v->disk, index, &reader, &meta, &fault);
    if (rv == CO_OK) rv = check_content(v, reader, &meta, &fault);
    snapshot_close(reader);
    if (rv != CO_OK) {
        wrong(v, "snapshot", "raft/", &fault);
        return;
    }
    v->snapshot = meta;
    v->members = meta.members;
    say(v, "snapshot", "snap-%016" PRIx64 ": entry %" PRIu64 ", term %" PRIu64 ", %" PRIu64 " bytes, whole", index,
        meta.index, meta.term, meta.size);
}

static void verify_snapshots(struct verify *v) {
    uint64_t *indexes;
    size_t count, parts;
    int rv = snapshot_list(v->disk, &indexes, &count, &parts);
    if (rv != CO_OK) fail(v, "snapshot", rv, "raft: cannot be listed: %s", co_strerror(rv));
    for (size_t i = 0; i < count; i++) verify_snapshot(v, indexes[i]);
    if (rv == CO_OK && count == 0) say(v, "snapshot", "none%s", parts ? " (an unfinished one is passed over)" : "");
    free(indexes);
}

/* -- the log ------------------------------------------------------------------------------------------------------- */
static bool entries_known(struct verify *v) {
    for (size_t i = 0; i < v->log.entry_count; i++) {
        const struct raft_entry *entry = &v->log.entries[i];
        struct slice bytes = raft_entry_bytes(entry);
        struct raft_members members;
        if (entry->type == RAFT_ENTRY_MEMBERS && raft_members_decode(bytes, &members) != CO_OK) {
            fail(v, "log", CO_CORRUPT, "raft: entry %" PRIu64 " of the log names members that cannot be read",
                 entry->index);
            return false;
        }
        if (entry->type == RAFT_ENTRY_MEMBERS && v->log.last_index >= v->snapshot.index) v->members = members;
        if (entry->type != RAFT_ENTRY_COMMAND || machine_knows(v->machine, bytes)) continue;
        fail(v, "log", CO_UNSUPPORTED,
             "raft: written by a newer version of coord: entry %" PRIu64
             " of the log is a command of type %u, version %u",
             entry->index, (unsigned)(uint8_t)bytes.data[0], (unsigned)(uint8_t)bytes.data[1]);
        return false;
    }
    return true;
}

/* NULL: the log continues the snapshot, or begins at the first index. */
static const char *log_gap(const struct verify *v) {
    if (v->log.first_index > v->snapshot.index + 1)
        return v->snapshot.index ? "it begins behind the snapshot's end: segments are missing"
                                 : "its beginning is missing, and there is no snapshot";
    size_t count = v->log.entry_count;
    if (count > 0 && v->log.entries[count - 1].term > v->log.term)
        return "its last entry has a term above the hard state's";
    return NULL;
}

static void verify_log(struct verify *v) {
    struct fault fault = {0};
    struct wal_looked looked;
    int rv = wal_look(v->disk, &looked, &v->log, &fault);
    if (rv == CO_NOTFOUND) {
        if (v->snapshot.index)
            fail(v, "log", CO_CORRUPT, "raft: log files are missing: there is a snapshot, and no log");
        else say(v, "log", "none");
        return;
    }
    if (rv != CO_OK) {
        wrong(v, "log", "raft/", &fault);
        return;
    }
    v->has_log = true;
    if (!entries_known(v)) return;
    const char *gap = log_gap(v);
    if (gap) {
        fail(v, "log", CO_CORRUPT, "raft/log-*: entries %" PRIu64 " to %" PRIu64 ": %s", v->log.first_index,
             v->log.last_index, gap);
        return;
    }
    char torn[80] = "";
    if (v->log.torn_bytes)
        snprintf(torn, sizeof torn, " (behind them a torn record of %" PRIu64 " bytes, never acknowledged)",
                 v->log.torn_bytes);
    char short_of[80] = "";
    if (v->log.last_index < v->snapshot.index) snprintf(short_of, sizeof short_of, ", all within the snapshot");
    if (v->log.last_index < v->log.first_index) say(v, "log", "%zu segments, no entries%s", looked.segments, torn);
    else
        say(v, "log",
            "%zu segments, %" PRIu64 " bytes, entries %" PRIu64 " to %" PRIu64 "%s, chain and checksums right%s",
            looked.segments, looked.bytes, v->log.first_index, v->log.last_index, short_of, torn);
    say(v, "hard state", "term %" PRIu64 ", vote %016" PRIx64, v->log.term, v->log.vote);
}

/* -- ids ----------------------------------------------------------------------------------------------------------- */
/* Checked after log and snapshots, which tell the members. */
static void verify_id(struct verify *v) {
    struct fault fault = {0};
    int rv = node_id_read(v->disk, &v->id, &fault);
    if (rv == CO_NOTFOUND && (v->has_log || v->snapshot.index))
        fail(v, "server", CO_CORRUPT, "raft/server-id: is missing");
    else if (rv == CO_NOTFOUND) say(v, "server", "no id yet");
    else if (rv != CO_OK) wrong(v, "server", "raft/", &fault);
    if (rv != CO_OK) return;
    const struct raft_member *self = raft_members_find(&v->members, v->id);
    /* A lone voter has voted for itself; a server that joins it may have been stopped before it got the
     * configuration. */
    if (!self && v->members.count == 1 && (v->log.vote == v->members.member[0].id || v->log.vote == v->id)) {
        fail(v, "server", CO_CORRUPT,
             "raft/server-id: says %016" PRIx64 ", but the cluster consists of %016" PRIx64 " alone", v->id,
             v->members.member[0].id);
        return;
    }
    say(v, "server", "%016" PRIx64 "%s%s, %s of %u member%s", v->id, self ? " at " : "", self ? self->address : "",
        !self         ? "none"
        : self->voter ? "a voter"
                      : "a learner",
        v->members.count, v->members.count == 1 ? "" : "s");
}

/* -- the store ----------------------------------------------------------------------------------------------------- */
static uint64_t term_at(const struct verify *v, uint64_t index) {
    if (index == v->snapshot.index) return v->snapshot.term;
    if (v->log.entry_count == 0 || index < v->log.entries[0].index || index > v->log.last_index) return 0;
    return v->log.entries[index - v->log.entries[0].index].term;
}

/* Compares the store with log and snapshot, which were right. */
static void compare_store(struct verify *v, const struct verify_store *store) {
    uint64_t last = v->log.last_index > v->snapshot.index ? v->log.last_index : v->snapshot.index,
             term = term_at(v, store->applied);
    static const char data[] = "store/data.mdb";
    char rebuilt[64] = "";
    if (!store->trusted) snprintf(rebuilt, sizeof rebuilt, "; not closed by this boot: will be rebuilt");
    if (store->applied > last)
        fail(v, "store", CO_CORRUPT,
             "%s: has applied entry %" PRIu64 ", but the log ends at %" PRIu64 ": the log has lost its end", data,
             store->applied, last);
    else if (store->applied < v->snapshot.index && v->members.count == 1 && store->trusted)
        fail(v, "store", CO_CORRUPT,
             "%s: has applied entry %" PRIu64 " only, although the snapshot, which was taken from it, has %" PRIu64,
             data, store->applied, v->snapshot.index);
    else if (term && store->applied >= v->snapshot.index && term != store->term)
        fail(v, "store", CO_CORRUPT,
             "%s: has applied entry %" PRIu64 " of term %" PRIu64 ", which has term %" PRIu64 " in the log", data,
             store->applied, store->term, term);
    else
        say(v, "store",
            "applied entry %" PRIu64 ", term %" PRIu64 ", %" PRIu64 " records, sum %016" PRIx64 " as kept%s%s",
            store->applied, store->term, store->records, store->sum,
            store->applied < v->snapshot.index ? "; behind the snapshot, which will replace it" : "", rebuilt);
}

static void verify_the_store(struct verify *v) {
    struct verify_store store;
    verify_store_look(v->config, &store);
    bool rebuilds = v->has_log && (v->log.first_index <= 1 || v->snapshot.index);
    if (store.fenced)
        fail(v, "store", CO_CORRUPT, "store: the self-audit has found this server's state damaged: %s", store.fence);
    else if (store.fault.code == CO_CORRUPT && !store.trusted && rebuilds && !v->fault->code)
        say(v, "store", "%s; will be rebuilt from snapshot and log", store.fault.text);
    else if (store.fault.code) wrong(v, "store", "", &store.fault);
    else if (!store.there) say(v, "store", rebuilds ? "none; will be rebuilt from snapshot and log" : "none");
    else if (!v->has_log && store.applied > 0)
        fail(v, "store", CO_CORRUPT,
             "raft: log files are missing: the store has applied entry %" PRIu64 ", and there is no log",
             store.applied);
    else if (v->fault->code)
        say(v, "store", "applied entry %" PRIu64 ", %" PRIu64 " records, sum %016" PRIx64 " as kept", store.applied,
            store.records, store.sum);
    else compare_store(v, &store);
}

/* -- all of it ----------------------------------------------------------------------------------------------------- */
int verify_run(const struct verify_config *config, struct fault *fault) {
    struct verify v = {.config = config, .fault = fault};
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/raft", config->folder);
    int rv = disk_posix_look(folder, &v.disk);
    if (rv == CO_BUSY) return fault_set(fault, rv, "%s: in use by a running agent", config->folder);
    if (rv != CO_OK)
        return fault_set(fault, rv, "%s: %s", folder,
                         rv == CO_NOTFOUND ? "is not there: no server has kept anything here" : co_strerror(rv));
    struct machine_config machine = {.modules = config->modules};
    bool there, trusted;
    CHECK(machine_look(&machine, &v.machine, &there, &trusted, NULL) == CO_OK);
    verify_snapshots(&v);
    verify_log(&v);
    verify_id(&v);
    verify_the_store(&v);
    machine_close(v.machine);
    wal_recovered_free(&v.log);
    disk_posix_close(v.disk);
    return fault->code;
}
