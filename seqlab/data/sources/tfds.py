"""TensorFlow Datasets, without TensorFlow: any data set that is prepared, by its name."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from seqlab.data.records import Record, Records, View, name_fields
from seqlab.data.splits import FRACTIONS, require_fractions, split_records
from seqlab.types import UserError, require


@dataclasses.dataclass(frozen=True)
class Tfds:
    """The records of a TFDS data set, decoded when they are asked for.

    `name` is TFDS's: `imdb_reviews`, or `NAME/CONFIG:VERSION`. `train`, `validation` and `test` are its split strings
    (`train[:90%]`); one that is null is cut at random out of train, as `fractions` say. `fields` says which feature a
    field is, where it has another name; inside of others with a dot, `translation.de`. Texts become strings, classes
    the names that they have.

    Raises   UserError for a data set that is not prepared as array_record, with the command that prepares it; it is
             not asked for over the network. And for a split or a feature that there is not, and one that TensorFlow
             alone can read.
    """

    name: str
    train: str = "train"
    validation: str | None = None
    test: str | None = "test"
    fields: Mapping[str, str] | None = None
    data_dir: str | None = None
    fractions: Sequence[float] = FRACTIONS
    owner: ClassVar[str] = "tfds"

    def __post_init__(self) -> None:
        require(isinstance(self.name, str) and bool(self.name), f"{self.owner} has name {self.name!r}; expected one.")
        require_fractions(self.fractions)

    def records(self) -> dict[str, Records]:
        """The records of train, validation and test."""
        builder = self._prepared()
        features = _flatten(builder.info.features)
        fields = name_fields(f"The TFDS data set {self.name}", list(features), self.fields)
        read = {field: (feature, _reader(features[feature])) for field, feature in fields.items()}
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        given = {
            name: Decoded(self._open(builder, name, split), read) for name, split in splits.items() if split is not None
        }
        return split_records(f"{self.owner} {self.name}", given, self.fractions)

    def _prepared(self) -> Any:
        # Here, as it takes a second that other sources need not wait for.
        import tensorflow_datasets as tfds

        folder = self.data_dir or tfds.core.constants.DATA_DIR
        place = "" if self.data_dir is None else f", data_dir={self.data_dir!r}"
        code = f"tfds.builder({self.name!r}{place}, file_format='array_record').download_and_prepare()"
        command = f'python -c "import tensorflow_datasets as tfds; {code}"'
        try:
            # Reads the disk alone; tfds.builder may ask the network for a name that it does not know.
            builder = tfds.core.read_only_builder.builder_from_files(self.name, data_dir=folder)
        except (tfds.core.DatasetNotFoundError, ValueError) as error:
            known = tfds.list_builders(with_community_datasets=False)
            name = self.name.partition("/")[0].partition(":")[0]
            near = difflib.get_close_matches(name, known, n=1)
            require(
                name in known,
                f"There is no TFDS data set {self.name}, neither prepared in {folder} nor in the catalogue"
                f"{f' (nearest: {near[0]})' if near else ''}.",
            )
            raise UserError(
                f"The TFDS data set {self.name} is not prepared in {folder}: where there is a network (and TensorFlow, "
                f"for pictures and sound), run {command}"
            ) from error
        form = builder.info.file_format.value
        require(
            form == "array_record",
            f"The TFDS data set {self.name} is prepared as {form}, which TensorFlow alone reads: remove "
            f"{builder.data_dir} and run {command}",
        )
        return builder

    def _open(self, builder: Any, name: str, split: str) -> Sequence[Mapping[str, Any]]:
        try:
            source = builder.as_data_source(split=split)
            if len(source):
                source[0]
        except ImportError as error:
            raise UserError(
                f"The TFDS data set {self.name} has features that TensorFlow alone reads, and it is not installed."
            ) from error
        except ValueError as error:
            there = ", ".join(builder.info.splits)
            raise UserError(
                f"tfds {self.name} has {name} {split!r}; expected one of {there}, or a part of it."
            ) from error
        return source


class Decoded(View):
    """Records of TFDS with fields for features, each made what a task reads."""

    def __init__(self, source: Sequence[Mapping[str, Any]], read: Mapping[str, tuple[str, Callable]]) -> None:
        self.source, self.reader = source, read

    def __len__(self) -> int:
        return len(self.source)

    def read(self, i: int) -> Record:
        node = self.source[i]
        return {field: read(_inside(node, feature)) for field, (feature, read) in self.reader.items()}


def _inside(node: Any, path: str) -> Any:
    for name in path.split("."):
        node = node[name]
    return node


def _flatten(features: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The features by their names, those inside of others with a dot."""
    import tensorflow_datasets as tfds

    flat = {}
    for name, feature in features.items():
        # Translation is one of them too; a Sequence of several features is not, and stays as it is.
        if isinstance(feature, tfds.features.FeaturesDict):
            flat.update(_flatten(feature, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = feature
    return flat


def _reader(feature: Any) -> Callable[[Any], Any]:
    """What makes of a feature's value that of a field."""
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.ClassLabel):
        # −1 is how TFDS says that a record has no label.
        return lambda value: feature.int2str(int(value)) if value >= 0 else None
    if isinstance(feature, tfds.features.Text):
        return lambda value: value if isinstance(value, str) else bytes(value).decode("utf-8")
    if isinstance(feature, tfds.features.Sequence):
        inner = _reader(feature.feature)
        if isinstance(feature.feature, tfds.features.ClassLabel | tfds.features.Text):
            return lambda values: [inner(value) for value in values]
        if isinstance(feature.feature, tfds.features.Tensor):
            return np.asarray
    return lambda value: value
