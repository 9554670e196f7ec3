/* Network coordinates: each node keeps a place in a space so that the distance of two places predicts the round trip
 * time between the two nodes, also where they never spoke. Vivaldi (Dabek, Cox, Kaashoek, Morris, SIGCOMM 2004) with
 * heights (its section 5.4); adjustment terms (Lee et al., "On Suitability of Euclidean Embedding of Internet
 * Hosts", SIGMETRICS 2006) and gravity and latency filters (Ledlie, Gardner, Seltzer, "Network Coordinates in the
 * Wild", NSDI 2007), with the parameters that Serf documents and Consul's agents use, so that coordinates of both
 * can be compared: 8 dimensions, all numbers in seconds.
 *
 * Pure: samples and randomness come in, nothing goes out. One thread a `struct vivaldi`. */
#ifndef COORD_LB_VIVALDI_H
#define COORD_LB_VIVALDI_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/random.h"

enum { VIVALDI_DIMENSIONS = 8, VIVALDI_WINDOW = 20, VIVALDI_FILTER = 3, VIVALDI_PEERS_MAX = 128 };
#define VIVALDI_ERROR_MAX  1.5   /* the error of a new coordinate, and the greatest one */
#define VIVALDI_CE         0.25  /* the most that one sample changes the error by */
#define VIVALDI_CC         0.25  /* the most that one sample moves the coordinate by, as a part of what is missing */
#define VIVALDI_HEIGHT_MIN 10e-6 /* also at the origin, because even two nodes on one host are not at the same place */
#define VIVALDI_GRAVITY    150.0 /* seconds from the origin at which the pull towards it is one second a sample */
#define VIVALDI_RTT_MAX    10.0  /* longer round trips are refused */
#define VIVALDI_NUMBER_MAX 1e6   /* no number of a coordinate is beyond it: eleven days */

struct vivaldi_coordinate {
    double vec[VIVALDI_DIMENSIONS];
    double error;      /* its own estimate of its error: 0 is full trust */
    double adjustment; /* added to distances from here */
    double height;     /* the common part of every path from here: the access link */
};
/* The coordinate of a node that has measured nothing. */
struct vivaldi_coordinate vivaldi_origin(void);
/* May another node's coordinate be used? All its numbers are finite and of a plausible size, error and height are not
 * negative. */
bool vivaldi_valid(const struct vivaldi_coordinate *coordinate);
/* The round trip time between two, in seconds: not negative. Both are valid. */
double vivaldi_distance(const struct vivaldi_coordinate *a, const struct vivaldi_coordinate *b);

/* A node that learns its own coordinate. */
struct vivaldi;
struct vivaldi *vivaldi_new(uint64_t seed); /* for random directions, when two nodes are at one place */
void vivaldi_free(struct vivaldi *vivaldi);
const struct vivaldi_coordinate *vivaldi_here(const struct vivaldi *vivaldi); /* until the next sample */

/* One sample: the round trip to `peer`, which was at `there` then, took `rtt` seconds. The median of the last
 * VIVALDI_FILTER samples of that peer counts; of more than VIVALDI_PEERS_MAX peers the ones unheard for longest are
 * forgotten. CO_INVALID, nothing changed: the round trip is negative, no number or above VIVALDI_RTT_MAX, or the
 * coordinate is not valid. */
int vivaldi_sample(struct vivaldi *vivaldi, struct slice peer, const struct vivaldi_coordinate *there, double rtt);
/* The peer is gone, or another network path leads to it: forgets its old samples. */
void vivaldi_forget(struct vivaldi *vivaldi, struct slice peer);
/* how often the numbers became invalid, so that the coordinate began again at the origin */
uint64_t vivaldi_resets(const struct vivaldi *vivaldi);

#endif
