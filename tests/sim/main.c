/* sim [SEED | FROM..TO] [--nodes N] [--ticks T] [--mutate NAME] [--scenario NAME] [--check-determinism] ...
 *
 * Runs seeds; the first violation is printed with the command that replays it, and ends the program with 1. */
#include <getopt.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/text.h"
#include "health/anti_entropy.h"
#include "health/liveness.h"
#include "kv/quota_owner/owner.h"
#include "rpc/client/connections.h"
#include "rpc/forward/forwarding.h"
#include "rpc/leader/leases.h"
#include "tests/sim/module.h"

struct mutation {
    const char *name;
    unsigned bit, forwarding, lease, watch, module, spender, owner, connections, liveness, anti_entropy;
};
static const struct mutation mutations[] = {
    {"count-old-terms", .bit = RAFT_MUTATE_COUNT_OLD_TERMS},
    {"vote-before-disk", .bit = RAFT_MUTATE_VOTE_BEFORE_DISK},
    {"ack-before-majority", .bit = RAFT_MUTATE_ACK_BEFORE_MAJORITY},
    {"no-empty-entry", .bit = RAFT_MUTATE_NO_EMPTY_ENTRY},
    {"read-without-round", .bit = RAFT_MUTATE_READ_WITHOUT_ROUND},
    {"ack-failed-append", .bit = RAFT_MUTATE_ACK_FAILED_APPEND},
    {"read-commit-unknown", .bit = RAFT_MUTATE_READ_COMMIT_UNKNOWN},
    {"read-voucher-alone", .bit = RAFT_MUTATE_READ_VOUCHER_ALONE},
    {"deposed-leader-expires", .lease = LESSOR_MUTATE_DEPOSED_EXPIRES},
    {"renew-while-proposed", .lease = LESSOR_MUTATE_RENEW_PROPOSED},
    {"forward-again", .forwarding = FORWARDING_MUTATE_SEND_AGAIN},
    {"watch-after-read", .watch = 1},
    {"lock-overtakes", .module = MUTATE_LOCK_OVERTAKES},
    {"lock-forgets", .module = MUTATE_LOCK_FORGETS},
    {"election-priority", .module = MUTATE_ELECTION_PRIORITY},
    {"fence-lowers", .module = MUTATE_FENCE_LOWERS},
    {"barrier-early", .module = MUTATE_BARRIER_EARLY},
    {"phaser-keeps-dead", .module = MUTATE_PHASER_KEEPS_DEAD},
    {"hazard-forgets", .module = MUTATE_HAZARD_FORGETS},
    {"txn-half", .module = MUTATE_TXN_HALF},
    {"history-skips", .module = MUTATE_HISTORY_SKIPS},
    {"stream-skips", .module = MUTATE_STREAM_SKIPS},
    {"quota-reclaims-early", .module = MUTATE_QUOTA_RECLAIMS_EARLY},
    {"quota-refill-twice", .module = MUTATE_QUOTA_REFILL_TWICE},
    {"quota-split-exceeds", .module = MUTATE_QUOTA_SPLIT_EXCEEDS},
    {"quota-overstays", .spender = SPENDER_MUTATE_OVERSTAYS, .owner = OWNER_MUTATE_OVERSTAYS},
    {"quota-remembers", .spender = SPENDER_MUTATE_REMEMBERS},
    {"quota-hoards", .spender = SPENDER_MUTATE_HOARDS},
    {"quota-counts-early", .owner = OWNER_MUTATE_COUNTS_EARLY},
    {"quota-skips-hand-over", .owner = OWNER_MUTATE_SKIPS_HAND_OVER},
    {"rollout-repeats", .module = MUTATE_ROLLOUT_REPEATS},
    {"rollout-sleeps", .module = MUTATE_ROLLOUT_SLEEPS},
    {"rollout-blind", .module = MUTATE_ROLLOUT_BLIND},
    {"copy-mixes", .module = MUTATE_COPY_MIXES},
    {"keys-repeats", .module = MUTATE_KEYS_REPEATS},
    {"failover-lingers", .module = MUTATE_FAILOVER_LINGERS},
    {"turns-forget", .module = MUTATE_TURNS_FORGET},
    {"token-outlives", .module = MUTATE_TOKEN_OUTLIVES},
    {"links-no-ping", .connections = CONNECTIONS_MUTATE_NO_PING},
    {"links-keep-leaderless", .connections = CONNECTIONS_MUTATE_KEEPS_LEADERLESS},
    {"links-no-backoff", .connections = CONNECTIONS_MUTATE_NO_BACKOFF},
    {"links-backoff-stays", .connections = CONNECTIONS_MUTATE_BACKOFF_STAYS},
    {"links-no-rank", .connections = CONNECTIONS_MUTATE_NO_RANK},
    {"links-dial-strangers", .connections = CONNECTIONS_MUTATE_DIALS_STRANGERS},
    {"links-follow-strangers", .connections = CONNECTIONS_MUTATE_FOLLOWS_STRANGERS},
    {"links-hold-on", .connections = CONNECTIONS_MUTATE_HOLDS_ON},
    {"renewal-once", .liveness = LIVENESS_MUTATE_NEVER_AGAIN},
    {"lost-lease-kept", .liveness = LIVENESS_MUTATE_KEEPS_LOST},
    {"void-lease-kept", .liveness = LIVENESS_MUTATE_KEEPS_VOID},
    {"leave-without-end", .liveness = LIVENESS_MUTATE_STAYS},
    {"taken-name-writes", .liveness = LIVENESS_MUTATE_TAKEN_WRITES},
    {"sync-drops", .anti_entropy = ANTI_ENTROPY_MUTATE_DROPS},
    {"sync-blind", .anti_entropy = ANTI_ENTROPY_MUTATE_BLIND},
    {"sync-together", .anti_entropy = ANTI_ENTROPY_MUTATE_TOGETHER},
    {"sync-aside-for-good", .anti_entropy = ANTI_ENTROPY_MUTATE_ASIDE},
};

struct arguments {
    uint64_t from, to;
    bool range_given;
    uint64_t percent; /* of the range; 0: all */
    struct sim_options options;
    const struct mutation *mutation;
    const char *scenario; /* "all": each of them */
    bool twice;
    bool by_module; /* each seed again without each of the modules */
};

struct outcome {
    bool failed;
    enum rule rule;
    char failure[512];
    uint64_t now_us, trace, events, leaders, committed, acked, reads;
    uint64_t digests[SIM_MODULES_MAX], chaos_digest; /* of what was generated */
    const char *chaos_profile;
};

/* -- one run -- */

static sigjmp_buf aborted;
static volatile sig_atomic_t running;

static uint64_t running_seed;

static void on_signal(int number) {
    if (running) siglongjmp(aborted, number);
    signal(number, SIG_DFL);
    raise(number);
}

static void catch_signals(void) {
    signal(SIGABRT, on_signal);
#ifndef COORD_ASAN
    signal(SIGSEGV, on_signal);
    signal(SIGFPE, on_signal);
#endif
}

#ifdef COORD_ASAN
/* Called by the sanitizer before its report. */
void __asan_on_error(void);
void __asan_on_error(void) { fprintf(stderr, "sim: in seed %" PRIu64 ":\n", running_seed); }
#endif

static void outcome_take(struct outcome *outcome, const struct sim *sim) {
    *outcome = (struct outcome){.failed = sim->failed,
                                .rule = sim->failed_rule,
                                .now_us = sim->now_us,
                                .trace = sim->trace,
                                .events = sim->events,
                                .leaders = sim->chronicle->leaders_elected,
                                .committed = sim->chronicle->committed_count,
                                .chaos_digest = sim->chaos_digest,
                                .chaos_profile = chaos_name(sim)};
    memcpy(outcome->digests, sim->digests, sizeof outcome->digests);
    memcpy(outcome->failure, sim->failure, sizeof outcome->failure);
    for (size_t i = 0; i < sim->op_count; i++)
        if (sim->ops[i].state == OP_DONE) sim->ops[i].way == OP_WRITE ? outcome->acked++ : outcome->reads++;
}

/* A CHECK of the code under test that fires is a violation as any other; what that run held is not freed. */
static void run_once(const struct sim_options *options, const struct scenario *scenario, struct outcome *outcome) {
    static struct sim sim;
    sim_init(&sim, options);
    running_seed = options->seed;
    int number = sigsetjmp(aborted, 1);
    if (number != 0) {
        running = 0;
        sim_violation(&sim, RULE_ASSERT, "%s",
                      number == SIGABRT ? "an assertion failed (see above)" : strsignal(number));
        outcome_take(outcome, &sim);
        return;
    }
    running = 1;
    if (scenario) scenario->run(&sim);
    else chaos_run(&sim);
    running = 0;
    outcome_take(outcome, &sim);
    bool broken = options->mutations || options->forwarding_mutations || options->lease_mutations ||
                  options->watch_mutations || options->module_mutations || options->spender_mutations ||
                  options->owner_mutations || options->connections_mutations || options->liveness_mutations ||
                  options->anti_entropy_mutations;
    if (sim.failed && !broken) cluster_print(&sim, stderr);
    sim_close(&sim);
}

/* -- reports -- */

static void print_replay(const struct arguments *a, uint64_t seed, const struct scenario *scenario) {
    fprintf(stderr, "sim: reproduce with: ./dev sim %" PRIu64, seed);
    if (a->options.servers) fprintf(stderr, " --nodes %u", a->options.servers);
    if (a->options.ticks) fprintf(stderr, " --ticks %" PRIu64, a->options.ticks);
    if (scenario) fprintf(stderr, " --scenario %s", scenario->name);
    if (a->mutation) fprintf(stderr, " --mutate %s", a->mutation->name);
    for (int i = 0; i < RULE_COUNT; i++)
        if (a->options.rules_off & 1u << i) fprintf(stderr, " --without %s", rule_name((enum rule)i));
    fprintf(stderr, " --verbose\n");
}

static void print_failure(const struct arguments *a, uint64_t seed, const struct scenario *scenario,
                          const struct outcome *outcome) {
    fprintf(stderr, "sim: %s (%s): %s\n", rule_name(outcome->rule), rule_claim(outcome->rule), outcome->failure);
    fprintf(stderr, "sim: seed %" PRIu64 " (%s), at %" PRIu64 ".%03" PRIu64 " ms of virtual time\n", seed,
            scenario ? scenario->name : outcome->chaos_profile, outcome->now_us / 1000, outcome->now_us % 1000);
    print_replay(a, seed, scenario);
}

static double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* -- ranges -- */

struct totals {
    uint64_t runs, events, leaders, committed, acked, reads, virtual_us;
};

static void totals_add(struct totals *totals, const struct outcome *outcome) {
    totals->runs++;
    totals->events += outcome->events;
    totals->leaders += outcome->leaders;
    totals->committed += outcome->committed;
    totals->acked += outcome->acked;
    totals->reads += outcome->reads;
    totals->virtual_us += outcome->now_us;
}

/* Without one module's clients: nothing else may be generated, and no other fault may come. */
static void check_without(const struct sim_options *options, const struct outcome *with, unsigned off) {
    struct sim_options fewer = *options;
    struct outcome without;
    fewer.modules_off = 1u << off;
    run_once(&fewer, NULL, &without);
    if (without.failed) {
        fprintf(stderr, "sim: seed %" PRIu64 " without the clients of \"%s\": %s: %s\n", options->seed,
                sim_modules[off]->name, rule_name(without.rule), without.failure);
        exit(1);
    }
    for (unsigned i = 0; sim_modules[i]; i++)
        if (i != off && without.digests[i] != with->digests[i]) {
            fprintf(stderr,
                    "sim: seed %" PRIu64 ": clients of \"%s\" do something else when there are none of \"%s\"\n",
                    options->seed, sim_modules[i]->name, sim_modules[off]->name);
            exit(1);
        }
    if (without.chaos_digest != with->chaos_digest) {
        fprintf(stderr, "sim: seed %" PRIu64 ": other faults happen when there are no clients of \"%s\"\n",
                options->seed, sim_modules[off]->name);
        exit(1);
    }
}

static bool run_seed(const struct arguments *a, uint64_t seed, const struct scenario *scenario, struct totals *totals,
                     struct outcome *outcome) {
    struct sim_options options = a->options;
    options.seed = seed;
    options.digests = a->by_module;
    run_once(&options, scenario, outcome);
    totals_add(totals, outcome);
    for (unsigned i = 0; a->by_module && !outcome->failed && sim_modules[i]; i++) check_without(&options, outcome, i);
    if (outcome->failed || !a->twice) return !outcome->failed;
    struct outcome again;
    run_once(&options, scenario, &again);
    if (again.trace == outcome->trace && again.events == outcome->events) return true;
    fprintf(stderr,
            "sim: seed %" PRIu64 " runs differently the second time: %" PRIu64 " events, hash %016" PRIx64
            ", then %" PRIu64 " events, hash %016" PRIx64 "\n",
            seed, outcome->events, outcome->trace, again.events, again.trace);
    exit(1);
}

static void print_totals(const struct totals *t, double seconds, const char *what) {
    printf("sim: %" PRIu64 " runs%s clean: %" PRIu64 " events, %" PRIu64 " elections won, %" PRIu64
           " entries committed, %" PRIu64 " writes and %" PRIu64
           " reads answered, %.0f s of virtual time; %.1f ms of CPU a run\n",
           t->runs, what, t->events, t->leaders, t->committed, t->acked, t->reads, (double)t->virtual_us / 1e6,
           t->runs ? seconds * 1000 / (double)t->runs : 0);
}

static int run_range(const struct arguments *a, const struct scenario *scenario) {
    struct totals totals = {0};
    double begin = cpu_seconds();
    for (uint64_t seed = a->from; seed <= a->to; seed++) {
        struct outcome outcome;
        bool clean = run_seed(a, seed, scenario, &totals, &outcome);
        if (!clean && a->mutation) {
            printf("sim: %s: caught by %s on seed %" PRIu64 " (run %" PRIu64 "): %s\n", a->mutation->name,
                   rule_name(outcome.rule), seed, totals.runs, outcome.failure);
            return 0;
        }
        if (!clean) {
            print_failure(a, seed, scenario, &outcome);
            return 1;
        }
        if (a->from == a->to)
            printf("sim: seed %" PRIu64 " (%s): trace %016" PRIx64 "\n", seed,
                   scenario ? scenario->name : outcome.chaos_profile, outcome.trace);
        else if (!scenario && totals.runs % 1000 == 0)
            fprintf(stderr, "sim: %" PRIu64 "..%" PRIu64 " clean\n", a->from, seed);
    }
    if (a->mutation) {
        fprintf(stderr, "sim: %s: not caught within %" PRIu64 " seeds\n", a->mutation->name, totals.runs);
        return 1;
    }
    char what[128];
    snprintf(what, sizeof what, "%s%s%s", scenario ? " of " : "", scenario ? scenario->name : "",
             a->twice       ? ", each twice the same,"
             : a->by_module ? ", each module independent of the others,"
                            : "");
    print_totals(&totals, cpu_seconds() - begin, what);
    return 0;
}

static int run_scenarios(const struct arguments *a) {
    bool all = strcmp(a->scenario, "all") == 0, found = false;
    for (size_t i = 0; i < scenario_count; i++) {
        if (!all && strcmp(a->scenario, scenarios[i].name) != 0) continue;
        found = true;
        int rv = run_range(a, &scenarios[i]);
        if (rv != 0) return rv;
    }
    if (found) return 0;
    fprintf(stderr, "sim: no scenario \"%s\"; there are:\n", a->scenario);
    for (size_t i = 0; i < scenario_count; i++) fprintf(stderr, "  %-40s %s\n", scenarios[i].name, scenarios[i].claim);
    return 2;
}

/* -- arguments -- */

static int usage(FILE *out, int status) {
    fputs(
        "usage: sim [SEED | FROM..TO] [--nodes N] [--ticks MS] [--scenario NAME|all] [--mutate NAME] "
        "[--without RULE]\n"
        "           [--without-module MODULE] [--check-determinism] [--check-modules] [--scaled] [--verbose]\n"
        "Without seeds: 1..1000 (scenarios 1..20, mutations 1..500). --scaled: as many percent of them as\n"
        "COORD_TEST_SCALE says.\nmutations:",
        out);
    for (size_t i = 0; i < ARRAY_COUNT(mutations); i++) fprintf(out, " %s", mutations[i].name);
    fputs("\nrules:", out);
    for (int i = 0; i < RULE_COUNT; i++) fprintf(out, " %s", rule_name((enum rule)i));
    fputs("\nmodules:", out);
    for (int i = 0; sim_modules[i]; i++) fprintf(out, " %s", sim_modules[i]->name);
    fputc('\n', out);
    return status;
}

static int wrong(const char *text, const char *why) {
    fprintf(stderr, "sim: \"%s\" %s\n", text, why);
    return usage(stderr, 2);
}

static bool number(const char *text, size_t size, uint64_t most, uint64_t *out) {
    return u64_parse(slice_make(text, size), most, out) == CO_OK;
}

static bool parse_seeds(struct arguments *a, const char *text) {
    const char *dots = strstr(text, "..");
    a->range_given = true;
    if (!dots) {
        bool ok = number(text, strlen(text), UINT64_MAX - 1, &a->from);
        a->to = a->from;
        return ok;
    }
    return number(text, (size_t)(dots - text), UINT64_MAX - 1, &a->from) &&
           number(dots + 2, strlen(dots + 2), UINT64_MAX - 1, &a->to) && a->from <= a->to;
}

static bool parse_mutation(struct arguments *a, const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(mutations); i++)
        if (strcmp(name, mutations[i].name) == 0) a->mutation = &mutations[i];
    if (!a->mutation) return false;
    a->options.mutations |= a->mutation->bit;
    a->options.forwarding_mutations |= a->mutation->forwarding;
    a->options.lease_mutations |= a->mutation->lease;
    a->options.watch_mutations |= a->mutation->watch;
    a->options.module_mutations |= a->mutation->module;
    a->options.spender_mutations |= a->mutation->spender;
    a->options.owner_mutations |= a->mutation->owner;
    a->options.connections_mutations |= a->mutation->connections;
    a->options.liveness_mutations |= a->mutation->liveness;
    a->options.anti_entropy_mutations |= a->mutation->anti_entropy;
    return true;
}

static bool parse_rule(struct arguments *a, const char *name) {
    for (int i = 0; i < RULE_COUNT; i++) {
        if (strcmp(name, rule_name((enum rule)i)) != 0) continue;
        a->options.rules_off |= 1u << i;
        return true;
    }
    return false;
}

static bool parse_module(struct arguments *a, const char *name) {
    for (int i = 0; sim_modules[i]; i++) {
        if (strcmp(name, sim_modules[i]->name) != 0) continue;
        a->options.modules_off |= 1u << i;
        return true;
    }
    return false;
}

static void scale(struct arguments *a) {
    const char *text = getenv("COORD_TEST_SCALE");
    uint64_t percent = 100;
    if (text && number(text, strlen(text), 100000, &percent)) a->percent = percent;
}

static bool parse_option(struct arguments *a, int option) {
    uint64_t value = 0;
    switch (option) {
        case 'n':
            if (!number(optarg, strlen(optarg), 9, &value) || value == 0) return false;
            a->options.servers = (uint32_t)value;
            return true;
        case 't': return number(optarg, strlen(optarg), 1000000000, &a->options.ticks);
        case 'm': return parse_mutation(a, optarg);
        case 's': a->scenario = optarg; return true;
        case 'w': return parse_rule(a, optarg);
        case 'o': return parse_module(a, optarg);
        case 'i': a->by_module = true; return true;
        case 'd': a->twice = true; return true;
        case 'v': a->options.verbose = true; return true;
        case 'p': scale(a); return true;
        default: return false;
    }
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"nodes", required_argument, NULL, 'n'},
        {"ticks", required_argument, NULL, 't'},
        {"mutate", required_argument, NULL, 'm'},
        {"scenario", required_argument, NULL, 's'},
        {"without", required_argument, NULL, 'w'},
        {"without-module", required_argument, NULL, 'o'},
        {"check-determinism", no_argument, NULL, 'd'},
        {"check-modules", no_argument, NULL, 'i'},
        {"verbose", no_argument, NULL, 'v'},
        {"scaled", no_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    struct arguments a = {0};
    for (int option; (option = getopt_long(argc, argv, "hv", options, NULL)) != -1;)
        if (option == 'h') return usage(stdout, 0);
        else if (option == '?')  // said already
            return usage(stderr, 2);
        else if (!parse_option(&a, option)) return wrong(optarg, "is no value of its option");
    for (int i = optind; i < argc; i++)
        if (a.range_given) return wrong(argv[i], "is too much: one seed or one range");
        else if (!parse_seeds(&a, argv[i])) return wrong(argv[i], "is neither a seed nor a range such as 1..1000");
    if (!a.range_given) a.from = 1, a.to = a.scenario ? 20 : a.mutation ? 500 : 1000;
    if (a.percent) a.to = a.from + ((a.to - a.from + 1) * a.percent + 99) / 100 - 1;
    catch_signals();
    return a.scenario ? run_scenarios(&a) : run_range(&a, NULL);
}
