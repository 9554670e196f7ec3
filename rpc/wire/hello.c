#include "rpc/wire/hello.h"

#include <stdio.h>
#include <string.h>

#include "registry/machine.h"

unsigned hello_protocol(const Pb__PeerHello *hello) {
    unsigned most = hello->version_most < HELLO_VERSION_MOST ? hello->version_most : HELLO_VERSION_MOST;
    unsigned least = hello->version_least > HELLO_VERSION_LEAST ? hello->version_least : HELLO_VERSION_LEAST;
    return most >= least ? most : 0;
}

/* Either of the two may be behind, so the higher version that they know is the cluster's. */
static enum hello_verdict judge_version(const struct hello_self *self, const struct hello_terms *terms, char *why) {
    unsigned now = self->version > terms->version ? self->version : terms->version;
    if (now == 0) return HELLO_OK;
    if (terms->version_most < now) {
        snprintf(why, HELLO_WHY,
                 "the cluster is at version %u, its program supports only up to %u: it has to be upgraded", now,
                 terms->version_most);
        return HELLO_TOO_OLD;
    }
    if (terms->version_least > now) {
        snprintf(why, HELLO_WHY,
                 "the cluster is at version %u, its program supports only %u and up: the other servers have "
                 "to be upgraded first",
                 now, terms->version_least);
        return HELLO_TOO_NEW;
    }
    if (now >= self->version_least && now <= self->version_most) return HELLO_OK;
    snprintf(why, HELLO_WHY, "the cluster is at version %u, the program of the one who refuses supports only %u to %u",
             now, self->version_least, self->version_most);
    return HELLO_WE_DO_NOT_FIT;
}

/* Judges a link from another region. */
static enum hello_verdict judge_region(const struct hello_self *self, const Pb__PeerHello *hello, char *why) {
    if (strcmp(hello->region, self->cluster) != 0) return HELLO_OK;
    if (!self->cluster_id || hello->region_cluster_id == self->cluster_id) {
        snprintf(why, HELLO_WHY, "it is a server of this region itself (%.40s)", self->cluster);
        return HELLO_SAME_REGION;
    }
    snprintf(
        why, HELLO_WHY,
        "it claims the name of this region, %.40s, and is of another cluster (its cluster id %016llx, here %016llx)",
        self->cluster, (unsigned long long)hello->region_cluster_id, (unsigned long long)self->cluster_id);
    return HELLO_CLAIMS_REGION;
}

static enum hello_verdict judge_cluster(const struct hello_self *self, const Pb__PeerHello *hello,
                                        const struct hello_terms *terms, char *why) {
    bool link = hello->region[0] && self->cluster;
    enum hello_verdict region = link ? judge_region(self, hello, why) : HELLO_OK;
    if (region != HELLO_OK) return region;
    bool any = !self->cluster || (link && !hello->cluster[0]);
    if (!any && strcmp(hello->cluster, self->cluster) != 0) {
        snprintf(why, HELLO_WHY, "it belongs to another cluster (datacenter %.40s, not %.40s)", hello->cluster,
                 self->cluster);
        return HELLO_OTHER_NAME;
    }
    if (self->cluster_id && hello->cluster_id && self->cluster_id != hello->cluster_id) {
        snprintf(why, HELLO_WHY,
                 "it belongs to another cluster of the same name (its cluster id %016llx, here %016llx)",
                 (unsigned long long)hello->cluster_id, (unsigned long long)self->cluster_id);
        return HELLO_OTHER_CLUSTER;
    }
    if (hello->agent) return HELLO_OK; /* a client agent holds no state, and appends nothing by itself */
    return judge_version(self, terms, why);
}

enum hello_verdict hello_judge(const struct hello_self *self, const Pb__PeerHello *hello, struct hello_terms *terms,
                               char why[HELLO_WHY]) {
    why[0] = 0;
    bool ours = strcmp(hello->protocol, HELLO_PROTOCOL) == 0;
    *terms = (struct hello_terms){
        .protocol = ours ? hello_protocol(hello) : 0, .hears_refusal = ours, .version = hello->cluster_version};
    terms->version_least = hello->cluster_version_least ? hello->cluster_version_least : 1;
    terms->version_most =
        hello->cluster_version_most > terms->version_least ? hello->cluster_version_most : terms->version_least;
    if (!ours) {
        snprintf(why, HELLO_WHY, "it does not speak this protocol");
        return HELLO_NOT_OURS;
    }
    if (terms->protocol == 0) {
        snprintf(why, HELLO_WHY, "no protocol version in common (it speaks %u to %u, this server %u to %u)",
                 hello->version_least, hello->version_most, HELLO_VERSION_LEAST, HELLO_VERSION_MOST);
        return HELLO_NO_PROTOCOL;
    }
    enum hello_verdict verdict = judge_cluster(self, hello, terms, why);
    if (verdict != HELLO_OK) return verdict;
    if (hello->id == 0) {
        snprintf(why, HELLO_WHY, "it has no id");
        return HELLO_NO_ID;
    }
    if (strlen(hello->address) > HELLO_ADDRESS_MAX || strlen(hello->node) > HELLO_NODE_MAX) {
        snprintf(why, HELLO_WHY, "its address or name is too long");
        return HELLO_TOO_LONG;
    }
    return HELLO_OK;
}

void hello_of_agent(Pb__PeerHello *hello, const char *cluster, uint64_t cluster_id, uint64_t id) {
    hello->protocol = (char *)HELLO_PROTOCOL;
    hello->version_least = HELLO_VERSION_LEAST, hello->version_most = HELLO_VERSION_MOST;
    hello->cluster = (char *)cluster, hello->cluster_id = cluster_id, hello->id = id, hello->agent = true;
    hello->cluster_version_least = MACHINE_VERSION_OLDEST, hello->cluster_version_most = MACHINE_VERSION_NEWEST;
}

void hello_of_region(Pb__PeerHello *hello, const struct hello_region *link, uint64_t id) {
    hello_of_agent(hello, link->cluster ? link->cluster : "", link->cluster_id, id);
    hello->region = (char *)(uintptr_t)link->region, hello->region_cluster_id = link->region_cluster_id;
}
