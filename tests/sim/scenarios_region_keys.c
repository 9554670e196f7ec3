/* Regions that copy keys of each other, while keys, rules, links and leaders change at random: a copy is what the other
 * region had at one index, and is what it has soon after the trouble has ended. */
#include "base/message.h"
#include "kv/keys/kv.h"
#include "tests/sim/regions.h"
#include "tests/sim/story.h"

/* The longest pause after an error, the longest wait of a lost question, and all keys in steps of one row. */
enum { NAMES = 40, CATCH_UP_MS = 20000 };

static unsigned another(const struct region *region) {
    unsigned other = (unsigned)sim_random(region->all->sim, 1, region->all->count - 1);
    return (region->number + other) % region->all->count;
}

/* Of the region's own keys; also many at once, more than go into one step. */
static void change_key(struct region *region) {
    struct sim *s = region->all->sim;
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    char name[64], value[16];
    uint64_t what = sim_random(s, 0, 99), number = sim_random(s, 0, NAMES - 1);
    bool many = what > 94;
    snprintf(name, sizeof name, "%s%02u", region_prefix(region->number).data, (unsigned)number);
    if (many) snprintf(name, sizeof name, "%s%u", region_prefix(region->number).data, (unsigned)number / 10);
    snprintf(value, sizeof value, "%u", (unsigned)sim_random(s, 0, 5));
    command.verb = many ? PB__KV_VERB__KV_DELETE_TREE : what > 75 ? PB__KV_VERB__KV_DELETE : PB__KV_VERB__KV_SET;
    command.key = message_bytes(slice_text(name)), command.value = message_bytes(slice_text(value));
    command.flags = sim_random(s, 0, 1);
    region_apply(region, KV_APPLY, &command.base, NULL, NULL);
}

static void change_rule(struct region *region) {
    unsigned other = another(region);
    if (region->links[other].keys.follower) region_copies_keys_no_more(region, other);
    else region_copies_keys(region, other);
}

static void something(struct regions *all) {
    struct sim *s = all->sim;
    struct region *region = &all->regions[sim_random(s, 0, all->count - 1)];
    uint64_t what = sim_random(s, 0, 99);
    if (what < 80) change_key(region);
    else if (what < 84) change_rule(region);
    else if (what < 90) region_leader_changes(region);
    else region->links[another(region)].cut_us = s->now_us + sim_random(s, 50, 4000) * MS;
    for (uint64_t more = sim_chance(s, 50) ? sim_random(s, 10, 30) : 0; more > 0; more--) change_key(region);
}

static void nothing_is_wrong(struct regions *all) {
    all->calm = true;
    for (unsigned i = 0; i < all->count; i++) {
        if (!all->regions[i].leads) region_leader_changes(&all->regions[i]);
        for (unsigned k = 0; k < all->count; k++) all->regions[i].links[k].cut_us = 0;
    }
}

static bool all_are_current(struct regions *all) {
    bool current = true;
    for (unsigned i = 0; i < all->count; i++)
        for (unsigned k = 0; k < all->count; k++)
            if (all->regions[i].links[k].keys.follower) current &= region_keys_are_current(&all->regions[i], k);
    return current;
}

void scenario_copied_keys_are_one_past_state(struct sim *s) {
    struct regions *all = regions_begin(s, (unsigned)sim_random(s, 2, REGIONS_HERE), 0);
    all->keys = true;
    for (unsigned i = 0; i < all->count; i++)
        for (unsigned k = 0; k < NAMES / 2; k++) change_key(&all->regions[i]);
    for (unsigned i = 0; i < all->count; i++) region_copies_keys(&all->regions[i], another(&all->regions[i]));
    unsigned changes = (unsigned)sim_random(s, 50, 150);
    for (unsigned i = 0; i < changes && !s->failed; i++) {
        something(all);
        regions_run(all, sim_random(s, 1, sim_chance(s, 100) ? 6000 : 300) * MS);
    }
    nothing_is_wrong(all);
    uint64_t began_us = s->now_us;
    while (!s->failed && !all_are_current(all) && s->now_us < began_us + CATCH_UP_MS * MS) regions_run(all, 50 * MS);
    EXPECT(s, all_are_current(all));
    TRACE(s, "%" PRIu64 " times in a listing, %" PRIu64 " times whole; caught up within %" PRIu64 " ms", all->listings,
          all->whole, (s->now_us - began_us) / MS);
    regions_end(all);
}
