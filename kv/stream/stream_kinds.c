/* The kinds of things that can be followed. */
#include "base/check.h"
#include "base/message.h"
#include "kv/keys/kv.h"
#include "kv/lock/lock.h"
#include "kv/quota/quota.h"
#include "kv/stream/stream_internal.h"
#include "registry/catalog.h"

static ProtobufCMessage *key_request(struct slice name, struct arena *arena) {
    Pb__KvRequest *request = arena_alloc(arena, sizeof *request);
    pb__kv_request__init(request);
    request->key = message_bytes(name);
    return &request->base;
}

static char *text(struct slice name, struct arena *arena) { return (char *)(uintptr_t)slice_copy(arena, name).data; }

static ProtobufCMessage *service_request(struct slice name, struct arena *arena) {
    Pb__ServiceRequest *request = arena_alloc(arena, sizeof *request);
    pb__service_request__init(request);
    request->service = text(name, arena);
    return &request->base;
}

static ProtobufCMessage *node_request(struct slice name, struct arena *arena) {
    Pb__NodeRequest *request = arena_alloc(arena, sizeof *request);
    pb__node_request__init(request);
    request->node = text(name, arena);
    return &request->base;
}

static ProtobufCMessage *lock_request(struct slice name, struct arena *arena) {
    Pb__QueueRequest *request = arena_alloc(arena, sizeof *request);
    pb__queue_request__init(request);
    request->name = text(name, arena);
    return &request->base;
}

static ProtobufCMessage *quota_request(struct slice name, struct arena *arena) {
    Pb__QuotaRequest *request = arena_alloc(arena, sizeof *request);
    pb__quota_request__init(request);
    request->name = text(name, arena);
    return &request->base;
}

const struct stream_kind stream_kinds[STREAM_KINDS] = {
    [PB__STREAM_KIND__STREAM_KEY] = {.parameter = "key",
                                     .event = "kv",
                                     .space = SPACE_KEY,
                                     .topic = HISTORY_KEYS,
                                     .resource = ACCESS_KEY,
                                     .name_max = KV_KEY_MAX,
                                     .shown = PB__STREAM_KIND__STREAM_KEY,
                                     .query = &query_kv_get,
                                     .all = &query_kv_get,
                                     .request = key_request},
    [PB__STREAM_KIND__STREAM_PREFIX] = {.parameter = "prefix",
                                        .event = "kv",
                                        .space = SPACE_KEY | WATCH_PREFIX_BIT,
                                        .topic = HISTORY_KEYS,
                                        .resource = ACCESS_KEY,
                                        .name_max = KV_KEY_MAX,
                                        .shown = PB__STREAM_KIND__STREAM_KEY,
                                        .query = &query_kv_get,
                                        .all = &query_kv_list,
                                        .request = key_request},
    [PB__STREAM_KIND__STREAM_SERVICE] = {.parameter = "service",
                                         .event = "service",
                                         .space = SPACE_SERVICE,
                                         .topic = HISTORY_CATALOG,
                                         .resource = ACCESS_SERVICE,
                                         .in_part = true,
                                         .wide = true,
                                         .name_max = STREAM_NAME_MAX,
                                         .shown = PB__STREAM_KIND__STREAM_SERVICE,
                                         .query = &query_service_entries,
                                         .all = &query_service_entries,
                                         .request = service_request},
    [PB__STREAM_KIND__STREAM_NODE] = {.parameter = "node",
                                      .event = "node",
                                      .space = SPACE_NODE,
                                      .topic = HISTORY_CATALOG,
                                      .resource = ACCESS_NODE,
                                      .in_part = true,
                                      .name_max = STREAM_NAME_MAX,
                                      .shown = PB__STREAM_KIND__STREAM_NODE,
                                      .query = &query_node_services,
                                      .all = &query_node_services,
                                      .request = node_request},
    [PB__STREAM_KIND__STREAM_LOCK] = {.parameter = "lock",
                                      .event = "lock",
                                      .space = SPACE_LOCK,
                                      .topic = HISTORY_LOCKS,
                                      .resource = ACCESS_LOCK,
                                      .in_part = true,
                                      .name_max = QUEUE_NAME_MAX,
                                      .shown = PB__STREAM_KIND__STREAM_LOCK,
                                      .query = &query_lock,
                                      .all = &query_lock,
                                      .request = lock_request},
    [PB__STREAM_KIND__STREAM_QUOTA] = {.parameter = "quota",
                                       .event = "quota",
                                       .space = SPACE_QUOTA,
                                       .topic = HISTORY_QUOTAS,
                                       .resource = ACCESS_QUOTA,
                                       .in_part = true,
                                       .name_max = QUOTA_NAME_MOST,
                                       .shown = PB__STREAM_KIND__STREAM_QUOTA,
                                       .query = &query_quota,
                                       .all = &query_quota,
                                       .request = quota_request},
};

/* -- the module --------------------------------------------------------------------------------------------------- */

static const struct query_type *const queries[] = {&query_stream, NULL};

const struct module stream_module = {.name = "stream", .queries = queries};
