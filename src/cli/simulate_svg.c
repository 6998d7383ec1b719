/* SPDX-License-Identifier: Apache-2.0 */
/* Curves as SVG: one panel a trace. A panel shows the last part of the filling, where policies differ. */

#include "cli/simulate.h"

#define PANEL_W 420
#define PANEL_H 300
#define LEFT    52
#define TOP     34
#define PLOT_W  (PANEL_W - LEFT - 14)
#define PLOT_H  (PANEL_H - TOP - 40)
#define FROM    70 /* percent arrived; before that every policy places everything */

/* Distinct also in grey and for colour-blind readers; our policy is the darkest. */
static const char *const colours[SL_PLACE_POLICIES] = {
    [SL_PLACE_RANDOM] = "#999999",      [SL_PLACE_FIRST_FIT] = "#56b4e9",
    [SL_PLACE_DOT_PRODUCT] = "#e69f00", [SL_PLACE_CLUSTERING] = "#cc79a7",
    [SL_PLACE_PACKING] = "#009e73",     [SL_PLACE_BEST_FIT] = "#0072b2",
    [SL_PLACE_BINPACK] = "#8c6d31",     [SL_PLACE_SPREAD] = "#b0b000",
    [SL_PLACE_FGD] = "#d55e00",         [SL_PLACE_SLUICE] = "#111111",
};

static void text_escaped(FILE *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '<')
            (void)fputs("&lt;", out);
        else if (*s == '&')
            (void)fputs("&amp;", out);
        else if ((unsigned char)*s >= 0x20)
            (void)fputc(*s, out);
    }
}

struct scale {
    double x0, y0;     /* top left of the plot */
    unsigned from, to; /* percent arrived */
    double top;        /* percent unallocated at the upper edge */
};

static double at_x(const struct scale *s, double arrived)
{
    return s->x0 + PLOT_W * (arrived - s->from) / (s->to - s->from);
}

static double at_y(const struct scale *s, double unallocated)
{
    double y = unallocated > s->top ? s->top : unallocated;
    return s->y0 + PLOT_H * (1 - y / s->top);
}

static void axes(const struct scale *s, FILE *out)
{
    for (unsigned v = 0; v <= (unsigned)s->top; v += 5)
        (void)fprintf(out,
                      "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%u</text>\n",
                      s->x0, s->x0 + PLOT_W, at_y(s, v), at_y(s, v), s->x0 - 6, at_y(s, v) + 4, v);
    for (unsigned v = s->from; v <= s->to; v += 10)
        (void)fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%u</text>\n",
                      at_x(s, v), s->y0 + PLOT_H + 16, v);
    (void)fprintf(out,
                  "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">demand arrived, %% of GPU "
                  "capacity</text>\n",
                  s->x0 + PLOT_W / 2.0, s->y0 + PLOT_H + 33);
}

static void curve(const struct sim_report *r, size_t trace, size_t policy, const struct scale *s,
                  FILE *out)
{
    enum sl_place_policy p = r->policies[policy];
    (void)fprintf(out, "<polyline class=\"%s\" stroke=\"%s\" points=\"",
                  p == SL_PLACE_SLUICE ? "ours" : "curve", colours[p]);
    for (unsigned v = s->from; v <= s->to; v++)
        (void)fprintf(out, "%.1f,%.1f ", at_x(s, v),
                      at_y(s, sl_sim_report_mean(r, trace, policy, v)));
    (void)fprintf(out, "\"><title>%s</title></polyline>\n", sl_place_policy_name(p));
}

static void legend(const struct sim_report *r, const struct scale *s, FILE *out)
{
    for (size_t p = 0; p < r->policy_count; p++) {
        double y = s->y0 + 10 + 14.0 * (double)p, x = s->x0 + PLOT_W - 96;
        (void)fprintf(out,
                      "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                      "class=\"%s\"/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                      x, x + 18, y, y, colours[r->policies[p]],
                      r->policies[p] == SL_PLACE_SLUICE ? "ours" : "curve", x + 24, y + 4,
                      sl_place_policy_name(r->policies[p]));
    }
}

static void panel(const struct sim_report *r, size_t trace, double x, double y, FILE *out)
{
    struct scale s = {.x0 = x + LEFT, .y0 = y + TOP, .to = r->options->until_percent};
    s.from = s.to > FROM + 10 ? FROM : 0;
    s.top = 100 - s.from;
    (void)fprintf(out, "<text class=\"title\" x=\"%.1f\" y=\"%.1f\">", s.x0, y + 20);
    text_escaped(out, r->traces[trace]);
    (void)fputs(": GPU unallocated, %</text>\n", out);
    axes(&s, out);
    (void)fprintf(out,
                  "<line class=\"ideal\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"><title>"
                  "everything placed</title></line>\n",
                  at_x(&s, s.from), at_y(&s, 100.0 - s.from), at_x(&s, s.to < 100 ? s.to : 100),
                  at_y(&s, s.to < 100 ? 100.0 - s.to : 0));
    for (size_t p = 0; p < r->policy_count; p++)
        curve(r, trace, p, &s, out);
    legend(r, &s, out);
}

void sl_sim_report_svg(const struct sim_report *r, FILE *out)
{
    size_t columns = r->trace_count < 3 ? r->trace_count : 3;
    size_t rows = (r->trace_count + columns - 1) / columns;
    (void)fprintf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %zu %zu\" width=\"%zu\" "
                  "height=\"%zu\">\n<style>text{font:11px sans-serif;fill:#222}.title{font-weight:"
                  "bold;font-size:13px}.grid{stroke:#ddd}.curve,.ours{fill:none;stroke-width:1.5}"
                  ".ours{stroke-width:2.5}.ideal{stroke:#999;stroke-dasharray:4 3}</style>\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                  columns * PANEL_W, rows * PANEL_H, columns * PANEL_W, rows * PANEL_H);
    for (size_t t = 0; t < r->trace_count; t++) {
        size_t column = t % columns, row = t / columns;
        panel(r, t, (double)(column * PANEL_W), (double)(row * PANEL_H), out);
    }
    (void)fputs("</svg>\n", out);
}
