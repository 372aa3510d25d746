"""The CQL dialect: DuckDB's SQL, plus windows in brackets and stream operators.

The parser leaves marks on sqlglot's tree. A table or subquery with a window has the `WindowClause` in its alias' meta
under "window"; one that is read AS OF an instant has that under "as of", one that is joined WITHIN a range has that
under "within". A select list under a stream operator is one `StreamItems` node. A `WSTREAM(...)[...]` inside an
expression is a function call with the window in its meta. A SELECT that ends in SHED has the `ShedClause` in its meta.

Functions stay calls of the name that was written: what a function means is DuckDB's business, so sqlglot
must not translate any. Only functions with a syntax of their own keep their parsers.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokens import Token, TokenType

from windrow.cql.nesting import check_nesting, normalised, too_deep
from windrow.cql.own_words import OWN_WORDS, with_own_words
from windrow.cql.sampled_syntax import with_samples
from windrow.cql.shed_syntax import SHED, at_shed, parse_shed
from windrow.cql.source import Cursor, ScriptText
from windrow.cql.window_functions import at_window_function, parse_window_function
from windrow.cql.windows import FORMS, at_window, parse_window
from windrow.cql.within import WITHIN, at_within, parse_within
from windrow.errors import CQLSyntaxError
from windrow.plan.nodes import StreamOp

WSTREAM = "WSTREAM"
OPERATORS: dict[str, StreamOp | None] = {op.name: op for op in StreamOp if op is not StreamOp.RELATION}
OPERATORS[WSTREAM] = None  # rewritten into a window on a subquery
WINDOW = "window"  # meta key: the WindowClause
UNPACKED = "unpacked"  # meta key of a COLUMNS behind `*`
AS_OF = "as of"  # meta key: the instant that a query's kept answers are read at
TEXT = "text"  # meta key: the expression as written
_WORDS = {TokenType.VAR, TokenType.NUMBER, TokenType.STRING}
_SHIFTS = {TokenType.LT, TokenType.GT}  # two of one kind are another operator
_NO_OPERATORS = {
    *_SHIFTS, TokenType.COMMA, TokenType.R_PAREN, TokenType.ALIAS, TokenType.FROM, TokenType.AND, TokenType.OR,
    TokenType.EQ, TokenType.NEQ, TokenType.LTE, TokenType.GTE, TokenType.BETWEEN, TokenType.IN, TokenType.GROUP_BY,
    TokenType.HAVING,
}  # fmt: skip
"""What ends an operand of sums, products and the like."""
_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")


class StreamItems(exp.Expression):
    """A select list under a stream operator: `this` is the operator's name."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True, "distinct": False}


class CQL(DuckDB):
    """DuckDB with windows and stream operators."""

    INDEX_OFFSET = 0  # what stands in brackets stays as it was written

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """Paths are DuckDB's to read."""
        return path

    class Tokenizer(DuckDB.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()  # no keyword swallows the rest of a statement
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]

    class Parser(DuckDBParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {"ARRAY": exp.Array}  # list(a)[1] is an element
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            **{name: parser for name, parser in DuckDBParser.FUNCTION_PARSERS.items() if name in _SYNTAX},
            "SAFE_CAST": DuckDBParser.FUNCTION_PARSERS["TRY_CAST"],
            "FLOOR": lambda self: self._parse_rounding("floor"),
            "CEIL": lambda self: self._parse_rounding("ceil"),
        }

        def raise_error(self, message: str, token: Token | None = None) -> None:
            token = token or self._curr or None
            start = token.start if token else (self._prev.end + 1 if self._prev else len(self.sql))
            found = f'"{token.text}"' if token else "the end"
            error = ParseError(message, [{"description": message, "start": start, "highlight": found}])
            if self.error_level == ErrorLevel.IMMEDIATE:
                raise error
            self.errors.append(error)

        def _warn_unsupported(self) -> None:
            """A statement of another kind is refused by whoever asked for a SELECT, not told to a log."""

        def _cursor(self) -> Cursor:
            return Cursor(ScriptText(self.sql), self._tokens, self._index)

        def _at(self, word: str, clause: Callable[[Cursor], bool]) -> bool:
            """Whether a clause begins here, by its first word and by what follows."""
            return self._curr.text.upper() == word and clause(self._cursor())

        def _parse_cql_window(self) -> Any:
            cursor = self._cursor()
            clause = parse_window(cursor)
            self._advance(cursor.index - self._index)
            return clause

        def _parse_table_alias(self, alias_tokens: Any = None) -> Any:
            instant = self._parse_as_of()
            before = self._parse_cql_window() if self._curr.token_type == TokenType.L_BRACKET else None
            pivoted = self._curr.token_type in (TokenType.PIVOT, TokenType.UNPIVOT)
            named = not (self._at("SHED", at_shed) or self._at("WITHIN", at_within) or pivoted)
            alias = super()._parse_table_alias(alias_tokens) if named else None
            after = self._parse_cql_window() if self._curr.token_type == TokenType.L_BRACKET else None
            if before and after:
                raise CQLSyntaxError(
                    "two windows on one stream", hint="write one window", span=ScriptText(self.sql).span(after.offset)
                )
            if clause := before or after:
                alias = alias or exp.TableAlias()
                alias.meta[WINDOW] = clause
            if instant is not None:
                alias = alias or exp.TableAlias()
                alias.meta[AS_OF] = instant
            if self._at("WITHIN", at_within):
                cursor = self._cursor()
                alias = alias or exp.TableAlias()
                alias.meta[WITHIN] = parse_within(cursor)
                self._advance(cursor.index - self._index)
            return alias

        def _parse_bitwise(self) -> Any:
            """An operand of one word, or an expression: where no operator follows none need be looked for."""
            start, after = self._index, self._next.token_type
            if self._curr.token_type in _WORDS and after in _NO_OPERATORS:
                twice = after in _SHIFTS and self._tokens[start + 2 : start + 3]
                found = self._parse_type() if not twice or twice[0].token_type is not after else None
                if self._index == start + 1:
                    return found
                self._retreat(start)
            return super()._parse_bitwise()

        def _parse_rounding(self, name: str) -> Any:
            """FLOOR(a), or FLOOR(t TO HOUR): a time cut to a unit, which CEIL makes the next one of."""
            arguments = self._parse_csv(self._parse_assignment)
            if len(arguments) != 1 or not self._match_text_seq("TO"):
                return exp.Anonymous(this=name, expressions=arguments)
            unit = exp.Literal.string(str(self._curr.text).lower())
            self._advance()
            cut = exp.Anonymous(this="date_trunc", expressions=[unit, arguments[0]])
            if name == "floor":
                return cut
            one = exp.Anonymous(this=f"to_{unit.name}s", expressions=[exp.Literal.number(1)])
            following = exp.Add(this=cut, expression=one)
            whole = exp.If(this=exp.EQ(this=arguments[0].copy(), expression=cut.copy()), true=cut.copy())
            return exp.Case(ifs=[whole], default=following)

        def _parse_star_ops(self) -> Any:
            found = super()._parse_star_ops()
            if isinstance(found, exp.Anonymous):
                found.meta[UNPACKED] = True
            return found

        def _parse_as_of(self) -> Any:
            """`AS OF` and an instant."""
            if self._curr.token_type != TokenType.ALIAS or str(self._next.text).upper() != "OF":
                return None
            self._advance(2)
            return self._parse_unary()

        def _parse_table(self, *args: Any, **kwargs: Any) -> Any:
            cursor = self._cursor()
            if not at_window_function(cursor):
                return super()._parse_table(*args, **kwargs)
            call, clause = parse_window_function(cursor)
            self._advance(cursor.index - self._index)
            name = exp.Identifier(this=call.stream, quoted=call.quoted)
            name.meta["start"] = clause.offset
            table = exp.Table(this=name, alias=self._parse_table_alias(kwargs.get("alias_tokens")))
            table.meta[WINDOW] = clause
            for join in (self._parse_joins() or ()) if kwargs.get("joins") else ():
                table.append("joins", join)
            return table

        def _parse_statement(self) -> Any:
            if self._curr.token_type != TokenType.SELECT or self._next.token_type == TokenType.COLON:
                return super()._parse_statement()
            return self._parse_query_modifiers(self._parse_select())  # no need to try an expression first

        def _parse_query_modifiers(self, this: Any) -> Any:
            this = super()._parse_query_modifiers(this)
            if isinstance(this, exp.Select) and self._at("SHED", at_shed):
                this.meta[SHED] = parse_shed(self._cursor(), self._parse_from_cursor)
                self._advance(this.meta[SHED].end - self._index)
            return this

        def _parse_from_cursor(self, cursor: Cursor) -> Any:
            """An expression at a cursor, which moves behind it."""
            self._advance(cursor.index - self._index)
            node = self._parse_assignment()  # without an alias: SHED may follow
            cursor.index = self._index
            return node

        def _parse_bracket(self, this: Any = None) -> Any:
            if isinstance(this, exp.Table):
                return this  # a window: `_parse_table_alias` reads it
            if isinstance(this, exp.Anonymous) and this.name.upper() == WSTREAM and at_window(self._cursor()):
                this.meta[WINDOW] = self._parse_cql_window()
                return this
            return super()._parse_bracket(this)

        def _parse_projections(self) -> Any:
            return self._parse_stream_items() or super()._parse_projections()

        def _parse_stream_items(self) -> Any:
            start, first = self._index, self._curr
            name = self._parse_operator_name()
            if name is None:
                return None
            wrapped = self._match(TokenType.L_PAREN)
            if not wrapped and (name == WSTREAM or not self._starts_item()):
                self._retreat(start)
                return None
            distinct = self._match(TokenType.DISTINCT)
            items, _ = super()._parse_projections()
            if wrapped and not self._match(TokenType.R_PAREN):
                self.raise_error("Expecting )")
            node = StreamItems(this=name, expressions=items, distinct=distinct)
            node.update_positions(first)
            if name == WSTREAM:
                if self._curr.token_type != TokenType.L_BRACKET:
                    raise CQLSyntaxError(
                        "WSTREAM needs a window",
                        hint="write WSTREAM(*)[ROWS 10]",
                        span=ScriptText(self.sql).span(first.start),
                    )
                node.meta[WINDOW] = self._parse_cql_window()
            if (
                wrapped
                and self._curr
                and self._curr.token_type
                not in (TokenType.FROM, TokenType.R_PAREN, TokenType.SEMICOLON, TokenType.WHERE)
            ):
                raise CQLSyntaxError(
                    f"{name}(...) must be the whole select list",
                    hint=f"write SELECT {name}(a, b) FROM ...",
                    span=ScriptText(self.sql).span(self._curr.start),
                )
            return [node], None

        def _parse_operator_name(self) -> str | None:
            """Consume `RSTREAM`, `RSTREAM_RESTORE` or `RSTREAM-RESTORE`."""
            if self._curr.token_type == TokenType.IDENTIFIER:
                return None
            name = str(self._curr.text).upper()
            dashed = f"{name}_RESTORE"
            if dashed in OPERATORS and self._next.token_type == TokenType.DASH:
                self._advance(2)
                if self._match_text_seq("RESTORE"):
                    return dashed
                self._advance(-2)
            if name not in OPERATORS:
                return None
            self._advance()
            return name

        def _starts_item(self) -> bool:
            """After a bare operator word: does a select item follow (else the word was a column)?"""
            kind, first = self._curr.token_type, str(self._curr.text)[:1]
            if kind in (TokenType.FROM, TokenType.ALIAS):
                return False
            starts = (TokenType.STAR, TokenType.DISTINCT, TokenType.NUMBER, TokenType.STRING, TokenType.IDENTIFIER)
            return kind in starts or first.isalpha() or first == "_"

        def _parse_expression(self) -> Any:
            start = self._index
            node = super()._parse_expression()
            if node is not None and self._index > start:
                node.meta[TEXT] = self._find_sql(self._tokens[start], self._tokens[self._index - 1])
            return node


DIALECT = CQL()


def tokenize(text: str) -> list[Token]:
    """Tokens of a script, with offsets."""
    return list(DIALECT.tokenize(text))


def parse_type(text: str) -> exp.Expr | None:
    """The tree of a type; None if the text is anything else."""
    whole = f"CAST(NULL AS {text})"
    tokens = tokenize(whole)
    check_nesting(tokens, ScriptText(whole))
    try:
        (tree,) = DIALECT.parser(error_level=ErrorLevel.IMMEDIATE).parse_into(exp.Condition, tokens, whole)
    except ParseError:
        return None
    if type(tree) is not exp.Cast or not isinstance(tree.this, exp.Null):
        return None
    found: exp.Expr = tree.args["to"]
    return found


CLAUSES = ("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "JOIN", "BETWEEN")


def parse_query(source: ScriptText, tokens: list[Token]) -> exp.Query:
    """Parse the tokens of one SELECT."""
    start = tokens[0].start if tokens else 0
    if tokens and tokens[0].token_type == TokenType.VAR:
        hint = _misspelled(tokens[:1])
        raise CQLSyntaxError(f'expected a SELECT, found "{tokens[0].text}"', hint=hint, span=source.span(start))
    check_nesting(tokens, source)
    own = tokens and OWN_WORDS.search(source.text, tokens[0].start, tokens[-1].end + 1)
    try:
        trees = DIALECT.parser(error_level=ErrorLevel.IMMEDIATE).parse(
            with_samples(with_own_words(tokens), source) if own else tokens, source.text
        )
    except ParseError as error:
        raise _syntax_error(error, source, tokens) from None
    except TokenError:  # sqlglot reads the text of a quoted type name again
        raise CQLSyntaxError("a quoted name stands where a type is expected", span=source.span(start)) from None
    except RecursionError:  # from a deep stack, or by words that nest without brackets
        raise too_deep(source.span(start)) from None
    tree = trees[0] if trees else None
    if not isinstance(tree, exp.Query):
        raise CQLSyntaxError("expected a SELECT", span=source.span(start))
    return normalised(tree, source)


def _misspelled(tokens: list[Token]) -> str | None:
    """A hint where one of some words is a name that looks like a word that begins a clause."""
    for token in reversed(tokens):
        if token.token_type == TokenType.VAR:
            near = difflib.get_close_matches(token.text.upper(), CLAUSES, n=1, cutoff=0.75)
            if near and near[0] != token.text.upper():
                return f'did you mean {near[0]} for "{token.text}"?'
    return None


def _syntax_error(error: ParseError, source: ScriptText, tokens: list[Token]) -> CQLSyntaxError:
    info = error.errors[0]
    message = str(info["description"]).strip()
    found = info["highlight"]
    hint = "a query is SELECT ... FROM s [window] WHERE ... GROUP BY ..."
    if found == '"["':
        hint = f"a window is written {FORMS}"
    elif found == '"#"':
        hint = f"a window stands in brackets: {FORMS}"
    elif any(k.text.upper() == "MATCH_RECOGNIZE" for k in tokens if k.start <= int(info["start"])):
        hint = (
            "patterns of rows are not matched: compare a row with those before it, LAG(a) OVER (PARTITION BY k "
            "ORDER BY ts), or join the stream with itself"
        )
    elif any(k.text.upper() == "OUTPUT" for k in tokens if k.start < int(info["start"])):
        hint = "how often answers come is said of the window: FROM s [RANGE 10 MINUTES SLIDE 30 SECONDS]"
    elif found == '"EMIT"':
        hint = "EMIT CHANGES is what every query does; what is final comes from windows: FROM TUMBLE(s, ts, '10 min')"
    elif found in ('"TUMBLING"', '"HOPPING"', '"SESSION"'):
        hint = "write WINDOW TUMBLING (SIZE 10 MINUTES, GRACE PERIOD 1 MINUTE) GROUP BY k"
    elif meant := _misspelled([k for k in tokens if k.start <= int(info["start"])][-4:]):
        hint = meant
    return CQLSyntaxError(
        f"syntax error at {found}",
        detail=None if "<class" in message else message[:1].lower() + message[1:],
        hint=hint,
        span=source.span(int(info["start"])),
    )
