"""Every table and figure of the paper that runs can fill, by name."""

from cat_jax.paper import accuracy_tables, figure_tables

_ALL = [
    accuracy_tables.mnist(),
    accuracy_tables.white_box(
        "cifar10_preact_resnet18", "Table 2: CIFAR-10, PreAct ResNet-18", "preact_cifar10"
    ),
    accuracy_tables.white_box(
        "cifar10_wide_resnet", "Table 3: CIFAR-10, WideResNet-34-10", "wrn_cifar10"
    ),
    accuracy_tables.black_box(),
    accuracy_tables.cifar100(),
    figure_tables.beta(),
    figure_tables.beta1(),
    figure_tables.larger_epsilon(),
    *figure_tables.ablations(),
    figure_tables.masks(),
    accuracy_tables.tradeoff(),
    accuracy_tables.adaptation(),
]
TABLES = {table.name: table for table in _ALL}
