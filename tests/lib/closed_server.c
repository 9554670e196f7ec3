#include "tests/lib/closed_server.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/message.h"
#include "registry/trust.h"
#include "tests/lib/free_ports.h"

/* -- rpc: writes are done at once, and told from the loop -------------------------------------------------------------- */
struct posted {
    struct list link;
    struct loop_task *task;
};

static struct closed_server *of(struct rpc *rpc) { return CONTAINER_OF(rpc, struct closed_server, rpc); }

static void post(struct rpc *rpc, struct loop_task *task) {
    struct posted *posted = mem_zalloc(sizeof *posted);
    posted->task = task;
    list_append(&of(rpc)->tasks, &posted->link);
    uv_async_send(&of(rpc)->posted);
}

static void run_posted(uv_async_t *async) {
    struct closed_server *server = async->data;
    LIST_FOREACH_SAFE(item, next, &server->tasks) {
        struct posted *posted = LIST_ENTRY(item, struct posted, link);
        struct loop_task *task = posted->task;
        list_remove(&posted->link);
        free(posted);
        task->run(task);
    }
}

static void submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message) {
    struct closed_server *server = of(rpc);
    struct machine_result result = {0};
    struct outcome outcome = {0};
    server->writes++;
    if (!server->write_error) {
        outcome = fixture_apply(&server->f, command, message);
        result.error = outcome.error, result.yes = outcome.yes, result.text = outcome.text[0] ? outcome.text : NULL;
    }
    write->done(write, server->write_error, &result);
}

static size_t no_peers(struct rpc *rpc, struct arena *arena, const char ***addresses) {
    *addresses = arena_alloc(arena, sizeof **addresses);
    (*addresses)[0] = of(rpc)->address;
    return 1;
}

/* -- peers ------------------------------------------------------------------------------------------------------------- */
static void on_frame(void *data, uint64_t from, uint8_t type, struct slice payload) {
    (void)from, (void)type, (void)payload;
    ((struct closed_server *)data)->frames++;
}
static void on_up(void *data, uint64_t id) { (void)id, ((struct closed_server *)data)->ups++; }
static void on_down(void *data, uint64_t id) { (void)data, (void)id; }
static struct peers_self self_of(void *data) {
    (void)data;
    return (struct peers_self){.has_log = true, .cluster_id = 7, .version = 1};
}

static void agent_frame(void *data, struct link *link, uint8_t type, struct slice payload) {
    (void)link, (void)type, (void)payload;
    ((struct closed_server *)data)->frames++;
}
static void agent_closed(void *data, struct link *link, int error) {
    (void)link, (void)error;
    ((struct closed_server *)data)->going--;
}
static void on_agent(void *data, struct link *link, const Pb__PeerHello *hello) {
    static const struct link_callbacks callbacks = {.frame = agent_frame, .closed = agent_closed};
    struct closed_server *server = data;
    CHECK(hello->agent && link_peer(link) && link_peer(link)->role != TLS_ROLE_NONE);
    CHECK(slice_equal_nocase(slice_text(hello->node), slice_text(link_peer(link)->node)));
    server->agents++, server->going++;
    link_adopt(link, &callbacks, server);
}

static const char *distrusts(void *data, const struct tls_certificate *certificate) {
    struct closed_server *server = data;
    const char *why = trust_refuses(store_read(server->rpc.loop_reader), certificate->role == TLS_ROLE_SERVER,
                                    certificate->node, slice_make(certificate->pin, sizeof certificate->pin));
    store_read_done(server->rpc.loop_reader);
    return why;
}

static void enrol(void *data, struct link *link, uint8_t type, struct slice payload) {
    struct closed_server *server = data;
    if (server->enrolment) enrolment_take(server->enrolment, link, type, payload);
    else link_close(link);
}

/* -- what is trusted ----------------------------------------------------------------------------------------------------- */
static void apply(struct closed_server *server, uint8_t command, const ProtobufCMessage *message) {
    struct outcome outcome = fixture_apply(&server->f, command, message);
    if (outcome.error) fprintf(stderr, "%s\n", outcome.text);
    CHECK(outcome.error == CO_OK);
}

void closed_server_mode(struct closed_server *server, unsigned mode) {
    uint8_t pin[TLS_PIN_SIZE];
    struct arena arena = {0};
    Pb__TrustSetCommand command = PB__TRUST_SET_COMMAND__INIT;
    Pb__Trust trust = PB__TRUST__INIT;
    Pb__TrustCa ca = PB__TRUST_CA__INIT, *cas[] = {&ca};
    test_ca_pin(&server->ca, pin);
    const Pb__Trust *old = trust_read(store_read(server->f.reader), &arena);
    store_read_done(server->f.reader);
    ca.certificate = arena_strndup(&arena, server->ca.certificate.data, server->ca.certificate.size);
    ca.pin = (ProtobufCBinaryData){sizeof pin, pin};
    trust.domain = server->ca.domain, trust.mode = mode, trust.cas = cas, trust.n_cas = 1;
    command.trust = &trust, command.cas = old ? old->modify_index : 0;
    apply(server, TRUST_SET, &command.base);
    arena_free(&arena);
}

void closed_server_note(struct closed_server *server, const struct identity *identity) {
    struct tls_certificate read;
    uint8_t pin[TLS_PIN_SIZE];
    Pb__CertificateInfo info = PB__CERTIFICATE_INFO__INIT;
    Pb__TrustRenewedCommand command = PB__TRUST_RENEWED_COMMAND__INIT;
    test_ca_pin(&server->ca, pin);
    CHECK(tls_certificate_read(buffer_slice(&identity->chain), &read, NULL) == CO_OK);
    info.node = read.node, info.server = read.role == TLS_ROLE_SERVER, info.serial = read.serial;
    info.from_s = read.life.from_s, info.to_s = read.life.to_s;
    info.pin = (ProtobufCBinaryData){TLS_PIN_SIZE, read.pin}, info.ca_pin = (ProtobufCBinaryData){TLS_PIN_SIZE, pin};
    command.certificate = &info, command.any = true;
    apply(server, TRUST_RENEWED, &command.base);
}

void closed_server_admit(struct closed_server *server, const struct join_token *token, const char *glob,
                         unsigned uses) {
    uint8_t hash[JOIN_TOKEN_HASH_SIZE];
    Pb__JoinToken record = PB__JOIN_TOKEN__INIT;
    Pb__JoinTokenCreateCommand command = PB__JOIN_TOKEN_CREATE_COMMAND__INIT;
    CHECK(authority_hash(server->authority, token, hash));
    record.id = message_bytes(slice_make(token->id, sizeof token->id));
    record.hash = (ProtobufCBinaryData){sizeof hash, hash};
    record.server = token->role == TLS_ROLE_SERVER, record.node = (char *)(uintptr_t)glob, record.uses = uses;
    command.token = &record;
    apply(server, JOIN_TOKEN_CREATE, &command.base);
}

struct join_token closed_server_token(struct closed_server *server, enum tls_role role, const char *glob,
                                      unsigned uses) {
    struct join_token token;
    uint8_t pin[TLS_PIN_SIZE];
    test_ca_pin(&server->ca, pin);
    CHECK(join_token_make(role, pin, &token, NULL) == CO_OK);
    closed_server_admit(server, &token, glob, uses);
    return token;
}

const Pb__NodeCertificate *closed_server_record(struct closed_server *server, bool is_server, const char *node) {
    Pb__CertificatesRequest request = PB__CERTIFICATES_REQUEST__INIT;
    struct query_result result = fixture_ask(&server->f, &query_certificates, &request.base);
    const Pb__CertificatesResult *all = (const Pb__CertificatesResult *)result.message;
    for (size_t i = 0; i < all->n_certificates; i++)
        if (all->certificates[i]->now->server == is_server && strcmp(all->certificates[i]->now->node, node) == 0)
            return all->certificates[i];
    return NULL;
}

/* -- life ---------------------------------------------------------------------------------------------------------------- */
static void protect(struct closed_server *server) {
    struct tls_context_config inner = {.only_tls13 = true};
    struct security_rules rules = {.kind = SECURITY_CLUSTER, .asks_clients = true};
    struct tls_issuer issuer = {buffer_slice(&server->ca.certificate), buffer_slice(&server->ca.key)};
    memcpy(rules.domain, server->ca.domain, sizeof rules.domain);
    server->security = security_new();
    security_set(server->security, &rules, context_of(&server->identity, &server->ca, inner));
    server->authority = authority_new();
    CHECK(authority_store(server->authority, server->folder, &issuer, SLICE_LITERAL("0123456789abcdef0123456789abcdef"),
                          NULL) == CO_OK);
}

void closed_server_start(struct closed_server *server, uv_loop_t *loop) {
    uint16_t port;
    struct fault fault = {0};
    *server = (struct closed_server){.role = {.submit = submit, .post = post, .peers = no_peers}};
    free_ports(1, &port);
    snprintf(server->address, sizeof server->address, "127.0.0.1:%u", port);
    fixture_open(&server->f);
    fixture_found(&server->f);
    snprintf(server->folder, sizeof server->folder, "%s", scratch_folder());
    test_ca_make(&server->ca);
    identity_make(&server->ca, TLS_ROLE_SERVER, "s1", -DAY_S, DAY_S, &server->identity);
    protect(server);
    closed_server_mode(server, TRUST_CLOSED);
    closed_server_note(server, &server->identity);
    list_init(&server->tasks);
    server->rpc = (struct rpc){.role = &server->role,
                               .loop = loop,
                               .machine = server->f.machine,
                               .node_name = (char *)(uintptr_t) "s1",
                               .cluster = (char *)(uintptr_t) "dc1",
                               .loop_reader = store_reader_new(machine_store(server->f.machine))};
    CHECK(uv_async_init(loop, &server->posted, run_posted) == 0);
    server->posted.data = server;
    struct enrolment_config enrolments = {.authority = server->authority,
                                          .security = server->security,
                                          .datacenter = "dc1",
                                          .dns_domain = "coord",
                                          .life_s = 7 * DAY_S};
    server->enrolment = enrolment_new(&server->rpc, &enrolments);
    struct peers_config config = {.bind = "127.0.0.1",
                                  .port = port,
                                  .address = server->address,
                                  .cluster = "dc1",
                                  .node = "s1",
                                  .id = 1,
                                  .expect = 1,
                                  .version_least = 1,
                                  .version_most = 1,
                                  .security = server->security};
    struct peers_callbacks callbacks = {.data = server,
                                        .frame = on_frame,
                                        .up = on_up,
                                        .down = on_down,
                                        .self = self_of,
                                        .agent = on_agent,
                                        .distrusts = distrusts,
                                        .enrol = enrol};
    if (peers_start(loop, &config, &callbacks, &server->peers, &fault) != CO_OK) fprintf(stderr, "%s\n", fault.text);
    CHECK(server->peers);
    server->going = 3;
}

static void over(void *data) { ((struct closed_server *)data)->going--; }
static void async_over(uv_handle_t *handle) { over(handle->data); }
static void enrolment_over(void *data) {
    struct closed_server *server = data;
    uv_close((uv_handle_t *)&server->posted, async_over);
    peers_stop(server->peers, over, server);
    over(server);
}

void closed_server_stop(struct closed_server *server) {
    struct enrolment *enrolment = server->enrolment;
    server->enrolment = NULL;
    enrolment_stop(enrolment, enrolment_over, server);
}
bool closed_server_stopped(const struct closed_server *server) { return server->going == 0; }

void closed_server_free(struct closed_server *server) {
    CHECK(closed_server_stopped(server) && list_empty(&server->tasks));
    store_read_done(server->rpc.loop_reader);
    store_reader_free(server->rpc.loop_reader);
    security_free(server->security);
    authority_free(server->authority);
    identity_free(&server->identity);
    test_ca_free(&server->ca);
    scratch_remove(server->folder);
    fixture_close(&server->f);
}
