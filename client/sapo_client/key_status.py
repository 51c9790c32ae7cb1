"""Whether a node key may still sign in a data directory; read by the node and by `sapo keys rotate`."""

from __future__ import annotations

from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.paths import DataDir
from sapo_verification.signing.database import SigningDatabase


def require_in_use(data: DataDir, identity: Identity) -> None:
    """Raise if the node key was replaced in this data directory.

    Raises:
        SapoError: it was (exit code 4).
    """
    if data.database.exists() and SigningDatabase(data.database).is_retired(identity.node_id):
        raise SapoError(
            f"the node key in {identity.path} was replaced and never signs again",
            hint="join with the identity that `sapo keys rotate` made",
            exit_code=ExitCode.KEYSTORE,
        )
