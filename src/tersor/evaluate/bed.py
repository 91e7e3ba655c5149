"""The slow link: which kind this machine can have, and the commands that build it."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from tersor.errors import TersorError

HEADERS = 1.0456  # bytes on the wire per byte of payload: TCP/IP over Ethernet, measured at an MTU of 1,500
BURST, LIMIT = "32kb", "1mb"  # a burst of 128 kB would carry small messages for free and flatter a codec
NETNS = "/run/netns"  # inside the bed's own mount namespace, on a tmpfs: nobody else sees it
SUBNET = "10.77.0"
MAX_WORKERS = 64
TOOLS = ("unshare", "nsenter", "ip", "tc", "mount")
UNITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}

# How the bed is entered: own network, mounts and process tree; when pid 1 in there ends, all of it is gone.
UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
UNSHARE_USER = (*UNSHARE[:1], "--user", "--map-root-user", *UNSHARE[1:])
TRIAL = (
    "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip netns add r0 && ip link add br0 type bridge"
    " && ip link add v0 netns r0 type veth peer name p0 && ip link set p0 master br0"
    f" && tc qdisc add dev p0 root tbf rate 1mbit burst {BURST} limit {LIMIT}"
    " && nsenter --net=/run/netns/r0 ip link set v0 up"
)


def parse_rate(text: str) -> float | None:
    """Parse `50mbit`, `1gbit`, `250kbit` or `none` into bits a second (None: no limit)."""
    word = text.strip().lower()
    if word == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(bit|kbit|mbit|gbit)(?:/s)?", word)
    if match is None:
        raise TersorError(f"cannot read the link rate {text!r}: write 50mbit, 1gbit, 250kbit or none")
    rate = float(match[1]) * UNITS[match[2]]
    if rate < 1e4:
        raise TersorError(f"a link of {text} is too slow to train over: 10kbit is the least")
    return rate


def format_rate(rate: float | None) -> str:
    """Write a rate for people: `50 Mbit/s`; None is `no limit`."""
    if rate is None:
        return "no limit"
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if rate >= factor:
            return f"{rate / factor:g} {unit}"
    return f"{rate:g} bit/s"


@dataclass(frozen=True)
class Bed:
    """The link that the workers get.

    Attributes
    ----------
    tier : str
        `root` and `user`: namespaces with a real limited link, as root or in a user namespace; `model`: loopback, the
        missing wire time is slept; `none`: loopback as it is.
    rate : float | None
        Bits a second, each way, of every worker's own link.
    why : str
        Why a better tier was not to be had; empty if there is none.
    """

    tier: str
    rate: float | None
    why: str = ""

    @property
    def real(self) -> bool:
        """Whether the workers sit behind real interfaces."""
        return self.tier in ("root", "user")

    @property
    def enter(self) -> tuple[str, ...]:
        """The command prefix that enters the bed's namespaces; empty without namespaces."""
        return {"root": UNSHARE, "user": UNSHARE_USER}.get(self.tier, ())

    def describe(self) -> str:
        """Say in a sentence or two what the link is."""
        rate = format_rate(self.rate)
        if self.real:
            who = "as root" if self.tier == "root" else "in a user namespace, without root"
            return (
                f"Real link ({who}): every worker in its own network namespace, behind a veth pair on one bridge, "
                f"{rate} each way by tc tbf (burst {BURST}, limit {LIMIT})."
            )
        if self.tier == "model":
            text = (
                f"Modelled link of {rate}: the workers talk over loopback; every transfer starts with a barrier and "
                f"then takes at least (bytes x {HEADERS}) / rate, bytes being the larger of what a worker sends "
                "and what it receives; the rest of that time is slept."
            )
            return f"{text} (No real link: {self.why}.)" if self.why else text
        return "Loopback as it is, no limit."


def _trial(prefix: tuple[str, ...]) -> str:
    """Build a small bed and throw it away; return what went wrong, or nothing."""
    try:
        done = subprocess.run(
            [*prefix, "sh", "-c", TRIAL], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def find_bed(rate: float | None, wanted: str = "auto") -> Bed:
    """Choose the link: root, else a user namespace, else the model; each is tried out before it is chosen.

    Parameters
    ----------
    rate : float | None
        Bits a second; None gives plain loopback.
    wanted : str
        `auto`, or the tier to insist on (`root`, `user`, `model`): TersorError if it is not to be had.
    """
    if wanted not in ("auto", "root", "user", "model"):
        raise TersorError(f"unknown bed {wanted!r}: auto, root, user or model")
    if rate is None:
        return Bed("none", None)
    if wanted == "model":
        return Bed("model", rate)
    reasons = []
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        reasons.append(f"{', '.join(missing)} not found; Debian has them in iproute2 and util-linux")
    else:
        for tier, prefix in (("root", UNSHARE), ("user", UNSHARE_USER)):
            if wanted in ("auto", tier):
                problem = _trial(prefix)
                if not problem:
                    return Bed(tier, rate)
                reasons.append(f"{tier}: {problem}")
    if wanted != "auto":
        raise TersorError(f"no {wanted} bed on this machine ({'; '.join(reasons)})")
    return Bed("model", rate, "; ".join(reasons))


def interface(rank: int) -> str:
    """Name of the interface that worker `rank` sends through, in its own namespace."""
    return f"v{rank}"


def build_commands(workers: int, rate: float) -> list[list[str]]:
    """List the commands, to be run in order inside the bed, that give every worker its link."""
    tbf = f"root tbf rate {rate:.0f}bit burst {BURST} limit {LIMIT}"
    lines = [
        "mount -t tmpfs tmpfs /run",
        f"mkdir {NETNS}",
        "ip netns add sw",
        "ip -n sw link add br0 type bridge",
        "ip -n sw link set br0 up",
    ]
    for rank in range(workers):
        near, far = interface(rank), f"p{rank}"
        lines += [
            f"ip netns add r{rank}",
            f"ip -n r{rank} link set lo up",
            f"ip link add {near} netns r{rank} type veth peer name {far} netns sw",
            f"ip -n sw link set {far} master br0",
            f"ip -n sw link set {far} up",
            f"ip -n r{rank} addr add {SUBNET}.{rank + 1}/24 dev {near}",
            f"ip -n r{rank} link set {near} up",
            f"tc -n r{rank} qdisc add dev {near} {tbf}",  # uplink
            f"tc -n sw qdisc add dev {far} {tbf}",  # downlink
        ]
    return [line.split() for line in lines]


def enter_rank(rank: int) -> list[str]:
    """Command prefix that runs a program in the namespace of worker `rank`."""
    return ["nsenter", f"--net={NETNS}/r{rank}"]


def wire_seconds(nbytes: float, rate: float | None) -> float:
    """Seconds that the model gives to `nbytes` of payload on one worker's link."""
    return 0.0 if rate is None else nbytes * HEADERS * 8.0 / rate
