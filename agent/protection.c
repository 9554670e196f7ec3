#include "agent/protection.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/certificates.h"
#include "agent/keyring_run.h"
#include "base/log.h"
#include "base/memory.h"

struct protection {
    uv_loop_t *loop;
    struct certificates *certificates; /* NULL: none */
    struct keyring_run *keyring;
    void (*stopped)(void *data);
    void *stopped_data;
};

/* -- the rules ---------------------------------------------------------------------------------------------------- */
static int check_demands(const struct config *config, struct fault *fault) {
    const struct config_tls *tls = &config->tls_rpc;
    const char *demand = tls->verify_server_hostname ? "verify_server_hostname"
                         : tls->verify_outgoing      ? "verify_outgoing"
                                                     : "verify_incoming";
    if (!tls->ca_file && !tls->ca_path)
        return fault_set(fault, CO_INVALID, "%s: needs the CAs of the other side (ca_file or ca_path)", demand);
    if (config->server && !tls->cert_file)
        return fault_set(fault, CO_INVALID, "%s: a server needs a certificate (cert_file and key_file)", demand);
    return CO_OK;
}

static int own_ca_rules(const struct config *config, bool keys, struct security_rules *rules, struct fault *fault) {
    const struct config_tls *tls = &config->tls_rpc;
    rules->kind = SECURITY_OWN_CA;
    rules->asks_clients = tls->verify_incoming;
    rules->takes_plain = !tls->verify_incoming && !(keys && config->encrypt_verify_incoming);
    rules->dials_plain = !tls->verify_outgoing;
    rules->checks_servers = tls->verify_server_hostname;
    if (!keys || !rules->dials_plain || !config->encrypt_verify_outgoing) return CO_OK;
    return fault_set(fault, CO_INVALID,
                     "encrypt: together with verify_incoming on a server it needs verify_outgoing, so that what this "
                     "server says to others is encrypted, too");
}

int protection_rules(const struct config *config, bool keys, struct security_rules *rules, struct fault *fault) {
    const struct config_tls *tls = &config->tls_rpc;
    *rules = (struct security_rules){.kind = SECURITY_OPEN, .takes_plain = true, .dials_plain = true};
    snprintf(rules->datacenter, sizeof rules->datacenter, "%s", config->datacenter);
    snprintf(rules->dns_domain, sizeof rules->dns_domain, "%s", config->domain);
    if (config->dev) return CO_OK; /* no other process can reach it */
    bool demanded = tls->verify_outgoing || (config->server && tls->verify_incoming);
    int rv = demanded ? check_demands(config, fault) : CO_OK;
    if (rv != CO_OK) return rv;
    if (demanded || (config->server && !keys && tls->cert_file)) return own_ca_rules(config, keys, rules, fault);
    if (!keys) return CO_OK;
    rules->kind = SECURITY_SHARED_KEY;
    rules->takes_plain = !config->encrypt_verify_incoming;
    rules->dials_plain = !config->encrypt_verify_outgoing;
    return CO_OK;
}

/* -- the keys ----------------------------------------------------------------------------------------------------- */
static int read_ring(const struct config *config, const char *path, struct keyring *ring, struct fault *fault) {
    struct keyring_key key = {0};
    int rv = config->disable_keyring_file ? CO_NOTFOUND : keyring_read(path, ring, fault);
    if (rv == CO_OK && config->encrypt)
        log_info("keyring", "the keys are those of the file, and encrypt is not looked at file=%s keys=%zu", path,
                 ring->count);
    if (rv != CO_NOTFOUND) return rv;
    *ring = (struct keyring){0};
    if (!config->encrypt) return CO_OK;
    rv = keyring_key_parse(slice_text(config->encrypt), &key, fault);
    if (rv == CO_OK) rv = keyring_install(ring, &key, fault);
    if (rv == CO_OK && !config->disable_keyring_file) rv = keyring_write(path, ring, fault);
    explicit_bzero(&key, sizeof key);
    return rv;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
static void say(const struct config *config, const struct security_rules *rules, bool keys) {
    if (rules->kind != SECURITY_OWN_CA) return;
    if (keys)
        log_info("keyring", "connections are protected by certificates: the keys of encrypt are kept, and not used");
    if (config->server && rules->asks_clients && rules->dials_plain)
        log_warn(
            "tls",
            "verify_incoming without verify_outgoing: this server makes plain connections, which other servers with "
            "verify_incoming refuse");
}

static int open_by_config(struct protection *protection, const struct config *config, const char *data_dir,
                          struct security *security, struct fault *fault) {
    struct buffer path = {0};
    struct keyring ring = {0};
    struct security_rules rules;
    buffer_printf(&path, "%s/" KEYRING_FILE, data_dir);
    buffer_append_byte(&path, '\0');
    int rv = read_ring(config, path.data, &ring, fault);
    if (rv == CO_OK) rv = protection_rules(config, ring.count > 0, &rules, fault);
    if (rv == CO_OK && rules.kind == SECURITY_OWN_CA)
        rv = certificates_start_rpc(protection->loop, config, security, &rules, &protection->certificates, fault);
    if (rv == CO_OK) {
        protection->keyring = keyring_run_new(security, &rules, &ring, config->disable_keyring_file ? NULL : path.data);
        say(config, &rules, ring.count > 0);
    }
    keyring_wipe(&ring);
    buffer_free(&path);
    return rv;
}

int protection_open(uv_loop_t *loop, const struct config *config, const char *data_dir, struct security *security,
                    struct protection **out, struct fault *fault) {
    struct protection *protection = mem_zalloc(sizeof *protection);
    struct security_rules now;
    int rv = CO_OK;
    security_get(security, &now);
    protection->loop = loop;
    if (now.kind != SECURITY_CLUSTER) rv = open_by_config(protection, config, data_dir, security, fault);
    else if (config->encrypt)
        rv = fault_set(fault, CO_INVALID,
                       "encrypt: this node has a certificate of its cluster (%s/tls), which protects its connections: "
                       "take encrypt out of the configuration",
                       data_dir);
    else protection->keyring = keyring_run_new(security, &now, &(struct keyring){0}, NULL);
    *out = rv == CO_OK ? protection : NULL;
    if (rv != CO_OK) free(protection);
    return rv;
}

struct certificates *protection_certificates(struct protection *protection) {
    return protection->certificates;
}

void protection_start(struct protection *protection, struct rpc *rpc) {
    keyring_run_start(protection->keyring, protection->loop, rpc);
}

void protection_reload(struct protection *protection, const struct config *config) {
    if (protection) certificates_reload(protection->certificates, config);
}

static void keyring_stopped(void *data) {
    struct protection *protection = data;
    protection->stopped(protection->stopped_data);
}

static void certificates_stopped(void *data) {
    struct protection *protection = data;
    keyring_run_stop(protection->keyring, keyring_stopped, protection);
}

void protection_stop(struct protection *protection, void (*stopped)(void *data), void *data) {
    if (!protection) {
        stopped(data);
        return;
    }
    protection->stopped = stopped, protection->stopped_data = data;
    certificates_stop(protection->certificates, certificates_stopped, protection);
}

void protection_free(struct protection *protection) {
    if (!protection) return;
    certificates_free(protection->certificates);
    keyring_run_free(protection->keyring);
    free(protection);
}
