"""More of strings and binaries: codes, distances, encodings, formats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, children, elements
from penstock.functions import Expression, Literal
from penstock.functions.casts import fast_numbers as quick_numbers
from penstock.functions.casts.plan import require_known_digits
from penstock.functions.core import failures
from penstock.functions.core.fast_path import by_column
from penstock.functions.core.strict import Fallible, Mapped
from penstock.functions.patterns.plan import java_pattern
from penstock.functions.plan_registry import SPLIT, Translation, catalyst, entry_name, refuse
from penstock.functions.text import encodings, format_text
from penstock.functions.text import fast_path as quick_texts
from penstock.functions.text import texts as text_functions
from penstock.functions.text.java_uri import parse_url as parse
from penstock.functions.text.masking import Masking
from penstock.functions.text.plan_strings import constant

AREA = "More of strings and binaries"

_FUNCTIONS: dict[str, tuple[Callable[..., object], str]] = {
    "InitCap": (text_functions.initcap, "`initcap`"),
    "SoundEx": (text_functions.soundex, "`soundex`"),
    "FindInSet": (text_functions.find_in_set, "`find_in_set`"),
    "Chr": (text_functions.character, "`chr`, `char`"),
    "StringSpace": (text_functions.space, "`space`"),
    "ByteArrayMethods.contains": (text_functions.contains_bytes, "`contains` of binaries"),
    "ByteArrayMethods.startsWith": (bytes.startswith, "`startswith` of binaries"),
    "ByteArrayMethods.endsWith": (bytes.endswith, "`endswith` of binaries"),
    "ByteArray.lpad": (partial(text_functions.pad_bytes, True), "`lpad` of binaries"),
    "ByteArray.rpad": (partial(text_functions.pad_bytes, False), "`rpad` of binaries"),
    "ExpressionImplUtils.isLuhnNumber": (text_functions.luhn_check, "`luhn_check`"),
    "ExpressionImplUtils.quote": (text_functions.quote, "`quote`"),
    "UTF8String.isValid": (text_functions.always, "`is_valid_utf8`"),
    "UTF8String.makeValid": (str, "`make_valid_utf8`"),
    "ExpressionImplUtils.validateUTF8String": (str, "`validate_utf8`"),
    "ExpressionImplUtils.tryValidateUTF8String": (str, "`try_validate_utf8`"),
    "Base32.encode": (encodings.base32_text, "`to_base32`"),
    "UnBase32.decode": (encodings.base32_bytes, "`from_base32`"),
    "ExpressionImplUtils.jaroWinklerSimilarity": (text_functions.jaro_winkler, "`jaro_winkler_similarity`"),
    "UrlCodec.encode": (encodings.url_encode, "`url_encode`"),
}


def mapped(tree: JavaTree, translation: Translation) -> Expression:
    function, _ = _FUNCTIONS[entry_name(tree)]
    quick = by_column(quick_texts.initcap) if function is text_functions.initcap else None
    return Mapped(function, _arguments(tree, translation), arrow_type(tree), bool(tree.nullable()), quick)


for _name, (_, _forms) in _FUNCTIONS.items():
    catalyst(_name, area=AREA, forms=_forms)(mapped)


def _arguments(tree: JavaTree, translation: Translation) -> list[Expression]:
    """Of a method on an object, that object is the first of the children."""
    return [translation(child) for child in children(tree)]


@catalyst("Levenshtein", area=AREA, forms="`levenshtein`")
def levenshtein(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    function = text_functions.levenshtein if len(operands) == 2 else text_functions.levenshtein_within
    return Mapped(function, operands, pa.int32(), bool(tree.nullable()))


@catalyst("Mask", area=AREA, forms="`mask`", limits="the characters that mask are constants")
def mask(tree: JavaTree, translation: Translation) -> Expression:
    text, *marks = translation.children(tree)
    if not all(isinstance(mark, Literal) for mark in marks):
        refuse(tree, "the characters that mask must be constants")
    masking = Masking(*(None if constant(mark) is None else str(constant(mark)) for mark in marks))
    return Mapped(masking, (text,), pa.string(), bool(tree.nullable()))


@catalyst("Overlay", area=AREA, forms="`overlay`")
def overlay(tree: JavaTree, translation: Translation) -> Expression:
    binary = pa.types.is_binary(arrow_type(tree))
    function = text_functions.overlay_bytes if binary else text_functions.overlay
    return Mapped(function, translation.children(tree), arrow_type(tree), bool(tree.nullable()))


@catalyst("Elt", area=AREA, forms="`elt`")
def elt(tree: JavaTree, translation: Translation) -> Expression:
    index, *choices = translation.children(tree)
    return text_functions.Elt(index, choices, arrow_type(tree), bool(tree.failOnError()))


@catalyst(f"ElementAt({SPLIT})", area=AREA, forms="`split_part`")
def split_part(tree: JavaTree, translation: Translation) -> Expression:
    split, number = children(tree)
    operands = [*translation.children(split), translation(number)]
    return Mapped(text_functions.split_part, operands, pa.string(), bool(tree.nullable()))


@catalyst("Base64.encode", area=AREA, forms="`base64`")
def base64_text(tree: JavaTree, translation: Translation) -> Expression:
    data, chunked = translation.children(tree)
    return Mapped(partial(encodings.base64_text, bool(constant(chunked))), (data,), pa.string(), bool(tree.nullable()))


@catalyst("UnBase64", area=AREA, forms="`unbase64`", limits="not of `to_binary`")
def base64_bytes(tree: JavaTree, translation: Translation) -> Expression:
    if bool(tree.failOnError()):
        refuse(tree, "use unbase64")
    return Mapped(encodings.base64_bytes, translation.children(tree), pa.binary(), bool(tree.nullable()))


@catalyst("Hex", area=AREA, forms="`hex`")
def hexadecimal(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    function: Callable[..., str] = encodings.hex_of_integer
    quick = by_column(quick_texts.hexadecimal)
    if pa.types.is_string(child.data_type):
        function = encodings.hex_of_text
    elif pa.types.is_binary(child.data_type):
        function = encodings.hex_of_bytes
    else:
        quick = by_column(quick_numbers.write_hexadecimal)
    return Mapped(function, (child,), pa.string(), bool(tree.nullable()), quick)


@catalyst("Unhex", area=AREA, forms="`unhex`, `to_binary(..., 'hex')`")
def unhex(tree: JavaTree, translation: Translation) -> Expression:
    error = failures.not_hexadecimal if bool(tree.failOnError()) else None
    return Fallible(encodings.unhex, translation(tree.child()), pa.binary(), error)


@catalyst("Encode.encode", "StringDecode.decode", area=AREA, forms="`encode`, `decode`",
          limits="a constant of the character sets " + ", ".join(encodings.CHARSETS))  # fmt: skip
def recode(tree: JavaTree, translation: Translation) -> Expression:
    value, charset, *legacy = translation.children(tree)
    name = str(constant(charset)).upper()
    if name not in encodings.CHARSETS or any(constant(flag) for flag in legacy):
        refuse(tree, f"the character set must be one of {', '.join(encodings.CHARSETS)}")
    function: Callable[..., object] = encodings.encode if pa.types.is_binary(arrow_type(tree)) else encodings.decode
    return Mapped(partial(function, name), (value,), arrow_type(tree), bool(tree.nullable()))


@catalyst("UrlCodec.decode", area=AREA, forms="`url_decode`, `try_url_decode`")
def url_decode(tree: JavaTree, translation: Translation) -> Expression:
    text, fails = translation.children(tree)
    return Fallible(encodings.url_decode, text, pa.string(), failures.not_a_url if constant(fails) else None)


@catalyst("FormatString", area=AREA, forms="`format_string`, `printf`",
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


@catalyst("FormatNumber", area=AREA, forms="`format_number`", limits="by a number of places, not by a pattern")
def format_number(tree: JavaTree, translation: Translation) -> Expression:
    value, places = translation.children(tree)
    if not pa.types.is_integer(places.data_type):
        refuse(tree, "give the number of decimal places")
    if pa.types.is_floating(value.data_type):
        require_known_digits(tree)
    return Mapped(format_text.format_number, (value, places), pa.string())


@catalyst("ParseUrlEvaluator.evaluate", area=AREA, forms="`parse_url`, `try_parse_url`",
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
        if 2 in java.unsure or java.compiled.groups > 2:
            refuse(tree, "the key must have no groups")
    fails = bool(tree.targetObject().value().failOnError())
    return Mapped(partial(parse, str(part), None if key is None else str(key), fails), (url,), pa.string())
