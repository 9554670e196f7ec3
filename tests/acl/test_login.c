#include <criterion/criterion.h>
#include <stdio.h>

#include "acl/login.h"
#include "base/check.h"

static const int64_t NOW = 1800000000, DAY = 86400;

/* -- units of systemd --------------------------------------------------------------------------------------------------- */
Test(login, units) {
    static const struct {
        const char *cgroup, *wanted;
    } rows[] = {
        {"0::/system.slice/web.service\n", "web.service"},
        {"0::/system.slice/system-web.slice/web@1.service/sub/other.service\n", "web@1.service"},
        {"0::/web.service", "web.service"},
        {"0::/system.slice/docker-1f.scope\n", "docker-1f.scope"},
        {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/web.service\n", "user@1000.service"},
        {"0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope"},
        {"0::/\n", ""},
        {"0::/system.slice\n", ""},
        {"0::/../system.slice/web.service\n", ""},
        {"0::/mine/system.slice/web.service\n", ""},
        {"", ""},
        {"nonsense", ""},
        {"4:memory:/system.slice/web.service\n", ""},
        {"2:cpu:/x\n1:name=systemd:/system.slice/db.service\n0::/system.slice/web.service\n", "db.service"},
        {"0::/system.slice/web.service\n1:name=systemd:/\n", ""},
        {"3:x,name=systemd:/a.service\n", ""},
        {"0::/.service\n", ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct slice unit = proof_unit(slice_text(rows[i].cgroup));
        cr_expect(slice_is(unit, rows[i].wanted), "%s: %.*s", rows[i].cgroup, (int)unit.size, unit.data);
    }
}

/* -- a login, whole ------------------------------------------------------------------------------------------------------ */
static Pb__AclAuthMethod method_of(const char *type, const char *config) {
    Pb__AclAuthMethod method = PB__ACL_AUTH_METHOD__INIT;
    method.name = "m", method.type = (char *)(uintptr_t)type;
    method.config = (ProtobufCBinaryData){strlen(config), (uint8_t *)(uintptr_t)config};
    return method;
}

struct outcome {
    int error;
    struct fault fault;
    char service[256], who[256];
};

/* By one rule with this selector, which binds the service "ok-NAME". */
static struct outcome log_in(const Pb__AclAuthMethod *method, const struct login *login, const char *selector,
                             const char *bind) {
    Pb__AclBindingRule rule = PB__ACL_BINDING_RULE__INIT, *rules[] = {&rule};
    Pb__AclToken token = PB__ACL_TOKEN__INIT;
    struct arena arena = {0};
    struct proven proven;
    struct outcome out = {0};
    rule.id = "r", rule.selector = (char *)(uintptr_t)selector, rule.bind_type = "service";
    rule.bind_name = (char *)(uintptr_t)bind;
    out.error = acl_login_verify(method, login, &arena, &proven, &out.fault);
    if (!out.error) out.error = acl_login_bind(method, rules, 1, &proven.variables, &token, &arena, &out.fault);
    if (!out.error) snprintf(out.service, sizeof out.service, "%s", token.service_identities[0]->service);
    if (!out.error) snprintf(out.who, sizeof out.who, "%s", proven.who);
    arena_free(&arena);
    return out;
}

static Pb__AclProof program(void) {
    Pb__AclProof proof = PB__ACL_PROOF__INIT;
    proof.host = "h9", proof.local = true, proof.uid = 33, proof.gid = 34;
    proof.user = "web", proof.group = "www", proof.unit = "web.service";
    return proof;
}

Test(login, programs_by_their_credentials) {
    static const struct {
        const char *selector;
        bool fits;
    } rows[] = {
        {"", true},
        {"value.user == web", true},
        {"value.user == root", false},
        {"value.group == www", true},
        {"value.group == web", false},
        {"value.uid == \"33\" and value.gid == \"34\"", true},
        {"value.uid == \"34\"", false},
        {"value.gid == \"33\"", false},
        {"value.unit == web.service", true},
        {"value.unit == db.service", false},
        {"value.host == h9", true},
        {"value.host != h9", false},
    };
    Pb__AclAuthMethod method = method_of("unix", "{}");
    Pb__AclProof proof = program();
    struct login login = {.proof = &proof, .now_s = NOW};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct outcome out = log_in(&method, &login, rows[i].selector, "ok-${value.user}");
        cr_expect_eq(out.error, rows[i].fits ? CO_OK : CO_DENIED, "%s: %s", rows[i].selector, out.fault.text);
        cr_expect_str_eq(out.service, rows[i].fits ? "ok-web" : "", "%s", rows[i].selector);
        cr_expect_str_eq(out.who, rows[i].fits ? "unix:web@h9" : "", "%s", rows[i].selector);
    }
    proof.user = "";
    struct outcome out = log_in(&method, &login, "value.user == \"\"", "x");
    cr_expect(out.error == CO_OK && strcmp(out.who, "unix:uid=33@h9") == 0, "%s", out.who);
    proof.user = "a\nb";
    cr_expect_str_eq(log_in(&method, &login, "", "x").who, "unix:a?b@h9");
}

Test(login, what_proves_no_program) {
    Pb__AclAuthMethod method = method_of("unix", "{}"), bound = method_of("unix", "{\"BoundNodes\":[\"db-*\",\"H9\"]}"),
                      elsewhere = method_of("unix", "{\"BoundNodes\":[\"db-*\"]}");
    Pb__AclProof proof = program();
    struct login login = {.proof = &proof, .now_s = NOW};
    cr_expect_eq(log_in(&bound, &login, "", "x").error, CO_OK);
    struct outcome out = log_in(&elsewhere, &login, "", "x");
    cr_expect(out.error == CO_DENIED && strstr(out.fault.text, "no logins on the node h9"), "%s", out.fault.text);
    proof.host = "";
    out = log_in(&method, &login, "", "x");
    cr_expect(out.error == CO_DENIED && strstr(out.fault.text, "nothing proves"), "%s", out.fault.text);
    proof.host = "h9", proof.local = false;
    out = log_in(&method, &login, "", "x");
    cr_expect(out.error == CO_DENIED && strstr(out.fault.text, "over TCP"), "%s", out.fault.text);
    login.proof = NULL;
    cr_expect_eq(log_in(&method, &login, "", "x").error, CO_DENIED);
    login.proof = &proof, proof.local = true, login.shown = SLICE_LITERAL("words");
    cr_expect_eq(log_in(&method, &login, "", "x").error, CO_INVALID);
}

/* -- certificates -------------------------------------------------------------------------------------------------------- */
struct authority {
    struct buffer key, certificate;
    char domain[TLS_DOMAIN_SIZE + 1];
};

static struct authority authority_make(void) {
    struct authority ca = {0};
    cr_assert_eq(tls_key_make(&ca.key, NULL), CO_OK);
    cr_assert_eq(tls_domain_make(ca.domain, NULL), CO_OK);
    cr_assert_eq(tls_ca_make(buffer_slice(&ca.key), ca.domain, (struct tls_life){NOW - DAY, NOW + 9 * DAY},
                             &ca.certificate, NULL),
                 CO_OK);
    return ca;
}

static void authority_free(struct authority *ca) { buffer_free(&ca->key), buffer_free(&ca->certificate); }
static struct tls_issuer issuer(const struct authority *ca) {
    return (struct tls_issuer){buffer_slice(&ca->certificate), buffer_slice(&ca->key)};
}

static void plain(const struct authority *ca, const char *name, bool client, struct buffer *der) {
    struct buffer key = {0}, pem = {0};
    const char *const names[] = {"Web.Example", "x.example", NULL};
    struct tls_plain_subject subject = {.common_name = name, .names = names, .server = !client, .client = client};
    struct tls_issuer by = issuer(ca);
    cr_assert_eq(tls_key_make(&key, NULL), CO_OK);
    cr_assert_eq(
        tls_issue_plain(&by, buffer_slice(&key), &subject, (struct tls_life){NOW - DAY, NOW + DAY}, &pem, NULL), CO_OK);
    cr_assert_eq(tls_certificate_to_der(buffer_slice(&pem), der, NULL), CO_OK);
    buffer_free(&key), buffer_free(&pem);
}

static void of_node(const struct authority *ca, struct buffer *der) {
    struct buffer key = {0}, request = {0}, chain = {0};
    struct tls_subject subject = {
        .domain = ca->domain, .role = TLS_ROLE_AGENT, .node = "h1", .datacenter = "dc1", .dns_domain = "coord"};
    struct tls_issuer by = issuer(ca);
    cr_assert_eq(tls_key_make(&key, NULL), CO_OK);
    cr_assert_eq(tls_request_make(buffer_slice(&key), &request, NULL), CO_OK);
    cr_assert_eq(
        tls_issue(&by, buffer_slice(&request), &subject, (struct tls_life){NOW - DAY, NOW + DAY}, &chain, NULL), CO_OK);
    cr_assert_eq(tls_certificate_to_der(buffer_slice(&chain), der, NULL), CO_OK);
    buffer_free(&key), buffer_free(&request), buffer_free(&chain);
}

static struct outcome by_certificate(const char *config, struct slice cas, struct slice der, int64_t now_s,
                                     const char *selector, const char *bind) {
    Pb__AclAuthMethod method = method_of("certificate", config);
    Pb__AclProof proof = PB__ACL_PROOF__INIT;
    ProtobufCBinaryData shown = {der.size, (uint8_t *)(uintptr_t)der.data};
    struct login login = {.proof = &proof, .cluster_cas = cas, .now_s = now_s};
    proof.host = "h9", proof.certificates = &shown, proof.n_certificates = der.size ? 1 : 0;
    return log_in(&method, &login, selector, bind);
}

/* {"CACerts": [...]} of this CA, into `config`. */
static const char *config_of(const struct authority *ca, struct buffer *config) {
    buffer_append_text(config, "{\"CACerts\":[\"");
    for (size_t i = 0; i < ca->certificate.size; i++)
        if (ca->certificate.data[i] == '\n') buffer_append_text(config, "\\n");
        else buffer_append_byte(config, ca->certificate.data[i]);
    buffer_append_text(config, "\"]}");
    buffer_append_byte(config, '\0');
    config->size--;
    return config->data;
}

Test(login, certificates) {
    struct authority company = authority_make(), other = authority_make();
    struct buffer der = {0}, node = {0}, server = {0}, text = {0};
    const char *config = config_of(&company, &text);
    struct slice none = {0};
    char uri[128], selector[160];
    plain(&company, "web-7", true, &der), of_node(&company, &node), plain(&company, "web-7", false, &server);
    struct slice shown = buffer_slice(&der);
    static const struct {
        const char *selector;
        bool fits;
    } rows[] = {
        {"value.cn == \"web-7\"", true},
        {"value.cn == web", false},
        {"\"web.example\" in list.dns and \"x.example\" in list.dns", true},
        {"\"Web.Example\" in list.dns", false},
        {"list.uri is empty", true},
        {"value.host == h9 and value.serial matches \"^[0-9a-f]+$\"", true},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct outcome out = by_certificate(config, none, shown, NOW, rows[i].selector, "ok-${value.cn}");
        cr_expect_eq(out.error, rows[i].fits ? CO_OK : CO_DENIED, "%s: %s", rows[i].selector, out.fault.text);
        cr_expect_str_eq(out.who, rows[i].fits ? "certificate:web-7@h9" : "", "%s", rows[i].selector);
    }
    snprintf(uri, sizeof uri, "spiffe://%s/agent/h1", company.domain);
    snprintf(selector, sizeof selector, "\"%s\" in list.uri", uri);
    cr_expect_eq(by_certificate(config, none, buffer_slice(&node), NOW, selector, "x").error, CO_OK);

    cr_expect_eq(by_certificate(config, none, none, NOW, "", "x").error, CO_DENIED, "none is shown");
    cr_expect_eq(by_certificate(config, none, shown, NOW + 2 * DAY, "", "x").error, CO_DENIED, "expired");
    cr_expect_eq(by_certificate(config, none, shown, NOW - 2 * DAY, "", "x").error, CO_DENIED, "not yet");
    cr_expect_eq(by_certificate(config, none, buffer_slice(&server), NOW, "", "x").error, CO_DENIED, "no client's");
    cr_expect_eq(by_certificate("{}", none, shown, NOW, "", "x").error, CO_DENIED, "no CA at all");
    cr_expect_eq(by_certificate("{}", buffer_slice(&company.certificate), shown, NOW, "", "x").error, CO_OK,
                 "the cluster's");
    cr_expect_eq(by_certificate("{}", buffer_slice(&other.certificate), shown, NOW, "", "x").error, CO_DENIED);
    cr_expect_eq(by_certificate(config, buffer_slice(&other.certificate), shown, NOW, "", "x").error, CO_OK);
    struct buffer theirs = {0};
    plain(&other, "web-7", true, &theirs);
    cr_expect_eq(by_certificate(config, buffer_slice(&other.certificate), buffer_slice(&theirs), NOW, "", "x").error,
                 CO_DENIED, "a method with CAs does not take the cluster's");
    buffer_free(&theirs), buffer_free(&der), buffer_free(&node), buffer_free(&server), buffer_free(&text);
    authority_free(&company), authority_free(&other);
}

/* -- configurations ------------------------------------------------------------------------------------------------------ */
Test(login, configurations) {
    static const struct {
        const char *type, *config, *wanted; /* NULL: it is taken */
    } rows[] = {
        {"unix", "", NULL},
        {"unix", "{\"BoundNodes\":[]}", NULL},
        {"unix", "{\"BoundNodes\":[\"web-*\"]}", NULL},
        {"unix", "{\"BoundNode\":[]}", "unknown key \"BoundNode\" (nearest: \"BoundNodes\")"},
        {"unix", "{\"CACerts\":[]}", "unknown key \"CACerts\""},
        {"unix", "{\"BoundNodes\":[\"\"]}", "BoundNodes[0]"},
        {"unix", "{\"BoundNodes\":[1]}", "BoundNodes[0]: a text is wanted"},
        {"certificate", "{}", NULL},
        {"certificate", "{\"CACerts\":[]}", NULL},
        {"certificate", "{\"CACerts\":[\"x\"]}", "CACerts[0]"},
        {"certificate", "{\"CACert\":[]}", "unknown key \"CACert\" (nearest: \"CACerts\")"},
        {"certificate", "{\"BoundIssuer\":\"x\"}", "unknown key \"BoundIssuer\""},
        {"Unix", "{}", "[jwt unix certificate]"},
        {"kubernetes", "{}", "[jwt unix certificate]"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        Pb__AclAuthMethod method = method_of(rows[i].type, rows[i].config);
        cr_expect_eq(acl_login_check(&method, &fault), rows[i].wanted ? CO_INVALID : CO_OK, "%s %s: %s", rows[i].type,
                     rows[i].config, fault.text);
        cr_expect(!rows[i].wanted || strstr(fault.text, rows[i].wanted), "%s: %s", rows[i].config, fault.text);
    }
    struct authority ca = authority_make();
    struct buffer text = {0};
    Pb__AclAuthMethod with = method_of("certificate", config_of(&ca, &text)), without = method_of("certificate", "{}"),
                      program = method_of("unix", "{}");
    cr_expect_eq(acl_login_check(&with, NULL), CO_OK);
    cr_expect(acl_login_of_cluster(&without) && !acl_login_of_cluster(&with) && !acl_login_of_cluster(&program));
    buffer_free(&text), authority_free(&ca);
}

Test(login, rules_name_what_the_method_has) {
    static const struct {
        const char *type, *selector, *name;
        bool fits;
    } rows[] = {
        {"unix", "value.user == x", "a-${value.unit}", true},
        {"unix", "value.cn == x", "a", false},
        {"unix", "", "a-${value.cn}", false},
        {"certificate", "x in list.uri", "a-${value.cn}", true},
        {"certificate", "value.user == x", "a", false},
        {"certificate", "", "${list.dns}", false},
        {"certificate", "value.dns == x", "a", false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        Pb__AclAuthMethod method = method_of(rows[i].type, "{}");
        Pb__AclBindingRule rule = PB__ACL_BINDING_RULE__INIT;
        rule.selector = (char *)(uintptr_t)rows[i].selector, rule.bind_name = (char *)(uintptr_t)rows[i].name;
        cr_expect_eq(acl_login_check_rule(&method, &rule, NULL), rows[i].fits ? CO_OK : CO_INVALID, "%s %s",
                     rows[i].selector, rows[i].name);
    }
}
