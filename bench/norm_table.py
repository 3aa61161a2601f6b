"""Results of torch_norms.py as a table, with what is below its goal marked.

    bench/norm_table.py norms.jsonl [more.jsonl ...]     # the last measurement of each problem, as Markdown
"""

import json
import pathlib
import sys

import norm_grid

MIB = 2**20
COLUMNS = ["op", "type", "rows x width", "ours us", "eager us", "compile us", "QuACK us", "copy us", "of best peer", "of copy",
           "error", "eager's", "max error", "eager's", "match"]


def goals(row):
    """(least speed against the best peer, least speed against copy); None: no goal."""
    op, large = row["op"], row["input_bytes"] >= 64 * MIB
    if op in norm_grid.BACKWARD:
        return None, 0.9 if large else None
    return 1.0, 0.97 if large and op in norm_grid.FORWARD else None


def ratios(row):
    """Speed against the best peer (of a backward pass: torch.compile, where measured) and against copy."""
    if "ours_us" not in row:
        return None, None
    backward = row["op"] in norm_grid.BACKWARD and "compile_us" in row
    peers = ["compile_us"] if backward else ["eager_us", "compile_us", "quack_us"]
    return min(row[peer] for peer in peers if peer in row) / row["ours_us"], row["copy_us"] / row["ours_us"]


def _ratio(value, goal):
    if value is None:
        return "-"
    return f"{value:.3f}" + ("" if goal is None or value >= goal else f" < {goal:g}")


def _cells(row):
    peer, copy = ratios(row)
    peer_goal, copy_goal = goals(row)

    def time(name):
        return f"{row[name]:.1f}" if name in row else "-"

    measured = ", ".join(f"{k}={v}" for k, v in row["measured"]["sizes"].items())
    def error(name):
        return f"{row[name]:.2g}" if name in row else "-"

    worse = "" if _exact(row) else " !"
    return [row["op"], row["variant"], f"{row['rows']} x {row['width']}", time("ours_us") if row["correct"] else "WRONG",
            time("eager_us"), time("compile_us"), time("quack_us"), time("copy_us"), _ratio(peer, peer_goal), _ratio(copy, copy_goal),
            f"{row['ours_error']:.2g}{worse}", error("eager_error"), f"{row['ours_max_error']:.2g}", error("eager_max_error"),
            row["match"] if row["match"] == "exact" else f"{row['match']} ({measured})"]


def _exact(row):
    """Whether the error is no larger than eager's, if that is known."""
    return "eager_error" not in row or row["ours_error"] <= 1.001 * row["eager_error"]


def _summary(rows):
    counted = [(ratios(row), goals(row)) for row in rows]
    peers = [(r[0], g[0]) for r, g in counted if r[0] is not None and g[0] is not None]
    copies = [(r[1], g[1]) for r, g in counted if r[1] is not None and g[1] is not None]
    met = [sum(value >= goal for value, goal in group) for group in (peers, copies)]
    exact = sum(_exact(row) for row in rows)
    wrong = sum(not row["correct"] for row in rows)
    return (f"{len(rows)} problems: goal against peers met at {met[0]} of {len(peers)}, against copy at {met[1]} of "
            f"{len(copies)}; error no larger than eager's at {exact}; {wrong} wrong. `<` marks what is below its goal, `!` a "
            "larger error. Errors are against double: norm of the error over norm of the result, and the largest; those of the "
            "worst output. The best peer of a backward pass is torch.compile, where it was measured.")


def table(rows, missed=(), about=None, markdown=False):
    lines = [COLUMNS] + [_cells(row) for row in rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(COLUMNS))]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    if markdown:
        text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    said = [", ".join(f"{key} {value}" for key, value in (about or {}).items() if value != "")]
    parts = [*said, "", *text, "", _summary(rows)] if rows else [*said, "nothing was measured"]
    return "\n".join(parts + [f"- not measured: {name}" for name in missed]) + "\n"


def main():
    rows = [json.loads(line) for path in sys.argv[1:] for line in pathlib.Path(path).read_text().splitlines()]
    last = {(row["op"], row["variant"], row["rows"], row["width"], row["device"]): row for row in rows}
    about = {key: rows[-1][key] for key in ("device", "torch", "triton", "cuda", "date") if rows and key in rows[-1]}
    print(table(list(last.values()), about=about, markdown=True), end="")


if __name__ == "__main__":
    main()
