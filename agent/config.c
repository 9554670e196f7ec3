#include "agent/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/config_internal.h"
#include "base/check.h"
#include "base/consul_words.h"
#include "base/json_in.h"
#include "base/text.h"
#include "consensus/node.h"
#include "dns/dns.h"
#include "http/server.h"
#include "lb/coordinate_agent.h"
#include "lb/coordinate_batch.h"
#include "multi-dc/failover.h"
#include "registry/history.h"
#include "registry/lease.h"
#include "registry/reconnect.h"
#include "registry/store.h"
#include "rpc/quota/spender_run.h"
#include "rpc/wire/address.h"

#define FILE_MOST   ((size_t)16 << 20)
#define SECOND      INT64_C(1000000000)
#define MILLISECOND INT64_C(1000000)

void config_init(struct config *config) {
    *config = (struct config){
        .datacenter = "dc1",
        .bind_addr = "0.0.0.0",
        .client_addr = "127.0.0.1",
        .http_port = 8500,
        .https_port = -1,
        .encrypt_verify_incoming = true,
        .encrypt_verify_outgoing = true,
        .https_handshake_timeout_ns = HTTP_HANDSHAKE_TIMEOUT_MS * MILLISECOND,
        .dns_port = 8600,
        .dns_tls_port = -1,
        .server_port = 8300,
        .retry_interval_ns = 30 * SECOND,
        .retry_interval_wan_ns = 30 * SECOND,
        .failover_return_ns = (int64_t)FAILOVER_RETURN_MS * 1000000,
        .domain = "coord",
        .dns_enable_truncate = true,
        .dns_allow_stale = true,
        .dns_max_stale_ns = 87600 * 3600 * SECOND,
        .soa_refresh = 3600,
        .soa_retry = 600,
        .soa_expire = 86400,
        .http_max_conns_per_client = HTTP_CONNECTIONS_PER_ADDRESS_MAX,
        .kv_max_value_size = HTTP_KV_VALUE_MAX,
        .txn_max_req_len = HTTP_TXN_BODY_MAX,
        .txn_max_operations = HTTP_TXN_OPS_MAX,
        .session_ttl_min_ns = 10 * SECOND,
        .audit_on_failure = "continue",
        .audit_buffer_bytes = 8 << 20,
        .acl_default_policy = "allow",
        .acl_down_policy = "extend-cache",
        .request_limits_mode = "enforcing",
        .acl_token_ttl_ns = 30 * SECOND,
        .lock_waiters_max = 10000,
        .quota_priority = QUOTA_PRIORITY,
        .history_changes = HISTORY_CHANGES,
        .history_bytes = HISTORY_BYTES,
        .history_age_ns = (int64_t)HISTORY_AGE_MS * 1000000,
        .lock_session_max = 1000,
        .lock_note_max = 4096,
        .default_query_time_ns = HTTP_WAIT_DEFAULT_MS * MILLISECOND,
        .max_query_time_ns = HTTP_WAIT_MAX_MS * MILLISECOND,
        .leave_drain_time_ns = 5 * SECOND,
        .rpc_hold_timeout_ns = 7 * SECOND,
        .raft_multiplier = 1,
        .scrub_interval_ns = 3600 * SECOND,
        .reconnect_timeout_ns = LEASE_RECONNECT_NS,
        .node_lease_ttl_ns = 10 * SECOND,
        .self_preservation_percent = 85,
        .self_preservation_instances = 10,
        .self_preservation_nodes = 3,
        .self_preservation_window_ns = 15 * SECOND,
        .self_preservation_hold_ns = 60 * SECOND,
        .check_output_max_size = 4096,
        .check_update_interval_ns = 300 * SECOND,
        .check_flap_window_ns = 60 * SECOND,
        .certificate_warnings = true,
        .certificate_check = false,
        .certificate_info_days = 90,
        .certificate_warning_days = 30,
        .certificate_critical_days = 7,
        .renewal_spread_ns = 60 * SECOND,
        .slow_start_ns = LOAD_SLOW_START_NS,
        .coordinate_interval_ns = COORDINATE_INTERVAL_MS * MILLISECOND,
        .coordinate_period_ns = COORDINATE_BATCH_PERIOD_MS * MILLISECOND,
        .coordinate_batch_size = COORDINATE_BATCH_SIZE,
        .coordinate_batches = COORDINATE_BATCH_COMMANDS,
        .log_level = "info",
        .log_rotate_duration_ns = 24 * 3600 * SECOND,
        .syslog_facility = "LOCAL0",
        .consul_version = "1.8.7",
        .http_connection_memory = HTTP_CONNECTION_MEMORY,
        .http_body_max = HTTP_BODY_MAX,
        .http_header_max = HTTP_HEADER_MAX,
        .http_idle_timeout_ns = HTTP_IDLE_TIMEOUT_MS * MILLISECOND,
        .http_watches_max = HTTP_WATCHES_MAX,
        .http_cache_bytes = HTTP_CACHE_BYTES,
        .dns_tcp_connections_max = DNS_TCP_CONNECTIONS_MAX,
        .store_map_bytes = STORE_MAP_BYTES,
        .store_reserve_bytes = STORE_RESERVE_STEP_BYTES,
        .snapshot_log_bytes = NODE_SNAPSHOT_LOG_BYTES,
        .snapshot_rate = NODE_SNAPSHOT_RATE,
    };
}

static void blocks_free(struct config_blocks *blocks) {
    for (size_t i = 0; i < blocks->count; i++) json_object_put(blocks->items[i].json);
}

void config_free(struct config *config) {
    blocks_free(&config->services);
    blocks_free(&config->checks);
    blocks_free(&config->watches);
    config_forget_texts(config);
    struct arena arena = config->arena;
    *config = (struct config){0};
    arena_free(&arena);
}

void config_dev(struct config *config) {
    config->dev = true;
    config->server = true;
    config->bind_addr = "127.0.0.1";
    config->client_addr = "127.0.0.1";
}

/* ---- a JSON text ---- */

static int walk_object(const struct origin *origin, struct json_object *object, const char *folder);

static void note_without_effect(struct config *config, const char *name) {
    for (size_t i = 0; i < config->without_effect.count; i++) {
        if (strcmp(config->without_effect.items[i], name) == 0) return;
    }
    texts_append(config, &config->without_effect, name);
}

static int unknown_key(const struct origin *origin, const char *folder, const char *name) {
    char nearest[KEY_PATH_MOST], shown[64], path[KEY_PATH_MOST];
    snprintf(shown, sizeof shown, "%s", name);
    snprintf(path, sizeof path, "%s%s", folder, name);
    const struct consul_word *consul = consul_word_find(CONSUL_KEY, slice_text(path));
    struct buffer line = {0};
    if (config_errors_full(origin->config)) return config_wrong(origin->config, origin->fault, CO_INVALID, "%s", name);
    origin_print(origin, &line);
    buffer_append_text(&line, ": ");
    if (consul) consul_word_print(&line, consul);
    else buffer_printf(&line, "unknown key \"%s%s\"", folder, shown);
    if (!consul && key_nearest(folder, shown, nearest, sizeof nearest))
        buffer_printf(&line, " (nearest: \"%s\")", nearest);
    config_wrong(origin->config, origin->fault, CO_INVALID, "%.*s", (int)line.size, line.data);
    buffer_free(&line);
    return CO_INVALID;
}

/* An array of objects with known keys; one object alone stands for an array of one. */
static int walk_array(const struct origin *origin, struct json_object *value, const char *path) {
    char folder[KEY_PATH_MOST + 8];
    int error = CO_OK;
    snprintf(folder, sizeof folder, "%s.[].", path);
    if (json_object_is_type(value, json_type_object)) return walk_object(origin, value, folder);
    if (!json_object_is_type(value, json_type_array))
        return origin_fault(origin, CO_INVALID, "a list of objects is wanted");
    for (size_t i = 0; i < json_object_array_length(value); i++) {
        struct json_object *member = json_object_array_get_idx(value, i);
        struct json_step step = {.up = origin->step, .index = i};
        struct origin item = *origin;
        item.step = &step;
        int wrong = json_object_is_type(member, json_type_object)
                        ? walk_object(&item, member, folder)
                        : origin_fault(&item, CO_INVALID, "a list of objects is wanted");
        if (!error) error = wrong;
    }
    return error;
}

static int walk_value(const struct origin *parent, const char *folder, const char *name, struct json_object *value) {
    char path[KEY_PATH_MOST];
    struct json_step step = {.up = parent->step, .name = name};
    struct origin origin = *parent;
    origin.step = &step;
    int size = snprintf(path, sizeof path, "%s%s", folder, name);
    /* A name with a dot would look like a path. */
    if (size >= (int)sizeof path || strpbrk(name, ".[")) return unknown_key(&origin, folder, name);
    origin.path = path;
    const struct key *key = key_find(path);
    enum key_folder kind = key ? FOLDER_NONE : key_folder(path);
    if (!key && kind == FOLDER_NONE) return unknown_key(&origin, folder, name);
    if (!value) return CO_OK; /* null: as if it were not there */
    if (key) {
        if (!key_has_effect(key)) note_without_effect(origin.config, key->path);
        return key_set_json(&origin, key, value);
    }
    if (kind == FOLDER_ARRAY) return walk_array(&origin, value, path);
    if (!json_object_is_type(value, json_type_object)) return origin_fault(&origin, CO_INVALID, "an object is wanted");
    snprintf(path + size, sizeof path - (size_t)size, ".");
    return walk_object(&origin, value, path);
}

/* Keys that differ only in case are the same. */
static bool stands_before(struct json_object *object, const char *name) {
    json_each(object, other, value) {
        (void)value;
        if (other == name) return false;
        if (strcasecmp(other, name) == 0) return true;
    }
    return false;
}

static int twice(const struct origin *parent, const char *folder, const char *name) {
    struct json_step step = {.up = parent->step, .name = name};
    struct origin origin = *parent;
    origin.step = &step;
    origin.path = NULL;
    return origin_fault(&origin, CO_INVALID, "the key \"%.60s%.60s\" stands twice", folder, name);
}

static int walk_object(const struct origin *origin, struct json_object *object, const char *folder) {
    int error = CO_OK;
    json_each(object, name, value) {
        bool again = !config_errors_full(origin->config) && stands_before(object, name);
        int wrong = again ? twice(origin, folder, name) : walk_value(origin, folder, name, value);
        if (!error) error = wrong;
    }
    return error;
}

/* The fault of a text that is no JSON, of which nothing can be used. */
static int no_json(struct config *config, const char *file, struct slice text, size_t at, const char *why,
                   struct fault *fault) {
    size_t line, column;
    text_place(text, at, &line, &column);
    config->unread = true;
    if (text.size == 0) return config_wrong(config, fault, CO_INVALID, "%s: JSON: %s", source_tail(file), why);
    return config_wrong(config, fault, CO_INVALID, "%s:%zu:%zu: JSON: %s", source_tail(file), line, column, why);
}

static int second_time(struct config *config, const char *file, struct slice text, struct slice key,
                       struct fault *fault) {
    struct buffer why = {0};
    buffer_printf(&why, "the key \"%.*s\" stands a second time in its object", key.size < 60 ? (int)key.size : 60,
                  key.data);
    buffer_append_byte(&why, '\0');
    int error = no_json(config, file, text, (size_t)(key.data - text.data) - 1, why.data, fault);
    buffer_free(&why);
    return error;
}

static const struct config_source *source_keep(struct config *config, struct slice text) {
    struct config_source *source = mem_zalloc(sizeof *source);
    buffer_append(&source->text, text.data, text.size);
    source->next = config->sources;
    return config->sources = source;
}

void config_forget_texts(struct config *config) {
    struct config_blocks *all[] = {&config->services, &config->checks, &config->watches};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++)
        for (size_t at = 0; at < all[i]->count; at++) all[i]->items[at].source = NULL;
    for (struct config_source *source = config->sources, *next; source; source = next) {
        next = source->next;
        buffer_free(&source->text);
        free(source);
    }
    config->sources = NULL;
}

int config_add_text(struct config *config, const char *file, struct slice text, struct fault *fault) {
    static const char mark[] = "\xEF\xBB\xBF"; /* some editors begin a file of UTF-8 with a byte order mark */
    const char *why;
    size_t at;
    struct slice key;
    if (text.size >= sizeof mark - 1 && memcmp(text.data, mark, sizeof mark - 1) == 0)
        text = slice_make(text.data + sizeof mark - 1, text.size - (sizeof mark - 1));
    struct json_object *json = json_parse_placed(text, &why, &at);
    if (!json) return no_json(config, file, text, at, why, fault);
    int error = CO_OK;
    if (json_duplicate(text, &key)) {
        error = second_time(config, file, text, key, fault);
    } else if (!json_object_is_type(json, json_type_object)) {
        error = no_json(config, file, text, 0, "an object is wanted", fault);
    } else {
        struct origin origin = {.config = config, .fault = fault, .source = file, .from = source_keep(config, text)};
        error = walk_object(&origin, json, "");
    }
    json_object_put(json);
    return error;
}

int config_set(struct config *config, const char *source, const char *key_path, struct slice text,
               struct fault *fault) {
    const struct key *key = key_find(key_path);
    CHECK(key);
    struct origin origin = {.config = config, .fault = fault, .source = source};
    if (memchr(text.data, '\0', text.size)) return origin_fault(&origin, CO_INVALID, "holds a NUL byte");
    if (!key_has_effect(key)) note_without_effect(config, source);
    return key_set_text(&origin, key, text);
}

/* ---- files ---- */

static int file_fault(struct config *config, const char *path, int errnum, struct fault *fault) {
    config->unread = true;
    return config_wrong(config, fault, co_from_errno(errnum), "%s: %s", source_tail(path), strerror(errnum));
}

static bool ends_with(const char *text, const char *end) {
    size_t size = strlen(text), end_size = strlen(end);
    return size > end_size && strcmp(text + size - end_size, end) == 0;
}

static int read_all(struct config *config, int descriptor, const char *path, struct buffer *text, struct fault *fault) {
    for (;;) {
        buffer_reserve(text, 4096);
        ssize_t got = read(descriptor, text->data + text->size, text->capacity - text->size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_fault(config, path, errno, fault);
        if (got == 0) return CO_OK;
        text->size += (size_t)got;
        if (text->size <= FILE_MOST) continue;
        config->unread = true;
        return config_wrong(config, fault, CO_TOOLARGE, "%s: larger than 16 MiB", source_tail(path));
    }
}

static int add_file(struct config *config, const char *path, struct fault *fault) {
    if (ends_with(path, ".hcl")) {
        config->unread = true;
        return config_wrong(config, fault, CO_UNSUPPORTED, "%s: HCL is not supported: write JSON", source_tail(path));
    }
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return file_fault(config, path, errno, fault);
    struct buffer text = {0};
    int error = read_all(config, descriptor, path, &text, fault);
    close(descriptor);
    if (!error) error = config_add_text(config, path, buffer_slice(&text), fault);
    buffer_free(&text);
    return error;
}

static int is_configuration(const struct dirent *entry) {
    return entry->d_name[0] != '.' && (ends_with(entry->d_name, ".json") || ends_with(entry->d_name, ".hcl"));
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static int add_folder(struct config *config, const char *path, struct fault *fault) {
    struct dirent **entries;
    int count = scandir(path, &entries, is_configuration, by_name), error = CO_OK;
    if (count < 0) return file_fault(config, path, errno, fault);
    for (int i = 0; i < count; i++) {
        struct buffer file = {0};
        buffer_printf(&file, "%s/%s", path, entries[i]->d_name);
        buffer_append_byte(&file, '\0');
        struct stat status;
        bool folder = stat(file.data, &status) == 0 && S_ISDIR(status.st_mode);
        int wrong = folder ? CO_OK : add_file(config, file.data, fault);
        if (!error) error = wrong;
        buffer_free(&file);
        free(entries[i]);
    }
    free(entries);
    return error;
}

int config_add_path(struct config *config, const char *path, struct fault *fault) {
    struct stat status;
    if (stat(path, &status) < 0) return file_fault(config, path, errno, fault);
    return S_ISDIR(status.st_mode) ? add_folder(config, path, fault) : add_file(config, path, fault);
}

/* ---- the whole ---- */

static void split_addresses(struct config *config, const char *list, struct config_texts *texts) {
    *texts = (struct config_texts){0};
    for (const char *at = list; *(at += strspn(at, " "));) {
        size_t size = strcspn(at, " ");
        texts_append(config, texts, arena_strndup(&config->arena, at, size));
        at += size;
    }
}

/* The addresses of an interface. Where its port is off it has its Unix sockets alone. */
static void split_interface(struct config *config, int64_t port, const char *own, struct config_texts *texts) {
    struct config_texts all;
    split_addresses(config, own ? own : config->client_addr, &all);
    *texts = (struct config_texts){0};
    for (size_t i = 0; i < all.count; i++)
        if (port >= 0 || strncmp(all.items[i], "unix://", 7) == 0) texts_append(config, texts, all.items[i]);
}

static int check_bootstrap(struct config *config, struct fault *fault) {
    bool expect = config->bootstrap_expect > 0;
    if (config->dev && (expect || config->bootstrap)) {
        return config_wrong(config, fault, CO_INVALID, "%s: not together with -dev, which is a cluster of one",
                            expect ? "bootstrap_expect" : "bootstrap");
    }
    if (config->bootstrap && expect)
        return config_wrong(config, fault, CO_INVALID, "bootstrap: not together with bootstrap_expect");
    if ((config->bootstrap || expect) && !config->server) {
        return config_wrong(config, fault, CO_INVALID, "%s: only for a server (-server)",
                            expect ? "bootstrap_expect" : "bootstrap");
    }
    return CO_OK;
}

/* Each value was checked when it was read, so it parses. */
static void read_reconnect(struct config *config) {
    const struct config_pairs *classes = &config->reconnect_timeouts;
    config->reconnect_classes = arena_zalloc(&config->arena, (classes->count + 1) * sizeof *config->reconnect_classes);
    for (size_t i = 0; i < classes->count; i++) {
        struct reconnect_class *class = &config->reconnect_classes[i];
        class->name = classes->items[i].name;
        CHECK(reconnect_parse(classes->items[i].value, &class->timeout_ns));
    }
    if (config->reconnect_timeout_ns == 0) config->reconnect_timeout_ns = LEASE_RECONNECT_NS;
}

static const char *first_given(const char *a, const char *b) { return a ? a : b; }

/* The certificates of one purpose: those for all where it has none of its own. */
static void fill_files(const struct config_tls *all, struct config_tls *one) {
    bool pair = one->cert_file || one->key_file, trusted = one->ca_file || one->ca_path;
    if (!pair) one->cert_file = all->cert_file, one->key_file = all->key_file;
    if (!trusted) one->ca_file = all->ca_file, one->ca_path = all->ca_path;
}

static void fill_tls(struct config *config) {
    const struct config_tls *all = &config->tls_defaults;
    struct config_tls *https = &config->tls_https, *rpc = &config->tls_rpc;
    fill_files(all, https);
    https->min_version = first_given(https->min_version, all->min_version);
    https->cipher_suites = first_given(https->cipher_suites, all->cipher_suites);
    if (!https->verify_incoming_given) https->verify_incoming = all->verify_incoming || config->verify_incoming_https;
    fill_files(all, rpc);
    if (!rpc->verify_incoming_given) rpc->verify_incoming = all->verify_incoming || config->verify_incoming_rpc;
    if (!rpc->verify_outgoing_given) rpc->verify_outgoing = all->verify_outgoing;
    if (!rpc->verify_server_hostname_given) rpc->verify_server_hostname = all->verify_server_hostname;
    if (rpc->verify_server_hostname) rpc->verify_outgoing = true;
}

static int check_pair(struct config *config, const struct config_tls *tls, struct fault *fault) {
    if (!tls->cert_file == !tls->key_file) return CO_OK;
    return config_wrong(config, fault, CO_INVALID, "%s: needs %s", tls->cert_file ? "cert_file" : "key_file",
                        tls->cert_file ? "key_file" : "cert_file");
}

/* Whether servers and agents need certificates is decided later (agent/protection.h), because a node with certificates of
 * its cluster needs none of these. */
static int check_tls(struct config *config, struct fault *fault) {
    fill_tls(config);
    int error = check_pair(config, &config->tls_https, fault);
    const struct config_tls *rpc = &config->tls_rpc, *https = &config->tls_https;
    bool same = rpc->cert_file == https->cert_file && rpc->key_file == https->key_file;
    return same || error ? error : check_pair(config, rpc, fault);
}

static int check_certificate_days(struct config *config, struct fault *fault) {
    if (config->certificate_critical_days <= config->certificate_warning_days &&
        config->certificate_warning_days <= config->certificate_info_days)
        return CO_OK;
    return config_wrong(config, fault, CO_INVALID,
                        "telemetry.certificate: critical_threshold_days (%llu), warning_threshold_days (%llu) and "
                        "info_threshold_days (%llu) have to be in this order",
                        (unsigned long long)config->certificate_critical_days,
                        (unsigned long long)config->certificate_warning_days,
                        (unsigned long long)config->certificate_info_days);
}

/* Checks keys against each other. The caller skips this after an error, because a key that was only written wrong would
 * be reported as missing. */
static int check_together(struct config *config, struct fault *fault) {
    int error = check_bootstrap(config, fault);
    if (!config->server && config->retry_join_wan.count + config->start_join_wan.count)
        error = config_wrong(config, fault, CO_INVALID, "retry_join_wan: only servers join other regions (-server)");
    int wrong = check_tls(config, fault);
    if (!error) error = wrong;
    wrong = check_certificate_days(config, fault);
    if (!error) error = wrong;
    wrong = config_check_audit(config, fault);
    if (!error) error = wrong;
    if (!config->data_dir && !config->dev)
        error = config_wrong(config, fault, CO_INVALID, "data_dir: must be given (-data-dir), unless -dev is");
    return error;
}

int config_finish(struct config *config, struct fault *fault) {
    config_note_given(config);
    if (config->errors.count) return CO_INVALID;
    int error = check_together(config, fault);
    if (error) return error;
    read_reconnect(config);
    if (config->alt_domain && strcasecmp(config->alt_domain, config->domain) == 0) config->alt_domain = NULL;
    if (config->default_query_time_ns > config->max_query_time_ns) {
        config->default_query_time_ns = config->max_query_time_ns;
    }
    for (size_t i = 0; i < config->start_join.count; i++) {
        texts_append(config, &config->retry_join, config->start_join.items[i]);
    }
    for (size_t i = 0; i < config->start_join_wan.count; i++)
        texts_append(config, &config->retry_join_wan, config->start_join_wan.items[i]);
    if (config->dev || config->bootstrap_expect == 1) config->bootstrap = true;
    if (config->raft_multiplier == 0) config->raft_multiplier = 1;
    if (!config->leave_on_terminate_given) config->leave_on_terminate = !config->server;
    if (!config->skip_leave_on_interrupt_given) config->skip_leave_on_interrupt = config->server;
    split_interface(config, config->http_port, config->http_addr, &config->http_addresses);
    split_interface(config, config->https_port, config->https_addr, &config->https_addresses);
    split_addresses(config, config->dns_addr ? config->dns_addr : config->client_addr, &config->dns_addresses);
    return CO_OK;
}
