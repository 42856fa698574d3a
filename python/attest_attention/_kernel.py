"""A kernel that can be judged: a function, and what it declares (SPEC.md, chapter Description)."""
from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Unpack

ARRAYS = ("numpy", "torch", "jax")
DEVICES = ("cpu", "cuda")
# The features without which no profile is met but within limits, and those that each takes beside.
ALL_SIZES = ("gqa", "value-dim", "zero-sizes", "strides")
PROFILES: Dict[str, Tuple[str, ...]] = {
    "forward-core": ("causal", "lse"),
    "training-core": ("backward",),
    "training-full": ("dbias", "dlse", "dropout", "sink", "softcap"),
    "masks": ("dense-mask", "mask-and", "window"),
    "sparse-masks": ("block-sparse", "dilated", "mask-or", "prefix", "segments"),
    "scores": ("alibi", "any-scale", "bias", "sink", "softcap"),
    "dropout": ("dropout",),
    "dropout-generated": ("dropout-generated",),
    "varlen": ("lengths",),
    "packed": ("packed",),
    "paged": ("paged",),
    "layouts": ("expanded", "strides", "transposed"),
    "stored": ("e4m3", "e5m2", "scales-of-heads", "scales-of-positions", "stored-kv", "stored-qk",
               "stored-qkv"),
    "stored-int8": ("int8", "scales-of-heads", "scales-of-positions", "stored-kv", "stored-qk",
                    "stored-qkv"),
    "stored-bfp8": ("bfp8", "stored-kv", "stored-qk", "stored-qkv"),
    "stored-mxfp8": ("e4m3", "e5m2", "mxfp8", "stored-kv", "stored-qk", "stored-qkv"),
}

# Of device="cuda", and of libraries that are told their stream; each suffices for its profile.
IN_STREAMS = ("stream", "two-streams", "graph")
STRIDED = ("strides", "transposed", "expanded")

Function = Callable[..., Any]


class Declared(TypedDict, total=False):
    """What else a description may say, as in SPEC.md, chapter Description."""

    version: str
    vendor: str
    limits: Dict[str, Any]
    keep_quantum: float
    leaves_padding_unwritten: bool
    empty_rows: Dict[str, Any]
    lse: Dict[str, Any]
    window: Dict[str, Any]
    memory: Dict[str, Any]
    threads: bool
    alignment: int
    dispatch: List[Dict[str, Any]]
    beyond_caps: Dict[str, str]


class Kernel:
    """A function with its declaration. Calling it calls the function."""

    def __init__(self, function: Function, arrays: str, device: str, autograd: bool,
                 description: Dict[str, Any]) -> None:
        self.function, self.arrays, self.device, self.autograd = function, arrays, device, autograd
        self.backward_function: Optional[Function] = None
        self.name = str(description["name"])
        self._description = description
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __repr__(self) -> str:
        return f"<attest kernel {self.name}>"

    def backward(self, function: Function) -> Function:
        """A decorator: that function is the backward pass, (p, q, k, v, o, lse, d_o)."""
        if self.autograd:
            raise TypeError(f"{self.name}: backward='autograd' is the backward pass already")
        self.backward_function = function
        return function

    @property
    def description(self) -> Dict[str, Any]:
        told = dict(self._description)
        features: List[str] = list(told["features"])
        has_backward = self.autograd or self.backward_function is not None
        if "backward" in features and not has_backward:
            raise ValueError(f"{self.name}: \"backward\" is declared, and there is neither a "
                             f"function under @{self.function.__name__}.backward nor "
                             f"backward='autograd'")
        if has_backward and "backward" not in features:
            features.append("backward")
        told["features"] = features
        if told["profiles"] is None:
            told["profiles"] = claims(told)
        return told


def claims(description: Dict[str, Any]) -> List[str]:
    """The profiles that it can be held to whole: of a narrow kernel its author says which."""
    features = set(description["features"])
    if "limits" in description or not features.issuperset(ALL_SIZES):
        return []
    names = [name for name, needed in PROFILES.items() if features.issuperset(needed)]
    names += ["double"] if "f64" in description["dtypes"] else []
    names += ["memory"] if "memory" in description else []
    names += ["device"] if features & {*IN_STREAMS, "new-shapes"} else []
    plain = description.get("arithmetic", "exact-f32") == "exact-f32"
    plain = plain and not {"lse", "window"} & set(description)
    return [name if plain else f"{name}+declared" for name in names]


def _names(value: Any, what: str) -> List[str]:
    if isinstance(value, str):
        raise TypeError(f"{what}: expected a list of names, got the text {value!r}")
    return list(value)


def _expect_possible(features: Sequence[str], arrays: str, device: str) -> None:
    """Of features that not every library, or not every device, has."""
    for feature in features:
        if feature in IN_STREAMS and device == "cpu":
            raise ValueError(f"features: {feature!r} is of kernels with device='cuda'")
        if feature in IN_STREAMS and arrays == "jax":
            raise ValueError(f"features: JAX chooses its streams itself: {feature!r} is of kernels "
                             "with arrays='torch'")
        if feature in STRIDED and arrays == "jax" and device != "cpu":
            raise ValueError(f"features: on a device, arrays of JAX are dense: no kernel of "
                             f"arrays='jax' has {feature!r} there")


def kernel(*, dtypes: Sequence[str], features: Sequence[str] = (), arrays: str = "numpy",
           device: str = "cpu", backward: Optional[str] = None, name: Optional[str] = None,
           arithmetic: Any = None, profiles: Optional[Sequence[str]] = None,
           **declared: Unpack[Declared]) -> Callable[[Function], Kernel]:
    """Makes a kernel of a function (p, q, k, v) that returns o, or (o, lse) with the feature lse.

        @attest.kernel(dtypes=["f32"], features=["causal", "lse"], arithmetic="exact-f32")
        def mine(p, q, k, v):
            return my_flash(q, k, v, causal=p.causal, scale=p.scale)

    dtypes       of "f64", "f32", "f16", "bf16"
    features     what it can do beyond full attention: `attest list --features`
    arrays       what it is given: "numpy", "torch" or "jax"; on `device`, "cpu" or "cuda". What it
                 returns it may write to p.out(NAME) instead, but of JAX
    backward     "autograd": the gradients are those of torch or JAX. Else @mine.backward decorates
                 a function (p, q, k, v, o, lse, d_o) that returns dq, dk, dv, and dbias and dsink
                 where these are asked for
    arithmetic   one of ARITHMETICS, of all formats or in an object by format; or a declaration by
                 format. Default: the loosest that needs no declaration
    profiles     that it claims. Default: those whose features it has, if it has no limits and
                 takes any sizes and strides, else none

    `p` is a Problem. What else there is to say, limits first, is in Declared.
    """
    for option in declared:
        if option not in Declared.__annotations__:
            near = difflib.get_close_matches(option, Declared.__annotations__, 1, 0.5)
            known = near[0] + "?" if near else ", ".join(Declared.__annotations__)
            raise TypeError(f"kernel: nothing is declared as {option!r}; "
                            f"{'did you mean' if near else 'there are'} {known}")
    if arrays not in ARRAYS:
        raise ValueError(f"arrays: expected one of {ARRAYS}, got {arrays!r}")
    if device not in DEVICES or (device != "cpu" and arrays == "numpy"):
        raise ValueError(f"device: expected one of {DEVICES}, of arrays='numpy' 'cpu', got "
                         f"{device!r}")
    if backward not in (None, "autograd") or (backward and arrays == "numpy"):
        raise ValueError(f"backward: expected 'autograd', with arrays='torch' or 'jax', got "
                         f"{backward!r}; a function is decorated with @NAME.backward")
    _expect_possible(_names(features, "features"), arrays, device)
    description = {"version": "", "vendor": "", "dtypes": _names(dtypes, "dtypes"),
                   "features": _names(features, "features"), **declared,
                   "profiles": None if profiles is None else _names(profiles, "profiles")}
    if arithmetic is not None:
        description["arithmetic"] = arithmetic

    def decorate(function: Function) -> Kernel:
        if not callable(function):
            raise TypeError(f"kernel: expected a function, got {type(function).__name__}")
        own = name or getattr(function, "__name__", type(function).__name__)
        return Kernel(function, arrays, device, backward == "autograd",
                      {"name": own, **description})

    return decorate
