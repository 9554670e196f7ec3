/* Certificates of nodes as the API shows them; closing a cluster, over a state of the test's own. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/api/trust_views.h"
#include "registry/trust.h"
#include "web_world.h"

static Pb__CertificateInfo infos[4];
static Pb__NodeCertificate records[4], *list[4];
static Pb__CertificatesResult all = PB__CERTIFICATES_RESULT__INIT;

static void add(bool server, const char *node, bool removed) {
    size_t i = all.n_certificates++;
    infos[i] = (Pb__CertificateInfo)PB__CERTIFICATE_INFO__INIT;
    infos[i].server = server, infos[i].node = (char *)(uintptr_t)node, infos[i].from_s = 1000, infos[i].to_s = 2000;
    records[i] = (Pb__NodeCertificate)PB__NODE_CERTIFICATE__INIT;
    records[i].now = &infos[i], records[i].removed = removed;
    list[i] = &records[i], all.certificates = list;
}

Test(trust_views, names_are_found_by_role_without_regard_to_case) {
    struct arena arena = {0};
    add(true, "s1", false), add(false, "Web-2", false), add(false, "db", true), add(false, "web-10", false);
    struct trust_names names = trust_names_of(&arena, &all);
    cr_expect_eq(names.count, 3);
    cr_expect(trust_has(&names, true, "S1") && trust_has(&names, false, "web-2") && trust_has(&names, false, "WEB-10"));
    cr_expect(!trust_has(&names, false, "s1"), "it has one as a server");
    cr_expect(!trust_has(&names, false, "db"), "it was removed");
    cr_expect(!trust_has(&names, false, "web-1") && !trust_has(&names, true, ""));
    arena_free(&arena);
}

Test(trust_views, states) {
    add(true, "s1", false);
    cr_expect_eq(trust_renews_s(&infos[0]), 1500);
    cr_expect_str_eq(trust_state(&records[0], 1499), "valid");
    cr_expect_str_eq(trust_state(&records[0], 1500), "renewal-due");
    cr_expect_str_eq(trust_state(&records[0], 2000), "renewal-due");
    cr_expect_str_eq(trust_state(&records[0], 2001), "expired");
    records[0].removed = true;
    cr_expect_str_eq(trust_state(&records[0], 1499), "removed");
}

/* -- over HTTP --------------------------------------------------------------------------------------------------------- */
static _Atomic int written = -1;
static void done(struct rpc_write *write, int error, const struct machine_result *result) {
    (void)write;
    written = error ? error : result->error;
}

static void set_trust(struct world *world, uint32_t mode) {
    static uint8_t pin[32] = "pin";
    static struct rpc_write write;
    Pb__TrustCa ca = PB__TRUST_CA__INIT, *cas[] = {&ca};
    Pb__Trust trust = PB__TRUST__INIT;
    Pb__TrustSetCommand command = PB__TRUST_SET_COMMAND__INIT;
    Pb__CertificateInfo founder = PB__CERTIFICATE_INFO__INIT, *founders[] = {&founder};
    ca.certificate = "no PEM", ca.pin = (ProtobufCBinaryData){32, pin};
    trust.domain = "0123456789abcdef0123456789abcdef", trust.cas = cas, trust.n_cas = 1, trust.mode = mode;
    founder.node = "n1", founder.serial = "1f", founder.to_s = INT32_MAX;
    founder.pin = founder.ca_pin = (ProtobufCBinaryData){32, pin};
    command.trust = &trust, command.founders = founders, command.n_founders = 1;
    write.done = done;
    rpc_submit(world_rpc(world), &write, TRUST_SET, &command.base);
    EVENTUALLY(written >= 0);
    cr_assert_eq(written, CO_OK);
}

static void wants(struct world *world, int status, const char *asked, const char *body, const char *part) {
    char *text = web_want(world, status, asked, body);
    cr_expect(strstr(text, part), "%s\n  got    %s\n  wanted %s", asked, text, part);
    free(text);
}

static void node(struct world *world, const char *name) {
    char body[200];
    snprintf(body, sizeof body,
             "{\"Node\":\"%s\",\"Address\":\"1.2.3.4\",\"Check\":{\"CheckID\":\"serfHealth\",\"Name\":\"x\",\"Status\":"
             "\"passing\"}}",
             name);
    free(web_want(world, 200, "PUT /v1/catalog/register", body));
}

Test(trust_views, an_open_cluster_has_no_ca) {
    struct world *world = world_start(NULL);
    node(world, "n1");
    wants(world, 404, "GET /v1/ca", NULL, "the cluster is open");
    wants(world, 200, "GET /v1/secure", NULL, "{\"Mode\":\"open\",\"With\":[],\"Without\":[\"n1\"],\"Strangers\":[]}");
    wants(world, 200, "GET /v1/join-tokens", NULL, "[]");
    wants(world, 200, "GET /v1/certificates", NULL, "[]");
    world_stop(world);
}

Test(trust_views, nodes_without_certificate_are_named) {
    struct world *world = world_start(NULL);
    node(world, "n1"), node(world, "n2"), node(world, "n3");
    set_trust(world, TRUST_BOTH);
    wants(world, 200, "GET /v1/secure", NULL,
          "{\"Mode\":\"both\",\"With\":[\"n1\"],\"Without\":[\"n2\",\"n3\"],\"Strangers\":[]}");
    wants(world, 200, "GET /v1/certificates", NULL,
          "[{\"Node\":\"n1\",\"Role\":\"agent\",\"Serial\":\"1f\",\"NotBefore\":\"1970-01-01T00:00:00Z\",\"NotAfter\":"
          "\"2038-01-19T03:14:07Z\",\"RenewAt\":\"2004-01-10T13:37:03Z\",\"State\":\"renewal-due\",\"CA\":\"70696e00");
    wants(world, 200, "GET /v1/ca", NULL,
          "\"Signs\":true,\"NotBefore\":null,\"NotAfter\":null,\"Names\":[\"n1\"],\"Nodes\":1");
    wants(world, 409, "PUT /v1/secure/finish", NULL,
          "2 nodes are without a certificate, and would be shut out: n2, n3.");
    wants(world, 409, "PUT /v1/secure/finish?without=N2", NULL,
          "1 node is without a certificate, and would be shut out: n3.");
    wants(world, 409, "PUT /v1/secure/finish", "{\"Without\":[\"n3\"]}", "shut out: n2.");
    wants(world, 400, "PUT /v1/secure/finish", "{\"Without\":[3]}", "Without[0]: a name of a node is wanted");
    wants(world, 400, "PUT /v1/secure/finish", "{\"Witout\":[]}", "nearest: \"Without\"");
    wants(world, 200, "PUT /v1/secure/finish?without=n2&without=n3", NULL, "true");
    wants(world, 200, "PUT /v1/secure/finish?without=n2", "{\"Without\":[\"n3\"]}", "true");
    wants(world, 400, "PUT /v1/secure/start", "{}", "takes no body");
    world_stop(world);
}

Test(trust_views, a_token_is_shown_once) {
    struct world *world = world_start(NULL);
    wants(world, 200, "PUT /v1/join-token", NULL, "\"Token\":\"coord1a.");
    wants(world, 200, "PUT /v1/join-token", NULL,
          "\"Role\":\"agent\",\"Node\":\"\",\"Uses\":1,\"TTL\":\"1h0m0s\",\"ExpiresAt\":\"20");
    wants(world, 200, "PUT /v1/join-token", "{\"Role\":\"server\",\"TTL\":\"90s\",\"Uses\":0,\"Node\":\"web-*\"}",
          "\"Role\":\"server\",\"Node\":\"web-*\",\"Uses\":0,\"TTL\":\"1m30s\",\"ExpiresAt\":\"20");
    wants(world, 400, "DELETE /v1/join-token/abc", NULL, "not the id of a join token");
    wants(world, 404, "DELETE /v1/join-token/abcdefgh", NULL, "no such join token");
    world_stop(world);
}
