"""The paths of the API and their parameters. ``docs/http.md`` describes them for backends."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi import Path as InPath
from starlette.responses import Response

from maxboard import wire
from maxboard.board.read_scripts import View
from maxboard.serve import openapi
from maxboard.serve.answers import (
    BoardsAnswer,
    CountAnswer,
    PlayerAnswer,
    RanksAnswer,
    Stretch,
)
from maxboard.serve.errors import HttpError
from maxboard.serve.handlers import Api, Ordering, answer, freshness, player_id, viewer_id

MOST_IDS_TEXT = 8_000  # characters: percent-encoded they still fit a request line
MOST_ENTRIES, MOST_AROUND, MOST_IDS, MOST_AGE_MS = 1_000, 500, 200, 86_400_000
BoardName = Annotated[str, InPath(max_length=200, description="A board reference: `weekly`, or `weekly:2026-W44`.")]
PlayerId = Annotated[str, InPath(max_length=64, description=f"A player id: {wire.ID_WORDS}.")]
Limit = Annotated[int, Query(ge=1, le=MOST_ENTRIES, description="Entries at most.")]
RanksQuery = Annotated[Ordering, Query(description="`competition`: equal scores share the rank of the first of them.")]
Viewer = Annotated[str | None, Query(max_length=64, description="Who looks: a shadow-banned player sees themself.")]
AfterQuery = Annotated[str | None, Query(max_length=30_000, description="A submit's `position`: its run must be in.")]
AgeQuery = Annotated[int | None, Query(ge=0, le=MOST_AGE_MS, description="Greatest age of the answer, ms.")]


def add(app: FastAPI, api: Api) -> None:
    """Add them all."""

    async def post_runs(request: Request) -> Response:
        return await api.submit(request)

    app.add_api_route("/v1/runs", post_runs, methods=["POST"], **openapi.SUBMIT)

    @app.get("/v1/boards", **openapi.reading(BoardsAnswer, "boards", "Every board", board=False))
    async def get_boards() -> Response:
        return answer(await api.boards())

    @app.get("/v1/boards/{board}/top", **openapi.reading(Stretch, "top", "The best of a board, page by page"))
    async def get_top(
        board: BoardName,
        limit: Limit = 10,
        first: Annotated[int, Query(ge=1, le=2**31, description="Rank to begin at.")] = 1,
        cursor: Annotated[str | None, Query(max_length=500, description="`next` or `previous` of a stretch.")] = None,
        ranks: RanksQuery = "ordinal",
        viewer: Viewer = None,
        after: AfterQuery = None,
        max_age_ms: AgeQuery = None,
    ) -> Response:
        view = View("rank", first, limit, viewer=viewer_id(viewer))
        return answer(await api.stretch(board, view, ranks, api.wish(after, max_age_ms), cursor))

    @app.get("/v1/boards/{board}/around/{player}", **openapi.reading(Stretch, "around", "A player and the neighbours"))
    async def get_around(
        board: BoardName,
        player: PlayerId,
        above: Annotated[int, Query(ge=0, le=MOST_AROUND, description="Better ones at most.")] = 5,
        below: Annotated[int, Query(ge=0, le=MOST_AROUND, description="Worse ones at most.")] = 5,
        ranks: RanksQuery = "ordinal",
        viewer: Viewer = None,
        after: AfterQuery = None,
        max_age_ms: AgeQuery = None,
    ) -> Response:
        view = View("around", above, below, player_id(player), viewer=viewer_id(viewer))
        return answer(await api.stretch(board, view, ranks, api.wish(after, max_age_ms)))

    @app.get("/v1/boards/{board}/players/{player}", **openapi.reading(PlayerAnswer, "player", "A player's place"))
    async def get_player(
        board: BoardName,
        player: PlayerId,
        ranks: RanksQuery = "ordinal",
        viewer: Viewer = None,
        after: AfterQuery = None,
        max_age_ms: AgeQuery = None,
    ) -> Response:
        wish = api.wish(after, max_age_ms)
        found, (place,) = await api.players(board, [player_id(player)], viewer_id(viewer), ranks, wish)
        fields = (place.player_id, place.rank, place.score, place.achieved_at, place.percentile)
        return answer(PlayerAnswer(found.answer.ref.reference, *fields, **freshness(found)))

    @app.get("/v1/boards/{board}/ranks", **openapi.reading(RanksAnswer, "ranks", "The places of some players: friends"))
    async def get_ranks(
        board: BoardName,
        ids: Annotated[str, Query(max_length=MOST_IDS_TEXT, description="Player ids, with commas between.")] = "",
        one: Annotated[
            list[str] | None, Query(alias="id", description="A player id, repeated; it may hold commas.")
        ] = None,
        ranks: RanksQuery = "ordinal",
        viewer: Viewer = None,
        after: AfterQuery = None,
        max_age_ms: AgeQuery = None,
    ) -> Response:
        wanted = list(dict.fromkeys((*(ids.split(",") if ids else ()), *(one or ()))))
        if not wanted:
            raise HttpError(400, "bad-request", "ids: at least one player id is needed")
        if len(wanted) > MOST_IDS:
            raise HttpError(400, "too-many-ids", f"{len(wanted)} ids; {MOST_IDS} are the most")
        wish = api.wish(after, max_age_ms)
        found, listed = await api.players(
            board, [player_id(player) for player in wanted], viewer_id(viewer), ranks, wish
        )
        there = sorted((place for place in listed if place.rank), key=lambda place: place.rank or 0)
        absent = [place.player_id for place in listed if not place.rank]
        return answer(RanksAnswer(found.answer.ref.reference, there, absent, **freshness(found)))

    @app.get("/v1/boards/{board}/count", **openapi.reading(CountAnswer, "count", "How many players a board has"))
    async def get_count(
        board: BoardName, viewer: Viewer = None, after: AfterQuery = None, max_age_ms: AgeQuery = None
    ) -> Response:
        view = View("rank", 1, 0, viewer=viewer_id(viewer))
        found = await api.runtime.reads.view(api.ref(board), view, api.wish(after, max_age_ms))
        return answer(CountAnswer(found.answer.ref.reference, **freshness(found)))

    @app.get("/v1/boards/{board}/players/{player}/changes", **openapi.CHANGES)
    async def get_changes(
        board: BoardName,
        player: PlayerId,
        limit: Annotated[int, Query(ge=1, le=100, description="Changes at most.")] = 20,
    ) -> Response:
        return answer(await api.streams.past(api.ref(board), player_id(player), limit))

    @app.get("/v1/stream", **openapi.STREAM)
    async def get_stream(
        board: Annotated[str, Query(max_length=200, description="A board reference.")],
        limit: Annotated[int, Query(ge=1, le=100, description="Entries of the top.")] = 10,
    ) -> Response:
        return await api.streams.watch(api.ref(board), limit)

    async def post_ban(request: Request) -> Response:
        return await api.moderated(request, api.moderation.ban)

    async def post_unban(request: Request) -> Response:
        return await api.moderated(request, api.moderation.unban)

    app.add_api_route("/v1/moderation/bans", post_ban, methods=["POST"], **openapi.BAN)
    app.add_api_route("/v1/moderation/unbans", post_unban, methods=["POST"], **openapi.UNBAN)

    @app.get("/v1/moderation/bans", **openapi.BANS)
    async def get_bans() -> Response:
        return answer(await api.moderation.bans())

    @app.get("/healthz", **openapi.HEALTH)
    async def get_health(request: Request) -> Response:
        return await api.health(told=request.app.state.keyring is None or request.scope.get("maxboard.key") is not None)
