"""Clients of the HTTP API: ``Client`` for threads, ``AsyncClient`` for an event loop; the same calls and answers.

>>> from maxboard import Client
>>> client = Client("http://127.0.0.1:8080")
>>> run = {"run_id": "r-1", "player_id": "p-1", "score": 1200, "finished_at": "2026-10-29T18:04:05Z"}
>>> result = client.submit(run)
>>> result.boards[0].board, result.boards[0].rank
('alltime', 1)
>>> client.player("alltime", "p-1", after=result.position).score
1200
>>> client.close()
"""

from maxboard.client.asynchronous import AsyncClient
from maxboard.client.blocking import Client

__all__ = ["AsyncClient", "Client"]
