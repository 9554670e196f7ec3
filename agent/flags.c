#include "agent/flags.h"

#include <stdio.h>

#include "agent/config_internal.h"
#include "agent/joined.h"
#include "base/check.h"
#include "base/consul_words.h"
#include "base/suggest.h"

/* Flags that are not simply a key under another name. */
enum special { PLAIN, DEV, INSECURE, CONFIG_PATH, CONFIG_FORMAT, HCL, VERSION };

struct flag {
    const char *name, *key, *help; /* help: only of flags without a key */
    enum special special;
};

static const struct flag flags[] = {
    {"dev", NULL, "one server for trying out: temporary data, loopback only", DEV},
    {"server", "server", NULL, PLAIN},
    {"bootstrap-expect", "bootstrap_expect", NULL, PLAIN},
    {"bootstrap", "bootstrap", NULL, PLAIN},
    {"node", "node_name", NULL, PLAIN},
    {"node-id", "node_id", NULL, PLAIN},
    {"node-meta", "node_meta", NULL, PLAIN},
    {"datacenter", "datacenter", NULL, PLAIN},
    {"domain", "domain", NULL, PLAIN},
    {"alt-domain", "alt_domain", NULL, PLAIN},
    {"bind", "bind_addr", NULL, PLAIN},
    {"advertise", "advertise_addr", NULL, PLAIN},
    {"client", "client_addr", NULL, PLAIN},
    {"data-dir", "data_dir", NULL, PLAIN},
    {"http-port", "ports.http", NULL, PLAIN},
    {"https-port", "ports.https", NULL, PLAIN},
    {"dns-port", "ports.dns", NULL, PLAIN},
    {"server-port", "ports.server", NULL, PLAIN},
    {"join", "start_join", NULL, PLAIN},
    {"retry-join", "retry_join", NULL, PLAIN},
    {"join-wan", "start_join_wan", NULL, PLAIN},
    {"retry-join-wan", "retry_join_wan", NULL, PLAIN},
    {"retry-interval-wan", "retry_interval_wan", NULL, PLAIN},
    {"rejoin", "rejoin_after_leave", NULL, PLAIN},
    {"config-file", NULL, "JSON file, repeatable, later ones win", CONFIG_PATH},
    {"config-dir", NULL, "folder whose *.json are read in the order of their names, repeatable", CONFIG_PATH},
    {"config-format", NULL, "only json", CONFIG_FORMAT},
    {"log-level", "log_level", NULL, PLAIN},
    {"default-query-time", "default_query_time", NULL, PLAIN},
    {"max-query-time", "max_query_time", NULL, PLAIN},
    {"check_output_max_size", "check_output_max_size", NULL, PLAIN},
    {"enable-local-script-checks", "enable_local_script_checks", NULL, PLAIN},
    {"enable-script-checks", "enable_script_checks", NULL, PLAIN},
    {"insecure-ignore-security", NULL,
     "for trials: start although the configuration asks for protection that is not there yet", INSECURE},
    {"version", NULL, "print the version, and that is all", VERSION},
    /* Keys without effect. */
    {"advertise-wan", "advertise_addr_wan", NULL, PLAIN},
    {"allow-write-http-from", "http_config.allow_write_http_from", NULL, PLAIN},
    {"disable-host-node-id", "disable_host_node_id", NULL, PLAIN},
    {"disable-keyring-file", "disable_keyring_file", NULL, PLAIN},
    {"encrypt", "encrypt", NULL, PLAIN},
    {"grpc-port", "ports.grpc", NULL, PLAIN},
    {"hcl", NULL, NULL, HCL},
    {"log-file", "log_file", NULL, PLAIN},
    {"log-json", "log_json", NULL, PLAIN},
    {"log-rotate-bytes", "log_rotate_bytes", NULL, PLAIN},
    {"log-rotate-duration", "log_rotate_duration", NULL, PLAIN},
    {"log-rotate-max-files", "log_rotate_max_files", NULL, PLAIN},
    {"non-voting-server", "non_voting_server", NULL, PLAIN},
    {"pid-file", "pid_file", NULL, PLAIN},
    {"primary-gateway", "primary_gateways", NULL, PLAIN},
    {"protocol", "protocol", NULL, PLAIN},
    {"raft-protocol", "raft_protocol", NULL, PLAIN},
    {"recursor", "recursors", NULL, PLAIN},
    {"retry-interval", "retry_interval", NULL, PLAIN},
    {"retry-max", "retry_max", NULL, PLAIN},
    {"retry-max-wan", "retry_max_wan", NULL, PLAIN},
    {"segment", "segment", NULL, PLAIN},
    {"serf-lan-allowed-cidrs", "serf_lan_allowed_cidrs", NULL, PLAIN},
    {"serf-lan-bind", "serf_lan", NULL, PLAIN},
    {"serf-lan-port", "ports.serf_lan", NULL, PLAIN},
    {"serf-wan-allowed-cidrs", "serf_wan_allowed_cidrs", NULL, PLAIN},
    {"serf-wan-bind", "serf_wan", NULL, PLAIN},
    {"serf-wan-port", "ports.serf_wan", NULL, PLAIN},
    {"syslog", "enable_syslog", NULL, PLAIN},
    {"ui", "ui", NULL, PLAIN},
    {"ui-content-path", "ui_content_path", NULL, PLAIN},
    {"ui-dir", "ui_dir", NULL, PLAIN},
};

/* One flag as given. */
struct given {
    const struct flag *flag;
    const char *value;
};

static bool needs_value(const struct flag *flag) {
    bool alone = flag->special == DEV || flag->special == INSECURE || flag->special == VERSION;
    return !alone && !(flag->key && config_key_is_bool(flag->key));
}

static int unknown_flag(struct config *config, struct slice name, struct fault *fault) {
    const struct consul_word *consul = consul_word_find(CONSUL_AGENT_FLAG, name);
    struct suggest suggest = suggest_for(name);
    struct buffer said = {0};
    for (size_t i = 0; i < ARRAY_COUNT(flags) && !consul; i++) suggest_try(&suggest, slice_text(flags[i].name));
    if (consul) consul_word_print(&said, consul);
    else buffer_printf(&said, "unknown flag -%.*s", name.size > 60 ? 60 : (int)name.size, name.data);
    if (suggest.count) buffer_append_text(&said, " (nearest: "), suggest_print_bare(&said, &suggest, "-");
    buffer_append_text(&said, suggest.count ? ")" : consul ? "" : "; `coord agent -h` lists them");
    config_wrong(config, fault, CO_INVALID, "%.*s", (int)said.size, said.data);
    buffer_free(&said);
    return CO_INVALID;
}

static const struct flag *find(struct slice name) {
    for (size_t i = 0; i < ARRAY_COUNT(flags); i++) {
        if (slice_is(name, flags[i].name)) return &flags[i];
    }
    return NULL;
}

/* Takes one flag, and its value, which may be the next argument. */
static int take(int argc, char *const *argv, int *at, struct config *config, struct given *given, bool *help,
                struct fault *fault) {
    const char *text = argv[*at];
    if (text[0] != '-' || text[1] == '\0' || strcmp(text, "--") == 0) {
        return config_wrong(config, fault, CO_INVALID, "unexpected argument \"%.60s\"", text);
    }
    text += text[1] == '-' ? 2 : 1;
    const char *equals = strchr(text, '=');
    struct slice name = slice_make(text, equals ? (size_t)(equals - text) : strlen(text));
    if (slice_is(name, "h") || slice_is(name, "help")) {
        *help = true;
        return CO_OK;
    }
    given->flag = find(name);
    if (!given->flag) {
        if (!equals && *at + 1 < argc && argv[*at + 1][0] != '-') ++*at; /* its value, most likely */
        return unknown_flag(config, name, fault);
    }
    if (equals) {
        given->value = equals + 1;
    } else if (!needs_value(given->flag)) {
        given->value = "true";
    } else if (*at + 1 < argc) {
        given->value = argv[++*at];
    } else {
        return config_wrong(config, fault, CO_INVALID, "-%s: a value is needed", given->flag->name);
    }
    return CO_OK;
}

/* A flag without a key that is true or false; the last one of several counts. */
static int switched(const struct given *given, size_t count, enum special special, struct config *config, bool *on,
                    struct fault *fault) {
    *on = false;
    for (size_t i = 0; i < count; i++) {
        if (given[i].flag->special != special) continue;
        *on = strcmp(given[i].value, "true") == 0;
        if (!*on && strcmp(given[i].value, "false") != 0) {
            return config_wrong(config, fault, CO_INVALID, "-%s: \"%.60s\" is neither true nor false",
                                given[i].flag->name, given[i].value);
        }
    }
    return CO_OK;
}

static int apply_switches(const struct given *given, size_t count, struct config *config, struct fault *fault) {
    bool dev;
    int error = switched(given, count, DEV, config, &dev, fault);
    int other = switched(given, count, INSECURE, config, &config->insecure_ignore_security, fault);
    if (!error && dev) config_dev(config);
    return error ? error : other;
}

static int apply_file(const struct given *given, struct config *config, struct fault *fault) {
    switch (given->flag->special) {
        case CONFIG_PATH: return config_add_path(config, given->value, fault);
        case CONFIG_FORMAT:
            if (strcmp(given->value, "json") == 0) return CO_OK;
            return config_wrong(config, fault, CO_UNSUPPORTED, "-config-format: \"%.60s\" is not supported, only json",
                                given->value);
        case HCL:
            return config_wrong(config, fault, CO_UNSUPPORTED, "-hcl: HCL is not supported: use flags or a JSON file");
        case PLAIN:
        case DEV:
        case INSECURE:
        case VERSION: return CO_OK;
    }
    UNREACHABLE();
}

static int apply_key(const struct given *given, struct config *config, struct fault *fault) {
    if (given->flag->special != PLAIN) return CO_OK;
    /* In a file an empty text means the host's name; for a flag it is probably a shell variable that is not set. */
    if (!given->value[0] && strcmp(given->flag->name, "node") == 0)
        return config_wrong(config, fault, CO_INVALID, "-node: the name is empty");
    char source[64];
    snprintf(source, sizeof source, "-%s", given->flag->name);
    return config_set(config, source, given->flag->key, slice_text(given->value), fault);
}

/* The data folder that the flags name, or else the files do; in the arena. NULL: none. */
static const char *data_dir_of(const struct given *given, size_t count, struct config *config) {
    const char *folder = NULL;
    for (size_t i = 0; i < count; i++)
        if (strcmp(given[i].flag->name, "data-dir") == 0) folder = given[i].value;
    if (folder) return folder;
    struct config scratch; /* its errors are those of the files, which are read once more */
    struct fault ignored = {0};
    config_init(&scratch);
    for (size_t i = 0; i < count; i++)
        if (given[i].flag->special == CONFIG_PATH) (void)config_add_path(&scratch, given[i].value, &ignored);
    if (scratch.data_dir) folder = arena_strndup(&config->arena, scratch.data_dir, strlen(scratch.data_dir));
    config_free(&scratch);
    return folder;
}

static int apply_joined(const struct given *given, size_t count, struct config *config, struct fault *fault) {
    char path[4096];
    const char *folder = data_dir_of(given, count, config);
    return folder && joined_path(folder, path) ? config_add_path(config, path, fault) : CO_OK;
}

int flags_parse(int argc, char *const *argv, struct config *config, bool *help, struct fault *fault) {
    struct given *given = arena_zalloc(&config->arena, (size_t)(argc + 1) * sizeof *given);
    size_t count = 0;
    *help = false;
    int error = CO_OK;
    for (int at = 1; at < argc; at++) {
        int wrong = take(argc, argv, &at, config, &given[count], help, fault);
        if (*help) return CO_OK;
        if (!error) error = wrong;
        if (!wrong) count++;
    }
    int wrong = apply_switches(given, count, config, fault);
    if (!error) error = wrong;
    if ((wrong = apply_joined(given, count, config, fault)) != CO_OK && !error) error = wrong;
    for (size_t i = 0; i < count; i++)
        if ((wrong = apply_file(&given[i], config, fault)) != CO_OK && !error) error = wrong;
    for (size_t i = 0; i < count; i++)
        if ((wrong = apply_key(&given[i], config, fault)) != CO_OK && !error) error = wrong;
    return error;
}

bool flags_see(size_t at, struct flag_shown *shown) {
    if (at == ARRAY_COUNT(flags)) return false;
    const struct flag *flag = &flags[at];
    const struct key *key = flag->key ? key_find(flag->key) : NULL;
    *shown = (struct flag_shown){.name = flag->name,
                                 .key = flag->key,
                                 .help = key && key_has_effect(key) ? key->help : flag->help,
                                 .value = needs_value(flag)};
    return true;
}

void flags_usage(struct buffer *out) {
    struct flag_shown flag;
    struct config fresh;
    config_init(&fresh);
    buffer_append_text(out, "usage: coord agent [flags]\n\nRuns an agent until it is interrupted.\n\n");
    for (size_t i = 0; flags_see(i, &flag); i++) {
        if (!flag.help) continue;
        char name[48];
        struct buffer otherwise = {0};
        snprintf(name, sizeof name, "-%s%s", flag.name, flag.value ? "=VALUE" : "");
        buffer_printf(out, "  %-30s %s", name, flag.help);
        if (flag.key && flag.value) key_value_print(&fresh, key_find(flag.key), &otherwise);
        if (otherwise.size) buffer_printf(out, "; default: %.*s", (int)otherwise.size, otherwise.data);
        buffer_append_byte(out, '\n');
        buffer_free(&otherwise);
    }
    config_free(&fresh);
    buffer_append_text(out, "\nKnown from existing scripts, without effect yet (what asks for protection is refused):");
    for (size_t i = 0, column = 110; flags_see(i, &flag); i++) {
        if (flag.help || !flag.key) continue;
        size_t size = strlen(flag.name) + 2;
        if (column + size > 100) {
            buffer_append_text(out, "\n ");
            column = 1;
        }
        buffer_printf(out, " -%s", flag.name);
        column += size;
    }
    buffer_append_text(out, "\n");
}
