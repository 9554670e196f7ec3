#include "agent/certificate_renewal.h"

#include "base/check.h"
#include "rpc/wire/security.h"

void certificate_renewal_begin(struct certificate_renewal *renewal, uint64_t seed, int64_t spread_s) {
    *renewal = (struct certificate_renewal){.spread_s = spread_s};
    rng_seed(&renewal->rng, seed);
}

static int64_t some(struct certificate_renewal *renewal, int64_t most) {
    return most > 0 ? (int64_t)rng_below(&renewal->rng, (uint64_t)most) : 0;
}

static bool by_another(const struct certificate_renewal *renewal) {
    return renewal->has_ca && memcmp(renewal->signed_by, renewal->signs_now, TLS_PIN_SIZE) != 0;
}

static bool wants(const struct certificate_renewal *renewal) {
    return renewal->has_certificate && (renewal->lacks_key || by_another(renewal));
}

static int64_t half_s(const struct certificate_renewal *renewal) {
    return renewal->life.from_s + (renewal->life.to_s - renewal->life.from_s) / 2;
}

bool certificate_renewal_insists(const struct certificate_renewal *renewal, int64_t now_s) {
    return wants(renewal) && now_s < half_s(renewal);
}

/* Rules (1) to (3). */
static void plan(struct certificate_renewal *renewal, int64_t now_s) {
    renewal->renew_s = half_s(renewal) + some(renewal, (renewal->life.to_s - renewal->life.from_s) / 10);
    int64_t soon_s = renewal->lacks_key    ? now_s
                     : by_another(renewal) ? now_s + some(renewal, renewal->spread_s)
                                           : INT64_MAX;
    if (soon_s < renewal->renew_s) renewal->renew_s = soon_s;
}

void certificate_renewal_certificate(struct certificate_renewal *renewal, struct tls_life life,
                                     const uint8_t signed_by[TLS_PIN_SIZE], int64_t now_s) {
    renewal->has_certificate = true, renewal->refused = false;
    renewal->life = life;
    memcpy(renewal->signed_by, signed_by, TLS_PIN_SIZE);
    if (!wants(renewal)) renewal->failures = 0, renewal->retry_s = 0;
    plan(renewal, now_s);
}

void certificate_renewal_ca(struct certificate_renewal *renewal, const uint8_t pin[TLS_PIN_SIZE], bool lacks_key,
                            int64_t now_s) {
    bool same =
        renewal->has_ca && renewal->lacks_key == lacks_key && memcmp(renewal->signs_now, pin, TLS_PIN_SIZE) == 0;
    renewal->has_ca = true, renewal->lacks_key = lacks_key;
    memcpy(renewal->signs_now, pin, TLS_PIN_SIZE);
    if (!same && renewal->has_certificate) plan(renewal, now_s);
}

enum certificate_renewal_state certificate_renewal_state(const struct certificate_renewal *renewal, int64_t now_s) {
    if (!renewal->has_certificate) return CERTIFICATE_RENEWAL_NONE;
    if (now_s > renewal->life.to_s + SECURITY_GRACE_S) return CERTIFICATE_RENEWAL_EXPIRED;
    if (renewal->refused && now_s < renewal->retry_s && renewal->retry_s <= now_s + CERTIFICATE_RENEWAL_REFUSED_S)
        return CERTIFICATE_RENEWAL_REFUSED;
    if (now_s < renewal->renew_s) return CERTIFICATE_RENEWAL_GOOD;
    /* A clock that was set back must not make the node wait for the time of a failure that is far ahead now. */
    bool waits = renewal->retry_s > now_s && renewal->retry_s <= now_s + CERTIFICATE_RENEWAL_RETRY_MOST_S;
    return waits ? CERTIFICATE_RENEWAL_GOOD : CERTIFICATE_RENEWAL_DUE;
}

int64_t certificate_renewal_next_s(const struct certificate_renewal *renewal, int64_t now_s) {
    switch (certificate_renewal_state(renewal, now_s)) {
        case CERTIFICATE_RENEWAL_DUE: return now_s;
        case CERTIFICATE_RENEWAL_GOOD: return now_s < renewal->renew_s ? renewal->renew_s : renewal->retry_s;
        case CERTIFICATE_RENEWAL_REFUSED: return renewal->retry_s;
        case CERTIFICATE_RENEWAL_NONE:
        case CERTIFICATE_RENEWAL_EXPIRED: return INT64_MAX;
    }
    UNREACHABLE();
}

bool certificate_renewal_takes_key(const struct certificate_renewal *renewal, bool has_one,
                                   const uint8_t pin[TLS_PIN_SIZE]) {
    return !has_one || (renewal->has_ca && memcmp(renewal->signs_now, pin, TLS_PIN_SIZE) == 0);
}

void certificate_renewal_succeeded(struct certificate_renewal *renewal, int64_t now_s) {
    if (wants(renewal)) certificate_renewal_failed(renewal, false, now_s);
}

/* Up to a quarter of the time is random, as in rule (1). */
void certificate_renewal_failed(struct certificate_renewal *renewal, bool for_good, int64_t now_s) {
    int64_t wait_s = CERTIFICATE_RENEWAL_RETRY_LEAST_S;
    for (unsigned i = 0; i < renewal->failures && wait_s < CERTIFICATE_RENEWAL_RETRY_MOST_S; i++) wait_s *= 2;
    if (wait_s > CERTIFICATE_RENEWAL_RETRY_MOST_S) wait_s = CERTIFICATE_RENEWAL_RETRY_MOST_S;
    renewal->refused = for_good;
    renewal->failures++;
    renewal->retry_s = for_good ? now_s + CERTIFICATE_RENEWAL_REFUSED_S : now_s + wait_s - some(renewal, wait_s / 4);
}
