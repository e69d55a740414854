"""The scale of numbers: their means and deviations in the training split."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from seqlab.files import write_whole
from seqlab.types import UserError, require


@dataclasses.dataclass(frozen=True)
class Scale:
    """For each field the mean and the deviation of its components.

    x ↦ (x − mean) / deviation;   a component that never changes has the deviation 1
    """

    means: dict[str, list[float]]
    deviations: dict[str, list[float]]

    @classmethod
    def fit(cls, fields: dict[str, Iterable[np.ndarray]]) -> "Scale":
        """The scale of rows (T, D) of each field; a step with a NaN in it is not counted.

        Raises   UserError for a field without a step, and for rows that differ in D.
        """
        means, deviations = {}, {}
        for field, rows in fields.items():
            rows = list(rows)
            widths = sorted({row.shape[-1] for row in rows})
            require(len(widths) == 1, f"The rows of train have {field} of {widths} components; expected one number.")
            all_ND = np.concatenate(rows).astype(np.float64)
            known_ND = all_ND[~np.isnan(all_ND).any(-1)]
            require(len(known_ND) > 0, f"No step of train has {field}.")
            deviation_D = known_ND.std(0)
            means[field] = known_ND.mean(0).tolist()
            deviations[field] = np.where(deviation_D > 0, deviation_D, 1.0).tolist()
        return cls(means, deviations)

    def apply(self, field: str, row_TD: np.ndarray) -> np.ndarray:
        """A row in these units."""
        return ((row_TD - self.means[field]) / self.deviations[field]).astype(np.float32)

    def save(self, path: Path) -> None:
        """Write the scale as JSON, whole or not at all."""
        write_whole(path, json.dumps(dataclasses.asdict(self)) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Scale":
        """Read a scale that was saved.

        Raises   UserError for a file that is missing or damaged.
        """
        require(path.is_file(), f"The scale {path} does not exist.")
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise UserError(f"The scale {path} cannot be read: it is damaged.") from error
