/* The state machine of a simulated server: the program's own, with its modules, over LMDB in a folder in memory. A
 * kill leaves the store as it was committed last; after a power loss it is not trusted and begins empty, as in the
 * program. */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "registry/machine.h"
#include "tests/lib/later.h"
#include "tests/sim/sim.h"

/* -- folders, used again by later runs -- */

static char root[256];

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk) {
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void replica_clean(void) {
    if (root[0]) nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    root[0] = '\0';
}

/* Removes the files that killed runs have left. */
static void sweep(const char *tmp) {
    DIR *dir = opendir(tmp);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        int pid;
        char path[512];
        if (sscanf(entry->d_name, "coord-sim-%d-", &pid) != 1 || pid <= 0) continue;
        if (kill(pid, 0) == 0 || errno != ESRCH) continue;
        snprintf(path, sizeof path, "%s/%s", tmp, entry->d_name);
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    if (dir) closedir(dir);
}

static void folder_of(uint32_t slot, char *path, size_t size) {
    if (!root[0]) {
        const char *tmp = getenv("TMPDIR");
        if (access("/dev/shm", W_OK) == 0) tmp = "/dev/shm";
        if (!tmp) tmp = "/tmp";
        sweep(tmp);
        snprintf(root, sizeof root, "%s/coord-sim-%d-XXXXXX", tmp, (int)getpid());
        CHECK(mkdtemp(root));
        atexit(replica_clean);
    }
    snprintf(path, size, "%s/s%u", root, slot);
}

/* -- opening -- */

static void learn(struct replica *replica) {
    replica->applied = machine_applied(replica->machine);
    replica->applied_term = machine_applied_term(replica->machine);
    replica->sum = store_sum(store_read(replica->reader));
    store_read_done(replica->reader);
}

void replica_open(struct replica *replica, uint32_t slot, bool trusted, const struct module_entry *modules,
                  unsigned mutations, void (*wake)(void *data), void *data) {
    char folder[300];
    folder_of(slot, folder, sizeof folder);
    log_level_now = LOG_ERROR;
    replica->updates = expiry_updates_new(wake, data);
    struct machine_config config = {.store = {.folder = folder,
                                              .map_bytes = UINT64_C(1) << 28,
                                              .reserve_step_bytes = 128 << 10,
                                              .distrust = !trusted},
                                    .modules = modules,
                                    .updates = replica->updates,
                                    .version_newest = LATER_VERSION,
                                    .mutations = mutations};
    struct fault fault = {0};
    if (machine_open(&config, &replica->machine, &fault) != CO_OK) {
        fprintf(stderr, "sim: %s\n", fault.text);
        exit(2);
    }
    replica->reader = store_reader_new(machine_store(replica->machine));
    learn(replica);
    CHECK(trusted || replica->applied == 0);
}

void replica_close(struct replica *replica) {
    if (!replica->machine) return;
    store_reader_free(replica->reader);
    machine_close(replica->machine);
    expiry_updates_free(replica->updates);
    replica->machine = NULL;
}

/* -- applying -- */

void replica_apply(struct replica *replica, const struct raft_entry *entries, void *const *origins, size_t count,
                   void (*done)(void *data, void *origin, const struct machine_result *result), void *data) {
    if (count == 0) return;
    struct machine_input *inputs = mem_alloc(count * sizeof *inputs);
    for (size_t i = 0; i < count; i++) {
        const struct raft_entry *entry = &entries[i];
        inputs[i] = (struct machine_input){.index = entry->index,
                                           .term = entry->term,
                                           .command = raft_entry_bytes(entry),
                                           .is_command = entry->type == RAFT_ENTRY_COMMAND,
                                           .origin = origins[i],
                                           .unix_ms = entry->unix_ms};
        if (entry->type == RAFT_ENTRY_MEMBERS &&
            raft_members_decode(raft_entry_bytes(entry), &replica->members) == CO_OK)
            replica->members_index = entry->index;
    }
    uint64_t stopped_at = 0;
    CHECK(machine_apply(replica->machine, inputs, count, done, data, &stopped_at) == CO_OK);
    free(inputs);
    learn(replica);
    CHECK(replica->applied == entries[count - 1].index);
}

/* -- snapshots: the copy's size, the copy, filler -- */

static size_t filler_words(uint64_t sum, uint64_t most) { return most ? (size_t)(sum % most) / 8 : 0; }

static uint64_t filler_word(uint64_t sum, size_t i) {
    uint64_t mixed[2] = {sum, i};
    return hash64(mixed, sizeof mixed);
}

/* A file in memory, emptied. */
static int scratch(void) {
    static int fd = -1;
    if (fd < 0) fd = memfd_create("coord-sim", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

void replica_save(struct replica *replica, uint64_t filler, struct buffer *out) {
    int fd = scratch();
    uint64_t index, term;
    CHECK(machine_copy(replica->machine, fd, &index, &term) == CO_OK);
    CHECK(index == replica->applied && term == replica->applied_term);
    off_t size = lseek(fd, 0, SEEK_END);
    char word[8];
    put_le64(word, (uint64_t)size);
    buffer_append(out, word, sizeof word);
    buffer_reserve(out, (size_t)size);
    CHECK(pread(fd, out->data + out->size, (size_t)size, 0) == size);
    out->size += (size_t)size;
    for (size_t i = 0, words = filler_words(replica->sum, filler); i < words; i++) {
        put_le64(word, filler_word(replica->sum, i));
        buffer_append(out, word, sizeof word);
    }
}

bool replica_load(struct replica *replica, const struct raft_snapshot_meta *meta, struct slice bytes) {
    if (bytes.size < 8 || bytes.size != meta->size) return false;
    uint64_t size = get_le64(bytes.data);
    if (size > bytes.size - 8) return false;
    int fd = scratch();
    struct fault fault = {0};
    CHECK(write(fd, bytes.data + 8, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    if (machine_install(replica->machine, fd, size, &fault) != CO_OK) return false;
    learn(replica);
    for (size_t at = 8 + size, i = 0; at < bytes.size; at += 8, i++)
        if (bytes.size - at < 8 || get_le64(bytes.data + at) != filler_word(replica->sum, i)) return false;
    replica->members_index = meta->members_index;
    replica->members = meta->members;
    return replica->applied == meta->index && replica->applied_term == meta->term;
}
