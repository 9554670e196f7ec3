#include "multi-dc/links.h"

#include <stdio.h>
#include <string.h>

/* -- questions to a region ---------------------------------------------------------------------------------------- */
bool link_asks(struct link_schedule *link, enum link_question question, bool reachable, bool leads, uint64_t now_ms) {
    if (link->asked[question] || now_ms < link->next_ms[question] || !reachable || !leads) return false;
    link->asked[question] = true;
    link->next_ms[question] = now_ms + (question == LINK_KNOWN ? LINKS_KNOWN_MS : LINKS_SERVERS_MS);
    return true;
}

void link_answered(struct link_schedule *link, enum link_question question) { link->asked[question] = false; }

void link_held_back(struct link_schedule *link, uint64_t now_ms) {
    link->next_ms[LINK_SERVERS] = now_ms + LINKS_TELL_MS;
}

bool link_tells_seen(struct link_schedule *link, bool news, uint64_t now_ms) {
    if (!news || now_ms < link->seen_ms) return false;
    link->seen_ms = now_ms + LINKS_SEEN_MS;
    return true;
}

/* -- what is proposed --------------------------------------------------------------------------------------------- */
bool links_may_tell(struct links_told told[LINKS_TOLD], const char *region, uint64_t now_ms) {
    struct links_told *at = &told[0];
    for (size_t i = 0; i < LINKS_TOLD; i++) {
        bool same = strcmp(told[i].region, region) == 0;
        if (same && now_ms - told[i].at_ms < LINKS_TELL_MS) return false;
        if (same || told[i].at_ms < at->at_ms) at = &told[i];
        if (same) break;
    }
    snprintf(at->region, sizeof at->region, "%s", region);
    at->at_ms = now_ms;
    return true;
}

/* -- addresses of the configuration ------------------------------------------------------------------------------- */
bool link_join_begins(struct link_join *join, uint64_t now_ms) {
    if (join->joining || now_ms < join->next_ms) return false;
    join->joining = true;
    return true;
}

enum link_joined link_join_ended(struct link_join *join, bool worked, uint64_t interval_ms, uint64_t now_ms) {
    enum link_joined said = LINK_JOIN_SAID;
    if (worked && !join->worked) said = LINK_JOIN_WORKS;
    if (!worked && join->wait_ms <= LINKS_JOIN_FIRST_MS) said = LINK_JOIN_FAILS;
    join->joining = false;
    join->worked = join->worked || worked;
    join->wait_ms = join->wait_ms ? join->wait_ms * 2 : LINKS_JOIN_FIRST_MS;
    if (worked || join->wait_ms > interval_ms) join->wait_ms = interval_ms;
    join->next_ms = now_ms + join->wait_ms;
    return said;
}

/* -- the look at services that are away --------------------------------------------------------------------------- */
bool links_look_begins(struct links_look *look, uint64_t interval_ms, uint64_t now_ms) {
    if (look->under_way || now_ms < look->next_ms) return false;
    look->begun_ms = now_ms, look->next_ms = now_ms + interval_ms;
    return true;
}

void links_look_ended(struct links_look *look, uint64_t interval_ms, uint64_t now_ms) {
    uint64_t rest_ms = (now_ms - look->begun_ms) * LINKS_LOOK_REST;
    look->under_way = false;
    if (rest_ms > interval_ms) look->next_ms = now_ms + rest_ms;
}

/* -- other clusters that claim the name of a region --------------------------------------------------------------- */
void links_claimed(struct links_claim claims[LINKS_CLAIMS], const char *region, const char *address,
                   uint64_t cluster_id, uint64_t now_ms) {
    struct links_claim *at = &claims[0];
    for (size_t i = 0; i < LINKS_CLAIMS; i++) {
        bool same = claims[i].cluster_id == cluster_id && strcmp(claims[i].address, address) == 0;
        if (same || claims[i].at_ms < at->at_ms) at = &claims[i];
        if (same) break;
    }
    snprintf(at->region, sizeof at->region, "%s", region);
    snprintf(at->address, sizeof at->address, "%s", address);
    at->cluster_id = cluster_id, at->at_ms = now_ms;
}

const struct links_claim *links_claim_of(const struct links_claim claims[LINKS_CLAIMS], const char *region,
                                         uint64_t now_ms) {
    for (size_t i = 0; i < LINKS_CLAIMS; i++) {
        bool lately = claims[i].at_ms && now_ms - claims[i].at_ms <= LINKS_CLAIM_MS;
        if (lately && strcmp(claims[i].region, region) == 0) return &claims[i];
    }
    return NULL;
}
