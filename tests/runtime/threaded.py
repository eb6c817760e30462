"""Transports for tests that wait and look: each in a loop of its own thread."""

import asyncio
import threading
from typing import Any, ClassVar

from folkman.runtime.tcp import TcpTransport
from folkman.runtime.zenoh import ZenohTransport


class Threaded:
    """A transport whose functions may be called from any thread."""

    kind: ClassVar[Any]

    def __init__(self, *args, **options):
        self._transport = self.kind(*args, **options)
        self._loop = asyncio.new_event_loop()
        self._thread: Any = None

    @property
    def counts(self):
        return self._transport.counts

    def _wait(self, work, patience_s=60.0):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(patience_s)

    def open(self, events):
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._wait(self._transport.open(events))
        except OSError:
            self._end()
            raise

    def publish(self, peer, data):
        self._loop.call_soon_threadsafe(self._transport.publish, peer, data)

    def tell(self, peer, data):
        self._loop.call_soon_threadsafe(self._transport.tell, peer, data)

    def links(self):
        return self._transport.links()

    def revalidate(self):
        self._loop.call_soon_threadsafe(self._transport.revalidate)

    def close(self):
        if self._thread is not None:
            self._wait(self._transport.close())
            self._end()

    def _end(self):
        self._wait(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._loop.close()
        self._thread = None


class Tcp(Threaded):
    kind = TcpTransport


class Zenoh(Threaded):
    kind = ZenohTransport
