"""Who is measured, in which environment, with which options."""

from dataclasses import dataclass, field
from typing import Any

FAIRLAYER = "fairlayer"
PROJECT = "project"  # the environment the benchmark itself runs in

# Exact versions: a benchmark is of a version; torch's is the project's. What a peer does not declare is added by hand.
REQUIREMENTS = {
    "fairness-training": [
        "torch",
        "fairness-training==0.1.0",
        "cvxpy==1.6.5",
        "cvxpylayers==0.1.9",
        "ecos==2.0.14",
        "diffcp==1.1.9",
    ],
    "fairness-training-cvxpylayers-1.2": ["torch", "fairness-training==0.1.0", "cvxpylayers==1.2.0", "ecos==2.0.14"],
    "cvxpylayers": ["torch", "cvxpylayers==1.2.0", "ecos==2.0.14", "clarabel==0.11.1", "moreau==0.4.1"],
    "moreau": ["torch", "moreau==0.4.1"],
    "qpth": ["torch", "qpth==0.0.18"],
    "proxsuite": ["torch", "proxsuite==0.8.0"],
    "pinet": ["pinet_hcnn==0.2.0"],
    "jaxopt": ["jaxopt==0.8.5"],
    "qpax": ["qpax==0.1.4"],
    "oxonfair": ["oxonfair==0.3"],
    "aif360": ["aif360==0.6.1"],
    "error-parity": ["error-parity==0.3.12"],
    "linearpost": ["cvxpy==1.9.3", "highspy==1.15.1", "typing-extensions"],
}
# Peers that are no packages: a repository and its commit, brought to the folder `source` of the environment.
SOURCES = {"linearpost": ("https://github.com/rxian/fair-classification", "58b57e561369b15ecef4b94baef70fefaa5813de")}


@dataclass(frozen=True)
class Peer:
    """One line of the table."""

    name: str
    adapter: str
    environment: str
    package: str  # the distribution whose version is shown
    dtype: str = "float64"
    options: dict[str, Any] = field(default_factory=dict)
    fixed: bool = False  # groups, or rows, stay the same from call to call
    compiled: bool = True
    floor: bool = False  # does not solve the problem: no errors to speak of, no speed-up to claim
    most_attributes: int | None = None
    box_only: bool = False

    def cannot(self, k: int, box: bool) -> str | None:
        """Say why this peer cannot express a case; None when it can."""
        if self.most_attributes is not None and k > self.most_attributes:
            return f"takes at most {self.most_attributes} attributes"
        return "always has a box" if self.box_only and not box else None


def _fairness_training(name: str, environment: str) -> Peer:
    # As in a network: float32 throughout.
    return Peer(
        name, "fairness_training", environment, "fairness-training", "float32", most_attributes=2, box_only=True
    )


PEERS = [
    Peer("floor: clamp", "clamp", PROJECT, "torch", "float32", floor=True),
    Peer("floor: the paper's network", "paper_network", PROJECT, "torch", "float32", floor=True),
    Peer(FAIRLAYER, "fairlayer_layer", PROJECT, "fairlayer", "float32", {"dtype": "float32"}),
    Peer(f"{FAIRLAYER} float64", "fairlayer_layer", PROJECT, "fairlayer", options={"dtype": "float64"}),
    _fairness_training("fairness-training, cvxpylayers 0.1.9", "fairness-training"),
    _fairness_training("fairness-training, cvxpylayers 1.2", "fairness-training-cvxpylayers-1.2"),
    *(
        Peer(f"cvxpylayers, {name}", "cvxpylayers_once", "cvxpylayers", "cvxpylayers", options={"solver": solver})
        for name, solver in (("ECOS", "ECOS"), ("Clarabel", "Clarabel"), ("moreau", "MOREAU"))
    ),
    Peer("moreau", "moreau_direct", "moreau", "moreau"),
    Peer("qpth", "qpth_dense", "qpth", "qpth"),
    Peer("proxsuite QPLayer", "proxsuite_dense", "proxsuite", "proxsuite"),
    Peer(
        "Pi-net, groups fixed",
        "pinet_layer",
        "pinet",
        "pinet-hcnn",
        "float32",
        {"groups_change": False},
        fixed=True,
    ),
    Peer(
        "Pi-net, groups change",
        "pinet_layer",
        "pinet",
        "pinet-hcnn",
        "float32",
        {"groups_change": True},
        compiled=False,
    ),
    Peer("jaxopt BoxOSQP", "jaxopt_boxosqp", "jaxopt", "jaxopt"),
    Peer("qpax", "qpax_dense", "qpax", "qpax"),
]

AFFINE = "affine: "  # starts the names of those that are measured on batches of affine problems
AFFINE_PEERS = [
    *(
        Peer(
            f"{AFFINE}{FAIRLAYER}{suffix}",
            "fairlayer_affine",
            PROJECT,
            "fairlayer",
            dtype,
            {"dtype": dtype, "rows_change": not fixed},
            fixed=fixed,
        )
        for suffix, dtype, fixed in (
            ("", "float32", False),
            (", rows fixed", "float32", True),
            (" float64", "float64", False),
        )
    ),
    *(
        Peer(
            f"{AFFINE}cvxpylayers, {name}",
            "cvxpylayers_affine",
            "cvxpylayers",
            "cvxpylayers",
            options={"solver": solver},
        )
        for name, solver in (("ECOS", "ECOS"), ("Clarabel", "Clarabel"), ("moreau", "MOREAU"))
    ),
    Peer(f"{AFFINE}qpth", "qpth_affine", "qpth", "qpth"),
    Peer(
        f"{AFFINE}Pi-net, rows fixed",
        "pinet_affine",
        "pinet",
        "pinet-hcnn",
        "float32",
        {"rows_change": False},
        fixed=True,
    ),
    Peer(
        f"{AFFINE}Pi-net, rows change",
        "pinet_affine",
        "pinet",
        "pinet-hcnn",
        "float32",
        {"rows_change": True},
        compiled=False,
    ),
]
