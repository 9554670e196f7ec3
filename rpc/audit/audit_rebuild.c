/* A fenced server gets a new state. It copies the state of another server, piece by piece, into a file without a name,
 * checks it, and hands it to the applier once its own log reaches at least as far. When anything fails, it begins again
 * with another server. A server that is alone uses its own snapshot and log. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/audit/audit_internal.h"
#include "rpc/backup/archive.h"
#include "rpc/backup/backup_transfer.h"

#define PAUSE_MS      500 /* before the next attempt; longer after each that failed */
#define PAUSES_MAX    20
#define PIECE_MOST_MS 30000 /* the first piece waits for the whole copy, which takes COPY_MS_A_MIB at most */
#define COPY_MS_A_MIB 100
#define REPORT_MS     10000
#define COPY_MOST     ((uint64_t)1 << 40)

static void begin_again(struct audit *audit, uint64_t now_ms) {
    if (audit->rebuild.call.peer) calls_cancel(audit->rpc->calls, &audit->rebuild.call);
    if (audit->rebuild.fd >= 0) close(audit->rebuild.fd);
    audit->rebuild.fd = -1;
    audit->rebuild.step = REBUILD_IDLE;
    uint64_t pauses = 1 + audit->rebuild.failures;
    audit->rebuild.next_ms = now_ms + PAUSE_MS * (pauses < PAUSES_MAX ? pauses : PAUSES_MAX);
}

static void give_up(struct audit *audit, const char *why) {
    log_warn("audit", "no copy of the state from node=%s id=%016" PRIx64 ": %s",
             rpc_server_name(audit->rpc, audit->rebuild.from), audit->rebuild.from, why);
    audit->rebuild.failures++;
    begin_again(audit, clock_mono_ms());
}

void rebuild_end(struct rpc *rpc, bool failed) {
    struct audit *audit = rpc->audit;
    if (failed) audit->rebuild.failures++;
    else audit->rebuild.failures = 0;
    begin_again(audit, clock_mono_ms());
}

/* -- the source --------------------------------------------------------------------------------------------------- */
static bool alone(struct rpc *rpc) {
    const struct raft_members *members = node_members(rpc->node);
    uint64_t self = atomic_load(&node_view(rpc->node)->id);
    for (uint32_t i = 0; i < members->count; i++)
        if (members->member[i].id != self) return false;
    return true;
}

/* Chooses the server to copy from: followers first, because the leader has enough to do; after a failure the next
 * one. */
static uint64_t choose(struct rpc *rpc, uint64_t now_ms) {
    struct audit *audit = rpc->audit;
    uint64_t found[PEERS_MAX + 1], leader = atomic_load(&node_view(rpc->node)->leader);
    size_t count = 0;
    bool leads = false;
    for (size_t i = 0; i < PEERS_MAX; i++) {
        const struct audit_reported *reported = &audit->reported[i];
        if (!reported->id || reported->fenced || now_ms - reported->ms > REPORT_MS) continue;
        if (!raft_members_find(node_members(rpc->node), reported->id) || !peers_link(rpc->others, reported->id))
            continue;
        if (reported->id == leader) leads = true;
        else found[count++] = reported->id;
    }
    if (leads) found[count++] = leader;
    return count ? found[audit->rebuild.failures % count] : 0;
}

/* -- the call ----------------------------------------------------------------------------------------------------- */
static struct audit *audit_of(const struct call *call) { return CONTAINER_OF(call, struct audit, rebuild.call); }
static uint64_t route(const struct call *call) { return audit_of(call)->rebuild.from; }

static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    struct audit *audit = audit_of(call);
    Pb__PeerCopyAsk *message = arena_alloc(arena, sizeof *message);
    pb__peer_copy_ask__init(message);
    message->offset = audit->rebuild.offset;
    message->least = atomic_load(&node_view(audit->rpc->node)->applied);
    /* the size of the other server's state is not known: assume that of the state here */
    uint64_t copy_ms = (store_bytes(machine_store(audit->rpc->machine)) >> 20) * COPY_MS_A_MIB;
    call->answer_ms = (uint32_t)(PIECE_MOST_MS + (audit->rebuild.offset == 0 ? copy_ms : 0));
    return &message->base;
}

const struct call_method copy_method = {.name = "copy of the state",
                                        .request_frame = PEER_COPY_ASK,
                                        .answer_frame = PEER_COPY_PIECE,
                                        .request = &pb__peer_copy_ask__descriptor,
                                        .answer = &pb__peer_copy_piece__descriptor,
                                        .pulled = true,
                                        .build = build,
                                        .route = route};

static void ended(struct call *call, int error, const ProtobufCMessage *message) {
    struct audit *audit = audit_of(call);
    if (audit->rpc->stopping) return;
    if (error == CO_OK) give_up(audit, co_strerror((int)((const Pb__PeerCopyPiece *)message)->outcome));
    else give_up(audit, error == CO_NOLEADER ? "it is not connected" : "its connection ended, or it does not answer");
}

static bool take_piece(struct call *call, const ProtobufCMessage *message);

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
    audit->rebuild.offset = audit->rebuild.size = audit->rebuild.index = 0;
    log_info("audit", "asking for a copy of the state node=%s id=%016" PRIx64,
             rpc_server_name(rpc, audit->rebuild.from), audit->rebuild.from);
    audit->rebuild.step = REBUILD_COPYING;
    audit->rebuild.call.done = ended, audit->rebuild.call.piece = take_piece;
    calls_begin(rpc->calls, &audit->rebuild.call, &copy_method, 0, now_ms);
}

void rebuild_tick(struct rpc *rpc, uint64_t now_ms) {
    struct audit *audit = rpc->audit;
    if (audit->rebuild.step == REBUILD_IDLE && now_ms >= audit->rebuild.next_ms) {
        begin(rpc, now_ms);
    } else if (audit->rebuild.step == REBUILD_READY &&
               atomic_load(&node_view(rpc->node)->handed) >= audit->rebuild.index) {
        audit->rebuild.step = REBUILD_APPLIER;
        node_resume(rpc->node, false);
    }
}

/* -- a piece, in the pool ----------------------------------------------------------------------------------------- */
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
    work->error = backup_file_write(work->fd, work->data, work->data_size, work->offset);
    if (work->error) fault_set(&work->fault, work->error, "it cannot be written here");
    if (work->error || !work->last) return;
    /* The state here may be empty, without a version, so this program's own version counts. */
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
    if (!rpc->stopping && audit->rebuild.call.peer && audit->rebuild.call.number == work->number) {
        audit->rebuild.offset += work->data_size;
        if (work->error) give_up(audit, work->fault.code ? work->fault.text : co_strerror(work->error));
        else if (!work->last) calls_next(rpc->calls, &audit->rebuild.call, clock_mono_ms());
        else {
            log_info("audit", "a copy of the state is here index=%" PRIu64 " bytes=%" PRIu64, audit->rebuild.index,
                     audit->rebuild.size);
            calls_cancel(rpc->calls, &audit->rebuild.call);
            audit->rebuild.step = REBUILD_READY;
            rebuild_tick(rpc, clock_mono_ms());
        }
    }
    free(work);
    rpc_job_over(rpc);
}

static const char *unfit(const struct audit *audit, const Pb__PeerCopyPiece *piece) {
    if (piece->offset != audit->rebuild.offset || piece->data.len == 0 || piece->size > COPY_MOST)
        return "a piece does not fit";
    if (piece->data.len > piece->size - piece->offset) return "a piece is too long";
    if (piece->offset && (piece->size != audit->rebuild.size || piece->index != audit->rebuild.index))
        return "it began anew";
    return NULL;
}

static bool take_piece(struct call *call, const ProtobufCMessage *message) {
    struct audit *audit = audit_of(call);
    struct rpc *rpc = audit->rpc;
    const Pb__PeerCopyPiece *piece = (const Pb__PeerCopyPiece *)message;
    const char *why = unfit(audit, piece);
    int fd = why ? -1 : dup(audit->rebuild.fd);
    if (fd < 0) {
        give_up(audit, why ? why : "no file descriptor");
        return false;
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
    rpc_job_begin(rpc);
    CHECK(uv_queue_work(rpc->loop, &work->uv, piece_run, piece_over) == 0);
    return true;
}
