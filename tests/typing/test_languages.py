"""The types of `tl` and `asc` say what the devices take: every name, parameter and default, and nothing else."""

import inspect
import itertools
import typing
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, Protocol, overload

import pytest

from pytest_kernbench.simulator.ahbm import handles, tl
from pytest_kernbench.simulator.ahbm.language import Language
from pytest_kernbench.simulator.ascend310p import asc, language, language_queue, language_sync, tensors, vocabulary
from pytest_kernbench.simulator.ops.op import Op

MADE_BY_TYPING = {"__init__", "__subclasshook__", "__hash__", "__class_getitem__", "__annotate_func__"}
EITHER = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
OPERATORS = {f"__{side}{name}__" for side in ("", "r") for name in ("add", "sub", "mul", "truediv")}
OPERATORS |= {"__lt__", "__le__", "__gt__", "__ge__", "__getitem__", "__iter__"}


class Pair(NamedTuple):
    """What is declared, what there is, and names of the latter that are no business of a kernel's."""

    declared: Any
    real: type
    others: frozenset[str] = frozenset()


PAIRS = (
    Pair(tl.Tl, Language),
    Pair(tl.Pointer, handles.Pointer),
    Pair(tl.Block, handles.Block),
    Pair(tl.Handle, handles.Handle),
    Pair(tl.Op, Op),
    Pair(asc.Asc, language.Asc, frozenset({"LACKS"})),  # what the chip lacks has a table, which is no call
    Pair(asc.Pointer, tensors.Pointer),
    Pair(asc.GlobalTensor, tensors.GlobalTensor),
    Pair(asc.LocalTensor, tensors.LocalTensor),
    Pair(asc.TPipe, language_queue.TPipe),
    Pair(asc.TQue, language_queue.TQue),
    Pair(asc.TQue, language_queue.TQueBind),
    Pair(asc.TBuf, language_queue.TBuf),
    Pair(asc.TQueSync, language_sync.Sync),
    Pair(asc.ElementType, vocabulary.ElementType),
)


def declared_names(protocol: Any) -> set[str]:
    """What a protocol says: attributes, and methods with operators."""
    methods = {
        name for name, value in vars(protocol).items() if inspect.isfunction(value) or isinstance(value, property)
    }
    return (methods - MADE_BY_TYPING) | set(inspect.get_annotations(protocol))


def has(kind: type, name: str) -> bool:
    """Whether objects of a class have the name: of the class, or set when they are made."""
    made = (each.__init__.__code__.co_names for each in kind.__mro__ if inspect.isfunction(vars(each).get("__init__")))
    return hasattr(kind, name) or name in kind.__annotations__ or name in set(itertools.chain(*made))


def words(kind: type, others: frozenset[str]) -> set[str]:
    """What a class lets a kernel say: `tl`'s calls, the vendor's words, and operators that do not refuse."""
    names = {*dir(kind), *kind.__annotations__} if "__annotations__" in vars(kind) else set(dir(kind))
    spoken = {name for name in names if name[0].isupper() or (kind is Language and name[0] != "_")}
    spoken |= set(language.OWN_WORDS) & names if kind is language.Asc else set()
    return {*spoken, *(name for name in OPERATORS & names if not refuses(kind, name))} - others


def refuses(kind: type, name: str) -> bool:
    method = getattr(kind, name)
    return not inspect.isfunction(method) or inspect.signature(method).return_annotation in (NoReturn, "NoReturn")


def forms(protocol: Any, name: str) -> list[inspect.Signature]:
    """The signatures that are declared for a call: one, or those of an overload, without `self`."""
    form = typing.get_type_hints(protocol).get(name)
    owner, called = (form, "__call__") if form is not None and name not in vars(protocol) else (protocol, name)
    method = vars(owner)[called]
    named: Any = SimpleNamespace(__module__=owner.__module__, __qualname__=f"{owner.__qualname__}.{called}")
    return [without_self(each) for each in typing.get_overloads(named) or [method]]


def without_self(method: Any) -> inspect.Signature:
    signature = inspect.signature(method)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def calls() -> Iterator[tuple[Pair, str]]:
    for pair in PAIRS:
        for name in sorted(declared_names(pair.declared)):
            if inspect.isfunction(getattr(pair.real, name, None)):
                yield pair, name


CALLS = [pytest.param(*each, id=f"{each[0].real.__name__}.{each[1]}") for each in calls()]


def ways(signature: inspect.Signature) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Arguments, by position and by name, that the signature takes: all of them, and as few as it may be."""
    for least in (False, True):
        taken = [each for each in signature.parameters.values() if not least or each.default is each.empty]
        first = [each.name for each in taken if each.kind not in EITHER]
        yield first, {each.name: each.name for each in taken if each.kind in EITHER}
        by_place = [each.name for each in taken if each.kind is not each.KEYWORD_ONLY]
        yield by_place, {each.name: each.name for each in taken if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.real.__name__)
def test_what_is_declared_is_there(pair: Pair) -> None:
    names = declared_names(pair.declared)

    assert names
    assert sorted(name for name in names if not has(pair.real, name)) == []


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.real.__name__)
def test_what_a_kernel_may_say_is_declared(pair: Pair) -> None:
    assert sorted(words(pair.real, pair.others) - declared_names(pair.declared)) == []


def test_there_are_calls_of_both_languages() -> None:
    kinds = [each.values[0].real for each in CALLS]  # type: ignore[union-attr]

    assert kinds.count(Language) > 30
    assert kinds.count(language.Asc) > 50


@pytest.mark.parametrize(("pair", "name"), CALLS)
def test_a_declared_call_is_one_that_the_device_takes(pair: Pair, name: str) -> None:
    real = without_self(getattr(pair.real, name))

    for form in forms(pair.declared, name):
        for args, options in ways(form):
            real.bind(*args, **options)  # a TypeError names the parameter


@pytest.mark.parametrize(("pair", "name"), CALLS)
def test_every_parameter_of_the_device_is_declared_with_its_default(pair: Pair, name: str) -> None:
    declared = forms(pair.declared, name)
    if any(each.kind is each.POSITIONAL_ONLY for form in declared for each in form.parameters.values()):
        return  # no names to keep
    for parameter in without_self(getattr(pair.real, name)).parameters.values():
        said = [form.parameters[parameter.name] for form in declared if parameter.name in form.parameters]

        assert said, f"{parameter.name} is missing"
        optional = len(said) < len(declared) or any(each.default is not each.empty for each in said)
        assert optional is (parameter.default is not parameter.empty) or parameter.kind is parameter.VAR_POSITIONAL
        for each in said:
            assert each.default in (each.empty, ..., parameter.default)


def test_every_event_is_declared() -> None:
    events = {event.name for event in vocabulary.HardEvent}

    assert set(inspect.get_annotations(asc.HardEvents)) == events


class Declared(Protocol):
    """A language with every way to say something wrong about `Real`."""

    @overload
    def forms(self, count: int) -> None: ...

    @overload
    def forms(self, count: int, repeats: int) -> None: ...

    def renamed(self, other: int) -> None: ...

    def gone(self) -> None: ...


class Real:
    def forms(self, count: int) -> None: ...

    def renamed(self, one: int) -> None: ...


def test_the_audit_notices_a_form_a_name_and_a_call_that_the_device_does_not_have() -> None:
    pair = Pair(Declared, Real)

    with pytest.raises(TypeError, match=r"too many positional|repeats"):
        test_a_declared_call_is_one_that_the_device_takes(pair, "forms")
    with pytest.raises(TypeError, match="'one'"):
        test_a_declared_call_is_one_that_the_device_takes(pair, "renamed")
    with pytest.raises(AssertionError, match="one is missing"):
        test_every_parameter_of_the_device_is_declared_with_its_default(pair, "renamed")
    with pytest.raises(AssertionError, match="gone"):
        test_what_is_declared_is_there(pair)
