"""``fumarole-controller explain``: an explanation in a shell, with the controller's settings."""

from __future__ import annotations

import re
import time
from urllib.parse import urlsplit

from controller.explain.explainer import Explainer
from controller.explain.judgements import Explanation
from controller.kube.client import Kube
from controller.settings import ControllerSettings
from controller.store.database import Store
from controller.store.jobs.public_links import job_of_link
from shared.bus import BusInspector, Keys, connect
from shared.jose.jwks import KeySource

_SID = re.compile(r"[a-z2-7]{26}", re.ASCII)
_MARKS = {True: "ok", False: "FAILS", None: "?"}


async def explain(settings: ControllerSettings, what: str, token: str | None) -> Explanation:
    """Return why *what* (a session's URL, host or sid, a public link, or a job) cannot be used.

    Raises:
        StoreUnavailable: If the store does not respond.
        KubeError: If there is no configuration for the cluster.
    """
    store = Store(settings.store_url)
    redis = connect(settings.redis_url)
    try:
        async with Kube.connect(settings.kubeconfig) as kube:
            explainer = Explainer(
                store=store,
                inspector=BusInspector(redis, Keys(settings.instance)),
                kube=kube,
                keys=KeySource(settings.token_jwks, clock=time.monotonic),
                issuer=settings.token_issuer,
                instance=settings.instance,
                clock=time.time,
            )
            name = _host_of(what).partition(".")[0]
            if _SID.fullmatch(name):
                return await explainer.session(name, token=token)
            if name != what:
                async with store.read() as transaction:
                    job_id = await job_of_link(transaction, name)
                return await explainer.job(job_id or name)
            if token is not None:
                return await explainer.session(None, token=token)
            return await explainer.job(what)
    finally:
        await redis.aclose()
        await store.close()


def _host_of(what: str) -> str:
    return (urlsplit(what).hostname or "") if "://" in what else what.strip().lower()


def as_text(explained: Explanation) -> str:
    """Return the explanation as text: the sentence, then each finding with its time."""
    lines = [explained.sentence, ""]
    for one in explained.findings:
        at = time.strftime("%H:%M:%S", time.gmtime(one.at))
        lines.append(f"{at}  {one.step:<9} {_MARKS[one.ok]:<6} {one.seen}")
    return "\n".join(lines)
