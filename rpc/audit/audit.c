/* The fence, the judgement, the scrub. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/random.h"
#include "rpc/audit/audit_internal.h"
#include "rpc/backup/backup.h"
#include "rpc/wire/frame_unpack.h"

#define TICK_MS       200
#define TELL_MS       2000  /* how often sums are sent again */
#define REPORT_MS     10000 /* sums of other servers count for so long */
#define OPEN_MS       10000 /* values differ, and the servers that could decide stay silent for so long: writes stop */
#define SCRUB_MOST_MS 5000  /* the limit of a scrub, which holds a read transaction; as much more for each GiB */
#define STUCK_MS      4000  /* when a batch takes so long the store is checked; after twice as long, again */
/* the applier may wait so long for the mark, which a full or busy disk delays */
#define UNMARKED_MS 20000

METRIC fenced_metric = {
    .name = "coord_fenced", .type = METRIC_GAUGE, .help = "1 while this server's state is damaged and being rebuilt"};
METRIC split_metric = {.name = "coord_audit_split",
                       .type = METRIC_GAUGE,
                       .help = "1 while no majority of servers agrees on the state: writes are stopped"};
METRIC index_metric = {.name = "coord_audit_index",
                       .type = METRIC_GAUGE,
                       .help = "The last index at which a majority had this server's sum"};
METRIC noted_index = {.name = "coord_audit_noted_index",
                      .type = METRIC_GAUGE,
                      .help = "The last index at which this server noted its sum"};
METRIC noted_sum = {.name = "coord_audit_noted_sum", .type = METRIC_GAUGE, .help = "The sum noted there"};
METRIC mismatches = {
    .name = "coord_audit_mismatches_total", .type = METRIC_COUNTER, .help = "Times the state was found damaged"};
METRIC scrubs = {
    .name = "coord_audit_scrubs_total", .type = METRIC_COUNTER, .help = "Times the store was read through"};
METRIC scrub_seconds = {
    .name = "coord_audit_scrub_seconds", .type = METRIC_HISTOGRAM, .help = "Time to read the store through"};
METRIC rebuilds = {.name = "coord_audit_rebuilds_total", .type = METRIC_COUNTER, .help = "Times the state was rebuilt"};

/* -- any thread --------------------------------------------------------------------------------------------------- */
int audit_serves(struct rpc *rpc) {
    return atomic_load_explicit(&rpc->audit->fenced, memory_order_acquire) ? CO_FENCED : CO_OK;
}

void audit_fenced_why(struct rpc *rpc, char line[160]) {
    struct audit *audit = rpc->audit;
    pthread_mutex_lock(&audit->lock);
    if (!atomic_load(&audit->fenced) && atomic_load(&audit->split))
        snprintf(line, 160,
                 "self-audit: no majority of the servers agrees on the state at index %" PRIu64
                 ": writes are stopped until an operator acts (operating.md)",
                 audit->split_index);
    else if (!atomic_load(&audit->fenced))
        snprintf(line, 160,
                 "the leader's self-audit refuses writes: its state is damaged, or no majority agrees with it (see its "
                 "log)");
    else
        snprintf(line, 160, "this server's state is damaged at index %" PRIu64 ": it is being rebuilt",
                 audit->fenced_index);
    pthread_mutex_unlock(&audit->lock);
}

void audit_fence(struct rpc *rpc, const char *reason) {
    struct audit *audit = rpc->audit;
    pthread_mutex_lock(&audit->lock);
    if (!atomic_load(&audit->fenced)) {
        snprintf(audit->reason, sizeof audit->reason, "%s", reason);
        audit->fenced_index = machine_applied(rpc->machine);
        audit->fenced_ms = clock_mono_ms();
        audit->marked = false;
        atomic_store(&audit->fenced, true); /* nothing is served from here on */
        metric_add(&mismatches, 1);
        metric_set(&fenced_metric, 1);
        pthread_cond_broadcast(&audit->wake);
    }
    pthread_mutex_unlock(&audit->lock);
}

void audit_look(struct rpc *rpc) {
    struct audit *audit = rpc->audit;
    pthread_mutex_lock(&audit->lock);
    atomic_store(&audit->look, true);
    pthread_cond_broadcast(&audit->wake);
    pthread_mutex_unlock(&audit->lock);
}

/* -- the audit's thread: marks and scrubs ------------------------------------------------------------------------- */
static void write_mark(struct audit *audit) {
    char text[400];
    struct fault fault = {0};
    pthread_mutex_lock(&audit->lock);
    snprintf(text, sizeof text, "index=%" PRIu64 " %s", audit->fenced_index, audit->reason);
    pthread_mutex_unlock(&audit->lock);
    if (store_fence(audit->store_folder, text, &fault) != CO_OK) {
        log_error("audit", "the fence is not durable: %s", fault.text);
        sleep(1); /* then try again */
        return;
    }
    pthread_mutex_lock(&audit->lock);
    bool over = !atomic_load(&audit->fenced); /* the state was replaced meanwhile */
    audit->marked = !over;
    pthread_mutex_unlock(&audit->lock);
    if (over && store_unfence(audit->store_folder) != CO_OK)
        log_error("audit", "the mark of the fence cannot be removed folder=%s", audit->store_folder);
    uv_async_send(&audit->async);
}

struct scrub {
    struct audit *audit;
    uint64_t until_ms;
};

static bool scrub_stop(void *data) {
    const struct scrub *scrub = data;
    return atomic_load(&scrub->audit->quit) || atomic_load(&scrub->audit->fenced) || clock_mono_ms() >= scrub->until_ms;
}

static void scrub(struct audit *audit) {
    struct store *store = machine_store(audit->rpc->machine);
    uint64_t begun = clock_mono_ns(), allowed = SCRUB_MOST_MS + SCRUB_MOST_MS * (store_bytes(store) >> 20) / 1024;
    struct scrub limits = {audit, begun / 1000000 + allowed};
    struct store_scrubbed seen;
    struct fault fault = {0};
    int rv = store_examine(store, scrub_stop, &limits, &seen, &fault);
    if (atomic_load(&audit->quit) || atomic_load(&audit->fenced)) return;
    if (rv == CO_OK || rv == CO_CORRUPT) {
        metric_add(&scrubs, 1);
        metric_observe_ns(&scrub_seconds, clock_mono_ns() - begun);
    }
    if (rv == CO_CORRUPT) {
        char reason[256];
        snprintf(reason, sizeof reason, "scrub: %.240s", fault.text);
        audit_fence(audit->rpc, reason);
    } else if (rv == CO_AGAIN) {
        log_warn("audit", "a scrub was given up, it took too long ms=%" PRIu64 " pages=%" PRIu64, allowed, seen.pages);
    } else if (rv != CO_OK) {
        log_warn("audit", "the store cannot be scrubbed: %s", fault.text);
    }
}

static uint64_t next_scrub(const struct audit *audit, uint64_t interval_ms) {
    return audit->scrub_interval_ms ? clock_mono_ms() + interval_ms : UINT64_MAX;
}

static void wait_for(struct audit *audit, uint64_t at_ms) {
    uint64_t now_ms = clock_mono_ms(), wait_ms = at_ms > now_ms ? at_ms - now_ms : 0;
    if (wait_ms > 3600000) wait_ms = 3600000;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(wait_ms / 1000), until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    if (wait_ms) pthread_cond_timedwait(&audit->wake, &audit->lock, &until);
}

/* The thread's main function. The first scrub has a random delay, so that servers that began together do not scrub
 * together. */
static void *audit_main(void *arg) {
    struct audit *audit = arg;
    background_thread("audit");
    uint64_t scrub_ms =
        next_scrub(audit, audit->scrub_interval_ms / 2 + random_u64() % (audit->scrub_interval_ms / 2 + 1));
    while (!atomic_load(&audit->quit)) {
        pthread_mutex_lock(&audit->lock);
        bool fenced = atomic_load(&audit->fenced), mark = fenced && !audit->marked;
        bool due = !fenced && (atomic_exchange(&audit->look, false) || clock_mono_ms() >= scrub_ms);
        if (!mark && !due && !atomic_load(&audit->quit)) wait_for(audit, fenced ? UINT64_MAX : scrub_ms);
        pthread_mutex_unlock(&audit->lock);
        if (mark) write_mark(audit);
        if (!due) continue;
        scrub(audit);
        scrub_ms = next_scrub(audit, audit->scrub_interval_ms);
    }
    return NULL;
}

/* -- the applier's thread ----------------------------------------------------------------------------------------- */
bool audit_may_apply(struct rpc *rpc) {
    struct audit *audit = rpc->audit;
    audit->holding = atomic_load(&audit->fenced) && !audit->replaying;
    if (!audit->holding) atomic_store(&audit->apply_begun_ms, clock_mono_ms());
    return !audit->holding;
}

void audit_applied(struct rpc *rpc) { atomic_store(&rpc->audit->apply_begun_ms, 0); }

bool audit_held(void *data) { return ((struct rpc *)data)->audit->holding; }

/* The state was replaced: removes the mark, then the fence. */
static void lift(struct rpc *rpc) {
    struct audit *audit = rpc->audit;
    if (store_unfence(audit->store_folder) != CO_OK)
        log_error("audit", "the mark of the fence cannot be removed folder=%s", audit->store_folder);
    pthread_mutex_lock(&audit->lock);
    uint64_t ms = clock_mono_ms() - audit->fenced_ms;
    audit->marked = audit->holding = false;
    atomic_store(&audit->fenced, false);
    pthread_cond_broadcast(&audit->wake);
    pthread_mutex_unlock(&audit->lock);
    metric_set(&fenced_metric, 0);
    metric_add(&rebuilds, 1);
    log_info("audit", "the state was rebuilt, this server serves again index=%" PRIu64 " ms=%" PRIu64,
             machine_applied(rpc->machine), ms);
    atomic_store(&audit->lifted, true);
    uv_async_send(&audit->async);
}

/* A snapshot was restored. At the start it is this server's own, which may have the damage, so the fence stays. */
void audit_installed(struct rpc *rpc) {
    struct audit *audit = rpc->audit;
    if (rpc->node && audit->running && !audit->replaying && atomic_load(&audit->fenced)) lift(rpc);
}

int audit_rebuild(void *data, bool own, uint64_t *applied, struct fault *fault) {
    struct rpc *rpc = data;
    struct audit *audit = rpc->audit;
    int rv;
    /* Meanwhile the leader may have sent a snapshot. */
    if (!atomic_load(&audit->fenced) || (!own && audit->rebuild.index < *applied))
        return fault_set(fault, CO_CONFLICT, "the state has been replaced already");
    if (own) {
        rv = machine_reset(rpc->machine, fault);
        audit->replaying = rv == CO_OK;
    } else {
        rv = lseek(audit->rebuild.fd, 0, SEEK_SET) == 0 ? CO_OK : CO_IO;
        if (rv == CO_OK) rv = machine_install(rpc->machine, audit->rebuild.fd, audit->rebuild.size, fault);
        if (rv == CO_OK) machine_sums_set(rpc->machine, &audit->rebuild.ring);
    }
    *applied = machine_applied(rpc->machine);
    return rv;
}

void audit_rebuilt(void *data, int error, const struct fault *fault) {
    struct rpc *rpc = data;
    struct audit *audit = rpc->audit;
    audit->replaying = false;
    if (error == CO_OK) {
        lift(rpc);
        return;
    }
    log_error("audit", "the state cannot be rebuilt, trying again: %s", fault->code ? fault->text : co_strerror(error));
    atomic_fetch_add(&audit->failed, 1);
    uv_async_send(&audit->async);
}

/* -- messages ----------------------------------------------------------------------------------------------------- */
size_t audit_pairs(const struct audit_ring *ring, uint64_t most, Pb__PeerAuditPair *room, Pb__PeerAuditPair **pairs) {
    size_t count = 0;
    for (size_t i = 0; i < ring->count && ring->pairs[i].index <= most; i++, count++) {
        pairs[count] = &room[count];
        room[count] = (Pb__PeerAuditPair)PB__PEER_AUDIT_PAIR__INIT;
        room[count].index = ring->pairs[i].index, room[count].sum = ring->pairs[i].sum;
    }
    return count;
}

void audit_ring_from(struct audit_ring *ring, Pb__PeerAuditPair *const *pairs, size_t count) {
    *ring = (struct audit_ring){0};
    for (size_t i = 0; i < count; i++) audit_note(ring, pairs[i]->index, pairs[i]->sum);
}

static void tell_all(struct rpc *rpc, const struct audit_ring *ring, bool fenced, uint64_t now_ms) {
    struct audit *audit = rpc->audit;
    if (!rpc->others) return;
    if (now_ms - audit->told_ms < TELL_MS && audit->told_index == audit_newest(ring) && audit->told_fenced == fenced)
        return;
    audit->told_ms = now_ms, audit->told_index = audit_newest(ring), audit->told_fenced = fenced;
    Pb__PeerAuditPair room[AUDIT_KEPT], *pairs[AUDIT_KEPT];
    Pb__PeerAudit message = PB__PEER_AUDIT__INIT;
    message.fenced = fenced, message.pairs = pairs;
    message.n_pairs = fenced ? 0 : audit_pairs(ring, UINT64_MAX, room, pairs);
    struct peer_info peers[PEERS_MAX];
    for (size_t i = 0, count = peers_list(rpc->others, peers, PEERS_MAX); i < count; i++)
        peers_tell(rpc->others, peers[i].id, PEER_AUDIT, &message.base);
}

static bool take_report(struct rpc *rpc, uint64_t from, struct slice payload) {
    Pb__PeerAudit *message = frame_unpack(&pb__peer_audit__descriptor, payload, NULL);
    if (!message) return false;
    struct audit_reported *reported = rpc->audit->reported, *place = reported;
    for (size_t i = 0; i < PEERS_MAX; i++) {
        if (reported[i].id == from) {
            place = &reported[i];
            break;
        }
        if (reported[i].ms < place->ms) place = &reported[i];
    }
    *place = (struct audit_reported){.id = from, .ms = clock_mono_ms(), .fenced = message->fenced};
    audit_ring_from(&place->ring, message->pairs, message->fenced ? 0 : message->n_pairs);
    frame_drop(message);
    return true;
}

bool audit_damaged(const struct rpc *rpc, uint64_t peer) {
    for (size_t i = 0; i < PEERS_MAX; i++)
        if (rpc->audit->reported[i].id == peer) return rpc->audit->reported[i].fenced;
    return false;
}

bool audit_split(const struct rpc *rpc) { return atomic_load(&rpc->audit->split); }

/* -- judging ------------------------------------------------------------------------------------------------------ */
static void set_split(struct rpc *rpc, const struct audit_judgement *judgement, bool split) {
    struct audit *audit = rpc->audit;
    pthread_mutex_lock(&audit->lock);
    audit->split_index = judgement->index;
    pthread_mutex_unlock(&audit->lock);
    if (atomic_exchange(&audit->split, split) == split) return;
    if (split)
        log_error("audit",
                  "no majority of the servers agrees on the state, writes are stopped until an operator acts "
                  "index=%" PRIu64 " own=%016" PRIx64 " other=%016" PRIx64
                  " (stop the server that is to give way, create the file %s/fenced there, start it: it takes "
                  "another's state)",
                  judgement->index, judgement->own, judgement->other, audit->store_folder);
    else
        log_info("audit", "a majority agrees on the state again, writes are accepted index=%" PRIu64, judgement->index);
    metric_set(&split_metric, split);
    node_refuse(rpc->node, split);
}

static void minority(struct rpc *rpc, const struct audit_judgement *judgement) {
    char reason[200];
    snprintf(reason, sizeof reason, "sums differ at index %" PRIu64 ": own=%016" PRIx64 " majority=%016" PRIx64,
             judgement->index, judgement->own, judgement->other);
    audit_fence(rpc, reason);
}

static struct audit_judgement judge(struct rpc *rpc, const struct audit_ring *own, uint64_t now_ms) {
    struct audit *audit = rpc->audit;
    const struct raft_members *members = node_members(rpc->node);
    struct audit_report reports[RAFT_MEMBERS_MAX + 1];
    size_t count = 0, voters = 0;
    uint64_t self = atomic_load(&node_view(rpc->node)->id);
    for (uint32_t i = 0; i < members->count; i++) {
        const struct raft_member *member = &members->member[i];
        voters += member->voter;
        reports[count] = (struct audit_report){.id = member->id, .voter = member->voter};
        if (member->id == self) reports[count].ring = *own;
        for (size_t j = 0; j < PEERS_MAX; j++)
            if (audit->reported[j].id == member->id && now_ms - audit->reported[j].ms < REPORT_MS)
                reports[count].ring = audit->reported[j].ring;
        count++;
    }
    return audit_judge(self, voters, reports, count);
}

static void judge_and_act(struct rpc *rpc, const struct audit_ring *own, uint64_t now_ms) {
    struct audit *audit = rpc->audit;
    struct audit_judgement judgement = judge(rpc, own, now_ms);
    if (judgement.verdict != AUDIT_OPEN) audit->open_since_ms = 0;
    switch (judgement.verdict) {
        case AUDIT_NOTHING: return;
        case AUDIT_EQUAL:
            metric_set(&index_metric, judgement.index);
            if (atomic_load(&audit->split)) set_split(rpc, &judgement, false);
            return;
        case AUDIT_MINORITY: minority(rpc, &judgement); return;
        case AUDIT_OPEN:
            if (audit->open_since_ms == 0) audit->open_since_ms = now_ms;
            if (now_ms - audit->open_since_ms >= OPEN_MS) set_split(rpc, &judgement, true);
            return;
        case AUDIT_SPLIT: set_split(rpc, &judgement, true); return;
    }
}

/* -- the loop ----------------------------------------------------------------------------------------------------- */
static bool marked(struct audit *audit) {
    pthread_mutex_lock(&audit->lock);
    bool is = audit->marked;
    pthread_mutex_unlock(&audit->lock);
    return is;
}

/* Lets the other servers take over. This does not wait for the mark, which a full disk may delay; only the rebuilding
 * waits for it. */
static void fence_begins(struct rpc *rpc) {
    struct audit *audit = rpc->audit;
    pthread_mutex_lock(&audit->lock);
    char reason[256];
    snprintf(reason, sizeof reason, "%s", audit->reason);
    uint64_t index = audit->fenced_index;
    pthread_mutex_unlock(&audit->lock);
    if (audit->fence_seen) return;
    audit->fence_seen = true;
    log_error("audit",
              "FENCED: this server's state is damaged, it is not served and will be rebuilt index=%" PRIu64
              " reason=\"%s\"",
              index, reason);
    audit->stuck_look_ms = clock_mono_ms() + STUCK_MS / 2;
    node_fence(rpc->node, true);
}

/* A damaged page may keep LMDB within a batch for any time (it moves as many bytes as a damaged number says), and no
 * thread can be brought out of there. A batch may also just be large. So the store is checked, and the process ends
 * only if it is damaged; when it is started again its store is rebuilt. */
static void watch_applier(struct rpc *rpc, uint64_t now_ms) {
    struct audit *audit = rpc->audit;
    uint64_t begun = atomic_load(&audit->apply_begun_ms);
    if (begun != audit->stuck_begun_ms) audit->stuck_begun_ms = begun, audit->stuck_look_ms = begun + STUCK_MS;
    if (begun == 0 || now_ms < audit->stuck_look_ms) return;
    audit->stuck_look_ms = now_ms + 2 * (now_ms - begun);
    if (!atomic_load(&audit->fenced)) {
        audit_look(rpc);
        return;
    }
    if (!marked(audit) && now_ms - begun < UNMARKED_MS) { /* without the mark the next start would trust the store */
        audit->stuck_look_ms = now_ms + 500;
        return;
    }
    log_error("audit",
              "the applier does not return from the damaged store: the process ends, and rebuilds it when it "
              "is started again ms=%" PRIu64,
              now_ms - begun);
    abort();
}

static void on_tick(uv_timer_t *timer) {
    struct rpc *rpc = timer->data;
    struct audit *audit = rpc->audit;
    if (rpc->stopping) return;
    uint64_t now_ms = clock_mono_ms();
    bool fenced = atomic_load(&audit->fenced);
    if (!fenced && store_damaged(machine_store(rpc->machine)))
        audit_fence(rpc, "the store is damaged: a read or a change met it"), fenced = true;
    struct audit_ring own;
    machine_sums(rpc->machine, &own);
    if (!fenced && own.count)
        metric_set(&noted_index, audit_newest(&own)), metric_set(&noted_sum, own.pairs[own.count - 1].sum);
    tell_all(rpc, &own, fenced, now_ms);
    if (!fenced) judge_and_act(rpc, &own, now_ms);
    if (fenced) fence_begins(rpc);
    if (audit->fence_seen) {
        if (atomic_load(&node_view(rpc->node)->role) == RAFT_LEADER) (void)node_transfer(rpc->node, 0);
        if (marked(audit)) rebuild_tick(rpc, now_ms);
    }
    watch_applier(rpc, now_ms);
    restore_abandoned_look(rpc, atomic_load(&node_view(rpc->node)->ready));
    state_source_tick(rpc, now_ms);
}

static void on_wake(uv_async_t *async) {
    struct rpc *rpc = async->data;
    struct audit *audit = rpc->audit;
    if (rpc->stopping) return;
    if (atomic_exchange(&audit->lifted, false)) {
        rebuild_end(rpc, false);
        audit->fence_seen = false;
        node_fence(rpc->node, false);
    } else if (atomic_exchange(&audit->failed, 0)) {
        rebuild_end(rpc, true);
    }
    on_tick(&audit->timer);
}

bool audit_frame(struct rpc *rpc, uint64_t from, uint8_t type, struct slice payload) {
    if (type == PEER_AUDIT) return take_report(rpc, from, payload);
    Pb__PeerCopyAsk *ask = frame_unpack(&pb__peer_copy_ask__descriptor, payload, NULL);
    if (!ask) return false;
    state_source_ask(rpc, from, ask);
    frame_drop(ask);
    return true;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
static char *path_in(const char *folder, const char *name) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = mem_alloc(size);
    snprintf(path, size, "%s/%s", folder, name);
    return path;
}

struct audit *audit_new(struct rpc *rpc, const char *folder, uint64_t scrub_interval_ms) {
    static struct metric *const metrics[] = {&fenced_metric, &split_metric, &index_metric,  &noted_index, &noted_sum,
                                             &mismatches,    &scrubs,       &scrub_seconds, &rebuilds};
    for (size_t i = 0; i < ARRAY_COUNT(metrics); i++) metric_register(metrics[i]);
    struct audit *audit = mem_zalloc(sizeof *audit);
    audit->rpc = rpc, audit->scrub_interval_ms = scrub_interval_ms;
    audit->data_folder = mem_strdup(folder), audit->store_folder = path_in(folder, "store");
    audit->rebuild.fd = -1;
    pthread_mutex_init(&audit->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&audit->wake, &clock);
    pthread_condattr_destroy(&clock);
    store_watch_crashes(audit->store_folder);
    char line[400];
    if (store_fenced(audit->store_folder, line, sizeof line)) {
        unsigned long long index = 0;
        if (sscanf(line, "index=%llu", &index) == 1) audit->fenced_index = index;
        snprintf(audit->reason, sizeof audit->reason, "when it ended: %.200s", line);
        audit->marked = true, audit->fenced_ms = clock_mono_ms();
        atomic_store(&audit->fenced, true);
        metric_set(&fenced_metric, 1);
    }
    return audit;
}

void audit_free(struct audit *audit) {
    if (audit->rebuild.fd >= 0) close(audit->rebuild.fd);
    pthread_mutex_destroy(&audit->lock);
    pthread_cond_destroy(&audit->wake);
    free(audit->data_folder), free(audit->store_folder);
    free(audit);
}

void audit_start(struct rpc *rpc) {
    struct audit *audit = rpc->audit;
    CHECK(uv_timer_init(rpc->loop, &audit->timer) == 0 && uv_async_init(rpc->loop, &audit->async, on_wake) == 0);
    audit->timer.data = audit->async.data = rpc;
    audit->running = true;
    if (!store_examined(machine_store(rpc->machine))) atomic_store(&audit->look, true);
    CHECK(pthread_create(&audit->thread, NULL, audit_main, audit) == 0);
    uv_timer_start(&audit->timer, on_tick, 0, TICK_MS);
}

void audit_quit(struct rpc *rpc) {
    struct audit *audit = rpc->audit;
    pthread_mutex_lock(&audit->lock);
    atomic_store(&audit->quit, true);
    pthread_cond_broadcast(&audit->wake);
    pthread_mutex_unlock(&audit->lock);
}

static void handle_closed(uv_handle_t *handle) {
    struct rpc *rpc = handle->data;
    if (--rpc->audit->closing == 0) rpc->audit->stopped(rpc);
}

void audit_stop(struct rpc *rpc, void (*stopped)(void *data)) {
    struct audit *audit = rpc->audit;
    audit->stopped = stopped;
    pthread_join(audit->thread, NULL);
    state_source_stop(rpc);
    audit->closing = 2;
    uv_close((uv_handle_t *)&audit->timer, handle_closed);
    uv_close((uv_handle_t *)&audit->async, handle_closed);
}
