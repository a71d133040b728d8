"""Experiments that take longer, for machines that are too busy for their times."""

from pathlib import Path

from harness.runs import experiment_file as experiments


def slower(example: Path, directory: Path, times: int) -> Path:
    """Returns an experiment file in which everything takes so many times as long."""
    scale = experiments.load(example, on="docker").time_scale * times
    directory.mkdir(parents=True)
    path = directory / example.name
    text = example.read_text(encoding="utf-8")
    path.write_text(f"time_scale = {scale}\n{text}", encoding="utf-8")
    return path
