/* coord tls ca create | cert create: a CA and certificates as files, with Consul's flags and the names of its files. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/cmd.h"
#include "base/check.h"
#include "base/host.h"
#include "base/memory.h"
#include "base/timestamp.h"
#include "tls/certificate.h"
#include "tls/folder.h"

#define DAY_S          86400
#define DAYS_MOST      36500
#define CA_DAYS        1825
#define DAYS           365
#define BACK_S         60 /* clocks differ */
#define DEFAULT_DOMAIN "coord"
#define NUMBERS_MOST   10000 /* of pairs of files */

/* -- files -------------------------------------------------------------------------------------------------------- */
struct pair_paths {
    char *certificate, *key;
};

static void pair_paths_free(struct pair_paths *paths) {
    free(paths->certificate);
    free(paths->key);
}

static struct pair_paths pair_paths(struct arena *arena, const char *begin) {
    return (struct pair_paths){mem_strdup(arena_printf(arena, "%s.pem", begin)),
                               mem_strdup(arena_printf(arena, "%s-key.pem", begin))};
}

static bool is_there(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

static int write_fault(struct fault *fault, const char *path, int errnum) {
    return fault_set(fault, errnum == EEXIST ? CO_EXISTS : CO_IO, "%s: %s", path,
                     errnum == EEXIST ? "it is there already, and stays as it is" : strerror(errnum));
}

static int write_whole(int fd, struct slice content) {
    while (content.size) {
        ssize_t done = write(fd, content.data, content.size);
        if (done < 0 && errno != EINTR) return errno;
        if (done > 0) content = slice_make(content.data + done, content.size - (size_t)done);
    }
    return fsync(fd) == 0 ? 0 : errno;
}

/* Never overwrites. Leaves no part of a file. */
static int create(const char *path, mode_t mode, struct slice content, struct fault *fault) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) return write_fault(fault, path, errno);
    int error = write_whole(fd, content);
    if (close(fd) != 0 && !error) error = errno;
    if (!error) return CO_OK;
    (void)unlink(path);
    return write_fault(fault, path, error);
}

static int save(const struct pair_paths *paths, const struct buffer *certificate, const struct buffer *key,
                struct fault *fault) {
    if (is_there(paths->key)) return write_fault(fault, paths->key, EEXIST);
    int rv = create(paths->certificate, 0644, buffer_slice(certificate), fault);
    if (rv != CO_OK) return rv;
    rv = create(paths->key, 0600, buffer_slice(key), fault);
    if (rv != CO_OK) (void)unlink(paths->certificate);
    else printf("==> Saved %s\n==> Saved %s\n", paths->certificate, paths->key);
    return rv;
}

/* -- what both check ---------------------------------------------------------------------------------------------- */
/* The domain is part of the files' names. */
static int check_label(const char *flag, const char *value, struct fault *fault) {
    if (host_labels_valid(slice_text(value))) return CO_OK;
    return fault_set(fault, CO_INVALID, "-%s: \"%.60s\" cannot be part of a DNS name", flag, value);
}

static int life_of(uint64_t days, struct tls_life *life, struct fault *fault) {
    if (days < 1 || days > DAYS_MOST)
        return fault_set(fault, CO_INVALID, "-days: it is a number from 1 to %d", DAYS_MOST);
    int64_t now = time(NULL);
    *life = (struct tls_life){now - BACK_S, now + (int64_t)days * DAY_S};
    return CO_OK;
}

/* -- ca create ---------------------------------------------------------------------------------------------------- */
struct ca_flags {
    uint64_t days;
    const char *domain, *common_name, *cluster_id;
    bool constrained;
    struct cmd_list constraints;
};

static int ca_check(const struct ca_flags *flags, struct fault *fault) {
    if (flags->constraints.count && !flags->constrained)
        return fault_set(fault, CO_INVALID, "-additional-name-constraint wants -name-constraint");
    int rv = check_label("domain", flags->domain, fault);
    if (rv == CO_OK && flags->cluster_id) rv = check_label("cluster-id", flags->cluster_id, fault);
    return rv;
}

static int ca_make(const struct ca_flags *flags, struct arena *arena, struct fault *fault) {
    struct tls_life life = {0};
    int rv = ca_check(flags, fault);
    if (rv == CO_OK) rv = life_of(flags->days, &life, fault);
    if (rv != CO_OK) return rv;
    const char *names[CMD_LIST_MAX + 3] = {flags->domain, "localhost"};
    size_t count = 2;
    for (size_t i = 0; i < flags->constraints.count; i++) names[count++] = flags->constraints.items[i];
    struct tls_plain_ca ca = {.common_name = flags->common_name, .constraints = flags->constrained ? names : NULL};
    if (flags->cluster_id) ca.uri = arena_printf(arena, "spiffe://%s.%s", flags->cluster_id, flags->domain);
    struct buffer key = {0}, certificate = {0};
    struct pair_paths paths = pair_paths(arena, arena_printf(arena, "%s-agent-ca", flags->domain));
    rv = tls_key_make(&key, fault);
    if (rv == CO_OK) rv = tls_ca_make_plain(buffer_slice(&key), &ca, life, &certificate, fault);
    if (rv == CO_OK) rv = save(&paths, &certificate, &key, fault);
    pair_paths_free(&paths);
    buffer_free(&certificate);
    tls_wipe(&key);
    return rv;
}

static int ca_create(int argc, char **argv) {
    static const char usage[] = "coord tls ca create [FLAGS]";
    struct ca_flags wanted = {.days = CA_DAYS, .domain = DEFAULT_DOMAIN};
    const struct cmd_flag flags[] = {
        {"additional-name-constraint", CMD_LIST, &wanted.constraints,
         "with -name-constraint: one more DNS name that it may sign for, with all below it; several times"},
        {"cluster-id", CMD_TEXT, &wanted.cluster_id, "a name for the cluster, in the CA's URI: spiffe://NAME.DOMAIN"},
        {"common-name", CMD_TEXT, &wanted.common_name, "the CA's name; default: one with a part of its key's hash"},
        {"days", CMD_U64, &wanted.days, "how long it is valid; default: 1825"},
        {"domain", CMD_TEXT, &wanted.domain, "domain of the cluster, also in the files' names; default: coord"},
        {"name-constraint", CMD_BOOL, &wanted.constrained,
         "the CA can sign only for localhost, -domain and each -additional-name-constraint"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), NULL, usage, &rest);
    if (code >= 0) return code;
    if (rest[0]) return cmd_wrong(usage, "flags alone are wanted");
    struct fault fault = {0};
    struct arena arena = {0};
    int rv = ca_make(&wanted, &arena, &fault);
    arena_free(&arena);
    return rv == CO_OK ? 0 : cmd_failed("creating CA", &fault);
}

/* -- cert create -------------------------------------------------------------------------------------------------- */
struct cert_flags {
    bool server, client, cli;
    uint64_t days;
    const char *dc, *domain, *node, *ca, *key;
    struct cmd_list names, addresses;
};

static const char *kind_of(const struct cert_flags *flags) {
    return flags->server ? "server" : flags->client ? "client" : "cli";
}

static int cert_check(const struct cert_flags *flags, struct fault *fault) {
    if (flags->server + flags->client + flags->cli != 1)
        return fault_set(fault, CO_INVALID, "one of -server, -client and -cli is wanted");
    if (flags->node && !flags->server) return fault_set(fault, CO_INVALID, "-node wants -server");
    int rv = check_label("dc", flags->dc, fault);
    if (rv == CO_OK) rv = check_label("domain", flags->domain, fault);
    if (rv == CO_OK && flags->node) rv = check_label("node", flags->node, fault);
    return rv;
}

/* The first number of which neither file is there. */
static int free_paths(const struct cert_flags *flags, struct arena *arena, struct pair_paths *paths,
                      struct fault *fault) {
    for (int number = 0; number < NUMBERS_MOST; number++) {
        *paths =
            pair_paths(arena, arena_printf(arena, "%s-%s-%s-%d", flags->dc, kind_of(flags), flags->domain, number));
        if (!is_there(paths->certificate) && !is_there(paths->key)) return CO_OK;
        pair_paths_free(paths);
    }
    return fault_set(fault, CO_EXISTS, "%d such certificates are here already", NUMBERS_MOST);
}

/* Consul's names in Consul's order: the additional ones first. */
static int issue(const struct cert_flags *flags, const struct tls_issuer *by, struct tls_life life, struct arena *arena,
                 struct slice key, struct buffer *certificate, struct fault *fault) {
    const char *names[CMD_LIST_MAX + 4] = {0}, *addresses[CMD_LIST_MAX + 2] = {0};
    size_t name_count = 0, address_count = 0;
    for (size_t i = 0; i < flags->names.count; i++) names[name_count++] = flags->names.items[i];
    if (flags->node)
        names[name_count++] = arena_printf(arena, "%s.server.%s.%s", flags->node, flags->dc, flags->domain);
    const char *name = arena_printf(arena, "%s.%s.%s", kind_of(flags), flags->dc, flags->domain);
    names[name_count++] = name;
    names[name_count++] = "localhost";
    for (size_t i = 0; i < flags->addresses.count; i++) addresses[address_count++] = flags->addresses.items[i];
    if (!flags->cli) addresses[address_count++] = "127.0.0.1";
    struct tls_plain_subject subject = {
        .common_name = name, .names = names, .addresses = addresses, .server = !flags->cli, .client = true};
    return tls_issue_plain(by, key, &subject, life, certificate, fault);
}

static void tell_life(const struct buffer *certificate, struct tls_life wanted) {
    struct tls_certificate said;
    CHECK(tls_certificate_read(buffer_slice(certificate), &said, NULL) == CO_OK);
    if (said.life.to_s == wanted.to_s) return;
    char end[TIMESTAMP_ROOM];
    timestamp_format((uint64_t)said.life.to_s * 1000, end);
    printf("==> It is valid until its CA ends, %.10s, and not for as long as was asked for\n", end);
}

static int cert_sign(const struct cert_flags *flags, const struct tls_issuer *by, struct tls_life life,
                     struct arena *arena, struct fault *fault) {
    struct buffer key = {0}, certificate = {0};
    struct pair_paths paths;
    int rv = tls_key_make(&key, fault);
    if (rv == CO_OK) rv = issue(flags, by, life, arena, buffer_slice(&key), &certificate, fault);
    if (rv == CO_OK) rv = free_paths(flags, arena, &paths, fault);
    if (rv == CO_OK) {
        tell_life(&certificate, life);
        rv = save(&paths, &certificate, &key, fault);
        pair_paths_free(&paths);
    }
    buffer_free(&certificate);
    tls_wipe(&key);
    return rv;
}

static int cert_make(const struct cert_flags *flags, struct arena *arena, struct fault *fault) {
    struct tls_life life = {0};
    struct buffer ca = {0}, ca_key = {0};
    int rv = cert_check(flags, fault);
    if (rv == CO_OK) rv = life_of(flags->days, &life, fault);
    if (rv != CO_OK) return rv;
    const char *ca_path = flags->ca ? flags->ca : arena_printf(arena, "%s-agent-ca.pem", flags->domain);
    const char *key_path = flags->key ? flags->key : arena_printf(arena, "%s-agent-ca-key.pem", flags->domain);
    rv = cmd_read_file(ca_path, &ca, fault);
    if (rv == CO_OK) rv = tls_key_file_read(key_path, &ca_key, fault);
    if (rv == CO_OK) {
        if (flags->server)
            puts(
                "==> WARNING: with a server's certificate a process becomes a server, and reads and changes everything "
                "in\n    the cluster. Keep its key as well as the CA's, and on servers alone.");
        printf("==> Using %s and %s\n", ca_path, key_path);
        struct tls_issuer by = {buffer_slice(&ca), buffer_slice(&ca_key)};
        rv = cert_sign(flags, &by, life, arena, fault);
    }
    buffer_free(&ca);
    tls_wipe(&ca_key);
    return rv;
}

static int cert_create(int argc, char **argv) {
    static const char usage[] = "coord tls cert create -server|-client|-cli [FLAGS]";
    struct cert_flags wanted = {.days = DAYS, .dc = "dc1", .domain = DEFAULT_DOMAIN};
    const struct cmd_flag flags[] = {
        {"additional-dnsname", CMD_LIST, &wanted.names, "one more DNS name, besides localhost; several times"},
        {"additional-ipaddress", CMD_LIST, &wanted.addresses, "one more IP address, besides 127.0.0.1; several times"},
        {"ca", CMD_TEXT, &wanted.ca, "file of the CA; default: DOMAIN-agent-ca.pem"},
        {"cli", CMD_BOOL, &wanted.cli, "a certificate for the command line: it is a client's"},
        {"client", CMD_BOOL, &wanted.client, "a certificate for a client agent"},
        {"days", CMD_U64, &wanted.days, "how long it is valid; default: 365"},
        {"dc", CMD_TEXT, &wanted.dc, "datacenter; default: dc1"},
        {"domain", CMD_TEXT, &wanted.domain, "domain of the cluster, also in the files' names; default: coord"},
        {"key", CMD_TEXT, &wanted.key, "file of the CA's key; default: DOMAIN-agent-ca-key.pem"},
        {"node", CMD_TEXT, &wanted.node, "with -server: also the name NODE.server.DC.DOMAIN"},
        {"server", CMD_BOOL, &wanted.server, "a certificate for a server"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), NULL, usage, &rest);
    if (code >= 0) return code;
    if (rest[0]) return cmd_wrong(usage, "flags alone are wanted");
    struct fault fault = {0};
    struct arena arena = {0};
    int rv = cert_make(&wanted, &arena, &fault);
    arena_free(&arena);
    return rv == CO_OK ? 0 : cmd_failed("creating certificate", &fault);
}

static int tls_ca(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"create", "make a CA of its own: a key and a certificate", ca_create}};
    return cmd_sub(commands, ARRAY_COUNT(commands), "tls ca", argc, argv);
}

static int tls_cert(int argc, char **argv) {
    static const struct cli_command commands[] = {{"create", "make a key and a certificate by a CA", cert_create}};
    return cmd_sub(commands, ARRAY_COUNT(commands), "tls cert", argc, argv);
}

int cmd_tls(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"ca", "CAs", tls_ca},
        {"cert", "certificates", tls_cert},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "tls", argc, argv);
}
