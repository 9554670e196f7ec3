"""A plot as SVG: steps for each series, dashed lines for limits, bands for what failed."""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 420, 70, 190, 46, 50
COLOURS = {"plain": "#c0392b", "lease": "#1f6fb2", "bounded": "#2a8c4a", "owner": "#b07d2b"}


def plot(title, window, series, limits, bands):
    """series: (name, numbers by window); limits: (number, name); bands: (from, to, name), in seconds."""
    windows = len(series[0][1])
    most = 1.08 * max([n for _, numbers in series for n in numbers] + [n for n, _ in limits])

    def x(seconds):
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / (windows * window)

    def y(number):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * number / most
    out = ["<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d'>" % (WIDTH, HEIGHT, WIDTH, HEIGHT),
           "<style>text{font:12px sans-serif;fill:#333}.grid{stroke:#ddd}.small{font-size:10px;fill:#777}</style>",
           "<rect width='%d' height='%d' fill='#fff'/>" % (WIDTH, HEIGHT),
           "<text x='%d' y='20' style='font-size:15px;font-weight:bold'>%s</text>" % (LEFT, title)]
    for i, (begin, end, name) in enumerate(bands):
        out.append("<rect x='%.1f' y='%d' width='%.1f' height='%d' fill='#000' opacity='0.07'/>" % (x(begin), TOP, x(min(end, windows * window)) - x(begin), HEIGHT - TOP - BOTTOM))
        out.append("<text x='%.1f' y='%d' class='small'>%s</text>" % (x(begin), TOP - 4 - 11 * (i % 2), name))
    step = next(s for s in (m * 10 ** e for e in range(9) for m in (1, 2, 5)) if most / s <= 7)
    for n in range(0, int(most) + 1, step):
        out.append("<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' class='grid'/><text x='%d' y='%.1f' text-anchor='end'>%d</text>" % (LEFT, y(n), WIDTH - RIGHT, y(n), LEFT - 8, y(n) + 4, n))
    for i in range(windows + 1):
        out.append("<text x='%.1f' y='%d' text-anchor='middle'>%d</text>" % (x(i * window), HEIGHT - BOTTOM + 18, i * window))
    out.append("<text x='%d' y='%d' text-anchor='middle'>seconds</text>" % ((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12))
    ends = [(y(n), "<text x='%d' y='%%.1f'>%s</text>" % (WIDTH - RIGHT + 8, name)) for n, name in limits]
    for n, _ in limits:
        out.append("<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#333' stroke-dasharray='6 4'/>" % (LEFT, y(n), WIDTH - RIGHT, y(n)))
    for name, numbers in series:
        path = " ".join("%s%.1f %.1f L%.1f %.1f" % ("L" if i else "M", x(i * window), y(n), x((i + 1) * window), y(n)) for i, n in enumerate(numbers))
        out.append("<path fill='none' stroke='%s' stroke-width='2' d='%s'/>" % (COLOURS[name], path))
        ends.append((y(numbers[-1]), "<text x='%d' y='%%.1f' style='fill:%s;font-weight:bold'>%s</text>" % (WIDTH - RIGHT + 8, COLOURS[name], name)))
    at = 0
    for height, text in sorted(ends):
        at = max(height, at + 14)
        out.append(text % (at + 4))
    return "\n".join(out + ["</svg>", ""])
