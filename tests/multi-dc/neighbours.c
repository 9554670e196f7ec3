#include "tests/multi-dc/neighbours.h"

#include <string.h>

#include "base/check.h"
#include "base/message.h"

void neighbours_open(struct neighbours *world) {
    *world = (struct neighbours){.arena = {0}};
    fixture_open(&world->f);
    fixture_found(&world->f);
}

void neighbours_close(struct neighbours *world) {
    fixture_close(&world->f);
    arena_free(&world->arena);
}

static Pb__ServiceEntry *entry(struct neighbours *world, const char *node, const char *service, Pb__Status status) {
    struct arena *arena = &world->arena;
    Pb__ServiceEntry *entry = arena_alloc(arena, sizeof *entry);
    pb__service_entry__init(entry);
    entry->node = arena_alloc(arena, sizeof *entry->node);
    entry->service = arena_alloc(arena, sizeof *entry->service);
    Pb__Check *check = arena_alloc(arena, sizeof *check);
    pb__node__init(entry->node);
    pb__service__init(entry->service);
    pb__check__init(check);
    entry->node->name = entry->service->node = check->node = TEXT(node);
    entry->node->address = TEXT("10.0.0.1");
    entry->service->id = entry->service->name = check->check_id = TEXT(service), check->status = status;
    entry->checks = arena_alloc(arena, sizeof *entry->checks);
    entry->checks[entry->n_checks++] = check;
    return entry;
}

static struct neighbour *of(struct neighbours *world, const char *region) {
    for (size_t i = 0; i < NEIGHBOURS_MOST; i++) {
        struct neighbour *neighbour = &world->regions[i];
        if (strcmp(neighbour->name, region) == 0) return neighbour;
        if (neighbour->name[0]) continue;
        Pb__RegionServer server = PB__REGION_SERVER__INIT, *servers[] = {&server};
        Pb__RegionLearnCommand learn = PB__REGION_LEARN_COMMAND__INIT;
        server.address = TEXT("10.0.0.1:8300");
        learn.name = TEXT(region), learn.cluster_id = NEIGHBOUR_CLUSTER, learn.servers = servers, learn.n_servers = 1;
        CHECK(fixture_apply(&world->f, REGION_LEARN, &learn.base).yes);
        CHECK(strlen(region) < sizeof neighbour->name);
        memcpy(neighbour->name, region, strlen(region));
        return neighbour;
    }
    CHECK(false);
    return NULL;
}

static struct neighbour *known(struct neighbours *world, const char *region, Pb__CatalogAt *from, Pb__CatalogAt *to) {
    struct neighbour *neighbour = of(world, region);
    *from = *to = (Pb__CatalogAt)PB__CATALOG_AT__INIT;
    from->cluster_id = to->cluster_id = NEIGHBOUR_CLUSTER;
    from->index = neighbour->index, to->index = neighbour->index += 10;
    return neighbour;
}

static void update(struct neighbours *world, const char *region, Pb__CopyUpdateCommand *command) {
    Pb__CatalogAt from, to;
    known(world, region, &from, &to);
    command->region = TEXT(region), command->to = &to;
    if (from.index) command->from = &from;
    struct outcome outcome = fixture_apply(&world->f, COPY_UPDATE, &command->base);
    CHECK(outcome.yes && !outcome.error);
}

void neighbour_has(struct neighbours *world, const char *region, const char *service, Pb__Status status,
                   const char *tag) {
    Pb__ServiceEntry *instance = entry(world, region, service, status);
    Pb__CopyUpdateCommand command = PB__COPY_UPDATE_COMMAND__INIT;
    char *tags[] = {TEXT(tag)};
    if (tag) instance->service->tags = tags, instance->service->n_tags = 1;
    catalog_strip(instance);
    ProtobufCBinaryData packed = message_bytes(message_pack(&world->arena, &instance->base));
    command.entries = &packed, command.n_entries = 1;
    update(world, region, &command);
}

void neighbour_turns(struct neighbours *world, const char *region, const char *service, Pb__Status status) {
    Pb__CatalogAt from, to;
    Pb__CopyStageCommand stage = PB__COPY_STAGE_COMMAND__INIT;
    Pb__CopyCommitCommand commit = PB__COPY_COMMIT_COMMAND__INIT;
    Pb__CopyTidyCommand tidy = PB__COPY_TIDY_COMMAND__INIT;
    Pb__ServiceEntry *instance = entry(world, region, service, status);
    known(world, region, &from, &to);
    catalog_strip(instance);
    ProtobufCBinaryData packed = message_bytes(message_pack(&world->arena, &instance->base));
    stage.region = commit.region = tidy.region = TEXT(region);
    stage.from = commit.from = from.index ? &from : NULL, stage.to = commit.to = &to;
    stage.entries = &packed, stage.n_entries = 1;
    struct outcome outcome = fixture_apply(&world->f, COPY_STAGE, &stage.base);
    CHECK(outcome.yes);
    commit.stage = tidy.stage = outcome.index, commit.parts = 1;
    CHECK(fixture_apply(&world->f, COPY_COMMIT, &commit.base).yes);
    while (!fixture_apply(&world->f, COPY_TIDY, &tidy.base).yes) continue;
}

void neighbour_removed(struct neighbours *world, const char *region) {
    Pb__RegionRemoveCommand remove = PB__REGION_REMOVE_COMMAND__INIT;
    Pb__CopyForgetCommand forget = PB__COPY_FORGET_COMMAND__INIT;
    remove.name = forget.region = TEXT(region);
    of(world, region)->index = 0;
    CHECK(fixture_apply(&world->f, REGION_REMOVE, &remove.base).yes);
    while (!fixture_apply(&world->f, COPY_FORGET, &forget.base).yes) continue;
}

void neighbour_loses(struct neighbours *world, const char *region, const char *service) {
    Pb__CopyUpdateCommand command = PB__COPY_UPDATE_COMMAND__INIT;
    Pb__CatalogKey key = PB__CATALOG_KEY__INIT, *keys[] = {&key};
    key.service = key.id = TEXT(service), key.node = TEXT(region);
    command.removed = keys, command.n_removed = 1;
    update(world, region, &command);
}

struct outcome neighbour_seen(struct neighbours *world, const char *region, uint64_t cluster_id, uint32_t rtt_us,
                              bool reachable) {
    Pb__RegionSeenCommand command = PB__REGION_SEEN_COMMAND__INIT;
    command.name = TEXT(region), command.cluster_id = cluster_id;
    command.rtt_us = rtt_us, command.reachable = reachable;
    return fixture_apply(&world->f, REGION_SEEN, &command.base);
}

struct outcome here(struct neighbours *world, const char *node, const char *service, Pb__Status status) {
    Pb__ServiceEntry *instance = entry(world, node, service, status);
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    instance->checks[0]->service_id = TEXT(service);
    command.node = instance->node, command.service = instance->service;
    command.checks = instance->checks, command.n_checks = 1;
    struct outcome outcome = fixture_apply(&world->f, CATALOG_REGISTER, &command.base);
    CHECK(outcome.error == CO_OK);
    return outcome;
}

void here_node(struct neighbours *world, const char *node, Pb__Status status) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    const Pb__ServiceEntry *instance = entry(world, node, "any", status);
    command.node = instance->node, command.checks = instance->checks, command.n_checks = 1;
    instance->checks[0]->check_id = TEXT("the node's own");
    CHECK(fixture_apply(&world->f, CATALOG_REGISTER, &command.base).error == CO_OK);
}

void here_at_once(struct neighbours *world, size_t count, const struct turn_here *turns) {
    Pb__CatalogBatchCommand batch = PB__CATALOG_BATCH_COMMAND__INIT;
    batch.registers = arena_alloc(&world->arena, count * sizeof *batch.registers);
    for (size_t i = 0; i < count; i++) {
        Pb__RegisterCommand *command = batch.registers[batch.n_registers++] =
            arena_alloc(&world->arena, sizeof *command);
        const Pb__ServiceEntry *instance = entry(world, turns[i].node, turns[i].service, turns[i].status);
        pb__register_command__init(command);
        instance->checks[0]->service_id = instance->service->id;
        command->node = instance->node, command->service = instance->service;
        command->checks = instance->checks, command->n_checks = 1;
    }
    CHECK(fixture_apply(&world->f, CATALOG_BATCH, &batch.base).error == CO_OK);
}

void here_no_more(struct neighbours *world, const char *node, const char *service) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = TEXT(node), command.service_id = TEXT(service);
    CHECK(fixture_apply(&world->f, CATALOG_DEREGISTER, &command.base).error == CO_OK);
}
