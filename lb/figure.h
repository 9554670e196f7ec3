/* One figure (load, requests in flight, latency) of many instances, of which some do not say it: what stands for it then.
 *
 * Unknown is never zero: it counts as the mean of those that say it. That mean is counted so that nobody gains by saying
 * something, but for what it says. What an instance says counts in it only for the part of its requests that succeed:
 * one that fails at once is idle and quick, which says nothing of the others. And when one that says nothing is
 * compared with another one, the mean is without that one; where nobody else says it the two count alike.
 *
 * Not said is NAN. Pure, not thread-safe. */
#ifndef COORD_LB_FIGURE_H
#define COORD_LB_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

struct figure {
    double sum, weight;      /* of what is said, and the weight of those that say it */
    double sound, soundness; /* the same, each times the part of the requests that succeed */
    size_t known;
};

/* What one instance says. The figure is value / weight: of one that is per instance already, the weight is 1. */
struct figure_said {
    double value, weight;
    double errors; /* 0 to 1 */
};
void figure_add(struct figure *figure, const struct figure_said *said);
void figure_remove(struct figure *figure, const struct figure_said *said); /* as it was added */

double figure_mean(const struct figure *figure); /* NAN: nobody says it */
/* What stands for one that does not say it where it is compared with `other`. NAN: nobody says it. */
double figure_beside(const struct figure *figure, const struct figure_said *other);

/* How much a figure counts for that is to be small, where a part of the requests fails: each success costs as much more as
 * fails in between, and what fails costs no less than at the one that it is compared with (`other`, or what is usual), so
 * that to fail quickly is no merit. INFINITY: all fail. Never below `value`, and grows with `errors`. */
double figure_with_errors(double value, double errors, double other);

#endif
