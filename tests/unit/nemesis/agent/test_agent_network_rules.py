"""Packet rules: what is accepted, and the nftables text that comes of it."""

from typing import Any

import pytest

from nemesis.agent.packets.network import way_to_harness
from nemesis.agent.packets.nft_rules import (
    DelayQueue,
    NetworkError,
    counters,
    is_for_table,
    parse_rules,
    table_name,
    table_text,
)

PAIR = ["198.18.0.1", "198.18.0.2"]


def text_of(*rules: dict[str, Any], exempt: tuple[str, int] | None = None) -> str:
    parsed = parse_rules(rules)
    queues = {
        index: DelayQueue(number=7 + index, is_native=index % 2 == 0)
        for index, rule in enumerate(parsed)
        if rule.kind == "delay"
    }
    return table_text("laststand_t", parsed, queues, exempt)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"kind": "explode", "pairs": [PAIR]}, "one of drop, reject"),
        ({"kind": "drop"}, "at least one pair"),
        ({"kind": "drop", "pairs": []}, "at least one pair"),
        ({"kind": "drop", "pairs": [["198.18.0.1"]]}, "a pair is a source"),
        ({"kind": "drop", "pairs": [["198.18.0.1", "b2"]]}, "a pair is a source"),
        ({"kind": "drop", "pairs": [["198.18.0.1", 7]]}, "a pair is a source"),
        ({"kind": "drop", "pairs": [["1.2.3.4 } ; flush ruleset", "*"]]}, "a pair is a source"),
        ({"kind": "drop", "pairs": [PAIR], "hook": "forward"}, "input or output"),
        ({"kind": "drop", "pairs": [PAIR], "port": 9}, "has no port"),
        ({"kind": "loss", "pairs": [PAIR]}, "needs percent above 0"),
        ({"kind": "loss", "pairs": [PAIR], "percent": 101}, "from 0 to 100"),
        ({"kind": "loss", "pairs": [PAIR], "percent": "5"}, "must be a number"),
        ({"kind": "loss", "pairs": [PAIR], "percent": float("nan")}, "must be a number"),
        ({"kind": "delay", "pairs": [PAIR]}, "needs ms above 0"),
        ({"kind": "delay", "pairs": [PAIR], "ms": 5, "jitter_ms": 6}, "from 0 to 5"),
        ({"kind": "delay", "pairs": [PAIR], "ms": 5, "by": "tbf"}, "netem or nfqueue"),
        ({"kind": "drop", "pairs": [PAIR], "by": "netem"}, "not a drop by 'netem'"),
        ({"kind": "bandwidth", "pairs": [PAIR], "rate_kib_s": True}, "must be a number"),
        ({"kind": "bandwidth", "pairs": [PAIR]}, "needs rate_kib_s above 0"),
    ],
)
def test_an_invalid_rule_is_refused(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(NetworkError, match=says):
        parse_rules([rule])


def test_an_empty_rule_list_is_refused() -> None:
    with pytest.raises(NetworkError, match="at least one rule"):
        parse_rules([])


def test_a_table_replaces_its_predecessor_and_hooks_before_other_firewalls() -> None:
    lines = text_of({"kind": "drop", "pairs": [PAIR]}).splitlines()
    assert lines[:2] == ["add table inet laststand_t", "delete table inet laststand_t"]
    assert "chain input { type filter hook input priority -10; policy accept;" in lines
    assert not any("hook output" in line for line in lines)


def test_addresses_of_both_versions_match_as_pairs_and_are_not_mixed() -> None:
    text = text_of({"kind": "drop", "pairs": [PAIR, ["fd00::1", "fd00:0::2"]]})
    assert "198.18.0.1 . 198.18.0.2" in text
    assert "fd00::1 . fd00::2" in text
    assert text.count("counter drop") == 2
    with pytest.raises(NetworkError, match="not of one IP version"):
        text_of({"kind": "drop", "pairs": [["198.18.0.1", "fd00::2"]]})


def test_any_means_every_other_address() -> None:
    text = text_of({"kind": "drop", "pairs": [["*", "198.18.0.2"], ["198.18.0.1", "*"]]})
    assert "ip daddr 198.18.0.2 ip saddr != 198.18.0.2 counter drop" in text
    assert "ip saddr 198.18.0.1 ip daddr != 198.18.0.1 counter drop" in text


def test_duplicate_pairs_are_merged() -> None:
    assert text_of({"kind": "drop", "pairs": [PAIR, PAIR]}).count("198.18.0.1 . 198.18.0.2") == 1


@pytest.mark.parametrize(
    ("percent", "says"),
    [(0.25, "mod 10000 < 25 counter drop"), (30, "mod 10000 < 3000 "), (100, "counter counter")],
)
def test_loss_is_a_share_of_ten_thousand(percent: float, says: str) -> None:
    assert says in text_of({"kind": "loss", "pairs": [PAIR], "percent": percent})


def test_delays_are_queued_directly_or_through_a_chain_for_the_older_target() -> None:
    rule = {"kind": "delay", "pairs": [PAIR], "ms": 5}
    text = text_of(rule, rule)
    assert 'counter queue flags bypass to 7 comment "r0"' in text
    assert 'counter goto delay1 comment "r1"' in text
    assert "chain delay1 { }" in text
    assert "chain delay0" not in text


def test_delays_without_a_queue_are_not_in_the_table() -> None:
    rules = parse_rules(
        [{"kind": "delay", "pairs": [PAIR], "ms": 5}, {"kind": "drop", "pairs": [PAIR]}]
    )
    text = table_text("laststand_t", rules, {})
    assert 'comment "r1"' in text
    assert "r0" not in text
    assert [is_for_table(index, rule, {}) for index, rule in enumerate(rules)] == [False, True]


def test_the_exempt_address_comes_first_in_every_chain() -> None:
    rules = [{"kind": "drop", "pairs": [PAIR], "hook": hook} for hook in ("input", "output")]
    lines = text_of(*rules, exempt=("198.18.0.9", 22)).splitlines()
    for hook, match in (
        ("input", "ip saddr 198.18.0.9 tcp dport 22 accept"),
        ("output", "ip daddr 198.18.0.9 tcp sport 22 accept"),
    ):
        chain = next(n for n, line in enumerate(lines) if line.startswith(f"chain {hook}"))
        assert lines[chain + 1] == match


def test_counters_are_summed_by_rule_and_foreign_rules_are_left_out() -> None:
    def rule(comment: str, *packets: int) -> dict[str, Any]:
        expressions = [{"counter": {"packets": n, "bytes": 60 * n}} for n in packets]
        return {"rule": {"comment": comment, "expr": [{"match": {}}, *expressions]}}

    listing = {
        "nftables": [
            {"metainfo": {}},
            {"rule": {"expr": [{"accept": None}]}},
            rule("r0", 3),
            rule("r0", 4),
            rule("r1", 10, 2),
            rule("somebody's", 9),
        ]
    }
    assert counters(listing) == {0: ((7, 420), (7, 420)), 1: ((10, 600), (2, 120))}


def test_similar_tokens_get_separate_tables() -> None:
    names = {table_name(token, "o") for token in ("a_b", "a-b", "A_b", "a b", "a_b2")}
    assert len(names) == 5
    assert all(name.startswith("laststand_o_a_b") for name in names)
    assert table_name("a_b", "o") != table_name("a_b", "p")


@pytest.mark.parametrize("token", ["", "x" * 300])
def test_a_token_that_cannot_name_a_table_is_refused(token: str) -> None:
    with pytest.raises(NetworkError, match="cannot name a table"):
        table_name(token, "o")


@pytest.mark.parametrize(
    ("environment", "way"),
    [
        ("198.18.0.9 50000 198.18.0.1 22", ("198.18.0.9", 22)),
        ("fe80::1%eth0 50000 fe80::2%eth0 2222", ("fe80::1", 2222)),
        ("", None),
    ],
)
def test_the_address_of_the_harness_comes_from_ssh(
    environment: str, way: tuple[str, int] | None
) -> None:
    assert way_to_harness(environment) == way
