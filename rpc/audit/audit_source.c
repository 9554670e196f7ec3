/* What a fenced server asks of this one: a copy of the state, made once into a file without a name, handed out piece
 * by piece. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_in.h"
#include "base/log.h"
#include "rpc/audit/audit_internal.h"
#include "rpc/backup/archive.h"

#define IDLE_MOST_MS  60000 /* nothing asked for so long: it went elsewhere */
#define DONATIONS_MAX 4

struct donation {
    struct donation *next;
    struct rpc *rpc;
    uint64_t from, number, index, term, size, asked_ms;
    int fd;
    bool working, gone; /* a job in the pool has it; free it afterwards */
    struct audit_ring ring;
    /* The piece that is under way. */
    uv_work_t uv;
    uint64_t offset;
    int error;
    size_t data_size;
    char *data;
};

static void donation_free(struct donation *donation) {
    if (donation->fd >= 0) close(donation->fd);
    free(donation->data);
    free(donation);
}

/* Leaves the list; is freed now, or when the pool has done with it. */
static void donation_drop(struct audit *audit, struct donation *donation) {
    for (struct donation **at = &audit->donations; *at; at = &(*at)->next)
        if (*at == donation) {
            *at = donation->next;
            break;
        }
    if (donation->working) donation->gone = true;
    else donation_free(donation);
}

static void answer(struct rpc *rpc, const struct donation *donation, int outcome) {
    Pb__PeerCopyPiece piece = PB__PEER_COPY_PIECE__INIT;
    Pb__PeerAuditPair room[AUDIT_KEPT], *pairs[AUDIT_KEPT];
    piece.number = donation->number, piece.outcome = (uint32_t)outcome;
    if (outcome == CO_OK) {
        piece.index = donation->index, piece.size = donation->size, piece.offset = donation->offset;
        piece.data = (ProtobufCBinaryData){donation->data_size, (uint8_t *)donation->data};
        piece.pairs = pairs;
        if (donation->offset == 0) piece.n_pairs = audit_pairs(&donation->ring, donation->index, room, pairs);
    }
    peers_tell(rpc->others, donation->from, PEER_COPY_PIECE, &piece.base);
}

/* -- in the pool -------------------------------------------------------------------------------------------------- */
static int make_copy(struct donation *donation) {
    struct fault fault = {0};
    donation->fd = archive_temporary(donation->rpc->audit->data_folder, &fault);
    if (donation->fd < 0) return fault.code;
    int rv = machine_copy(donation->rpc->machine, donation->fd, &donation->index, &donation->term);
    machine_sums(donation->rpc->machine, &donation->ring);
    off_t size = lseek(donation->fd, 0, SEEK_CUR);
    if (rv == CO_OK && size <= 0) rv = CO_IO;
    donation->size = (uint64_t)size;
    return rv;
}

static void piece_run(uv_work_t *uv) {
    struct donation *donation = CONTAINER_OF(uv, struct donation, uv);
    if (donation->fd < 0) donation->error = make_copy(donation);
    if (donation->error) return;
    if (donation->offset >= donation->size) {
        donation->error = CO_INVALID;
        return;
    }
    if (!donation->data) donation->data = mem_alloc(AUDIT_PIECE_BYTES);
    uint64_t left = donation->size - donation->offset;
    donation->data_size = left < AUDIT_PIECE_BYTES ? (size_t)left : AUDIT_PIECE_BYTES;
    donation->error = file_in_all(donation->fd, donation->offset, donation->data, donation->data_size);
}

static void piece_over(uv_work_t *uv, int status) {
    (void)status;
    struct donation *donation = CONTAINER_OF(uv, struct donation, uv);
    struct rpc *rpc = donation->rpc;
    donation->working = false;
    if (donation->error == CO_CORRUPT) audit_fence(rpc, "a copy of the state for another server met damage");
    if (donation->gone) {
        donation_free(donation);
    } else {
        int error = donation->error ? donation->error : rpc_serves(rpc);
        bool last = donation->offset + donation->data_size == donation->size;
        if (!rpc->stopping) answer(rpc, donation, error);
        if (error || last || rpc->stopping) donation_drop(rpc->audit, donation);
    }
    rpc_job_over(rpc);
}

/* -- on the loop -------------------------------------------------------------------------------------------------- */
static struct donation *donation_of(struct audit *audit, uint64_t from, uint64_t number, size_t *count) {
    *count = 0;
    for (struct donation *donation = audit->donations; donation; donation = donation->next) {
        if (donation->from == from && donation->number == number) return donation;
        ++*count;
    }
    return NULL;
}

void state_source_ask(struct rpc *rpc, uint64_t from, const Pb__PeerCopyAsk *ask) {
    struct audit *audit = rpc->audit;
    size_t count;
    struct donation *donation = donation_of(audit, from, ask->number, &count);
    if (donation && donation->working) return;
    struct donation refused = {.from = from, .number = ask->number};
    int why = rpc_serves(rpc);
    if (!why && !donation && (ask->offset != 0 || machine_applied(rpc->machine) < ask->least)) why = CO_AGAIN;
    if (!why && !donation && count == DONATIONS_MAX) why = CO_BUSY;
    if (why) {
        answer(rpc, &refused, why);
        return;
    }
    if (!donation) {
        donation = mem_zalloc(sizeof *donation);
        *donation =
            (struct donation){.rpc = rpc, .from = from, .number = ask->number, .fd = -1, .next = audit->donations};
        audit->donations = donation;
        log_info("audit", "a server whose state is damaged gets a copy of this one's id=%016" PRIx64, from);
    }
    donation->asked_ms = clock_mono_ms(), donation->offset = ask->offset;
    donation->working = true;
    rpc_job_begin(rpc);
    CHECK(uv_queue_work(rpc->loop, &donation->uv, piece_run, piece_over) == 0);
}

void state_source_tick(struct rpc *rpc, uint64_t now_ms) {
    for (struct donation *donation = rpc->audit->donations, *next; donation; donation = next) {
        next = donation->next;
        if (!donation->working && now_ms - donation->asked_ms > IDLE_MOST_MS) donation_drop(rpc->audit, donation);
    }
}

void audit_down(struct rpc *rpc, uint64_t peer) {
    for (struct donation *donation = rpc->audit->donations, *next; donation; donation = next) {
        next = donation->next;
        if (donation->from == peer) donation_drop(rpc->audit, donation);
    }
}

void state_source_stop(struct rpc *rpc) {
    while (rpc->audit->donations) donation_drop(rpc->audit, rpc->audit->donations);
}
