"""In which words a question is put to an endpoint: at first all that it may know, less once it has refused some."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

FORMS: Final = ("json_schema", "json_object", "text")  # of the answer, the strictest first
LIMITS: Final = ("max_completion_tokens", "max_tokens", "")  # the newer name, the older one, none
OPTIONS: Final = ("stream_options", "temperature")
NAMES: Final[Mapping[str, str]] = {"json_schema": "response_format"}  # what else a server may call a field
WORDS: Final = re.compile("|".join(("response_format", "json_schema", *LIMITS[:2], *OPTIONS)))


@dataclass(frozen=True)
class Terms:
    """`proven`: an answer came under these terms."""

    form: str = FORMS[0]
    limit: str = LIMITS[0]
    dropped: frozenset[str] = frozenset()
    proven: bool = False

    def body(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        schema: Mapping[str, Any] | None,
        temperature: float,
        tokens_out: int,
    ) -> dict[str, Any]:
        """The fields of a request; `schema` None: the answer is prose."""
        fields: dict[str, Any] = {"model": model, "messages": list(messages), "stream": True}
        fields |= {"stream_options": {"include_usage": True}, "temperature": temperature}
        if schema is not None and self.form == "json_schema":
            described = {"name": "candidate", "strict": True, "schema": schema}
            fields["response_format"] = {"type": "json_schema", "json_schema": described}
        elif schema is not None and self.form == "json_object":
            fields["response_format"] = {"type": "json_object"}
        if self.limit:
            fields[self.limit] = tokens_out
        return {name: value for name, value in fields.items() if name not in self.dropped}

    def after_refusal(self, said: str, status: int, sent: Mapping[str, Any]) -> "Terms | None":
        """The terms to try next after an HTTP status; None: it had another reason than the terms.

        The server names what it does not take, or else nothing has worked yet and all that is optional goes in turn.
        """
        named = [NAMES.get(word, word) for word in WORDS.findall(said)]
        refused = next((name for name in named if name in sent), None)
        if refused is None and not self.proven and status in (400, 422):
            refused = next((name for name in ("response_format", *OPTIONS, self.limit) if name in sent), None)
        takes_back = status in (400, 422) or status >= 500
        return self.without(refused) if refused and takes_back else None

    def without(self, name: str) -> "Terms":
        if name == "response_format":
            return replace(self, form=FORMS[FORMS.index(self.form) + 1])
        if name == self.limit:
            return replace(self, limit=LIMITS[LIMITS.index(self.limit) + 1])
        return replace(self, dropped=self.dropped | {name})
