/* coord reference: docs/reference.md, from the tables of keys, flags and metrics. The list of commands does not show
 * it; `./dev docs` runs it, and the test suite compares. */
#include <stdlib.h>

#include "agent/cmd.h"
#include "agent/config_internal.h"
#include "agent/flags.h"
#include "base/check.h"
#include "base/metrics.h"

#define METRICS_MOST 512

static const char head[] =
    "# Reference\n\n"
    "Written by `./dev docs` from the program's own tables (`agent/config_keys.c`, `agent/flags.c`, each module's "
    "metrics).\n\n"
    "- [Configuration keys](#configuration-keys)\n"
    "- [Keys without effect](#keys-without-effect)\n"
    "- [Keys that are refused](#keys-that-are-refused)\n"
    "- [Flags of coord agent](#flags-of-coord-agent)\n"
    "- [Metrics](#metrics)\n\n"
    "## Configuration keys\n\n"
    "In JSON files (`-config-file`, `-config-dir`). `dns_config.node_ttl` stands for `{\"dns_config\": {\"node_ttl\": "
    "\"5s\"}}`. "
    "Later files win over\nearlier ones, and flags over files. Durations are texts with a unit (`\"1m30s\"`); sizes "
    "are bytes. "
    "After a change an agent is restarted, but for\n`service`, `services`, `check`, `checks`, `watches` and "
    "`log_level`, which "
    "`coord reload` reads again; it names others that differ. Numbers and durations under "
    "`coord`,\n`consul.coordinate` and "
    "`sync_coordinate_interval_min` "
    "that are 0 mean the default, where nothing else is said.\n\n"
    "| key | value | default | what it is |\n|---|---|---|---|\n";

/* -- keys --------------------------------------------------------------------------------------------------------- */

static const char *const kinds[] = {
    [KEY_BOOL] = "true or false",  [KEY_NUMBER] = "number",          [KEY_REAL] = "number",
    [KEY_PORT] = "port",           [KEY_DURATION] = "duration",      [KEY_TEXT] = "text",
    [KEY_TEXTS] = "list of texts", [KEY_MAP] = "texts by name",      [KEY_TTLS] = "durations by name",
    [KEY_BLOCK] = "object",        [KEY_BLOCKS] = "list of objects", [KEY_ANY] = "object or list",
    [KEY_COUNT] = "number",
};

static void key_row(const struct config *fresh, const struct key *key, struct buffer *out) {
    struct buffer value = {0};
    key_value_print(fresh, key, &value);
    buffer_printf(out, "| `%s` | ", key->path);
    if ((key->kind == KEY_NUMBER || key->kind == KEY_DURATION) && key->most != UINT64_MAX) {
        key_bound_print(key, key->least, out);
        buffer_append_text(out, " to ");
        key_bound_print(key, key->most, out);
    } else {
        buffer_append_text(out, kinds[key->kind]);
    }
    bool told = strstr(key->help, "default:") != NULL;
    buffer_printf(out, " | %.*s | %s |\n", told ? 0 : (int)value.size, value.data ? value.data : "", key->help);
    buffer_free(&value);
}

/* Prints keys, one row for all keys with the same help. */
static void rows_by_help(bool guarded, struct buffer *out) {
    for (const struct key *key = config_keys; key->path; key++) {
        const struct key *same = config_keys;
        if (key_has_effect(key) || guarded != (key->guard != NULL)) continue;
        while (same != key && (key_has_effect(same) || strcmp(same->help, key->help) != 0)) same++;
        if (same != key) continue; /* an earlier key had the row */
        buffer_printf(out, "| %s | ", key->help);
        for (const char *between = ""; same->path; same++) {
            if (key_has_effect(same) || strcmp(same->help, key->help) != 0) continue;
            buffer_printf(out, "%s`%s`", between, same->path);
            between = ", ";
        }
        buffer_append_text(out, " |\n");
    }
}

static void keys_print(struct buffer *out) {
    struct config fresh;
    config_init(&fresh);
    for (const struct key *key = config_keys; key->path; key++) {
        CHECK(key->help && key->help[0]);
        if (key_has_effect(key)) key_row(&fresh, key, out);
    }
    config_free(&fresh);
    buffer_append_text(out,
                       "\n## Keys without effect\n\nKnown from Consul and checked for their type; the log names each "
                       "that is given.\n\n"
                       "| instead | keys |\n|---|---|\n");
    rows_by_help(false, out);
    buffer_append_text(
        out,
        "\n## Keys that are refused\n\nThey promise protection that is not there yet, so an agent does not start with "
        "them, unless they say no\n(`false`, `-1`, an empty text). `-insecure-ignore-security` starts a trial all the "
        "same.\n\n| why | keys |\n|---|---|\n");
    rows_by_help(true, out);
}

/* -- flags -------------------------------------------------------------------------------------------------------- */

static void flags_print(struct buffer *out) {
    struct flag_shown flag;
    buffer_append_text(
        out,
        "\n## Flags of coord agent\n\n`-flag=VALUE`, `-flag VALUE` or `--flag`; lists and maps grow with each. "
        "Defaults and bounds are the key's.\n\n| flag | key | what it is |\n|---|---|---|\n");
    for (size_t i = 0; flags_see(i, &flag); i++)
        if (flag.help && flag.key) buffer_printf(out, "| `-%s` | `%s` | %s |\n", flag.name, flag.key, flag.help);
        else if (flag.help) buffer_printf(out, "| `-%s` | | %s |\n", flag.name, flag.help);
    const char *between = "\nFlags of keys without effect, or that are refused: ";
    for (size_t i = 0; flags_see(i, &flag); i++) {
        if (flag.help || !flag.key) continue;
        buffer_printf(out, "%s`-%s`", between, flag.name);
        between = ", ";
    }
    buffer_append_text(out, ".\n");
}

/* -- metrics ------------------------------------------------------------------------------------------------------ */

struct metric_list {
    const struct metric *items[METRICS_MOST];
    size_t count;
};

static void metric_add_to(void *data, const struct metric *metric) {
    struct metric_list *list = data;
    CHECK(list->count < METRICS_MOST && metric->help && metric->help[0]);
    list->items[list->count++] = metric;
}

static int metric_by_name(const void *a, const void *b) {
    return strcmp((*(const struct metric *const *)a)->name, (*(const struct metric *const *)b)->name);
}

/* `code="2xx"` has the label `code`. */
static void labels_print(const char *labels, struct buffer *out) {
    const char *between = "";
    for (const char *at = labels; at && *at; between = ", ") {
        const char *end = strchr(at, '=');
        CHECK(end);
        buffer_printf(out, "%s`%.*s`", between, (int)(end - at), at);
        at = strchr(end + 2, '"');
        CHECK(at);
        at += at[1] == ',' ? 2 : 1;
    }
}

static void metrics_reference(struct buffer *out) {
    struct metric_list *list = mem_zalloc(sizeof *list);
    metrics_each(metric_add_to, list);
    qsort(list->items, list->count, sizeof *list->items, metric_by_name);
    buffer_append_text(
        out,
        "\n## Metrics\n\n`/v1/agent/metrics?format=prometheus` has them as text, `/v1/agent/metrics` as JSON. Servers "
        "have all of them, client agents\nthose of HTTP, DNS and the process. Histograms are in seconds.\n\n"
        "| metric | kind | labels | what it is |\n|---|---|---|---|\n");
    for (size_t i = 0; i < list->count; i++) {
        const struct metric *metric = list->items[i];
        if (i > 0 && strcmp(metric->name, list->items[i - 1]->name) == 0) continue;
        buffer_printf(out, "| `%s` | %s | ", metric->name, metric_type_names[metric->type]);
        labels_print(metric->labels, out);
        buffer_printf(out, " | %s |\n", metric->help);
    }
    free(list);
}

int cmd_reference(int argc, char **argv) {
    (void)argc, (void)argv;
    struct buffer out = {0};
    buffer_append_text(&out, head);
    keys_print(&out);
    flags_print(&out);
    metrics_reference(&out);
    fwrite(out.data, 1, out.size, stdout);
    buffer_free(&out);
    return 0;
}
