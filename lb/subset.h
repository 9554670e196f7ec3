/* ?subset=N&id=CALLER: chooses the N instances that a caller should use. They are the same at each server and each
 * time, as long as they exist.
 *
 * Each caller ranks all instances by rendezvous hashing (base/rendezvous.h) and takes the first N. So movement is
 * minimal, exactly: without an instance only those callers change that used it, by one each; a new one takes the place
 * of one at those callers that it is for. Over all callers that is 1/n of the assignments on average. (Deterministic
 * subsetting as in "Site Reliability Engineering", chapter 20, covers instances perfectly, but shuffles anew when their
 * number changes: nearly all assignments move. "Reinventing Backend Subsetting at Google", ACM Queue 20/5, tells what
 * that costs.)
 *
 * Nobody knows how many callers there are, so they cannot share the instances among them. But their names often end in
 * a number ("web-17"), which is all that is needed: of callers that are numbered, any 16 and any 256 in a row are
 * stratified. Of 16 in a row each draws, for a given instance, from another sixteenth of all numbers; of 256 in a row
 * from another 256th. Coverage is then spread less than half as far as by chance: with 100 instances and 1,000 callers
 * of 10 each, all have 91 to 111 callers, instead of 82 to 126. Two callers have as few instances in common as by
 * chance. Names without a number are covered as chance has it. tests/lb/test_subset.c has the figures.
 *
 * Pure; any number of threads. */
#ifndef COORD_LB_SUBSET_H
#define COORD_LB_SUBSET_H

#include "base/rendezvous.h"

/* `set`: the instances, each of weight 1, or heavier for more callers. Writes at most `most` indexes of instances, this
 * caller's first choice first; returns how many. */
size_t subset_choose(const struct rendezvous *set, struct slice caller, size_t most, size_t *chosen);

#endif
