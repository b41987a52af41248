import numpy as np
import pytest
from tools.simulate.lengths import BadLengths, Lengths

MESSAGE = (
    "'{}' is no distribution of token counts: expected a number such as 512, uniform:LOW-HIGH such as "
    "uniform:16-1024, or lognormal:MEDIAN:SIGMA such as lognormal:512:0.8, with counts of at least 1."
)


@pytest.mark.parametrize("text", ["", "0", "-3", "many", "uniform:5", "uniform:9-8", "uniform:0-8", "lognormal:512"])
def test_what_is_no_distribution_is_refused(text):
    with pytest.raises(BadLengths) as caught:
        Lengths.parse(text)
    assert str(caught.value) == MESSAGE.format(text)


def test_fixed():
    assert Lengths.parse("7") == Lengths.parse("fixed:7")
    assert Lengths.parse("7").sample(np.random.default_rng(0), 3).tolist() == [7, 7, 7]


def test_uniform_includes_both_ends():
    drawn = Lengths.parse("uniform:3-5").sample(np.random.default_rng(0), 500)
    assert set(drawn.tolist()) == {3, 4, 5}


def test_lognormal_has_its_median_and_no_zeros():
    drawn = Lengths.parse("lognormal:100:0.5").sample(np.random.default_rng(0), 20_001)
    assert abs(np.median(drawn) - 100) < 3
    assert abs(np.log(drawn).std() - 0.5) < 0.02
    assert Lengths.parse("lognormal:1:3").sample(np.random.default_rng(0), 1000).min() == 1
