"""Where records come from: each source gives those of train, validation and test, for any task that reads its fields.

YAML names them (conf/task/source). A source is a frozen dataclass with `records()`, which reads what there is, once.
"""
