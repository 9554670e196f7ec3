#include "tls/guarded_key.h"

#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <stdlib.h>

#include "base/memory.h"
#include "tls/key_import.h"
#include "tls/secret.h"

/* An EC key's numbers are kept, because loading them costs a tenth of parsing its PEM. */
enum { NUMBER_MAX = 72 };
struct numbers {
    gnutls_ecc_curve_t curve;
    unsigned size[3]; /* x, y, k */
    unsigned char bytes[3][NUMBER_MAX];
};

struct guarded {
    struct tls_secret secret; /* struct numbers, or DER */
    bool is_numbers;
    gnutls_pk_algorithm_t algorithm;
    unsigned bits;
};

static int load_numbers(const struct numbers *numbers, gnutls_privkey_t key) {
    gnutls_datum_t part[3];
    for (int i = 0; i < 3; i++)
        part[i] = (gnutls_datum_t){(unsigned char *)(uintptr_t)numbers->bytes[i], numbers->size[i]};
    return gnutls_privkey_import_ecc_raw(key, numbers->curve, &part[0], &part[1], &part[2]);
}

static int load_der(struct slice der, gnutls_privkey_t key) {
    gnutls_datum_t bytes = {(unsigned char *)(uintptr_t)der.data, (unsigned)der.size};
    return gnutls_privkey_import_x509_raw(key, &bytes, GNUTLS_X509_FMT_DER, NULL, 0);
}

/* Copied out first, because the numbers have to be aligned. */
static int load(const struct guarded *guarded, gnutls_privkey_t *key) {
    struct slice secret = tls_secret_slice(&guarded->secret);
    int error = gnutls_privkey_init(key);
    if (error) return error;
    error = guarded->is_numbers ? load_numbers((const struct numbers *)(const void *)secret.data, *key)
                                : load_der(secret, *key);
    if (error) gnutls_privkey_deinit(*key);
    return error;
}

static int sign_data(gnutls_privkey_t key, gnutls_sign_algorithm_t algorithm, void *data, unsigned flags,
                     const gnutls_datum_t *text, gnutls_datum_t *signature) {
    gnutls_privkey_t loaded;
    (void)key;
    int error = load(data, &loaded);
    if (error) return error;
    error = gnutls_privkey_sign_data2(loaded, algorithm, flags, text, signature);
    gnutls_privkey_deinit(loaded);
    return error;
}

static int sign_hash(gnutls_privkey_t key, gnutls_sign_algorithm_t algorithm, void *data, unsigned flags,
                     const gnutls_datum_t *hash, gnutls_datum_t *signature) {
    gnutls_privkey_t loaded;
    (void)key;
    int error = load(data, &loaded);
    if (error) return error;
    error = algorithm ? gnutls_privkey_sign_hash2(loaded, algorithm, flags, hash, signature)
                      : gnutls_privkey_sign_hash(loaded, GNUTLS_DIG_UNKNOWN, GNUTLS_PRIVKEY_SIGN_FLAG_TLS1_RSA, hash,
                                                 signature);
    gnutls_privkey_deinit(loaded);
    return error;
}

static int tell(gnutls_privkey_t key, unsigned flags, void *data) {
    const struct guarded *guarded = data;
    (void)key;
    if (flags & GNUTLS_PRIVKEY_INFO_PK_ALGO) return (int)guarded->algorithm;
    if (flags & GNUTLS_PRIVKEY_INFO_PK_ALGO_BITS) return (int)guarded->bits;
    if (flags & GNUTLS_PRIVKEY_INFO_HAVE_SIGN_ALGO)
        return gnutls_sign_supports_pk_algorithm(GNUTLS_FLAGS_TO_SIGN_ALGO(flags), guarded->algorithm) != 0;
    return -1;
}

static void forget(gnutls_privkey_t key, void *data) {
    struct guarded *guarded = data;
    (void)key;
    tls_secret_free(&guarded->secret);
    free(guarded);
}

static void wipe(gnutls_datum_t *part) {
    if (!part->data) return;
    gnutls_memset(part->data, 0, part->size);
    gnutls_free(part->data);
}

/* False: it is no EC key of a size that is known. */
static bool take_numbers(gnutls_x509_privkey_t from, struct numbers *numbers) {
    gnutls_datum_t part[3] = {{0}, {0}, {0}};
    bool fits = gnutls_x509_privkey_export_ecc_raw(from, &numbers->curve, &part[0], &part[1], &part[2]) == 0;
    for (int i = 0; i < 3; i++) {
        fits = fits && part[i].size <= NUMBER_MAX;
        if (fits) memcpy(numbers->bytes[i], part[i].data, part[i].size), numbers->size[i] = part[i].size;
        wipe(&part[i]);
    }
    return fits;
}

static int keep(struct guarded *guarded, gnutls_x509_privkey_t from, struct slice pem, struct fault *fault) {
    struct numbers numbers = {0};
    guarded->algorithm = (gnutls_pk_algorithm_t)gnutls_x509_privkey_get_pk_algorithm2(from, &guarded->bits);
    guarded->is_numbers = guarded->algorithm == GNUTLS_PK_ECDSA && take_numbers(from, &numbers);
    struct buffer der = {0};
    bool taken = guarded->is_numbers || key_der(pem, &der);
    struct slice secret = guarded->is_numbers ? slice_make(&numbers, sizeof numbers) : buffer_slice(&der);
    int error = taken ? tls_secret_set(&guarded->secret, secret, fault)
                      : fault_set(fault, CO_INVALID, "the private key is not in PEM without a password");
    explicit_bzero(&numbers, sizeof numbers);
    if (der.data) explicit_bzero(der.data, der.capacity);
    buffer_free(&der);
    return error;
}

int guarded_key_make(struct slice pem, gnutls_privkey_t *key, struct fault *fault) {
    gnutls_x509_privkey_t parsed;
    if (gnutls_x509_privkey_init(&parsed) != 0) return fault_set(fault, CO_NOMEM, "no memory for a key");
    int rv = key_import(parsed, pem);
    struct guarded *guarded = mem_zalloc(sizeof *guarded);
    int error = rv ? fault_set(fault, CO_INVALID, "the private key: %s", gnutls_strerror(rv))
                   : keep(guarded, parsed, pem, fault);
    gnutls_x509_privkey_deinit(parsed);
    if (!error && gnutls_privkey_init(key) != 0) error = fault_set(fault, CO_NOMEM, "no memory for a key");
    if (!error) {
        rv = gnutls_privkey_import_ext4(*key, guarded, sign_data, sign_hash, NULL, forget, tell, 0);
        if (rv)
            gnutls_privkey_deinit(*key),
                error = fault_set(fault, CO_INVALID, "the private key: %s", gnutls_strerror(rv));
    }
    if (error) tls_secret_free(&guarded->secret), free(guarded);
    return error;
}
