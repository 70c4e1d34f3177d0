"""A plain client of the protocol, independent of the SDK: what the checks read the records with."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
import uuid
from typing import Any

VERSION = "2026-04-01"


class Protocol:
    def __init__(self, url: str) -> None:
        self.url = url

    def request(self, kind: str, data: dict[str, Any]) -> tuple[int, Any]:
        """Send one request; give the status and the data of the answer, whose envelope is checked."""
        corr_id = str(uuid.uuid4())
        head = {"corrId": corr_id, "version": VERSION}
        body = json.dumps({"kind": kind, "head": head, "data": data}).encode()
        post = urllib.request.Request(self.url, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(post, timeout=30) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        envelope = json.loads(text)
        assert envelope["kind"] == kind and envelope["head"]["corrId"] == corr_id, text
        assert envelope["head"]["status"] == status, text
        return status, envelope["data"]

    def expect(self, kind: str, data: dict[str, Any]) -> Any:
        """Send a request that must be answered 200; give its data."""
        status, answer = self.request(kind, data)
        assert status == 200, f"{kind} {data} was answered {status}: {answer}"
        return answer

    def promise(self, promise_id: str) -> dict[str, Any]:
        return self.expect("promise.get", {"id": promise_id})["promise"]

    def promises_with(self, tags: dict[str, str]) -> list[dict[str, Any]]:
        """Every promise that carries all the tags."""
        found: list[dict[str, Any]] = []
        page: dict[str, Any] = {}
        while True:
            page = self.expect("promise.search", {"tags": tags, "limit": 1000, **({"cursor": page["cursor"]} if page else {})})
            found.extend(page["promises"])
            if "cursor" not in page:
                return found


def decode(value: dict[str, Any]) -> Any:
    """What an SDK encoded: base64 of JSON; None for an absent or empty value."""
    return json.loads(base64.b64decode(value["data"])) if value.get("data") else None
