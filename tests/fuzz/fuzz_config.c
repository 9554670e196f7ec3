/* Any text as a configuration file. Accepted values are within their bounds, and are accepted again over themselves
 * with the same result; a fault names the file. */
#include <arpa/inet.h>
#include <stdlib.h>

#include "agent/config.h"
#include "agent/definitions.h"
#include "base/check.h"
#include "base/text.h"
#include "health/local.h"

#define FILE_NAME "web.json"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int check_fault(int error, const struct fault *fault, bool names_file) {
    CHECK(error == fault->code);
    if (error == CO_OK) return error;
    CHECK(error == CO_INVALID || error == CO_TOOLARGE || error == CO_UNSUPPORTED);
    CHECK(!names_file || strncmp(fault->text, FILE_NAME ":", sizeof FILE_NAME) == 0);
    for (const char *at = fault->text; *at; at++) CHECK((unsigned char)*at >= ' ' && *at != 0x7f);
    return error;
}

/* ---- bounds ---- */

static void check_texts(const struct config_texts *texts) {
    for (size_t i = 0; i < texts->count; i++) CHECK(texts->items[i] && texts->items[i][0]);
    CHECK(!texts->items || !texts->items[texts->count]);
}

static bool is_ip(const char *text) {
    uint8_t bytes[16];
    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

static void check_values(const struct config *config) {
    const int64_t ports[] = {config->http_port, config->dns_port, config->server_port};
    for (size_t i = 0; i < ARRAY_COUNT(ports); i++) CHECK(ports[i] >= -1 && ports[i] <= 65535);
    const int64_t durations[] = {
        config->retry_interval_ns,        config->node_ttl_ns,           config->dns_max_stale_ns,
        config->session_ttl_min_ns,       config->default_query_time_ns, config->max_query_time_ns,
        config->leave_drain_time_ns,      config->rpc_hold_timeout_ns,   config->reconnect_timeout_ns,
        config->check_update_interval_ns, config->http_idle_timeout_ns};
    for (size_t i = 0; i < ARRAY_COUNT(durations); i++) CHECK(durations[i] >= 0);
    CHECK(config->datacenter[0] && config->domain[0] && is_ip(config->bind_addr));
    CHECK(!config->advertise_addr || is_ip(config->advertise_addr));
    CHECK(!config->node_id || uuid_valid(slice_text(config->node_id)));
    CHECK(!config->node_name || config->node_name[0]);
    check_texts(&config->start_join);
    check_texts(&config->retry_join);
    check_texts(&config->recursors);
    check_texts(&config->without_effect);
    for (size_t i = 0; i < config->node_meta.count; i++) CHECK(config->node_meta.items[i].name[0]);
    for (size_t i = 0; i < config->service_ttl_count; i++) {
        CHECK(config->service_ttls[i].name[0] && config->service_ttls[i].ttl_ns >= 0);
    }
}

/* Without a port only Unix sockets are left. */
static void check_listeners(const struct config_texts *texts, int64_t port) {
    CHECK(texts->count > 0 || port < 0);
    for (size_t i = 0; i < texts->count; i++)
        CHECK(strncmp(texts->items[i], "unix://", 7) == 0 || (port >= 0 && is_ip(texts->items[i])));
}

static void check_finished(const struct config *config) {
    check_values(config);
    CHECK(config->data_dir || config->dev);
    CHECK(config->default_query_time_ns <= config->max_query_time_ns && config->raft_multiplier >= 1);
    check_listeners(&config->http_addresses, config->http_port);
    check_listeners(&config->https_addresses, config->https_port);
    CHECK(config->dns_addresses.count > 0);
    for (size_t i = 0; i < config->dns_addresses.count; i++) CHECK(is_ip(config->dns_addresses.items[i]));
}

/* ---- definitions in it ---- */

static void check_blocks(const struct config *config) {
    for (size_t i = 0; i < config->services.count; i++) {
        const struct config_block *block = &config->services.items[i];
        CHECK(strcmp(block->file, FILE_NAME) == 0 && strncmp(block->key, "service", 7) == 0);
        struct fault fault = {0};
        struct service_definition *service = service_definition_parse(block->json, &fault);
        CHECK((service == NULL) == (fault.code != CO_OK));
        service_definition_free(service);
    }
    for (size_t i = 0; i < config->checks.count; i++) {
        const struct config_block *block = &config->checks.items[i];
        CHECK(strcmp(block->file, FILE_NAME) == 0 && strncmp(block->key, "check", 5) == 0);
        struct fault fault = {0};
        struct check_definition *check = check_definition_parse(block->json, &fault);
        CHECK((check == NULL) == (fault.code != CO_OK));
        check_definition_free(check);
    }
}

/* ---- the same text again ---- */

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

/* Single values stay, maps too, lists grow. */
static void check_again(struct config *config, struct slice text) {
    struct config before = *config;
    struct fault fault = {0};
    CHECK(config_add_text(config, FILE_NAME, text, &fault) == CO_OK);
    CHECK(config->http_port == before.http_port && config->server == before.server &&
          config->soa_expire == before.soa_expire);
    CHECK(config->max_query_time_ns == before.max_query_time_ns && config->node_ttl_ns == before.node_ttl_ns);
    CHECK(same_text(config->node_name, before.node_name) && same_text(config->domain, before.domain));
    CHECK(same_text(config->client_addr, before.client_addr) && same_text(config->data_dir, before.data_dir));
    CHECK(config->node_meta.count == before.node_meta.count && config->service_ttl_count == before.service_ttl_count);
    CHECK(config->without_effect.count == before.without_effect.count);
    CHECK(config->guard_count == before.guard_count);
    CHECK(config->retry_join.count == 2 * before.retry_join.count &&
          config->services.count == 2 * before.services.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct config config;
    struct fault fault = {0};
    char *exact = mem_strndup(size ? (const char *)data : "", size);
    struct slice text = slice_make(exact, size);
    config_init(&config);
    int error = check_fault(config_add_text(&config, FILE_NAME, text, &fault), &fault, true);
    CHECK((config.errors.count > 0) == (error != CO_OK) && config.errors.count <= CONFIG_ERRORS_MAX);
    check_values(&config);
    check_blocks(&config);
    if (error) {
        struct fault wrong = {0};
        (void)check_fault(definitions_check(&config, &wrong), &wrong, true);
    } else {
        struct fault wrong = {0};
        check_again(&config, text);
        if (check_fault(config_finish(&config, &fault), &fault, false) == CO_OK) check_finished(&config);
        (void)check_fault(definitions_check(&config, &wrong), &wrong, true);
    }
    config_free(&config);
    free(exact);
    return 0;
}
