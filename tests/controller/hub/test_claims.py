from __future__ import annotations

import pytest

from controller.hub.claims import Claims, TokenSpent, TooManyTokens
from shared.errors import TokenRefused
from shared.link import AttachTokens
from tests.clock import Clock

KEY, OTHER = bytes(range(32)), bytes(range(32, 64))


def make(key: bytes, clock: Clock, jti: str = "one") -> str:
    tokens = AttachTokens(key)
    return tokens.make(sid="a" * 26, sub="ada", mode="view", jti=jti, now=clock())


def test_a_token_is_accepted_once(clock: Clock) -> None:
    claims = Claims([KEY], clock=clock)
    attach = claims.verify(make(KEY, clock))
    assert (attach.sub, attach.mode) == ("ada", "view")
    claims.take(attach)
    with pytest.raises(TokenSpent):
        claims.take(claims.verify(make(KEY, clock)))
    claims.take(claims.verify(make(KEY, clock, "two")))


def test_verification_does_not_spend_the_token(clock: Clock) -> None:
    claims = Claims([KEY], clock=clock)
    token = make(KEY, clock)
    assert claims.verify(token) == claims.verify(token)
    claims.take(claims.verify(token))


def test_a_spent_token_is_remembered_until_it_expires(clock: Clock) -> None:
    claims = Claims([KEY], clock=clock)
    token = make(KEY, clock)
    claims.take(claims.verify(token))
    while True:
        clock.now += 0.5
        try:
            attach = claims.verify(token)
        except TokenRefused:
            break
        with pytest.raises(TokenSpent):
            claims.take(attach)


def test_the_memory_of_spent_tokens_is_bounded_and_expires(clock: Clock) -> None:
    claims = Claims([KEY], clock=clock, most=3)
    for number in range(3):
        claims.take(claims.verify(make(KEY, clock, str(number))))
    with pytest.raises(TooManyTokens):
        claims.take(claims.verify(make(KEY, clock, "more")))
    clock.now += 60
    claims.take(claims.verify(make(KEY, clock, "later")))


def test_each_key_of_a_rotation_verifies(clock: Clock) -> None:
    claims = Claims([KEY, OTHER], clock=clock)
    for number, key in enumerate((KEY, OTHER)):
        claims.take(claims.verify(make(key, clock, str(number))))
    with pytest.raises(TokenRefused):
        Claims([KEY], clock=clock).verify(make(OTHER, clock))
