/* A plot of figures that another program has measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balance.h"
#include "base/check.h"

enum { POINTS_MAX = 1000 };

/* Without its end. NULL: there is none. */
static char *next_line(FILE *from) {
    char *text = NULL;
    size_t room = 0;
    if (getline(&text, &room, from) < 0) {
        free(text);
        return NULL;
    }
    text[strcspn(text, "\n")] = '\0';
    return text;
}

/* The fields of a line, between tabs; `text` is cut into them. */
static size_t fields_of(char *text, char **fields, size_t most) {
    size_t count = 0;
    for (char *at; count < most && (at = strsep(&text, "\t"));) fields[count++] = at;
    return count;
}

static double number_of(const char *text) {
    char *end;
    double value = strtod(text, &end);
    return end != text && !*end ? value : NAN;
}

int plot_text(FILE *from, struct buffer *out) {
    static double x[POINTS_MAX], y[SERIES_MAX][POINTS_MAX];
    char *labels[4], *names[SERIES_MAX], *fields[SERIES_MAX + 1];
    struct series series[SERIES_MAX];
    struct plot plot = {.x = x, .series = series, .log_x = true, .log_y = true};
    for (size_t i = 0; i < ARRAY_COUNT(labels); i++)
        if (!(labels[i] = next_line(from))) labels[i] = strdup("");
    plot.title = labels[0], plot.x_label = labels[1], plot.y_label = labels[2];
    plot.series_count = fields_of(labels[3], names, SERIES_MAX);
    for (char *text; plot.points < POINTS_MAX && (text = next_line(from)); free(text)) {
        size_t count = fields_of(text, fields, SERIES_MAX + 1);
        x[plot.points] = count > 0 ? number_of(fields[0]) : NAN;
        if (!(x[plot.points] > 0)) continue; /* an empty line */
        for (size_t i = 0; i < plot.series_count; i++)
            y[i][plot.points] = i + 1 < count ? number_of(fields[i + 1]) : NAN;
        plot.points++;
    }
    for (size_t i = 0; i < plot.series_count; i++) series[i] = (struct series){names[i], y[i]};
    if (plot.points > 1) plot_svg(&plot, out);
    for (size_t i = 0; i < ARRAY_COUNT(labels); i++) free(labels[i]);
    return plot.points > 1 ? 0 : 1;
}
