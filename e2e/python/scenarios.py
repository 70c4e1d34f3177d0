"""The scenarios of one Python SDK: python scenarios.py <sdk version> <server url> <pattern of scenario names>.

Prints one JSON report a line, in the form that harness/scenarios.ts knows.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from protocol import Protocol, decode
from resonate.context import Context
from resonate.resonate import Resonate

SCENARIO_SECONDS_MAX = 120
LEASE_SECONDS = 2 * float(os.environ.get("E2E_PATIENCE", "1"))  # not so short that a busy machine lets it lapse


@dataclass
class Dialect:
    """How a release of the SDK builds ids: its first join, and the origin of what it detaches."""

    first_join: str
    schedule_join: str
    detached_keeps_origin: bool

    def child(self, ancestor: str, n: int) -> str:
        return f"{ancestor}{'.' if self.first_join in ancestor else self.first_join}{n}"

    def descendant(self, root: str, path: str) -> str:
        for n in path.split(".") if path else []:
            root = self.child(root, int(n))
        return root


DIALECTS = {
    "0.7.4": Dialect(first_join=".", schedule_join=".", detached_keeps_origin=False),
    "0.8.1": Dialect(first_join=":", schedule_join="-", detached_keeps_origin=True),
}


class Stage:
    """What every scenario shares: the server, the dialect, fresh names and the SDK's clients to stop."""

    def __init__(self, version: str, url: str) -> None:
        self.url = url
        self.dialect = DIALECTS[version]
        self.protocol = Protocol(url)
        self.clients: list[Resonate] = []
        self.names = 0

    def name(self, what: str) -> str:
        self.names += 1
        return f"py-{what}-{self.names}"

    async def connect(self, **options: Any) -> tuple[Resonate, str]:
        group = self.name("group")
        client = Resonate(url=self.url, group=group, **options)
        self.clients.append(client)
        await asyncio.sleep(0)  # the SDK opens its connections in tasks of their own and refuses requests before
        return client, group

    async def stop_clients(self) -> None:
        for client in self.clients:
            await client.stop()
        self.clients.clear()

    def expect_tree(self, root: str, expected: dict[str, str]) -> dict[str, dict[str, Any]]:
        """Check what was recorded under a root: exactly these promises, by path, in these states, each with the
        tags of the dialect, and with a task (fulfilled) exactly where it is targeted and no timer."""
        records = {p["id"]: p for p in self.protocol.promises_with({"resonate:origin": root})}
        ids = {path: self.dialect.descendant(root, path) for path in expected}
        assert sorted(records) == sorted(ids.values()), f"recorded under {root}: {sorted(records)}, expected {sorted(ids.values())}"
        for path, state in expected.items():
            record = records[ids[path]]
            assert record["state"] == state, f"{record['id']} is {record['state']}, expected {state}"
            parent = self.dialect.descendant(root, path.rpartition(".")[0])
            assert record["tags"]["resonate:parent"] == parent, record
            timer = record["tags"].get("resonate:timer") == "true"
            targeted = "resonate:target" in record["tags"] and not timer
            status, task = self.protocol.request("task.get", {"id": record["id"]})
            assert status == (200 if targeted else 404), f"task of {record}: {status}"
            assert not targeted or task["task"]["state"] == "fulfilled", task
            assert self.protocol.promise(record["id"]) == record, "read twice, read the same"
        return {path: records[ids[path]] for path in expected}


async def until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited in vain until {what}")


async def leaf(stage: Stage) -> None:
    client, _ = await stage.connect()
    ran = 0

    async def add(ctx: Context, a: int, b: int) -> int:
        nonlocal ran
        ran += 1
        return a + b

    client.register(add)
    root = stage.name("leaf")
    assert await client.run(root, add, 2, 3).result() == 5
    assert await client.run(root, add, 2, 3).result() == 5
    assert ran == 1
    tree = stage.expect_tree(root, {"": "resolved"})
    assert decode(tree[""]["value"]) == 5
    assert stage.protocol.expect("task.get", {"id": root})["task"]["version"] == 1


async def rpc(stage: Stage) -> None:
    caller, callers = await stage.connect()
    callee, callees = await stage.connect()

    async def double(ctx: Context, n: int) -> int:
        return 2 * n

    async def ask(ctx: Context, n: int) -> int:
        far = ctx.options(target=callees)
        return await far.rpc("double", n) + await far.rpc("double", n + 1)

    callee.register(double)
    caller.register(ask)
    root = stage.name("rpc")
    assert await callee.options(target=callers).rpc(root, "ask", 4).result() == 18
    tree = stage.expect_tree(root, {"": "resolved", "1": "resolved", "2": "resolved"})
    assert tree["1"]["tags"]["resonate:target"] == f"poll://any@{callees}"
    assert [decode(tree[path]["value"]) for path in ("1", "2")] == [8, 10]


async def workflow_with_sleep(stage: Stage) -> None:
    client, _ = await stage.connect()

    async def step(ctx: Context, n: int) -> int:
        return n * 10

    async def flow(ctx: Context, ms: int) -> list[int]:
        first = await ctx.run(step, 1)
        await ctx.sleep(timedelta(milliseconds=ms))
        return [first, await ctx.run(step, 2)]

    client.register(flow)
    for ms in (50, 1000):
        root = stage.name("nap")
        begin = time.monotonic()
        assert await client.run(root, flow, ms).result() == [10, 20]
        assert time.monotonic() - begin >= ms / 1000
        tree = stage.expect_tree(root, {"": "resolved", "1": "resolved", "2": "resolved", "3": "resolved"})
        assert tree["2"]["tags"]["resonate:timer"] == "true"
        assert tree["2"]["settledAt"] == tree["2"]["timeoutAt"], "a timer settles at its deadline"


async def rejection(stage: Stage) -> None:
    client, _ = await stage.connect()

    async def flow(ctx: Context) -> None:
        await ctx.sleep(timedelta(milliseconds=1))
        raise ValueError("out of paper")

    client.register(flow)
    root = stage.name("rejected")
    try:
        await client.run(root, flow).result()
    except Exception as error:
        assert "out of paper" in str(error), error
    else:
        raise AssertionError("the error did not reach the caller")
    stage.expect_tree(root, {"": "rejected", "1": "resolved"})


async def detached(stage: Stage) -> None:
    client, _ = await stage.connect()
    order: list[str] = []
    gate = asyncio.Event()

    async def alone(ctx: Context, n: int) -> int:
        await gate.wait()
        order.append("detached")
        return n + 1

    async def flow(ctx: Context) -> str:
        return await ctx.detached("alone", 41)

    client.register(alone)
    client.register(flow)
    root = stage.name("parent")
    detached_id = await client.run(root, flow).result()
    order.append("parent")
    gate.set()
    assert re.fullmatch(re.escape(root + stage.dialect.first_join) + "d[0-9a-f]{16}", detached_id), detached_id
    assert await (await client.get(detached_id)).result() == 42
    assert order == ["parent", "detached"]
    record = stage.protocol.promise(detached_id)
    assert record["tags"]["resonate:origin"] == (root if stage.dialect.detached_keeps_origin else detached_id)
    assert stage.protocol.expect("task.get", {"id": detached_id})["task"]["state"] == "fulfilled"


async def schedule(stage: Stage) -> None:
    client, _ = await stage.connect()
    heard: list[str] = []

    async def tick(ctx: Context, word: str) -> str:
        heard.append(word)
        return ctx.info.id

    client.register(tick)
    name = stage.name("every-second")
    handle = await client.schedule(name, "* * * * * *", "tick", ("tock",))
    await until("it fired twice", lambda: len(heard) >= 2)
    await handle.delete()
    assert stage.protocol.request("schedule.get", {"id": name})[0] == 404
    fired = lambda: stage.protocol.promises_with({"resonate:schedule": name})
    await until("all that it started ended", lambda: all(p["state"] != "pending" for p in fired()))
    promises = fired()
    assert len(promises) == len(heard)
    instants = [int(p["id"].removeprefix(name + stage.dialect.schedule_join)) for p in promises]
    assert instants == [instants[0] + 1000 * n for n in range(len(instants))], "one promise for each second"
    for promise, instant in zip(promises, instants, strict=True):
        assert decode(promise["value"]) == promise["id"]
        assert promise["createdAt"] == instant


async def long_step(stage: Stage) -> None:
    client, group = await stage.connect(ttl=timedelta(seconds=LEASE_SECONDS))
    ran = 0

    async def slow(ctx: Context) -> int:
        nonlocal ran
        ran += 1
        await asyncio.sleep(2.5 * LEASE_SECONDS)
        return ran

    client.register(slow)
    root = stage.name("slow")
    assert await client.options(target=group).rpc(root, slow).result() == 1
    assert ran == 1
    assert stage.protocol.expect("task.get", {"id": root})["task"]["version"] == 1


Scenario = Callable[[Stage], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {
    "a leaf function runs once, also when it is started again under the same id": leaf,
    "rpc: a workflow on one worker calls a function on another": rpc,
    "a workflow with a sleep between two steps": workflow_with_sleep,
    "rejection: an error ends the workflow": rejection,
    "detached: the caller ends first, the detached function ends by itself": detached,
    "schedule: fires every second until it is deleted": schedule,
    "lease: a step that takes 2.5 leases is kept by heartbeats and runs once": long_step,
}


def report(**message: Any) -> None:
    print(json.dumps(message), flush=True)


async def main() -> None:
    version, url, only = sys.argv[1:4]
    stage = Stage(version, url)
    for name, scenario in SCENARIOS.items():
        if not re.search(only, name):
            continue
        report(report="begin", scenario=name)
        begin = time.monotonic()
        error: dict[str, str] = {}
        try:
            await asyncio.wait_for(scenario(stage), SCENARIO_SECONDS_MAX)
        except Exception:
            error = {"error": traceback.format_exc()}
        await asyncio.wait([asyncio.ensure_future(stage.stop_clients())], timeout=2)
        report(report="end", scenario=name, durationMs=round((time.monotonic() - begin) * 1000), **error)


asyncio.run(main())
