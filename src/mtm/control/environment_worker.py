"""A process that steps environments for an `EnvironmentPool`: it obeys until the pool closes."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

from mtm.control.environment_pool import Shard


def serve(connection: Connection, env_id: str, size: int) -> None:
    """Say None, or why there are no environments; then answer the pool's requests."""
    try:
        shard = Shard(env_id, size)
    except Exception as error:  # an environment may raise anything: the pool tells the user
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(None)
    while True:
        try:
            request = connection.recv()
        except (EOFError, ConnectionResetError):
            break
        shard.send(*request)
        connection.send(shard.receive())
    shard.close()


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as pool:
        serve(pool, sys.argv[2], int(sys.argv[3]))
