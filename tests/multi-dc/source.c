#include "source.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/history.h"
#include "registry/operator.h"
#include "registry/version.h"

void source_tell(struct source *source, uint8_t type, const ProtobufCMessage *message) {
    source->log = mem_realloc(source->log, (source->log_count + 1) * sizeof *source->log);
    struct buffer *bytes = &source->log[source->log_count++];
    *bytes = (struct buffer){0};
    machine_command(bytes, type, message);
    (void)fixture_apply_bytes(&source->newest, buffer_slice(bytes));
    source->told(source->data);
}

void source_catch_up(struct source *source, size_t most) {
    for (; most > 0 && source->behind_count < source->log_count; most--)
        (void)fixture_apply_bytes(&source->behind, buffer_slice(&source->log[source->behind_count++]));
}

static void limit_history(struct source *source, uint64_t changes) {
    Pb__HistoryMarkCommand command = PB__HISTORY_MARK_COMMAND__INIT;
    Pb__HistoryLimits limits = PB__HISTORY_LIMITS__INIT;
    command.term = source->newest.term, command.now_unix_ms = 1000;
    limits.changes = changes, limits.bytes = 1 << 20, limits.age_ms = 600000;
    command.limits = &limits;
    source_tell(source, HISTORY_MARK, &command.base);
}

static void found(struct source *source, uint64_t history_changes) {
    Pb__ClusterVersionCommand version = PB__CLUSTER_VERSION_COMMAND__INIT;
    fixture_open(&source->newest);
    fixture_open(&source->behind);
    for (size_t i = 0; i < source->log_count; i++) buffer_free(&source->log[i]);
    source->log_count = source->behind_count = 0;
    version.version = MACHINE_VERSION_NEWEST, version.cluster_id = ++source->cluster_id;
    source_tell(source, CLUSTER_VERSION, &version.base);
    limit_history(source, history_changes);
}

void source_found(struct source *source, uint64_t history_changes) {
    source->backup = -1;
    found(source, history_changes);
}

void source_found_anew(struct source *source, uint64_t history_changes) {
    fixture_close(&source->newest);
    fixture_close(&source->behind);
    found(source, history_changes);
    source->lives++;
}

void source_back_up(struct source *source) {
    char path[] = "/tmp/coord-source-XXXXXX";
    uint64_t index, term;
    if (source->backup >= 0) close(source->backup);
    source->backup = mkstemp(path);
    CHECK(source->backup >= 0);
    unlink(path);
    CHECK(machine_copy(source->newest.machine, source->backup, &index, &term) == CO_OK);
}

void source_restore(struct source *source) {
    size_t size = (size_t)lseek(source->backup, 0, SEEK_END);
    uint8_t *bytes = mem_alloc(size), id[OPERATOR_RESTORE_ID] = "0123456789abcde";
    CHECK(pread(source->backup, bytes, size, 0) == (ssize_t)size && size <= OPERATOR_CHUNK_MAX);
    Pb__RestoreChunkCommand chunk = PB__RESTORE_CHUNK_COMMAND__INIT;
    chunk.id = (ProtobufCBinaryData){OPERATOR_RESTORE_ID, id};
    chunk.data = (ProtobufCBinaryData){size, bytes};
    source_tell(source, OPERATOR_RESTORE_CHUNK, &chunk.base);
    Pb__RestoreEndCommand end = PB__RESTORE_END_COMMAND__INIT;
    end.id = chunk.id, end.size = size;
    source_tell(source, OPERATOR_RESTORE_END, &end.base);
    free(bytes);
    source->lives++;
}

void source_close(struct source *source) {
    for (size_t i = 0; i < source->log_count; i++) buffer_free(&source->log[i]);
    free(source->log);
    if (source->backup >= 0) close(source->backup);
    fixture_close(&source->newest);
    fixture_close(&source->behind);
}
