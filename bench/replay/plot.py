#!/usr/bin/env python3
"""Draws what replay_bench measured: time after a hit and perplexity, by the length of the hit and the setting.

usage: plot.py replay.json replay.svg
"""
import json
import sys

COLOURS = {"none": "#555555", "exact, trapezoid": "#1f77b4", "exact, snapshot": "#17becf", "decoder": "#2ca02c", "bounded": "#d62728"}
WIDTH, HEIGHT, LEFT, TOP = 300, 200, 62, 40


def panel(x0, title, unit, series, hits, log):
    """One diagram; series: setting -> values by hit."""
    import math

    out = [f'<text x="{x0 + LEFT}" y="22" font-weight="bold">{title}</text>']
    scale = math.log10 if log else float
    values = [scale(v) for line in series.values() for v in line]
    low, high = min(values), max(values)
    if high - low < 1e-9:
        low, high = low - 1, high + 1
    pad = (high - low) * 0.08
    low, high = low - pad, high + pad

    def at(i, value):
        x = x0 + LEFT + WIDTH * i / (len(hits) - 1)
        return x, TOP + HEIGHT * (1 - (scale(value) - low) / (high - low))

    out.append(f'<rect x="{x0 + LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>')
    for i, hit in enumerate(hits):
        x, _ = at(i, 10**low if log else low)
        out.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{hit:,}</text>')
    for step in range(5):
        value = low + (high - low) * step / 4
        y = TOP + HEIGHT * (1 - step / 4)
        shown = 10**value if log else value
        label = f"{shown:.0f}" if shown >= 100 else f"{shown:.3g}"
        out.append(f'<text x="{x0 + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        out.append(f'<line x1="{x0 + LEFT}" x2="{x0 + LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eee"/>')
    out.append(f'<text x="{x0 + LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle">tokens hit; vertical: {unit}</text>')
    for setting, line in series.items():
        points = " ".join("{:.1f},{:.1f}".format(*at(i, v)) for i, v in enumerate(line))
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[setting]}" stroke-width="2"/>')
        for i, v in enumerate(line):
            x, y = at(i, v)
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[setting]}"/>')
    return out


def main():
    rows = [row for row in json.load(open(sys.argv[1]))["sequences"] if row["text"] == "stories"]
    hits = sorted({row["hit"] for row in rows})

    def series(key):
        return {s: [next(r[key] for r in rows if r["setting"] == s and r["hit"] == h) for h in hits] for s in COLOURS}

    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="1150" height="310" font-family="sans-serif" font-size="12">',
           '<rect width="1150" height="310" fill="white"/>']
    out += panel(0, "Time to the prompt's last logits", "ms", series("ms"), hits, True)
    out += panel(380, "Rows times layers that run", "token-layers", series("token_layers"), hits, True)
    out += panel(760, "Perplexity of what follows", "perplexity", series("perplexity"), hits, False)
    x = LEFT
    for setting, colour in COLOURS.items():
        out.append(f'<rect x="{x}" y="290" width="14" height="4" fill="{colour}"/><text x="{x + 20}" y="296">{setting}</text>')
        x += 60 + 7 * len(setting)
    out.append("</svg>")
    open(sys.argv[2], "w").write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
