"""Which settings only say who looks on, and what a run is called: no number that is measured depends on them."""

WORDS = ("name", "tags", "notes")
# Who is told, who looks and when, and whether a run is gone on with.
ONLOOKERS = ("resume", "logger", "analysis", "trainer.analyze_every", "trainer.profile")


def is_onlooker(key: str) -> bool:
    """Whether a dotted key of a config is such a setting, or lies within one."""
    return any(key == each or key.startswith(f"{each}.") for each in ONLOOKERS)
