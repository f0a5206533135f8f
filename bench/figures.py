"""The results of a scenario: figures with goals, tables, and charts by gnuplot."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

BARS = Path(__file__).with_name("bars.gnuplot")
LINES = Path(__file__).with_name("lines.gnuplot")
MOST_SHARE = 3  # more would make the other bars too short to be compared


@dataclass
class Figure:
    name: str
    samples: list  # of each round; how far they lie apart tells how noisy it was
    limit: float
    at_most: bool = False
    largest: bool = False  # it is the largest sample that counts, not the median
    unit: str = ""  # '' for a ratio

    @property
    def value(self):
        return max(self.samples) if self.largest else median(self.samples)

    @property
    def reached(self):
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    @property
    def share(self):
        """Whatever the direction: above 1 is good."""
        share = self.limit / self.value if self.at_most else self.value / self.limit
        return min(share, MOST_SHARE)

    def row(self):
        wanted = f"{'<=' if self.at_most else '>='} {self.limit:.2f}{self.unit}"
        return [self.name, f"{min(self.samples):.2f} to {max(self.samples):.2f}",
                f"{self.value:.2f}{self.unit}", wanted,
                "reached" if self.reached else "NOT REACHED"]

    def as_json(self):
        return {**vars(self), "value": self.value, "reached": self.reached}


@dataclass
class Chart:
    file: str
    title: str
    labels: list
    series: dict  # of values, one for each label
    limit: float = 0  # where a line is drawn
    script = BARS

    def rows(self):
        return [["label", *self.series]] + list(zip(self.labels, *self.series.values()))

    def settings(self):
        return {"title": self.title, "limit": self.limit, "series": len(self.series),
                "labels": len(self.labels)}


@dataclass
class Curves:
    """What came of something while time went by."""
    file: str
    title: str
    unit: str
    minutes: list
    series: dict  # of values, one for each moment
    script = LINES

    def settings(self):
        return {"title": self.title, "unit": self.unit, "series": len(self.series)}

    def rows(self):
        return [["minutes", *self.series]] + list(zip(self.minutes, *self.series.values()))


@dataclass
class Findings:
    scenario: str
    table: list  # rows of text; the first is the header
    figures: list = field(default_factory=list)
    charts: list = field(default_factory=list)
    details: object = None


def print_table(title, rows):
    """First column to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    print(f"== {title}\n")
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:])]
        print("  " + "  ".join([first.ljust(widths[0]), *cells]))
    print(flush=True)


def print_figures(figures):
    header = ["figure", "rounds", "measured", "wanted", ""]
    print_table("goals", [header] + [figure.row() for figure in figures])


def chart_of(figures):
    return Chart("figures", f"Share of what is wanted, cut off at {MOST_SHARE}",
                 [figure.name for figure in figures],
                 {"measured": [figure.share for figure in figures]}, 1)


def quoted(value):
    return f'"{value}"' if isinstance(value, str) else str(value)


def draw(folder, chart):
    """Writes FILE.svg and the data that it was drawn from."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"{chart.file}.data"
    data.write_text("".join(" ".join(map(quoted, line)) + "\n" for line in chart.rows()))
    given = "; ".join(f"{name}={quoted(value)}" for name, value in
                      {"file": str(data.with_suffix("")), **chart.settings()}.items())
    subprocess.run(["gnuplot", "-e", given, str(chart.script)], check=True)
