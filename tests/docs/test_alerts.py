"""Tests that the alert rules are those of the page, over metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from gateway.tls import _RETRY_LOOKS as RETRY_LOOKS
from gateway.tls import LOOK_SECONDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/metrics.md").read_text()
_NAME = re.compile(r"fumarole_\w+")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_rules_use_only_documented_metrics() -> None:
    """Another test compares that list with the metrics that the code exports."""
    listed = set(_NAME.findall(PAGE.partition("## Alerts worth having")[0]))
    listed |= set(_NAME.findall(PAGE.partition("## The controller")[2]))
    used = {name for rule in rules() for name in _NAME.findall(rule["expr"])}
    assert used <= listed


def test_each_documented_alert_is_a_rule_with_an_explanation() -> None:
    table = PAGE.partition("## Alerts worth having")[2].partition("\n## ")[0]
    listed = set(_NAME.findall(table))
    assert listed <= {name for rule in rules() for name in _NAME.findall(rule["expr"])}
    for rule in rules():
        assert rule["annotations"]["summary"], rule
        assert rule["annotations"]["description"], rule
        assert rule["labels"]["severity"] in ("warning", "critical"), rule


def test_a_new_file_that_is_refused_once_raises_no_alarm() -> None:
    """A certificate and its key are replaced in any order, and may be refused in between."""
    alerts = {rule["alert"]: rule for rule in rules()}
    for name in ("FumaroleCertificateRefused", "FumaroleAssertionKeysRefused"):
        window = int(re.findall(r"\[(\d+)m\]", alerts[name]["expr"])[0])
        pending = int(alerts[name]["for"].removesuffix("m"))
        retry = RETRY_LOOKS * LOOK_SECONDS / 60
        assert retry < window < pending


def test_tables_are_compared_at_the_same_event_only() -> None:
    """Gateways are scraped seconds apart, and the hash changes with each event."""
    (rule,) = (rule for rule in rules() if rule["alert"] == "FumaroleTablesDiffer")
    assert "count by (epoch, seq)" in rule["expr"]
    assert "for" not in rule  # the labels change with each event, and a pending time starts anew


def test_a_receiver_that_is_sent_nothing_any_more_raises_an_alarm() -> None:
    """After a 410 nothing waits for the receiver, so that no other alert fires."""
    about = "fumarole_controller_webhook_attempts_total"
    (rule,) = (rule for rule in rules() if about in rule["expr"])
    # The count stays until the process ends; another leader sends to the receiver again.
    leads = "and on (instance, job) fumarole_controller_leads == 1"
    assert rule["expr"] == f'{about}{{outcome="gone"}} > 0 {leads}'


def test_an_event_that_was_late_before_a_quiet_time_raises_no_alarm() -> None:
    """The lag is that of the last event, so it stays until the next one."""
    (rule,) = (rule for rule in rules() if rule["alert"] == "FumaroleEventsLate")
    assert rule["expr"].endswith("and on (instance, job) changes(fumarole_gateway_seq[2m]) > 0")
    assert rule["for"] == "2m"
