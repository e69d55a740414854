"""The page of gates and states."""

from collections.abc import Mapping, Sequence

import numpy as np

from seqlab.analysis.gates_figure import choose_units, reach, tell_reading, tell_units
from seqlab.analysis.pages.page import tell_shown, write_data_page
from seqlab.analysis.tokens import tell_cut

NOTE = (
    "Gates, candidates and states of each recurrent layer. Blue: above 0; orange: below; the deeper, the farther; near "
    "0 it is blank. Point at a cell or a token, tap it, or use the arrow keys."
)


def write_gates(
    values: Mapping[str, Mapping[str, np.ndarray]],
    gates: Mapping[str, Sequence[str]],
    tokens: Mapping[str, Sequence[str]],
    n_tokens: int,
    n_units: int,
    of: str,
) -> str:
    """Write values_TF by layer and name, and tokens_T by layer, as a page: the layer and the gate are chosen on it."""
    layers = []
    for layer, named in values.items():
        by, units = choose_units(named, gates[layer], n_units)
        maps = [
            {"name": name, "limit": reach(a_TF[:n_tokens]), "values": np.round(a_TF[:n_tokens, units].T, 4).tolist()}
            for name, a_TF in named.items()
        ]
        reading = f"Beside each step stands the {tell_reading(layer)}."
        shown = tell_shown(tell_cut(n_tokens, (len(tokens[layer]), "steps")))
        layers.append(
            {
                "name": layer,
                "tokens": [*tokens[layer][:n_tokens]],
                "reading": f"{reading} {shown}".rstrip(),
                "units": units.tolist(),
                "which": f"Shown: {tell_units(by, len(units), named[by].shape[1])}.",
                "maps": maps,
            }
        )
    return write_data_page("Gates and states", f"{NOTE} {of.capitalize()}.", "gates", {"layers": layers})
