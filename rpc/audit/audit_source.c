/* The source of copies for fenced servers: a copy of the state is made once, into a file without a name, and handed out
 * piece by piece. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_in.h"
#include "base/log.h"
#include "rpc/audit/audit_internal.h"
#include "rpc/backup/archive.h"

#define IDLE_MOST_MS  60000 /* after so long without a question the copy is dropped: the server has gone elsewhere */
#define DONATIONS_MAX 4

struct state_copy {
    struct state_copy *next;
    struct rpc *rpc;
    uint64_t from, number, index, term, size, asked_ms;
    int fd;
    bool working, gone; /* working: a job in the pool has it; gone: to be freed after that */
    struct audit_ring ring;
    /* The piece that is under way. */
    uv_work_t uv;
    uint64_t offset;
    int error;
    size_t data_size;
    char *data;
};

static void state_copy_free(struct state_copy *copy) {
    if (copy->fd >= 0) close(copy->fd);
    free(copy->data);
    free(copy);
}

/* Takes it out of the list, and frees it now, or when the pool is done with it. */
static void state_copy_drop(struct audit *audit, struct state_copy *copy) {
    for (struct state_copy **at = &audit->copies; *at; at = &(*at)->next)
        if (*at == copy) {
            *at = copy->next;
            break;
        }
    if (copy->working) copy->gone = true;
    else state_copy_free(copy);
}

static void answer(struct rpc *rpc, const struct state_copy *copy, int outcome) {
    Pb__PeerCopyPiece piece = PB__PEER_COPY_PIECE__INIT;
    Pb__PeerAuditPair room[AUDIT_KEPT], *pairs[AUDIT_KEPT];
    piece.number = copy->number, piece.outcome = (uint32_t)outcome;
    if (outcome == CO_OK) {
        piece.index = copy->index, piece.size = copy->size, piece.offset = copy->offset;
        piece.data = (ProtobufCBinaryData){copy->data_size, (uint8_t *)copy->data};
        piece.pairs = pairs;
        if (copy->offset == 0) piece.n_pairs = audit_pairs(&copy->ring, copy->index, room, pairs);
    }
    peers_tell(rpc->others, copy->from, PEER_COPY_PIECE, &piece.base);
}

/* -- in the pool -------------------------------------------------------------------------------------------------- */
static int make_copy(struct state_copy *copy) {
    struct fault fault = {0};
    copy->fd = archive_temporary(copy->rpc->audit->data_folder, &fault);
    if (copy->fd < 0) return fault.code;
    int rv = machine_copy(copy->rpc->machine, copy->fd, &copy->index, &copy->term);
    machine_sums(copy->rpc->machine, &copy->ring);
    off_t size = lseek(copy->fd, 0, SEEK_CUR);
    if (rv == CO_OK && size <= 0) rv = CO_IO;
    copy->size = (uint64_t)size;
    return rv;
}

static void piece_run(uv_work_t *uv) {
    struct state_copy *copy = CONTAINER_OF(uv, struct state_copy, uv);
    if (copy->fd < 0) copy->error = make_copy(copy);
    if (copy->error) return;
    if (copy->offset >= copy->size) {
        copy->error = CO_INVALID;
        return;
    }
    if (!copy->data) copy->data = mem_alloc(AUDIT_PIECE_BYTES);
    uint64_t left = copy->size - copy->offset;
    copy->data_size = left < AUDIT_PIECE_BYTES ? (size_t)left : AUDIT_PIECE_BYTES;
    copy->error = file_in_all(copy->fd, copy->offset, copy->data, copy->data_size);
}

static void piece_over(uv_work_t *uv, int status) {
    (void)status;
    struct state_copy *copy = CONTAINER_OF(uv, struct state_copy, uv);
    struct rpc *rpc = copy->rpc;
    copy->working = false;
    if (copy->error == CO_CORRUPT) audit_fence(rpc, "a copy of the state for another server met damage");
    if (copy->gone) {
        state_copy_free(copy);
    } else {
        int error = copy->error ? copy->error : rpc_serves(rpc);
        bool last = copy->offset + copy->data_size == copy->size;
        if (!rpc->stopping) answer(rpc, copy, error);
        if (error || last || rpc->stopping) state_copy_drop(rpc->audit, copy);
    }
    rpc_job_over(rpc);
}

/* -- on the loop -------------------------------------------------------------------------------------------------- */
static struct state_copy *state_copy_of(struct audit *audit, uint64_t from, uint64_t number, size_t *count) {
    *count = 0;
    for (struct state_copy *copy = audit->copies; copy; copy = copy->next) {
        if (copy->from == from && copy->number == number) return copy;
        ++*count;
    }
    return NULL;
}

void state_source_ask(struct rpc *rpc, uint64_t from, const Pb__PeerCopyAsk *ask) {
    struct audit *audit = rpc->audit;
    size_t count;
    struct state_copy *copy = state_copy_of(audit, from, ask->number, &count);
    if (copy && copy->working) return;
    struct state_copy refused = {.from = from, .number = ask->number};
    int why = rpc_serves(rpc);
    if (!why && !copy && (ask->offset != 0 || machine_applied(rpc->machine) < ask->least)) why = CO_AGAIN;
    if (!why && !copy && count == DONATIONS_MAX) why = CO_BUSY;
    if (why) {
        answer(rpc, &refused, why);
        return;
    }
    if (!copy) {
        copy = mem_zalloc(sizeof *copy);
        *copy = (struct state_copy){.rpc = rpc, .from = from, .number = ask->number, .fd = -1, .next = audit->copies};
        audit->copies = copy;
        log_info("audit", "a server whose state is damaged gets a copy of this one's node=%s id=%016" PRIx64,
                 rpc_server_name(rpc, from), from);
    }
    copy->asked_ms = clock_mono_ms(), copy->offset = ask->offset;
    copy->working = true;
    rpc_job_begin(rpc);
    CHECK(uv_queue_work(rpc->loop, &copy->uv, piece_run, piece_over) == 0);
}

void state_source_tick(struct rpc *rpc, uint64_t now_ms) {
    for (struct state_copy *copy = rpc->audit->copies, *next; copy; copy = next) {
        next = copy->next;
        if (!copy->working && now_ms - copy->asked_ms > IDLE_MOST_MS) state_copy_drop(rpc->audit, copy);
    }
}

void audit_down(struct rpc *rpc, uint64_t peer) {
    for (struct state_copy *copy = rpc->audit->copies, *next; copy; copy = next) {
        next = copy->next;
        if (copy->from == peer) state_copy_drop(rpc->audit, copy);
    }
}

void state_source_stop(struct rpc *rpc) {
    while (rpc->audit->copies) state_copy_drop(rpc->audit, rpc->audit->copies);
}
