/* The rules that hold for a region, whatever happens in it and in others (tests/sim/regions.h). */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "multi-dc/global.h"
#include "tests/sim/regions.h"

#define P          PRIu64
#define NAME(text) ((char *)(uintptr_t)(text))

/* -- what readers see --------------------------------------------------------------------------------------------- */

static unsigned number_of(const char *name) {
    unsigned number = 0;
    while (number < REGIONS_HERE && strcmp(region_names[number], name) != 0) number++;
    CHECK(number < REGIONS_HERE);
    return number;
}

static bool is_blue(const Pb__ServiceEntry *entry) {
    for (size_t i = 0; i < entry->service->n_tags; i++)
        if (strcmp(entry->service->tags[i], "blue") == 0) return true;
    return false;
}

static void see(struct region_view *view, unsigned service, unsigned region, Pb__ServiceEntry *const *entries,
                size_t count) {
    unsigned bit = 1u << region;
    if (count) view->there[service] |= bit;
    for (size_t i = 0; i < count; i++) {
        if (catalog_entry_status(entries[i]) > PB__STATUS__WARNING) continue;
        view->healthy[service][0] |= bit;
        if (is_blue(entries[i])) view->healthy[service][1] |= bit;
    }
}

static void see_service(struct store_txn *txn, unsigned own, unsigned service, struct region_view *view) {
    Pb__ServiceRequest here = PB__SERVICE_REQUEST__INIT;
    Pb__GlobalServiceRequest elsewhere = PB__GLOBAL_SERVICE_REQUEST__INIT;
    Pb__FailoverRequest noted = PB__FAILOVER_REQUEST__INIT;
    struct query_result found = {0};
    struct arena arena = {0};
    here.service = elsewhere.service = noted.service = NAME(region_services[service]), here.held = true;
    CHECK(query_service_entries.run(txn, &here.base, &arena, &found) == CO_OK);
    const Pb__ServiceEntriesResult *own_entries = (const Pb__ServiceEntriesResult *)found.message;
    if (own_entries) see(view, service, own, own_entries->entries, own_entries->n_entries);
    CHECK(query_global_service.run(txn, &elsewhere.base, &arena, &found) == CO_OK);
    const Pb__GlobalServiceResult *copies = (const Pb__GlobalServiceResult *)found.message;
    for (size_t i = 0; i < copies->n_regions; i++) {
        unsigned number = number_of(copies->regions[i]->region);
        view->copies |= 1u << number;
        see(view, service, number, copies->regions[i]->entries, copies->regions[i]->n_entries);
    }
    CHECK(query_failover.run(txn, &noted.base, &arena, &found) == CO_OK);
    const Pb__FailoverState *state = ((const Pb__FailoverResult *)found.message)->state;
    view->noted[service] = state && state->record->away_index;
    for (size_t i = 0; state && i < state->record->n_rests; i++)
        view->rests[service] |= 1u << number_of(state->record->rests[i]->region);
    arena_free(&arena);
}

void region_look(struct region *region, struct region_view *view) {
    struct store_txn *txn = store_read(region->replica.reader);
    *view = (struct region_view){.copies = 0};
    for (unsigned service = 0; service < REGION_SERVICES; service++) see_service(txn, region->number, service, view);
    store_read_done(region->replica.reader);
}

/* -- who should answer -------------------------------------------------------------------------------------------- */

struct answerer {
    unsigned regions; /* one of these; none: nobody */
    bool reader;      /* by the other service */
};

/* own_too: this region may be a target. */
static struct answerer target_of(const struct region *region, const struct region_target *target, unsigned rests,
                                 bool own_too) {
    const struct region_view *view = &region->view;
    unsigned own = 1u << region->number, passed_over = target->reader ? 0 : rests;
    unsigned some = view->healthy[target->reader ? SERVICE_READER : SERVICE_WEB][target->blue];
    if (!target->n_regions) return (struct answerer){some & ~own & ~passed_over, target->reader};
    for (unsigned i = 0; i < target->n_regions; i++) {
        unsigned bit = 1u << target->regions[i];
        if (bit == own ? !own_too : bit & passed_over) continue;
        if (some & bit) return (struct answerer){bit, target->reader};
    }
    return (struct answerer){0, target->reader};
}

static struct answerer elsewhere(const struct region *region, unsigned service, unsigned rests, bool own_too) {
    const struct region_view *view = &region->view;
    struct answerer found = {.reader = service == SERVICE_READER};
    if (service == SERVICE_WEB && region->order.count) {
        for (unsigned i = 0; i < region->order.count && !found.regions; i++)
            found = target_of(region, &region->order.targets[i], rests, own_too);
        return found;
    }
    found.regions = view->healthy[service][0] & ~(1u << region->number) & ~rests;
    return found;
}

static struct answerer expected(const struct region *region, unsigned service) {
    const struct region_view *view = &region->view;
    unsigned own = 1u << region->number;
    struct answerer here = {own, service == SERVICE_READER}, found = here;
    bool healthy = view->healthy[service][0] & own;
    if (healthy && !region->waits[service]) return here;
    found = elsewhere(region, service, view->rests[service], true);
    if (!healthy && !found.regions) found = elsewhere(region, service, 0, true);
    return found.regions ? found : here;
}

static bool others_answer(const struct region *region, unsigned service, unsigned rests) {
    return elsewhere(region, service, rests, false).regions;
}

/* -- the model ---------------------------------------------------------------------------------------------------- */

/* Where an order names the service itself in a region that nobody sees, that may be this one: a new order may bring it home. */
static bool may_be_home(const struct region *region, const struct region_order *order) {
    for (unsigned i = 0; i < order->count; i++)
        for (unsigned k = 0; !order->targets[i].reader && k < order->targets[i].n_regions; k++)
            if (!(region->view.copies & 1u << order->targets[i].regions[k])) return true;
    return false;
}

static bool has_others(const struct region *region, unsigned service) {
    return (service == SERVICE_WEB && region->order.count) || region->view.there[service] & ~(1u << region->number);
}

static void at_home(struct region *region, unsigned service) { region->away[service] = region->waits[service] = false; }

static void brought_home(struct region *region, unsigned service) {
    struct regions *all = region->all;
    uint64_t healthy_us = all->sim->now_us - region->back_us[service];
    if (region->waits[service] && healthy_us < all->return_ms * MS)
        sim_violation(all->sim, RULE_HOME, "%s comes home in %s after %" P " ms", region_services[service],
                      region_names[region->number], healthy_us / MS);
    all->homes += region->waits[service];
    at_home(region, service);
}

static void follow(struct region *region, unsigned service, const struct region_view *before,
                   const struct region_entry *entry) {
    const struct region_view *view = &region->view;
    unsigned own = 1u << region->number;
    /* an entry that brings it home takes its rests away */
    unsigned rests = view->noted[service] ? view->rests[service] : before->rests[service];
    bool others = others_answer(region, service, rests);
    bool was = before->healthy[service][0] & own, is = view->healthy[service][0] & own;
    if (was && !is) {
        /* of a copy that is still put together nobody sees whether it has the service */
        region->away[service] = has_others(region, service) || view->noted[service];
        region->waits[service] = false;
    }
    if (!was && is) {
        region->away[service] = region->waits[service] = region->away[service] && others;
        region->back_us[service] = region->all->sim->now_us;
    }
    bool free_to = service == SERVICE_WEB && entry->ordered && may_be_home(region, &entry->before);
    if (free_to && region->waits[service] && !view->noted[service]) at_home(region, service);
    if (is && region->waits[service] && !others) {
        region->all->ends++;
        at_home(region, service);
    }
    if (entry->home && strcmp(entry->home, region_services[service]) == 0) brought_home(region, service);
}

/* -- what it says ------------------------------------------------------------------------------------------------- */

static const char *names(unsigned regions, char *room, size_t size) {
    room[0] = '\0';
    for (unsigned i = 0; i < REGIONS_HERE; i++)
        if (regions & 1u << i) snprintf(room + strlen(room), size - strlen(room), "%s ", region_names[i]);
    return room;
}

static void compare(struct region *region, unsigned service, const char *from, const char *by) {
    struct regions *all = region->all;
    struct answerer wanted = expected(region, service);
    char some[64], those[64];
    bool right = wanted.regions & 1u << number_of(from) && strcmp(by, region_services[wanted.reader]) == 0;
    if (!right)
        sim_violation(all->sim, RULE_HOME,
                      "%s in %s is answered by %s of %s, not by %s of %s; healthy in: %s, away: %d, waits: %d",
                      region_services[service], region_names[region->number], by, from, region_services[wanted.reader],
                      names(wanted.regions, those, sizeof those),
                      names(region->view.healthy[service][0], some, sizeof some), region->away[service],
                      region->waits[service]);
    bool own = number_of(from) == region->number;
    all->answers++, all->from_others += !own;
    all->while_healthy += !own && region->view.healthy[service][0] & 1u << region->number;
    sim_mix_bytes(all->sim, from, strlen(from));
}

static void ask(struct region *region, unsigned service) {
    struct store_txn *txn = store_read(region->replica.reader);
    Pb__AnswerRequest request = PB__ANSWER_REQUEST__INIT;
    struct arena arena = {0};
    struct query_result result = {0};
    request.service = NAME(region_services[service]), request.own = NAME(region_names[region->number]);
    CHECK(query_answer.run(txn, &request.base, &arena, &result) == CO_OK);
    const Pb__AnswerResult *answer = (const Pb__AnswerResult *)result.message;
    compare(region, service, answer->from->region, answer->service);
    CHECK(query_explain.run(txn, &request.base, &arena, &result) == CO_OK);
    const Pb__ExplainResult *why = (const Pb__ExplainResult *)result.message;
    if (strcmp(why->answer->region, answer->from->region) != 0 || why->away != answer->away)
        sim_violation(region->all->sim, RULE_HOME, "%s is answered from %s, and explained from %s", request.service,
                      answer->from->region, why->answer->region);
    store_read_done(region->replica.reader);
    arena_free(&arena);
}

void region_judge(struct region *region, const struct region_entry *entry) {
    struct region_view before = region->view;
    region_look(region, &region->view);
    for (unsigned service = 0; service < REGION_SERVICES; service++) {
        follow(region, service, &before, entry);
        TRACE(region->all->sim, "   %s: healthy %x (blue %x) of %x, at rest %x%s%s", region_services[service],
              region->view.healthy[service][0], region->view.healthy[service][1], region->view.there[service],
              region->view.rests[service], region->away[service] ? ", away" : "",
              region->waits[service] ? ", waits" : "");
        if (region->away[service] != region->view.noted[service])
            sim_violation(region->all->sim, RULE_HOME, "%s in %s is%s on record as away", region_services[service],
                          region_names[region->number], region->view.noted[service] ? "" : " not");
        ask(region, service);
    }
}

void region_judge_time(struct region *region) {
    const struct regions *all = region->all;
    uint64_t most_us = (all->return_ms + 2 * RETURNING_LOOK_MS + 200) * MS;
    for (unsigned service = 0; service < REGION_SERVICES && region->leads; service++) {
        uint64_t since_us = region->back_us[service] > region->led_us ? region->back_us[service] : region->led_us;
        if (region->waits[service] && all->sim->now_us - since_us > most_us)
            sim_violation(all->sim, RULE_HOME, "%s in %s is not home after %" P " ms", region_services[service],
                          region_names[region->number], (all->sim->now_us - since_us) / MS);
    }
}
