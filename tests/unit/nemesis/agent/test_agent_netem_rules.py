"""Delays by netem: which rules it supports, and what the filters match."""

from typing import Any

import pytest

from nemesis.agent.packets.netem import LONGEST_MS, filter_matches, unsuitable
from nemesis.agent.packets.nft_rules import parse_rules

PAIR = ["198.18.0.1", "198.18.0.2"]
ONE, TWO = PAIR


def delay(*pairs: list[str], **more: Any) -> dict[str, Any]:
    return {"kind": "delay", "pairs": list(pairs or [PAIR]), "ms": 5, **more}


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ([delay()], ""),
        ([delay(["*", TWO], [ONE, "*"])], ""),
        ([delay(ms=LONGEST_MS)], ""),
        ([delay(ms=LONGEST_MS + 1)], "above 2000 ms"),
        ([delay(ms=1500, jitter_ms=501)], "above 2000 ms"),
        ([delay(hook="output")], "delays outgoing"),
        ([delay(["fd00::1", "fd00::2"])], "IPv4 only"),
        ([delay(PAIR, ["*", "fd00::2"])], "IPv4 only"),
        ([delay(["*", "*"])], "nor all packets"),
        ([delay([ONE, ONE])], "packets to itself"),
        ([delay(), delay(["198.18.0.3", TWO])], ""),
        ([delay(), delay(["*", TWO])], "in common"),
        ([delay(), {"kind": "drop", "pairs": [[ONE, "*"]]}], "in common"),
        ([delay(), {"kind": "drop", "pairs": [PAIR[::-1]]}], ""),
        ([delay(), {"kind": "bandwidth", "pairs": [[ONE, "*"]], "rate_kib_s": 9}], ""),
    ],
)
def test_netem_supports_most_rules_and_gives_a_reason_for_others(
    rules: list[dict[str, Any]], says: str
) -> None:
    why = unsuitable(parse_rules(rules), 0)
    assert (says in why) if says else (why == "")


def test_filters_match_address_pairs() -> None:
    (rule,) = parse_rules([delay(PAIR, PAIR[::-1])])
    assert filter_matches(rule, None) == [
        (f"match ip src {ONE}/32 match ip dst {TWO}/32", True),
        (f"match ip src {TWO}/32 match ip dst {ONE}/32", True),
    ]


def test_traffic_to_the_node_itself_passes_before_rules_for_any() -> None:
    (rule,) = parse_rules([delay(["*", TWO], [ONE, "*"])])
    assert filter_matches(rule, None) == [
        (f"match ip src {TWO}/32 match ip dst {TWO}/32", False),
        (f"match ip src {ONE}/32 match ip dst {ONE}/32", False),
        (f"match ip dst {TWO}/32", True),
        (f"match ip src {ONE}/32", True),
    ]


def test_the_exempt_address_passes_first_and_packets_without_a_port_are_not_delayed() -> None:
    (rule,) = parse_rules([delay()])
    exempt, delayed = filter_matches(rule, ("198.18.0.9", 22))
    plain = "match u8 0x45 0xff at 0 match u16 0x0000 0x3fff at 6 "
    of_harness = "match ip src 198.18.0.9/32 match ip protocol 6 0xff match ip dport 22 0xffff"
    assert exempt == (plain + of_harness, False)
    assert delayed == (f"{plain}match ip src {ONE}/32 match ip dst {TWO}/32", True)
    # A harness that is reached by IPv6 sends no packets that a filter for IPv4 could see.
    assert filter_matches(rule, ("fe80::9", 22)) == filter_matches(rule, None)
