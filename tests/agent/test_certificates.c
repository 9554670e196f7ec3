/* Certificates from files and from the cluster's folder: taken, refused, replaced. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/certificates.h"
#include "base/clock.h"
#include "base/log.h"
#include "tls/certificate.h"
#include "tls/folder.h"

struct pair {
    struct buffer key, certificate;
};

static char folder[] = "/tmp/coord-certificates-XXXXXX";
static char certificate_path[64], key_path[64], ca_path[64];
static struct pair authority;
static struct config config;
static struct fault fault;
static uv_loop_t loop;
static struct certificates *certificates;

static struct tls_life life(void) {
    int64_t now_s = clock_wall_ns() / 1000000000;
    return (struct tls_life){now_s - 60, now_s + 3600};
}

static struct pair give(const char *name) {
    static const char *const names[] = {"localhost", NULL};
    struct pair pair = {0};
    struct tls_issuer issuer = {buffer_slice(&authority.certificate), buffer_slice(&authority.key)};
    struct tls_plain_subject subject = {.common_name = name, .names = names, .server = true};
    cr_assert_eq(tls_key_make(&pair.key, NULL), CO_OK);
    cr_assert_eq(tls_issue_plain(&issuer, buffer_slice(&pair.key), &subject, life(), &pair.certificate, &fault), CO_OK,
                 "%s", fault.text);
    return pair;
}

static void pair_free(struct pair *pair) {
    tls_wipe(&pair->key);
    buffer_free(&pair->certificate);
}

static void put(const char *path, struct slice text) {
    char fresh[80];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    int fd = open(fresh, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    cr_assert(fd >= 0 && write(fd, text.data, text.size) == (ssize_t)text.size);
    close(fd);
    cr_assert_eq(rename(fresh, path), 0);
}

static void put_pair(const struct pair *pair) {
    put(key_path, buffer_slice(&pair->key));
    put(certificate_path, buffer_slice(&pair->certificate));
}

static void begin(void) {
    char domain[TLS_DOMAIN_SIZE + 1];
    log_level_now = LOG_ERROR + 1;
    cr_assert_not_null(mkdtemp(folder));
    snprintf(certificate_path, sizeof certificate_path, "%s/cert.pem", folder);
    snprintf(key_path, sizeof key_path, "%s/key.pem", folder);
    snprintf(ca_path, sizeof ca_path, "%s/ca.pem", folder);
    cr_assert_eq(tls_key_make(&authority.key, NULL), CO_OK);
    cr_assert_eq(tls_domain_make(domain, NULL), CO_OK);
    cr_assert_eq(tls_ca_make(buffer_slice(&authority.key), domain, life(), &authority.certificate, NULL), CO_OK);
    uv_loop_init(&loop);
    config_init(&config);
    fault = (struct fault){0};
    certificates = NULL;
    config.data_dir = folder;
    config.https_port = 0;
}

static void note_end(void *data) { *(bool *)data = true; }

static void end(void) {
    char command[96];
    bool ended = false;
    certificates_stop(certificates, note_end, &ended);
    while (!ended) uv_run(&loop, UV_RUN_ONCE);
    certificates_free(certificates);
    cr_expect_eq(uv_loop_close(&loop), 0, "nothing is left in the loop");
    config_free(&config);
    pair_free(&authority);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}
TestSuite(certificates, .init = begin, .fini = end);

static int start(void) {
    cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
    return certificates_start(&loop, &config, folder, &certificates, &fault);
}

static void name_files(void) {
    config.tls_defaults.cert_file = certificate_path;
    config.tls_defaults.key_file = key_path;
}

/* The common name of the present certificate. */
static const char *present(void) {
    static struct tls_certificate certificate;
    struct tls_context *context = tls_slot_get(certificates_https(certificates));
    cr_assert_not_null(context);
    cr_assert_eq(tls_certificate_read(tls_context_chain(context), &certificate, NULL), CO_OK);
    tls_context_unref(context);
    return certificate.common_name;
}

/* Reads again, and waits until that is done. */
static void reload(void) {
    certificates_reload(certificates, &config);
    while (certificates_busy(certificates)) uv_run(&loop, UV_RUN_ONCE);
}

Test(certificates, nobody_needs_any) {
    config.https_port = -1;
    cr_expect_eq(start(), CO_OK);
    cr_expect_null(certificates);
    cr_expect_null(certificates_https(NULL));
    certificates_reload(NULL, &config);
}

Test(certificates, where_they_come_from) {
    struct config_tls none = {0}, files = {.cert_file = "x", .key_file = "y"};
    cr_expect_eq(certificates_source(&none, folder), CERTIFICATES_NONE);
    cr_expect_eq(certificates_source(&none, NULL), CERTIFICATES_NONE);
    struct pair pair = give("node");
    cr_assert_eq(tls_folder_make(folder, &fault), CO_OK);
    cr_assert_eq(tls_folder_write_pair(folder, buffer_slice(&pair.certificate), buffer_slice(&pair.key), &fault),
                 CO_OK);
    cr_assert_eq(tls_folder_write(folder, TLS_FILE_CA, buffer_slice(&authority.certificate), &fault), CO_OK);
    cr_expect_eq(certificates_source(&none, folder), CERTIFICATES_CLUSTER);
    cr_expect_eq(certificates_source(&files, folder), CERTIFICATES_FILES, "named files win");
    cr_assert_eq(start(), CO_OK, "%s", fault.text);
    cr_expect_str_eq(present(), "node");
    struct pair next = give("renewed");
    cr_assert_eq(tls_folder_write_pair(folder, buffer_slice(&next.certificate), buffer_slice(&next.key), &fault),
                 CO_OK);
    reload();
    cr_expect_str_eq(present(), "renewed");
    pair_free(&pair), pair_free(&next);
}

Test(certificates, replaced_and_refused) {
    struct pair first = give("first"), second = give("second"), third = give("third");
    put_pair(&first);
    name_files();
    cr_assert_eq(start(), CO_OK, "%s", fault.text);
    cr_expect_str_eq(present(), "first");
    put_pair(&second);
    reload();
    cr_expect_str_eq(present(), "second");
    put(certificate_path, buffer_slice(&third.certificate)); /* the key is that of the second */
    reload();
    cr_expect_str_eq(present(), "second", "a pair that does not fit changes nothing");
    put(certificate_path, SLICE_LITERAL("no certificate"));
    reload();
    cr_expect_str_eq(present(), "second");
    put_pair(&third);
    chmod(key_path, 0644);
    reload();
    cr_expect_str_eq(present(), "second", "others may read the key");
    chmod(key_path, 0600);
    reload();
    cr_expect_str_eq(present(), "third");
    pair_free(&first), pair_free(&second), pair_free(&third);
}

Test(certificates, seen_without_a_word) {
    struct pair first = give("first"), second = give("second");
    put_pair(&first);
    name_files();
    cr_assert_eq(start(), CO_OK, "%s", fault.text);
    put_pair(&second);
    uint64_t until_ms = clock_mono_ms() + 30000;
    while (strcmp(present(), "second") != 0 && clock_mono_ms() < until_ms) uv_run(&loop, UV_RUN_ONCE);
    cr_expect_str_eq(present(), "second", "the files are looked at every few seconds");
    pair_free(&first), pair_free(&second);
}

Test(certificates, a_start_without_what_it_needs) {
    struct pair pair = give("first"), other = give("other");
    cr_expect_eq(start(), CO_INVALID);
    cr_expect_str_eq(fault.text, "ports.https: needs cert_file and key_file");
    name_files();
    fault = (struct fault){0};
    cr_expect_eq(start(), CO_NOTFOUND);
    cr_expect_not_null(strstr(fault.text, "cert.pem: No such file or directory"), "%s", fault.text);
    put(key_path, buffer_slice(&other.key));
    put(certificate_path, buffer_slice(&pair.certificate));
    fault = (struct fault){0};
    cr_expect_eq(start(), CO_INVALID);
    cr_expect(strstr(fault.text, "cert.pem and ") && strstr(fault.text, "key.pem: "), "%s", fault.text);
    put_pair(&pair);
    config.tls_defaults.verify_incoming = true;
    fault = (struct fault){0};
    cr_expect_eq(start(), CO_INVALID);
    cr_expect_str_eq(fault.text, "verify_incoming: needs the CAs of clients (ca_file or ca_path)");
    config.tls_defaults.ca_file = key_path;
    fault = (struct fault){0};
    cr_expect_eq(start(), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "holds no certificate"), "%s", fault.text);
    config.tls_defaults.ca_file = NULL;
    config.tls_https.ca_file = NULL;
    config.tls_defaults.ca_path = folder; /* has the pair, too: every certificate in it is one that is trusted */
    put(ca_path, buffer_slice(&authority.certificate));
    fault = (struct fault){0};
    cr_assert_eq(start(), CO_OK, "%s", fault.text);
    struct tls_context *context = tls_slot_get(certificates_https(certificates));
    cr_expect_eq(tls_certificate_count(tls_context_trusted(context)), 2);
    tls_context_unref(context);
    pair_free(&pair), pair_free(&other);
}
