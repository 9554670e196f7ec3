/* A sample pulls or pushes the coordinate along the line to the other one, by a part of the difference between the
 * time measured and the distance; that part is larger the less this node trusts itself compared with the other. */
#include "lb/vivaldi.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

#define ZERO 1e-6 /* below a microsecond times and distances are noise, and are not divided by */

/* The last samples of a peer. */
struct peer {
    char *name;
    size_t name_size;
    double samples[VIVALDI_FILTER];
    unsigned count, next;
    uint64_t last_seen; /* number of its last sample */
};

struct vivaldi {
    struct vivaldi_coordinate here;
    struct rng rng;
    double window[VIVALDI_WINDOW]; /* measured - predicted without adjustments */
    unsigned window_next;
    struct peer peers[VIVALDI_PEERS_MAX];
    size_t peer_count;
    uint64_t samples, resets;
};

/* -- vectors ------------------------------------------------------------------------------------------------------ */
static double magnitude(const double vec[VIVALDI_DIMENSIONS]) {
    double sum = 0;
    for (int i = 0; i < VIVALDI_DIMENSIONS; i++) sum += vec[i] * vec[i];
    return sqrt(sum);
}

/* The distance of two coordinates without their adjustments. */
static double raw_distance(const struct vivaldi_coordinate *a, const struct vivaldi_coordinate *b) {
    double between[VIVALDI_DIMENSIONS];
    for (int i = 0; i < VIVALDI_DIMENSIONS; i++) between[i] = a->vec[i] - b->vec[i];
    return magnitude(between) + a->height + b->height;
}

/* -1 to 1 */
static double random_part(struct rng *rng) { return 2 * rng_unit(rng) - 1; }

/* The direction from `from` to `to`, of length 1; any direction when both are at one place. Returns the distance; 0:
 * it is random. */
static double direction(struct rng *rng, const struct vivaldi_coordinate *to, const struct vivaldi_coordinate *from,
                        double unit[VIVALDI_DIMENSIONS]) {
    for (int i = 0; i < VIVALDI_DIMENSIONS; i++) unit[i] = to->vec[i] - from->vec[i];
    double apart = magnitude(unit), length = apart;
    while (length <= ZERO) {
        for (int i = 0; i < VIVALDI_DIMENSIONS; i++) unit[i] = random_part(rng);
        length = magnitude(unit);
    }
    for (int i = 0; i < VIVALDI_DIMENSIONS; i++) unit[i] /= length;
    return apart > ZERO ? apart : 0;
}

/* Moves `here` by `force` seconds away from `there` (negative: towards it). The height takes part in proportion. */
static void push(struct vivaldi *vivaldi, double force, const struct vivaldi_coordinate *there) {
    struct vivaldi_coordinate *here = &vivaldi->here;
    double unit[VIVALDI_DIMENSIONS], apart = direction(&vivaldi->rng, here, there, unit);
    for (int i = 0; i < VIVALDI_DIMENSIONS; i++) here->vec[i] += unit[i] * force;
    if (apart == 0) return;
    here->height += (here->height + there->height) * force / apart;
    if (here->height < VIVALDI_HEIGHT_MIN) here->height = VIVALDI_HEIGHT_MIN;
}

/* -- coordinates -------------------------------------------------------------------------------------------------- */
struct vivaldi_coordinate vivaldi_origin(void) {
    return (struct vivaldi_coordinate){.error = VIVALDI_ERROR_MAX, .height = VIVALDI_HEIGHT_MIN};
}

static bool sane(double number) { return isfinite(number) && fabs(number) <= VIVALDI_NUMBER_MAX; }

bool vivaldi_valid(const struct vivaldi_coordinate *coordinate) {
    for (int i = 0; i < VIVALDI_DIMENSIONS; i++)
        if (!sane(coordinate->vec[i])) return false;
    return sane(coordinate->error) && coordinate->error >= 0 && sane(coordinate->adjustment) &&
           sane(coordinate->height) && coordinate->height >= 0;
}

/* Leaves the adjustments out when they would make the time negative. */
double vivaldi_distance(const struct vivaldi_coordinate *a, const struct vivaldi_coordinate *b) {
    double raw = raw_distance(a, b), adjusted = raw + a->adjustment + b->adjustment;
    return adjusted > 0 ? adjusted : raw;
}

/* -- the latency filter ------------------------------------------------------------------------------------------- */
static struct peer *peer_find(struct vivaldi *vivaldi, struct slice name) {
    for (size_t i = 0; i < vivaldi->peer_count; i++) {
        struct peer *peer = &vivaldi->peers[i];
        if (slice_equal(slice_make(peer->name, peer->name_size), name)) return peer;
    }
    return NULL;
}

static struct peer *peer_place(struct vivaldi *vivaldi) {
    if (vivaldi->peer_count < VIVALDI_PEERS_MAX) return &vivaldi->peers[vivaldi->peer_count++];
    struct peer *oldest = &vivaldi->peers[0];
    for (size_t i = 1; i < vivaldi->peer_count; i++)
        if (vivaldi->peers[i].last_seen < oldest->last_seen) oldest = &vivaldi->peers[i];
    free(oldest->name);
    return oldest;
}

static int ascending(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* Notes the sample; returns the median of the peer's last ones (the shorter of two, because disturbances make round
 * trips longer). */
static double filtered(struct vivaldi *vivaldi, struct slice name, double rtt) {
    struct peer *peer = peer_find(vivaldi, name);
    if (!peer) {
        peer = peer_place(vivaldi);
        *peer = (struct peer){.name = mem_strndup(name.data, name.size), .name_size = name.size};
    }
    peer->last_seen = ++vivaldi->samples;
    peer->samples[peer->next] = rtt;
    peer->next = (peer->next + 1) % VIVALDI_FILTER;
    if (peer->count < VIVALDI_FILTER) peer->count++;
    double sorted[VIVALDI_FILTER];
    memcpy(sorted, peer->samples, peer->count * sizeof *sorted);
    qsort(sorted, peer->count, sizeof *sorted, ascending);
    return sorted[(peer->count - 1) / 2];
}

void vivaldi_forget(struct vivaldi *vivaldi, struct slice name) {
    struct peer *peer = peer_find(vivaldi, name);
    if (!peer) return;
    free(peer->name);
    *peer = vivaldi->peers[--vivaldi->peer_count];
}

/* -- a sample ----------------------------------------------------------------------------------------------------- */
static void move(struct vivaldi *vivaldi, const struct vivaldi_coordinate *there, double rtt) {
    struct vivaldi_coordinate *here = &vivaldi->here;
    double predicted = vivaldi_distance(here, there);
    if (rtt < ZERO) rtt = ZERO;
    double wrong = fabs(predicted - rtt) / rtt, doubt = here->error + there->error;
    double weight = here->error / (doubt < ZERO ? ZERO : doubt);
    here->error += VIVALDI_CE * weight * (wrong - here->error);
    if (here->error > VIVALDI_ERROR_MAX) here->error = VIVALDI_ERROR_MAX;
    push(vivaldi, VIVALDI_CC * weight * (rtt - predicted), there);
}

/* Half of the mean error of the last samples, because the other side adds the other half. */
static void adjust(struct vivaldi *vivaldi, const struct vivaldi_coordinate *there, double rtt) {
    vivaldi->window[vivaldi->window_next] = rtt - raw_distance(&vivaldi->here, there);
    vivaldi->window_next = (vivaldi->window_next + 1) % VIVALDI_WINDOW;
    double sum = 0;
    for (int i = 0; i < VIVALDI_WINDOW; i++) sum += vivaldi->window[i];
    vivaldi->here.adjustment = sum / (2 * VIVALDI_WINDOW);
}

/* Samples measure only distances, so without this the whole cluster would drift away together. */
static void gravitate(struct vivaldi *vivaldi) {
    struct vivaldi_coordinate origin = vivaldi_origin();
    double away = vivaldi_distance(&origin, &vivaldi->here) / VIVALDI_GRAVITY;
    push(vivaldi, -away * away, &origin);
}

int vivaldi_sample(struct vivaldi *vivaldi, struct slice peer, const struct vivaldi_coordinate *there, double rtt) {
    if (!(rtt >= 0 && rtt <= VIVALDI_RTT_MAX) || !vivaldi_valid(there)) return CO_INVALID;
    double usual = filtered(vivaldi, peer, rtt);
    move(vivaldi, there, usual);
    adjust(vivaldi, there, usual);
    gravitate(vivaldi);
    if (vivaldi_valid(&vivaldi->here)) return CO_OK;
    vivaldi->here = vivaldi_origin();
    memset(vivaldi->window, 0, sizeof vivaldi->window);
    vivaldi->resets++;
    return CO_OK;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct vivaldi *vivaldi_new(uint64_t seed) {
    struct vivaldi *vivaldi = mem_zalloc(sizeof *vivaldi);
    vivaldi->here = vivaldi_origin();
    rng_seed(&vivaldi->rng, seed);
    return vivaldi;
}

void vivaldi_free(struct vivaldi *vivaldi) {
    if (!vivaldi) return;
    for (size_t i = 0; i < vivaldi->peer_count; i++) free(vivaldi->peers[i].name);
    free(vivaldi);
}

const struct vivaldi_coordinate *vivaldi_here(const struct vivaldi *vivaldi) { return &vivaldi->here; }
uint64_t vivaldi_resets(const struct vivaldi *vivaldi) { return vivaldi->resets; }
