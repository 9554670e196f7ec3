/* coord init: makes a cluster that is closed from its first second. It makes the CA, the first server's certificate, two join
 * tokens and the secret of a management token; the server takes them into the replicated state when it leads for the first
 * time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "agent/cmd.h"
#include "agent/enrolled.h"
#include "agent/first_token.h"
#include "agent/identity.h"
#include "agent/joined.h"
#include "agent/start_unit.h"
#include "base/check.h"
#include "base/memory.h"
#include "base/message.h"
#include "base/random.h"
#include "registry/trust.h"
#include "rpc/wire/address.h"
#include "tls/authority.h"
#include "tls/ca_import.h"
#include "tls/folder.h"

#define CA_LIFE_S    (INT64_C(10) * 365 * 24 * 3600)
#define TOKEN_TTL_NS (INT64_C(3600) * 1000000000)

static const char usage[] = "coord init -data-dir=DIR [FLAGS]";

struct init {
    const char *data_dir, *bind, *node, *datacenter;
    const char *ca_file, *ca_key_file; /* of a CA that is brought; NULL: one is made */
    bool no_acl;
    char name[256], address[64];
    char domain[TLS_DOMAIN_SIZE + 1];
    struct buffer ca, above, ca_key, secret, key, chain; /* above: see tls/ca_import.h */
    struct tls_certificate ca_read;
    struct authority *authority;
    struct join_token tokens[2]; /* of servers, of client agents */
};

static struct tls_subject subject_of(const struct init *init, const char *const *addresses) {
    return (struct tls_subject){.domain = init->domain,
                                .role = TLS_ROLE_SERVER,
                                .node = init->name,
                                .datacenter = init->datacenter,
                                .dns_domain = ENROLLED_DNS_DOMAIN,
                                .addresses = addresses};
}

static int bring_ca(struct init *init, struct fault *fault) {
    struct tls_subject subject = subject_of(init, ca_import_addresses);
    struct buffer text = {0};
    struct ca_import import = {0};
    int64_t now_s = (int64_t)time(NULL);
    char line[CA_IMPORT_LINE];
    int error = cmd_read_file(init->ca_file, &text, fault);
    if (!error) error = tls_key_file_read(init->ca_key_file, &init->ca_key, fault);
    if (!error)
        error = ca_import_read(buffer_slice(&text), buffer_slice(&init->ca_key), &subject, now_s, &import, fault);
    if (!error) {
        buffer_append(&init->ca, import.certificate.data, import.certificate.size);
        buffer_append(&init->above, import.above.data, import.above.size);
        if (ca_import_ends_soon(&import, now_s, line)) fprintf(stderr, "warning: the CA: %s\n", line);
    }
    ca_import_free(&import);
    buffer_free(&text);
    return error;
}

static int make_own_ca(struct init *init, struct fault *fault) {
    int64_t now_s = (int64_t)time(NULL);
    struct tls_life life = {now_s - ENROLLED_SKEW_S, now_s + CA_LIFE_S};
    int error = tls_key_make(&init->ca_key, fault);
    return error ? error : tls_ca_make(buffer_slice(&init->ca_key), init->domain, life, &init->ca, fault);
}

static int make_ca(struct init *init, struct fault *fault) {
    int error = tls_domain_make(init->domain, fault);
    if (!error) error = init->ca_file ? bring_ca(init, fault) : make_own_ca(init, fault);
    if (!error) error = tls_certificate_read(buffer_slice(&init->ca), &init->ca_read, fault);
    if (error) return error;
    buffer_reserve(&init->secret, TLS_SECRET_SIZE);
    random_bytes(init->secret.data, TLS_SECRET_SIZE);
    init->secret.size = TLS_SECRET_SIZE;
    struct tls_issuer issuer = {buffer_slice(&init->ca), buffer_slice(&init->ca_key)};
    error = authority_store(init->authority, init->data_dir, &issuer, buffer_slice(&init->secret), fault);
    return error ? error : tls_folder_write(init->data_dir, TLS_FILE_CA, buffer_slice(&init->ca), fault);
}

static int make_certificate(struct init *init, struct fault *fault) {
    const char *addresses[] = {init->address, NULL};
    struct tls_subject subject = subject_of(init, addresses);
    int64_t now_s = (int64_t)time(NULL);
    struct tls_life life = {now_s - ENROLLED_SKEW_S, now_s + ENROLLED_LIFE_S};
    struct buffer request = {0};
    int error = tls_key_make(&init->key, fault);
    if (!error) error = tls_request_make(buffer_slice(&init->key), &request, fault);
    if (!error) error = authority_sign(init->authority, buffer_slice(&request), &subject, life, &init->chain, fault);
    buffer_free(&request);
    if (error) return error;
    buffer_append(&init->chain, init->above.data, init->above.size);
    return tls_folder_write_pair(init->data_dir, buffer_slice(&init->chain), buffer_slice(&init->key), fault);
}

static void describe_token(struct init *init, size_t i, Pb__JoinToken *record, uint8_t hash[JOIN_TOKEN_HASH_SIZE]) {
    CHECK(authority_hash(init->authority, &init->tokens[i], hash));
    *record = (Pb__JoinToken)PB__JOIN_TOKEN__INIT;
    record->id = (ProtobufCBinaryData){JOIN_TOKEN_ID_SIZE, init->tokens[i].id};
    record->hash = (ProtobufCBinaryData){JOIN_TOKEN_HASH_SIZE, hash};
    record->server = i == 0, record->ttl_ns = TOKEN_TTL_NS;
    record->created_ms = (uint64_t)time(NULL) * 1000;
}

/* This server's own certificate: like every other node it has a record, so that it can be removed, and so that the CA of
 * before is kept until it has renewed, too. */
static void describe_founder(struct init *init, const struct tls_certificate *read, Pb__CertificateInfo *info) {
    *info = (Pb__CertificateInfo)PB__CERTIFICATE_INFO__INIT;
    info->node = init->name, info->server = true, info->serial = (char *)(uintptr_t)read->serial;
    info->from_s = read->life.from_s, info->to_s = read->life.to_s;
    info->pin = (ProtobufCBinaryData){TLS_PIN_SIZE, (uint8_t *)(uintptr_t)read->pin};
    info->ca_pin = (ProtobufCBinaryData){TLS_PIN_SIZE, init->ca_read.pin};
}

/* The first state of the cluster's trust, for the server when it leads. It holds no secret. */
static int keep_first(struct init *init, struct fault *fault) {
    struct arena arena = {0};
    Pb__TrustSetCommand command = PB__TRUST_SET_COMMAND__INIT;
    Pb__Trust trust = PB__TRUST__INIT;
    Pb__TrustCa ca = PB__TRUST_CA__INIT, *cas[] = {&ca};
    Pb__JoinToken tokens[2], *list[] = {&tokens[0], &tokens[1]};
    Pb__CertificateInfo founder, *founders[] = {&founder};
    struct tls_certificate own;
    uint8_t hashes[2][JOIN_TOKEN_HASH_SIZE];
    int error = tls_certificate_read(buffer_slice(&init->chain), &own, fault);
    for (size_t i = 0; i < 2 && !error; i++) {
        error = join_token_make(i == 0 ? TLS_ROLE_SERVER : TLS_ROLE_AGENT, init->ca_read.pin, &init->tokens[i], fault);
        if (!error) describe_token(init, i, &tokens[i], hashes[i]);
    }
    if (error) return error;
    ca.certificate = arena_strndup(&arena, init->ca.data, init->ca.size);
    if (init->above.size) ca.above = arena_strndup(&arena, init->above.data, init->above.size);
    ca.pin = (ProtobufCBinaryData){TLS_PIN_SIZE, init->ca_read.pin};
    trust.domain = init->domain, trust.cas = cas, trust.n_cas = 1, trust.mode = TRUST_CLOSED;
    command.trust = &trust, command.tokens = list, command.n_tokens = 2;
    describe_founder(init, &own, &founder);
    command.founders = founders, command.n_founders = 1;
    error = tls_folder_write(init->data_dir, TLS_FILE_FIRST, message_pack(&arena, &command.base), fault);
    arena_free(&arena);
    return error;
}

static int make_all(struct init *init, struct fault *fault) {
    int error = tls_folder_make(init->data_dir, fault);
    if (!error) error = make_ca(init, fault);
    if (!error) error = make_certificate(init, fault);
    if (!error) error = keep_first(init, fault);
    if (!error && !init->no_acl) error = first_token_make(init->data_dir, fault);
    struct joined joined = {.server = true,
                            .founder = true,
                            .node = init->name,
                            .datacenter = init->datacenter,
                            .bind = init->bind,
                            .default_policy = init->no_acl ? NULL : "deny"};
    return error ? error : joined_write(init->data_dir, &joined, fault);
}

static void print_lines(const struct init *init) {
    static const char *const roles[] = {"a server", "a client agent"};
    char path[4096];
    first_token_path(init->data_dir, path);
    printf(
        "# The cluster is made: datacenter %s, and this is its first server, %s. Start it:\n"
        "#     coord agent -data-dir %s\n",
        init->datacenter, init->name, init->data_dir);
    if (init->no_acl)
        puts("# It has no access control: whoever reaches the loopback port of a host may do everything.");
    else
        printf(
            "# Access control is on: a request without a token may do nothing. The token of this file may do "
            "everything, and\n"
            "# commands take it by -token-file or this variable:\n"
            "#     export CONSUL_HTTP_TOKEN_FILE=%s\n",
            path);
    puts("# Other hosts join with one of these lines, which count for one hour (`coord join-token` makes more):");
    for (size_t i = 0; i < 2; i++) {
        char text[JOIN_TOKEN_TEXT_MAX];
        join_token_write(&init->tokens[i], text);
        printf("# %s\ncoord join -data-dir %s %s %s\n", roles[i], init->data_dir, text, init->address);
        explicit_bzero(text, sizeof text);
    }
}

static void forget(struct init *init) {
    authority_free(init->authority);
    tls_wipe(&init->ca_key);
    tls_wipe(&init->secret);
    tls_wipe(&init->key);
    buffer_free(&init->ca);
    buffer_free(&init->above);
    buffer_free(&init->chain);
    explicit_bzero(init->tokens, sizeof init->tokens);
}

/* NULL, or what is wrong with the flags. */
static const char *complete(struct init *init) {
    struct sockaddr_storage at;
    if (!init->ca_file != !init->ca_key_file) return "-ca-cert and -ca-key are wanted together";
    if (init->bind && !address_ip(init->bind, "0", &at)) return "-bind is an IP address";
    if (init->node && strlen(init->node) > TLS_NODE_MAX) return "-node has at most 255 bytes";
    if (init->node) snprintf(init->name, sizeof init->name, "%s", init->node);
    else identity_host_name(init->name);
    bool all = !init->bind || strcmp(init->bind, "0.0.0.0") == 0 || strcmp(init->bind, "::") == 0;
    if (all) identity_host_address(init->address);
    else snprintf(init->address, sizeof init->address, "%s", init->bind);
    return NULL;
}

int cmd_init(int argc, char **argv) {
    struct init init = {.datacenter = "dc1"};
    bool start = false;
    const struct cmd_flag flags[] = {
        {"data-dir", CMD_TEXT, &init.data_dir, "data folder of this server; it is made"},
        {"bind", CMD_TEXT, &init.bind, "IP address at which other hosts reach this server (default: all)"},
        {"node", CMD_TEXT, &init.node, "name of this server (default: that of the host)"},
        {"datacenter", CMD_TEXT, &init.datacenter, "datacenter (default: dc1)"},
        {"ca-cert", CMD_TEXT, &init.ca_file,
         "file with a CA of your own that is to sign, then its issuers (default: a CA is made)"},
        {"ca-key", CMD_TEXT, &init.ca_key_file, "file with its key"},
        {"no-acl", CMD_BOOL, &init.no_acl, "leaves access control off: every request may do everything"},
        {"start", CMD_BOOL, &start, "starts the service coord of systemd afterwards"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), NULL, usage, &rest), lock = -1;
    if (code >= 0) return code;
    if (!init.data_dir || !init.data_dir[0] || rest[0]) return cmd_wrong(usage, "-data-dir is wanted, and no argument");
    const char *wrong = complete(&init);
    if (wrong) return cmd_wrong(usage, wrong);
    struct fault fault = {0};
    int error = start ? start_unit_check(&fault) : CO_OK;
    if (!error) error = identity_folder_make(init.data_dir, &fault);
    if (!error) error = identity_lock(init.data_dir, true, &lock, &fault);
    if (!error) error = joined_check(init.data_dir, &fault);
    init.authority = authority_new();
    if (!error) error = make_all(&init, &fault);
    if (!error) print_lines(&init);
    forget(&init);
    if (lock >= 0) close(lock);
    if (!error && start) error = start_unit(&fault);
    return error ? cmd_failed("making a cluster", &fault) : 0;
}
