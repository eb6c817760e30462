"""Links that were measured or computed elsewhere: who reaches whom, how well, from when on.

    gain       power gain of the link, received power / radiated power; gain_db in dB
    snr_db     signal to noise (and interference) over the whole band, in dB
    rate_bps   what the whole band carries, bit/s:  SNR = 2^(rate / B) - 1

Whatever the file has becomes a table of gains, so that P gain / (N_0 B) is the SNR of a link; all
else is the radio's own (`folkman.radio.network`): threshold, schedule, bandwidth, durations. Index
order is [receiver, sender]. A table holds from its time on until the next; the last one stays.

    .npy    one array, gain (rx, tx) or (rx, tx, time)
    .npz    gain, gain_db, snr_db or rate_bps (rx, tx[, time]), with times also time_s (time,)
    .csv    a header with time_s, tx, rx and one of gain, gain_db, snr_db, rate_bps; a line for each
            change of a link, nodes numbered from 0. A link not yet named carries nothing
"""

import csv
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, Float, PRNGKeyArray, jnp
from folkman.checks import require
from folkman.radio import channel
from folkman.radio.air import Air
from folkman.radio.delivery import as_value
from folkman.radio.geometry import Points, Waypoint
from folkman.radio.network import RadioNetwork
from folkman.radio.star import RadioStar
from folkman.units import dbm_to_watt

__all__ = ["GainRadio", "Links", "gains", "read_links"]

QUANTITIES = ("gain", "gain_db", "snr_db", "rate_bps")
MOST_NUMBERS = 2 * 10**8  # 1.6 GB
MOST_DB = 400.0


class Links(NamedTuple):
    """What a file says of links."""

    quantity: str  # gain, gain_db, snr_db or rate_bps
    values: NDArray[np.float64]  # values of each link (time, rx, tx)
    start_s: NDArray[np.float64]  # (time,) from when on each table holds


@as_value("threshold_db", "table", "start_s")
@dataclass(frozen=True, eq=False, kw_only=True)
class GainRadio(RadioNetwork):
    """A radio whose path gains are given; equal only to itself."""

    table: NDArray[np.float32]  # (time, rx, tx) gains
    start_s: NDArray[np.float32]  # (time,) from when on each table holds
    # none: gains are as given; rayleigh: times fading of mean 1
    fading: Literal["none", "rayleigh"] = "none"
    name = "gains"

    def in_words(self) -> str:
        """Return what decides how long a transfer takes."""
        return f"gains: {self.table.shape[1]} nodes with given links; {super().in_words()}"

    def open_air(self, num_nodes: int, key: Array) -> Air:
        """Return the first table; nothing is drawn."""
        del key
        given = self.table.shape[1]
        require(
            given == num_nodes,
            f"the gains are of {given} nodes, the run has {num_nodes}; set nodes = {given}",
        )
        nowhere = jnp.full((num_nodes, 2), jnp.nan)
        nobody = Points(jnp.zeros((num_nodes, 1, 2)), jnp.zeros((num_nodes, 1), bool))
        alone = jnp.zeros((num_nodes, num_nodes, 1))
        return Air(
            Waypoint(nowhere, nowhere),
            nobody,
            jnp.asarray(self.table)[0],
            alone,
            alone[..., 0],
            jnp.zeros((), jnp.int32),
        )

    def next_air(self, air: Air, slot: Array, key: Array) -> Air:
        """Return the air with the table that holds when a slot begins."""
        del key
        if self.table.shape[0] == 1:
            return air
        # float32 products may fall short of the time that a table begins
        now_s = slot.astype(jnp.float32) * (self.slot_s * (1.0 + 1e-6))
        place = jnp.searchsorted(jnp.asarray(self.start_s), now_s, side="right") - 1
        return air._replace(link=jnp.asarray(self.table)[place], moved_at=slot)

    def sinr(self, air: Air, key: PRNGKeyArray) -> Float[Array, "rx tx"]:
        """Return P gain / (N_0 B), with one draw of Rayleigh fading if asked for."""
        if self.fading == "rayleigh":
            return super().sinr(air, key)
        still = jnp.ones_like(air.link)
        return channel.sinr(
            air.link,
            air.interferer,
            still,
            still[..., None],
            power_w=dbm_to_watt(self.power_dbm),
            noise_w=self.noise_w,
        )

    def glances(self, air: Air, key: PRNGKeyArray) -> bool:
        """Tell whether single numbers of a block can be drawn: not where none is."""
        return self.fading == "rayleigh" and super().glances(air, key)

    def star(self) -> RadioStar:
        """Refuse: the gains are between nodes, and no station is among them."""
        raise ValueError(self._lacks("uploads to a server and its answers"))


def gains(  # noqa: PLR0913 - all but one by name
    path: str,
    *,
    nodes: int | None = None,  # number of nodes; None: as the file has it
    slot_s: float = 1.0,
    # none: gains are as given; rayleigh: times fading of mean 1
    fading: Literal["none", "rayleigh"] = "none",
    threshold_db: float = 0.0,
    allocation: Literal["optimal", "uniform", "random"] = "optimal",
    period: Literal["epoch", "node"] = "epoch",
    bandwidth_hz: float = 10e6,
    power_dbm: float = 30.0,
    noise_dbm_per_hz: float = -174.0,
    bits_per_parameter: int = 16,
    least_sinr_db: float = -20.0,
    # who sends when: the paper's epochs, or one by one by an index
    schedule: Literal["threshold", "index"] = "threshold",
    message: Literal["copy", "forward", "sum"] = "copy",
) -> GainRadio:
    """Build a radio on links from a file: gains, SNRs or rates between all pairs of nodes.

    `fading` "rayleigh" draws a power gain Exp(1) for every link and block on top of the file's.
    Other options are those of the radio.
    """
    known = ("none", "rayleigh")
    require(fading in known, f"fading is 'none' or 'rayleigh', got '{fading}'")
    links = read_links(Path(path), nodes)
    noise_w = _watt(noise_dbm_per_hz) * bandwidth_hz
    table = gains_of(links, bandwidth_hz=bandwidth_hz, power_w=_watt(power_dbm), noise_w=noise_w)
    return GainRadio(
        table=table.astype(np.float32),
        start_s=links.start_s.astype(np.float32),
        fading=fading,
        slot_s=slot_s,
        threshold_db=threshold_db,
        allocation=allocation,
        period=period,
        bandwidth_hz=bandwidth_hz,
        power_dbm=power_dbm,
        noise_dbm_per_hz=noise_dbm_per_hz,
        bits_per_parameter=bits_per_parameter,
        least_sinr_db=least_sinr_db,
        schedule=schedule,
        message=message,
    )


def _watt(dbm: float) -> float:
    return 10.0 ** ((dbm - 30.0) / 10.0)


def gains_of(
    links: Links, *, bandwidth_hz: float, power_w: float, noise_w: float
) -> NDArray[np.float64]:
    """Return the power gains (time, rx, tx) that give what a file says.

    A node's own entry means nothing; it is the best of all, so that it never hinders.
    """
    values = links.values
    if links.quantity in ("gain", "gain_db"):
        found = values if links.quantity == "gain" else 10.0 ** (values / 10.0)
    else:
        with np.errstate(over="ignore"):
            snr = np.expm1(values / bandwidth_hz * np.log(2.0))
        snr = snr if links.quantity == "rate_bps" else 10.0 ** (values / 10.0)
        found = snr * noise_w / power_w
    largest = 10.0 ** (MOST_DB / 10.0)
    require(
        bool(np.all(found <= largest)),
        f"expected gains of at most {MOST_DB:g} dB, got more; check the unit of {links.quantity}, "
        "and bandwidth_hz where it is a rate",
    )
    own = np.eye(found.shape[1], dtype=bool)[None]
    return np.where(own, found.max(initial=0.0), found)


def read_links(
    path: Path,
    nodes: int | None = None,  # number of nodes; None: as the file has it
) -> Links:
    """Read a file of links; `nodes` is their number, None: as the file has it."""
    if not path.is_file():
        raise ValueError(f"expected a file of links, found none at {path}; check the path")
    if path.suffix == ".csv":
        links = _from_csv(path, nodes)
    else:
        require(
            path.suffix in (".npy", ".npz"),
            f"expected links as .npy, .npz or .csv, got {path.name}; convert the file",
        )
        links = _from_arrays(_arrays(path), str(path))
    given = links.values.shape[1]
    require(
        nodes is None or nodes == given,
        f"{path}: the links are of {given} nodes, the run has {nodes}; set nodes = {given}",
    )
    return links


def _arrays(path: Path) -> dict[str, NDArray]:
    """Return the arrays of a file; what would have to be unpickled is refused."""
    try:
        with path.open("rb") as stream:
            found = np.load(stream, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return {"gain": found}
            return {key: found[key] for key in found.files}
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"expected plain numbers in {path}, could not read it; write it with numpy.save or "
            "numpy.savez, and no objects"
        ) from error


def _from_arrays(arrays: Mapping[str, NDArray], origin: str) -> Links:
    """Return the links of named arrays, (rx, tx) or (rx, tx, time)."""
    held = [name for name in QUANTITIES if name in arrays]
    require(
        len(held) == 1,
        f"{origin}: expected one of {', '.join(QUANTITIES)}, found "
        f"{', '.join(sorted(arrays)) or 'nothing'}; name the array by what it holds",
    )
    quantity, values = held[0], arrays[held[0]]
    require(
        values.dtype.kind in "iuf",
        f"{origin}: expected real numbers in {quantity}, got {values.dtype}; of complex amplitudes "
        "a take the sum of abs(a)**2 over paths and antennas",
    )
    square = values.ndim in (2, 3) and values.shape[0] == values.shape[1] > 0
    require(
        square and values.size <= MOST_NUMBERS,
        f"{origin}: expected {quantity} of shape (rx, tx) or (rx, tx, time) between the same "
        f"nodes, got {values.shape}; choose or reorder the axes",
    )
    cube = values[..., None] if values.ndim == 2 else values
    start_s = np.asarray(arrays.get("time_s", np.arange(cube.shape[2])), np.float64)
    require(
        cube.shape[2] == 1 or "time_s" in arrays,
        f"{origin}: expected time_s, the seconds from which each of the {cube.shape[2]} tables "
        "holds; save it beside the links in an .npz",
    )
    _check_times(start_s, cube.shape[2], origin)
    found = np.moveaxis(cube, 2, 0).astype(np.float64)
    _check_values(quantity, found, origin)
    return Links(quantity, found, start_s)


def _check_times(start_s: NDArray[np.float64], tables: int, origin: str) -> None:
    rising = start_s.shape == (tables,) and start_s[0] == 0 and bool(np.all(np.diff(start_s) > 0))
    require(
        rising and bool(np.isfinite(start_s).all()),
        f"{origin}: expected time_s to rise from 0, one for each of the {tables} tables, got "
        f"{start_s[:4].tolist()}...; shift and sort them",
    )


def _check_values(quantity: str, values: NDArray[np.float64], origin: str) -> None:
    """Refuse what is no power, no rate, or no number; -inf dB is a link that carries nothing."""
    in_db = quantity.endswith("_db")
    good = ~np.isnan(values) & (values < inf) & (in_db | (values >= 0))
    good |= np.eye(values.shape[1], dtype=bool)[None]
    if not good.all():
        time, rx, tx = np.argwhere(~good)[0]
        least = "" if in_db else " of at least 0"
        raise ValueError(
            f"{origin}: expected numbers{least} in {quantity}, got {values[time, rx, tx]} from "
            f"node {tx} to node {rx} in table {time}; correct it"
        )


def _from_csv(path: Path, nodes: int | None) -> Links:
    """Return the links of a list of changes."""
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        header = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = header
        held = [name for name in QUANTITIES if name in header]
        missing = [name for name in ("time_s", "tx", "rx") if name not in header]
        require(
            not missing and len(held) == 1,
            f"{path}, line 1: expected the columns time_s, tx, rx and one of "
            f"{', '.join(QUANTITIES)}, got {', '.join(header) or 'none'}; correct the header",
        )
        rows = [_row(row, held[0], f"{path}, line {reader.line_num}") for row in reader]
    require(bool(rows), f"{path}: expected lines below the header, got none; write the links")
    most = max(max(tx, rx) for _, tx, rx, _ in rows) + 1
    nodes = max(most, nodes or 0)
    times = np.unique([0.0, *(time for time, *_ in rows)])
    require(
        len(times) * nodes**2 <= MOST_NUMBERS,
        f"{path}: expected at most {MOST_NUMBERS:g} numbers, got {len(times)} times of {nodes}^2 "
        "links; write fewer times",
    )
    silent = -inf if held[0].endswith("_db") else 0.0
    values = np.full((len(times), nodes, nodes), np.nan)
    values[0] = silent
    for time, tx, rx, value in rows:
        values[np.searchsorted(times, time), rx, tx] = value
    for place in range(1, len(times)):  # what is not named stays as it was
        values[place] = np.where(np.isnan(values[place]), values[place - 1], values[place])
    _check_values(held[0], values, str(path))
    return Links(held[0], values, times)


def _row(row: Mapping[str, str | None], quantity: str, where: str) -> tuple[float, int, int, float]:
    """Return time, sender, receiver and value of a line."""
    try:
        time, value = float(row["time_s"] or ""), float(row[quantity] or "")
        tx, rx = int(row["tx"] or ""), int(row["rx"] or "")
    except ValueError:
        came = ", ".join(f"{key}={row[key]}" for key in ("time_s", "tx", "rx", quantity))
        raise ValueError(
            f"{where}: expected numbers, whole ones for tx and rx, got {came}; correct the line"
        ) from None
    require(
        0 <= time < inf and tx >= 0 and rx >= 0 and tx != rx and not np.isnan(value),
        f"{where}: expected time_s >= 0 and two different nodes from 0, got time_s={time:g}, "
        f"tx={tx}, rx={rx}, {quantity}={value}; correct the line",
    )
    return time, tx, rx, value
