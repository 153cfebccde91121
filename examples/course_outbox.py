"""Course subscriptions for other systems: signed webhooks to a billing service, and an archive in a file.

The billing service is down when the first student subscribes. Its outbox waits for it, while the archive goes on.
Then the service answers, and gets every subscription in order. It checks the signature of each request and ignores an
event that it has seen, so that it bills each subscription once.
"""

from __future__ import annotations

import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from examples.courses import Capacity, Load, StudentSubscribed, Subscription, define_course, subscribe

import fencepost
from fencepost.consumers import start
from fencepost.consumers.outbox import (
    Breaker,
    FilePublisher,
    Outbox,
    SignatureRefused,
    Topic,
    WebhookPublisher,
    verify_signature,
)
from fencepost.core.interrupts import pause

SECRET = "a-secret-that-billing-also-knows"

subscriptions = Topic("subscriptions", source="/courses", types={StudentSubscribed}, key="course_id")


def outboxes(billing_url: str, archive: Path) -> tuple[Outbox, Outbox]:
    """One outbox for each pair of topic and publisher."""
    billing = WebhookPublisher(billing_url, secrets=[SECRET])
    return (
        Outbox("billing", subscriptions, billing, breaker=Breaker(failures=2, base_s=0.1, cap_s=1)),
        Outbox("archive", subscriptions, FilePublisher(archive)),
    )


class Billing(BaseHTTPRequestHandler):
    """The receiver. A real one would keep `seen` and `billed` in its database, in one transaction."""

    seen: set[str] = set()  # noqa: RUF012  of the service, not of one request
    billed: list[str] = []  # noqa: RUF012
    is_up = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status_for(body))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def status_for(self, body: bytes) -> int:
        if not Billing.is_up:
            return 503
        try:
            verify_signature(body, self.headers["Fencepost-Signature"], [SECRET])
        except SignatureRefused:
            return 401
        event = json.loads(body)
        if event["id"] not in Billing.seen:
            Billing.seen.add(event["id"])
            Billing.billed.append(event["data"]["student_id"])
        return 204

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the example prints what matters."""


def main() -> None:
    service = ThreadingHTTPServer(("127.0.0.1", 0), Billing)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{service.server_address[1]}/events"
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "subscriptions.jsonl"
        billing, archiving = outboxes(url, archive)
        with fencepost.open(Path(folder) / "courses.db") as store:
            define_course(store, Capacity("rust"), capacity=10)
            with start(store, billing, archiving):
                for student in ("ada", "bob", "eve"):
                    subscribe(store, Capacity("rust"), Load(student), Subscription("rust", student))
                while billing.circuit.state == "closed" or not archive.exists():
                    pause(0.01)
                print(f"billing is down: its circuit is {billing.circuit.state}, and it has billed {Billing.billed}")
                Billing.is_up = True
                while len(Billing.billed) < 3 or len(archive.read_text().splitlines()) < 3:
                    pause(0.01)
                print(f"billing is up again, and has billed {Billing.billed}")
        archived = [json.loads(line)["data"]["student_id"] for line in archive.read_text().splitlines()]
        print(f"the archive has {archived}")
    service.shutdown()
    service.server_close()


if __name__ == "__main__":
    main()
