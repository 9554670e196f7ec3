#include "consensus/recover.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "consensus/node_internal.h"

/* -- a disk that changes nothing ----------------------------------------------------------------------------------- */
/* Opening a log writes its end again and wipes a torn batch. Without that it reads the same. */
struct looking {
    struct disk disk;
    struct disk *real;
};
static struct disk *real_of(struct disk *disk) { return CONTAINER_OF(disk, struct looking, disk)->real; }

static int look_open(struct disk *disk, const char *name, int create, disk_file *file) {
    return create ? CO_UNSUPPORTED : real_of(disk)->ops->open(real_of(disk), name, 0, file);
}
static void look_close(struct disk *disk, disk_file file) { real_of(disk)->ops->close(real_of(disk), file); }
static int look_size(struct disk *disk, disk_file file, uint64_t *size) {
    return real_of(disk)->ops->size(real_of(disk), file, size);
}
static int look_read(struct disk *disk, disk_file file, uint64_t offset, void *data, size_t size, size_t *got) {
    return real_of(disk)->ops->read(real_of(disk), file, offset, data, size, got);
}
static int look_write(struct disk *disk, disk_file file, uint64_t offset, const void *data, size_t size) {
    (void)disk, (void)file, (void)offset, (void)data, (void)size;
    return CO_OK;
}
static int look_sync(struct disk *disk, disk_file file) {
    (void)disk, (void)file;
    return CO_OK;
}
static int look_resize(struct disk *disk, disk_file file, uint64_t size) {
    (void)disk, (void)file, (void)size;
    return CO_OK;
}
static int look_rename(struct disk *disk, const char *from, const char *to) {
    (void)disk, (void)from, (void)to;
    return CO_UNSUPPORTED;
}
static int look_remove(struct disk *disk, const char *name) {
    (void)disk, (void)name;
    return CO_OK;
}
static int look_sync_folder(struct disk *disk) {
    (void)disk;
    return CO_OK;
}
static int look_list(struct disk *disk, void (*found)(void *data, const char *name), void *data) {
    return real_of(disk)->ops->list(real_of(disk), found, data);
}
static int look_free_bytes(struct disk *disk, uint64_t *bytes) {
    return real_of(disk)->ops->free_bytes(real_of(disk), bytes);
}
static const struct disk_ops looking_ops = {
    .open = look_open,
    .close = look_close,
    .size = look_size,
    .read = look_read,
    .write = look_write,
    .sync = look_sync,
    .write_out = look_sync,
    .allocate = look_resize,
    .truncate = look_resize,
    .rename = look_rename,
    .remove = look_remove,
    .sync_folder = look_sync_folder,
    .list = look_list,
    .free_bytes = look_free_bytes,
};

/* -- looking at a stopped server ---------------------------------------------------------------------------------- */
struct names {
    bool id, log;
};

static void name_found(void *data, const char *name) {
    struct names *names = data;
    names->id |= strcmp(name, NODE_ID_FILE) == 0;
    names->log |= strncmp(name, "log-", 4) == 0;
}

static int members_read(struct recover_report *report, const struct raft_entry *entry, struct fault *fault) {
    struct raft_members members;
    if (entry->type != RAFT_ENTRY_MEMBERS) return CO_OK;
    if (raft_members_decode(raft_entry_bytes(entry), &members) != CO_OK)
        return fault_set(fault, CO_CORRUPT, "entry %" PRIu64 " holds no configuration", entry->index);
    report->members = members, report->members_index = entry->index;
    return CO_OK;
}

static int report_fill(struct recover_report *report, const struct raft_snapshot_meta *snapshot,
                       const struct wal_recovered *found, struct fault *fault) {
    report->term = found->term, report->vote = found->vote, report->torn_bytes = found->torn_bytes;
    report->first_index = found->first_index;
    report->snapshot_index = report->last_index = snapshot->index;
    report->snapshot_term = report->last_term = snapshot->term;
    report->members = snapshot->members, report->members_index = snapshot->members_index;
    int rv = CO_OK;
    for (size_t i = 0; i < found->entry_count && rv == CO_OK; i++) rv = members_read(report, &found->entries[i], fault);
    if (found->entry_count == 0) return rv;
    const struct raft_entry *last = &found->entries[found->entry_count - 1];
    report->last_index = last->index, report->last_term = last->term;
    return rv;
}

/* Opens the log as a server does at its start. */
static int open_log(struct disk *disk, struct recover_report *report, struct wal **wal, struct fault *fault) {
    struct names names = {0};
    *report = (struct recover_report){0};
    int rv = disk->ops->list(disk, name_found, &names);
    if (rv != CO_OK) return fault_set(fault, rv, "the folder cannot be listed: %s", co_strerror(rv));
    if (!names.id || !names.log) return fault_set(fault, CO_NOTFOUND, "no server has kept its log here");
    rv = node_id_read(disk, &report->id, fault);
    if (rv != CO_OK) return rv;
    struct raft_snapshot_meta snapshot = {0};
    struct snapshot_reader *reader;
    rv = snapshot_open(disk, 0, &reader, &snapshot, fault);
    if (rv == CO_OK) snapshot_close(reader);
    else if (rv == CO_NOTFOUND) *fault = (struct fault){0}, snapshot = (struct raft_snapshot_meta){0};
    else return rv;
    struct wal_config config = {.start_term = snapshot.term};
    struct wal_recovered found = {0};
    rv = wal_open(disk, &config, snapshot.index, wal, &found, fault);
    if (rv != CO_OK) return rv;
    rv = report_fill(report, &snapshot, &found, fault);
    if (rv == CO_OK && report->members.count == 0)
        rv = fault_set(fault, CO_NOTFOUND, "this server has not belonged to a cluster yet");
    wal_recovered_free(&found);
    if (rv != CO_OK) wal_close(*wal), *wal = NULL;
    return rv;
}

int recover_look(struct disk *disk, struct recover_report *report, struct fault *fault) {
    struct looking looking = {{&looking_ops}, disk};
    struct wal *wal = NULL;
    int rv = open_log(&looking.disk, report, &wal, fault);
    if (rv == CO_OK) wal_close(wal);
    return rv;
}

/* -- going on ----------------------------------------------------------------------------------------------------- */
static int members_plan(const struct recover_plan *plan, const struct recover_report *report,
                        struct raft_members *members, struct fault *fault) {
    const struct raft_member *self = raft_members_find(&report->members, report->id);
    if (!self)
        return fault_set(fault, CO_INVALID,
                         "this server is no member of the last configuration it knows: it was removed, and "
                         "may lack entries");
    if (plan->voter_count >= RAFT_MEMBERS_MAX)
        return fault_set(fault, CO_INVALID, "more than %d voters", RAFT_MEMBERS_MAX);
    *members = (struct raft_members){.count = 1, .recoveries = report->members.recoveries};
    members->member[0] = *self, members->member[0].voter = true;
    for (size_t i = 0; i < plan->voter_count; i++) {
        const struct raft_member *voter = &plan->voters[i];
        if (voter->id == 0 || raft_members_find(members, voter->id))
            return fault_set(fault, CO_INVALID, "voter %016" PRIx64 " is this server, or named twice", voter->id);
        members->member[members->count] = *voter;
        members->member[members->count++].voter = true;
    }
    return CO_OK;
}

static struct raft_entry members_entry(struct raft_members *members, uint64_t index, uint64_t term,
                                       uint64_t before_term) {
    struct buffer bytes = {0};
    raft_recovery_add(members,
                      &(struct raft_recovery){
                          .index = index, .term = term, .before_term = before_term, .survivor = members->member[0].id});
    raft_members_encode(members, &bytes);
    struct raft_entry entry = {
        .index = index, .term = term, .type = RAFT_ENTRY_MEMBERS, .data = raft_data_new(bytes.data, bytes.size)};
    buffer_free(&bytes);
    return entry;
}

static int append(struct wal *wal, const struct recover_plan *plan, struct raft_members *members,
                  struct recover_report *report, struct fault *fault) {
    uint64_t term = (report->term > report->last_term ? report->term : report->last_term) + RECOVER_TERMS(report->id);
    struct raft_entry *entries = mem_zalloc((plan->command_count + 1) * sizeof *entries);
    uint64_t index = report->last_index;
    entries[0] = members_entry(members, ++index, term, report->last_term);
    for (size_t i = 0; i < plan->command_count; i++)
        entries[i + 1] =
            (struct raft_entry){.index = ++index,
                                .term = term,
                                .type = RAFT_ENTRY_COMMAND,
                                .data = raft_data_ref(plan->commands[i])}; /* without a time: it is not known */
    struct wal_batch batch = {.hard_state = true,
                              .term = term,
                              .vote = report->id,
                              .entries = entries,
                              .entry_count = plan->command_count + 1};
    int rv = wal_append(wal, &batch, 1, fault);
    if (rv == CO_OK) {
        report->members = *members, report->members_index = members->recovered_index;
        report->term = report->last_term = term, report->vote = report->id, report->last_index = index;
    }
    for (size_t i = 0; i <= plan->command_count; i++) raft_data_unref(entries[i].data);
    free(entries);
    return rv;
}

int recover_write(struct disk *disk, const struct recover_plan *plan, struct recover_report *report,
                  struct fault *fault) {
    struct raft_members members;
    struct wal *wal = NULL;
    int rv = recover_look(disk, report, fault); /* finds faults before anything is written */
    if (rv == CO_OK) rv = members_plan(plan, report, &members, fault);
    if (rv == CO_OK) rv = open_log(disk, report, &wal, fault);
    if (rv != CO_OK) return rv;
    rv = append(wal, plan, &members, report, fault);
    wal_close(wal);
    return rv;
}
