/* Functions of a definition alone: defaults, checks, the capacity and its parts, refills, windows, the bound. */
#include <string.h>

#include "base/check.h"
#include "kv/quota/quota_internal.h"

enum { MINUTE_S = 60, HOUR_S = 3600, DAY_S = 86400, OFFSET_MOST_MIN = 24 * 60 - 1 };

/* -- checks ------------------------------------------------------------------------------------------------------- */

bool quota_name_fits(const char *name) {
    size_t size = strlen(name);
    for (size_t i = 0; i < size; i++)
        if (name[i] < ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\') return false;
    return size > 0 && size <= QUOTA_NAME_MOST;
}

#define AMOUNTS "a whole number from 1 to 1000000000000000"

static bool is_amount(uint64_t amount) { return amount > 0 && amount <= QUOTA_AMOUNT_MOST; }

static int check_refill(const Pb__QuotaDefinition *d, struct fault *fault) {
    if (d->window) {
        if (d->tokens || d->every_ms)
            return fault_set(fault, CO_INVALID, "Refill: either Tokens and Every, or Window, not both");
        if (d->burst) return fault_set(fault, CO_INVALID, "Burst: only with Tokens and Every; a window begins full");
        if (d->offset_minutes < -OFFSET_MOST_MIN || d->offset_minutes > OFFSET_MOST_MIN)
            return fault_set(fault, CO_INVALID, "Refill.Offset: from -23:59 to +23:59");
        return CO_OK;
    }
    if (!d->tokens && !d->every_ms)
        return fault_set(fault, CO_INVALID, "Refill: missing: wanted are Tokens and Every, or Window");
    if (!is_amount(d->tokens)) return fault_set(fault, CO_INVALID, "Refill.Tokens: wanted is " AMOUNTS);
    if (d->every_ms < QUOTA_EVERY_MIN_MS || d->every_ms > QUOTA_EVERY_MAX_MS)
        return fault_set(fault, CO_INVALID, "Refill.Every: from 100ms to 744h (31 days)");
    if (d->burst > QUOTA_AMOUNT_MOST) return fault_set(fault, CO_INVALID, "Burst: wanted is " AMOUNTS);
    if (d->offset_minutes) return fault_set(fault, CO_INVALID, "Refill.Offset: only with Window");
    return CO_OK;
}

static int check_parts(const Pb__QuotaDefinition *d, struct fault *fault) {
    const struct {
        const char *name;
        uint32_t part;
    } parts[] = {{"MaxLeaseFraction", d->max_lease},
                 {"Drift", d->drift},
                 {"LowWatermark", d->low_watermark},
                 {"UnknownSlack", d->unknown_slack}};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        if (parts[i].part > QUOTA_WHOLE)
            return fault_set(fault, CO_INVALID, "%s: a part from 0 to 1, in steps of 0.000001", parts[i].name);
    return CO_OK;
}

static int check_owner(const Pb__QuotaDefinition *d, struct fault *fault) {
    bool owner = d->mode == PB__QUOTA_MODE__QUOTA_OWNER;
    if (owner && !d->service[0])
        return fault_set(fault, CO_INVALID, "Service: missing: whose healthy instances' agents own the keys?");
    if (!owner && d->service[0]) return fault_set(fault, CO_INVALID, "Service: only with Mode owner");
    if (strlen(d->service) > QUOTA_SERVICE_MOST) return fault_set(fault, CO_INVALID, "Service: at most 512 bytes");
    if (!owner && d->split) return fault_set(fault, CO_INVALID, "Split: only with Mode owner");
    if (d->split > QUOTA_PARTS_MOST || d->split > quota_capacity(d))
        return fault_set(fault, CO_INVALID, "Split: at most 64, and no more than there are tokens");
    return CO_OK;
}

static void put_defaults(Pb__QuotaDefinition *d) {
    if (!d->window && !d->burst) d->burst = d->budget;
    if (!d->lease_ttl_ms) d->lease_ttl_ms = QUOTA_TTL_MS;
    if (!d->max_lease) d->max_lease = QUOTA_MAX_LEASE;
    if (!d->drift) d->drift = QUOTA_DRIFT;
    if (!d->low_watermark) d->low_watermark = QUOTA_LOW_WATERMARK;
    if (!d->unknown_slack_given) d->unknown_slack = 0;
    if (!d->last_for_ms) d->last_for_ms = QUOTA_LAST_FOR_MS;
}

int quota_definition_check(Pb__QuotaDefinition *d, struct fault *fault) {
    if (!quota_name_fits(d->name))
        return fault_set(fault, CO_INVALID,
                         "a budget's name has 1 to 256 printable ASCII characters, none of them '\"' or '\\'");
    if (!is_amount(d->budget)) return fault_set(fault, CO_INVALID, "Budget: wanted is " AMOUNTS);
    if ((unsigned)d->mode > PB__QUOTA_MODE__QUOTA_BOUNDED)
        return fault_set(fault, CO_INVALID, "Mode: one of lease, owner, bounded");
    if ((unsigned)d->on_loss > PB__QUOTA_LOSS__QUOTA_LAST)
        return fault_set(fault, CO_INVALID, "OnLoss: one of open, closed, last");
    if ((unsigned)d->window > PB__QUOTA_WINDOW__QUOTA_MONTH)
        return fault_set(fault, CO_INVALID, "Refill.Window: one of minute, hour, day, month");
    int rv = check_refill(d, fault);
    if (rv == CO_OK) rv = check_parts(d, fault);
    if (rv != CO_OK) return rv;
    put_defaults(d);
    if (d->lease_ttl_ms < QUOTA_TTL_MIN_MS || d->lease_ttl_ms > QUOTA_TTL_MAX_MS)
        return fault_set(fault, CO_INVALID, "LeaseTTL: from 1s to 10m");
    if (d->local_cap > QUOTA_AMOUNT_MOST) return fault_set(fault, CO_INVALID, "LocalCap: wanted is " AMOUNTS);
    if (d->on_loss == PB__QUOTA_LOSS__QUOTA_OPEN && !d->local_cap)
        return fault_set(fault, CO_INVALID, "LocalCap: missing: with OnLoss open, how much may an agent admit?");
    if (d->last_for_ms > QUOTA_LAST_FOR_MOST_MS) return fault_set(fault, CO_INVALID, "LastFor: at most 24h");
    return check_owner(d, fault);
}

/* -- amounts ------------------------------------------------------------------------------------------------------ */

uint64_t quota_capacity(const Pb__QuotaDefinition *d) { return !d->window && d->burst ? d->burst : d->budget; }

uint64_t quota_part(uint64_t whole, uint32_t millionths) {
    _Static_assert(QUOTA_AMOUNT_MOST < UINT64_MAX / QUOTA_WHOLE * 1000, "what is below a millionth does not overflow");
    return whole / QUOTA_WHOLE * millionths + whole % QUOTA_WHOLE * millionths / QUOTA_WHOLE;
}

uint64_t quota_lease_most(const Pb__QuotaDefinition *d) {
    uint64_t most = quota_part(quota_capacity(d), d->max_lease);
    return most ? most : 1;
}

/* The i-th of n parts, whose sum is the whole. */
static uint64_t nth_part(uint64_t whole, uint64_t i, uint64_t n) { return whole * (i + 1) / n - whole * i / n; }

uint64_t quota_split_part(uint64_t capacity, uint32_t parts, uint32_t i) {
    _Static_assert(QUOTA_AMOUNT_MOST <= UINT64_MAX / (QUOTA_PARTS_MOST + 1), "the product does not overflow");
    CHECK(i < parts && parts <= QUOTA_PARTS_MOST && capacity <= QUOTA_AMOUNT_MOST);
    return nth_part(capacity, i, parts);
}

/* -- refills ------------------------------------------------------------------------------------------------------ */

/* The number of steps in which `tokens` come. */
static uint64_t refill_steps(const Pb__QuotaDefinition *d) {
    uint64_t steps = d->every_ms / 1000;
    if (steps > QUOTA_REFILL_STEPS) steps = QUOTA_REFILL_STEPS;
    if (steps > d->tokens) steps = d->tokens;
    return steps ? steps : 1;
}

/* Rounded up: never faster than defined. */
uint64_t quota_refill_period_ms(const Pb__QuotaDefinition *d) {
    uint64_t steps = refill_steps(d);
    return (d->every_ms + steps - 1) / steps;
}

uint64_t quota_refill_wait_ms(const Pb__QuotaDefinition *d, uint64_t waited_ms) {
    uint64_t period_ms = quota_refill_period_ms(d),
             piece_ms = (period_ms + QUOTA_REFILL_WAITS - 1) / QUOTA_REFILL_WAITS;
    uint64_t left_ms = quota_minus(period_ms, waited_ms);
    if (piece_ms < 1000) piece_ms = 1000;
    return left_ms < piece_ms ? left_ms : piece_ms;
}

uint64_t quota_refill_part(const Pb__QuotaDefinition *d, uint32_t step, uint32_t *next) {
    _Static_assert(QUOTA_AMOUNT_MOST <= UINT64_MAX / (QUOTA_REFILL_STEPS + 1), "the product does not overflow");
    uint64_t steps = refill_steps(d), at = step % steps;
    *next = (uint32_t)((at + 1) % steps);
    CHECK(at < steps && *next < steps);
    return nth_part(d->tokens, at, steps);
}

/* -- windows ------------------------------------------------------------------------------------------------------ */

static int64_t floor_to(int64_t value, int64_t step) {
    CHECK(step > 0);
    int64_t rest = value % step;
    return value - (rest < 0 ? rest + step : rest);
}

/* Days from 1970-01-01 to the first of a month, which counts from January of the year 0; and back. Years begin in March
 * here, so that a leap day is a year's last one. */
static int64_t month_to_days(int64_t month) {
    int64_t from_march = month - 2, year = floor_to(from_march, 12) / 12, of_year = from_march - year * 12;
    int64_t era = floor_to(year, 400) / 400, of_era = year - era * 400;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + (of_year * 153 + 2) / 5 - 719468;
}

static int64_t days_to_month(int64_t days) {
    int64_t era = floor_to(days + 719468, 146097) / 146097, day = days + 719468 - era * 146097;
    int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    int64_t of_year = day - (365 * year + year / 4 - year / 100);
    return (era * 400 + year) * 12 + (5 * of_year + 2) / 153 + 2;
}

static int64_t length_of(Pb__QuotaWindow window) {
    return window == PB__QUOTA_WINDOW__QUOTA_MINUTE ? MINUTE_S
           : window == PB__QUOTA_WINDOW__QUOTA_HOUR ? HOUR_S
                                                    : DAY_S;
}

/* Times that are beyond all sense count as the last one within. */
#define UNIX_MOST_S INT64_C(1000000000000)
static int64_t local_time(const Pb__QuotaDefinition *d, int64_t unix_s) {
    int64_t within = unix_s > UNIX_MOST_S ? UNIX_MOST_S : unix_s < -UNIX_MOST_S ? -UNIX_MOST_S : unix_s;
    return within + (int64_t)d->offset_minutes * MINUTE_S;
}

static int64_t window_begin(const Pb__QuotaDefinition *d, int64_t unix_s, unsigned later) {
    int64_t local = local_time(d, unix_s), start;
    if (!d->window) return unix_s;
    if (d->window == PB__QUOTA_WINDOW__QUOTA_MONTH)
        start = month_to_days(days_to_month(floor_to(local, DAY_S) / DAY_S) + later) * DAY_S;
    else start = floor_to(local, length_of(d->window)) + later * length_of(d->window);
    return start - (int64_t)d->offset_minutes * MINUTE_S;
}

int64_t quota_window_start(const Pb__QuotaDefinition *d, int64_t unix_s) { return window_begin(d, unix_s, 0); }
int64_t quota_window_end(const Pb__QuotaDefinition *d, int64_t unix_s) { return window_begin(d, unix_s, 1); }

/* -- the bound ---------------------------------------------------------------------------------------------------- */

static uint64_t product(uint64_t a, uint64_t b) {
    uint64_t result;
    return __builtin_mul_overflow(a, b, &result) || result > INT64_MAX ? INT64_MAX : result;
}

static uint64_t sum(uint64_t a, uint64_t b) { return a + b > INT64_MAX ? INT64_MAX : a + b; }

struct quota_bound quota_bound_of(const Pb__QuotaDefinition *d, uint64_t agents) {
    struct quota_bound bound = {0};
    uint64_t capacity = quota_capacity(d);
    if (d->mode == PB__QUOTA_MODE__QUOTA_BOUNDED) bound.drift = quota_part(capacity, d->drift);
    if (d->on_loss == PB__QUOTA_LOSS__QUOTA_OPEN) bound.local_caps = product(d->local_cap, agents);
    if (d->on_loss == PB__QUOTA_LOSS__QUOTA_LAST) {
        uint64_t ttl_ms = d->lease_ttl_ms ? d->lease_ttl_ms : QUOTA_TTL_MS;
        bound.last = product(product(quota_lease_most(d), agents), (d->last_for_ms + ttl_ms - 1) / ttl_ms);
    }
    if (d->mode == PB__QUOTA_MODE__QUOTA_OWNER && d->window) bound.hand_over = capacity;
    bound.sum = sum(sum(bound.leases, bound.drift), sum(sum(bound.local_caps, bound.last), bound.hand_over));
    return bound;
}
