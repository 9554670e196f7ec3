#include "multi-dc/links_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "multi-dc/links_internal.h"
#include "registry/catalog.h"
#include "rpc/api/regions.h"
#include "rpc/client/client.h"

#define TICK_MS        200
#define FOLLOW_WAIT_MS 60000
#define AGAIN_MS       1000 /* after an error */

/* -- records ------------------------------------------------------------------------------------------------------ */
const Pb__Region *links_record(const struct links *links, const char *region) {
    for (size_t i = 0; links->records && i < links->records->n_regions; i++)
        if (strcmp(links->records->regions[i]->name, region) == 0) return links->records->regions[i];
    return NULL;
}

bool links_leads(const struct links *links) {
    struct rpc_status status;
    rpc_status(links->config.own, &status);
    return status.is_leader;
}

static struct link_to *link_named(struct links *links, const char *region) {
    LIST_FOREACH(item, &links->all) {
        struct link_to *to = LIST_ENTRY(item, struct link_to, item);
        if (strcmp(to->name, region) == 0) return to;
    }
    return NULL;
}

static void finish_stop(struct links *links);

void links_over(struct links *links) {
    CHECK(links->under_way > 0);
    links->under_way--;
    finish_stop(links);
}

/* -- links -------------------------------------------------------------------------------------------------------- */
static uint64_t own_cluster(const struct links *links) {
    struct rpc_status status;
    rpc_status(links->config.own, &status);
    return status.cluster_id;
}

static struct rpc *dial(struct links *links, const Pb__Region *record) {
    const char *join[REGION_SERVERS_MAX + 1] = {0};
    for (size_t i = 0; i < record->n_servers && i < REGION_SERVERS_MAX; i++) join[i] = record->servers[i]->address;
    struct rpc_client_config config = {.cluster = record->name,
                                       .cluster_id = record->cluster_id,
                                       .region = links->region,
                                       .region_cluster_id = own_cluster(links),
                                       .node_name = links->node_name,
                                       .address = links->address,
                                       .node_id = links->node_id,
                                       .bind = links->bind,
                                       .port = links->config.port,
                                       .join = join,
                                       .hold_ms = links->config.hold_ms,
                                       .no_coordinates = true,
                                       .modules = links->config.modules,
                                       .security = links->config.security};
    return rpc_client_start(links->loop, &config);
}

static void follow_region(struct link_to *to) {
    char subject[sizeof to->name + sizeof "region="];
    snprintf(subject, sizeof subject, "region=%s", to->name);
    to->catalog = follower_run_start(to->links->loop, to->links->config.own, follow_catalog(to->name), subject);
    follower_run_linked(to->catalog, to->rpc, true);
}

static void link_make(struct links *links, const Pb__Region *record) {
    struct link_to *to = mem_zalloc(sizeof *to);
    to->links = links;
    snprintf(to->name, sizeof to->name, "%s", record->name);
    to->cluster_id = record->cluster_id, to->wanted = true;
    to->ask = to->servers = (struct links_question){.links = links, .to = to};
    to->rpc = dial(links, record);
    follow_region(to);
    links->running++;
    list_append(&links->all, &to->item);
    uv_mutex_lock(&links->lock);
    CHECK(links->table_count < REGIONS_MAX);
    memcpy(links->table[links->table_count].name, to->name, sizeof to->name);
    links->table[links->table_count++].rpc = to->rpc;
    uv_mutex_unlock(&links->lock);
    log_info("region", "a region is linked with region=%s servers=%zu", to->name, record->n_servers);
}

/* More addresses to reach it by. */
static void know_servers(struct link_to *to, const Pb__Region *record) {
    for (size_t i = 0; i < record->n_servers; i++) rpc_client_know(to->rpc, record->servers[i]->address);
}

/* Links are made when the own cluster has an id, by which others know it. A region that was removed keeps its link's
 * memory until the end of the process, but nothing goes over it. */
static void reconcile(struct links *links) {
    if (!links->records || links->stopping || !own_cluster(links)) return;
    for (size_t i = 0; i < links->records->n_regions; i++) {
        const Pb__Region *record = links->records->regions[i];
        struct link_to *to = link_named(links, record->name);
        if (strcmp(record->name, links->region) == 0) continue;
        if (!to && !record->removed) {
            link_make(links, record);
            continue;
        }
        if (!to) continue;
        bool other = to->cluster_id != record->cluster_id;
        if (to->wanted && record->removed) log_info("region", "a region was removed region=%s", to->name);
        if (other || (to->wanted && record->removed)) rpc_region_end(links->config.own, to->name);
        if (record->removed && to->catalog) follower_run_stop(to->catalog), to->catalog = NULL;
        if (!record->removed && !to->catalog) follow_region(to);
        to->wanted = !record->removed, to->cluster_id = record->cluster_id;
        rpc_client_pause(to->rpc, record->removed);
        know_servers(to, record);
    }
}

/* -- the own records, followed ------------------------------------------------------------------------------------ */
static void follow(struct links *links);

static void followed(void *data, int error, const struct rpc_fetched *fetched) {
    struct links *links = data;
    links->follow.fetch = NULL;
    links->follow_ms = clock_mono_ms() + (error ? AGAIN_MS : 0);
    struct arena arena = {0};
    const Pb__RegionsResult *records =
        error ? NULL : message_unpack(&arena, &pb__regions_result__descriptor, fetched->records);
    if (records) {
        arena_free(&links->records_arena);
        links->records_arena = arena, links->records = records, links->records_index = fetched->index;
        reconcile(links);
    } else {
        arena_free(&arena);
    }
    links_over(links);
}

static void follow(struct links *links) {
    Pb__RegionsRequest request = PB__REGIONS_REQUEST__INIT;
    struct rpc_fetch how = {.type = &query_regions,
                            .freshness = RPC_STALE,
                            .background = true,
                            .index = links->records_index,
                            .wait_ms = FOLLOW_WAIT_MS};
    links->under_way++;
    links->follow.fetch = loop_fetch_begin(links->config.own, links->config.own, &how, &request.base, followed, links);
}

/* -- questions to a region ---------------------------------------------------------------------------------------- */
static void asked(void *data, int error, const struct rpc_fetched *fetched) {
    struct link_to *to = data;
    struct links *links = to->links;
    to->ask.fetch = NULL;
    link_answered(&to->schedule, LINK_KNOWN);
    struct arena arena = {0};
    const Pb__RegionsResult *known =
        error ? NULL : message_unpack(&arena, &pb__regions_result__descriptor, fetched->records);
    if (known && !links->stopping && links_leads(links)) links_learn_neighbours(links, known);
    arena_free(&arena);
    links_over(links);
}

static void servers_asked(void *data, int error, const struct rpc_fetched *fetched) {
    struct link_to *to = data;
    struct links *links = to->links;
    to->servers.fetch = NULL;
    link_answered(&to->schedule, LINK_SERVERS);
    struct arena arena = {0};
    const Pb__MembersResult *members =
        error ? NULL : message_unpack(&arena, &pb__members_result__descriptor, fetched->records);
    if (members && !links->stopping && links_leads(links)) links_learn_servers(to, members);
    arena_free(&arena);
    links_over(links);
}

static void question_begin(struct links_question *question, const struct query_type *type,
                           const ProtobufCMessage *request, loop_fetched done) {
    struct rpc_fetch how = {.type = type, .freshness = RPC_STALE, .no_cache = true, .background = true};
    question->links->under_way++;
    question->fetch =
        loop_fetch_begin(question->links->config.own, question->to->rpc, &how, request, done, question->to);
}

static void link_tick(struct link_to *to, uint64_t now_ms) {
    struct rpc_status status;
    struct follower_state state;
    if (!to->wanted) return;
    rpc_status(to->rpc, &status);
    links_learn_identity(to);
    follower_run_linked(to->catalog, to->rpc, !status.unreachable);
    follower_run_state(to->catalog, &state);
    if (state.heard_ms) links_learn_seen(to, !status.unreachable, state.round_us);
    bool leads = links_leads(to->links);
    if (link_asks(&to->schedule, LINK_KNOWN, !status.unreachable, leads, now_ms)) {
        Pb__RegionsRequest request = PB__REGIONS_REQUEST__INIT;
        question_begin(&to->ask, &query_regions, &request.base, asked);
    }
    if (link_asks(&to->schedule, LINK_SERVERS, !status.unreachable, leads, now_ms)) {
        Pb__TableRequest request = PB__TABLE_REQUEST__INIT;
        question_begin(&to->servers, &query_members, &request.base, servers_asked);
    }
}

/* Copies of regions that were removed. */
static void forget_copies(struct links *links) {
    if (!links->records || !links_leads(links)) {
        links->forgotten_count = 0;
        return;
    }
    for (size_t i = 0; i < links->records->n_regions; i++)
        if (links->records->regions[i]->removed) links_forget_copy(links, links->records->regions[i]->name);
        else links_remember(links, links->records->regions[i]->name);
}

static void failovers_read(void *data, int error, const struct rpc_fetched *fetched) {
    struct links *links = data;
    struct arena arena = {0};
    uint64_t now_ms = clock_mono_ms();
    links->failovers.fetch = NULL;
    links_look_ended(&links->look, RETURNING_LOOK_MS, now_ms);
    const Pb__FailoversResult *now =
        error ? NULL : message_unpack(&arena, &pb__failovers_result__descriptor, fetched->records);
    if (now && !links->stopping && links_leads(links)) {
        returning_look(links->returning, now, now_ms);
        links_bring_home(links, now_ms);
    }
    arena_free(&arena);
    links_over(links);
}

/* Services that are away are looked after where this server leads, and there is another region. */
static void look_after_failovers(struct links *links, uint64_t now_ms) {
    if (!links_look_begins(&links->look, RETURNING_LOOK_MS, now_ms)) return;
    if (!links->records || !links->records->n_regions || !links_leads(links)) {
        returning_forget(links->returning);
        return;
    }
    Pb__FailoversRequest request = PB__FAILOVERS_REQUEST__INIT;
    struct rpc_fetch how = {.type = &query_failovers, .freshness = RPC_STALE, .background = true};
    links->under_way++;
    links->look.under_way = true;
    links->failovers.fetch =
        loop_fetch_begin(links->config.own, links->config.own, &how, &request.base, failovers_read, links);
}

static void tick(uv_timer_t *timer) {
    struct links *links = timer->data;
    uint64_t now_ms = clock_mono_ms();
    if (!links->follow.fetch && now_ms >= links->follow_ms) follow(links);
    reconcile(links);
    forget_copies(links);
    look_after_failovers(links, now_ms);
    LIST_FOREACH(item, &links->all) link_tick(LIST_ENTRY(item, struct link_to, item), now_ms);
    keys_run_tick(links->keys, now_ms);
    links_learn_tick(links, now_ms);
}

/* -- what rpc asks ------------------------------------------------------------------------------------------------ */
/* Any thread. */
static struct rpc *find(void *data, const char *region) {
    struct links *links = data;
    struct rpc *rpc = NULL;
    uv_mutex_lock(&links->lock);
    for (size_t i = 0; i < links->table_count; i++)
        if (strcmp(links->table[i].name, region) == 0) rpc = links->table[i].rpc;
    uv_mutex_unlock(&links->lock);
    return rpc;
}

static void note_claim(struct links *links, const char *region, const Pb__PeerHello *hello) {
    links_claimed(links->claims, region, hello->address, hello->region_cluster_id, clock_mono_ms());
}

static const char *unwanted(void *data, const Pb__PeerHello *hello) {
    struct links *links = data;
    if (links->stopping) return "this server stops";
    if (!region_name_good(hello->region)) return "its region has no name that a region can have";
    if (!hello->region_cluster_id) return "its cluster has no id yet";
    if (!links->records) return "this server does not know its regions yet";
    const Pb__Region *known = links_record(links, hello->region);
    if (!known) return NULL;
    if (known->removed) return "its region was removed here";
    if (known->cluster_id == hello->region_cluster_id) return NULL;
    note_claim(links, hello->region, hello);
    return "another cluster is known here as the region that it claims to be";
}

static void claimed(void *data, const Pb__PeerHello *hello) { note_claim(data, ((struct links *)data)->region, hello); }
/* A region whose servers reach this one can be reached, and takes this region in. */
static void came(void *data, const Pb__PeerHello *hello) {
    struct link_to *to = link_named(data, hello->region);
    if (to) rpc_client_hurry(to->rpc);
    links_learn_hello(data, hello);
}

static char *conflict_line(const struct links *links, const char *region, struct arena *arena) {
    const struct links_claim *claim = links_claim_of(links->claims, region, clock_mono_ms());
    if (!claim) return (char *)(uintptr_t) "";
    return arena_printf(arena, "another cluster (id %016llx) at %s claims this name, and is refused",
                        (unsigned long long)claim->cluster_id, claim->address);
}

static Pb__PeerRegion *seen_new(const struct links *links, const char *name, struct arena *arena,
                                Pb__PeerRegionsAnswer *answer) {
    Pb__PeerRegion *region = arena_alloc(arena, sizeof *region);
    pb__peer_region__init(region);
    region->name = arena_strndup(arena, name, strlen(name));
    region->conflict = conflict_line(links, name, arena);
    answer->regions[answer->n_regions++] = region;
    return region;
}

static char *leader_of(const struct rpc_status *status, struct arena *arena) {
    return arena_strndup(arena, status->leader_address, strlen(status->leader_address));
}

static void seen(void *data, struct arena *arena, Pb__PeerRegionsAnswer *answer) {
    struct links *links = data;
    struct rpc_status status;
    struct follower_state state;
    uint64_t now_ms = clock_mono_ms();
    answer->regions = arena_alloc(arena, (REGIONS_MAX + 1) * sizeof *answer->regions);
    rpc_status(links->config.own, &status);
    Pb__PeerRegion *own = seen_new(links, links->region, arena, answer);
    own->own = own->reachable = true, own->cluster_id = status.cluster_id, own->leader = leader_of(&status, arena);
    LIST_FOREACH(item, &links->all) {
        const struct link_to *to = LIST_ENTRY(item, struct link_to, item);
        if (!to->wanted) continue;
        rpc_status(to->rpc, &status);
        Pb__PeerRegion *region = seen_new(links, to->name, arena, answer);
        region->cluster_id = to->cluster_id, region->leader = leader_of(&status, arena);
        follower_run_state(to->catalog, &state);
        region->never_heard = !state.heard_ms, region->rtt_us = state.round_us;
        region->reachable = state.heard_ms && !status.unreachable;
        region->heard_ms = state.heard_ms && now_ms > state.heard_ms ? now_ms - state.heard_ms : 0;
        region->copied = state.position != 0, region->position = state.position, region->newest = state.newest;
        uint64_t age_ms = follower_run_age_ms(to->catalog);
        region->never_confirmed = age_ms == UINT64_MAX;
        if (!region->never_confirmed) region->as_of_ms = age_ms;
    }
    keys_run_seen(links->keys, arena, answer);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
void links_init(void) {
    follower_run_init();
    keys_run_init();
}

static struct rpc *link_for_keys(void *data, const char *region, bool *up) {
    const struct link_to *to = link_named(data, region);
    struct rpc_status status;
    if (!to || !to->wanted) return NULL;
    rpc_status(to->rpc, &status);
    *up = !status.unreachable;
    return to->rpc;
}

struct links *links_start(uv_loop_t *loop, const struct links_config *config) {
    struct links *links = mem_zalloc(sizeof *links);
    links->loop = loop, links->config = *config;
    links->region = mem_strdup(config->region), links->node_name = mem_strdup(config->node_name);
    links->node_id = mem_strdup(config->node_id), links->address = mem_strdup(config->address);
    links->bind = config->bind ? mem_strdup(config->bind) : NULL;
    links->follow.links = links;
    links->returning = returning_new(config->failover_return_ms);
    list_init(&links->all);
    CHECK(uv_mutex_init(&links->lock) == 0 && uv_timer_init(loop, &links->timer) == 0);
    links->timer.data = links;
    links_learn_start(links);
    struct rpc_region_hooks hooks = {
        .data = links, .find = find, .unwanted = unwanted, .claimed = claimed, .came = came, .seen = seen};
    rpc_set_regions(config->own, &hooks);
    links->keys = keys_run_start(loop, config->own, link_for_keys, links);
    uv_timer_start(&links->timer, tick, 0, TICK_MS);
    return links;
}

static void timer_closed(uv_handle_t *handle) {
    struct links *links = handle->data;
    LIST_FOREACH_SAFE(item, next, &links->all) free(LIST_ENTRY(item, struct link_to, item));
    links_learn_free(links);
    returning_free(links->returning);
    arena_free(&links->records_arena);
    uv_mutex_destroy(&links->lock);
    free(links->region), free(links->node_name), free(links->node_id), free(links->address), free(links->bind);
    void (*closed)(void *) = links->closed;
    void *data = links->closed_data;
    free(links);
    closed(data);
}

static void finish_stop(struct links *links) {
    if (!links->stopping || links->under_way || links->running || links->closing) return;
    links->closing = true;
    uv_close((uv_handle_t *)&links->timer, timer_closed);
}

static void link_stopped(void *data) {
    struct links *links = data;
    links->running--;
    finish_stop(links);
}

void links_stop(struct links *links, void (*closed)(void *data), void *data) {
    if (!links) {
        closed(data);
        return;
    }
    links->stopping = true, links->closed = closed, links->closed_data = data;
    uv_timer_stop(&links->timer);
    rpc_set_regions(links->config.own, NULL);
    if (links->follow.fetch) loop_fetch_cancel(links->follow.fetch), links_over(links);
    links->follow.fetch = NULL;
    if (links->failovers.fetch) loop_fetch_cancel(links->failovers.fetch), links_over(links);
    links->failovers.fetch = NULL;
    keys_run_stop(links->keys);
    links->keys = NULL;
    LIST_FOREACH(item, &links->all) {
        struct link_to *to = LIST_ENTRY(item, struct link_to, item);
        if (to->catalog) follower_run_stop(to->catalog);
        rpc_client_stop(to->rpc, link_stopped, links);
    }
    finish_stop(links);
}
