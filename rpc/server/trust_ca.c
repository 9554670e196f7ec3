/* A CA takes the place of another one, or is the first. Keys and certificates are made in the thread pool. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/message.h"
#include "base/random.h"
#include "rpc/server/trust_admin_internal.h"
#include "tls/ca_import.h"

#define SKEW_S    300
#define CA_LIFE_S (INT64_C(10) * 365 * 24 * 3600)

static void add_line(struct admin_work *work, const char *line) {
    size_t used = strlen(work->text);
    snprintf(work->text + used, sizeof work->text - used, "%s%s", used ? "\n" : "", line);
}

/* -- pool ---------------------------------------------------------------------------------------------------------- */
static int make_key_and_ca(struct admin_work *work, struct buffer *key) {
    int64_t now_s = (int64_t)time(NULL);
    struct tls_life life = {now_s - SKEW_S, now_s + CA_LIFE_S};
    int error = tls_key_make(key, &work->fault);
    if (!error && !work->old) error = tls_domain_make(work->domain, &work->fault);
    return error ? error : tls_ca_make(buffer_slice(key), work->domain, life, &work->ca, &work->fault);
}

/* The key is moved: whatever comes of it, it does not stay where the command has put it. */
static int take_brought(struct admin_work *work, struct buffer *key) {
    struct trust_admin *admin = work->admin;
    struct tls_subject subject = {.domain = work->domain,
                                  .role = TLS_ROLE_SERVER,
                                  .node = admin->rpc->node_name,
                                  .datacenter = admin->rpc->cluster,
                                  .dns_domain = admin->dns_domain,
                                  .addresses = ca_import_addresses};
    struct ca_import import = {0};
    struct slice text = slice_text(work->trust->certificates ? work->trust->certificates : "");
    int64_t now_s = (int64_t)time(NULL);
    char line[CA_IMPORT_LINE];
    int error = tls_folder_read(admin->data_dir, TLS_FILE_CA_IMPORT, key, &work->fault);
    if (error == CO_NOTFOUND)
        return fault_set(
            &work->fault, CO_INVALID,
            "the key of the CA is not in the data folder of this server: run `coord ca import` on its host");
    tls_folder_remove(admin->data_dir, TLS_FILE_CA_IMPORT);
    if (!error) error = ca_import_read(text, buffer_slice(key), &subject, now_s, &import, &work->fault);
    if (!error) {
        buffer_append(&work->ca, import.certificate.data, import.certificate.size);
        buffer_append(&work->above, import.above.data, import.above.size);
        work->renews =
            slice_equal(message_slice(work->old->cas[0]->pin), slice_make(import.read.pin, sizeof import.read.pin));
        if (ca_import_ends_soon(&import, now_s, line)) add_line(work, line);
    }
    ca_import_free(&import);
    return error;
}

/* An older CA's key is enough: that of the newest may be lost with the server that made it. Any thread. */
static bool has_trusted_key(const struct admin_work *work) {
    uint8_t pin[TLS_PIN_SIZE];
    if (!authority_pin(work->admin->authority, pin)) return false;
    for (size_t i = 0; i < work->old->n_cas; i++)
        if (slice_equal(slice_make(pin, sizeof pin), message_slice(work->old->cas[i]->pin))) return true;
    return false;
}

/* For nodes that are away while the CA changes. */
static int cross(struct admin_work *work) {
    int64_t now_s = (int64_t)time(NULL);
    struct tls_life life = {now_s - SKEW_S, now_s + CA_LIFE_S};
    struct fault fault = {0};
    int error = authority_cross_sign(work->admin->authority, buffer_slice(&work->ca), life, &work->cross, &fault);
    if (error == CO_UNSUPPORTED) {
        add_line(work,
                 "the CA of before may sign no other CA (path length 0): nodes that are down until it is dropped "
                 "have to join anew");
        return CO_OK;
    }
    return error ? fault_set(&work->fault, error, "%s", fault.text) : CO_OK;
}

/* Of an open cluster: this server has the key, and its secret, at once. */
static int keep_first(struct admin_work *work, struct slice key) {
    struct trust_admin *admin = work->admin;
    struct buffer secret = {0};
    buffer_reserve(&secret, TLS_SECRET_SIZE);
    random_bytes(secret.data, TLS_SECRET_SIZE);
    secret.size = TLS_SECRET_SIZE;
    struct tls_issuer issuer = {buffer_slice(&work->ca), key};
    int error = tls_folder_write(admin->data_dir, TLS_FILE_CA, buffer_slice(&work->ca), &work->fault);
    if (!error)
        error = authority_store(admin->authority, admin->data_dir, &issuer, buffer_slice(&secret), &work->fault);
    tls_wipe(&secret);
    return error;
}

static int keep(struct admin_work *work, struct slice key) {
    struct trust_admin *admin = work->admin;
    struct tls_issuer issuer = {buffer_slice(&work->ca), key};
    int error = tls_folder_make(admin->data_dir, &work->fault);
    if (error) return error;
    if (!work->old) return keep_first(work, key);
    if (work->renews) /* also where the key was lost */
        return authority_store(admin->authority, admin->data_dir, &issuer, slice_make("", 0), &work->fault);
    if (!has_trusted_key(work))
        return fault_set(&work->fault, CO_AGAIN, "this server does not have the key of a CA yet; ask again");
    error = cross(work);
    return error ? error : tls_folder_write(admin->data_dir, TLS_FILE_CA_NEXT, key, &work->fault);
}

static void make(uv_work_t *pool) {
    struct admin_work *work = CONTAINER_OF(pool, struct admin_work, pool);
    struct buffer key = {0};
    struct tls_certificate read;
    work->error = work->trust->verb == RPC_CA_IMPORT ? take_brought(work, &key) : make_key_and_ca(work, &key);
    if (!work->error) work->error = tls_certificate_read(buffer_slice(&work->ca), &read, &work->fault);
    if (!work->error) memcpy(work->pin, read.pin, sizeof work->pin);
    if (!work->error) work->error = keep(work, buffer_slice(&key));
    tls_wipe(&key);
}

/* -- loop ---------------------------------------------------------------------------------------------------------- */
static void made(uv_work_t *pool, int status) {
    struct admin_work *work = CONTAINER_OF(pool, struct admin_work, pool);
    if (status && !work->error) work->error = CO_CLOSED;
    if (work->error) {
        admin_end(work, work->error, work->fault.text);
        return;
    }
    Pb__Trust trust = PB__TRUST__INIT;
    Pb__TrustCa ca = PB__TRUST_CA__INIT, *cas[TRUST_CAS_MAX + 1] = {&ca};
    if (work->old) trust.regions = work->old->regions, trust.n_regions = work->old->n_regions;
    if (work->renews) ca.cross = work->old->cas[0]->cross;
    ca.certificate = arena_strndup(&work->arena, work->ca.data, work->ca.size);
    if (work->above.size) ca.above = arena_strndup(&work->arena, work->above.data, work->above.size);
    if (work->cross.size) ca.cross = arena_strndup(&work->arena, work->cross.data, work->cross.size);
    ca.pin = (ProtobufCBinaryData){TLS_PIN_SIZE, work->pin};
    trust.cas = cas, trust.n_cas = 1, trust.domain = work->domain;
    trust.mode = work->old ? work->old->mode : TRUST_BOTH;
    for (size_t i = 0; work->old && i < work->old->n_cas; i++)
        if (!slice_equal(message_slice(work->old->cas[i]->pin), message_slice(ca.pin)))
            cas[trust.n_cas++] = work->old->cas[i];
    if (work->renews) log_info("certificates", "the CA gets another certificate");
    else log_info("certificates", "a new CA signs from now on cas=%zu", trust.n_cas);
    if (work->text[0]) log_warn("certificates", "the new CA: %s", work->text);
    admin_set(work, &trust);
}

void trust_ca_begin(struct admin_work *work) {
    bool import = work->trust->verb == RPC_CA_IMPORT;
    /* Two at once would take each other's key away. The key of the one that signs may be lost: it is brought again. */
    if (work->admin->making || (work->old && !import && !has_trusted_key(work))) {
        admin_end(work, CO_AGAIN,
                  "this server makes a new CA already, or does not have the key of a CA yet; ask again");
        return;
    }
    work->admin->making = work->makes = true;
    if (work->old && work->old->n_cas >= TRUST_CAS_MAX) {
        admin_end(work, CO_TOOLARGE,
                  "eight CAs are trusted already; `coord ca status` says who still needs the old ones");
        return;
    }
    if (work->old) snprintf(work->domain, sizeof work->domain, "%s", work->old->domain);
    CHECK(uv_queue_work(work->admin->rpc->loop, &work->pool, make, made) == 0);
}
