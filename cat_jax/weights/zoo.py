"""RobustBench's CIFAR-10 entries: the facts that their files do not state, by the entry's name.

RobustBench stores an entry as `cifar10/Linf/NAME.pt`, beside L2 and corruptions. Its code, not the
file, decides how the network normalises images and where shortcuts start (`robustbench` 1.1.1,
model_zoo/cifar10.py).
"""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

FOLDERS = ("Linf", "L2", "corruptions")
NUM_CLASSES = 10


class Group(NamedTuple):
    """Entries with one network and one normalisation.

    Attributes:
      network: its short description, such as "WideResNet-28-10".
      arguments: arguments of the network that names and shapes do not show; mean and std among
        them, unless each file states its own.
      names: names of the entries.
    """

    network: str
    arguments: Mapping[str, Any]
    names: tuple[str, ...]


def _group(network: str, arguments: Mapping[str, Any], names: str) -> Group:
    return Group(network, arguments, tuple(names.split()))


def _constants(mean: tuple[float, ...], std: tuple[float, ...]) -> dict[str, Any]:
    return {"mean": mean, "std": std}


_PLAIN = _constants((), ())
_HALF = _constants((0.5,) * 3, (0.5,) * 3)
_CIFAR = _constants((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))
_EXACT = _constants(
    (0.4913997551666284, 0.48215855929893703, 0.4465309133731618),
    (0.24703225141799082, 0.24348516474564, 0.26158783926049628),
)
_OLD = _constants((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_SHORT = _constants((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
_SILU = _CIFAR | {"activation": "silu"}

GROUPS = (
    _group(
        "WideResNet-28-10",
        _PLAIN,
        "Carmon2019Unlabeled Sehwag2020Hydra Wang2020Improving Wu2020Adversarial_extra "
        "Zhang2020Geometry Sridhar2021Robust Standard",
    ),
    _group(
        "WideResNet-34-10",
        _PLAIN,
        "Zhang2019Theoretically Huang2020Self Zhang2019You Zhang2020Attacks Wu2020Adversarial "
        "Sehwag2021Proxy Sitawarin2020Improving Cui2020Learnable_34_10 Addepalli2021Towards_WRN34 "
        "Chen2021LTD_WRN34_10 Jia2022LAS-AT_34_10 Addepalli2022Efficient_WRN_34_10 "
        "Cui2023Decoupled_WRN-34-10 Chen2024Data_WRN_34_10",
    ),
    _group("WideResNet-34-15", _PLAIN, "Sridhar2021Robust_34_15"),
    _group(
        "WideResNet-34-20",
        _PLAIN,
        "Cui2020Learnable_34_20 Chen2021LTD_WRN34_20 Chen2024Data_WRN_34_20",
    ),
    _group("WideResNet-70-16", _PLAIN, "Jia2022LAS-AT_70_16"),
    _group("WideResNet-28-10", _HALF, "Hendrycks2019Using"),
    _group("WideResNet-28-10", _SHORT, "Rony2019Decoupling"),
    _group("WideResNet-34-10", _CIFAR, "Chen2020Efficient"),
    _group("WideResNet-34-20", _CIFAR, "Rice2020Overfitting"),
    _group("WideResNet-34-20", _CIFAR | {"head": "cosine"}, "Pang2020Boosting"),
    _group(
        "WideResNet-34-10",
        _EXACT,
        "Augustin2020Adversarial_34_10 Augustin2020Adversarial_34_10_extra",
    ),
    _group("WideResNet-40-2", _HALF, "Hendrycks2020AugMix_WRN"),
    _group(
        "ResNet18",
        _PLAIN,
        "Sehwag2021Proxy_R18 Addepalli2021Towards_RN18 Addepalli2022Efficient_RN18",
    ),
    _group("ResNet18", {}, "Modas2021PRIMEResNet18"),
    _group("ResNet50", _OLD, "Engstrom2019Robustness"),
    _group("ResNet50", _EXACT, "Augustin2020Adversarial"),
    _group("PreActResNet18", _PLAIN | {"shortcut": "input"}, "Andriushchenko2020Understanding"),
    _group("PreActResNet18", _CIFAR | {"shortcut": "input"}, "Wong2020Fast"),
    _group(
        "PreActResNet18",
        _CIFAR | {"shortcut": "activated"},
        "Rice2020Overfitting Kireev2021Effectiveness_Gauss50percent "
        "Kireev2021Effectiveness_AugMixNoJSD Kireev2021Effectiveness_RLAT "
        "Kireev2021Effectiveness_RLATAugMixNoJSD Kireev2021Effectiveness_RLATAugMix",
    ),
    _group(
        "DMPreActResNet18",
        _SILU,
        "Rebuffi2021Fixing_R18_ddpm Rebuffi2021Fixing_R18_cutmix_ddpm Rade2021Helper_R18_extra "
        "Rade2021Helper_R18_ddpm Gowal2021Improving_R18_ddpm_100m",
    ),
    _group(
        "DMWideResNet-28-10",
        _SILU,
        "Gowal2020Uncovering_28_10_extra Rebuffi2021Fixing_28_10_cutmix_ddpm Rade2021Helper_ddpm "
        "Gowal2021Improving_28_10_ddpm_100m Pang2022Robustness_WRN28_10 Wang2023Better_WRN-28-10 "
        "Xu2023Exploring_WRN-28-10 Cui2023Decoupled_WRN-28-10",
    ),
    _group("DMWideResNet-34-10", _SILU, "Rade2021Helper_extra"),
    _group("DMWideResNet-34-20", _SILU, "Gowal2020Uncovering_34_20"),
    _group(
        "DMWideResNet-70-16",
        _SILU,
        "Gowal2020Uncovering Gowal2020Uncovering_extra Gowal2020Uncovering_70_16 "
        "Gowal2020Uncovering_70_16_extra Rebuffi2021Fixing_70_16_cutmix_ddpm "
        "Rebuffi2021Fixing_70_16_cutmix_extra Rebuffi2021Fixing_70_16_cutmix_extra_Linf "
        "Rebuffi2021Fixing_70_16_cutmix_extra_L2 Gowal2021Improving_70_16_ddpm_100m "
        "Pang2022Robustness_WRN70_16 Wang2023Better_WRN-70-16",
    ),
    _group("DMWideResNet-82-8", _SILU, "Bartoldson2024Adversarial_WRN-82-8"),
    _group("DMWideResNet-94-16", _SILU, "Bartoldson2024Adversarial_WRN-94-16"),
    _group("DMWideResNet-106-16", _SILU, "Rebuffi2021Fixing_106_16_cutmix_ddpm"),
)


def arguments(path: pathlib.Path, network: str) -> dict[str, Any]:
    """Arguments that an entry's file does not state; {} for files that are no entries.

    Args:
      path: path of the file, with the folders in which RobustBench stores it.
      network: short description of the network that the names and shapes show. Linf and L2 have
        entries of one name with different networks.
    """
    if path.parent.name not in FOLDERS or path.parent.parent.name != "cifar10":
        return {}
    groups = [group for group in GROUPS if path.stem in group.names and group.network == network]
    return dict(groups[0].arguments) if groups else {}
