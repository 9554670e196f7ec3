#include "kv/quota/quota_agent.h"

#include "base/error.h"
#include "kv/quota/quota_internal.h"

/* -- asks --------------------------------------------------------------------------------------------------------- */

static void session_new(struct quota_session *session, struct rng *rng) {
    uint64_t bytes[2] = {rng_next(rng), rng_next(rng)};
    uint8_t *at = (uint8_t *)bytes;
    at[6] = (uint8_t)((at[6] & 0x0f) | 0x40);
    at[8] = (uint8_t)((at[8] & 0x3f) | 0x80);
    uuid_format(at, session->id);
    session->made = false;
}

Pb__SessionUse *quota_session_use(struct quota_session *session, char *node, struct rng *rng, struct arena *arena) {
    static char *checks[] = {"serfHealth"};
    Pb__SessionUse *use = arena_alloc(arena, sizeof *use);
    pb__session_use__init(use);
    if (!session->id[0]) session_new(session, rng);
    if (session->made) {
        use->id = session->id;
        return use;
    }
    use->create = arena_alloc(arena, sizeof *use->create);
    pb__session__init(use->create);
    use->create->id = session->id;
    use->create->name = "quotas";
    use->create->node = node;
    use->create->node_checks = checks;
    use->create->n_node_checks = 1;
    return use;
}

void quota_session_answered(struct quota_session *session, const Pb__QuotaGrants *grants) {
    session->made = grants && grants->session[0];
    if (!session->made) session->id[0] = '\0'; /* the session ended with its last lease */
}

const char *quota_name_fault(struct slice name) {
    char room[QUOTA_NAME_MOST + 1];
    bool fits = name.size > 0 && name.size <= QUOTA_NAME_MOST && !memchr(name.data, '\0', name.size);
    if (fits) {
        memcpy(room, name.data, name.size);
        room[name.size] = '\0';
        fits = quota_name_fits(room);
    }
    return fits ? NULL : "a budget's name has 1 to 256 printable ASCII characters, none of them '\"' or '\\'";
}

bool quota_ask_certain(int error) {
    switch (error) {
        case CO_NOLEADER:
        case CO_NOTLEADER:
        case CO_BUSY:
        case CO_DISKFULL:
        case CO_INVALID:
        case CO_TOOLARGE:
        case CO_DENIED:
        case CO_UNSUPPORTED:
        case CO_PRECONDITION:
        case CO_FENCED: return true;
        default: return false;
    }
}

uint64_t quota_retry_ms(unsigned failures, struct rng *rng) {
    enum { LEAST_MS = 200, MOST_MS = 1000 };
    uint64_t wait_ms = (uint64_t)LEAST_MS << (failures < 4 ? failures : 4);
    if (wait_ms > MOST_MS) wait_ms = MOST_MS;
    return wait_ms * 3 / 4 + rng_below(rng, wait_ms / 2);
}

/* -- what it may admit by itself ---------------------------------------------------------------------------------- */

uint64_t quota_slowed_ns(uint64_t ms) {
    uint64_t ns = ms * QUOTA_NS_A_MS;
    return ns + (uint64_t)((unsigned __int128)ns * QUOTA_CLOCK_PPM / 1000000);
}

static uint64_t sum_of(const struct quota_cap *cap) {
    uint64_t sum = 0;
    for (size_t i = 0; i < QUOTA_CAP_SLOTS; i++) sum += cap->sums[i];
    return sum;
}

uint64_t quota_cap_used(struct quota_cap *cap, const Pb__QuotaDefinition *definition, uint64_t now_ns,
                        uint64_t *more_ns) {
    uint64_t period_ns = quota_slowed_ns(quota_period_ms(definition)), slot_ns = period_ns / (QUOTA_CAP_SLOTS - 1) + 1;
    uint64_t slot = now_ns / slot_ns;
    if (now_ns < cap->begun_ns + period_ns) {
        *more_ns = cap->begun_ns + period_ns;
        return UINT64_MAX;
    }
    if (slot_ns != cap->slot_ns) { /* the definition has changed: everything counts for a whole period from now on */
        uint64_t sum = sum_of(cap);
        memset(cap->sums, 0, sizeof cap->sums);
        cap->sums[slot % QUOTA_CAP_SLOTS] = sum;
        cap->slot_ns = slot_ns;
        cap->slot = slot;
    }
    for (size_t i = 0; cap->slot < slot && i < QUOTA_CAP_SLOTS; i++) cap->sums[++cap->slot % QUOTA_CAP_SLOTS] = 0;
    cap->slot = slot;
    *more_ns = (slot + 1) * slot_ns;
    return sum_of(cap);
}

void quota_cap_add(struct quota_cap *cap, uint64_t n) { cap->sums[cap->slot % QUOTA_CAP_SLOTS] += n; }

bool quota_cap_counts(const struct quota_cap *cap, uint64_t now_ns) {
    return sum_of(cap) && now_ns / cap->slot_ns < cap->slot + QUOTA_CAP_SLOTS;
}

/* -- RateLimit fields --------------------------------------------------------------------------------------------- */

uint64_t quota_period_ms(const Pb__QuotaDefinition *definition) {
    switch (definition->window) {
        case PB__QUOTA_WINDOW__QUOTA_MINUTE: return 60000;
        case PB__QUOTA_WINDOW__QUOTA_HOUR: return 3600000;
        case PB__QUOTA_WINDOW__QUOTA_DAY: return 86400000;
        case PB__QUOTA_WINDOW__QUOTA_MONTH: return UINT64_C(31) * 86400000;
        default: return definition->every_ms;
    }
}

void quota_rate_fields(const Pb__QuotaDefinition *definition, int64_t unix_s, struct spender_rate *rate) {
    if (definition->window != PB__QUOTA_WINDOW__QUOTA_CONTINUOUS) {
        int64_t begin_s = quota_window_start(definition, unix_s), end_s = quota_window_end(definition, unix_s);
        rate->quota = definition->budget;
        rate->window_s = (uint64_t)(end_s - begin_s);
        rate->reset_s = (uint64_t)(end_s - unix_s);
        return;
    }
    /* The fields have whole seconds. For a period with a fraction of a second they say what comes in the next longer
     * whole one. */
    uint64_t every_ms = definition->every_ms ? definition->every_ms : 1, step_ms = quota_refill_period_ms(definition);
    rate->window_s = (every_ms + 999) / 1000;
    rate->quota = (uint64_t)((unsigned __int128)definition->tokens * rate->window_s * 1000 / every_ms);
    rate->reset_s = ((step_ms ? step_ms : 1) + 999) / 1000;
}
