#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "balance.h"
#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "lb/pick.h"

#define REMEMBERED (1.0 / 10) /* of a latency, in the average */
enum { LATENCIES = 64 };

const char *const policy_names[POLICIES] = {"random", "round robin", "least loaded", "p2c", "hcl"};

struct request {
    struct request *next; /* in its queue */
    double came_ms, work_ms;
    uint32_t client, server, before; /* in flight when it came */
    bool measured;
};

struct server {
    double speed; /* without the antagonist */
    bool antagonised;
    uint32_t inflight, busy;
    struct request *first, **last; /* those that wait */
    double latencies[LATENCIES]; /* logarithm of their mean, by the requests in flight when they came; NAN: none yet */
    struct load_hint sent;       /* reported, not known to the clients yet */
    uint64_t sent_ns;
    uint32_t window; /* requests that came in this HERD_MS */
};

enum kind { ARRIVE, DONE, ANTAGONIST, REPORT, KNOWN, WATCH, WINDOW };
struct event {
    double at_ms;
    enum kind kind;
    uint32_t server;
    struct request *request;
};

enum { BUCKETS = 4096 };
struct world {
    const struct run *run;
    struct rng rng;
    struct event *heap;
    size_t heap_size, heap_room;
    struct server *servers;
    uint32_t *inflight; /* for the watcher */
    double now_ms, gap_ms, window_fair;
    size_t came, done, measured;
    struct pick_set *set;
    uint32_t *own;  /* of a client at a server */
    uint32_t *turn; /* of a client, for round robin */
    struct load_hint *hints;
    uint64_t *histogram;
    struct outcome *outcome;
};

/* -- random numbers ----------------------------------------------------------------------------------------------- */
static double exponential(struct rng *rng, double mean) { return -mean * log1p(-rng_unit(rng)); }

static double normal(struct rng *rng) {
    return sqrt(-2 * log1p(-rng_unit(rng))) * cos(2 * 3.14159265358979323846 * rng_unit(rng));
}

static double work(struct world *world) {
    const struct fleet *fleet = &world->run->fleet;
    return fleet->work_ms * exp(fleet->spread * normal(&world->rng) - fleet->spread * fleet->spread / 2);
}

/* -- events: a heap ----------------------------------------------------------------------------------------------- */
static void at(struct world *world, double delay_ms, enum kind kind, uint32_t server, struct request *request) {
    if (world->heap_size == world->heap_room) {
        world->heap_room = world->heap_room ? 2 * world->heap_room : 1024;
        world->heap = mem_realloc(world->heap, world->heap_room * sizeof *world->heap);
    }
    struct event event = {world->now_ms + delay_ms, kind, server, request};
    size_t place = world->heap_size++;
    for (; place > 0 && world->heap[(place - 1) / 2].at_ms > event.at_ms; place = (place - 1) / 2)
        world->heap[place] = world->heap[(place - 1) / 2];
    world->heap[place] = event;
}

static struct event next_event(struct world *world) {
    struct event first = world->heap[0], moved = world->heap[--world->heap_size];
    size_t place = 0;
    for (;;) {
        size_t child = 2 * place + 1;
        if (child >= world->heap_size) break;
        if (child + 1 < world->heap_size && world->heap[child + 1].at_ms < world->heap[child].at_ms) child++;
        if (world->heap[child].at_ms >= moved.at_ms) break;
        world->heap[place] = world->heap[child];
        place = child;
    }
    world->heap[place] = moved;
    return first;
}

/* -- latencies: a histogram of buckets that are 0.5 % wide -------------------------------------------------------- */
static size_t bucket_of(double ms) {
    double bucket = log(fmax(ms, 1e-3) / 1e-3) / log(1.005);
    return bucket < BUCKETS - 1 ? (size_t)bucket : BUCKETS - 1;
}

static double percentile(const struct world *world, double part) {
    double wanted = part * (double)world->measured, seen = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += (double)world->histogram[i];
        if (seen >= wanted) return 1e-3 * pow(1.005, (double)i + 0.5);
    }
    return INFINITY;
}

/* -- hints -------------------------------------------------------------------------------------------------------- */
/* Quarters of a doubling. */
static size_t latency_at(uint32_t inflight) {
    size_t at = (size_t)(4 * log2(inflight + 1.0));
    return at < LATENCIES - 1 ? at : LATENCIES - 1;
}

/* How long requests took that found about as many in flight as there are now; NAN: none has been answered yet. */
static double latency_now(const struct server *server) {
    size_t at = latency_at(server->inflight);
    for (size_t apart = 0; apart < LATENCIES; apart++) {
        if (at >= apart && !isnan(server->latencies[at - apart])) return exp(server->latencies[at - apart]);
        if (at + apart < LATENCIES && !isnan(server->latencies[at + apart])) return exp(server->latencies[at + apart]);
    }
    return NAN;
}

static void latency_remember(struct server *server, uint32_t before, double latency_ms) {
    double *mean = &server->latencies[latency_at(before)], value = log(latency_ms);
    *mean = isnan(*mean) ? value : *mean + (value - *mean) * REMEMBERED;
}

static struct load_hint hint_now(const struct world *world, const struct server *server) {
    struct load_hint hint = load_unknown();
    hint.load = server->inflight / (double)world->run->fleet.workers;
    hint.inflight = server->inflight;
    hint.latency_ms = latency_now(server);
    return hint;
}

static uint64_t now_ns(const struct world *world) { return (uint64_t)(world->now_ms * 1e6); }

static void tell(struct world *world, uint32_t number, const struct load_hint *hint, uint64_t reported_ns) {
    world->hints[number] = *hint;
    pick_set_hint(world->set, number, hint, reported_ns);
}

static void fresh(struct world *world, uint32_t number) {
    if (world->run->hint_ms > 0) return;
    struct server *server = &world->servers[number];
    struct load_hint hint = hint_now(world, server);
    tell(world, number, &hint, now_ns(world));
}

static void report(struct world *world, uint32_t number) {
    struct server *server = &world->servers[number];
    server->sent = hint_now(world, server);
    server->sent_ns = now_ns(world);
    at(world, world->run->hint_ms / 2, KNOWN, number, NULL);
    at(world, world->run->hint_ms, REPORT, number, NULL);
}

static void known(struct world *world, uint32_t number) {
    struct server *server = &world->servers[number];
    tell(world, number, &server->sent, server->sent_ns);
}

/* -- servers ------------------------------------------------------------------------------------------------------ */
static void begin(struct world *world, struct request *request) {
    struct server *server = &world->servers[request->server];
    double speed = server->speed * (server->antagonised ? world->run->fleet.antagonist_speed : 1);
    server->busy++;
    at(world, request->work_ms / speed, DONE, request->server, request);
}

static void arrive(struct world *world, struct request *request) {
    struct server *server = &world->servers[request->server];
    request->before = server->inflight++;
    server->window++;
    if (server->inflight > world->outcome->fullest) world->outcome->fullest = server->inflight;
    if (server->busy < world->run->fleet.workers) {
        begin(world, request);
    } else {
        *server->last = request;
        server->last = &request->next;
    }
    fresh(world, request->server);
}

static void measure(struct world *world, const struct request *request, double latency_ms) {
    if (!request->measured) return;
    world->histogram[bucket_of(latency_ms)]++;
    world->outcome->mean_ms += latency_ms;
    world->measured++;
}

static void done(struct world *world, struct request *request) {
    struct server *server = &world->servers[request->server];
    double latency_ms = world->now_ms - request->came_ms;
    server->inflight--;
    server->busy--;
    latency_remember(server, request->before, latency_ms);
    if (server->first) {
        struct request *waiting = server->first;
        server->first = waiting->next;
        if (!server->first) server->last = &server->first;
        waiting->next = NULL;
        begin(world, waiting);
    }
    measure(world, request, latency_ms);
    world->own[request->client * world->run->fleet.servers + request->server]--;
    fresh(world, request->server);
    free(request);
    world->done++;
}

/* -- clients ------------------------------------------------------------------------------------------------------ */
static uint32_t least_loaded(struct world *world, const uint32_t *own) {
    const struct fleet *fleet = &world->run->fleet;
    uint32_t best = 0, ties = 0;
    double least = INFINITY;
    for (uint32_t i = 0; i < fleet->servers; i++) {
        double load = world->hints[i].load + (own ? own[i] / (double)fleet->workers : 0);
        if (load < least) best = i, least = load, ties = 0;
        if (load == least && rng_below(&world->rng, ++ties) == 0) best = i;
    }
    return best;
}

static uint32_t choose(struct world *world, uint32_t client) {
    size_t servers = world->run->fleet.servers;
    const uint32_t *own = world->run->hint_ms > 0 ? world->own + client * servers : NULL;
    struct pick_ask ask = {.rng = &world->rng, .own = own, .now_ns = now_ns(world), .policy = PICK_P2C};
    struct pick_result result;
    switch (world->run->policy) {
        case RANDOM: return (uint32_t)rng_below(&world->rng, servers);
        case ROUND_ROBIN: return (uint32_t)(world->turn[client]++ % servers);
        case LEAST_LOADED: return least_loaded(world, own);
        case P2C: break;
        case HCL: ask.policy = PICK_HCL; break;
        case POLICIES: UNREACHABLE();
    }
    CHECK(pick(world->set, &ask, &result) == 0);
    return (uint32_t)result.picked;
}

static void come(struct world *world) {
    const struct run *run = world->run;
    struct request *request = mem_zalloc(sizeof *request);
    request->client = (uint32_t)rng_below(&world->rng, run->fleet.clients);
    request->server = choose(world, request->client);
    request->came_ms = world->now_ms;
    request->work_ms = work(world);
    request->measured = world->came++ >= run->requests / 5;
    world->own[request->client * run->fleet.servers + request->server]++;
    arrive(world, request);
    if (world->came < run->requests + run->requests / 5)
        at(world, exponential(&world->rng, world->gap_ms), ARRIVE, 0, NULL);
}

/* -- the rest ----------------------------------------------------------------------------------------------------- */
static void antagonist(struct world *world, uint32_t number) {
    const struct fleet *fleet = &world->run->fleet;
    struct server *server = &world->servers[number];
    server->antagonised = !server->antagonised;
    double rest = fleet->antagonist_ms * (1 - fleet->antagonist_part) / fleet->antagonist_part;
    at(world, exponential(&world->rng, server->antagonised ? fleet->antagonist_ms : rest), ANTAGONIST, number, NULL);
}

static void windows_end(struct world *world) {
    bool measured = world->came >= world->run->requests / 5;
    for (size_t i = 0; i < world->run->fleet.servers; i++) {
        double herd = world->servers[i].window / world->window_fair;
        if (measured && herd > world->outcome->herd) world->outcome->herd = herd;
        world->servers[i].window = 0;
    }
    at(world, HERD_MS, WINDOW, 0, NULL);
}

static void watch(struct world *world) {
    const struct run *run = world->run;
    for (size_t i = 0; i < run->fleet.servers; i++) world->inflight[i] = world->servers[i].inflight;
    run->watch(run->data, world->now_ms, world->inflight, run->fleet.servers);
    at(world, run->watch_ms, WATCH, 0, NULL);
}

/* The capacity of the fleet, in requests at once at full speed. */
static double capacity(const struct fleet *fleet, size_t slow) {
    double speed = (double)(fleet->servers - slow) + (double)slow * fleet->slow_speed;
    return speed * (double)fleet->workers * (1 - fleet->antagonist_part * (1 - fleet->antagonist_speed));
}

static void servers_begin(struct world *world) {
    const struct run *run = world->run;
    const struct fleet *fleet = &run->fleet;
    size_t slow = (size_t)((double)fleet->servers * fleet->slow_part + 0.5);
    struct pick_candidate *candidates = mem_zalloc(fleet->servers * sizeof *candidates);
    for (uint32_t i = 0; i < fleet->servers; i++) {
        struct server *server = &world->servers[i];
        *server = (struct server){.speed = i < slow ? fleet->slow_speed : 1};
        for (size_t k = 0; k < LATENCIES; k++) server->latencies[k] = NAN;
        server->last = &server->first;
        candidates[i] =
            (struct pick_candidate){.weight = (double)fleet->workers, .share = 1, .hint = hint_now(world, server)};
        if (fleet->antagonist_part > 0) {
            server->antagonised = rng_unit(&world->rng) >= fleet->antagonist_part; /* is turned at once */
            at(world, 0, ANTAGONIST, i, NULL);
        }
        if (run->hint_ms > 0) at(world, run->hint_ms * (0.001 + rng_unit(&world->rng)), REPORT, i, NULL);
    }
    pick_set_fill(world->set, candidates, fleet->servers, false);
    for (uint32_t i = 0; i < fleet->servers; i++) tell(world, i, &candidates[i].hint, 0);
    free(candidates);
    world->gap_ms = fleet->work_ms / (run->load * capacity(fleet, slow));
    world->window_fair = HERD_MS / world->gap_ms / (double)fleet->servers;
}

static void step(struct world *world) {
    struct event event = next_event(world);
    world->now_ms = event.at_ms;
    switch (event.kind) {
        case ARRIVE: come(world); break;
        case DONE: done(world, event.request); break;
        case ANTAGONIST: antagonist(world, event.server); break;
        case REPORT: report(world, event.server); break;
        case KNOWN: known(world, event.server); break;
        case WATCH: watch(world); break;
        case WINDOW: windows_end(world); break;
    }
}

void balance_run(const struct run *run, struct outcome *outcome) {
    const struct fleet *fleet = &run->fleet;
    struct world world = {.run = run, .outcome = outcome, .set = pick_set_new()};
    *outcome = (struct outcome){0};
    rng_seed(&world.rng, run->seed);
    world.servers = mem_zalloc(fleet->servers * sizeof *world.servers);
    world.inflight = mem_zalloc(fleet->servers * sizeof *world.inflight);
    world.hints = mem_zalloc(fleet->servers * sizeof *world.hints);
    world.own = mem_zalloc(fleet->servers * fleet->clients * sizeof *world.own);
    world.turn = mem_zalloc(fleet->clients * sizeof *world.turn);
    world.histogram = mem_zalloc(BUCKETS * sizeof *world.histogram);
    for (size_t i = 0; i < fleet->clients; i++) world.turn[i] = (uint32_t)rng_below(&world.rng, fleet->servers);
    servers_begin(&world);
    at(&world, 0, ARRIVE, 0, NULL);
    at(&world, HERD_MS, WINDOW, 0, NULL);
    if (run->watch) at(&world, 0, WATCH, 0, NULL);
    while (world.done < run->requests + run->requests / 5) step(&world);
    outcome->mean_ms /= (double)world.measured;
    outcome->p50_ms = percentile(&world, 0.5), outcome->p90_ms = percentile(&world, 0.9);
    outcome->p99_ms = percentile(&world, 0.99), outcome->p999_ms = percentile(&world, 0.999);
    pick_set_free(world.set);
    free(world.heap), free(world.servers), free(world.inflight), free(world.hints);
    free(world.own), free(world.turn), free(world.histogram);
}
