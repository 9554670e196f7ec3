#include "base/metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

#define FIRST_BUCKET_NS 50000u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct metric *first; /* under `lock`; members are never removed */

extern struct metric __start_coord_metrics[], __stop_coord_metrics[]; /* the linker sets these around the section */

const char *const metric_type_names[] = {
    [METRIC_COUNTER] = "counter", [METRIC_GAUGE] = "gauge", [METRIC_HISTOGRAM] = "histogram"};

void metrics_each(void (*see)(void *data, const struct metric *metric), void *data) {
    for (const struct metric *metric = __start_coord_metrics; metric < __stop_coord_metrics; metric++)
        see(data, metric);
}

/* Behind the last metric of the same name, so that a family stays together; else at the end. */
static struct metric **place_for(const struct metric *metric) {
    struct metric **place = &first, **behind_family = NULL;
    for (; *place; place = &(*place)->next) {
        if (strcmp((*place)->name, metric->name) == 0) behind_family = &(*place)->next;
    }
    return behind_family ? behind_family : place;
}

void metric_register(struct metric *metric) {
    CHECK(metric >= __start_coord_metrics && metric < __stop_coord_metrics);
    if (atomic_load_explicit(&metric->registered, memory_order_acquire)) return;
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&metric->registered, memory_order_relaxed)) {
        struct metric **place = place_for(metric);
        metric->next = *place;
        *place = metric;
        atomic_store_explicit(&metric->registered, 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
}

void metric_observe_ns(struct metric *metric, uint64_t nanoseconds) {
    unsigned bucket = 0;
    while (bucket < METRIC_BUCKETS - 1 && nanoseconds > (uint64_t)FIRST_BUCKET_NS << bucket) bucket++;
    atomic_fetch_add_explicit(&metric->buckets[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metric->value, nanoseconds, memory_order_relaxed);
}

/* ---- text format ---- */

static void print_head(struct buffer *out, const struct metric *metric) {
    buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
                  metric_type_names[metric->type]);
}

/* Nanoseconds as seconds, without rounding. */
static void print_seconds(struct buffer *out, uint64_t nanoseconds) {
    buffer_append_u64(out, nanoseconds / 1000000000);
    uint64_t rest = nanoseconds % 1000000000;
    if (rest == 0) return;
    char text[16];
    int size = snprintf(text, sizeof text, ".%09" PRIu64, rest);
    while (text[size - 1] == '0') size--;
    buffer_append(out, text, (size_t)size);
}

static void print_labels(struct buffer *out, const char *labels) {
    if (labels) buffer_printf(out, "{%s}", labels);
    buffer_append_byte(out, ' ');
}

static void print_histogram(struct buffer *out, struct metric *metric) {
    const char *labels = metric->labels ? metric->labels : "", *comma = metric->labels ? "," : "";
    uint64_t count = 0;
    for (unsigned i = 0; i < METRIC_BUCKETS; i++) {
        count += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        buffer_printf(out, "%s_bucket{%s%sle=\"", metric->name, labels, comma);
        if (i < METRIC_BUCKETS - 1) {
            print_seconds(out, (uint64_t)FIRST_BUCKET_NS << i);
        } else {
            buffer_append_text(out, "+Inf");
        }
        buffer_printf(out, "\"} %" PRIu64 "\n", count);
    }
    buffer_printf(out, "%s_sum", metric->name);
    print_labels(out, metric->labels);
    print_seconds(out, atomic_load_explicit(&metric->value, memory_order_relaxed));
    buffer_printf(out, "\n%s_count", metric->name);
    print_labels(out, metric->labels);
    buffer_printf(out, "%" PRIu64 "\n", count);
}

static void print_metric(struct buffer *out, struct metric *metric) {
    if (metric->type == METRIC_HISTOGRAM) {
        print_histogram(out, metric);
        return;
    }
    buffer_append_text(out, metric->name);
    print_labels(out, metric->labels);
    buffer_append_u64(out, atomic_load_explicit(&metric->value, memory_order_relaxed));
    buffer_append_byte(out, '\n');
}

/* ---- the process ---- */

METRIC process_cpu = {.name = "process_cpu_seconds_total", .help = "User and system CPU time", .type = METRIC_COUNTER};
METRIC process_resident = {.name = "process_resident_memory_bytes", .help = "Resident memory", .type = METRIC_GAUGE};
METRIC process_fds = {.name = "process_open_fds", .help = "Open file descriptors", .type = METRIC_GAUGE};
METRIC process_fds_max = {.name = "process_max_fds", .help = "Most file descriptors", .type = METRIC_GAUGE};
METRIC process_started = {
    .name = "process_start_time_seconds", .help = "Start of the process since 1970", .type = METRIC_GAUGE};

static void print_process_head(struct buffer *out, const struct metric *metric) {
    print_head(out, metric);
    buffer_printf(out, "%s ", metric->name);
}

static void print_process_seconds(struct buffer *out, const struct metric *metric, uint64_t nanoseconds) {
    print_process_head(out, metric);
    print_seconds(out, nanoseconds);
    buffer_append_byte(out, '\n');
}

static void print_process_value(struct buffer *out, const struct metric *metric, uint64_t value) {
    print_process_head(out, metric);
    buffer_append_u64(out, value);
    buffer_append_byte(out, '\n');
}

static uint64_t timeval_ns(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static uint64_t resident_bytes(void) {
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    if (fscanf(file, "%lu %lu", &total, &resident) != 2) resident = 0;
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t open_descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    if (!directory) return 0;
    uint64_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) count += entry->d_name[0] != '.';
    closedir(directory);
    return count - 1; /* without the descriptor of this directory itself */
}

/* Ticks after boot at which the process started: field 22 of its stat line, counted behind the name, which may hold
 * anything. */
static bool start_ticks(unsigned long long *ticks) {
    char line[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file) return false;
    size_t size = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[size] = '\0';
    const char *at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at && sscanf(at, " %llu", ticks) == 1;
}

static uint64_t started_wall_ns;
static pthread_once_t started_once = PTHREAD_ONCE_INIT;

static void started_find(void) {
    unsigned long long ticks;
    struct timespec boot;
    uint64_t now = (uint64_t)clock_wall_ns();
    clock_gettime(CLOCK_BOOTTIME, &boot);
    started_wall_ns = now;
    if (!start_ticks(&ticks)) return;
    uint64_t up = (uint64_t)boot.tv_sec * 1000000000u + (uint64_t)boot.tv_nsec;
    uint64_t started = ticks * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
    if (started < up) started_wall_ns = now - (up - started);
}

static void print_process(struct buffer *out) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    pthread_once(&started_once, started_find);
    print_process_seconds(out, &process_cpu, timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime));
    print_process_value(out, &process_resident, resident_bytes());
    print_process_value(out, &process_fds, open_descriptors());
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) print_process_value(out, &process_fds_max, limit.rlim_cur);
    print_process_seconds(out, &process_started, started_wall_ns);
}

void metrics_print(struct buffer *out) {
    const char *family = "";
    pthread_mutex_lock(&lock);
    for (struct metric *metric = first; metric; metric = metric->next) {
        if (strcmp(family, metric->name) != 0) {
            family = metric->name;
            print_head(out, metric);
        }
        print_metric(out, metric);
    }
    pthread_mutex_unlock(&lock);
    print_process(out);
}
