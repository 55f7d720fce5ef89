"""Payments on the sandbox, with metrics for the alerts and the dashboard of this folder.

    python examples/monitoring/shop.py            pays for a while and prints the metrics
    python examples/monitoring/shop.py --serve    goes on until Ctrl-C, with metrics at http://127.0.0.1:9464/metrics

It needs: pip install "momopay[sandbox,journal,otel]" opentelemetry-sdk opentelemetry-exporter-prometheus
"""

from __future__ import annotations

import logging
import sys
import tempfile
from itertools import count
from pathlib import Path

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import generate_latest, start_http_server

from momopay import Client, Journal, MomoPayError, PollSchedule, RateBudget
from momopay.integrations.opentelemetry import observer
from momopay.sandbox import Fault, Sandbox
from momopay.types import TransactionRef

PORT = 9464
SPEED = 100
PAYS, CANCELS, FAILS = "0712 345 678", "0712 349 932", "0712 349 901"
SOON = PollSchedule(first=0.3, every=0.2, limit=30)


def main(*, serve: bool) -> None:
    """Pay in rounds: two, or until Ctrl-C."""
    logging.getLogger("momopay").setLevel(logging.ERROR)  # the sandbox's clock runs ahead of ours, which it would tell
    meters = MeterProvider([PrometheusMetricReader()])
    wallet = meters.get_meter("shop").create_gauge("shop.wallet.balance", description="KES left for fees.")
    if serve:
        start_http_server(PORT, "127.0.0.1")
        print(f"Metrics: http://127.0.0.1:{PORT}/metrics")
    with (
        tempfile.TemporaryDirectory() as folder,
        Sandbox(speed=SPEED) as sandbox,
        Journal(f"sqlite:///{Path(folder) / 'payments.db'}") as journal,
        Client(
            "pk_test_monitoring",
            base_url=sandbox.base_url,
            budget=RateBudget(requests=6, window=1.0),  # so small that something waits for it
            journal=journal,
            on_event=observer(meter_provider=meters),
        ) as client,
    ):
        for number in count() if serve else range(2):
            pay(client, number)
            if number == 0:
                lose_an_answer(client, sandbox)
            wallet.set(float(client.wallet.balance().available_balance))
            client.transactions.sweep()
        print(generate_latest().decode())
    meters.shutdown()


def pay(client: Client, number: int) -> None:
    """Collect three orders, of which one is paid, and pay one salary."""
    made: list[TransactionRef] = [
        client.stk.collect_once(reference=f"{name}-{number}", amount=100, phone=phone)
        for name, phone in (("paid", PAYS), ("cancelled", CANCELS), ("failed", FAILS))
    ]
    made.append(client.payouts.pay_once(reference=f"SAL-{number}", amount=10, phone=PAYS))
    for _ in client.transactions.wait_all(made, schedule=SOON):
        pass


def lose_an_answer(client: Client, sandbox: Sandbox) -> None:
    """Leave a payout unresolved, and have a request fail that is then sent again."""
    sandbox.fail_next("GET", "/wallets/service/balance", Fault.error_before_commit)
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_before_commit)
    try:
        client.payouts.pay_once(reference="SAL-lost", amount=10, phone=PAYS)
    except MomoPayError as unknown:
        print(f"Unresolved: {type(unknown).__name__}")


if __name__ == "__main__":
    try:
        main(serve="--serve" in sys.argv[1:])
    except KeyboardInterrupt:
        print("Stopped.")
