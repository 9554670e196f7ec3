#include "lb/coordinate_batch.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

struct waiting {
    uint64_t hash; /* of node and segment */
    Pb__Coordinate record;
    struct vivaldi_coordinate numbers;
};

struct coordinate_batch {
    uint64_t period_ms, first_ms, dropped;
    size_t size, room, count;
    struct waiting *waiting; /* NULL while nothing waits */
    struct arena names;
};

struct coordinate_batch *coordinate_batch_new(const struct coordinate_batch_config *config) {
    CHECK(config->size <= COORDINATE_BATCH_SIZE_MAX && config->commands <= COORDINATE_BATCH_COMMANDS_MAX);
    struct coordinate_batch *batch = mem_zalloc(sizeof *batch);
    batch->period_ms = config->period_ms ? config->period_ms : COORDINATE_BATCH_PERIOD_MS;
    batch->size = config->size ? config->size : COORDINATE_BATCH_SIZE;
    batch->room = batch->size * (config->commands ? config->commands : COORDINATE_BATCH_COMMANDS);
    return batch;
}

static void empty(struct coordinate_batch *batch) {
    free(batch->waiting);
    batch->waiting = NULL, batch->count = 0;
    arena_free(&batch->names);
}

void coordinate_batch_free(struct coordinate_batch *batch) {
    if (!batch) return;
    empty(batch);
    free(batch);
}

static struct waiting *find(struct coordinate_batch *batch, const Pb__Coordinate *record, uint64_t hash) {
    for (size_t i = 0; i < batch->count; i++) {
        const Pb__Coordinate *there = &batch->waiting[i].record;
        if (batch->waiting[i].hash == hash && strcmp(there->node, record->node) == 0 &&
            strcmp(there->segment, record->segment) == 0)
            return &batch->waiting[i];
    }
    return NULL;
}

static struct waiting *add(struct coordinate_batch *batch, const Pb__Coordinate *record, uint64_t hash,
                           uint64_t now_ms) {
    if (batch->count == batch->room) return NULL;
    if (batch->count == 0) {
        batch->waiting = mem_alloc(batch->room * sizeof *batch->waiting);
        batch->first_ms = now_ms;
    }
    struct waiting *place = &batch->waiting[batch->count++];
    place->hash = hash;
    place->record.node = arena_strndup(&batch->names, record->node, strlen(record->node));
    place->record.segment = arena_strndup(&batch->names, record->segment, strlen(record->segment));
    return place;
}

int coordinate_batch_put(struct coordinate_batch *batch, const Pb__Coordinate *record, uint64_t now_ms) {
    int rv = coordinate_check(record);
    if (rv != CO_OK) return rv;
    uint64_t hash = hash64_seed(record->segment, strlen(record->segment), hash64(record->node, strlen(record->node)));
    struct waiting *place = find(batch, record, hash);
    if (!place) place = add(batch, record, hash, now_ms);
    if (!place) {
        batch->dropped++;
        return CO_BUSY;
    }
    place->numbers = coordinate_read(record);
    place->record = coordinate_record(place->record.node, place->record.segment, &place->numbers);
    return CO_OK;
}

uint64_t coordinate_batch_deadline_ms(const struct coordinate_batch *batch) {
    return batch->count ? batch->first_ms + batch->period_ms : UINT64_MAX;
}

void coordinate_batch_tick(struct coordinate_batch *batch, uint64_t now_ms,
                           void (*send)(void *data, const Pb__CoordinateUpdateCommand *command), void *data) {
    if (now_ms < coordinate_batch_deadline_ms(batch)) return;
    Pb__Coordinate **updates = mem_alloc(batch->size * sizeof *updates);
    for (size_t from = 0; from < batch->count; from += batch->size) {
        Pb__CoordinateUpdateCommand command = PB__COORDINATE_UPDATE_COMMAND__INIT;
        command.updates = updates;
        for (size_t i = from; i < batch->count && i < from + batch->size; i++)
            updates[command.n_updates++] = &batch->waiting[i].record;
        send(data, &command);
    }
    free(updates);
    empty(batch);
}

size_t coordinate_batch_waiting(const struct coordinate_batch *batch) { return batch->count; }
uint64_t coordinate_batch_dropped(const struct coordinate_batch *batch) { return batch->dropped; }
