#include "rpc/cluster/last_seen.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"

struct last_seen_table {
    struct last_seen seen[PEERS_MAX]; /* id 0: free */
};

struct last_seen_table *last_seen_new(void) {
    return mem_zalloc(sizeof(struct last_seen_table));
}
void last_seen_free(struct last_seen_table *table) { free(table); }

const struct last_seen *last_seen_find(const struct last_seen_table *table, uint64_t id) {
    for (size_t i = 0; i < ARRAY_COUNT(table->seen) && id; i++)
        if (table->seen[i].id == id) return &table->seen[i];
    return NULL;
}

static struct last_seen *place_of(struct last_seen_table *table, uint64_t id) {
    struct last_seen *oldest = table->seen;
    CHECK(id != 0);
    for (struct last_seen *at = table->seen; at < table->seen + ARRAY_COUNT(table->seen); at++) {
        if (at->id == id) return at;
        if (at->ms < oldest->ms) oldest = at;
    }
    oldest->id = id, oldest->up = false, oldest->node[0] = oldest->build[0] = 0;
    return oldest;
}

void last_seen_heard(struct last_seen_table *table, uint64_t id, uint64_t now_ms) { place_of(table, id)->ms = now_ms; }

static struct last_seen *turned(struct last_seen_table *table, uint64_t id, bool up, uint64_t now_ms) {
    struct last_seen *seen = place_of(table, id);
    seen->up = up, seen->since_ms = now_ms;
    return seen;
}

void last_seen_up(struct last_seen_table *table, uint64_t id, const struct peer_info *info, uint64_t now_ms) {
    struct last_seen *seen = turned(table, id, true, now_ms);
    if (!info) return;
    snprintf(seen->node, sizeof seen->node, "%s", info->node);
    snprintf(seen->build, sizeof seen->build, "%s", info->build);
}

void last_seen_down(struct last_seen_table *table, uint64_t id, uint64_t now_ms) {
    (void)turned(table, id, false, now_ms);
}
