"""What the authors' names of files say: RN_b_5_b1_01_e8_cw.pth is PreAct ResNet-18 by CAT_cw(0.1).

Their trained networks are of CIFAR, and normalise images by constants that no file holds.
"""

import re
from typing import Any

# Network, beta, beta1 ("01" is 0.1), 255 epsilon, and what is attacked in training.
NAME = re.compile(r"(RN|WRN)_b_(\d+)_b1_(\d+)_e(\d+)_(cw|cent)")
NETWORKS = {"RN": "PreActResNet18", "WRN": "WideResNet"}
LOSSES = {"cw": "margin", "cent": "cross_entropy"}
# By the number of classes: CIFAR-10, CIFAR-100.
CONSTANTS = {
    10: {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2471, 0.2435, 0.2616)},
    100: {
        "mean": (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
        "std": (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
    },
}


def fields(file_name: str) -> dict[str, Any]:
    """Fields of the config by their paths, as the name of a file tells them; {} if it does not."""
    found = NAME.match(file_name)
    if found is None:
        return {}
    network, beta, beta1, epsilon, loss = found.groups()
    return {
        "classifier.name": NETWORKS[network],
        "method.name": "cat",
        "method.beta": _number(beta),
        "method.beta1": _number(beta1),
        "attack.epsilon": f"{epsilon}/255",
        "attack.loss": LOSSES[loss],
    }


def _number(digits: str) -> float:
    """ "005" is 0.05, "5" is 5."""
    return float(f"0.{digits[1:]}") if digits.startswith("0") and digits != "0" else float(digits)
