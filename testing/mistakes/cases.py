"""The mistakes: what a user changes in the project of `distributed-input init`, and then runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

RUN = "distributed-input run input.yaml -- python train.py"
VALIDATE = "distributed-input validate input.yaml"


@dataclass(frozen=True)
class Mistake:
    """One mistake in a project that `distributed-input init photos` wrote."""

    group: str
    what: str
    """What the user has done."""
    command: str
    remedy: str
    """Text that the output must contain: what to change."""
    edits: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By file: a text in it, and what replaces it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Content of further files, by name."""

    @property
    def is_quick(self) -> bool:
        """Whether the command starts no input, and waits for none."""
        return self.command.startswith("distributed-input") and self.command != RUN


def _spec(before: str, after: str) -> dict[str, tuple[str, str]]:
    return {"input.yaml": (before, after)}


def _code(before: str, after: str) -> dict[str, tuple[str, str]]:
    return {"dataset.py": (before, after)}


def _train(after: str) -> dict[str, str]:
    return {"train.py": f"import distributed_input\n\n{after}"}


_COMMANDS = (
    Mistake(
        "Commands",
        "The `--` before the program is missing.",
        "distributed-input run input.yaml python train.py",
        "--",
    ),
    Mistake(
        "Commands",
        "The file has another name.",
        "distributed-input run inputs.yaml -- python train.py",
        "inputs.yaml",
    ),
    Mistake(
        "Commands",
        "The program does not exist.",
        "distributed-input run input.yaml -- pyton train.py",
        "pyton",
    ),
    Mistake("Commands", "A command is misspelled.", "distributed-input statsu", "status"),
    Mistake(
        "Commands",
        "A flag is misspelled.",
        "distributed-input run --worker 2 input.yaml -- python train.py",
        "--workers",
    ),
    Mistake(
        "Commands",
        "No worker at all.",
        "distributed-input run --workers 0 input.yaml -- python train.py",
        "--workers",
    ),
    Mistake("Commands", "Nothing runs.", "distributed-input explain", "distributed-input run"),
    Mistake("Commands", "The project exists.", "distributed-input init .", "another folder"),
    Mistake("Commands", "A wrong output format.", "distributed-input status -o yaml", "json"),
)

_YAML = (
    Mistake(
        "The resource",
        "A field is misspelled.",
        VALIDATE,
        "workers",
        _spec("workers: {", "worker: {"),
    ),
    Mistake(
        "The resource", "A word in place of a number.", VALIDATE, "replicas",
        _spec("replicas: 2", "replicas: two"),
    ),
    Mistake(
        "The resource", "The entry point is a file.", VALIDATE, "module:function",
        _spec('"dataset:dataset_fn"', '"dataset.py"'),
    ),
    Mistake(
        "The resource", "A tab indents a line.", VALIDATE, "spaces",
        _spec("      source:", "\tsource:"),
    ),
    Mistake(
        "The resource", "Another API version.", VALIDATE, "apiVersion",
        _spec("dev/v1beta1", "dev/v1"),
    ),
    Mistake(
        "The resource", "The folder does not exist.", VALIDATE, "source.path",
        _spec("path: .", "path: ./src"),
    ),
    Mistake(
        "The resource", "More trainers than partitions.",
        "distributed-input validate --trainers 3 input.yaml", "partitions",
        _spec("workers: {", "partitions: 2\n  workers: {"),
    ),
    Mistake(
        "The resource", "A minimum above the maximum.", VALIDATE, "maxReplicas",
        _spec("{replicas: 2}", "{autoscaling: {minReplicas: 4, maxReplicas: 2}}"),
    ),
    Mistake(
        "The resource", "A quantity with the wrong unit.", VALIDATE, "Mi",
        _spec("workers: {", "sidecar: {buffer: 256MB}\n  workers: {"),
    ),
    Mistake(
        "The resource", "The name has capital letters.", VALIDATE, "metadata.name",
        _spec("{name: photos}", "{name: Photos}"),
    ),
    Mistake(
        "The resource", "An enum value of another field.", VALIDATE, "Strict",
        _spec("workers: {", "determinism: random\n  workers: {"),
    ),
    Mistake(
        "The resource", "A batch that the trainers cannot share.",
        "distributed-input validate --trainers 3 input.yaml", "globalBatchSize",
        _spec("workers: {", "partitions: 6\n  batching: {globalBatchSize: 64}\n  workers: {"),
    ),
)  # fmt: skip

_CODE = (
    Mistake(
        "Code", "The function has another name.", VALIDATE, "dataset_fn",
        _code("def dataset_fn(", "def make_dataset("),
    ),
    Mistake(
        "Code", "A package is missing.", VALIDATE, "opencv",
        _code("import tensorflow as tf", "import opencv\nimport tensorflow as tf"),
    ),
    Mistake(
        "Code", "The function returns nothing.", RUN, "tf.data.Dataset",
        _code("    return rows.batch(", "    rows.batch("),
    ),
    Mistake(
        "Code", "A row raises an error.", RUN, "row 7",
        _code(
            "    rows = numbers.shuffle",
            "    def check(number):\n"
            "        if number == 7:\n"
            '            raise ValueError("row 7 is damaged")\n'
            "        return number\n\n"
            "    numbers = numbers.map(lambda n: tf.ensure_shape(tf.numpy_function(check, [n], "
            "tf.int64), []))\n"
            "    rows = numbers.shuffle",
        ),
    ),
    Mistake(
        "Code", "Splits have different types.", RUN, "split",
        _code(
            "    return rows.batch(",
            "    if context.input_pipeline_id:\n"
            "        rows = rows.map(lambda x, y: (tf.cast(x, tf.float64), y))\n"
            "    return rows.batch(",
        ),
    ),
    Mistake(
        "Code", "`connect` names another input.", RUN, "photos",
        {"train.py": ('connect("photos")', 'connect("photo")')},
    ),
    Mistake(
        "Code", "The program runs without `distributed-input run`.", "python train.py",
        "distributed-input run",
    ),
    Mistake(
        "Code", "The program reads after `close`.", RUN, "connect",
        {},
        _train(
            'train = distributed_input.connect("photos")\n'
            "rows = iter(train.numpy())\n"
            "next(rows)\n"
            "train.close()\n"
            "next(rows)\n"
        ),
    ),
    Mistake(
        "Code", "`distribute` gets a function, and the resource names one too.", RUN,
        "omit the argument",
        {},
        _train(
            "import tensorflow as tf\n\n"
            'train = distributed_input.connect("photos")\n'
            "train.distribute(tf.distribute.get_strategy(), lambda ctx: "
            "tf.data.Dataset.range(10).batch(2))\n"
        ),
    ),
)  # fmt: skip

_CREDENTIALS = (
    Mistake(
        "Credentials and network",
        "The token file does not exist.",
        "distributed-input status --dispatcher 127.0.0.1:7070 --token-file token",
        "token",
    ),
    Mistake(
        "Credentials and network",
        "No dispatcher is at this address.",
        "distributed-input status --timeout 2 --dispatcher 127.0.0.1:9 --token-file token",
        "127.0.0.1:9",
        files={"token": "abc"},
    ),
    Mistake(
        "Credentials and network",
        "kubectl is not installed.",
        "distributed-input status photos -n team",
        "install it",
    ),
    Mistake(
        "Credentials and network",
        "The storage does not answer.",
        RUN,
        'dataset.py", line',
        _code(
            "    numbers = tf.data.Dataset.range(ROWS)",
            "    import urllib.request\n\n"
            '    urllib.request.urlopen("http://127.0.0.1:9/index", timeout=2)\n'
            "    numbers = tf.data.Dataset.range(ROWS)",
        ),
    ),
)

_VERSIONS = (
    Mistake(
        "Installation and Kubernetes",
        "TensorFlow is not installed.",
        RUN,
        "pip install",
        files={"tensorflow.py": 'raise ModuleNotFoundError("", name="tensorflow")\n'},
    ),
    Mistake(
        "Installation and Kubernetes",
        "The Job has no label.",
        "distributed-input inject -f job.yaml -f input.yaml",
        "distributed-input.dev/inject",
        files={"job.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\n"},
    ),
)

MISTAKES = (*_COMMANDS, *_YAML, *_CODE, *_CREDENTIALS, *_VERSIONS)
