"""The table [energy]: what is told, what comes back, and what is refused."""

import tomllib

import pytest

from folkman.config.choices import ConfigError
from folkman.config.comparison import resolve, to_toml
from folkman.config.text import override
from folkman.energy import Energy


def test_a_configuration_without_the_table_is_that_of_before():
    plain = resolve({}, try_builders=False)
    assert plain.energy == Energy()
    assert "energy" not in to_toml(plain)
    written_out = override({}, ["energy.receive_w=0.1058", "energy.link_bits_per_s=10e6"])
    assert to_toml(resolve(written_out, try_builders=False)) == to_toml(plain)


def test_powers_that_are_set_come_back_from_the_file():
    settings = ["energy.receive_w=0.3", "energy.radiated_w=0.1", "energy.joules_per_gradient=2"]
    found = resolve(override({}, settings), try_builders=False)
    wanted = Energy(radiated_w=0.1, receive_w=0.3, joules_per_gradient=2.0)
    assert found.energy == wanted
    again = resolve(tomllib.loads(to_toml(found)), try_builders=False)
    assert again.energy == wanted
    assert to_toml(again) == to_toml(found)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"recieve_w": 1}, "unknown key 'energy.recieve_w'; did you mean 'receive_w'"),
        ({"receive_w": -1}, r"\[energy\]: receive_w must be finite and not negative, got -1.0; 0"),
        ({"receive_w": "much"}, "'energy.receive_w' is not right: .* got 'much'"),
        (3, r"\[energy\] must be a table, got 3"),
    ],
)
def test_a_wrong_table_is_refused(table, said):
    with pytest.raises(ConfigError, match=said):
        resolve({"energy": table}, try_builders=False)
