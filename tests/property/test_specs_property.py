"""Spec strings: every codec's reads back, any text gives a codec or ValueError, lists split where they were joined."""

import json

import pytest
import strategies
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tersor
from tersor.specs import parse_spec, split_list

words = st.text("abz_019.-+e:=, \t\"'\\", max_size=20)
pieces = st.lists(
    st.sampled_from(
        [
            "eden",
            "drive",
            "sq",
            "int8",
            "none",
            ":",
            ",",
            "=",
            "4",
            "-1",
            "0",
            "1e3",
            "inf",
            "nan",
            "true",
            "bits",
            "scale",
            "block",
            "biased",
            "full",
            " ",
            "name",
            "claims",
        ]
    ),
    max_size=9,
).map("".join)


@settings(max_examples=300)
@given(strategies.codecs)
def test_spec_config_and_repr_give_the_codec(codec):
    assert tersor.get_codec(codec.spec) == codec
    assert tersor.get_codec(codec.spec).spec == codec.spec
    assert tersor.get_codec(json.loads(json.dumps(codec.config))) == codec
    assert eval(repr(codec), vars(tersor).copy()) == codec
    assert codec.spec.isascii() and len(codec.spec) <= 255 and " " not in codec.spec


@settings(max_examples=600)
@given(st.one_of(words, pieces, st.text(max_size=10), st.binary(max_size=10).map(lambda b: b.decode("latin-1"))))
@example("eden:4,name=drive")
@example("eden:4,claims=1")
@example("eden:4,bits=4")
@example("eden:4,scale=biased,scale=norm")
@example("eden:²")
@example("none:")
@example("none,")
@example("drive:1")
@example("eden:" + "9" * 250)
@example("eden:" + "9" * 5000)
@example("int8:1e400")
def test_any_text_gives_a_codec_or_value_error(text):
    try:
        codec = tersor.get_codec(text)
    except ValueError:
        return
    assert tersor.get_codec(codec.spec) == codec
    name, values = parse_spec(text)
    assert codec.name == name
    fields = list(codec.config)[1:]
    for key, value in values.items():
        assert getattr(codec, key or fields[0]) == value, "what was written is what there is"


@settings(max_examples=200)
@given(st.lists(strategies.codecs, max_size=6))
def test_lists_split_where_they_were_joined(codecs):
    """For specs whose first value is bare; an item with "=" and no ":" continues the one before."""
    specs = [c.spec for c in codecs]
    if all("=" not in spec.partition(",")[0] for spec in specs):
        assert split_list(",".join(specs)) == specs
        assert split_list(" , ".join(specs)) == specs


@settings(max_examples=200)
@given(words)
def test_lists_lose_nothing(text):
    assert ",".join(split_list(text)) == ",".join(part.strip() for part in text.split(",") if part.strip())


@pytest.mark.parametrize(
    "config",
    [{}, {"name": "nope"}, {"name": "eden"}, {"name": "eden", "bits": 4, "x": 1}, {"bits": 4}, None, 4, [], b"eden:4"],
)
def test_wrong_configs(config):
    with pytest.raises((ValueError, TypeError)):
        tersor.get_codec(config)


def test_values_are_numbers_where_they_can_be():
    _, values = parse_spec("x:a=1,b=-2.5,c=1e3,d=true,e=false,f=inf,g=nan,h=True,i=0x10,j=1_0")
    assert values == {
        **{"a": 1, "b": -2.5, "c": 1000.0, "d": True, "e": False},
        **{"f": "inf", "g": "nan", "h": "True", "i": "0x10", "j": 10},
    }
    assert [type(values[k]) for k in "abcd"] == [int, float, float, bool]


def test_long_and_short_forms():
    assert tersor.get_codec("eden:bits=4,scale=unbiased") == tersor.get_codec("eden:4") == tersor.Eden(4)
    assert tersor.get_codec("eden:bits=4,scale=unbiased").spec == "eden:4"
    assert tersor.get_codec(" eden : 4 , scale = biased ").spec == "eden:4,scale=biased"
    assert tersor.get_codec(tersor.Eden(4)) == tersor.Eden(4)
    assert tersor.get_codec("drive:biased") == tersor.Drive(scale="biased")
    assert tersor.get_codec("eden:4,store_norm=true").store_norm is True
    for text, part in (("nope:4", "eden"), ("eden:4,bit=3", "bits"), ("eden", "eden:4"), ("none:4", "none")):
        with pytest.raises(ValueError, match=part):
            tersor.get_codec(text)
