"""All contestants on one model: a table, the goals and the versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from engine_field import ENTRIES, contestants, export_graph
from flops import EncoderSize
from gemm_rates import Gemms
from goals import gemm_line, goals, rank_line
from machine import load_average
from report import Report
from rounds import Field, Steadiness, table, work

from mlmfast import _core


def compare(
    report: Report,
    folder: Path,
    texts_of: Mapping[str, Sequence[str]],
    *,
    rounds: int,
    scratch: Path,
    compiled: bool,
    asked: bool,
) -> None:
    """A table for each titled set of texts, the first of short ones.

    scratch: a folder for the exported graph. compiled: whether torch.compile takes part. asked: whether the
    goals are for this model.
    """
    graph = export_graph(folder, scratch / f"{folder.name}.onnx")
    entrants = contestants(folder, entries=ENTRIES, graph=graph, compiled=compiled)
    bounds = {contestant.name: contestant.bound for contestant in entrants}
    size, amx = EncoderSize.of(folder), "amx_bf16" in _core.cpu_features()
    with Field(entrants) as field, Gemms() as gemms:
        for index, (title, texts) in enumerate(texts_of.items()):
            before = gemms.best()
            steadiness = Steadiness(gemms.quick)
            found = field.interleave(texts, rounds, warm_up=len(texts), steadiness=steadiness)
            best_gemm = max(before, gemms.best())
            log_probs = next(iter(found.values())).log_probs
            flops = size.text_flops(map(len, log_probs))
            lines, apart = table(found, bounds, rates=rate_columns(flops, best_gemm))
            num_scored, num_copied = work(log_probs)
            report.say(
                f"#### {title}: {len(texts)} texts, {num_scored:,} scored tokens, "
                f"{num_copied:,} in masked copies, {1e-9 * flops:,.0f} useful GFLOP"
            )
            report.say(lines)
            agreeing = {name: t for name, t in found.items() if not t.unavailable and name not in apart}
            verdicts = [
                *(goal.line(agreeing) for goal in goals(amx=amx, asked=asked, short=index == 0)),
                gemm_line(agreeing, flops, best_gemm, asked=asked and amx),
                rank_line(found),
                steadiness.line("a bfloat16 GEMM's rate"),
                f"- medians of {rounds} interleaved rounds; load average at the end: {load_average()}",
            ]
            report.say("\n".join(verdicts))
            report.disagreeing += [f"{name} on {title}" for name in apart]
            report.versions |= {name: _listed(t.versions) for name, t in found.items() if t.versions}


def rate_columns(flops: int, gemm_gflops: float) -> dict[str, Callable[[float], str]]:
    """Columns of rounds.table: GFLOP/s by seconds, and the share of the GEMM's."""
    return {
        "useful GFLOP/s": lambda seconds: f"{1e-9 * flops / seconds:,.0f}",
        "of the GEMM's": lambda seconds: f"{1e-9 * flops / seconds / gemm_gflops:.0%}",
    }


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{package} {version}" for package, version in versions.items())
