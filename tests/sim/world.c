/* The world: virtual time as a heap of events, the network, the trace. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "tests/sim/agents.h"
#include "tests/sim/gateways.h"

#define EVENTS_MOST 5000000u /* of one run; the busiest needs a tenth */

const char *rule_name(enum rule rule) {
#define NAME(name, text, claim) [name] = text,
    static const char *const names[] = {SIM_CHECKERS(NAME)};
#undef NAME
    return names[rule];
}

const char *rule_claim(enum rule rule) {
#define CLAIM(name, text, claim) [name] = claim,
    static const char *const claims[] = {SIM_CHECKERS(CLAIM)};
#undef CLAIM
    return claims[rule];
}

/* -- trace and violations -- */

void sim_mix(struct sim *sim, uint64_t value) {
    uint64_t both[2] = {sim->trace, value};
    sim->trace = hash64(both, sizeof both);
}

void sim_mix_bytes(struct sim *sim, const void *data, size_t size) { sim->trace = hash64_seed(data, size, sim->trace); }

void sim_say(struct sim *sim, const char *format, ...) {
    printf("%6" PRIu64 ".%03" PRIu64 "  ", sim->now_us / 1000, sim->now_us % 1000);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

void sim_violation(struct sim *sim, enum rule rule, const char *format, ...) {
    if (sim->failed || (sim->options.rules_off & 1u << rule)) return;
    sim->failed = true;
    sim->failed_rule = rule;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sim->failure, sizeof sim->failure, format, arguments);
    va_end(arguments);
    TRACE(sim, "VIOLATION %s: %s", rule_name(rule), sim->failure);
}

uint64_t sim_random(struct sim *sim, uint64_t least, uint64_t most) { return rng_between(&sim->rng, least, most); }

bool sim_chance(struct sim *sim, uint32_t permille) { return permille > 0 && rng_below(&sim->rng, 1000) < permille; }

/* -- the heap of events -- */

static bool event_before(const struct event *a, const struct event *b) {
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void heap_push(struct sim *sim, const struct event *event) {
    if (sim->heap_count == sim->heap_capacity) {
        sim->heap_capacity = sim->heap_capacity ? sim->heap_capacity * 2 : 256;
        sim->heap = mem_realloc(sim->heap, sim->heap_capacity * sizeof *sim->heap);
    }
    size_t at = sim->heap_count++;
    while (at > 0 && event_before(event, &sim->heap[(at - 1) / 2])) {
        sim->heap[at] = sim->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->heap[at] = *event;
}

static struct event heap_pop(struct sim *sim) {
    struct event first = sim->heap[0], last = sim->heap[--sim->heap_count];
    size_t at = 0, count = sim->heap_count;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count && event_before(&sim->heap[child + 1], &sim->heap[child])) child++;
        if (!event_before(&sim->heap[child], &last)) break;
        sim->heap[at] = sim->heap[child];
        at = child;
    }
    sim->heap[at] = last;
    return first;
}

/* Of these only the server's present incarnation is meant; the others reach whoever is there. */
static bool event_of_one_life(enum event_kind kind) {
    return kind != EVENT_DELIVER && kind != EVENT_REQUEST && kind != EVENT_CLIENT && kind != EVENT_CHAOS &&
           kind != EVENT_GATEWAY && kind != EVENT_AGENT && kind != EVENT_FRAMES;
}

void sim_schedule(struct sim *sim, uint64_t after_us, enum event_kind kind, uint32_t server, uint64_t number,
                  void *payload) {
    struct event event = {.at_us = sim->now_us + after_us,
                          .order = sim->order++,
                          .kind = kind,
                          .server = server,
                          .incarnation = event_of_one_life(kind) ? sim->servers[server]->incarnation : 0,
                          .number = number,
                          .payload = payload};
    heap_push(sim, &event);
}

static void server_dispatch(struct sim *sim, struct event *event) {
    struct server *server = sim->servers[event->server];
    if (event->incarnation != 0 && event->incarnation != server->incarnation) return;
    if (server->up && server->paused_until_us > sim->now_us) { /* stopped: it sees all this later, in order */
        event->at_us = server->paused_until_us;
        event->order = sim->order++;
        heap_push(sim, event);
        event->payload = NULL;
        return;
    }
    sim_mix(sim, (uint64_t)event->kind << 32 | event->server);
    sim_mix(sim, sim->now_us);
    server_event(server, event);
}

bool sim_step(struct sim *sim) {
    if (sim->failed || sim->heap_count == 0) return false;
    struct event event = heap_pop(sim);
    CHECK(event.at_us >= sim->now_us);
    sim->now_us = event.at_us;
    if (++sim->events > EVENTS_MOST) {
        sim_violation(sim, RULE_CONVERGE, "%u million events: it goes round in circles", EVENTS_MOST / 1000000);
        free(event.payload);
        return false;
    }
    switch (event.kind) {
        case EVENT_CLIENT: client_wake(sim, event.server, event.number); break;
        case EVENT_GATEWAY: gateways_event(sim, event.server, event.number); break;
        case EVENT_AGENT: agents_event(sim, event.server, event.number); break;
        case EVENT_CHAOS: chaos_event(sim, event.number); break;
        default: server_dispatch(sim, &event);
    }
    free(event.payload);
    return !sim->failed;
}

void sim_run(struct sim *sim, uint64_t us) {
    uint64_t end = sim->now_us + us;
    while (!sim->failed && sim->heap_count > 0 && sim->heap[0].at_us <= end) sim_step(sim);
    if (!sim->failed) sim->now_us = end;
}

/* -- the network -- */

static void network_deliver_after(struct sim *sim, const struct raft_message *message, struct slice bytes) {
    uint32_t from = (uint32_t)message->from - 1, to = (uint32_t)message->to - 1;
    const struct network *w = &sim->network;
    uint64_t delay = w->delay_us + (w->delay_span_us ? sim_random(sim, 0, w->delay_span_us) : 0);
    if (sim_chance(sim, w->tail_permille)) delay += sim_random(sim, w->tail_us, 2 * w->tail_us);
    if (w->ordered) {
        uint64_t at = sim->now_us + delay;
        if (at < sim->link_us[from][to]) at = sim->link_us[from][to];
        sim->link_us[from][to] = at;
        delay = at - sim->now_us;
    }
    struct raft_data *packet = raft_data_new(bytes.data, bytes.size);
    sim_schedule(sim, delay, EVENT_DELIVER, to, sim->servers[from]->process << 8 | from, packet);
}

/* Messages under way when their link was cut or their sender died are lost, unless the network says otherwise. */
bool network_arrives(struct sim *sim, uint32_t to, uint64_t number) {
    const struct server *from = sim->servers[number & 0xff];
    if (sim->network.late) return true;
    if (sim->cut[from->slot][to]) return false;
    return from->process == number >> 8 || sim_chance(sim, 500);
}

void network_send(struct sim *sim, const struct raft_message *message) {
    static _Thread_local struct buffer bytes;
    CHECK(message->from >= 1 && message->from <= sim->server_count);
    if (message->to < 1 || message->to > sim->server_count || message->to == message->from) {
        sim_violation(sim, RULE_CAP, "s%" PRIu64 " sends to %" PRIu64 ", who is nobody", message->from, message->to);
        return;
    }
    uint32_t from = (uint32_t)message->from - 1, to = (uint32_t)message->to - 1;
    buffer_reset(&bytes);
    raft_message_encode(message, &bytes);
    sim_mix_bytes(sim, bytes.data, bytes.size);
    sim->sent[message->type]++;
    if (message->entry_count > 0) sim->sent_with_entries[from][to]++;
    if (sim->mute[from][to] & 1u << message->type) return;
    if (sim->cut[from][to]) {
        if (sim_chance(sim, 100)) sim_schedule(sim, sim_random(sim, 1, 50) * MS, EVENT_LOST, from, message->to, NULL);
        return;
    }
    if (sim_chance(sim, sim->network.loss_permille)) return;
    network_deliver_after(sim, message, buffer_slice(&bytes));
    if (sim_chance(sim, sim->network.twice_permille)) network_deliver_after(sim, message, buffer_slice(&bytes));
}

void network_cut(struct sim *sim, uint32_t from, uint32_t to, bool cut) { sim->cut[from][to] = cut; }

void network_heal(struct sim *sim) {
    memset(sim->cut, 0, sizeof sim->cut);
    memset(sim->mute, 0, sizeof sim->mute);
}

/* -- begin and end -- */

void sim_init(struct sim *sim, const struct sim_options *options) {
    memset(sim, 0, sizeof *sim);
    sim->options = *options;
    rng_seed(&sim->rng, options->seed);
    sim->network = (struct network){.delay_us = 200, .delay_span_us = 2 * MS, .ordered = true};
    sim->raft = (struct raft_config){
        .election_ms = 300,
        .heartbeat_ms = 60,
        .append_bytes_max = 64 << 10,
        .append_inflight_max = 8,
        .cache_bytes_max = 64 << 10,
        .snapshot_chunk_bytes = 4 << 10,
        .promote_lag_max = 16,
        .mutations = options->mutations,
    };
    sim->wal =
        (struct wal_config){.segment_bytes = 32 << 10, .first_segment_bytes = 16 << 10, .reserve_bytes = 4 << 10};
    sim->snapshot_filler = 16 << 10;
    links_free(sim); /* empty queues */
    sim->chronicle = chronicle_new();
    modules_begin(sim);
}

void sim_close(struct sim *sim) {
    for (uint32_t i = 0; i < sim->server_count; i++) server_free(sim->servers[i]);
    gateways_free(sim);
    agents_free(sim);
    for (size_t i = 0; i < sim->heap_count; i++) free(sim->heap[i].payload);
    free(sim->heap);
    links_free(sim);
    modules_end(sim);
    clients_free(sim);
    free(sim->ops);
    chaos_close(sim);
    chronicle_free(sim->chronicle);
}
