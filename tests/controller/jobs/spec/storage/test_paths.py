from __future__ import annotations

import pytest

from controller.jobs.spec.field_types import VolumePath, check_path, parse_path, place_of


def test_a_path_consists_of_volume_and_remainder() -> None:
    path = parse_path("/home/ada/set 1")
    assert path == VolumePath("home", ("ada", "set 1"))
    assert path.basename == "set 1"
    assert path.sub_path == "ada/set 1"


def test_a_volume_root_is_mounted_under_its_name() -> None:
    path = parse_path("/sets")
    assert (path.basename, path.sub_path) == ("sets", "")


@pytest.mark.parametrize(
    "raw",
    ["", "home", "/", "//", "/home//x", "/home/..", "/home/../x", "/../x", "/home/./x",
     "/home/x\ny", "/home/x\0", "/home/" + "x" * 256, "/home/x//", "./x"],
)  # fmt: skip
def test_a_path_that_leaves_its_volume_is_refused(raw: str) -> None:
    with pytest.raises(ValueError, match="path"):
        parse_path(raw)


def test_a_trailing_slash_is_ignored() -> None:
    assert check_path("/home/ada/") == "/home/ada"


def test_a_file_is_mounted_in_the_working_directory_under_its_own_name() -> None:
    assert place_of("set1", "/work") == "/work/set1"
    assert place_of("set1", "/") == "/set1"
