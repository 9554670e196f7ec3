/* One figure (load, requests in flight, latency) of many instances, some of which do not report it, and the value that
 * stands for it then.
 *
 * An unknown figure never counts as zero, but as the mean of the instances that report it. The mean is counted so that
 * an instance gains only by the value of its report, not by reporting. A report counts in the mean only for the part of
 * the instance's requests that succeed, because an instance that fails at once is idle and quick, and its figure is no
 * measure for the others. And when an instance without a report is compared with another one, the mean leaves out the
 * other one; if there is no third report the two count alike.
 *
 * NAN: not reported. Pure, not thread-safe. */
#ifndef COORD_LB_FIGURE_H
#define COORD_LB_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

struct figure {
    double sum, weight;      /* sums of the reported values, and of the reporters' weights */
    double sound, soundness; /* the same sums, each term times the part of requests that succeed */
    size_t known;
};

/* Adds the report of one instance. The figure is value / weight; for a figure that is per instance already the weight
 * is 1. */
struct figure_said {
    double value, weight;
    double errors; /* 0 to 1 */
};
void figure_add(struct figure *figure, const struct figure_said *said);
void figure_remove(struct figure *figure, const struct figure_said *said); /* with the arguments of figure_add */

double figure_mean(const struct figure *figure); /* NAN: nobody reports it */
/* The value of an instance that does not report it, for a comparison with `other`. NAN: nobody reports it. */
double figure_beside(const struct figure *figure, const struct figure_said *other);

/* The cost for which a figure counts when a part of the requests fails. (A smaller figure is better.) The cost of the
 * failed requests is added to each success, and a failed request costs no less than one at the instance of the
 * comparison (`other`, or the usual value), so that failing quickly is no merit. INFINITY: all requests fail. The
 * result is never below `value`, and grows with `errors`. */
double figure_with_errors(double value, double errors, double other);

#endif
