#include "identity_of.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "tls/folder.h"

#define HOUR_S 3600

struct identities {
    struct buffer ca, ca_key, key, request;
    const char *datacenter;
    char domain[TLS_DOMAIN_SIZE + 1];
};

static void need(int rv, const char *what, const struct fault *fault) {
    if (rv == CO_OK) return;
    fprintf(stderr, "agents: --tls: %s: %s\n", what, fault->code ? fault->text : "it is not there");
    exit(1);
}

struct identities *identities_open(const char *data_dir, const char *datacenter) {
    struct identities *identities = mem_zalloc(sizeof *identities);
    struct fault fault = {0};
    struct tls_certificate ca;
    identities->datacenter = datacenter;
    need(tls_folder_read(data_dir, TLS_FILE_CA, &identities->ca, &fault), "the CA", &fault);
    need(tls_folder_read(data_dir, TLS_FILE_CA_KEY, &identities->ca_key, &fault), "the CA's key", &fault);
    need(tls_certificate_read(buffer_slice(&identities->ca), &ca, &fault), "the CA", &fault);
    memcpy(identities->domain, ca.domain, sizeof ca.domain);
    need(tls_key_make(&identities->key, &fault), "a key", &fault);
    need(tls_request_make(buffer_slice(&identities->key), &identities->request, &fault), "a request", &fault);
    return identities;
}

void identities_close(struct identities *identities) {
    if (!identities) return;
    tls_wipe(&identities->ca_key);
    tls_wipe(&identities->key);
    buffer_free(&identities->ca);
    buffer_free(&identities->request);
    free(identities);
}

struct security *identities_make(const struct identities *identities, const char *node) {
    struct buffer chain = {0};
    struct fault fault = {0};
    struct tls_issuer issuer = {buffer_slice(&identities->ca), buffer_slice(&identities->ca_key)};
    struct tls_subject subject = {.domain = identities->domain,
                                  .role = TLS_ROLE_AGENT,
                                  .node = node,
                                  .datacenter = identities->datacenter,
                                  .dns_domain = "coord"};
    int64_t now_s = clock_wall_ns() / 1000000000;
    struct tls_life life = {now_s - HOUR_S, now_s + 24 * HOUR_S};
    need(tls_issue(&issuer, buffer_slice(&identities->request), &subject, life, &chain, &fault), "a certificate",
         &fault);
    struct tls_context_config config = {.chain = buffer_slice(&chain),
                                        .key = buffer_slice(&identities->key),
                                        .trusted = buffer_slice(&identities->ca),
                                        .only_tls13 = true};
    struct tls_context *context = NULL;
    need(tls_context_make(&config, &context, &fault), "a certificate", &fault);
    struct security_rules rules = {.kind = SECURITY_CLUSTER, .asks_clients = true};
    memcpy(rules.domain, identities->domain, sizeof rules.domain);
    struct security *security = security_new();
    security_set(security, &rules, context);
    buffer_free(&chain);
    return security;
}
