"""Questions of many clients, answered in as few forward passes as can be.

One thread computes. Who asks while it rests is answered at once; those who ask while it computes
are answered together, next. So nobody waits for a batch to fill.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mtm.control.masked_policy import MaskedPolicy, act_together
from mtm.core.errors import DataError
from mtm.deploy.serve_limits import Limits, RequestError
from mtm.deploy.serve_metrics import Metrics
from mtm.inference.engine import LARGEST_BATCH, Arrays
from mtm.inference.inputs import Given
from mtm.inference.overflow import check_answers
from mtm.inference.windowing import fill
from mtm.runs.run import Run


@dataclass
class _Act:
    policy: MaskedPolicy
    states: NDArray[Any]
    answer: asyncio.Future[Any] = field(compare=False)

    @property
    def rows(self) -> int:
        return len(self.states)

    @property
    def alike(self) -> object:
        """What must be equal for questions to share a forward pass."""
        return "act"


@dataclass
class _Predict:
    given: Given
    want: tuple[str, ...]
    answer: asyncio.Future[Any] = field(compare=False)

    @property
    def rows(self) -> int:
        return self.given.visible[..., 0].size

    @property
    def alike(self) -> object:
        return self.want, tuple(sorted(self.given.values)), self.given.visible.shape[1]


_Question: TypeAlias = _Act | _Predict


class Batcher:
    """Computes for one run.

    Args:
        run: A trained run.
        limits: How many may wait, and how long.
        metrics: Told of each batch.
    """

    def __init__(self, run: Run, limits: Limits, metrics: Metrics) -> None:
        self._run, self._limits, self._metrics = run, limits, metrics
        self._thread = ThreadPoolExecutor(1, "mtm-serve")
        self._waiting: list[_Question] = []
        self._working: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Questions that nobody computes yet."""
        return len(self._waiting)

    def act(self, policy: MaskedPolicy, states: NDArray[Any]) -> asyncio.Future[Any]:
        """A policy's actions, to be awaited with `within_time`; nobody else may ask it meanwhile.

        Raises:
            RequestError: Too many wait.
        """
        return self._ask(_Act(policy, states, asyncio.get_running_loop().create_future()))

    async def predict(self, given: Given, want: Sequence[str]) -> Arrays:
        """What is not given, as `mtm.predict`.

        Raises:
            RequestError: Too many wait, or it took too long.
        """
        answer = asyncio.get_running_loop().create_future()
        filled: Arrays = await self.within_time(self._ask(_Predict(given, tuple(want), answer)))
        return filled if given.batched else {name: values[0] for name, values in filled.items()}

    async def within_time(self, answer: asyncio.Future[Any]) -> Any:
        """Wait for an answer.

        Raises:
            RequestError: It took too long.
        """
        done, _ = await asyncio.wait([answer], timeout=self._limits.seconds)
        if not done:
            answer.cancel()  # not computed, if nobody has begun with it
            raise RequestError(
                503, f"this took longer than {self._limits.seconds:g} s; ask for less, or later."
            )
        return answer.result()

    async def close(self) -> None:
        """Finish what was asked, and end the thread."""
        if self._working is not None:
            await self._working
        self._thread.shutdown()

    def _ask(self, question: _Question) -> asyncio.Future[Any]:
        if len(self._waiting) >= self._limits.waiting:
            raise RequestError(
                503, f"{len(self._waiting)} requests wait already, as many as may; try again soon."
            )
        self._waiting.append(question)
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())
        return question.answer

    async def _work(self) -> None:
        """Compute until nobody waits."""
        loop = asyncio.get_running_loop()
        try:
            while batch := self._next_batch():
                began = time.perf_counter()
                answers = await loop.run_in_executor(self._thread, self._answers, batch)
                self._metrics.computed(len(batch), time.perf_counter() - began)
                for question, answer in zip(batch, answers, strict=True):
                    if question.answer.cancelled():
                        continue
                    if isinstance(answer, Exception):
                        question.answer.set_exception(answer)
                    else:
                        question.answer.set_result(answer)
                await asyncio.sleep(0)  # who was answered may have the next question ready
        finally:
            self._working = None

    def _next_batch(self) -> list[_Question]:
        """The first question, and those behind it that go with it, as many as fit."""
        asked = [q for q in self._waiting if not q.answer.cancelled()]
        batch: list[_Question] = []
        rows = 0
        for question in asked:
            fits = not batch or rows + question.rows <= LARGEST_BATCH
            if fits and question.alike == asked[0].alike:
                batch.append(question)
                rows += question.rows
        taken = set(map(id, batch))
        self._waiting = [question for question in asked if id(question) not in taken]
        return batch

    def _answers(self, batch: Sequence[_Question]) -> list[Any]:
        """In the thread: an answer for each, or the error that is its own."""
        try:
            answers = self._together(batch)
            return [self._checked(*pair) for pair in zip(batch, answers, strict=True)]
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [self._answers([question])[0] for question in batch]

    def _checked(self, question: _Question, answer: Any) -> Any:
        """The answer; or an error, where JSON has no word for it."""
        try:
            if isinstance(question, _Act):
                policy = question.policy
                given, found = {policy.states.name: question.states}, {policy.actions.name: answer}
                check_answers(self._run, given, found)
            else:
                known = question.given
                check_answers(self._run, known.values, answer, known.visible)
        except DataError as error:
            return error
        return answer

    def _together(self, batch: Sequence[_Question]) -> list[Any]:
        acts = [question for question in batch if isinstance(question, _Act)]
        if acts:
            return act_together([a.policy for a in acts], [a.states for a in acts])
        asked = [question for question in batch if isinstance(question, _Predict)]
        names = asked[0].given.values
        joined = Given(
            {name: np.concatenate([q.given.values[name] for q in asked]) for name in names},
            np.concatenate([q.given.visible for q in asked]),
            batched=True,
        )
        filled = fill(self._run, joined, asked[0].want)
        ends = np.cumsum([len(q.given.visible) for q in asked])[:-1]
        parts = {name: np.split(values, ends) for name, values in filled.items()}
        return [{name: parts[name][i] for name in filled} for i in range(len(asked))]
