"""Verdicts and judgements as JSON-compatible data: what `verdict.json` holds and what Spark tasks return."""

from collections.abc import Mapping
from typing import Any

from checkers.kernels.compose import PartitionJudgement
from harness.contracts.verdict import Anomaly, Judgement, Validity, Verdict, Witness


def _anomaly_to_json(anomaly: Anomaly) -> dict[str, Any]:
    return {
        "id": anomaly.id,
        "level": anomaly.level,
        "topic": anomaly.topic,
        "partition": anomaly.partition,
        "count": anomaly.count,
        "judgement": str(anomaly.judgement),
        "rule": anomaly.rule,
        "sentence": anomaly.sentence,
        "witnesses": [
            {"op_index": witness.op_index, "text": witness.text} for witness in anomaly.witnesses
        ],
        "details": anomaly.details,
    }


def _anomaly_from_json(data: Mapping[str, Any]) -> Anomaly:
    return Anomaly(
        id=data["id"],
        level=data["level"],
        topic=data["topic"],
        partition=data["partition"],
        count=data["count"],
        judgement=Judgement(data["judgement"]),
        rule=data["rule"],
        sentence=data["sentence"],
        witnesses=tuple(Witness(**witness) for witness in data["witnesses"]),
        details=dict(data["details"]),
    )


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """Returns a verdict as JSON-compatible data."""
    return {
        "validity": str(verdict.validity),
        "reasons": list(verdict.reasons),
        "unexcused_lost_records": verdict.unexcused_lost_records,
        "excused_lost_records": verdict.excused_lost_records,
        "anomalies": [_anomaly_to_json(anomaly) for anomaly in verdict.anomalies],
        "coverage": verdict.coverage,
        "levels": verdict.levels,
    }


def verdict_from_json(data: Mapping[str, Any]) -> Verdict:
    """Returns the verdict that `verdict_to_json` wrote."""
    return Verdict(
        validity=Validity(data["validity"]),
        reasons=tuple(data["reasons"]),
        anomalies=tuple(_anomaly_from_json(row) for row in data["anomalies"]),
        unexcused_lost_records=data["unexcused_lost_records"],
        excused_lost_records=data["excused_lost_records"],
        coverage=dict(data["coverage"]),
        levels=dict(data.get("levels", {})),
    )


def judgement_to_json(judgement: PartitionJudgement) -> dict[str, Any]:
    """Returns one partition's judgement as JSON-compatible data, to be composed elsewhere."""
    return {
        "topic": judgement.topic,
        "partition": judgement.partition,
        "anomalies": [_anomaly_to_json(anomaly) for anomaly in judgement.anomalies],
        "unknown_reasons": list(judgement.unknown_reasons),
        "coverage": judgement.coverage,
    }


def judgement_from_json(data: Mapping[str, Any]) -> PartitionJudgement:
    """Returns the judgement that `judgement_to_json` wrote."""
    return PartitionJudgement(
        topic=data["topic"],
        partition=data["partition"],
        anomalies=tuple(_anomaly_from_json(row) for row in data["anomalies"]),
        unknown_reasons=tuple(data["unknown_reasons"]),
        coverage=dict(data["coverage"]),
    )
