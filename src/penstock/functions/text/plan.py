"""Functions of strings and binaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, children, elements, kind
from penstock.functions import Expression, Literal
from penstock.functions.casts import fast_numbers
from penstock.functions.casts.plan import require_known_digits
from penstock.functions.collections import lists
from penstock.functions.core import failures
from penstock.functions.core.fast_path import FastPath, FastResult, column_fast_path
from penstock.functions.core.strict import ScalarFunction, VectorFunction
from penstock.functions.logic.logic import CaseWhen, IsNull
from penstock.functions.patterns.plan import java_pattern
from penstock.functions.plan_registry import SPLIT, Translation, catalyst, constant, entry_name, refuse
from penstock.functions.text import encodings, fast_texts, format_text, strings
from penstock.functions.text.java_uri import parse_url as parse
from penstock.functions.text.masking import Masking

STRINGS = "Strings"


def of_strings(tree: JavaTree, operands: list[Expression]) -> list[Expression]:
    """Return the operands, and refuse a binary operand, because Spark's byte-wise variants are not implemented."""
    if any(pa.types.is_binary(operand.data_type) for operand in operands):
        refuse(tree, "only strings are supported; cast the binary column to string first")
    return operands


_LENGTHS = {"Length": "character", "OctetLength": "octet", "BitLength": "bit"}


@catalyst(*_LENGTHS, area=STRINGS, forms="`length`, `octet_length`, `bit_length`")
def length(tree: JavaTree, translation: Translation) -> Expression:
    return strings.StringLength(_LENGTHS[kind(tree)], translation(tree.child()), bool(tree.nullable()))


_STRING_FUNCTIONS: dict[str, tuple[Callable[..., object], str]] = {
    "Upper": (strings.upper, "`upper`"),
    "Lower": (strings.lower, "`lower`, `ilike`"),
    "Substring": (strings.substring, "`substring`, `left`, `right`"),
    "StringReplace": (strings.replace, "`replace`"),
    "StringInstr": (strings.instr, "`instr`"),
    "StringLPad": (partial(strings.pad, True), "`lpad`"),
    "StringRPad": (partial(strings.pad, False), "`rpad`"),
    "Reverse": (strings.reverse, "`reverse`, of arrays too"),
    "StringRepeat": (strings.repeat, "`repeat`"),
    "StringTranslate": (strings.translate, "`translate`"),
    "SubstringIndex": (strings.substring_index, "`substring_index`"),
    "Ascii": (strings.ascii_code, "`ascii`"),
}


_FAST_PATHS: dict[str, Callable[..., FastResult | None]] = {
    "Upper": fast_texts.upper,
    "Lower": fast_texts.lower,
    "Substring": fast_texts.substring,
    "StringReplace": fast_texts.replace,
    "StringInstr": partial(fast_texts.locate, 1),
    "StringLPad": partial(fast_texts.pad, True),
    "StringRPad": partial(fast_texts.pad, False),
    "Reverse": fast_texts.reverse,
    "StringRepeat": fast_texts.repeat,
    "StringTranslate": fast_texts.translate,
    "SubstringIndex": fast_texts.substring_index,
}


def _constant_fast_path(
    function: Callable[..., FastResult | None] | None, operands: Sequence[Expression]
) -> FastPath | None:
    """Return the fast path if all operands except the first are non-null constants."""
    if function is None or not all(isinstance(given, Literal) and given.scalar.is_valid for given in operands[1:]):
        return None
    return column_fast_path(function, *map(constant, operands[1:]))


_BINARY_FUNCTIONS: dict[str, Callable[..., object]] = {
    "Substring": strings.subbytes,
    "Reverse": strings.reverse_bytes,
}


def string_function(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    # Of the functions here only ``reverse`` takes arrays.
    if pa.types.is_list(operands[0].data_type):
        return VectorFunction(lists.reverse, operands, arrow_type(tree), bool(tree.nullable()))
    if kind(tree) in _BINARY_FUNCTIONS and pa.types.is_binary(operands[0].data_type):
        return ScalarFunction(_BINARY_FUNCTIONS[kind(tree)], operands, arrow_type(tree), bool(tree.nullable()))
    of_strings(tree, operands)
    function, _ = _STRING_FUNCTIONS[kind(tree)]
    fast_path = _constant_fast_path(_FAST_PATHS.get(kind(tree)), operands)
    return ScalarFunction(function, operands, arrow_type(tree), bool(tree.nullable()), fast_path)


for _name, (_, _forms) in _STRING_FUNCTIONS.items():
    catalyst(_name, area=STRINGS, forms=_forms)(string_function)

_SIDES = {"StringTrim": "both", "StringTrimLeft": "left", "StringTrimRight": "right"}


@catalyst(*_SIDES, area=STRINGS, forms="`trim`, `btrim`, `ltrim`, `rtrim`, with or without characters")
def trim(tree: JavaTree, translation: Translation) -> Expression:
    side = _SIDES[kind(tree)]
    operands = translation.children(tree)
    if len(operands) == 1:
        return strings.TrimSpaces(side, operands[0], bool(tree.nullable()))
    function, fast_path = partial(strings.trim_characters, side), partial(fast_texts.trim_characters, side)
    return ScalarFunction(
        function, operands, pa.string(), bool(tree.nullable()), _constant_fast_path(fast_path, operands)
    )


_MATCHES: dict[str, Callable[..., object]] = {
    "Contains": strings.contains,
    "StartsWith": str.startswith,
    "EndsWith": str.endswith,
}


@catalyst(*_MATCHES, area=STRINGS, forms="`contains`, `startswith`, `endswith`, simple `like`")
def match_text(tree: JavaTree, translation: Translation) -> Expression:
    operands = of_strings(tree, translation.children(tree))
    pattern = constant(operands[1])
    if isinstance(pattern, str):
        return strings.MatchConstant(kind(tree), operands[0], pattern, bool(tree.nullable()))
    return ScalarFunction(_MATCHES[kind(tree)], operands, pa.bool_(), bool(tree.nullable()))


@catalyst("Concat", area=STRINGS, forms="`concat`, `||`")
def concat(tree: JavaTree, translation: Translation) -> Expression:
    if pa.types.is_list(arrow_type(tree)):
        return lists.ConcatArrays(translation.children(tree), arrow_type(tree), bool(tree.nullable()))
    return strings.Concat(translation.children(tree), arrow_type(tree), bool(tree.nullable()))


@catalyst("ConcatWs", area=STRINGS, forms="`concat_ws`, of arrays too")
def concat_ws(tree: JavaTree, translation: Translation) -> Expression:
    separator, *parts = translation.children(tree)
    return strings.ConcatWithSeparator(separator, parts)


@catalyst("StringLocate", area=STRINGS, forms="`locate`, `position`")
def locate(tree: JavaTree, translation: Translation) -> Expression:
    part, text, start = translation.children(tree)
    start_position, known, nullable = constant(start), constant(part), bool(tree.nullable())
    if isinstance(start_position, int) and isinstance(known, str):
        fast_path = column_fast_path(fast_texts.locate, start_position, known)
        return ScalarFunction(
            partial(strings.locate, known, start=start_position), (text,), pa.int32(), nullable, fast_path
        )
    found = ScalarFunction(strings.locate, (part, text, start), pa.int32(), nullable)
    if not start.nullable:
        return found
    return CaseWhen([(IsNull(start, negated=False), Literal(0, pa.int32()))], found, pa.int32(), found.nullable)


MORE_STRINGS = "More of strings and binaries"

_PLAIN_FUNCTIONS: dict[str, tuple[Callable[..., object], str]] = {
    "InitCap": (strings.initcap, "`initcap`"),
    "SoundEx": (strings.soundex, "`soundex`"),
    "FindInSet": (strings.find_in_set, "`find_in_set`"),
    "Chr": (strings.character, "`chr`, `char`"),
    "StringSpace": (strings.space, "`space`"),
    "ByteArrayMethods.contains": (strings.contains_bytes, "`contains` of binaries"),
    "ByteArrayMethods.startsWith": (bytes.startswith, "`startswith` of binaries"),
    "ByteArrayMethods.endsWith": (bytes.endswith, "`endswith` of binaries"),
    "ByteArray.lpad": (partial(strings.pad_bytes, True), "`lpad` of binaries"),
    "ByteArray.rpad": (partial(strings.pad_bytes, False), "`rpad` of binaries"),
    "ExpressionImplUtils.isLuhnNumber": (strings.luhn_check, "`luhn_check`"),
    "ExpressionImplUtils.quote": (strings.quote, "`quote`"),
    "UTF8String.isValid": (strings.is_valid_utf8, "`is_valid_utf8`"),
    "UTF8String.makeValid": (str, "`make_valid_utf8`"),
    "ExpressionImplUtils.validateUTF8String": (str, "`validate_utf8`"),
    "ExpressionImplUtils.tryValidateUTF8String": (str, "`try_validate_utf8`"),
    "Base32.encode": (encodings.base32_text, "`to_base32`"),
    "UnBase32.decode": (encodings.base32_bytes, "`from_base32`"),
    "ExpressionImplUtils.jaroWinklerSimilarity": (strings.jaro_winkler, "`jaro_winkler_similarity`"),
    "UrlCodec.encode": (encodings.url_encode, "`url_encode`"),
}


def plain_function(tree: JavaTree, translation: Translation) -> Expression:
    function, _ = _PLAIN_FUNCTIONS[entry_name(tree)]
    fast_path = column_fast_path(fast_texts.initcap) if function is strings.initcap else None
    return ScalarFunction(function, _arguments(tree, translation), arrow_type(tree), bool(tree.nullable()), fast_path)


for _name, (_, _forms) in _PLAIN_FUNCTIONS.items():
    catalyst(_name, area=MORE_STRINGS, forms=_forms)(plain_function)


def _arguments(tree: JavaTree, translation: Translation) -> list[Expression]:
    """Compile the arguments. The first child of a method call is the object."""
    return [translation(child) for child in children(tree)]


@catalyst("Levenshtein", area=MORE_STRINGS, forms="`levenshtein`")
def levenshtein(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    function = strings.levenshtein if len(operands) == 2 else strings.levenshtein_within
    return ScalarFunction(function, operands, pa.int32(), bool(tree.nullable()))


@catalyst("Mask", area=MORE_STRINGS, forms="`mask`", limits="the characters that mask are constants")
def mask(tree: JavaTree, translation: Translation) -> Expression:
    text, *marks = translation.children(tree)
    if not all(isinstance(mark, Literal) for mark in marks):
        refuse(tree, "the characters that mask must be constants")
    masking = Masking(*(None if constant(mark) is None else str(constant(mark)) for mark in marks))
    return ScalarFunction(masking, (text,), pa.string(), bool(tree.nullable()))


@catalyst("Overlay", area=MORE_STRINGS, forms="`overlay`")
def overlay(tree: JavaTree, translation: Translation) -> Expression:
    binary = pa.types.is_binary(arrow_type(tree))
    function = strings.overlay_bytes if binary else strings.overlay
    return ScalarFunction(function, translation.children(tree), arrow_type(tree), bool(tree.nullable()))


@catalyst("Elt", area=MORE_STRINGS, forms="`elt`")
def elt(tree: JavaTree, translation: Translation) -> Expression:
    index, *choices = translation.children(tree)
    return strings.Elt(index, choices, arrow_type(tree), bool(tree.failOnError()))


@catalyst(f"ElementAt({SPLIT})", area=MORE_STRINGS, forms="`split_part`")
def split_part(tree: JavaTree, translation: Translation) -> Expression:
    split, number = children(tree)
    operands = [*translation.children(split), translation(number)]
    return ScalarFunction(strings.split_part, operands, pa.string(), bool(tree.nullable()))


@catalyst("Base64.encode", area=MORE_STRINGS, forms="`base64`")
def base64_text(tree: JavaTree, translation: Translation) -> Expression:
    data, chunked = translation.children(tree)
    return ScalarFunction(
        partial(encodings.base64_text, bool(constant(chunked))), (data,), pa.string(), bool(tree.nullable())
    )


@catalyst("UnBase64", area=MORE_STRINGS, forms="`unbase64`", limits="not of `to_binary`")
def base64_bytes(tree: JavaTree, translation: Translation) -> Expression:
    if bool(tree.failOnError()):
        refuse(tree, "use unbase64")
    return ScalarFunction(encodings.base64_bytes, translation.children(tree), pa.binary(), bool(tree.nullable()))


@catalyst("Hex", area=MORE_STRINGS, forms="`hex`")
def hexadecimal(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    function: Callable[..., str] = encodings.hex_of_integer
    fast_path = column_fast_path(fast_texts.hexadecimal)
    if pa.types.is_string(child.data_type):
        function = encodings.hex_of_text
    elif pa.types.is_binary(child.data_type):
        function = encodings.hex_of_bytes
    else:
        fast_path = column_fast_path(fast_numbers.write_hexadecimal)
    return ScalarFunction(function, (child,), pa.string(), bool(tree.nullable()), fast_path)


@catalyst("Unhex", area=MORE_STRINGS, forms="`unhex`, `to_binary(..., 'hex')`")
def unhex(tree: JavaTree, translation: Translation) -> Expression:
    error = failures.not_hexadecimal if bool(tree.failOnError()) else None
    return ScalarFunction(encodings.unhex, (translation(tree.child()),), pa.binary(), error=error)


@catalyst("Encode.encode", "StringDecode.decode", area=MORE_STRINGS, forms="`encode`, `decode`",
          limits="a constant of the character sets " + ", ".join(encodings.CHARSETS))  # fmt: skip
def recode(tree: JavaTree, translation: Translation) -> Expression:
    value, charset, *legacy = translation.children(tree)
    name = str(constant(charset)).upper()
    if name not in encodings.CHARSETS or any(constant(flag) for flag in legacy):
        refuse(tree, f"the character set must be one of {', '.join(encodings.CHARSETS)}")
    function: Callable[..., object] = encodings.encode if pa.types.is_binary(arrow_type(tree)) else encodings.decode
    return ScalarFunction(partial(function, name), (value,), arrow_type(tree), bool(tree.nullable()))


@catalyst("UrlCodec.decode", area=MORE_STRINGS, forms="`url_decode`, `try_url_decode`")
def url_decode(tree: JavaTree, translation: Translation) -> Expression:
    text, fails = translation.children(tree)
    error = failures.not_a_url if constant(fails) else None
    return ScalarFunction(encodings.url_decode, (text,), pa.string(), error=error)


@catalyst("FormatString", area=MORE_STRINGS, forms="`format_string`, `printf`",
          limits="a constant format of `%s %d %x %o %f %b %% %n`, of texts, booleans, integers, floats")  # fmt: skip
def format_string(tree: JavaTree, translation: Translation) -> Expression:
    template, *operands = translation.children(tree)
    if not isinstance(template, Literal) or not template.scalar.is_valid:
        refuse(tree, "the format must be a constant")
    try:
        parts = format_text.directives_of(str(constant(template)))
        for part in parts:
            if isinstance(part, format_text.Directive):
                _check_directive(tree, part, operands)
    except format_text.UnknownDirective as error:
        refuse(tree, f"the directive {error}")
    return format_text.FormatString(parts, operands)


def _check_directive(tree: JavaTree, directive: format_text.Directive, operands: list[Expression]) -> None:
    if directive.argument >= len(operands):
        raise format_text.UnknownDirective("without an argument")
    data_type = operands[directive.argument].data_type
    if pa.types.is_floating(data_type):
        require_known_digits(tree)
    if not pa.types.is_null(data_type):
        format_text.writer_of(directive, data_type)


@catalyst("FormatNumber", area=MORE_STRINGS, forms="`format_number`", limits="by a number of places, not by a pattern")
def format_number(tree: JavaTree, translation: Translation) -> Expression:
    value, decimal_places = translation.children(tree)
    if not pa.types.is_integer(decimal_places.data_type):
        refuse(tree, "give the number of decimal places")
    if pa.types.is_floating(value.data_type):
        require_known_digits(tree)
    return ScalarFunction(format_text.format_number, (value, decimal_places), pa.string())


@catalyst("ParseUrlEvaluator.evaluate", area=MORE_STRINGS, forms="`parse_url`, `try_parse_url`",
          limits="the part and the key are constants; the key is a pattern, see `rlike`")  # fmt: skip
def parse_url(tree: JavaTree, translation: Translation) -> Expression:
    url, *given = [translation(argument) for argument in elements(tree.arguments())]
    if not all(isinstance(argument, Literal) for argument in given):
        refuse(tree, "the part and the key must be constants")
    part, key = [constant(argument) for argument in given] + [None] * (2 - len(given))
    if part is None or (len(given) > 1 and key is None):
        return Literal(None, pa.string())
    if key is not None:
        java = java_pattern(tree, f"(&|^){key}=([^&]*)")
        if 2 in java.ambiguous_groups or java.compiled.groups > 2:
            refuse(tree, "the key must have no groups")
    fails = bool(tree.targetObject().value().failOnError())
    return ScalarFunction(partial(parse, str(part), None if key is None else str(key), fails), (url,), pa.string())
