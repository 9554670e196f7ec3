/* How regions become known: news from hellos, operators, neighbours, and a region's own catalog become commands. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "multi-dc/links_internal.h"
#include "registry/catalog.h"
#include "rpc/api/loop_submit.h"
#include "rpc/wire/address.h"

#define HOME_MOST 256 /* services that come home after one look */

/* -- proposals ---------------------------------------------------------------------------------------------------- */
struct learning {
    struct links *links;
    char name[REGION_NAME_MAX + 1];
    links_learned done;
    void *data;
};

static void learned(void *data, const struct loop_submitted *submitted) {
    struct learning *learning = data;
    struct links *links = learning->links;
    int error = submitted->error ? submitted->error : submitted->refused;
    if (error && !learning->done)
        log_warn("region", "what was heard of a region is not taken in region=%s reason=\"%s\"", learning->name,
                 submitted->text);
    if (learning->done) learning->done(learning->data, error, submitted->yes, submitted->text);
    free(learning);
    links_over(links);
}

static void propose(struct links *links, uint8_t number, const ProtobufCMessage *command, const char *name,
                    links_learned done, void *data) {
    struct learning *learning = mem_zalloc(sizeof *learning);
    learning->links = links, learning->done = done, learning->data = data;
    snprintf(learning->name, sizeof learning->name, "%s", name);
    links->under_way++;
    loop_submit(links->config.own, number, command, learned, learning);
}

void links_learn(struct links *links, const Pb__RegionLearnCommand *command, links_learned done, void *data) {
    propose(links, REGION_LEARN, &command->base, command->name, done, data);
}

static bool news(struct links *links, const Pb__RegionLearnCommand *command) {
    if (strcmp(command->name, links->region) == 0 || !region_name_good(command->name) || !command->cluster_id)
        return false;
    const Pb__Region *known = links_record(links, command->name);
    if (!region_is_news(command, known)) return false;
    if (known && known->removed && !command->wanted) return false;
    if (known && known->cluster_id != command->cluster_id && command->instead_of != known->cluster_id) return false;
    return links_may_tell(links->told, command->name, clock_mono_ms());
}

/* Room for the servers of a command; addresses are borrowed. */
struct servers {
    Pb__RegionServer server[REGION_SERVERS_MAX], *pointers[REGION_SERVERS_MAX];
    size_t count;
};

static void servers_add(struct servers *servers, const char *address, const char *node, const char *version) {
    if (servers->count == REGION_SERVERS_MAX || !address[0]) return;
    Pb__RegionServer *server = servers->pointers[servers->count] = &servers->server[servers->count];
    *server = (Pb__RegionServer)PB__REGION_SERVER__INIT;
    server->address = (char *)(uintptr_t)address;
    server->node = (char *)(uintptr_t)node, server->version = (char *)(uintptr_t)version;
    CHECK(servers->count < REGION_SERVERS_MAX);
    servers->count++;
}

static Pb__RegionLearnCommand command_of(const char *name, uint64_t cluster_id, struct servers *servers) {
    Pb__RegionLearnCommand command = PB__REGION_LEARN_COMMAND__INIT;
    command.name = (char *)(uintptr_t)name, command.cluster_id = cluster_id;
    command.servers = servers->pointers, command.n_servers = servers->count;
    return command;
}

/* -- from hellos, neighbours, the region itself ------------------------------------------------------------------- */
void links_learn_hello(struct links *links, const Pb__PeerHello *hello) {
    struct servers servers = {.count = 0};
    servers_add(&servers, hello->address, hello->node, "");
    Pb__RegionLearnCommand command = command_of(hello->region, hello->region_cluster_id, &servers);
    command.add = true;
    if (!links->stopping && news(links, &command)) links_learn(links, &command, NULL, NULL);
}

/* Only regions without a record, because each known region names its servers itself. */
void links_learn_neighbours(struct links *links, const Pb__RegionsResult *known) {
    for (size_t i = 0; i < known->n_regions; i++) {
        const Pb__Region *region = known->regions[i];
        if (region->removed || !region->n_servers || links_record(links, region->name)) continue;
        struct servers servers = {.count = 0};
        for (size_t k = 0; k < region->n_servers; k++)
            servers_add(&servers, region->servers[k]->address, region->servers[k]->node, region->servers[k]->version);
        Pb__RegionLearnCommand command = command_of(region->name, region->cluster_id, &servers);
        if (news(links, &command)) links_learn(links, &command, NULL, NULL);
    }
}

void links_learn_servers(struct link_to *to, const Pb__MembersResult *members) {
    struct servers servers = {.count = 0};
    char addresses[REGION_SERVERS_MAX][128];
    for (size_t i = 0; i < members->n_members && servers.count < REGION_SERVERS_MAX; i++) {
        const Pb__Member *member = members->members[i];
        if (!member->server_port || member->left) continue;
        char *address = addresses[servers.count];
        snprintf(address, sizeof addresses[0], strchr(member->address, ':') ? "[%s]:%u" : "%s:%u", member->address,
                 member->server_port);
        servers_add(&servers, address, member->name, member->version);
    }
    struct rpc_status status;
    rpc_status(to->rpc, &status);
    Pb__RegionLearnCommand command = command_of(to->name, status.cluster_id, &servers);
    if (!servers.count) return;
    if (news(to->links, &command)) links_learn(to->links, &command, NULL, NULL);
    else if (region_is_news(&command, links_record(to->links, to->name)))
        link_held_back(&to->schedule, clock_mono_ms()); /* something of it was proposed just before */
}

/* The link accepts a new cluster only when all known servers of the region belong to it (rpc/client/client.h). */
void links_learn_identity(struct link_to *to) {
    struct links *links = to->links;
    struct rpc_status status;
    rpc_status(to->rpc, &status);
    if (status.unreachable || !status.cluster_id || status.cluster_id == to->cluster_id) return;
    const Pb__Region *known = links_record(links, to->name);
    if (!known || known->removed || !links_leads(links)) return;
    struct servers servers = {.count = 0};
    for (size_t i = 0; i < known->n_servers; i++) servers_add(&servers, known->servers[i]->address, "", "");
    Pb__RegionLearnCommand command = command_of(to->name, status.cluster_id, &servers);
    command.instead_of = known->cluster_id;
    if (!news(links, &command)) return;
    log_warn("region", "a region was founded anew region=%s before=%016llx now=%016llx", to->name,
             (unsigned long long)known->cluster_id, (unsigned long long)status.cluster_id);
    links_learn(links, &command, NULL, NULL);
}

void links_learn_seen(struct link_to *to, bool reachable, uint32_t rtt_us) {
    Pb__RegionSeenCommand command = PB__REGION_SEEN_COMMAND__INIT;
    command.name = to->name, command.cluster_id = to->cluster_id, command.reachable = reachable;
    command.rtt_us = rtt_us;
    bool news = links_leads(to->links) && region_seen_is_news(&command, links_record(to->links, to->name));
    if (link_tells_seen(&to->schedule, news, clock_mono_ms()))
        propose(to->links, REGION_SEEN, &command.base, to->name, NULL, NULL);
}

/* -- copies ------------------------------------------------------------------------------------------------------- */
static size_t forgotten_at(const struct links *links, const char *region) {
    size_t at = 0;
    while (at < links->forgotten_count && strcmp(links->forgotten[at], region) != 0) at++;
    return at;
}

static void forgot(void *data, int error, bool yes, const char *text) {
    struct links *links = data;
    const char *name = links->forgetting;
    if (error) log_warn("region", "the copy of a region stays for now region=%s: %s", name, text);
    else if (yes && forgotten_at(links, name) == links->forgotten_count && links->forgotten_count < REGIONS_MAX)
        snprintf(links->forgotten[links->forgotten_count++], sizeof links->forgotten[0], "%s", name);
    links->forgetting[0] = 0;
}

void links_remember(struct links *links, const char *region) {
    size_t at = forgotten_at(links, region);
    if (at < links->forgotten_count)
        memmove(links->forgotten[at], links->forgotten[--links->forgotten_count], sizeof links->forgotten[0]);
}

void links_forget_copy(struct links *links, const char *region) {
    if (links->forgetting[0] || forgotten_at(links, region) < links->forgotten_count) return;
    snprintf(links->forgetting, sizeof links->forgetting, "%s", region);
    Pb__CopyForgetCommand command = PB__COPY_FORGET_COMMAND__INIT;
    command.region = (char *)(uintptr_t)region;
    propose(links, COPY_FORGET, &command.base, region, forgot, links);
}

/* -- services ----------------------------------------------------------------------------------------------------- */
/* A service that has gone away again meanwhile stays away, and the refusal needs no log line. */
static void came_home(void *data, int error, bool yes, const char *text) {
    (void)data, (void)yes;
    if (error && error != CO_CONFLICT) log_warn("region", "a service does not come home yet reason=\"%s\"", text);
}

void links_bring_home(struct links *links, uint64_t now_ms) {
    Pb__FailoverHomeCommand command;
    for (unsigned i = 0; i < HOME_MOST && returning_next(links->returning, now_ms, &command); i++) {
        if (command.back_index && command.region[0])
            log_info("region", "a region answers again region=%s service=%s", command.region, command.service);
        else if (command.back_index) log_info("region", "a service comes home service=%s", command.service);
        propose(links, FAILOVER_HOME, &command.base, "", came_home, links);
    }
}

/* -- by address --------------------------------------------------------------------------------------------------- */
static void join_over(struct links_join *join, int error) {
    struct links *links = join->links;
    join->done(join, error);
    links_over(links);
}

static void join_learned(void *data, int error, bool yes, const char *text) {
    (void)yes;
    struct links_join *join = data;
    if (error) fault_set(&join->fault, error, "%s", text);
    join_over(join, error);
}

static void join_asked(struct rpc_join *ask, int error) {
    struct links_join *join = CONTAINER_OF(ask, struct links_join, ask);
    struct links *links = join->links;
    if (!error && strcmp(ask->region, links->region) == 0)
        error = fault_set(&ask->fault, CO_INVALID, "it is a server of this region itself (%s)", ask->region);
    if (!error && !ask->cluster_id)
        error = fault_set(&ask->fault, CO_AGAIN, "region %s has no cluster id yet: its cluster is not founded",
                          ask->region);
    if (!error && !region_name_good(ask->region))
        error = fault_set(&ask->fault, CO_INVALID, "its region has no name that a region can have");
    if (error || links->stopping) {
        fault_set(&join->fault, error ? error : CO_CLOSED, "%s", ask->fault.text);
        join_over(join, join->fault.code);
        return;
    }
    struct servers servers = {.count = 0};
    for (size_t i = 0; i < ask->server_count; i++) servers_add(&servers, ask->servers[i], "", "");
    Pb__RegionLearnCommand command = command_of(ask->region, ask->cluster_id, &servers);
    command.add = true, command.wanted = join->wanted;
    const Pb__Region *known = links_record(links, ask->region);
    bool stays_removed = known && known->removed && !command.wanted;
    if (!region_is_news(&command, known) || stays_removed) join_over(join, CO_OK);
    else links_learn(links, &command, join_learned, join);
}

void links_join(struct links *links, struct links_join *join) {
    join->links = links, join->fault = (struct fault){0};
    join->ask = (struct rpc_join){.wan = true, .done = join_asked};
    memcpy(join->ask.address, join->address, sizeof join->ask.address);
    links->under_way++;
    rpc_join(links->config.own, &join->ask);
}

/* -- addresses of the configuration ------------------------------------------------------------------------------- */
struct join_address {
    struct list item;
    struct links *links;
    struct links_join join;
    struct link_join schedule;
};

static void address_joined(struct links_join *join, int error) {
    struct join_address *address = CONTAINER_OF(join, struct join_address, join);
    uint64_t interval_ms = address->links->config.join_interval_ms;
    if (!interval_ms) interval_ms = LINKS_JOIN_MS;
    enum link_joined said = link_join_ended(&address->schedule, !error, interval_ms, clock_mono_ms());
    if (said == LINK_JOIN_WORKS) log_info("region", "joined address=%s region=%s", join->address, join->ask.region);
    if (said == LINK_JOIN_FAILS)
        log_warn("region", "an address of retry_join_wan does not work yet address=%s reason=\"%s\"", join->address,
                 join->fault.text);
}

void links_learn_start(struct links *links) {
    list_init(&links->joins);
    for (const char *const *at = links->config.join; at && *at; at++) {
        struct join_address *address = mem_zalloc(sizeof *address);
        address->links = links, address->join.done = address_joined;
        if (!address_complete(*at, links->config.port, address->join.address)) {
            free(address); /* there is none, because the configuration was checked */
            continue;
        }
        list_append(&links->joins, &address->item);
    }
}

/* Addresses that worked are asked again now and then, because a name may lead to another region later. */
void links_learn_tick(struct links *links, uint64_t now_ms) {
    struct rpc_status status;
    rpc_status(links->config.own, &status);
    if (!status.known_leader || !links->records || !status.cluster_id) return;
    LIST_FOREACH(item, &links->joins) {
        struct join_address *address = LIST_ENTRY(item, struct join_address, item);
        if (link_join_begins(&address->schedule, now_ms)) links_join(links, &address->join);
    }
}

void links_learn_free(struct links *links) {
    LIST_FOREACH_SAFE(item, next, &links->joins) free(LIST_ENTRY(item, struct join_address, item));
}
