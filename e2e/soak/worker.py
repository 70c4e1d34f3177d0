"""The Python worker that gets killed: python worker.py <server url> <ledger url>.

Runs the transfers of examples/typescript/workflow.ts, step for step, against the ledger of the kill tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

from resonate.context import Context
from resonate.resonate import Resonate
from resonate.retry import Never

LEASE = timedelta(seconds=2)
"""Short, so that the tasks of a killed worker go on soon."""

SERVER_URL, LEDGER_URL = sys.argv[1:3]
Order = dict[str, Any]


class Refused(Exception):
    """The bank says no: trying again would not help."""


def post(posting: str, account: str, amount: int) -> dict[str, Any]:
    body = json.dumps({"posting": posting, "account": account, "amount": amount}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(LEDGER_URL, body), timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise Refused(f"account {account} cannot take {amount}") from error


async def withdraw(ctx: Context, order: Order) -> dict[str, Any]:
    return await asyncio.to_thread(post, ctx.info.id, order["from"], -order["amount"])


async def refund(ctx: Context, order: Order) -> dict[str, Any]:
    return await asyncio.to_thread(post, ctx.info.id, order["from"], order["amount"])


async def credit(ctx: Context, order: Order) -> dict[str, Any]:
    return await asyncio.to_thread(post, ctx.info.id, order["to"], order["amount"])


async def deposit(ctx: Context, order: Order) -> dict[str, Any]:
    return await ctx.options(retry_policy=Never()).run(credit, order)


async def transfer(ctx: Context, order: Order) -> dict[str, Any]:
    withdrawal = await ctx.options(retry_policy=Never()).run(withdraw, order)
    await ctx.sleep(timedelta(milliseconds=order["restMs"]))
    try:
        receipt = await ctx.rpc("deposit", order)
    except Exception as error:  # what the far side raised, as the SDK brings it over
        back = await ctx.run(refund, order)
        return {"status": "refunded", "reason": str(error), "withdrawal": withdrawal, "refund": back}
    return {"status": "done", "withdrawal": withdrawal, "deposit": receipt}


async def main() -> None:
    client = Resonate(url=SERVER_URL, group="default", ttl=LEASE)
    client.register(deposit)
    client.register(transfer)
    parent = os.getppid()
    while os.getppid() == parent:  # leaves when the test is gone
        await asyncio.sleep(0.5)


asyncio.run(main())
