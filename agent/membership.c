#include "agent/membership.h"

#include "base/check.h"
#include "rpc/wire/security.h"

void membership_begin(struct membership *membership, uint64_t seed, int64_t spread_s) {
    *membership = (struct membership){.spread_s = spread_s};
    rng_seed(&membership->rng, seed);
}

static int64_t some(struct membership *membership, int64_t most) {
    return most > 0 ? (int64_t)rng_below(&membership->rng, (uint64_t)most) : 0;
}

static bool by_another(const struct membership *membership) {
    return membership->has_ca && memcmp(membership->signed_by, membership->signs_now, TLS_PIN_SIZE) != 0;
}

static bool wants(const struct membership *membership) {
    return membership->has_certificate && (membership->lacks_key || by_another(membership));
}

static int64_t half_s(const struct membership *membership) {
    return membership->life.from_s + (membership->life.to_s - membership->life.from_s) / 2;
}

bool membership_insists(const struct membership *membership, int64_t now_s) {
    return wants(membership) && now_s < half_s(membership);
}

/* Rules (1) to (3). */
static void plan(struct membership *membership, int64_t now_s) {
    membership->renew_s = half_s(membership) + some(membership, (membership->life.to_s - membership->life.from_s) / 10);
    int64_t soon_s = membership->lacks_key    ? now_s
                     : by_another(membership) ? now_s + some(membership, membership->spread_s)
                                              : INT64_MAX;
    if (soon_s < membership->renew_s) membership->renew_s = soon_s;
}

void membership_certificate(struct membership *membership, struct tls_life life, const uint8_t signed_by[TLS_PIN_SIZE],
                            int64_t now_s) {
    membership->has_certificate = true, membership->refused = false;
    membership->life = life;
    memcpy(membership->signed_by, signed_by, TLS_PIN_SIZE);
    if (!wants(membership)) membership->failures = 0, membership->retry_s = 0;
    plan(membership, now_s);
}

void membership_ca(struct membership *membership, const uint8_t pin[TLS_PIN_SIZE], bool lacks_key, int64_t now_s) {
    bool same = membership->has_ca && membership->lacks_key == lacks_key &&
                memcmp(membership->signs_now, pin, TLS_PIN_SIZE) == 0;
    membership->has_ca = true, membership->lacks_key = lacks_key;
    memcpy(membership->signs_now, pin, TLS_PIN_SIZE);
    if (!same && membership->has_certificate) plan(membership, now_s);
}

enum membership_state membership_state(const struct membership *membership, int64_t now_s) {
    if (!membership->has_certificate) return MEMBERSHIP_NONE;
    if (now_s > membership->life.to_s + SECURITY_GRACE_S) return MEMBERSHIP_EXPIRED;
    if (membership->refused && now_s < membership->retry_s && membership->retry_s <= now_s + MEMBERSHIP_REFUSED_S)
        return MEMBERSHIP_REFUSED;
    if (now_s < membership->renew_s) return MEMBERSHIP_GOOD;
    /* A clock that was set back must not make the node wait for the time of a failure that is far ahead now. */
    bool waits = membership->retry_s > now_s && membership->retry_s <= now_s + MEMBERSHIP_RETRY_MOST_S;
    return waits ? MEMBERSHIP_GOOD : MEMBERSHIP_DUE;
}

int64_t membership_next_s(const struct membership *membership, int64_t now_s) {
    switch (membership_state(membership, now_s)) {
        case MEMBERSHIP_DUE: return now_s;
        case MEMBERSHIP_GOOD: return now_s < membership->renew_s ? membership->renew_s : membership->retry_s;
        case MEMBERSHIP_REFUSED: return membership->retry_s;
        case MEMBERSHIP_NONE:
        case MEMBERSHIP_EXPIRED: return INT64_MAX;
    }
    UNREACHABLE();
}

bool membership_takes_key(const struct membership *membership, bool has_one, const uint8_t pin[TLS_PIN_SIZE]) {
    return !has_one || (membership->has_ca && memcmp(membership->signs_now, pin, TLS_PIN_SIZE) == 0);
}

void membership_renewed(struct membership *membership, int64_t now_s) {
    if (wants(membership)) membership_failed(membership, false, now_s);
}

/* Up to a quarter of the time is random, as in rule (1). */
void membership_failed(struct membership *membership, bool for_good, int64_t now_s) {
    int64_t wait_s = MEMBERSHIP_RETRY_LEAST_S;
    for (unsigned i = 0; i < membership->failures && wait_s < MEMBERSHIP_RETRY_MOST_S; i++) wait_s *= 2;
    if (wait_s > MEMBERSHIP_RETRY_MOST_S) wait_s = MEMBERSHIP_RETRY_MOST_S;
    membership->refused = for_good;
    membership->failures++;
    membership->retry_s = for_good ? now_s + MEMBERSHIP_REFUSED_S : now_s + wait_s - some(membership, wait_s / 4);
}
