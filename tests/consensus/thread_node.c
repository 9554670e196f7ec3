/* A node at work under its real threads: proposals from several threads, all answered, all applied once and in
 * order, also after a restart and with snapshots that let the log be cut. A plain main, so that it runs under the
 * thread sanitizer too. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "consensus/node.h"

/* The state machine: how many commands, and a hash over them in order. */
struct state {
    _Atomic uint64_t applied, count, term;
    _Atomic uint64_t hash;
    _Atomic bool held, given; /* for held_life: nothing is applied; a state from elsewhere is at hand */
};

static uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x9E3779B97F4A7C15u; }

static uint64_t apply(void *data, struct node_apply *items, size_t count) {
    struct state *state = data;
    if (state->held) return items[0].entry.index - 1;
    for (size_t i = 0; i < count; i++) {
        const struct raft_entry *entry = &items[i].entry;
        CHECK(entry->index == atomic_load(&state->applied) + 1);
        state->applied = entry->index;
        state->term = entry->term;
        if (entry->type != RAFT_ENTRY_COMMAND) continue;
        uint64_t value;
        CHECK(entry->data->size >= sizeof value);
        memcpy(&value, entry->data->bytes, sizeof value);
        state->hash = mix(state->hash, value);
        atomic_fetch_add(&state->count, 1);
        if (items[i].proposal) node_apply_done(items[i].proposal, state);
    }
    return state->applied;
}

static _Atomic unsigned copies; /* snapshots begun */
static size_t ballast;          /* bytes behind the numbers */

/* The snapshot: three numbers. They are read by the copier while the applier goes on, so what was copied is taken
 * under a moment's look twice. */
static int copy(void *data, int fd, uint64_t *index, uint64_t *term) {
    struct state *state = data;
    uint64_t numbers[3];
    do {
        numbers[0] = state->applied, numbers[1] = state->count, numbers[2] = state->hash;
    } while (numbers[0] != state->applied);
    *index = numbers[0], *term = state->term;
    atomic_fetch_add(&copies, 1);
    if (write(fd, numbers, sizeof numbers) != (ssize_t)sizeof numbers) return 1;
    static const char zeros[4096];
    for (size_t left = ballast; left > 0; left -= sizeof zeros)
        if (write(fd, zeros, sizeof zeros) != (ssize_t)sizeof zeros) return 1;
    return 0;
}

static int install(void *data, int fd, const struct raft_snapshot_meta *meta, struct fault *fault) {
    struct state *state = data;
    uint64_t numbers[3];
    if (read(fd, numbers, sizeof numbers) != (ssize_t)sizeof numbers)
        return fault_set(fault, CO_CORRUPT, "short snapshot");
    CHECK(numbers[0] == meta->index);
    state->applied = numbers[0];
    state->count = numbers[1];
    state->hash = numbers[2];
    return CO_OK;
}

struct run {
    uv_loop_t loop;
    struct node *node;
    struct state *state;
    uv_async_t stop;
    uv_timer_t guard;
    unsigned proposers;
    uint64_t per_thread;
    size_t bytes;
    _Atomic uint64_t answered, reads_ok;
};

/* Commands with an odd first byte do not get into the log. Loop thread. */
static _Atomic uint64_t refused;
static const void *refuse_odd(void *data, uint64_t leader, const struct node_proposal *proposal) {
    (void)data;
    CHECK(leader != 0);
    return proposal->data->bytes[0] % 2 ? &refused : NULL;
}

struct one {
    struct node_proposal proposal;
    struct run *run;
    uv_sem_t *sem;
};
static void proposal_done(struct node_proposal *proposal, int error, const void *result) {
    struct one *one = CONTAINER_OF(proposal, struct one, proposal);
    CHECK(error == CO_OK && (result == one->run->state || result == &refused));
    if (result == &refused) atomic_fetch_add(&refused, 1);
    atomic_fetch_add(&one->run->answered, 1);
    uv_sem_post(one->sem);
}

struct look {
    struct node_read read;
    struct run *run;
    uv_sem_t *sem;
    uint64_t after;
};
static void read_done(struct node_read *read, int error) {
    struct look *look = CONTAINER_OF(read, struct look, read);
    CHECK(error == CO_OK);
    CHECK(atomic_load(&look->run->state->count) >= look->after); /* what was answered before is seen */
    atomic_fetch_add(&look->run->reads_ok, 1);
    uv_sem_post(look->sem);
}

static void proposer(void *arg) {
    struct run *run = arg;
    uv_sem_t sem;
    uv_sem_init(&sem, 0);
    for (uint64_t i = 0; i < run->per_thread; i++) {
        struct one one = {
            .proposal = {.done = proposal_done, .deadline_ms = clock_mono_ms() + 60000}, .run = run, .sem = &sem};
        one.proposal.data = raft_data_new(NULL, run->bytes);
        memset(one.proposal.data->bytes, (int)i, run->bytes);
        node_propose(run->node, &one.proposal);
        uv_sem_wait(&sem);
        struct look look = {.read = {.done = read_done, .deadline_ms = clock_mono_ms() + 60000},
                            .run = run,
                            .sem = &sem,
                            .after = run->state->count};
        node_read(run->node, &look.read);
        uv_sem_wait(&sem);
    }
    uv_sem_destroy(&sem);
}

static void closed(void *data) {
    struct run *run = data;
    uv_close((uv_handle_t *)&run->stop, NULL);
    uv_close((uv_handle_t *)&run->guard, NULL);
}
static void stop_cb(uv_async_t *async) {
    struct run *run = async->data;
    node_stop(run->node, closed, run);
}
static void late(uv_timer_t *timer) {
    (void)timer;
    fprintf(stderr, "not done within two minutes\n");
    abort();
}

static const char *spare_folder; /* where the next segment is to be ready before the node stops */

static bool spare_whole; /* all of it is written: no hole, and nothing that is only reserved */

static void wait_for_spare(void) {
    char path[80];
    snprintf(path, sizeof path, "%s/log-spare", spare_folder);
    for (uint64_t until = clock_mono_ms() + 60000;; usleep(1000)) {
        CHECK(clock_mono_ms() < until);
        int fd = open(path, O_RDONLY);
        if (fd < 0) continue;
        off_t size = lseek(fd, 0, SEEK_END), filled = lseek(fd, 0, SEEK_HOLE);
        close(fd);
        if (size > 0 && (!spare_whole || filled == size)) return;
    }
}

static void conductor(void *arg) {
    struct run *run = arg;
    uv_thread_t threads[16];
    for (unsigned i = 0; i < run->proposers; i++) uv_thread_create(&threads[i], proposer, run);
    for (unsigned i = 0; i < run->proposers; i++) uv_thread_join(&threads[i]);
    if (spare_folder) wait_for_spare();
    uv_async_send(&run->stop);
}

static struct slice first_command; /* of a new cluster */
static bool refusing;

static uint64_t life(const char *folder, struct state *state, unsigned proposers, uint64_t per_thread, size_t bytes,
                     uint64_t snapshot_log_bytes) {
    struct run run = {.state = state, .proposers = proposers, .per_thread = per_thread, .bytes = bytes};
    CHECK(uv_loop_init(&run.loop) == 0);
    uv_async_init(&run.loop, &run.stop, stop_cb);
    uv_timer_init(&run.loop, &run.guard);
    run.stop.data = &run;
    uv_timer_start(&run.guard, late, 110000, 0);
    struct node_config config = {.folder = folder,
                                 .address = "127.0.0.1:8300",
                                 .bootstrap = true,
                                 .applied = state->applied,
                                 .snapshot_log_bytes = snapshot_log_bytes,
                                 .first_command = first_command};
    struct node_callbacks callbacks = {.data = state,
                                       .apply = apply,
                                       .snapshot_copy = copy,
                                       .snapshot_install = install,
                                       .refuse = refusing ? refuse_odd : NULL};
    struct fault fault = {0};
    int rv = node_start(&run.loop, &config, &callbacks, &run.node, &fault);
    if (rv != CO_OK) {
        fprintf(stderr, "%s\n", fault.text);
        abort();
    }
    uv_thread_t thread;
    uv_thread_create(&thread, conductor, &run);
    uv_run(&run.loop, UV_RUN_DEFAULT);
    uv_thread_join(&thread);
    CHECK(uv_loop_close(&run.loop) == 0);
    CHECK(atomic_load(&run.answered) == proposers * per_thread && atomic_load(&run.reads_ok) == proposers * per_thread);
    return run.answered;
}

/* The file with the server's id, of a later format. */
static void refused_id(const char *folder) {
    char path[80];
    snprintf(path, sizeof path, "%s/server-id", folder);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs("server-id 2\n0123456789abcdef\n", file) >= 0 && fclose(file) == 0);
    uv_loop_t loop;
    CHECK(uv_loop_init(&loop) == 0);
    struct node_config config = {.folder = folder, .address = "127.0.0.1:8300", .bootstrap = true};
    struct node_callbacks callbacks = {.apply = apply, .snapshot_copy = copy, .snapshot_install = install};
    struct node *node;
    struct fault fault = {0};
    CHECK(node_start(&loop, &config, &callbacks, &node, &fault) == CO_UNSUPPORTED);
    CHECK(strcmp(fault.text, "server-id: written by a newer version of coord") == 0);
    CHECK(uv_loop_close(&loop) == 0);
}

/* -- a state machine that is held and rebuilt: the log goes on meanwhile ------------------------------------------ */
enum { EACH = 50 };
struct held_run {
    uv_loop_t loop;
    struct node *node;
    struct state state, healthy; /* healthy: what another server would have */
    uv_timer_t timer;
    int phase;
    bool own;
    _Atomic uint64_t rebuilds;
    _Atomic uint64_t answered, unknown;
    struct held_one {
        struct node_proposal proposal;
        struct held_run *run;
    } all[4 * EACH];
    size_t proposed;
};

static bool held(void *data) { return ((struct held_run *)data)->state.held; }
static uint64_t held_apply(void *data, struct node_apply *items, size_t count) {
    return apply(&((struct held_run *)data)->state, items, count);
}

static int rebuild(void *data, bool own, uint64_t *applied, struct fault *fault) {
    struct held_run *run = data;
    CHECK(own == run->own);
    if (run->rebuilds++ == 0) return fault_set(fault, CO_IO, "the first attempt fails");
    if (own)
        atomic_store(&run->state.applied, 0), atomic_store(&run->state.count, 0), atomic_store(&run->state.hash, 0);
    if (!own) {
        run->state.applied = atomic_load(&run->healthy.applied);
        run->state.count = atomic_load(&run->healthy.count);
        run->state.hash = atomic_load(&run->healthy.hash);
    }
    run->state.held = false;
    *applied = run->state.applied;
    return CO_OK;
}

static void rebuilt(void *data, int error, const struct fault *fault) {
    struct held_run *run = data;
    CHECK((run->rebuilds == 1) == (error != CO_OK) && (error == CO_OK) == (fault->code == CO_OK));
}

static void held_done(struct node_proposal *proposal, int error, const void *result) {
    struct held_one *one = CONTAINER_OF(proposal, struct held_one, proposal);
    CHECK(error == CO_OK ? result != NULL : error == CO_UNKNOWN_OUTCOME);
    atomic_fetch_add(error == CO_OK ? &one->run->answered : &one->run->unknown, 1);
}

static void held_propose(struct held_run *run) {
    for (int i = 0; i < EACH; i++) {
        struct held_one *one = &run->all[run->proposed++];
        *one = (struct held_one){.run = run, .proposal = {.done = held_done, .deadline_ms = clock_mono_ms() + 60000}};
        uint64_t value = run->proposed;
        one->proposal.data = raft_data_new(&value, sizeof value);
        node_propose(run->node, &one->proposal);
    }
}

static void held_closed(void *data) { uv_close((uv_handle_t *)&((struct held_run *)data)->timer, NULL); }

/* Before the hold, while it lasts (the first half is in the other server's state already), after it. */
static void held_tick(uv_timer_t *timer) {
    struct held_run *run = timer->data;
    uint64_t handed = atomic_load(&node_view(run->node)->handed), all = run->answered + run->unknown;
    switch (run->phase) {
        case 0: held_propose(run); break;
        case 1:
            if (all < EACH) return;
            run->state.held = true;
            held_propose(run);
            break;
        case 2:
            if (handed < 2 + 2 * EACH) return;
            CHECK(run->answered == EACH);
            atomic_store(&run->healthy.applied, handed);
            atomic_store(&run->healthy.count, 2 * EACH);
            for (uint64_t value = 1; value <= 2 * EACH; value++) run->healthy.hash = mix(run->healthy.hash, value);
            held_propose(run);
            break;
        case 3:
            if (handed < 2 + 3 * EACH) return;
            node_resume(run->node, run->own);
            break; /* fails */
        case 4:
            if (run->rebuilds < 1) return;
            CHECK(run->answered == EACH);
            node_resume(run->node, run->own);
            break;
        case 5:
            if (all < 3 * EACH) return;
            held_propose(run);
            break;
        case 6:
            if (all < 4 * EACH) return;
            node_stop(run->node, held_closed, run);
            uv_timer_stop(timer);
            break;
    }
    run->phase++;
}

static void held_life(bool own) {
    char folder[] = "/tmp/coord-node-XXXXXX", command[64];
    CHECK(mkdtemp(folder) != NULL);
    static struct held_run run;
    run = (struct held_run){.own = own};
    CHECK(uv_loop_init(&run.loop) == 0);
    struct node_config config = {.folder = folder, .address = "127.0.0.1:8300", .bootstrap = true};
    struct node_callbacks callbacks = {
        .data = &run, .apply = held_apply, .held = held, .rebuild = rebuild, .rebuilt = rebuilt};
    struct fault fault = {0};
    CHECK(node_start(&run.loop, &config, &callbacks, &run.node, &fault) == CO_OK);
    uv_timer_init(&run.loop, &run.timer);
    run.timer.data = &run;
    uv_timer_start(&run.timer, held_tick, 1, 1);
    uv_run(&run.loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&run.loop) == 0);
    uint64_t hash = 0;
    for (uint64_t value = 1; value <= 4 * EACH; value++) hash = mix(hash, value);
    CHECK(run.state.count == 4 * EACH && run.state.hash == hash); /* everything once and in order */
    CHECK(own ? run.unknown == 0 : run.unknown == EACH);          /* what the copy had already */
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

/* A new cluster's first command stands in the log before all others; what is refused never does. */
static void first_and_refused(void) {
    char folder[] = "/tmp/coord-node-XXXXXX", command[64];
    CHECK(mkdtemp(folder) != NULL);
    struct state state = {0}, again = {0};
    first_command = SLICE_LITERAL("first of");
    refusing = true;
    uint64_t answered = life(folder, &state, 4, 100, 64, 0);
    CHECK(answered == 400 && refused == 200 && state.count == 1 + 200);
    answered = life(folder, &again, 1, 2, 64, 0); /* once, not at every start */
    CHECK(answered == 2 && refused == 201 && again.count == 1 + 200 + 1);
    first_command = (struct slice){0}, refusing = false;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

/* A snapshot of 1 MiB, and 3.2 MB of log: taken every 64 KiB it would be written some 40 times. */
static void large_states_are_saved_seldom(void) {
    char folder[] = "/tmp/coord-node-XXXXXX", command[64];
    CHECK(mkdtemp(folder) != NULL);
    struct state state = {0};
    atomic_store(&copies, 0);
    ballast = 1 << 20;
    life(folder, &state, 4, 200, 4096, 64 << 10);
    CHECK(copies >= 2 && copies <= 5);
    ballast = 0;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

/* A server that never runs for long: what was written since the last snapshot counts, whoever wrote it. */
static void short_lives_are_saved_too(void) {
    char folder[] = "/tmp/coord-node-XXXXXX", command[64];
    CHECK(mkdtemp(folder) != NULL);
    struct state state = {0};
    atomic_store(&copies, 0);
    for (unsigned lives = 0; lives < 40; lives++) life(folder, &state, 1, 10, 4096, 256 << 10); /* 1.6 MB */
    CHECK(copies >= 4 && copies <= 8);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

/* How many of the log's files that `kept` has copies of the folder has too; with `again` it gets those that it
 * lacks. */
static unsigned segments_there(const char *folder, const char *kept, bool again) {
    DIR *dir = opendir(kept);
    CHECK(dir != NULL);
    unsigned there = 0;
    for (struct dirent *found; (found = readdir(dir)) != NULL;) {
        char path[300], command[700];
        if (strncmp(found->d_name, "log-", 4) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, found->d_name);
        if (access(path, F_OK) == 0) there++;
        else if (again) {
            snprintf(command, sizeof command, "cp %s/%s %s", kept, found->d_name, path);
            CHECK(system(command) == 0);
        }
    }
    closedir(dir);
    return there;
}

/* A server that was stopped, or died, after its snapshot and before it had removed the log that this holds. */
static void what_a_snapshot_holds_goes_at_the_next_start(void) {
    char folder[] = "/tmp/coord-node-XXXXXX", kept[64], command[200];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(kept, sizeof kept, "%s.kept", folder);
    struct state state = {0};
    life(folder, &state, 4, 130, 64 << 10, 1 << 30);
    snprintf(command, sizeof command, "mkdir %s && cp %s/log-* %s", kept, folder, kept);
    CHECK(system(command) == 0);
    unsigned all = segments_there(folder, kept, false), left = all;
    CHECK(all >= 3);
    for (unsigned lives = 0; left == all || left > 1; lives++) {
        CHECK(lives < 20);
        life(folder, &state, 1, 5, 64, 64 << 10);
        left = segments_there(folder, kept, false);
    }
    segments_there(folder, kept, true);
    CHECK(segments_there(folder, kept, false) == all);
    uint64_t count = state.count;
    state = (struct state){0};
    life(folder, &state, 1, 20, 64, 1 << 30);
    CHECK(state.count == count + 20 && segments_there(folder, kept, false) == left);
    snprintf(command, sizeof command, "rm -rf %s %s", folder, kept);
    CHECK(system(command) == 0);
}

/* Nothing more is written when half of the first segment is used: it is not the log writer's appends that make the
 * next one. */
static void the_next_segment_is_made_ready(void) {
    char folder[] = "/tmp/coord-node-XXXXXX", command[64];
    CHECK(mkdtemp(folder) != NULL);
    struct state state = {0};
    spare_folder = folder;
    spare_whole = true;
    life(folder, &state, 1, 10, 64 << 10, 1 << 30);
    spare_whole = false; /* of 64 MiB */
    /* through the first segment and half of the second: asked for twice */
    life(folder, &state, 1, 90, 64 << 10, 1 << 30);
    spare_folder = NULL;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

int main(void) {
    log_level_now = LOG_WARN;
    char folder[] = "/tmp/coord-node-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    struct state state = {0};
    uint64_t answered = life(folder, &state, 8, 200, 64, 0);
    CHECK(state.count == answered);
    uint64_t hash = state.hash;
    answered += life(folder, &state, 2, 50, 64, 0); /* restart with the state kept */
    CHECK(state.count == answered && state.hash != hash);
    hash = state.hash;
    struct state fresh = {0}; /* restart without it: replay from the log */
    answered += life(folder, &fresh, 1, 1, 64, 0);
    CHECK(fresh.count == answered);
    answered += life(folder, &fresh, 4, 100, 4096, 256 << 10); /* with snapshots, the log gets cut */
    struct state rebuilt = {0};                                /* from snapshot and log */
    answered += life(folder, &rebuilt, 1, 1, 64, 0);
    CHECK(rebuilt.count == answered);
    refused_id(folder);
    first_and_refused();
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    large_states_are_saved_seldom();
    short_lives_are_saved_too();
    what_a_snapshot_holds_goes_at_the_next_start();
    the_next_segment_is_made_ready();
    held_life(false);
    held_life(true);
    printf("8 passed, 0 failed\n");
    return 0;
}
