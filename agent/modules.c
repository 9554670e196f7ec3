#include "agent/modules.h"

#include "acl/acl.h"
#include "agent/config.h"
#include "base/check.h"
#include "kv/barrier/barrier.h"
#include "kv/election/election.h"
#include "kv/event/event.h"
#include "kv/fence/fence.h"
#include "kv/hazard/hazard.h"
#include "kv/holding/holding.h"
#include "kv/keys/kv.h"
#include "kv/lock/lock.h"
#include "kv/phaser/phaser.h"
#include "kv/quota/quota.h"
#include "kv/rollout/rollout.h"
#include "kv/session/session.h"
#include "kv/stream/stream.h"
#include "kv/txn/txn.h"
#include "lb/coordinate.h"
#include "multi-dc/copy.h"
#include "multi-dc/failover.h"
#include "multi-dc/global.h"
#include "multi-dc/keys.h"
#include "multi-dc/region.h"
#include "registry/catalog.h"
#include "registry/history.h"
#include "registry/lease.h"

/* Modules are told of events in this order. One line each, which clang-format would fold. */
// clang-format off
const struct module_entry agent_modules[] = {
    {.module = &catalog_module},
    {.module = &lease_module},
    {.module = &session_module},
    {.module = &kv_module},
    {.module = &coordinate_module},
    {.module = &event_module},
    {.module = &lock_module},
    {.module = &fence_module},
    {.module = &election_module},
    {.module = &barrier_module},
    {.module = &phaser_module},
    {.module = &hazard_module},
    {.module = &quota_module},
    {.module = &history_module},
    {.module = &stream_module},
    {.module = &holding_module},
    {.module = &txn_module},
    {.module = &rollout_module},
    {.module = &copy_module},
    {.module = &global_module},
    {.module = &failover_module},
    {.module = &region_module},
    {.module = &keys_module},
    {.module = &acl_module},
    {0},
};
// clang-format on

static const void *lease_settings(const struct config *config, struct arena *arena) {
    struct lease_settings *settings = arena_zalloc(arena, sizeof *settings);
    settings->preservation =
        (struct self_preservation_settings){.percent = (uint32_t)config->self_preservation_percent,
                                            .instances = (uint32_t)config->self_preservation_instances,
                                            .nodes = (uint32_t)config->self_preservation_nodes,
                                            .window_ms = (uint64_t)config->self_preservation_window_ns / 1000000,
                                            .hold_ms = (uint64_t)config->self_preservation_hold_ns / 1000000};
    settings->reconnect =
        (struct reconnect_classes){.items = config->reconnect_classes, .count = config->reconnect_timeouts.count};
    return settings;
}

static const void *history_settings(const struct config *config, struct arena *arena) {
    struct history_settings *settings = arena_zalloc(arena, sizeof *settings);
    settings->changes = config->history_changes;
    settings->bytes = config->history_bytes;
    settings->age_ms = (uint64_t)config->history_age_ns / 1000000;
    return settings;
}

static const struct {
    const struct module *module;
    const void *(*settings)(const struct config *config, struct arena *arena);
} configured[] = {{&lease_module, lease_settings}, {&history_module, history_settings}};

const struct module_entry *agent_modules_configured(const struct config *config, struct arena *arena) {
    struct module_entry *entries = arena_alloc(arena, sizeof agent_modules);
    memcpy(entries, agent_modules, sizeof agent_modules);
    for (struct module_entry *entry = entries; entry->module; entry++)
        for (size_t i = 0; i < ARRAY_COUNT(configured); i++)
            if (entry->module == configured[i].module) entry->settings = configured[i].settings(config, arena);
    return entries;
}
