#include "lb/figure.h"

#include <math.h>

#define SOUND_LEAST 1e-3 /* part of the weight: with fewer successes the mean is no measure for others */

void figure_add(struct figure *figure, const struct figure_said *said) {
    if (isnan(said->value)) return;
    figure->sum += said->value;
    figure->weight += said->weight;
    figure->sound += said->value * (1 - said->errors);
    figure->soundness += said->weight * (1 - said->errors);
    figure->known++;
}

void figure_remove(struct figure *figure, const struct figure_said *said) {
    if (isnan(said->value)) return;
    if (--figure->known == 0) {
        *figure = (struct figure){0};
        return;
    }
    figure->sum -= said->value;
    figure->weight -= said->weight;
    figure->sound -= said->value * (1 - said->errors);
    figure->soundness -= said->weight * (1 - said->errors);
}

static bool is_sound(const struct figure *figure) {
    return figure->known && figure->soundness > SOUND_LEAST * figure->weight;
}

/* Differences of sums may leave a little below zero. */
double figure_mean(const struct figure *figure) {
    if (!figure->known) return NAN;
    return fmax(is_sound(figure) ? figure->sound / figure->soundness : figure->sum / figure->weight, 0);
}

double figure_beside(const struct figure *figure, const struct figure_said *other) {
    if (isnan(other->value)) return figure_mean(figure);
    struct figure without = *figure;
    figure_remove(&without, other);
    return is_sound(&without) ? figure_mean(&without) : other->value / other->weight;
}

double figure_with_errors(double value, double errors, double other) {
    if (!(errors > 0)) return value;
    return errors < 1 ? (value + errors * fmax(value, other)) / (1 - errors) : INFINITY;
}
