/* Line plots as SVG: axes with round numbers, a line and a name for each series. */
#include <math.h>
#include <stdio.h>

#include "balance.h"

enum { WIDTH = 720, HEIGHT = 380, LEFT = 70, RIGHT = 130, TOP = 40, BOTTOM = 50, NAME_GAP = 15 };

static const char *const colours[] = {"#888888", "#b07d2b", "#c0392b", "#1f6fb2", "#2a8c4a"};
enum { COLOURS = sizeof colours / sizeof *colours };

struct axis {
    double least, most;
    bool log;
    double from, to; /* pixels */
};

static double place(const struct axis *axis, double value) {
    double part = axis->log ? log(value / axis->least) / log(axis->most / axis->least)
                            : (value - axis->least) / (axis->most - axis->least);
    return axis->from + part * (axis->to - axis->from);
}

static bool drawable(const struct axis *axis, double value) {
    return isfinite(value) && (!axis->log || value > 0) && value <= axis->most;
}

static void widen(struct axis *axis, double value) {
    if (!isfinite(value) || (axis->log && value <= 0)) return;
    axis->least = fmin(axis->least, value);
    axis->most = fmax(axis->most, value);
}

static struct axis x_axis(const struct plot *plot) {
    struct axis axis = {INFINITY, -INFINITY, plot->log_x, LEFT, WIDTH - RIGHT};
    for (size_t i = 0; i < plot->points; i++) widen(&axis, plot->x[i]);
    return axis;
}

/* From 0, or, where it is logarithmic, in whole decades. */
static struct axis y_axis(const struct plot *plot) {
    struct axis axis = {INFINITY, -INFINITY, plot->log_y, HEIGHT - BOTTOM, TOP};
    for (size_t i = 0; i < plot->series_count; i++)
        for (size_t k = 0; k < plot->points; k++) widen(&axis, plot->series[i].y[k]);
    if (plot->y_most > 0) axis.most = plot->y_most;
    if (axis.log) {
        axis.least = pow(10, floor(log10(axis.least)));
        axis.most = pow(10, ceil(log10(axis.most)));
    } else {
        axis.least = 0;
    }
    return axis;
}

/* The next mark after `value`: 1, 10, 100 ... or steps of 1, 2 or 5 of a power of ten. */
static double step_of(const struct axis *axis) {
    double rough = (axis->most - axis->least) / 5, power = pow(10, floor(log10(rough)));
    double digit = rough / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

static void mark(struct buffer *out, const struct axis *axis, bool across, double value) {
    double at = place(axis, value);
    if (across)
        buffer_printf(out,
                      "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' class='grid'/>"
                      "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
                      LEFT, at, WIDTH - RIGHT, at, LEFT - 8, at + 4, value);
    else
        buffer_printf(out,
                      "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' class='grid'/>"
                      "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n",
                      at, TOP, at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 18, value);
}

static void marks(struct buffer *out, const struct axis *axis, bool across) {
    if (axis->log) {
        for (double value = pow(10, ceil(log10(axis->least) - 1e-9)); value <= axis->most * 1.001; value *= 10)
            mark(out, axis, across, value);
        return;
    }
    double step = step_of(axis);
    for (double n = ceil(axis->least / step - 1e-9); n * step <= axis->most * 1.001; n++)
        mark(out, axis, across, n * step + 0.0); /* no "-0" */
}

/* The line; returns where it ends. */
static double line(struct buffer *out, const struct plot *plot, const struct axis *x, const struct axis *y, size_t i) {
    double end = TOP + 10;
    bool drawing = false;
    buffer_printf(out, "<path fill='none' stroke='%s' stroke-width='2' d='", colours[i % COLOURS]);
    for (size_t k = 0; k < plot->points; k++) {
        double value = plot->series[i].y[k];
        if (drawable(y, value)) end = place(y, value);
        if (drawable(y, value)) buffer_printf(out, "%c%.1f %.1f", drawing ? 'L' : 'M', place(x, plot->x[k]), end);
        else if (isfinite(value)) end = TOP; /* it leaves through the top */
        drawing = drawable(y, value);
    }
    buffer_append_text(out, "'/>\n");
    return end;
}

/* Names stand where their lines end, from the top down, each at least NAME_GAP below the one before. */
static void names(struct buffer *out, const struct plot *plot, const double *ends) {
    size_t order[SERIES_MAX];
    for (size_t i = 0; i < plot->series_count; i++) {
        size_t k = i;
        for (; k > 0 && ends[order[k - 1]] > ends[i]; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    double at = 0;
    for (size_t i = 0; i < plot->series_count; i++) {
        at = fmax(ends[order[i]], at + NAME_GAP);
        buffer_printf(out, "<text x='%d' y='%.1f' style='fill:%s;font-weight:bold'>%s</text>\n", WIDTH - RIGHT + 8,
                      at + 4, colours[order[i] % COLOURS], plot->series[order[i]].name);
    }
}

void plot_svg(const struct plot *plot, struct buffer *out) {
    struct axis x = x_axis(plot), y = y_axis(plot);
    double ends[SERIES_MAX];
    buffer_printf(out,
                  "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d'>\n"
                  "<style>text{font:12px sans-serif;fill:#333}.grid{stroke:#ddd}</style>\n"
                  "<rect width='%d' height='%d' fill='#fff'/>\n"
                  "<text x='%d' y='22' style='font-size:15px;font-weight:bold'>%s</text>\n",
                  WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, plot->title);
    marks(out, &x, false);
    marks(out, &y, true);
    buffer_printf(out, "<text x='%d' y='%d' text-anchor='middle'>%s</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12,
                  plot->x_label);
    buffer_printf(out, "<text transform='translate(16 %d) rotate(-90)' text-anchor='middle'>%s</text>\n",
                  (TOP + HEIGHT - BOTTOM) / 2, plot->y_label);
    for (size_t i = 0; i < plot->series_count; i++) ends[i] = line(out, plot, &x, &y, i);
    names(out, plot, ends);
    buffer_append_text(out, "</svg>\n");
}
