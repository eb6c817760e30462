"""A network of hosts on one machine: namespaces joined by a relay that delays, jitters, loses, limits and cuts.

Run as root: `python relay.py PREFIX HOSTS SUBNET`. It prints READY, then takes one JSON object a line on standard input
(delay_s, jitter_s, loss, rate_bit_s, cut: [[a, b], ...]) and answers OK; at the end of input it removes the namespaces.
Real kernel TCP runs over it; unlike `tc netem` it needs no kernel module.
"""

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import struct
import subprocess
import sys
import time

QUEUE_S = 0.2  # of packets that may wait for the rate


class Relay:
    def __init__(self, prefix, hosts, subnet):
        self.names = [f"{prefix}{i}" for i in range(hosts)]
        self.subnet = bytes(int(part) for part in subnet.split("."))
        self.settings = {"delay_s": 0.0, "jitter_s": 0.0, "loss": 0.0, "rate_bit_s": 0.0, "cut": []}
        self.random = random.Random(1)  # noqa: S311 - for the weather
        self.heap, self.count, self.free_s = [], 0, {}
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.files = [self._host(i, subnet, home) for i in range(hosts)]

    def _host(self, i, subnet, home):
        name = self.names[i]
        run("ip", "netns", "add", name)
        enter(os.open(f"/run/netns/{name}", os.O_RDONLY))
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(
            file, 0x400454CA, struct.pack("16sH", b"tun0", 0x0001 | 0x1000)
        )  # TUNSETIFF: TUN, no packet info
        enter(home)
        run("ip", "-n", name, "addr", "add", f"{subnet}.{i + 1}/24", "dev", "tun0")
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "link", "set", "tun0", "up")
        return file

    def carry(self):
        chosen = selectors.DefaultSelector()
        for i, file in enumerate(self.files):
            chosen.register(file, selectors.EVENT_READ, i)
        chosen.register(sys.stdin, selectors.EVENT_READ, -1)
        while True:
            self._deliver()
            wait_s = max(0.0, self.heap[0][0] - time.monotonic()) if self.heap else 0.2
            for key, _ in chosen.select(wait_s):
                if key.data >= 0:
                    self._read(key.data)
                    continue
                line = sys.stdin.readline()
                if not line:
                    return
                self.settings |= json.loads(line)
                print("OK", flush=True)

    def _deliver(self):
        while self.heap and self.heap[0][0] <= time.monotonic():
            _, _, to, packet = heapq.heappop(self.heap)
            with contextlib.suppress(OSError):
                os.write(self.files[to], packet)

    def _read(self, sender):
        at = self.settings
        for _ in range(64):
            try:
                packet = os.read(self.files[sender], 65536)
            except BlockingIOError:
                return
            if len(packet) < 20 or packet[0] >> 4 != 4 or packet[16:19] != self.subnet:
                continue
            to = packet[19] - 1
            if not 0 <= to < len(self.files) or self.random.random() < at["loss"]:
                continue
            if [sender, to] in at["cut"] or [to, sender] in at["cut"]:
                continue
            due_s = time.monotonic()
            if at["rate_bit_s"]:
                begins_s = max(due_s, self.free_s.get((sender, to), 0.0))
                if begins_s - due_s > QUEUE_S:
                    continue
                due_s = self.free_s[sender, to] = begins_s + len(packet) * 8 / at["rate_bit_s"]
            jitter_s = self.random.uniform(-1, 1) * at["jitter_s"]
            self.count += 1
            heapq.heappush(self.heap, (due_s + at["delay_s"] + jitter_s, self.count, to, packet))

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


def enter(file):
    if ctypes.CDLL(None, use_errno=True).setns(file, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


if __name__ == "__main__":
    relay = None
    try:
        relay = Relay(sys.argv[1], int(sys.argv[2]), sys.argv[3])
        print("READY", flush=True)
        relay.carry()
    finally:
        if relay is not None:
            relay.remove()
