"""Reading the pages that experiments write."""


def tables(text):
    """Give each heading's table as rows of cells, head and rule included."""
    found = {}
    for part in text.split("\n## ")[1:]:
        heading, *lines = part.splitlines()
        found[heading] = [
            [cell.strip() for cell in line[2:-2].split(" | ")] for line in lines if line.startswith("| ")
        ]
    return found


def number(text):
    """Read a figure: 1.0055, 12.5%, 1/50."""
    if text.endswith("%"):
        return float(text[:-1]) / 100
    above, _, below = text.replace(",", "").partition("/")
    return float(above) / float(below or 1)


def agrees(cell, asked, aim=None):
    """Tell whether "1.0055 met" says what the figure does, where "at most 1.0100" was asked.

    Verdicts go by the figure as measured: one that is printed as the target itself may be on either side.
    """
    figure, verdict = cell.split(" ", 1)
    goals = [number(asked.split()[-1]), *([number(aim)] if aim else [])]
    signs = {"most": 1, "least": -1}
    sign = signs[asked.split()[1]]
    reached = [sign * number(figure) <= sign * goal for goal in goals]
    if number(figure) in goals:
        return True
    return verdict == ("MISSED" if not reached[0] else "met, the aim too" if reached[1:] == [True] else "met")
