"""A process that steps environments for an `EnvironmentPool`: it obeys until the pool closes."""

from __future__ import annotations

import sys
from multiprocessing.connection import Client

from mtm.environment_pool import Shard


def serve(address: str, env_id: str, size: int, key: bytes) -> None:
    """Answer the pool that listens at `address`."""
    with Client(address, authkey=key) as connection:
        shard = Shard(env_id, size)
        while True:
            try:
                request = connection.recv()
            except (EOFError, ConnectionResetError):
                break
            shard.send(*request)
            connection.send(shard.receive())
        shard.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.stdin.buffer.read(16))
