"""Stores logs in a bucket of S3 or of a compatible service.

The client is aiobotocore, the asyncio version of the SDK's own core. It supports all of the SDK's
ways to get credentials (a role of the ServiceAccount among them). It is an extra, ``fumarole[s3]``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from controller.logs.storage import CALL_SECONDS, Missing, StorageUnavailable, check_key, check_name
from controller.site.log_place import Bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from types_aiobotocore_s3 import S3Client

_AT_ONCE: Final = 16
_MOST_REMOVED: Final = 1000
"""The most objects of one call (S3 API, "DeleteObjects")."""


@asynccontextmanager
async def connect_s3(bucket: Bucket) -> AsyncIterator[S3Storage]:
    """Open a storage; nothing is sent yet.

    Raises:
        ValueError: If the extra is not installed.
    """
    try:
        from aiobotocore.config import AioConfig
        from aiobotocore.session import AioSession
    except ImportError as error:
        text = "FUMAROLE_CONTROLLER_LOGS_S3_BUCKET: needs the extra fumarole[s3]"
        raise ValueError(text) from error
    session = AioSession()
    if bucket.credentials is not None:
        session.set_config_variable("credentials_file", str(bucket.credentials))
    config = AioConfig(
        connect_timeout=5,
        read_timeout=CALL_SECONDS,
        retries={"total_max_attempts": 2, "mode": "standard"},
        max_pool_connections=_AT_ONCE,
        # Compatible services rarely have a host name for each bucket.
        s3={"addressing_style": "path" if bucket.endpoint else "auto"},
        # The newer default is a checksum in a trailer, which other services refuse.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client: Any = session.create_client(
        "s3", region_name=bucket.region, endpoint_url=bucket.endpoint, config=config
    )
    async with client as s3:
        yield S3Storage(s3, bucket)


class S3Storage:
    """Stores objects under the bucket's prefix; needs Get, Put and Delete there, and List."""

    def __init__(self, client: S3Client, bucket: Bucket) -> None:
        self._client = client
        self._bucket = bucket.name
        self._prefix = bucket.prefix
        self._calls = asyncio.Semaphore(_AT_ONCE)

    async def put(self, name: str, content: bytes) -> None:
        """Store *content*."""
        with _translated():
            async with asyncio.timeout(CALL_SECONDS), self._calls:
                await self._client.put_object(
                    Bucket=self._bucket, Key=self._key(check_name(name)), Body=content
                )

    async def get(self, name: str) -> bytes:
        """Return an object."""
        with _translated():
            async with asyncio.timeout(CALL_SECONDS), self._calls:
                found = await self._client.get_object(
                    Bucket=self._bucket, Key=self._key(check_name(name))
                )
                async with found["Body"] as body:
                    content: bytes = await body.read()
                    return content

    async def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        with _translated():
            async with asyncio.timeout(CALL_SECONDS), self._calls:
                await self._client.delete_object(
                    Bucket=self._bucket, Key=self._key(check_name(name))
                )

    async def remove_all(self, key: str) -> None:
        """Remove all objects of a log."""
        prefix = self._key(check_key(key)) + "/"
        with _translated():
            async with asyncio.timeout(CALL_SECONDS), self._calls:
                while names := await self._listed(prefix):
                    for name in names:
                        await self._client.delete_object(Bucket=self._bucket, Key=name)

    async def _listed(self, prefix: str) -> list[str]:
        page = await self._client.list_objects_v2(
            Bucket=self._bucket, Prefix=prefix, MaxKeys=_MOST_REMOVED
        )
        return [one["Key"] for one in page.get("Contents", ())]

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"


@contextmanager
def _translated() -> Iterator[None]:
    """Translate the SDK's errors, without details of the request."""
    import aiohttp
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in ("NoSuchKey", "404"):
            raise Missing("the object does not exist") from error
        raise StorageUnavailable(f"the log bucket: {code or 'refused'}") from error
    except (BotoCoreError, aiohttp.ClientError, OSError, TimeoutError) as error:
        raise StorageUnavailable(f"the log bucket: {type(error).__name__}") from error
