"""Errors of the database files: neither a peer's fault nor a mistake in this node's messages."""


class NewerDatabaseError(Exception):
    """A database file that a newer version of this package has changed; it is left as it is.

    Attributes:
        path: the file.
        component: the store whose tables this version does not know.
    """

    def __init__(self, path: str, component: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} was written by a newer version of sapo: its {component} tables have version {found},"
            f" and this version of sapo reads up to {known}"
        )
        self.path = path
        self.component = component


class UnusableDatabaseError(Exception):
    """A database file that SQLite cannot read; it is left as it is.

    Attributes:
        path: the file.
        damaged: whether its content is at fault, not its permissions or the disk.
    """

    def __init__(self, path: str, why: str, *, damaged: bool) -> None:
        super().__init__(f"{path} is damaged: {why}" if damaged else f"cannot open {path}: {why}")
        self.path = path
        self.damaged = damaged
