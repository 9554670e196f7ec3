/* Writes the tables (between two marks) and the plots of docs/load-balancing.md. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "balance.h"
#include "base/check.h"
#include "keys.h"
#include "lb/keep.h"
#include "subsets.h"

#define BEGIN "<!-- written by ./dev balance: begin -->\n"
#define END   "<!-- written by ./dev balance: end -->\n"

const struct fleet mixed_fleet = {.name = "mixed",
                                  .servers = 100,
                                  .workers = 8,
                                  .clients = 100,
                                  .work_ms = 20,
                                  .spread = 1,
                                  .slow_part = 0.2,
                                  .slow_speed = 0.5,
                                  .antagonist_part = 0.2,
                                  .antagonist_speed = 0.6,
                                  .antagonist_ms = 2000,
                                  .requests = 500000};
const struct fleet equal_fleet = {.name = "equal",
                                  .servers = 100,
                                  .workers = 1,
                                  .clients = 100,
                                  .work_ms = 20,
                                  .spread = 1,
                                  .slow_speed = 1,
                                  .requests = 2000000};

static const double ages[] = {0, 100, 1000};

static struct outcome outcome_of(const struct fleet *fleet, enum policy policy, double hint_ms, double load) {
    struct outcome outcome;
    struct run run = {
        .fleet = *fleet, .policy = policy, .hint_ms = hint_ms, .load = load, .requests = fleet->requests, .seed = 1};
    balance_run(&run, &outcome);
    return outcome;
}

/* -- tables ------------------------------------------------------------------------------------------------------- */
static void number(struct buffer *out, double ms) { buffer_printf(out, " %.*f |", ms < 10 ? 1 : 0, ms); }

static void row(struct buffer *out, const struct fleet *fleet, enum policy policy, double hint_ms, double random_ms) {
    struct outcome got = outcome_of(fleet, policy, hint_ms, 0.9);
    if (policy == RANDOM || policy == ROUND_ROBIN) buffer_printf(out, "| %s | - |", policy_names[policy]);
    else buffer_printf(out, "| %s | %g |", policy_names[policy], hint_ms);
    number(out, got.p50_ms), number(out, got.p90_ms), number(out, got.p99_ms), number(out, got.p999_ms);
    if (random_ms > 0) buffer_printf(out, " %.2f |", got.p99_ms / random_ms);
    else buffer_printf(out, " 1 |");
    buffer_printf(out, " %.0f |\n", got.fullest);
}

static void policies_table(struct buffer *out, const struct fleet *fleet) {
    buffer_append_text(out,
                       "| policy | hints are old, ms | median, ms | 90 % | 99 % | 99.9 % | 99 % : random | most in "
                       "flight on one |\n|---|---|---|---|---|---|---|---|\n");
    double random_ms = outcome_of(fleet, RANDOM, 0, 0.9).p99_ms;
    row(out, fleet, RANDOM, 0, random_ms);
    row(out, fleet, ROUND_ROBIN, 0, random_ms);
    for (enum policy policy = LEAST_LOADED; policy < POLICIES; policy++)
        for (size_t i = 0; i < ARRAY_COUNT(ages); i++) row(out, fleet, policy, ages[i], random_ms);
    buffer_append_text(out, "\n");
}

static void subsets_table(struct buffer *out) {
    enum { INSTANCES = 100, SIZE = 10, CALLERS = 1000 };
    buffer_printf(out,
                  "%d callers, each with %d of %d instances. 1/n is %.1f %%.\n\n| | callers of an instance, parts of "
                  "the mean | their deviation | assignments that move when an instance leaves |\n|---|---|---|---|\n",
                  CALLERS, SIZE, INSTANCES, 100.0 / INSTANCES);
    for (enum subset_way way = 0; way < SUBSET_WAYS; way++) {
        struct subset_outcome got = subsets_compare(way, INSTANCES, SIZE, CALLERS);
        buffer_printf(out, "| %s | %.2f to %.2f | %.1f %% | %.1f %% |\n", subset_names[way], got.least, got.most,
                      100 * got.deviation, 100 * got.moved);
    }
}

static void keys_row(struct buffer *out, const char *fleet, struct keys_run run) {
    for (run.way = 0; run.way < KEYS_WAYS; run.way++) {
        struct keys_outcome got;
        keys_run(&run, &got);
        buffer_printf(out, "| %s | %s | %.2f |", fleet, keys_way_names[run.way], got.most_load);
        if (got.within_s + 10 < run.seconds) buffer_printf(out, " %.0f |", got.within_s);
        else buffer_append_text(out, " never |");
        buffer_printf(out, " %.2f | %.2f | %.2f | %.0f |\n", 100 * got.most_moved, 100 * got.moved, 100 * got.apart,
                      100 * got.away);
        fleet = "";
    }
}

static void keys_table(struct buffer *out) {
    struct keys_run run = {.instances = 4,
                           .slow = 1,
                           .slowness = 2.2,
                           .report_s = 1,
                           .delay_s = 0.2,
                           .seconds = 300,
                           .settled = 90,
                           .seed = 1};
    buffer_printf(
        out,
        "%d keys, looked up at two servers and an agent. The bound is %g times the mean load. Moved keys are "
        "counted after %u s, when all has settled.\n\n| fleet | an owner beyond the bound | greatest load : mean "
        "| within the bound after, s | %% of the keys that moved in one second, at most | on average | %% that not "
        "all agree on | %% away from their first owner |\n|---|---|---|---|---|---|---|---|\n",
        KEYS_COUNT, KEEP_BOUND, run.settled);
    keys_row(out, "one of 4 works at 1/2.2 of the speed, reports every second", run);
    run.instances = 8, run.slow = 2, run.report_s = 5, run.delay_s = 2.5;
    keys_row(out, "two of 8, reports every 5 s that take 2.5 s on each way", run);
    run.report_s = 1, run.delay_s = 0.4, run.mean_s = 5;
    keys_row(out, "two of 8, reports are means over 5 s", run);
    run.mean_s = 0, run.noise = 0.2;
    keys_row(out, "two of 8, reports are wrong by up to a fifth", run);
}

/* -- plots -------------------------------------------------------------------------------------------------------- */
static int file_write(const char *path, const struct buffer *text) {
    FILE *file = fopen(path, "w");
    bool fine = file && fwrite(text->data, 1, text->size, file) == text->size;
    fine = file && fclose(file) == 0 && fine;
    if (!fine) perror(path);
    return fine ? 0 : 1;
}

static int plot_write(const char *docs, const char *name, const struct plot *plot) {
    char path[1024];
    struct buffer out = {0};
    plot_svg(plot, &out);
    snprintf(path, sizeof path, "%s/load-balancing/%s.svg", docs, name);
    int failed = file_write(path, &out);
    buffer_free(&out);
    return failed;
}

static int plot_loads(const char *docs) {
    enum { POINTS = 10 };
    double x[POINTS], y[POLICIES][POINTS];
    struct series series[POLICIES];
    for (size_t i = 0; i < POINTS; i++) {
        x[i] = 50 + 5 * (double)i;
        for (enum policy policy = 0; policy < POLICIES; policy++)
            y[policy][i] = outcome_of(&mixed_fleet, policy, 100, x[i] / 100).p99_ms;
    }
    for (enum policy policy = 0; policy < POLICIES; policy++)
        series[policy] = (struct series){policy_names[policy], y[policy]};
    struct plot plot = {.title = "The slowest hundredth, with hints that are 100 ms old",
                        .x_label = "load of the fleet, % of what it can do",
                        .y_label = "99 % are answered within, ms",
                        .x = x,
                        .points = POINTS,
                        .series = series,
                        .series_count = POLICIES,
                        .log_y = true};
    return plot_write(docs, "load", &plot);
}

static int plot_ages(const char *docs) {
    static const double x[] = {1, 3, 10, 30, 100, 300, 1000, 3000};
    enum { POINTS = ARRAY_COUNT(x) };
    double y[POLICIES][POINTS];
    struct series series[POLICIES];
    for (enum policy policy = 0; policy < POLICIES; policy++) {
        series[policy] = (struct series){policy_names[policy], y[policy]};
        for (size_t i = 0; i < POINTS; i++) {
            bool deaf = (policy == RANDOM || policy == ROUND_ROBIN) && i > 0;
            y[policy][i] = deaf ? y[policy][0] : outcome_of(&mixed_fleet, policy, x[i], 0.9).p99_ms;
        }
    }
    struct plot plot = {.title = "The slowest hundredth at 90 % load",
                        .x_label = "age of hints, ms",
                        .y_label = "99 % are answered within, ms",
                        .x = x,
                        .points = POINTS,
                        .series = series,
                        .series_count = POLICIES,
                        .log_x = true,
                        .log_y = true};
    return plot_write(docs, "age", &plot);
}

static int plot_owners(const char *docs) {
    enum { POINTS = 60 };
    double x[POINTS], y[KEYS_WAYS][POINTS];
    struct series series[KEYS_WAYS];
    for (size_t i = 0; i < POINTS; i++) x[i] = (double)i + 1;
    struct keys_run run = {
        .instances = 8, .slow = 2, .slowness = 2.2, .report_s = 1, .delay_s = 0.2, .seconds = POINTS, .seed = 1};
    for (run.way = 0; run.way < KEYS_WAYS; run.way++) {
        struct keys_outcome got;
        keys_run(&run, &got);
        for (size_t i = 0; i < POINTS; i++) y[run.way][i] = got.loads[i];
        series[run.way] = (struct series){keys_way_names[run.way], y[run.way]};
    }
    struct plot plot = {.title = "Owners of keys, two of eight at 1/2.2 of the speed",
                        .x_label = "seconds",
                        .y_label = "greatest load, times the mean",
                        .x = x,
                        .points = POINTS,
                        .series = series,
                        .series_count = KEYS_WAYS};
    return plot_write(docs, "owners", &plot);
}

enum { MOMENTS = 200 };
struct moments {
    double fullest[MOMENTS];
    size_t count;
};

static void moment(void *data, double now_ms, const uint32_t *inflight, size_t servers) {
    struct moments *moments = data;
    (void)now_ms;
    if (moments->count == MOMENTS) return;
    double most = 0;
    for (size_t i = 0; i < servers; i++) most = fmax(most, inflight[i]);
    moments->fullest[moments->count++] = most;
}

static int plot_herd(const char *docs) {
    static const enum policy shown[] = {RANDOM, LEAST_LOADED, P2C, HCL};
    struct moments moments[POLICIES] = {0};
    double x[MOMENTS];
    struct series series[POLICIES];
    for (size_t i = 0; i < MOMENTS; i++) x[i] = 0.05 * (double)i;
    for (size_t i = 0; i < ARRAY_COUNT(shown); i++) {
        struct outcome outcome;
        struct run run = {.fleet = mixed_fleet,
                          .policy = shown[i],
                          .hint_ms = 1000,
                          .load = 0.9,
                          .requests = 400000,
                          .seed = 1,
                          .watch = moment,
                          .data = &moments[shown[i]],
                          .watch_ms = 50};
        run.fleet.clients = 1000;
        balance_run(&run, &outcome);
    }
    for (enum policy policy = 0; policy < POLICIES; policy++) {
        for (size_t i = moments[policy].count; i < MOMENTS; i++) moments[policy].fullest[i] = NAN;
        series[policy] = (struct series){policy == ROUND_ROBIN ? "" : policy_names[policy], moments[policy].fullest};
    }
    struct plot plot = {.title = "The fullest server, 1,000 clients, hints that are 1 s old",
                        .x_label = "seconds",
                        .y_label = "requests in flight on it",
                        .x = x,
                        .points = MOMENTS,
                        .series = series,
                        .series_count = POLICIES};
    return plot_write(docs, "herd", &plot);
}

/* -- the document ------------------------------------------------------------------------------------------------- */
static char *file_read(const char *path) {
    struct buffer text = {0};
    char piece[4096];
    FILE *file = fopen(path, "r");
    if (!file) return NULL;
    for (size_t got; (got = fread(piece, 1, sizeof piece, file)) > 0;) buffer_append(&text, piece, got);
    fclose(file);
    buffer_append_byte(&text, '\0');
    return text.data;
}

static int tables_write(const char *docs) {
    char path[1024];
    struct buffer out = {0};
    snprintf(path, sizeof path, "%s/load-balancing.md", docs);
    char *text = file_read(path), *begin = text ? strstr(text, BEGIN) : NULL, *end = begin ? strstr(begin, END) : NULL;
    if (!end) {
        fprintf(stderr, "%s: it is missing, or the marks in it are\n", path);
        free(text);
        return 1;
    }
    buffer_append(&out, text, (size_t)(begin - text) + strlen(BEGIN));
    buffer_append_text(&out, "\n**A mixed fleet**, at 90 % load:\n\n");
    policies_table(&out, &mixed_fleet);
    buffer_append_text(&out, "**A fleet of equals**, one request at a time, at 90 % load:\n\n");
    policies_table(&out, &equal_fleet);
    buffer_append_text(&out, "**Subsets.** ");
    subsets_table(&out);
    buffer_append_text(&out, "\n**Owners of keys.** ");
    keys_table(&out);
    buffer_append_text(&out, "\n");
    buffer_append_text(&out, end);
    int failed = file_write(path, &out);
    buffer_free(&out);
    free(text);
    return failed;
}

int report_write(const char *docs) {
    char path[1024];
    snprintf(path, sizeof path, "%s/load-balancing", docs);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        perror(path);
        return 1;
    }
    return tables_write(docs) || plot_loads(docs) || plot_ages(docs) || plot_herd(docs) || plot_owners(docs);
}
