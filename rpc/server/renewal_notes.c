#include "rpc/server/renewal_notes.h"

#include <stdlib.h>
#include <strings.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/message.h"
#include "registry/trust.h"
#include "rpc/wire/enrol.h"

#define AGAIN_MS  1000
#define NOTES_MAX 16384 /* more than nodes renew in a day; beyond, the oldest are forgotten */

struct renewal_notes {
    struct rpc *rpc;
    struct list all; /* of struct note, the oldest first */
    size_t count;
    void (*stopped)(void *data); /* NULL: it runs */
    void *data;
};

struct note {
    struct list link;
    struct renewal_notes *notes;
    struct rpc_write write;
    struct loop_task task;
    bool writing, outdated;
    int error;
    uint64_t again_ms; /* not before */
    struct arena arena;
    const Pb__CertificateInfo *info; /* in it */
};

struct renewal_notes *renewal_notes_new(struct rpc *rpc) {
    struct renewal_notes *notes = mem_zalloc(sizeof *notes);
    notes->rpc = rpc;
    list_init(&notes->all);
    return notes;
}

static void finish_stop(struct renewal_notes *notes) {
    if (!notes->stopped || notes->count > 0) return;
    void (*stopped)(void *data) = notes->stopped;
    void *data = notes->data;
    free(notes);
    stopped(data);
}

static void forget(struct note *note) {
    list_remove(&note->link);
    note->notes->count--;
    arena_free(&note->arena);
    free(note);
}

static void taken(struct loop_task *task) {
    struct note *note = CONTAINER_OF(task, struct note, task);
    struct renewal_notes *notes = note->notes;
    note->writing = false, note->again_ms = clock_mono_ms() + AGAIN_MS;
    if (note->outdated || notes->stopped || !enrol_may_repeat(note->error)) forget(note);
    finish_stop(notes);
}

/* Another thread. A record that the machine refuses is over: the node was removed, or has another key. */
static void noted(struct rpc_write *write, int error, const struct machine_result *result) {
    struct note *note = CONTAINER_OF(write, struct note, write);
    (void)result;
    note->error = error;
    rpc_on_loop(note->notes->rpc, &note->task, taken);
}

static void submit(struct note *note) {
    Pb__TrustRenewedCommand command = PB__TRUST_RENEWED_COMMAND__INIT;
    command.certificate = (Pb__CertificateInfo *)(uintptr_t)note->info;
    note->writing = true;
    note->write.done = noted;
    rpc_submit(note->notes->rpc, &note->write, TRUST_RENEWED, &command.base);
}

static bool is_same_node(const Pb__CertificateInfo *a, const Pb__CertificateInfo *b) {
    return a->server == b->server && strcasecmp(a->node, b->node) == 0;
}

void renewal_notes_add(struct renewal_notes *notes, const Pb__CertificateInfo *info) {
    LIST_FOREACH_SAFE(item, next, &notes->all) {
        struct note *old = LIST_ENTRY(item, struct note, link);
        if (!is_same_node(old->info, info) && notes->count < NOTES_MAX) continue;
        if (old->writing) old->outdated |= is_same_node(old->info, info);
        else forget(old);
    }
    struct note *note = mem_zalloc(sizeof *note);
    note->notes = notes;
    note->info = (const Pb__CertificateInfo *)message_copy(&note->arena, &info->base);
    list_append(&notes->all, &note->link);
    notes->count++;
    submit(note);
}

void renewal_notes_tick(struct renewal_notes *notes, uint64_t now_ms) {
    LIST_FOREACH(item, &notes->all) {
        struct note *note = LIST_ENTRY(item, struct note, link);
        if (!note->writing && now_ms >= note->again_ms) submit(note);
    }
}

void renewal_notes_stop(struct renewal_notes *notes, void (*stopped)(void *data), void *data) {
    notes->stopped = stopped, notes->data = data;
    LIST_FOREACH_SAFE(item, next, &notes->all) {
        struct note *note = LIST_ENTRY(item, struct note, link);
        if (!note->writing) forget(note);
    }
    finish_stop(notes);
}
