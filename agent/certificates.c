#include "agent/certificates.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "tls/certificate.h"
#include "tls/folder.h"

#define LOOK_MS     3000
#define FILE_MOST   ((size_t)4 << 20)
#define TICKET_SIZE 64

/* The files to read. */
struct files {
    enum certificate_source source;
    char *chain, *key, *ca, *ca_path; /* NULL: not given */
    char *data_dir;
    char *min_version, *cipher_suites;
    bool needs_ca;      /* the other side has to show a certificate */
    bool of_rpc;        /* connections with other processes; else HTTPS and DNS over TLS */
    const char *needed; /* the port that needs them; not of_rpc */
};

/* The outcome of reading them. */
struct reading {
    uint64_t state; /* of the files when they were looked at */
    struct tls_context *context;
    struct tls_certificate certificate;
    struct fault fault;
};

struct certificates {
    uv_timer_t timer;
    uv_work_t work;
    struct files files, next; /* next: while `busy`, the files that a reload named */
    bool busy, changed, closing;
    struct tls_slot *https; /* or NULL, and: */
    struct security *security;
    struct security_rules rules;
    uint64_t state; /* of the files that were taken or refused last */
    struct reading reading;
    struct tls_certificate taken; /* of `https` */
    enum certificate_source taken_from;
    char ticket_key[TICKET_SIZE];
    void (*stopped)(void *data);
    void *stopped_data;
};

/* -- where from --------------------------------------------------------------------------------------------------- */

static char *copy(const char *text) { return text ? mem_strdup(text) : NULL; }

static char *folder_file(const char *data_dir, enum tls_file file) {
    struct buffer path = {0};
    size_t size;
    buffer_printf(&path, "%s/tls/%s", data_dir, tls_file_name(file));
    buffer_append_byte(&path, '\0');
    return buffer_take(&path, &size);
}

static bool is_there(const char *data_dir, enum tls_file file) {
    char *path = folder_file(data_dir, file);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

enum certificate_source certificates_source(const struct config_tls *tls, const char *data_dir) {
    if (tls->cert_file) return CERTIFICATES_FILES;
    return data_dir && is_there(data_dir, TLS_FILE_CERT) ? CERTIFICATES_CLUSTER : CERTIFICATES_NONE;
}

static void files_free(struct files *files) {
    free(files->chain), free(files->key), free(files->ca), free(files->ca_path), free(files->data_dir);
    free(files->min_version), free(files->cipher_suites);
    *files = (struct files){0};
}

static struct files files_of(const struct config *config, bool of_rpc, const char *data_dir) {
    const struct config_tls *tls = of_rpc ? &config->tls_rpc : &config->tls_https;
    struct files files = {.source = certificates_source(tls, data_dir),
                          .ca = copy(tls->ca_file),
                          .ca_path = copy(tls->ca_path),
                          .data_dir = copy(data_dir),
                          .min_version = copy(tls->min_version),
                          .cipher_suites = copy(tls->cipher_suites),
                          .needs_ca = of_rpc ? tls->verify_incoming || tls->verify_outgoing
                                             : tls->verify_incoming && config->https_addresses.count,
                          .of_rpc = of_rpc,
                          .needed = config->https_addresses.count ? "ports.https" : "ports.dns_tls"};
    bool cluster = files.source == CERTIFICATES_CLUSTER;
    if (files.source == CERTIFICATES_FILES) files.chain = copy(tls->cert_file), files.key = copy(tls->key_file);
    if (cluster) files.chain = folder_file(data_dir, TLS_FILE_CERT), files.key = folder_file(data_dir, TLS_FILE_KEY);
    if (cluster && !files.ca && !files.ca_path) files.ca = folder_file(data_dir, TLS_FILE_CA);
    return files;
}

/* -- reading: any thread ------------------------------------------------------------------------------------------ */

static uint64_t file_state(const char *path, uint64_t seed) {
    struct stat info;
    uint64_t facts[6] = {seed};
    if (path && stat(path, &info) == 0) {
        facts[1] = info.st_ino, facts[2] = (uint64_t)info.st_size, facts[3] = info.st_mode;
        facts[4] = (uint64_t)info.st_mtim.tv_sec, facts[5] = (uint64_t)info.st_mtim.tv_nsec;
    }
    return hash64(facts, sizeof facts);
}

static int is_shown(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* The files of a folder, by their names. */
static int each_file(const char *folder, int (*file)(void *data, const char *path), void *data) {
    struct dirent **entries;
    int count = scandir(folder, &entries, is_shown, alphasort), rv = CO_OK;
    for (int i = 0; i < count; i++) {
        struct buffer path = {0};
        buffer_printf(&path, "%s/%s", folder, entries[i]->d_name);
        buffer_append_byte(&path, '\0');
        if (rv == CO_OK) rv = file(data, path.data);
        buffer_free(&path);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return count < 0 ? co_from_errno(errno) : rv;
}

static int add_state(void *data, const char *path) {
    uint64_t *state = data;
    *state = file_state(path, *state);
    return CO_OK;
}

static uint64_t files_state(const struct files *files) {
    uint64_t state = file_state(files->chain, 1);
    state = file_state(files->key, state);
    state = file_state(files->ca, state);
    if (files->ca_path) (void)each_file(files->ca_path, add_state, &state);
    return state ? state : 1;
}

static int read_file(const char *path, struct buffer *out, struct fault *fault) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : 0;
    while (fd >= 0 && out->size <= FILE_MOST) {
        buffer_reserve(out, 16384);
        got = read(fd, out->data + out->size, out->capacity - out->size);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        out->size += (size_t)got;
    }
    int error = errno;
    if (fd >= 0) close(fd);
    if (got < 0) return fault_set(fault, co_from_errno(error), "%s: %s", path, strerror(error));
    if (out->size > FILE_MOST) return fault_set(fault, CO_TOOLARGE, "%s: larger than 4 MiB", path);
    return CO_OK;
}

struct trusting {
    struct buffer *trusted;
    struct fault *fault;
};

static int add_ca(void *data, const char *path) {
    struct trusting *trusting = data;
    struct stat info;
    struct buffer text = {0};
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return CO_OK;
    int rv = read_file(path, &text, trusting->fault);
    if (rv == CO_OK && tls_certificate_count(buffer_slice(&text)) > 0) {
        buffer_append(trusting->trusted, text.data, text.size);
        buffer_append_byte(trusting->trusted, '\n');
    }
    buffer_free(&text);
    return rv;
}

static int read_trusted(const struct files *files, struct buffer *trusted, struct fault *fault) {
    struct trusting trusting = {trusted, fault};
    int rv = files->ca ? add_ca(&trusting, files->ca) : CO_OK;
    if (rv == CO_OK && files->ca && !trusted->size)
        return fault_set(fault, CO_INVALID, "ca_file: %s holds no certificate (PEM)", files->ca);
    if (rv == CO_OK && files->ca_path) rv = each_file(files->ca_path, add_ca, &trusting);
    if (rv != CO_OK) return fault_set(fault, rv, "ca_path: %s: %s", files->ca_path, co_strerror(rv));
    if (files->needs_ca && !trusted->size)
        return fault_set(fault, CO_INVALID,
                         files->of_rpc ? "ca_path: %s holds no certificate (PEM)"
                                       : "verify_incoming: needs the CAs of clients (ca_file or ca_path)",
                         files->ca_path);
    return CO_OK;
}

static int read_key(const struct files *files, struct buffer *key, struct fault *fault) {
    if (files->source == CERTIFICATES_CLUSTER) return tls_folder_read(files->data_dir, TLS_FILE_KEY, key, fault);
    return tls_key_file_read(files->key, key, fault);
}

static int read_pair(const struct files *files, struct buffer *chain, struct buffer *key, struct reading *reading) {
    struct fault *fault = &reading->fault, inner = {0};
    int rv = read_file(files->chain, chain, fault);
    if (rv == CO_OK) rv = read_key(files, key, fault);
    if (rv == CO_OK && (rv = tls_certificate_read(buffer_slice(chain), &reading->certificate, &inner)) != CO_OK)
        fault_set(fault, rv, "%s: %s", files->chain, inner.text);
    if (rv == CO_OK && (rv = tls_pair_check(buffer_slice(key), buffer_slice(chain), &inner)) != CO_OK)
        fault_set(fault, rv, "%s and %s: %s", files->chain, files->key, inner.text);
    return rv;
}

static int make_context(const struct files *files, const char *ticket_key, struct buffer *chain, struct buffer *key,
                        struct reading *reading) {
    struct buffer trusted = {0};
    struct fault *fault = &reading->fault;
    int rv = files->chain ? read_pair(files, chain, key, reading) : CO_OK;
    if (rv == CO_OK) rv = read_trusted(files, &trusted, fault);
    struct fault inner = {0};
    struct tls_context_config config = {.chain = buffer_slice(chain),
                                        .key = buffer_slice(key),
                                        .trusted = buffer_slice(&trusted),
                                        .ticket_key = slice_make(ticket_key, files->of_rpc ? 0 : TICKET_SIZE),
                                        .least_version = files->min_version,
                                        .cipher_suites = files->cipher_suites,
                                        .only_tls13 = files->of_rpc};
    if (rv == CO_OK && (rv = tls_context_make(&config, &reading->context, &inner)) != CO_OK)
        fault_set(fault, rv, "%s: %s", files->chain ? files->chain : "ca_file", inner.text);
    buffer_free(&trusted);
    return rv;
}

static int read_context(const struct files *files, const char *ticket_key, struct reading *reading) {
    struct buffer chain = {0}, key = {0};
    if (files->source == CERTIFICATES_NONE && !files->of_rpc)
        return fault_set(&reading->fault, CO_INVALID, "%s: needs cert_file and key_file", files->needed);
    int rv = make_context(files, ticket_key, &chain, &key, reading);
    tls_wipe(&key);
    buffer_free(&chain);
    if (rv != CO_OK) fault_set(&reading->fault, rv, "the certificates cannot be read: %s", co_strerror(rv));
    return rv;
}

/* -- taking ------------------------------------------------------------------------------------------------------- */

/* Certificates of the cluster may have come meanwhile (coord secure start): they win. */
static void take_rpc(struct certificates *certificates) {
    struct security_rules now;
    security_get(certificates->security, &now);
    if (now.kind == SECURITY_CLUSTER) tls_context_unref(certificates->reading.context);
    else security_set(certificates->security, &certificates->rules, certificates->reading.context);
}

static void take(struct certificates *certificates, const char *how) {
    struct reading *reading = &certificates->reading;
    const struct files *files = &certificates->files;
    char until[40] = "";
    time_t end = (time_t)reading->certificate.life.to_s;
    struct tm utc;
    if (gmtime_r(&end, &utc)) strftime(until, sizeof until, "%Y-%m-%d %H:%M:%S UTC", &utc);
    if (files->chain)
        log_info("tls", "%s of=%s file=%s name=\"%s\" until=\"%s\"", how,
                 files->of_rpc ? "servers-and-agents" : "https", files->chain, reading->certificate.common_name, until);
    else log_info("tls", "%s of=servers-and-agents ca=%s", how, files->ca ? files->ca : files->ca_path);
    if (files->chain && end < time(NULL))
        log_warn("tls", "the certificate is expired: %s will refuse it file=%s", files->of_rpc ? "others" : "clients",
                 files->chain);
    if (files->of_rpc) take_rpc(certificates);
    else tls_slot_set(certificates->https, reading->context);
    certificates->taken = reading->certificate, certificates->taken_from = certificates->files.source;
    reading->context = NULL;
}

static void look(uv_work_t *work) {
    struct certificates *certificates = work->data;
    struct reading *reading = &certificates->reading;
    reading->state = files_state(&certificates->files);
    if (reading->state != certificates->state)
        (void)read_context(&certificates->files, certificates->ticket_key, reading);
}

static void begin(struct certificates *certificates);

static void end(uv_handle_t *handle) {
    struct certificates *certificates = handle->data;
    certificates->stopped(certificates->stopped_data);
}

static void looked(uv_work_t *work, int status) {
    struct certificates *certificates = work->data;
    struct reading *reading = &certificates->reading;
    CHECK(status == 0);
    certificates->busy = false;
    if (reading->context && !certificates->changed) {
        take(certificates, "the certificates were replaced");
    } else if (reading->fault.code && !certificates->changed) {
        log_error("tls", "the new certificates are not taken, the old ones stay: %s", reading->fault.text);
    }
    tls_context_unref(reading->context);
    if (!certificates->changed) certificates->state = reading->state;
    if (certificates->closing) {
        uv_close((uv_handle_t *)&certificates->timer, end);
    } else if (certificates->changed) {
        certificates->changed = false;
        files_free(&certificates->files);
        certificates->files = certificates->next;
        certificates->next = (struct files){0};
        certificates->state = 0;
        begin(certificates);
    }
}

static void begin(struct certificates *certificates) {
    if (certificates->busy) return;
    certificates->busy = true;
    certificates->reading = (struct reading){0};
    certificates->work.data = certificates;
    CHECK(uv_queue_work(certificates->timer.loop, &certificates->work, look, looked) == 0);
}

static void on_timer(uv_timer_t *timer) { begin(timer->data); }

/* -- life --------------------------------------------------------------------------------------------------------- */

static int start(uv_loop_t *loop, struct certificates *certificates, struct certificates **out, struct fault *fault) {
    int rv;
    random_bytes(certificates->ticket_key, TICKET_SIZE);
    certificates->reading.state = files_state(&certificates->files);
    rv = read_context(&certificates->files, certificates->ticket_key, &certificates->reading);
    if (rv != CO_OK) {
        fault_set(fault, rv, "%s", certificates->reading.fault.text);
        certificates_free(certificates);
        return rv;
    }
    certificates->state = certificates->reading.state;
    take(certificates, "certificates");
    uv_timer_init(loop, &certificates->timer);
    certificates->timer.data = certificates;
    uv_timer_start(&certificates->timer, on_timer, LOOK_MS, LOOK_MS);
    *out = certificates;
    return CO_OK;
}

int certificates_start(uv_loop_t *loop, const struct config *config, const char *data_dir, struct certificates **out,
                       struct fault *fault) {
    *out = NULL;
    if (config->https_addresses.count == 0 && config->dns_tls_port < 0) return CO_OK;
    int rv = certificates_source(&config->tls_https, data_dir) == CERTIFICATES_CLUSTER
                 ? tls_folder_recover(data_dir, fault)
                 : CO_OK;
    if (rv != CO_OK) return rv;
    struct certificates *certificates = mem_zalloc(sizeof *certificates);
    certificates->files = files_of(config, false, data_dir);
    certificates->https = tls_slot_new();
    return start(loop, certificates, out, fault);
}

int certificates_start_rpc(uv_loop_t *loop, const struct config *config, struct security *security,
                           const struct security_rules *rules, struct certificates **out, struct fault *fault) {
    struct certificates *certificates = mem_zalloc(sizeof *certificates);
    *out = NULL;
    certificates->files = files_of(config, true, NULL);
    certificates->security = security, certificates->rules = *rules;
    return start(loop, certificates, out, fault);
}

struct tls_slot *certificates_https(struct certificates *certificates) {
    return certificates ? certificates->https : NULL;
}

bool certificates_shown(const struct certificates *certificates, struct tls_certificate *certificate,
                        enum certificate_source *source) {
    if (!certificates || certificates->taken_from == CERTIFICATES_NONE) return false;
    *certificate = certificates->taken, *source = certificates->taken_from;
    return true;
}

void certificates_reload(struct certificates *certificates, const struct config *config) {
    if (!certificates || certificates->closing) return;
    struct files *files = certificates->busy ? &certificates->next : &certificates->files;
    struct files named = files_of(config, certificates->files.of_rpc, certificates->files.data_dir);
    named.needs_ca = certificates->files.needs_ca; /* it counts after a restart, like the versions and the suites */
    free(named.min_version), free(named.cipher_suites);
    named.min_version = copy(certificates->files.min_version);
    named.cipher_suites = copy(certificates->files.cipher_suites);
    files_free(files);
    *files = named;
    certificates->changed = certificates->busy;
    certificates->state = 0;
    begin(certificates);
}

bool certificates_busy(const struct certificates *certificates) { return certificates->busy; }

void certificates_stop(struct certificates *certificates, void (*stopped)(void *data), void *data) {
    if (!certificates) {
        stopped(data);
        return;
    }
    certificates->stopped = stopped;
    certificates->stopped_data = data;
    certificates->closing = true;
    uv_timer_stop(&certificates->timer);
    if (!certificates->busy) uv_close((uv_handle_t *)&certificates->timer, end);
}

void certificates_free(struct certificates *certificates) {
    if (!certificates) return;
    tls_slot_free(certificates->https);
    tls_context_unref(certificates->reading.context);
    files_free(&certificates->files);
    files_free(&certificates->next);
    explicit_bzero(certificates->ticket_key, TICKET_SIZE);
    free(certificates);
}
