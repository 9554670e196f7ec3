/* A fenced server finds a state: a copy from another one, piece by piece into a file without a name, checked, and
 * handed to the applier once the log here has brought it at least as far. Whatever goes wrong, it begins again with
 * another server. Alone: its own snapshot and log. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "rpc/audit/audit_internal.h"
#include "rpc/backup/archive.h"

#define PAUSE_MS      500 /* before the next attempt; longer after each that failed */
#define PAUSES_MAX    20
#define PIECE_MOST_MS 30000 /* the first piece waits for the whole copy, which takes COPY_MS_A_MIB at most */
#define COPY_MS_A_MIB 100
#define HEARD_MS      10000
#define COPY_MOST     ((uint64_t)1 << 40)

static void begin_again(struct audit *audit, uint64_t now_ms) {
    if (audit->rebuild.fd >= 0) close(audit->rebuild.fd);
    audit->rebuild.fd = -1;
    audit->rebuild.step = REBUILD_IDLE;
    uint64_t pauses = 1 + audit->rebuild.failures;
    audit->rebuild.next_ms = now_ms + PAUSE_MS * (pauses < PAUSES_MAX ? pauses : PAUSES_MAX);
}

static void give_up(struct audit *audit, const char *why) {
    log_warn("audit", "no copy of the state from id=%016" PRIx64 ": %s", audit->rebuild.from, why);
    audit->rebuild.failures++;
    begin_again(audit, clock_mono_ms());
}

void rebuild_end(struct rpc *rpc, bool failed) {
    struct audit *audit = rpc->audit;
    if (failed) audit->rebuild.failures++;
    else audit->rebuild.failures = 0;
    begin_again(audit, clock_mono_ms());
}

void rebuild_down(struct rpc *rpc, uint64_t peer) {
    struct audit *audit = rpc->audit;
    if (audit->rebuild.from == peer && audit->rebuild.step == REBUILD_ASKED) give_up(audit, "its connection ended");
}

/* -- from whom
 * ------------------------------------------------------------------------------------------------------ */
static bool alone(struct rpc *rpc) {
    const struct raft_members *members = node_members(rpc->node);
    uint64_t self = atomic_load(&node_view(rpc->node)->id);
    for (uint32_t i = 0; i < members->count; i++)
        if (members->member[i].id != self) return false;
    return true;
}

/* Followers first, the leader has enough to do; after a failure the next one. */
static uint64_t choose(struct rpc *rpc, uint64_t now_ms) {
    struct audit *audit = rpc->audit;
    uint64_t found[PEERS_MAX + 1], leader = atomic_load(&node_view(rpc->node)->leader);
    size_t count = 0;
    bool leads = false;
    for (size_t i = 0; i < PEERS_MAX; i++) {
        const struct audit_heard *heard = &audit->heard[i];
        if (!heard->id || heard->fenced || now_ms - heard->ms > HEARD_MS) continue;
        if (!raft_members_find(node_members(rpc->node), heard->id) || !peers_link(rpc->others, heard->id)) continue;
        if (heard->id == leader) leads = true;
        else found[count++] = heard->id;
    }
    if (leads) found[count++] = leader;
    return count ? found[audit->rebuild.failures % count] : 0;
}

static void ask(struct rpc *rpc) {
    struct audit *audit = rpc->audit;
    Pb__PeerCopyAsk message = PB__PEER_COPY_ASK__INIT;
    message.number = audit->rebuild.number, message.offset = audit->rebuild.offset;
    message.least = atomic_load(&node_view(rpc->node)->applied);
    audit->rebuild.step = REBUILD_ASKED;
    audit->rebuild.asked_ms = clock_mono_ms();
    peers_tell(rpc->others, audit->rebuild.from, PEER_COPY_ASK, &message.base);
}

static void begin(struct rpc *rpc, uint64_t now_ms) {
    struct audit *audit = rpc->audit;
    if (alone(rpc)) {
        log_info("audit", "there is no other server: the state is rebuilt from this one's snapshot and log");
        audit->rebuild.step = REBUILD_APPLIER;
        node_resume(rpc->node, true);
        return;
    }
    struct fault fault = {0};
    audit->rebuild.from = rpc->others ? choose(rpc, now_ms) : 0;
    audit->rebuild.next_ms = now_ms + PAUSE_MS;
    if (!audit->rebuild.from) return;
    audit->rebuild.fd = archive_temporary(audit->data_folder, &fault);
    if (audit->rebuild.fd < 0) {
        give_up(audit, fault.text);
        return;
    }
    audit->rebuild.number = random_u64(), audit->rebuild.offset = audit->rebuild.size = audit->rebuild.index = 0;
    log_info("audit", "asking for a copy of the state id=%016" PRIx64, audit->rebuild.from);
    ask(rpc);
}

static uint64_t patience_ms(struct rpc *rpc) {
    /* how large the other's state is can only be guessed: like the one here */
    bool first = rpc->audit->rebuild.offset == 0;
    return PIECE_MOST_MS + (first ? (store_bytes(machine_store(rpc->machine)) >> 20) * COPY_MS_A_MIB : 0);
}

void rebuild_tick(struct rpc *rpc, uint64_t now_ms) {
    struct audit *audit = rpc->audit;
    switch (audit->rebuild.step) {
        case REBUILD_IDLE:
            if (now_ms >= audit->rebuild.next_ms) begin(rpc, now_ms);
            return;
        case REBUILD_ASKED:
            if (now_ms - audit->rebuild.asked_ms > patience_ms(rpc)) give_up(audit, "it does not answer");
            return;
        case REBUILD_READY:
            if (atomic_load(&node_view(rpc->node)->handed) < audit->rebuild.index) return;
            audit->rebuild.step = REBUILD_APPLIER;
            node_resume(rpc->node, false);
            return;
        case REBUILD_WORKING:
        case REBUILD_APPLIER: return;
    }
}

/* -- a piece, in the pool
 * ------------------------------------------------------------------------------------------------ */
struct piece_work {
    uv_work_t uv;
    struct rpc *rpc;
    uint64_t number, offset, size, index;
    int fd, error; /* fd: its own */
    bool last;
    size_t data_size;
    struct fault fault;
    char data[];
};

static void piece_run(uv_work_t *uv) {
    struct piece_work *work = CONTAINER_OF(uv, struct piece_work, uv);
    for (size_t done = 0; done < work->data_size && !work->error;) {
        ssize_t n = pwrite(work->fd, work->data + done, work->data_size - done, (off_t)(work->offset + done));
        if (n > 0) done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            work->error = fault_set(&work->fault, n ? co_from_errno(errno) : CO_IO, "it cannot be written here");
    }
    if (work->error || !work->last) return;
    /* The state here may be empty, of no version yet: what counts is what this program knows. */
    uint64_t applied = 0;
    if (lseek(work->fd, 0, SEEK_SET) != 0) work->error = CO_IO;
    else work->error = machine_copy_look(work->rpc->machine, work->fd, work->size, &applied, &work->fault);
    if (!work->error && applied != work->index)
        work->error = fault_set(&work->fault, CO_CORRUPT, "it is not of the index that it was sent with");
}

static void piece_over(uv_work_t *uv, int status) {
    (void)status;
    struct piece_work *work = CONTAINER_OF(uv, struct piece_work, uv);
    struct rpc *rpc = work->rpc;
    struct audit *audit = rpc->audit;
    close(work->fd);
    if (!rpc->stopping && audit->rebuild.step == REBUILD_WORKING && audit->rebuild.number == work->number) {
        audit->rebuild.offset += work->data_size;
        if (work->error) give_up(audit, work->fault.code ? work->fault.text : co_strerror(work->error));
        else if (!work->last) ask(rpc);
        else {
            log_info("audit", "a copy of the state is here index=%" PRIu64 " bytes=%" PRIu64, audit->rebuild.index,
                     audit->rebuild.size);
            audit->rebuild.step = REBUILD_READY;
            rebuild_tick(rpc, clock_mono_ms());
        }
    }
    free(work);
    rpc_job_over(rpc);
}

static const char *unfit(const struct audit *audit, const Pb__PeerCopyPiece *piece) {
    if (piece->outcome != CO_OK) return co_strerror((int)piece->outcome);
    if (piece->offset != audit->rebuild.offset || piece->data.len == 0 || piece->size > COPY_MOST)
        return "a piece does not fit";
    if (piece->data.len > piece->size - piece->offset) return "a piece is too long";
    if (piece->offset && (piece->size != audit->rebuild.size || piece->index != audit->rebuild.index))
        return "it began anew";
    return NULL;
}

void rebuild_piece(struct rpc *rpc, uint64_t from, const Pb__PeerCopyPiece *piece) {
    struct audit *audit = rpc->audit;
    if (audit->rebuild.step != REBUILD_ASKED || from != audit->rebuild.from || piece->number != audit->rebuild.number)
        return;
    const char *why = unfit(audit, piece);
    int fd = why ? -1 : dup(audit->rebuild.fd);
    if (fd < 0) {
        give_up(audit, why ? why : "no file descriptor");
        return;
    }
    if (piece->offset == 0) {
        audit->rebuild.size = piece->size, audit->rebuild.index = piece->index;
        audit_ring_from(&audit->rebuild.ring, piece->pairs, piece->n_pairs);
    }
    struct piece_work *work = mem_zalloc(sizeof *work + piece->data.len);
    work->rpc = rpc, work->number = piece->number, work->offset = piece->offset, work->size = piece->size,
    work->fd = fd;
    work->index = piece->index;
    work->data_size = piece->data.len, work->last = piece->offset + piece->data.len == piece->size;
    memcpy(work->data, piece->data.data, piece->data.len);
    audit->rebuild.step = REBUILD_WORKING;
    rpc_job_begin(rpc);
    CHECK(uv_queue_work(rpc->loop, &work->uv, piece_run, piece_over) == 0);
}
